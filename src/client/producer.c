/* producer.c - opening and closing of producers.
 *
 * A closed producer becomes a *husk*: its memory stays the client's, and is the next producer's. So
 * a call that comes too late, or at the same time as the close, finds a producer that says it is
 * closed instead of somebody else's memory. */
#include "client/producer_int.h"

#include <stdlib.h>

#define TIMEOUT_MS     3000
#define RETRIES        2
#define MESSAGE_MAX    (4u << 20)
#define COMPRESS_OVER  4096
#define COMPRESS_LEVEL 5
#define QUEUES         4
#define IN_FLIGHT_MAX  65535
#define TABLE_MIB      64
#define TRACE_TOPIC    "RMQ_SYS_TRACE_TOPIC"

static void defaults(struct omq_producer_options *o)
{
    o->timeout_ms = o->timeout_ms > 0 ? o->timeout_ms : TIMEOUT_MS;
    o->retries = o->retries == 0 ? RETRIES : o->retries < 0 ? 0 : o->retries;
    o->compress_over = o->compress_over ? o->compress_over : COMPRESS_OVER;
    o->compression_level = o->compression_level ? o->compression_level : COMPRESS_LEVEL;
    o->max_message_size = o->max_message_size ? o->max_message_size : MESSAGE_MAX;
    o->queues = o->queues > 0 ? o->queues : QUEUES;
    o->retry_table_mib = o->retry_table_mib > 0 ? o->retry_table_mib : TABLE_MIB;
    o->max_in_flight = o->max_in_flight > 0 ? o->max_in_flight : IN_FLIGHT_MAX;
}

/* ---- opening ---- */

static int options_check(const struct omq_producer_options *o, struct omq_error *why)
{
    struct fault fault = {0};
    if (group_name_check(bytes_str(o->group), &fault))
        return omq_fail(why, OMQ_INVALID, "%s", fault.text);
    if (strcmp(o->group, "DEFAULT_PRODUCER") == 0)
        return omq_fail(why, OMQ_INVALID,
                        "DEFAULT_PRODUCER is nobody's group: name the program's own");
    if (o->compression < OMQ_ZLIB || o->compression > OMQ_ZSTD)
        return omq_fail(why, OMQ_INVALID, "there is no compression %d", o->compression);
    if (o->max_message_size > FRAME_MAX / 2)
        return omq_fail(why, OMQ_INVALID, "no broker takes a message of more than %u bytes",
                        FRAME_MAX / 2);
    if (o->trace_topic && topic_name_check(bytes_str(o->trace_topic), &fault))
        return omq_fail(why, OMQ_INVALID, "%s", fault.text);
    return OMQ_OK;
}

static void producer_empty(struct omq_producer *producer)
{
    free(take(&producer->group));
    free(take(&producer->trace_topic));
    tracer_close(take(&producer->tracer));
    faults_clear(&producer->faults);
    compressors_clear(producer);
}

static void producer_free(struct omq_producer *producer)
{
    producer_empty(producer);
    room_clear(&producer->room);
    free(producer);
}

void husks_free(struct omq_client *client)
{
    struct link *k;
    while ((k = list_pop(&client->husks)))
        producer_free(list_entry(k, struct omq_producer, link));
}

static struct omq_producer *producer_alloc(struct omq_client *client)
{
    struct omq_producer *producer = calloc(1, sizeof *producer);
    if (!producer)
        return NULL;
    producer->client = client;
    room_init(&producer->room, "producer", ROOM_LEAF);
    list_init(&producer->compressors);
    list_init(&producer->jobs);
    return producer;
}

struct husk_want {
    struct omq_client *client;
    struct omq_producer *found;
};

static void husk_take(void *user)
{
    struct husk_want *want = user;
    struct link *k = list_pop(&want->client->husks);
    want->found = k ? list_entry(k, struct omq_producer, link) : NULL;
}

static void husk_give(void *user)
{
    struct omq_producer *producer = user;
    list_add_tail(&producer->client->husks, &producer->link);
}

static enum err producer_fill(struct omq_producer *producer,
                              const struct omq_producer_options *options, struct omq_error *why)
{
    producer_empty(producer);
    producer->options = *options;
    defaults(&producer->options);
    producer->closing = producer->parted = false;
    producer->group = strdup(options->group);
    producer->trace_topic = strdup(options->trace_topic ? options->trace_topic : TRACE_TOPIC);
    enum err err = producer->group && producer->trace_topic ? OK : ERR_NO_MEMORY;
    if (!err && options->trace)
        err = tracer_open(producer);
    if (!err && options->check)
        err = hands_open(producer->client, 1, true, &producer->checker);
    if (!err && options->retry_table)
        err = resend_open(producer, why);
    if (err) {
        hands_close(take(&producer->checker));
        producer_empty(producer);
    }
    return err;
}

static void join(void *user)
{
    struct omq_producer *producer = user;
    list_add_tail(&producer->client->producers, &producer->link);
    producer->client->identity++;
    pick_init(&producer->pick, &producer->client->dice);
    resend_start(producer->resend);
    atomic_store_explicit(&producer->open, true, memory_order_release);
}

int omq_producer_open(struct omq_client *client, const struct omq_producer_options *options,
                      struct omq_producer **out, struct omq_error *why)
{
    if (!client || !options || !out || !options->group)
        return omq_fail(why, OMQ_INVALID, "a producer needs a client and a group");
    int code = options_check(options, why);
    if (code)
        return code;
    if (client_on_own_thread(client))
        return omq_fail(why, OMQ_MISUSE, "a producer cannot be opened from a callback");
    struct husk_want want = {.client = client};
    client_on_loop(client, husk_take, &want);
    struct omq_producer *producer = want.found ? want.found : producer_alloc(client);
    if (why)
        *why = (struct omq_error){0};
    enum err err = producer ? producer_fill(producer, options, why) : ERR_NO_MEMORY;
    if (err) {
        if (producer)
            client_on_loop(client, husk_give, producer);
        if (why && why->code)
            return why->code;
        return omq_fail(why, omq_code_of(err), "no memory, or no thread, for a producer");
    }
    client_on_loop(client, join, producer);
    *out = producer;
    return OMQ_OK;
}

/* ---- closing ---- */

struct leave {
    struct omq_producer *producer;
    struct waiter waiter;
};

static void leave_begin(void *user)
{
    struct leave *leave = user;
    struct omq_producer *producer = leave->producer;
    resend_stop(producer->resend);
    tracer_flush(producer);
    if (list_empty(&producer->jobs))
        waiter_tell(&leave->waiter);
    else
        producer->leaving = &leave->waiter;
}

/* Time is up: what is left ends now. */
static void leave_end(void *user)
{
    struct omq_producer *producer = user;
    producer->closing = true;
    jobs_end(producer);
}

/* The broker asks nothing more of it, and its late jobs end at once. */
static void part(void *user)
{
    struct omq_producer *producer = user;
    producer->closing = producer->parted = true;
    client_give_all(producer->client); /* the close waits for them */
    list_remove(&producer->link);
    tracer_close(take(&producer->tracer));
    heart_leave(producer->client, bytes_str(producer->group), (struct bytes){0});
}

void omq_producer_close(struct omq_producer *producer)
{
    if (!producer)
        return;
    struct omq_client *client = producer->client;
    if (client_on_own_thread(client)) {
        client_log(client, OMQ_ERROR, "a producer cannot be closed from a callback: it stays open");
        return;
    }
    if (!atomic_exchange(&producer->open, false))
        return;
    struct leave leave = {.producer = producer};
    waiter_init(&leave.waiter);
    client_on_loop(client, leave_begin, &leave);
    if (!waiter_wait_until(&leave.waiter, producer->options.timeout_ms, client->clock))
        client_on_loop(client, leave_end, producer);
    waiter_wait(&leave.waiter);
    client_on_loop(client, part, producer);
    hands_close(take(&producer->checker));
    client_flush(client);
    if (producer->resend)
        resend_close(take(&producer->resend)); /* what the last callbacks kept is in it */
    compressors_clear(producer);
    client_on_loop(client, husk_give, producer);
}
