/* bench_dedup.c - what recognising messages that were stored before costs a send, inside one
 * process and one thread: the same requests go to a broker with dedup and to one without, in turn.
 *
 * Only processor time of this thread counts, so that others on the machine disturb little. What is
 * compared is the verb alone (check, place, store; no network): a part of what a broker does for a
 * message, so the whole broker pays a smaller share (broker.py dedup).
 *
 *     bench_dedup                  both, as a ratio
 *     bench_dedup with|without     one of them, for a profiler: what it counts is repeatable
 *                                  however busy the machine is
 */
#include "bench_store.h"

#include "broker/broker.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define REQUESTS 32  /* in one turn of a loop */
#define TURNS    200 /* in one round */
#define ROUNDS   41
#define WARM     17 /* rounds, in which the table is filled */
#define PROPS    96

struct side {
    struct rig rig;
    struct broker *broker;
    struct desk *desk;
    double ns; /* a message, of the last round */
};

static uint64_t thread_ns(void)
{
    struct timespec t;
    must(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0, "clock_gettime");
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void side_open(struct side *side, const char *folder, const char *name, const char *key)
{
    char path[PATH_ROOM];
    path_in(path, folder, name);
    rig_init(&side->rig, path);
    rig_open(&side->rig);
    struct broker_options options = {
        .store = side->rig.store,
        .vfs = side->rig.disk,
        .clock = clock_system(),
        .seed = 1,
        .cluster = "bench",
        .name = "bench",
        .region = "bench",
        .perm = PERM_READ | PERM_WRITE,
        .default_queues = QUEUES,
        .auto_topics = true,
        .max_message_size = 4 << 20,
        .max_topics = 100,
        .max_groups = 100,
        .max_clients = 100,
        .max_halves = 100,
        .dedup_key = key,
        .dedup_window_ms = 600000,
        .dedup_max_keys = 100000,
    };
    struct fault why = {0};
    must_ok(broker_open(&options, &side->broker, &why), &why, "broker_open");
    must_ok(desk_open(side->broker, &side->desk), NULL, "desk_open");
}

static void side_close(struct side *side)
{
    struct fault why = {0};
    desk_close(side->desk);
    must_ok(broker_close(side->broker, &why), &why, "broker_close");
    rig_close(&side->rig);
    rig_clear(&side->rig);
}

static void side_round(struct side *side, uint64_t *key)
{
    static uint8_t body[BODY_SIZE];
    static char props[REQUESTS][PROPS];
    struct produce requests[REQUESTS];
    uint64_t spent = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < REQUESTS; i++) {
            int len = snprintf(props[i], PROPS, "TAGS\1TagA\2WAIT\1true\2UNIQ_KEY\1%032llX\2",
                               (unsigned long long)(*key)++ * 0x9E3779B97F4A7C15ull);
            requests[i] = (struct produce){
                .group = BYTES("PG"),
                .topic = BYTES("T"),
                .default_topic = BYTES("TBW102"),
                .default_queues = QUEUES,
                .queue_id = i % QUEUES,
                .body = bytes_of(body, sizeof body),
                .props = bytes_of(props[i], (size_t)len),
            };
        }
        uint64_t end, begin = thread_ns();
        broker_produce(side->broker, side->desk, requests, REQUESTS, &end);
        spent += thread_ns() - begin;
        for (int i = 0; i < REQUESTS; i++)
            must_ok(requests[i].err, &requests[i].why, "broker_produce");
        broker_dispatch_turn(side->broker);
    }
    side->ns = (double)spent / (TURNS * REQUESTS);
}

static const struct {
    const char *name, *key;
} kinds[] = {{"without", ""}, {"with", "UNIQ_KEY"}};

static bool compare(const char *folder)
{
    static struct side sides[2];
    for (int k = 0; k < 2; k++)
        side_open(&sides[k], folder, kinds[k].name, kinds[k].key);
    double ratios[ROUNDS], extra[ROUNDS];
    uint64_t key = 1;
    for (int i = -WARM; i < ROUNDS; i++) {
        side_round(&sides[i & 1], &key);
        side_round(&sides[!(i & 1)], &key);
        if (i < 0)
            continue;
        ratios[i] = sides[1].ns / sides[0].ns;
        extra[i] = sides[1].ns - sides[0].ns;
    }
    struct broker_numbers n;
    broker_numbers(sides[1].broker, &n);
    printf("dedup: a send takes %.2f times as long, %.0f ns more; %llu keys in %.1f bytes each\n",
           median(ratios, ROUNDS), median(extra, ROUNDS), (unsigned long long)n.keys,
           (double)n.keys_bytes / (double)n.keys);
    for (int k = 0; k < 2; k++)
        side_close(&sides[k]);
    return true;
}

/* For profilers. */
static bool alone(const char *folder, int kind)
{
    static struct side side;
    side_open(&side, folder, "alone", kinds[kind].key);
    uint64_t key = 1;
    double ns[ROUNDS];
    for (int i = -WARM; i < ROUNDS; i++) {
        side_round(&side, &key);
        if (i >= 0)
            ns[i] = side.ns;
    }
    printf("dedup: a send %s it takes %.0f ns; %d messages in all\n", kinds[kind].name,
           median(ns, ROUNDS), (WARM + ROUNDS) * TURNS * REQUESTS);
    side_close(&side);
    return true;
}

static bool alone_with(const char *folder)
{
    return alone(folder, 1);
}

static bool alone_without(const char *folder)
{
    return alone(folder, 0);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return in_folder(compare) ? 0 : 1;
    return in_folder(strcmp(argv[1], "with") == 0 ? alone_with : alone_without) ? 0 : 1;
}
