/* look.c - looking at messages without consuming them: by key, by unique id, by their place.
 *
 * Whoever looks is no member of anything. A pull has to name a group; TOOLS_CONSUMER is one that
 * every broker has for such questions, and nothing is ever committed for it. */
#include "client/consumer_int.h"

#include <stdio.h>
#include <stdlib.h>

#define LOOK_GROUP   BYTES("TOOLS_CONSUMER")
#define LOOK_MAX     32
#define LOOK_MAX_MAX 1024
#define WAIT_MAX_MS  30000
#define WAIT_LATE_MS 5000 /* Apache's broker looks at those that wait every five seconds */

/* ---- what was found ---- */

void omq_found_free(struct omq_found *found)
{
    if (!found)
        return;
    for (size_t i = 0; i < found->n; i++)
        omq_delivery_free(found->messages[i]);
    free(found->messages);
    *found = (struct omq_found){0};
}

static bool found_add(struct omq_found *found, struct omq_delivery *delivery)
{
    if ((found->n & (found->n + 1)) == 0) { /* 0, 1, 3, 7 …: full */
        struct omq_delivery **more =
            realloc(found->messages, (2 * found->n + 1) * sizeof *found->messages);
        if (!more)
            return false;
        found->messages = more;
    }
    found->messages[found->n++] = delivery;
    return true;
}

static int by_storing(const void *a, const void *b)
{
    const struct omq_delivery *x = *(struct omq_delivery *const *)a;
    const struct omq_delivery *y = *(struct omq_delivery *const *)b;
    if (x->stored_ms != y->stored_ms)
        return x->stored_ms < y->stored_ms ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* One that cannot be expanded is shown as it is: somebody looks for what is wrong. */
static enum err record_show(const struct record *record, struct bytes broker,
                            struct omq_delivery **out)
{
    enum err err = delivery_make(record, broker, out);
    if (err && err != ERR_NO_MEMORY) {
        struct record plain = *record;
        plain.sys_flag &= ~SYS_COMPRESSED;
        err = delivery_make(&plain, broker, out);
    }
    return err;
}

static int records_show(struct bytes body, struct bytes broker, struct omq_found *out,
                        struct omq_error *why)
{
    while (body.len > 0) {
        struct record record;
        struct omq_delivery *delivery;
        if (record_decode(body, &record))
            return omq_fail(why, OMQ_PROTOCOL, "a message of broker %.*s cannot be read",
                            BYTES_ARG(broker));
        if (record_show(&record, broker, &delivery))
            return omq_fail(why, OMQ_NO_MEMORY, "no memory for messages");
        if (!found_add(out, delivery)) {
            omq_delivery_free(delivery);
            return omq_fail(why, OMQ_NO_MEMORY, "no memory for messages");
        }
        body = bytes_from(body, record.size);
    }
    return OMQ_OK;
}

struct look {
    struct question question;
    struct omq_found *found;
    int64_t next;
};

/* ---- by key ---- */

static int query_take(struct question *q, const struct answer *answer)
{
    struct look *look = list_entry(q, struct look, question);
    return records_show(answer->body, q->broker, look->found, &q->why);
}

static int query_broker(struct omq_client *client, const struct omq_query *query,
                        const char *broker, struct omq_found *found, struct omq_error *why)
{
    char max[16], begin[24], end[24];
    int64_t end_ms = query->end_ms > 0 ? query->end_ms : INT64_MAX;
    (void)snprintf(max, sizeof max, "%d", query->max > 0 ? query->max : LOOK_MAX);
    (void)snprintf(begin, sizeof begin, "%lld",
                   (long long)(query->begin_ms > 0 ? query->begin_ms : 0));
    (void)snprintf(end, sizeof end, "%lld", (long long)end_ms);
    struct look look = {
        .question =
            {
                .client = client,
                .request = REQ_QUERY_MESSAGE,
                .topic = bytes_str(query->topic),
                .broker = bytes_str(broker),
                .fields = {{BYTES("topic"), bytes_str(query->topic)},
                           {BYTES("key"), bytes_str(query->id ? query->id : query->key)},
                           {BYTES("maxNum"), bytes_str(max)},
                           {BYTES("beginTimestamp"), bytes_str(begin)},
                           {BYTES("endTimestamp"), bytes_str(end)},
                           {BYTES("_UNIQUE_KEY_QUERY"),
                            query->id ? BYTES("true") : BYTES("false")}},
                .n_fields = 6,
                .got = query_take,
            },
        .found = found,
    };
    struct omq_error own;
    int code = question_ask(&look.question, &own);
    if (code == OMQ_NOT_FOUND && own.response_code)
        return OMQ_OK;
    if (code && why)
        *why = own;
    return code;
}

static bool is_among(const struct omq_queue *queues, size_t n, const char *broker)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(queues[i].broker, broker) == 0)
            return true;
    return false;
}

/* All brokers that have the topic, also those where it can only be read, or only be written. */
static int query_all(struct omq_client *client, const struct omq_query *query,
                     struct omq_found *found, struct omq_error *why)
{
    struct omq_queue *lists[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    int code = queues_ask(client, query->topic, true, false, &lists[0], &n[0], why);
    if (!code)
        code = queues_ask(client, query->topic, false, false, &lists[1], &n[1], why);
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; !code && i < n[k]; i++)
            if (!is_among(lists[k], i, lists[k][i].broker) &&
                (k == 0 || !is_among(lists[0], n[0], lists[k][i].broker)))
                code = query_broker(client, query, lists[k][i].broker, found, why);
    omq_queues_free(lists[0]);
    omq_queues_free(lists[1]);
    return code;
}

/* The index holds hashes of keys: what has another key is left out. */
static bool has_key(const struct omq_delivery *d, const struct omq_query *query)
{
    if (query->id)
        return strcmp(d->id, query->id) == 0;
    size_t len = strlen(query->key);
    for (const char *at = d->keys; *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strncmp(at, query->key, len) == 0 && (at[len] == ' ' || at[len] == 0))
            return true;
    }
    return false;
}

static void keep_matching(struct omq_found *found, const struct omq_query *query)
{
    size_t kept = 0;
    for (size_t i = 0; i < found->n; i++) {
        if (has_key(found->messages[i], query))
            found->messages[kept++] = found->messages[i];
        else
            omq_delivery_free(found->messages[i]);
    }
    found->n = kept;
}

int omq_query(struct omq_client *client, const struct omq_query *query, struct omq_found *out,
              struct omq_error *why)
{
    bool keyed = query && query->key && query->key[0], unique = query && query->id && query->id[0];
    if (!client || !query || !out || !query->topic || keyed == unique)
        return omq_fail(why, OMQ_INVALID,
                        "a query needs a client, a topic, a key or an id, and a place");
    struct omq_query plain = *query;
    plain.key = keyed ? query->key : NULL;
    plain.id = unique ? query->id : NULL;
    struct omq_found found = {0};
    int code = query_all(client, &plain, &found, why);
    if (code) {
        omq_found_free(&found);
        return code;
    }
    keep_matching(&found, &plain);
    if (found.n == 0)
        omq_found_free(&found); /* with the list of those that did not match */
    if (found.n > 0)
        qsort(found.messages, found.n, sizeof *found.messages, by_storing);
    *out = found;
    return OMQ_OK;
}

/* ---- by place ---- */

static int read_take(struct question *q, const struct answer *answer)
{
    struct look *look = list_entry(q, struct look, question);
    int64_t next;
    if (bytes_to_i64(head_field(answer->head, BYTES("nextBeginOffset")), &next) && next >= 0)
        look->next = next;
    switch (answer->head->code) {
    case RES_SUCCESS:
        return records_show(answer->body, q->broker, look->found, &q->why);
    case RES_PULL_NOT_FOUND:
    case RES_PULL_RETRY_IMMEDIATELY:
    case RES_PULL_OFFSET_MOVED:
        return OMQ_OK;
    default:
        return omq_refused(&q->why, answer->head, request_name(q->request));
    }
}

/* Left out are records before the offset (an answer may overlap), those that come twice or
 * backwards, and tags with the same hash as one that is wanted. */
static void keep_wanted(struct omq_found *found, int64_t offset, const struct sub *sub,
                        int64_t *next)
{
    size_t kept = 0;
    for (size_t i = 0; i < found->n; i++) {
        struct omq_delivery *d = found->messages[i];
        bool rises = d->offset >= offset && d->offset < INT64_MAX;
        if (rises)
            offset = d->offset + 1;
        if (rises && (!sub || sub_wants(sub, d->tag)))
            found->messages[kept++] = d;
        else
            omq_delivery_free(d);
    }
    if (found->n > 0 && *next < offset)
        *next = offset;
    found->n = kept;
}

static int read_ask(struct omq_client *client, const struct omq_read *read, const struct sub *sub,
                    struct look *look, struct omq_error *why)
{
    char queue[16], offset[24], max[16], flag[16], wait[16], version[24];
    int most = read->max > 0 ? read->max : LOOK_MAX;
    int wait_ms = read->wait_ms < WAIT_MAX_MS ? read->wait_ms : WAIT_MAX_MS;
    (void)snprintf(queue, sizeof queue, "%d", read->queue.id);
    (void)snprintf(offset, sizeof offset, "%lld", (long long)read->offset);
    (void)snprintf(max, sizeof max, "%d", most < LOOK_MAX_MAX ? most : LOOK_MAX_MAX);
    (void)snprintf(flag, sizeof flag, "%d", PULL_SUBSCRIPTION | (wait_ms > 0 ? PULL_SUSPEND : 0));
    (void)snprintf(wait, sizeof wait, "%d", wait_ms > 0 ? wait_ms : 0);
    (void)snprintf(version, sizeof version, "%lld", (long long)clock_ms(client->clock));
    look->next = read->offset;
    look->question = (struct question){
        .client = client,
        .request = REQ_PULL_MESSAGE,
        .topic = bytes_str(read->queue.topic),
        .broker = bytes_str(read->queue.broker),
        .fields = {{BYTES("consumerGroup"), LOOK_GROUP},
                   {BYTES("topic"), bytes_str(read->queue.topic)},
                   {BYTES("queueId"), bytes_str(queue)},
                   {BYTES("queueOffset"), bytes_str(offset)},
                   {BYTES("maxMsgNums"), bytes_str(max)},
                   {BYTES("sysFlag"), bytes_str(flag)},
                   {BYTES("commitOffset"), BYTES("0")},
                   {BYTES("suspendTimeoutMillis"), bytes_str(wait)},
                   {BYTES("subVersion"), bytes_str(version)},
                   {BYTES("subscription"), sub ? bytes_str(sub->expression) : BYTES("*")},
                   {BYTES("expressionType"), sub && sub->sql ? BYTES("SQL92") : BYTES("TAG")},
                   {BYTES("bname"), bytes_str(read->queue.broker)}},
        .n_fields = 12,
        .any_code = true,
        .timeout_ms =
            (uint64_t)(client->options.timeout_ms + (wait_ms > 0 ? wait_ms + WAIT_LATE_MS : 0)),
        .got = read_take,
    };
    return question_ask(&look->question, why);
}

int omq_read(struct omq_client *client, const struct omq_read *read, struct omq_found *out,
             int64_t *next, struct omq_error *why)
{
    if (!client || !read || !out || !next || !read->queue.topic || !read->queue.broker ||
        read->queue.id < 0 || read->offset < 0)
        return omq_fail(why, OMQ_INVALID,
                        "to read there has to be a client, a queue, an offset from 0 on, a place");
    struct sub *sub = NULL;
    if (read->filter &&
        sub_make(NULL, read->queue.topic, read->filter->expression, read->filter->sql, &sub))
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for a filter");
    struct omq_found found = {0};
    struct look look = {.found = &found};
    int code = read_ask(client, read, sub, &look, why);
    if (!code) {
        keep_wanted(&found, read->offset, sub, &look.next);
        *out = found;
        *next = look.next;
    } else
        omq_found_free(&found);
    sub_free(sub);
    return code;
}
