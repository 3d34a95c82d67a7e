/* pop.c - POP_MESSAGE and its relatives: taking messages for a time, and waiting for some.
 *
 * Messages leave as they stand in the log. Only those of a retry topic are written anew, as by
 * Apache: under the topic that was asked for, and with their handle (POP_CK) among the properties;
 * for all others the client makes the handle itself from startOffsetInfo and msgOffsetInfo.
 *
 * A pop that finds nothing waits like a pull (pull.c): a copy of the request with the broker's hold
 * in it, which is owned here until its `wake` was called and then travels to its home loop.
 * NOTIFICATION waits in the same way and takes nothing. */
#include "door/remoting/door_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOKS       8   /* pops for one waking */
#define TOO_LATE_MS 500 /* Witness: PopMessageRequestHeader.isTimeoutTooMuch */
#define INFO_MAX    4096
#define CK_MAX      512 /* a handle, without the broker's name */

struct parked_pop {
    struct hold hold;
    struct post post;
    struct link by_session;   /* in session->pops */
    struct return_address to; /* holds a count of the session */
    struct pop pop;           /* its texts follow the struct */
    uint64_t until_ns;
    size_t n_texts;
    uint8_t texts[];
};

struct mark_desk *seat_marks(struct seat *seat)
{
    if (!seat->marks && mark_desk_open(&seat->marks))
        seat->marks = NULL;
    return seat->marks;
}

/* ---- answers ---- */

static int32_t pop_code_of(enum err err)
{
    return err == ERR_MALFORMED ? RES_SUBSCRIPTION_PARSE_FAILED
           : err == ERR_BUSY    ? RES_POLLING_FULL
                                : response_code_of(err);
}

static void answer_refused(const struct return_address *to, enum err err, const struct fault *why)
{
    struct reply r;
    if (reply_begin(&r, to, pop_code_of(err), bytes_str(fault_remark(err, why)), 0))
        reply_end(&r, 0);
}

static printf_like(2, 3) void info_add(struct wr *w, const char *format, ...)
{
    char text[96];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    wr_bytes_of(w, bytes_of(text, (size_t)n));
}

/* "0 3 17;1 0 4": which queue, of which topic, from where. */
static void starts_write(const struct popped *got, struct wr *w)
{
    for (size_t i = 0; i < got->n_parts; i++)
        info_add(w, "%s%d %d %lld", i ? ";" : "", got->parts[i].retry, got->parts[i].queue_id,
                 (long long)got->parts[i].start);
}

/* "0 3 17,18,20": which messages. */
static void offsets_write(const struct popped *got, struct wr *w)
{
    const int64_t *offset = got->offsets;
    for (size_t i = 0; i < got->n_parts; i++) {
        info_add(w, "%s%d %d ", i ? ";" : "", got->parts[i].retry, got->parts[i].queue_id);
        for (uint32_t k = 0; k < got->parts[i].n; k++)
            info_add(w, "%s%lld", k ? "," : "", (long long)*offset++);
    }
}

/* "0 qo3%17 2;0 3 0": how often each message that came again was handed out before; and, for old
 * clients, the least of its queue. */
static void counts_write(const struct popped *got, struct wr *w)
{
    uint32_t at = 0;
    for (size_t i = 0; i < got->n_parts; i++) {
        int32_t least = INT32_MAX, id = got->parts[i].queue_id;
        for (uint32_t k = 0; k < got->parts[i].n; k++, at++) {
            least = got->counts[at] < least ? got->counts[at] : least;
            if (got->counts[at] > 0)
                info_add(w, "%s0 qo%d%%%lld %d", wr_len(w) ? ";" : "", id,
                         (long long)got->offsets[at], got->counts[at]);
        }
        info_add(w, "%s0 %d %d", wr_len(w) ? ";" : "", id, least);
    }
}

static void slices_drop(struct popped *got)
{
    for (size_t i = 0; i < got->n_slices; i++)
        counted_drop(got->slices[i].owner);
    got->n_slices = 0;
}

/* Bytes of ours that leave like slices of the log. */
struct chunk {
    struct counted counted; /* first */
    size_t len;
    uint8_t at[];
};

static void chunk_release(struct counted *counted)
{
    free((struct chunk *)counted);
}

static size_t records_count(struct bytes slice)
{
    size_t n = 0;
    struct record record;
    for (; slice.len > 0 && record_decode(slice, &record) == OK; n++)
        slice = bytes_from(slice, record.size);
    return n;
}

/* Records of a retry topic, as the consumer is to see them. NULL: no memory. */
static struct chunk *retry_rewrite(const struct door *door, const struct pop *pop,
                                   const struct popped *got, const struct pop_part *part,
                                   struct bytes slice)
{
    struct bytes name = bytes_str(door->options.broker_name);
    size_t more = pop->topic.len + CK_MAX + name.len; /* for each message */
    size_t size = slice.len + records_count(slice) * more;
    struct chunk *chunk = malloc(sizeof *chunk + size);
    uint8_t *props = malloc(RECORD_PROPS_MAX + more);
    struct wr w = wr_over(chunk ? chunk->at : NULL, chunk ? size : 0);
    struct record record;
    while (chunk && props && slice.len > 0 && record_decode(slice, &record) == OK) {
        slice = bytes_from(slice, record.size);
        struct bytes had;
        struct wr p = wr_over(props, RECORD_PROPS_MAX + more);
        char ck[CK_MAX];
        (void)snprintf(ck, sizeof ck, "%lld %lld %lld %d %d %.*s %d %lld", (long long)part->start,
                       (long long)got->pop_ms, (long long)pop->invisible_ms, got->revive_id,
                       part->retry, (int)(name.len < 255 ? name.len : 255), (const char *)name.at,
                       part->queue_id, (long long)record.queue_offset);
        wr_bytes_of(&p, record.props);
        if (!props_get(record.props, PROP_POP_CK, &had))
            props_add(&p, PROP_POP_CK, bytes_str(ck));
        if (wr_len(&p) <= RECORD_PROPS_MAX)
            record.props = wr_bytes(&p); /* else the client sees the retry topic's own form */
        record.topic = pop->topic;
        if (record_encode(&record, &w))
            break;
    }
    free(props);
    if (!chunk || !props || slice.len > 0) {
        free(chunk);
        return NULL;
    }
    counted_init(&chunk->counted, chunk_release);
    chunk->len = wr_len(&w);
    return chunk;
}

/* False: no memory. The messages come again when their time is up. */
static bool retries_rewrite(const struct door *door, const struct pop *pop, struct popped *got)
{
    size_t at = 0;
    for (size_t i = 0; i < got->n_parts; i++) {
        for (size_t k = 0; k < got->parts[i].n_slices; k++, at++) {
            struct slice *slice = &got->slices[at];
            if (!got->parts[i].retry)
                continue;
            struct chunk *chunk = retry_rewrite(door, pop, got, &got->parts[i], slice->bytes);
            if (!chunk)
                return false;
            got->size += chunk->len - slice->bytes.len;
            counted_drop(slice->owner);
            *slice = (struct slice){bytes_of(chunk->at, chunk->len), &chunk->counted};
        }
    }
    return true;
}

/* Gives the slices away: to the connection, or back. */
static void answer_popped(const struct door *door, const struct return_address *to,
                          const struct pop *pop, struct popped *got, int32_t code)
{
    uint8_t starts[INFO_MAX], offsets[INFO_MAX], counts[INFO_MAX];
    struct wr s = wr_over(starts, INFO_MAX), o = wr_over(offsets, INFO_MAX),
              c = wr_over(counts, INFO_MAX);
    struct reply r;
    starts_write(got, &s);
    offsets_write(got, &o);
    if (pop->ordered)
        counts_write(got, &c);
    const char *remark = code == RES_SUCCESS ? "FOUND" : "NO_MESSAGE_IN_QUEUE";
    bool fits = retries_rewrite(door, pop, got);
    if (!fits ||
        !reply_begin(&r, to, code, bytes_str(remark), wr_len(&s) + wr_len(&o) + wr_len(&c))) {
        slices_drop(got);
        if (!fits)
            answer_refused(to, ERR_NO_MEMORY, NULL);
        return;
    }
    frame_put_int(&r.frame, BYTES("popTime"), got->pop_ms);
    frame_put_int(&r.frame, BYTES("invisibleTime"), pop->invisible_ms);
    frame_put_int(&r.frame, BYTES("reviveQid"), got->revive_id);
    frame_put_int(&r.frame, BYTES("restNum"), got->rest);
    frame_put(&r.frame, BYTES("startOffsetInfo"), wr_bytes(&s));
    frame_put(&r.frame, BYTES("msgOffsetInfo"), wr_bytes(&o));
    if (pop->ordered)
        frame_put(&r.frame, BYTES("orderCountInfo"), wr_bytes(&c));
    reply_end(&r, got->size);
    for (size_t i = 0; i < got->n_slices; i++)
        conn_write_slice(r.conn, got->slices[i].bytes, got->slices[i].owner);
    got->n_slices = 0;
}

static void answer_told(const struct return_address *to, bool found, bool full)
{
    struct reply r;
    if (!reply_begin(&r, to, RES_SUCCESS, (struct bytes){0}, 0))
        return;
    frame_put_bool(&r.frame, BYTES("hasMsg"), found);
    frame_put_bool(&r.frame, BYTES("pollingFull"), full);
    reply_end(&r, 0);
}

/* ---- waiting ---- */

static void parked_free(struct parked_pop *p)
{
    list_remove(&p->by_session);
    filter_drop(p->hold.filter);
    parked_texts_give(p->to.session->door, p->n_texts);
    counted_drop(&p->to.session->counted);
    free(p);
}

/* What becomes of a pop: it has been answered, or `err` says why it has nothing to say yet. */
static bool pop_try(struct door *door, const struct return_address *to, const struct pop *pop,
                    struct filter **filter)
{
    struct mark_desk *desk = seat_marks(to->session->seat);
    struct popped got;
    struct fault why = {0};
    enum err err = desk ? broker_pop(door->broker, desk, pop, &got, &why) : ERR_NO_MEMORY;
    if (err) {
        answer_refused(to, err, &why);
        return true;
    }
    filter_drop(*filter);
    *filter = got.filter;
    if (got.n == 0)
        return false;
    to->session->seat->undispatched = true;
    answer_popped(door, to, pop, &got, RES_SUCCESS);
    return true;
}

/* Time is up, or nobody may wait. */
static void answer_nothing(struct door *door, const struct return_address *to,
                           const struct pop *pop, bool tells, enum err err)
{
    struct popped none = {.pop_ms = 0};
    if (tells)
        answer_told(to, false, err == ERR_BUSY);
    else
        answer_popped(door, to, pop, &none,
                      err == ERR_BUSY ? RES_POLLING_FULL : RES_POLLING_TIMEOUT);
}

/* Something is there, or time is up. Ends with an answer, or with the pop waiting again. */
static void parked_look(struct parked_pop *p)
{
    struct door *door = p->to.session->door;
    enum err err = OK;
    for (int i = 0; i < LOOKS; i++) {
        bool tells = p->hold.only_tells, found = false;
        uint32_t waiting;
        if (tells && broker_pop_look(door->broker, &p->pop, &found, &waiting, NULL) == OK &&
            found) {
            answer_told(&p->to, true, false);
            parked_free(p);
            return;
        }
        if (!tells && pop_try(door, &p->to, &p->pop, &p->hold.filter)) {
            parked_free(p);
            return;
        }
        err = broker_pop_hold(door->broker, &p->pop, &p->hold, p->until_ns);
        if (!err)
            return;
        if (err != ERR_STALE)
            break;
    }
    answer_nothing(door, &p->to, &p->pop, p->hold.only_tells, err);
    parked_free(p);
}

static void parked_woken(struct post *post)
{
    struct parked_pop *p = list_entry(post, struct parked_pop, post);
    if (p->to.session->conn)
        parked_look(p);
    else
        parked_free(p);
}

static void parked_wake(struct hold *hold)
{
    struct parked_pop *p = list_entry(hold, struct parked_pop, hold);
    loop_post(p->to.session->home, &p->post);
}

/* Takes over the filter. NULL: no memory, or no room for its texts. */
static struct parked_pop *parked_make(const struct request *rq, const struct pop *pop,
                                      struct filter **filter)
{
    size_t texts = pop->group.len + pop->topic.len + pop->expression.len +
                   pop->expression_type.len + pop->attempt_id.len;
    if (!parked_texts_take(rq->session->door, texts))
        return NULL;
    struct parked_pop *p = calloc(1, sizeof *p + texts);
    if (!p) {
        parked_texts_give(rq->session->door, texts);
        return NULL;
    }
    p->n_texts = texts;
    p->hold = (struct hold){.filter = take(filter), .wake = parked_wake};
    p->post.run = parked_woken;
    p->to = return_address_of(rq);
    p->pop = *pop;
    uint8_t *room = p->texts;
    p->pop.group = keep_text(&room, pop->group);
    p->pop.topic = keep_text(&room, pop->topic);
    p->pop.expression = keep_text(&room, pop->expression);
    p->pop.expression_type = keep_text(&room, pop->expression_type);
    p->pop.attempt_id = keep_text(&room, pop->attempt_id);
    counted_hold(&rq->session->counted);
    list_add_tail(&rq->session->pops, &p->by_session);
    return p;
}

static void park(struct door *door, struct request *rq, const struct pop *pop,
                 struct filter **filter, uint64_t until_ns, bool tells)
{
    struct parked_pop *p = parked_make(rq, pop, filter);
    if (!p) {
        struct return_address to = return_address_of(rq);
        answer_nothing(door, &to, pop, tells, ERR_BUSY);
        return;
    }
    p->until_ns = until_ns;
    p->hold.only_tells = tells;
    enum err err = broker_pop_hold(door->broker, &p->pop, &p->hold, until_ns);
    if (!err)
        return;
    if (err == ERR_STALE) { /* it came while we were looking */
        parked_look(p);
        return;
    }
    answer_nothing(door, &p->to, &p->pop, tells, err);
    parked_free(p);
}

void pops_session_closed(struct session *session)
{
    list_each(k, &session->pops) {
        struct parked_pop *p = list_entry(k, struct parked_pop, by_session);
        if (broker_unhold(session->door->broker, &p->hold))
            parked_free(p);
        else
            list_remove(&p->by_session); /* its wake is on the way here and will free it */
    }
}

/* ---- handlers ---- */

static struct pop pop_of(const struct pop_fields *f)
{
    return (struct pop){
        .group = f->group,
        .topic = f->topic,
        .queue_id = f->queue_id,
        .max_count = f->max_count > 0 ? (uint32_t)f->max_count : 0,
        .invisible_ms = f->invisible_ms,
        .from_max = f->init_mode == 1,
        .ordered = f->order,
        .attempt_id = f->attempt_id,
        .has_expression = f->expression.len > 0,
        .expression = f->expression,
        .expression_type = f->expression_type,
    };
}

void pop_message(struct door *door, struct request *rq)
{
    struct pop_fields f = {0};
    if (!request_fields(rq, &pop_message_table, &f))
        return;
    uint64_t until_ns;
    int64_t left_ms = broker_pop_patience(door->broker, f.born_ms, f.poll_ms, &until_ns);
    if (left_ms < -TOO_LATE_MS) {
        answer(rq, RES_POLLING_TIMEOUT, "the pop message is timeout too much");
        return;
    }
    struct pop pop = pop_of(&f);
    struct return_address to = return_address_of(rq);
    struct filter *filter = NULL;
    if (!pop_try(door, &to, &pop, &filter)) {
        if (f.poll_ms > 0 && left_ms > 0 && !to.oneway)
            park(door, rq, &pop, &filter, until_ns, false);
        else
            answer_nothing(door, &to, &pop, false, ERR_TIMEOUT);
    }
    filter_drop(filter);
}

void pop_notification(struct door *door, struct request *rq)
{
    struct pop_fields f = {0};
    if (!request_fields(rq, &notification_table, &f))
        return;
    struct pop pop = pop_of(&f);
    struct fault why = {0};
    bool found;
    uint32_t waiting;
    enum err err = broker_pop_look(door->broker, &pop, &found, &waiting, &why);
    struct return_address to = return_address_of(rq);
    uint64_t until_ns;
    struct filter *filter = NULL;
    int64_t left_ms = broker_pop_patience(door->broker, f.born_ms, f.poll_ms, &until_ns);
    if (err)
        answer_fault(rq, err, &why);
    else if (found || f.poll_ms <= 0 || left_ms <= 0 || to.oneway)
        answer_told(&to, found, false);
    else
        park(door, rq, &pop, &filter, until_ns, true);
}

void polling_info(struct door *door, struct request *rq)
{
    struct pop_fields f = {0};
    if (!request_fields(rq, &polling_info_table, &f))
        return;
    struct pop pop = pop_of(&f);
    struct fault why = {0};
    bool found;
    uint32_t waiting;
    enum err err = broker_pop_look(door->broker, &pop, &found, &waiting, &why);
    if (err) {
        answer_fault(rq, err, &why);
        return;
    }
    struct return_address to = return_address_of(rq);
    struct reply r;
    if (!reply_begin(&r, &to, RES_SUCCESS, (struct bytes){0}, 0))
        return;
    frame_put_int(&r.frame, BYTES("pollingNum"), waiting);
    reply_end(&r, 0);
}

void peek_message(struct door *door, struct request *rq)
{
    struct pop_fields f = {0};
    if (!request_fields(rq, &peek_message_table, &f))
        return;
    struct pop pop = pop_of(&f);
    pop.peeks = true;
    struct mark_desk *desk = seat_marks(rq->session->seat);
    struct return_address to = return_address_of(rq);
    struct popped got;
    struct fault why = {0};
    enum err err = desk ? broker_pop(door->broker, desk, &pop, &got, &why) : ERR_NO_MEMORY;
    if (err) {
        answer_refused(&to, err, &why);
        return;
    }
    answer_popped(door, &to, &pop, &got, got.n > 0 ? RES_SUCCESS : RES_PULL_NOT_FOUND);
    filter_drop(got.filter);
}
