/* admin.c - what an operator asks for: settings of topics and groups, and how things stand. */
#include "door/remoting/door_int.h"

#include <stdio.h>

#define TOPICS_MAX 4096 /* named in one request */

void answer_fate(const struct request *rq, enum err err, const struct fault *why)
{
    if (err)
        answer_fault(rq, err == ERR_TOO_BIG ? ERR_NO_MEMORY : err, why);
    else
        answer_saved(rq, NULL);
}

bool told_begin(struct told *t, const struct request *rq, enum err err, const struct fault *why)
{
    if (err) {
        answer_fate(rq, err, why);
        return false;
    }
    t->body = buf_upto(BODY_MAX);
    t->w = (struct json_out){.buf = &t->body};
    return true;
}

void told_end(struct told *t, const struct request *rq, enum err err)
{
    if (!err) {
        answer_buf(rq, &t->body);
        return;
    }
    buf_clear(&t->body);
    answer_fate(rq, err, NULL);
}

/* ---- topics ---- */

void admin_topic_set(struct door *door, struct request *rq)
{
    struct topic_fields f = {0};
    if (!request_fields(rq, &create_topic_table, &f))
        return;
    bool multi = bytes_equal(f.filter_type, BYTES("MULTI_TAG"));
    if (!multi && !bytes_equal(f.filter_type, BYTES("SINGLE_TAG"))) {
        answer(rq, RES_INVALID_PARAMETER, "topicFilterType should be SINGLE_TAG or MULTI_TAG");
        return;
    }
    struct topic_settings set = {
        .name = f.topic,
        .read_queues = f.read_queues,
        .write_queues = f.write_queues,
        .perm = f.perm,
        .sys_flag = f.sys_flag,
        .order = f.order,
        .multi_tag = multi,
    };
    struct fault why = {0};
    enum err err = broker_topic_set(door->broker, &set, f.attributes, &why);
    answer_fate(rq, err, &why);
    if (!err)
        log_event(door->log, LOG_INFO, "topic set topic=%s read=%d write=%d perm=%d",
                  LOG_QUOTE(f.topic), f.read_queues, f.write_queues, f.perm);
}

void admin_topic_delete(struct door *door, struct request *rq)
{
    struct topic_fields f = {0};
    if (!request_fields(rq, &topic_table, &f))
        return;
    struct fault why = {0};
    enum err err = broker_topic_delete(door->broker, f.topic, &why);
    answer_fate(rq, err, &why);
    if (!err)
        log_event(door->log, LOG_INFO, "topic deleted topic=%s", LOG_QUOTE(f.topic));
}

void admin_topic_get(struct door *door, struct request *rq)
{
    struct topic_fields f = {0};
    if (!request_fields(rq, &topic_table, &f))
        return;
    struct topic_settings set;
    struct fault why = {0};
    enum err err = broker_topic_get(door->broker, f.topic, rq->arena, &set, &why);
    struct told t;
    if (!told_begin(&t, rq, err, &why))
        return;
    topic_settings_write(&t.w, &set);
    told_end(&t, rq, OK);
}

/* The whole table; a request for a part of it is answered with all, which ends the asking. */
static void answer_table(struct door *door, struct request *rq, enum table_name which)
{
    struct buf body = buf_upto(BODY_MAX);
    if (broker_table_write(door->broker, which, &body))
        log_limited(door->log, &door->bad_input, LOG_WARN,
                    "table does not fit into an answer table=%d bytes=%zu", which, body.len);
    answer_buf(rq, &body);
}

void admin_topics(struct door *door, struct request *rq)
{
    answer_table(door, rq, TABLE_TOPICS);
}

/* ---- groups ---- */

void admin_group_set(struct door *door, struct request *rq)
{
    const struct json *doc = NULL;
    struct group_settings set;
    enum err err = json_parse(rq->body, rq->arena, &doc, NULL);
    if (!err && doc->type != JSON_OBJECT)
        err = ERR_MALFORMED;
    if (!err)
        err = group_settings_read(doc, (struct bytes){0}, rq->arena, &set);
    if (err) {
        answer(rq, RES_SYSTEM_ERROR,
               "the body should be the settings of a group, and cannot be read");
        return;
    }
    struct fault why = {0};
    err = broker_group_set(door->broker, &set, &why);
    answer_fate(rq, err, &why);
    if (!err)
        log_event(door->log, LOG_INFO, "group set group=%s", LOG_QUOTE(set.name));
}

void admin_group_delete(struct door *door, struct request *rq)
{
    struct group_fields f = {0};
    if (!request_fields(rq, &delete_group_table, &f))
        return;
    struct fault why = {0};
    enum err err = broker_group_delete(door->broker, f.group, f.clean_offsets, &why);
    answer_fate(rq, err, &why);
    if (!err)
        log_event(door->log, LOG_INFO, "group deleted group=%s offsets=%s", LOG_QUOTE(f.group),
                  f.clean_offsets ? "too" : "kept");
}

void admin_group_get(struct door *door, struct request *rq)
{
    struct group_fields f = {0};
    if (!request_fields(rq, &group_table, &f))
        return;
    struct group_settings set;
    struct fault why = {0};
    enum err err = broker_group_get(door->broker, f.group, rq->arena, &set, &why);
    struct told t;
    if (!told_begin(&t, rq, err, &why))
        return;
    group_settings_write(&t.w, &set);
    told_end(&t, rq, OK);
}

void admin_groups(struct door *door, struct request *rq)
{
    answer_table(door, rq, TABLE_GROUPS);
}

/* ---- queues and progress ---- */

void queue_key_write(const struct door *door, struct json_out *w, struct bytes topic,
                     int32_t queue_id)
{
    queue_name_write(w,
                     &(struct queue_name){topic, bytes_str(door->options.broker_name), queue_id});
    json_key_object(w);
}

void admin_topic_stats(struct door *door, struct request *rq)
{
    struct topic_fields f = {0};
    if (!request_fields(rq, &topic_table, &f))
        return;
    struct queue_stat *stats;
    size_t n;
    struct fault why = {0};
    double per_second;
    enum err err =
        broker_topic_stats(door->broker, f.topic, rq->arena, &stats, &n, &per_second, &why);
    struct told t;
    if (!told_begin(&t, rq, err, &why))
        return;
    json_open(&t.w);
    json_key(&t.w, "offsetTable");
    json_open(&t.w);
    for (size_t i = 0; i < n; i++) {
        queue_key_write(door, &t.w, f.topic, (int32_t)i);
        json_open(&t.w);
        json_int_member(&t.w, "lastUpdateTimestamp", stats[i].last_ms);
        json_int_member(&t.w, "maxOffset", stats[i].max);
        json_int_member(&t.w, "minOffset", stats[i].min);
        json_close(&t.w);
    }
    json_close(&t.w);
    json_key(&t.w, "topicPutTps");
    json_put_real(&t.w, per_second);
    json_close(&t.w);
    told_end(&t, rq, OK);
}

/* Names joined by semicolons; false: too many, or no memory. */
static bool names_split(struct bytes text, struct arena *arena, struct bytes **out, size_t *n)
{
    *n = 0;
    *out = arena_alloc(arena, TOPICS_MAX * sizeof **out);
    if (!*out)
        return false;
    size_t start = 0;
    for (size_t i = 0; i <= text.len; i++) {
        if (i < text.len && text.at[i] != ';')
            continue;
        if (i > start && *n == TOPICS_MAX)
            return false;
        if (i > start)
            (*out)[(*n)++] = bytes_of(text.at + start, i - start);
        start = i + 1;
    }
    return true;
}

void consume_stats_write(const struct door *door, struct json_out *w,
                         const struct consume_stat *stats, size_t n, double per_second)
{
    json_open(w);
    json_key(w, "consumeTps");
    json_put_real(w, per_second);
    json_key(w, "offsetTable");
    json_open(w);
    for (size_t i = 0; i < n; i++) {
        const struct consume_stat *s = &stats[i];
        queue_key_write(door, w, s->topic, s->queue_id);
        json_open(w);
        json_int_member(w, "brokerOffset", s->max);
        json_int_member(w, "consumerOffset", s->offset);
        json_int_member(w, "lastTimestamp", s->last_ms);
        json_int_member(w, "pullOffset", s->offset);
        json_close(w);
    }
    json_close(w);
    json_close(w);
}

void admin_consume_stats(struct door *door, struct request *rq)
{
    struct group_fields f = {0};
    if (!request_fields(rq, &consume_stats_table, &f))
        return;
    struct bytes *topics = &f.topic;
    size_t n_topics = f.topic.len > 0;
    if (f.topics.len && !names_split(f.topics, rq->arena, &topics, &n_topics)) {
        answer(rq, RES_INVALID_PARAMETER, "topicList names too many topics");
        return;
    }
    struct consume_stat *stats;
    size_t n;
    double per_second;
    enum err err = broker_consume_stats(door->broker, f.group, topics, n_topics, f.topics.len > 0,
                                        rq->arena, &stats, &n, &per_second);
    struct told t;
    if (!told_begin(&t, rq, err, NULL))
        return;
    consume_stats_write(door, &t.w, stats, n, per_second);
    told_end(&t, rq, OK);
}

void admin_topic_groups(struct door *door, struct request *rq)
{
    struct topic_fields f = {0};
    if (!request_fields(rq, &topic_table, &f))
        return;
    struct bytes *groups;
    size_t n;
    enum err err = broker_topic_groups(door->broker, f.topic, rq->arena, &groups, &n);
    struct told t;
    if (!told_begin(&t, rq, err, NULL))
        return;
    json_open(&t.w);
    json_key(&t.w, "groupList");
    json_open_array(&t.w);
    for (size_t i = 0; i < n; i++)
        json_put_text(&t.w, groups[i]);
    json_close_array(&t.w);
    json_close(&t.w);
    told_end(&t, rq, OK);
}

void admin_reset(struct door *door, struct request *rq)
{
    struct group_fields f = {.queue_id = -1, .offset = -1};
    if (!request_fields(rq, &reset_offset_table, &f))
        return;
    struct offsets_reset reset = {
        .group = f.group,
        .topic = f.topic,
        .queue_id = f.queue_id,
        .timestamp_ms = f.timestamp,
        .offset = f.offset,
        .force = f.force,
    };
    struct fault why = {0};
    enum err err = broker_offsets_reset(door->broker, &reset, rq->arena, &why);
    if (err == ERR_NOT_SUBSCRIBED)
        answer(rq, RES_CONSUMER_NOT_ONLINE, fault_remark(err, &why));
    else if (err == ERR_RANGE)
        answer(rq, RES_SYSTEM_ERROR, fault_remark(err, &why));
    else if (err)
        answer_fate(rq, err, &why);
    if (err)
        return;
    log_event(door->log, LOG_INFO, "offsets reset group=%s topic=%s timestamp=%lld queues=%zu",
              LOG_QUOTE(f.group), LOG_QUOTE(f.topic), (long long)f.timestamp, reset.n);
    struct buf body = buf_upto(BODY_MAX);
    reset_write(door, &reset, &body);
    answer_saved(rq, &body);
}

void admin_clone(struct door *door, struct request *rq)
{
    struct group_fields f = {0};
    if (!request_fields(rq, &clone_offset_table, &f))
        return;
    struct offsets_clone clone = {
        .from = f.from_group, .to = f.group, .topic = f.topic, .offline = f.offline};
    size_t queues;
    struct fault why = {0};
    enum err err = broker_offsets_clone(door->broker, &clone, &queues, &why);
    answer_fate(rq, err, &why);
    if (!err)
        log_event(door->log, LOG_INFO, "offsets cloned from=%s to=%s queues=%zu",
                  LOG_QUOTE(f.from_group), LOG_QUOTE(f.group), queues);
}
