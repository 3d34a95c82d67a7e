/* puppet_ask.c - what a test wants to know, and messages that were received. */
#include "puppet.h"

#include <openssl/sha.h>
#include <stdio.h>

#define BODY_SHOWN 1024 /* longer bodies are told by size and digest only */

/* As java.util.zip.CRC32 has it; its test program puts that into a property. */
static uint32_t crc_of(const uint8_t *at, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    }
    return ~crc;
}

void delivery_members(struct json_out *w, const struct omq_delivery *d)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    char hex[2 * sizeof digest + 1];
    (void)SHA256(d->body_size ? d->body : "", d->body_size, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    json_text_member(w, "topic", bytes_str(d->queue.topic));
    json_text_member(w, "broker", bytes_str(d->queue.broker));
    json_text_member(w, "id", bytes_str(d->id));
    json_text_member(w, "offset_id", bytes_str(d->offset_id));
    json_int_member(w, "queue", d->queue.id);
    json_int_member(w, "offset", d->offset);
    json_text_member(w, "tag", bytes_str(d->tag));
    json_text_member(w, "keys", bytes_str(d->keys));
    json_int_member(w, "flag", d->flag);
    json_int_member(w, "reconsume", d->attempt - 1);
    json_text_member(w, "body", bytes_of(d->body, d->body_size <= BODY_SHOWN ? d->body_size : 0));
    json_int_member(w, "size", (int64_t)d->body_size);
    json_text_member(w, "digest", bytes_str(hex));
    json_int_member(w, "crc", crc_of(d->body, d->body_size));
    json_key(w, "properties");
    json_open(w);
    for (size_t i = 0; i < d->n_properties; i++)
        json_text_member(w, d->properties[i].name, bytes_str(d->properties[i].value));
    json_close(w);
    json_text_member(w, "born_host", bytes_str(d->born_host));
    json_int_member(w, "born", d->born_ms);
    json_int_member(w, "stored", d->stored_ms);
}

void delivery_write(struct json_out *w, const struct omq_delivery *d)
{
    json_open(w);
    delivery_members(w, d);
    json_close(w);
}

static struct omq_client *client_find(struct command *c)
{
    return thing_find(arg_text(c->args, "client", c->arena));
}

static int play_view(struct command *c)
{
    struct omq_delivery *found;
    int code = omq_view(client_find(c), arg_text(c->args, "topic", c->arena),
                        arg_text(c->args, "offset_id", c->arena), &found, &c->why);
    if (code)
        return code;
    struct json_out w = {.buf = &c->result};
    delivery_write(&w, found);
    omq_delivery_free(found);
    return OMQ_OK;
}

static int found_tell(struct command *c, struct omq_found *found, int64_t next)
{
    struct json_out w = {.buf = &c->result};
    json_open(&w);
    json_key(&w, "messages");
    json_open_array(&w);
    for (size_t i = 0; i < found->n; i++)
        delivery_write(&w, found->messages[i]);
    json_close_array(&w);
    json_int_member(&w, "next", next);
    json_close(&w);
    omq_found_free(found);
    return OMQ_OK;
}

static int play_query(struct command *c)
{
    const struct omq_query query = {
        .topic = arg_text(c->args, "topic", c->arena),
        .key = arg_text(c->args, "key", c->arena),
        .id = arg_text(c->args, "unique", c->arena), /* "id" is the command's own */
        .begin_ms = arg_int(c->args, "begin"),
        .end_ms = arg_int(c->args, "end"),
        .max = (int)arg_int(c->args, "max"),
    };
    struct omq_found found;
    int code = omq_query(client_find(c), &query, &found, &c->why);
    return code ? code : found_tell(c, &found, 0);
}

static int play_look(struct command *c)
{
    const struct omq_subscription filter = {.expression = arg_text(c->args, "expression", c->arena),
                                            .sql = arg_bool(c->args, "sql")};
    const struct omq_read read = {
        .queue = {.topic = arg_text(c->args, "topic", c->arena),
                  .broker = arg_text(c->args, "broker", c->arena),
                  .id = (int32_t)arg_int(c->args, "queue")},
        .offset = arg_int(c->args, "offset"),
        .max = (int)arg_int(c->args, "max"),
        .filter = filter.expression ? &filter : NULL,
        .wait_ms = (int)arg_int(c->args, "wait_ms"),
    };
    struct omq_found found;
    int64_t next;
    int code = omq_read(client_find(c), &read, &found, &next, &c->why);
    return code ? code : found_tell(c, &found, next);
}

/* "readable": those that can be read. */
static int play_queues(struct command *c)
{
    struct omq_queue *queues;
    size_t n;
    const char *topic = arg_text(c->args, "topic", c->arena);
    int code = arg_bool(c->args, "readable")
                   ? omq_topic_readable(client_find(c), topic, &queues, &n, &c->why)
                   : omq_topic_queues(client_find(c), topic, &queues, &n, &c->why);
    if (code)
        return code;
    struct json_out w = {.buf = &c->result};
    json_open_array(&w);
    for (size_t i = 0; i < n; i++) {
        json_open(&w);
        json_text_member(&w, "topic", bytes_str(queues[i].topic));
        json_text_member(&w, "broker", bytes_str(queues[i].broker));
        json_int_member(&w, "id", queues[i].id);
        json_close(&w);
    }
    json_close_array(&w);
    omq_queues_free(queues);
    return OMQ_OK;
}

/* "bound": "begin" or "end"; or "time": ms. */
static int play_offset(struct command *c)
{
    struct omq_queue queue = {.topic = arg_text(c->args, "topic", c->arena),
                              .broker = arg_text(c->args, "broker", c->arena),
                              .id = (int32_t)arg_int(c->args, "queue")};
    struct bytes bound = json_text(json_member(c->args, "bound"), BYTES(""));
    int64_t offset;
    int code = bound.len == 0 ? omq_offset_at(client_find(c), &queue, arg_int(c->args, "time"),
                                              &offset, &c->why)
                              : omq_offset(client_find(c), &queue,
                                           bytes_equal(bound, BYTES("begin")) ? OMQ_BEGIN : OMQ_END,
                                           &offset, &c->why);
    if (code)
        return code;
    struct json_out w = {.buf = &c->result};
    json_put_int(&w, offset);
    return OMQ_OK;
}

const struct part ask_parts[] = {
    {"view", play_view},     {"query", play_query},   {"look", play_look},
    {"queues", play_queues}, {"offset", play_offset}, {NULL, NULL},
};
