/* bench_broker_count.c - what the load generator measures. */
#include "bench_broker.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void sample_add(struct sample *s, uint64_t ns)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 1u << 16;
        s->ns = realloc(s->ns, s->cap * sizeof *s->ns);
        must(s->ns, "memory");
    }
    s->ns[s->n++] = ns;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

double sample_us(struct sample *s, double share)
{
    if (s->n == 0)
        wrong("nothing was measured");
    qsort(s->ns, s->n, sizeof *s->ns, by_size);
    size_t index = (size_t)((double)s->n * share);
    return (double)s->ns[index < s->n ? index : s->n - 1] / 1000;
}

/* The whole of a small file under /proc. */
static void proc_read(pid_t pid, const char *name, char *out, size_t size)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    FILE *file = fopen(path, "re");
    must(file, path);
    size_t n = fread(out, 1, size - 1, file);
    out[n] = 0;
    (void)fclose(file);
}

uint64_t cpu_ns_of(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    must(clock_getcpuclockid(pid, &clock) == 0, "clock_getcpuclockid");
    must(clock_gettime(clock, &t) == 0, "clock_gettime");
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double resident_mb_of(pid_t pid)
{
    char text[4096];
    proc_read(pid, "status", text, sizeof text);
    const char *at = strstr(text, "VmRSS:");
    unsigned long long kib;
    if (!at || sscanf(at + 6, "%llu", &kib) != 1)
        wrong("/proc/%d/status cannot be read", (int)pid);
    return (double)kib / 1024;
}

double cpu_ns_own(void)
{
    struct rusage used;
    must(getrusage(RUSAGE_SELF, &used) == 0, "getrusage");
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e9 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e3;
}
