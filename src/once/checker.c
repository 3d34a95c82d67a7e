/* checker.c - a store of the application's own (struct once_checker) as a driver. */
#include "once/once_int.h"

#include <stdlib.h>

struct store {
    const struct once_checker *checker;
    void *self;
};

static enum err checker_open(const struct store_settings *settings, struct store **out,
                             struct fault *why)
{
    const struct once_options *o = settings->own;
    struct store *store = calloc(1, sizeof *store);
    if (!store)
        return fault_set(why, ERR_NO_MEMORY, "out of memory");
    *store = (struct store){o->checker, o->checker_self};
    *out = store;
    return OK;
}

static void checker_close(struct store *store)
{
    if (store->checker->close)
        store->checker->close(store->self);
    free(store);
}

static enum err checker_connect(struct store *store, struct conn **out, struct fault *why)
{
    (void)why;
    *out = (struct conn *)(void *)store;
    return OK;
}

static void checker_disconnect(struct conn *conn)
{
    (void)conn;
}

static struct once_claim claim_of(const struct op *op)
{
    struct once_claim claim = {
        .name = op->name ? op->name : "",
        .token = op->token,
        .fingerprint = op->fingerprint,
        .expiry_ms = op->expiry_ms,
        .retention_ms = op->retention_ms,
    };
    memcpy(claim.id, op->id, sizeof claim.id);
    return claim;
}

/* A code of the checker; what it does not know of is an error of the store. */
static enum err outcome_of(int code, struct op *op)
{
    if (code != ONCE_OK && code != ONCE_LOST)
        return ERR_IO;
    op->outcome = code == ONCE_LOST ? OUT_LOST : OUT_OK;
    return OK;
}

static enum err begin(const struct store *store, struct op *op)
{
    struct once_claim claim = claim_of(op);
    struct once_found found = {0};
    if (store->checker->begin(store->self, &claim, &found) != ONCE_OK)
        return ERR_IO;
    op->left_ms = found.left_ms > 0 ? found.left_ms : 0;
    op->fence = found.fence;
    op->outcome = found.state == ONCE_CONSUMED    ? OUT_DONE
                  : found.state == ONCE_CONSUMING ? OUT_BUSY
                                                  : OUT_OK;
    if (op->outcome == OUT_DONE)
        op->fingerprint = found.fingerprint;
    return OK;
}

static enum err sweep(const struct store *store, struct op *op)
{
    int code = store->checker->sweep ? store->checker->sweep(store->self, op->rows) : ONCE_OK;
    op->rows = 0; /* a checker does not say how many */
    return outcome_of(code, op);
}

static enum err op_run(const struct store *store, struct op *op)
{
    struct once_claim claim = claim_of(op);
    switch (op->kind) {
    case OP_CLAIM:
        return begin(store, op);
    case OP_RENEW:
        return outcome_of(store->checker->renew(store->self, &claim), op);
    case OP_FINISH:
        return outcome_of(store->checker->done(store->self, &claim), op);
    case OP_RELEASE:
        return outcome_of(store->checker->failed(store->self, &claim), op);
    case OP_SWEEP:
        return sweep(store, op);
    default:
        op->outcome = OUT_FAILED;
        (void)fault_set(&op->why, ERR_UNSUPPORTED, "a checker of one's own cannot do this");
        return OK;
    }
}

static enum err checker_run(struct conn *conn, struct op *const *ops, size_t n, struct fault *why)
{
    const struct store *store = (const struct store *)(const void *)conn;
    enum err first = OK;
    for (size_t i = 0; i < n; i++) {
        enum err err = op_run(store, ops[i]);
        if (err != OK)
            first = fault_set(why, err, "the checker reports an error of its store");
    }
    return first;
}

const struct once_driver once_driver_checker = {
    .name = "checker",
    .direct = true,
    .open = checker_open,
    .close = checker_close,
    .connect = checker_connect,
    .disconnect = checker_disconnect,
    .run = checker_run,
};
