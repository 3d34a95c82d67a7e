/* sidecar.h - a consumer for programs that know nothing of messages: each message is given to a
 * worker, once.
 *
 *     consumer ─ take ─► desk ─ may it run? (libonce) ─► worker ─ fate ─► libonce ─► consumer
 *                         │                                │
 *                lanes: equal values of `order_by`         │ exec   a program for each message
 *                run one after another                     │ http   a request for each message
 *                                                          │ pipe   programs that stay, JSON lines
 *                                                          │ sql    statements in libonce's
 *                                                          │        own transaction
 *
 * A worker says what came of a message, its *fate*:
 *
 *     done      the effect has happened: libonce remembers it, the broker hears of it
 *     already   the worker knows that it had happened before; else as done
 *     later     not now: it comes again here after a while, which counts as no attempt
 *     failed    it comes again as the broker's retries go; after the last one it is a dead letter
 *
 * Whether a message may run at all is libonce's to say (include/once.h): what was done before is
 * done, what another process is at comes later. So every language gets effects that happen once
 * and needs no library for it. What libonce cannot promise with a lease stays true here: a worker
 * that was killed between its effect and its answer is asked again; that is what the key, the
 * attempt and the fencing number are told to it for.
 *
 * Order. With `order_by` messages of an equal value run one after another in the order in which
 * they arrived, others beside them. One that has to come later keeps its place; one that failed
 * loses it, since the broker brings it again much later.
 *
 * Stopping. sidecar_close takes no further message, gives back what has not begun, waits for what
 * runs (`stop_ms`), and then ends the workers that are left, with their process groups.
 *
 * Knows: processes, pipes, HTTP through libcurl (loaded when it is wanted). Does not know: command
 * lines, terminals, signals of its own process, which it leaves as they are.
 *
 * Threads: sidecar_stop, sidecar_wait and sidecar_stats from any thread. Its own: as many as
 * `parallel` says (two for each process of a pipe), with all signals blocked.
 */
#ifndef SIDECAR_SIDECAR_H
#define SIDECAR_SIDECAR_H

#include "base/err.h"
#include "once.h"
#include "oncemq.h"

#include <stdbool.h>
#include <stdint.h>

enum sidecar_worker {
    SIDECAR_EXEC, /* `command` for each message: body on stdin, the rest in the environment */
    SIDECAR_HTTP, /* POST to `url` */
    SIDECAR_PIPE, /* `command` runs all the time; lines of JSON on stdin and stdout */
    SIDECAR_SQL,  /* `sql` in a transaction of the store, which is PostgreSQL, MariaDB or SQLite */
};

/* What came of a message; for `event`. */
enum sidecar_fate { SIDECAR_DONE, SIDECAR_ALREADY, SIDECAR_LATER, SIDECAR_FAILED, SIDECAR_DEAD };

struct sidecar_event {
    int fate;                      /* enum sidecar_fate; DEAD: it failed for the last time */
    const struct omq_delivery *of; /* as long as the call lasts */
    const char *key;               /* "": it was never made */
    int64_t fence;
    int64_t took_ms;  /* of the worker */
    int64_t after_ms; /* LATER */
    const char *why;  /* "" where there is nothing to say */
};

enum sidecar_level { SIDECAR_INFO, SIDECAR_WARN, SIDECAR_ERROR };

struct sidecar_options {
    const char *group;                            /* required */
    const struct omq_subscription *subscriptions; /* required */
    size_t n_subscriptions;
    int start; /* enum omq_start */
    int64_t start_ms;
    int max_attempts; /* retries, then it is a dead letter; 16; -1: none */

    /* once.h's: store, client, key, no_key, mode (ONCE_LEASE, ONCE_TABLE; with SIDECAR_SQL always
     * ONCE_TRANSACTION), times, tables. `group`, `ladder_ms` and `log` are filled in. Without a
     * `key` it is {key}; without a `store` it is broker:, with SIDECAR_SQL sqlite:once.db. */
    struct once_options once;

    int worker;          /* enum sidecar_worker */
    const char *command; /* a program and its words; quotes and \ as in a shell, and nothing else */
    const char *url;
    const char *content_type; /* of the request; application/octet-stream */
    const char *sql;
    int output;    /* where the output of SIDECAR_EXEC goes; 0: our own stdout */
    int parallel;  /* programs, requests, transactions at a time: 8; processes of a pipe: 1 */
    int in_flight; /* of one process of a pipe; 1,000 */
    const char *order_by; /* a template like the key's; NULL: in no order */
    int timeout_ms;       /* of the worker, for one message; 60,000 */
    int later_ms;         /* when a message comes again that is to come later; 10,000 */
    int stop_ms;          /* 30,000 */

    uint64_t stop_after; /* messages that came to an end (done, already, failed); 0: never */
    int idle_ms;         /* stops when nothing came for so long; 0: never */

    void (*event)(void *user, const struct sidecar_event *event); /* any thread; may be NULL */
    void (*log)(void *user, int level, const char *line);         /* any thread; may be NULL */
    void *user;
};

struct sidecar_stats {
    uint64_t done, already, later, failed; /* fates, as `event` hears of them */
    uint64_t dead;                         /* of the failed, those that failed for the last time */
    uint64_t given_back;                   /* not begun when it was stopped */
    uint64_t restarts;                     /* of a pipe's processes, after they died */
    uint64_t strange;                      /* lines of a pipe that are no answer to anything */
    uint64_t running;                      /* with the worker now */
};

struct sidecar;

/* Checks everything that can be checked before a message comes: templates, the statement, the
 * program, the store. `client` must outlive it. */
must_check enum err sidecar_open(struct omq_client *client, const struct sidecar_options *options,
                                 struct sidecar **out, struct fault *why);
/* Asks it to stop; sidecar_wait then says true. */
void sidecar_stop(struct sidecar *sidecar);
/* True: it is to be closed; false: `timeout_ms` (<0: for ever) are over. */
bool sidecar_wait(struct sidecar *sidecar, int timeout_ms);
void sidecar_stats(struct sidecar *sidecar, struct sidecar_stats *out);
/* Stops it if nobody did. `last` (may be NULL) gets the final numbers. NULL is fine. */
void sidecar_close(struct sidecar *sidecar, struct sidecar_stats *last);

#endif
