/* call.c - any request of the protocol, for those who administer: the answer as it came. */
#include "client/client_int.h"

#include <stdio.h>
#include <stdlib.h>

struct any_call {
    struct omq_client *client;
    const char *server; /* NULL: a name server */
    const struct omq_property *fields;
    size_t n_fields;
    uint64_t timeout_ms;
    struct post post;
    struct call call;      /* to `server` */
    struct name_call name; /* to a name server; its call has the same request */
    struct waiter waiter;
    struct omq_answer *answer;
    int code;
    struct omq_error why;
};

static char *text_into(char **at, struct bytes text)
{
    char *start = *at;
    if (text.len > 0)
        memcpy(start, text.at, text.len);
    start[text.len] = 0;
    *at += text.len + 1;
    return start;
}

/* One block: the answer, its fields, their texts, the body. */
static struct omq_answer *answer_copy(const struct head *head, struct bytes body)
{
    size_t size = sizeof(struct omq_answer) + head->n_fields * sizeof(struct omq_property) +
                  head->remark.len + 1 + body.len + 1;
    for (size_t i = 0; i < head->n_fields; i++)
        size += head->fields[i].name.len + head->fields[i].value.len + 2;
    struct omq_answer *copy = malloc(size);
    if (!copy)
        return NULL;
    struct omq_property *fields = (struct omq_property *)(copy + 1);
    char *at = (char *)(fields + head->n_fields);
    for (size_t i = 0; i < head->n_fields; i++) {
        fields[i].name = text_into(&at, head->fields[i].name);
        fields[i].value = text_into(&at, head->fields[i].value);
    }
    *copy = (struct omq_answer){
        .remark = text_into(&at, head->remark),
        .fields = fields,
        .n_fields = head->n_fields,
        .body = text_into(&at, body),
        .body_size = body.len,
    };
    return copy;
}

static void any_answered(struct any_call *any, int32_t request, const struct answer *answer)
{
    const char *name = request_name(request);
    char number[24];
    (void)snprintf(number, sizeof number, "request %d", request);
    if (!name)
        name = number;
    const char *server = any->server ? any->server : "the name servers";
    if (answer->err) {
        int code =
            answer->err == ERR_CLOSED && answer->maybe_done ? OMQ_LOST : omq_code_of(answer->err);
        any->code = omq_fail(&any->why, any->client->closing ? OMQ_CLOSED : code,
                             "%s: no answer from %.200s: %s", name, server, answer->reason);
    } else if (answer->head->code != RES_SUCCESS) {
        any->code = omq_refused(&any->why, answer->head, name);
    } else {
        any->answer = answer_copy(answer->head, answer->body);
        any->code =
            any->answer ? OMQ_OK : omq_fail(&any->why, OMQ_NO_MEMORY, "no memory for an answer");
    }
    waiter_tell(&any->waiter);
}

static void server_answered(struct call *call, const struct answer *answer)
{
    any_answered(list_entry(call, struct any_call, call), call->code, answer);
}

static void name_answered(struct name_call *name, const struct answer *answer)
{
    any_answered(list_entry(name, struct any_call, name), name->call.code, answer);
}

static void fields_put(const struct any_call *any, struct frame_out *frame)
{
    for (size_t i = 0; i < any->n_fields; i++)
        frame_put(frame, bytes_str(any->fields[i].name), bytes_str(any->fields[i].value));
}

static void server_put(const struct call *call, struct frame_out *frame)
{
    fields_put(list_entry(call, struct any_call, call), frame);
}

static void name_put(const struct call *call, struct frame_out *frame)
{
    fields_put(list_entry(call, struct any_call, name.call), frame);
}

static void any_begin(struct post *post)
{
    struct any_call *any = list_entry(post, struct any_call, post);
    if (any->server)
        call_start(any->client, bytes_str(any->server), &any->call, any->timeout_ms);
    else
        name_call_start(any->client, &any->name, any->timeout_ms);
}

static int any_check(const struct omq_client *client, const struct omq_property *fields,
                     size_t n_fields, struct omq_answer *const *out, struct omq_error *why)
{
    if (!client || !out || (!fields && n_fields > 0))
        return omq_fail(why, OMQ_INVALID, "a call needs a client, fields and somewhere to go");
    if (n_fields > HEAD_FIELDS_MAX)
        return omq_fail(why, OMQ_INVALID, "a request has at most %d fields", HEAD_FIELDS_MAX);
    for (size_t i = 0; i < n_fields; i++)
        if (!fields[i].name || !fields[i].name[0] || !fields[i].value)
            return omq_fail(why, OMQ_INVALID, "field %zu has no name or no value", i);
    if (pthread_equal(pthread_self(), client->thread))
        return omq_fail(why, OMQ_MISUSE, "a call that waits cannot be made from `choose` or `log`");
    return OMQ_OK;
}

int omq_call(struct omq_client *client, const char *server, int request,
             const struct omq_property *fields, size_t n_fields, const void *body, size_t body_size,
             int timeout_ms, struct omq_answer **out, struct omq_error *why)
{
    int code = any_check(client, fields, n_fields, out, why);
    if (code)
        return code;
    struct any_call any = {.client = client,
                           .server = server,
                           .fields = fields,
                           .n_fields = n_fields,
                           .timeout_ms =
                               (uint64_t)(timeout_ms > 0 ? timeout_ms : client->options.timeout_ms),
                           .post.run = any_begin};
    size_t room = 0;
    for (size_t i = 0; i < n_fields; i++)
        room += strlen(fields[i].name) + strlen(fields[i].value);
    any.call = (struct call){.code = request,
                             .put = server_put,
                             .room = room,
                             .body = bytes_of(body, body_size),
                             .done = server_answered};
    any.name = (struct name_call){.call = any.call, .done = name_answered};
    any.name.call.put = name_put;
    waiter_init(&any.waiter);
    loop_post(client->loop, &any.post);
    waiter_wait(&any.waiter);
    if (any.code && why)
        *why = any.why;
    if (!any.code)
        *out = any.answer;
    return any.code;
}

void omq_answer_free(struct omq_answer *answer)
{
    free(answer);
}

const char *omq_answer_field(const struct omq_answer *answer, const char *name)
{
    for (size_t i = answer ? answer->n_fields : 0; i-- > 0;)
        if (strcmp(answer->fields[i].name, name) == 0)
            return answer->fields[i].value;
    return NULL;
}
