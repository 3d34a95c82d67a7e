/* consumer.c - opening and closing of consumers.
 *
 * A closed consumer becomes a *husk*, as a producer does: its memory stays the client's, and is the
 * next consumer's or reader's. A call that comes too late finds one that says it is closed; and a
 * program that opens and closes consumers all day needs no more than it has open at a time. */
#include "client/consumer_int.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define COMMIT_EVERY_MS 5000
#define EXPIRY_EVERY_MS 1000
#define START_BEFORE_MS (30 * 60 * 1000)
#define THREADS_MAX     1000 /* Java's limits */
#define BATCH_MAX       1024
#define CLOSE_AGAIN_MS  10

/* ---- options ---- */

static void defaults(struct omq_consumer_options *o)
{
    o->threads = o->threads > 0 ? o->threads : 20;
    o->batch = o->batch > 0 ? o->batch : 1;
    o->max_attempts = o->max_attempts > 0 ? o->max_attempts : o->ordered ? INT32_MAX : 16;
    o->timeout_ms = o->timeout_ms > 0 ? o->timeout_ms : 15 * 60 * 1000;
    o->suspend_ms = o->suspend_ms > 0 ? o->suspend_ms : 1000;
    o->lock_ms = o->lock_ms > 0 ? o->lock_ms : 30000;
    o->pull_batch = o->pull_batch > 0 ? o->pull_batch : 32;
    o->max_messages = o->max_messages > 0 ? o->max_messages : 1000;
    o->max_mib = o->max_mib > 0 ? o->max_mib : 100;
    o->max_span = o->max_span > 0 ? o->max_span : 2000;
    o->close_ms = o->close_ms > 0 ? o->close_ms : 30000;
    o->invisible_ms = o->invisible_ms > 0 ? o->invisible_ms : 60000;
    o->hash_nodes = o->hash_nodes > 0 ? o->hash_nodes : 10;
}

static int options_check(const struct omq_consumer_options *o, struct omq_error *why)
{
    struct fault fault = {0};
    if (!o->group || group_name_check(bytes_str(o->group), &fault))
        return omq_fail(why, OMQ_INVALID, "%s", o->group ? fault.text : "a consumer needs a group");
    if (o->n_subscriptions == 0 || !o->subscriptions)
        return omq_fail(why, OMQ_INVALID, "consumer %s subscribes to nothing", o->group);
    if (o->start < OMQ_FROM_LAST || o->start > OMQ_FROM_TIME || o->spread < OMQ_CLUSTER ||
        o->spread > OMQ_BROADCAST || o->share < OMQ_AVERAGELY || o->share > OMQ_BY_HASH)
        return omq_fail(why, OMQ_INVALID, "start, spread or share is not one of its values");
    if (o->threads > THREADS_MAX || o->batch > BATCH_MAX || o->pull_batch > BATCH_MAX)
        return omq_fail(why, OMQ_INVALID, "more than %d threads, or batches over %d", THREADS_MAX,
                        BATCH_MAX);
    if ((o->share == OMQ_BY_CONFIG && !o->config_queues) ||
        (o->share == OMQ_BY_ROOM && !o->rooms) || (o->share == OMQ_BY_ROOM_NEARBY && !o->room_of))
        return omq_fail(why, OMQ_INVALID, "the way to share lacks config_queues, rooms or room_of");
    if (o->pop && (o->ordered || o->spread == OMQ_BROADCAST || o->acknowledge == OMQ_BEFORE))
        return omq_fail(why, OMQ_INVALID,
                        "pop goes with neither ordered, OMQ_BROADCAST nor OMQ_BEFORE");
    if (o->pop && o->invisible_ms && (o->invisible_ms < 5000 || o->invisible_ms > 300000))
        return omq_fail(why, OMQ_INVALID, "invisible_ms is 5,000 to 300,000, not %d",
                        o->invisible_ms);
    if (o->acknowledge == OMQ_BEFORE && (o->ordered || o->spread == OMQ_BROADCAST))
        return omq_fail(why, OMQ_INVALID,
                        "acknowledge = OMQ_BEFORE goes with neither ordered nor OMQ_BROADCAST");
    if (o->once && (o->spread == OMQ_BROADCAST || o->acknowledge == OMQ_BEFORE))
        return omq_fail(why, OMQ_INVALID, "once goes with neither OMQ_BROADCAST nor OMQ_BEFORE");
    for (size_t i = 0; i < o->n_subscriptions; i++)
        if (subscription_check(&o->subscriptions[i], why))
            return OMQ_INVALID;
    return OMQ_OK;
}

/* ---- husks ---- */

static void consumer_empty(struct omq_consumer *consumer)
{
    struct link *k;
    while ((k = list_pop(&consumer->subs)))
        sub_free(list_entry(k, struct sub, link));
    free(take(&consumer->group));
    free(take(&consumer->retry_topic));
    free(take(&consumer->rooms));
    free(take(&consumer->expression));
    free(take(&consumer->config_queues));
    local_close(take(&consumer->local));
    exact_leave(take(&consumer->exact));
}

void consumers_free(struct omq_client *client)
{
    struct link *k;
    while ((k = list_pop(&client->gone))) {
        struct omq_consumer *consumer = list_entry(k, struct omq_consumer, link);
        room_clear(&consumer->room);
        free(consumer);
    }
}

struct husk_want {
    struct omq_client *client;
    struct omq_consumer *found;
};

static void husk_take(void *user)
{
    struct husk_want *want = user;
    struct link *k = list_pop(&want->client->gone);
    want->found = k ? list_entry(k, struct omq_consumer, link) : NULL;
}

static void husk_give(void *user)
{
    struct omq_consumer *consumer = user;
    list_add_tail(&consumer->client->gone, &consumer->link);
}

struct omq_consumer *consumer_new(struct omq_client *client)
{
    struct husk_want want = {.client = client};
    client_on_loop(client, husk_take, &want);
    struct omq_consumer *consumer = want.found;
    if (consumer) {
        size_t kept = offsetof(struct omq_consumer, options);
        memset((char *)consumer + kept, 0, sizeof *consumer - kept);
    } else if ((consumer = calloc(1, sizeof *consumer))) {
        consumer->client = client;
        consumer->over = consumer->shut = true;
        room_init(&consumer->room, "consumer", ROOM_CORE);
        list_init(&consumer->ready);
    }
    if (consumer) {
        list_init(&consumer->subs);
        list_init(&consumer->lanes);
        list_init(&consumer->batches);
    }
    return consumer;
}

/* ---- opening ---- */

/* One allocation: the queues, then their texts. */
static enum err config_copy(struct omq_consumer *consumer)
{
    struct omq_consumer_options *o = &consumer->options;
    if (o->share != OMQ_BY_CONFIG || o->n_config_queues == 0)
        return OK;
    size_t size = o->n_config_queues * sizeof *o->config_queues;
    for (size_t i = 0; i < o->n_config_queues; i++)
        size += strlen(o->config_queues[i].topic) + strlen(o->config_queues[i].broker) + 2;
    struct omq_queue *copy = malloc(size);
    if (!copy)
        return ERR_NO_MEMORY;
    char *at = (char *)(copy + o->n_config_queues);
    for (size_t i = 0; i < o->n_config_queues; i++) {
        const struct omq_queue *from = &o->config_queues[i];
        copy[i] = (struct omq_queue){.topic = at, .id = from->id};
        at = stpcpy(at, from->topic) + 1;
        copy[i].broker = at;
        at = stpcpy(at, from->broker) + 1;
    }
    o->config_queues = consumer->config_queues = copy;
    return OK;
}

static enum err subs_make(struct omq_consumer *consumer)
{
    const struct omq_consumer_options *o = &consumer->options;
    bool retries = o->spread == OMQ_CLUSTER && !consumer->reads && !o->pop; /* else none come */
    for (size_t i = 0; i < o->n_subscriptions + retries; i++) {
        struct sub *sub;
        const struct omq_subscription *s = &o->subscriptions[i];
        enum err err = i < o->n_subscriptions
                           ? sub_make(consumer, s->topic, s->expression, s->sql, &sub)
                           : sub_make(consumer, consumer->retry_topic, NULL, false, &sub);
        if (err)
            return err;
        list_add_tail(&consumer->subs, &sub->link);
    }
    return OK;
}

static enum err consumer_fill(struct omq_consumer *consumer)
{
    struct omq_consumer_options *o = &consumer->options;
    consumer->group = strdup(o->group);
    consumer->rooms = o->rooms ? strdup(o->rooms) : NULL;
    consumer->expression = consumer->wanted ? strdup(consumer->wanted) : NULL;
    if (!consumer->group || (o->rooms && !consumer->rooms) ||
        (consumer->wanted && !consumer->expression))
        return ERR_NO_MEMORY;
    if (asprintf(&consumer->retry_topic, "%%RETRY%%%s", o->group) < 0) {
        consumer->retry_topic = NULL;
        return ERR_NO_MEMORY;
    }
    enum err err = config_copy(consumer);
    if (!err)
        err = subs_make(consumer);
    o->group = consumer->group;
    o->rooms = consumer->rooms;
    o->subscriptions = NULL; /* the application's; ours are in `subs` */
    return err;
}

static void rebalance_turn(void *user)
{
    rebalance(user);
}

static void commit_turn(void *user)
{
    struct omq_consumer *consumer = user;
    if (consumer->closing) {
        consumer->pausing = false;
        consumer_calm(consumer);
        return;
    }
    if (consumer->commit_every_ms > 0)
        offsets_tell(consumer);
    list_each(k, &consumer->lanes)
        work_give(list_entry(k, struct lane, link)); /* what could not be given back */
}

static void lock_turn(void *user)
{
    locks_renew(user);
}

static void expiry_turn(void *user)
{
    work_expire(user);
}

struct joining {
    struct omq_consumer *consumer;
    enum err err;
};

static void timers_close(struct omq_consumer *consumer)
{
    struct timer *timers[] = {consumer->rebalance_timer, consumer->commit_timer,
                              consumer->lock_timer, consumer->expiry_timer, consumer->close_timer};
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++)
        if (timers[i])
            timer_close(timers[i]);
}

static void close_turn(void *user);

static enum err timers_open(struct omq_consumer *consumer)
{
    const struct {
        void (*fired)(void *user);
        struct timer **timer;
    } all[] = {{rebalance_turn, &consumer->rebalance_timer},
               {commit_turn, &consumer->commit_timer},
               {lock_turn, &consumer->lock_timer},
               {expiry_turn, &consumer->expiry_timer},
               {close_turn, &consumer->close_timer}};
    enum err err = OK;
    for (size_t i = 0; !err && i < sizeof all / sizeof all[0]; i++)
        err = timer_open(consumer->client->loop, all[i].fired, consumer, all[i].timer);
    return err;
}

static void join(void *user)
{
    struct joining *joining = user;
    struct omq_consumer *consumer = joining->consumer;
    joining->err = timers_open(consumer);
    if (joining->err) {
        timers_close(consumer);
        return;
    }
    uint64_t every =
        consumer->commit_every_ms > 0 ? (uint64_t)consumer->commit_every_ms : COMMIT_EVERY_MS;
    timer_start(consumer->commit_timer, every, every);
    timer_start(consumer->expiry_timer, EXPIRY_EVERY_MS, EXPIRY_EVERY_MS);
    list_add_tail(&consumer->client->consumers, &consumer->link);
    room_enter(&consumer->room);
    consumer->shut = false;
    room_leave(&consumer->room);
    consumer->over = false;
    hearts_beat(consumer->client);
    rebalance(consumer);
}

enum err consumer_begin(struct omq_consumer *consumer, struct omq_error *why)
{
    struct omq_client *client = consumer->client;
    defaults(&consumer->options);
    consumer->start_ms = clock_ms(client->clock);
    if (consumer->options.start_ms <= 0)
        consumer->options.start_ms = consumer->start_ms - START_BEFORE_MS;
    struct joining joining = {.consumer = consumer, .err = consumer_fill(consumer)};
    if (!joining.err && consumer->options.spread == OMQ_BROADCAST)
        joining.err = local_open(consumer, why);
    if (!joining.err && consumer->options.trace && consumer_trace_open(consumer, why))
        joining.err = ERR_INVALID;
    if (!joining.err && consumer->options.once && exact_open(consumer, consumer->options.once, why))
        joining.err = ERR_INVALID;
    if (!joining.err && consumer->options.handle)
        joining.err =
            hands_open(client, (unsigned)consumer->options.threads, false, &consumer->hands);
    if (!joining.err)
        client_on_loop(client, join, &joining);
    if (joining.err) {
        hands_close(consumer->hands);
        omq_producer_close(consumer->traces);
        consumer_empty(consumer);
        client_on_loop(client, husk_give, consumer);
    }
    return joining.err;
}

int omq_consumer_open(struct omq_client *client, const struct omq_consumer_options *options,
                      struct omq_consumer **out, struct omq_error *why)
{
    if (!client || !options || !out)
        return omq_fail(why, OMQ_INVALID, "a consumer needs a client, options and a place");
    int code = options_check(options, why);
    if (code)
        return code;
    if (client_on_own_thread(client))
        return omq_fail(why, OMQ_MISUSE, "a consumer cannot be opened from a callback");
    code = subscriptions_ask(client, options, why);
    if (code)
        return code;
    struct omq_consumer *consumer = consumer_new(client);
    if (!consumer)
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for a consumer");
    consumer->options = *options;
    consumer->commit_every_ms = COMMIT_EVERY_MS;
    if (why)
        *why = (struct omq_error){0};
    enum err err = consumer_begin(consumer, why);
    if (err && why && why->code)
        return why->code;
    if (err)
        return omq_fail(why, omq_code_of(err), "consumer %s cannot be opened: %s", options->group,
                        err_text(err));
    *out = consumer;
    return OMQ_OK;
}

/* ---- closing ---- */

struct leave {
    struct omq_consumer *consumer;
    struct waiter waiter;
};

static bool is_idle(const struct omq_consumer *consumer)
{
    bool waits = false;
    list_each(k, &consumer->subs)
        waits = waits || list_entry(k, struct sub, link)->wanting;
    list_each(k, &consumer->lanes)
        waits = waits || list_entry(k, struct lane, link)->telling;
    return consumer->running == 0 && consumer->rounds == 0 && !waits;
}

/* First everything that runs comes back, then the brokers are told how far it came. */
void consumer_calm(struct omq_consumer *consumer)
{
    if (!consumer->leaving || !is_idle(consumer) || consumer->pausing)
        return;
    if (!consumer->settled && !consumer->rested) {
        uint64_t ms = offsets_rest_ms(consumer);
        consumer->rested = true;
        consumer->pausing = ms > 0;
        if (ms > 0) {
            timer_start(consumer->commit_timer, ms, 0);
            return;
        }
    }
    while (!consumer->settled) {
        consumer->settled = consumer->settling;
        consumer->settling = true;
        consumer->running++;
        offsets_settle(consumer, !consumer->settled);
        consumer->running--;
        if (consumer->running > 0)
            return;
    }
    waiter_tell(take(&consumer->leaving));
}

static void close_turn(void *user)
{
    struct omq_consumer *consumer = user;
    if (!work_abandon(consumer)) {
        timer_start(consumer->close_timer, CLOSE_AGAIN_MS, 0);
        return;
    }
    if (consumer->stuck > 0)
        client_log(consumer->client, OMQ_ERROR,
                   "%u handlers of %s did not return within %d ms; their messages come again",
                   consumer->stuck, consumer->group, consumer->options.close_ms);
    consumer_calm(consumer);
}

static void leave_begin(void *user)
{
    struct leave *leave = user;
    struct omq_consumer *consumer = leave->consumer;
    consumer->closing = true;
    room_enter(&consumer->room);
    consumer->shut = true;
    room_tell(&consumer->room);
    room_leave(&consumer->room);
    timer_stop(consumer->rebalance_timer);
    timer_stop(consumer->commit_timer);
    timer_stop(consumer->expiry_timer); /* locks are kept until the brokers were told */
    timer_start(consumer->close_timer, (uint64_t)consumer->options.close_ms, 0);
    work_recall(consumer, NULL);
    desk_halt(exact_desk(consumer->exact), true);
    exact_recall(consumer);
    consumer->leaving = &leave->waiter;
    consumer_calm(consumer);
}

static void part(void *user)
{
    struct omq_consumer *consumer = user;
    timers_close(consumer);
    list_each(k, &consumer->lanes)
        lane_drop(list_entry(k, struct lane, link));
    list_remove(&consumer->link);
    if (!consumer->assigned) /* else nobody has heard of it */
        heart_leave(consumer->client, (struct bytes){0}, bytes_str(consumer->group));
}

void consumer_end(struct omq_consumer *consumer)
{
    struct omq_client *client = consumer->client;
    struct leave leave = {.consumer = consumer};
    waiter_init(&leave.waiter);
    client_on_loop(client, leave_begin, &leave);
    desk_empty(exact_desk(consumer->exact));
    waiter_wait(&leave.waiter);
    room_enter(&consumer->room); /* those that wait for messages have heard it */
    while (consumer->inside > 0)
        room_wait(&consumer->room, -1);
    room_leave(&consumer->room);
    hands_leave(take(&consumer->hands), consumer->stuck);
    if (consumer->stuck == 0)
        desk_close(exact_desk(consumer->exact));
    client_on_loop(client, part, consumer);
    omq_producer_close(consumer->traces);
    consumer_empty(consumer);
    client_on_loop(client, husk_give, consumer);
}

void omq_consumer_close(struct omq_consumer *consumer)
{
    if (!consumer)
        return;
    struct omq_client *client = consumer->client;
    if (client_on_own_thread(client))
        client_log(client, OMQ_ERROR, "a consumer cannot be closed from a callback: it stays open");
    else if (!atomic_exchange(&consumer->over, true))
        consumer_end(consumer);
}

/* ---- pausing ---- */

static void halt(struct omq_consumer *consumer, bool halted)
{
    consumer->paused = halted;
    room_enter(&consumer->room);
    consumer->halted = halted;
    room_tell(&consumer->room);
    room_leave(&consumer->room);
}

static void pause_here(void *user)
{
    struct omq_consumer *consumer = user;
    halt(consumer, true);
    desk_halt(exact_desk(consumer->exact), true);
    work_recall(consumer, NULL);
}

static void resume_here(void *user)
{
    struct omq_consumer *consumer = user;
    halt(consumer, false);
    desk_halt(exact_desk(consumer->exact), consumer->closing);
    list_each(k, &consumer->lanes) {
        struct lane *lane = list_entry(k, struct lane, link);
        work_give(lane);
        lane_go(lane);
    }
}

static void change_pace(struct omq_consumer *consumer, void (*how)(void *user))
{
    if (!consumer || !consumer_entered(consumer))
        return;
    client_on_loop(consumer->client, how, consumer);
    consumer_left(consumer);
}

void omq_consumer_pause(struct omq_consumer *consumer)
{
    change_pace(consumer, pause_here);
}

void omq_consumer_resume(struct omq_consumer *consumer)
{
    change_pace(consumer, resume_here);
}
