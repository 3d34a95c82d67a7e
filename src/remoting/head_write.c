/* head_write.c - writing frames.
 *
 * The lengths at the start are left open and filled in by frame_end_head. JSON members come in the
 * order code, flag, language, opaque, version, remark, extFields, serializeTypeCurrentRPC, and
 * extFields only when there is a field: readers take absent and {} for the same.
 *
 * The language is JAVA (0), as Apache's brokers say: old clients decode it into a closed list of
 * names, and JAVA is the one name that all of them have. The Java client does nothing with it.
 */
#include "base/utf8.h"
#include "remoting/head_put.h"

#include <assert.h>

#define LANGUAGE_JAVA 0
#define HEAD_SIZE_MAX (FRAME_MAX - FRAME_PREFIX) /* which fits into the three bytes it has */

#define JSON_AFTER_OPAQUE ",\"version\":479"
static_assert(HEAD_VERSION == 479, "the text above says so too");
static_assert(HEAD_SIZE_MAX <= 0xffffff, "the length of a header has three bytes");

/* ---- JSON text ---- */

/* One character that is not plain. What is not UTF-8 becomes U+FFFD, so that what we write is
 * always JSON, whatever a stranger's remark quotes. */
static size_t odd_write(struct wr *w, const uint8_t *at, const uint8_t *end)
{
    static const char digits[] = "0123456789abcdef";
    if (*at < 0x20) {
        const uint8_t escape[6] = {
            '\\', 'u', '0', '0', (uint8_t)digits[*at >> 4], (uint8_t)digits[*at & 15]};
        wr_bytes_of(w, bytes_of(escape, sizeof escape));
        return 1;
    }
    if (*at < 0x80) { /* a quote or a backslash */
        wr_u8(w, '\\');
        wr_u8(w, *at);
        return 1;
    }
    size_t len = utf8_length(at, end);
    wr_bytes_of(w, len ? bytes_of(at, len) : BYTES("\xef\xbf\xbd"));
    return len ? len : 1;
}

/* From the first byte that is not plain on. */
static void odd_text_write(struct wr *w, const uint8_t *at, const uint8_t *end)
{
    const uint8_t *run = at;
    while (at < end) {
        if (!byte_stops(*at)) {
            at++;
            continue;
        }
        wr_bytes_of(w, bytes_of(run, (size_t)(at - run)));
        at += odd_write(w, at, end);
        run = at;
    }
    wr_bytes_of(w, bytes_of(run, (size_t)(at - run)));
}

static void quoted_write(struct wr *w, struct bytes text)
{
    wr_u8(w, '"');
    if (text_is_plain(text))
        wr_bytes_of(w, text);
    else
        odd_text_write(w, text.at, text.at + text.len);
    wr_u8(w, '"');
}

/* ---- frames ---- */

static void json_begin(struct wr *w, const struct head_start *head)
{
    if (head->code == 0 && head->flag == FLAG_RESPONSE) { /* nearly every answer */
        wr_bytes_of(w, BYTES("{\"code\":0,\"flag\":1,\"language\":\"JAVA\",\"opaque\":"));
    } else {
        wr_bytes_of(w, BYTES("{\"code\":"));
        wr_i64(w, head->code);
        wr_bytes_of(w, BYTES(",\"flag\":"));
        wr_i64(w, head->flag);
        wr_bytes_of(w, BYTES(",\"language\":\"JAVA\",\"opaque\":"));
    }
    wr_i64(w, head->opaque);
    wr_bytes_of(w, BYTES(JSON_AFTER_OPAQUE));
    if (head->remark.len > 0) {
        wr_bytes_of(w, BYTES(",\"remark\":"));
        quoted_write(w, head->remark);
    }
}

static void binary_begin(struct frame_out *f, const struct head_start *head)
{
    struct wr *w = f->w;
    wr_u16(w, (uint16_t)head->code);
    wr_u8(w, LANGUAGE_JAVA);
    wr_u16(w, HEAD_VERSION);
    wr_u32(w, (uint32_t)head->opaque);
    wr_u32(w, (uint32_t)head->flag);
    wr_u32(w, (uint32_t)head->remark.len);
    wr_bytes_of(w, head->remark);
    f->fields = wr_space(w, 4);
}

void frame_begin(struct frame_out *f, struct wr *w, enum head_form form,
                 const struct head_start *head)
{
    /* The POP codes (200050 …) do not fit into a binary header; everybody reads both forms. */
    if (head->code != (int16_t)head->code)
        form = HEAD_JSON;
    *f = (struct frame_out){.w = w, .form = form};
    f->frame = wr_space(w, FRAME_PREFIX);
    if (form == HEAD_JSON)
        json_begin(w, head);
    else
        binary_begin(f, head);
}

static void json_name(struct frame_out *f, struct bytes name)
{
    struct wr *w = f->w;
    wr_bytes_of(w, f->any_field ? BYTES(",") : BYTES(",\"extFields\":{"));
    quoted_write(w, name);
    wr_u8(w, ':');
    f->any_field = true;
}

static void binary_field(struct frame_out *f, struct bytes name, struct bytes value)
{
    struct wr *w = f->w;
    if (name.len > INT16_MAX)
        w->full = true;
    wr_u16(w, (uint16_t)name.len);
    wr_bytes_of(w, name);
    wr_u32(w, (uint32_t)value.len);
    wr_bytes_of(w, value);
}

/* Name and value need no escapes. */
static void plain_field(struct frame_out *f, struct bytes name, struct bytes value)
{
    struct bytes before = f->any_field ? BYTES(",\"") : BYTES(",\"extFields\":{\"");
    uint8_t *to = wr_space(f->w, before.len + name.len + 3 + value.len + 1);
    if (!to)
        return;
    to = text_put(text_put(to, before), name);
    memcpy(to, "\":\"", 3);
    to = text_put(to + 3, value);
    *to = '"';
    f->any_field = true;
}

void frame_put(struct frame_out *f, struct bytes name, struct bytes value)
{
    if (f->form == HEAD_BINARY) {
        binary_field(f, name, value);
    } else if (text_is_plain(name) && text_is_plain(value)) {
        plain_field(f, name, value);
    } else {
        json_name(f, name);
        quoted_write(f->w, value);
    }
}

/* A value that needs no escapes. */
static void word_put(struct frame_out *f, struct bytes name, struct bytes word)
{
    if (f->form == HEAD_BINARY) {
        binary_field(f, name, word);
    } else if (text_is_plain(name)) {
        plain_field(f, name, word);
    } else {
        json_name(f, name);
        quoted_write(f->w, word);
    }
}

void frame_put_int(struct frame_out *f, struct bytes name, int64_t value)
{
    uint8_t digits[20];
    struct wr text = wr_over(digits, sizeof digits);
    wr_i64(&text, value);
    word_put(f, name, wr_bytes(&text));
}

void frame_put_bool(struct frame_out *f, struct bytes name, bool value)
{
    word_put(f, name, value ? BYTES("true") : BYTES("false"));
}

void frame_end_head(struct frame_out *f, size_t body_size)
{
    struct wr *w = f->w;
    if (f->form == HEAD_JSON) {
        if (f->any_field)
            wr_u8(w, '}');
        wr_bytes_of(w, BYTES(",\"serializeTypeCurrentRPC\":\"JSON\"}"));
    }
    if (w->full)
        return;

    size_t head_size = (size_t)(w->at - f->frame) - FRAME_PREFIX;
    if (head_size > HEAD_SIZE_MAX || body_size > FRAME_MAX - FRAME_PREFIX - head_size) {
        w->full = true;
        return;
    }
    if (f->form == HEAD_BINARY)
        store_u32(f->fields, (uint32_t)(w->at - f->fields) - 4);
    store_u32(f->frame, (uint32_t)(4 + head_size + body_size));
    store_u32(f->frame + 4, (uint32_t)f->form << 24 | (uint32_t)head_size);
}
