/* error.c - failures, as the application hears of them. */
#include "client/client_int.h"

#include <stdarg.h>
#include <stdio.h>

const char *omq_version(void)
{
    return OMQ_VERSION;
}

const char *omq_code_text(int code)
{
    static const char *const texts[] = {
        [OMQ_OK] = "ok",
        [OMQ_INVALID] = "an argument is invalid",
        [OMQ_MISUSE] = "this call cannot be made here",
        [OMQ_NO_MEMORY] = "out of memory",
        [OMQ_TIMEOUT] = "no answer in time",
        [OMQ_NETWORK] = "no server can be reached",
        [OMQ_LOST] = "the connection broke before the answer",
        [OMQ_NO_TOPIC] = "there is no such topic",
        [OMQ_NO_GROUP] = "there is no such group",
        [OMQ_DENIED] = "not permitted",
        [OMQ_TOO_BIG] = "too big",
        [OMQ_BUSY] = "busy",
        [OMQ_REFUSED] = "refused by the broker",
        [OMQ_NOT_FOUND] = "not found",
        [OMQ_PROTOCOL] = "a server's answer cannot be read",
        [OMQ_CLOSED] = "closed",
        [OMQ_KEPT] = "kept, to be sent later",
    };
    size_t n = sizeof texts / sizeof texts[0];
    return code >= 0 && (size_t)code < n ? texts[code] : "an unknown code";
}

void text_copy(char *out, size_t size, struct bytes text)
{
    size_t n = text.len < size ? text.len : size - 1;
    if (n > 0)
        memcpy(out, text.at, n);
    out[n] = 0;
}

int omq_fail(struct omq_error *why, int code, const char *format, ...)
{
    if (!why)
        return code;
    why->code = code;
    why->response_code = 0;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return code;
}

static int code_of_response(int32_t code)
{
    switch (code) {
    case RES_SYSTEM_BUSY:
    case RES_SERVICE_NOT_AVAILABLE:
    case RES_FLOW_CONTROL:
        return OMQ_BUSY;
    case RES_NO_PERMISSION:
        return OMQ_DENIED;
    case RES_TOPIC_NOT_EXIST:
        return OMQ_NO_TOPIC;
    case RES_SUBSCRIPTION_GROUP_NOT_EXIST:
        return OMQ_NO_GROUP;
    case RES_MESSAGE_ILLEGAL:
        return OMQ_TOO_BIG;
    case RES_QUERY_NOT_FOUND:
        return OMQ_NOT_FOUND;
    default:
        return OMQ_REFUSED;
    }
}

int omq_refused(struct omq_error *why, const struct head *head, const char *what)
{
    const char *name = response_name(head->code);
    int code = omq_fail(why, code_of_response(head->code), "%s: %s (%d) %.*s", what,
                        name ? name : "an unknown code", head->code,
                        (int)(head->remark.len < 300 ? head->remark.len : 300),
                        head->remark.at ? (const char *)head->remark.at : "");
    if (why)
        why->response_code = head->code;
    return code;
}

int omq_code_of(enum err err)
{
    switch (err) {
    case OK:
        return OMQ_OK;
    case ERR_NO_MEMORY:
        return OMQ_NO_MEMORY;
    case ERR_TOO_BIG:
        return OMQ_TOO_BIG;
    case ERR_BUSY:
        return OMQ_BUSY;
    case ERR_TIMEOUT:
        return OMQ_TIMEOUT;
    case ERR_CLOSED:
        return OMQ_NETWORK;
    case ERR_MALFORMED:
        return OMQ_PROTOCOL;
    case ERR_NOT_FOUND:
        return OMQ_NOT_FOUND;
    default:
        return OMQ_INVALID;
    }
}
