/* json.c - the reader: text becomes a tree of nodes in the arena; and the questions one asks it.
 *
 * A recursive descent whose depth is bounded by JSON_DEPTH_MAX. Every turn of every loop eats at
 * least one byte of the input, and every allocation is bounded by bytes that are really there. On
 * failure the cursor stands where the document stopped making sense; the nodes made so far stay
 * in the arena and go with it.
 */
#include "base/json.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <strings.h>

struct reader {
    struct rd in;
    struct arena *arena;
};

/* `depth` is how many containers the value stands in. */
static enum err read_value(struct reader *r, unsigned depth, const struct json *key,
                           struct json **out);
static enum err read_key(struct reader *r, unsigned depth, struct json **out);
static enum err read_array(struct reader *r, unsigned depth, struct json *array);
static enum err read_object(struct reader *r, unsigned depth, struct json *object);
static enum err read_string(struct reader *r, struct bytes *out);
static enum err read_number(struct reader *r, struct bytes *out);
static enum err read_word(struct reader *r, struct json *node);
static void skip_blanks(struct reader *r);
static bool accept(struct reader *r, char wanted);
static size_t number_length(struct bytes text);

enum err json_parse(struct bytes in, struct arena *arena, const struct json **out, size_t *at)
{
    struct reader r = {.in = rd_over(in), .arena = arena};
    const uint8_t *start = r.in.at;

    struct json *root = NULL;
    skip_blanks(&r);
    enum err err = read_value(&r, 0, NULL, &root);
    if (!err) {
        skip_blanks(&r);
        if (rd_left(&r.in) > 0)
            err = ERR_MALFORMED;
    }
    if (err) {
        if (at)
            *at = (size_t)(r.in.at - start);
        return err;
    }
    *out = root;
    return OK;
}

const struct json *json_member(const struct json *object, const char *name)
{
    if (!object || object->type != JSON_OBJECT)
        return NULL;

    struct bytes wanted = bytes_str(name);
    const struct json *found = NULL;
    json_each(member, object) {
        if (member->key->type != JSON_OBJECT && bytes_equal(member->key->text, wanted))
            found = member;
    }
    return found;
}

struct bytes json_text(const struct json *node, struct bytes fallback)
{
    if (!node || node->type == JSON_NULL || node->type == JSON_ARRAY || node->type == JSON_OBJECT)
        return fallback;
    return node->text;
}

int64_t json_int(const struct json *node, int64_t fallback)
{
    if (!node || (node->type != JSON_NUMBER && node->type != JSON_STRING))
        return fallback;

    int64_t whole;
    if (bytes_to_i64(node->text, &whole))
        return whole;

    /* A fraction or an exponent: the fraction is dropped, as Java's Number.longValue does. The form
     * is checked first, because strtod would also take "0x1p3", "inf" and blanks. */
    char copy[64];
    if (node->text.len >= sizeof copy || number_length(node->text) != node->text.len)
        return fallback;
    memcpy(copy, node->text.at, node->text.len);
    copy[node->text.len] = '\0';
    double real = strtod(copy, NULL);
    if (!(real > -0x1p63 && real < 0x1p63))
        return fallback;
    return (int64_t)real;
}

bool json_bool(const struct json *node, bool fallback)
{
    if (!node)
        return fallback;
    if (node->type == JSON_TRUE || node->type == JSON_FALSE)
        return node->type == JSON_TRUE;
    if (node->type != JSON_STRING && node->type != JSON_NUMBER)
        return fallback;

    const char *text = (const char *)node->text.at;
    size_t len = node->text.len;
    if ((len == 4 && strncasecmp(text, "true", 4) == 0) || (len == 1 && text[0] == '1'))
        return true;
    if ((len == 5 && strncasecmp(text, "false", 5) == 0) || (len == 1 && text[0] == '0'))
        return false;
    return fallback;
}

bool json_same(const struct json *a, const struct json *b)
{
    if (!a || !b)
        return a == b;
    if (a->type != b->type || a->n != b->n || !bytes_equal(a->text, b->text))
        return false;

    const struct json *x = a->child, *y = b->child;
    for (; x && y; x = x->next, y = y->next)
        if (!json_same(x->key, y->key) || !json_same(x, y))
            return false;
    return !x && !y;
}

/* ---- values ---- */

static struct json *node_new(struct reader *r, enum json_type type, const struct json *key)
{
    struct json *node = arena_alloc(r->arena, sizeof *node);
    if (node) {
        node->type = type;
        node->key = key;
    }
    return node;
}

/* The next byte without eating it; -1 at the end. */
static int peek(const struct reader *r)
{
    return rd_left(&r->in) > 0 ? r->in.at[0] : -1;
}

static enum err read_value(struct reader *r, unsigned depth, const struct json *key,
                           struct json **out)
{
    struct json *node = node_new(r, JSON_NULL, key);
    if (!node)
        return ERR_TOO_BIG;

    enum err err;
    switch (peek(r)) {
    case '{':
        err = read_object(r, depth, node);
        break;
    case '[':
        err = read_array(r, depth, node);
        break;
    case '"':
    case '\'':
        node->type = JSON_STRING;
        err = read_string(r, &node->text);
        break;
    case 't':
    case 'f':
    case 'n':
        err = read_word(r, node);
        break;
    default:
        node->type = JSON_NUMBER;
        err = read_number(r, &node->text);
        break;
    }
    if (!err)
        *out = node;
    return err;
}

static enum err read_word(struct reader *r, struct json *node)
{
    static const struct {
        enum json_type type;
        struct bytes text;
    } words[] = {
        {JSON_NULL, {(const uint8_t *)"null", 4}},
        {JSON_TRUE, {(const uint8_t *)"true", 4}},
        {JSON_FALSE, {(const uint8_t *)"false", 5}},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (bytes_start(bytes_of(r->in.at, rd_left(&r->in)), words[i].text)) {
            node->type = words[i].type;
            node->text = rd_take(&r->in, words[i].text.len);
            return OK;
        }
    }
    return ERR_MALFORMED;
}

static enum err read_array(struct reader *r, unsigned depth, struct json *array)
{
    if (depth == JSON_DEPTH_MAX)
        return ERR_TOO_BIG;

    array->type = JSON_ARRAY;
    (void)accept(r, '[');
    skip_blanks(r);
    if (accept(r, ']'))
        return OK;

    const struct json **end = &array->child;
    do {
        struct json *element;
        skip_blanks(r);
        enum err err = read_value(r, depth + 1, NULL, &element);
        if (err)
            return err;
        *end = element;
        end = &element->next;
        array->n++;
        skip_blanks(r);
    } while (accept(r, ','));
    return accept(r, ']') ? OK : ERR_MALFORMED;
}

static enum err read_object(struct reader *r, unsigned depth, struct json *object)
{
    if (depth == JSON_DEPTH_MAX)
        return ERR_TOO_BIG;

    object->type = JSON_OBJECT;
    (void)accept(r, '{');
    skip_blanks(r);
    if (accept(r, '}'))
        return OK;

    const struct json **end = &object->child;
    do {
        struct json *key, *member;
        skip_blanks(r);
        enum err err = read_key(r, depth + 1, &key);
        if (err)
            return err;
        skip_blanks(r);
        if (!accept(r, ':'))
            return ERR_MALFORMED;
        skip_blanks(r);
        err = read_value(r, depth + 1, key, &member);
        if (err)
            return err;
        *end = member;
        end = &member->next;
        object->n++;
        skip_blanks(r);
    } while (accept(r, ','));
    return accept(r, '}') ? OK : ERR_MALFORMED;
}

/* What fastjson writes as a key: a string, an integer without quotes, an object. */
static enum err read_key(struct reader *r, unsigned depth, struct json **out)
{
    const uint8_t *start = r->in.at;
    int first = peek(r);
    if (first == '[' || first == 't' || first == 'f' || first == 'n')
        return ERR_MALFORMED;

    struct json *key;
    enum err err = read_value(r, depth, NULL, &key);
    if (err)
        return err;
    if (key->type == JSON_NUMBER) {
        for (size_t i = 0; i < key->text.len; i++) {
            uint8_t c = key->text.at[i];
            if (c == '.' || c == 'e' || c == 'E') {
                r->in.at = start;
                return ERR_MALFORMED;
            }
        }
    }
    *out = key;
    return OK;
}

static void skip_blanks(struct reader *r)
{
    const uint8_t *at = r->in.at;
    while (at < r->in.end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    r->in.at = at;
}

static bool accept(struct reader *r, char wanted)
{
    if (peek(r) != wanted)
        return false;
    r->in.at++;
    return true;
}

/* ---- numbers ---- */

static size_t digits(struct bytes text, size_t from)
{
    size_t at = from;
    while (at < text.len && text.at[at] >= '0' && text.at[at] <= '9')
        at++;
    return at - from;
}

/* How many bytes at the start are a number in JSON's form, the longest there is; 0: none. */
static size_t number_length(struct bytes text)
{
    size_t at = text.len > 0 && text.at[0] == '-' ? 1 : 0;
    size_t whole = digits(text, at);
    if (whole == 0)
        return 0;
    at += text.at[at] == '0' ? 1 : whole;

    if (at < text.len && text.at[at] == '.') {
        size_t fraction = digits(text, at + 1);
        if (fraction == 0)
            return at;
        at += 1 + fraction;
    }
    if (at < text.len && (text.at[at] == 'e' || text.at[at] == 'E')) {
        size_t sign = at + 1 < text.len && (text.at[at + 1] == '+' || text.at[at + 1] == '-');
        size_t exponent = digits(text, at + 1 + sign);
        if (exponent == 0)
            return at;
        at += 1 + sign + exponent;
    }
    return at;
}

/* What follows the number is judged by the caller: "01" and "1.x" end in a byte that fits nowhere.
 */
static enum err read_number(struct reader *r, struct bytes *out)
{
    size_t len = number_length(bytes_of(r->in.at, rd_left(&r->in)));
    if (len == 0)
        return ERR_MALFORMED;
    *out = rd_take(&r->in, len);
    return OK;
}

/* ---- strings ---- */

/* What a backslash and this letter stand for; -1: not an escape. */
static int simple_escape(uint8_t letter)
{
    switch (letter) {
    case '"':
    case '\'': /* in single-quoted strings; harmless in the others */
    case '\\':
    case '/':
        return letter;
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return -1;
    }
}

/* The length of the escape at `at`, which is a backslash; 0 if it is none. */
static size_t escape_length(const uint8_t *at, const uint8_t *end)
{
    if (end - at < 2)
        return 0;
    if (at[1] == 'u')
        return utf8_hex4(at + 2, end) >= 0 ? 6 : 0;
    return simple_escape(at[1]) >= 0 ? 2 : 0;
}

/* `raw` has been checked. The result is never longer: six bytes become three at most, twelve four.
 */
static enum err unescape(struct reader *r, struct bytes raw, struct bytes *out)
{
    uint8_t *start = arena_alloc(r->arena, raw.len);
    if (!start)
        return ERR_TOO_BIG;

    uint8_t *to = start;
    const uint8_t *at = raw.at, *end = raw.at + raw.len;
    while (at < end) {
        if (*at != '\\') {
            *to++ = *at++;
        } else if (at[1] == 'u') {
            uint8_t utf8[4];
            size_t len = utf8_put(utf8, utf8_take_escape(&at, end));
            memcpy(to, utf8, len);
            to += len;
        } else {
            *to++ = (uint8_t)simple_escape(at[1]);
            at += 2;
        }
    }
    *out = bytes_of(start, (size_t)(to - start));
    return OK;
}

/* First finds the end and checks everything on the way; then copies, only if there were escapes. */
static enum err read_string(struct reader *r, struct bytes *out)
{
    uint8_t quote = rd_u8(&r->in);
    const uint8_t *start = r->in.at;
    bool escaped = false;

    for (;;) {
        int c = peek(r);
        if (c < 0x20) /* a bare control character, or the end */
            return ERR_MALFORMED;
        if (c == quote)
            break;
        size_t len;
        if (c == '\\') {
            len = escape_length(r->in.at, r->in.end);
            escaped = true;
        } else {
            len = utf8_length(r->in.at, r->in.end);
        }
        if (len == 0)
            return ERR_MALFORMED;
        r->in.at += len;
    }

    struct bytes raw = bytes_of(start, (size_t)(r->in.at - start));
    r->in.at++;
    if (escaped)
        return unescape(r, raw, out);
    *out = raw;
    return OK;
}
