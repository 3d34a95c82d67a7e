/* push.c - what the broker has to say to a client on its own account.
 *
 * Services call this from any thread; the words travel to the session's loop and leave there, if
 * the connection still exists. */
#include "base/map.h"
#include "door/remoting/door_int.h"

#include <stdlib.h>

/* One member can make the broker tell all the others again and again. A client that is behind with
 * reading, or has this many notices on the way, does without the next one: it looks for itself
 * every 20 s. One that has not yet been told of the last change of a group need not be told of the
 * next: it will find both when it looks. So a thousand clients that come at once make far fewer
 * than a million notices. */
#define NOTICES_MAX 256

struct notice {
    struct post post;
    struct session *session;
    uint64_t hash; /* of the group */
    size_t group_len;
    char group[];
};

static void notice_arrived(struct post *post)
{
    struct notice *n = list_entry(post, struct notice, post);
    struct session *session = n->session;
    uint64_t mine = n->hash;
    /* Before it is written: who changes the group from now on has to tell again. */
    atomic_compare_exchange_strong(&session->notice_group, &mine, 0);
    size_t size = 512 + 6 * n->group_len;
    struct conn *conn = session->conn;
    bool wanted = conn && conn_is_open(conn) && !conn_congested(conn);
    uint8_t *space = wanted ? conn_space(conn, size) : NULL;
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
        conn_used(conn, wr_len(&w));
    }
    atomic_fetch_sub(&session->notices, 1);
    counted_drop(&session->counted);
    free(n);
}

void door_group_changed(struct counted *counted, struct bytes group)
{
    struct session *session = (struct session *)counted;
    uint64_t hash = bytes_hash(group, 0) | 1;
    if (atomic_load(&session->notice_group) == hash)
        return; /* it is on the way, and its reader will look after that */
    struct notice *n = NULL;
    if (atomic_fetch_add(&session->notices, 1) < NOTICES_MAX)
        n = malloc(sizeof *n + group.len);
    if (!n) {
        atomic_fetch_sub(&session->notices, 1);
        return;
    }
    n->post = (struct post){.run = notice_arrived};
    n->session = session;
    n->hash = hash;
    n->group_len = group.len;
    memcpy(n->group, group.at, group.len);
    counted_hold(counted);
    atomic_store(&session->notice_group, hash);
    loop_post(n->session->home, &n->post);
}

struct farewell {
    struct post post;
    struct session *session;
};

static void farewell_arrived(struct post *post)
{
    struct farewell *f = list_entry(post, struct farewell, post);
    if (f->session->conn)
        conn_close(f->session->conn, "its client was silent too long");
    counted_drop(&f->session->counted);
    free(f);
}

void door_session_expired(struct counted *counted)
{
    struct farewell *f = malloc(sizeof *f);
    if (!f)
        return; /* it is in no group any more, which is what matters */
    f->post = (struct post){.run = farewell_arrived};
    f->session = (struct session *)counted;
    counted_hold(counted);
    loop_post(f->session->home, &f->post);
}
