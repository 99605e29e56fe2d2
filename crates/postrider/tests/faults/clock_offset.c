/* Preloaded into a server: its wall clock is off by the seconds in the file of POSTRIDER_CLOCK. Monotonic time is not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    const char *name = getenv("POSTRIDER_CLOCK");
    if (result != 0 || clock != CLOCK_REALTIME || !name) return result;
    FILE *file = fopen(name, "r");
    long long offset = 0;
    if (file) {
        if (fscanf(file, "%lld", &offset) != 1) offset = 0;
        fclose(file);
    }
    now->tv_sec += offset;
    return 0;
}
