/* rebalance.c - which queues are ours.
 *
 * Every member of a group asks a broker who else is in it and computes its own part (share.c); all
 * come to the same result without a word between them, a little apart in time. For that moment a
 * queue may have two readers or none: that is where some duplicates come from, and why a dropped
 * lane tells its offset first. */
#include "client/consumer_int.h"

#include <stdlib.h>

#define EVERY_MS     20000
#define SOON_MS      1000 /* when the last round was not complete */
#define JOIN_MS      200  /* for the member that had the queue to tell how far it came */
#define LOCK_SOON_MS 500  /* while a queue is still somebody else's */
#define LOCK_ARENA   (1u << 20)
#define MEMBER_ARENA (4u << 20)

/* One round for one topic. */
struct round {
    struct call call;
    struct omq_consumer *consumer;
    struct topic_route *route; /* a count */
    size_t topic_len;
    char topic[];
};

static void rounds_over(struct omq_consumer *consumer);

/* ---- applying a share ---- */

static void apply(struct omq_consumer *consumer, const char *topic, const struct omq_queue *queues,
                  const size_t *mine, size_t n, bool alone)
{
    bool added = false;
    list_each(k, &consumer->lanes) {
        struct lane *lane = list_entry(k, struct lane, link);
        lane->wanted = strcmp(lane->queue.topic, topic) != 0;
    }
    for (size_t i = 0; i < n; i++) {
        struct lane *lane = lane_find(consumer, &queues[mine[i]]);
        if (lane) {
            lane->wanted = true;
            lane_stay(lane);
        } else if (lane_open(consumer, &queues[mine[i]], alone ? 0 : JOIN_MS)) {
            consumer->rebalance_again = true;
        } else {
            added = true;
        }
    }
    list_each(k, &consumer->lanes) {
        struct lane *lane = list_entry(k, struct lane, link);
        if (!lane->wanted)
            lane_leave(lane);
    }
    if (added && consumer_locks(consumer))
        locks_renew(consumer);
}

static int by_name(const void *a, const void *b)
{
    return name_compare(*(const char *const *)a, *(const char *const *)b);
}

static int by_queue(const void *a, const void *b)
{
    return queue_compare(a, b);
}

/* ---- the members ---- */

static enum err share(struct round *round, const char **members, size_t n_members)
{
    const struct omq_consumer *consumer = round->consumer;
    const struct omq_consumer_options *o = &consumer->options;
    struct topic_route *route = round->route;
    size_t *mine = calloc(route->n_read + 1, sizeof *mine), n_mine = 0;
    if (!mine)
        return ERR_NO_MEMORY;
    struct omq_queue *queues = calloc(route->n_read + 1, sizeof *queues);
    if (!queues) {
        free(mine);
        return ERR_NO_MEMORY;
    }
    memcpy(queues, route->read_names, route->n_read * sizeof *queues);
    qsort(queues, route->n_read, sizeof *queues, by_queue);
    if (n_members > 0)
        qsort(members, n_members, sizeof *members, by_name);
    const struct share_rule rule = {
        .kind = (enum omq_share)o->share,
        .config = o->config_queues,
        .n_config = o->n_config_queues,
        .rooms = o->rooms,
        .room_of = o->room_of,
        .user = o->user,
        .nearby = (enum omq_share)o->nearby_share,
        .hash_nodes = o->hash_nodes,
    };
    const struct share_table table = {
        .queues = queues,
        .n_queues = route->n_read,
        .clients = members,
        .n_clients = n_members,
        .me = consumer->client->id,
    };
    enum err err = OK;
    if (o->spread == OMQ_BROADCAST) {
        for (; n_mine < route->n_read; n_mine++)
            mine[n_mine] = n_mine;
    } else {
        err = share_mine(&rule, &table, mine, &n_mine);
    }
    if (!err)
        apply(round->consumer, round->topic, queues, mine, n_mine, n_members < 2);
    free(queues);
    free(mine);
    return err;
}

/* With pop every member has all brokers. */
static enum err share_brokers(struct round *round)
{
    const struct topic_route *route = round->route;
    struct omq_queue *queues = calloc(route->n_read + 1, sizeof *queues);
    size_t *mine = calloc(route->n_read + 1, sizeof *mine), n = 0;
    for (size_t i = 0; queues && mine && i < route->n_read; i++) {
        if (i > 0 && route->read[i].broker == route->read[i - 1].broker)
            continue;
        queues[n] = route->read_names[i];
        queues[n].id = -1;
        mine[n] = n;
        n++;
    }
    enum err err = queues && mine ? OK : ERR_NO_MEMORY;
    if (!err)
        apply(round->consumer, round->topic, queues, mine, n, true);
    free(queues);
    free(mine);
    return err;
}

static bool is_member(const char *const *members, size_t n, const char *id)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(members[i], id) == 0)
            return true;
    return false;
}

static enum err share_among(struct round *round, struct bytes body)
{
    struct arena arena;
    arena_init(&arena, MEMBER_ARENA);
    struct bytes *ids;
    size_t n;
    enum err err = consumer_list_read(body, &arena, &ids, &n);
    const char **members = err ? NULL : arena_alloc(&arena, (n + 1) * sizeof *members);
    if (!err && !members)
        err = ERR_TOO_BIG;
    for (size_t i = 0; !err && i < n; i++) {
        char *text = arena_alloc(&arena, ids[i].len + 1);
        if (!text)
            err = ERR_TOO_BIG;
        else
            members[i] = memcpy(text, ids[i].at, ids[i].len);
    }
    if (!err)
        err = share(round, members, n);
    if (!err && !is_member(members, n, round->consumer->client->id)) {
        hearts_beat(
            round->consumer->client); /* that broker has not heard of us, or has forgotten */
        round->consumer->rebalance_again = true;
    }
    arena_clear(&arena);
    return err;
}

static void round_end(struct round *round, bool complete)
{
    struct omq_consumer *consumer = round->consumer;
    if (!complete)
        consumer->rebalance_again = true;
    counted_drop(&round->route->counted);
    free(round);
    if (--consumer->rounds == 0)
        rounds_over(consumer);
}

static void put_group(const struct call *call, struct frame_out *f)
{
    const struct round *round = list_entry(call, struct round, call);
    frame_put(f, BYTES("consumerGroup"), bytes_str(round->consumer->group));
}

static void members_known(struct call *call, const struct answer *answer)
{
    struct round *round = list_entry(call, struct round, call);
    struct omq_consumer *consumer = round->consumer;
    bool complete = consumer->closing;
    if (!complete && !answer->err && answer->head->code == RES_SUCCESS) {
        enum err err = share_among(round, answer->body);
        complete = err == OK;
        if (err)
            client_log(consumer->client, OMQ_WARN, "the queues of topic %s cannot be shared: %s",
                       round->topic, err_text(err));
    }
    round_end(round, complete);
}

/* ---- a round ---- */

static void round_start(struct omq_consumer *consumer, const char *topic, struct topic_route *route)
{
    struct omq_client *client = consumer->client;
    size_t len = strlen(topic);
    struct round *round = calloc(1, sizeof *round + len + 1);
    if (!round) {
        counted_drop(&route->counted);
        consumer->rebalance_again = true;
        return;
    }
    memcpy(round->topic, topic, len);
    round->topic_len = len;
    round->consumer = consumer;
    round->route = route;
    consumer->rounds++;
    if (consumer->options.pop) {
        round_end(round, share_brokers(round) == OK);
        return;
    }
    if (consumer->options.spread == OMQ_BROADCAST) {
        round_end(round, share(round, NULL, 0) == OK);
        return;
    }
    const struct topic_broker *broker =
        &route->brokers[dice_below(&client->dice, route->n_brokers)];
    struct bytes address = broker->master.len     ? broker->master
                           : broker->n_others > 0 ? broker->others[0]
                                                  : (struct bytes){0};
    round->call = (struct call){
        .code = REQ_GET_CONSUMER_LIST_BY_GROUP,
        .put = put_group,
        .room = strlen(consumer->group),
        .done = members_known,
    };
    call_start(client, address, &round->call, (uint64_t)client->options.timeout_ms);
}

static void route_known(struct route_want *want, struct topic_route *route,
                        const struct answer *answer)
{
    struct sub *sub = list_entry(want, struct sub, want);
    struct omq_consumer *consumer = sub->consumer;
    (void)answer;
    sub->wanting = false;
    if (route)
        counted_drop(&route->counted);
    if (sub->gone) {
        sub_free(sub);
        return;
    }
    consumer_calm(consumer);
    if (consumer->assigned && !consumer->closing) {
        list_each(k, &consumer->lanes)
            lane_go(list_entry(k, struct lane, link));
    } else if (route && !consumer->closing) {
        hearts_beat(consumer->client); /* it may have brokers that have not heard of us */
        rebalance(consumer);
    }
}

void route_of_sub(struct sub *sub)
{
    struct omq_client *client = sub->consumer->client;
    if (sub->wanting)
        return;
    sub->wanting = true;
    sub->want.ready = route_known;
    route_get(client, bytes_str(sub->topic), true, &sub->want,
              (uint64_t)client->options.timeout_ms);
}

void rebalance(struct omq_consumer *consumer)
{
    struct omq_client *client = consumer->client;
    loop_here(client->loop);
    if (consumer->closing || consumer->assigned)
        return;
    if (consumer->rounds > 0) {
        consumer->rebalance_again = true;
        return;
    }
    consumer->rebalance_again = false;
    consumer->rounds++; /* ours, so that the last answer does not come before the last question */
    list_each(k, &consumer->subs) {
        struct sub *sub = list_entry(k, struct sub, link);
        struct topic_route *route = route_cached(client, bytes_str(sub->topic));
        if (route && route->n_read > 0) {
            round_start(consumer, sub->topic, route);
            continue;
        }
        if (route)
            counted_drop(&route->counted);
        consumer->rebalance_again = true;
        route_of_sub(sub);
    }
    if (--consumer->rounds == 0)
        rounds_over(consumer);
}

static void rounds_over(struct omq_consumer *consumer)
{
    if (!consumer->closing)
        timer_start(consumer->rebalance_timer, consumer->rebalance_again ? SOON_MS : EVERY_MS, 0);
    else
        consumer_calm(consumer);
}

void consumers_changed(struct omq_client *client, struct bytes group)
{
    list_each(k, &client->consumers) {
        struct omq_consumer *consumer = list_entry(k, struct omq_consumer, link);
        if (!bytes_equal(bytes_str(consumer->group), group))
            continue;
        offsets_tell(consumer); /* whoever gets a queue of ours now begins there */
        rebalance(consumer);
    }
}

/* ---- locks ---- */

struct locking {
    struct call call;
    struct omq_consumer *consumer;
    char *broker; /* behind the body */
    size_t body_len;
    uint8_t body[];
};

static void locked(struct omq_consumer *consumer, const char *broker, struct bytes body)
{
    struct arena arena;
    arena_init(&arena, LOCK_ARENA);
    struct queue_name *queues = NULL;
    size_t n = 0;
    if (locked_read(body, &arena, &queues, &n))
        n = 0;
    uint64_t now = clock_ns(consumer->client->clock);
    list_each(k, &consumer->lanes) {
        struct lane *lane = list_entry(k, struct lane, link);
        if (strcmp(lane->queue.broker, broker) != 0)
            continue;
        bool before = lane_locked(lane);
        lane->locked = false;
        for (size_t i = 0; i < n && !lane->locked; i++)
            lane->locked = queues[i].queue_id == lane->queue.id &&
                           bytes_equal(queues[i].topic, bytes_str(lane->queue.topic)) &&
                           bytes_equal(queues[i].broker, bytes_str(broker));
        if (!lane->locked) {
            timer_start(consumer->lock_timer, LOCK_SOON_MS, 0);
            continue;
        }
        lane->locked_ns = now;
        lane->locked_ms = clock_ms(consumer->client->clock);
        if (!before)
            lane_ask_again(lane);
        lane_go(lane);
        work_give(lane);
    }
    arena_clear(&arena);
}

static void locks_answered(struct call *call, const struct answer *answer)
{
    struct locking *locking = list_entry(call, struct locking, call);
    struct omq_consumer *consumer = locking->consumer;
    if (!answer->err && answer->head->code == RES_SUCCESS && !consumer->settled)
        locked(consumer, locking->broker, answer->body);
    else if (!consumer->settled)
        timer_start(consumer->lock_timer, LOCK_SOON_MS, 0);
    free(locking);
    consumer->running--;
    consumer_calm(consumer);
}

static enum err lock_body(struct omq_consumer *consumer, const char *broker,
                          const struct lane *only, struct buf *out)
{
    size_t n = 0;
    list_each(k, &consumer->lanes)
        n++;
    struct queue_name *queues = calloc(n + 1, sizeof *queues);
    if (!queues)
        return ERR_NO_MEMORY;
    struct lock_batch batch = {
        .group = bytes_str(consumer->group),
        .client_id = bytes_str(consumer->client->id),
        .queues = queues,
    };
    list_each(k, &consumer->lanes) {
        const struct lane *lane = list_entry(k, struct lane, link);
        if (strcmp(lane->queue.broker, broker) == 0 && (!only || only == lane))
            queues[batch.n_queues++] = (struct queue_name){
                bytes_str(lane->queue.topic), bytes_str(lane->queue.broker), lane->queue.id};
    }
    lock_batch_write(out, &batch);
    free(queues);
    return out->err;
}

static void lock_ask(struct omq_consumer *consumer, struct lane *of_broker)
{
    struct omq_client *client = consumer->client;
    const char *broker = of_broker->queue.broker;
    struct topic_route *route;
    struct bytes address = lane_broker(of_broker, true, &route);
    struct buf body = buf_upto(LOCK_ARENA);
    struct locking *locking = NULL;
    if (address.len && lock_body(consumer, broker, NULL, &body) == OK)
        locking = calloc(1, sizeof *locking + body.len + strlen(broker) + 1);
    if (locking) {
        memcpy(locking->body, body.at, body.len);
        locking->broker = (char *)locking->body + body.len;
        memcpy(locking->broker, broker, strlen(broker));
        locking->consumer = consumer;
        locking->call = (struct call){
            .code = REQ_LOCK_BATCH_MQ,
            .body = bytes_of(locking->body, body.len),
            .done = locks_answered,
        };
        consumer->running++;
        call_start(client, address, &locking->call, (uint64_t)client->options.timeout_ms);
    }
    buf_clear(&body);
    if (route)
        counted_drop(&route->counted);
}

void locks_renew(struct omq_consumer *consumer)
{
    if (!consumer_locks(consumer) || consumer->settled)
        return;
    timer_start(consumer->lock_timer, (uint64_t)consumer->options.lock_ms * 2 / 3, 0);
    list_each(k, &consumer->lanes) {
        struct lane *lane = list_entry(k, struct lane, link);
        bool first = true; /* of its broker */
        for (struct link *b = consumer->lanes.head.next; first && b != k; b = b->next)
            first = strcmp(list_entry(b, struct lane, link)->queue.broker, lane->queue.broker) != 0;
        if (first)
            lock_ask(consumer, lane);
    }
}

void unlock(struct lane *lane)
{
    struct omq_consumer *consumer = lane->consumer;
    struct topic_route *route;
    struct bytes address = lane_broker(lane, true, &route);
    struct buf body = buf_upto(LOCK_ARENA);
    if (address.len && lock_body(consumer, lane->queue.broker, lane, &body) == OK) {
        struct call call = {.code = REQ_UNLOCK_BATCH_MQ, .body = buf_bytes(&body)};
        (void)say(consumer->client, address, &call);
    }
    lane->locked = false;
    buf_clear(&body);
    if (route)
        counted_drop(&route->counted);
}

void lanes_lose(struct omq_consumer *consumer, const char *topic)
{
    list_each(k, &consumer->lanes) {
        struct lane *lane = list_entry(k, struct lane, link);
        if (strcmp(lane->queue.topic, topic) == 0)
            lane_leave(lane);
    }
}
