/* timer_take.c - from the queue in which timed messages wait to units in slots. */
#include "broker/timer_int.h"

#include "msg/msg.h"

#include <stdlib.h>

#define TAKE_ROUNDS 64   /* of TIMER_BATCH records, in one turn */
#define PLACES_MOST 3600 /* of the wheel, that are tried */

/* ---- records ---- */

static enum err buffer_reserve(struct timers *t, size_t size)
{
    if (size <= t->buffer_size)
        return OK;
    uint8_t *bigger = realloc(t->buffer, size);
    if (!bigger)
        return ERR_NO_MEMORY;
    t->buffer = bigger;
    t->buffer_size = size;
    return OK;
}

static enum err record_check(struct bytes bytes, int64_t position, struct record *out)
{
    if (record_decode(bytes, out) || out->size != bytes.len || out->position != position ||
        !bytes_equal(out->topic, TIMER_TOPIC) || !record_body_intact(out))
        return ERR_DAMAGED;
    return OK;
}

enum err timers_record(struct broker *b, int64_t position, uint32_t size, size_t *used,
                       struct record *out)
{
    struct timers *t = b->timer;
    if (size > RECORD_MOST)
        return ERR_DAMAGED;
    if (*used > 0 && size > t->buffer_size - *used)
        return ERR_TOO_BIG;
    enum err err = buffer_reserve(t, size);
    if (!err)
        err = store_copy_at(b->store, position, t->buffer + *used, size);
    if (!err)
        err = record_check(bytes_of(t->buffer + *used, size), position, out);
    if (!err)
        *used += size;
    return err;
}

/* ---- units ---- */

/* When the unit of a record is due, as its slot has it; and what is to be done then. */
static int64_t unit_time(const struct timers *t, const struct record *record, int64_t out_ms,
                         int64_t now_ms, uint32_t *magic)
{
    int64_t from_ms = record->store_ms < now_ms ? record->store_ms : now_ms;
    from_ms -= from_ms % TIMER_SECOND;
    int64_t time_ms = out_ms, left_ms = out_ms - from_ms;
    if (left_ms >= t->window_ms) { /* Apache's steps, counted from when the record was stored */
        *magic |= TIMER_ROLL;
        time_ms =
            from_ms + (left_ms - t->window_ms < t->window_ms / 3 ? t->window_ms / 2 : t->window_ms);
    }
    if (timer_due(time_ms) < t->done.due_ms)
        time_ms = timer_time(t->done.due_ms);
    return time_ms;
}

static int32_t hash_of(struct bytes topic) /* Java's String.hashCode, of plain letters */
{
    uint32_t hash = 0;
    for (size_t i = 0; i < topic.len; i++)
        hash = hash * 31 + topic.at[i];
    return (int32_t)hash;
}

bool timers_out_ms(const struct record *record, int64_t *out_ms)
{
    struct bytes text;
    return props_get(record->props, PROP_TIMER_OUT, &text) && bytes_to_i64(text, out_ms) &&
           *out_ms > 0 && *out_ms < INT64_MAX / 4;
}

/* A clock that was far ahead may have left something in this second's place that stays there for
 * long: then the next second whose place is free is as good. */
static void place_find(const struct timers *t, struct timer_unit *unit)
{
    for (int i = 0; i < PLACES_MOST; i++) {
        int64_t second = unit->time_ms / TIMER_SECOND;
        if (timerwheel_holder(t->wheel, second) <= second)
            return;
        unit->time_ms = (second + 1) * TIMER_SECOND + 1;
    }
}

/* Puts the unit into its slot. ERR_RANGE: that second's place in the wheel is taken by another. */
static enum err unit_put(struct broker *b, const struct record *record, struct timer_unit *unit,
                         struct fault *why)
{
    struct timers *t = b->timer;
    struct timer_slot slot;
    place_find(t, unit);
    int64_t second = unit->time_ms / TIMER_SECOND, at;
    bool there = timerwheel_get(t->wheel, second, &slot);
    if (!there && !timerwheel_put(t->wheel, &slot))
        return ERR_RANGE;
    unit->prev = slot.last;
    enum err err = timerlog_add(t->log, unit, &at, why);
    if (err) {
        if (!there)
            timerwheel_clear(t->wheel, second);
        return err;
    }
    slot.first = slot.first < 0 ? at : slot.first;
    slot.last = at;
    slot.count += slot.count < INT32_MAX;
    bool fits = timerwheel_put(t->wheel, &slot);
    invariant(fits);
    if (second < t->cleared)
        t->cleared = second;

    bool near = second <= t->loaded, rolls = unit->magic & TIMER_ROLL;
    if (unit->magic & TIMER_DELETE)
        err = recall_note(b, record, second, near && !rolls);
    if (err || ((unit->magic & TIMER_DELETE) && !rolls))
        return err;
    atomic_fetch_add_explicit(&t->pending, 1, memory_order_relaxed);
    struct timed timed = {
        .key = {timer_due(unit->time_ms), at},
        .position = unit->position,
        .write_ms = unit->write_ms,
        .size = unit->size,
        .magic = unit->magic,
    };
    if (near && near_push(t, &timed))
        near_forget(t); /* no memory: it is in its slot, and is read again from there */
    return OK;
}

static int by_position(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static enum err record_take(struct broker *b, const struct record *record, bool *lost,
                            struct fault *why)
{
    struct timers *t = b->timer;
    if (t->n_seen && bsearch(&record->position, t->seen, t->n_seen, sizeof *t->seen, by_position))
        return OK;
    struct bytes topic = {0}, key;
    int64_t out_ms, now_ms = clock_ms(b->clock);
    if (!timers_out_ms(record, &out_ms)) {
        *lost = true;
        return OK;
    }
    (void)props_get(record->props, PROP_REAL_TOPIC, &topic);
    struct timer_unit unit = {
        .magic = TIMER_PLAIN,
        .write_ms = now_ms - now_ms % TIMER_SECOND,
        .position = record->position,
        .size = record->size,
        .topic_hash = (uint32_t)hash_of(topic),
    };
    if (props_get(record->props, PROP_TIMER_DELETE, &key))
        unit.magic |= TIMER_DELETE;
    unit.time_ms = unit_time(t, record, out_ms, now_ms, &unit.magic);
    int64_t delay_ms = unit.time_ms - unit.write_ms;
    if (delay_ms > INT32_MAX || delay_ms < INT32_MIN)
        unit.write_ms = unit.time_ms; /* so late that the difference has no place */
    return unit_put(b, record, &unit, why);
}

/* ---- the queue ---- */

/* How many units from `from` on stand one behind the other in the log and fit the buffer. */
static size_t run_of(const struct queue_unit *units, size_t from, size_t n, uint64_t *size)
{
    size_t i = from;
    *size = 0;
    while (i < n && units[i].size > 0 && *size + units[i].size <= TIMER_BUFFER &&
           (i == from || units[i].position == units[i - 1].position + units[i - 1].size)) {
        *size += units[i].size;
        i++;
    }
    return i - from;
}

/* Takes up to n records; `*taken` of them have been. */
static enum err batch_take(struct broker *b, const struct queue_unit *units, size_t n,
                           size_t *taken, uint64_t *lost, struct fault *why)
{
    struct timers *t = b->timer;
    for (size_t i = 0; i < n;) {
        uint64_t size;
        size_t run = run_of(units, i, n, &size);
        struct record record;
        size_t used = 0;
        enum err err = OK;
        if (run > 1 && store_copy_at(b->store, units[i].position, t->buffer, size))
            run = 0;
        if (run <= 1) {
            run = 1;
            size = units[i].size;
            err = size ? timers_record(b, units[i].position, units[i].size, &used, &record)
                       : ERR_NOT_FOUND;
            if (err && err != ERR_NOT_FOUND && err != ERR_DAMAGED)
                return fault_set(why, err, "a timed message cannot be read: %s", err_text(err));
        }
        used = 0;
        for (size_t end = i + run; i < end; i++) {
            bool bad = err || record_check(bytes_of(t->buffer + used, units[i].size),
                                           units[i].position, &record);
            used += units[i].size;
            enum err put = bad ? OK : record_take(b, &record, &bad, why);
            if (put)
                return put;
            *lost += bad;
            ++*taken;
            if (!bad && (uint64_t)record.position + record.size > t->end)
                t->end = (uint64_t)record.position + record.size;
        }
    }
    return OK;
}

static void seen_forget(struct timers *t)
{
    if (t->next_offset < t->seen_until)
        return;
    free(t->seen);
    t->seen = NULL;
    t->n_seen = t->seen_cap = 0;
}

enum err timers_take(struct broker *b, bool *more, struct service_turn *out)
{
    struct timers *t = b->timer;
    struct queue *queue = atomic_load_explicit(&t->queue, memory_order_relaxed);
    int64_t min = queue_min(b->store, queue), max = queue_max(queue);
    uint64_t lost = 0;
    if (t->next_offset < min) { /* deleted before they were taken: a disk that was too full */
        lost += (uint64_t)(min - t->next_offset);
        t->next_offset = min;
    }
    enum err err = timerlog_write(t->log, &out->why);
    for (int round = 0; !err && t->next_offset < max && round < TAKE_ROUNDS; round++) {
        struct queue_unit units[TIMER_BATCH];
        size_t n = queue_units(b->store, queue, t->next_offset, units, TIMER_BATCH), taken = 0;
        err = batch_take(b, units, n, &taken, &lost, &out->why);
        t->next_offset += (int64_t)taken;
    }
    seen_forget(t);
    enum err written = timerlog_write(t->log, &out->why);
    out->skipped += lost;
    atomic_fetch_add_explicit(&t->lost, lost, memory_order_relaxed);
    *more = !err && t->next_offset < max;
    if (err == ERR_RANGE)
        err = OK; /* what is due goes first, and makes room */
    return err ? err : written;
}
