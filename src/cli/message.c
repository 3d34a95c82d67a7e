/* message.c - messages as records and lines. */
#include "cli/message.h"

#include "base/base64.h"
#include "base/utf8.h"
#include "cli/out_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- records ---- */

/* Base64, in memory of its own that the caller frees; NULL: none. */
static char *base64_of(struct bytes raw)
{
    char *text = malloc(BASE64_SIZE(raw.len) + 1);
    if (text)
        text[base64_write(BASE64_TEXT, raw, text)] = 0;
    return text;
}

static struct bytes body_of(const struct omq_delivery *d)
{
    return bytes_of(d->body, d->body_size);
}

static void body_put(struct cli *cli, const struct omq_delivery *d, size_t body_max)
{
    struct bytes body = body_of(d);
    if (!cli->json) {
        if (body.len <= body_max) {
            put_bytes(cli, "body", body);
            return;
        }
        size_t cut = body_max;
        while (cut > 0 && (body.at[cut] & 0xc0) == 0x80) /* not within a character */
            cut--;
        struct buf shown = buf_upto(cut + 8);
        buf_add(&shown, bytes_of(body.at, cut));
        buf_add_str(&shown, "…");
        put_bytes(cli, "body", buf_bytes(&shown));
        buf_clear(&shown);
        return;
    }
    if (body.len == 0 || utf8_valid(body)) {
        put_bytes(cli, "body", body);
        return;
    }
    char *text = base64_of(body);
    put_text(cli, "body64", text);
    free(text);
}

static const char *or_null(const char *text)
{
    return text && *text ? text : NULL;
}

void message_put(struct cli *cli, const struct omq_delivery *d, size_t body_max)
{
    put_number(cli, "stored_ms", d->stored_ms);
    put_text(cli, "id", d->id);
    put_text(cli, "offset_id", d->offset_id);
    put_text(cli, "topic", d->queue.topic);
    put_text(cli, "broker", or_null(d->queue.broker));
    put_number(cli, "queue", d->queue.id);
    put_number(cli, "offset", d->offset);
    put_text(cli, "tag", or_null(d->tag));
    put_text(cli, "keys", or_null(d->keys));
    body_put(cli, d, body_max);
    put_number(cli, "body_size", (int64_t)d->body_size);
    put_number(cli, "attempt", d->attempt);
    put_number(cli, "born_ms", d->born_ms);
    put_text(cli, "born_host", or_null(d->born_host));
    for (size_t i = 0; i < d->n_properties; i++)
        put_entry(cli, "properties", bytes_str(d->properties[i].name),
                  bytes_str(d->properties[i].value));
}

/* ---- a form ---- */

enum field {
    FIELD_TEXT, /* no field: what stands between them */
    FIELD_ID,
    FIELD_TOPIC,
    FIELD_BROKER,
    FIELD_QUEUE,
    FIELD_OFFSET,
    FIELD_OFFSET_ID,
    FIELD_TAG,
    FIELD_KEYS,
    FIELD_BODY,
    FIELD_RAW,
    FIELD_BODY64,
    FIELD_SIZE,
    FIELD_STORED,
    FIELD_BORN,
    FIELD_HOST,
    FIELD_ATTEMPT,
    FIELD_PROPERTY,
};

static const char *const field_names[] = {
    [FIELD_ID] = "id",          [FIELD_TOPIC] = "topic",   [FIELD_BROKER] = "broker",
    [FIELD_QUEUE] = "queue",    [FIELD_OFFSET] = "offset", [FIELD_OFFSET_ID] = "offset_id",
    [FIELD_TAG] = "tag",        [FIELD_KEYS] = "keys",     [FIELD_BODY] = "body",
    [FIELD_RAW] = "raw",        [FIELD_BODY64] = "body64", [FIELD_SIZE] = "size",
    [FIELD_STORED] = "stored",  [FIELD_BORN] = "born",     [FIELD_HOST] = "host",
    [FIELD_ATTEMPT] = "attempt"};

struct part {
    enum field field;
    struct bytes text; /* FIELD_TEXT, and the name of a FIELD_PROPERTY, with a NUL behind it */
};

struct form {
    size_t n;
    struct part parts[];
};

static bool field_find(struct bytes name, struct part *out)
{
    for (size_t i = 1; i < sizeof field_names / sizeof *field_names; i++)
        if (bytes_equal(name, bytes_str(field_names[i]))) {
            *out = (struct part){.field = (enum field)i};
            return true;
        }
    if (!bytes_start(name, BYTES("prop.")) || name.len == 5)
        return false;
    *out = (struct part){FIELD_PROPERTY, bytes_from(name, 5)};
    return true;
}

/* \n, \t, \r, \0 and \\; what else stands behind a backslash stays as it is. Writes over `text`. */
static size_t unescape(char *text)
{
    size_t n = 0;
    for (const char *at = text; *at; at++) {
        static const char from[] = "ntr0\\", to[] = "\n\t\r\0\\";
        const char *which = *at == '\\' && at[1] ? strchr(from, at[1]) : NULL;
        text[n++] = which ? to[which - from] : *at;
        at += which != NULL;
    }
    return n;
}

const struct form *form_read(struct cli *cli, const char *text)
{
    size_t len = strlen(text);
    struct form *form = arena_alloc(&cli->arena, sizeof *form + (len + 1) * sizeof *form->parts);
    char *copy = arena_alloc(&cli->arena, len + 1);
    if (!form || !copy) {
        (void)cli_fail(cli, STATUS_FAILED, NULL, "no memory for a form");
        return NULL;
    }
    memcpy(copy, text, len);
    struct bytes rest = bytes_of(copy, unescape(copy));
    while (rest.len > 0) {
        const uint8_t *open = memchr(rest.at, '{', rest.len);
        size_t plain = open ? (size_t)(open - rest.at) : rest.len;
        if (plain > 0)
            form->parts[form->n++] = (struct part){FIELD_TEXT, bytes_of(rest.at, plain)};
        rest = bytes_from(rest, plain);
        if (rest.len == 0)
            break;
        const uint8_t *close = memchr(rest.at, '}', rest.len);
        size_t inner = close ? (size_t)(close - rest.at) - 1 : 0;
        if (!close || !field_find(bytes_of(rest.at + 1, inner), &form->parts[form->n])) {
            (void)cli_fail(cli, STATUS_USAGE, "fields are " FORM_FIELDS,
                           "--format: there is no field %s",
                           printable(cli, bytes_of(rest.at, close ? inner + 2 : rest.len)));
            return NULL;
        }
        form->n++;
        copy[close - (const uint8_t *)copy] = 0; /* ends the name of a property */
        rest = bytes_from(rest, inner + 2);
    }
    return form;
}

static void write_time(struct cli *cli, int64_t ms)
{
    char text[32];
    time_text(ms, text);
    cli_write(cli, bytes_str(text));
}

static void write_body64(struct cli *cli, const struct omq_delivery *d)
{
    char *text = base64_of(body_of(d));
    if (text)
        cli_write(cli, bytes_str(text));
    free(text);
}

/* NULL: the field is no text. */
static const char *text_of(const struct part *part, const struct omq_delivery *d)
{
    const char *value;
    switch (part->field) {
    case FIELD_ID:
        return d->id;
    case FIELD_TOPIC:
        return d->queue.topic;
    case FIELD_BROKER:
        return d->queue.broker;
    case FIELD_OFFSET_ID:
        return d->offset_id;
    case FIELD_TAG:
        return d->tag;
    case FIELD_KEYS:
        return d->keys;
    case FIELD_HOST:
        return d->born_host;
    case FIELD_PROPERTY:
        value = omq_delivery_property(d, (const char *)part->text.at);
        return value ? value : "";
    default:
        return NULL;
    }
}

static int64_t number_of(enum field field, const struct omq_delivery *d)
{
    return field == FIELD_QUEUE    ? d->queue.id
           : field == FIELD_OFFSET ? d->offset
           : field == FIELD_SIZE   ? (int64_t)d->body_size
                                   : d->attempt;
}

static void part_write(struct cli *cli, const struct part *part, const struct omq_delivery *d)
{
    const char *text = text_of(part, d);
    if (text) {
        cli_write(cli, bytes_str(printable(cli, bytes_str(text))));
        return;
    }
    switch (part->field) {
    case FIELD_TEXT:
        cli_write(cli, part->text);
        break;
    case FIELD_BODY:
        cli_write(cli, bytes_str(printable(cli, body_of(d))));
        break;
    case FIELD_RAW:
        cli_write(cli, body_of(d));
        break;
    case FIELD_BODY64:
        write_body64(cli, d);
        break;
    case FIELD_STORED:
        write_time(cli, d->stored_ms);
        break;
    case FIELD_BORN:
        write_time(cli, d->born_ms);
        break;
    default:
        cli_print(cli, "%" PRId64, number_of(part->field, d));
        break;
    }
}

void form_write(struct cli *cli, const struct form *form, const struct omq_delivery *d)
{
    for (size_t i = 0; i < form->n; i++)
        part_write(cli, &form->parts[i], d);
    arena_reset(&cli->out->arena); /* of printable */
}
