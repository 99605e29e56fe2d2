/* Preloaded into a server: makes its disk fail as the file of POSTRIDER_FAULTS says. Each line is a fault:
 *   read PAGE    a page of the database cannot be read: EIO
 *   late PAGE    the same, but the disk does not answer: ETIMEDOUT, upon which SQLite gives up the transaction
 *   sync         the journal cannot be synced
 *   sync part    the database cannot be synced after a part of the journal was moved
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_file(int fd, const char *suffix) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    size_t wanted = strlen(suffix);
    return (size_t)length >= wanted && strcmp(path + length - wanted, suffix) == 0;
}

/* Whether the file of faults has the line. */
static int has_fault(const char *wanted) {
    const char *name = getenv("POSTRIDER_FAULTS");
    FILE *file = name ? fopen(name, "r") : NULL;
    if (!file) return 0;
    char line[128];
    int found = 0;
    while (!found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        found = strcmp(line, wanted) == 0;
    }
    fclose(file);
    return found;
}

static int has_fault_at(const char *kind, off_t offset) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s %lld", kind, (long long)(offset / 4096 + 1));
    return has_fault(wanted);
}

static int cannot_read(int fd, off_t offset) {
    if (!is_file(fd, "/postrider.db")) return 0;
    if (has_fault_at("read", offset)) errno = EIO;
    else if (has_fault_at("late", offset)) errno = ETIMEDOUT;
    else return 0;
    return 1;
}

ssize_t pread(int fd, void *buffer, size_t count, off_t offset) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "pread");
    return cannot_read(fd, offset) ? -1 : real(fd, buffer, count, offset);
}

ssize_t pread64(int fd, void *buffer, size_t count, off_t offset) {
    return pread(fd, buffer, count, offset);
}

static int cannot_sync(int fd) {
    const char *fault = is_file(fd, "/postrider.db-wal") ? "sync" : is_file(fd, "/postrider.db") ? "sync part" : NULL;
    if (!fault || !has_fault(fault)) return 0;
    errno = EIO;
    return 1;
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    return cannot_sync(fd) ? -1 : real(fd);
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    return cannot_sync(fd) ? -1 : real(fd);
}
