/*
 * Counts what a program asks of its disk, and changes nothing: LD_PRELOAD=sync-counter.so SYNC_COUNTS=file.
 * The file holds two 64-bit numbers: syncs (fsync, fdatasync, msync with MS_SYNC, sync_file_range, syncfs, sync), and
 * files opened so that each write is a sync (O_SYNC, O_DSYNC).
 * Writes are not looked at: the price of looking would show in the rates.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct counts { _Atomic uint64_t syncs, synced_files; } fallback, *counts = &fallback;

__attribute__((constructor)) static void start(void) {
  const char *path = getenv("SYNC_COUNTS");
  if (!path) return;
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  if (ftruncate(fd, sizeof *counts) == 0) {
    void *map = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) counts = map;
  }
  close(fd);
}

/* Looked up once: a look-up takes longer than counting. */
#define NEXT(name) ({ \
  static __typeof__(&name) next; \
  if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
  next; \
})

int fsync(int fd) { counts->syncs++; return NEXT(fsync)(fd); }
int fdatasync(int fd) { counts->syncs++; return NEXT(fdatasync)(fd); }
int syncfs(int fd) { counts->syncs++; return NEXT(syncfs)(fd); }
void sync(void) { counts->syncs++; NEXT(sync)(); }
int sync_file_range(int fd, off64_t at, off64_t size, unsigned int flags) {
  counts->syncs++;
  return NEXT(sync_file_range)(fd, at, size, flags);
}
int msync(void *from, size_t size, int flags) {
  if (flags & MS_SYNC) counts->syncs++;
  return NEXT(msync)(from, size, flags);
}

#define OPEN(name, before, given) \
  int name(before const char *path, int flags, ...) { \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
      va_list rest; \
      va_start(rest, flags); \
      mode = va_arg(rest, mode_t); \
      va_end(rest); \
    } \
    if (flags & O_DSYNC) counts->synced_files++; \
    return NEXT(name)(given path, flags, mode); \
  }
#define COMMA ,
OPEN(open, , )
OPEN(open64, , )
OPEN(openat, int folder COMMA, folder COMMA)
OPEN(openat64, int folder COMMA, folder COMMA)
