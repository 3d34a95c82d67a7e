/* lane.c - one queue that is ours: pulling from it. */
#include "client/consumer_int.h"

#include <stdio.h>
#include <stdlib.h>

#define PULL_TIMEOUT_MS 30000
#define PULL_SUSPEND_MS 15000
#define REST_FULL_MS    50
#define REST_PAUSED_MS  1000
#define REST_TROUBLE_MS 3000
#define REST_UNKNOWN_MS 1000
#define WAITED_NS       (UINT64_C(1) * 1000000000)
#define BEAT_PAUSE_NS   (UINT64_C(500) * 1000000)

static void pull(struct lane *lane);

/* ---- life ---- */

static void lane_rested(void *user)
{
    struct lane *lane = user;
    if (lane->state == LANE_RESTING)
        lane_go(lane);
}

static void lane_again(void *user)
{
    struct lane *lane = user;
    lane->again_ns = 0;
    lane->suspended = false;
    work_give(lane);
}

void lane_wake(struct lane *lane, uint64_t at_ns)
{
    uint64_t now = clock_ns(lane->consumer->client->clock);
    if (lane->again_ns && lane->again_ns <= at_ns)
        return;
    lane->again_ns = at_ns;
    timer_start(lane->again, at_ns > now ? (at_ns - now + 999999) / 1000000 : 0, 0);
}

enum err lane_open(struct omq_consumer *consumer, const struct omq_queue *queue, uint64_t pause_ms)
{
    size_t topic_size = strlen(queue->topic) + 1, broker_size = strlen(queue->broker) + 1;
    struct lane *lane = calloc(1, sizeof *lane + topic_size + broker_size);
    if (!lane)
        return ERR_NO_MEMORY;
    char *text = (char *)(lane + 1);
    lane->queue.topic = memcpy(text, queue->topic, topic_size);
    lane->queue.broker = memcpy(text + topic_size, queue->broker, broker_size);
    lane->queue.id = queue->id;
    lane->retry = strcmp(queue->topic, consumer->retry_topic) == 0;
    lane->consumer = consumer;
    lane->told = lane->sure = -1;
    lane->floor = INT64_MAX;
    list_init(&lane->held);
    enum err err = timer_open(consumer->client->loop, lane_rested, lane, &lane->timer);
    if (!err)
        err = timer_open(consumer->client->loop, lane_again, lane, &lane->again);
    if (err) {
        if (lane->timer)
            timer_close(lane->timer);
        free(lane);
        return err;
    }
    list_add_tail(&consumer->lanes, &lane->link);
    lane->wanted = true;
    lane->state = LANE_RESTING;
    if (!consumer_locks(consumer)) /* else when it is locked */
        timer_start(lane->timer, pause_ms, 0);
    return OK;
}

struct lane *lane_find(struct omq_consumer *consumer, const struct omq_queue *queue)
{
    list_each(k, &consumer->lanes) {
        struct lane *lane = list_entry(k, struct lane, link);
        if (lane->queue.id == queue->id && strcmp(lane->queue.topic, queue->topic) == 0 &&
            strcmp(lane->queue.broker, queue->broker) == 0)
            return lane;
    }
    return NULL;
}

/* What nobody works on is let go; what somebody does is theirs to free. */
static void held_clear(struct lane *lane)
{
    _Atomic uint64_t *waiting = &lane->consumer->client->stats.waiting;
    list_each(k, &lane->held) {
        struct held *held = list_entry(k, struct held, link);
        list_remove(&held->link);
        held->done = true;
        if (held->taken)
            continue;
        atomic_fetch_sub_explicit(waiting, 1, memory_order_relaxed);
        held_free(held);
    }
    lane->n_held = lane->bytes_held = 0;
    lane->given = NULL;
}

void lane_let_go(struct lane *lane)
{
    if (lane->state != LANE_DROPPED || lane->calling || lane->telling || lane->out > 0)
        return;
    timer_close(lane->timer);
    timer_close(lane->again);
    free(lane);
}

void lane_drop(struct lane *lane)
{
    struct omq_client *client = lane->consumer->client;
    work_recall(lane->consumer, lane);
    if (lane->started)
        offset_tell(lane);
    if (lane->locked)
        unlock(lane);
    timer_stop(lane->timer);
    timer_stop(lane->again);
    if (lane->calling && !lane->call.ending) {
        call_cancel(client, &lane->call);
        lane->calling = false;
    }
    if (lane->telling && !lane->before.ending) {
        call_cancel(client, &lane->before);
        lane->telling = false;
    }
    list_remove(&lane->link);
    held_clear(lane);
    lane->state = LANE_DROPPED;
    lane_let_go(lane);
}

/* ---- leaving in order: the handler comes back, the broker hears how far it came, the lock goes */

static void told_last(struct call *call, const struct answer *answer)
{
    struct lane *lane = list_entry(call, struct lane, before);
    lane->telling = false;
    if (!answer->err && answer->head->code == RES_SUCCESS)
        lane_answered(lane, lane->before_offset, lane->before_moves);
    struct omq_consumer *consumer = lane->consumer;
    if (lane->state == LANE_DROPPED) {
        lane_let_go(lane);
        return;
    }
    if (lane->leaving)
        lane_drop(lane);
    consumer_calm(consumer);
}

void lane_idle(struct lane *lane)
{
    if (lane->state == LANE_DROPPED) {
        lane_let_go(lane);
        return;
    }
    if (!lane->leaving || lane->out > 0 || lane->telling)
        return;
    int64_t offset = offset_due(lane);
    if (offset < 0 || offset == lane->sure || !offset_tell_first(lane, offset, told_last))
        lane_drop(lane);
    else
        lane->telling = true;
}

void lane_leave(struct lane *lane)
{
    work_recall(lane->consumer, lane);
    if (!consumer_locks(lane->consumer)) {
        lane_drop(lane);
        return;
    }
    lane->leaving = true;
    lane_idle(lane);
}

void lane_stay(struct lane *lane)
{
    if (!lane->leaving)
        return;
    lane->leaving = false;
    lane_go(lane);
    work_give(lane);
}

int64_t lane_offset(const struct lane *lane)
{
    if (!lane->begun)
        return -1;
    const struct link *first = list_first(&lane->held);
    int64_t offset = first ? list_entry(first, struct held, link)->delivery.offset : lane->seen;
    return offset < lane->floor ? offset : lane->floor;
}

void lane_answered(struct lane *lane, int64_t offset, unsigned moves)
{
    lane->heard = true;
    if (lane->moves == moves)
        lane->told = lane->sure = offset;
}

void lane_rest(struct lane *lane, uint64_t ms)
{
    lane->state = LANE_RESTING;
    lane->full = false;
    timer_start(lane->timer, ms, 0);
}

/* Goes on elsewhere: an operator wants it, or what was to be read is no more. */
void lane_move(struct lane *lane, int64_t offset)
{
    work_recall(lane->consumer, lane);
    held_clear(lane);
    lane->next = lane->seen = offset;
    lane->started = lane->begun = true;
    lane->told = lane->sure = -1; /* what it may be told next, it may have answered before */
    lane->moves++;
    offset_tell(lane);
}

static void lane_hang_up(struct lane *lane)
{
    if (lane->calling && !lane->call.ending) {
        call_cancel(lane->consumer->client, &lane->call);
        lane->calling = false;
    }
}

void lane_ask_again(struct lane *lane)
{
    lane_hang_up(lane);
    lane->started = false;
}

static void reset_taken(struct lane *lane, bool known, int64_t offset)
{
    if (known)
        lane_move(lane, offset);
    else
        client_log(lane->consumer->client, OMQ_ERROR,
                   "%s:%d of topic %s is not reset, since the database cannot be asked: order it "
                   "again",
                   lane->queue.broker, lane->queue.id, lane->queue.topic);
    lane_go(lane);
}

/* By offset the database must agree: its place counts, also after a restart. */
static void reset_exactly(struct lane *lane, int64_t offset)
{
    if (!lane->taking)
        lane_ask_again(lane);
    work_recall(lane->consumer, lane); /* the hands shall ask now, not after all that */
    if (lane->taking || !exact_take(lane, offset, TAKE_ORDERED, reset_taken))
        reset_taken(lane, false, 0);
}

void lane_reset(struct lane *lane, int64_t offset)
{
    if (exact_by_offset(lane->consumer->exact)) {
        reset_exactly(lane, offset);
        return;
    }
    lane_hang_up(lane);
    lane_move(lane, offset);
    lane_go(lane);
}

/* ---- may it pull? ---- */

bool lane_locked(const struct lane *lane)
{
    uint64_t trust_ns = (uint64_t)lane->consumer->options.lock_ms * 1000000;
    return lane->locked && clock_ns(lane->consumer->client->clock) - lane->locked_ns < trust_ns;
}

static bool is_full(const struct lane *lane)
{
    const struct omq_consumer_options *o = &lane->consumer->options;
    if (o->pop)
        return pop_full(lane);
    if (lane->n_held > (size_t)o->max_messages ||
        lane->bytes_held > (size_t)o->max_mib * 1024 * 1024)
        return true;
    return !o->ordered && lane->n_held > 0 && lane->seen - lane_offset(lane) > o->max_span;
}

void lane_emptier(struct lane *lane)
{
    if (lane->state == LANE_RESTING && lane->full && !is_full(lane))
        lane_go(lane);
}

void lane_go(struct lane *lane)
{
    const struct omq_consumer *consumer = lane->consumer;
    if (lane->state == LANE_DROPPED || lane->calling || lane->taking || lane->leaving ||
        consumer->closing)
        return;
    if (consumer_locks(consumer) && !lane_locked(lane)) {
        lane_rest(lane, REST_TROUBLE_MS); /* locks_renew calls us earlier */
        return;
    }
    if (!lane->started && !consumer->options.pop) {
        lane->state = LANE_STARTING;
        offsets_start(lane);
        return;
    }
    if (consumer->paused)
        lane_rest(lane, REST_PAUSED_MS);
    else if (is_full(lane)) {
        lane_rest(lane, REST_FULL_MS); /* lane_emptier calls us earlier */
        lane->full = true;
    } else if (consumer->options.pop)
        pop_go(lane);
    else
        pull(lane);
}

/* ---- whom to ask ---- */

/* The one that was suggested, or any. */
static struct bytes replica(const struct topic_broker *broker, int64_t id)
{
    for (size_t i = 0; i < broker->n_others; i++)
        if (broker->other_ids[i] == id)
            return broker->others[i];
    return broker->master.len ? broker->master : broker->others[0];
}

/* The address of the lane's broker; `*route` is a count that it is a slice of. Empty: not known. */
struct bytes lane_broker(struct lane *lane, bool master, struct topic_route **route)
{
    struct omq_client *client = lane->consumer->client;
    *route = route_cached(client, bytes_str(lane->queue.topic));
    for (size_t i = 0; *route && i < (*route)->n_brokers; i++) {
        const struct topic_broker *broker = &(*route)->brokers[i];
        if (!bytes_equal(broker->name, bytes_str(lane->queue.broker)))
            continue;
        if (!master && broker->n_others > 0 && (lane->pull_broker != 0 || !broker->master.len))
            return replica(broker, lane->pull_broker);
        return broker->master;
    }
    return (struct bytes){0};
}

/* ---- pulling ---- */

static void put_pull(const struct call *call, struct frame_out *f)
{
    struct lane *lane = list_entry(call, struct lane, call);
    struct omq_consumer *consumer = lane->consumer;
    const struct sub *sub = sub_find(consumer, lane->queue.topic);
    bool commits = consumer->options.spread == OMQ_CLUSTER && consumer->commit_every_ms > 0 &&
                   lane->pull_broker == 0; /* only masters keep offsets */
    int64_t done = commits ? offset_due(lane) : -1;
    bool subscribes = consumer->assigned; /* it is in no heartbeat */
    lane->pull_tells = done > 0;
    frame_put(f, BYTES("consumerGroup"), bytes_str(consumer->group));
    frame_put(f, BYTES("topic"), bytes_str(lane->queue.topic));
    frame_put_int(f, BYTES("queueId"), lane->queue.id);
    frame_put_int(f, BYTES("queueOffset"), lane->next);
    frame_put_int(f, BYTES("maxMsgNums"), consumer->options.pull_batch);
    frame_put_int(f, BYTES("sysFlag"),
                  PULL_SUSPEND | (done > 0 ? PULL_COMMIT : 0) |
                      (subscribes ? PULL_SUBSCRIPTION : 0));
    frame_put_int(f, BYTES("commitOffset"), done > 0 ? done : 0);
    frame_put_int(f, BYTES("suspendTimeoutMillis"), PULL_SUSPEND_MS);
    frame_put_int(f, BYTES("subVersion"), sub ? sub->version : 0);
    if (subscribes)
        frame_put(f, BYTES("subscription"), sub ? bytes_str(sub->expression) : BYTES("*"));
    frame_put(f, BYTES("expressionType"), sub && sub->sql ? BYTES("SQL92") : BYTES("TAG"));
    frame_put(f, BYTES("bname"), bytes_str(lane->queue.broker));
}

static void pulled(struct call *call, const struct answer *answer);

static void pull(struct lane *lane)
{
    struct omq_client *client = lane->consumer->client;
    struct topic_route *route;
    struct bytes address = lane_broker(lane, false, &route);
    if (!address.len) {
        if (route)
            counted_drop(&route->counted);
        lane_rest(lane, REST_UNKNOWN_MS);
        return;
    }
    const struct sub *sub = sub_find(lane->consumer, lane->queue.topic);
    lane->state = LANE_PULLING;
    lane->pulled_ns = clock_ns(client->clock);
    lane->pulled_ms = clock_ms(client->clock);
    lane->calling = true;
    lane->call = (struct call){
        .code = REQ_PULL_MESSAGE,
        .put = put_pull,
        .room = strlen(lane->consumer->group) + strlen(lane->queue.topic) +
                strlen(lane->queue.broker) + (sub ? strlen(sub->expression) : 1),
        .done = pulled,
    };
    call_start(client, address, &lane->call, PULL_TIMEOUT_MS);
    counted_drop(&route->counted);
}

/* ---- what came ---- */

void held_add(struct lane *lane, struct held *held)
{
    struct omq_client *client = lane->consumer->client;
    list_add_tail(&lane->held, &held->link);
    lane->n_held++;
    lane->bytes_held += held->size;
    atomic_fetch_add_explicit(&client->stats.received, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&client->stats.waiting, 1, memory_order_relaxed);
}

/* False: it cannot be read, or stands where the answer says that nothing does. Those before it are
 * kept, and it is asked for again: to pass over it would be to lose it. */
static bool record_take(struct lane *lane, struct parcel *parcel, const struct record *record,
                        int64_t end)
{
    if (record->queue_offset < lane->seen)
        return true; /* known: the answer overlaps */
    struct held *held;
    if (record->queue_offset >= end || held_make(parcel, record, &held))
        return false;
    held->damaged = record->body.len > 0 && !record_body_intact(record);
    lane->seen = record->queue_offset + 1;
    const struct sub *sub = sub_find(lane->consumer, lane->queue.topic);
    if (sub && !lane->retry && !sub_wants(sub, held->delivery.tag))
        held_free(held); /* another tag with the same hash */
    else
        held_add(lane, held);
    return true;
}

static bool records_take(struct lane *lane, struct bytes body, int64_t end)
{
    struct parcel *parcel = parcel_make(body, &lane->queue);
    if (!parcel)
        return false;
    struct bytes rest = {parcel->bytes, parcel->len};
    bool good = true;
    while (good && rest.len > 0) {
        struct record record;
        good = record_decode(rest, &record) == OK && record_take(lane, parcel, &record, end);
        if (good)
            rest = bytes_from(rest, record.size);
    }
    counted_drop(&parcel->counted);
    return good;
}

static void found(struct lane *lane, const struct answer *answer, int64_t next)
{
    int64_t before = lane->next;
    bool good = records_take(lane, answer->body, next);
    if (!good)
        client_log(lane->consumer->client, OMQ_ERROR,
                   "a message of %s:%d of topic %s behind offset %lld cannot be read; asking again",
                   lane->queue.broker, lane->queue.id, lane->queue.topic, (long long)lane->seen);
    else if (next > lane->seen)
        lane->seen = next; /* what lies between was not for us */
    lane->next = lane->seen;
    if (!good || lane->next <= before)
        lane_rest(lane, REST_TROUBLE_MS); /* also: an answer without news */
    else
        lane_go(lane);
    work_give(lane);
}

/* Nothing for us up to there. A broker that says so at once, again and again, is given a pause. */
static void not_found(struct lane *lane, int64_t next)
{
    bool news = next > lane->next;
    bool waited = clock_ns(lane->consumer->client->clock) - lane->pulled_ns > WAITED_NS;
    if (news) {
        lane->next = next;
        lane->seen = next > lane->seen ? next : lane->seen;
    }
    if (news || waited)
        lane_go(lane);
    else
        lane_rest(lane, REST_FULL_MS);
}

/* The broker has forgotten us, or does not know us yet. All lanes find that out at once. */
static void know_us(struct omq_consumer *consumer)
{
    uint64_t now = clock_ns(consumer->client->clock);
    if (consumer->beat_ns && now - consumer->beat_ns < BEAT_PAUSE_NS)
        return;
    consumer->beat_ns = now;
    hearts_beat(consumer->client);
}

static void pull_refused(struct lane *lane, const struct answer *answer)
{
    struct omq_client *client = lane->consumer->client;
    int32_t code = answer->head->code;
    if (code == RES_SUBSCRIPTION_NOT_EXIST || code == RES_SUBSCRIPTION_NOT_LATEST) {
        know_us(lane->consumer);
        lane_rest(lane, REST_UNKNOWN_MS);
        return;
    }
    client_log(client, OMQ_WARN, "a pull from %s:%d of topic %s is refused: %.*s (code %d)",
               lane->queue.broker, lane->queue.id, lane->queue.topic,
               BYTES_ARG(answer->head->remark), code);
    lane_rest(lane, REST_TROUBLE_MS);
}

/* Nobody there: the next pull goes to the master, and the route may have changed. */
static void pull_lost(struct lane *lane, const struct answer *answer)
{
    struct sub *sub = sub_find(lane->consumer, lane->queue.topic);
    lane->pull_broker = 0;
    lane_rest(lane, answer->err == ERR_TIMEOUT ? 0 : REST_UNKNOWN_MS);
    if (sub && answer->err == ERR_CLOSED && !lane->consumer->assigned && !lane->consumer->closing)
        route_of_sub(sub);
}

/* By offset. H-35: of a queue that ends before what is done, new messages would count as done. Else
 * an operator has set the group back, which changes nothing of what is done; or forwards, or the
 * broker has nothing before `next` any more. */
static void pull_moved_exactly(struct lane *lane, const struct answer *answer, int64_t next)
{
    struct omq_client *client = lane->consumer->client;
    int64_t end;
    bool early = bytes_to_i64(head_field(answer->head, BYTES("maxOffset")), &end) && end >= 0 &&
                 lane->next > end;
    if (early)
        client_log(
            client, OMQ_ERROR,
            "%s:%d of topic %s ends at offset %lld, but the database says that all before "
            "%lld is done: nothing of this queue runs. If the broker has lost or emptied it, "
            "delete its row among the places and start this consumer again",
            lane->queue.broker, lane->queue.id, lane->queue.topic, (long long)end,
            (long long)lane->next);
    else if (next < lane_offset(lane))
        client_log(client, OMQ_WARN,
                   "%s:%d of topic %s is not set back to offset %lld: the database says that all "
                   "before %lld is done",
                   lane->queue.broker, lane->queue.id, lane->queue.topic, (long long)next,
                   (long long)lane_offset(lane));
    else {
        reset_exactly(lane, next);
        return;
    }
    lane_rest(lane, early ? REST_TROUBLE_MS : REST_FULL_MS);
}

static void pull_moved(struct lane *lane, const struct answer *answer, int64_t next)
{
    if (exact_by_offset(lane->consumer->exact)) {
        pull_moved_exactly(lane, answer, next);
        return;
    }
    client_log(lane->consumer->client, OMQ_WARN,
               "%s:%d of topic %s goes on at offset %lld instead of %lld", lane->queue.broker,
               lane->queue.id, lane->queue.topic, (long long)next, (long long)lane->next);
    lane_move(lane, next);
    lane_go(lane);
}

static void pulled(struct call *call, const struct answer *answer)
{
    struct lane *lane = list_entry(call, struct lane, call);
    lane->calling = false;
    if (lane->state == LANE_DROPPED) {
        lane_let_go(lane);
        return;
    }
    if (answer->err) {
        pull_lost(lane, answer);
        return;
    }
    int64_t next, broker;
    if (!bytes_to_i64(head_field(answer->head, BYTES("nextBeginOffset")), &next) || next < 0)
        next = lane->next;
    if (bytes_to_i64(head_field(answer->head, BYTES("suggestWhichBrokerId")), &broker))
        lane->pull_broker = broker;
    switch (answer->head->code) {
    case RES_SUCCESS:
        found(lane, answer, next);
        break;
    case RES_PULL_NOT_FOUND:
    case RES_PULL_RETRY_IMMEDIATELY:
        not_found(lane, next);
        break;
    case RES_PULL_OFFSET_MOVED:
        pull_moved(lane, answer, next);
        break;
    default:
        pull_refused(lane, answer);
        break;
    }
}
