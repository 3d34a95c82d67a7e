/* ack.c - ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME: what becomes of popped
 * messages.
 *
 * Acknowledgements are gathered like sends: those found in one read are written at once when it is
 * used up, and those of the same batch of messages as one record. The answers wait for the log as
 * one group: a consumer that was told yes may forget the message. */
#include "door/remoting/door_int.h"

#include <stdlib.h>

#define ACKS_MAX 256

struct acks {
    size_t n;
    struct ack each[ACKS_MAX];
    int64_t offsets[ACKS_MAX];
    struct return_address senders[ACKS_MAX];
};

void acks_close(struct acks *acks)
{
    free(acks);
}

/* Witness: AckMessageProcessor, which has its own words for a wrong queue. */
static int32_t ack_code_of(enum err err)
{
    if (err == ERR_INVALID)
        return RES_MESSAGE_ILLEGAL;
    return err == ERR_RANGE || err == ERR_NOT_FOUND ? RES_NO_MESSAGE : response_code_of(err);
}

static void give(const struct return_address *to, int32_t code, const char *remark)
{
    struct reply r;
    if (reply_begin(&r, to, code, bytes_str(remark), 0))
        reply_end(&r, 0);
}

/* ---- answers that wait for the disk ---- */

struct ack_wait {
    struct store_wait wait;
    struct post post;
    struct door *door;
    struct loop *home;
    enum err err;
    size_t n;
    struct {
        struct return_address to; /* the session is counted */
        struct conn *conn;        /* held */
    } each[];
};

/* Home loop. */
static void wait_over(struct post *post)
{
    struct ack_wait *w = list_entry(post, struct ack_wait, post);
    if (w->err)
        log_limited(w->door->log, &w->door->not_stored, LOG_ERROR,
                    "acknowledgements not confirmed count=%zu reason=\"%s\"", w->n,
                    err_text(w->err));
    for (size_t i = 0; i < w->n; i++) {
        give(&w->each[i].to, w->err ? RES_FLUSH_DISK_TIMEOUT : RES_SUCCESS,
             w->err ? err_text(w->err) : NULL);
        conn_drop(w->each[i].conn);
        counted_drop(&w->each[i].to.session->counted);
    }
    free(w);
}

static void wait_done(struct store_wait *wait, enum err err)
{
    struct ack_wait *w = list_entry(wait, struct ack_wait, wait);
    w->err = err;
    loop_post(w->home, &w->post);
}

/* Room for the answers of all; NULL: nothing has to be waited for, or no memory. */
static struct ack_wait *wait_make(struct door *door, struct seat *seat, size_t n, uint64_t end)
{
    if (end == 0 || store_confirmed(door->options.store) >= end)
        return NULL;
    struct ack_wait *w = calloc(1, sizeof *w + n * sizeof w->each[0]);
    if (!w)
        return NULL;
    w->wait = (struct store_wait){.position = end, .done = wait_done};
    w->post = (struct post){.run = wait_over};
    w->door = door;
    w->home = seat->loop;
    return w;
}

static void wait_add(struct ack_wait *w, const struct return_address *to)
{
    counted_hold(&to->session->counted);
    conn_hold(to->session->conn);
    w->each[w->n].conn = to->session->conn;
    w->each[w->n++].to = *to;
}

static void acks_answer(struct door *door, struct seat *seat, uint64_t end)
{
    struct acks *acks = seat->acks;
    struct ack_wait *w = wait_make(door, seat, acks->n, end);
    bool lost = !w && store_confirmed(door->options.store) < end; /* no memory to wait */
    for (size_t i = 0; i < acks->n; i++) {
        const struct ack *a = &acks->each[i];
        const struct return_address *to = &acks->senders[i];
        if (a->err)
            give(to, ack_code_of(a->err), fault_remark(a->err, &a->why));
        else if (a->stored && w)
            wait_add(w, to);
        else if (a->stored && lost)
            give(to, RES_FLUSH_DISK_TIMEOUT, err_text(ERR_NO_MEMORY));
        else
            give(to, RES_SUCCESS, NULL);
    }
    if (w && store_await(door->options.store, &w->wait))
        wait_over(&w->post);
}

void acks_flush(struct door *door, struct seat *seat)
{
    struct acks *acks = seat->acks;
    if (!acks || acks->n == 0)
        return;
    uint64_t end = 0;
    broker_ack(door->broker, seat->marks, acks->each, acks->n, &end);
    acks_answer(door, seat, end);
    acks->n = 0;
    seat->undispatched |= end > 0;
}

/* ---- handlers ---- */

static bool handle_of(const struct request *rq, struct bytes text, struct handle *out)
{
    struct pop_handle h;
    if (pop_handle_read(text, &h)) {
        answer(rq, RES_SYSTEM_ERROR,
               "extraInfo is no handle of a popped message: start, time, invisible time, revive "
               "queue, kind and broker, separated by blanks");
        return false;
    }
    *out = (struct handle){h.start, h.pop_ms, h.invisible_ms, h.revive_id};
    return true;
}

/* The seat's memory for them. False: it has been answered. */
static bool acks_need(struct request *rq)
{
    struct seat *seat = rq->session->seat;
    if (!seat->acks)
        seat->acks = calloc(1, sizeof *seat->acks);
    if (seat->acks && seat_marks(seat))
        return true;
    answer_fault(rq, ERR_NO_MEMORY, NULL);
    return false;
}

void ack_message(struct door *door, struct request *rq)
{
    struct ack_fields f = {0};
    struct handle handle;
    if (!request_fields(rq, &ack_message_table, &f) || !handle_of(rq, f.handle, &handle) ||
        !acks_need(rq))
        return;
    struct acks *acks = rq->session->seat->acks;
    if (acks->n == ACKS_MAX)
        acks_flush(door, rq->session->seat);
    size_t i = acks->n++;
    acks->senders[i] = return_address_of(rq);
    acks->offsets[i] = f.offset;
    acks->each[i] = (struct ack){.group = f.group,
                                 .topic = f.topic,
                                 .queue_id = f.queue_id,
                                 .handle = handle,
                                 .n = 1,
                                 .offsets = &acks->offsets[i]};
}

/* The topic that the messages were read from. Empty: there is no such kind. */
static struct bytes real_topic(struct arena *arena, const struct batch_ack *a)
{
    if (bytes_equal(a->retry, BYTES("0")))
        return a->topic;
    bool first = bytes_equal(a->retry, BYTES("1"));
    size_t size = RETRY_PREFIX.len + a->group.len + 1 + a->topic.len;
    struct wr w = wr_over(arena_alloc(arena, size), 0);
    if (!w.start || (!first && !bytes_equal(a->retry, BYTES("2"))))
        return (struct bytes){0};
    w.end = w.start + size;
    wr_bytes_of(&w, RETRY_PREFIX);
    wr_bytes_of(&w, a->group);
    wr_u8(&w, first ? '_' : '+');
    wr_bytes_of(&w, a->topic);
    return wr_bytes(&w);
}

/* Each is for itself; the answer is that of the first that failed. */
static void batch_take(struct door *door, struct request *rq, const struct batch_ack *list,
                       struct ack *acks, size_t n)
{
    struct seat *seat = rq->session->seat;
    uint64_t last = 0;
    const struct ack *failed = NULL;
    for (size_t i = 0; i < n; i++)
        acks[i] = (struct ack){.group = list[i].group,
                               .topic = real_topic(rq->arena, &list[i]),
                               .queue_id = list[i].queue_id,
                               .handle = {list[i].handle.start, list[i].handle.pop_ms,
                                          list[i].handle.invisible_ms, list[i].handle.revive_id},
                               .n = list[i].n,
                               .offsets = list[i].offsets,
                               .lenient = true};
    for (size_t i = 0; i < n; i += ACKS_MAX) {
        uint64_t end = 0;
        broker_ack(door->broker, seat->marks, acks + i, n - i < ACKS_MAX ? n - i : ACKS_MAX, &end);
        last = end > last ? end : last;
    }
    for (size_t i = 0; i < n && !failed; i++)
        failed = acks[i].err ? &acks[i] : NULL;
    seat->undispatched |= last > 0;
    struct return_address to = return_address_of(rq);
    struct ack_wait *w = failed ? NULL : wait_make(door, seat, 1, last);
    if (failed) {
        give(&to, ack_code_of(failed->err), fault_remark(failed->err, &failed->why));
    } else if (w) {
        wait_add(w, &to);
        if (store_await(door->options.store, &w->wait))
            wait_over(&w->post);
    } else {
        bool done = store_confirmed(door->options.store) >= last;
        give(&to, done ? RES_SUCCESS : RES_FLUSH_DISK_TIMEOUT,
             done ? NULL : err_text(ERR_NO_MEMORY));
    }
}

void batch_ack_message(struct door *door, struct request *rq)
{
    struct batch_ack *list;
    size_t n = 0;
    enum err err = rq->body.len ? batch_acks_read(rq->body, rq->arena, &list, &n) : OK;
    if (err) {
        answer(rq, RES_SYSTEM_ERROR,
               "the body should have acks with c, t, r, so, q, rq, pt, it and b, and cannot be "
               "read");
        return;
    }
    if (n == 0) {
        answer(rq, RES_NO_MESSAGE, "nothing is acknowledged");
        return;
    }
    struct ack *acks = arena_alloc(rq->arena, n * sizeof *acks);
    if (!acks)
        answer_fault(rq, ERR_NO_MEMORY, NULL);
    else if (acks_need(rq))
        batch_take(door, rq, list, acks, n);
}

/* ---- changing the time ---- */

struct change_late {
    struct late late; /* first */
    struct handle renewed;
};

static void change_give(const struct late *late)
{
    const struct change_late *c = (const struct change_late *)late;
    struct reply r;
    int32_t code = late->err ? RES_SYSTEM_ERROR : RES_SUCCESS;
    const char *remark = late->err ? err_text(late->err) : NULL;
    if (!reply_begin(&r, &late->to, code, bytes_str(remark), 0))
        return;
    if (!late->err) {
        frame_put_int(&r.frame, BYTES("popTime"), c->renewed.pop_ms);
        frame_put_int(&r.frame, BYTES("invisibleTime"), c->renewed.invisible_ms);
        frame_put_int(&r.frame, BYTES("reviveQid"), c->renewed.revive_id);
    }
    reply_end(&r, 0);
}

/* A time that cannot be. */
static int32_t change_code_of(enum err err)
{
    return err == ERR_MALFORMED ? RES_INVALID_PARAMETER : ack_code_of(err);
}

void change_invisible(struct door *door, struct request *rq)
{
    struct ack_fields f = {0};
    struct retime r = {0};
    if (!request_fields(rq, &change_invisible_table, &f) || !handle_of(rq, f.handle, &r.handle))
        return;
    r.group = f.group;
    r.topic = f.topic;
    r.queue_id = f.queue_id;
    r.offset = f.offset;
    r.invisible_ms = f.invisible_ms;
    struct seat *seat = rq->session->seat;
    struct fault why = {0};
    uint64_t end = 0;
    struct change_late *late = seat_marks(seat) ? late_make(rq, sizeof *late) : NULL;
    enum err err = late ? broker_retime(door->broker, seat->marks, &r, &end, &why) : ERR_NO_MEMORY;
    if (err) {
        free(late);
        answer(rq, change_code_of(err), fault_remark(err, &why));
        return;
    }
    seat->undispatched |= end > 0;
    late->renewed = r.renewed;
    late_give(&late->late, end, change_give);
}
