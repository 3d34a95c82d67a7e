/* decide.h - may this claim be made? The heart of the module, pure, so that it can be read and
 * tested without any store. The memory store and the SQL stores call it; the script that Redis runs
 * says the same in Lua, and a test holds the two against each other. */
#ifndef ONCE_DECIDE_H
#define ONCE_DECIDE_H

#include "once/op.h"

/* What a store has under an id. `state` is an enum once_state; ONCE_ABSENT: nothing. */
struct stored {
    int state;
    uint64_t token;
    int64_t fence;
    int64_t until_ms; /* by the store's clock */
    uint64_t fingerprint;
};

/* Sets the outcome of op (claim, renew, finish, release) and what stands beside it, and writes what
 * the store shall have afterwards to `after` (may be `before` itself). True: it differs from
 * `before`. `gone`: the holder's process is known to be gone. */
bool decide(const struct stored *before, int64_t now_ms, bool gone, struct op *op,
            struct stored *after);

#endif
