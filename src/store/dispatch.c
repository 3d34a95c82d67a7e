/* dispatch.c - from the log into the queues.
 *
 * A turn reads records in the order of the log, sorts their units by queue, and writes each queue's
 * in one piece: no system call for a single message. It is one at a time, but anybody may call: who
 * finds somebody inside leaves a mark and goes, and the one inside does not go while there is a new
 * mark.
 *
 * Most records have a slip (slip.c), which has all that is needed; the others are read.
 *
 * The mark and "somebody is inside" are one word, `callers`. With two (a lock, and the confirmed
 * position) both sides could look at the other's before it is there, and a record would wait for
 * the next append.
 */
#include "store/store_int.h"

#include <sched.h>

static void window_take(struct store *store, uint64_t at);
static enum err read_turn(struct store *store, uint64_t upto, uint64_t *reached, struct fault *why);

/* Dispatch is stuck, or (OK) goes on. */
static void trouble_set(struct store *store, enum err err, const struct fault *why)
{
    room_enter(&store->cache.room);
    if (err && !store_failed(store))
        store->reason = *why;
    atomic_store_explicit(&store->derived.trouble, (int)err, memory_order_release);
    room_leave(&store->cache.room);
}

/* One bounded step. False: there was nothing to do, or it cannot be done. */
static bool dispatch_step(struct store *store, struct arrival *out, size_t *n_out)
{
    struct derived *derived = &store->derived;
    struct fault why = {0};
    *n_out = 0;
    uint64_t from = position_get(&store->positions.dispatched), reached = from;
    uint64_t upto = position_get(&store->positions.confirmed);
    if (from == upto)
        return false;

    if (slips_lack(&store->slips, from))
        window_take(store, from);
    room_enter(&derived->room);
    int64_t before_ms = derived->dispatched_ms;
    enum err err = read_turn(store, upto, &reached, &why);
    enum err written = turn_write(store, out, n_out, err ? NULL : &why);
    if (!err)
        err = written;
    enum err indexed = keys_turn_end(store, err ? NULL : &why);
    if (!err)
        err = indexed;
    if (err)
        derived->dispatched_ms =
            before_ms; /* what could be written will be met again and passed over */
    else
        position_raise(&store->positions.dispatched, reached);
    room_leave(&derived->room);
    slips_used(&store->slips, position_get(&store->positions.dispatched));

    if (err == ERR_DAMAGED)
        store_fail(store, err, &why);
    if ((int)err != atomic_load_explicit(&derived->trouble, memory_order_relaxed))
        trouble_set(store, err, &why);
    return !err;
}

size_t store_dispatch_turn(struct store *store, struct arrival *out)
{
    struct derived *derived = &store->derived;
    if (position_get(&store->positions.dispatched) == store_confirmed(store))
        return 0;
    if (atomic_fetch_add_explicit(&derived->callers, 1, memory_order_acq_rel) != 0)
        return 0; /* the one inside sees our mark before it goes */

    for (;;) {
        size_t n;
        unsigned seen = atomic_load_explicit(&derived->callers, memory_order_acquire);
        bool went_on = dispatch_step(store, out, &n);
        if (n > 0) {
            /* Our caller comes again, so nobody's mark is lost. Taking the marks away also reads
             * them: so when it looks, it sees what was confirmed before they were set. */
            (void)atomic_exchange_explicit(&derived->callers, 0, memory_order_acq_rel);
            return n;
        }
        if (!went_on &&
            atomic_compare_exchange_strong_explicit(&derived->callers, &seen, 0,
                                                    memory_order_acq_rel, memory_order_relaxed))
            return 0;
    }
}

bool store_dispatch_reached(struct store *store, uint64_t position)
{
    struct derived *derived = &store->derived;
    while (position_get(&store->positions.dispatched) < position &&
           atomic_load_explicit(&derived->callers, memory_order_acquire) != 0) {
        room_enter(&derived->room); /* whoever is at it may not have got so far as to be inside */
        room_leave(&derived->room);
        (void)sched_yield();
    }
    return position_get(&store->positions.dispatched) >= position;
}

bool store_dispatch_stuck(struct store *store)
{
    return atomic_load_explicit(&store->derived.trouble, memory_order_acquire) != OK;
}

/* ---- reading the log ---- */

/* Takes the newest part of the log from the tail, if `at` is in it. Who appends just now is soon
 * done; if not, rather look into the file than wait. Not before: a page that is being written has
 * its reader sleep, and its writer wake it. */
static void window_take(struct store *store, uint64_t at)
{
    struct window *mine = &store->derived.window, *theirs = &store->tail.window;
    if (window_has(mine, at) || !room_try_soon(&store->tail.room))
        return;
    if (window_has(theirs, at)) {
        struct window taken = *theirs;
        *theirs = *mine;
        theirs->len = 0;
        *mine = taken;
    }
    room_leave(&store->tail.room);
}

/* Room: derived. Most records go where one of the last went. */
static enum err queue_of(struct store *store, const struct record *r, struct queue **out)
{
    uint32_t hash = (uint32_t)r->queue_id + (uint32_t)r->topic.len * 7;
    for (size_t i = r->topic.len > 8 ? r->topic.len - 8 : 0; i < r->topic.len; i++)
        hash = hash * 31 + r->topic.at[i];
    struct queue **recent = &store->derived.recent[hash % RECENT_QUEUES];
    if (*recent && (*recent)->queue_id == r->queue_id && bytes_equal((*recent)->topic, r->topic)) {
        *out = *recent;
        return OK;
    }
    enum err err = queue_get(store, r->topic, r->queue_id, out);
    if (!err)
        *recent = *out;
    return err;
}

/* We gave this record its offset ourselves; another one means that the file has changed under us.
 */
static enum err take_unit(struct store *store, struct queue *queue, int64_t offset,
                          const struct unit *unit, struct fault *why)
{
    if (unit->position < queue->log_end)
        return OK; /* a turn that failed half-way had it in */
    if (offset != turn_next(store->derived.turn, queue))
        return fault_set(why, ERR_DAMAGED,
                         "the record at position %llu has queue offset %lld instead of %lld",
                         (unsigned long long)unit->position, (long long)offset,
                         (long long)turn_next(store->derived.turn, queue));
    turn_add(store, queue, unit);
    return OK;
}

static enum err take_record(struct store *store, const struct record *r, struct fault *why)
{
    struct marks marks = props_marks(r->props);
    store->derived.dispatched_ms = r->store_ms;
    if (record_has_unit(r)) {
        struct queue *queue;
        enum err err = queue_of(store, r, &queue);
        if (err == ERR_NO_MEMORY)
            return err;
        if (err)
            return fault_set(why, ERR_DAMAGED,
                             "the record at position %lld has a topic that cannot be",
                             (long long)r->position);
        struct unit unit = unit_for(&store->options, r, &marks);
        err = take_unit(store, queue, r->queue_offset, &unit, why);
        if (err)
            return err;
    }
    return keys_add(store, r, &marks, why);
}

static enum err take_slip(struct store *store, const struct slip *slip, struct fault *why)
{
    struct unit unit = {slip->position, slip->size, slip->marks.tags_code};
    store->derived.dispatched_ms = slip->store_ms;
    enum err err = take_unit(store, slip->queue, slip->queue_offset, &unit, why);
    return err ? err : keys_add_slip(store, slip, why);
}

/* Records from `*at` on that have slips, without a gap. */
static enum err read_slips(struct store *store, uint64_t stop, uint64_t *at, struct fault *why)
{
    enum err err = OK;
    while (!err && *at < stop && !turn_full(store->derived.turn)) {
        const struct slip *slip = slip_at(&store->slips, *at);
        if (!slip)
            break;
        *at += slip->size;
        err = take_slip(store, slip, why);
    }
    return err;
}

/* Records up to one that has a slip. */
static enum err read_stretch(struct store *store, const struct stretch *s, uint64_t stop,
                             uint64_t *at, struct fault *why)
{
    enum err err = OK;
    do {
        struct record r;
        err = stretch_step(s, at, &r, why);
        if (!err && r.size > 0)
            err = take_record(store, &r, why);
    } while (!err && *at < stop && *at < s->end && !turn_full(store->derived.turn) &&
             !slip_at(&store->slips, *at));
    return err;
}

static struct stretch window_stretch(const struct store *store, const struct window *w)
{
    uint64_t size = store->log.file_size;
    return (struct stretch){w->at, w->from, w->from + w->len, w->from - w->from % size + size};
}

/* Room: derived. Fills the turn with records up to `upto`, or as many as it takes. */
static enum err read_turn(struct store *store, uint64_t upto, uint64_t *reached, struct fault *why)
{
    room_held(&store->derived.room);
    const struct window *w = &store->derived.window;
    uint64_t at = *reached;
    uint64_t stop =
        upto - at > TURN_BYTES ? at + TURN_BYTES : upto; /* the last record may go beyond */
    for (;;) {
        cleanup(segment_drop_at) struct segment *seg = NULL;
        struct stretch s;
        enum err err = read_slips(store, stop, &at, why);
        if (err)
            return err;
        if (at >= stop || turn_full(store->derived.turn))
            break;
        if (window_has(w, at))
            s = window_stretch(store, w);
        else
            err = log_stretch(store, at, &seg, &s, why);
        if (!err)
            err = read_stretch(store, &s, stop, &at, why);
        if (err)
            return err;
    }
    *reached = at;
    return OK;
}

/* ---- the turn ---- */

bool record_has_unit(const struct record *record)
{
    int32_t kind = record->sys_flag & SYS_TX_MASK;
    return kind != SYS_TX_PREPARED && kind != SYS_TX_ROLLBACK;
}

bool turn_full(const struct turn *turn)
{
    return turn->n == TURN_UNITS || turn->n_slots == ARRIVALS_MAX;
}

int64_t turn_next(const struct turn *turn, const struct queue *queue)
{
    int64_t max = atomic_load_explicit(&queue->max, memory_order_relaxed);
    return queue->turn == turn->number ? max + turn->slots[queue->slot].count : max;
}

/* Apache's ladder, in seconds: 1s 5s 10s 30s 1m … 10m 20m 30m 1h 2h. */
static const int32_t delay_defaults[] = {1,   5,   10,  30,  60,  120,  180,  240,  300,
                                         360, 420, 480, 540, 600, 1200, 1800, 3600, 7200};

static size_t ladder_size(const struct store_options *options)
{
    return options->n_delays ? options->n_delays : sizeof delay_defaults / sizeof delay_defaults[0];
}

/* A level above the ladder is its last one. */
static int64_t delay_ms(const struct store_options *options, int32_t level)
{
    size_t n = ladder_size(options);
    size_t i = (size_t)level < n ? (size_t)level - 1 : n - 1;
    return options->n_delays ? options->delays_ms[i] : (int64_t)delay_defaults[i] * 1000;
}

int32_t store_delay_levels(struct store *store)
{
    return (int32_t)ladder_size(&store->options);
}

int64_t store_delay_ms(struct store *store, int32_t level)
{
    invariant(level > 0);
    return delay_ms(&store->options, level);
}

/* Witness: CommitLog.checkMessageAndReturnSize. */
int64_t unit_tags(const struct store_options *options, const struct record *record,
                  const struct marks *marks)
{
    int32_t level;
    if (marks->delay.len && bytes_equal(record->topic, SCHEDULE_TOPIC) &&
        bytes_to_i32(marks->delay, &level) && level > 0)
        return record->store_ms + delay_ms(options, level);
    return marks->tags.len ? tags_code(marks->tags) : 0;
}

struct unit unit_for(const struct store_options *options, const struct record *record,
                     const struct marks *marks)
{
    return (struct unit){(uint64_t)record->position, record->size,
                         unit_tags(options, record, marks)};
}

void turn_add(struct store *store, struct queue *queue, const struct unit *unit)
{
    struct turn *turn = store->derived.turn;
    invariant(!turn_full(turn));
    if (queue->turn != turn->number) {
        queue->turn = turn->number;
        queue->slot = (uint32_t)turn->n_slots++;
        turn->slots[queue->slot] = (struct pending){.queue = queue};
    }
    struct pending *slot = &turn->slots[queue->slot];
    slot->count++;
    slot->size += unit->size;
    slot->log_end = unit->position + unit->size;
    slot->tags_code = unit->tags_code;
    turn->slot_of[turn->n] = queue->slot;
    turn->units[turn->n++] = *unit;
}

/* Puts the units of each queue side by side, in their order. */
static void turn_sort(struct turn *turn)
{
    uint32_t start = 0;
    uint32_t fill[ARRIVALS_MAX];
    for (size_t i = 0; i < turn->n_slots; i++) {
        turn->slots[i].start = fill[i] = start;
        start += turn->slots[i].count;
    }
    for (size_t i = 0; i < turn->n; i++)
        unit_save(turn->sorted + (size_t)fill[turn->slot_of[i]]++ * UNIT_SIZE, &turn->units[i]);
}

void turn_forget(struct turn *turn)
{
    turn->n = turn->n_slots = 0;
    turn->number++; /* what queues remember of the old one no longer counts */
}

enum err turn_write(struct store *store, struct arrival *out, size_t *n_out, struct fault *why)
{
    struct turn *turn = store->derived.turn;
    room_held(&store->derived.room);
    turn_sort(turn);
    enum err first_err = OK;
    size_t n = 0;
    for (size_t i = 0; i < turn->n_slots; i++) {
        const struct pending *slot = &turn->slots[i];
        enum err err =
            queue_append(store, slot->queue, turn->sorted + (size_t)slot->start * UNIT_SIZE,
                         slot->count, first_err ? NULL : why);
        if (err) {
            first_err = first_err ? first_err : err;
            continue;
        }
        slot->queue->log_end = slot->log_end;
        if (out)
            out[n++] = (struct arrival){slot->queue,
                                        slot->queue->topic,
                                        slot->queue->queue_id,
                                        queue_max(slot->queue),
                                        slot->tags_code,
                                        slot->count,
                                        slot->size};
    }
    turn_forget(turn);
    if (n_out)
        *n_out = n;
    return first_err;
}
