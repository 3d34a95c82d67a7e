/* bench_marks.c - the once ledger inside one process: what a claim and its end cost a broker, how
 * much memory marks take, and how long a start with many of them is.
 *
 *     bench_marks [KEYS]      1,000,000 if not said; 10000000 is the promise
 *
 * Operations come as a loop's turn has them: 64 claims in one visit, then 64 ends. Only processor
 * time of this thread counts for them, so that others on the machine disturb little.
 */
#include "bench_store.h"

#include "broker/ledger.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCH_OPS  64
#define MARKS_MOST (1024.0 * 1024 * 1024) /* bytes, of ten million */
#define KEYS_LEAST 150000.0               /* a second */
#define OPEN_MOST  5.0                    /* seconds, for ten million */
#define MILLIONS   10e6

static uint64_t keys = 1000000;

static uint64_t thread_ns(void)
{
    struct timespec t;
    must(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0, "clock_gettime");
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct broker *open_broker(struct rig *rig)
{
    struct broker_options options = {
        .store = rig->store,
        .vfs = rig->disk,
        .clock = clock_system(),
        .seed = 1,
        .cluster = "bench",
        .name = "bench",
        .region = "bench",
        .perm = PERM_READ | PERM_WRITE,
        .default_queues = QUEUES,
        .max_message_size = 4 << 20,
        .max_topics = 100,
        .max_groups = 100,
        .max_clients = 100,
        .max_halves = 100,
        .ledger = true,
        .ledger_max_keys = 100000000,
        .ledger_grace_ms = 2000,
    };
    struct fault why = {0};
    struct broker *broker;
    must_ok(broker_open(&options, &broker, &why), &why, "broker_open");
    return broker;
}

/* Bytes that look like a hash. */
static void id_of(uint64_t number, uint8_t id[ONCE_ID_SIZE])
{
    uint64_t x = number + 1;
    for (size_t i = 0; i < ONCE_ID_SIZE; i += 8) {
        x = (x ^ x >> 31) * UINT64_C(0x9E3779B97F4A7C15);
        x ^= x >> 29;
        memcpy(id + i, &x, sizeof x);
    }
}

static void turn(struct broker *broker, struct ledger_desk *desk, enum op_kind kind, uint64_t from)
{
    static struct op ops[BATCH_OPS];
    struct ledger_told told;
    char names[BATCH_OPS][24];
    for (uint64_t i = 0; i < BATCH_OPS; i++) {
        snprintf(names[i], sizeof names[i], "order-%" PRIu64, from + i);
        ops[i] = (struct op){.kind = kind,
                             .name = names[i],
                             .topic = kind == OP_CLAIM ? "orders" : "",
                             .message = kind == OP_CLAIM ? names[i] : "",
                             .token = UINT64_C(7) << 32 | (from + i + 1),
                             .fingerprint = from + i + 1,
                             .expiry_ms = 30000,
                             .retention_ms = 72 * 3600 * 1000};
        id_of(from + i, ops[i].id);
    }
    struct ledger_ask ask = {.group = BYTES("bench"), .ops = ops, .n = BATCH_OPS};
    broker_ledger(broker, desk, &ask, 1, &told);
    must_ok(ask.err, &ask.why, "broker_ledger");
    for (size_t i = 0; i < BATCH_OPS; i++)
        must(ops[i].outcome == OUT_OK, "an operation");
}

static size_t memory_used(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

static void fill(struct broker *broker)
{
    struct ledger_desk *desk;
    must_ok(ledger_desk_open(&desk), NULL, "ledger_desk_open");
    size_t before = memory_used();
    uint64_t spent = 0;
    for (uint64_t key = 0; key < keys; key += BATCH_OPS) {
        uint64_t begin = thread_ns();
        turn(broker, desk, OP_CLAIM, key);
        turn(broker, desk, OP_FINISH, key);
        spent += thread_ns() - begin;
        broker_dispatch_turn(broker);
    }
    double each = (double)spent / (double)keys, bytes = (double)(memory_used() - before);
    judge(1e9 / each >= KEYS_LEAST,
          "a claim and its end take %.0f ns of one core: %.0f keys a second (at least %.0f)", each,
          1e9 / each, KEYS_LEAST);
    judge(bytes / (double)keys * MILLIONS < MARKS_MOST,
          "%llu marks in %.0f MB, %.1f bytes each (ten million below 1 GB)",
          (unsigned long long)keys, bytes / 1e6, bytes / (double)keys);
    ledger_desk_close(desk);
}

static bool work(const char *folder)
{
    static struct rig rig;
    struct fault why = {0};
    char path[PATH_ROOM];
    path_in(path, folder, "ledger");
    rig_init(&rig, path);
    rig_no_sync(&rig);
    rig_open(&rig);
    struct broker *broker = open_broker(&rig);
    fill(broker);
    uint64_t begin = now_ns();
    must_ok(broker_close(broker, &why), &why, "broker_close");
    printf("ledger: stopped with a snapshot in %.2f s\n", (double)(now_ns() - begin) / 1e9);
    rig_close(&rig);
    rig_open(&rig);
    uint64_t spent = thread_ns();
    begin = now_ns();
    broker = open_broker(&rig);
    double seconds = (double)(now_ns() - begin) / 1e9, own = (double)(thread_ns() - spent) / 1e9;
    struct broker_numbers n;
    broker_numbers(broker, &n);
    must(n.ledger.keys >= keys, "all marks are there again");
    judge(own / (double)keys * MILLIONS < OPEN_MOST,
          "opened again with %llu marks in %.2f s, %.2f s of one core (ten million in %.0f s)",
          (unsigned long long)n.ledger.keys, seconds, own, OPEN_MOST);
    must_ok(broker_close(broker, &why), &why, "broker_close");
    rig_close(&rig);
    rig_clear(&rig);
    return all_passed();
}

int main(int argc, char **argv)
{
    if (argc > 1)
        keys = strtoull(argv[1], NULL, 10) / BATCH_OPS * BATCH_OPS;
    keys = keys / BATCH_OPS * BATCH_OPS;
    return keys > 0 && in_folder(work) ? 0 : 1;
}
