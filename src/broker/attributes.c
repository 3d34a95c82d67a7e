/* attributes.c - the attributes of a topic: which there are, and how they change.
 *
 * They are kept as the JSON object that files and registrations carry. A change is a list
 * "+key=value,-key": set, take away. Witness: AttributeParser, AttributeUtil and TopicAttributes.
 * Of those with a meaning for the store only the value that this store has is taken.
 */
#include "broker/admin_int.h"

#define CHANGES_MAX 16

struct attribute {
    const char *key;
    bool changeable;
    const char *const *values; /* NULL-ended; NULL: a number from -1 on, or what `valid` says */
    bool (*valid)(struct bytes value);
};

static const char *const queue_types[] = {"SimpleCQ", NULL};
static const char *const cleanup_policies[] = {"DELETE", NULL};
static const char *const message_types[] = {"UNSPECIFIED", "NORMAL",      "FIFO",
                                            "DELAY",       "TRANSACTION", NULL};

static const struct attribute known[] = {
    {"queue.type", false, queue_types, NULL},
    {"cleanup.policy", false, cleanup_policies, NULL},
    {"message.type", true, message_types, NULL},
    {"reserve.time", true, NULL, NULL},
    {DEDUP_ATTRIBUTE, true, NULL, prop_name_valid}, /* our own */
};

struct change {
    struct bytes key, value;
    bool remove;
};

static const struct attribute *attribute_find(struct bytes key)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (bytes_equal(key, bytes_str(known[i].key)))
            return &known[i];
    return NULL;
}

static bool value_allowed(const struct attribute *a, struct bytes value)
{
    int64_t number;
    if (a->valid)
        return a->valid(value);
    if (!a->values)
        return bytes_to_i64(value, &number) && number >= -1;
    for (const char *const *v = a->values; *v; v++)
        if (bytes_equal(value, bytes_str(*v)))
            return true;
    return false;
}

static struct bytes cut(struct bytes *rest, uint8_t at)
{
    const uint8_t *end = rest->len ? memchr(rest->at, at, rest->len) : NULL;
    struct bytes piece = bytes_of(rest->at, end ? (size_t)(end - rest->at) : rest->len);
    *rest = end ? bytes_from(*rest, piece.len + 1) : (struct bytes){0};
    return piece;
}

static enum err change_read(struct bytes text, struct change *out, struct fault *why)
{
    struct bytes value = text;
    struct bytes key = cut(&value, '=');
    bool adds = key.len > 1 && key.at[0] == '+';
    bool removes = key.len > 1 && key.at[0] == '-' && key.len == text.len;
    if (!adds && !removes)
        return fault_set(why, ERR_INVALID,
                         "the attribute change [%.*s] should be +key=value or -key", BRIEF(text));
    *out = (struct change){bytes_from(key, 1), value, removes};
    return OK;
}

static enum err change_check(const struct change *c, bool creating, bool present, struct fault *why)
{
    const struct attribute *a = attribute_find(c->key);
    if (!a)
        return fault_set(why, ERR_INVALID, "unsupported key: %.*s", BRIEF(c->key));
    if (creating && c->remove)
        return fault_set(why, ERR_INVALID,
                         "only add attribute is supported while creating topic. key: %.*s",
                         BRIEF(c->key));
    if (c->remove && !present)
        return fault_set(why, ERR_INVALID, "attempt to delete a nonexistent key: %.*s",
                         BRIEF(c->key));
    if (!creating && !a->changeable)
        return fault_set(why, ERR_INVALID, "attempt to update an unchangeable attribute. key: %.*s",
                         BRIEF(c->key));
    if (!c->remove && !value_allowed(a, c->value))
        return fault_set(why, ERR_INVALID, "the value [%.*s] is not possible for %s",
                         BRIEF(c->value), a->key);
    return OK;
}

/* What is there and does not change, then what was added or changed. */
static void attributes_write(const struct json *current, const struct change *changes, size_t n,
                             struct json_out *w)
{
    size_t kept = 0;
    json_open(w);
    json_each(node, current) {
        bool changes_it = false;
        for (size_t i = 0; i < n; i++)
            changes_it = changes_it || bytes_equal(node->key->text, changes[i].key);
        if (changes_it)
            continue;
        json_key_text(w, node->key->text);
        json_put(w, node);
        kept++;
    }
    for (size_t i = 0; i < n; i++) {
        if (changes[i].remove)
            continue;
        json_key_text(w, changes[i].key);
        json_put_text(w, changes[i].value);
        kept++;
    }
    json_close(w);
    if (kept == 0)
        w->buf->len = 0; /* none is the empty text */
}

static enum err changes_read(struct bytes text, struct change *changes, size_t *n,
                             struct fault *why)
{
    while (text.len > 0) {
        if (*n == CHANGES_MAX)
            return fault_set(why, ERR_INVALID, "more than %d attribute changes", CHANGES_MAX);
        enum err err = change_read(cut(&text, ','), &changes[*n], why);
        if (err)
            return err;
        for (size_t i = 0; i < *n; i++)
            if (bytes_equal(changes[i].key, changes[*n].key))
                return fault_set(why, ERR_INVALID, "key duplication: %.*s", BRIEF(changes[i].key));
        ++*n;
    }
    return OK;
}

static bool has_member(const struct json *object, struct bytes key)
{
    json_each(node, object) {
        if (bytes_equal(node->key->text, key))
            return true;
    }
    return false;
}

enum err attributes_change(struct bytes current, struct bytes text, bool creating,
                           struct arena *arena, struct bytes *out, struct fault *why)
{
    struct change changes[CHANGES_MAX];
    size_t n = 0;
    enum err err = changes_read(text, changes, &n, why);
    const struct json *object = NULL;
    if (!err && current.len)
        err = json_parse(current, arena, &object, NULL);
    for (size_t i = 0; !err && i < n; i++)
        err = change_check(&changes[i], creating, has_member(object, changes[i].key), why);
    if (err)
        return err;
    if (n == 0) {
        *out = current;
        return OK;
    }
    struct buf made = buf_upto(ATTRIBUTES_MAX);
    attributes_write(object, changes, n, &(struct json_out){.buf = &made});
    err = made.err;
    if (!err) {
        *out = made.len ? arena_copy(arena, buf_bytes(&made)) : (struct bytes){0};
        err = made.len && !out->at ? ERR_TOO_BIG : OK;
    }
    buf_clear(&made);
    return err;
}

struct bytes attribute_get(struct bytes attributes, struct bytes key, struct arena *arena)
{
    const struct json *object = NULL;
    if (attributes.len == 0 || json_parse(attributes, arena, &object, NULL))
        return (struct bytes){0};
    json_each(node, object) {
        if (bytes_equal(node->key->text, key) && node->type == JSON_STRING)
            return node->text;
    }
    return (struct bytes){0};
}
