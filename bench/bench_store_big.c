/* bench_store_big.c - starting: a big store after a clean stop, a log after a crash, many queues.
 *
 * Everything is in the page cache, since it was written just before; what is still dirty is put on
 * the disk first, so that no start waits for the writes of another part.
 */
#include "bench_store.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static double open_ms(struct rig *rig)
{
    uint64_t start = now_ns();
    rig_open(rig);
    return (double)(now_ns() - start) / 1e6;
}

/* ---- after a clean stop ---- */

#define OPEN_ROUNDS 11
#define OPEN_MS     200
#define SMALL_BYTES ((uint64_t)64 << 20)
#define BIG_GIB     2 /* BIG=1: 10 */

static void build(struct rig *rig, const char *folder, uint64_t bytes)
{
    static struct batch batch;
    rig_init(rig, folder);
    rig_open(rig);
    rig_start(rig);
    batch_init(&batch, rig, "Bench", QUEUES, 1);
    batch_fill(&batch, bytes);
    rig_stop(rig);
    rig_close(rig);
}

bool bench_open(void *folder)
{
    static struct rig small, big;
    char small_folder[PATH_ROOM], big_folder[PATH_ROOM];
    path_in(small_folder, folder, "small");
    path_in(big_folder, folder, "big");
    uint64_t gib = getenv("BIG") ? 10 : BIG_GIB;
    build(&small, small_folder, SMALL_BYTES);
    build(&big, big_folder, gib << 30);
    disk_settle(folder);

    double small_ms[OPEN_ROUNDS], big_ms[OPEN_ROUNDS];
    for (int round = 0; round < OPEN_ROUNDS; round++) {
        small_ms[round] = open_ms(&small);
        rig_close(&small);
        big_ms[round] = open_ms(&big);
        must(big.report.clean && big.report.examined_bytes == 0, "a clean stop");
        rig_close(&big);
    }
    rig_clear(&small);
    rig_clear(&big);
    remove_all(small_folder);
    remove_all(big_folder);

    double result = median(big_ms, OPEN_ROUNDS);
    printf("store: open: %.1f ms with 64 MiB, %.1f ms with %llu GiB, slowest %.1f ms\n",
           median(small_ms, OPEN_ROUNDS), result, (unsigned long long)gib, big_ms[OPEN_ROUNDS - 1]);
    judge(result < OPEN_MS, "open after a clean stop: %.1f ms (target under %d ms)", result,
          OPEN_MS);
    return all_passed();
}

/* ---- after a crash ---- */

#define CRASH_ROUNDS 7
#define CRASH_BYTES  ((uint64_t)900 << 20) /* in one log file, so that all of it is examined */
#define CRASH_GIB_S  1.0

struct crash {
    char folder[PATH_ROOM];
    uint64_t examined; /* told through the pipe, with the time */
    double ms;
    int told[2];
};

static bool append_and_die(void *arg)
{
    struct crash *crash = arg;
    static struct rig rig;
    static struct batch batch;
    rig_init(&rig, crash->folder);
    rig_open(&rig);
    rig_start(&rig);
    batch_init(&batch, &rig, "Bench", QUEUES, 1);
    batch_fill(&batch, CRASH_BYTES);
    batch_append(&batch, BATCH); /* the last ones are not dispatched */
    (void)raise(SIGKILL);
    return false;
}

/* Opens, tells how long it took, and crashes again: so the next round finds the same. */
static bool open_and_die(void *arg)
{
    struct crash *crash = arg;
    static struct rig rig;
    rig_init(&rig, crash->folder);
    crash->ms = open_ms(&rig);
    crash->examined = rig.report.examined_bytes;
    must(!rig.report.clean && rig.report.cut_bytes == 0, "a crash");
    must(write(crash->told[1], crash, sizeof *crash) == sizeof *crash, "telling");
    (void)raise(SIGKILL);
    return false;
}

bool bench_crash(void *folder)
{
    static struct crash crash;
    path_in(crash.folder, folder, "crash");
    must(pipe(crash.told) == 0, "pipe");
    (void)in_process(append_and_die, &crash);

    double rate[CRASH_ROUNDS], first_ms = 0;
    for (int round = 0; round < CRASH_ROUNDS; round++) {
        disk_settle(folder);
        (void)in_process(open_and_die, &crash);
        must(read(crash.told[0], &crash, sizeof crash) == sizeof crash, "being told");
        must(crash.examined >= CRASH_BYTES, "what was examined");
        rate[round] = (double)crash.examined / (double)(1u << 30) * 1000 / crash.ms;
        first_ms = round ? first_ms : crash.ms;
    }
    remove_all(crash.folder);

    double result = median(rate, CRASH_ROUNDS);
    printf("store: recovery: %.0f MiB examined; the first took %.0f ms, %.2f to %.2f GiB/s\n",
           (double)crash.examined / (1u << 20), first_ms, rate[0], rate[CRASH_ROUNDS - 1]);
    judge(result >= CRASH_GIB_S, "recovery after a crash: %.2f GiB/s (target %.1f GiB/s)", result,
          CRASH_GIB_S);
    return all_passed();
}

/* ---- many queues ---- */

#define TOPICS        10000
#define QUEUES_ROUNDS 5
#define QUEUES_MB     300
#define QUEUES_MS     3000

/* Anonymous memory of this process in MB. */
static double anonymous_mb(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    must(f != NULL, "/proc/self/status");
    char line[256];
    unsigned long kib = 0;
    while (fgets(line, sizeof line, f) && sscanf(line, "RssAnon: %lu", &kib) != 1)
        ;
    (void)fclose(f);
    return (double)kib * 1024 / 1e6;
}

/* One message for each queue, 32 at a time. */
static void send_to_all(struct rig *rig)
{
    static struct batch batch;
    char topics[BATCH / QUEUES][32];
    for (unsigned topic = 0; topic < TOPICS; topic += BATCH / QUEUES) {
        if (topic == 0)
            batch_init(&batch, rig, "Topic_00000", QUEUES, 1);
        for (unsigned i = 0; i < BATCH; i++) {
            char *name = topics[i / QUEUES];
            int len = snprintf(name, sizeof topics[0], "Topic_%05u", topic + i / QUEUES);
            struct draft *d = &batch.drafts[i];
            d->topic = bytes_of(name, (size_t)len);
            d->queue = store_queue(rig->store, d->topic, d->queue_id);
            must(d->queue != NULL, "queue");
        }
        batch_send(&batch, BATCH);
    }
}

static bool queues_build(void *arg)
{
    static struct rig rig;
    rig_init(&rig, arg);
    rig_no_sync(&rig);
    rig_open(&rig);
    send_to_all(&rig);
    rig_close(&rig);
    rig_clear(&rig);
    return true;
}

/* In a process that has had no other store: nothing that was freed before can be used again. The
 * first start counts: later ones find in memory what it has read. */
static bool queues_open(void *arg)
{
    static struct rig rig;
    double ms[QUEUES_ROUNDS];
    double before = anonymous_mb();
    rig_init(&rig, arg);
    ms[0] = open_ms(&rig);
    must(rig.report.clean && rig.report.queues == TOPICS * QUEUES, "queues");
    double opened = anonymous_mb() - before;
    for (int round = 1; round < QUEUES_ROUNDS; round++) {
        rig_close(&rig);
        ms[round] = open_ms(&rig);
    }
    rig_no_sync(&rig);
    send_to_all(&rig);
    double used = anonymous_mb() - before;

    double worst = used > opened ? used : opened, first = ms[0];
    (void)median(ms, QUEUES_ROUNDS);
    printf("store: queues: %d topics of %d queues open in %.0f to %.0f ms, %.0f MB then, %.0f MB "
           "after a message to each\n",
           TOPICS, QUEUES, ms[0], ms[QUEUES_ROUNDS - 1], opened, used);
    judge(worst < QUEUES_MB, "memory of many queues: %.0f MB (target under %d MB)", worst,
          QUEUES_MB);
    judge(first < QUEUES_MS, "first start with many queues: %.0f ms (target under %d ms)", first,
          QUEUES_MS);
    return all_passed();
}

bool bench_queues(void *folder)
{
    char inside[PATH_ROOM];
    path_in(inside, folder, "queues");
    uint64_t start = now_ns();
    must(in_process(queues_build, inside), "building");
    printf("store: queues: building took %.1f s\n", (double)(now_ns() - start) / 1e9);
    bool good = in_process(queues_open, inside);
    remove_all(inside); /* soon: what has no place on the disk yet needs no writing */
    return good;
}
