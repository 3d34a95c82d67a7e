/* key.c - expressions compiled into parts, and keys made of them. */
#include "once/key.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>

#define PARTS_MAX 32
#define SEGS_MAX  16
/* The tree of a body takes about ten times its size; a body that needs more makes no key. */
#define TREE_MAX (256u << 20)
#define TREE_FEW 4096 /* enough for most, on the stack */

enum part_kind { PART_TEXT, PART_KEY, PART_TAG, PART_TOPIC, PART_MSGID, PART_PROP, PART_BODY };

struct seg {
    struct bytes name; /* at NULL: `index` */
    size_t index;
};

struct part {
    enum part_kind kind;
    struct bytes text; /* TEXT; PROP: its name; the others: as it was written, for sentences */
    struct seg *segs;  /* BODY: in key.segs */
    size_t n_segs;
};

struct key {
    struct part parts[PARTS_MAX];
    size_t n_parts;
    struct seg segs[SEGS_MAX * 4];
    size_t n_segs;
    bool body; /* some part wants it */
    char *at;  /* where the next text goes */
    char texts[];
};

/* ---- compiling ---- */

struct compiler {
    struct key *key;
    const char *start, *at;
    struct fault *why;
};

static enum err wrong(const struct compiler *c, const char *at, const char *what)
{
    return fault_set(c->why, ERR_INVALID, "key expression \"%.200s\", position %zu: %s", c->start,
                     (size_t)(at - c->start) + 1, what);
}

static enum err add_part(struct compiler *c, struct part part)
{
    if (c->key->n_parts == PARTS_MAX)
        return wrong(c, c->at, "too many parts (32 at most)");
    c->key->parts[c->key->n_parts++] = part;
    return OK;
}

/* Copies up to one of `stops` or the end, without the escapes. */
static struct bytes copy_until(struct compiler *c, const char *stops)
{
    char *start = c->key->at;
    while (*c->at && !strchr(stops, *c->at)) {
        if (*c->at == '\\' && c->at[1])
            c->at++;
        *c->key->at++ = *c->at++;
    }
    return bytes_of(start, (size_t)(c->key->at - start));
}

static enum err literal(struct compiler *c)
{
    char *start = c->key->at;
    for (; *c->at; c->at++) {
        bool brace = *c->at == '{' || *c->at == '}';
        if (brace && c->at[1] == *c->at)
            c->at++; /* a doubled one stands for itself */
        else if (*c->at == '{')
            break;
        else if (brace)
            return wrong(c, c->at, "a } that closes nothing; write }} for a brace");
        *c->key->at++ = *c->at;
    }
    struct bytes text = bytes_of(start, (size_t)(c->key->at - start));
    return text.len ? add_part(c, (struct part){.kind = PART_TEXT, .text = text}) : OK;
}

static enum err add_seg(struct compiler *c, struct part *part, struct seg seg)
{
    struct key *key = c->key;
    if (part->n_segs == SEGS_MAX || key->n_segs == sizeof key->segs / sizeof key->segs[0])
        return wrong(c, c->at, "the path is too long");
    if (part->n_segs++ == 0)
        part->segs = &key->segs[key->n_segs];
    key->segs[key->n_segs++] = seg;
    return OK;
}

/* After '[': an index, or a name in quotes. */
static enum err bracket(struct compiler *c, struct part *part)
{
    const char *start = c->at;
    struct seg seg = {0};
    if (*c->at == '"') {
        c->at++;
        seg.name = copy_until(c, "\"");
        if (*c->at++ != '"')
            return wrong(c, start, "a quote that is not closed");
        if (seg.name.len == 0)
            return wrong(c, start, "an empty name");
    } else {
        while (*c->at >= '0' && *c->at <= '9' && seg.index < SIZE_MAX / 20)
            seg.index = seg.index * 10 + (size_t)(*c->at++ - '0');
        if (c->at == start)
            return wrong(c, start, "an index such as [0] or a name such as [\"a b\"] is wanted");
    }
    if (*c->at != ']')
        return wrong(c, c->at, "a ] is wanted");
    c->at++;
    return add_seg(c, part, seg);
}

/* Of {body.PATH}, and of $.PATH: names and indexes up to `end`. */
static enum err path(struct compiler *c, struct part *part, char end)
{
    while (*c->at && *c->at != end) {
        enum err err;
        if (*c->at == '[') {
            c->at++;
            err = bracket(c, part);
        } else if (*c->at == '.') {
            const char *start = ++c->at;
            struct seg seg = {.name = copy_until(c, ".[]{}")};
            err = seg.name.len ? add_seg(c, part, seg) : wrong(c, start, "an empty name");
        } else {
            err = wrong(c, c->at, "a . or a [ is wanted");
        }
        if (err)
            return err;
    }
    if (part->n_segs == 0)
        return wrong(c, c->at, "a path into the body is wanted, as in {body.orderId}");
    c->key->body = true;
    return OK;
}

static bool word(struct compiler *c, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(c->at, word, n) != 0 || !strchr(".[}", c->at[n]))
        return false;
    c->at += n;
    return true;
}

static enum err field(struct compiler *c)
{
    const char *open = c->at++;
    struct part part = {.kind = PART_TEXT};
    enum err err = OK;
    if (word(c, "key"))
        part.kind = PART_KEY;
    else if (word(c, "tag"))
        part.kind = PART_TAG;
    else if (word(c, "topic"))
        part.kind = PART_TOPIC;
    else if (word(c, "msgid"))
        part.kind = PART_MSGID;
    else if (word(c, "prop")) {
        part.kind = PART_PROP;
        if (*c->at++ != '.')
            return wrong(c, c->at - 1, "a name is wanted, as in {prop.region}");
        part.text = copy_until(c, "{}");
        if (part.text.len == 0)
            return wrong(c, c->at, "an empty name");
    } else if (word(c, "body")) {
        part.kind = PART_BODY;
        err = path(c, &part, '}');
    } else {
        return wrong(c, open + 1,
                     "unknown field; there are key, tag, topic, msgid, prop.NAME and "
                     "body.PATH");
    }
    if (err)
        return err;
    if (*c->at != '}')
        return wrong(c, open, "a { that is not closed by }");
    c->at++;
    if (part.kind != PART_PROP)
        part.text = bytes_of(open, (size_t)(c->at - open)); /* made to last by key_compile */
    return add_part(c, part);
}

static enum err compile(struct compiler *c)
{
    if (strncmp(c->at, "$.", 2) == 0 || strncmp(c->at, "$[", 2) == 0) {
        struct part part = {.kind = PART_BODY, .text = bytes_str(c->start)};
        c->at++;
        enum err err = path(c, &part, 0);
        return err ? err : add_part(c, part);
    }
    while (*c->at) {
        enum err err = *c->at == '{' && c->at[1] != '{' ? field(c) : literal(c);
        if (err)
            return err;
    }
    for (size_t i = 0; i < c->key->n_parts; i++)
        if (c->key->parts[i].kind != PART_TEXT)
            return OK;
    return wrong(c, c->at,
                 "no field of the message is in it, so that all messages would be one; "
                 "for example {key} or {body.orderId}");
}

enum err key_compile(const char *expression, struct key **out, struct fault *why)
{
    size_t size = strlen(expression) + 1;
    if (size > KEY_MAX)
        return fault_set(why, ERR_INVALID, "key expression: longer than 64 KiB");
    /* The expression itself lies behind the texts, and what parts call it by points there. */
    struct key *key = calloc(1, sizeof *key + 2 * size);
    if (!key)
        return ERR_NO_MEMORY;
    char *own = key->texts + size;
    memcpy(own, expression, size);
    key->at = key->texts;
    struct compiler c = {.key = key, .start = own, .at = own, .why = why};
    enum err err = compile(&c);
    if (err)
        key_free(key);
    else
        *out = key;
    return err;
}

void key_free(struct key *key)
{
    free(key);
}

/* ---- making ---- */

static struct bytes property(const struct once_message *m, struct bytes name)
{
    for (size_t i = m->n_properties; i > 0; i--) /* the last of equal names counts */
        if (m->properties[i - 1].name && bytes_equal(bytes_str(m->properties[i - 1].name), name))
            return bytes_str(m->properties[i - 1].value);
    return (struct bytes){0};
}

static const struct json *step_into(const struct json *node, const struct seg *seg)
{
    const struct json *found = NULL;
    size_t i = 0;
    if (!node || node->type != (seg->name.at ? JSON_OBJECT : JSON_ARRAY))
        return NULL;
    json_each(child, node) {
        if (seg->name.at
                ? child->key->type != JSON_OBJECT && bytes_equal(child->key->text, seg->name)
                : i++ == seg->index)
            found = child; /* the last of equal names counts */
    }
    return found;
}

static struct bytes from_body(const struct part *part, const struct json *body)
{
    for (size_t i = 0; i < part->n_segs; i++)
        body = step_into(body, &part->segs[i]);
    return body && body->type != JSON_NULL ? json_text(body, (struct bytes){0}) : (struct bytes){0};
}

static struct bytes value_of(const struct part *part, const struct once_message *m,
                             const struct json *body)
{
    switch (part->kind) {
    case PART_TEXT:
        return part->text;
    case PART_KEY:
        return bytes_str(m->keys);
    case PART_TAG:
        return bytes_str(m->tag);
    case PART_TOPIC:
        return bytes_str(m->topic);
    case PART_MSGID:
        return bytes_str(m->id);
    case PART_PROP:
        return property(m, part->text);
    case PART_BODY:
        return from_body(part, body);
    }
    return (struct bytes){0};
}

static enum err read_body(const struct once_message *m, struct arena *arena,
                          const struct json **out, struct fault *why)
{
    size_t at = 0;
    if (m->body_size == 0)
        return fault_set(why, ERR_MALFORMED, "the key is to come from the body, which is empty");
    enum err err = json_parse(bytes_of(m->body, m->body_size), arena, out, &at);
    if (err == ERR_MALFORMED)
        return fault_set(why, err,
                         "the key is to come from the body, which is not JSON at byte %zu", at + 1);
    if (err)
        return fault_set(why, err,
                         "the key is to come from the body, which is too big or nested too deep at "
                         "byte %zu",
                         at + 1);
    return OK;
}

static enum err append(const struct key *key, const struct once_message *m, const struct json *body,
                       struct buf *out, struct fault *why)
{
    size_t start = out->len;
    for (size_t i = 0; i < key->n_parts; i++) {
        struct bytes value = value_of(&key->parts[i], m, body);
        bool prop = key->parts[i].kind == PART_PROP;
        if (value.len == 0)
            return fault_set(why, ERR_NOT_FOUND,
                             "the message has no %s%.*s (missing, null, empty, or no plain value), "
                             "so it has no key",
                             prop ? "property " : "", BYTES_ARG(key->parts[i].text));
        if (out->len - start + value.len > KEY_MAX)
            return fault_set(why, ERR_TOO_BIG, "the key is longer than 64 KiB");
        buf_add(out, value);
    }
    return out->err;
}

enum err key_make(const struct key *key, const struct once_message *message, struct buf *out,
                  struct fault *why)
{
    const struct json *body = NULL;
    size_t start = out->len;
    struct arena arena;
    _Alignas(16) uint8_t room[TREE_FEW];
    arena_init_in(&arena, TREE_MAX, room, sizeof room);
    enum err err = key->body ? read_body(message, &arena, &body, why) : OK;
    if (!err)
        err = append(key, message, body, out, why);
    if (err)
        out->len = start;
    arena_clear(&arena);
    return err;
}
