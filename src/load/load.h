/* load.h - the load generator: so many messages, so fast, and how long did each take?
 *
 * A *run* goes through phases, in this order; what was not asked for is left out:
 *
 *     prepare   clients connect; each topic gets a first message, which makes it if it is missing
 *     fill      LOAD_CONSUME: a backlog is written
 *     warm      the load as it is later; nothing counts
 *     measure   what is told
 *     drain     nothing more begins; what is under way is waited for, and counts
 *
 * What is measured
 *
 *     LOAD_SEND      from when a message was due until its answer
 *     LOAD_CONSUME   how fast a backlog can be taken; the time is that of waiting for the next
 * batch LOAD_E2E       from when a message was due until a reader, who waits for it, has it
 *     LOAD_ONCE      a claim of libonce, its begin and its end, around a handler that does nothing:
 *                    of fresh keys, and apart from them of repeated ones
 *
 * *Connections* are clients of liboncemq, each with a connection of its own to each broker that it
 * needs. A connection has `in_flight` places; a message, or a batch, has one from when it is handed
 * over until its answer. For batches there is a thread for each place.
 *
 * Due. Without a rate a message is due when there is a place for it: the pipe is always full, which
 * shows what can be had, and the times are those of a full pipe. With a rate, message k is due at
 * k / rate whatever became of those before it. When the server stalls, what would have been sent
 * meanwhile is late, and that it was is in its time: otherwise a stall of a second would count as
 * one slow message instead of as thousands (which is called coordinated omission). How late
 * messages were handed over is told apart, so that a generator that cannot follow is seen.
 *
 * Nothing is believed: an answer counts when it says that the message is stored, offsets of a queue
 * must come one after the other, and at the end of LOAD_E2E what was acknowledged and did not come
 * is counted as missing.
 *
 * Knows: clients, readers, claims, clocks.  Does not know: command lines, terminals, files.
 * Threads: load_run blocks; `progress` is called from it. It starts threads and joins them.
 */
#ifndef LOAD_LOAD_H
#define LOAD_LOAD_H

#include "base/buf.h"
#include "base/err.h"
#include "base/histogram.h"

#include <once.h>
#include <oncemq.h>

enum load_kind { LOAD_SEND, LOAD_CONSUME, LOAD_E2E, LOAD_ONCE };

enum load_phase { LOAD_PREPARE, LOAD_FILL, LOAD_WARM, LOAD_MEASURE, LOAD_DRAIN };

#define LOAD_STAMP_SIZE      24 /* of a body of LOAD_E2E: whose run, when it was due, its number */
#define LOAD_SIZE_MAX        (4u << 20)
#define LOAD_CLIENTS_MAX     1024  /* each has threads of its own … */
#define LOAD_CONNECTIONS_MAX 10000 /* … which raw connections have not */
#define LOAD_IN_FLIGHT_MAX   65536
#define LOAD_HANDS_MAX       4096 /* threads, where there is one for each place */
#define LOAD_BATCH_MAX       1024
#define LOAD_TOPICS_MAX      100000
#define LOAD_TOPIC_MAX       112 /* bytes of a topic's name, so that a number fits behind it */
#define LOAD_INTERVAL_LEAST  10

/* How things are now. */
struct load_progress {
    enum load_phase phase;
    double seconds, of_seconds;     /* of this phase; of_seconds 0: it ends by count */
    uint64_t messages, of_messages; /* of this phase; of_messages 0: it ends by time */
    uint64_t failures;
    double per_second;                /* of the last interval, as the rest is */
    uint64_t p50_ns, p99_ns, most_ns; /* 0: nothing came */
};

/* Zero is the default. */
struct load_options {
    enum load_kind kind;
    const struct omq_client_options *client; /* required but for LOAD_ONCE */
    const char *topic;    /* the same. Of several topics it is the first part of their names */
    unsigned topics;      /* 1: `topic`; else `topic`-0, `topic`-1 … taken in turn */
    const char *group;    /* of producers and readers; "oncemq-bench" */
    unsigned connections; /* 1 */
    unsigned in_flight;   /* 32; LOAD_ONCE: threads, in all */
    unsigned batch;       /* messages of one request, or of one round of claims; 1. Of readers: what
                             one pull asks for; 32 */
    uint32_t size;        /* bytes of a body; 1,024 */
    double rate;          /* messages a second in all; 0: as many as there is room for */
    uint64_t count;       /* ends after so many; 0: does not */
    uint64_t run_ms;      /* ends after this time; 0: does not, unless `count` is 0, too: 10,000 */
    uint64_t warm_ms;
    uint64_t interval_ms; /* of progress and of points; 1,000 */
    uint64_t fill;        /* LOAD_CONSUME: writes so many first; 0: takes what is there */
    bool raw;             /* bare sockets instead of clients, so that the library is not measured:
                             raw_int.h. Not for LOAD_ONCE, TLS and signed requests */
    bool binary;          /* raw: binary headers instead of JSON */

    const struct once_options *once; /* LOAD_ONCE: required. `key` is ours */
    unsigned repeats;                /* LOAD_ONCE: how often a key comes again */

    void (*progress)(void *user, const struct load_progress *now);
    /* Asked often, from load_run: shall it end now, as if its time were over? */
    bool (*stopped)(void *user);
    void *user;
};

/* The options with their defaults filled in. */
void load_defaults(const struct load_options *given, struct load_options *out);

/* A piece of the measured time. */
struct load_point {
    double at_s, span_s; /* where it ends, and how long it is */
    uint64_t messages, failures;
    uint64_t p50_ns, p99_ns, most_ns;
};

enum load_times {
    LOAD_TOOK,  /* what the kind is about */
    LOAD_OTHER, /* LOAD_E2E: from due until the answer; LOAD_ONCE: of repeated keys */
    LOAD_LATE,  /* with a rate: from due until it was handed over */
    LOAD_TIMES
};

struct load_result {
    int64_t begin_ms; /* wall time of the first measured moment */
    double seconds;   /* measured: up to the last answer */
    bool stopped;
    uint64_t messages; /* that came through: answered, taken, claimed */
    uint64_t bytes;    /* of their bodies */
    uint64_t failures;
    char failure[512];   /* the first one's sentence */
    uint64_t sent;       /* LOAD_E2E: acknowledged */
    uint64_t missing;    /* LOAD_E2E: acknowledged, and never came */
    uint64_t out_of_row; /* offsets of a queue that did not follow the one before */
    uint64_t stored;     /* messages that it left in its topics, filling and warming included */
    double cpu_seconds;  /* of this process, while it was measured */
    struct histogram *times[LOAD_TIMES]; /* ns; never NULL */
    struct load_point *points;
    size_t n_points;
};

/* Checks the options, runs, and says how it went. ERR_INVALID: an option. Single messages that fail
 * are counted, not an error; that nothing can be reached is one. On success the caller clears the
 * result. */
must_check enum err load_run(const struct load_options *options, struct load_result *out,
                             struct fault *why);
void load_result_clear(struct load_result *result);

/* The name of topic number `i`. */
#define LOAD_NAME_SIZE 128
void load_topic_name(const struct load_options *options, unsigned i, char out[LOAD_NAME_SIZE]);

/* ---- telling it ---- */

const char *load_kind_name(enum load_kind kind); /* "send" */
const char *load_phase_name(enum load_phase phase);
/* What LOAD_TOOK and LOAD_OTHER are of this kind, in a few words; NULL: there is no such. */
const char *load_times_name(enum load_kind kind, enum load_times times);

/* An SVG of its own: throughput and latency over time, and the distribution of latencies. */
void load_result_plot(const struct load_options *options, const struct load_result *result,
                      struct buf *out);

#endif
