/* txn_check.c - asking producers what became of their transactions.
 *
 * Every transactionCheckInterval a *round* goes over all that were open when it began, in the order
 * of their offsets, a batch at a time. One that is older than transactionTimeOut, or than its
 * producer wanted, is asked for: it is stored anew with a higher count, and a producer of its group
 * is told where. When it has been asked for transactionCheckMax times, or is older than messages
 * are kept (fileReservedTime), it is given up: moved to TRANS_CHECK_MAX_TIME_TOPIC, and the
 * operator hears of it.
 *
 * When no producer of the group is connected nobody is asked and nothing is counted. Apache counts
 * all the same, so that producers that are down for eight minutes lose their messages. Here such a
 * half waits until it is as old as fileReservedTime. So that it does not keep the beginning of the
 * queue from being forgotten, nor is deleted with the log's old files, it is stored anew now and
 * then, as it is; so are those whose producer wanted a long time. Nor does a question count that no
 * producer could be told because it is behind with reading.
 *
 * What the log refuses is tried again; the round waits where it is.
 */
#include "broker/txn_int.h"

#include <stdlib.h>

#define SCAN        4096 /* entries that are looked at in one turn */
#define BATCH_BYTES (1u << 20)
#define MOVE_MS     (10 * 60 * 1000) /* a copy that is older does not stay where it is */
#define LOOK_MS     1000
#define PAUSE_MS    1000
#define CATCH_UP_MS 100
#define ASK_TRIES   3 /* members, as Apache's ProducerManager.getAvailableChannel */
#define NS_PER_MS   1000000u

/* What is to happen with one. */
enum fate { FATE_STAY, FATE_ASK, FATE_MOVE, FATE_GIVE_UP, FATE_KNOWN, FATE_LOST };

struct work {
    int64_t root, position, offset;
    int32_t checks;
    int64_t age_ms;
    bool due, maybe_ended;
    struct slice slice; /* no owner: it was not read, or cannot be */
    struct record record;
    bool lost, known; /* there is none any more; its message is there already */
    bool later;       /* it cannot be read just now */
    enum fate fate;
    struct half *half; /* taken; NULL: it stays as it is */
    bool copies;       /* its copy is among the drafts … */
    size_t draft;      /* … here */
};

struct round {
    struct work works[TXN_BATCH];
    size_t n;
    int64_t last; /* offset of the last entry that was looked at */
    bool over;    /* no more of this round */
    struct fault why;
};

/* ---- which ---- */

/* Room: core. Whether it is to be looked at more closely. */
static bool half_wanted(const struct broker *b, const struct half *half, int64_t now_ms,
                        struct work *out)
{
    int64_t age_ms = now_ms - half->first_ms;
    bool due = age_ms < 0 || age_ms > half_immunity_ms(b, half);
    bool old = now_ms - half->copied_ms > MOVE_MS;
    if (half->taken || (!due && !old))
        return false;
    *out = (struct work){
        .root = half->root,
        .position = half->position,
        .offset = half->offset,
        .checks = half->checks,
        .age_ms = age_ms,
        .due = due,
        .maybe_ended = half->maybe_ended,
    };
    return true;
}

/* Room: core. Notes the next ones; the cursor stays. */
static void round_choose(struct broker *b, struct round *r)
{
    room_held(&b->room);
    struct txn *t = b->txn;
    int64_t now_ms = clock_ms(b->clock);
    size_t seen = 0;
    for (struct link *k = t->cursor.next;; k = k->next) {
        if (k == &t->by_offset.head || half_of(k) >= t->round_end) {
            r->over = true;
            return;
        }
        if (r->n == TXN_BATCH || seen++ == SCAN)
            return;
        r->last = half_of(k);
        r->n += half_wanted(b, list_entry(k, struct half, by_offset), now_ms, &r->works[r->n]);
    }
}

/* Room: core. Begins a round when it is time. False: there is none. */
static bool round_goes(struct broker *b, struct service_turn *out)
{
    room_held(&b->room);
    struct txn *t = b->txn;
    uint64_t now = clock_ns(b->clock);
    if (now < t->retry_ns) {
        out->err = t->trouble;
        return false;
    }
    if (t->round || now < t->next_round_ns)
        return t->round;
    t->next_round_ns = now + (uint64_t)b->set.txn_interval_ms * NS_PER_MS;
    if (t->n == 0)
        return false;
    t->round = true;
    t->round_end = t->next;
    t->cursor.prev = &t->by_offset.head;
    t->cursor.next = t->by_offset.head.next;
    t->cursor.next->prev = &t->cursor;
    t->by_offset.head.next = &t->cursor;
    return true;
}

/* Room: core. What was looked at is done with, in this round. */
static void round_moves(struct broker *b, const struct round *r)
{
    room_held(&b->room);
    struct txn *t = b->txn;
    struct link *next = t->cursor.next;
    while (next != &t->by_offset.head && half_of(next) <= r->last)
        next = next->next;
    list_remove(&t->cursor);
    t->round = !r->over;
    if (r->over)
        return;
    t->cursor.next = next;
    t->cursor.prev = next->prev;
    next->prev->next = &t->cursor;
    next->prev = &t->cursor;
}

/* ---- whom ---- */

/* Room: core. */
static const struct crowd *producers_find(struct broker *b, struct bytes group)
{
    const struct crowd *crowd = map_get(&b->producers, group);
    return crowd && crowd->n_members > 0 ? crowd : NULL;
}

static struct bytes group_of(const struct record *half)
{
    struct bytes group = {0};
    (void)props_get(half->props, PROP_PGROUP, &group);
    return group;
}

/* One that is connected, by chance, counted for the caller; NULL: nobody. No key held. */
static struct counted *producer_of(struct broker *b, struct bytes group)
{
    struct counted *session = NULL;
    room_enter(&b->room);
    const struct crowd *crowd = producers_find(b, group);
    if (crowd) {
        uint64_t skip = dice_below(&b->dice, crowd->n_members);
        list_each(k, &crowd->members) {
            if (skip-- > 0)
                continue;
            session = list_entry(k, struct member, in_crowd)->session;
            counted_hold(session);
            break;
        }
    }
    room_leave(&b->room);
    return session;
}

/* The half as its producer knows it: for its own topic and queue. */
static bool work_ask(struct broker *b, const struct work *w)
{
    struct record record = w->record;
    struct bytes queue_id;
    (void)props_get(w->record.props, PROP_REAL_TOPIC, &record.topic);
    if (props_get(w->record.props, PROP_REAL_QID, &queue_id))
        (void)bytes_to_i32(queue_id, &record.queue_id);
    if (w->copies) {
        const struct draft *draft = &b->txn->desk->drafts[w->draft];
        const struct stored *stored = &b->txn->desk->stored[w->draft];
        record.props = draft->props;
        record.position = stored->position;
        record.queue_offset = stored->queue_offset;
        record.store_ms = stored->store_ms;
    }
    record.prepared_position = 0;
    struct txn_check check = {.message = &record, .group = group_of(&w->record)};
    (void)props_get(w->record.props, PROP_UNIQ_KEY, &check.unique_key);
    bool told = false;
    for (int i = 0; !told && i < ASK_TRIES; i++) {
        struct counted *session = producer_of(b, check.group);
        if (!session)
            return false;
        told = b->out && b->out->txn_check && b->out->txn_check(session, &check);
        counted_drop(session);
    }
    return told;
}

/* ---- what ---- */

static void work_read(struct broker *b, struct work *w)
{
    enum err err = store_read_at(b->store, w->position, &w->slice);
    if (err) {
        w->slice.owner = NULL;
        w->lost = err == ERR_NOT_FOUND || err == ERR_DAMAGED;
        w->later = !w->lost;
        return;
    }
    w->lost = record_decode(w->slice.bytes, &w->record) || !record_is_half(&w->record);
    w->known = !w->lost && w->maybe_ended && half_committed(b, &w->record);
}

/* Reads the records. The batch ends where its bytes do, and the round goes on there. */
static void round_read(struct broker *b, struct round *r)
{
    size_t bytes = 0;
    for (size_t i = 0; i < r->n; i++) {
        if (bytes >= BATCH_BYTES) {
            r->last = r->works[i].offset - 1;
            r->over = false;
            r->n = i;
            return;
        }
        work_read(b, &r->works[i]);
        bytes += r->works[i].lost ? 0 : r->works[i].record.size;
    }
}

/* Room: core. */
static enum fate fate_of(struct broker *b, const struct work *w)
{
    room_held(&b->room);
    if (w->later)
        return FATE_STAY;
    if (w->lost)
        return FATE_LOST;
    if (w->known)
        return FATE_KNOWN;
    if (w->checks >= b->set.txn_check_max || w->age_ms > b->set.reserved_ms)
        return FATE_GIVE_UP;
    if (w->due && producers_find(b, group_of(&w->record)))
        return FATE_ASK;
    return clock_ms(b->clock) - w->record.store_ms > MOVE_MS ? FATE_MOVE : FATE_STAY;
}

/* Room: core. Takes those with which something is to happen, if they are still as they were. */
static void round_take(struct broker *b, struct round *r)
{
    room_held(&b->room);
    for (size_t i = 0; i < r->n; i++) {
        struct work *w = &r->works[i];
        struct half *half = half_find(b->txn, w->root);
        if (!half || half->taken || half->position != w->position)
            continue;
        w->fate = fate_of(b, w);
        if (w->fate == FATE_STAY)
            continue;
        half->taken = true;
        w->half = half;
    }
}

/* Adds what is to be stored. One that has become too big to be copied stays where it is. */
static enum err work_draft(struct broker *b, struct desk *desk, struct work *w, struct fault *why)
{
    if (!w->half || w->fate == FATE_KNOWN || w->fate == FATE_LOST)
        return OK;
    bool gives_up = w->fate == FATE_GIVE_UP;
    struct wr props = wr_over(desk->w.at, wr_room(&desk->w));
    enum err err =
        half_draft(b, &w->record, gives_up ? GIVEN_UP_TOPIC : HALF_TOPIC,
                   w->checks + (w->fate == FATE_ASK), &props, &desk->drafts[desk->n], why);
    if (err == ERR_TOO_BIG && gives_up)
        w->fate = FATE_STAY;
    if (err)
        return err == ERR_TOO_BIG ? OK : err;
    if (gives_up && w->maybe_ended && copy_known(b, &w->record, &desk->drafts[desk->n]))
        return OK; /* it was given up before the last stop */
    desk->w.at = props.at;
    w->draft = desk->n++;
    w->copies = true;
    return OK;
}

/* Whether an op record says that its present copy is not open any more. */
static bool copy_ends(const struct work *w)
{
    return w->copies || (w->half && (w->fate == FATE_KNOWN || w->fate == FATE_GIVE_UP));
}

/* Copies and one op record, which is the last: see txn.c. */
static enum err round_store(struct broker *b, struct round *r, uint64_t *end)
{
    struct desk *desk = b->txn->desk;
    uint8_t text[OP_TEXT];
    struct wr ops = wr_over(text, sizeof text);
    for (size_t i = 0; i < r->n; i++) {
        enum err err = work_draft(b, desk, &r->works[i], &r->why);
        if (err)
            return err;
        if (copy_ends(&r->works[i]))
            ops_add(&ops, r->works[i].offset);
    }
    if (wr_len(&ops) == 0)
        return OK;
    struct draft *op = &desk->drafts[desk->n++];
    op_draft(b, wr_bytes(&ops), op);
    if (!op->queue)
        return ERR_NO_MEMORY;
    return store_append(b->store, desk->drafts, desk->n, desk->stored, end);
}

/* ---- afterwards ---- */

/* Room: core. */
static void work_settle(struct broker *b, struct work *w, bool stored, struct service_turn *out)
{
    room_held(&b->room);
    struct txn *t = b->txn;
    struct half *half = w->half;
    if (half)
        half->taken = false;
    if (!half || !stored)
        return;
    switch (w->fate) {
    case FATE_STAY:
        break;
    case FATE_ASK:
    case FATE_MOVE:
        half->checks += w->fate == FATE_ASK;
        t->checks += w->fate == FATE_ASK;
        out->done++;
        if (w->copies) {
            const struct stored *copy = &t->desk->stored[w->draft];
            half_place(t, half, copy->position, copy->queue_offset, copy->store_ms);
        }
        break;
    case FATE_GIVE_UP:
        t->given_up++;
        out->done++;
        half_end(t, half);
        break;
    case FATE_KNOWN:
        t->committed++;
        out->known++;
        half_end(t, half);
        break;
    case FATE_LOST:
        out->skipped++;
        half_end(t, half);
        break;
    }
}

/* Nobody could be told: it does not count, and the round waits until its producers keep up. The
 * copy in the log says one too many until there is another. */
static void work_unasked(struct broker *b, const struct work *w)
{
    room_enter(&b->room);
    struct txn *t = b->txn;
    struct half *half = half_find(t, w->root);
    if (half && half->checks > 0)
        half->checks--;
    t->checks--;
    t->retry_ns = clock_ns(b->clock) + (uint64_t)CATCH_UP_MS * NS_PER_MS;
    room_leave(&b->room);
}

static void work_tell(struct broker *b, const struct work *w, struct after *after)
{
    if (!w->half || w->fate != FATE_GIVE_UP)
        return;
    struct bytes topic = {0}, key = {0};
    (void)props_get(w->record.props, PROP_REAL_TOPIC, &topic);
    (void)props_get(w->record.props, PROP_UNIQ_KEY, &key);
    after_warn(after,
               "transaction given up: group [%.*s] was asked %d times (transactionCheckMax %d) in "
               "%lld s; message [%.*s] for topic [%.*s] is now in TRANS_CHECK_MAX_TIME_TOPIC, and "
               "RESUME_CHECK_HALF_MESSAGE takes it up again",
               BRIEF(group_of(&w->record)), w->checks, b->set.txn_check_max,
               (long long)(w->age_ms / 1000), BRIEF(key), BRIEF(topic));
}

/* The topic of those given up is made when the first is. */
static enum err given_up_topic(struct broker *b, struct after *after, struct fault *why)
{
    room_enter(&b->room);
    struct topic *made = topic_find(b, GIVEN_UP_TOPIC);
    struct topic_settings set = {
        .name = GIVEN_UP_TOPIC,
        .read_queues = 1,
        .write_queues = 1,
        .perm = PERM_READ | PERM_WRITE,
    };
    enum err err = made ? OK : topic_create(b, &set, after, &made, why);
    room_leave(&b->room);
    return err;
}

/* ---- the turn ---- */

static enum err round_prepare(struct broker *b, struct round *r, struct after *after)
{
    struct txn *t = b->txn;
    enum err err = t->desk ? OK : desk_open(b, &t->desk);
    size_t text = 0;
    bool gives_up = false;
    for (size_t i = 0; i < r->n; i++) {
        struct work *w = &r->works[i];
        gives_up |= w->half && w->fate == FATE_GIVE_UP;
        text += w->lost ? 0 : w->record.props.len + 2 * TXN_COPY_TEXT;
    }
    if (!err && gives_up)
        err = given_up_topic(b, after, &r->why);
    if (!err && !desk_clear(t->desk, r->n + 1, text))
        err = ERR_NO_MEMORY;
    return err;
}

/* Room: core. */
static void round_settle(struct broker *b, struct round *r, enum err err, uint64_t end,
                         struct service_turn *out)
{
    room_held(&b->room);
    struct txn *t = b->txn;
    if (end > 0)
        txn_stored(t, &t->desk->stored[t->desk->n - 1], end);
    for (size_t i = 0; i < r->n; i++)
        work_settle(b, &r->works[i], !err, out);
    t->trouble = out->err = err;
    if (!err) {
        round_moves(b, r);
        return;
    }
    t->retry_ns = clock_ns(b->clock) + (uint64_t)PAUSE_MS * NS_PER_MS;
    (void)fault_set(&out->why, err, "%s", r->why.text[0] ? r->why.text : err_text(err));
}

static void round_run(struct broker *b, struct round *r, struct service_turn *out)
{
    struct after after;
    after_init(&after);
    uint64_t end = 0;
    round_read(b, r);
    room_enter(&b->room);
    round_take(b, r);
    room_leave(&b->room);
    enum err err = round_prepare(b, r, &after);
    if (!err)
        err = round_store(b, r, &end);
    room_enter(&b->room);
    round_settle(b, r, err, end, out);
    room_leave(&b->room);
    for (size_t i = 0; !err && i < r->n; i++) {
        struct work *w = &r->works[i];
        work_tell(b, w, &after);
        if (w->half && w->fate == FATE_ASK && !work_ask(b, w))
            work_unasked(b, w);
    }
    after_run(b, &after);
}

/* One batch of a round. */
static void round_turn(struct broker *b, struct service_turn *out)
{
    struct round *r = calloc(1, sizeof *r);
    if (!r) {
        out->err = ERR_NO_MEMORY;
        return;
    }
    r->last = -1;
    room_enter(&b->room);
    round_choose(b, r);
    room_leave(&b->room);
    round_run(b, r, out);
    for (size_t i = 0; i < TXN_BATCH; i++)
        if (r->works[i].slice.owner)
            counted_drop(r->works[i].slice.owner);
    bool waits = r->over || clock_ns(b->clock) < b->txn->retry_ns;
    out->next_ms = out->err ? PAUSE_MS : waits ? CATCH_UP_MS : 0;
    free(r);
}

void broker_txn_turn(struct broker *b, struct service_turn *out)
{
    *out = (struct service_turn){.next_ms = LOOK_MS};
    room_enter(&b->room);
    bool goes = round_goes(b, out);
    room_leave(&b->room);
    if (goes)
        round_turn(b, out);
    room_enter(&b->room);
    txn_settle(b);
    room_leave(&b->room);
    if (out->done + out->known > 0)
        broker_dispatch_turn(b);
}
