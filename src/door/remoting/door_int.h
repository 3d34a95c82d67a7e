/* door_int.h - what the handlers of this folder share. */
#ifndef DOOR_REMOTING_DOOR_INT_H
#define DOOR_REMOTING_DOOR_INT_H

#include "base/arena.h"
#include "base/json.h"
#include "base/spares.h"
#include "door/remoting/door.h"
#include "remoting/bodies.h"
#include "remoting/codes.h"
#include "remoting/fields.h"
#include "remoting/remoting.h"

#define REQUEST_MEMORY_MAX                                                                         \
    (48u << 20) /* one read's decoded requests: a whole frame, unpacked twice */
#define SPARES_KEPT_MAX (256u << 10) /* bytes, by each seat */
#define BODY_MAX        (FRAME_MAX - (1u << 20))

struct seat;
struct chaos;

struct door_context {
    struct door *door;
    enum door_side side;
};

struct door {
    struct door_options options;
    struct names *names;
    struct broker *broker;
    struct log *log;
    struct chaos *chaos; /* faults on purpose, chaos_int.h; NULL: none, and so it is but in tests */
    struct door_context contexts[DOOR_SIDES];
    struct seat **seats;
    size_t n_seats;
    _Atomic int32_t next_opaque;  /* of requests that we send */
    _Atomic size_t parked_long;   /* bytes of long texts that waiting pulls keep */
    _Atomic size_t sends_waiting; /* for the disk */
    _Atomic size_t ask_bytes;     /* of questions to clients that wait */
    _Atomic size_t saves_waiting; /* changes that an operator made and that are not saved yet */
    atomic_bool closing;          /* door_stop was called */
    struct log_limit bad_input, not_stored, busy, ends_refused;
};

struct request;
typedef void handler(struct door *door, struct request *rq);

/* A connection and what the protocol knows about it. Counted, because services on other threads
 * keep it in their tables; the connection in it is touched on the home loop only. */
struct session {
    struct counted counted; /* first */
    struct door *door;
    enum door_side side;
    struct seat *seat;
    struct loop *home;
    struct conn *conn;   /* NULL once closed */
    int32_t code;        /* of its last request; 0: none yet … */
    handler *fn;         /* … and its handler, or NULL */
    struct list parked;  /* pulls of this session that wait */
    struct list pops;    /* pops, too */
    struct list present; /* requests that say that an instance is there */
    size_t n_present;
    struct list asked; /* questions to it that wait for its answer */
    size_t n_asked;
    atomic_uint notices;           /* on the way to its loop; any thread */
    _Atomic uint64_t notice_group; /* hash of the group of the latest of them; 0: it has arrived */
    /* Of a daemon for tests. */
    uint64_t chaos_plan;    /* the latest plan that it has taken part in */
    size_t chaos_at;        /* its place among those who do, from 1; room: chaos */
    unsigned chaos_waiting; /* requests that were held up … */
    uint64_t chaos_due_ns;  /* … the last of them until then */
};

/* One without a connection, for whoever is in the broker's tables and nowhere else; NULL: no
 * memory.
 */
struct session *session_without(struct door *door, struct seat *seat);
/* A whole frame that has come before is looked at now. Home loop, between two reads. */
void session_again(struct session *session, struct bytes whole);
/* Closes its connection. Any thread; `reason` is a literal. */
void session_end(struct counted *session, const char *reason);

/* One request, alive until its handler returns. */
struct request {
    struct session *session;
    const struct head *head;
    struct bytes body;
    struct arena *arena;
};

/* Which handler a code has on a side; NULL: none. */
handler *table_find(enum door_side side, int32_t code);

/* ---- answers; all of them do nothing for a one-way request ---- */

/* Where an answer goes: enough to give it later, on the home loop, if the connection is still
 * there. */
struct return_address {
    struct session *session;
    int32_t opaque;
    enum head_form form;
    bool oneway;
};
struct return_address return_address_of(const struct request *rq);

struct reply {
    struct frame_out frame; /* add fields with frame_put… */
    struct wr w;
    struct conn *conn;
};

/* Starts an answer with fields; `room` is an upper bound for the text of all fields that may be
 * long. False: nobody wants it (one way, or the connection is gone). */
bool reply_begin(struct reply *r, const struct return_address *to, int32_t code,
                 struct bytes remark, size_t room);
/* Ends the head; the caller queues `body_size` bytes behind it at once. */
void reply_end(struct reply *r, size_t body_size);
void reply_end_body(struct reply *r, struct bytes body);
/* A whole answer by its stamp; `room` bounds the text of its values. False: as frame_stamp_write.
 */
must_check bool reply_stamp(const struct return_address *to, const struct frame_stamp *stamp,
                            const struct stamp_value *values, size_t room);

void answer(const struct request *rq, int32_t code, const char *remark /* or NULL */);
void answer_body(const struct request *rq, struct bytes body); /* SUCCESS */
void answer_buf(const struct request *rq, struct buf *body); /* the same, or its failure; clears */
/* SUCCESS with this body (NULL: none), once what was changed is on the disk; saved.c. Clears it. */
void answer_saved(const struct request *rq, struct buf *body);
/* The protocol's code for a failure below the door, with its sentence as remark. */
void answer_fault(const struct request *rq, enum err err, const struct fault *why);
int32_t response_code_of(enum err err);
/* Reads the fields of a request; answers and returns false when one is missing or bad. */
bool request_fields(const struct request *rq, const struct field_table *table, void *out);
/* The remark of a failure; never empty. */
const char *fault_remark(enum err err, const struct fault *why);

/* Copies text behind a struct that outlives its request; moves `*room` on. */
static inline struct bytes keep_text(uint8_t **room, struct bytes text)
{
    struct bytes kept = {*room, text.len};
    if (text.len)
        memcpy(*room, text.at, text.len);
    *room += text.len;
    return kept;
}

/* ---- seats ---- */

struct ends;
struct sends;
struct acks;
struct chaos_line;
struct ledger_asks;

struct seat {
    struct loop *loop;
    struct door *door;
    bool undispatched; /* something was stored in this turn that is not in the queues yet */
    struct head_memories heads; /* what headers look like on this loop */
    struct arena arena;         /* of the requests of one read */
    struct spares spares;       /* for what waits: sends for the disk, pulls for messages */
    struct sends *sends;        /* send requests of this read; NULL without a broker */
    struct ends *ends;          /* ends of transactions of this read; made when first needed */
    struct desk *replies;       /* made when first needed */
    struct mark_desk *marks;    /* of POP, likewise */
    struct acks *acks;          /* acknowledgements of this read, likewise */
    struct ledger_asks *ledger; /* operations on the once ledger of this read, likewise */
    struct list asks;           /* questions to clients of this loop, oldest first */
    struct timer *ask_timer;
    struct chaos_line *chaos; /* what comes later; made when first needed */
    uint32_t ask_tick;        /* seconds, while there are any */
};

/* Brings what was stored to the queues and to whoever waits for it: once for all reads of a turn,
 * when their answers have left. */
void seat_dispatch(struct seat *seat);
/* Stores and answers what requests have noted. All that was decoded points into what was read and
 * the arena, which end here; session.c. */
void seat_settle(struct seat *seat);
/* Before a request that could look for it, whichever loop stored it: an answered send can be read.
 */
void seat_catch_up(struct seat *seat);

/* send.c */
void produce_fill(struct produce *p, const struct request *rq, const struct send_fields *f);
struct desk *sends_desk(struct sends *sends); /* for others of this loop, between its flushes */
bool store_keeps_up(struct door *door, const struct sends *sends, struct fault *why);
must_check enum err sends_open(struct door *door, struct sends **out);
void sends_close(struct sends *sends);
void sends_flush(struct door *door,
                 struct seat *seat); /* stores what was collected and answers it */

/* late.c */

struct late {
    struct store_wait wait;
    struct post post;
    struct door *door;
    struct return_address to; /* the session is counted while it waits */
    struct conn *conn;        /* held, so that a stopping house gives the answer first */
    enum err err;             /* OK: confirmed; else nobody can promise it */
    void (*give)(const struct late *late);
};
/* `size` bytes, zero, of which a struct late is the first; NULL: no memory. */
void *late_make(const struct request *rq, size_t size);
void *late_make_to(const struct return_address *to, size_t size);
/* Calls `give` on the home loop once the log is confirmed up to the position, at once if it is, and
 * frees. */
void late_give(struct late *late, uint64_t position, void (*give)(const struct late *late));

/* txn.c */
void ends_close(struct ends *ends);
void ends_flush(struct door *door, struct seat *seat); /* as sends_flush */

/* retry.c */
bool names_max_reconsume(const struct request *rq, int32_t max_reconsume_times);

/* push.c */

/* A request of ours to a client. */
struct words {
    int32_t code, flag;
    const struct field *fields;
    size_t n_fields;
    struct bytes body;
};
/* Home loop. False: its connection is gone, or behind with reading. */
bool session_say(struct session *session, const struct words *words, int32_t opaque);
/* Any thread. False: too many are on their way, or no memory. */
bool session_tell(struct session *session, const struct words *words);
void reset_write(const struct door *door, const struct offsets_reset *reset, struct buf *out);

/* ask.c */

struct ask {
    struct post post;
    struct link by_client, by_time;
    struct door *door;
    struct session *client;
    struct return_address to; /* of the request that made us ask; holds a count */
    struct words words;
    int32_t opaque;
    uint32_t tick;
    size_t bytes;
    void (*done)(struct ask *a); /* on the asker's loop; frees nothing */
    /* What came of it. ERR_BUSY: the limit of questions, ERR_CLOSED, ERR_TIMEOUT; OK: the rest. */
    enum err err;
    int32_t code;
    struct bytes remark, body;
    uint8_t *answer;
};
void asks_seat_init(struct seat *seat);
/* Room for `size` bytes, of which a struct ask is the first; NULL: too many wait, or no memory. */
void *ask_make(const struct request *rq, size_t size, const struct words *words);
/* Takes over the ask and one count of the client's session. */
void ask_client(struct ask *a, struct counted *client, void (*done)(struct ask *a));
void ask_answered(struct session *client, const struct head *head, struct bytes body);
void asks_session_closed(struct session *client);

/* admin.c */
void queue_key_write(const struct door *door, struct json_out *w, struct bytes topic,
                     int32_t queue_id); /* a message queue as the key of a member */
void consume_stats_write(const struct door *door, struct json_out *w,
                         const struct consume_stat *stats, size_t n, double per_second);
/* A change has failed, or is answered once it is saved. */
void answer_fate(const struct request *rq, enum err err, const struct fault *why);
/* The answer of a handler that tells something, in JSON. False: asking the broker has failed, and
 * that was the answer. */
struct told {
    struct buf body;
    struct json_out w;
};
must_check bool told_begin(struct told *t, const struct request *rq, enum err err,
                           const struct fault *why);
void told_end(struct told *t, const struct request *rq, enum err err); /* of the telling */

/* crowd.c */
void subscription_write(struct json_out *w, const struct subscription *s);

/* pull.c */
void parked_session_closed(struct session *session);
/* Room for texts that a waiting request keeps; they count if they are long. */
bool parked_texts_take(struct door *door, size_t n);
void parked_texts_give(struct door *door, size_t n);

/* pop.c */
struct mark_desk *seat_marks(struct seat *seat); /* NULL: no memory */
void pops_session_closed(struct session *session);

/* ack.c */
void acks_flush(struct door *door, struct seat *seat); /* as sends_flush */
void acks_close(struct acks *acks);

/* chaos.c */
must_check enum err chaos_open(struct door *door, struct chaos **out);
void chaos_close(struct chaos *chaos);
void chaos_seat_close(struct seat *seat); /* chaos_line.c */
void chaos_session_closed(struct chaos *chaos, struct session *session);
/* A request is about to be handled; what of its head is wrong afterwards is so on purpose. `frame`
 * NULL: it was held up before. True: it is seen to, now or later. */
bool chaos_meets(struct chaos *chaos, struct request *rq, struct head *head,
                 const struct frame *frame);
/* A pull is about to be answered with these. */
void chaos_given(struct chaos *chaos, struct seat *seat, const struct pull *pull,
                 const struct read_result *read);

/* ledger.c */
void ledger_flush(struct door *door, struct seat *seat); /* as sends_flush */
void ledger_asks_close(struct ledger_asks *asks);
void presents_session_closed(struct session *session);

/* ---- handlers ---- */

handler send_message, send_message_v2;
handler send_back;
handler txn_ends, txn_resume;
handler send_recall;
handler pull_message;
handler pop_message, peek_message, pop_notification, polling_info;
handler ack_message, batch_ack_message, change_invisible;
handler assignment_query, mode_set, modes_all;
handler query_by_key, query_by_id;
handler clock_advance;
handler chaos_request;
handler once_ledger, once_present;
handler lock_batch, unlock_batch;
handler reply_send, reply_send_v2;
handler admin_topic_set, admin_topic_delete, admin_topic_get, admin_topics, admin_topic_stats,
    admin_topic_groups, admin_group_set, admin_group_delete, admin_group_get, admin_groups,
    admin_consume_stats, admin_reset, admin_clone;
handler survey_group_topics, survey_subscription, survey_time_span, survey_system_topics,
    survey_producers, survey_consume_stats, survey_stat;
handler crowd_consumers, crowd_producers, crowd_running_info, crowd_consume_directly;
handler runtime_info, runtime_config, runtime_config_change, runtime_delete_expired,
    runtime_clean_queues, runtime_clean_topics;
handler client_heartbeat, client_check, client_unregister, client_list;
handler offset_query, offset_update, offset_max, offset_min, offset_search, offset_earliest;
handler route_register, route_unregister, route_by_topic, route_clusters, route_wipe_write,
    route_add_write, route_topics_all, route_topic_delete, route_topic_add, route_topics_of_cluster,
    route_topics_system, route_topics_unit, route_topics_unit_sub, route_topics_unit_sub_only,
    route_version, route_members, route_heartbeat, route_kv_put, route_kv_get, route_kv_delete,
    route_kv_list;

#endif
