/* body_pop.c - POP: the handle of a message, acknowledgements of many, and who is told to pop. */
#include "base/base64.h"
#include "remoting/bodies_int.h"

/* ---- handles: "start popTime invisibleTime reviveQid r brokerName queueId offset" ---- */

#define HANDLE_LEAST 6 /* parts: Apache's broker looks as far as the name of the broker */
#define HANDLE_WHOLE 8

static struct bytes part_next(struct bytes *rest, char between)
{
    const uint8_t *end = rest->len ? memchr(rest->at, between, rest->len) : NULL;
    struct bytes part = {rest->at, end ? (size_t)(end - rest->at) : rest->len};
    *rest = bytes_from(*rest, end ? part.len + 1 : part.len);
    return part;
}

enum err pop_handle_read(struct bytes text, struct pop_handle *out)
{
    struct pop_handle h;
    struct bytes parts[HANDLE_LEAST];
    for (size_t i = 0; i < HANDLE_LEAST; i++) {
        parts[i] = part_next(&text, ' ');
        if (parts[i].len == 0)
            return ERR_MALFORMED;
    }
    if (!bytes_to_i64(parts[0], &h.start) || !bytes_to_i64(parts[1], &h.pop_ms) ||
        !bytes_to_i64(parts[2], &h.invisible_ms) || !bytes_to_i32(parts[3], &h.revive_id))
        return ERR_MALFORMED;
    *out = h;
    return OK;
}

enum err pop_place_read(struct bytes text, struct pop_place *out)
{
    struct pop_place p;
    struct bytes parts[HANDLE_WHOLE];
    for (size_t i = 0; i < HANDLE_WHOLE; i++)
        parts[i] = part_next(&text, ' ');
    if (text.len > 0 || !bytes_to_i32(parts[4], &p.kind) || p.kind < 0 || p.kind > 2 ||
        !bytes_to_i32(parts[6], &p.queue_id) || p.queue_id < 0 ||
        !bytes_to_i64(parts[7], &p.offset) || p.offset < 0)
        return ERR_MALFORMED;
    *out = p;
    return OK;
}

enum err pop_start_find(struct bytes info, int32_t queue_id, int64_t *out)
{
    while (info.len > 0) {
        struct bytes item = part_next(&info, ';');
        struct bytes kind = part_next(&item, ' '), queue = part_next(&item, ' ');
        int32_t id;
        if (!bytes_equal(kind, BYTES("0")) || !bytes_to_i32(queue, &id) || id != queue_id)
            continue;
        return bytes_to_i64(item, out) ? OK : ERR_MALFORMED;
    }
    return ERR_NOT_FOUND;
}

/* ---- BATCH_ACK_MESSAGE ---- */

/* Java's BitSet as bytes: bit i of byte k is message 8k + i. At most so many are acknowledged at
 * once as were handed out at once. */
static enum err bits_read(struct bytes text, int64_t start, struct batch_ack *out)
{
    uint32_t pending = 0;
    int64_t bits = 0, byte = 0;
    while (text.len > 0 && text.at[text.len - 1] == '=')
        text.len--;
    for (size_t i = 0; i < text.len; i++) {
        int value = base64_digit(BASE64_TEXT, text.at[i]);
        if (value < 0)
            return ERR_MALFORMED;
        pending = pending << 6 | (uint32_t)value;
        bits += 6;
        if (bits < 8)
            continue;
        bits -= 8;
        for (int bit = 0; bit < 8; bit++) {
            if (!(pending >> bits & 1u << bit))
                continue;
            if (out->n == BATCH_ACK_MAX)
                return ERR_TOO_BIG;
            if (__builtin_add_overflow(start, 8 * byte + bit, &out->offsets[out->n++]))
                return ERR_MALFORMED;
        }
        byte++;
    }
    return OK;
}

static bool int32_of(const struct json *node, int32_t *out)
{
    int64_t value = json_int(node, INT64_MIN);
    *out = (int32_t)value;
    return value >= INT32_MIN && value <= INT32_MAX;
}

static enum err ack_read(const struct json *node, struct batch_ack *out)
{
    if (node->type != JSON_OBJECT)
        return ERR_MALFORMED;
    out->group = json_text(json_member(node, "c"), BYTES(""));
    out->topic = json_text(json_member(node, "t"), BYTES(""));
    out->retry = json_text(json_member(node, "r"), BYTES("0"));
    out->handle.start = json_int(json_member(node, "so"), -1);
    out->handle.pop_ms = json_int(json_member(node, "pt"), -1);
    out->handle.invisible_ms = json_int(json_member(node, "it"), -1);
    if (out->group.len == 0 || out->topic.len == 0 ||
        !int32_of(json_member(node, "q"), &out->queue_id) ||
        !int32_of(json_member(node, "rq"), &out->handle.revive_id))
        return ERR_MALFORMED;
    return bits_read(json_text(json_member(node, "b"), BYTES("")), out->handle.start, out);
}

enum err batch_acks_read(struct bytes body, struct arena *arena, struct batch_ack **out, size_t *n)
{
    const struct json *doc;
    enum err err = object_parse(body, arena, &doc);
    if (err)
        return err;
    const struct json *list = json_member(doc, "acks");
    void *room;
    err = array_alloc(list, arena, sizeof **out, &room, n);
    if (err)
        return err;
    struct batch_ack *ack = *out = room;
    json_each(node, *n ? list : NULL) {
        err = ack_read(node, ack++);
        if (err)
            return err;
    }
    return OK;
}

/* ---- QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE ---- */

enum err assignment_query_read(struct bytes body, struct arena *arena, struct assignment_query *out)
{
    const struct json *doc;
    enum err err = object_parse(body, arena, &doc);
    if (err)
        return err;
    struct assignment_query q = {
        .topic = json_text(json_member(doc, "topic"), BYTES("")),
        .group = json_text(json_member(doc, "consumerGroup"), BYTES("")),
        .client_id = json_text(json_member(doc, "clientId"), BYTES("")),
        .strategy = json_text(json_member(doc, "strategyName"), BYTES("")),
    };
    struct bytes model = json_text(json_member(doc, "messageModel"), BYTES("CLUSTERING"));
    q.broadcasting = bytes_equal(model, BYTES("BROADCASTING"));
    if (q.topic.len == 0 || q.group.len == 0)
        return ERR_MALFORMED;
    *out = q;
    return OK;
}

void assignment_write(struct buf *out, const struct queue_name *queues, size_t n, bool pops)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    if (queues) {
        json_key(&w, "messageQueueAssignments");
        json_open_array(&w);
    }
    for (size_t i = 0; queues && i < n; i++) {
        json_open(&w);
        json_key(&w, "messageQueue");
        queue_name_write(&w, &queues[i]);
        json_text_member(&w, "mode", pops ? BYTES("POP") : BYTES("PULL"));
        json_close(&w);
    }
    if (queues)
        json_close_array(&w);
    json_close(&w);
}

enum err mode_body_read(struct bytes body, struct arena *arena, struct mode_body *out)
{
    const struct json *doc;
    enum err err = object_parse(body, arena, &doc);
    if (err)
        return err;
    struct bytes mode = json_text(json_member(doc, "mode"), BYTES("PULL"));
    int64_t share = json_int(json_member(doc, "popShareQueueNum"), 0);
    struct mode_body m = {
        .topic = json_text(json_member(doc, "topic"), BYTES("")),
        .group = json_text(json_member(doc, "consumerGroup"), BYTES("")),
        .pops = bytes_equal(mode, BYTES("POP")),
        .share = share < INT32_MIN || share > INT32_MAX ? 0 : (int32_t)share,
    };
    if (m.topic.len == 0 || m.group.len == 0 || (!m.pops && !bytes_equal(mode, BYTES("PULL"))))
        return ERR_MALFORMED;
    *out = m;
    return OK;
}
