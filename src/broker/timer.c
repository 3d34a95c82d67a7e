/* timer.c - messages that come at a time of their own, to the millisecond.
 *
 * A message with TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS is not stored where it was
 * sent to but in queue 0 of rmq_sys_wheel_timer, with REAL_TOPIC, REAL_QID and TIMER_OUT_MS. What
 * waits there is not in the order of its times, so the service keeps units (store/timers.h): it
 * *takes* each record in the order of the queue and gives it a unit in the slot of its second.
 *
 *     queue     … ──taken── | ──not yet── …           next_offset
 *     units     slots of seconds, a chain each        timerlog, timerwheel
 *     near      the units of this second and the      a heap by (due, place of the unit)
 *               next, in memory
 *     done      the key of the last one that is over: delivered, recalled, or put in again
 *
 * When a second is near, its units are brought into the heap; at its millisecond each one's record
 * is copied to its real topic, with TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS added. A unit that comes
 * when its time is over gets the time of `done`, so that keys only rise and one key says what is
 * over. Nothing is special: a late unit, a delay of one millisecond, a unit after a crash go the
 * same way.
 *
 * Time. "Never early" is a promise by the clock that gave the message its time. When that clock
 * goes back, `done` goes back with it, and what had been done until then is remembered as `past`.
 *
 * Rolling. The log is kept for some days (fileReservedTime) and a message may wait for years. One
 * that is due more than `window` after it was stored gets a unit for then, marked to *roll*: its
 * record is stored in rmq_sys_wheel_timer once more (TIMER_ROLL_TIMES), and so on. The window is
 * shorter than the retention; when the service is late, cleaning waits for it (store_clean_hold).
 * Only a disk that is too full can take a record away before its time: that is counted as lost.
 *
 * Recall. A record with TIMER_DEL_UNIQKEY in the same slot says that a message shall not come. It
 * is decided in one room against the delivery (recall.c), so "recalled" means it never comes.
 *
 * What is saved, timercheck, is never ahead of the disk: units and queue up to a mark, deliveries
 * up to `done`, and only when the log is flushed beyond what both speak of. After a crash the
 * service goes on there. What an earlier life may have delivered since is looked for by its unique
 * key (copy.c), and not delivered again if it is there. When the files are damaged, the queue is
 * taken again from its start, and every record is looked for in this way.
 *
 * Threads: the turn has one caller at a time and owns struct timers, but for the part that the room
 * guards. The keeper saves marks.
 */
#include "broker/timer_int.h"

#include <stdlib.h>

#define ROUNDS         16   /* batches in one turn */
#define LOOK_MS        100  /* what is sent meanwhile and due sooner rings the bell */
#define AHEAD_MS       1000 /* a slot is brought into memory before it begins */
#define SENT_MS        1000 /* so long something that was sent may take to arrive in its queue */
#define BACK_MS        100  /* a clock that is this much behind went back */
#define WHEEL_NS       UINT64_C(1000000000)
#define PAUSE_LEAST_MS 100
#define PAUSE_MOST_MS  1000
#define TEXT_SIZE      (1u << 20)
#define ADDED_MOST     128   /* three properties with numbers */
#define LATE_MS        60000 /* a turn does not take so long */

/* ---- in ---- */

void timers_divert(struct broker *b, struct draft *draft, int64_t due_ms, struct wr *props)
{
    props_add_int(props, PROP_TIMER_OUT, timer_time(due_ms));
    props_add(props, PROP_REAL_TOPIC, draft->topic);
    props_add_int(props, PROP_REAL_QID, draft->queue_id);
    draft->topic = TIMER_TOPIC;
    draft->queue_id = 0;
    draft->queue = store_queue(b->store, TIMER_TOPIC, 0);
}

void timers_sent(struct broker *b, int64_t due_ms)
{
    _Atomic int64_t *soonest = &b->timer->soonest_ms;
    int64_t was = atomic_load_explicit(soonest, memory_order_relaxed);
    while (due_ms < was && !atomic_compare_exchange_weak(soonest, &was, due_ms))
        ;
}

/* The dispatcher has news. Who sleeps longer than something new can wait is woken. */
void timers_arrived(struct broker *b, const struct arrival *news, size_t n)
{
    struct timers *t = b->timer;
    if (atomic_load_explicit(&t->soonest_ms, memory_order_relaxed) >=
        atomic_load_explicit(&t->sleep_to_ms, memory_order_relaxed))
        return;
    struct queue *queue = atomic_load_explicit(&t->queue, memory_order_relaxed);
    for (size_t i = 0; i < n; i++) {
        if (queue ? news[i].queue != queue : !bytes_equal(news[i].topic, TIMER_TOPIC))
            continue;
        if (b->out && b->out->services_wake)
            b->out->services_wake(b->out->user);
        return;
    }
}

/* ---- what becomes of a unit ---- */

enum fate {
    FATE_DELIVER,
    FATE_ROLL,
    FATE_KNOWN, /* an earlier life did it */
    FATE_LOST,  /* its record is not there, or belongs nowhere */
    FATE_STUCK, /* it cannot go now */
};

/* One batch on its way. */
struct outgoing {
    size_t n_units, n;          /* units taken from the heap; drafts made of them */
    size_t used;                /* of the buffer */
    struct wr text;             /* free rest */
    uint8_t fates[TIMER_BATCH]; /* of the drafts */
    struct record records[TIMER_BATCH];
    uint64_t known, lost;
    enum err stuck;
    struct fault why;
};

/* A record may be another broker's, where whoever can send could have put it there: what no client
 * may send to, it does not reach by waiting either. */
static bool belongs(const struct record *record, struct bytes *topic, int32_t *queue_id)
{
    struct bytes queue_text;
    return props_get(record->props, PROP_REAL_TOPIC, topic) &&
           props_get(record->props, PROP_REAL_QID, &queue_text) &&
           bytes_to_i32(queue_text, queue_id) && *queue_id >= 0 && *queue_id < QUEUES_MAX &&
           !topic_refuses_clients(*topic);
}

/* The properties of the copy. A message whose own are so long that nothing fits comes without. */
static struct bytes copy_props(struct broker *b, const struct timed *timed,
                               const struct record *record, bool roll, struct wr *text)
{
    struct wr w = wr_over(text->at, wr_room(text));
    struct props_walk walk = props_walk(record->props);
    struct bytes value;
    struct prop p;
    while (props_next(&walk, &p))
        if (!bytes_equal(p.name, PROP_TIMER_ENQUEUE) && !bytes_equal(p.name, PROP_TIMER_DEQUEUE) &&
            !(roll && bytes_equal(p.name, PROP_TIMER_ROLLS)))
            props_add(&w, p.name, p.value);
    int32_t rolls = 0;
    if (roll && props_get(record->props, PROP_TIMER_ROLLS, &value))
        (void)bytes_to_i32(value, &rolls);
    if (roll)
        props_add_int(&w, PROP_TIMER_ROLLS, rolls < INT32_MAX ? rolls + 1 : rolls);
    props_add_int(&w, PROP_TIMER_ENQUEUE, timed->write_ms);
    props_add_int(&w, PROP_TIMER_DEQUEUE, clock_ms(b->clock));
    if (w.full || wr_len(&w) > RECORD_PROPS_MAX)
        return record->props;
    text->at = w.at;
    return wr_bytes(&w);
}

static enum fate unit_draft(struct broker *b, const struct timed *timed,
                            const struct record *record, struct outgoing *go)
{
    struct timers *t = b->timer;
    struct draft *draft = &t->drafts[go->n];
    bool roll = timed->magic & TIMER_ROLL;
    struct bytes topic, key;
    int32_t queue_id;
    if (roll) {
        topic = TIMER_TOPIC;
        queue_id = 0;
    } else if (!belongs(record, &topic, &queue_id) ||
               props_get(record->props, PROP_TIMER_DELETE, &key)) {
        return FATE_LOST;
    }
    if (record->body.len > b->set.max_message_size) {
        go->stuck = fault_set(&go->why, ERR_TOO_BIG,
                              "a timed message for topic[%.*s] has %zu bytes, more than %u "
                              "(maxMessageSize)",
                              BRIEF(topic), record->body.len, b->set.max_message_size);
        return FATE_STUCK;
    }
    copy_draft(b, record, topic, queue_id, draft);
    if (!draft->queue && topic_name_check(topic, NULL))
        return FATE_LOST;
    if (!draft->queue) {
        go->stuck = fault_set(&go->why, ERR_NO_MEMORY, "no memory for queue %d of topic[%.*s]",
                              queue_id, BRIEF(topic));
        return FATE_STUCK;
    }
    if (record->position < t->doubt_position && copy_known(b, record, draft))
        return FATE_KNOWN;
    draft->props = copy_props(b, timed, record, roll, &go->text);
    return roll ? FATE_ROLL : FATE_DELIVER;
}

/* A recall is put in again when its message is due, or nearly: it was late. It counts from now on,
 * since the message may be in this batch. */
static enum err roll_note(struct broker *b, const struct record *record)
{
    int64_t out_ms;
    struct bytes key;
    if (!props_get(record->props, PROP_TIMER_DELETE, &key) || !timers_out_ms(record, &out_ms) ||
        out_ms > clock_ms(b->clock) + LATE_MS)
        return OK;
    return recall_note(b, record, out_ms / TIMER_SECOND, true);
}

/* False: the batch ends in front of this unit. */
static bool outgoing_take(struct broker *b, const struct timed *timed, struct outgoing *go)
{
    struct record *record = &go->records[go->n];
    if (wr_room(&go->text) < RECORD_PROPS_MAX + ADDED_MOST)
        return false;
    enum err err = timers_record(b, timed->position, timed->size, &go->used, record);
    if (err == ERR_TOO_BIG && go->n_units > 0)
        return false; /* with the next batch */
    if (err && err != ERR_NOT_FOUND && err != ERR_DAMAGED) {
        go->stuck = fault_set(&go->why, err, "the record of a timed message cannot be read: %s",
                              err_text(err));
        return false;
    }
    enum fate fate = err ? FATE_LOST : unit_draft(b, timed, record, go);
    if (fate == FATE_ROLL && roll_note(b, record)) {
        go->stuck = fault_set(&go->why, ERR_NO_MEMORY, "no memory to note a recall");
        return false;
    }
    if (fate == FATE_STUCK)
        return false;
    go->known += fate == FATE_KNOWN;
    go->lost += fate == FATE_LOST;
    if (fate == FATE_DELIVER || fate == FATE_ROLL)
        go->fates[go->n++] = (uint8_t)fate;
    return true;
}

static void outgoing_fill(struct broker *b, int64_t now_ms, struct outgoing *go)
{
    struct timers *t = b->timer;
    while (go->n_units < TIMER_BATCH && t->n > 0 && t->near[0].key.due_ms <= now_ms) {
        struct timed timed = near_pop(t);
        if (!outgoing_take(b, &timed, go)) {
            enum err err = near_push(t, &timed);
            invariant(err == OK); /* there is room: it was just taken out */
            return;
        }
        t->batch[go->n_units++] = timed;
    }
}

/* ---- out ---- */

/* Room: recall. Leaves out what was recalled. */
static uint64_t outgoing_recall(struct timers *t, struct outgoing *go)
{
    room_held(&t->room);
    if (t->recalls.n == 0)
        return 0;
    size_t kept = 0;
    for (size_t i = 0; i < go->n; i++) {
        if (go->fates[i] == FATE_DELIVER && recall_hits(t, &go->records[i]))
            continue;
        go->fates[kept] = go->fates[i];
        t->drafts[kept++] = t->drafts[i];
    }
    uint64_t recalled = go->n - kept;
    go->n = kept;
    return recalled;
}

static void outgoing_count(struct timers *t, struct outgoing *go, uint64_t recalled,
                           struct service_turn *out)
{
    uint64_t delivered = 0, rolled = 0;
    for (size_t i = 0; i < go->n; i++) {
        bool stored = !t->stored[i].err;
        delivered += stored && go->fates[i] == FATE_DELIVER;
        rolled += stored && go->fates[i] == FATE_ROLL;
        go->lost += !stored; /* unit_draft saw that it fits */
    }
    out->done += delivered + rolled;
    out->known += go->known;
    out->skipped += go->lost;
    atomic_fetch_add_explicit(&t->delivered, delivered, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->rolled, rolled, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->recalled, recalled, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->lost, go->lost, memory_order_relaxed);
    atomic_fetch_sub_explicit(&t->pending, go->n_units, memory_order_relaxed);
}

/* Stores the batch, against any recall. The heap gets its units back when nothing was stored. */
static enum err outgoing_store(struct broker *b, struct outgoing *go, struct service_turn *out)
{
    struct timers *t = b->timer;
    struct timer_key last = t->batch[go->n_units - 1].key;
    enum err err = OK;
    room_enter(&t->room);
    if (last.due_ms > t->passed_ms)
        t->passed_ms = last.due_ms;
    uint64_t recalled = outgoing_recall(t, go);
    if (recalled && t->recall_end > t->end)
        t->end = t->recall_end; /* it must not be forgotten before it is on the disk */
    uint64_t upto = t->end;
    if (go->n > 0)
        err = store_append(b->store, t->drafts, go->n, t->stored, &upto);
    room_leave(&t->room);
    if (err) {
        for (size_t i = 0; i < go->n_units; i++) {
            enum err back = near_push(t, &t->batch[i]);
            invariant(back == OK);
        }
        struct fault state = {0};
        (void)store_state(b->store, &state);
        return fault_set(&out->why, err, "%s", state.text[0] ? state.text : err_text(err));
    }
    t->end = upto > t->end ? upto : t->end;
    t->done = last;
    if (t->past_at && !key_before(&t->done, &t->past))
        t->past_at = 0; /* as far as before the clock went back */
    outgoing_count(t, go, recalled, out);
    return OK;
}

/* Delivers one batch of what is due. True: there may be more. */
static bool timers_deliver(struct broker *b, struct service_turn *out)
{
    struct timers *t = b->timer;
    struct outgoing *go = malloc(sizeof *go);
    if (!go) {
        out->err = fault_set(&out->why, ERR_NO_MEMORY, "no memory to deliver timed messages");
        return false;
    }
    go->n_units = go->n = go->used = 0;
    go->known = go->lost = 0;
    go->stuck = OK;
    go->text = wr_over(t->text, TEXT_SIZE);
    outgoing_fill(b, clock_ms(b->clock), go);
    if (go->n_units > 0)
        out->err = outgoing_store(b, go, out);
    if (go->n > 0 && !out->err) /* while the copies are at hand, so that the log is not mapped */
        broker_dispatch_turn(b);
    if (!out->err && go->stuck) {
        out->err = go->stuck;
        out->why = go->why;
    }
    bool moved = go->n_units > 0;
    free(go);
    return moved && !out->err;
}

/* ---- the turn ---- */

static void timers_pause(struct broker *b, struct service_turn *out)
{
    struct timers *t = b->timer;
    t->trouble = out->err;
    if (!out->err) {
        t->pause_ms = 0;
        return;
    }
    unsigned pause = t->pause_ms * 2;
    t->pause_ms = pause < PAUSE_LEAST_MS  ? PAUSE_LEAST_MS
                  : pause > PAUSE_MOST_MS ? PAUSE_MOST_MS
                                          : pause;
    t->retry_ns = clock_ns(b->clock) + (uint64_t)t->pause_ms * 1000000;
}

/* The clock is behind what was delivered by it. */
static void clock_back(struct broker *b, int64_t now_ms)
{
    struct timers *t = b->timer;
    if (now_ms + BACK_MS >= t->done.due_ms)
        return;
    if (t->past_at == 0) {
        t->past = t->done;
        t->past_at = timerlog_end(t->log);
    } else { /* once more, before it was where it had been: nobody knows it exactly any more */
        t->doubt_position = (int64_t)store_confirmed(b->store);
    }
    t->done = (struct timer_key){now_ms > 0 ? now_ms : 1, -1};
    near_forget(t);
}

static enum err timers_step(struct broker *b, bool *more, struct service_turn *out)
{
    struct timers *t = b->timer;
    bool behind = false;
    enum err err = timers_take(b, &behind, out);
    *more = behind;
    /* A recall that is behind in the queue must be seen before its message is delivered. */
    for (int round = 0; !err && !behind && round < ROUNDS; round++) {
        err = near_load(b, clock_ms(b->clock) + AHEAD_MS, &out->why);
        if (err == ERR_DAMAGED || err == ERR_NOT_FOUND)
            return timers_again(b, more, &out->why);
        *more = !err && timers_deliver(b, out);
        if (!err)
            err = out->err;
        if (!*more)
            break;
    }
    near_clear(t);
    uint64_t now_ns = clock_ns(b->clock);
    if (!err && now_ns - t->wheel_ns >= WHEEL_NS) {
        t->wheel_ns = now_ns;
        err = timerwheel_write(t->wheel, &out->why);
    }
    return err;
}

/* Cleaning leaves alone what pending units may need. */
static void timers_hold(struct broker *b, bool more)
{
    struct timers *t = b->timer;
    int64_t from_ms = INT64_MAX;
    if (more)
        from_ms = 0;
    else if (atomic_load_explicit(&t->pending, memory_order_relaxed) > 0)
        from_ms = (t->n > 0 ? t->near[0].key.due_ms : t->loaded * TIMER_SECOND) - t->window_ms;
    store_clean_hold(b->store, from_ms);
}

static int timers_next_ms(struct broker *b, bool more)
{
    struct timers *t = b->timer;
    if (more)
        return 0;
    int64_t now_ms = clock_ms(b->clock), next_ms = LOOK_MS;
    int64_t second = timerwheel_next(t->wheel, t->loaded + 1);
    if (second >= 0 && second * TIMER_SECOND - AHEAD_MS - now_ms < next_ms)
        next_ms = second * TIMER_SECOND - AHEAD_MS - now_ms;
    if (t->n > 0 && t->near[0].key.due_ms - now_ms < next_ms)
        next_ms = t->near[0].key.due_ms - now_ms;
    return next_ms > 0 ? (int)next_ms : 0;
}

static void timers_run(struct broker *b, struct service_turn *out)
{
    struct timers *t = b->timer;
    if (t->trouble && clock_ns(b->clock) < t->retry_ns) {
        out->err = t->trouble;
        return;
    }
    if (!t->log) {
        out->err = timers_start(b, &out->why);
        timers_pause(b, out);
        if (out->err)
            return;
        if (t->note[0] && b->out && b->out->warn)
            b->out->warn(b->out->user, t->note);
    }
    bool more = false;
    clock_back(b, clock_ms(b->clock));
    out->err = timers_step(b, &more, out);
    timers_pause(b, out);
    timers_mark_set(b);
    atomic_store_explicit(&t->behind,
                          queue_max(atomic_load_explicit(&t->queue, memory_order_relaxed)) -
                              t->next_offset,
                          memory_order_relaxed);
    timers_hold(b, more || out->err);
    out->next_ms = out->err ? (int)t->pause_ms : timers_next_ms(b, more);
}

void broker_timer_turn(struct broker *b, struct service_turn *out)
{
    struct timers *t = b->timer;
    *out = (struct service_turn){.next_ms = LOOK_MS};
    struct queue *queue = atomic_load_explicit(&t->queue, memory_order_relaxed);
    if (!queue) {
        queue = store_queue_find(b->store, TIMER_TOPIC, 0);
        atomic_store_explicit(&t->queue, queue, memory_order_relaxed);
    }
    /* What was sent may still be on its way to the queue, so its time is remembered for a while:
     * until then each arrival rings the bell. */
    int64_t now_ms = clock_ms(b->clock), soonest = atomic_load(&t->soonest_ms);
    if (soonest < now_ms - SENT_MS)
        (void)atomic_compare_exchange_strong(&t->soonest_ms, &soonest, DUE_NEVER);
    if (queue && b->set.timers)
        timers_run(b, out);
    atomic_store(&t->sleep_to_ms, clock_ms(b->clock) + out->next_ms);
}

void timers_numbers(struct broker *b, struct broker_numbers *out)
{
    struct timers *t = b->timer;
    out->timers_pending = atomic_load_explicit(&t->pending, memory_order_relaxed);
    out->timers_delivered = atomic_load_explicit(&t->delivered, memory_order_relaxed);
    out->timers_recalled = atomic_load_explicit(&t->recalled, memory_order_relaxed);
    out->timers_rolled = atomic_load_explicit(&t->rolled, memory_order_relaxed);
    out->timers_behind = atomic_load_explicit(&t->behind, memory_order_relaxed);
    out->timers_lost = atomic_load_explicit(&t->lost, memory_order_relaxed);
}
