/* numbers.h - what the broker has counted: how long things took, how much went in and out, what
 * waits. A part of broker.h. */
#ifndef BROKER_NUMBERS_H
#define BROKER_NUMBERS_H

#include "base/bytes.h"
#include "base/err.h"
#include "ledger/numbers.h"

struct broker;
struct lane;

/* How long something took. Bucket k counts what took less than 2^k µs and is in no bucket before;
 * the last has the rest. */
#define LATENCY_BUCKETS 26
struct latency {
    uint64_t count, sum_us;
    uint64_t buckets[LATENCY_BUCKETS];
};
/* The end of the bucket in which a part (0 to 1) of all is reached; 0: there is nothing. */
uint64_t latency_quantile_us(const struct latency *latency, double part);
/* The door tells how long sends took, from reading to answering; `lanes` is each one's (produce),
 * or NULL. */
void broker_sends_took(struct broker *broker, uint64_t ns, struct lane *const *lanes, size_t n);
/* By TOPIC_, QUEUE_ or BROKER_PUT_LATENCY, or TOPIC_, QUEUE_, GROUP_ or BROKER_GET_LATENCY; sum_us
 * only of the broker. ERR_NOT_FOUND as below. */
must_check enum err broker_latency(struct broker *broker, struct bytes name, struct bytes key,
                                   struct latency *out);

struct stat_window {
    uint64_t sum;
    double per_second, average; /* the second: for each request, where those are counted */
};
struct stat_windows {
    struct stat_window minute, hour, day;
};
/* One statistic by the name and the key that Apache's broker has for it; numbers_view.c has the
 * list. A name of broker_latency with _50, _99, _999 or _MAX behind it: how many there were since
 * the start, and as `average` within how many ms so many of them were. ERR_NOT_FOUND: no such name,
 * or nothing was counted under that key. */
must_check enum err broker_stat(struct broker *broker, struct bytes name, struct bytes key,
                                struct stat_windows *out, struct fault *why);

struct broker_numbers {
    int64_t boot_ms, now_ms, up_ms;
    uint64_t put, got, put_size, got_size;     /* messages since then, and their bytes */
    uint64_t put_mornings[2], got_mornings[2]; /* the same this morning, and yesterday */
    struct latency sends, pulls;
    double put_rates[3], got_rates[3]; /* a second, over the last 10, 60 and 600 s */
    uint64_t log_first, log_end;
    int64_t earliest_ms; /* when the first message there is was stored; -1: there is none */
    double disk_used;    /* 0 to 1 */
    size_t topics, groups, clients, holds;
    uint64_t differing; /* how often members of a group subscribed differently */

    /* Transactions: open now; since the start. */
    size_t txn_open;
    uint64_t txn_committed, txn_rolled_back, txn_checks, txn_given_up;

    /* dedup */
    struct ledger_numbers ledger;
    uint64_t duplicates;     /* messages that were not stored again */
    uint64_t keys;           /* that are remembered now … */
    uint64_t keys_bytes;     /* … and the memory for them */
    uint64_t keys_displaced; /* that had to go before their time, because there were too many */
    /* POP: messages */
    uint64_t pop_in_flight, popped, pop_acked, pop_revived, pop_dead;
    uint64_t pop_late; /* acknowledged too late, or without having been handed out */
    size_t pop_marks;
    /* Messages with a time of their own: waiting now; since the start delivered, recalled before
     * their time, stored again because they wait for long, and lost to a disk that was too full. */
    uint64_t timers_pending, timers_delivered, timers_recalled, timers_rolled, timers_lost;
    int64_t timers_behind; /* messages that wait for their place in the wheel */
};
void broker_numbers(struct broker *broker, struct broker_numbers *out);

#endif
