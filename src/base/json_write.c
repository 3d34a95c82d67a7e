/* json_write.c - the compact writer. Always proper JSON, except for the keys that the caller asks
 * to be written in fastjson's way (json_key_int, json_key_object). */
#include "base/json.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Before every key and every value; behind a key no comma is due. */
static void next_item(struct json_out *w)
{
    if (w->comma)
        buf_add_u8(w->buf, ',');
    w->comma = true;
}

static void key_done(struct json_out *w)
{
    buf_add_u8(w->buf, ':');
    w->comma = false;
}

/* Eight bytes at a time, as long as all of them are ASCII and stand for themselves. In each line
 * the highest bit of a byte tells: it is set in the byte itself, the byte is below the blank, or
 * equal to the quote or the backslash (where borrows may also mark a byte above one that is
 * marked). */
static const uint8_t *plain_end(const uint8_t *at, const uint8_t *end)
{
    const uint64_t each = UINT64_C(0x0101010101010101), high = each * 0x80;
    while (end - at >= 8) {
        uint64_t eight;
        memcpy(&eight, at, sizeof eight);
        uint64_t quote = eight ^ each * '"', slash = eight ^ each * '\\';
        uint64_t odd = eight | (eight - each * ' ') | (quote - each) | (slash - each);
        if (odd & high)
            break;
        at += 8;
    }
    return at;
}

/* Runs of characters that stand for themselves are added at once. */
static void add_quoted(struct buf *out, struct bytes text)
{
    const uint8_t *at = text.at, *end = text.len ? text.at + text.len : text.at;
    const uint8_t *run = at;

    buf_add_u8(out, '"');
    while (at < end) {
        at = plain_end(at, end);
        size_t len = utf8_length(at, end);
        if (at == end)
            break;
        if (len > 0 && *at >= 0x20 && *at != '"' && *at != '\\') {
            at += len;
            continue;
        }
        buf_add(out, bytes_of(run, (size_t)(at - run)));
        if (len == 0)
            buf_add_str(out, "\xef\xbf\xbd");
        else if (*at < 0x20)
            buf_printf(out, "\\u%04x", *at);
        else
            buf_add(out, bytes_of((const uint8_t[]){'\\', *at}, 2));
        run = ++at;
    }
    buf_add(out, bytes_of(run, (size_t)(at - run)));
    buf_add_u8(out, '"');
}

void json_open(struct json_out *w)
{
    next_item(w);
    buf_add_u8(w->buf, '{');
    w->comma = false;
}

void json_close(struct json_out *w)
{
    buf_add_u8(w->buf, '}');
    w->comma = true;
}

void json_open_array(struct json_out *w)
{
    next_item(w);
    buf_add_u8(w->buf, '[');
    w->comma = false;
}

void json_close_array(struct json_out *w)
{
    buf_add_u8(w->buf, ']');
    w->comma = true;
}

void json_key(struct json_out *w, const char *name)
{
    json_key_text(w, bytes_str(name));
}

void json_key_text(struct json_out *w, struct bytes name)
{
    next_item(w);
    add_quoted(w->buf, name);
    key_done(w);
}

void json_key_int(struct json_out *w, int64_t key)
{
    next_item(w);
    buf_printf(w->buf, "%" PRId64, key);
    key_done(w);
}

void json_key_quoted(struct json_out *w, int64_t key)
{
    next_item(w);
    buf_printf(w->buf, "\"%" PRId64 "\"", key);
    key_done(w);
}

void json_key_object(struct json_out *w)
{
    key_done(w);
}

void json_put_text(struct json_out *w, struct bytes text)
{
    next_item(w);
    add_quoted(w->buf, text);
}

void json_put_int(struct json_out *w, int64_t v)
{
    char text[24];
    struct wr digits = wr_over(text, sizeof text);
    next_item(w);
    wr_i64(&digits, v);
    buf_add(w->buf, bytes_of(text, wr_len(&digits)));
}

void json_put_bool(struct json_out *w, bool v)
{
    next_item(w);
    buf_add_str(w->buf, v ? "true" : "false");
}

void json_put_null(struct json_out *w)
{
    next_item(w);
    buf_add_str(w->buf, "null");
}

void json_put_real(struct json_out *w, double v)
{
    if (!isfinite(v)) {
        json_put_null(w);
        return;
    }
    char text[40];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(text, sizeof text, "%.*g", precision, v);
        if (strtod(text, NULL) == v)
            break;
    }
    next_item(w);
    buf_add_str(w->buf, text);
    if (!strpbrk(text, ".e"))
        buf_add_str(w->buf,
                    ".0"); /* as Java writes it, so that a reader does not take it for an int */
}

void json_put(struct json_out *w, const struct json *node)
{
    switch (node ? node->type : JSON_NULL) {
    case JSON_NULL:
        json_put_null(w);
        return;
    case JSON_FALSE:
    case JSON_TRUE:
        json_put_bool(w, node->type == JSON_TRUE);
        return;
    case JSON_NUMBER:
        next_item(w);
        buf_add(w->buf, node->text);
        return;
    case JSON_STRING:
        json_put_text(w, node->text);
        return;
    case JSON_ARRAY:
        json_open_array(w);
        json_each(element, node)
            json_put(w, element);
        json_close_array(w);
        return;
    case JSON_OBJECT:
        json_open(w);
        json_each(member, node) {
            json_put(w, member->key);
            key_done(w);
            json_put(w, member);
        }
        json_close(w);
        return;
    }
}

void json_text_member(struct json_out *w, const char *name, struct bytes text)
{
    json_key(w, name);
    json_put_text(w, text);
}

void json_int_member(struct json_out *w, const char *name, int64_t v)
{
    json_key(w, name);
    json_put_int(w, v);
}

void json_bool_member(struct json_out *w, const char *name, bool v)
{
    json_key(w, name);
    json_put_bool(w, v);
}
