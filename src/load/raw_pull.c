/* raw_pull.c - pulls over a bare socket: one under way for each queue.
 *
 * A backlog is pulled without waiting; who waits for new messages has a long poll on each queue.
 * Offsets must come one after the other, and bodies must be what their checksum says.
 */
#include "load/raw_int.h"
#include "msg/msg.h"
#include "remoting/codes.h"

#include <stdio.h>
#include <stdlib.h>

#define WAIT_MS  5000
#define REQ_ROOM 1024

/* A queue of this connection. */
struct line {
    const struct place *place;
    int64_t next;
    uint64_t asked_ns;
    uint32_t turn; /* how often it was asked for: answers to earlier questions do not count */
    bool asked, over;
};

struct pulling {
    struct line *lines;
    size_t n;
};

static enum err pull_open(struct conn *conn)
{
    struct raw *raw = conn->raw;
    const struct raw_broker *broker = &raw->brokers[conn->broker];
    struct pulling *p = calloc(1, sizeof *p);
    conn->work = p;
    if (!p)
        return ERR_NO_MEMORY;
    p->lines = calloc(broker->n_places + 1, sizeof *p->lines);
    if (!p->lines)
        return ERR_NO_MEMORY;
    /* Connections of one broker are as far apart as there are brokers. */
    size_t all = raw->run->options.connections;
    size_t mates = (all - conn->broker + raw->n_brokers - 1) / raw->n_brokers;
    for (size_t i = conn->index / raw->n_brokers; i < broker->n_places; i += mates) {
        const struct place *place = &raw->run->places[broker->places[i]];
        bool waits = raw->run->options.kind == LOAD_E2E;
        p->lines[p->n++] = (struct line){.place = place, .next = waits ? place->end : place->begin};
    }
    return OK;
}

static void pull_close(struct conn *conn)
{
    struct pulling *p = conn->work;
    if (!p)
        return;
    free(p->lines);
    free(p);
}

/* ---- answers ---- */

static bool records_take(struct conn *conn, struct line *line, struct bytes rest, uint64_t now_ns)
{
    struct run *run = conn->raw->run;
    bool consumes = run->options.kind == LOAD_CONSUME;
    uint64_t counted = 0;
    while (rest.len > 0) {
        struct record r;
        if (record_decode(rest, &r) || !record_body_intact(&r))
            return false;
        if (r.queue_offset != line->next)
            lane_out_of_row(&conn->lane);
        line->next = r.queue_offset + 1;
        struct stamp stamp = {0};
        if (!consumes && r.body.len >= LOAD_STAMP_SIZE)
            stamp = stamp_get(r.body.at);
        if (!consumes && stamp.run == run->id) {
            lane_done(&conn->lane, LOAD_TOOK, stamp.due_ns, now_ns);
            lane_messages(&conn->lane, stamp.due_ns, now_ns, 1);
        }
        counted += consumes || (stamp.run == run->id && stamp.due_ns >= run->from_ns);
        rest = bytes_from(rest, r.size);
    }
    uint64_t before = atomic_fetch_add_explicit(&run->taken, counted, memory_order_relaxed);
    if (!consumes)
        return true;
    uint64_t left = before < run->backlog ? run->backlog - before : 0;
    lane_done(&conn->lane, LOAD_TOOK, line->asked_ns, now_ns);
    lane_messages(&conn->lane, now_ns, now_ns, counted < left ? counted : left);
    return true;
}

static void pull_failed(struct conn *conn, struct line *line, const char *why, uint64_t now_ns)
{
    line->over = true;
    lane_failed(&conn->lane, now_ns, now_ns, why);
}

static void pull_answer(struct conn *conn, const struct wire_answer *a, uint64_t now_ns)
{
    struct pulling *p = conn->work;
    uint32_t opaque = (uint32_t)a->head.opaque;
    struct line *line = p->n > 0 ? &p->lines[opaque % p->n] : NULL;
    if (!(a->head.flag & FLAG_RESPONSE) || !line || !line->asked || line->turn != opaque / p->n)
        return; /* a notice, or nothing that we asked */
    line->asked = false;
    char why[300];
    switch (a->head.code) {
    case RES_SUCCESS:
        if (!records_take(conn, line, a->body, now_ns))
            pull_failed(conn, line, "a broker's records cannot be read", now_ns);
        return;
    case RES_PULL_NOT_FOUND:
    case RES_PULL_RETRY_IMMEDIATELY:
        return;
    default:
        (void)snprintf(why, sizeof why, "the broker answers a pull with %d: %.*s", a->head.code,
                       BYTES_ARG(a->head.remark));
        pull_failed(conn, line, why, now_ns);
    }
}

/* ---- questions ---- */

static bool pulls_over(const struct run *run)
{
    uint64_t taken = atomic_load_explicit(&run->taken, memory_order_relaxed);
    if (run->options.kind == LOAD_E2E)
        return atomic_load(&run->given_up) ||
               (atomic_load(&run->settled) && taken >= atomic_load(&run->acked));
    return atomic_load(&run->ending) || taken >= run->backlog || run_ns(run) >= run->until_ns;
}

static void pull_fill(struct conn *conn, uint64_t now_ns, uint64_t *due_ns)
{
    struct pulling *p = conn->work;
    const struct run *run = conn->raw->run;
    bool waits = run->options.kind == LOAD_E2E;
    *due_ns = UINT64_MAX;
    if (pulls_over(run))
        return;
    for (size_t i = 0; i < p->n; i++) {
        struct line *line = &p->lines[i];
        line->over = line->over || (!waits && line->next >= line->place->end);
        if (line->asked || line->over)
            continue;
        uint8_t *to = wire_room(&conn->wire, REQ_ROOM);
        if (!to)
            return;
        line->turn = (line->turn + 1) % (uint32_t)(INT32_MAX / p->n);
        uint32_t opaque = line->turn * (uint32_t)p->n + (uint32_t)i;
        size_t n = pull_put(to, REQ_ROOM, run, &line->place->queue, line->next, opaque,
                            waits ? WAIT_MS : 0);
        if (n == 0) {
            pull_failed(conn, line, "a pull request is too long", now_ns);
            continue;
        }
        wire_put(&conn->wire, n);
        line->asked = true;
        line->asked_ns = now_ns;
    }
}

static void pull_lost(struct conn *conn, uint64_t now_ns)
{
    struct pulling *p = conn->work;
    for (size_t i = 0; i < p->n; i++)
        if (!p->lines[i].over) {
            p->lines[i].asked = false;
            pull_failed(conn, &p->lines[i], conn->wire.reason, now_ns);
        }
}

/* Long polls that are under way when all has come are nobody's concern. */
static bool pull_idle(struct conn *conn)
{
    const struct pulling *p = conn->work;
    if (pulls_over(conn->raw->run))
        return true;
    for (size_t i = 0; i < p->n; i++)
        if (!p->lines[i].over)
            return false;
    return true;
}

const struct role role_pull = {pull_open, pull_answer, pull_fill, pull_lost,
                               pull_idle, pull_close,  512u << 10};
