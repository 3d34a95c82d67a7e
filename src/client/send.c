/* send.c - one message on its way.
 *
 *     check, compress, copy     application's thread; from here on it is a job
 *     route                     from the cache, or asked for; an unknown topic goes where TBW102 is
 *     queue                     round robin, by sharding key, or as told; retries avoid the broker
 * before call                      SEND_MESSAGE_V2 and its answer end                       the
 * waiter is told, or the callback given to the hands
 *
 * All tries of a job have the same unique id. A try whose answer did not come may have been stored:
 * a retry then makes a second copy with the same id, which a broker with producer dedup, or a
 * consumer with once.h, takes for what it is. */
#include "client/client_int.h"

#include <stdio.h>
#include <stdlib.h>

#define TEMPLATE_TOPIC BYTES("TBW102")
#define UNIQ_ROOM      80 /* UNIQ_KEY, its id and two separators */

enum job_end { JOB_WAITED, JOB_CALLED, JOB_ONEWAY };

struct job {
    struct post post;
    struct task task;
    struct link link; /* in producer.jobs */
    struct call call;
    struct route_want want;
    struct omq_producer *producer;
    struct topic_route *route; /* a count, while it is needed */
    enum job_end how;
    struct waiter *waiter;
    omq_sent *done;
    void *user;
    int code; /* what came of it: enum omq_code */
    struct omq_receipt receipt;
    struct omq_error why;

    uint64_t until_ns;
    int tries_left;
    bool template; /* the route is that of TBW102 */
    bool calling;
    const struct topic_queue *queue;
    struct bytes last_broker; /* of the try before; a slice of `route` */
    int32_t pinned_id;        /* -1: any */
    bool sharded;
    uint32_t shard;

    int32_t sys_flag, flag, queue_id;
    int64_t born_ms;
    struct bytes topic, pinned_broker, body;
    struct wr props;
    uint8_t text[];
};

static void job_begin(struct post *post);
static void job_try(struct job *job);
static void job_end(struct job *job, int code);
static void job_call_back(struct task *task);

/* ---- from a message to a job ---- */

static int property_check(const char *name, const char *value, struct omq_error *why)
{
    if (!name || !name[0] || !value)
        return omq_fail(why, OMQ_INVALID, "a property without a name or without a value");
    if (strpbrk(name, "\1\2") || strpbrk(value, "\1\2"))
        return omq_fail(
            why, OMQ_INVALID,
            "property %.100s: the bytes 1 and 2 separate properties and cannot be in one", name);
    return OMQ_OK;
}

static int message_check(const struct omq_producer *producer, const struct omq_message *m,
                         struct omq_error *why)
{
    struct fault fault = {0};
    if (!m->topic || topic_name_check(bytes_str(m->topic), &fault))
        return omq_fail(why, OMQ_INVALID, "%s", m->topic ? fault.text : "a message has no topic");
    if (m->body_size > 0 && !m->body)
        return omq_fail(why, OMQ_INVALID, "a body of %zu bytes is NULL", m->body_size);
    if (m->body_size > producer->options.max_message_size)
        return omq_fail(why, OMQ_TOO_BIG,
                        "the body has %zu bytes, more than %zu (max_message_size)", m->body_size,
                        producer->options.max_message_size);
    if ((m->delay_level > 0) + (m->delay_ms > 0) + (m->deliver_ms > 0) > 1)
        return omq_fail(why, OMQ_INVALID,
                        "at most one of delay_level, delay_ms and deliver_ms can be given");
    if (m->delay_level < 0 || m->delay_ms < 0 || m->deliver_ms < 0)
        return omq_fail(why, OMQ_INVALID, "a delay is negative");
    if (m->queue && (!m->queue->broker || m->queue->id < 0))
        return omq_fail(why, OMQ_INVALID, "a queue needs its broker's name and a number from 0 on");
    const char *words[] = {m->tag, m->keys, m->id, m->sharding_key};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (words[i] && property_check("tag, keys, id or sharding_key", words[i], why))
            return OMQ_INVALID;
    for (size_t i = 0; i < m->n_properties; i++)
        if (property_check(m->properties[i].name, m->properties[i].value, why))
            return OMQ_INVALID;
    return OMQ_OK;
}

static size_t props_room(const struct omq_message *m)
{
    size_t room = UNIQ_ROOM + 256; /* the names and numbers of ours */
    const char *words[] = {m->tag, m->keys, m->id, m->sharding_key};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        room += words[i] ? strlen(words[i]) : 0;
    for (size_t i = 0; i < m->n_properties; i++)
        room += strlen(m->properties[i].name) + strlen(m->properties[i].value) + 2;
    return room;
}

static void add_text(struct wr *w, const char *name, const char *value)
{
    if (value && value[0])
        props_add(w, bytes_str(name), bytes_str(value));
}

static void add_number(struct wr *w, const char *name, int64_t value)
{
    if (value > 0)
        props_add_int(w, bytes_str(name), value);
}

static void props_write(struct wr *w, const struct omq_message *m)
{
    for (size_t i = 0; i < m->n_properties; i++)
        add_text(w, m->properties[i].name, m->properties[i].value);
    add_text(w, "TAGS", m->tag);
    add_text(w, "KEYS", m->keys);
    add_text(w, "__SHARDINGKEY", m->sharding_key);
    add_number(w, "DELAY", m->delay_level);
    add_number(w, "TIMER_DELAY_MS", m->delay_ms);
    add_number(w, "TIMER_DELIVER_MS", m->deliver_ms);
    props_add(w, PROP_WAIT, m->no_wait ? BYTES("false") : BYTES("true"));
    add_text(w, "UNIQ_KEY", m->id);
}

/* Java's String.hashCode, made positive: what SelectMessageQueueByHash does with the key. */
static uint32_t shard_of(const char *key)
{
    int32_t hash = (int32_t)tags_code(bytes_str(key));
    return hash == INT32_MIN ? 0 : (uint32_t)(hash < 0 ? -hash : hash);
}

static int job_make(struct omq_producer *producer, const struct omq_message *m, struct job **out,
                    struct omq_error *why)
{
    int code = message_check(producer, m, why);
    if (code)
        return code;
    size_t room = props_room(m), topic_len = strlen(m->topic);
    if (room > RECORD_PROPS_MAX)
        return omq_fail(why, OMQ_TOO_BIG, "the properties have more than %d bytes",
                        RECORD_PROPS_MAX);
    size_t broker_len = m->queue ? strlen(m->queue->broker) : 0;
    struct job *job = malloc(sizeof *job + room + topic_len + broker_len + m->body_size);
    if (!job)
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for a message of %zu bytes", m->body_size);
    memset(job, 0, sizeof *job);
    uint8_t *at = job->text + room;
    job->props = wr_over(job->text, room);
    props_write(&job->props, m);
    job->topic = bytes_of(memcpy(at, m->topic, topic_len), topic_len);
    at += topic_len;
    job->pinned_id = m->queue ? m->queue->id : -1;
    if (m->queue)
        job->pinned_broker = bytes_of(memcpy(at, m->queue->broker, broker_len), broker_len);
    at += broker_len;
    job->body = bytes_of(at, m->body_size);
    if (m->body_size > 0)
        memcpy(at, m->body, m->body_size);
    job->sharded = m->sharding_key && !m->queue;
    job->shard = job->sharded ? shard_of(m->sharding_key) : 0;
    job->flag = m->flag;
    job->producer = producer;
    job->post.run = job_begin;
    if (m->id)
        (void)snprintf(job->receipt.id, sizeof job->receipt.id, "%s", m->id);
    *out = job;
    return OMQ_OK;
}

/* ---- the ways in ---- */

static bool place_take(struct omq_producer *producer)
{
    if (atomic_fetch_add(&producer->in_flight, 1) < producer->options.max_in_flight)
        return true;
    atomic_fetch_sub(&producer->in_flight, 1);
    return false;
}

static int job_post(struct omq_producer *producer, struct job *job, struct omq_error *why)
{
    if (!place_take(producer)) {
        free(job);
        return omq_fail(why, OMQ_BUSY, "%d messages are on their way already (max_in_flight)",
                        producer->options.max_in_flight);
    }
    job->until_ns =
        clock_ns(producer->client->clock) + (uint64_t)producer->options.timeout_ms * 1000000;
    job->tries_left = 1 + producer->options.retries;
    loop_post(producer->client->loop, &job->post);
    return OMQ_OK;
}

int omq_send(struct omq_producer *producer, const struct omq_message *message,
             struct omq_receipt *receipt, struct omq_error *why)
{
    if (!producer || !message)
        return omq_fail(why, OMQ_INVALID, "no producer, or no message");
    if (pthread_equal(pthread_self(), producer->client->thread))
        return omq_fail(why, OMQ_MISUSE, "omq_send waits, and cannot be called from here");
    struct job *job;
    int code = job_make(producer, message, &job, why);
    if (code)
        return code;
    struct waiter waiter;
    waiter_init(&waiter);
    job->how = JOB_WAITED;
    job->waiter = &waiter;
    code = job_post(producer, job, why);
    if (code) {
        room_clear(&waiter.room);
        return code;
    }
    waiter_wait(&waiter);
    code = job->code;
    if (code && why)
        *why = job->why;
    if (!code && receipt)
        *receipt = job->receipt;
    free(job);
    return code;
}

int omq_send_async(struct omq_producer *producer, const struct omq_message *message, omq_sent *done,
                   void *user, struct omq_error *why)
{
    if (!producer || !message || !done)
        return omq_fail(why, OMQ_INVALID, "no producer, no message, or no function to call");
    struct hands *hands;
    if (client_callbacks(producer->client, &hands))
        return omq_fail(why, OMQ_NO_MEMORY, "no thread for callbacks");
    struct job *job;
    int code = job_make(producer, message, &job, why);
    if (code)
        return code;
    job->how = JOB_CALLED;
    job->done = done;
    job->user = user;
    job->task.run = job_call_back;
    return job_post(producer, job, why);
}

int omq_send_oneway(struct omq_producer *producer, const struct omq_message *message,
                    struct omq_error *why)
{
    if (!producer || !message)
        return omq_fail(why, OMQ_INVALID, "no producer, or no message");
    struct job *job;
    int code = job_make(producer, message, &job, why);
    if (code)
        return code;
    job->how = JOB_ONEWAY;
    return job_post(producer, job, why);
}

/* ---- the way through, on the loop ---- */

static uint64_t left_ms(const struct job *job)
{
    uint64_t now = clock_ns(job->producer->client->clock);
    return job->until_ns > now ? (job->until_ns - now) / 1000000 : 0;
}

static void template_ready(struct route_want *want, struct topic_route *route,
                           const struct answer *answer)
{
    struct job *job = list_entry(want, struct job, want);
    struct omq_producer *producer = job->producer;
    if (route) {
        enum err err =
            route_make_template(route, job->topic, producer->options.queues, &job->route);
        counted_drop(&route->counted);
        if (!err && job->route->n_write > 0) {
            job->template = true;
            job_try(job);
            return;
        }
    }
    (void)answer;
    job_end(job, omq_fail(&job->why, OMQ_NO_TOPIC,
                          "no broker has topic %.*s, and it is not made by sending (ask an "
                          "operator to create it, or switch autoCreateTopicEnable on)",
                          BYTES_ARG(job->topic)));
}

static void route_ready(struct route_want *want, struct topic_route *route,
                        const struct answer *answer)
{
    struct job *job = list_entry(want, struct job, want);
    struct omq_client *client = job->producer->client;
    if (route && route->n_write > 0) {
        job->route = route;
        job_try(job);
        return;
    }
    if (route)
        counted_drop(&route->counted);
    if (answer && answer->err && !route) {
        int code = answer->err == ERR_CLOSED ? OMQ_NETWORK : omq_code_of(answer->err);
        job_end(job, omq_fail(&job->why, client->closing ? OMQ_CLOSED : code,
                              "no name server of %s tells where topic %.*s is: %s",
                              client->options.names, BYTES_ARG(job->topic), answer->reason));
        return;
    }
    job->want.ready = template_ready;
    route_get(client, TEMPLATE_TOPIC, false, &job->want, left_ms(job));
}

static void job_begin(struct post *post)
{
    struct job *job = list_entry(post, struct job, post);
    struct omq_producer *producer = job->producer;
    struct omq_client *client = producer->client;
    list_add_tail(&producer->jobs, &job->link);
    if (client->closing || producer->closing) {
        job_end(job, omq_fail(&job->why, OMQ_CLOSED, "the producer is closed"));
        return;
    }
    if (!job->receipt.id[0]) {
        (void)id_make(&client->ids, clock_ms(client->clock), job->receipt.id);
        props_add(&job->props, PROP_UNIQ_KEY, bytes_str(job->receipt.id));
    }
    job->want.ready = route_ready;
    route_get(client, job->topic, false, &job->want, left_ms(job));
}

/* The next in turn; on a retry the next that is not on the broker before, if there is one. */
static const struct topic_queue *queue_next(struct job *job)
{
    const struct topic_route *route = job->route;
    struct omq_producer *producer = job->producer;
    if (job->sharded)
        return &route->write[job->shard % route->n_write];
    for (size_t i = 0; i < route->n_write; i++) {
        const struct topic_queue *queue = &route->write[producer->next++ % route->n_write];
        if (!bytes_equal(route->brokers[queue->broker].name, job->last_broker))
            return queue;
    }
    return &route->write[producer->next++ % route->n_write];
}

static const struct topic_queue *queue_pinned(const struct job *job)
{
    const struct topic_route *route = job->route;
    for (size_t i = 0; i < route->n_write; i++) {
        const struct topic_queue *queue = &route->write[i];
        if (queue->id == job->pinned_id &&
            bytes_equal(route->brokers[queue->broker].name, job->pinned_broker))
            return queue;
    }
    return NULL;
}

static void put_send(const struct call *call, struct frame_out *f)
{
    const struct job *job = list_entry(call, struct job, call);
    const struct omq_producer *producer = job->producer;
    frame_put(f, BYTES("a"), bytes_str(producer->group));
    frame_put(f, BYTES("b"), job->topic);
    frame_put(f, BYTES("c"), TEMPLATE_TOPIC);
    frame_put_int(f, BYTES("d"), producer->options.queues);
    frame_put_int(f, BYTES("e"), job->queue->id);
    frame_put_int(f, BYTES("f"), job->sys_flag);
    frame_put_int(f, BYTES("g"), job->born_ms);
    frame_put_int(f, BYTES("h"), job->flag);
    frame_put(f, BYTES("i"), wr_bytes(&job->props));
    frame_put_int(f, BYTES("j"), 0);
    frame_put_bool(f, BYTES("k"), false);
    frame_put_bool(f, BYTES("m"), false);
    frame_put(f, BYTES("n"), job->route->brokers[job->queue->broker].name);
}

static void job_answered(struct call *call, const struct answer *answer);

static void job_try(struct job *job)
{
    struct omq_client *client = job->producer->client;
    job->tries_left--;
    job->queue = job->pinned_id >= 0 ? queue_pinned(job) : queue_next(job);
    if (!job->queue || !job->route->brokers[job->queue->broker].master.len) {
        job_end(job, omq_fail(&job->why, OMQ_NETWORK,
                              "topic %.*s has no such queue, or its broker has no master just now",
                              BYTES_ARG(job->topic)));
        return;
    }
    const struct topic_broker *broker = &job->route->brokers[job->queue->broker];
    job->born_ms = clock_ms(client->clock);
    job->call = (struct call){
        .code = REQ_SEND_MESSAGE_V2,
        .put = put_send,
        .room =
            strlen(job->producer->group) + job->topic.len + wr_len(&job->props) + broker->name.len,
        .body = job->body,
        .done = job_answered,
    };
    if (job->how == JOB_ONEWAY && say(client, broker->master, &job->call)) {
        job_end(job, OMQ_OK);
        return;
    }
    job->calling = true;
    uint64_t ms = left_ms(job);
    call_start(client, broker->master, &job->call, ms > 0 ? ms : 1);
}

/* ---- the answer ---- */

static bool worth_another(int32_t code)
{
    switch (code) {
    case RES_SYSTEM_ERROR:
    case RES_SYSTEM_BUSY:
    case RES_SERVICE_NOT_AVAILABLE:
    case RES_NO_PERMISSION:
    case RES_TOPIC_NOT_EXIST:
        return true;
    default:
        return false;
    }
}

static int code_of_response(int32_t code)
{
    switch (code) {
    case RES_SYSTEM_BUSY:
        return OMQ_BUSY;
    case RES_NO_PERMISSION:
        return OMQ_DENIED;
    case RES_TOPIC_NOT_EXIST:
        return OMQ_NO_TOPIC;
    case RES_MESSAGE_ILLEGAL:
        return OMQ_TOO_BIG;
    default:
        return OMQ_REFUSED;
    }
}

static void field_copy(const struct head *head, struct bytes name, char *out, size_t size)
{
    struct bytes value = head_field(head, name);
    size_t n = value.len < size - 1 ? value.len : size - 1;
    if (n > 0)
        memcpy(out, value.at, n);
    out[n] = 0;
}

static bool receipt_read(struct job *job, const struct head *head)
{
    struct omq_receipt *r = &job->receipt;
    r->stored = head->code == RES_SUCCESS              ? OMQ_STORED
                : head->code == RES_FLUSH_DISK_TIMEOUT ? OMQ_STORED_NO_FLUSH
                                                       : OMQ_STORED_NO_COPY;
    field_copy(head, BYTES("msgId"), r->offset_id, sizeof r->offset_id);
    field_copy(head, BYTES("recallHandle"), r->recall, sizeof r->recall);
    field_copy(head, BYTES("transactionId"), r->transaction, sizeof r->transaction);
    struct bytes name = job->route->brokers[job->queue->broker].name;
    (void)snprintf(r->broker, sizeof r->broker, "%.*s", BYTES_ARG(name));
    return bytes_to_i32(head_field(head, BYTES("queueId")), &r->queue_id) &&
           bytes_to_i64(head_field(head, BYTES("queueOffset")), &r->queue_offset);
}

static bool is_stored(int32_t code)
{
    return code == RES_SUCCESS || code == RES_FLUSH_DISK_TIMEOUT ||
           code == RES_SLAVE_NOT_AVAILABLE || code == RES_FLUSH_SLAVE_TIMEOUT;
}

/* Fills job->why with what this try came to. */
static int try_failed(struct job *job, const struct answer *answer)
{
    struct bytes broker = job->route->brokers[job->queue->broker].name;
    if (!answer->err) {
        int code = omq_fail(&job->why, code_of_response(answer->head->code),
                            "broker %.*s refuses the message: %.*s", BYTES_ARG(broker),
                            (int)(answer->head->remark.len < 300 ? answer->head->remark.len : 300),
                            (const char *)answer->head->remark.at);
        job->why.response_code = answer->head->code;
        return code;
    }
    int code = answer->err != ERR_CLOSED ? omq_code_of(answer->err)
               : answer->maybe_done      ? OMQ_LOST
                                         : OMQ_NETWORK;
    if (job->producer->client->closing)
        code = OMQ_CLOSED;
    return omq_fail(&job->why, code, "broker %.*s at %.*s: %s%s", BYTES_ARG(broker),
                    BYTES_ARG(job->route->brokers[job->queue->broker].master), answer->reason,
                    answer->maybe_done ? " (it may have stored the message all the same)" : "");
}

static void job_answered(struct call *call, const struct answer *answer)
{
    struct job *job = list_entry(call, struct job, call);
    struct omq_producer *producer = job->producer;
    job->calling = false;
    if (!answer->err && is_stored(answer->head->code)) {
        bool read = receipt_read(job, answer->head);
        job_end(job, read ? OMQ_OK
                          : omq_fail(&job->why, OMQ_PROTOCOL,
                                     "the broker's answer does not say where the message is"));
        return;
    }
    int code = try_failed(job, answer);
    bool again = answer->err ? answer->err != ERR_NO_MEMORY : worth_another(answer->head->code);
    if (!again || job->tries_left <= 0 || left_ms(job) == 0 || producer->closing ||
        producer->client->closing) {
        job_end(job, code);
        return;
    }
    atomic_fetch_add_explicit(&producer->client->stats.retries, 1, memory_order_relaxed);
    job->last_broker = job->route->brokers[job->queue->broker].name;
    job_try(job);
}

/* ---- the end ---- */

static void job_call_back(struct task *task)
{
    struct job *job = list_entry(task, struct job, task);
    job->done(job->user, job->code ? NULL : &job->receipt, job->code ? &job->why : NULL);
    free(job);
}

static void job_end(struct job *job, int code)
{
    struct omq_producer *producer = job->producer;
    struct omq_client *client = producer->client;
    job->code = code;
    list_remove(&job->link);
    if (job->route)
        counted_drop(&take(&job->route)->counted);
    atomic_fetch_add_explicit(code ? &client->stats.failures : &client->stats.sent, 1,
                              memory_order_relaxed);
    atomic_fetch_sub(&producer->in_flight, 1);
    if (list_empty(&producer->jobs) && producer->leaving)
        waiter_tell(take(&producer->leaving));
    switch (job->how) {
    case JOB_WAITED:
        waiter_tell(job->waiter); /* it frees the job */
        break;
    case JOB_CALLED:
        hands_give(client->callbacks, &job->task);
        break;
    case JOB_ONEWAY:
        free(job);
        break;
    }
}

void jobs_end(struct omq_producer *producer)
{
    struct omq_client *client = producer->client;
    list_each(k, &producer->jobs) {
        struct job *job = list_entry(k, struct job, link);
        if (!job->calling || job->call.ending)
            continue; /* its route or its post comes, finds the producer closing, and ends it */
        call_cancel(client, &job->call);
        job->calling = false;
        job_end(job,
                omq_fail(&job->why, OMQ_CLOSED,
                         "the producer was closed before the answer came (the message may have "
                         "been stored all the same)"));
    }
}
