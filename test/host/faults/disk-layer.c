/*
 * A layer between a program and its disk, for tests and benchmarks: LD_PRELOAD=disk-layer.so.
 *
 *   DISK_LAYER_PATH    only files whose path contains this text
 *   DISK_LAYER_ORDERS  a file with orders, reloaded whenever it changes: "sync_delay_ms N", "fail_write N ERRNO",
 *                      "hold_syncs" (each hangs until the file changes), "fail_sync N ERRNO" (the Nth from now, once),
 *                      "kill_write N" (kills the process before the Nth write from now), "refuse_writes ERRNO" (fails
 *                      all writes until the file changes), "fail_read INODE FROM TO" (EIO for every read of a file that
 *                      overlaps these bytes: a bad sector, which stays with the file when it is renamed)
 *   DISK_LAYER_JOURNAL a file to which every write, truncation and sync is copied in order, so that a test can
 *                      reconstruct the disk after a power cut: a record is op, path length, offset, size (four 64-bit
 *                      numbers), path, bytes; op is 1 write, 2 sync, 3 truncate, 4 failed sync
 *   DISK_LAYER_COUNTS  a file of counters: writes, syncs, bytes, failures (four 64-bit numbers)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct counts { uint64_t writes, syncs, bytes, failures; } fallback, *counts = &fallback;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct timespec read_at;
static off_t read_size = -1;
static long sync_delay_ms, fail_write, fail_sync, kill_write, refuse_errno;
static int write_errno, sync_errno, hold_syncs;
#define MAX_SECTORS 128
static struct sector { unsigned long inode; long from, to; } sectors[MAX_SECTORS];
static int sector_count;

static void read_orders(void) {
  const char *path = getenv("DISK_LAYER_ORDERS");
  struct stat now;
  if (!path || stat(path, &now) != 0) return;
  if (now.st_mtim.tv_sec == read_at.tv_sec && now.st_mtim.tv_nsec == read_at.tv_nsec && now.st_size == read_size) return;
  read_at = now.st_mtim;
  read_size = now.st_size;
  sync_delay_ms = fail_write = fail_sync = kill_write = refuse_errno = hold_syncs = 0;
  sector_count = 0;
  FILE *file = fopen(path, "r");
  if (!file) return;
  char word[64];
  while (fscanf(file, "%63s", word) == 1) {
    if (!strcmp(word, "sync_delay_ms")) { if (fscanf(file, "%ld", &sync_delay_ms) != 1) break; }
    else if (!strcmp(word, "hold_syncs")) hold_syncs = 1;
    else if (!strcmp(word, "fail_write")) { if (fscanf(file, "%ld %d", &fail_write, &write_errno) != 2) break; }
    else if (!strcmp(word, "fail_sync")) { if (fscanf(file, "%ld %d", &fail_sync, &sync_errno) != 2) break; }
    else if (!strcmp(word, "kill_write")) { if (fscanf(file, "%ld", &kill_write) != 1) break; }
    else if (!strcmp(word, "fail_read")) {
      struct sector *next = &sectors[sector_count % MAX_SECTORS];
      if (fscanf(file, "%lu %ld %ld", &next->inode, &next->from, &next->to) != 3) break;
      if (sector_count < MAX_SECTORS) sector_count++;
    }
    else if (!strcmp(word, "refuse_writes")) { if (fscanf(file, "%ld", &refuse_errno) != 1) break; }
  }
  fclose(file);
}

__attribute__((constructor)) static void start(void) {
  const char *path = getenv("DISK_LAYER_COUNTS");
  if (!path) return;
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  if (fd < 0) return;
  if (ftruncate(fd, sizeof *counts) == 0) {
    void *map = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) counts = map;
  }
  close(fd);
}

static int journal = -1;
static char path[4096];

/* Must be called with the lock held and `path` set. */
static void note(uint64_t op, uint64_t offset, const void *bytes, uint64_t size) {
  const char *name = getenv("DISK_LAYER_JOURNAL");
  uint64_t head[4] = {op, strlen(path), offset, size};
  ssize_t (*next)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  if (!name || strstr(path, "-shm")) return;
  if (journal < 0) journal = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (journal < 0) return;
  if (next(journal, head, sizeof head) < 0 || next(journal, path, head[1]) < 0) return;
  if (bytes && next(journal, bytes, size) < 0) return;
}

/*
 * Returns whether the descriptor is a regular file. Checked before the lock is acquired, because a signal handler
 * writes to a pipe and may interrupt the thread that holds the lock. Pipes, sockets and terminals are excluded here.
 */
static int on_disk(int fd) {
  struct stat file;
  int before = errno, regular = fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
  errno = before;
  return regular;
}

/* Sets `path` and returns whether the layer applies to the file. Must be called with the lock held. */
static int ours(int fd) {
  const char *part = getenv("DISK_LAYER_PATH");
  char link[64];
  if (!part) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return strstr(path, part) != NULL;
}

/* Returns 0 to continue, or the errno to fail with. */
static int before_write(int fd, const void *from, size_t bytes, off64_t at) {
  int result = 0;
  if (!on_disk(fd)) return 0;
  pthread_mutex_lock(&lock);
  if (!ours(fd)) {
    pthread_mutex_unlock(&lock);
    return 0;
  }
  read_orders();
  if (kill_write && --kill_write == 0) raise(SIGKILL);
  if (refuse_errno) result = (int)refuse_errno;
  else if (fail_write && --fail_write == 0) result = write_errno;
  if (result) counts->failures++;
  else {
    counts->writes++;
    counts->bytes += bytes;
    note(1, (uint64_t)at, from, bytes);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

static int before_sync(int fd) {
  int result = 0;
  long delay;
  if (!on_disk(fd)) return 0;
  pthread_mutex_lock(&lock);
  if (!ours(fd)) {
    pthread_mutex_unlock(&lock);
    return 0;
  }
  read_orders();
  while (hold_syncs) {
    struct timespec moment = {0, 5000000};
    pthread_mutex_unlock(&lock);
    nanosleep(&moment, NULL);
    pthread_mutex_lock(&lock);
    ours(fd);
    read_orders();
  }
  delay = sync_delay_ms;
  if (fail_sync && --fail_sync == 0) result = sync_errno;
  if (result) counts->failures++;
  else counts->syncs++;
  note(result ? 4 : 2, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  if (delay) {
    struct timespec wait = {delay / 1000, delay % 1000 * 1000000};
    nanosleep(&wait, NULL);
  }
  return result;
}

static int before_read(int fd, size_t bytes, off64_t at) {
  int result = 0;
  struct stat file;
  if (!on_disk(fd)) return 0;
  pthread_mutex_lock(&lock);
  if (ours(fd)) {
    read_orders();
    if (sector_count && fstat(fd, &file) == 0)
      for (int i = 0; i < sector_count; i++)
        if (sectors[i].inode == file.st_ino && at < sectors[i].to && at + (off64_t)bytes > sectors[i].from) result = EIO;
    if (result) counts->failures++;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REFUSE(check) do { int refused = (check); if (refused) { errno = refused; return -1; } } while (0)

ssize_t write(int fd, const void *from, size_t size) {
  REFUSE(before_write(fd, from, size, lseek64(fd, 0, SEEK_CUR)));
  return NEXT(write)(fd, from, size);
}
ssize_t pwrite(int fd, const void *from, size_t size, off_t at) {
  REFUSE(before_write(fd, from, size, at));
  return NEXT(pwrite)(fd, from, size, at);
}
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) {
  REFUSE(before_write(fd, from, size, at));
  return NEXT(pwrite64)(fd, from, size, at);
}
ssize_t read(int fd, void *into, size_t size) {
  REFUSE(before_read(fd, size, lseek64(fd, 0, SEEK_CUR)));
  return NEXT(read)(fd, into, size);
}
ssize_t pread(int fd, void *into, size_t size, off_t at) {
  REFUSE(before_read(fd, size, at));
  return NEXT(pread)(fd, into, size, at);
}
ssize_t pread64(int fd, void *into, size_t size, off64_t at) {
  REFUSE(before_read(fd, size, at));
  return NEXT(pread64)(fd, into, size, at);
}
int fsync(int fd) {
  REFUSE(before_sync(fd));
  return NEXT(fsync)(fd);
}
int fdatasync(int fd) {
  REFUSE(before_sync(fd));
  return NEXT(fdatasync)(fd);
}
static void before_truncate(int fd, off64_t size) {
  pthread_mutex_lock(&lock);
  if (ours(fd)) note(3, (uint64_t)size, NULL, 0);
  pthread_mutex_unlock(&lock);
}
int ftruncate(int fd, off_t size) {
  before_truncate(fd, size);
  return NEXT(ftruncate)(fd, size);
}
int ftruncate64(int fd, off64_t size) {
  before_truncate(fd, size);
  return NEXT(ftruncate64)(fd, size);
}
