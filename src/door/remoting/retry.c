/* retry.c - CONSUMER_SEND_MSG_BACK: a consumer gives a message back.
 *
 * The consumer forgets the message when it reads the answer, so the answer waits until the copy is
 * confirmed, like that of a send: as a post to the home loop, which goes on meanwhile. Those that
 * wait count among the sends that wait for the disk, of which there may not be too many. */
#include "door/remoting/door_int.h"

#include <stdlib.h>

#define VERSION_3_4_9 121 /* from here on clients mean what they say in maxReconsumeTimes */

/* An answer that waits for the disk. */
struct back_wait {
    struct store_wait wait;
    struct post post;
    struct door *door;
    struct return_address to; /* the session is counted */
    struct conn *conn;        /* held, so that a stopping house gives the answer first */
    enum err err;
};

bool names_max_reconsume(const struct request *rq, int32_t max_reconsume_times)
{
    return rq->head->version >= VERSION_3_4_9 && max_reconsume_times != NO_MAX_RECONSUME;
}

/* Every other failure is a plain error here: on it the client sends the message itself. */
static int32_t back_code_of(enum err err)
{
    if (err == ERR_UNKNOWN_GROUP || err == ERR_DENIED || err == ERR_BUSY)
        return response_code_of(err);
    return err ? RES_SYSTEM_ERROR : RES_SUCCESS;
}

static void give(const struct return_address *to, enum err err)
{
    struct reply r;
    if (reply_begin(&r, to, back_code_of(err), bytes_str(err ? err_text(err) : NULL), 0))
        reply_end(&r, 0);
}

/* Home loop. */
static void wait_over(struct post *post)
{
    struct back_wait *w = list_entry(post, struct back_wait, post);
    atomic_fetch_sub_explicit(&w->door->sends_waiting, 1, memory_order_relaxed);
    if (w->err)
        log_limited(w->door->log, &w->door->not_stored, LOG_ERROR,
                    "message given back is not confirmed reason=\"%s\"", err_text(w->err));
    give(&w->to, w->err);
    conn_drop(w->conn);
    counted_drop(&w->to.session->counted);
    free(w);
}

static void wait_done(struct store_wait *wait, enum err err)
{
    struct back_wait *w = list_entry(wait, struct back_wait, wait);
    w->err = err;
    loop_post(w->to.session->home, &w->post);
}

static void give_when_confirmed(struct door *door, const struct request *rq, uint64_t position)
{
    struct return_address to = return_address_of(rq);
    if (store_confirmed(door->options.store) >= position) {
        give(&to, OK);
        return;
    }
    struct back_wait *w = calloc(1, sizeof *w);
    if (!w) { /* stored, but the consumer must not rely on it */
        give(&to, ERR_NO_MEMORY);
        return;
    }
    *w = (struct back_wait){
        .wait = {.position = position, .done = wait_done},
        .post.run = wait_over,
        .door = door,
        .to = to,
        .conn = to.session->conn,
    };
    counted_hold(&to.session->counted);
    conn_hold(w->conn);
    atomic_fetch_add_explicit(&door->sends_waiting, 1, memory_order_relaxed);
    if (store_await(door->options.store, &w->wait))
        wait_over(&w->post);
}

void send_back(struct door *door, struct request *rq)
{
    struct send_back_fields f = {.max_reconsume_times = NO_MAX_RECONSUME};
    if (!request_fields(rq, &send_back_table, &f))
        return;
    struct send_back back = {
        .group = f.group,
        .position = f.position,
        .delay_level = f.delay_level,
        .max_reconsume_times = f.max_reconsume_times,
        .has_max_reconsume_times = names_max_reconsume(rq, f.max_reconsume_times),
    };
    uint64_t end = 0;
    struct fault why = {0};
    struct sends *sends = rq->session->seat->sends;
    enum err err = store_keeps_up(door, sends, &why)
                       ? broker_send_back(door->broker, sends_desk(sends), &back, &end, &why)
                       : ERR_BUSY;
    if (err) {
        answer(rq, back_code_of(err), fault_remark(err, &why));
        return;
    }
    give_when_confirmed(door, rq, end);
    broker_dispatch_turn(door->broker);
}
