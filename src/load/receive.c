/* receive.c - readers: a thread and a client for each, and a part of the queues.
 *
 * Queues are given to readers, not shared by a group: a group that finds its members while a
 * backlog is taken would deliver a part of it twice, and measure that. So the offsets of a queue
 * must come one after the other, which is checked.
 */
#include "base/map.h"
#include "load/load_int.h"

#include <stdio.h>
#include <stdlib.h>

#define TAKE_MS      50
#define ROW_KEY_SIZE 320

/* A reader's queue: what comes next. */
struct row {
    const struct place *place;
    int64_t next;
    char key[ROW_KEY_SIZE];
};

struct reader {
    struct omq_client *client;
    struct omq_reader *reader;
    struct row *rows;
    size_t n_rows;
    struct map by_queue; /* of rows */
};

struct readers {
    struct hands hands;
    struct reader *all;
};

static bool over(const struct run *run)
{
    uint64_t taken = atomic_load_explicit(&run->taken, memory_order_relaxed);
    if (run->options.kind == LOAD_E2E)
        return atomic_load(&run->given_up) ||
               (atomic_load(&run->settled) && taken >= atomic_load(&run->acked));
    return atomic_load(&run->ending) || taken >= run->backlog || run_ns(run) >= run->until_ns;
}

/* ---- one batch ---- */

static struct bytes row_key(const struct omq_queue *queue, char out[ROW_KEY_SIZE])
{
    int n = snprintf(out, ROW_KEY_SIZE, "%d %s %s", queue->id, queue->topic, queue->broker);
    return bytes_of(out, n > 0 && n < ROW_KEY_SIZE ? (size_t)n : 0);
}

static struct row *row_of(struct reader *r, const struct omq_queue *queue)
{
    char key[ROW_KEY_SIZE];
    return map_get(&r->by_queue, row_key(queue, key));
}

/* Room: the lane's. How many of these count: all but those that were sent by others, and with
 * LOAD_E2E those of the warming. */
static void batch_count(struct hand *hand, struct reader *r,
                        const struct omq_delivery *const *messages, size_t n, uint64_t now)
{
    struct lane *lane = &hand->lane;
    struct run *run = hand->hands->run;
    struct row *row = row_of(r, &messages[0]->queue);
    uint64_t counted = 0;
    for (size_t i = 0; i < n; i++) {
        const struct omq_delivery *m = messages[i];
        if (!row || m->offset != row->next)
            lane_out_of_row(lane);
        if (row)
            row->next = m->offset + 1;
        if (run->options.kind == LOAD_CONSUME) {
            counted++;
            continue;
        }
        struct stamp stamp = {0};
        if (m->body_size >= LOAD_STAMP_SIZE)
            stamp = stamp_get(m->body);
        if (stamp.run != run->id)
            continue;
        lane_done(lane, LOAD_TOOK, stamp.due_ns, now);
        lane_messages(lane, stamp.due_ns, now, 1);
        counted += stamp.due_ns >= run->from_ns;
    }
    uint64_t before = atomic_fetch_add_explicit(&run->taken, counted, memory_order_relaxed);
    if (run->options.kind != LOAD_CONSUME || before >= run->backlog)
        return;
    uint64_t left = run->backlog - before; /* a batch may bring more than is wanted */
    lane_messages(lane, now, now, counted < left ? counted : left);
}

static void reader_take(struct hand *hand, struct reader *r)
{
    struct lane *lane = &hand->lane;
    struct run *run = hand->hands->run;
    struct omq_batch *batch;
    struct omq_error why;
    uint64_t begin = run_ns(run);
    int code = omq_reader_take(r->reader, TAKE_MS, &batch, &why);
    uint64_t now = run_ns(run);
    if (code == OMQ_TIMEOUT)
        return;
    if (code) {
        room_enter(&lane->tally.room);
        lane_failed(lane, now, now, why.text);
        room_leave(&lane->tally.room);
        sleep_until(now + HOLD_NS);
        return;
    }
    size_t n = 0;
    const struct omq_delivery *const *messages = omq_batch_messages(batch, &n);
    room_enter(&lane->tally.room);
    if (run->options.kind == LOAD_CONSUME)
        lane_done(lane, LOAD_TOOK, begin, now);
    if (n > 0)
        batch_count(hand, r, messages, n, now);
    room_leave(&lane->tally.room);
    omq_batch_finish(batch, OMQ_DONE, n);
}

/* ---- the thread ---- */

static enum err reader_assign(struct reader *r, bool from_end, struct omq_error *why)
{
    struct omq_queue *queues = calloc(r->n_rows, sizeof *queues);
    if (!queues) {
        *why = (struct omq_error){.code = OMQ_NO_MEMORY, .text = "no memory for queues"};
        return ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < r->n_rows; i++)
        queues[i] = r->rows[i].place->queue;
    int code = omq_reader_assign(r->reader, queues, r->n_rows, why);
    for (size_t i = 0; !code && i < r->n_rows; i++) {
        struct row *row = &r->rows[i];
        row->next = from_end ? row->place->end : row->place->begin;
        code = omq_reader_seek(r->reader, &row->place->queue, row->next, why);
    }
    free(queues);
    return code ? ERR_IO : OK;
}

static void reader_work(struct hand *hand)
{
    struct reader *r = &((struct readers *)hand->hands)->all[hand->number];
    struct run *run = hand->hands->run;
    struct omq_error why;
    if (run->options.kind == LOAD_CONSUME && reader_assign(r, false, &why)) {
        room_enter(&hand->lane.tally.room);
        lane_failed(&hand->lane, UINT64_MAX, run_ns(run), why.text);
        room_leave(&hand->lane.tally.room);
        return;
    }
    while (!over(run))
        reader_take(hand, r);
}

/* ---- life ---- */

static void readers_gone(struct hands *hands)
{
    struct readers *all = (struct readers *)hands;
    for (unsigned i = 0; all->all && i < hands->run->options.connections; i++) {
        omq_client_close(all->all[i].client);
        map_clear(&all->all[i].by_queue);
        free(all->all[i].rows);
    }
    free(all->all);
    free(all);
}

static enum err reader_open(struct run *run, struct reader *r, unsigned index, unsigned n,
                            struct fault *why)
{
    const struct load_options *o = &run->options;
    struct omq_error error;
    r->rows = calloc(run->n_places / n + 1, sizeof *r->rows);
    if (!r->rows)
        return ERR_NO_MEMORY;
    map_init(&r->by_queue, run->id);
    enum err err = OK;
    for (size_t i = index; !err && i < run->n_places; i += n) {
        struct row *row = &r->rows[r->n_rows++];
        row->place = &run->places[i];
        err = map_put(&r->by_queue, row_key(&row->place->queue, row->key), row);
    }
    if (!err)
        err = client_make(o, &r->client, why);
    if (err)
        return err;
    const struct omq_reader_options as = {
        .group = o->group,
        .start = OMQ_FROM_FIRST,
        .commit_every_ms = -1,
        .pull_batch = o->kind == LOAD_CONSUME ? (int)o->batch : 32,
    };
    if (omq_reader_open(r->client, &as, &r->reader, &error))
        return fault_omq(why, &error);
    /* Who waits for messages does so before the first is sent; a backlog is taken from the moment
     * on that counts. */
    if (o->kind == LOAD_E2E && reader_assign(r, true, &error))
        return fault_omq(why, &error);
    return OK;
}

enum err readers_open(struct run *run, struct part **out, struct fault *why)
{
    const struct load_options *o = &run->options;
    struct readers *all = calloc(1, sizeof *all);
    if (!all)
        return ERR_NO_MEMORY;
    unsigned n = o->connections < run->n_places ? o->connections : (unsigned)run->n_places;
    all->hands.work = reader_work;
    all->hands.gone = readers_gone;
    all->all = calloc(o->connections, sizeof *all->all);
    enum err err = all->all ? OK : ERR_NO_MEMORY;
    if (!err)
        err = hands_init(&all->hands, run, n, n);
    for (unsigned i = 0; !err && i < n; i++)
        err = reader_open(run, &all->all[i], i, n, why);
    if (err) {
        all->hands.run = run;
        hands_clear(&all->hands);
        readers_gone(&all->hands);
        return err;
    }
    *out = &all->hands.part;
    return OK;
}
