/* bench_broker_grow.c - the same load on more and more of something: what does a message cost then?
 *
 * A *line* is a queue of a topic: `topics` × `queues` of them, called Grow-0, Grow-1 … so that a
 * generator that comes later finds them again. Messages go to the lines in turn, so each is for
 * another one than that before it: whatever a server keeps at hand for the line it used last helps
 * it least. Pulls go through lines and `groups` groups in the same way, `batch` messages each, and
 * begin again at a line's end.
 *
 * Beside `conns` connections that are used there are `idle` ones that have registered as consumers
 * and say nothing more.
 *
 * It stays connected, and works in turns, one for each line on standard input:
 *
 *     send N    N messages
 *     time N    N messages that wait for their time, an hour or more, over an hour
 *     pull N    N pulls, each where the one before it ended
 *     seek N    N pulls, each anywhere
 *
 * All are answered at the end of a turn. Its result is a line of JSON: the server's processor time
 * for each request, all threads. Answers are checked as by the other loads.
 */
#include "bench_broker.h"
#include "msg/msg.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/time.h>

#define IN_SIZE        (256u << 10)
#define REQUEST_ROOM   2048
#define ANSWER_WAIT_MS 60000
#define GROUP_SIZE     10 /* of idle consumers */
#define FAR_MS         3600000

enum verb { SEND, TIME, PULL, SEEK };

struct line {
    char topic[32];
    unsigned queue;
    struct stamp plain, timed;
    int64_t end; /* as far as answers have said */
};

struct slot {
    bool open;
    uint32_t opaque;
    struct line *line;
    int64_t offset; /* of a pull */
};

struct growing {
    const struct load *load;
    struct wire *wires, *idlers;
    struct slot *slots; /* conns × flight */
    struct line *lines;
    size_t n_lines;
    int64_t *places; /* groups × lines: where each group goes on */
    uint8_t *out;
    size_t out_room;
    int epoll_fd;
    uint64_t sent, pulled; /* in all */
    enum verb verb;
    uint64_t wanted, begun, answered; /* in this turn */
    int64_t due_ms;
    uint64_t chance;
};

/* ---- requests ---- */

static size_t send_put(struct growing *g, struct slot *slot, uint8_t *to)
{
    struct line *line = &g->lines[g->sent % g->n_lines];
    const struct stamp *stamp = g->verb == TIME ? &line->timed : &line->plain;
    slot->line = line;
    stamp_put(stamp, to, slot->opaque, 0, g->sent++);
    if (g->verb == TIME)
        stamp_due(stamp, to, g->due_ms + (int64_t)(g->begun * FAR_MS / g->wanted));
    return stamp->len;
}

/* A place with `batch` messages behind it. */
static int64_t place_next(struct growing *g, struct line *line, int64_t *place)
{
    int64_t batch = g->load->batch;
    if (line->end < batch)
        wrong("%s has %lld messages, too few for a pull", line->topic, (long long)line->end);
    if (g->verb == SEEK) {
        g->chance = g->chance * UINT64_C(6364136223846793005) + 1442695040888963407u;
        return (int64_t)((g->chance >> 33) % (uint64_t)(line->end - batch + 1));
    }
    int64_t offset = *place + batch <= line->end ? *place : 0;
    *place = offset + batch;
    return offset;
}

static size_t pull_put(struct growing *g, struct slot *slot, uint8_t *to)
{
    size_t pair = g->pulled++ % (g->n_lines * g->load->groups);
    char group[TEXT_ROOM];
    slot->line = &g->lines[pair % g->n_lines];
    slot->offset = place_next(g, slot->line, &g->places[pair]);
    (void)snprintf(group, sizeof group, "grow_%zu", pair / g->n_lines);
    return pull_frame_of(to, REQUEST_ROOM, g->load,
                         &(struct pull_of){.group = group,
                                           .topic = slot->line->topic,
                                           .queue = slot->line->queue,
                                           .offset = slot->offset,
                                           .count = g->load->batch,
                                           .opaque = slot->opaque});
}

static void slots_fill(struct growing *g, unsigned conn)
{
    uint8_t *to = g->out;
    for (unsigned i = 0; i < g->load->flight && g->begun < g->wanted; i++) {
        struct slot *slot = &g->slots[conn * g->load->flight + i];
        if (slot->open)
            continue;
        slot->open = true;
        slot->opaque += g->load->flight;
        to += g->verb == SEND || g->verb == TIME ? send_put(g, slot, to) : pull_put(g, slot, to);
        g->begun++;
    }
    wire_write(&g->wires[conn], bytes_of(g->out, (size_t)(to - g->out)));
}

/* ---- answers ---- */

static void records_check(const struct growing *g, const struct slot *slot, struct bytes rest)
{
    for (unsigned i = 0; i < g->load->batch; i++) {
        struct record r;
        if (record_decode(rest, &r))
            wrong("a pull of %s brings %u messages of %u", slot->line->topic, i, g->load->batch);
        if (r.queue_offset != slot->offset + i || r.queue_id != (int)slot->line->queue)
            wrong("a pull of %s at %lld brings offset %lld", slot->line->topic,
                  (long long)slot->offset, (long long)r.queue_offset);
        rest = bytes_from(rest, r.size);
    }
    if (rest.len > 0)
        wrong("a pull of %s brings too much", slot->line->topic);
}

static void answer_take(struct growing *g, unsigned conn, const struct answer *a)
{
    uint32_t opaque = answer_opaque(a);
    struct slot *slot = &g->slots[conn * g->load->flight + opaque % g->load->flight];
    if (!(a->head.flag & FLAG_RESPONSE))
        return; /* a notice */
    if (!slot->open || slot->opaque != opaque)
        wrong("an answer to a request that is not under way: opaque %u", opaque);
    if (a->head.code != RES_SUCCESS)
        wrong("refused: %d %.*s", a->head.code, BYTES_ARG(a->head.remark));
    if (g->verb == SEND) {
        int64_t offset = answer_number(a, BYTES("queueOffset"));
        slot->line->end = offset >= slot->line->end ? offset + 1 : slot->line->end;
    } else if (g->verb != TIME) {
        records_check(g, slot, a->body);
    }
    slot->open = false;
    g->answered++;
}

static void conn_turn(struct growing *g, unsigned conn)
{
    struct wire *w = &g->wires[conn];
    struct answer a;
    if (!wire_receive(w))
        return;
    while (wire_next(w, &a))
        answer_take(g, conn, &a);
    if (g->begun < g->wanted)
        slots_fill(g, conn);
}

/* ---- turns ---- */

static void turn(struct growing *g, enum verb verb, uint64_t wanted)
{
    struct timeval now;
    struct epoll_event events[256];
    (void)gettimeofday(&now, NULL);
    g->due_ms = (int64_t)now.tv_sec * 1000 + FAR_MS;
    g->verb = verb;
    g->wanted = wanted;
    g->begun = g->answered = 0;
    uint64_t begin = now_ns(), cpu = cpu_ns_of(g->load->pid);
    for (unsigned i = 0; i < g->load->conns && g->begun < wanted; i++)
        slots_fill(g, i);
    while (g->answered < wanted) {
        int n = epoll_wait(g->epoll_fd, events, 256, ANSWER_WAIT_MS);
        if (n <= 0)
            wrong("no answer within %d ms", ANSWER_WAIT_MS);
        for (int i = 0; i < n; i++)
            conn_turn(g, events[i].data.u32);
    }
    double each = (double)(cpu_ns_of(g->load->pid) - cpu) / (double)wanted;
    printf("{\"count\": %llu, \"cpu_us\": %.4f, \"seconds\": %.4f}\n", (unsigned long long)wanted,
           each / 1000, (double)(now_ns() - begin) / 1e9);
    must(fflush(stdout) == 0, "standard output");
}

static bool turn_asked(enum verb *verb, uint64_t *wanted)
{
    static const char *const verbs[] = {"send", "time", "pull", "seek"};
    char text[64], name[8];
    unsigned long long n;
    if (!fgets(text, sizeof text, stdin))
        return false;
    if (sscanf(text, "%7s %llu", name, &n) != 2 || n == 0)
        wrong("expected a verb and a number, not %s", text);
    *wanted = n;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(name, verbs[i]) == 0) {
            *verb = (enum verb)i;
            return true;
        }
    wrong("no such verb: %s", name);
}

/* ---- what there is ---- */

static void lines_make(struct growing *g)
{
    const struct load *load = g->load;
    g->n_lines = (size_t)load->topics * load->queues;
    g->lines = calloc(g->n_lines, sizeof *g->lines);
    g->places = calloc(g->n_lines * load->groups, sizeof *g->places);
    must(g->lines && g->places, "memory");
    for (size_t i = 0; i < g->n_lines; i++) {
        struct line *line = &g->lines[i];
        struct mould mould = {.topic = line->topic, .one_queue = true};
        mould.queue = line->queue = (unsigned)(i / load->topics);
        (void)snprintf(line->topic, sizeof line->topic, "Grow-%zu", i % load->topics);
        stamp_make(&line->plain, load, &mould);
        mould.timed = true;
        stamp_make(&line->timed, load, &mould);
        g->out_room = line->timed.len > g->out_room ? line->timed.len : g->out_room;
    }
    g->out_room = g->out_room > REQUEST_ROOM ? g->out_room : REQUEST_ROOM;
}

static void idlers_open(struct growing *g)
{
    uint8_t frame[REQUEST_ROOM];
    char client[TEXT_ROOM], group[TEXT_ROOM], topic[TEXT_ROOM];
    for (unsigned i = 0; i < g->load->idle; i++) {
        wire_open(&g->idlers[i], g->load, REQUEST_ROOM);
        (void)snprintf(client, sizeof client, "127.0.0.1@idle-%u", i);
        (void)snprintf(group, sizeof group, "idle_group_%u", i / GROUP_SIZE);
        (void)snprintf(topic, sizeof topic, "Idle-%u", i / GROUP_SIZE);
        size_t len = heartbeat_frame(frame, sizeof frame, g->load, client, group, topic);
        wire_write(&g->idlers[i], bytes_of(frame, len));
        if (!wire_expect(&g->idlers[i], "heartbeat"))
            wrong("a heartbeat was refused");
    }
}

int load_grow(const struct load *load)
{
    struct growing g = {.load = load,
                        .wires = calloc(load->conns, sizeof *g.wires),
                        .idlers = calloc(load->idle + 1, sizeof *g.idlers),
                        .slots = calloc((size_t)load->conns * load->flight, sizeof *g.slots),
                        .chance = 1};
    struct rlimit files;
    enum verb verb;
    uint64_t wanted;
    must(g.wires && g.idlers && g.slots, "memory");
    must(getrlimit(RLIMIT_NOFILE, &files) == 0, "getrlimit");
    files.rlim_cur = files.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &files) == 0, "setrlimit");
    lines_make(&g);
    g.out = malloc(g.out_room * load->flight);
    must(g.out, "memory");
    for (unsigned i = 0; i < load->conns * load->flight; i++)
        g.slots[i].opaque = i % load->flight;
    for (unsigned i = 0; i < load->conns; i++)
        wire_open(&g.wires[i], load, IN_SIZE);
    idlers_open(&g);
    g.epoll_fd = epoll_over(g.wires, load->conns);
    printf("{}\n");
    must(fflush(stdout) == 0, "standard output");
    while (turn_asked(&verb, &wanted))
        turn(&g, verb, wanted);
    return 0;
}
