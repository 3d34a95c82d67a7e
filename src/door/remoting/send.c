/* send.c - SEND_MESSAGE and its relatives.
 *
 * A request is only noted when it is met; when the read that brought it is used up, everything
 * noted is stored as one batch. What needs no waiting is answered at once, in the same turn of the
 * loop. The rest waits for the log's `confirmed` position as one group and comes back to this loop
 * as a post.
 *
 * Flow control. What waits for the disk is bounded in number and in age: a send that comes when too
 * many wait, or when the oldest has waited too long, is refused with SYSTEM_BUSY and what was
 * measured. It is not stored, so its producer may safely try again or elsewhere. Without SYNC_FLUSH
 * nothing ever waits: a slow disk then holds up the append itself, and with it the reading of more
 * sends. */
#include "door/remoting/door_int.h"

#include <stdlib.h>

#define SENDS_MAX 256

struct sends {
    struct desk *desk;
    struct frame_stamp stamp; /* of the answer that nearly every send gets */
    struct id_host id_host;   /* of the ids in it */
    struct list waiting;      /* send_waits of this loop, the oldest first */
    size_t n;
    struct produce requests[SENDS_MAX];
    struct return_address senders[SENDS_MAX];
};

/* What an answer needs once its request is gone. */
struct send_answer {
    struct return_address to;
    int32_t code, queue_id;
    int64_t queue_offset;
    struct bytes msg_ids, uniq_key, recall; /* the last: of a timed message, to take it back by */
    uint32_t known;                         /* so many of its messages had been stored before */
    struct lane *lane;                      /* where its time is counted */
    const char *remark;
    struct conn *conn; /* held while waiting, so that a stopping house gives the answer first */
};

/* Answers that wait for the disk, in one allocation with their texts. */
struct send_wait {
    struct store_wait wait;
    struct post post;
    struct link by_age; /* in sends.waiting */
    uint64_t since_ns;
    struct door *door;
    struct seat *seat;
    enum err err;
    size_t n;
    struct send_answer answers[];
};

#define GIVEN 4 /* values of the stamp */

static void stamp_of(struct door *door, struct frame_stamp *out)
{
    const struct field fields[] = {
        {.name = BYTES("msgId")},
        {.name = BYTES("queueId")},
        {.name = BYTES("queueOffset")},
        {.name = BYTES("transactionId")},
        {BYTES("MSG_REGION"), bytes_str(door->options.region)},
        {BYTES("TRACE_ON"), door->options.trace_on ? BYTES("true") : BYTES("false")},
    };
    frame_stamp_make(out, &(struct head_start){.code = RES_SUCCESS, .flag = FLAG_RESPONSE}, fields,
                     sizeof fields / sizeof *fields);
}

enum err sends_open(struct door *door, struct sends **out)
{
    struct sends *sends = calloc(1, sizeof *sends);
    if (!sends)
        return ERR_NO_MEMORY;
    list_init(&sends->waiting);
    stamp_of(door, &sends->stamp);
    id_host_init(&sends->id_host, &door->options.host);
    enum err err = desk_open(door->broker, &sends->desk);
    if (err) {
        free(sends);
        return err;
    }
    *out = sends;
    return OK;
}

void sends_close(struct sends *sends)
{
    if (!sends)
        return;
    desk_close(sends->desk);
    free(sends);
}

struct desk *sends_desk(struct sends *sends)
{
    invariant(sends->n == 0);
    return sends->desk;
}

static void give(struct door *door, const struct send_answer *a);

/* How many sends wait for the disk, those of this read included, and the oldest of this loop how
 * long. False: too many, or too long. */
bool store_keeps_up(struct door *door, const struct sends *sends, struct fault *why)
{
    const struct door_options *o = &door->options;
    size_t waiting = atomic_load_explicit(&door->sends_waiting, memory_order_relaxed);
    if (!o->fast_failure || waiting == 0)
        return true;
    uint64_t oldest_ms = 0;
    if (!list_empty(&sends->waiting)) {
        const struct send_wait *oldest =
            list_entry(list_first(&sends->waiting), struct send_wait, by_age);
        oldest_ms = (clock_ns(o->clock) - oldest->since_ns) / 1000000;
    }
    if (waiting + sends->n < o->max_sends_waiting && oldest_ms <= o->max_send_wait_ms)
        return true;
    (void)fault_set(
        why, ERR_BUSY,
        "system busy, the message was not stored: %zu sends wait for the disk (at most %zu, "
        "sendThreadPoolQueueCapacity), the oldest for %llu ms (at most %llu, "
        "osPageCacheBusyTimeOutMills); try again",
        waiting, o->max_sends_waiting, (unsigned long long)oldest_ms,
        (unsigned long long)o->max_send_wait_ms);
    return false;
}

static void refuse_busy(struct door *door, const struct request *rq, const struct fault *why)
{
    log_limited(door->log, &door->busy, LOG_WARN, "send refused reason=%s",
                LOG_QUOTE(bytes_str(why->text)));
    struct send_answer a = {
        .to = return_address_of(rq), .code = RES_SYSTEM_BUSY, .remark = why->text};
    give(door, &a);
}

static void note(struct door *door, struct request *rq, const struct send_fields *f)
{
    struct sends *sends = rq->session->seat->sends;
    struct fault why;
    if (!store_keeps_up(door, sends, &why)) {
        refuse_busy(door, rq, &why);
        return;
    }
    if (sends->n == SENDS_MAX)
        sends_flush(door, rq->session->seat);
    size_t i = sends->n++;
    sends->senders[i] = return_address_of(rq);
    produce_fill(&sends->requests[i], rq, f);
}

void produce_fill(struct produce *p, const struct request *rq, const struct send_fields *f)
{
    p->group = f->producer_group;
    p->topic = f->topic;
    p->default_topic = f->default_topic;
    p->body = rq->body;
    p->props = f->props;
    p->default_queues = f->default_topic_queues;
    p->queue_id = f->queue_id;
    p->sys_flag = f->sys_flag;
    p->flag = f->flag;
    p->reconsume_times = f->reconsume_times;
    p->max_reconsume_times = f->max_reconsume_times;
    p->has_max_reconsume_times = names_max_reconsume(rq, f->max_reconsume_times);
    p->born_ms = f->born_ms;
    p->born_host = *conn_peer(rq->session->conn);
    p->batch = f->batch;
    p->why.text[0] = 0; /* of whoever was in this place before */
}

void send_message(struct door *door, struct request *rq)
{
    struct send_fields f = {.max_reconsume_times = NO_MAX_RECONSUME};
    if (request_fields(rq, &send_fields_long, &f))
        note(door, rq, &f);
}

void send_message_v2(struct door *door, struct request *rq)
{
    struct send_fields f = {.max_reconsume_times = NO_MAX_RECONSUME};
    if (request_fields(rq, &send_fields_letters, &f))
        note(door, rq, &f);
}

/* The answer to a message that was stored as it was sent. False: it has to be written. */
static bool give_stamped(const struct send_answer *a)
{
    const struct sends *sends = a->to.session->seat->sends;
    if (a->code != RES_SUCCESS || a->known > 0 || a->recall.len || a->to.form != HEAD_JSON)
        return false;
    const struct stamp_value values[GIVEN] = {
        stamp_text(a->msg_ids),
        stamp_number(a->queue_id),
        stamp_number(a->queue_offset),
        stamp_text(a->uniq_key),
    };
    return reply_stamp(&a->to, &sends->stamp, values, a->msg_ids.len + a->uniq_key.len);
}

static void give(struct door *door, const struct send_answer *a)
{
    if (give_stamped(a))
        return;
    struct bytes region = bytes_str(door->options.region);
    struct reply r;
    if (!reply_begin(&r, &a->to, a->code, bytes_str(a->remark),
                     a->msg_ids.len + a->uniq_key.len + a->recall.len + region.len))
        return;
    if (a->msg_ids.len) {
        frame_put(&r.frame, BYTES("msgId"), a->msg_ids);
        frame_put_int(&r.frame, BYTES("queueId"), a->queue_id);
        frame_put_int(&r.frame, BYTES("queueOffset"), a->queue_offset);
        frame_put(&r.frame, BYTES("transactionId"), a->uniq_key);
        if (a->known > 0) /* ours: nobody else says so, and clients do not look */
            frame_put_int(&r.frame, BYTES("DUPLICATES"), a->known);
        if (a->recall.len)
            frame_put(&r.frame, BYTES("recallHandle"), a->recall);
    }
    /* These two are there on refusals as well; Java reads them for its message trace. */
    frame_put(&r.frame, BYTES("MSG_REGION"), region);
    frame_put_bool(&r.frame, BYTES("TRACE_ON"), door->options.trace_on);
    reply_end(&r, 0);
}

/* The offset ids of a request's messages, joined by commas, in the read's arena. */
static struct bytes id_list(struct arena *arena, const struct id_host *host,
                            const struct stored *stored, uint32_t n)
{
    uint8_t *start = arena_space(arena, (size_t)n * ID_TEXT_MAX), *at = start;
    if (!start)
        return (struct bytes){0};
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0)
            *at++ = ',';
        at = id_put(at, host, stored[i].position);
    }
    arena_trim(arena, at);
    return bytes_of(start, (size_t)(at - start));
}

/* How its sender can take a timed message back. Not for what a consumer gives back. */
static struct bytes recall_handle(struct door *door, struct arena *arena, const struct produce *p)
{
    char *text = NULL;
    size_t len = 0;
    if (p->timer_due_ms > 0 && !bytes_start(p->topic, RETRY_PREFIX))
        text = arena_alloc(arena, RECALL_HANDLE_MAX);
    if (text)
        len = broker_recall_handle(door->broker, p->topic, p->timer_due_ms, bytes_str(p->uniq_key),
                                   text);
    return len ? bytes_of(text, len) : (struct bytes){0};
}

/* What the disk says of its files has other codes where a client has asked for something; a
 * producer would take those for final and not try again. */
static int32_t send_code_of(enum err err)
{
    if (err == ERR_MALFORMED)
        return RES_MESSAGE_ILLEGAL;
    bool of_files = err == ERR_NOT_FOUND || err == ERR_EXISTS || err == ERR_RANGE;
    return of_files ? RES_SYSTEM_ERROR : response_code_of(err);
}

/* Refusals that are no fault of the sender's: the operator hears of them as well. */
static bool is_trouble(enum err err)
{
    return err == ERR_DISK_FULL || err == ERR_READ_ONLY || err == ERR_IO || err == ERR_NO_MEMORY ||
           err == ERR_DAMAGED || err == ERR_NOT_FOUND || err == ERR_EXISTS || err == ERR_RANGE ||
           err == ERR_BUSY;
}

static void fate_of(struct door *door, struct seat *seat, size_t i, struct send_answer *a)
{
    struct sends *sends = seat->sends;
    const struct produce *p = &sends->requests[i];
    a->to = sends->senders[i];
    if (p->err) {
        *a = (struct send_answer){.to = sends->senders[i], .code = send_code_of(p->err)};
        a->remark = fault_remark(p->err, &p->why);
        if (is_trouble(p->err))
            log_limited(door->log, &door->not_stored, LOG_ERROR,
                        "message refused topic=%s reason=%s", LOG_QUOTE(p->topic),
                        LOG_QUOTE(bytes_str(a->remark)));
        return;
    }
    a->code = RES_SUCCESS;
    a->remark = NULL;
    a->conn = NULL;
    a->msg_ids =
        id_list(&seat->arena, &sends->id_host, desk_stored(sends->desk) + p->first, p->count);
    a->queue_id = p->stored_queue_id;
    a->queue_offset = p->queue_offset;
    a->uniq_key = bytes_str(p->uniq_key);
    a->known = p->known;
    a->lane = p->lane;
    a->recall = recall_handle(door, &seat->arena, p);
    if (!a->msg_ids.len) { /* stored, but Java cannot read a success without ids: it sends again */
        a->code = response_code_of(ERR_NO_MEMORY);
        a->remark = err_text(ERR_NO_MEMORY);
    }
}

static void sends_took(struct door *door, uint64_t since_ns, const struct send_answer *answers,
                       size_t n)
{
    struct lane *lanes[SENDS_MAX];
    for (size_t i = 0; i < n; i++)
        lanes[i] = answers[i].lane;
    broker_sends_took(door->broker, clock_ns(door->options.clock) - since_ns, lanes, n);
}

/* Back on the home loop: the position has passed, or never will. */
static void wait_over(struct post *post)
{
    struct send_wait *w = list_entry(post, struct send_wait, post);
    list_remove(&w->by_age);
    atomic_fetch_sub_explicit(&w->door->sends_waiting, w->n, memory_order_relaxed);
    if (w->err)
        log_limited(w->door->log, &w->door->not_stored, LOG_ERROR,
                    "messages not confirmed count=%zu reason=\"%s\"", w->n, err_text(w->err));
    sends_took(w->door, w->since_ns, w->answers, w->n);
    for (size_t i = 0; i < w->n; i++) {
        struct send_answer *a = &w->answers[i];
        if (w->err && a->code == RES_SUCCESS) {
            a->code = RES_FLUSH_DISK_TIMEOUT; /* it is written, but nobody can promise more */
            a->remark = err_text(w->err);
        }
        give(w->door, a);
        conn_drop(a->conn);
        counted_drop(&a->to.session->counted);
    }
    spares_give(&w->seat->spares, w);
}

static void wait_done(struct store_wait *wait, enum err err)
{
    struct send_wait *w = list_entry(wait, struct send_wait, wait);
    w->err = err;
    loop_post(w->seat->loop, &w->post);
}

/* Copies the answers that have to wait; NULL: no memory. */
static struct send_wait *wait_make(struct door *door, struct seat *seat,
                                   const struct send_answer *answers, size_t n, uint64_t position,
                                   uint64_t since_ns)
{
    size_t texts = 0;
    for (size_t i = 0; i < n; i++)
        texts += answers[i].msg_ids.len + answers[i].uniq_key.len + answers[i].recall.len;
    struct send_wait *w = spares_take(&seat->spares, sizeof *w + n * sizeof w->answers[0] + texts);
    if (!w)
        return NULL;
    *w = (struct send_wait){
        .wait = {.position = position, .done = wait_done},
        .post.run = wait_over,
        .since_ns = since_ns,
        .door = door,
        .seat = seat,
        .n = n,
    };
    list_add_tail(&seat->sends->waiting, &w->by_age);
    atomic_fetch_add_explicit(&door->sends_waiting, n, memory_order_relaxed);
    uint8_t *room = (uint8_t *)&w->answers[n];
    for (size_t i = 0; i < n; i++) {
        w->answers[i] = answers[i];
        w->answers[i].msg_ids = keep_text(&room, answers[i].msg_ids);
        w->answers[i].recall = keep_text(&room, answers[i].recall);
        w->answers[i].uniq_key = keep_text(&room, answers[i].uniq_key);
        counted_hold(&answers[i].to.session->counted);
        conn_hold(answers[i].to.session->conn);
        w->answers[i].conn = answers[i].to.session->conn;
    }
    return w;
}

/* Answers that must not be given before the log is confirmed up to `position`. */
static void give_when_confirmed(struct door *door, struct seat *seat,
                                const struct send_answer *answers, size_t n, uint64_t position,
                                uint64_t since_ns)
{
    if (n == 0)
        return;
    struct send_wait *w = NULL;
    if (store_confirmed(door->options.store) < position) {
        w = wait_make(door, seat, answers, n, position, since_ns);
        if (!w) { /* stored, but we cannot wait for it: the producer must not take it for safe */
            for (size_t i = 0; i < n; i++) {
                struct send_answer a = answers[i];
                a.code = RES_FLUSH_DISK_TIMEOUT;
                a.remark = err_text(ERR_NO_MEMORY);
                give(door, &a);
            }
            return;
        }
        if (!store_await(door->options.store, &w->wait))
            return;
        wait_over(&w->post);
        return;
    }
    for (size_t i = 0; i < n; i++)
        give(door, &answers[i]);
    sends_took(door, since_ns, answers, n);
}

void sends_flush(struct door *door, struct seat *seat)
{
    struct sends *sends = seat->sends;
    if (!sends || sends->n == 0)
        return;
    size_t n = sends->n;
    uint64_t end = 0, since_ns = clock_ns(door->options.clock);
    broker_produce(door->broker, sends->desk, sends->requests, n, &end);

    struct send_answer waiting[SENDS_MAX];
    size_t n_waiting = 0;
    for (size_t i = 0; i < n; i++) {
        struct send_answer *a = &waiting[n_waiting];
        fate_of(door, seat, i, a);
        if (a->code == RES_SUCCESS && sends->requests[i].wait)
            n_waiting++;
        else
            give(door, a);
    }
    give_when_confirmed(door, seat, waiting, n_waiting, end, since_ns);
    sends->n = 0;
    seat->undispatched |= end > 0; /* whoever waits for these is woken when the turn ends */
}
