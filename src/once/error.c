/* error.c - failures and causes, as the application hears of them. */
#include "once/once_int.h"

#include <stdarg.h>
#include <stdio.h>

const char *once_code_text(int code)
{
    static const char *const texts[] = {
        [ONCE_OK] = "ok",
        [ONCE_INVALID] = "an argument is invalid",
        [ONCE_MISUSE] = "this call cannot be made here",
        [ONCE_NO_MEMORY] = "out of memory",
        [ONCE_STORE] = "the store gives no answer",
        [ONCE_WIPED] = "the store was emptied",
        [ONCE_LOST] = "the claim is not ours any more",
        [ONCE_BUSY] = "somebody else is at it",
        [ONCE_UNSUPPORTED] = "this store cannot do that",
        [ONCE_CLOSED] = "closed",
    };
    size_t n = sizeof texts / sizeof texts[0];
    return code >= 0 && (size_t)code < n ? texts[code] : "an unknown code";
}

const char *once_cause_text(int cause)
{
    static const char *const texts[] = {
        [ONCE_FIRST] = "first",           [ONCE_DUPLICATE] = "duplicate",
        [ONCE_OTHER_BODY] = "other-body", [ONCE_RUNNING] = "running",
        [ONCE_NO_KEY] = "no-key",         [ONCE_DOWN] = "down",
        [ONCE_EMPTIED] = "emptied",       [ONCE_FAILED_RUN] = "failed",
        [ONCE_LOST_CLAIM] = "lost",       [ONCE_UNSURE] = "unsure",
        [ONCE_CONFLICT] = "conflict",
    };
    size_t n = sizeof texts / sizeof texts[0];
    return cause >= 0 && (size_t)cause < n ? texts[cause] : "unknown";
}

int once_fail(struct once_error *why, int code, const char *format, ...)
{
    if (!why)
        return code;
    why->code = code;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return code;
}

int once_code_of(enum err err)
{
    switch (err) {
    case OK:
        return ONCE_OK;
    case ERR_NO_MEMORY:
        return ONCE_NO_MEMORY;
    case ERR_INVALID:
        return ONCE_INVALID;
    case ERR_UNSUPPORTED:
        return ONCE_UNSUPPORTED;
    case ERR_STALE:
        return ONCE_WIPED;
    case ERR_CLOSED:
        return ONCE_CLOSED;
    case ERR_BUSY:
    case ERR_TIMEOUT:
        return ONCE_BUSY;
    default:
        return ONCE_STORE;
    }
}

int once_fail_store(struct once_error *why, enum err err, const struct fault *fault)
{
    if (err == ERR_STALE)
        return once_fail(why, ONCE_WIPED,
                         "the store was emptied since it was opened, so what was done before is "
                         "forgotten; once_accept_wiped, or a new start of the program, goes on all "
                         "the same");
    const char *text = fault && fault->text[0] ? fault->text : err_text(err);
    return once_fail(why, once_code_of(err), "%s", text);
}

void once_log(const struct once *once, int level, const char *format, ...)
{
    if (!once->with.log)
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    once->with.log(once->with.user, level, line);
}
