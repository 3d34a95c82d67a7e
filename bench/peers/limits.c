/* limits.c - what the disk and the memory allow at all, beside the servers in the same run.
 *
 *     bench_limits FOLDER SIZE MILLISECONDS        prints one line of JSON
 *
 * append   Records with a body of SIZE bytes are copied into a mapped file whose blocks are
 *          allocated, and the CRC of each body is computed: what storing a message takes at the
 *          very least. Pages are new, since a log never writes elsewhere.
 * write    The same, written to such a file BATCH records at a time.
 * sync     GROUP records are written behind those before, then fdatasync: a group commit of all
 *          that 8 connections with 32 messages under way can have given. Told is how many records a
 *          second that makes, and how many syncs. Once into a file that grows, as a bare loop
 *          would, and once over blocks that were written before, which is what preparing files
 *          could gain at most.
 */
#include "base/bytes.h"
#include "base/crc32.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define RECORD_OVER 196u /* what a record has beside its body: 91 bytes, topic and properties */
#define GROUP       256u
#define BATCH       32u
#define APPEND_MOST (1u << 30) /* bytes */
#define SYNC_MOST   (256u << 20)

struct told {
    double per_second, cpu_us; /* records, and the thread's processor time for each */
    double syncs;              /* a second */
};

static void must(bool fine, const char *what)
{
    if (fine)
        return;
    perror(what);
    exit(2);
}

static uint64_t ns_of(clockid_t clock)
{
    struct timespec t;
    must(clock_gettime(clock, &t) == 0, "clock_gettime");
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A file without a name, so that nothing is left. */
static int file_make(const char *folder)
{
    int fd = open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/limits.tmp", folder);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0 && unlink(path) == 0, folder);
    return fd;
}

static void group_write(int fd, const uint8_t *group, size_t size, off_t at)
{
    while (size > 0) {
        ssize_t n = pwrite(fd, group, size, at);
        must(n > 0, "writing");
        group += n;
        size -= (size_t)n;
        at += n;
    }
}

/* Into a mapping, record by record, or by writes of BATCH records. */
static struct told append(const char *folder, uint8_t *records, size_t body, bool mapped,
                          uint64_t run_ns)
{
    size_t size = body + RECORD_OVER, room = APPEND_MOST / size / BATCH * BATCH, n = 0;
    int fd = file_make(folder);
    must(posix_fallocate(fd, 0, (off_t)(room * size)) == 0, "allocating blocks");
    uint8_t *map = mmap(NULL, room * size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(map != MAP_FAILED, "mapping");
    uint64_t wall = ns_of(CLOCK_MONOTONIC), cpu = ns_of(CLOCK_THREAD_CPUTIME_ID), spent = 0;
    uint32_t sum = 0;
    while (n < room && (spent = ns_of(CLOCK_MONOTONIC) - wall) < run_ns) {
        for (size_t i = 0; i < BATCH; i++) {
            uint8_t *record = records + i * size;
            store_u64(record, n + i);
            sum += crc32_of(bytes_of(record + RECORD_OVER, body));
            if (mapped)
                memcpy(map + (n + i) * size, record, size);
        }
        if (!mapped)
            group_write(fd, records, BATCH * size, (off_t)(n * size));
        n += BATCH;
    }
    spent = ns_of(CLOCK_MONOTONIC) - wall;
    cpu = ns_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
    must(sum != 0, "sum");
    (void)munmap(map, room * size);
    (void)close(fd);
    return (struct told){(double)n * 1e9 / (double)spent, (double)cpu / 1e3 / (double)n, 0};
}

static struct told sync_groups(int fd, const uint8_t *group, size_t bytes, uint64_t run_ns)
{
    uint64_t wall = ns_of(CLOCK_MONOTONIC), cpu = ns_of(CLOCK_THREAD_CPUTIME_ID), spent = 0;
    size_t n = 0;
    while ((n + 1) * bytes <= SYNC_MOST && (spent = ns_of(CLOCK_MONOTONIC) - wall) < run_ns) {
        group_write(fd, group, bytes, (off_t)(n++ * bytes));
        must(fdatasync(fd) == 0, "fdatasync");
    }
    spent = ns_of(CLOCK_MONOTONIC) - wall;
    cpu = ns_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
    double syncs = (double)n * 1e9 / (double)spent;
    return (struct told){syncs * GROUP, (double)cpu / 1e3 / (double)(n * GROUP), syncs};
}

static void tell(const char *name, struct told t, const char *behind)
{
    printf("\"%s\": {\"per_second\": %.1f, \"cpu_us\": %.4f, \"syncs\": %.2f}%s", name,
           t.per_second, t.cpu_us, t.syncs, behind);
}

int main(int argc, char **argv)
{
    int64_t body, ms;
    if (argc != 4 || !bytes_to_i64(bytes_str(argv[2]), &body) || body < 1 || body > (1 << 20) ||
        !bytes_to_i64(bytes_str(argv[3]), &ms) || ms < 1) {
        fprintf(stderr, "usage: bench_limits FOLDER SIZE MILLISECONDS\n");
        return 2;
    }
    size_t size = (size_t)body + RECORD_OVER;
    uint64_t run_ns = (uint64_t)ms * 1000000;
    uint8_t *group = malloc(GROUP * size);
    must(group, "memory");
    for (size_t i = 0; i < GROUP * size; i++)
        group[i] = (uint8_t)(i * 7 + i / 256 + 1);

    struct told appended = append(argv[1], group, (size_t)body, true, run_ns);
    struct told written = append(argv[1], group, (size_t)body, false, run_ns);
    int fd = file_make(argv[1]);
    struct told grown = sync_groups(fd, group, GROUP * size, run_ns);
    struct told over = sync_groups(fd, group, GROUP * size, run_ns);
    (void)close(fd);
    printf("{");
    tell("append", appended, ", ");
    tell("write", written, ", ");
    tell("sync", grown, ", ");
    tell("sync_over", over, "}\n");
    free(group);
    return 0;
}
