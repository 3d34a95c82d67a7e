/* puppet_produce.c - what a test makes a producer do. */
#include "puppet.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- from JSON to messages ---- */

static int digit_of(uint8_t c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static size_t base64_decode(struct bytes text, uint8_t *out)
{
    uint32_t bits = 0;
    size_t n = 0;
    int have = 0;
    for (size_t i = 0; i < text.len && digit_of(text.at[i]) >= 0; i++) {
        bits = bits << 6 | (uint32_t)digit_of(text.at[i]);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[n++] = (uint8_t)(bits >> have);
        }
    }
    return n;
}

/* "size": so many bytes, of which the first are the text. "noise": what cannot be compressed. */
static void body_of(struct command *c, const struct json *j, struct omq_message *m)
{
    struct bytes coded = json_text(json_member(j, "body"), BYTES(""));
    size_t size = (size_t)arg_int(j, "size");
    uint8_t *body = arena_alloc(c->arena, coded.len + size + 1);
    if (!body)
        abort();
    m->body_size = base64_decode(coded, body);
    uint32_t noise = 1;
    for (; m->body_size < size; m->body_size++) {
        noise = noise * 1664525 + 1013904223;
        body[m->body_size] = arg_bool(j, "noise") ? (uint8_t)(noise >> 24) : 'x';
    }
    m->body = body;
}

static const char *words_of(struct command *c, const struct json *list)
{
    if (!list || list->type != JSON_ARRAY)
        return NULL;
    struct buf out = buf_upto(1 << 20);
    json_each(word, list) {
        if (out.len)
            buf_add_u8(&out, ' ');
        buf_add(&out, word->text);
    }
    buf_add_u8(&out, 0);
    struct bytes copy = arena_copy(c->arena, buf_bytes(&out));
    buf_clear(&out);
    return (const char *)copy.at;
}

static void properties_of(struct command *c, const struct json *table, struct omq_message *m)
{
    struct omq_property *all = arena_alloc(c->arena, (table ? table->n : 0) * sizeof *all + 1);
    json_each(item, table) {
        struct json name = {.type = JSON_OBJECT, .child = item};
        const struct bytes key = item->key->text;
        char *copy = arena_alloc(c->arena, key.len + 1);
        memcpy(copy, key.at, key.len);
        all[m->n_properties].name = copy;
        all[m->n_properties++].value = arg_text(&name, copy, c->arena);
    }
    m->properties = all;
}

static void message_of(struct command *c, const struct json *j, struct omq_message *m)
{
    *m = (struct omq_message){
        .topic = arg_text(j, "topic", c->arena),
        .tag = arg_text(j, "tag", c->arena),
        .keys = words_of(c, json_member(j, "keys")),
        .flag = (int32_t)arg_int(j, "flag"),
        .sharding_key = arg_text(j, "shard", c->arena),
        .delay_level = (int)arg_int(j, "delay"),
        .delay_ms = arg_int(j, "delay_ms"),
        .deliver_ms = arg_int(j, "deliver_ms"),
        .no_wait = arg_bool(j, "no_wait"),
        .id = arg_text(j, "id", c->arena),
    };
    body_of(c, j, m);
    properties_of(c, json_member(j, "properties"), m);
    const struct json *queue = json_member(j, "queue");
    if (queue && queue->type == JSON_OBJECT) {
        struct omq_queue *q = arena_alloc(c->arena, sizeof *q);
        *q = (struct omq_queue){.broker = arg_text(queue, "broker", c->arena),
                                .id = (int32_t)arg_int(queue, "id")};
        m->queue = q;
    }
}

struct omq_message *messages_of(struct command *c, size_t *n)
{
    const struct json *list = json_member(c->args, "messages");
    struct omq_message *all = arena_alloc(c->arena, (list ? list->n : 0) * sizeof *all + 1);
    *n = 0;
    json_each(j, list)
        message_of(c, j, &all[(*n)++]);
    return all;
}

/* ---- and back ---- */

void receipt_write(struct json_out *w, const struct omq_receipt *r)
{
    json_open(w);
    json_int_member(w, "status", r->stored);
    json_text_member(w, "id", bytes_str(r->id));
    json_text_member(w, "offset_id", bytes_str(r->offset_id));
    json_text_member(w, "broker", bytes_str(r->broker));
    json_int_member(w, "queue", r->queue_id);
    json_int_member(w, "offset", r->queue_offset);
    json_bool_member(w, "duplicate", r->duplicate);
    json_text_member(w, "recall", bytes_str(r->recall));
    json_text_member(w, "transaction", bytes_str(r->transaction));
    json_close(w);
}

/* ---- producers ---- */

static size_t choose_last(void *user, const struct omq_message *message,
                          const struct omq_queue *queues, size_t n)
{
    (void)user;
    (void)queues;
    return message->sharding_key && strcmp(message->sharding_key, "beyond") == 0 ? n + 5 : n - 1;
}

/* What a test wants to be decided: by the message's own property, so that members of a group, or
 * the same program started again, decide alike. */
static int decision_of(const char *word)
{
    if (word && strcmp(word, "commit") == 0)
        return OMQ_COMMIT;
    return word && strcmp(word, "rollback") == 0 ? OMQ_ROLLBACK : OMQ_UNKNOWN;
}

struct checked {
    struct omq_producer *producer;
    char name[64];
};

static int check(void *user, const struct omq_delivery *half)
{
    const struct checked *checked = user;
    struct buf line = buf_upto(1 << 20);
    struct json_out w = {.buf = &line};
    json_open(&w);
    json_text_member(&w, "event", BYTES("message"));
    json_text_member(&w, "name", bytes_str(checked->name));
    json_key(&w, "half");
    delivery_write(&w, half);
    json_close(&w);
    puppet_say(&line);
    buf_clear(&line);
    return decision_of(omq_delivery_property(half, "check"));
}

static void close_producer(void *thing)
{
    struct checked *checked = thing;
    omq_producer_close(checked->producer);
    free(checked);
}

static struct omq_producer *producer_find(struct command *c)
{
    const struct checked *found = thing_find(arg_text(c->args, "name", c->arena));
    return found ? found->producer : NULL;
}

static int play_producer(struct command *c)
{
    const struct json *a = c->args;
    struct omq_client *client;
    int code = client_of(c, &client);
    if (code)
        return code;
    struct omq_producer_options o = {
        .group = arg_text(a, "group", c->arena),
        .timeout_ms = (int)arg_int(a, "timeout_ms"),
        .try_timeout_ms = (int)arg_int(a, "try_timeout_ms"),
        .retries = (int)arg_int(a, "retries"),
        .retry_same_broker_first = arg_bool(a, "retry_same_broker_first"),
        .retry_not_stored = arg_bool(a, "retry_not_stored"),
        .retry_undone = arg_bool(a, "retry_undone"),
        .avoid_slow = arg_bool(a, "avoid_slow"),
        .retry_table = arg_text(a, "retry_table", c->arena),
        .retry_table_mib = (int)arg_int(a, "retry_table_mib"),
        .compress_over = (size_t)arg_int(a, "compress_over"),
        .compression = (int)arg_int(a, "compression"),
        .compression_level = (int)arg_int(a, "compression_level"),
        .max_message_size = (size_t)arg_int(a, "max_message_size"),
        .max_in_flight = (int)arg_int(a, "max_in_flight"),
        .queues = (int)arg_int(a, "queues"),
        .trace = arg_bool(a, "trace"),
        .trace_topic = arg_text(a, "trace_topic", c->arena),
        .choose = arg_bool(a, "choose") ? choose_last : NULL,
    };
    struct checked *checked = calloc(1, sizeof *checked);
    (void)snprintf(checked->name, sizeof checked->name, "%s", arg_text(a, "name", c->arena));
    o.check = arg_bool(a, "check") ? check : NULL;
    o.user = checked;
    code = omq_producer_open(client, &o, &checked->producer, &c->why);
    if (!code)
        thing_add(checked->name, checked, close_producer);
    else
        free(checked);
    return code;
}

/* Sends that are started together and waited for together. */
struct flight {
    pthread_mutex_t key;
    pthread_cond_t news;
    size_t left;
    struct outcome {
        struct flight *flight;
        bool ok;
        struct omq_receipt receipt;
        struct omq_error why;
    } * outcomes;
};

static void landed(void *user, const struct omq_receipt *receipt, const struct omq_error *why)
{
    struct outcome *o = user;
    struct flight *flight = o->flight;
    (void)pthread_mutex_lock(&flight->key);
    o->ok = receipt != NULL;
    if (receipt)
        o->receipt = *receipt;
    if (why)
        o->why = *why;
    flight->left--;
    (void)pthread_cond_signal(&flight->news);
    (void)pthread_mutex_unlock(&flight->key);
}

static void outcome_write(struct json_out *w, const struct outcome *o)
{
    if (o->ok) {
        receipt_write(w, &o->receipt);
        return;
    }
    json_open(w);
    json_text_member(w, "error", bytes_str(o->why.text));
    json_int_member(w, "code", o->why.code);
    json_int_member(w, "response", o->why.response_code);
    json_close(w);
}

/* All of them, each with a receipt or an error of its own. */
static int send_async(struct command *c, struct omq_producer *p, const struct omq_message *m,
                      size_t n)
{
    struct flight flight = {.key = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};
    flight.outcomes = calloc(n + 1, sizeof *flight.outcomes);
    flight.left = n;
    for (size_t i = 0; i < n; i++) {
        struct outcome *o = &flight.outcomes[i];
        o->flight = &flight;
        struct omq_error why;
        if (omq_send_async(p, &m[i], landed, o, &why))
            landed(o, NULL, &why);
    }
    (void)pthread_mutex_lock(&flight.key);
    while (flight.left > 0)
        (void)pthread_cond_wait(&flight.news, &flight.key);
    (void)pthread_mutex_unlock(&flight.key);
    struct json_out w = {.buf = &c->result};
    json_open_array(&w);
    for (size_t i = 0; i < n; i++)
        outcome_write(&w, &flight.outcomes[i]);
    json_close_array(&w);
    free(flight.outcomes);
    return OMQ_OK;
}

/* Each of `waits` waits for its receipt, the others do not. 1: all, 0: none, 3: every third. */
static int send_each(struct command *c, struct omq_producer *p, const struct omq_message *m,
                     size_t n, size_t waits)
{
    struct json_out w = {.buf = &c->result};
    json_open_array(&w);
    for (size_t i = 0; i < n; i++) {
        struct omq_receipt receipt = {0};
        bool oneway = waits == 0 || (i + 1) % waits != 0;
        int code =
            oneway ? omq_send_oneway(p, &m[i], &c->why) : omq_send(p, &m[i], &receipt, &c->why);
        if (code)
            return code;
        receipt_write(&w, &receipt);
    }
    json_close_array(&w);
    return OMQ_OK;
}

static int send_batch(struct command *c, struct omq_producer *p, const struct omq_message *m,
                      size_t n)
{
    struct omq_receipt *receipts = calloc(n + 1, sizeof *receipts);
    size_t sent = 0;
    int code = omq_send_batch(p, m, n, receipts, &sent, &c->why);
    struct json_out w = {.buf = &c->result};
    json_open_array(&w);
    for (size_t i = 0; !code && i < sent; i++)
        receipt_write(&w, &receipts[i]);
    json_close_array(&w);
    free(receipts);
    if (code && sent > 0) /* the test wants to know */
        (void)snprintf(c->why.text + strlen(c->why.text), sizeof c->why.text - strlen(c->why.text),
                       " [sent=%zu]", sent);
    return code;
}

/* ---- transactions ---- */

struct local {
    const char *decision;
    bool called;
};

static int decide(void *user, const struct omq_message *message, const struct omq_receipt *receipt)
{
    struct local *local = user;
    (void)message;
    (void)receipt;
    local->called = true;
    return decision_of(local->decision);
}

static int play_transaction(struct command *c)
{
    size_t n;
    const struct omq_message *m = messages_of(c, &n);
    struct local local = {.decision = arg_text(c->args, "decision", c->arena)};
    struct omq_receipt receipt;
    int decision;
    int code =
        omq_send_transaction(producer_find(c), m, decide, &local, &receipt, &decision, &c->why);
    if (code)
        return code;
    struct json_out w = {.buf = &c->result};
    json_open(&w);
    json_int_member(&w, "decision", decision);
    json_bool_member(&w, "called", local.called);
    json_key(&w, "receipt");
    receipt_write(&w, &receipt);
    json_close(&w);
    return OMQ_OK;
}

static int play_request(struct command *c)
{
    size_t n;
    const struct omq_message *m = messages_of(c, &n);
    struct omq_delivery *reply;
    int code =
        omq_request(producer_find(c), m, (int)arg_int(c->args, "timeout_ms"), &reply, &c->why);
    if (code)
        return code;
    struct json_out w = {.buf = &c->result};
    delivery_write(&w, reply);
    omq_delivery_free(reply);
    return OMQ_OK;
}

/* To a message that is found by its place. */
static int play_reply(struct command *c)
{
    struct omq_delivery *to;
    const char *text = arg_text(c->args, "text", c->arena);
    int code = omq_view(thing_find(arg_text(c->args, "client", c->arena)), NULL,
                        arg_text(c->args, "offset_id", c->arena), &to, &c->why);
    if (code)
        return code;
    code = omq_reply(producer_find(c), to, text, text ? strlen(text) : 0, &c->why);
    omq_delivery_free(to);
    return code;
}

static int play_recall(struct command *c)
{
    return omq_recall(producer_find(c), arg_text(c->args, "topic", c->arena),
                      arg_text(c->args, "recall", c->arena), &c->why);
}

/* ---- plain messages ---- */

static int play_send(struct command *c)
{
    struct omq_producer *p = producer_find(c);
    struct bytes mode = json_text(json_member(c->args, "mode"), BYTES("sync"));
    size_t n;
    const struct omq_message *m = messages_of(c, &n);
    if (bytes_equal(mode, BYTES("async")))
        return send_async(c, p, m, n);
    if (bytes_equal(mode, BYTES("batch")))
        return send_batch(c, p, m, n);
    size_t waits = bytes_equal(mode, BYTES("oneway"))  ? 0
                   : bytes_equal(mode, BYTES("mixed")) ? 3
                                                       : 1;
    return send_each(c, p, m, n, waits);
}

const struct part produce_parts[] = {
    {"producer", play_producer},
    {"send", play_send},
    {"transaction", play_transaction},
    {"request", play_request},
    {"reply", play_reply},
    {"recall", play_recall},
    {NULL, NULL},
};
