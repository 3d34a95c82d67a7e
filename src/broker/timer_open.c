/* timer_open.c - what the timers leave behind, and how a life begins with it.
 *
 * The check says how far the last life was; the units in front of the place it names are believed,
 * and the wheel is made from them. Each unit must continue the chain of its slot and speak of a
 * record that is there; at the first one that does not, the units end, and what had come behind it
 * is taken from the queue again.
 *
 * A check that Apache wrote knows only seconds, and its place in the units is no help: they go on
 * until there are no more. Its place in the queue may be behind them, so what is taken again from
 * there is compared with the units that are there.
 *
 * Without a check, or without units that can be read, everything is taken again from the start of
 * the queue. What an earlier life had delivered is then found by its key.
 */
#include "broker/timer_int.h"

#include <stdio.h>
#include <stdlib.h>

#define WINDOW_MS INT64_C(172800000) /* timerRollWindowSlot */
#define TEXT_SIZE (1u << 20)
#define FUTURE_MS 60000 /* a clock may be set back a little between two brokers */

static enum err timers_save(struct broker *b, const struct timer_mark *mark, struct fault *why);
static enum err timers_load(struct broker *b, struct queue *queue, bool *save, struct fault *why);
static bool mark_now(struct broker *b, bool clean, struct timer_mark *out);

static void timers_note(struct timers *t, const char *text)
{
    size_t used = strlen(t->note);
    (void)snprintf(t->note + used, sizeof t->note - used, "%s%s", used ? "; " : "", text);
}

enum err timers_open(struct broker *b, struct fault *why)
{
    struct timers *t = calloc(1, sizeof *t);
    if (!t)
        return ERR_NO_MEMORY;
    b->timer = t;
    room_init(&t->room, "recall", ROOM_CORE);
    map_init(&t->recalls, dice_next(&b->dice));
    atomic_store(&t->soonest_ms, DUE_NEVER);
    atomic_store(&t->queue, store_queue_find(b->store, TIMER_TOPIC, 0));
    int64_t window_ms = b->set.timer_window_s > 1 ? b->set.timer_window_s * 1000 : WINDOW_MS;
    int64_t kept_ms = b->set.reserved_ms / 3 * 2;
    window_ms = window_ms < TIMER_SPAN_MS ? window_ms : TIMER_SPAN_MS;
    if (kept_ms > 0 && kept_ms < window_ms)
        window_ms = kept_ms;
    window_ms -= window_ms % TIMER_SECOND;
    t->window_ms = window_ms > 2 * TIMER_SECOND ? window_ms : 2 * TIMER_SECOND;
    if (!atomic_load(&t->queue) || !b->set.timers)
        return OK; /* begins when the first message comes */
    enum err err = timers_start(b, why);
    store_clean_hold(b->store, 0); /* the first turn knows better */
    size_t used = strlen(b->note);
    if (!err && t->note[0])
        (void)snprintf(b->note + used, sizeof b->note - used, "%s%s", used ? "; " : "", t->note);
    return err;
}

static void timers_stop(struct timers *t)
{
    timerlog_close(t->log);
    timerwheel_close(t->wheel);
    free(t->near);
    free(t->seen);
    free(t->buffer);
    free(t->text);
    t->log = NULL;
    t->wheel = NULL;
    t->near = NULL;
    t->seen = NULL;
    t->buffer = t->text = NULL;
    t->n = t->cap = t->n_seen = t->seen_cap = t->buffer_size = 0;
}

void timers_free(struct timers *t)
{
    if (!t)
        return;
    timers_stop(t);
    recalls_clear(t);
    room_clear(&t->room);
    free(t);
}

/* ---- the units ---- */

struct rebuild {
    struct broker *b;
    bool foreign;
    int64_t seen_from; /* units of records from this position on are remembered */
    struct timer_unit last;
    bool any, damaged, no_memory;
};

static bool seen_add(struct timers *t, int64_t position)
{
    if (t->n_seen == t->seen_cap) {
        size_t cap = t->seen_cap ? t->seen_cap * 2 : 1024;
        int64_t *bigger = realloc(t->seen, cap * sizeof *bigger);
        if (!bigger)
            return false;
        t->seen = bigger;
        t->seen_cap = cap;
    }
    t->seen[t->n_seen++] = position;
    return true;
}

/* Adds the unit to the chain of its slot. False: it cannot be the next of this chain. */
static bool chain_add(struct timers *t, int64_t at, const struct timer_unit *unit, bool done)
{
    struct timer_slot slot, other;
    int64_t second = unit->time_ms / TIMER_SECOND;
    bool there = timerwheel_get(t->wheel, second, &slot);
    if (unit->prev >= 0 ? !there || slot.last != unit->prev : there && slot.count > 0)
        return false;
    if (unit->prev < 0)
        slot = (struct timer_slot){.second = second, .first = at};
    slot.last = at;
    slot.count += !done;
    if (timerwheel_put(t->wheel, &slot))
        return true;
    int64_t taken = timerwheel_next(t->wheel, second - TIMER_SLOTS); /* two weeks before */
    if (taken != second - TIMER_SLOTS || !timerwheel_get(t->wheel, taken, &other) || other.count)
        return false;
    timerwheel_clear(t->wheel, taken);
    return timerwheel_put(t->wheel, &slot);
}

static bool unit_rebuild(void *user, int64_t at, const struct timer_unit *unit)
{
    struct rebuild *r = user;
    struct timers *t = r->b->timer;
    uint64_t end = store_confirmed(r->b->store);
    if ((uint64_t)unit->position + unit->size > end) {
        r->damaged = true;
        return false;
    }
    struct timer_key key = {timer_due(unit->time_ms), at};
    if (r->foreign && unit->position >= r->seen_from && !seen_add(t, unit->position)) {
        r->no_memory = true;
        return false;
    }
    if (unit->time_ms / TIMER_SECOND >= key_second(&t->done)) {
        bool done = timer_is_done(t, &key);
        if (!chain_add(t, at, unit, done)) {
            r->damaged = true;
            return false;
        }
        if (!done && (!(unit->magic & TIMER_DELETE) || (unit->magic & TIMER_ROLL)))
            atomic_fetch_add_explicit(&t->pending, 1, memory_order_relaxed);
    }
    r->last = *unit;
    r->any = true;
    return true;
}

/* Where the queue goes on behind the record of a unit; -1: it cannot be told. */
static int64_t offset_behind(struct broker *b, const struct timer_unit *unit)
{
    struct record record;
    size_t used = 0;
    if (timers_record(b, unit->position, unit->size, &used, &record))
        return -1;
    return record.queue_offset + 1;
}

/* ---- beginning ---- */

static int64_t position_of(struct broker *b, struct queue *queue, int64_t offset)
{
    struct queue_unit unit;
    return queue_units(b->store, queue, offset, &unit, 1) && unit.size ? unit.position : INT64_MAX;
}

static int by_position(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The units as the check says. ERR_DAMAGED: they end too soon, and next_offset was set back. */
static enum err units_load(struct broker *b, const struct timer_check *check, struct queue *queue,
                           struct fault *why)
{
    struct timers *t = b->timer;
    struct rebuild r = {.b = b, .foreign = !check->ours};
    r.seen_from = position_of(b, queue, check->queue_offset);
    enum err err =
        timerlog_scan(t->log, check->ours ? check->log_end : INT64_MAX, unit_rebuild, &r, why);
    if (err || r.no_memory)
        return err ? err : ERR_NO_MEMORY;
    t->next_offset = check->queue_offset;
    int64_t behind = r.any ? offset_behind(b, &r.last) : queue_min(b->store, queue);
    if (check->ours && timerlog_end(t->log) >= check->log_end)
        return OK;
    if (!check->ours && !r.damaged) { /* the lower of the two: nothing says that the file is true */
        t->next_offset = behind >= 0 && behind < t->next_offset ? behind : t->next_offset;
        t->seen_until = behind;
        if (t->n_seen > 0)
            qsort(t->seen, t->n_seen, sizeof *t->seen, by_position);
        return OK;
    }
    behind = behind < 0 ? queue_min(b->store, queue) : behind;
    t->next_offset = behind < t->next_offset ? behind : t->next_offset;
    return ERR_DAMAGED;
}

/* Everything from the start of the queue. */
static enum err units_drop(struct broker *b, struct queue *queue, struct fault *why)
{
    struct timers *t = b->timer;
    enum err err = timerwheel_empty(t->wheel, why);
    if (!err)
        err = timerlog_scan(t->log, 0, unit_rebuild, NULL, why);
    if (err)
        return err;
    int64_t now_ms = clock_ms(b->clock);
    t->n_seen = 0;
    atomic_store(&t->pending, 0);
    t->done = (struct timer_key){now_ms > TIMER_SECOND ? now_ms - TIMER_SECOND : 1, -1};
    t->past_at = 0;
    t->next_offset = queue_min(b->store, queue);
    t->doubt_position = (int64_t)store_confirmed(b->store);
    return OK;
}

/* Opens the log of units; one that is no row of files is put aside. */
static enum err log_open(struct broker *b, bool *lost, struct fault *why)
{
    struct timers *t = b->timer;
    enum err err = timerlog_open(b->vfs, TIMER_FILE, &t->log, why);
    *lost = err == ERR_DAMAGED;
    if (err != ERR_DAMAGED)
        return err;
    err = b->vfs->calls->rename(b->vfs, "timerlog", "timerlog.damaged", why);
    if (err)
        return fault_add(why, err, "putting the damaged timerlog aside");
    timers_note(t, "timerlog was damaged and is now timerlog.damaged");
    return timerlog_open(b->vfs, TIMER_FILE, &t->log, why);
}

static enum err memory_take(struct timers *t)
{
    t->buffer = malloc(TIMER_BUFFER);
    t->buffer_size = t->buffer ? TIMER_BUFFER : 0;
    t->text = malloc(TEXT_SIZE);
    return t->buffer && t->text ? OK : ERR_NO_MEMORY;
}

/* The check, if it can be read. One that cannot is put aside. */
static enum err check_read(struct broker *b, struct timer_check *check, bool *there,
                           struct fault *why)
{
    enum err err = timercheck_read(b->vfs, check, why);
    *there = err == OK;
    if (err == ERR_NOT_FOUND)
        return OK;
    if (err != ERR_DAMAGED)
        return err;
    timers_note(b->timer, "config/timercheck was damaged and is now config/timercheck.damaged: all "
                          "timed messages are taken up again from the log");
    return b->vfs->calls->rename(b->vfs, TIMER_CHECK_PATH, TIMER_CHECK_PATH ".damaged", why);
}

/* The units of an earlier life, or what can be had of them. */
static enum err units_find(struct broker *b, const struct timer_check *check, struct queue *queue,
                           bool *save, struct fault *why)
{
    struct timers *t = b->timer;
    if (!check->ours && check->read_ms > clock_ms(b->clock) + FUTURE_MS) {
        timers_note(t,
                    "config/timercheck speaks of a time that is still to come: all timed messages "
                    "are taken up again from the log");
        *save = true;
        return units_drop(b, queue, why);
    }
    t->done = check->ours ? check->done : (struct timer_key){check->read_ms, INT64_MAX};
    t->past = check->past;
    t->past_at = check->past_at;
    t->doubt_position = check->clean ? check->doubt_position : (int64_t)store_confirmed(b->store);
    *save = check->clean; /* from now on it is not */
    enum err err = units_load(b, check, queue, why);
    if (err != ERR_DAMAGED)
        return err;
    *save = true; /* what the file says must not be believed again */
    t->doubt_position = (int64_t)store_confirmed(b->store);
    timers_note(t, "timerlog was damaged: the timed messages behind that are taken up again");
    bool none = t->next_offset == queue_min(b->store, queue);
    return none ? units_drop(b, queue, why) : OK;
}

static enum err timers_load(struct broker *b, struct queue *queue, bool *save, struct fault *why)
{
    struct timers *t = b->timer;
    struct timer_check check = {0};
    bool there = false, lost = false, fresh = queue_min(b->store, queue) == queue_max(queue);
    enum err err = check_read(b, &check, &there, why);
    if (!err)
        err = log_open(b, &lost, why);
    if (!err)
        err = timerwheel_open(b->vfs, &t->wheel, why);
    if (!err)
        err = memory_take(t);
    if (err)
        return err;
    if (there && !lost)
        return units_find(b, &check, queue, save, why);
    *save = there;
    err = units_drop(b, queue, why);
    if (fresh)
        t->doubt_position = 0;
    return err;
}

enum err timers_start(struct broker *b, struct fault *why)
{
    struct timers *t = b->timer;
    struct queue *queue = atomic_load(&t->queue);
    t->note[0] = 0;
    t->cleared = INT64_MAX;
    atomic_store(&t->pending, 0);
    bool save = false;
    enum err err = timers_load(b, queue, &save, why);
    if (!err) {
        if (t->next_offset > queue_max(queue))
            t->next_offset = queue_max(queue);
        near_forget(t);
        struct timer_mark mark;
        if (save && mark_now(b, false, &mark))
            err = timers_save(b, &mark, why);
    }
    if (err) {
        timers_stop(t);
        return fault_add(why, err, "timed messages");
    }
    room_enter(&t->room);
    t->passed_ms = t->done.due_ms;
    if (t->past_at && t->past.due_ms > t->passed_ms)
        t->passed_ms = t->past.due_ms;
    room_leave(&t->room);
    return OK;
}

enum err timers_again(struct broker *b, bool *more, struct fault *why)
{
    struct timers *t = b->timer;
    if (b->out && b->out->warn)
        b->out->warn(b->out->user, "the files of timed messages are damaged: all of them are taken "
                                   "up again from the log");
    enum err err = units_drop(b, atomic_load(&t->queue), why);
    near_forget(t);
    *more = !err;
    return err;
}

/* ---- saving ---- */

/* Apache goes on in front of the first slot that is not over. */
static int64_t read_ms(struct broker *b)
{
    struct timers *t = b->timer;
    int64_t now = clock_ms(b->clock) / TIMER_SECOND;
    int64_t second = t->n > 0 ? key_second(&t->near[0].key) : t->more ? t->loaded : t->loaded + 1;
    return (second < now ? second : now) * TIMER_SECOND;
}

/* False: what Apache's check says is not ours to say yet. */
static bool mark_now(struct broker *b, bool clean, struct timer_mark *out)
{
    struct timers *t = b->timer;
    if (t->n_seen > 0)
        return false;
    *out = (struct timer_mark){
        .check =
            {
                .read_ms = read_ms(b),
                .log_end = timerlog_end(t->log),
                .queue_offset = t->next_offset,
                .ours = true,
                .clean = clean,
                .done = t->done,
                .past = t->past,
                .past_at = t->past_at,
                .doubt_position = t->doubt_position,
            },
        .end = t->end,
        .there = true,
    };
    return true;
}

void timers_mark_set(struct broker *b)
{
    struct timers *t = b->timer;
    struct timer_mark mark;
    if (!mark_now(b, false, &mark))
        return;
    room_enter(&t->room);
    t->mark = mark;
    room_leave(&t->room);
}

static bool check_same(const struct timer_check *a, const struct timer_check *b)
{
    return a->log_end == b->log_end && a->queue_offset == b->queue_offset && a->clean == b->clean &&
           a->done.due_ms == b->done.due_ms && a->done.at == b->done.at && a->past_at == b->past_at;
}

/* The log is flushed beyond the mark. */
static enum err timers_save(struct broker *b, const struct timer_mark *mark, struct fault *why)
{
    struct timers *t = b->timer;
    enum err err = timerlog_sync(t->log, mark->check.log_end, why);
    if (!err)
        err = timerwheel_sync(t->wheel, why);
    if (!err)
        err = timercheck_write(b->vfs, &mark->check, clock_ms(b->clock), why);
    if (err)
        return err;
    t->saved = mark->check;
    t->saved_there = true;
    return OK;
}

enum err timers_keep(struct broker *b, struct fault *why)
{
    struct timers *t = b->timer;
    if (!t->candidate.there) {
        room_enter(&t->room);
        t->candidate = t->mark;
        room_leave(&t->room);
    }
    if (!t->candidate.there || store_flushed(b->store) < t->candidate.end)
        return OK;
    struct timer_mark mark = t->candidate;
    t->candidate.there = false;
    if (t->saved_there && check_same(&mark.check, &t->saved))
        return OK;
    enum err err = timers_save(b, &mark, why);
    return err ? err : timerlog_shift(t->log, (int64_t)store_first(b->store), why);
}

void timers_settle(struct broker *b)
{
    struct timers *t = b->timer;
    if (!t->log || timerlog_write(t->log, NULL) || timerwheel_write(t->wheel, NULL))
        return;
    t->candidate.there = t->mark.there = false; /* older than what is saved now */
    struct timer_mark mark;
    if (!mark_now(b, true, &mark) || (t->saved_there && check_same(&mark.check, &t->saved)) ||
        store_flush_all(b->store, NULL))
        return;
    (void)timers_save(b, &mark, NULL); /* what was saved before is true as well */
}
