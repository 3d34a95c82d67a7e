/* admin.h - the broker's verbs for operators: topics and groups are set and deleted, offsets set
 * back, and who is connected and how far everybody has come is told. A part of broker.h, which has
 * the model. */
#ifndef BROKER_ADMIN_H
#define BROKER_ADMIN_H

#include "base/arena.h"
#include "base/counted.h"
#include "msg/msg.h"

struct broker;

/* Makes a topic or changes it. `changes`: of its attributes, "+key=value,-key"; those of `set` do
 * not count. ERR_INVALID (a name, a number, an attribute), ERR_BUSY (a limit). */
must_check enum err broker_topic_set(struct broker *broker, const struct topic_settings *set,
                                     struct bytes changes, struct fault *why);
/* With the offsets of all groups in it. Its messages stay until they are old. OK if there is none.
 */
must_check enum err broker_topic_delete(struct broker *broker, struct bytes name,
                                        struct fault *why);
must_check enum err broker_topic_get(struct broker *broker, struct bytes name, struct arena *arena,
                                     struct topic_settings *out, struct fault *why);
must_check enum err broker_group_set(struct broker *broker, const struct group_settings *set,
                                     struct fault *why);
must_check enum err broker_group_delete(struct broker *broker, struct bytes name,
                                        bool clean_offsets, struct fault *why);
must_check enum err broker_group_get(struct broker *broker, struct bytes name, struct arena *arena,
                                     struct group_settings *out, struct fault *why);

struct place_reset {
    int32_t queue_id;
    int64_t offset;
};
struct offsets_reset {
    struct bytes group, topic;
    int32_t queue_id;     /* -1: all */
    int64_t timestamp_ms; /* go on with the first message from then on; -1: with the next to come */
    int64_t offset;       /* or exactly here, when one queue is named; -1: by time */
    bool force;           /* only when clients see to it: also forwards */
    struct place_reset *places; /* afterwards, in the arena */
    size_t n;
};
/* Somebody asks for it: the one way in which an offset goes backwards without the group. OK: the
 * places are where each queue goes on. ERR_UNKNOWN_TOPIC, ERR_UNKNOWN_GROUP, ERR_RANGE (an offset
 * that the queue does not have), ERR_NOT_SUBSCRIBED (nobody there to see to it), ERR_UNSUPPORTED (a
 * client that cannot). */
must_check enum err broker_offsets_reset(struct broker *broker, struct offsets_reset *reset,
                                         struct arena *arena, struct fault *why);

struct offsets_clone {
    struct bytes from, to; /* groups */
    struct bytes topic;    /* empty: all that `from` has come anywhere in */
    bool offline;          /* also topics that `from` has members for and does not subscribe to */
};
/* One group begins where another is; meant for a group that has no members yet, since these would
 * go on where they are and commit that. ERR_UNKNOWN_GROUP (`to`), ERR_NO_MEMORY. `*queues`: how
 * many offsets were taken over. */
must_check enum err broker_offsets_clone(struct broker *broker, const struct offsets_clone *clone,
                                         size_t *queues, struct fault *why);
/* Forgets deleted topics of which nothing is left. */
void broker_tombs_tidy(struct broker *broker);

struct queue_stat {
    int64_t min, max, last_ms; /* of the last message; 0: there is none */
};
/* Of each queue of a topic, by number; `*per_second`: messages that came over the last minute. */
must_check enum err broker_topic_stats(struct broker *broker, struct bytes topic,
                                       struct arena *arena, struct queue_stat **out, size_t *n,
                                       double *per_second, struct fault *why);

struct consume_stat {
    struct bytes topic;
    int32_t queue_id;
    int64_t max, offset; /* the queue's end, the group's place */
    int64_t last_ms;     /* of the last message the group has consumed; 0: unknown */
};
/* How far a group has come in the topics named; with none named in all that it has come anywhere
 * in. `all`: also in those it does not subscribe to now. `*per_second`: messages that it read
 * there, over the last minute. */
must_check enum err broker_consume_stats(struct broker *broker, struct bytes group,
                                         const struct bytes *topics, size_t n_topics, bool all,
                                         struct arena *arena, struct consume_stat **out, size_t *n,
                                         double *per_second);
/* Groups that subscribe to a topic or have come anywhere in it; each once, in order. */
must_check enum err broker_topic_groups(struct broker *broker, struct bytes topic,
                                        struct arena *arena, struct bytes **out, size_t *n);

/* Topics that a group subscribes to or has come anywhere in; each once, in order. */
must_check enum err broker_group_topics(struct broker *broker, struct bytes group,
                                        struct arena *arena, struct bytes **out, size_t *n);
/* Topics that a broker has by itself. */
must_check enum err broker_system_topics(struct broker *broker, struct arena *arena,
                                         struct bytes **out, size_t *n);
/* Groups with producers that are connected. */
must_check enum err broker_producer_groups(struct broker *broker, struct arena *arena,
                                           struct bytes **out, size_t *n);

struct group_topic {
    struct bytes group, topic;
};
/* Each group with each topic that it has come anywhere in, by group. `ordered`: only topics that
 * are meant for ordered messages. */
must_check enum err broker_all_progress(struct broker *broker, bool ordered, struct arena *arena,
                                        struct group_topic **out, size_t *n);

struct time_span {
    int64_t first_ms, last_ms; /* of the messages that are there; -1: none is */
    int64_t consumed_ms;       /* of the last one the group has consumed */
    int64_t delay_ms;          /* how old the next one for it is; 0: there is none */
};
/* Of each queue of a topic that can be written, by number. */
must_check enum err broker_time_spans(struct broker *broker, struct bytes group, struct bytes topic,
                                      struct arena *arena, struct time_span **out, size_t *n,
                                      struct fault *why);

struct connection {
    struct bytes client_id;
    struct addr addr;
    uint8_t language;
    int32_t version;
    int64_t seen_ms; /* when it last said that it is there */
};
struct connections {
    struct connection *list;
    size_t n;
    /* Of consumers only. */
    bool broadcasting, pops, actively;
    struct bytes from_where;
    struct subscription *subs;
    size_t n_subs;
};
/* Who is in a group of consumers, or of producers. ERR_NOT_FOUND: nobody. ERR_TOO_BIG: the arena.
 */
must_check enum err broker_connections(struct broker *broker, struct bytes group, bool consumers,
                                       struct arena *arena, struct connections *out);
/* The connection of one client, counted for the caller; NULL: it is not there. */
struct counted *broker_consumer_session(struct broker *broker, struct bytes group,
                                        struct bytes client_id, int32_t *version);
/* The connection by which a client was last heard of as a producer of any group. */
struct counted *broker_producer_session(struct broker *broker, struct bytes client_id);

#endif
