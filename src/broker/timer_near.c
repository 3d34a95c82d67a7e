/* timer_near.c - the units whose time is near: a heap in memory, filled slot by slot.
 *
 * Every unit is also in its slot's chain until the slot is over, so the heap can be thrown away and
 * filled again at any time. That bounds it: when a slot has more units than there is room for, only
 * those that come first are brought in, and the others when these are over.
 */
#include "broker/timer_int.h"

#include <stdlib.h>

#define CAP_LEAST 1024
#define CAP_KEEP  65536                           /* an empty heap that was bigger is given back */
#define CAP_MOST  (TIMER_CHUNK + TIMER_CHUNK / 2) /* with what comes after it was filled */

/* ---- the heap: the first is the least, or the greatest while a slot is picked over ---- */

static bool above(const struct timed *a, const struct timed *b, bool greatest)
{
    return greatest ? key_before(&b->key, &a->key) : key_before(&a->key, &b->key);
}

static void sift_down(struct timed *heap, size_t n, size_t i, bool greatest)
{
    struct timed moving = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && above(&heap[child + 1], &heap[child], greatest))
            child++;
        if (!above(&heap[child], &moving, greatest))
            break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

static void sift_up(struct timed *heap, size_t i, bool greatest)
{
    struct timed moving = heap[i];
    while (i > 0 && above(&moving, &heap[(i - 1) / 2], greatest)) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = moving;
}

static void heap_order(struct timed *heap, size_t n, bool greatest)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i, greatest);
}

static enum err near_reserve(struct timers *t)
{
    if (t->n < t->cap)
        return OK;
    size_t cap = t->cap ? t->cap * 2 : CAP_LEAST;
    struct timed *bigger = realloc(t->near, cap * sizeof *bigger);
    if (!bigger)
        return ERR_NO_MEMORY;
    t->near = bigger;
    t->cap = cap;
    return OK;
}

enum err near_push(struct timers *t, const struct timed *timed)
{
    if (t->more && key_before(&t->bound, &timed->key))
        return OK; /* it comes with the rest of its slot */
    if (t->n >= CAP_MOST) {
        near_forget(t);
        return OK;
    }
    enum err err = near_reserve(t);
    if (err)
        return err;
    t->near[t->n] = *timed;
    sift_up(t->near, t->n++, false);
    return OK;
}

struct timed near_pop(struct timers *t)
{
    struct timed first = t->near[0];
    t->near[0] = t->near[--t->n];
    if (t->n > 0)
        sift_down(t->near, t->n, 0, false);
    return first;
}

void near_forget(struct timers *t)
{
    t->n = 0;
    t->more = false;
    t->loaded = key_second(&t->done) - 1;
    if (t->cleared > t->loaded + 1)
        t->cleared = t->loaded + 1;
}

/* ---- slots ---- */

/* Those that come first are picked out of a slot: the greatest so far is on top and gives way. */
static enum err slot_pick(struct timers *t, size_t base, const struct timed *timed)
{
    struct timed *picked = t->near + base;
    size_t n = t->n - base;
    if (base + n < TIMER_CHUNK) {
        enum err err = near_reserve(t);
        if (err)
            return err;
        t->near[t->n++] = *timed;
        if (t->n == TIMER_CHUNK)
            heap_order(t->near + base, t->n - base, true);
        return OK;
    }
    t->more = true;
    if (!key_before(&timed->key, &picked[0].key))
        return OK;
    picked[0] = *timed;
    sift_down(picked, n, 0, true);
    return OK;
}

/* One unit of the slot that is brought in. */
static enum err slot_take(struct broker *b, size_t base, int64_t second, int64_t at,
                          const struct timer_unit *unit)
{
    struct timers *t = b->timer;
    struct timed timed = {
        .key = {timer_due(unit->time_ms), at},
        .position = unit->position,
        .write_ms = unit->write_ms,
        .size = unit->size,
        .magic = unit->magic,
    };
    if ((unit->magic & TIMER_DELETE) && !(unit->magic & TIMER_ROLL)) {
        struct record record;
        size_t used = 0;
        enum err err = timers_record(b, unit->position, unit->size, &used, &record);
        if (err)
            return err == ERR_NO_MEMORY ? err : OK; /* what it recalls is older, and gone too */
        return recall_note(b, &record, second, true);
    }
    return timer_is_done(t, &timed.key) ? OK : slot_pick(t, base, &timed);
}

static enum err slot_load(struct broker *b, int64_t second, struct fault *why)
{
    struct timers *t = b->timer;
    size_t base = t->n;
    struct timer_slot slot;
    t->more = false;
    (void)timerwheel_get(t->wheel, second, &slot);
    int64_t first = timerlog_first(t->log), walked = 0, at = slot.last;
    enum err err = OK;
    while (!err && at >= first) {
        struct timer_unit unit = {0};
        err = timerlog_read(t->log, at, &unit, why);
        if (!err && unit.time_ms / TIMER_SECOND != second)
            err =
                fault_set(why, ERR_DAMAGED, "the timer at %lld is not of its slot", (long long)at);
        if (!err)
            err = slot_take(b, base, second, at, &unit);
        at = unit.prev;
        walked++;
    }
    if (!err && at >= 0 && slot.count > walked) /* removed with their records: the disk was full */
        atomic_fetch_add_explicit(&t->lost, (uint64_t)(slot.count - walked), memory_order_relaxed);
    if (err) {
        t->n = base;
        t->more = false;
        return err;
    }
    if (t->more) {
        t->bound = t->near[base].key; /* the greatest that was picked */
        invariant(t->n == TIMER_CHUNK);
    }
    heap_order(t->near, t->n, false);
    t->loaded = second;
    return OK;
}

enum err near_load(struct broker *b, int64_t upto_ms, struct fault *why)
{
    struct timers *t = b->timer;
    int64_t upto = upto_ms / TIMER_SECOND;
    if (t->more)
        return t->n > 0 ? OK : slot_load(b, t->loaded, why);
    while (t->n < TIMER_CHUNK / 2 && !t->more) {
        int64_t second = timerwheel_next(t->wheel, t->loaded + 1);
        if (second < 0 || second > upto) {
            t->loaded = upto > t->loaded ? upto : t->loaded;
            return OK;
        }
        enum err err = slot_load(b, second, why);
        if (err)
            return err;
    }
    return OK;
}

void near_clear(struct timers *t)
{
    int64_t over = t->n > 0 ? key_second(&t->near[0].key) : t->more ? t->loaded : t->loaded + 1;
    if (over <= t->cleared)
        return;
    for (int64_t s = t->cleared; (s = timerwheel_next(t->wheel, s)) >= 0 && s < over; s++)
        timerwheel_clear(t->wheel, s);
    t->cleared = over;
    recalls_sweep(t, over);
    if (t->n == 0 && t->cap > CAP_KEEP) {
        free(t->near);
        t->near = NULL;
        t->cap = 0;
    }
}
