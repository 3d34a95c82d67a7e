/* run.c - from a message to a verdict: begin, the handler, end.
 *
 *     message ─ key ─ does it run here? ─ claim ─► RUN ─ handler ─ finish or release ─► ACK, RETRY
 *                          │                │
 *                        LATER     LATER, ACK, BURY
 *
 * One message and many go the same way; many share the round trips. Transactions turn off after
 * "does it run here?" (transaction.c).
 */
#include "once/once_int.h"

#include <stdlib.h>

#define HERE_MS       1000 /* a key that runs in this process: asked again after so long */
#define TELL_FIRST_MS 20
#define TELL_MOST_MS  1000
#define TELL_AGAIN_MS 100
#define UNSURE_MS     1000
#define LATE_CLAIM_MS 100

/* ---- runs ---- */

static struct once_run *run_new(struct once *once, const struct once_message *message)
{
    struct once_run *run = malloc(sizeof *run);
    if (!run)
        return NULL;
    memset(run, 0, offsetof(struct once_run, op));
    op_clear(&run->op);
    run->once = once;
    run->attempt = message->attempt;
    run->op.name = run->place.name = "";
    run->op.expiry_ms = once->with.expiry_ms;
    run->op.retention_ms = once->with.retention_ms;
    run->op.takeover = once->with.takeover;
    run->op.forget = once->with.mode == ONCE_TABLE || once->with.plain;
    return run;
}

static void run_free(struct once_run *run)
{
    while (run->notes) {
        struct note *note = run->notes;
        run->notes = note->next;
        free(note);
    }
    buf_clear(&run->key);
    free(run);
}

void run_forget(struct once_run *run)
{
    struct once *once = run->once;
    bool last = running_remove(&once->running, run);
    run_free(run);
    if (last)
        once_free(once);
}

struct note *run_note(struct once_run *run, const void *text, size_t size)
{
    struct note *note = calloc(1, sizeof *note + size + 1);
    if (!note)
        return NULL;
    if (size > 0)
        memcpy(note->text, text, size);
    note->next = run->notes;
    run->notes = note;
    return note;
}

enum err run_name(struct once_run *run)
{
    buf_add_u8(&run->key, 0);
    if (run->key.err != OK)
        return run->key.err;
    run->key.len--;
    struct bytes key = buf_bytes(&run->key);
    key_id(bytes_str(run->once->with.scope), key, run->op.id);
    run->op.plain = key;
    if (!run->once->names)
        return OK;
    char name[ONCE_NAME_MAX + 1];
    key_name(key, name, sizeof name);
    const struct note *note = run_note(run, name, strlen(name));
    if (!note)
        return ERR_NO_MEMORY;
    run->op.name = run->place.name = note->text;
    return OK;
}

/* ---- the key ---- */

static int no_key(struct once *once, struct once_answer *answer, enum err err,
                  const struct fault *fault)
{
    bool bury = once->with.no_key == ONCE_BY_DEAD_LETTER;
    (void)answer_set(answer, bury ? ONCE_BURY : ONCE_RETRY, ONCE_NO_KEY, 0);
    return once_fail(&answer->why, ONCE_INVALID, "no key can be made of this message: %s",
                     fault->text[0] ? fault->text : err_text(err));
}

/* OK, or why there is none. */
static enum err make_key(struct once_run *run, const struct once_message *message,
                         struct fault *why)
{
    struct once *once = run->once;
    if (once->with.mode == ONCE_OFFSET)
        return place_of(run, message, why);
    struct bytes prefix = bytes_str(once->with.prefix);
    run->key = buf_upto(prefix.len + KEY_MAX + 1);
    buf_add(&run->key, prefix);
    enum err err = key_make(once->key, message, &run->key, why);
    if (err == OK || err == ERR_NO_MEMORY)
        return err;
    tally_add(&once->tally, TALLY_NO_KEY, 1);
    if (once->with.no_key != ONCE_BY_MESSAGE_ID || !message->id || !message->id[0])
        return err;
    buf_add_str(&run->key, message->id);
    return run->key.err;
}

/* ---- begin ---- */

static int refuse(struct once_answer *answer, int code, const char *text)
{
    (void)answer_set(answer, ONCE_LATER, ONCE_DOWN, about_ms(1000));
    (void)once_fail(&answer->why, code, "%s", text);
    return ONCE_LATER;
}

static int runs_here(struct once *once, struct once_answer *answer)
{
    return answer_running(once, answer,
                          once->with.expiry_ms < HERE_MS ? once->with.expiry_ms : HERE_MS);
}

/* A run that stands in the table, or NULL and the answer; ONCE_RUN: its key runs here. */
static struct once_run *prepare(struct once *once, const struct once_message *message,
                                struct once_answer *answer)
{
    struct once_run *run = run_new(once, message);
    struct fault fault;
    fault.text[0] = 0;
    enum err err = run ? make_key(run, message, &fault) : ERR_NO_MEMORY;
    bool keyed = err == OK || err == ERR_NO_MEMORY;
    if (err == OK)
        err = run_name(run);
    if (err == OK) {
        run->op.kind = OP_CLAIM;
        run->op.token = token_next(once);
        run->op.topic = message->topic;
        run->op.message = message->id;
        run->op.fingerprint = key_fingerprint(message->body, message->body_size);
        err = running_add(&once->running, run);
    }
    if (err == OK)
        return run;
    if (run)
        run_free(run);
    answer->verdict = ONCE_RUN;
    if (err == ERR_DENIED) {
        (void)answer_lost(once, answer);
        (void)once_fail(&answer->why, ONCE_MISUSE, "%s", fault.text);
    } else if (!keyed)
        (void)no_key(once, answer, err, &fault);
    else if (err == ERR_CLOSED)
        (void)refuse(answer, ONCE_CLOSED, "once_close was called");
    else if (err != ERR_EXISTS)
        (void)refuse(answer, ONCE_NO_MEMORY, "out of memory");
    return NULL;
}

/* The store has no answer, or none but its own trouble. True: the handler runs all the same. */
static bool runs_without_store(const struct once *once, enum err err)
{
    return once->with.open_when_down && err != ERR_STALE && err != ERR_NO_MEMORY;
}

static int claim_unanswered(struct once_run *run, struct once_answer *answer, enum err err,
                            const struct fault *fault)
{
    struct once *once = run->once;
    if (!runs_without_store(once, err))
        return answer_down(once, answer, err, fault);
    run->without_store = true;
    tally_add(&once->tally, TALLY_WITHOUT_STORE, 1);
    (void)answer_set(answer, ONCE_RUN, ONCE_DOWN, 0);
    (void)once_fail_store(&answer->why, err, fault);
    return ONCE_RUN;
}

static void note_overtaken(const struct once_run *run)
{
    tally_add(&run->once->tally, TALLY_OVERTAKEN, 1);
    once_log(run->once, ONCE_INFO,
             "%s runs again: an earlier run began and never ended, so its effect may have happened",
             run->op.name);
}

/* What the store said to the claim. */
static int claim_answered(struct once_run *run, struct once_answer *answer, enum err err,
                          uint64_t mine, const struct span *span, const struct fault *fault)
{
    struct once *once = run->once;
    uint64_t expiry_ns = (uint64_t)once->with.expiry_ms * NS_PER_MS;
    switch (run->op.outcome) {
    case OUT_OK:
        atomic_store_explicit(&run->over_ns, span->answered_ns + expiry_ns, memory_order_relaxed);
        atomic_store_explicit(&run->valid_ns, span->asked_ns + expiry_ns, memory_order_release);
        run->overtook = run->op.state == ONCE_CONSUMING;
        if (run->overtook)
            note_overtaken(run);
        return answer_set(answer, ONCE_RUN, ONCE_FIRST, 0);
    case OUT_BUSY:
        return answer_running(once, answer, run->op.left_ms);
    case OUT_DONE:
        return answer_done(run, answer, mine, run->op.fingerprint);
    case OUT_FAILED:
        return claim_unanswered(run, answer, ERR_DAMAGED, &run->op.why);
    default:
        return claim_unanswered(run, answer, err == OK ? ERR_IO : err, fault);
    }
}

/* runs[i] stand in the table; those that may not run leave it. At most ONCE_OPS_MAX. */
static void claim_all(struct once *once, struct once_run **runs, size_t n,
                      struct once_answer *answers)
{
    struct op *ops[ONCE_OPS_MAX];
    uint64_t mine[ONCE_OPS_MAX];
    size_t n_ops = 0;
    struct span span;
    struct fault fault;
    fault.text[0] = 0;
    for (size_t i = 0; i < n; i++) {
        if (!runs[i])
            continue;
        mine[n_ops] = runs[i]->op.fingerprint;
        ops[n_ops++] = &runs[i]->op;
    }
    if (n_ops == 0)
        return;
    enum err err = store_ask(once, ops, n_ops, once->with.wait_ms, &span, &fault);
    for (size_t i = 0, k = 0; i < n; i++) {
        if (!runs[i])
            continue;
        runs[i]->op.topic = runs[i]->op.message = NULL; /* the caller's */
        if (claim_answered(runs[i], &answers[i], err, mine[k++], &span, &fault) == ONCE_RUN)
            continue;
        struct once_run *run = runs[i];
        runs[i] = NULL;
        run_forget(run);
    }
}

static bool in_transaction(const struct once *once)
{
    return once->pool != NULL;
}

int once_begin(struct once *once, const struct once_message *message, struct once_run **run,
               struct once_answer *answer)
{
    struct once_answer unseen;
    answer = answer ? answer : &unseen;
    if (run)
        *run = NULL;
    if (!once || !message || !run)
        return refuse(answer, ONCE_INVALID, "once, message and run are required");
    *run = prepare(once, message, answer);
    if (!*run)
        return answer->verdict == ONCE_RUN ? runs_here(once, answer) : answer->verdict;
    if (!in_transaction(once)) {
        claim_all(once, run, 1, answer);
        return answer->verdict;
    }
    if (transaction_begin(*run, answer) != ONCE_RUN)
        run_forget(take(run));
    return answer->verdict;
}

/* At most ONCE_OPS_MAX. */
static void begin_some(struct once *once, const struct once_message *messages, size_t n,
                       struct once_run **runs, struct once_answer *answers)
{
    bool again[ONCE_OPS_MAX];
    for (size_t i = 0; i < n; i++) {
        runs[i] = prepare(once, &messages[i], &answers[i]);
        again[i] = !runs[i] && answers[i].verdict == ONCE_RUN;
    }
    claim_all(once, runs, n, answers);
    /* Those that met their own key: perhaps in this very batch, and what that one met is what
     * these shall meet. */
    for (size_t i = 0; i < n; i++) {
        if (again[i])
            (void)once_begin(once, &messages[i], &runs[i], &answers[i]);
    }
}

void once_begin_all(struct once *once, const struct once_message *messages, size_t n,
                    struct once_run **runs, struct once_answer *answers)
{
    if (!runs || !answers || (!messages && n > 0))
        return;
    bool fits = once && !in_transaction(once);
    for (size_t i = 0; i < n && !fits; i++) {
        runs[i] = NULL;
        (void)refuse(&answers[i], once ? ONCE_MISUSE : ONCE_INVALID,
                     once ? "many at once are not for transactions: use once_begin"
                          : "once is required");
    }
    for (size_t from = 0; from < n && fits; from += ONCE_OPS_MAX) {
        size_t some = n - from < ONCE_OPS_MAX ? n - from : ONCE_OPS_MAX;
        begin_some(once, messages + from, some, runs + from, answers + from);
    }
}

/* ---- end ---- */

/* It ran without a claim. If the store is back by now, others shall know what was done. */
static int end_without_store(struct once_run *run, int result, struct once_answer *answer)
{
    if (result != ONCE_DONE)
        return answer_set(answer, ONCE_RETRY, ONCE_FAILED_RUN, 0);
    struct op *ops[] = {&run->op};
    struct fault fault;
    run->op.kind = OP_CLAIM;
    enum err err = store_ask(run->once, ops, 1, LATE_CLAIM_MS, NULL, &fault);
    run->op.kind = OP_FINISH;
    if (err == OK && run->op.outcome == OUT_OK)
        err = store_ask(run->once, ops, 1, LATE_CLAIM_MS, NULL, &fault);
    if (err != OK)
        once_log(run->once, ONCE_DEBUG, "done without the store, which does not know it yet");
    return answer_set(answer, ONCE_ACK, ONCE_DOWN, 0);
}

static int finish_unsure(struct once_run *run, struct once_answer *answer, enum err err,
                         const struct fault *fault)
{
    tally_add(&run->once->tally, TALLY_UNSURE, 1);
    (void)answer_set(answer, ONCE_LATER, ONCE_UNSURE, about_ms(UNSURE_MS));
    (void)once_fail_store(&answer->why, err, fault);
    once_log(run->once, ONCE_WARN, "done, but the store could not be told, so it may run again: %s",
             answer->why.text);
    return ONCE_LATER;
}

static int end_answered(struct once_run *run, struct once_answer *answer, enum err err,
                        const struct fault *fault)
{
    struct once *once = run->once;
    bool finish = run->op.kind == OP_FINISH;
    if (run->op.outcome == OUT_LOST)
        return answer_lost(once, answer);
    if (run->op.outcome == OUT_OK) {
        tally_add(&once->tally, finish ? TALLY_FIRST : TALLY_RELEASED, 1);
        return finish ? answer_set(answer, ONCE_ACK, ONCE_FIRST, 0)
                      : answer_set(answer, ONCE_RETRY, ONCE_FAILED_RUN, 0);
    }
    if (!finish) /* nobody was told: the claim ends by itself */
        return answer_set(answer, ONCE_RETRY, ONCE_FAILED_RUN, 0);
    bool own = run->op.outcome == OUT_FAILED;
    return finish_unsure(run, answer, own ? ERR_DAMAGED : err, own ? &run->op.why : fault);
}

/* H-10: what was done is worth telling as long as the claim may be ours. */
static bool is_told_again(const struct once_run *run, enum err err)
{
    bool answered = run->op.outcome != OUT_NONE && run->op.outcome != OUT_FAILED;
    return !answered && run->op.kind == OP_FINISH && err != ERR_STALE &&
           !atomic_load_explicit(&run->once->closing, memory_order_relaxed) &&
           clock_ns(run->once->clock) < run->limit_ns;
}

/* By an earlier once_end_all, without an answer. If the store has heard it all the same, whoever
 * renews the claim finds it gone: that is no loss. And its limit stays what it was. */
static bool was_told(const struct once_run *run)
{
    return run->limit_ns != 0;
}

/* What the store need not be told. */
static bool end_alone(struct once_run *run, int result, struct once_answer *answer)
{
    if (run->conn)
        (void)transaction_end(run, result, answer);
    else if (run->without_store)
        (void)end_without_store(run, result, answer);
    else if (atomic_load_explicit(&run->lost, memory_order_relaxed) && !was_told(run))
        (void)answer_lost(run->once, answer);
    else
        return false;
    run_forget(run);
    return true;
}

struct ending {
    struct once_run *run;
    struct once_answer *answer;
};

/* Tells the store once about some, all of one `once`. Those of them that are worth telling again
 * are in front then: how many. `err` and `fault` are what became of them. */
static size_t tell(struct ending *some, size_t n, enum err *err, struct fault *fault)
{
    struct op *ops[ONCE_OPS_MAX];
    size_t again = 0;
    fault->text[0] = 0;
    for (size_t i = 0; i < n; i++)
        ops[i] = &some[i].run->op;
    *err = n > 0
               ? store_ask(some[0].run->once, ops, n, some[0].run->once->with.wait_ms, NULL, fault)
               : OK;
    for (size_t i = 0; i < n; i++) {
        if (is_told_again(some[i].run, *err))
            some[again++] = some[i];
        else {
            (void)end_answered(some[i].run, some[i].answer, *err, fault);
            run_forget(some[i].run);
        }
    }
    return again;
}

/* Until the store knows, or it is no use. */
static void tell_on(struct ending *one)
{
    int64_t pause_ms = TELL_FIRST_MS;
    enum err err;
    struct fault fault;
    while (tell(one, 1, &err, &fault) > 0) {
        wait_ns((uint64_t)about_ms(pause_ms) * NS_PER_MS);
        pause_ms = pause_ms * 2 < TELL_MOST_MS ? pause_ms * 2 : TELL_MOST_MS;
    }
}

/* What has no answer stays its caller's, who shall not wait with it for all the others. */
static void tell_all(struct ending *some, size_t n)
{
    enum err err;
    struct fault fault;
    size_t again = tell(some, n, &err, &fault);
    for (size_t i = 0; i < again; i++) {
        const struct op *op = &some[i].run->op;
        bool own = op->outcome == OUT_FAILED;
        (void)answer_set(some[i].answer, ONCE_RUN, ONCE_UNSURE, about_ms(TELL_AGAIN_MS));
        (void)once_fail_store(&some[i].answer->why, own ? ERR_DAMAGED : err,
                              own ? &op->why : &fault);
    }
}

static void end_prepare(struct once_run *run, int result)
{
    run->op.kind = result == ONCE_DONE ? OP_FINISH : OP_RELEASE;
    /* Who came after a run that never ended, and fails, leaves the claim as it was found: over, but
     * not free. So the next one hears of that run, too. */
    if (run->op.kind == OP_RELEASE && run->overtook && !run->op.forget) {
        run->op.kind = OP_RENEW;
        run->op.expiry_ms = 0;
    }
    if (!was_told(run))
        run->limit_ns = atomic_load_explicit(&run->over_ns, memory_order_relaxed);
}

int once_end(struct once_run *run, int result, struct once_answer *answer)
{
    struct once_answer unseen;
    answer = answer ? answer : &unseen;
    if (!run)
        return refuse(answer, ONCE_INVALID, "run is required");
    if (end_alone(run, result, answer))
        return answer->verdict;
    end_prepare(run, result);
    struct ending one = {run, answer};
    tell_on(&one);
    return answer->verdict;
}

void once_end_all(struct once_run *const *runs, const int *results, size_t n,
                  struct once_answer *answers)
{
    struct ending some[ONCE_OPS_MAX];
    size_t n_some = 0;
    if (!runs || !results || !answers)
        return;
    for (size_t i = 0; i < n; i++) {
        struct once_run *run = runs[i];
        if (!run || end_alone(run, results[i], &answers[i]))
            continue;
        if (n_some == ONCE_OPS_MAX || (n_some > 0 && some[0].run->once != run->once)) {
            tell_all(some, n_some);
            n_some = 0;
        }
        end_prepare(run, results[i]);
        some[n_some++] = (struct ending){run, &answers[i]};
    }
    tell_all(some, n_some);
}

int once_do(struct once *once, const struct once_message *message, once_handler *handler,
            void *user, struct once_answer *answer)
{
    struct once_answer unseen;
    answer = answer ? answer : &unseen;
    if (!handler)
        return refuse(answer, ONCE_INVALID, "handler is required");
    struct once_run *run;
    if (once_begin(once, message, &run, answer) != ONCE_RUN)
        return answer->verdict;
    return once_end(run, handler(user, run), answer);
}

/* ---- what a handler may ask ---- */

const char *once_run_key(const struct once_run *run)
{
    return run ? (const char *)run->key.at : "";
}

size_t once_run_key_size(const struct once_run *run)
{
    return run ? run->key.len : 0;
}

int64_t once_run_fence(const struct once_run *run)
{
    bool has = run && !run->conn && !run->without_store && !run->once->with.plain;
    return has ? run->op.fence : 0;
}

int once_run_attempt(const struct once_run *run)
{
    return run ? run->attempt : 0;
}

bool once_run_lost(const struct once_run *run)
{
    if (!run || run->conn || run->without_store)
        return false;
    return atomic_load(&run->lost) || clock_ns(run->once->clock) >= atomic_load(&run->valid_ns);
}

bool once_run_overtook(const struct once_run *run)
{
    return run && run->overtook;
}

void *once_run_connection(struct once_run *run)
{
    return run && run->conn ? run->once->driver->native(run->conn) : NULL;
}
