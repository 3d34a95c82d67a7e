/* skew.c - a program whose clock is wrong: linked into a second worker, it stands before the C
 * library's own functions, also for the libraries that are loaded later. SKEW_S is how many seconds
 * the wall clock is ahead; clocks that only measure are right. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *out)
{
    long got = syscall(SYS_clock_gettime, clock, out);
    const char *skew = getenv("SKEW_S");
    if (got == 0 && clock == CLOCK_REALTIME && skew)
        out->tv_sec += strtol(skew, NULL, 10);
    return (int)got;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
