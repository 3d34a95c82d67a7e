/* suite.h - the same promises on every store and in every mode.
 *
 *     suite URL     plays every case that this store's modes know, in this process, and prints TAP
 *
 * A case gets a rig: the store, the mode, and a scope that no other case has. What a handler does
 * is counted in the process (lease, table), or is a row in the handler's own transaction.
 */
#ifndef TESTS_ONCE_SUITE_H
#define TESTS_ONCE_SUITE_H

#include "base/test.h"
#include "business.h"
#include "once.h"

#include <stdatomic.h>

struct rig {
    const char *url;
    enum database db; /* DB_NONE: the store is no database */
    int mode;
    const char *mode_name;
};

enum { LEASE = 1 << ONCE_LEASE, TABLE = 1 << ONCE_TABLE, TRANSACTION = 1 << ONCE_TRANSACTION };
enum { CLAIMS = LEASE | TABLE, ALL = CLAIMS | TRANSACTION };

struct suite_case {
    const char *name; /* a sentence */
    void (*play)(void **rig);
    unsigned modes;
};

extern const struct suite_case claim_cases[], batch_cases[], transaction_cases[];

/* What a handler needs to know. */
struct work {
    const struct rig *rig;
    const char *key;       /* of the row that it writes */
    _Atomic unsigned runs; /* how often it was called */
    int result;            /* what it returns: enum once_result */
    const char *sql;       /* what else it writes in its transaction; NULL: nothing */
    int64_t fence;         /* of the last run */
    unsigned sleep_ms;
};
int work_handler(void *work, struct once_run *run);

void sleep_ms(unsigned ms);
/* A scope that nobody else has. Lives until the next call of the same thread. */
const char *scope_new(const struct rig *rig);
/* Opened with these options, to which store, mode and tables are added. */
struct once *rig_open(const struct rig *rig, struct once_options options);
/* One message with this key. */
struct once_message message_of(const char *key);
/* How often the effect of this key happened: rows, or runs that said ONCE_DONE. */
long effects_of(const struct rig *rig, struct work *work);

struct once_answer deliver(struct once *once, const char *key, struct work *work);
/* … until it is acknowledged: as a queue does, but without its pauses. */
struct once_answer deliver_until_done(struct once *once, const char *key, struct work *work);

/* Runs `n` threads of the same function and waits for them. */
void threads_run(unsigned n, void *(*of)(void *), void *user);

#endif
