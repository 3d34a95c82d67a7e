/* survey.c - what there is in the broker as a whole, for an operator: lists over all groups. */
#include "door/remoting/door_int.h"

#include <stdio.h>

static void answer_topics(struct door *door, const struct request *rq, enum err err,
                          const struct bytes *topics, size_t n)
{
    if (err) {
        answer_fate(rq, err, NULL);
        return;
    }
    char addr[ADDR_TEXT_MAX];
    addr_format(&door->options.host, addr);
    struct buf body = buf_upto(BODY_MAX);
    topic_list_write(&body, topics, n, bytes_str(addr));
    answer_buf(rq, &body);
}

void survey_group_topics(struct door *door, struct request *rq)
{
    struct group_fields f = {0};
    if (!request_fields(rq, &group_table, &f))
        return;
    struct bytes *topics = NULL;
    size_t n = 0;
    enum err err = broker_group_topics(door->broker, f.group, rq->arena, &topics, &n);
    answer_topics(door, rq, err, topics, n);
}

void survey_system_topics(struct door *door, struct request *rq)
{
    struct bytes *topics = NULL;
    size_t n = 0;
    enum err err = broker_system_topics(door->broker, rq->arena, &topics, &n);
    answer_topics(door, rq, err, topics, n);
}

void survey_subscription(struct door *door, struct request *rq)
{
    struct group_fields f = {0};
    if (!request_fields(rq, &group_topic_table, &f))
        return;
    struct connections c = {0};
    enum err err = broker_connections(door->broker, f.group, true, rq->arena, &c);
    if (err && err != ERR_NOT_FOUND) { /* nobody there is an answer too */
        answer_fate(rq, err, NULL);
        return;
    }
    struct buf body = buf_upto(BODY_MAX);
    struct json_out w = {.buf = &body};
    json_open(&w);
    json_text_member(&w, "group", f.group);
    for (size_t i = 0; i < c.n_subs; i++) {
        if (!bytes_equal(c.subs[i].topic, f.topic))
            continue;
        json_key(&w, "subscriptionData");
        subscription_write(&w, &c.subs[i]);
    }
    json_text_member(&w, "topic", f.topic);
    json_close(&w);
    answer_buf(rq, &body);
}

void survey_time_span(struct door *door, struct request *rq)
{
    struct group_fields f = {0};
    if (!request_fields(rq, &group_topic_table, &f))
        return;
    struct time_span *spans;
    size_t n;
    struct fault why = {0};
    enum err err = broker_time_spans(door->broker, f.group, f.topic, rq->arena, &spans, &n, &why);
    struct told t;
    if (!told_begin(&t, rq, err, &why))
        return;
    json_open(&t.w);
    json_key(&t.w, "consumeTimeSpanSet");
    json_open_array(&t.w);
    for (size_t i = 0; i < n; i++) {
        json_open(&t.w);
        json_int_member(&t.w, "consumeTimeStamp", spans[i].consumed_ms);
        json_int_member(&t.w, "delayTime", spans[i].delay_ms);
        json_int_member(&t.w, "maxTimeStamp", spans[i].last_ms);
        json_key(&t.w, "messageQueue");
        queue_name_write(
            &t.w, &(struct queue_name){f.topic, bytes_str(door->options.broker_name), (int32_t)i});
        json_int_member(&t.w, "minTimeStamp", spans[i].first_ms);
        json_close(&t.w);
    }
    json_close_array(&t.w);
    json_close(&t.w);
    told_end(&t, rq, OK);
}

static void producers_write(struct json_out *w, const struct connections *c)
{
    json_open_array(w);
    for (size_t i = 0; i < c->n; i++) {
        char addr[ADDR_TEXT_MAX + 1] = "/"; /* as Java shows an address */
        addr_format(&c->list[i].addr, addr + 1);
        json_open(w);
        json_text_member(w, "clientId", c->list[i].client_id);
        json_text_member(w, "language", bytes_str(language_name(c->list[i].language)));
        json_int_member(w, "lastUpdateTimestamp", c->list[i].seen_ms);
        json_text_member(w, "remoteIP", bytes_str(addr));
        json_int_member(w, "version", c->list[i].version);
        json_close(w);
    }
    json_close_array(w);
}

void survey_producers(struct door *door, struct request *rq)
{
    struct bytes *groups;
    size_t n;
    enum err err = broker_producer_groups(door->broker, rq->arena, &groups, &n);
    struct told t;
    if (!told_begin(&t, rq, err, NULL))
        return;
    json_open(&t.w);
    json_key(&t.w, "data");
    json_open(&t.w);
    for (size_t i = 0; !err && i < n; i++) {
        struct connections c;
        err = broker_connections(door->broker, groups[i], false, rq->arena, &c);
        if (err == ERR_NOT_FOUND) { /* it has left since */
            err = OK;
            continue;
        }
        if (err)
            break;
        json_key_text(&t.w, groups[i]);
        producers_write(&t.w, &c);
    }
    json_close(&t.w);
    json_close(&t.w);
    told_end(&t, rq, err);
}

/* ---- GET_BROKER_CONSUME_STATS ---- */

/* One topic of a group; nothing when the group has members that do not subscribe to it. */
static enum err group_topic_write(struct door *door, struct request *rq, struct json_out *w,
                                  const struct group_topic *pair, int64_t *behind)
{
    struct consume_stat *stats;
    size_t n;
    double per_second;
    enum err err = broker_consume_stats(door->broker, pair->group, &pair->topic, 1, false,
                                        rq->arena, &stats, &n, &per_second);
    if (err || n == 0)
        return err;
    for (size_t i = 0; i < n; i++)
        *behind += stats[i].max - stats[i].offset;
    consume_stats_write(door, w, stats, n, per_second);
    return OK;
}

void survey_consume_stats(struct door *door, struct request *rq)
{
    struct group_fields f = {0};
    if (!request_fields(rq, &broker_consume_stats_table, &f))
        return;
    struct group_topic *pairs;
    size_t n;
    enum err err = broker_all_progress(door->broker, f.ordered, rq->arena, &pairs, &n);
    if (err) {
        answer_fate(rq, err, NULL);
        return;
    }
    int64_t behind = 0; /* messages that groups have before them */
    struct buf body = buf_upto(BODY_MAX);
    struct json_out w = {.buf = &body};
    char addr[ADDR_TEXT_MAX];
    addr_format(&door->options.host, addr);
    json_open(&w);
    json_text_member(&w, "brokerAddr", bytes_str(addr));
    json_key(&w, "consumeStatsList");
    json_open_array(&w);
    for (size_t i = 0; !err && i < n;) {
        struct bytes group = pairs[i].group;
        json_open(&w);
        json_key_text(&w, group);
        json_open_array(&w);
        for (; !err && i < n && bytes_equal(pairs[i].group, group); i++)
            err = group_topic_write(door, rq, &w, &pairs[i], &behind);
        json_close_array(&w);
        json_close(&w);
    }
    json_close_array(&w);
    json_int_member(&w, "totalDiff", behind);
    json_int_member(&w, "totalInflightDiff", 0);
    json_close(&w);
    if (!err) {
        answer_buf(rq, &body);
        return;
    }
    buf_clear(&body);
    answer_fate(rq, err, NULL);
}

/* ---- VIEW_BROKER_STATS_DATA ---- */

static void window_write(struct json_out *w, const char *key, const struct stat_window *window)
{
    json_key(w, key);
    json_open(w);
    json_key(w, "avgpt");
    json_put_real(w, window->average);
    json_int_member(w, "sum", (int64_t)window->sum);
    json_key(w, "tps");
    json_put_real(w, window->per_second);
    json_close(w);
}

void survey_stat(struct door *door, struct request *rq)
{
    struct stats_fields f = {0};
    if (!request_fields(rq, &stats_table, &f))
        return;
    struct stat_windows windows;
    struct fault why = {0};
    if (broker_stat(door->broker, f.name, f.key, &windows, &why)) {
        answer(rq, RES_SYSTEM_ERROR, why.text);
        return;
    }
    struct buf body = buf_upto(BODY_MAX);
    struct json_out w = {.buf = &body};
    json_open(&w);
    window_write(&w, "statsDay", &windows.day);
    window_write(&w, "statsHour", &windows.hour);
    window_write(&w, "statsMinute", &windows.minute);
    json_close(&w);
    answer_buf(rq, &body);
}
