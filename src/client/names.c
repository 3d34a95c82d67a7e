/* names.c - asking the name servers. */
#include "client/client_int.h"

#include <stdlib.h>

enum err names_parse(struct names *names, const char *text, struct omq_error *why)
{
    for (const char *at = text; *at;) {
        at += strspn(at, "; ");
        size_t len = strcspn(at, "; ");
        if (len == 0)
            break;
        if (names->n == NAMES_MAX) {
            (void)omq_fail(why, OMQ_INVALID, "more than %d name servers are named", NAMES_MAX);
            return ERR_TOO_BIG;
        }
        char *copy = strndup(at, len);
        if (!copy)
            return ERR_NO_MEMORY;
        names->addresses[names->n++] = copy;
        if (!strchr(copy, ':')) {
            (void)omq_fail(why, OMQ_INVALID, "the name server \"%.100s\" is not host:port", copy);
            return ERR_INVALID;
        }
        at += len;
    }
    return OK;
}

void names_clear(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->addresses[i]);
    names->n = 0;
}

static void name_call_try(struct name_call *call);

/* An answer is an answer, whatever it says: the other servers know the same. */
static void name_call_done(struct call *inner, const struct answer *answer)
{
    struct name_call *call = list_entry(inner, struct name_call, call);
    struct names *names = &call->client->names;
    bool again = answer->err == ERR_CLOSED || answer->err == ERR_TIMEOUT;
    if (again && --call->left > 0 && !call->client->closing &&
        clock_ns(call->client->clock) < call->until_ns) {
        names->current = (names->current + 1) % names->n;
        name_call_try(call);
        return;
    }
    if (again) /* the next question goes elsewhere first */
        names->current = (names->current + 1) % names->n;
    call->done(call, answer);
}

static void name_call_try(struct name_call *call)
{
    struct omq_client *client = call->client;
    struct names *names = &client->names;
    uint64_t now = clock_ns(client->clock);
    uint64_t left_ms = call->until_ns > now ? (call->until_ns - now) / 1000000 : 0;
    uint64_t share_ms = left_ms / call->left; /* a server that is silent leaves time for the rest */
    call->call.done = name_call_done;
    call_start(client, bytes_str(names->addresses[names->current]), &call->call,
               share_ms > 0 ? share_ms : 1);
}

void name_call_start(struct omq_client *client, struct name_call *call, uint64_t timeout_ms)
{
    call->client = client;
    call->left = client->names.n;
    call->until_ns = clock_ns(client->clock) + timeout_ms * 1000000;
    name_call_try(call);
}
