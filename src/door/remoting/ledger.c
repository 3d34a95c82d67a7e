/* ledger.c - ONCE_LEDGER and ONCE_PRESENT, requests of our own (docs/requests.md): the once ledger.
 *
 * Operations are gathered like sends: the requests found in one read are one turn of the ledger
 * when it is used up. Their answers are written at once and wait for the log as one group: what is
 * told to be claimed or done is so after a crash, too.
 *
 * A request that says that an instance is there waits as a parked pull does. When its time is up
 * it is answered, and counts for the same time once more: who is slow to ask again, or was stopped
 * for a moment, is there as long as its connection stands. The next request of the instance on this
 * connection takes its place, so an owner has one of them, whether it waits or was answered. */
#include "door/remoting/door_int.h"

#include "broker/ledger.h"

#include <stdlib.h>

#define ASKS_MAX         64
#define ASKS_BYTES       (4u << 20) /* of requests, in one turn */
#define OP_LEAST         64         /* bytes that an operation has at least */
#define PRESENT_MAX_MS   30000
#define PRESENT_SESSIONS 16 /* such requests of one connection at the same time */

struct ledger_asks {
    struct ledger_desk *desk;
    size_t n, bytes;
    struct ledger_ask each[ASKS_MAX];
    struct op **ops[ASKS_MAX]; /* the same operations, one by one */
    struct return_address senders[ASKS_MAX];
};

void ledger_asks_close(struct ledger_asks *asks)
{
    if (asks)
        ledger_desk_close(asks->desk);
    free(asks);
}

/* The seat's memory for them. False: it has been answered. */
static bool asks_need(struct request *rq)
{
    struct seat *seat = rq->session->seat;
    if (!seat->ledger)
        seat->ledger = calloc(1, sizeof *seat->ledger);
    if (seat->ledger && !seat->ledger->desk && ledger_desk_open(&seat->ledger->desk))
        seat->ledger->desk = NULL;
    if (seat->ledger && seat->ledger->desk)
        return true;
    answer_fault(rq, ERR_NO_MEMORY, NULL);
    return false;
}

/* ---- answers ---- */

/* Answers that are written and wait for the disk. */
struct ledger_wait {
    struct store_wait wait;
    struct post post;
    struct door *door;
    struct loop *home;
    struct ledger_told told;
    enum err err;
    size_t n;
    struct {
        struct return_address to; /* the session is counted */
        struct conn *conn;        /* held */
        struct bytes body;        /* in this allocation */
    } each[];
};

static void refuse(const struct return_address *to, enum err err, const struct fault *why)
{
    /* A driver knows the one for whom the ledger is another one than it was by this remark. */
    int32_t code = err == ERR_STALE ? RES_ILLEGAL_OPERATION : response_code_of(err);
    struct reply r;
    if (reply_begin(&r, to, code, bytes_str(fault_remark(err, why)), 0))
        reply_end(&r, 0);
}

static void give(const struct return_address *to, const struct ledger_told *told, struct bytes body)
{
    struct reply r;
    if (!reply_begin(&r, to, RES_SUCCESS, (struct bytes){0}, 0))
        return;
    frame_put_int(&r.frame, BYTES("birth"), (int64_t)told->birth);
    frame_put_int(&r.frame, BYTES("timestamp"), told->now_ms);
    reply_end_body(&r, body);
}

static void give_unsure(const struct return_address *to, enum err err)
{
    struct reply r;
    if (reply_begin(&r, to, RES_FLUSH_DISK_TIMEOUT, bytes_str(err_text(err)), 0))
        reply_end(&r, 0);
}

/* Home loop. */
static void wait_over(struct post *post)
{
    struct ledger_wait *w = list_entry(post, struct ledger_wait, post);
    if (w->err)
        log_limited(w->door->log, &w->door->not_stored, LOG_ERROR,
                    "entries of the once ledger not confirmed count=%zu reason=\"%s\"", w->n,
                    err_text(w->err));
    for (size_t i = 0; i < w->n; i++) {
        if (w->err)
            give_unsure(&w->each[i].to, w->err);
        else
            give(&w->each[i].to, &w->told, w->each[i].body);
        conn_drop(w->each[i].conn);
        counted_drop(&w->each[i].to.session->counted);
    }
    free(w);
}

static void wait_done(struct store_wait *wait, enum err err)
{
    struct ledger_wait *w = list_entry(wait, struct ledger_wait, wait);
    w->err = err;
    loop_post(w->home, &w->post);
}

/* With the answers of all that were not refused; NULL: no memory. */
static struct ledger_wait *wait_make(struct door *door, struct seat *seat,
                                     const struct ledger_told *told)
{
    const struct ledger_asks *asks = seat->ledger;
    struct ledger_wait *w = NULL;
    size_t size = sizeof *w + asks->n * sizeof w->each[0];
    for (size_t i = 0; i < asks->n; i++)
        if (!asks->each[i].err)
            size += wire_answer_size(asks->ops[i], asks->each[i].n);
    w = malloc(size);
    if (!w)
        return NULL;
    *w = (struct ledger_wait){.wait = {.position = told->end, .done = wait_done},
                              .post = {.run = wait_over},
                              .door = door,
                              .home = seat->loop,
                              .told = *told};
    uint8_t *at = (uint8_t *)&w->each[asks->n], *end = (uint8_t *)w + size;
    for (size_t i = 0; i < asks->n; i++) {
        if (asks->each[i].err)
            continue;
        struct wr out = wr_over(at, (size_t)(end - at));
        wire_answer_write(&out, asks->ops[i], asks->each[i].n);
        invariant(!out.full);
        w->each[w->n].to = asks->senders[i];
        w->each[w->n++].body = wr_bytes(&out);
        at = out.at;
    }
    return w;
}

static void wait_begin(struct ledger_wait *w)
{
    for (size_t i = 0; i < w->n; i++) {
        struct session *session = w->each[i].to.session;
        counted_hold(&session->counted);
        conn_hold(session->conn);
        w->each[i].conn = session->conn;
    }
    if (store_await(w->door->options.store, &w->wait))
        wait_over(&w->post);
}

void ledger_flush(struct door *door, struct seat *seat)
{
    struct ledger_asks *asks = seat->ledger;
    if (!asks || asks->n == 0)
        return;
    struct ledger_told told;
    broker_ledger(door->broker, asks->desk, asks->each, asks->n, &told);
    seat->undispatched |= told.end > 0;
    struct ledger_wait *w = wait_make(door, seat, &told);
    for (size_t i = 0; i < asks->n; i++) {
        if (asks->each[i].err)
            refuse(&asks->senders[i], asks->each[i].err, &asks->each[i].why);
        else if (!w)
            refuse(&asks->senders[i], ERR_NO_MEMORY, NULL);
    }
    asks->n = asks->bytes = 0;
    if (!w)
        return;
    if (w->n > 0 && store_confirmed(door->options.store) < told.end) {
        wait_begin(w);
        return;
    }
    for (size_t i = 0; i < w->n; i++)
        give(&w->each[i].to, &told, w->each[i].body);
    free(w);
}

/* ---- ONCE_LEDGER ---- */

static void answer_unread(const struct request *rq, enum err err)
{
    if (err == ERR_TOO_BIG)
        answer(rq, RES_MESSAGE_ILLEGAL,
               "at most 256 operations, names of 200, topics and messages of 255, steps of 64 "
               "bytes; results of 4096, of a step 65536");
    else if (err == ERR_UNSUPPORTED)
        answer(rq, RES_VERSION_NOT_SUPPORTED,
               "this version of the ledger's body, or an operation in it, is not known here");
    else if (err == ERR_NO_MEMORY)
        answer_fault(rq, err, NULL);
    else
        answer(rq, RES_SYSTEM_ERROR, "the body is no list of operations on the ledger");
}

/* Into the request's arena. */
static enum err ops_read(const struct request *rq, struct ledger_ask *ask, struct op ***each)
{
    size_t most = rq->body.len >= 4 ? load_u16(rq->body.at + 2) : 0;
    if (most > rq->body.len / OP_LEAST)
        return ERR_MALFORMED;
    if (most > LEDGER_OPS_MAX)
        return ERR_TOO_BIG;
    ask->ops = arena_alloc(rq->arena, (most + 1) * sizeof *ask->ops);
    *each = arena_alloc(rq->arena, (most + 1) * sizeof **each);
    if (!ask->ops || !*each)
        return ERR_NO_MEMORY;
    enum err err = wire_ask_read(rq->body, ask->ops, most, &ask->n);
    for (size_t i = 0; !err && i < ask->n; i++)
        (*each)[i] = &ask->ops[i];
    return err;
}

void once_ledger(struct door *door, struct request *rq)
{
    struct ledger_fields f = {0};
    struct fault why = {0};
    if (!request_fields(rq, &ledger_table, &f))
        return;
    enum err err = group_name_check(f.group, &why);
    if (err || f.birth < 0) {
        answer(rq, RES_INVALID_PARAMETER, err ? fault_remark(err, &why) : "birth is below 0");
        return;
    }
    struct ledger_ask ask = {.group = f.group, .birth = (uint64_t)f.birth, .arena = rq->arena};
    struct op **ops = NULL;
    err = ops_read(rq, &ask, &ops);
    if (err) {
        answer_unread(rq, err);
        return;
    }
    if (!asks_need(rq))
        return;
    struct seat *seat = rq->session->seat;
    struct ledger_asks *asks = seat->ledger;
    asks->each[asks->n] = ask;
    asks->ops[asks->n] = ops;
    asks->senders[asks->n++] = return_address_of(rq);
    asks->bytes += rq->body.len;
    if (asks->n == ASKS_MAX || asks->bytes >= ASKS_BYTES)
        ledger_flush(door, seat);
}

/* ---- ONCE_PRESENT ---- */

struct present {
    struct hold hold;
    struct post post;
    struct link by_session;   /* in session->present */
    struct return_address to; /* holds a count of the session */
    uint32_t instance;
    uint64_t wait_ms;
    bool answered; /* and waits for the next one, or for the end of its time */
    struct ledger_told told;
};

struct present_late {
    struct late late; /* first */
    struct ledger_told told;
};

static void present_give(const struct late *late)
{
    const struct ledger_told *told = &((const struct present_late *)late)->told;
    struct reply r;
    if (late->err) {
        give_unsure(&late->to, late->err);
        return;
    }
    if (!reply_begin(&r, &late->to, RES_SUCCESS, (struct bytes){0}, 0))
        return;
    frame_put_int(&r.frame, BYTES("birth"), (int64_t)told->birth);
    frame_put_int(&r.frame, BYTES("timestamp"), broker_ledger_ms(late->to.session->door->broker));
    frame_put_int(&r.frame, BYTES("graceMillis"), told->grace_ms);
    reply_end(&r, 0);
}

static void present_unmake(struct present *p)
{
    list_remove(&p->by_session);
    p->to.session->n_present--;
    counted_drop(&p->to.session->counted);
    free(p);
}

static void present_free(struct present *p)
{
    broker_absent(p->to.session->door->broker, p->instance);
    present_unmake(p);
}

/* Of this instance, on its connection, but `p`; NULL: there is none. */
static struct present *present_other(struct session *session, uint32_t instance,
                                     const struct present *p, bool answered)
{
    list_each(k, &session->present) {
        struct present *other = list_entry(k, struct present, by_session);
        if (other != p && other->instance == instance && other->answered == answered)
            return other;
    }
    return NULL;
}

static void present_answer(struct present *p)
{
    struct present_late *late = p->to.session->conn ? late_make_to(&p->to, sizeof *late) : NULL;
    if (late) {
        late->told = p->told;
        late_give(&late->late, p->told.end, present_give);
    } else {
        refuse(&p->to, ERR_NO_MEMORY, NULL);
    }
}

/* Home loop: its time is up, the first or the second. */
static void present_over(struct present *p)
{
    struct session *session = p->to.session;
    bool again = !p->answered && p->wait_ms > 0;
    if (!p->answered)
        present_answer(p);
    p->answered = true;
    again = again && session->conn && !present_other(session, p->instance, p, false);
    if (!again || broker_present_more(session->door->broker, &p->hold, p->wait_ms))
        present_free(p);
}

static void present_woken(struct post *post)
{
    present_over(list_entry(post, struct present, post));
}

static void present_wake(struct hold *hold)
{
    struct present *p = list_entry(hold, struct present, hold);
    loop_post(p->to.session->home, &p->post);
}

static struct present *present_make(const struct request *rq, uint32_t instance, uint64_t wait_ms,
                                    const struct ledger_told *told)
{
    struct session *session = rq->session;
    struct present *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->hold.wake = present_wake;
    p->post.run = present_woken;
    p->to = return_address_of(rq);
    p->instance = instance;
    p->wait_ms = wait_ms;
    p->told = *told;
    counted_hold(&session->counted);
    list_add_tail(&session->present, &p->by_session);
    session->n_present++;
    return p;
}

/* Takes the place of an answered one. That one's hold is free before ours is needed and its count
 * ends after ours has begun, so neither is there twice and the instance is never gone. */
static enum err present_begin(struct request *rq, const struct present_fields *f,
                              const struct ledger_told *told, struct present **out,
                              struct fault *why)
{
    struct session *session = rq->session;
    struct broker *broker = session->door->broker;
    uint32_t instance = (uint32_t)f->instance;
    uint64_t wait_ms = (uint64_t)(f->wait_ms < PRESENT_MAX_MS ? f->wait_ms : PRESENT_MAX_MS);
    struct present *old = present_other(session, instance, NULL, true);
    if (session->n_present - (old != NULL) >= PRESENT_SESSIONS)
        return fault_set(why, ERR_BUSY, "%d requests of this connection wait already",
                         PRESENT_SESSIONS);
    struct present *p = present_make(rq, instance, wait_ms, told);
    if (!p)
        return ERR_NO_MEMORY;
    bool ended = old && broker_unhold(broker, &old->hold); /* else its second end is on the way */
    enum err err = broker_present(broker, instance, f->name, &p->hold, wait_ms, why);
    if (ended)
        present_free(old);
    if (err)
        present_unmake(p);
    else
        *out = p;
    return err;
}

void once_present(struct door *door, struct request *rq)
{
    struct present_fields f = {0};
    struct session *session = rq->session;
    if (!request_fields(rq, &present_table, &f) || !asks_need(rq))
        return;
    if (f.instance <= 0 || f.instance > UINT32_MAX || f.wait_ms < 0) {
        answer(rq, RES_INVALID_PARAMETER,
               "instance: from 1 to 4294967295, the upper half of the client's tokens; "
               "waitMillis: at least 0");
        return;
    }
    struct ledger_ask ask = {.arena = rq->arena};
    struct ledger_told told;
    broker_ledger(door->broker, session->seat->ledger->desk, &ask, 1, &told);
    session->seat->undispatched |= told.end > 0;
    if (rq->head->flag & FLAG_ONEWAY)
        return; /* nobody would notice its end */
    struct present *p = NULL;
    enum err err = ask.err ? ask.err : present_begin(rq, &f, &told, &p, &ask.why);
    if (err) {
        answer_fault(rq, err, &ask.why);
        return;
    }
    log_event(door->log, LOG_DEBUG, "instance present conn=%llu instance=%lld name=%s",
              (unsigned long long)conn_id(session->conn), (long long)f.instance, LOG_QUOTE(f.name));
    if (p->wait_ms == 0)
        present_over(p);
}

void presents_session_closed(struct session *session)
{
    list_each(k, &session->present) {
        struct present *p = list_entry(k, struct present, by_session);
        if (broker_unhold(session->door->broker, &p->hold))
            present_free(p);
        else
            list_remove(&p->by_session); /* its wake is on the way here and will free it */
    }
}
