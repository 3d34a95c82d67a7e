/* push.c - what the broker has to say to a client on its own account.
 *
 * Services call this from any thread; the words travel to the session's loop and leave there, if
 * the connection still exists. */
#include "door/remoting/door_int.h"

#include <stdlib.h>

struct notice {
    struct post post;
    struct session *session;
    size_t group_len;
    char group[];
};

static void notice_arrived(struct post *post)
{
    struct notice *n = list_entry(post, struct notice, post);
    struct session *session = n->session;
    size_t size = 512 + 6 * n->group_len;
    uint8_t *space =
        session->conn && conn_is_open(session->conn) ? conn_space(session->conn, size) : NULL;
    if (space) {
        struct wr w = wr_over(space, size);
        struct frame_out f;
        frame_begin(&f, &w, HEAD_JSON,
                    &(struct head_start){
                        .code = REQ_NOTIFY_CONSUMER_IDS_CHANGED,
                        .opaque = atomic_fetch_add(&session->door->next_opaque, 1),
                        .flag = FLAG_ONEWAY,
                    });
        frame_put(&f, BYTES("consumerGroup"), bytes_of(n->group, n->group_len));
        frame_end_head(&f, 0);
        invariant(!w.full);
        conn_used(session->conn, wr_len(&w));
    }
    counted_drop(&session->counted);
    free(n);
}

void door_group_changed(struct counted *counted, struct bytes group)
{
    struct notice *n = malloc(sizeof *n + group.len);
    if (!n)
        return; /* the client's own timer rebalances within 20 s */
    n->post = (struct post){.run = notice_arrived};
    n->session = (struct session *)counted;
    n->group_len = group.len;
    memcpy(n->group, group.at, group.len);
    counted_hold(counted);
    loop_post(n->session->home, &n->post);
}
