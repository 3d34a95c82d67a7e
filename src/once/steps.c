/* steps.c - a handler in steps, each of which is done once (H-31).
 *
 * A finished step is recorded under the message's id with what it gave; the record needs the claim,
 * so a run that was overtaken leaves none. Between doing and recording lies the one gap: for that,
 * the service that is called gets a key that is the same at every try.
 */
#include "once/once_int.h"

#include <stdlib.h>

#define TELL_MS 1000

/* The id of the message and the name: 64 hex digits, which any header or column can hold. */
const char *once_step_key(struct once_run *run, const char *name)
{
    size_t n = name ? strnlen(name, ONCE_STEP_MAX + 1) : 0;
    if (!run || n == 0 || n > ONCE_STEP_MAX)
        return "";
    for (struct note *note = run->notes; note; note = note->next) {
        if (strcmp(note->name, name) == 0)
            return note->text;
    }
    uint8_t id[ONCE_ID_SIZE];
    char text[2 * ONCE_ID_SIZE + 1];
    key_id(bytes_of(run->op.id, ONCE_ID_SIZE), bytes_of(name, n), id);
    hex_of(id, sizeof id, text);
    struct note *note = run_note(run, text, sizeof text - 1);
    if (!note)
        return "";
    memcpy(note->name, name, n + 1);
    return note->text;
}

static int check(const struct once_run *run, const char *name, once_step_fn *fn,
                 struct once_error *why)
{
    size_t n = name ? strnlen(name, ONCE_STEP_MAX + 1) : 0;
    if (!run || !fn || n == 0 || n > ONCE_STEP_MAX)
        return once_fail(why, ONCE_INVALID, "a step needs a run, a function and a name of 1 to %d",
                         ONCE_STEP_MAX);
    const struct once_options *o = &run->once->with;
    if (o->mode != ONCE_LEASE || o->plain || o->checker)
        return once_fail(why, ONCE_MISUSE,
                         "steps are for ONCE_LEASE, not in plain form and not with a checker of "
                         "one's own");
    return ONCE_OK;
}

static struct op op_of(const struct once_run *run, enum op_kind kind, const char *name)
{
    struct op op = {
        .kind = kind,
        .name = run->op.name,
        .token = run->op.token,
        .expiry_ms = run->op.expiry_ms,
        .retention_ms = run->op.retention_ms,
        .step = bytes_str(name),
    };
    memcpy(op.id, run->op.id, ONCE_ID_SIZE);
    return op;
}

static int give(struct once_run *run, struct bytes from, struct once_bytes *result,
                struct once_error *why)
{
    if (!result)
        return ONCE_OK;
    struct note *note = run_note(run, from.at, from.len);
    if (!note)
        return once_fail(why, ONCE_NO_MEMORY, "out of memory");
    *result = (struct once_bytes){note->text, from.len};
    return ONCE_OK;
}

/* True: it was done before, or nobody can say; `code` is what to return then. */
static bool was_done(struct once_run *run, const char *name, struct once_bytes *result, int *code,
                     struct once_error *why)
{
    struct op get = op_of(run, OP_STEP_GET, name);
    struct op *ops[] = {&get};
    struct fault fault = {0};
    enum err err = store_ask(run->once, ops, 1, run->once->with.wait_ms, NULL, &fault);
    if (err == OK && get.outcome == OUT_ABSENT)
        return false;
    if (err == OK && get.outcome == OUT_OK) {
        *code = give(run, get.result, result, why);
        free((void *)get.result.at);
        return true;
    }
    *code = once_fail(why, err == ERR_STALE ? ONCE_WIPED : ONCE_STORE,
                      "the step was not done, since the store cannot say whether it was before: %s",
                      err == OK ? get.why.text : fault.text);
    return true;
}

/* As a finish: worth repeating as long as the claim may be ours. */
static int record(struct once_run *run, const char *name, struct bytes result,
                  struct once_error *why)
{
    struct op put = op_of(run, OP_STEP_PUT, name);
    put.result = result;
    struct op *ops[] = {&put};
    struct fault fault = {0};
    enum err err;
    bool again;
    do {
        err = store_ask(run->once, ops, 1, run->once->with.wait_ms, NULL, &fault);
        again = err != OK && err != ERR_STALE &&
                clock_ns(run->once->clock) < atomic_load(&run->over_ns) &&
                !atomic_load(&run->once->closing);
        if (again)
            wait_ns((uint64_t)about_ms(TELL_MS) * NS_PER_MS / 4);
    } while (again);
    if (err == OK && put.outcome == OUT_OK)
        return ONCE_OK;
    if (put.outcome == OUT_LOST)
        atomic_store(&run->lost, true);
    return once_fail(why, ONCE_STORE, "the step was done, but could not be recorded: %s",
                     put.outcome == OUT_LOST     ? "another has the claim by now"
                     : put.outcome == OUT_FAILED ? put.why.text
                                                 : fault.text);
}

int once_step(struct once_run *run, const char *name, once_step_fn *fn, void *user,
              struct once_bytes *result, struct once_error *why)
{
    int code = check(run, name, fn, why);
    if (code)
        return code;
    if (!run->without_store && was_done(run, name, result, &code, why))
        return code;
    if (once_run_lost(run))
        return once_fail(why, ONCE_LOST, "the step was not done, since the claim is gone");
    const char *key = once_step_key(run, name);
    if (!key[0])
        return once_fail(why, ONCE_NO_MEMORY, "out of memory");
    struct once_bytes got = {0};
    if (fn(user, key, &got) != ONCE_DONE)
        return once_fail(why, ONCE_INVALID, "the step %s says it is not done", name);
    if (got.size > ONCE_RESULT_MAX || (got.size > 0 && !got.at))
        return once_fail(why, ONCE_STORE,
                         "the step was done, but could not be recorded: its result has %zu bytes, "
                         "the most is %d",
                         got.size, ONCE_RESULT_MAX);
    struct bytes bytes = bytes_of(got.at, got.size);
    if (!run->without_store)
        code = record(run, name, bytes, why);
    return code ? code : give(run, bytes, result, why);
}
