/* heart.c - telling the brokers who we are.
 *
 * A broker that has something to ask a group (what became of a transaction, who waits for this
 * reply) finds it by its heartbeats, and forgets a client that was silent for two minutes. */
#include "client/consumer_int.h"

#include <stdlib.h>

#define HEARTBEAT_MAX (1u << 20)

struct beat {
    struct call call;
    struct omq_client *client;
    uint8_t text[];
};

static void beat_done(struct call *call, const struct answer *answer)
{
    struct beat *beat = list_entry(call, struct beat, call);
    if (!answer->err && answer->head->code != RES_SUCCESS)
        client_log(beat->client, OMQ_WARN, "a broker does not want our heartbeat: %.*s",
                   BYTES_ARG(answer->head->remark));
    free(beat);
}

static enum err consumer_describe(const struct omq_consumer *consumer, struct arena *arena,
                                  struct heart_consumer *out)
{
    static const char *const starts[] = {"CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_FIRST_OFFSET",
                                         "CONSUME_FROM_TIMESTAMP"};
    size_t n = 0;
    list_each(k, &consumer->subs)
        n++;
    *out = (struct heart_consumer){
        .group = bytes_str(consumer->group),
        .from_where = bytes_str(starts[consumer->options.start]),
        .type = consumer->reads ? CONSUME_ACTIVELY : CONSUME_PASSIVELY,
        .model = consumer->options.spread == OMQ_BROADCAST ? MODEL_BROADCASTING : MODEL_CLUSTERING,
        .subs = arena_alloc(arena, (n + 1) * sizeof *out->subs),
    };
    if (!out->subs)
        return ERR_NO_MEMORY;
    list_each(k, &consumer->subs) {
        const struct sub *sub = list_entry(k, struct sub, link);
        sub_describe(sub, &out->subs[out->n_subs++]);
    }
    return OK;
}

static enum err describe(const struct omq_client *client, struct arena *arena, struct heartbeat *h)
{
    size_t producers = 0, consumers = 0;
    list_each(k, &client->producers)
        producers++;
    list_each(k, &client->consumers)
        consumers++;
    *h = (struct heartbeat){
        .client_id = bytes_str(client->id),
        .producers = arena_alloc(arena, (producers + 1) * sizeof *h->producers),
        .consumers = arena_alloc(arena, (consumers + 1) * sizeof *h->consumers),
    };
    if (!h->producers || !h->consumers)
        return ERR_NO_MEMORY;
    list_each(k, &client->producers)
        h->producers[h->n_producers++] = bytes_str(list_entry(k, struct omq_producer, link)->group);
    enum err err = OK;
    list_each(k, &client->consumers) {
        const struct omq_consumer *consumer = list_entry(k, struct omq_consumer, link);
        if (!err && !consumer->assigned && !list_empty(&consumer->subs))
            err = consumer_describe(consumer, arena, &h->consumers[h->n_consumers++]);
    }
    return err;
}

static enum err body_make(struct omq_client *client, struct buf *out)
{
    struct arena arena;
    arena_init(&arena, HEARTBEAT_MAX);
    struct heartbeat h;
    enum err err = describe(client, &arena, &h);
    if (!err)
        heartbeat_write(out, &h);
    arena_clear(&arena);
    return err ? err : out->err;
}

struct beating {
    struct omq_client *client;
    struct bytes body;
    struct map told; /* address → anything */
};

static void beat_start(void *user, struct bytes address, bool master)
{
    struct beating *beating = user;
    bool produces_only = list_empty(&beating->client->consumers);
    if ((!master && produces_only) || map_get(&beating->told, address))
        return; /* those who only produce have nothing to do with slaves */
    struct beat *beat = calloc(1, sizeof *beat + beating->body.len);
    if (!beat || map_put(&beating->told, address, beat)) {
        free(beat);
        return;
    }
    memcpy(beat->text, beating->body.at, beating->body.len);
    beat->client = beating->client;
    beat->call = (struct call){
        .code = REQ_HEART_BEAT,
        .body = bytes_of(beat->text, beating->body.len),
        .done = beat_done,
    };
    call_start(beating->client, address, &beat->call,
               (uint64_t)beating->client->options.timeout_ms);
}

void hearts_beat(struct omq_client *client)
{
    loop_here(client->loop);
    if (list_empty(&client->producers) && list_empty(&client->consumers))
        return;
    struct buf body = buf_upto(HEARTBEAT_MAX);
    struct beating beating = {.client = client};
    map_init(&beating.told, dice_next(&client->dice));
    if (body_make(client, &body) == OK) {
        beating.body = buf_bytes(&body);
        routes_each(client, beat_start, &beating);
    }
    map_clear(&beating.told);
    buf_clear(&body);
}

void heart_ensure(struct omq_client *client, struct bytes address)
{
    loop_here(client->loop);
    if (!peer_is_stranger(client, address))
        return;
    struct buf body = buf_upto(HEARTBEAT_MAX);
    struct beating beating = {.client = client};
    map_init(&beating.told, dice_next(&client->dice));
    if (body_make(client, &body) == OK) {
        beating.body = buf_bytes(&body);
        beat_start(&beating, address, true);
    }
    map_clear(&beating.told);
    buf_clear(&body);
}

/* ---- leaving ---- */

struct leaving {
    struct call call;
    struct omq_client *client;
    struct bytes producer, consumer;
};

static void put_leaving(const struct call *call, struct frame_out *frame)
{
    const struct leaving *leaving = list_entry(call, struct leaving, call);
    frame_put(frame, BYTES("clientID"), bytes_str(leaving->client->id));
    if (leaving->producer.len)
        frame_put(frame, BYTES("producerGroup"), leaving->producer);
    if (leaving->consumer.len)
        frame_put(frame, BYTES("consumerGroup"), leaving->consumer);
}

static void leave_one(void *user, struct bytes address, bool master)
{
    struct leaving *leaving = user;
    (void)master;
    (void)say(leaving->client, address, &leaving->call);
}

void heart_leave(struct omq_client *client, struct bytes producer_group,
                 struct bytes consumer_group)
{
    loop_here(client->loop);
    struct leaving leaving = {
        .call = {.code = REQ_UNREGISTER_CLIENT,
                 .put = put_leaving,
                 .room = strlen(client->id) + producer_group.len + consumer_group.len},
        .client = client,
        .producer = producer_group,
        .consumer = consumer_group,
    };
    routes_each(client, leave_one, &leaving);
}
