/*
 * Functions that the compiler's headers require and the libraries of Debian 11 do not export. stat is a libc function since
 * glibc 2.33; the system call is older and fills the same struct on 64-bit machines.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))
struct stat64;

HIDDEN int stat64(const char *path, struct stat64 *found) {
  return syscall(SYS_newfstatat, AT_FDCWD, path, found, 0);
}

HIDDEN int lstat64(const char *path, struct stat64 *found) {
  return syscall(SYS_newfstatat, AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW);
}

HIDDEN int fstat64(int file, struct stat64 *found) {
  return syscall(SYS_fstat, file, found);
}

/* std::__throw_bad_array_new_length() of GCC 11. Without exceptions, it can only abort. */
HIDDEN void _ZSt28__throw_bad_array_new_lengthv(void) {
  abort();
}
