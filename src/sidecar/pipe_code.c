/* pipe_code.c - the lines of a pipe: one object a line, in both directions.
 *
 *     {"id":"…","key":"…","topic":"…","tag":"…","keys":"…","props":{…},"attempt":1,"fence":7,
 *      "broker":"…","queue":0,"offset":12,"born_ms":…,"body":"…"}
 *     {"id":"…","result":"done"}          and: "already", "later" with "after_ms", "failed"
 *
 * A body that is no UTF-8 is written as "body64" instead. */
#include "sidecar/sidecar_int.h"

#include "base/base64.h"
#include "base/json.h"
#include "base/utf8.h"

static bool is_text(struct bytes b)
{
    const uint8_t *at = b.at, *end = b.at + b.len;
    while (at < end) {
        uint64_t eight = 0;
        if (end - at >= 8)
            memcpy(&eight, at, sizeof eight);
        if (end - at >= 8 && !(eight & UINT64_C(0x8080808080808080))) {
            at += 8;
            continue;
        }
        size_t n = utf8_length(at, end);
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

static void put_body(struct json_out *w, struct bytes body)
{
    if (is_text(body)) {
        json_text_member(w, "body", body);
        return;
    }
    json_key(w, "body64");
    size_t size = BASE64_SIZE(body.len);
    uint8_t *to = buf_space(w->buf, size + 2);
    if (!to)
        return;
    to[0] = '"';
    (void)base64_write(BASE64_TEXT, body, (char *)to + 1);
    to[size + 1] = '"';
    w->comma = true;
}

void line_write(struct buf *out, const struct omq_delivery *d, struct bytes key, int64_t fence)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_text_member(&w, "id", bytes_str(d->id));
    json_text_member(&w, "key", key);
    json_text_member(&w, "topic", bytes_str(d->queue.topic));
    json_text_member(&w, "tag", bytes_str(d->tag));
    json_text_member(&w, "keys", bytes_str(d->keys));
    json_key(&w, "props");
    json_open(&w);
    for (size_t i = 0; i < d->n_properties; i++) {
        json_key_text(&w, bytes_str(d->properties[i].name));
        json_put_text(&w, bytes_str(d->properties[i].value));
    }
    json_close(&w);
    json_int_member(&w, "attempt", d->attempt);
    json_int_member(&w, "fence", fence);
    json_text_member(&w, "broker", bytes_str(d->queue.broker));
    json_int_member(&w, "queue", d->queue.id);
    json_int_member(&w, "offset", d->offset);
    json_int_member(&w, "born_ms", d->born_ms);
    put_body(&w, bytes_of(d->body ? d->body : "", d->body_size));
    json_close(&w);
    buf_add_u8(out, '\n');
}

static bool kind_of(struct bytes word, int *out)
{
    static const struct {
        const char *word;
        int kind;
    } all[] = {{"done", SIDECAR_DONE},
               {"already", SIDECAR_ALREADY},
               {"later", SIDECAR_LATER},
               {"failed", SIDECAR_FAILED}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (bytes_equal(word, bytes_str(all[i].word))) {
            *out = all[i].kind;
            return true;
        }
    return false;
}

enum err line_read(struct bytes line, struct arena *arena, struct answer *out, struct fault *why)
{
    const struct json *node;
    size_t at;
    enum err err = json_parse(line, arena, &node, &at);
    if (err)
        return fault_set(why, err, "it is no JSON at byte %zu", at + 1);
    const struct json *id = json_member(node, "id");
    if (node->type != JSON_OBJECT || !id || id->type != JSON_STRING)
        return fault_set(why, ERR_MALFORMED, "it is no object with an \"id\" that is a string");
    struct answer a = {.id = id->text, .after_ms = json_int(json_member(node, "after_ms"), -1)};
    if (!kind_of(json_text(json_member(node, "result"), (struct bytes){0}), &a.kind))
        return fault_set(why, ERR_MALFORMED,
                         "its \"result\" is none of done, already, later, failed");
    a.why = json_text(json_member(node, "why"), (struct bytes){0});
    *out = a;
    return OK;
}
