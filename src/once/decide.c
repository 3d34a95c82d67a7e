/* decide.c - the rules by which claims are made, kept and ended. */
#include "once/decide.h"

#include "once.h"

static bool ended(const struct stored *s, int64_t now_ms)
{
    return s->until_ms <= now_ms;
}

static int64_t left(const struct stored *s, int64_t now_ms)
{
    int64_t left_ms;
    if (ended(s, now_ms))
        return 0;
    return __builtin_sub_overflow(s->until_ms, now_ms, &left_ms) ? INT64_MAX : left_ms;
}

/* Times come from options, clocks from strangers: a sum stays within bounds. */
static int64_t later(int64_t now_ms, int64_t more_ms)
{
    int64_t sum;
    return __builtin_add_overflow(now_ms, more_ms, &sum) ? INT64_MAX : sum;
}

static int64_t next_fence(const struct stored *s, int64_t now_ms)
{
    int64_t by_clock = now_ms > 0 && now_ms < INT64_MAX / 1000 ? now_ms * 1000 : 1;
    return s->state != ONCE_ABSENT && s->fence >= by_clock ? s->fence + 1 : by_clock;
}

static bool claim(const struct stored *before, int64_t now_ms, bool gone, struct op *op,
                  struct stored *after)
{
    op->left_ms = left(before, now_ms);
    if (before->state == ONCE_CONSUMED && !ended(before, now_ms)) {
        op->outcome = OUT_DONE;
        op->fingerprint = before->fingerprint;
        return false;
    }
    if (before->state == ONCE_CONSUMING && before->token == op->token) {
        op->outcome = OUT_OK; /* asked again, because the answer was lost */
        op->state = ONCE_ABSENT;
        op->fence = before->fence;
        after->until_ms = later(now_ms, op->expiry_ms);
        return true;
    }
    if (before->state == ONCE_CONSUMING && !ended(before, now_ms) && !(gone && op->takeover)) {
        op->outcome = OUT_BUSY;
        return false;
    }
    *after = (struct stored){
        .state = ONCE_CONSUMING,
        .token = op->token,
        .fence = next_fence(before, now_ms),
        .until_ms = later(now_ms, op->expiry_ms),
        .fingerprint = op->fingerprint,
    };
    op->fence = after->fence;
    op->state = before->state;
    op->left_ms = 0;
    op->outcome = OUT_OK;
    return true;
}

/* A claim that has expired but that nobody has taken is still its holder's: nothing was lost. */
static bool holds(const struct stored *s, uint64_t token)
{
    return s->state == ONCE_CONSUMING && s->token == token;
}

static bool finish(const struct stored *before, int64_t now_ms, struct op *op, struct stored *after)
{
    if (before->state == ONCE_CONSUMED && before->token == op->token) {
        op->outcome = OUT_OK; /* said again, because the answer was lost */
        return false;
    }
    if (!holds(before, op->token)) {
        op->outcome = OUT_LOST;
        return false;
    }
    after->state = ONCE_CONSUMED;
    after->until_ms = later(now_ms, op->retention_ms);
    op->outcome = OUT_OK;
    return true;
}

static bool release(const struct stored *before, int64_t now_ms, struct op *op,
                    struct stored *after)
{
    bool released = before->state == ONCE_RELEASED && before->token == op->token;
    if (!holds(before, op->token)) {
        op->outcome = released || (op->forget && before->state == ONCE_ABSENT) ? OUT_OK : OUT_LOST;
        return false;
    }
    if (op->forget)
        *after = (struct stored){.state = ONCE_ABSENT};
    else {
        after->state = ONCE_RELEASED;
        after->until_ms = later(now_ms, op->retention_ms); /* steps and fence live on so long */
    }
    op->outcome = OUT_OK;
    return true;
}

static bool renew(const struct stored *before, int64_t now_ms, struct op *op, struct stored *after)
{
    if (!holds(before, op->token)) {
        op->outcome = OUT_LOST;
        return false;
    }
    after->until_ms = later(now_ms, op->expiry_ms);
    op->outcome = OUT_OK;
    return true;
}

bool decide(const struct stored *before_at, int64_t now_ms, bool gone, struct op *op,
            struct stored *after)
{
    struct stored before = *before_at;
    *after = before;
    switch (op->kind) {
    case OP_CLAIM:
        return claim(&before, now_ms, gone, op, after);
    case OP_RENEW:
        return renew(&before, now_ms, op, after);
    case OP_FINISH:
        return finish(&before, now_ms, op, after);
    case OP_RELEASE:
        return release(&before, now_ms, op, after);
    case OP_LOOK:
        op->state = before.state;
        op->fence = before.fence;
        op->left_ms = left(&before, now_ms);
        op->outcome = before.state == ONCE_ABSENT ? OUT_ABSENT : OUT_OK;
        return false;
    case OP_FORGET:
        *after = (struct stored){.state = ONCE_ABSENT};
        op->outcome = OUT_OK;
        return before.state != ONCE_ABSENT;
    case OP_STEP_GET:
    case OP_STEP_PUT:
    case OP_SWEEP:
        break;
    }
    op->outcome = OUT_FAILED;
    return false;
}
