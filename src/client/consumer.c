/* consumer.c - opening and closing of consumers; what they subscribe to. */
#include "client/consumer_int.h"

#include <stdio.h>
#include <stdlib.h>

#define COMMIT_EVERY_MS 5000
#define LOCK_EVERY_MS   20000
#define EXPIRY_EVERY_MS 1000

/* ---- subscriptions ---- */

/* "a || b": the tags as slices of a copy. */
static enum err tags_split(struct sub *sub)
{
    size_t bars = 1;
    for (const char *at = sub->expression; *at; at++)
        bars += *at == '|';
    sub->tag_text = strdup(sub->expression);
    sub->tags = calloc(bars, sizeof *sub->tags);
    if (!sub->tag_text || !sub->tags)
        return ERR_NO_MEMORY;
    char *rest = sub->tag_text, *tag;
    while ((tag = strsep(&rest, "|"))) {
        tag += strspn(tag, " ");
        size_t len = strlen(tag);
        while (len > 0 && tag[len - 1] == ' ')
            len--;
        if (len > 0)
            sub->tags[sub->n_tags++] = bytes_of(tag, len);
    }
    return OK;
}

void sub_free(struct sub *sub)
{
    if (!sub)
        return;
    free(sub->topic);
    free(sub->expression);
    free(sub->tag_text);
    free(sub->tags);
    free(sub);
}

enum err sub_make(struct omq_consumer *consumer, const char *topic, const char *expression,
                  bool sql, struct sub **out)
{
    struct sub *sub = calloc(1, sizeof *sub);
    if (!sub)
        return ERR_NO_MEMORY;
    sub->consumer = consumer;
    sub->topic = strdup(topic);
    sub->expression = strdup(expression && expression[0] ? expression : "*");
    sub->sql = sql;
    sub->version = clock_ms(consumer->client->clock);
    enum err err = sub->topic && sub->expression ? OK : ERR_NO_MEMORY;
    if (!err && !sql && strcmp(sub->expression, "*") != 0)
        err = tags_split(sub);
    if (err)
        sub_free(sub);
    else
        *out = sub;
    return err;
}

struct sub *sub_find(struct omq_consumer *consumer, const char *topic)
{
    list_each(k, &consumer->subs) {
        struct sub *sub = list_entry(k, struct sub, link);
        if (strcmp(sub->topic, topic) == 0)
            return sub;
    }
    return NULL;
}

bool sub_wants(const struct sub *sub, const char *tag)
{
    for (size_t i = 0; i < sub->n_tags; i++)
        if (bytes_equal(sub->tags[i], bytes_str(tag)))
            return true;
    return sub->n_tags == 0;
}

static int subscription_check(const struct omq_subscription *s, struct omq_error *why)
{
    struct fault fault = {0};
    if (!s->topic || topic_name_check(bytes_str(s->topic), &fault))
        return omq_fail(why, OMQ_INVALID, "%s",
                        s->topic ? fault.text : "a subscription has no topic");
    if (s->sql && (!s->expression || !s->expression[0]))
        return omq_fail(why, OMQ_INVALID, "an SQL subscription to %s has no expression", s->topic);
    return OMQ_OK;
}

/* ---- opening ---- */

static void defaults(struct omq_consumer_options *o)
{
    o->threads = o->threads > 0 ? o->threads : 20;
    o->batch = o->batch > 0 ? o->batch : 1;
    o->max_attempts = o->max_attempts > 0 ? o->max_attempts : o->ordered ? INT32_MAX : 16;
    o->timeout_ms = o->timeout_ms > 0 ? o->timeout_ms : 15 * 60 * 1000;
    o->suspend_ms = o->suspend_ms > 0 ? o->suspend_ms : 1000;
    o->pull_batch = o->pull_batch > 0 ? o->pull_batch : 32;
    o->max_messages = o->max_messages > 0 ? o->max_messages : 1000;
    o->max_mib = o->max_mib > 0 ? o->max_mib : 100;
    o->max_span = o->max_span > 0 ? o->max_span : 2000;
    o->close_ms = o->close_ms > 0 ? o->close_ms : 30000;
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
    if (o->pop || o->trace)
        return omq_fail(why, OMQ_INVALID, "pop and trace are not built yet");
    if (o->acknowledge == OMQ_BEFORE && (o->ordered || o->spread == OMQ_BROADCAST))
        return omq_fail(why, OMQ_INVALID,
                        "acknowledge = OMQ_BEFORE goes with neither ordered nor OMQ_BROADCAST");
    for (size_t i = 0; i < o->n_subscriptions; i++)
        if (subscription_check(&o->subscriptions[i], why))
            return OMQ_INVALID;
    return OMQ_OK;
}

static void consumer_free(struct omq_consumer *consumer)
{
    list_each(k, &consumer->subs)
        sub_free(list_entry(k, struct sub, link));
    free(consumer->group);
    free(consumer->retry_topic);
    free(consumer->rooms);
    room_clear(&consumer->room);
    free(consumer);
}

static enum err consumer_fill(struct omq_consumer *consumer)
{
    const struct omq_consumer_options *o = &consumer->options;
    consumer->group = strdup(o->group);
    if (o->rooms)
        consumer->rooms = strdup(o->rooms);
    consumer->options.rooms = consumer->rooms;
    if (!consumer->group || (o->rooms && !consumer->rooms) ||
        asprintf(&consumer->retry_topic, "%%RETRY%%%s", o->group) < 0)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i <= o->n_subscriptions; i++) {
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

static void rebalance_turn(void *user)
{
    rebalance(user);
}

static void commit_turn(void *user)
{
    struct omq_consumer *consumer = user;
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
                              consumer->lock_timer, consumer->expiry_timer};
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++)
        if (timers[i])
            timer_close(timers[i]);
}

static void join(void *user)
{
    struct joining *joining = user;
    struct omq_consumer *consumer = joining->consumer;
    struct loop *loop = consumer->client->loop;
    enum err err = timer_open(loop, rebalance_turn, consumer, &consumer->rebalance_timer);
    if (!err)
        err = timer_open(loop, commit_turn, consumer, &consumer->commit_timer);
    if (!err)
        err = timer_open(loop, lock_turn, consumer, &consumer->lock_timer);
    if (!err)
        err = timer_open(loop, expiry_turn, consumer, &consumer->expiry_timer);
    joining->err = err;
    if (err) {
        timers_close(consumer);
        return;
    }
    timer_start(consumer->commit_timer, COMMIT_EVERY_MS, COMMIT_EVERY_MS);
    timer_start(consumer->expiry_timer, EXPIRY_EVERY_MS, EXPIRY_EVERY_MS);
    if (consumer_locks(consumer))
        timer_start(consumer->lock_timer, LOCK_EVERY_MS, LOCK_EVERY_MS);
    list_add_tail(&consumer->client->consumers, &consumer->link);
    hearts_beat(consumer->client);
    rebalance(consumer);
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
    struct omq_consumer *consumer = calloc(1, sizeof *consumer);
    if (!consumer)
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for a consumer");
    consumer->client = client;
    consumer->options = *options;
    defaults(&consumer->options);
    room_init(&consumer->room, "consumer", ROOM_CORE);
    list_init(&consumer->ready);
    list_init(&consumer->subs);
    list_init(&consumer->lanes);
    struct joining joining = {.consumer = consumer, .err = consumer_fill(consumer)};
    if (!joining.err && options->handle)
        joining.err = hands_open(client, (unsigned)consumer->options.threads, &consumer->hands);
    if (!joining.err)
        client_on_loop(client, join, &joining);
    if (joining.err) {
        hands_close(consumer->hands);
        consumer_free(consumer);
        return omq_fail(why, omq_code_of(joining.err), "consumer %s cannot be opened: %s",
                        options->group, err_text(joining.err));
    }
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
    bool wanting = false;
    list_each(k, &consumer->subs)
        wanting = wanting || list_entry(k, struct sub, link)->wanting;
    return consumer->running == 0 && consumer->rounds == 0 && !wanting;
}

void consumer_calm(struct omq_consumer *consumer)
{
    if (consumer->leaving && is_idle(consumer))
        waiter_tell(take(&consumer->leaving));
}

static void leave_begin(void *user)
{
    struct leave *leave = user;
    struct omq_consumer *consumer = leave->consumer;
    consumer->closing = true;
    timers_close(consumer);
    batches_drop(consumer);
    consumer->leaving = &leave->waiter;
    consumer_calm(consumer);
}

static void part(void *user)
{
    struct omq_consumer *consumer = user;
    list_each(k, &consumer->lanes)
        lane_drop(list_entry(k, struct lane, link));
    list_remove(&consumer->link);
    heart_leave(consumer->client, (struct bytes){0}, bytes_str(consumer->group));
}

void omq_consumer_close(struct omq_consumer *consumer)
{
    if (!consumer)
        return;
    struct omq_client *client = consumer->client;
    if (client_on_own_thread(client)) {
        client_log(client, OMQ_ERROR, "a consumer cannot be closed from a callback");
        return;
    }
    struct leave leave = {.consumer = consumer};
    waiter_init(&leave.waiter);
    client_on_loop(client, leave_begin, &leave);
    waiter_wait(&leave.waiter);
    hands_close(consumer->hands);
    client_on_loop(client, part, consumer);
    consumer_free(consumer);
}

/* ---- pausing ---- */

static void pause_here(void *user)
{
    ((struct omq_consumer *)user)->paused = true;
}

static void resume_here(void *user)
{
    struct omq_consumer *consumer = user;
    consumer->paused = false;
    list_each(k, &consumer->lanes) {
        struct lane *lane = list_entry(k, struct lane, link);
        work_give(lane);
        lane_go(lane);
    }
}

void omq_consumer_pause(struct omq_consumer *consumer)
{
    if (consumer && !client_on_own_thread(consumer->client))
        client_on_loop(consumer->client, pause_here, consumer);
}

void omq_consumer_resume(struct omq_consumer *consumer)
{
    if (consumer && !client_on_own_thread(consumer->client))
        client_on_loop(consumer->client, resume_here, consumer);
}
