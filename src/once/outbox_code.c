/* outbox_code.c - a message as bytes, for the outbox.
 *
 *     1 (version)  topic  tag  keys  id  body  count u16  (name value)…
 *
 * A text is a u32 and so many bytes, a NUL at their end; 0: there is none. The body is a u32 and so
 * many bytes. Pure; texts of a decoded message are slices of the input.
 */
#include "once/once_int.h"

#define OUTBOX_VERSION 1

static void put_text(struct buf *out, const char *text)
{
    size_t n = text ? strlen(text) + 1 : 0;
    if (n > OUTBOX_MESSAGE_MAX)
        out->err = ERR_TOO_BIG;
    buf_add_u32(out, (uint32_t)n);
    buf_add(out, bytes_of(text, n));
}

void outbox_encode(const struct once_message *m, struct buf *out)
{
    if (m->body_size > OUTBOX_MESSAGE_MAX || m->n_properties > OUTBOX_PROPERTIES_MAX) {
        out->err = ERR_TOO_BIG;
        return;
    }
    buf_add_u8(out, OUTBOX_VERSION);
    put_text(out, m->topic);
    put_text(out, m->tag);
    put_text(out, m->keys);
    put_text(out, m->id);
    buf_add_u32(out, (uint32_t)m->body_size);
    buf_add(out, bytes_of(m->body, m->body_size));
    buf_add_u8(out, (uint8_t)(m->n_properties >> 8));
    buf_add_u8(out, (uint8_t)m->n_properties);
    for (size_t i = 0; i < m->n_properties; i++) {
        put_text(out, m->properties[i].name ? m->properties[i].name : "");
        put_text(out, m->properties[i].value ? m->properties[i].value : "");
    }
}

/* A text with its NUL, and none before it. */
static const char *take_text(struct rd *r)
{
    struct bytes text = rd_take(r, rd_u32(r));
    if (text.len == 0)
        return NULL;
    if (memchr(text.at, 0, text.len) != text.at + text.len - 1)
        r->bad = true;
    return r->bad ? NULL : (const char *)text.at;
}

enum err outbox_decode(struct bytes in, struct outbox_message *out)
{
    struct rd r = rd_over(in);
    struct once_message m = {0};
    if (rd_u8(&r) != OUTBOX_VERSION)
        return ERR_MALFORMED;
    m.topic = take_text(&r);
    m.tag = take_text(&r);
    m.keys = take_text(&r);
    m.id = take_text(&r);
    struct bytes body = rd_take(&r, rd_u32(&r));
    m.body = body.at;
    m.body_size = body.len;
    m.n_properties = rd_u16(&r);
    if (r.bad || m.n_properties > OUTBOX_PROPERTIES_MAX)
        return ERR_MALFORMED;
    for (size_t i = 0; i < m.n_properties; i++) {
        const char *name = take_text(&r);
        const char *value = take_text(&r);
        if (!name || !value)
            return ERR_MALFORMED;
        out->properties[i] = (struct once_property){name, value};
    }
    if (r.bad || rd_left(&r) > 0)
        return ERR_MALFORMED;
    m.properties = out->properties;
    out->message = m;
    return OK;
}
