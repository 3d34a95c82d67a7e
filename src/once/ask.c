/* ask.c - asking the store on behalf of a message, and what its answers mean for that. */
#include "once/once_int.h"

#define DOWN_LEAST_MS 500
#define DOWN_MOST_MS  30000
#define LOST_MS       1000
#define TOKENS        1024 /* a thread takes as many at once */
#define TAKEOVER_MS   500

/* Different for each claim of this process; which process it is, is in the upper half. */
uint64_t token_next(struct once *once)
{
    static _Atomic uint32_t blocks;
    static _Thread_local uint32_t next, left;
    if (unlikely(left == 0)) {
        next = atomic_fetch_add_explicit(&blocks, 1, memory_order_relaxed) * TOKENS;
        left = TOKENS;
    }
    left--;
    return (uint64_t)once->instance << 32 | next++;
}

static void note_down(struct once *once, enum err err, const struct fault *why)
{
    uint64_t up = 0;
    uint64_t now_ns = clock_ns(once->clock);
    if (!atomic_compare_exchange_strong(&once->down_ns, &up, now_ns ? now_ns : 1))
        return;
    once_log(once, ONCE_WARN, "the store gives no answer, %s: %s",
             once->with.open_when_down ? "messages run without it" : "messages come back later",
             why && why->text[0] ? why->text : err_text(err));
}

void store_note(struct once *once, enum err err, const struct fault *why)
{
    if (err == OK) {
        if (unlikely(atomic_load_explicit(&once->down_ns, memory_order_relaxed) != 0) &&
            atomic_exchange(&once->down_ns, 0) != 0)
            once_log(once, ONCE_INFO, "the store answers again");
        return;
    }
    if (err == ERR_TIMEOUT || err == ERR_BUSY)
        return; /* it lives */
    tally_add(&once->tally, TALLY_STORE_ERROR, 1);
    if (err != ERR_STALE)
        note_down(once, err, why);
}

enum err store_ask(struct once *once, struct op *const *ops, size_t n, int wait_ms,
                   struct span *span, struct fault *why)
{
    uint64_t asked_ns = clock_ns(once->clock);
    enum err err = crew_run(once->crew, ops, n, wait_ms, why);
    uint64_t answered_ns = clock_ns(once->clock);
    if (span)
        *span = (struct span){asked_ns, answered_ns};
    tally_add(&once->tally, TALLY_STORE_NS, answered_ns - asked_ns);
    tally_add(&once->tally, TALLY_STORE_CALLS, 1);
    store_note(once, err, why);
    return err;
}

/* ---- verdicts ---- */

int64_t about_ms(int64_t ms)
{
    return ms - ms / 4 + (int64_t)(wait_now_ns() / 1000 % (uint64_t)(ms / 2 + 1));
}

int answer_set(struct once_answer *answer, int verdict, int cause, int64_t wait_ms)
{
    answer->verdict = verdict;
    answer->cause = cause;
    answer->wait_ms = wait_ms;
    answer->why.code = ONCE_OK;
    answer->why.text[0] = 0;
    return verdict;
}

/* The longer it has been away, the later. */
static int64_t down_wait_ms(struct once *once)
{
    uint64_t since_ns = atomic_load_explicit(&once->down_ns, memory_order_relaxed);
    uint64_t now_ns = clock_ns(once->clock);
    int64_t ms = since_ns && now_ns > since_ns ? (int64_t)((now_ns - since_ns) / NS_PER_MS) : 0;
    ms = ms < DOWN_LEAST_MS ? DOWN_LEAST_MS : ms > DOWN_MOST_MS ? DOWN_MOST_MS : ms;
    return about_ms(ms);
}

int answer_down(struct once *once, struct once_answer *answer, enum err err,
                const struct fault *fault)
{
    int cause = err == ERR_STALE ? ONCE_EMPTIED : err == ERR_BUSY ? ONCE_CONFLICT : ONCE_DOWN;
    int64_t wait_ms = err == ERR_STALE ? about_ms(DOWN_MOST_MS) : down_wait_ms(once);
    (void)answer_set(answer, ONCE_LATER, cause, wait_ms);
    (void)once_fail_store(&answer->why, err, fault);
    return answer->verdict;
}

int answer_done(struct once_run *run, struct once_answer *answer, uint64_t mine, uint64_t theirs)
{
    struct once *once = run->once;
    bool other = theirs != 0 && mine != theirs; /* 0: the store has kept none */
    if (once->with.log) {
        char name[ONCE_NAME_MAX + 1];
        key_name(buf_bytes(&run->key), name, sizeof name);
        once_log(once, other ? ONCE_WARN : ONCE_DEBUG, "%s key=%s",
                 other ? "done before with another body" : "duplicate", name);
    }
    tally_add(&once->tally, other ? TALLY_OTHER_BODY : TALLY_DUPLICATE, 1);
    if (!other)
        return answer_set(answer, ONCE_ACK, ONCE_DUPLICATE, 0);
    bool bury = once->with.other_body == ONCE_BY_DEAD_LETTER;
    (void)answer_set(answer, bury ? ONCE_BURY : ONCE_ACK, ONCE_OTHER_BODY, 0);
    answer->why.code = ONCE_OK;
    return answer->verdict;
}

int answer_running(struct once *once, struct once_answer *answer, int64_t left_ms)
{
    tally_add(&once->tally, TALLY_BUSY, 1);
    int64_t wait_ms = left_ms < 1 ? 1 : left_ms;
    if (once->with.takeover && wait_ms > TAKEOVER_MS)
        wait_ms = TAKEOVER_MS; /* it may be free any moment */
    return answer_set(answer, ONCE_LATER, ONCE_RUNNING, wait_ms);
}

int answer_lost(struct once *once, struct once_answer *answer)
{
    tally_add(&once->tally, TALLY_LOST, 1);
    (void)answer_set(answer, ONCE_LATER, ONCE_LOST_CLAIM, about_ms(LOST_MS));
    (void)once_fail(&answer->why, ONCE_LOST,
                    "another has the claim by now: what this run did is not recorded");
    return answer->verdict;
}
