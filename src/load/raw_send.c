/* raw_send.c - sends over a bare socket: `in_flight` requests under way on each connection. */
#include "load/raw_int.h"
#include "remoting/codes.h"

#include <stdio.h>
#include <stdlib.h>

/* A request under way. Its opaque number tells its slot, and how often that was used. */
struct raw_slot {
    uint64_t due_ns;
    uint32_t opaque;
    int32_t queue_id;
    bool open;
};

struct sending {
    struct raw_slot *slots;
    uint32_t *free; /* a stack of slots */
    unsigned n_free;
    size_t cursor; /* the next of the broker's places */
};

static enum err send_open(struct conn *conn)
{
    unsigned n = conn->raw->run->options.in_flight;
    struct sending *s = calloc(1, sizeof *s);
    conn->work = s;
    if (!s)
        return ERR_NO_MEMORY;
    s->slots = calloc(n, sizeof *s->slots);
    s->free = calloc(n, sizeof *s->free);
    if (!s->slots || !s->free)
        return ERR_NO_MEMORY;
    for (unsigned i = 0; i < n; i++)
        s->free[s->n_free++] = n - 1 - i;
    s->cursor = conn->index; /* connections begin with different queues */
    return OK;
}

static void send_close(struct conn *conn)
{
    struct sending *s = conn->work;
    if (!s)
        return;
    free(s->slots);
    free(s->free);
    free(s);
}

static bool stored(const struct wire_answer *a, const struct raw_slot *slot)
{
    int32_t queue_id;
    return a->head.code == RES_SUCCESS &&
           bytes_to_i32(head_field(&a->head, BYTES("queueId")), &queue_id) &&
           queue_id == slot->queue_id;
}

static void send_answer(struct conn *conn, const struct wire_answer *a, uint64_t now_ns)
{
    struct sending *s = conn->work;
    struct lane *lane = &conn->lane;
    struct run *run = conn->raw->run;
    const struct load_options *o = &run->options;
    uint32_t opaque = (uint32_t)a->head.opaque, index = (opaque - OPAQUE_FIRST) % o->in_flight;
    struct raw_slot *slot = &s->slots[index];
    if (!(a->head.flag & FLAG_RESPONSE) || !slot->open || slot->opaque != opaque)
        return; /* a notice, or nothing that we asked */
    slot->open = false;
    s->free[s->n_free++] = index;
    if (!stored(a, slot)) {
        char why[300];
        (void)snprintf(why, sizeof why, "the broker answers %d: %.*s", a->head.code,
                       BYTES_ARG(a->head.remark));
        lane_failed(lane, slot->due_ns, now_ns, why);
        return;
    }
    lane_done(lane, o->kind == LOAD_E2E ? LOAD_OTHER : LOAD_TOOK, slot->due_ns, now_ns);
    if (o->kind == LOAD_E2E)
        lane_sent(lane, slot->due_ns, o->batch);
    else
        lane_messages(lane, slot->due_ns, now_ns, o->batch);
    atomic_fetch_add_explicit(&run->stored, o->batch, memory_order_relaxed);
}

/* Numbers of a slot rise by the number of slots, and begin again before they get longer. */
static uint32_t opaque_next(const struct raw_slot *slot, uint32_t index, uint32_t step)
{
    uint32_t used = slot->opaque ? slot->opaque - OPAQUE_FIRST + step : index;
    return OPAQUE_FIRST + (used < OPAQUE_FIRST ? used : index);
}

static void send_one(struct conn *conn, uint64_t due_ns, uint64_t now_ns)
{
    struct sending *s = conn->work;
    struct raw *raw = conn->raw;
    struct run *run = raw->run;
    const struct raw_broker *broker = &raw->brokers[conn->broker];
    size_t place = broker->places[s->cursor++ % broker->n_places];
    uint32_t index = s->free[--s->n_free];
    struct raw_slot *slot = &s->slots[index];
    uint8_t *to = wire_room(&conn->wire, raw->request_max);
    invariant(to);
    *slot = (struct raw_slot){due_ns, opaque_next(slot, index, run->options.in_flight),
                              run->places[place].queue.id, true};
    uint64_t number =
        atomic_fetch_add_explicit(&run->numbers, run->options.batch, memory_order_relaxed);
    wire_put(&conn->wire, request_put(to, &raw->templates[place], &raw->payload, run, slot->opaque,
                                      number, due_ns));
    lane_late(&conn->lane, due_ns, now_ns);
}

static void send_fill(struct conn *conn, uint64_t now_ns, uint64_t *due_ns)
{
    const struct sending *s = conn->work;
    while (s->n_free > 0 && wire_room(&conn->wire, conn->raw->request_max)) {
        enum claim claim = lane_claim(&conn->lane, now_ns, due_ns);
        if (claim == CLAIM_WAIT)
            return;
        if (claim == CLAIM_OVER)
            break;
        send_one(conn, *due_ns, now_ns);
    }
    *due_ns = UINT64_MAX; /* an answer, or room to write, brings us back */
}

static void send_lost(struct conn *conn, uint64_t now_ns)
{
    struct sending *s = conn->work;
    for (unsigned i = 0; i < conn->raw->run->options.in_flight; i++)
        if (s->slots[i].open) {
            s->slots[i].open = false;
            s->free[s->n_free++] = i;
            lane_failed(&conn->lane, s->slots[i].due_ns, now_ns, conn->wire.reason);
        }
    conn->lane.over = true;
}

static bool send_idle(struct conn *conn)
{
    const struct sending *s = conn->work;
    return conn->lane.over && s->n_free == conn->raw->run->options.in_flight;
}

const struct role role_send = {send_open, send_answer, send_fill, send_lost,
                               send_idle, send_close,  64u << 10};
