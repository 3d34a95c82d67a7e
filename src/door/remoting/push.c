/* push.c - what the broker has to say to a client on its own account.
 *
 * Services call this from any thread; the words travel to the session's loop and leave there, if
 * the connection still exists. */
#include "base/json.h"
#include "base/map.h"
#include "door/remoting/door_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* One member can make the broker tell all the others again and again. A client that is behind with
 * reading, or has this many notices on the way, does without the next one: it looks for itself
 * every 20 s. One that has not yet been told of the last change of a group need not be told of the
 * next: it will find both when it looks. So a thousand clients that come at once make far fewer
 * than a million notices. */
#define NOTICES_MAX 256

/* Words on their way, in one allocation with their texts. */
struct notice {
    struct post post;
    struct session *session;
    uint64_t hash; /* of the group whose members have changed; 0: it is about something else */
    struct words words;
    struct field fields[];
};

bool session_say(struct session *session, const struct words *words, int32_t opaque)
{
    size_t size = 1024;
    for (size_t i = 0; i < words->n_fields; i++)
        size += 16 + 6 * (words->fields[i].name.len + words->fields[i].value.len);
    struct conn *conn = session->conn;
    bool wanted = conn && conn_is_open(conn) && !conn_congested(conn);
    uint8_t *space = wanted ? conn_space(conn, size) : NULL;
    if (!space)
        return false;
    struct wr w = wr_over(space, size);
    struct frame_out f;
    frame_begin(&f, &w, HEAD_JSON,
                &(struct head_start){.code = words->code, .opaque = opaque, .flag = words->flag});
    for (size_t i = 0; i < words->n_fields; i++)
        frame_put(&f, words->fields[i].name, words->fields[i].value);
    frame_end_head(&f, words->body.len);
    invariant(!w.full);
    conn_used(conn, wr_len(&w));
    conn_write(conn, words->body);
    return true;
}

static void notice_arrived(struct post *post)
{
    struct notice *n = list_entry(post, struct notice, post);
    struct session *session = n->session;
    uint64_t mine = n->hash;
    /* Before it is written: who changes the group from now on has to tell again. */
    if (mine)
        atomic_compare_exchange_strong(&session->notice_group, &mine, 0);
    (void)session_say(session, &n->words, atomic_fetch_add(&session->door->next_opaque, 1));
    atomic_fetch_sub(&session->notices, 1);
    counted_drop(&session->counted);
    free(n);
}

/* The names of the fields are literals. */
static struct notice *notice_make(const struct words *words)
{
    size_t texts = words->body.len, fields = words->n_fields * sizeof *words->fields;
    for (size_t i = 0; i < words->n_fields; i++)
        texts += words->fields[i].value.len;
    struct notice *n = malloc(sizeof *n + fields + texts);
    if (!n)
        return NULL;
    uint8_t *room = (uint8_t *)n->fields + fields;
    n->words = *words;
    n->words.fields = n->fields;
    for (size_t i = 0; i < words->n_fields; i++) {
        n->fields[i].name = words->fields[i].name;
        n->fields[i].value = keep_text(&room, words->fields[i].value);
    }
    n->words.body = keep_text(&room, words->body);
    return n;
}

/* Any thread. */
static bool tell(struct session *session, const struct words *words, uint64_t hash)
{
    if (atomic_load(&session->door->closing))
        return false;
    struct notice *n = NULL;
    if (atomic_fetch_add(&session->notices, 1) < NOTICES_MAX)
        n = notice_make(words);
    if (!n) {
        atomic_fetch_sub(&session->notices, 1);
        return false;
    }
    n->post = (struct post){.run = notice_arrived};
    n->session = session;
    n->hash = hash;
    counted_hold(&session->counted);
    if (hash)
        atomic_store(&session->notice_group, hash);
    loop_post(session->home, &n->post);
    return true;
}

bool session_tell(struct session *session, const struct words *words)
{
    return tell(session, words, 0);
}

void door_group_changed(struct counted *counted, struct bytes group)
{
    struct session *session = (struct session *)counted;
    uint64_t hash = bytes_hash(group, 0) | 1;
    if (atomic_load(&session->notice_group) == hash)
        return; /* it is on the way, and its reader will look after that */
    struct field field = {BYTES("consumerGroup"), group};
    struct words words = {
        .code = REQ_NOTIFY_CONSUMER_IDS_CHANGED,
        .flag = FLAG_ONEWAY,
        .fields = &field,
        .n_fields = 1,
    };
    (void)tell(session, &words, hash);
}

void reset_write(const struct door *door, const struct offsets_reset *reset, struct buf *out)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_key(&w, "offsetTable");
    json_open(&w);
    for (size_t i = 0; i < reset->n; i++) {
        queue_name_write(&w,
                         &(struct queue_name){reset->topic, bytes_str(door->options.broker_name),
                                              reset->places[i].queue_id});
        json_key_object(&w);
        json_put_int(&w, reset->places[i].offset);
    }
    json_close(&w);
    json_close(&w);
}

void door_offsets_reset(struct counted *counted, const struct offsets_reset *reset)
{
    struct session *session = (struct session *)counted;
    struct buf body = buf_upto(BODY_MAX);
    reset_write(session->door, reset, &body);
    char timestamp[24];
    (void)snprintf(timestamp, sizeof timestamp, "%" PRId64, reset->timestamp_ms);
    struct field fields[] = {
        {BYTES("topic"), reset->topic},
        {BYTES("group"), reset->group},
        {BYTES("timestamp"), bytes_str(timestamp)},
        {BYTES("isForce"), reset->force ? BYTES("true") : BYTES("false")},
    };
    struct words words = {
        .code = REQ_RESET_CONSUMER_CLIENT_OFFSET,
        .flag = FLAG_ONEWAY,
        .fields = fields,
        .n_fields = sizeof fields / sizeof *fields,
        .body = buf_bytes(&body),
    };
    if (!body.err)
        (void)tell(session, &words, 0);
    buf_clear(&body);
}

struct farewell {
    struct post post;
    struct session *session;
    const char *reason;
};

static void farewell_arrived(struct post *post)
{
    struct farewell *f = list_entry(post, struct farewell, post);
    if (f->session->conn)
        conn_close(f->session->conn, f->reason);
    counted_drop(&f->session->counted);
    free(f);
}

void session_end(struct counted *counted, const char *reason)
{
    bool closing = atomic_load(&((struct session *)counted)->door->closing);
    struct farewell *f = closing ? NULL : malloc(sizeof *f);
    if (!f)
        return;
    f->post = (struct post){.run = farewell_arrived};
    f->session = (struct session *)counted;
    f->reason = reason;
    counted_hold(counted);
    loop_post(f->session->home, &f->post);
}

/* Without memory it stays open: it is in no group any more, which is what matters. */
void door_session_expired(struct counted *counted)
{
    session_end(counted, "its client was silent too long");
}
