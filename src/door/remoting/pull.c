/* pull.c - PULL_MESSAGE: answered at once, or parked until something arrives.
 *
 * A parked pull is a copy of the request with the broker's hold in it. It is owned by this door
 * until its `wake` has been called; then it travels to its home loop as a post, is read once more,
 * answered and freed. If nothing of what arrived passes its filter, nobody is answered: it waits on
 * behind what it has seen, until its time is up. A session that closes takes back those that still
 * wait; one whose wake is already under way finds the connection gone when it arrives. */
#include "door/remoting/door_int.h"

#include <stdlib.h>

#define SUSPEND_MAX_MS (5 * 60 * 1000)
#define LOOKS          8 /* reads for one waking, beside the first */

/* How many pulls wait is limited by the broker (maxWaitingPulls), but an expression may be as long
 * as a frame. Texts up to TEXTS_SHORT are taken as part of a pull; longer ones share TEXTS_LONG_MAX
 * bytes, and a pull that finds no room there is answered as if too many were waiting. */
#define TEXTS_SHORT    1024
#define TEXTS_LONG_MAX (64u << 20)

#define PULL_BODY_MAX (FRAME_MAX - 4096) /* the rest is for the header */

struct parked {
    struct hold hold;
    struct post post;
    struct link by_session;   /* in session->parked */
    struct return_address to; /* holds a count of the session */
    struct pull pull;         /* its texts follow the struct */
    size_t n_texts;
    uint8_t texts[];
};

static const struct {
    int32_t code;
    const char *name; /* the remark: Java shows it, Apache's own clients compare it */
} statuses[] = {
    [READ_FOUND] = {RES_SUCCESS, "FOUND"},
    [READ_NONE_MATCHED] = {RES_PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"},
    [READ_AT_END] = {RES_PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE"},
    [READ_TOO_SMALL] = {RES_PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL"},
    [READ_TOO_LARGE] = {RES_PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY"},
    [READ_EMPTY] = {RES_PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE"},
    [READ_GONE] = {RES_PULL_RETRY_IMMEDIATELY, "MESSAGE_WAS_REMOVING"},
};

static int32_t code_of(const struct pull *pull, const struct pulled *got)
{
    if (got->reset)
        return RES_PULL_OFFSET_MOVED;
    if (got->read.status == READ_EMPTY && pull->offset != 0)
        return RES_PULL_OFFSET_MOVED;
    return statuses[got->read.status].code;
}

static void answer_refused(const struct return_address *to, enum err err, const struct fault *why)
{
    int32_t code = err == ERR_MALFORMED   ? RES_SUBSCRIPTION_PARSE_FAILED
                   : err == ERR_NOT_FOUND ? RES_FILTER_DATA_NOT_EXIST
                                          : response_code_of(err);
    struct reply r;
    if (reply_begin(&r, to, code, bytes_str(fault_remark(err, why)), 0))
        reply_end(&r, 0);
}

static void slices_drop(const struct read_result *read)
{
    for (size_t i = 0; read->status == READ_FOUND && i < read->n_slices; i++)
        counted_drop(read->slices[i].owner);
}

/* Such a message is never accepted here, but a folder that another broker wrote may have one. */
static void answer_too_big(const struct return_address *to, const struct pull *pull)
{
    struct fault why;
    enum err err = fault_set(&why, ERR_UNSUPPORTED,
                             "the message at or after offset %lld is too big for a frame",
                             (long long)pull->offset);
    answer_refused(to, err, &why);
}

/* Gives the slices away: to the connection, or back. */
static void answer_pulled(const struct return_address *to, const struct pull *pull,
                          struct pulled *got)
{
    const struct read_result *read = &got->read;
    size_t n = read->status == READ_FOUND ? read->n_slices : 0;
    if (n > 0 && read->size > PULL_BODY_MAX) {
        slices_drop(read);
        answer_too_big(to, pull);
        return;
    }
    struct reply r;
    const char *remark = got->reset ? "OFFSET_RESET" : statuses[read->status].name;
    if (!reply_begin(&r, to, code_of(pull, got), bytes_str(remark), 0)) {
        slices_drop(read);
        return;
    }
    frame_put_int(&r.frame, BYTES("suggestWhichBrokerId"), 0);
    frame_put_int(&r.frame, BYTES("nextBeginOffset"), read->next);
    frame_put_int(&r.frame, BYTES("minOffset"), read->min);
    frame_put_int(&r.frame, BYTES("maxOffset"), read->max);
    frame_put_int(&r.frame, BYTES("topicSysFlag"), got->topic_sys_flag);
    frame_put_int(&r.frame, BYTES("groupSysFlag"), got->group_sys_flag);
    reply_end(&r, n ? read->size : 0);
    if (to->session->door->chaos && n > 0)
        chaos_given(to->session->door->chaos, to->session->seat, pull, read);
    for (size_t i = 0; i < n; i++)
        conn_write_slice(r.conn, read->slices[i].bytes, read->slices[i].owner);
}

/* Home loop, like all that is done with one. */
static void parked_free(struct parked *p)
{
    struct seat *seat = p->to.session->seat;
    list_remove(&p->by_session);
    filter_drop(p->hold.filter);
    parked_texts_give(p->to.session->door, p->n_texts);
    counted_drop(&p->to.session->counted);
    spares_give(&seat->spares, p);
}

/* None of what came is for this reader: it goes on behind it. As broker_hold_again. */
static enum err parked_again(struct parked *p, struct pulled *got)
{
    filter_drop(p->hold.filter);
    p->hold.filter = take(&got->filter); /* its group may have another one by now */
    p->hold.offset = p->pull.offset = got->read.next;
    return broker_hold_again(p->to.session->door->broker, &p->hold);
}

/* Something is there, or time is up. Ends with an answer, or with the pull waiting again. While
 * more comes than can be looked at in LOOKS reads, the client is told to ask again: that is fair to
 * the others of this loop. */
static void parked_look(struct parked *p)
{
    struct broker *broker = p->to.session->door->broker;
    struct pulled got;
    struct fault why = {0};
    enum err err;
    p->pull.commit = false; /* that was done the first time */
    for (int i = 0; !(err = broker_pull(broker, &p->pull, &got, &why)); i++) {
        if (got.read.status != READ_NONE_MATCHED || i == LOOKS)
            break;
        enum err waits = parked_again(p, &got);
        if (!waits)
            return;
        if (waits != ERR_STALE)
            break;
    }
    if (err) {
        answer_refused(&p->to, err, &why);
    } else {
        answer_pulled(&p->to, &p->pull, &got);
        filter_drop(got.filter);
    }
    parked_free(p);
}

static void parked_woken(struct post *post)
{
    struct parked *p = list_entry(post, struct parked, post);
    if (p->to.session->conn)
        parked_look(p);
    else
        parked_free(p);
}

static void parked_wake(struct hold *hold)
{
    struct parked *p = list_entry(hold, struct parked, hold);
    loop_post(p->to.session->home, &p->post);
}

bool parked_texts_take(struct door *door, size_t n)
{
    if (n <= TEXTS_SHORT)
        return true;
    if (atomic_fetch_add(&door->parked_long, n) + n <= TEXTS_LONG_MAX)
        return true;
    atomic_fetch_sub(&door->parked_long, n);
    return false;
}

void parked_texts_give(struct door *door, size_t n)
{
    if (n > TEXTS_SHORT)
        atomic_fetch_sub(&door->parked_long, n);
}

/* NULL: no memory, or no room for its texts. */
static struct parked *parked_make(const struct request *rq, const struct pull *pull,
                                  struct pulled *got)
{
    struct door *door = rq->session->door;
    size_t texts =
        pull->group.len + pull->topic.len + pull->expression.len + pull->expression_type.len;
    if (!parked_texts_take(door, texts))
        return NULL;
    struct parked *p = spares_take(&rq->session->seat->spares, sizeof *p + texts);
    if (!p) {
        parked_texts_give(door, texts);
        return NULL;
    }
    *p = (struct parked){
        .hold = {.queue = got->queue,
                 .offset = pull->offset,
                 .filter = take(&got->filter),
                 .wake = parked_wake},
        .post.run = parked_woken,
        .to = return_address_of(rq),
        .pull = *pull,
        .n_texts = texts,
    };
    uint8_t *room = p->texts;
    p->pull.group = keep_text(&room, pull->group);
    p->pull.topic = keep_text(&room, pull->topic);
    p->pull.expression = keep_text(&room, pull->expression);
    p->pull.expression_type = keep_text(&room, pull->expression_type);
    counted_hold(&rq->session->counted);
    list_add_tail(&rq->session->parked, &p->by_session);
    return p;
}

/* Nothing is there yet and the client is ready to wait for it. */
static void park(struct door *door, struct request *rq, const struct pull *pull, struct pulled *got,
                 int64_t wait_ms)
{
    struct parked *p = parked_make(rq, pull, got);
    enum err err = p ? broker_hold(door->broker, &p->hold, (uint64_t)wait_ms) : ERR_NO_MEMORY;
    if (!err)
        return;
    if (p && err == ERR_STALE) { /* it came while we were looking */
        parked_look(p);
        return;
    }
    /* Too many wait already: this one is told that there is nothing, and will ask again. */
    struct return_address to = return_address_of(rq);
    answer_pulled(&to, pull, got);
    if (p)
        parked_free(p);
}

void pull_message(struct door *door, struct request *rq)
{
    struct pull_fields f = {0};
    if (!request_fields(rq, &pull_fields_table, &f))
        return;
    struct pull pull = {
        .group = f.group,
        .topic = f.topic,
        .queue_id = f.queue_id,
        .offset = f.offset,
        .max_count = f.max_count > 0 ? (uint32_t)f.max_count : 1,
        .session = &rq->session->counted,
        .commit = f.sys_flag & PULL_COMMIT,
        .commit_offset = f.commit_offset,
        .has_expression = f.sys_flag & PULL_SUBSCRIPTION,
        .expression = f.subscription,
        .expression_type = f.expression_type,
        .sub_version = f.sub_version,
    };
    struct return_address to = return_address_of(rq);
    struct pulled got;
    struct fault why = {0};
    enum err err = broker_pull(door->broker, &pull, &got, &why);
    if (err) {
        answer_refused(&to, err, &why);
        return;
    }
    int64_t wait_ms = f.suspend_ms < SUSPEND_MAX_MS ? f.suspend_ms : SUSPEND_MAX_MS;
    bool may_wait = f.sys_flag & PULL_SUSPEND && wait_ms > 0 && !to.oneway;
    if (may_wait && code_of(&pull, &got) == RES_PULL_NOT_FOUND)
        park(door, rq, &pull, &got, wait_ms);
    else
        answer_pulled(&to, &pull, &got);
    filter_drop(got.filter);
}

void parked_session_closed(struct session *session)
{
    list_each(k, &session->parked) {
        struct parked *p = list_entry(k, struct parked, by_session);
        if (broker_unhold(session->door->broker, &p->hold))
            parked_free(p);
        else
            list_remove(&p->by_session); /* its wake is on the way here and will free it */
    }
}
