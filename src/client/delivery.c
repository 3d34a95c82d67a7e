/* delivery.c - from a record to what the application sees.
 *
 * One allocation for each message, with all its texts; the body stays where it was read to, unless
 * it was compressed. */
#include "client/consumer_int.h"

#include <stdio.h>
#include <stdlib.h>

static void parcel_release(struct counted *counted)
{
    free(list_entry(counted, struct parcel, counted));
}

struct parcel *parcel_make(struct bytes records, const struct omq_queue *queue)
{
    size_t topic_size = strlen(queue->topic) + 1, broker_size = strlen(queue->broker) + 1;
    struct parcel *parcel = malloc(sizeof *parcel + records.len + topic_size + broker_size);
    if (!parcel)
        return NULL;
    counted_init(&parcel->counted, parcel_release);
    parcel->len = records.len;
    if (records.len > 0)
        memcpy(parcel->bytes, records.at, records.len);
    char *texts = (char *)parcel->bytes + records.len;
    parcel->queue.topic = memcpy(texts, queue->topic, topic_size);
    parcel->queue.broker = memcpy(texts + topic_size, queue->broker, broker_size);
    parcel->queue.id = queue->id;
    return parcel;
}

/* ---- texts ---- */

static size_t props_count(struct bytes props)
{
    size_t n = 0;
    struct props_walk walk = props_walk(props);
    struct prop prop;
    while (props_next(&walk, &prop))
        n++;
    return n;
}

static char *put(char **at, struct bytes text)
{
    char *start = *at;
    if (text.len > 0)
        memcpy(start, text.at, text.len);
    start[text.len] = 0;
    *at += text.len + 1;
    return start;
}

static const char *property(const struct omq_delivery *d, const char *name)
{
    for (size_t i = d->n_properties; i > 0; i--) /* the last of equal names counts */
        if (strcmp(d->properties[i - 1].name, name) == 0)
            return d->properties[i - 1].value;
    return NULL;
}

const char *omq_delivery_property(const struct omq_delivery *delivery, const char *name)
{
    return delivery && name ? property(delivery, name) : NULL;
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

/* ---- making one ---- */

#define EXPANDED_MAX (64u << 20) /* of a compressed body */
#define FIXED_TEXTS  (ID_TEXT_MAX + ADDR_TEXT_MAX)

static void texts_fill(struct held *held, const struct record *r, struct omq_property *properties,
                       char *at)
{
    struct omq_delivery *d = &held->delivery;
    struct props_walk walk = props_walk(r->props);
    struct prop prop;
    size_t n = 0;
    while (props_next(&walk, &prop)) {
        properties[n].name = put(&at, prop.name);
        properties[n++].value = put(&at, prop.value);
    }
    d->properties = properties;
    d->n_properties = n;
    char offset_id[ID_TEXT_MAX], host[ADDR_TEXT_MAX];
    (void)id_format(&r->store_host, r->position, offset_id);
    addr_format(&r->born_host, host);
    d->offset_id = put(&at, bytes_str(offset_id));
    d->born_host = put(&at, bytes_str(host));
    d->id = property(d, "UNIQ_KEY");
    d->id = d->id ? d->id : d->offset_id;
    d->tag = or_empty(property(d, "TAGS"));
    d->keys = or_empty(property(d, "KEYS"));
}

enum err held_make(struct parcel *parcel, const struct record *r, struct held **out)
{
    size_t n = props_count(r->props);
    size_t texts = r->props.len + 2 * n + FIXED_TEXTS;
    struct held *held = calloc(1, sizeof *held + n * sizeof(struct omq_property) + texts);
    if (!held)
        return ERR_NO_MEMORY;
    struct omq_property *properties = (struct omq_property *)(held + 1);
    texts_fill(held, r, properties, (char *)(properties + n));
    struct omq_delivery *d = &held->delivery;
    d->queue = parcel->queue;
    const char *origin = property(d, "RETRY_TOPIC");
    if (origin)
        d->queue.topic = origin;
    d->offset = r->queue_offset;
    d->body = r->body.at;
    d->body_size = r->body.len;
    d->flag = r->flag;
    d->attempt = r->reconsume_times < INT32_MAX ? r->reconsume_times + 1 : INT32_MAX;
    d->born_ms = r->born_ms;
    d->stored_ms = r->store_ms;
    held->parcel = parcel;
    held->size = r->size;
    held->position = r->position;
    held->reconsumed = r->reconsume_times;
    held->sys_flag = r->sys_flag;
    counted_hold(&parcel->counted);
    *out = held;
    return OK;
}

enum err held_expand(struct held *held)
{
    if (held->damaged)
        return ERR_MALFORMED;
    if (!(held->sys_flag & SYS_COMPRESSED) || held->unpacked)
        return OK;
    struct buf body = buf_upto(EXPANDED_MAX);
    struct compressor compressor = {0};
    enum err err = body_expand(&compressor, held->sys_flag,
                               bytes_of(held->delivery.body, held->delivery.body_size), &body);
    compressor_clear(&compressor);
    if (err) {
        buf_clear(&body);
        return err;
    }
    held->unpacked = body.at;
    held->delivery.body = body.at;
    held->delivery.body_size = body.len;
    held->sys_flag &= ~SYS_COMPRESSED;
    return OK;
}

void held_free(struct held *held)
{
    if (!held)
        return;
    if (held->parcel)
        counted_drop(&held->parcel->counted);
    free(held->unpacked);
    free(held->handle);
    free(held);
}

/* ---- copies of the application's ---- */

struct copy {
    struct omq_delivery delivery; /* first */
};

static size_t text_size(const char *text)
{
    return strlen(text) + 1;
}

struct omq_delivery *omq_delivery_copy(const struct omq_delivery *d)
{
    if (!d)
        return NULL;
    const char *const texts[] = {d->queue.topic, d->queue.broker, d->id,       d->offset_id,
                                 d->tag,         d->keys,         d->born_host};
    size_t size = sizeof(struct copy) + d->n_properties * sizeof *d->properties + d->body_size;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        size += text_size(texts[i]);
    for (size_t i = 0; i < d->n_properties; i++)
        size += text_size(d->properties[i].name) + text_size(d->properties[i].value);
    struct copy *copy = malloc(size);
    if (!copy)
        return NULL;
    copy->delivery = *d;
    copy->delivery.run = NULL;
    struct omq_delivery *to = &copy->delivery;
    struct omq_property *properties = (struct omq_property *)(copy + 1);
    char *at = (char *)(properties + d->n_properties);
    to->body = d->body_size ? memcpy(at, d->body, d->body_size) : NULL;
    at += d->body_size;
    const char **copies[] = {&to->queue.topic, &to->queue.broker, &to->id,       &to->offset_id,
                             &to->tag,         &to->keys,         &to->born_host};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        *copies[i] = put(&at, bytes_str(texts[i]));
    for (size_t i = 0; i < d->n_properties; i++) {
        properties[i].name = put(&at, bytes_str(d->properties[i].name));
        properties[i].value = put(&at, bytes_str(d->properties[i].value));
    }
    to->properties = properties;
    return to;
}

void omq_delivery_free(struct omq_delivery *delivery)
{
    free(delivery);
}
