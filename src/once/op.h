/* op.h - one operation on a key, as every store knows it; driver.h tells what they mean. */
#ifndef ONCE_OP_H
#define ONCE_OP_H

#include "base/bytes.h"
#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ONCE_ID_SIZE    32         /* SHA-256 of scope and key */
#define ONCE_NAME_MAX   200        /* the key as people read it: printable ASCII, cut */
#define ONCE_STEP_MAX   64         /* name of a step */
#define ONCE_RESULT_MAX (64 << 10) /* what a step gives */
#define ONCE_OPS_MAX    256        /* handed to a driver at once */

/* The numbers of kinds and outcomes travel (ledger/wire.h): new ones come at the end. */
enum op_kind {
    OP_CLAIM,
    OP_RENEW,
    OP_FINISH,
    OP_RELEASE,
    OP_LOOK,
    OP_FORGET, /* whoever has it; the steps too */
    OP_STEP_GET,
    OP_STEP_PUT, /* if the claim is still the token's; a step that is there stays as it is */
    OP_SWEEP,
};

enum op_outcome {
    OUT_NONE, /* not run */
    OUT_OK,   /* claimed, renewed, finished, released, found, put, swept */
    OUT_BUSY, /* claim: another's; `left_ms` of it */
    OUT_DONE, /* claim: it is CONSUMED; `fingerprint`, `left_ms`. Finish: it was so already by this
                 very token, which is as good as OK and reported as OK, not as this */
    OUT_LOST, /* renew, finish, release, step_put: not this token's any more */
    OUT_ABSENT, /* look, step_get */
    OUT_FAILED, /* this one alone was refused by the store: the fault has the sentence */
};

/* One operation. In: what its kind needs. Out: `outcome`, and what stands beside it. */
struct op {
    enum op_kind kind;
    uint8_t id[ONCE_ID_SIZE];
    const char *name;            /* for people */
    const char *topic, *message; /* claim: of which message, for people; may be NULL. Valid while
                                    the claim is asked for, no longer */
    struct bytes plain;          /* the key itself, as other programs know it, in plain form */
    uint64_t token; /* never 0; the upper half tells the process instance: store_alive */
    uint64_t fingerprint;
    int64_t expiry_ms;    /* claim, renew */
    int64_t retention_ms; /* claim: how long a row may outlive its expiry; finish: the mark */
    bool forget;          /* release: leave no row */
    bool takeover;        /* claim: if the holder's instance is gone, it is ours */
    struct bytes step;    /* its name */
    struct bytes
        result; /* step_put, finish: in. step_get: out, malloc'ed by the driver: result.at */
    int rows;   /* sweep: at most; out: how many were */

    enum op_outcome outcome;
    int state;       /* look: enum once_state. Claim, OUT_OK: what it was before; ONCE_CONSUMING: by
                        another token, whose run never ended */
    int64_t fence;   /* claim, look */
    int64_t left_ms; /* claim: of the other's; look */
    struct fault
        why; /* OUT_FAILED. Last, since of it only the first byte must be written: op_clear */
};

/* One that says nothing. The room for a sentence, which is most of it, stays as it is. */
static inline void op_clear(struct op *op)
{
    memset(op, 0, offsetof(struct op, why) + offsetof(struct fault, text) + 1);
}

#endif
