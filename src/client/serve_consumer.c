/* serve_consumer.c - what brokers ask of consumers, mostly because an operator has asked them. */
#include "base/json.h"
#include "client/consumer_int.h"

#include <stdio.h>
#include <stdlib.h>

#define BODY_MAX (4u << 20)

static struct omq_consumer *consumer_named(const struct asked *asked, const char *field)
{
    struct bytes group = head_field(asked->head, bytes_str(field));
    list_each(k, &asked->client->consumers) {
        struct omq_consumer *consumer = list_entry(k, struct omq_consumer, link);
        if (!consumer->closing && bytes_equal(bytes_str(consumer->group), group))
            return consumer;
    }
    asked_answer(asked, RES_SYSTEM_ERROR, BYTES("this client has no such consumer group"),
                 (struct bytes){0});
    return NULL;
}

static struct queue_name name_of(const struct lane *lane)
{
    return (struct queue_name){bytes_str(lane->queue.topic), bytes_str(lane->queue.broker),
                               lane->queue.id};
}

static struct lane *lane_named(struct omq_consumer *consumer, const struct queue_name *queue)
{
    list_each(k, &consumer->lanes) {
        struct lane *lane = list_entry(k, struct lane, link);
        if (lane->queue.id == queue->queue_id &&
            bytes_equal(bytes_str(lane->queue.topic), queue->topic) &&
            bytes_equal(bytes_str(lane->queue.broker), queue->broker))
            return lane;
    }
    return NULL;
}

/* ---- 220 ---- */

void serve_reset(const struct asked *asked)
{
    struct omq_consumer *consumer = consumer_named(asked, "group");
    struct arena arena;
    arena_init(&arena, BODY_MAX);
    struct queue_offset *offsets = NULL;
    size_t n = 0;
    if (consumer && queue_offsets_read(asked->body, "offsetTable", &arena, &offsets, &n))
        client_log(asked->client, OMQ_WARN, "a broker's order to reset %s cannot be read",
                   consumer->group);
    for (size_t i = 0; i < n; i++) {
        struct lane *lane = lane_named(consumer, &offsets[i].queue);
        if (!lane)
            continue; /* another member's */
        client_log(asked->client, OMQ_INFO, "%s:%d of topic %s is reset to offset %lld",
                   lane->queue.broker, lane->queue.id, lane->queue.topic,
                   (long long)offsets[i].offset);
        lane_reset(lane, offsets[i].offset);
    }
    arena_clear(&arena);
}

/* ---- 221 ---- */

void serve_status(const struct asked *asked)
{
    struct omq_consumer *consumer = consumer_named(asked, "group");
    if (!consumer)
        return;
    struct bytes topic = head_field(asked->head, BYTES("topic"));
    size_t n = 0;
    list_each(k, &consumer->lanes)
        n++;
    struct queue_offset *all = calloc(n + 1, sizeof *all);
    struct buf body = buf_upto(BODY_MAX);
    n = 0;
    list_each(k, &consumer->lanes) {
        const struct lane *lane = list_entry(k, struct lane, link);
        int64_t offset = lane_offset(lane);
        if (all && offset >= 0 && bytes_equal(topic, bytes_str(lane->queue.topic)))
            all[n++] = (struct queue_offset){name_of(lane), offset};
    }
    queue_offsets_write(&body, "messageQueueTable", all, n);
    if (all && !body.err)
        asked_answer(asked, RES_SUCCESS, (struct bytes){0}, buf_bytes(&body));
    buf_clear(&body);
    free(all);
}

/* ---- 307 ---- */

static void lane_write(struct json_out *w, const struct lane *lane)
{
    const struct link *first = list_first(&lane->held);
    struct link *last = lane->held.head.prev;
    int64_t min = first ? list_entry(first, struct held, link)->delivery.offset : 0;
    int64_t max = first ? list_entry(last, struct held, link)->delivery.offset : 0;
    int64_t offset = lane_offset(lane);
    struct queue_name name = name_of(lane);
    queue_name_write(w, &name);
    json_key_object(w);
    json_open(w);
    json_int_member(w, "cachedMsgCount", (int64_t)lane->n_held);
    json_int_member(w, "cachedMsgMaxOffset", max);
    json_int_member(w, "cachedMsgMinOffset", min);
    json_int_member(w, "cachedMsgSizeInMiB", (int64_t)(lane->bytes_held >> 20));
    json_int_member(w, "commitOffset", offset < 0 ? 0 : offset);
    json_bool_member(w, "droped", false);
    json_int_member(w, "lastConsumeTimestamp", lane->consumed_ms);
    json_int_member(w, "lastLockTimestamp", lane->locked_ms);
    json_int_member(w, "lastPullTimestamp", lane->pulled_ms);
    json_bool_member(w, "locked", lane->locked);
    json_int_member(w, "transactionMsgCount", 0);
    json_int_member(w, "transactionMsgMaxOffset", 0);
    json_int_member(w, "transactionMsgMinOffset", 0);
    json_int_member(w, "tryUnlockTimes", 0);
    json_close(w);
}

static void properties_write(struct json_out *w, const struct omq_consumer *consumer)
{
    const struct omq_consumer_options *o = &consumer->options;
    char threads[16], start[24];
    (void)snprintf(threads, sizeof threads, "%d", o->threads);
    (void)snprintf(start, sizeof start, "%lld", (long long)consumer->start_ms);
    json_open(w);
    json_text_member(w, "PROP_CLIENT_VERSION", BYTES("V5_3_3"));
    json_text_member(w, "PROP_CONSUMEORDERLY", o->ordered ? BYTES("true") : BYTES("false"));
    json_text_member(w, "PROP_CONSUMER_START_TIMESTAMP", bytes_str(start));
    json_text_member(w, "PROP_CONSUME_TYPE",
                     consumer->reads ? BYTES("CONSUME_ACTIVELY") : BYTES("CONSUME_PASSIVELY"));
    json_text_member(
        w, "PROP_NAMESERVER_ADDR",
        bytes_str(consumer->client->options.names ? consumer->client->options.names : ""));
    json_text_member(w, "PROP_THREADPOOL_CORE_SIZE", bytes_str(threads));
    json_close(w);
}

static void subs_write(struct json_out *w, const struct omq_consumer *consumer)
{
    json_open_array(w);
    list_each(k, &consumer->subs) {
        struct heart_subscription sub;
        sub_describe(list_entry(k, struct sub, link), &sub);
        heart_subscription_write(w, &sub);
    }
    json_close_array(w);
}

void serve_running_info(const struct asked *asked)
{
    struct omq_consumer *consumer = consumer_named(asked, "consumerGroup");
    if (!consumer)
        return;
    struct buf body = buf_upto(BODY_MAX);
    struct json_out w = {.buf = &body};
    json_open(&w);
    json_key(&w, "mqPopTable");
    json_open(&w);
    json_close(&w);
    json_key(&w, "mqTable");
    json_open(&w);
    list_each(k, &consumer->lanes)
        lane_write(&w, list_entry(k, struct lane, link));
    json_close(&w);
    json_key(&w, "properties");
    properties_write(&w, consumer);
    json_key(&w, "statusTable");
    json_open(&w);
    json_close(&w);
    json_key(&w, "subscriptionSet");
    subs_write(&w, consumer);
    json_close(&w);
    if (!body.err)
        asked_answer(asked, RES_SUCCESS, (struct bytes){0}, buf_bytes(&body));
    buf_clear(&body);
}

/* ---- 309 ---- */

static enum err direct_make(const struct asked *asked, struct omq_consumer *consumer)
{
    struct record record;
    if (record_decode(asked->body, &record))
        return ERR_MALFORMED;
    struct bytes broker = head_field(asked->head, BYTES("brokerName"));
    struct asked_later *later = malloc(sizeof *later);
    char *topic = bytes_text(record.topic);
    char *name = bytes_text(broker);
    struct parcel *parcel = NULL;
    struct held *held = NULL;
    if (later && topic && name)
        parcel = parcel_make(asked->body, &(struct omq_queue){topic, name, record.queue_id});
    if (parcel && record_decode(bytes_of(parcel->bytes, parcel->len), &record) == OK &&
        held_make(parcel, &record, &held))
        held = NULL;
    if (parcel)
        counted_drop(&parcel->counted);
    free(topic);
    free(name);
    if (!held) {
        free(later);
        return ERR_NO_MEMORY;
    }
    asked_keep(asked, later);
    return work_direct(consumer, held, later);
}

void serve_directly(const struct asked *asked)
{
    struct omq_consumer *consumer = consumer_named(asked, "consumerGroup");
    if (!consumer)
        return;
    if (!consumer->hands) {
        asked_answer(asked, RES_SYSTEM_ERROR, BYTES("this consumer has no handler"),
                     (struct bytes){0});
        return;
    }
    enum err err = direct_make(asked, consumer);
    if (err)
        asked_answer(asked, RES_SYSTEM_ERROR, bytes_str(err_text(err)), (struct bytes){0});
}
