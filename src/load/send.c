/* send.c - single messages: a sender for each connection, with `in_flight` places.
 *
 * A sender sends as much as is due and has a place, whenever somebody looks after it: an answer,
 * which has just freed a place, or the pacer, for which time has gone on. So without a rate the
 * answers alone keep it going, and no thread has to be woken for a message.
 */
#include "load/load_int.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define PACE_NS     500000 /* the pacer looks up at least this often */
#define TIMER_SLACK 1      /* ns: what the kernel may let it sleep longer */

struct sender;

struct slot {
    struct sender *sender;
    struct slot *free; /* the next free one */
    uint64_t due_ns;
};

struct sender {
    struct lane lane;
    struct omq_client *client;
    struct omq_producer *producer;
    struct slot *slots, *free;
    unsigned open; /* places that are taken */
    uint8_t *body;
};

struct senders {
    struct part part;
    struct run *run;
    struct sender *all;
    unsigned n;
    pthread_t pacer;
    bool paced;
    atomic_bool closing;
};

static void sender_turn(struct sender *s, uint64_t *due_ns);

/* Room: the lane's. */
static void slot_give_back(struct slot *slot)
{
    struct sender *s = slot->sender;
    slot->free = s->free;
    s->free = slot;
    s->open--;
}

static void sent(void *user, const struct omq_receipt *receipt, const struct omq_error *why)
{
    struct slot *slot = user;
    struct sender *s = slot->sender;
    struct lane *lane = &s->lane;
    bool e2e = lane->run->options.kind == LOAD_E2E;
    uint64_t now = run_ns(lane->run), due_ns;
    room_enter(&lane->tally.room);
    if (receipt) {
        lane_done(lane, e2e ? LOAD_OTHER : LOAD_TOOK, slot->due_ns, now);
        if (e2e)
            lane_sent(lane, slot->due_ns, 1);
        else
            lane_messages(lane, slot->due_ns, now, 1);
        atomic_fetch_add_explicit(&lane->run->stored, 1, memory_order_relaxed);
    } else {
        lane_failed(lane, slot->due_ns, now, why->text);
    }
    slot_give_back(slot);
    sender_turn(s, &due_ns);
    room_leave(&lane->tally.room);
}

/* Room: the lane's. */
static void send_one(struct sender *s, uint64_t due_ns, uint64_t now)
{
    struct run *run = s->lane.run;
    struct slot *slot = s->free;
    struct omq_error why;
    uint64_t number = atomic_fetch_add_explicit(&run->numbers, 1, memory_order_relaxed);
    if (run->options.kind == LOAD_E2E)
        stamp_put(s->body, &(struct stamp){run->id, due_ns, number});
    const struct omq_message m = {.topic = run_topic(run, number),
                                  .body = s->body,
                                  .body_size = run->options.size,
                                  .tag = "bench"};
    s->free = slot->free;
    s->open++;
    slot->due_ns = due_ns;
    lane_late(&s->lane, due_ns, now);
    if (omq_send_async(s->producer, &m, sent, slot, &why) == OMQ_OK)
        return;
    lane_failed(&s->lane, due_ns, now, why.text);
    slot_give_back(slot);
}

/* Room: the lane's. `*due_ns`: when to come again; UINT64_MAX: an answer will. */
static void sender_turn(struct sender *s, uint64_t *due_ns)
{
    room_held(&s->lane.tally.room);
    while (s->free) {
        uint64_t now = run_ns(s->lane.run);
        enum claim claim = lane_claim(&s->lane, now, due_ns);
        if (claim == CLAIM_WAIT)
            return;
        if (claim == CLAIM_OVER)
            break;
        send_one(s, *due_ns, now);
    }
    *due_ns = UINT64_MAX;
}

static void *pacer_main(void *user)
{
    struct senders *all = user;
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK);
    while (!atomic_load_explicit(&all->closing, memory_order_relaxed)) {
        uint64_t next = run_ns(all->run) + PACE_NS;
        for (unsigned i = 0; i < all->n; i++) {
            struct sender *s = &all->all[i];
            uint64_t due_ns;
            room_enter(&s->lane.tally.room);
            sender_turn(s, &due_ns);
            room_leave(&s->lane.tally.room);
            next = due_ns < next ? due_ns : next;
        }
        sleep_until(next);
    }
    return NULL;
}

/* ---- the part ---- */

static void senders_begin(struct part *part)
{
    struct senders *all = (struct senders *)part;
    all->paced = pthread_create(&all->pacer, NULL, pacer_main, all) == 0;
    if (all->paced || all->n == 0)
        return;
    struct lane *lane = &all->all[0].lane;
    room_enter(&lane->tally.room);
    lane_failed(lane, UINT64_MAX, all->run->begin_ns, "a thread cannot be started");
    room_leave(&lane->tally.room);
    atomic_store(&all->run->ending, true);
}

static bool senders_idle(struct part *part)
{
    struct senders *all = (struct senders *)part;
    bool idle = true;
    for (unsigned i = 0; idle && all->paced && i < all->n; i++) {
        struct sender *s = &all->all[i];
        room_enter(&s->lane.tally.room);
        idle = s->lane.over && s->open == 0;
        room_leave(&s->lane.tally.room);
    }
    return idle;
}

static struct lane *senders_lane(struct part *part, size_t i)
{
    struct senders *all = (struct senders *)part;
    return i < all->n ? &all->all[i].lane : NULL;
}

/* Clients go first: when they are closed no callback runs any more. */
static void senders_close(struct part *part)
{
    struct senders *all = (struct senders *)part;
    atomic_store(&all->closing, true);
    if (all->paced)
        (void)pthread_join(all->pacer, NULL);
    for (unsigned i = 0; i < all->n; i++) {
        omq_client_close(all->all[i].client);
        lane_clear(&all->all[i].lane);
        free(all->all[i].slots);
        free(all->all[i].body);
    }
    free(all->all);
    free(all);
}

static enum err sender_open(struct senders *all, unsigned index, struct fault *why)
{
    const struct load_options *o = &all->run->options;
    struct sender *s = &all->all[index];
    s->slots = calloc(o->in_flight, sizeof *s->slots);
    s->body = malloc(o->size + LOAD_STAMP_SIZE);
    if (!s->slots || !s->body || lane_init(&s->lane, all->run, index, o->connections))
        return ERR_NO_MEMORY;
    body_fill(s->body, o->size);
    for (unsigned i = 0; i < o->in_flight; i++) {
        s->slots[i] = (struct slot){.sender = s, .free = s->free};
        s->free = &s->slots[i];
    }
    enum err err = client_make(o, &s->client, why);
    return err ? err : producer_make(all->run, s->client, &s->producer, why);
}

enum err senders_open(struct run *run, struct part **out, struct fault *why)
{
    struct senders *all = calloc(1, sizeof *all);
    if (!all)
        return ERR_NO_MEMORY;
    all->part = (struct part){senders_begin, senders_idle, senders_close, senders_lane};
    all->run = run;
    all->all = calloc(run->options.connections, sizeof *all->all);
    enum err err = all->all ? OK : ERR_NO_MEMORY;
    while (!err && all->n < run->options.connections)
        err = sender_open(all, all->n++, why);
    if (err)
        senders_close(&all->part);
    else
        *out = &all->part;
    return err;
}
