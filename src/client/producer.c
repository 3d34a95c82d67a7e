/* producer.c - opening and closing of producers. */
#include "client/client_int.h"

#include <stdlib.h>

#define TIMEOUT_MS    3000
#define RETRIES       2
#define MESSAGE_MAX   (4u << 20)
#define COMPRESS_OVER 4096
#define QUEUES        4
#define IN_FLIGHT_MAX 65535

static void defaults(struct omq_producer_options *o)
{
    o->timeout_ms = o->timeout_ms > 0 ? o->timeout_ms : TIMEOUT_MS;
    o->retries = o->retries == 0 ? RETRIES : o->retries < 0 ? 0 : o->retries;
    o->compress_over = o->compress_over ? o->compress_over : COMPRESS_OVER;
    o->max_message_size = o->max_message_size ? o->max_message_size : MESSAGE_MAX;
    o->queues = o->queues > 0 ? o->queues : QUEUES;
    o->max_in_flight = o->max_in_flight > 0 ? o->max_in_flight : IN_FLIGHT_MAX;
}

static void producer_free(struct omq_producer *producer)
{
    free(producer->group);
    free(producer->trace_topic);
    free(producer);
}

static void join(void *user)
{
    struct omq_producer *producer = user;
    list_add_tail(&producer->client->producers, &producer->link);
    producer->next = dice_next(&producer->client->dice);
}

int omq_producer_open(struct omq_client *client, const struct omq_producer_options *options,
                      struct omq_producer **out, struct omq_error *why)
{
    struct fault fault = {0};
    if (!client || !options || !out || !options->group)
        return omq_fail(why, OMQ_INVALID, "a producer needs a client and a group");
    if (group_name_check(bytes_str(options->group), &fault))
        return omq_fail(why, OMQ_INVALID, "%s", fault.text);
    if (client_on_own_thread(client))
        return omq_fail(why, OMQ_MISUSE, "a producer cannot be opened from a callback");
    struct omq_producer *producer = calloc(1, sizeof *producer);
    if (!producer)
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for a producer");
    producer->client = client;
    producer->options = *options;
    defaults(&producer->options);
    list_init(&producer->jobs);
    producer->group = strdup(options->group);
    producer->trace_topic = options->trace_topic ? strdup(options->trace_topic) : NULL;
    if (!producer->group || (options->trace_topic && !producer->trace_topic)) {
        producer_free(producer);
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for a producer");
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

static void part(void *user)
{
    struct omq_producer *producer = user;
    list_remove(&producer->link);
    heart_leave(producer->client, bytes_str(producer->group), (struct bytes){0});
}

void omq_producer_close(struct omq_producer *producer)
{
    if (!producer)
        return;
    struct omq_client *client = producer->client;
    if (client_on_own_thread(client)) {
        client_log(client, OMQ_ERROR, "a producer cannot be closed from a callback");
        return;
    }
    struct leave leave = {.producer = producer};
    waiter_init(&leave.waiter);
    client_on_loop(client, leave_begin, &leave);
    room_enter(&leave.waiter.room);
    if (!leave.waiter.done)
        room_wait(&leave.waiter.room, producer->options.timeout_ms);
    bool done = leave.waiter.done;
    room_leave(&leave.waiter.room);
    if (!done)
        client_on_loop(client, leave_end, producer);
    waiter_wait(&leave.waiter);
    client_on_loop(client, part, producer);
    producer_free(producer);
}
