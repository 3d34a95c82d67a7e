/* crowd.c - who is connected, for an operator: members of groups, and what one of them says of
 * itself. */
#include "door/remoting/door_int.h"

#include <stdio.h>

#define VERSION_OF_RUNNING_INFO 62 /* V3_1_8_SNAPSHOT: older clients do not know the request */
#define NAME_SHOWN              128
#define QUESTION_MAX            (64u << 10) /* bytes that are passed on to a client */

static void connections_write(struct json_out *w, const struct connections *c)
{
    json_key(w, "connectionSet");
    json_open_array(w);
    for (size_t i = 0; i < c->n; i++) {
        const struct connection *each = &c->list[i];
        char addr[ADDR_TEXT_MAX];
        addr_format(&each->addr, addr);
        json_open(w);
        json_text_member(w, "clientAddr", bytes_str(addr));
        json_text_member(w, "clientId", each->client_id);
        json_text_member(w, "language", bytes_str(language_name(each->language)));
        json_int_member(w, "version", each->version);
        json_close(w);
    }
    json_close_array(w);
}

void subscription_write(struct json_out *w, const struct subscription *s)
{
    json_open(w);
    json_bool_member(w, "classFilterMode", false);
    json_key(w, "codeSet");
    json_open_array(w);
    json_close_array(w);
    json_text_member(w, "expressionType", s->expression_type);
    json_text_member(w, "subString", s->expression);
    json_int_member(w, "subVersion", s->version);
    json_key(w, "tagsSet");
    json_open_array(w);
    json_close_array(w);
    json_text_member(w, "topic", s->topic);
    json_close(w);
}

static void subscriptions_write(struct json_out *w, const struct connections *c)
{
    json_key(w, "subscriptionTable");
    json_open(w);
    for (size_t i = 0; i < c->n_subs; i++) {
        json_key_text(w, c->subs[i].topic);
        subscription_write(w, &c->subs[i]);
    }
    json_close(w);
}

/* The clients of the group that the request names; false: it has been answered. `nobody` has a
 * place for the group's name. */
static bool connections_take(struct door *door, struct request *rq, bool consumers, int32_t code,
                             const char *nobody, struct connections *out)
{
    struct group_fields f = {0};
    if (!request_fields(rq, consumers ? &consumers_table : &producers_table, &f))
        return false;
    enum err err = broker_connections(door->broker, f.group, consumers, rq->arena, out);
    if (err == ERR_NOT_FOUND) {
        char remark[NAME_SHOWN + 64];
        (void)snprintf(remark, sizeof remark, nobody,
                       (int)(f.group.len < NAME_SHOWN ? f.group.len : NAME_SHOWN),
                       (const char *)f.group.at);
        answer(rq, code, remark);
    } else if (err) {
        answer_fault(rq, ERR_NO_MEMORY, NULL);
    }
    return !err;
}

void crowd_consumers(struct door *door, struct request *rq)
{
    struct connections c;
    if (!connections_take(door, rq, true, RES_CONSUMER_NOT_ONLINE,
                          "the consumer group[%.*s] not online", &c))
        return;
    struct buf body = buf_upto(BODY_MAX);
    struct json_out w = {.buf = &body};
    json_open(&w);
    connections_write(&w, &c);
    json_text_member(&w, "consumeFromWhere", c.from_where);
    json_text_member(&w, "consumeType",
                     c.pops       ? BYTES("CONSUME_POP")
                     : c.actively ? BYTES("CONSUME_ACTIVELY")
                                  : BYTES("CONSUME_PASSIVELY"));
    json_text_member(&w, "messageModel",
                     c.broadcasting ? BYTES("BROADCASTING") : BYTES("CLUSTERING"));
    subscriptions_write(&w, &c);
    json_close(&w);
    answer_buf(rq, &body);
}

void crowd_producers(struct door *door, struct request *rq)
{
    struct connections c;
    if (!connections_take(door, rq, false, RES_SYSTEM_ERROR, "the producer group[%.*s] not exist",
                          &c))
        return;
    struct buf body = buf_upto(BODY_MAX);
    struct json_out w = {.buf = &body};
    json_open(&w);
    connections_write(&w, &c);
    json_close(&w);
    answer_buf(rq, &body);
}

/* ---- GET_CONSUMER_RUNNING_INFO ---- */

struct relay {
    struct ask ask;
    char who[2 * NAME_SHOWN + 8]; /* <group> <client> */
};

static void relayed(struct ask *ask)
{
    const struct relay *relay = list_entry(ask, struct relay, ask);
    struct reply r;
    if (!ask->err) {
        if (reply_begin(&r, &ask->to, ask->code, ask->remark, 0))
            reply_end_body(&r, ask->body);
        return;
    }
    bool late = ask->err == ERR_TIMEOUT;
    char remark[sizeof relay->who + 64];
    (void)snprintf(remark, sizeof remark,
                   late ? "consumer %s Timeout: %s" : "invoke consumer %s Exception: %s",
                   relay->who, err_text(ask->err));
    if (reply_begin(&r, &ask->to, late ? RES_CONSUME_MSG_TIMEOUT : RES_SYSTEM_ERROR,
                    bytes_str(remark), 0))
        reply_end(&r, 0);
}

static size_t question_size(const struct words *words)
{
    size_t size = 0;
    for (size_t i = 0; i < words->n_fields; i++)
        size += words->fields[i].name.len + words->fields[i].value.len;
    return size;
}

/* Asks a consumer, and passes its answer on. */
static void relay(struct door *door, const struct request *rq, const struct group_fields *f,
                  const struct words *words)
{
    if (question_size(words) > QUESTION_MAX) {
        answer(rq, RES_INVALID_PARAMETER, "the question is too big to be passed on");
        return;
    }
    char who[sizeof((struct relay *)0)->who];
    (void)snprintf(who, sizeof who, "<%.*s> <%.*s>",
                   (int)(f->group.len < NAME_SHOWN ? f->group.len : NAME_SHOWN),
                   (const char *)f->group.at,
                   (int)(f->client_id.len < NAME_SHOWN ? f->client_id.len : NAME_SHOWN),
                   f->client_id.len ? (const char *)f->client_id.at : "");
    char remark[sizeof who + 128];
    int32_t version = 0;
    struct counted *session =
        broker_consumer_session(door->broker, f->group, f->client_id, &version);
    if (!session || version < VERSION_OF_RUNNING_INFO) {
        (void)snprintf(remark, sizeof remark,
                       session
                           ? "The Consumer %s Version <%d> too low to finish, please upgrade it "
                             "to V3_1_8_SNAPSHOT"
                           : "The Consumer %s not online",
                       who, version);
        counted_drop(session);
        answer(rq, RES_SYSTEM_ERROR, remark);
        return;
    }
    struct relay *relay = ask_make(rq, sizeof *relay, words);
    if (!relay) {
        counted_drop(session);
        answer(rq, RES_SYSTEM_BUSY, "too many questions to clients are on their way");
        return;
    }
    memcpy(relay->who, who, sizeof who);
    ask_client(&relay->ask, session, relayed);
}

void crowd_running_info(struct door *door, struct request *rq)
{
    struct group_fields f = {0};
    if (!request_fields(rq, &running_info_table, &f))
        return;
    if (rq->body.len > QUESTION_MAX) {
        answer(rq, RES_INVALID_PARAMETER, "the question is too big to be passed on");
        return;
    }
    struct words words = {
        .code = rq->head->code,
        .fields = rq->head->fields,
        .n_fields = rq->head->n_fields,
        .body = rq->body,
    };
    relay(door, rq, &f, &words);
}

/* ---- CONSUME_MESSAGE_DIRECTLY ---- */

#define FIELDS_ADDED 3

/* What the asker said, and what its client cannot know: which broker, and flags. */
static size_t directly_fields(struct door *door, struct request *rq, const struct group_fields *f,
                              struct field *out)
{
    size_t n = 0;
    for (size_t i = 0; i < rq->head->n_fields; i++)
        if (!bytes_equal(rq->head->fields[i].name, BYTES("brokerName")))
            out[n++] = rq->head->fields[i];
    out[n++] = (struct field){BYTES("brokerName"), bytes_str(door->options.broker_name)};
    struct topic_settings topic;
    struct group_settings group;
    char *texts = arena_alloc(rq->arena, 32);
    if (texts && f->topic.len &&
        !broker_topic_get(door->broker, f->topic, rq->arena, &topic, NULL)) {
        (void)snprintf(texts, 16, "%d", topic.sys_flag);
        out[n++] = (struct field){BYTES("topicSysFlag"), bytes_str(texts)};
    }
    if (texts && !broker_group_get(door->broker, f->group, rq->arena, &group, NULL)) {
        (void)snprintf(texts + 16, 16, "%d", group.sys_flag);
        out[n++] = (struct field){BYTES("groupSysFlag"), bytes_str(texts + 16)};
    }
    return n;
}

/* An operator wants one consumer to consume one message, now. Its record goes along. */
void crowd_consume_directly(struct door *door, struct request *rq)
{
    struct group_fields f = {0};
    if (!request_fields(rq, &consume_directly_table, &f))
        return;
    struct addr host;
    int64_t position;
    struct slice record = {0};
    struct fault why = {0};
    if (id_parse(f.msg_id, &host, &position)) {
        answer(rq, RES_INVALID_PARAMETER, "msgId should be the id of a stored message");
        return;
    }
    enum err err = broker_view(door->broker, position, &record, &why);
    struct field *fields =
        err ? NULL : arena_alloc(rq->arena, (rq->head->n_fields + FIELDS_ADDED) * sizeof *fields);
    if (err || !fields) {
        counted_drop(record.owner);
        answer_fault(rq, err ? err : ERR_NO_MEMORY, &why);
        return;
    }
    struct words words = {
        .code = rq->head->code,
        .fields = fields,
        .n_fields = directly_fields(door, rq, &f, fields),
        .body = record.bytes,
    };
    relay(door, rq, &f, &words);
    counted_drop(record.owner);
}
