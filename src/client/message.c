/* message.c - from an application's message to a job: checked, compressed, copied.
 *
 * Runs on the application's thread, so that this work is spread over as many cores as the
 * application uses. */
#include "client/producer_int.h"

#include <stdlib.h>

#define OWN_ROOM 144 /* names, numbers and separators of our own properties */

/* ---- checks ---- */

static int property_check(const char *name, const char *value, struct omq_error *why)
{
    if (!name || !name[0] || !value || !value[0])
        return omq_fail(why, OMQ_INVALID,
                        "a property needs a name and a value; the protocol keeps no empty ones");
    if (strpbrk(name, "\1\2") || strpbrk(value, "\1\2"))
        return omq_fail(
            why, OMQ_INVALID,
            "property %.100s: the bytes 1 and 2 separate properties and cannot be in one", name);
    return OMQ_OK;
}

static int properties_check(const struct omq_message *m, struct omq_error *why)
{
    const struct omq_property words[] = {
        {"tag", m->tag}, {"keys", m->keys}, {"id", m->id}, {"sharding_key", m->sharding_key}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (words[i].value && words[i].value[0] &&
            property_check(words[i].name, words[i].value, why))
            return OMQ_INVALID;
    if (m->id && strlen(m->id) >= sizeof(((struct draft *)0)->id))
        return omq_fail(why, OMQ_INVALID, "an id has at most 63 bytes");
    if (m->n_properties > 0 && !m->properties)
        return omq_fail(why, OMQ_INVALID, "%zu properties are NULL", m->n_properties);
    for (size_t i = 0; i < m->n_properties; i++)
        if (property_check(m->properties[i].name, m->properties[i].value, why))
            return OMQ_INVALID;
    return OMQ_OK;
}

static int message_check(const struct omq_producer *producer, const struct omq_message *m,
                         struct omq_error *why)
{
    struct fault fault = {0};
    if (!m->topic || topic_name_check(bytes_str(m->topic), &fault))
        return omq_fail(why, OMQ_INVALID, "%s", m->topic ? fault.text : "a message has no topic");
    if (m->body_size > 0 && !m->body)
        return omq_fail(why, OMQ_INVALID, "a body of %zu bytes is NULL", m->body_size);
    if (m->body_size > producer->options.max_message_size)
        return omq_fail(why, OMQ_TOO_BIG,
                        "the body has %zu bytes, more than %zu (max_message_size)", m->body_size,
                        producer->options.max_message_size);
    if (m->delay_level < 0 || m->delay_ms < 0 || m->deliver_ms < 0)
        return omq_fail(why, OMQ_INVALID, "a delay is negative");
    if ((m->delay_level > 0) + (m->delay_ms > 0) + (m->deliver_ms > 0) > 1)
        return omq_fail(why, OMQ_INVALID,
                        "at most one of delay_level, delay_ms and deliver_ms can be given");
    if (m->queue && (!m->queue->broker || !m->queue->broker[0] || m->queue->id < 0))
        return omq_fail(why, OMQ_INVALID, "a queue needs its broker's name and a number from 0 on");
    if (m->queue && strlen(m->queue->broker) >= sizeof(((struct omq_receipt *)0)->broker))
        return omq_fail(why, OMQ_INVALID, "no broker has a name of 256 bytes or more");
    return properties_check(m, why);
}

/* ---- drafts ---- */

int draft_begin(struct draft *draft, struct omq_producer *producer,
                const struct omq_message *message, struct omq_error *why)
{
    *draft = (struct draft){.message = message};
    if (!message)
        return omq_fail(why, OMQ_INVALID, "there is no message");
    int code = message_check(producer, message, why);
    if (code)
        return code;
    if (message->id && message->id[0])
        text_copy(draft->id, sizeof draft->id, bytes_str(message->id));
    else
        client_new_id(producer->client, draft->id);
    return OMQ_OK;
}

void draft_add(struct draft *draft, const char *name, const char *value)
{
    invariant(draft->n_extra < EXTRA_MAX);
    draft->extra[draft->n_extra++] = (struct omq_property){name, value};
}

static size_t length(const char *text)
{
    return text ? strlen(text) : 0;
}

size_t draft_props_room(const struct draft *draft)
{
    const struct omq_message *m = draft->message;
    size_t room =
        OWN_ROOM + length(m->tag) + length(m->keys) + length(m->sharding_key) + strlen(draft->id);
    for (size_t i = 0; i < m->n_properties; i++)
        room += strlen(m->properties[i].name) + strlen(m->properties[i].value) + 2;
    for (size_t i = 0; i < draft->n_extra; i++)
        room += strlen(draft->extra[i].name) + strlen(draft->extra[i].value) + 2;
    return room;
}

static void add_text(struct wr *w, struct bytes name, const char *value)
{
    if (value && value[0])
        props_add(w, name, bytes_str(value));
}

static void add_number(struct wr *w, struct bytes name, int64_t value)
{
    if (value > 0)
        props_add_int(w, name, value);
}

/* Readers let the last of equal names win, so ours come last. */
void draft_props_write(const struct draft *draft, struct wr *w)
{
    const struct omq_message *m = draft->message;
    for (size_t i = 0; i < m->n_properties; i++)
        add_text(w, bytes_str(m->properties[i].name), m->properties[i].value);
    add_text(w, PROP_TAGS, m->tag);
    add_text(w, PROP_KEYS, m->keys);
    add_text(w, BYTES("__SHARDINGKEY"), m->sharding_key);
    add_number(w, PROP_DELAY, m->delay_level);
    add_number(w, BYTES("TIMER_DELAY_MS"), m->delay_ms);
    add_number(w, BYTES("TIMER_DELIVER_MS"), m->deliver_ms);
    props_add(w, PROP_WAIT, m->no_wait ? BYTES("false") : BYTES("true"));
    for (size_t i = 0; i < draft->n_extra; i++)
        add_text(w, bytes_str(draft->extra[i].name), draft->extra[i].value);
    add_text(w, PROP_UNIQ_KEY, draft->id);
}

/* ---- jobs ---- */

struct job *job_alloc(struct omq_producer *producer, const struct omq_message *like,
                      size_t props_room, size_t body_room)
{
    size_t topic_len = strlen(like->topic), broker_len = 0, key_len = 0;
    if (like->queue)
        broker_len = strlen(like->queue->broker);
    else
        key_len = length(like->sharding_key);
    struct job *job =
        malloc(sizeof *job + topic_len + broker_len + key_len + props_room + body_room);
    if (!job)
        return NULL;
    memset(job, 0, sizeof *job);
    struct wr w = wr_over(job->text, topic_len + broker_len + key_len + props_room + body_room);
    job->topic = bytes_of(w.at, topic_len);
    wr_bytes_of(&w, bytes_str(like->topic));
    job->pinned_broker = bytes_of(w.at, broker_len);
    if (like->queue)
        wr_bytes_of(&w, bytes_str(like->queue->broker));
    job->shard_key = bytes_of(w.at, key_len);
    wr_bytes_of(&w, bytes_of(like->sharding_key, key_len));
    job->space = w.at;
    job->props = bytes_of(w.at, props_room);
    job->body = bytes_of(w.at + props_room, body_room);
    job->pinned_id = like->queue ? like->queue->id : -1;
    job->sharded = key_len > 0;
    job->flag = like->flag;
    job->producer = producer;
    job->group = bytes_str(producer->group);
    job->request = REQ_SEND_MESSAGE_V2;
    return job;
}

void job_free(struct job *job)
{
    if (!job)
        return;
    free(job->offset_ids);
    free(job->kept);
    free(job->why);
    free(job->copy);
    free(job);
}

/* One block: the message, its properties, its texts. */
static struct omq_message *message_copy(const struct omq_message *m)
{
    size_t size = sizeof *m + m->n_properties * sizeof *m->properties + m->body_size +
                  strlen(m->topic) + length(m->tag) + length(m->keys) + length(m->sharding_key) + 4;
    for (size_t i = 0; i < m->n_properties; i++)
        size += strlen(m->properties[i].name) + strlen(m->properties[i].value) + 2;
    struct omq_message *copy = malloc(size);
    if (!copy)
        return NULL;
    *copy = *m;
    struct omq_property *properties = (struct omq_property *)(void *)(copy + 1);
    char *at = (char *)(properties + m->n_properties);
#define COPY(from) ((from) ? (at = stpcpy(at, (from)) + 1, at - strlen(from) - 1) : NULL)
    copy->topic = COPY(m->topic);
    copy->tag = COPY(m->tag);
    copy->keys = COPY(m->keys);
    copy->sharding_key = COPY(m->sharding_key);
    for (size_t i = 0; i < m->n_properties; i++) {
        properties[i].name = COPY(m->properties[i].name);
        properties[i].value = COPY(m->properties[i].value);
    }
#undef COPY
    copy->properties = properties;
    copy->id = NULL;
    copy->body = m->body_size > 0 ? memcpy(at, m->body, m->body_size) : NULL;
    return copy;
}

int job_make(struct omq_producer *producer, const struct draft *draft, struct job **out,
             struct omq_error *why)
{
    const struct omq_message *m = draft->message;
    size_t room = draft_props_room(draft);
    if (room > RECORD_PROPS_MAX)
        return omq_fail(why, OMQ_TOO_BIG, "the properties have more than %d bytes",
                        RECORD_PROPS_MAX - OWN_ROOM);
    struct bytes body = bytes_of(m->body, m->body_size);
    struct buf packed = buf_upto(m->body_size);
    bool smaller = producer_compress(producer, body, &packed);
    if (smaller)
        body = buf_bytes(&packed);
    struct job *job = job_alloc(producer, m, room, body.len);
    if (job && producer->options.choose && job->sharded && !(job->copy = message_copy(m))) {
        job_free(job);
        job = NULL;
    }
    if (!job) {
        buf_clear(&packed);
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for a message of %zu bytes", m->body_size);
    }
    struct wr w = wr_over(job->space, room);
    draft_props_write(draft, &w);
    invariant(!w.full);
    job->props.len = wr_len(&w);
    if (body.len > 0)
        memcpy(job->space + room, body.at, body.len);
    buf_clear(&packed);
    job->plain_size = m->body_size;
    job->sys_flag = draft->sys_flag;
    if (smaller)
        job->sys_flag |= SYS_COMPRESSED | compression_flags(producer->options.compression);
    if (draft->request)
        job->request = draft->request;
    text_copy(job->receipt.id, sizeof job->receipt.id, bytes_str(draft->id));
    *out = job;
    return OMQ_OK;
}
