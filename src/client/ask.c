/* ask.c - what an application wants to know: queues, offsets, one message. */
#include "client/consumer_int.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- questions ---- */

static void question_end(struct question *q, int code)
{
    q->code = code;
    waiter_tell(&q->waiter);
}

static uint64_t question_left_ms(const struct question *q)
{
    uint64_t now = clock_ns(q->client->clock);
    uint64_t left = q->until_ns > now ? (q->until_ns - now) / 1000000 : 0;
    return left > 0 ? left : 1;
}

static void question_answered(struct call *call, const struct answer *answer)
{
    struct question *q = list_entry(call, struct question, call);
    if (answer->err) {
        int code =
            answer->err == ERR_CLOSED && answer->maybe_done ? OMQ_LOST : omq_code_of(answer->err);
        question_end(q, omq_fail(&q->why, q->client->closing ? OMQ_CLOSED : code,
                                 "%s: no answer from the broker: %s", request_name(q->request),
                                 answer->reason));
    } else if (answer->head->code != RES_SUCCESS && !q->any_code) {
        question_end(q, omq_refused(&q->why, answer->head, request_name(q->request)));
    } else {
        question_end(q, q->got ? q->got(q, answer) : OMQ_OK);
    }
}

static void put_fields(const struct call *call, struct frame_out *f)
{
    const struct question *q = list_entry(call, struct question, call);
    for (size_t i = 0; i < q->n_fields; i++)
        frame_put(f, q->fields[i].name, q->fields[i].value);
}

static void question_send(struct question *q, struct bytes address)
{
    q->call = (struct call){
        .code = q->request, .put = put_fields, .body = q->body, .done = question_answered};
    for (size_t i = 0; i < q->n_fields; i++)
        q->call.room += q->fields[i].value.len;
    call_start(q->client, address, &q->call, question_left_ms(q));
}

/* No route, for the reason in `answer`. */
static int route_missing(struct omq_client *client, struct bytes topic, const struct answer *answer,
                         struct omq_error *why)
{
    if (answer && answer->err)
        return omq_fail(why, client->closing ? OMQ_CLOSED : omq_code_of(answer->err),
                        "no name server tells where topic %.*s is: %s", BYTES_ARG(topic),
                        answer->reason);
    return omq_fail(why, OMQ_NO_TOPIC, "no broker has topic %.*s", BYTES_ARG(topic));
}

static void question_routed(struct route_want *want, struct topic_route *route,
                            const struct answer *answer)
{
    struct question *q = list_entry(want, struct question, want);
    if (!route) {
        question_end(q, route_missing(q->client, q->topic, answer, &q->why));
        return;
    }
    struct bytes address = {0};
    for (size_t i = 0; i < route->n_brokers; i++)
        if (q->broker.len == 0 || bytes_equal(route->brokers[i].name, q->broker))
            address = route->brokers[i].master;
    if (address.len > 0)
        question_send(q, address); /* a peer keeps a copy of it */
    else
        question_end(q, omq_fail(&q->why, OMQ_NOT_FOUND,
                                 "topic %.*s is not on broker %.*s, or that has no master just now",
                                 BYTES_ARG(q->topic), BYTES_ARG(q->broker)));
    counted_drop(&route->counted);
}

static void question_begin(struct post *post)
{
    struct question *q = list_entry(post, struct question, post);
    if (q->address[0]) {
        question_send(q, bytes_str(q->address));
        return;
    }
    q->want.ready = question_routed;
    route_get(q->client, q->topic, false, &q->want, question_left_ms(q));
}

static int may_wait(const struct omq_client *client, struct omq_error *why)
{
    if (!client)
        return omq_fail(why, OMQ_INVALID, "there is no client");
    if (loop_is_mine(client->loop))
        return omq_fail(why, OMQ_MISUSE, "a call that waits cannot be made from `choose` or `log`");
    return OMQ_OK;
}

int question_ask(struct question *q, struct omq_error *why)
{
    int code = may_wait(q->client, why);
    if (code)
        return code;
    uint64_t ms = q->timeout_ms ? q->timeout_ms : (uint64_t)q->client->options.timeout_ms;
    q->until_ns = clock_ns(q->client->clock) + ms * 1000000;
    q->post.run = question_begin;
    waiter_init(&q->waiter);
    client_wait(q->client, &q->post, &q->waiter, &q->call);
    if (q->code && why)
        *why = q->why;
    return q->code;
}

/* ---- offsets ---- */

struct offset_question {
    struct question question;
    int64_t offset;
};

static int offset_take(struct question *q, const struct answer *answer)
{
    struct offset_question *o = list_entry(q, struct offset_question, question);
    if (!bytes_to_i64(head_field(answer->head, BYTES("offset")), &o->offset))
        return omq_fail(&q->why, OMQ_PROTOCOL, "the broker's answer has no offset");
    return OMQ_OK;
}

static int offset_ask(struct omq_client *client, const struct omq_queue *queue, int32_t request,
                      const int64_t *time_ms, int64_t *offset, struct omq_error *why)
{
    if (!client || !queue || !queue->topic || !queue->broker || queue->id < 0 || !offset)
        return omq_fail(why, OMQ_INVALID,
                        "an offset needs a client and a queue with topic, broker and id");
    char id[16], time[24];
    (void)snprintf(id, sizeof id, "%d", queue->id);
    (void)snprintf(time, sizeof time, "%lld", time_ms ? (long long)*time_ms : 0);
    struct offset_question o = {.question = {
                                    .client = client,
                                    .request = request,
                                    .topic = bytes_str(queue->topic),
                                    .broker = bytes_str(queue->broker),
                                    .fields = {{BYTES("topic"), bytes_str(queue->topic)},
                                               {BYTES("queueId"), bytes_str(id)},
                                               {BYTES("timestamp"), bytes_str(time)}},
                                    .n_fields = time_ms ? 3 : 2,
                                    .got = offset_take,
                                }};
    int code = question_ask(&o.question, why);
    if (!code)
        *offset = o.offset;
    return code;
}

int omq_offset(struct omq_client *client, const struct omq_queue *queue, int bound, int64_t *offset,
               struct omq_error *why)
{
    if (bound != OMQ_BEGIN && bound != OMQ_END)
        return omq_fail(why, OMQ_INVALID, "a queue has no bound %d", bound);
    return offset_ask(client, queue, bound == OMQ_BEGIN ? REQ_GET_MIN_OFFSET : REQ_GET_MAX_OFFSET,
                      NULL, offset, why);
}

int omq_offset_at(struct omq_client *client, const struct omq_queue *queue, int64_t time_ms,
                  int64_t *offset, struct omq_error *why)
{
    return offset_ask(client, queue, REQ_SEARCH_OFFSET_BY_TIMESTAMP, &time_ms, offset, why);
}

/* ---- one message ---- */

enum err delivery_make(const struct record *record, struct bytes broker, struct omq_delivery **out)
{
    size_t size = record->topic.len + broker.len + 2;
    char *names = malloc(size);
    if (!names)
        return ERR_NO_MEMORY;
    struct wr w = wr_over(names, size);
    wr_bytes_of(&w, record->topic);
    wr_u8(&w, 0);
    wr_bytes_of(&w, broker);
    wr_u8(&w, 0);
    const struct omq_queue queue = {
        .topic = names, .broker = names + record->topic.len + 1, .id = record->queue_id};
    struct parcel *parcel = parcel_make(record->body, &queue);
    free(names);
    if (!parcel)
        return ERR_NO_MEMORY;
    struct record whole = *record;
    whole.body = bytes_of(parcel->bytes, parcel->len);
    struct held *held = NULL;
    enum err err = held_make(parcel, &whole, &held);
    if (!err)
        err = held_expand(held);
    if (!err && !(*out = omq_delivery_copy(&held->delivery)))
        err = ERR_NO_MEMORY;
    held_free(held);
    counted_drop(&parcel->counted);
    return err;
}

struct view_question {
    struct question question;
    struct omq_delivery *found;
};

static int view_take(struct question *q, const struct answer *answer)
{
    struct view_question *v = list_entry(q, struct view_question, question);
    struct record record;
    enum err err = record_decode(answer->body, &record);
    if (!err && record.size != answer->body.len)
        err = ERR_MALFORMED;
    if (!err && !record_body_intact(&record))
        err = ERR_DAMAGED;
    if (!err)
        err = delivery_make(&record, BYTES(""), &v->found);
    if (err == ERR_NO_MEMORY)
        return omq_fail(&q->why, OMQ_NO_MEMORY, "no memory for a message");
    return err ? omq_fail(&q->why, OMQ_PROTOCOL, "the broker's message cannot be read: %s",
                          err_text(err))
               : OMQ_OK;
}

int omq_view(struct omq_client *client, const char *topic, const char *offset_id,
             struct omq_delivery **out, struct omq_error *why)
{
    struct addr host;
    int64_t position;
    if (!client || !offset_id || !out || id_parse(bytes_str(offset_id), &host, &position) ||
        position < 0)
        return omq_fail(why, OMQ_INVALID, "that is not an offset id: %.100s",
                        offset_id ? offset_id : "NULL");
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)position);
    struct view_question v = {
        .question = {
            .client = client,
            .request = REQ_VIEW_MESSAGE_BY_ID,
            .fields = {{BYTES("offset"), bytes_str(text)}, {BYTES("topic"), bytes_str(topic)}},
            .n_fields = topic ? 2 : 1,
            .got = view_take,
        }};
    addr_format(&host, v.question.address);
    int code = question_ask(&v.question, why);
    if (code == OMQ_REFUSED && v.question.why.response_code == RES_SYSTEM_ERROR) {
        code = OMQ_NOT_FOUND; /* so it says that there is none */
        if (why)
            why->code = code;
    }
    if (!code)
        *out = v.found;
    return code;
}

/* ---- queues ---- */

struct queues_want {
    struct post post;
    struct route_want want;
    struct waiter waiter;
    struct omq_client *client;
    struct bytes topic;
    bool readable;           /* else those that can be written to */
    bool fresh;              /* else what the cache has is good enough */
    struct omq_queue *found; /* one block with its texts */
    size_t n;
    int code;
    struct omq_error why;
};

/* Queues of one broker share its name; to keep it simple each has its own copy. */
static struct omq_queue *queues_copy(const struct omq_queue *queues, size_t n)
{
    size_t size = (n + 1) * sizeof(struct omq_queue);
    for (size_t i = 0; i < n; i++)
        size += strlen(queues[i].topic) + strlen(queues[i].broker) + 2;
    struct omq_queue *copy = malloc(size);
    if (!copy)
        return NULL;
    char *at = (char *)(copy + n + 1);
    for (size_t i = 0; i < n; i++) {
        copy[i] = queues[i];
        copy[i].topic = at;
        at = stpcpy(at, queues[i].topic) + 1;
        copy[i].broker = at;
        at = stpcpy(at, queues[i].broker) + 1;
    }
    return copy;
}

static void queues_routed(struct route_want *want, struct topic_route *route,
                          const struct answer *answer)
{
    struct queues_want *w = list_entry(want, struct queues_want, want);
    if (!route) {
        w->code = route_missing(w->client, w->topic, answer, &w->why);
    } else {
        w->n = w->readable ? route->n_read : route->n_write;
        w->found = queues_copy(w->readable ? route->read_names : route->write_names, w->n);
        w->code = w->found ? OMQ_OK : omq_fail(&w->why, OMQ_NO_MEMORY, "no memory for queues");
        counted_drop(&route->counted);
    }
    waiter_tell(&w->waiter);
}

static void queues_begin(struct post *post)
{
    struct queues_want *w = list_entry(post, struct queues_want, post);
    w->want.ready = queues_routed;
    route_get(w->client, w->topic, w->fresh, &w->want, (uint64_t)w->client->options.timeout_ms);
}

int queues_ask(struct omq_client *client, const char *topic, bool readable, bool fresh,
               struct omq_queue **queues, size_t *n, struct omq_error *why)
{
    if (!client || !topic || !queues || !n)
        return omq_fail(why, OMQ_INVALID, "queues need a client, a topic and somewhere to go");
    int code = may_wait(client, why);
    if (code)
        return code;
    struct queues_want want = {.post.run = queues_begin,
                               .client = client,
                               .topic = bytes_str(topic),
                               .readable = readable,
                               .fresh = fresh};
    waiter_init(&want.waiter);
    client_wait(client, &want.post, &want.waiter, NULL);
    if (want.code) {
        if (why)
            *why = want.why;
        return want.code;
    }
    *queues = want.found;
    *n = want.n;
    return OMQ_OK;
}

int omq_topic_queues(struct omq_client *client, const char *topic, struct omq_queue **queues,
                     size_t *n, struct omq_error *why)
{
    return queues_ask(client, topic, false, true, queues, n, why);
}

int omq_topic_readable(struct omq_client *client, const char *topic, struct omq_queue **queues,
                       size_t *n, struct omq_error *why)
{
    return queues_ask(client, topic, true, true, queues, n, why);
}

void omq_queues_free(struct omq_queue *queues)
{
    free(queues);
}
