/* delay.c - messages that come later, by delay level.
 *
 * A message with DELAY=n is not stored where it was sent to but in queue n-1 of
 * SCHEDULE_TOPIC_XXXX, with the two properties that say where it belongs (REAL_TOPIC, REAL_QID).
 * All messages of one level wait equally long, so each of these queues is in the order of its
 * times, and its level needs to remember only how far it has come. When the first message of a
 * level is due, a copy of it is stored where it belongs: same body and properties, same birth; new
 * position, offset and store time. Topics and permissions are not asked again: the message was
 * accepted long ago.
 *
 *     queue of level n    … ──delivered── | ──waiting── …
 *                            ^safe        ^offset
 *
 * `offset` is where the level goes on, `safe` what the table says (config/delayOffset.json). The
 * table must not be ahead of the disk: if it counted a copy that a power loss takes away, nobody
 * would ever deliver it again. So `safe` follows only when the log is flushed beyond the copies.
 * There is one mark a level on its way: (end of the last copy, offset) at some moment; when the log
 * is flushed beyond it, it becomes `safe` and the next mark is set.
 *
 * After a crash the level begins at what was saved, and some messages behind it were delivered
 * already. Those that were stored before the start are looked for by their unique key in the
 * store's index, and not delivered again if the very same copy is there. Without an index they come
 * twice, as with Apache.
 *
 * Time. A message is due when its unit says so: store time and delay. When that is further away
 * than the delay itself, the clock went back or the ladder was shortened; Apache delivers such
 * messages at once, that is, too early. Here they wait for as long as a message of this level
 * waits, counted from when that was seen (`stall`).
 *
 * Trouble with one level, such as a record that cannot be read, does not touch the others. When the
 * store takes no messages nothing is lost: the offset stays and it is tried again.
 *
 * Threads: the turn has one caller at a time and owns struct delay. The table's numbers
 * (broker.delay_saved) are in the core room.
 */
#include "broker/produce_int.h"

#include <stdlib.h>

#define BATCH           256
#define BATCH_BYTES     (1u << 20)
#define ROUNDS          16  /* batches of each level in one turn */
#define LOOK_MS         100 /* nothing that is stored meanwhile is due sooner */
#define PAUSE_LEAST_MS  100
#define PAUSE_MOST_MS   1000
#define VERSION_UPDATES 200 /* the data version rises with so many, as Apache's does */

struct delay_level {
    int32_t number;
    int64_t offset;
    uint64_t end; /* where its last copy ends in the log */
    int64_t mark_offset;
    uint64_t mark_end;
    int64_t stall_before; /* units before this offset wait since stall_ns */
    uint64_t stall_ns;
    enum err trouble;  /* why what is due cannot go … */
    uint64_t retry_ns; /* … and when it is tried again */
    unsigned pause_ms;
};

struct delay {
    struct delay_level levels[DELAY_LEVELS];
    int32_t n;         /* of the ladder */
    int64_t opened_ms; /* what was stored before may have been delivered before the last stop */
    uint64_t updates;
    /* one batch */
    struct draft drafts[BATCH];
    struct stored stored[BATCH];
};

static bool level_turn(struct broker *b, struct delay_level *level, struct service_turn *out);
static bool level_settle(struct broker *b, struct delay_level *level);

/* ---- in ---- */

void delay_divert(struct broker *b, struct draft *draft, int32_t level, struct wr *props)
{
    int32_t top = store_delay_levels(b->store);
    level = level < top ? level : top;
    props_add_int(props, PROP_DELAY, level);
    props_add(props, PROP_REAL_TOPIC, draft->topic);
    props_add_int(props, PROP_REAL_QID, draft->queue_id);
    draft->topic = SCHEDULE_TOPIC;
    draft->queue_id = level - 1;
    draft->queue = store_queue(b->store, SCHEDULE_TOPIC, level - 1);
}

/* ---- opening and closing ---- */

/* Room: core. What the table says is brought into the bounds of its queue, as
 * ScheduleMessageService.correctDelayOffset does. */
enum err delay_open(struct broker *b)
{
    room_held(&b->room);
    struct delay *d = calloc(1, sizeof *d);
    if (!d)
        return ERR_NO_MEMORY;
    int32_t levels = store_delay_levels(b->store);
    d->n = levels < DELAY_LEVELS ? levels : DELAY_LEVELS;
    d->opened_ms = clock_ms(b->clock);
    for (int32_t i = 0; i < DELAY_LEVELS; i++) {
        struct delay_level *level = &d->levels[i];
        level->number = i + 1;
        level->offset = level->mark_offset = b->delay_saved[i] < 0 ? 0 : b->delay_saved[i];
    }
    b->delay = d;
    return OK;
}

bool delay_unsettled(const struct broker *b)
{
    for (int32_t i = 0; i < b->delay->n; i++) {
        int64_t saved = b->delay_saved[i], offset = b->delay->levels[i].offset;
        if (offset != (saved < 0 ? 0 : saved))
            return true;
    }
    return false;
}

void delay_settle(struct broker *b)
{
    room_enter(&b->room);
    bool changed = false;
    for (int32_t i = 0; i < b->delay->n; i++) {
        changed |= level_settle(b, &b->delay->levels[i]); /* the mark that was on its way … */
        changed |= level_settle(b, &b->delay->levels[i]); /* … and what came after it */
    }
    if (changed)
        b->tables[TABLE_DELAYS].changes++;
    room_leave(&b->room);
}

void delay_free(struct delay *delay)
{
    free(delay);
}

/* ---- the turn ---- */

/* Room: core. Makes a mark that is on the disk what the table says, and sets the next one. True:
 * the table has changed. */
static bool level_settle(struct broker *b, struct delay_level *level)
{
    room_held(&b->room);
    if (store_flushed(b->store) < level->mark_end)
        return false;
    int64_t *saved = &b->delay_saved[level->number - 1];
    bool there = store_queue_find(b->store, SCHEDULE_TOPIC, level->number - 1) != NULL;
    bool changed = there && *saved != level->mark_offset;
    if (there)
        *saved = level->mark_offset;
    level->mark_offset = level->offset;
    level->mark_end = level->end;
    return changed;
}

static void levels_settle(struct broker *b, struct delay *d)
{
    room_enter(&b->room);
    bool changed = false;
    for (int32_t i = 0; i < d->n; i++)
        changed |= level_settle(b, &d->levels[i]);
    if (changed && d->updates >= VERSION_UPDATES) {
        d->updates = 0;
        table_changed(b, TABLE_DELAYS);
    } else if (changed) {
        b->tables[TABLE_DELAYS].changes++;
    }
    room_leave(&b->room);
}

void broker_delay_turn(struct broker *b, struct service_turn *out)
{
    struct delay *d = b->delay;
    *out = (struct service_turn){.next_ms = LOOK_MS};
    bool more = true;
    for (int round = 0; more && round < ROUNDS; round++) {
        more = false;
        for (int32_t i = 0; i < d->n; i++)
            more |= level_turn(b, &d->levels[i], out);
    }
    if (more)
        out->next_ms = 0;
    d->updates += out->done;
    levels_settle(b, d);
    if (out->done > 0)
        broker_dispatch_turn(b);
}

/* ---- when ---- */

static void next_at_most(struct service_turn *out, int64_t ms)
{
    if (ms < out->next_ms)
        out->next_ms = ms > 0 ? (int)ms : 0;
}

/* The first unit says a time that it cannot have been given by this clock and this ladder. How many
 * units may go all the same: those that were there when this began, once the delay has passed. */
static int64_t stalled_due(struct broker *b, struct delay_level *level, struct queue *queue,
                           struct service_turn *out)
{
    uint64_t now_ns = clock_ns(b->clock);
    if (level->stall_before <= level->offset) {
        level->stall_before = queue_max(queue);
        level->stall_ns = now_ns;
    }
    int64_t waited_ms = (int64_t)((now_ns - level->stall_ns) / 1000000);
    int64_t left_ms = store_delay_ms(b->store, level->number) - waited_ms;
    if (left_ms > 0) {
        next_at_most(out, left_ms);
        return 0;
    }
    int64_t n = level->stall_before - level->offset;
    return n < BATCH ? n : BATCH;
}

/* How many units are due, from the level's offset on. */
static int64_t level_due(struct broker *b, struct delay_level *level, struct queue *queue,
                         struct service_turn *out)
{
    int64_t now_ms = clock_ms(b->clock), next_ms;
    int64_t n = queue_due(b->store, queue, level->offset, BATCH, now_ms, &next_ms);
    if (n > 0) {
        level->stall_before = 0;
        return n;
    }
    if (next_ms == INT64_MAX)
        return 0;
    if (next_ms - now_ms > store_delay_ms(b->store, level->number))
        return stalled_due(b, level, queue, out);
    next_at_most(out, next_ms - now_ms);
    return 0;
}

/* ---- what ---- */

/* A batch of one level on its way. */
struct batch {
    struct read_result read;
    size_t n;                /* drafts */
    int64_t next;            /* where the level goes on when they are stored */
    uint64_t known, skipped; /* others before `next` */
    enum err stuck;          /* why what stands at `next` cannot go now */
    struct fault why;
};

/* What becomes of a record that is due. */
enum fate { FATE_DELIVER, FATE_KNOWN, FATE_SKIP, FATE_STUCK };

/* The copy of a record that has waited. Witness: ScheduleMessageService.messageTimeUp, and what it
 * wrote: the properties stay as they are, DELAY and the real place included. */
static enum fate record_revive(struct broker *b, const struct delay_level *level,
                               const struct record *record, struct draft *out, struct batch *batch)
{
    struct bytes topic, queue_text;
    int32_t queue_id;
    if (!props_get(record->props, PROP_REAL_TOPIC, &topic) ||
        !props_get(record->props, PROP_REAL_QID, &queue_text) ||
        !bytes_to_i32(queue_text, &queue_id) || queue_id < 0 || queue_id >= QUEUES_MAX ||
        topic_refuses_clients(topic))
        return FATE_SKIP; /* nothing is delivered there: a delay is no way around a refusal */
    if (record->body.len > b->set.max_message_size) {
        batch->stuck =
            fault_set(&batch->why, ERR_TOO_BIG,
                      "a message of level %d for topic[%.*s] has %zu bytes, more than %u "
                      "(maxMessageSize)",
                      level->number, BRIEF(topic), record->body.len, b->set.max_message_size);
        return FATE_STUCK;
    }
    copy_draft(b, record, topic, queue_id, out);
    if (!out->queue && topic_name_check(topic, NULL))
        return FATE_SKIP;
    if (!out->queue) {
        batch->stuck = fault_set(&batch->why, ERR_NO_MEMORY,
                                 "no memory for queue %d of topic[%.*s]", queue_id, BRIEF(topic));
        return FATE_STUCK;
    }
    bool maybe_known = record->store_ms <= b->delay->opened_ms;
    return maybe_known && copy_known(b, record, out) ? FATE_KNOWN : FATE_DELIVER;
}

/* ---- doing it ---- */

/* Moves on; what lies between cannot be read, and is passed over, as by Apache. */
static void batch_reach(struct batch *batch, int64_t offset)
{
    if (offset <= batch->next)
        return;
    batch->skipped += (uint64_t)(offset - batch->next);
    batch->next = offset;
}

/* False: it cannot go now, and nothing behind it may pass it. */
static bool batch_take(struct broker *b, const struct delay_level *level,
                       const struct record *record, struct batch *batch)
{
    batch_reach(batch, record->queue_offset);
    switch (record_revive(b, level, record, &b->delay->drafts[batch->n], batch)) {
    case FATE_DELIVER:
        batch->n++;
        break;
    case FATE_KNOWN:
        batch->known++;
        break;
    case FATE_SKIP:
        batch->skipped++;
        break;
    case FATE_STUCK:
        return false;
    }
    batch->next = record->queue_offset + 1;
    return true;
}

static void batch_fill(struct broker *b, const struct delay_level *level, int64_t stop,
                       struct batch *batch)
{
    for (size_t i = 0; i < batch->read.n_slices; i++) {
        struct bytes rest = batch->read.slices[i].bytes;
        struct record record;
        while (rest.len > 0 && record_decode(rest, &record) == OK && record.queue_offset < stop) {
            rest = bytes_from(rest, record.size);
            if (!batch_take(b, level, &record, batch))
                return;
        }
    }
    batch_reach(batch, batch->read.next < stop ? batch->read.next : stop);
}

static void level_pause(struct broker *b, struct delay_level *level, enum err err,
                        struct service_turn *out)
{
    unsigned pause = level->pause_ms * 2;
    level->pause_ms = pause < PAUSE_LEAST_MS  ? PAUSE_LEAST_MS
                      : pause > PAUSE_MOST_MS ? PAUSE_MOST_MS
                                              : pause;
    level->trouble = err;
    level->retry_ns = clock_ns(b->clock) + (uint64_t)level->pause_ms * 1000000;
    out->err = err;
}

static void level_well(struct delay_level *level)
{
    level->trouble = OK;
    level->pause_ms = 0;
}

/* The store refuses: nothing of the batch was stored, and the level stays where it was. */
static void level_refused(struct broker *b, struct delay_level *level, enum err err,
                          struct service_turn *out)
{
    struct fault state = {0};
    (void)store_state(b->store, &state);
    (void)fault_set(&out->why, err, "level %d: %s", level->number,
                    state.text[0] ? state.text : err_text(err));
    level_pause(b, level, err, out);
}

static enum err batch_store(struct broker *b, struct delay_level *level, struct batch *batch,
                            struct service_turn *out)
{
    struct delay *d = b->delay;
    if (batch->n == 0)
        return OK;
    enum err err = store_append(b->store, d->drafts, batch->n, d->stored, &level->end);
    if (err)
        return err;
    for (size_t i = 0; i < batch->n; i++) {
        out->done += !d->stored[i].err;
        batch->skipped += d->stored[i].err != OK; /* record_revive saw that it fits */
    }
    return OK;
}

/* Delivers one batch of what is due. True: there may be more. */
static bool level_turn(struct broker *b, struct delay_level *level, struct service_turn *out)
{
    struct queue *queue = store_queue_find(b->store, SCHEDULE_TOPIC, level->number - 1);
    if (!queue)
        return false;
    if (level->trouble && clock_ns(b->clock) < level->retry_ns) {
        out->err = level->trouble;
        return false;
    }
    int64_t min = queue_min(b->store, queue), max = queue_max(queue);
    if (level->offset < min)
        level->offset = min; /* deleted by age before it was due */
    if (level->offset > max)
        level->offset = max;
    int64_t due = level_due(b, level, queue, out);
    if (due == 0) {
        level_well(level);
        return false;
    }

    struct batch batch = {.next = level->offset};
    struct read_request request = {
        .offset = level->offset, .max_count = (uint32_t)due, .max_bytes = BATCH_BYTES};
    store_read(b->store, queue, &request, &batch.read);
    if (batch.read.status != READ_FOUND)
        batch.read.n_slices = 0;
    batch_fill(b, level, level->offset + due, &batch);
    enum err err = batch_store(b, level, &batch, out);
    for (size_t i = 0; i < batch.read.n_slices; i++)
        counted_drop(batch.read.slices[i].owner);
    if (err) {
        level_refused(b, level, err, out);
        return false;
    }
    bool moved = batch.next > level->offset;
    level->offset = batch.next;
    out->known += batch.known;
    out->skipped += batch.skipped;
    if (batch.stuck) {
        out->why = batch.why;
        level_pause(b, level, batch.stuck, out);
        return false;
    }
    level_well(level);
    return moved;
}
