/* request.c - a message that is answered by another.
 *
 * The request carries a number of its own and our client id. Whoever consumes it sends the reply to
 * any broker that knows us by our heartbeats, which pushes it to us over our own connection; the
 * number tells which request it belongs to. */
#include "client/producer_int.h"

#include <stdio.h>
#include <stdlib.h>

struct request {
    struct link link; /* in client.requests */
    struct omq_client *client;
    char number[64];
    struct waiter waiter;
    struct omq_delivery *reply; /* loop, until the waiter is told */
};

static void request_join(void *user)
{
    struct request *request = user;
    list_add_tail(&request->client->requests, &request->link);
}

static void request_leave(void *user)
{
    struct request *request = user;
    list_remove(&request->link);
}

int omq_request(struct omq_producer *producer, const struct omq_message *message, int timeout_ms,
                struct omq_delivery **reply, struct omq_error *why)
{
    int code = producer_check(producer, true, why);
    if (!code && !reply)
        code = omq_fail(why, OMQ_INVALID, "a request needs somewhere to put the reply");
    struct draft draft;
    if (!code)
        code = draft_begin(&draft, producer, message, why);
    if (code)
        return code;
    struct omq_client *client = producer->client;
    timeout_ms = timeout_ms > 0 ? timeout_ms : producer->options.timeout_ms;
    uint64_t end_ns = clock_ns(client->clock) + (uint64_t)timeout_ms * 1000000;
    struct request request = {.client = client};
    client_new_id(client, request.number);
    char ttl[16];
    (void)snprintf(ttl, sizeof ttl, "%d", timeout_ms);
    draft_add(&draft, "CORRELATION_ID", request.number);
    draft_add(&draft, "REPLY_TO_CLIENT", client->id);
    draft_add(&draft, "TTL", ttl);
    struct job *job = NULL;
    code = job_make(producer, &draft, &job, why);
    if (code)
        return code;
    job->introduced = true;
    waiter_init(&request.waiter);
    client_on_loop(client, request_join, &request);
    code = job_run(job, (uint64_t)timeout_ms, why);
    job_free(job);
    uint64_t now_ns = clock_ns(client->clock);
    if (!code)
        (void)waiter_wait_until(&request.waiter,
                                end_ns > now_ns ? (int64_t)((end_ns - now_ns) / 1000000) : 0,
                                client->clock);
    client_on_loop(client, request_leave, &request);
    if (request.reply)
        waiter_wait(&request.waiter); /* it was told; perhaps only just, and has to hear it */
    if (code) {
        omq_delivery_free(request.reply);
        return code;
    }
    if (!request.reply)
        return omq_fail(why, OMQ_TIMEOUT,
                        "nobody replied to message %s within %d ms (it was stored)", draft.id,
                        timeout_ms);
    *reply = request.reply;
    return OMQ_OK;
}

/* ---- the reply comes ---- */

static struct bytes field(const struct asked *asked, const char *name)
{
    return head_field(asked->head, bytes_str(name));
}

/* The message is in the fields of the request. */
static enum err reply_read(const struct asked *asked, struct record *out)
{
    *out = (struct record){
        .body = asked->body,
        .topic = field(asked, "topic"),
        .props = field(asked, "properties"),
    };
    bool good = bytes_to_i32(field(asked, "sysFlag"), &out->sys_flag) &&
                bytes_to_i64(field(asked, "bornTimestamp"), &out->born_ms) &&
                bytes_to_i32(field(asked, "flag"), &out->flag) &&
                bytes_to_i64(field(asked, "storeTimestamp"), &out->store_ms);
    if (!good)
        return ERR_MALFORMED;
    (void)bytes_to_i32(field(asked, "queueId"), &out->queue_id);
    if (addr_parse(field(asked, "bornHost"), &out->born_host))
        out->born_host = (struct addr){.ip_len = 4};
    if (addr_parse(field(asked, "storeHost"), &out->store_host))
        out->store_host = (struct addr){.ip_len = 4};
    return OK;
}

static struct request *request_of(struct omq_client *client, struct bytes number)
{
    list_each(k, &client->requests) {
        struct request *request = list_entry(k, struct request, link);
        if (bytes_equal(bytes_str(request->number), number))
            return request;
    }
    return NULL;
}

void serve_reply(const struct asked *asked)
{
    struct record record;
    struct bytes number;
    enum err err = reply_read(asked, &record);
    struct request *request = !err && props_get(record.props, BYTES("CORRELATION_ID"), &number)
                                  ? request_of(asked->client, number)
                                  : NULL;
    struct omq_delivery *reply = NULL;
    if (request && !request->reply && !err)
        err = delivery_make(&record, (struct bytes){0}, &reply);
    if (reply) {
        request->reply = reply;
        waiter_tell(&request->waiter);
    }
    /* A reply that nobody waits for any more was delivered all the same: so says the Java client.
     */
    asked_answer(asked, err ? RES_SYSTEM_ERROR : RES_SUCCESS,
                 err ? BYTES("the reply cannot be read") : (struct bytes){0}, (struct bytes){0});
}

/* ---- replying ---- */

int omq_reply(struct omq_producer *producer, const struct omq_delivery *to, const void *body,
              size_t body_size, struct omq_error *why)
{
    int code = producer_check(producer, true, why);
    if (code)
        return code;
    const char *cluster = omq_delivery_property(to, "CLUSTER");
    const char *number = omq_delivery_property(to, "CORRELATION_ID");
    const char *client_id = omq_delivery_property(to, "REPLY_TO_CLIENT");
    const char *ttl = omq_delivery_property(to, "TTL");
    if (!cluster || !number || !client_id)
        return omq_fail(why, OMQ_INVALID,
                        "nobody waits for a reply to this message: it was not sent as a request");
    char topic[NAME_TOPIC_MAX + 1];
    (void)snprintf(topic, sizeof topic, "%.100s_REPLY_TOPIC", cluster);
    const struct omq_message message = {.topic = topic, .body = body, .body_size = body_size};
    struct draft draft;
    code = draft_begin(&draft, producer, &message, why);
    if (code)
        return code;
    draft_add(&draft, "MSG_TYPE", "reply");
    draft_add(&draft, "CORRELATION_ID", number);
    draft_add(&draft, "REPLY_TO_CLIENT", client_id);
    if (ttl)
        draft_add(&draft, "TTL", ttl);
    draft.request = REQ_SEND_REPLY_MESSAGE_V2;
    struct job *job = NULL;
    code = job_make(producer, &draft, &job, why);
    if (!code)
        code = job_run(job, (uint64_t)producer->options.timeout_ms, why);
    job_free(job);
    return code;
}
