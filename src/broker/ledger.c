/* ledger.c - the once ledger: its room, its turn, its records. */
#include "broker/ledger_int.h"

#include "base/crc32.h"

#include <stdio.h>
#include <stdlib.h>

#define TOPIC         BYTES(LEDGER_TOPIC)
#define RECORD_MOST   (1u << 20)  /* bytes of entries in one record … */
#define RECORD_MORE   (32u << 10) /* … or those of a message and this, if that is less */
#define RECORD_AROUND 512         /* of a record, beside its entries */
#define ENTRY_MORE    2048        /* of an entry, beside its result */
#define TURN_MOST     (64u << 20) /* of entries, in one turn */
#define RESULTS_MOST  (8u << 20)  /* that one request gets back: an answer is one frame */
#define SWEEP_PARTS   600         /* of all rows, in one turn of the keeper */
#define SWEEP_MOST    65536
#define SWEEP_VISIT   4096

/* ---- opening ---- */

enum err ledger_room_open(struct broker *b)
{
    struct ledger_room *r = calloc(1, sizeof *r);
    if (!r)
        return ERR_NO_MEMORY;
    room_init(&r->room, "ledger", ROOM_LEDGER);
    r->on = b->set.ledger;
    r->seed = dice_next(&b->dice);
    b->ledger = r;
    enum err err = ledger_saving_make(b);
    return err ? err : ledger_table_open(b);
}

enum err ledger_table_open(struct broker *b)
{
    struct ledger_options options = {b->set.ledger_max_keys, b->set.ledger_grace_ms,
                                     b->ledger->seed};
    ledger_close(b->ledger->ledger);
    b->ledger->ledger = NULL;
    return ledger_open(&options, &b->ledger->ledger);
}

void ledger_room_close(struct broker *b)
{
    if (!b->ledger)
        return;
    ledger_saving_free(b);
    ledger_close(b->ledger->ledger);
    room_clear(&b->ledger->room);
    free(b->ledger);
}

void ledger_room_tune(struct broker *b, const struct broker_options *now)
{
    room_enter(&b->ledger->room);
    ledger_tune(b->ledger->ledger, now->ledger_max_keys, now->ledger_grace_ms);
    room_leave(&b->ledger->room);
}

int64_t ledger_now_ms(struct broker *b)
{
    return (int64_t)(clock_ns(b->clock) / 1000000) + b->ledger->ahead_ms;
}

int64_t broker_ledger_ms(struct broker *b)
{
    return ledger_now_ms(b);
}

/* ---- the desk ---- */

struct entries { /* of one record */
    size_t from, size;
    size_t n;
};

struct want {
    struct op *op;
    struct ledger_ask *ask;
    struct ledger_where where;
};

struct ledger_desk {
    struct buf text; /* of all records */
    struct entries *records;
    struct draft *drafts;
    struct stored *stored;
    int64_t *positions;
    size_t n, cap;
    struct want *wants;
    size_t n_wants, cap_wants;
    char props[64];
};

enum err ledger_desk_open(struct ledger_desk **out)
{
    struct ledger_desk *d = calloc(1, sizeof *d);
    if (!d)
        return ERR_NO_MEMORY;
    d->text = buf_upto(TURN_MOST);
    *out = d;
    return OK;
}

void ledger_desk_close(struct ledger_desk *d)
{
    if (!d)
        return;
    buf_clear(&d->text);
    free(d->records);
    free(d->drafts);
    free(d->stored);
    free(d->positions);
    free(d->wants);
    free(d);
}

static bool grow(void *at, size_t cap, size_t size)
{
    void **array = at, *more = realloc(*array, cap * size);
    if (more)
        *array = more;
    return more != NULL;
}

static bool desk_room(struct ledger_desk *d)
{
    if (d->n < d->cap)
        return true;
    size_t cap = d->cap ? 2 * d->cap : 8;
    if (!grow(&d->records, cap, sizeof *d->records) || !grow(&d->drafts, cap, sizeof *d->drafts) ||
        !grow(&d->stored, cap, sizeof *d->stored) ||
        !grow(&d->positions, cap, sizeof *d->positions))
        return false;
    d->cap = cap;
    return true;
}

static enum err record_begin(struct ledger_desk *d)
{
    size_t from = d->text.len;
    if (!desk_room(d))
        return ERR_NO_MEMORY;
    uint8_t *at = buf_space(&d->text, ENTRIES_HEAD);
    if (!at)
        return d->text.err;
    struct wr w = wr_over(at, ENTRIES_HEAD);
    entries_begin(&w);
    d->records[d->n++] = (struct entries){from, ENTRIES_HEAD, 0};
    return OK;
}

/* A message may be longer than the log takes: its files are small, or maxMessageSize was raised
 * while the broker runs. */
static size_t record_most(const struct broker *b)
{
    size_t most = (size_t)b->set.max_message_size + RECORD_MORE;
    size_t fits = (size_t)store_biggest(b->store) - RECORD_AROUND;
    most = most < fits ? most : fits;
    return most < RECORD_MOST ? most : RECORD_MOST;
}

/* The record that has room for an entry of this operation, in any case one that is begun. */
static enum err record_for(struct broker *b, struct ledger_desk *d, const struct op *op)
{
    const struct entries *last = d->n ? &d->records[d->n - 1] : NULL;
    if (last && last->n < LEDGER_ENTRIES_MAX &&
        last->size + ENTRY_MORE + op->result.len <= record_most(b))
        return OK;
    return record_begin(d);
}

static enum err entry_add(struct ledger_desk *d, const struct ledger_entry *e)
{
    struct entries *record = &d->records[d->n - 1];
    size_t size = entry_size(e);
    uint8_t *at = buf_space(&d->text, size);
    if (!at)
        return d->text.err;
    struct wr w = wr_over(at, size);
    entry_write(&w, e);
    record->size += size;
    record->n++;
    return OK;
}

static enum err want_add(struct ledger_desk *d, struct op *op, struct ledger_ask *ask,
                         struct ledger_where where)
{
    if (d->n_wants == d->cap_wants) {
        size_t cap = d->cap_wants ? 2 * d->cap_wants : 64;
        if (!grow(&d->wants, cap, sizeof *d->wants))
            return ERR_NO_MEMORY;
        d->cap_wants = cap;
    }
    d->wants[d->n_wants++] = (struct want){op, ask, where};
    return OK;
}

/* ---- a turn; room: ledger ---- */

static enum err op_run(struct broker *b, struct ledger_desk *d, struct ledger_ask *ask,
                       struct op *op)
{
    if (ENTRIES_HEAD + op->result.len + ENTRY_MORE > record_most(b)) {
        op->outcome = OUT_FAILED;
        (void)fault_set(&op->why, ERR_TOO_BIG,
                        "a result of %zu bytes is too big for this broker (maxMessageSize, "
                        "mappedFileSizeCommitLog)",
                        op->result.len);
        return OK;
    }
    if (op->retention_ms == 0) /* nobody said how long */
        op->retention_ms = b->set.reserved_ms;
    struct ledger_where where;
    struct ledger_entry entry;
    enum err err = record_for(b, d, op);
    if (err)
        return err;
    if (ledger_run(b->ledger->ledger, ask->group, (uint32_t)d->n - 1, op, &where, &entry))
        err = entry_add(d, &entry);
    if (!err && where.at)
        err = want_add(d, op, ask, where);
    return err;
}

static enum err asks_run(struct broker *b, struct ledger_desk *d, struct ledger_ask *asks, size_t n)
{
    const struct ledger_room *r = b->ledger;
    enum err err = OK;
    for (size_t i = 0; !err && i < n; i++) {
        struct ledger_ask *ask = &asks[i];
        ask->err = OK;
        if (ask->birth && ask->birth != r->birth) {
            ask->err = fault_set(&ask->why, ERR_STALE, "birth");
            continue;
        }
        for (size_t k = 0; !err && k < ask->n; k++) {
            ledger_expect(r->ledger, ask->ops, ask->n, k);
            err = op_run(b, d, ask, &ask->ops[k]);
        }
    }
    return err;
}

static void drafts_make(struct broker *b, struct ledger_desk *d)
{
    int props = snprintf(d->props, sizeof d->props, "ONCE_BIRTH\1%llu\2",
                         (unsigned long long)b->ledger->birth);
    int64_t now_ms = clock_ms(b->clock);
    for (size_t i = 0; i < d->n; i++) {
        const struct entries *record = &d->records[i];
        struct wr w = wr_over(d->text.at + record->from, record->size);
        entries_end(&w, record->n);
        struct bytes body = bytes_of(d->text.at + record->from, record->size);
        d->drafts[i] = (struct draft){
            .queue = b->ledger->queue,
            .topic = TOPIC,
            .body = body,
            .props = bytes_of(d->props, (size_t)props),
            .body_crc = crc32_positive(body),
            .born_ms = now_ms,
            .born_host = b->set.host,
            .store_host = b->set.host,
        };
    }
}

uint64_t ledger_birth_make(struct broker *b)
{
    uint64_t mixed = b->ledger->seed ^ (uint64_t)clock_ms(b->clock) * UINT64_C(0x9e3779b97f4a7c15);
    return (mixed & INT64_MAX) | 1;
}

/* Records without entries are left out, unless this one is the first of all. */
static enum err records_write(struct broker *b, struct ledger_desk *d)
{
    struct ledger_room *r = b->ledger;
    bool first = r->birth == 0;
    enum err err = first && d->n == 0 ? record_begin(d) : OK;
    while (!first && d->n > 0 && d->records[d->n - 1].n == 0)
        d->n--; /* only the last one can be without */
    if (err || d->n == 0)
        return err;
    if (!r->queue)
        r->queue = store_queue(b->store, TOPIC, 0);
    if (!r->queue)
        return ERR_NO_MEMORY;
    if (first)
        r->birth = ledger_birth_make(b);
    drafts_make(b, d);
    uint64_t end;
    err = store_append(b->store, d->drafts, d->n, d->stored, &end);
    for (size_t i = 0; !err && i < d->n; i++) {
        invariant(d->stored[i].err == OK); /* they are small enough */
        d->positions[i] = d->stored[i].position;
        if (r->tail == 0)
            r->tail_first = (uint64_t)d->positions[i];
        r->tail += d->stored[i].size;
        r->next_offset = d->stored[i].queue_offset + 1;
    }
    if (!err)
        r->end = end;
    else if (first)
        r->birth = 0;
    return err;
}

static enum err turn_run(struct broker *b, struct ledger_desk *d, struct ledger_ask *asks, size_t n)
{
    struct ledger_room *r = b->ledger;
    ledger_begin(r->ledger, ledger_now_ms(b));
    enum err err = asks_run(b, d, asks, n);
    if (!err)
        err = records_write(b, d);
    if (err)
        ledger_undo(r->ledger);
    else
        ledger_keep(r->ledger, d->positions);
    return err;
}

/* ---- results, from the log ---- */

struct found {
    const struct op *op;
    struct bytes result;
    bool any;
};

static bool result_look(void *user, const struct ledger_entry *e)
{
    struct found *f = user;
    bool step = f->op->kind == OP_STEP_GET;
    if (e->event == (step ? EVENT_STEP : EVENT_DONE) &&
        memcmp(e->id, f->op->id, sizeof e->id) == 0 &&
        (!step || bytes_equal(e->step, f->op->step))) {
        f->result = e->result;
        f->any = true;
    }
    return true; /* the last one counts */
}

/* ERR_TOO_BIG: the request has got as much as an answer may have. */
static enum err result_copy(struct ledger_ask *ask, struct bytes found, struct bytes *out)
{
    if (found.len > RESULTS_MOST - ask->brought)
        return ERR_TOO_BIG;
    *out = arena_copy(ask->arena, found);
    ask->brought += out->len;
    return found.len && !out->at ? ERR_NO_MEMORY : OK;
}

/* ERR_NOT_FOUND: it is not there any more. */
static enum err result_fetch(struct broker *b, const struct want *want, int64_t position)
{
    struct slice slice;
    want->op->result = (struct bytes){0};
    enum err err = store_peek_at(b->store, position, &slice);
    if (err)
        return err;
    struct record record;
    struct found f = {.op = want->op};
    bool there = record_decode(slice.bytes, &record) == OK && bytes_equal(record.topic, TOPIC) &&
                 entries_read(record.body, result_look, &f) == OK && f.any;
    err = there ? result_copy(want->ask, f.result, &want->op->result) : ERR_NOT_FOUND;
    counted_drop(slice.owner);
    return err;
}

/* No key held: a page of the log may have to be read. What is done stays done, without its result
 * when that is not to be had: whoever is told that the claim failed would come again and again for
 * what is over. A step without its value would be taken for one that gave nothing, and fails. */
static void results_fetch(struct broker *b, const struct ledger_desk *d)
{
    for (size_t i = 0; i < d->n_wants; i++) {
        const struct want *want = &d->wants[i];
        uint64_t at = want->where.at;
        int64_t position =
            at & LEDGER_PENDING ? d->positions[at & ~LEDGER_PENDING] : (int64_t)(at - 1);
        enum err err = result_fetch(b, want, position);
        if (!err || want->op->kind != OP_STEP_GET)
            continue;
        bool gone = err == ERR_NOT_FOUND || err == ERR_DAMAGED;
        want->op->outcome = OUT_FAILED;
        (void)fault_set(&want->op->why, err, "its result %s: %s",
                        gone                 ? "is no longer in the log (fileReservedTime)"
                        : err == ERR_TOO_BIG ? "is too much for one answer, ask for fewer at once"
                                             : "cannot be read now",
                        err_text(err));
    }
}

/* ---- the verbs ---- */

/* Once in the life of a broker's folder. No key held. */
static enum err topic_need(struct broker *b)
{
    if (atomic_load_explicit(&b->ledger->topic_known, memory_order_relaxed))
        return OK;
    struct topic_settings set = {
        .name = TOPIC, .read_queues = 1, .write_queues = 1, .perm = PERM_READ};
    struct after after;
    after_init(&after);
    struct topic *made;
    room_enter(&b->room);
    bool known = topic_find(b, set.name) != NULL;
    enum err err = known ? OK : topic_put(b, &set, &made);
    if (!known && !err) {
        table_changed(b, TABLE_TOPICS);
        after.topics_changed = true;
    }
    room_leave(&b->room);
    after_run(b, &after);
    atomic_store_explicit(&b->ledger->topic_known, !err, memory_order_relaxed);
    return err;
}

static void desk_clear(struct ledger_desk *d)
{
    if (d->text.err || d->text.cap > RECORD_MOST)
        buf_clear(&d->text); /* what was needed once is not kept for ever */
    d->text.len = 0;
    d->text.err = OK;
    d->n = d->n_wants = 0;
}

void broker_ledger(struct broker *b, struct ledger_desk *d, struct ledger_ask *asks, size_t n,
                   struct ledger_told *out)
{
    struct ledger_room *r = b->ledger;
    *out = (struct ledger_told){.grace_ms = b->set.ledger_grace_ms};
    struct fault why = {0};
    enum err err =
        r->on ? topic_need(b)
              : fault_set(&why, ERR_DENIED, "this broker keeps no ledger (onceLedgerEnable=false)");
    if (!err) {
        desk_clear(d);
        room_enter_soon(&r->room); /* it is held over the append, so as long as the tail's key */
        err = turn_run(b, d, asks, n);
        out->end = r->end;
        out->birth = r->birth;
        room_leave(&r->room);
        out->now_ms = ledger_now_ms(b);
    }
    for (size_t i = 0; err && i < n; i++) {
        asks[i].err = err;
        asks[i].why = why;
    }
    if (!err)
        results_fetch(b, d);
}

enum err broker_present(struct broker *b, uint32_t instance, struct bytes name, struct hold *hold,
                        uint64_t wait_ms, struct fault *why)
{
    struct ledger_room *r = b->ledger;
    if (!r->on)
        return fault_set(why, ERR_DENIED, "this broker keeps no ledger (onceLedgerEnable=false)");
    room_enter(&r->room);
    enum err err = ledger_present(r->ledger, instance, name, ledger_now_ms(b));
    room_leave(&r->room);
    if (err)
        return fault_set(why, err, "%u instances are there already", LEDGER_INSTANCES_MAX);
    if (wait_ms == 0)
        return OK;
    err = broker_hold_time(b, hold, wait_ms);
    if (err)
        broker_absent(b, instance);
    return err ? fault_set(why, err, "too many requests wait (maxWaitingPulls)") : OK;
}

enum err broker_present_more(struct broker *b, struct hold *hold, uint64_t wait_ms)
{
    return broker_hold_time(b, hold, wait_ms);
}

void broker_absent(struct broker *b, uint32_t instance)
{
    struct ledger_room *r = b->ledger;
    room_enter(&r->room);
    ledger_absent(r->ledger, instance, ledger_now_ms(b));
    room_leave(&r->room);
}

/* Consumers are told to come later, so nobody else would notice. */
static void full_tell(struct broker *b, const struct ledger_numbers *now)
{
    struct ledger_room *r = b->ledger;
    if (now->full == r->full_told)
        return;
    char text[256];
    (void)snprintf(text, sizeof text,
                   "the once ledger is full: %llu claims were refused since the last look "
                   "keys=%llu steps=%llu advice=\"raise onceMaxKeys, or shorten the retention of "
                   "what is done\"",
                   (unsigned long long)(now->full - r->full_told), (unsigned long long)now->keys,
                   (unsigned long long)now->steps);
    r->full_told = now->full;
    if (b->out && b->out->warn)
        b->out->warn(b->out->user, text);
}

void broker_ledger_turn(struct broker *b)
{
    struct ledger_room *r = b->ledger;
    struct ledger_numbers now = {0};
    uint64_t left = 1;
    for (bool first = true; first || left > 0; first = false) {
        room_enter(&r->room);
        if (first) {
            ledger_numbers(r->ledger, &now);
            left = now.keys ? now.keys / SWEEP_PARTS + 1 : 0;
            left = left < SWEEP_MOST ? left : SWEEP_MOST;
        }
        uint32_t rows = (uint32_t)(left < SWEEP_VISIT ? left : SWEEP_VISIT);
        if (now.keys || now.instances)
            ledger_sweep(r->ledger, ledger_now_ms(b), rows);
        left -= rows;
        room_leave(&r->room);
    }
    full_tell(b, &now);
}

void ledger_room_numbers(struct broker *b, struct broker_numbers *out)
{
    room_enter(&b->ledger->room);
    ledger_numbers(b->ledger->ledger, &out->ledger);
    room_leave(&b->ledger->room);
}
