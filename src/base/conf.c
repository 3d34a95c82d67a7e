/* conf.c - the table of options: finding, checking, setting and showing one. Reading a file is in
 * conf_file.c. */
#include "base/conf.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define KEY_COMPARED_MAX 64 /* of longer keys nobody has meant one of ours */

static enum err set_option(const struct conf_option *o, void *settings, const char *where,
                           const char *text, struct fault *why);
static void add_valid(const struct conf_option *o, struct buf *out);
static void add_escaped(struct buf *out, struct bytes text);

const struct conf_option *conf_find(const struct conf_table *table, const char *key)
{
    for (size_t i = 0; i < table->n; i++)
        if (strcmp(table->options[i].key, key) == 0)
            return &table->options[i];
    return NULL;
}

/* How many letters must be changed, added or left out to make one of the other, without case. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[KEY_COMPARED_MAX + 1], len = strlen(b);
    for (size_t j = 0; j <= len; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= len; j++) {
            size_t best = diagonal + (strncasecmp(&a[i - 1], &b[j - 1], 1) != 0);
            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[len];
}

const char *conf_nearest(const struct conf_table *table, const char *key)
{
    size_t len = strlen(key);
    if (len == 0 || len > KEY_COMPARED_MAX)
        return NULL;
    size_t least = len / 4 + 1; /* listenPort: two slips are forgiven, three are another word */
    const char *nearest = NULL;
    for (size_t i = 0; i < table->n; i++) {
        const char *candidate = table->options[i].key;
        if (strlen(candidate) > KEY_COMPARED_MAX)
            continue;
        size_t distance = edit_distance(key, candidate);
        if (distance < least) {
            least = distance;
            nearest = candidate;
        }
    }
    return nearest;
}

enum err conf_defaults(const struct conf_table *table, void *settings, struct fault *why)
{
    for (size_t i = 0; i < table->n; i++) {
        const struct conf_option *o = &table->options[i];
        enum err err = set_option(o, settings, "default", o->initial, why);
        if (err)
            return err;
    }
    return OK;
}

enum err conf_set(const struct conf_table *table, void *settings, const char *where,
                  const char *key, const char *value, struct fault *why)
{
    const struct conf_option *o = conf_find(table, key);
    if (o)
        return set_option(o, settings, where, value, why);

    const char *nearest = conf_nearest(table, key);
    return fault_set(why, ERR_NOT_FOUND, "%s: there is no key %s%s%s%s", where,
                     LOG_QUOTE(bytes_str(key)), nearest ? "; did you mean " : "",
                     nearest ? nearest : "", nearest ? "?" : "");
}

/* ---- values ---- */

/* Without the blanks around it. */
static struct bytes trimmed(const char *text)
{
    struct bytes b = bytes_str(text);
    while (b.len > 0 && strchr(" \t\r\n\f", b.at[0]))
        b = bytes_from(b, 1);
    while (b.len > 0 && strchr(" \t\r\n\f", b.at[b.len - 1]))
        b.len--;
    return b;
}

static bool same_word(struct bytes text, const char *word)
{
    return text.len == strlen(word) && strncasecmp((const char *)text.at, word, text.len) == 0;
}

static bool find_choice(const struct conf_option *o, struct bytes text, int *out)
{
    for (int i = 0; o->choices[i]; i++) {
        if (same_word(text, o->choices[i])) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* A value of any type, before it is stored. */
struct value {
    int64_t number;
    bool yes;
    int choice;
};

static bool understand(const struct conf_option *o, const char *text, struct value *out)
{
    struct bytes word = trimmed(text);
    switch (o->type) {
    case CONF_INT:
        return bytes_to_i64(word, &out->number) && out->number >= o->min && out->number <= o->max;
    case CONF_BOOL:
        out->yes = same_word(word, "true");
        return out->yes || same_word(word, "false");
    case CONF_TEXT:
        return strlen(text) < CONF_TEXT_MAX;
    case CONF_CHOICE:
        return find_choice(o, word, &out->choice);
    }
    return false;
}

static enum err refuse(const struct conf_option *o, const char *where, const char *text,
                       struct fault *why)
{
    cleanup(buf_clear) struct buf valid = buf_upto(256);
    add_valid(o, &valid);
    return fault_set(why, ERR_INVALID, "%s: %s=%s is not valid: it must be %.*s", where, o->key,
                     LOG_QUOTE(bytes_str(text)), BYTES_ARG(buf_bytes(&valid)));
}

static enum err set_option(const struct conf_option *o, void *settings, const char *where,
                           const char *text, struct fault *why)
{
    struct value v = {0};
    if (!understand(o, text, &v))
        return refuse(o, where, text, why);
    if (o->check) {
        struct fault reason = {0};
        enum err err = o->check(text, &reason);
        if (err) {
            if (why)
                *why = reason;
            return fault_add(why, err, "%s: %s=%s is not valid", where, o->key,
                             LOG_QUOTE(bytes_str(text)));
        }
    }

    char *place = (char *)settings + o->offset;
    switch (o->type) {
    case CONF_INT:
        memcpy(place, &v.number, sizeof v.number);
        break;
    case CONF_BOOL:
        memcpy(place, &v.yes, sizeof v.yes);
        break;
    case CONF_TEXT:
        memcpy(place, text, strlen(text) + 1);
        break;
    case CONF_CHOICE:
        memcpy(place, &v.choice, sizeof v.choice);
        break;
    }
    return OK;
}

/* ---- showing ---- */

/* Completes the sentence "it must be …". */
static void add_valid(const struct conf_option *o, struct buf *out)
{
    switch (o->type) {
    case CONF_INT:
        buf_printf(out, "a whole number");
        if (o->max < INT64_MAX)
            buf_printf(out, " from %" PRId64 " to %" PRId64, o->min, o->max);
        else if (o->min > INT64_MIN)
            buf_printf(out, ", %" PRId64 " or more", o->min);
        break;
    case CONF_BOOL:
        buf_add_str(out, "true or false");
        break;
    case CONF_TEXT:
        buf_printf(out, "text of at most %d bytes", CONF_TEXT_MAX - 1);
        break;
    case CONF_CHOICE:
        for (int i = 0; o->choices[i]; i++)
            buf_printf(out, "%s%s", i == 0 ? "" : o->choices[i + 1] ? ", " : " or ", o->choices[i]);
        break;
    }
}

/* So that reading the line again gives the same text: the reader drops bare blanks at both ends. */
static void add_escaped(struct buf *out, struct bytes text)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.at[i];
        if (c == '\\' || (c == ' ' && (i == 0 || i + 1 == text.len)))
            buf_printf(out, "\\%c", c);
        else if (c == '\n')
            buf_add_str(out, "\\n");
        else if (c == '\r')
            buf_add_str(out, "\\r");
        else if (c == '\t')
            buf_add_str(out, "\\t");
        else if (c == '\f')
            buf_add_str(out, "\\f");
        else
            buf_add_u8(out, c);
    }
}

/* Of a text all of its room: behind its end there may be anything. */
static size_t size_of(enum conf_type type)
{
    static const size_t sizes[] = {
        [CONF_INT] = sizeof(int64_t),
        [CONF_BOOL] = sizeof(bool),
        [CONF_TEXT] = CONF_TEXT_MAX,
        [CONF_CHOICE] = sizeof(int),
    };
    return sizes[type];
}

bool conf_same(const struct conf_option *option, const void *a, const void *b)
{
    const char *x = (const char *)a + option->offset, *y = (const char *)b + option->offset;
    return option->type == CONF_TEXT ? strcmp(x, y) == 0 : memcmp(x, y, size_of(option->type)) == 0;
}

void conf_copy(const struct conf_option *option, void *to, const void *from)
{
    memcpy((char *)to + option->offset, (const char *)from + option->offset, size_of(option->type));
}

void conf_format(const struct conf_option *option, const void *settings, struct buf *out)
{
    const char *place = (const char *)settings + option->offset;
    struct value v = {0};
    switch (option->type) {
    case CONF_INT:
        memcpy(&v.number, place, sizeof v.number);
        buf_printf(out, "%" PRId64, v.number);
        break;
    case CONF_BOOL:
        memcpy(&v.yes, place, sizeof v.yes);
        buf_add_str(out, v.yes ? "true" : "false");
        break;
    case CONF_TEXT:
        add_escaped(out, bytes_str(place));
        break;
    case CONF_CHOICE:
        memcpy(&v.choice, place, sizeof v.choice);
        buf_add_str(out, option->choices[v.choice]);
        break;
    }
}

void conf_print(const struct conf_table *table, const void *settings, struct buf *out)
{
    for (size_t i = 0; i < table->n; i++) {
        const struct conf_option *o = &table->options[i];
        buf_printf(out, "%s# %s\n# ", i ? "\n" : "", o->help);
        if (o->type != CONF_TEXT) {
            add_valid(o, out);
            buf_add_str(out, "; ");
        }
        buf_add_str(out, "default: ");
        add_escaped(out, bytes_str(o->initial));
        buf_printf(out, "%s\n%s=", o->live ? "; can change while it runs" : "", o->key);
        conf_format(o, settings, out);
        buf_add_u8(out, '\n');
    }
}

/* A cell of a Markdown table, as code or as text. */
static void add_cell(struct buf *out, struct bytes text, const char *quote)
{
    buf_printf(out, " %s", text.len ? quote : "");
    for (size_t i = 0; i < text.len; i++) {
        if (text.at[i] == '|')
            buf_add_u8(out, '\\');
        buf_add_u8(out, text.at[i]);
    }
    buf_printf(out, "%s |", text.len ? quote : "");
}

void conf_markdown(const struct conf_table *table, struct buf *out)
{
    buf_add_str(out, "| Key | Default | Valid | Live | Meaning |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < table->n; i++) {
        const struct conf_option *o = &table->options[i];
        cleanup(buf_clear) struct buf valid = buf_upto(1024);
        if (o->type == CONF_TEXT)
            buf_add_str(&valid, "text");
        else
            add_valid(o, &valid);
        buf_add_u8(out, '|');
        add_cell(out, bytes_str(o->key), "`");
        add_cell(out, bytes_str(o->initial), "`");
        add_cell(out, buf_bytes(&valid), "");
        add_cell(out, bytes_str(o->live ? "yes" : ""), "");
        add_cell(out, bytes_str(o->help), "");
        buf_add_u8(out, '\n');
    }
}
