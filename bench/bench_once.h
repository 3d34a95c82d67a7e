/* bench_once.h - libonce against bare loops that do the same round trips with the same client
 * library. */
#ifndef BENCH_ONCE_H
#define BENCH_ONCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PIPELINE    32  /* messages of a bare pipeline */
#define WORKERS_MAX 128 /* claims */
#define TXN_WORKERS 8   /* transactions, each on a connection of its own */
#define ROUND_MS    1000

/* What one worker of a bare loop does; `number` is never the same. */
struct bare {
    const char *name;
    bool (*mine)(const char *url);  /* is it this store's? */
    void *(*open)(const char *url); /* one connection */
    void (*close)(void *conn);
    size_t (*claims)(void *conn, uint64_t number); /* how many messages were claimed and finished */
    void (*transaction)(void *conn, uint64_t number); /* mark, effect, commit; NULL: no database */
    bool one;                        /* one worker does it, however many of ours there are */
    double claim_target, txn_target; /* of ours, as a multiple; 0: none */
    const char *claim_text;
};
extern const struct bare bare_stores[];

/* The effect of a transaction, on the connection of a run. */
bool bare_effect(const char *url, void *native, uint64_t number);

#endif
