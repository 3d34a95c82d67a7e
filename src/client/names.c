/* names.c - asking the name servers.
 *
 * They are listed by the application, or by a web page that is read again every two minutes. A
 * question that comes before the page does waits for it. */
#include "client/client_int.h"

#include <stdlib.h>

#define PAGE_EVERY_MS 120000
#define PAGE_LOOK_MS  10
#define PAGE_AGAIN_MS 1000 /* while no name server is known */

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

/* ---- questions ---- */

static void name_call_try(struct name_call *call);

/* An answer is an answer, whatever it says: the other servers know the same. */
static void name_call_done(struct call *inner, const struct answer *answer)
{
    struct name_call *call = list_entry(inner, struct name_call, call);
    struct names *names = &call->client->names;
    bool again = answer->err == ERR_CLOSED || answer->err == ERR_TIMEOUT;
    if (again) /* the next question goes elsewhere first, too */
        names->current = (names->current + 1) % names->n;
    if (again && --call->left > 0 && !call->client->closing &&
        clock_ns(call->client->clock) < call->until_ns)
        name_call_try(call);
    else
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

static void page_ask(struct omq_client *client);

void name_call_start(struct omq_client *client, struct name_call *call, uint64_t timeout_ms)
{
    struct names *names = &client->names;
    call->client = client;
    call->left = names->n;
    call->until_ns = clock_ns(client->clock) + timeout_ms * 1000000;
    if (names->n > 0) {
        name_call_try(call);
        return;
    }
    list_add_tail(&names->waiting, &call->link);
    page_ask(client);
}

/* ---- the page ---- */

/* Those that wait for the page and would wait for nothing, or too long. */
static void waiting_fail(struct omq_client *client, bool all, enum err err, const char *reason)
{
    struct list ending;
    list_init(&ending);
    uint64_t now = clock_ns(client->clock);
    list_each(k, &client->names.waiting) {
        if (all || list_entry(k, struct name_call, link)->until_ns <= now) {
            list_remove(k);
            list_add_tail(&ending, k);
        }
    }
    struct link *k;
    while ((k = list_pop(&ending))) {
        struct name_call *call = list_entry(k, struct name_call, link);
        call->done(call, &(struct answer){.err = err, .reason = reason});
    }
}

static void waiting_start(struct omq_client *client)
{
    struct link *k;
    while ((k = list_pop(&client->names.waiting))) {
        struct name_call *call = list_entry(k, struct name_call, link);
        call->left = client->names.n;
        name_call_try(call);
    }
}

static void page_take(struct omq_client *client, const char *text)
{
    struct names fresh = {.n = 0};
    struct omq_error why;
    if (names_parse(&fresh, text, &why) || fresh.n == 0) {
        names_clear(&fresh);
        client_log(client, OMQ_WARN, "%s lists no name servers", client->options.names_url);
        waiting_fail(client, true, ERR_CLOSED, "names_url lists no name servers");
        return;
    }
    struct names *names = &client->names;
    names_clear(names);
    memcpy(names->addresses, fresh.addresses, sizeof names->addresses);
    names->n = fresh.n;
    names->current = (size_t)dice_below(&client->dice, names->n);
    waiting_start(client);
}

static void page_turn(void *user)
{
    struct omq_client *client = user;
    struct names *names = &client->names;
    if (!names->page) {
        page_ask(client);
        return;
    }
    if (!page_done(names->page)) {
        waiting_fail(client, false, ERR_TIMEOUT, "names_url has not answered yet");
        return;
    }
    struct page *page = take(&names->page);
    const char *text;
    if (page_result(page, &text) == OK) {
        page_take(client, text);
    } else {
        client_log(client, OMQ_WARN, "%s cannot be read: %s", client->options.names_url, text);
        waiting_fail(client, true, ERR_CLOSED, text);
    }
    page_close(page);
    uint64_t next_ms = names->n > 0 ? PAGE_EVERY_MS : PAGE_AGAIN_MS;
    timer_start(names->timer, next_ms, 0);
}

static void page_ask(struct omq_client *client)
{
    struct names *names = &client->names;
    if (names->page)
        return;
    names->page = page_start(client->options.names_url);
    if (names->page)
        timer_start(names->timer, PAGE_LOOK_MS, PAGE_LOOK_MS);
    else
        waiting_fail(client, true, ERR_NO_MEMORY, "no memory, or no thread, to read names_url");
}

enum err names_open(struct omq_client *client)
{
    list_init(&client->names.waiting);
    if (!client->options.names_url || client->names.n > 0)
        return OK;
    enum err err = timer_open(client->loop, page_turn, client, &client->names.timer);
    if (!err)
        timer_start(client->names.timer, 0, 0);
    return err;
}

void names_stop(struct omq_client *client)
{
    if (client->names.timer)
        timer_stop(client->names.timer);
    page_close(take(&client->names.page));
    waiting_fail(client, true, ERR_CLOSED, "the client is closing");
}
