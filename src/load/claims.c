/* claims.c - libonce: claims of fresh keys and of repeated ones, around a handler that does
 * nothing.
 *
 * Each thread has keys of its own. A round is `batch` keys: claimed, and marked as done; the next
 * `repeats` rounds of the thread bring the same keys again, which must be told apart as duplicates.
 */
#include "load/load_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_SIZE 64

struct claims {
    struct hands hands;
    struct once *once;
};

/* A thread's round. */
struct round {
    struct once_message *messages;
    char (*keys)[KEY_SIZE];
    struct once_run **runs;
    struct once_answer *answers;
    int *results;
    uint8_t *body;
    uint64_t number;
};

static void keys_make(struct hand *hand, struct round *r, unsigned n)
{
    r->number++;
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(r->keys[i], KEY_SIZE, "%016" PRIx64 "-%u-%" PRIu64 "-%u",
                       hand->hands->run->id, hand->number, r->number, i);
        r->messages[i].keys = r->keys[i];
    }
}

/* What each answer must be; the first that is not is told. */
static bool all_are(const struct once_answer *answers, unsigned n, int verdict, int cause,
                    const struct once_answer **other)
{
    for (unsigned i = 0; i < n; i++)
        if (answers[i].verdict != verdict || answers[i].cause != cause) {
            *other = &answers[i];
            return false;
        }
    return true;
}

/* One message goes the way of one message: it is what most programs do. */
static void begin_all(struct once *once, struct round *r, unsigned n)
{
    if (n == 1)
        (void)once_begin(once, r->messages, r->runs, r->answers);
    else
        once_begin_all(once, r->messages, n, r->runs, r->answers);
}

static void end_all(struct round *r, unsigned n)
{
    if (n == 1)
        (void)once_end(r->runs[0], ONCE_DONE, r->answers);
    else
        once_end_all(r->runs, r->results, n, r->answers);
    for (unsigned i = 0; i < n; i++)
        if (r->answers[i].verdict == ONCE_RUN) /* the store had no answer for it */
            (void)once_end(r->runs[i], ONCE_DONE, &r->answers[i]);
}

static void end_what_runs(struct round *r, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (r->runs[i])
            (void)once_end(r->runs[i], ONCE_FAILED, &r->answers[i]);
}

static bool round_run(struct once *once, struct round *r, unsigned n, bool fresh,
                      const struct once_answer **other)
{
    memset(r->runs, 0, n * sizeof(struct once_run *));
    begin_all(once, r, n);
    if (!fresh) {
        bool good = all_are(r->answers, n, ONCE_ACK, ONCE_DUPLICATE, other);
        end_what_runs(r, n);
        return good;
    }
    if (!all_are(r->answers, n, ONCE_RUN, ONCE_FIRST, other)) {
        end_what_runs(r, n);
        return false;
    }
    end_all(r, n);
    return all_are(r->answers, n, ONCE_ACK, ONCE_FIRST, other);
}

static void rounds_run(struct hand *hand, struct round *r)
{
    struct claims *all = (struct claims *)hand->hands;
    struct run *run = hand->hands->run;
    const struct load_options *o = &run->options;
    struct lane *lane = &hand->lane;
    uint64_t due_ns, before = 0;
    while (lane_wait(lane, &due_ns)) {
        bool fresh = before++ % (o->repeats + 1) == 0;
        const struct once_answer *other = NULL;
        if (fresh)
            keys_make(hand, r, o->batch);
        uint64_t begin = run_ns(run);
        bool good = round_run(all->once, r, o->batch, fresh, &other);
        uint64_t now = run_ns(run);
        char why[sizeof other->why.text + 64];
        if (!good)
            (void)snprintf(why, sizeof why, "a %s key: %s %s", fresh ? "fresh" : "repeated",
                           once_cause_text(other->cause), other->why.text);
        before = good ? before : 0; /* a key that was not marked is not repeated */
        room_enter(&lane->tally.room);
        lane_late(lane, due_ns, begin);
        if (good) {
            lane_done(lane, fresh ? LOAD_TOOK : LOAD_OTHER, due_ns, now);
            lane_messages(lane, due_ns, now, o->batch);
            atomic_fetch_add(&run->stored, fresh ? o->batch : 0);
        } else {
            lane_failed(lane, due_ns, now, why);
        }
        room_leave(&lane->tally.room);
    }
}

static void round_clear(struct round *r)
{
    free(r->messages);
    free(r->keys);
    free(r->runs);
    free(r->answers);
    free(r->results);
    free(r->body);
}

static bool round_init(struct round *r, const struct load_options *o)
{
    *r = (struct round){
        .messages = calloc(o->batch, sizeof *r->messages),
        .keys = calloc(o->batch, sizeof *r->keys),
        .runs = calloc(o->batch, sizeof(struct once_run *)),
        .answers = calloc(o->batch, sizeof *r->answers),
        .results = calloc(o->batch, sizeof *r->results),
        .body = malloc(o->size + 1),
    };
    if (!r->messages || !r->keys || !r->runs || !r->answers || !r->results || !r->body)
        return false;
    body_fill(r->body, o->size);
    for (unsigned i = 0; i < o->batch; i++) {
        r->messages[i] = (struct once_message){
            .topic = "bench", .body = r->body, .body_size = o->size, .attempt = 1};
        r->results[i] = ONCE_DONE;
    }
    return true;
}

static void claims_work(struct hand *hand)
{
    struct round r;
    if (round_init(&r, &hand->hands->run->options)) {
        rounds_run(hand, &r);
    } else {
        room_enter(&hand->lane.tally.room);
        lane_failed(&hand->lane, UINT64_MAX, run_ns(hand->hands->run), "no memory for claims");
        room_leave(&hand->lane.tally.room);
    }
    round_clear(&r);
}

static void claims_gone(struct hands *hands)
{
    struct claims *all = (struct claims *)hands;
    once_close(all->once);
    free(all);
}

enum err claims_open(struct run *run, struct part **out, struct fault *why)
{
    const struct load_options *o = &run->options;
    struct claims *all = calloc(1, sizeof *all);
    struct once_error error;
    if (!all)
        return ERR_NO_MEMORY;
    all->hands.work = claims_work;
    all->hands.gone = claims_gone;
    struct once_options with = *o->once;
    with.key = "{key}";
    with.connections = (int)o->connections;
    enum err err = OK;
    if (once_open(&with, &all->once, &error)) {
        all->once = NULL;
        err = fault_set(why, error.code == ONCE_INVALID ? ERR_INVALID : ERR_IO, "%s", error.text);
    }
    if (!err)
        err = hands_init(&all->hands, run, o->in_flight, o->in_flight);
    if (err) {
        hands_clear(&all->hands);
        claims_gone(&all->hands);
        return err;
    }
    *out = &all->hands.part;
    return OK;
}
