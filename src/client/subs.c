/* subs.c - what a consumer subscribes to, from its beginning and later. */
#include "client/consumer_int.h"

#include <stdlib.h>

#define CHECK_MAX (1u << 20)

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
    sub->version = consumer ? clock_ms(consumer->client->clock) : 0;
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

void sub_describe(const struct sub *sub, struct heart_subscription *out)
{
    *out = (struct heart_subscription){
        .topic = bytes_str(sub->topic),
        .expression = bytes_str(sub->expression),
        .expression_type = sub->sql ? BYTES("SQL92") : BYTES("TAG"),
        .version = sub->version,
        .tags = sub->tags,
        .n_tags = sub->n_tags,
    };
}

int subscription_check(const struct omq_subscription *s, struct omq_error *why)
{
    struct fault fault = {0};
    if (!s->topic || topic_name_check(bytes_str(s->topic), &fault))
        return omq_fail(why, OMQ_INVALID, "%s",
                        s->topic ? fault.text : "a subscription has no topic");
    if (s->sql && (!s->expression || !s->expression[0]))
        return omq_fail(why, OMQ_INVALID, "an SQL subscription to %s has no expression", s->topic);
    return OMQ_OK;
}

/* A broker says whether it understands the expression. Where none can be asked, the heartbeats will
 * tell. */
static int sql_check(struct omq_client *client, const char *group, const struct omq_subscription *s,
                     struct omq_error *why)
{
    const struct client_check check = {
        .client_id = bytes_str(client->id),
        .group = bytes_str(group),
        .has_sub = true,
        .sub = {.topic = bytes_str(s->topic),
                .expression = bytes_str(s->expression),
                .expression_type = BYTES("SQL92"),
                .version = clock_ms(client->clock)},
    };
    struct buf body = buf_upto(CHECK_MAX);
    client_check_write(&body, &check);
    struct question question = {
        .client = client,
        .request = REQ_CHECK_CLIENT_CONFIG,
        .topic = bytes_str(s->topic),
        .body = buf_bytes(&body),
    };
    struct omq_error refusal = {0};
    int code = body.err ? OMQ_OK : question_ask(&question, &refusal);
    buf_clear(&body);
    if (!code || refusal.response_code == 0 ||
        refusal.response_code == RES_REQUEST_CODE_NOT_SUPPORTED)
        return OMQ_OK;
    code = omq_fail(why, OMQ_INVALID, "a broker does not take the expression of topic %s: %s",
                    s->topic, refusal.text);
    if (why)
        why->response_code = refusal.response_code;
    return code;
}

int subscriptions_ask(struct omq_client *client, const struct omq_consumer_options *o,
                      struct omq_error *why)
{
    int code = OMQ_OK;
    for (size_t i = 0; !code && i < o->n_subscriptions; i++)
        if (o->subscriptions[i].sql)
            code = sql_check(client, o->group, &o->subscriptions[i], why);
    return code;
}

/* ---- subscribing later ---- */

struct change {
    struct omq_consumer *consumer;
    struct sub *sub;   /* NULL: none */
    const char *topic; /* the one that goes, or is changed */
    bool found, refused;
};

static void sub_drop(struct sub *sub)
{
    list_remove(&sub->link);
    if (sub->wanting)
        sub->gone = true; /* whoever brings the route frees it */
    else
        sub_free(sub);
}

static void change_here(void *user)
{
    struct change *change = user;
    struct omq_consumer *consumer = change->consumer;
    if (consumer->assigned) {
        change->refused = true;
        return;
    }
    struct sub *old = sub_find(consumer, change->topic);
    change->found = old != NULL;
    if (old)
        sub_drop(old);
    if (change->sub)
        list_add_tail(&consumer->subs, &change->sub->link);
    else
        lanes_lose(consumer, change->topic);
    hearts_beat(consumer->client);
    rebalance(consumer);
}

static int subscribe_entered(struct omq_consumer *consumer, const struct omq_subscription *s,
                             struct omq_error *why)
{
    int code = s->sql ? sql_check(consumer->client, consumer->group, s, why) : OMQ_OK;
    if (code)
        return code;
    struct change change = {.consumer = consumer, .topic = s->topic};
    if (sub_make(consumer, s->topic, s->expression, s->sql, &change.sub))
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for a subscription to %s", s->topic);
    client_on_loop(consumer->client, change_here, &change);
    if (!change.refused)
        return OMQ_OK;
    sub_free(change.sub);
    return omq_fail(why, OMQ_MISUSE, "reader %s was given its queues", consumer->group);
}

int consumer_subscribe(struct omq_consumer *consumer, const struct omq_subscription *s,
                       struct omq_error *why)
{
    int code = subscription_check(s, why);
    if (code)
        return code;
    if (!consumer_entered(consumer))
        return omq_fail(why, OMQ_CLOSED, "it is closed");
    code = subscribe_entered(consumer, s, why);
    consumer_left(consumer);
    return code;
}

int omq_consumer_subscribe(struct omq_consumer *consumer,
                           const struct omq_subscription *subscription, struct omq_error *why)
{
    if (!consumer || !subscription)
        return omq_fail(why, OMQ_INVALID, "no consumer, or no subscription");
    return consumer_subscribe(consumer, subscription, why);
}

static int unsubscribe_entered(struct omq_consumer *consumer, const char *topic,
                               struct omq_error *why)
{
    if (strcmp(topic, consumer->retry_topic) == 0)
        return omq_fail(why, OMQ_INVALID, "%s is what %s gets again: it cannot be left", topic,
                        consumer->group);
    struct change change = {.consumer = consumer, .topic = topic};
    client_on_loop(consumer->client, change_here, &change);
    return change.found
               ? OMQ_OK
               : omq_fail(why, OMQ_NOT_FOUND, "%s is not subscribed to %s", consumer->group, topic);
}

int omq_consumer_unsubscribe(struct omq_consumer *consumer, const char *topic,
                             struct omq_error *why)
{
    if (!consumer || !topic)
        return omq_fail(why, OMQ_INVALID, "no consumer, or no topic");
    if (!consumer_entered(consumer))
        return omq_fail(why, OMQ_CLOSED, "the consumer is closed");
    int code = unsubscribe_entered(consumer, topic, why);
    consumer_left(consumer);
    return code;
}
