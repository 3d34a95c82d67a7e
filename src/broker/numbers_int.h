/* numbers_int.h - the counters of numbers.c, for whoever counts. */
#ifndef BROKER_NUMBERS_INT_H
#define BROKER_NUMBERS_INT_H

#include "base/counted.h"
#include "base/list.h"
#include "base/map.h"
#include "broker/broker.h"
#include "broker/history.h"

/* How long something took: latency.c. */
struct times {
    _Atomic uint64_t buckets[LATENCY_BUCKETS];
};

/* What goes through a queue, a topic or the broker. */
enum { FLOW_IN, FLOW_IN_SIZE, FLOW_OUT, FLOW_OUT_SIZE, FLOW_WIDTH };

/* One queue. Stays as long as the queue's handle does; the queue's note points here. */
struct lane {
    struct link in_flow;
    struct lane *older; /* in numbers.lanes */
    struct queue *queue;
    struct flow *flow; /* of its topic; NULL: that does not exist, and nothing is counted */
    int32_t queue_id;
    uint64_t in, in_size;           /* room: core */
    _Atomic uint64_t out, out_size; /* anybody's, as are these */
    struct times puts, gets;
    struct history *past;
};

/* One topic that something has gone through. */
struct flow {
    struct list lanes;
    struct history *past;
    size_t name_len;
    char name[];
};

/* What one group has read of one topic. */
enum { TALLY_NUMS, TALLY_SIZE, TALLY_TIMES, TALLY_NS, TALLY_BACK, TALLY_WIDTH };
struct tally {
    struct counted counted; /* one count is the progress's, one each pull's that is under way */
    _Atomic uint64_t nums, size, times, ns;
    struct times gets;
    uint64_t back; /* room: core. Given back by its consumers */
    struct history *past;
};

struct spread {
    struct times times;
    _Atomic uint64_t sum_ns;
};

#define SAMPLES 61
struct sample {
    uint64_t at_ns, put, got;
};

struct numbers {
    _Atomic uint64_t got, got_size;
    struct spread sends, pulls;
    int64_t boot_ms;
    uint64_t boot_ns;

    /* Room: core */
    uint64_t put, put_size;
    uint64_t differing; /* members that did not subscribe as others do */
    struct map flows;   /* topic → struct flow */
    struct lane *lanes;
    struct history *past; /* of the broker */
    struct sample samples[SAMPLES];
    size_t n; /* how many samples were ever taken */
    /* The round of the histories that is under way: it goes through the flows, then through what
     * groups have read, some at a time. */
    uint64_t tick;
    enum { ROUND_FLOWS, ROUND_TALLIES, ROUND_OVER } stage;
    size_t at;
    /* Of the days by local time: which one it is, and how much there had been in the morning. */
    int64_t day;
    uint64_t put_mornings[2], got_mornings[2]; /* today's, yesterday's */
};

/* Where a reader is counted. */
struct counting {
    struct lane *lane;   /* NULL: nowhere */
    struct tally *tally; /* one count is the reader's; NULL: nowhere */
};

struct broker;
struct topic;
struct progress;

void numbers_init(struct broker *b);
void numbers_clear(struct broker *b); /* no key needed: at the end */
/* Room: core. A bounded step of the histories; call it often. */
void numbers_turn(struct broker *b);
/* Room: core. Where what happens to a queue is counted; NULL: its topic does not exist, or there is
 * no memory. It stays as long as the broker does. */
struct lane *numbers_lane(struct broker *b, struct queue *queue, struct bytes topic,
                          int32_t queue_id);
/* Room: core. Something has come into queues. */
void numbers_arrived(struct broker *b, const struct arrival *news, size_t n);
/* Room: core. A group is about to read a queue; numbers_got ends it. `progress` may be NULL. */
struct counting counting_begin(struct broker *b, const struct topic *topic, int32_t queue_id,
                               struct queue *queue, struct progress *progress);
/* No key needed. `ns`: how long the reading took. */
void numbers_got(struct broker *b, struct counting *counting, uint32_t count, uint64_t size,
                 uint64_t ns);
void counting_drop(struct counting *counting); /* instead of numbers_got: nothing was read */
/* Room: core. A consumer of the group gave a message of the topic back. */
void numbers_back(struct broker *b, struct bytes group, struct bytes topic);
/* Room: core. The topic is deleted. */
void numbers_forget(struct broker *b, struct bytes topic);
void tally_drop(struct tally *tally); /* NULL is fine */

/* Room: core. Messages a second over the last minute: into a topic, or out of it to a group. */
double numbers_topic_rate(struct broker *b, struct bytes topic);
double numbers_group_rate(struct broker *b, struct bytes group, struct bytes topic);

/* numbers_view.c; room: core. Counters of the whole broker, FLOW_WIDTH of them. */
void numbers_now(struct broker *b, uint64_t now[FLOW_WIDTH]);
void lane_now(const struct lane *lane, uint64_t now[FLOW_WIDTH]);
void flow_now(const struct flow *flow, uint64_t now[FLOW_WIDTH]);
void tally_now(const struct tally *tally, uint64_t now[TALLY_WIDTH]);

/* Whose a statistic is, which is also the form of its key. */
enum owner {
    OWNER_TOPIC, /* topic */
    OWNER_QUEUE, /* topic@queue */
    OWNER_GROUP, /* topic@group */
    OWNER_BROKER /* cluster */
};
bool stat_key_queue(struct bytes key, struct bytes *topic, int32_t *queue_id);

/* ---- latency.c ---- */

void times_add(struct times *times, uint64_t ns);
void spread_add(struct spread *spread, uint64_t ns, uint32_t n);
void spread_view(const struct spread *spread, struct latency *out);
/* A part of the times as a statistic: how many there were, and in ms. ERR_NOT_FOUND. */
must_check enum err latency_stat(struct broker *b, struct bytes name, struct bytes key,
                                 struct stat_windows *out);

#endif
