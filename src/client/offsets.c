/* offsets.c - where a lane begins, and telling the broker how far it has come. */
#include "client/consumer_int.h"

#include <stdio.h>
#include <stdlib.h>

#define REST_TROUBLE_MS 1000
/* What was sent so long ago has been looked at by the broker, whatever its threads do. */
#define LAST_WORD_NS 100000000

static size_t offset_room(const struct lane *lane);

/* ---- where to begin ---- */

static void ask(struct lane *lane, int32_t code,
                void (*done)(struct call *, const struct answer *));

static void put_question(const struct call *call, struct frame_out *f)
{
    const struct lane *lane = list_entry(call, struct lane, call);
    const struct omq_consumer *consumer = lane->consumer;
    if (call->code == REQ_QUERY_CONSUMER_OFFSET)
        frame_put(f, BYTES("consumerGroup"), bytes_str(consumer->group));
    frame_put(f, BYTES("topic"), bytes_str(lane->queue.topic));
    frame_put_int(f, BYTES("queueId"), lane->queue.id);
    if (call->code == REQ_SEARCH_OFFSET_BY_TIMESTAMP)
        frame_put_int(f, BYTES("timestamp"), consumer->options.start_ms);
    frame_put(f, BYTES("bname"), bytes_str(lane->queue.broker));
}

/* A lane that has begun before goes on where it was, unless somebody else has come further since:
 * offsets are told with a delay, so the broker's is often behind. */
static void begin_known(struct lane *lane, int64_t offset)
{
    if (!lane->begun)
        lane->next = lane->seen = offset;
    else if (offset > lane_offset(lane))
        lane_move(lane, offset);
    lane->started = lane->begun = true;
    lane_go(lane);
    work_give(lane);
}

static void begin_taken(struct lane *lane, bool known, int64_t offset)
{
    if (known)
        begin_known(lane, offset);
    else
        lane_rest(lane, REST_TROUBLE_MS);
}

/* The database may know better than the broker. */
static void begin_at(struct lane *lane, int64_t offset)
{
    if (!exact_by_offset(lane->consumer->exact))
        begin_known(lane, offset);
    else if (lane->consumer->closing || !exact_take(lane, offset, TAKE_KNOWN, begin_taken))
        lane_rest(lane, REST_TROUBLE_MS);
}

/* True: the answer has an offset. False: the lane was seen to. */
static bool question_over(struct lane *lane, const struct answer *answer, int64_t *offset)
{
    lane->calling = false;
    if (lane->state == LANE_DROPPED) {
        lane_let_go(lane);
        return false;
    }
    if (!answer->err && answer->head->code == RES_SUCCESS &&
        bytes_to_i64(head_field(answer->head, BYTES("offset")), offset) && *offset >= 0)
        return true;
    if (answer->err || answer->head->code != RES_QUERY_NOT_FOUND) {
        client_log(lane->consumer->client, OMQ_WARN,
                   "where to begin in %s:%d of topic %s is not known yet: %.*s", lane->queue.broker,
                   lane->queue.id, lane->queue.topic,
                   answer->err ? (int)strlen(answer->reason) : (int)answer->head->remark.len,
                   answer->err ? answer->reason : (const char *)answer->head->remark.at);
        lane_rest(lane, REST_TROUBLE_MS);
        return false;
    }
    *offset = -1;
    return true;
}

static void bound_known(struct call *call, const struct answer *answer)
{
    struct lane *lane = list_entry(call, struct lane, call);
    int64_t offset;
    if (question_over(lane, answer, &offset))
        begin_at(lane, offset < 0 ? 0 : offset);
}

/* Nobody has kept how far it came. What the group was given back is never old news. */
static void start_anew(struct lane *lane)
{
    int start = lane->consumer->options.start;
    if (lane->retry || lane->begun || start == OMQ_FROM_FIRST)
        begin_at(lane, 0);
    else
        ask(lane, start == OMQ_FROM_TIME ? REQ_SEARCH_OFFSET_BY_TIMESTAMP : REQ_GET_MAX_OFFSET,
            bound_known);
}

static void stored_known(struct call *call, const struct answer *answer)
{
    struct lane *lane = list_entry(call, struct lane, call);
    int64_t offset;
    if (!question_over(lane, answer, &offset))
        return;
    if (offset >= 0) {
        lane->told = lane->sure = offset;
        begin_at(lane, offset);
    } else {
        start_anew(lane);
    }
}

static void ask(struct lane *lane, int32_t code, void (*done)(struct call *, const struct answer *))
{
    struct omq_client *client = lane->consumer->client;
    struct topic_route *route;
    struct bytes address = lane_broker(lane, true, &route);
    if (address.len) {
        lane->calling = true;
        lane->call = (struct call){
            .code = code,
            .put = put_question,
            .room = offset_room(lane),
            .done = done,
        };
        call_start(client, address, &lane->call, (uint64_t)client->options.timeout_ms);
    } else {
        lane_rest(lane, REST_TROUBLE_MS);
    }
    if (route)
        counted_drop(&route->counted);
}

void offsets_start(struct lane *lane)
{
    struct omq_consumer *consumer = lane->consumer;
    int64_t kept = consumer->local ? local_offset(consumer, &lane->queue) : -1;
    if (kept >= 0)
        begin_at(lane, kept);
    else if (!consumer->local)
        ask(lane, REQ_QUERY_CONSUMER_OFFSET, stored_known);
    else
        start_anew(lane);
}

/* ---- telling ---- */

int64_t offset_due(const struct lane *lane)
{
    bool ours = !consumer_locks(lane->consumer) || (lane->started && lane_locked(lane));
    return ours ? lane_offset(lane) : -1;
}

bool offset_is_due(const struct lane *lane)
{
    int64_t offset = offset_due(lane);
    return offset >= 0 && offset != lane->sure;
}

static void offset_put(struct frame_out *f, const struct lane *lane, int64_t offset)
{
    frame_put(f, BYTES("consumerGroup"), bytes_str(lane->consumer->group));
    frame_put(f, BYTES("topic"), bytes_str(lane->queue.topic));
    frame_put_int(f, BYTES("queueId"), lane->queue.id);
    frame_put_int(f, BYTES("commitOffset"), offset);
    frame_put(f, BYTES("bname"), bytes_str(lane->queue.broker));
}

static size_t offset_room(const struct lane *lane)
{
    return strlen(lane->consumer->group) + strlen(lane->queue.topic) + strlen(lane->queue.broker);
}

struct telling {
    struct call call;
    const struct lane *lane;
    int64_t offset;
};

static void put_offset(const struct call *call, struct frame_out *f)
{
    const struct telling *telling = list_entry(call, struct telling, call);
    offset_put(f, telling->lane, telling->offset);
}

static void put_before(const struct call *call, struct frame_out *f)
{
    const struct lane *lane = list_entry(call, struct lane, before);
    offset_put(f, lane, lane->before_offset);
}

bool offset_tell_first(struct lane *lane, int64_t offset,
                       void (*done)(struct call *, const struct answer *))
{
    struct omq_client *client = lane->consumer->client;
    struct topic_route *route;
    struct bytes address = lane_broker(lane, true, &route);
    lane->before_offset = offset;
    lane->before_moves = lane->moves;
    lane->before = (struct call){
        .code = REQ_UPDATE_CONSUMER_OFFSET,
        .put = put_before,
        .room = offset_room(lane),
        .done = done,
    };
    if (address.len)
        call_start(client, address, &lane->before, (uint64_t)client->options.timeout_ms);
    if (route)
        counted_drop(&route->counted);
    return address.len > 0;
}

void offset_say(struct lane *lane)
{
    int64_t offset = offset_due(lane);
    if (offset < 0 || offset == lane->told || lane->consumer->options.spread != OMQ_CLUSTER)
        return; /* a broadcast's offsets are its own: local.c */
    struct topic_route *route;
    struct bytes address = lane_broker(lane, true, &route);
    struct telling telling = {
        .call = {.code = REQ_UPDATE_CONSUMER_OFFSET, .put = put_offset, .room = offset_room(lane)},
        .lane = lane,
        .offset = offset,
    };
    if (address.len && say(lane->consumer->client, address, &telling.call)) {
        lane->told = offset;
        lane->said_ns = clock_ns(lane->consumer->client->clock);
    }
    if (route)
        counted_drop(&route->counted);
}

void offset_tell(struct lane *lane)
{
    if (lane->consumer->commit_every_ms > 0)
        offset_say(lane);
}

void offsets_tell(struct omq_consumer *consumer)
{
    local_save(consumer);
    list_each(k, &consumer->lanes)
        offset_tell(list_entry(k, struct lane, link));
}

/* ---- telling, with an answer ---- */

struct settling {
    struct call call;
    struct lane *lane; /* its own count in lane.out keeps it */
    int64_t offset;
    unsigned moves;
    void (*over)(void *user, const struct answer *answer);
    void *user;
};

static void put_settling(const struct call *call, struct frame_out *f)
{
    const struct settling *s = list_entry(call, struct settling, call);
    offset_put(f, s->lane, s->offset);
}

static void settled(struct call *call, const struct answer *answer)
{
    struct settling *s = list_entry(call, struct settling, call);
    struct lane *lane = s->lane;
    struct omq_consumer *consumer = lane->consumer;
    if (!answer->err && answer->head->code == RES_SUCCESS)
        lane_answered(lane, s->offset, s->moves);
    else
        client_log(consumer->client, OMQ_WARN,
                   "the offset of %s:%d of topic %s may not be stored: messages may come again",
                   lane->queue.broker, lane->queue.id, lane->queue.topic);
    if (s->over)
        s->over(s->user, answer);
    free(s);
    lane->out--;
    lane_idle(lane);
    consumer->running--;
    consumer_calm(consumer);
}

bool offset_settle(struct lane *lane, void (*over)(void *user, const struct answer *answer),
                   void *user)
{
    struct omq_consumer *consumer = lane->consumer;
    struct omq_client *client = consumer->client;
    int64_t offset = offset_due(lane);
    if (!offset_is_due(lane))
        return false;
    struct topic_route *route;
    struct bytes address = lane_broker(lane, true, &route);
    struct settling *s = address.len ? calloc(1, sizeof *s) : NULL;
    if (s) {
        *s = (struct settling){
            .call = {.code = REQ_UPDATE_CONSUMER_OFFSET,
                     .put = put_settling,
                     .room = offset_room(lane),
                     .done = settled},
            .lane = lane,
            .offset = offset,
            .moves = lane->moves,
            .over = over,
            .user = user,
        };
        lane->out++;
        consumer->running++;
        call_start(client, address, &s->call, (uint64_t)client->options.timeout_ms);
    }
    if (route)
        counted_drop(&route->counted);
    return s != NULL;
}

uint64_t offsets_rest_ms(const struct omq_consumer *consumer)
{
    uint64_t now_ns = clock_ns(consumer->client->clock), rest_ns = 0;
    list_each(k, &consumer->lanes) {
        const struct lane *lane = list_entry(k, struct lane, link);
        uint64_t last_ns = lane->said_ns;
        if (lane->pull_tells && lane->calling && lane->pulled_ns > last_ns)
            last_ns = lane->pulled_ns;
        if (last_ns > 0 && now_ns - last_ns < LAST_WORD_NS - rest_ns)
            rest_ns = LAST_WORD_NS - (now_ns - last_ns);
    }
    return (rest_ns + 999999) / 1000000;
}

static bool is_kin(const struct lane *a, const struct lane *b)
{
    return strcmp(a->queue.topic, b->queue.topic) == 0 &&
           strcmp(a->queue.broker, b->queue.broker) == 0;
}

bool offset_goes_ahead(const struct lane *lane)
{
    bool before = true; /* in the list */
    if (!offset_is_due(lane))
        return false;
    list_each(k, &lane->consumer->lanes) {
        const struct lane *other = list_entry(k, struct lane, link);
        before = before && other != lane;
        if (is_kin(other, lane) && (other->heard || (before && offset_is_due(other))))
            return false;
    }
    return true;
}

void offsets_settle(struct omq_consumer *consumer, bool ahead)
{
    if (!ahead)
        local_save(consumer);
    if (consumer->options.spread != OMQ_CLUSTER || consumer->commit_every_ms < 0)
        return;
    list_each(k, &consumer->lanes) {
        struct lane *lane = list_entry(k, struct lane, link);
        if (!lane->last_told && (!ahead || offset_goes_ahead(lane)))
            lane->last_told = offset_settle(lane, NULL, NULL);
    }
}
