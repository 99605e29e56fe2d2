/* Preloaded into a server: writes down everything that it does to the files of the folder POSTRIDER_DISK_ROOT, in
 * order, into the file POSTRIDER_DISK_LOG. A record is: kind (1 byte), length of the name (1 byte), the name, a number
 * (8 bytes), length of the data (4 bytes), the data. Kinds:
 *   C the file was made        W data was written at the number   S the file is on disk (an empty name: the folder)
 *   U the file was deleted     T it was cut to the number         R it was renamed; the data is the new name
 *   M the head of SQLite's shared memory has changed
 * A record is written after the call, and calls wait for each other, so that the order is that of the calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = dlsym(RTLD_NEXT, name)
#define HEAD 96

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* The name of a file in the folder; "" for the folder itself; NULL for another file. */
static const char *name_of(const char *path) {
    const char *root = getenv("POSTRIDER_DISK_ROOT");
    size_t length = root ? strlen(root) : 0;
    if (!length || strncmp(path, root, length) != 0) return NULL;
    if (!path[length]) return "";
    if (path[length] != '/' || strchr(path + length + 1, '/')) return NULL;
    return strstr(path, " (deleted)") ? NULL : path + length + 1;
}

static const char *name_of_fd(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    return name_of(path);
}

static void append(char kind, const char *name, uint64_t number, const void *data, uint32_t length) {
    static ssize_t (*real)(int, const struct iovec *, int);
    static int log = -1;
    if (!real) real = dlsym(RTLD_NEXT, "writev");
    if (log < 0) {
        static int (*opened)(const char *, int, ...);
        opened = dlsym(RTLD_NEXT, "open");
        log = opened(getenv("POSTRIDER_DISK_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    uint8_t named = (uint8_t)strlen(name);
    struct iovec parts[] = {
        {&kind, 1}, {&named, 1}, {(void *)name, named}, {&number, 8}, {&length, 4}, {(void *)data, length},
    };
    if (real(log, parts, 6) != (ssize_t)(14 + named + length)) abort();
}

/* The kernel may bring shared memory to the disk at any time. */
static void append_shared_memory(void) {
    static char last[HEAD];
    static int fd = -1;
    static ino_t inode;
    char path[4096], now[HEAD];
    struct stat found;
    snprintf(path, sizeof path, "%s/postrider.db-shm", getenv("POSTRIDER_DISK_ROOT"));
    if (stat(path, &found) != 0) return;
    if (fd < 0 || found.st_ino != inode) {
        /* The old one is not closed: that would end SQLite's locks. */
        REAL(int, "open", const char *, int, ...);
        fd = real(path, O_RDONLY | O_CLOEXEC);
        inode = found.st_ino;
    }
    if (fd >= 0 && pread(fd, now, HEAD, 0) == HEAD && memcmp(now, last, HEAD) != 0) {
        memcpy(last, now, HEAD);
        append('M', "postrider.db-shm", 0, now, HEAD);
    }
}

static int is_followed(const char *name) {
    return name && (!*name || (strncmp(name, "postrider.", 10) == 0 && !strstr(name, "-shm") && !strstr(name, ".reserve")));
}

static void note(char kind, const char *name, uint64_t number, const void *data, uint32_t length) {
    append_shared_memory();
    append(kind, name, number, data, length);
}

static int open_noted(const char *path, int flags, mode_t mode) {
    REAL(int, "open", const char *, int, ...);
    const char *name = name_of(path);
    if (!is_followed(name) || !*name || !(flags & (O_CREAT | O_TRUNC))) return real(path, flags, mode);
    pthread_mutex_lock(&lock);
    struct stat before;
    int was_there = stat(path, &before) == 0;
    int fd = real(path, flags, mode);
    if (fd >= 0 && !was_there) note('C', name, 0, "", 0);
    if (fd >= 0 && was_there && (flags & O_TRUNC)) note('T', name, 0, "", 0);
    pthread_mutex_unlock(&lock);
    return fd;
}

/* Reads a mode also where there is none, which does no harm. */
#define MODE(mode, flags) \
    va_list rest; \
    va_start(rest, flags); \
    mode_t mode = va_arg(rest, mode_t); \
    va_end(rest)

int open(const char *path, int flags, ...) {
    MODE(mode, flags);
    return open_noted(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(mode, flags);
    return open_noted(path, flags, mode);
}

static ssize_t written(int fd, const void *data, ssize_t count, off_t offset) {
    char path[4096];
    const char *name = count > 0 ? name_of_fd(fd, path, sizeof path) : NULL;
    if (is_followed(name) && *name) note('W', name, (uint64_t)offset, data, (uint32_t)count);
    return count;
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t offset) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    pthread_mutex_lock(&lock);
    ssize_t done = written(fd, data, real(fd, data, count, offset), offset);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t count, off_t offset) {
    return pwrite(fd, data, count, offset);
}

ssize_t write(int fd, const void *data, size_t count) {
    REAL(ssize_t, "write", int, const void *, size_t);
    char path[4096];
    const char *name = name_of_fd(fd, path, sizeof path);
    if (!is_followed(name) || !*name) return real(fd, data, count);
    pthread_mutex_lock(&lock);
    off_t offset = lseek(fd, 0, SEEK_CUR);
    ssize_t done = written(fd, data, real(fd, data, count), offset);
    pthread_mutex_unlock(&lock);
    return done;
}

static int cut(int fd, off_t length, int done) {
    char path[4096];
    const char *name = done == 0 ? name_of_fd(fd, path, sizeof path) : NULL;
    if (is_followed(name) && *name) note('T', name, (uint64_t)length, "", 0);
    return done;
}

int ftruncate(int fd, off_t length) {
    REAL(int, "ftruncate", int, off_t);
    pthread_mutex_lock(&lock);
    int done = cut(fd, length, real(fd, length));
    pthread_mutex_unlock(&lock);
    return done;
}

int ftruncate64(int fd, off_t length) {
    return ftruncate(fd, length);
}

/* The disk is the log, so nothing else is synced. */
int fdatasync(int fd) {
    char path[4096];
    pthread_mutex_lock(&lock);
    const char *name = name_of_fd(fd, path, sizeof path);
    if (is_followed(name)) note('S', name, 0, "", 0);
    pthread_mutex_unlock(&lock);
    return 0;
}

int fsync(int fd) {
    return fdatasync(fd);
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    pthread_mutex_lock(&lock);
    const char *name = name_of(path);
    int done = real(path);
    if (done == 0 && is_followed(name) && *name) note('U', name, 0, "", 0);
    pthread_mutex_unlock(&lock);
    return done;
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    pthread_mutex_lock(&lock);
    const char *old = name_of(from), *new = name_of(to);
    int done = real(from, to);
    if (done == 0 && is_followed(old) && new) note('R', old, 0, new, (uint32_t)strlen(new));
    pthread_mutex_unlock(&lock);
    return done;
}
