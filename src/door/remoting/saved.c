/* saved.c - answers that wait until what an operator has changed is on the disk.
 *
 * A change counts at once, but a crash right after the answer must not undo it. The loop does not
 * wait for the disk: the answer is put aside, whoever saves tables says when it has, and the answer
 * comes back to its home loop as a post. */
#include "door/remoting/door_int.h"

#include <stdio.h>
#include <stdlib.h>

#define SAVES_MAX 10000

struct saved {
    struct saved_wait wait;
    struct post post;
    struct return_address to; /* the session is counted while it waits */
    struct conn *conn;        /* held, so that a stopping house gives the answer first */
    struct buf body;
    enum err err;
    struct fault why;
};

/* Home loop. */
static void saved_over(struct post *post)
{
    struct saved *s = list_entry(post, struct saved, post);
    struct reply r;
    atomic_fetch_sub_explicit(&s->to.session->door->saves_waiting, 1, memory_order_relaxed);
    char remark[sizeof s->why.text + 128];
    (void)snprintf(remark, sizeof remark,
                   "the change counts, but a crash would undo it: it is not saved (%s); saving is "
                   "tried again",
                   s->why.text[0] ? s->why.text : err_text(s->err));
    if (s->err && reply_begin(&r, &s->to, RES_SYSTEM_ERROR, bytes_str(remark), 0))
        reply_end(&r, 0);
    else if (!s->err && reply_begin(&r, &s->to, RES_SUCCESS, (struct bytes){0}, 0))
        reply_end_body(&r, buf_bytes(&s->body));
    conn_drop(s->conn);
    counted_drop(&s->to.session->counted);
    buf_clear(&s->body);
    free(s);
}

/* Any thread. */
static void saved_done(struct saved_wait *wait, enum err err, const struct fault *why)
{
    struct saved *s = list_entry(wait, struct saved, wait);
    s->err = err;
    if (why)
        s->why = *why;
    loop_post(s->to.session->home, &s->post);
}

void answer_saved(const struct request *rq, struct buf *body)
{
    const struct door_options *o = &rq->session->door->options;
    struct buf none = buf_upto(1);
    body = body ? body : &none;
    if (!o->await_saved || body->err) {
        answer_buf(rq, body);
        return;
    }
    _Atomic size_t *waiting = &rq->session->door->saves_waiting;
    bool many = atomic_load_explicit(waiting, memory_order_relaxed) >= SAVES_MAX;
    struct saved *s = many ? NULL : calloc(1, sizeof *s);
    if (!s) {
        buf_clear(body);
        answer(rq, RES_SYSTEM_BUSY,
               "the change counts, but too many wait to hear that theirs is saved");
        return;
    }
    atomic_fetch_add_explicit(waiting, 1, memory_order_relaxed);
    s->wait.done = saved_done;
    s->post = (struct post){.run = saved_over};
    s->to = return_address_of(rq);
    s->conn = s->to.session->conn;
    s->body = *body;
    *body = (struct buf){0};
    counted_hold(&s->to.session->counted);
    conn_hold(s->conn);
    o->await_saved(o->user, &s->wait);
}
