/* jansson as the oracle: what it accepts as proper JSON, our reader accepts with the same tree; and
 * what our writer makes of a tree with string keys, jansson accepts with the same tree.
 *
 * Left out, because the two differ by design: documents deeper than JSON_DEPTH_MAX, numbers beyond
 * jansson's range (we keep numbers as text), an escaped NUL inside a key (jansson's keys are C
 * strings), and a bare NUL behind the document (jansson takes it for the end, we refuse it).
 */

/* Both libraries call their types JSON_x. Ours have another name in this file. */
#define JSON_NULL   OUR_NULL
#define JSON_FALSE  OUR_FALSE
#define JSON_TRUE   OUR_TRUE
#define JSON_NUMBER OUR_NUMBER
#define JSON_STRING OUR_STRING
#define JSON_ARRAY  OUR_ARRAY
#define JSON_OBJECT OUR_OBJECT
#include "base/json.h"
#undef JSON_NULL
#undef JSON_FALSE
#undef JSON_TRUE
#undef JSON_NUMBER
#undef JSON_STRING
#undef JSON_ARRAY
#undef JSON_OBJECT

#include "base/test.h"

#include <jansson.h>
#include <stdio.h>

#define ARENA_MAX (4 << 20)
#define DOCUMENTS 2000
#define MUTANTS   12

/* ---- comparing ---- */

static size_t oracle_depth(json_t *node)
{
    size_t deepest = 0, i;
    const char *key;
    json_t *value;
    if (json_is_object(node)) {
        json_object_foreach(node, key, value)
        {
            size_t depth = oracle_depth(value);
            deepest = depth > deepest ? depth : deepest;
        }
    } else if (json_is_array(node)) {
        json_array_foreach(node, i, value)
        {
            size_t depth = oracle_depth(value);
            deepest = depth > deepest ? depth : deepest;
        }
    } else {
        return 0;
    }
    return deepest + 1;
}

static bool same_tree(json_t *theirs, const struct json *ours);

/* jansson keeps the last of equal keys, and json_member finds the last. */
static bool same_object(json_t *theirs, const struct json *ours)
{
    const char *name;
    json_t *value;
    json_object_foreach(theirs, name, value)
    {
        const struct json *member = json_member(ours, name);
        if (!member || !same_tree(value, member))
            return false;
    }
    json_each(member, ours) {
        char key[4096];
        snprintf(key, sizeof key, "%.*s", BYTES_ARG(member->key->text));
        if (member->key->type != OUR_STRING || !json_object_get(theirs, key))
            return false;
    }
    return true;
}

static bool same_array(json_t *theirs, const struct json *ours)
{
    size_t i = 0;
    json_each(element, ours) {
        if (!same_tree(json_array_get(theirs, i++), element))
            return false;
    }
    return i == ours->n && i == json_array_size(theirs);
}

static bool same_real(json_t *theirs, const struct json *ours)
{
    char text[4096];
    snprintf(text, sizeof text, "%.*s", BYTES_ARG(ours->text));
    return strtod(text, NULL) == json_real_value(theirs);
}

static bool same_tree(json_t *theirs, const struct json *ours)
{
    if (!theirs)
        return false;
    switch (json_typeof(theirs)) {
    case JSON_OBJECT:
        return ours->type == OUR_OBJECT && same_object(theirs, ours);
    case JSON_ARRAY:
        return ours->type == OUR_ARRAY && same_array(theirs, ours);
    case JSON_STRING:
        return ours->type == OUR_STRING &&
               bytes_equal(ours->text,
                           bytes_of(json_string_value(theirs), json_string_length(theirs)));
    case JSON_INTEGER:
        return ours->type == OUR_NUMBER &&
               json_int(ours, ~json_integer_value(theirs)) == json_integer_value(theirs);
    case JSON_REAL:
        return ours->type == OUR_NUMBER && same_real(theirs, ours);
    case JSON_TRUE:
        return ours->type == OUR_TRUE;
    case JSON_FALSE:
        return ours->type == OUR_FALSE;
    case JSON_NULL:
        return ours->type == OUR_NULL;
    }
    return false;
}

/* Whether jansson can be expected to read what we write of this tree. */
static bool is_proper(const struct json *node)
{
    json_each(child, node) {
        if (child->key &&
            (child->key->type != OUR_STRING ||
             (child->key->text.len && memchr(child->key->text.at, 0, child->key->text.len))))
            return false;
        if (!is_proper(child))
            return false;
    }
    return true;
}

static json_t *oracle(struct bytes text, json_error_t *error)
{
    return json_loadb((const char *)text.at, text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, error);
}

static void check_written(const struct json *ours)
{
    cleanup(buf_clear) struct buf out = buf_upto(1 << 20);
    json_put(&(struct json_out){.buf = &out}, ours);
    assert_int_equal(out.err, OK);

    json_error_t error;
    cleanup(json_decrefp) json_t *theirs = oracle(buf_bytes(&out), &error);
    if (!theirs && json_error_code(&error) == json_error_numeric_overflow)
        return;
    if (!theirs || !same_tree(theirs, ours))
        print_error("we wrote: %.*s\n", (int)out.len, (char *)out.at);
    assert_non_null(theirs);
    assert_true(same_tree(theirs, ours));
}

/* Returns whether both accepted it. */
static bool check_document(struct arena *arena, struct bytes text)
{
    cleanup(free_at) uint8_t *exact = test_copy(text.at, text.len);
    json_error_t error;
    cleanup(json_decrefp) json_t *theirs = oracle(text, &error);
    const struct json *ours = NULL;
    arena_reset(arena);
    enum err err = json_parse(bytes_of(exact, text.len), arena, &ours, NULL);

    if (err == ERR_MALFORMED && text.len > 0 && memchr(text.at, 0, text.len))
        return false;
    if (theirs && err == ERR_TOO_BIG) {
        assert_true(oracle_depth(theirs) > JSON_DEPTH_MAX);
        return false;
    }
    if (theirs && (err || !same_tree(theirs, ours))) {
        print_error("%s: %.*s\n", err_text(err), BYTES_ARG(text));
        fail();
    }
    if (!err && is_proper(ours))
        check_written(ours);
    return theirs && !err;
}

/* ---- making ---- */

static const char *pick(struct dice *d, const char *const *from, size_t n)
{
    return from[dice_below(d, n)];
}
#define PICK(d, ...)                                                                               \
    pick(d, (const char *const[]){__VA_ARGS__},                                                    \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void add_blanks(struct dice *d, struct buf *out)
{
    if (dice_below(d, 4) == 0)
        buf_add_str(out, PICK(d, " ", "\n", "\t", "\r", "  \n"));
}

static void add_string(struct dice *d, struct buf *out)
{
    buf_add_u8(out, '"');
    for (uint64_t n = dice_below(d, 8); n > 0; n--)
        buf_add_str(out, PICK(d, "a", "topic", " ", "'", "\\\"", "\\\\", "\\/", "\\b", "\\f", "\\n",
                              "\\r", "\\t", "\\u0001", "\\u001f", "\\u00E9", "\\u20ac", "\\uffff",
                              "\\ud83d\\ude00", "\\uDBFF\\uDFFF", "\x7f", "\xc2\x80", "\xdf\xbf",
                              "\xe0\xa0\x80", "\xed\x9f\xbf", "\xef\xbf\xbf", "\xf0\x90\x80\x80",
                              "\xf4\x8f\xbf\xbf", "{", "}", "[", ",", ":"));
    buf_add_u8(out, '"');
}

static void add_number(struct dice *d, struct buf *out)
{
    buf_add_str(out, PICK(d, "", "-"));
    if (dice_below(d, 3) == 0)
        buf_add_str(out, PICK(d, "0", "9223372036854775807", "9223372036854775808", "1"));
    else
        buf_printf(out, "%" PRIu64, dice_next(d) >> dice_below(d, 64));
    if (dice_below(d, 4) == 0)
        buf_printf(out, ".%03" PRIu64, dice_below(d, 1000));
    if (dice_below(d, 6) == 0)
        buf_printf(out, "%s%" PRIu64, PICK(d, "e", "E", "e+", "e-", "E-"), dice_below(d, 320));
}

static void add_value(struct dice *d, struct buf *out, int depth)
{
    uint64_t kind = depth == 0 ? 6 + dice_below(d, 4) : dice_below(d, depth > 5 ? 6 : 10);
    add_blanks(d, out);
    if (kind < 2) {
        add_string(d, out);
    } else if (kind < 4) {
        add_number(d, out);
    } else if (kind < 6) {
        buf_add_str(out, PICK(d, "true", "false", "null"));
    } else {
        bool object = kind < 8;
        buf_add_u8(out, object ? '{' : '[');
        for (uint64_t n = dice_below(d, 6), i = 0; i < n; i++) {
            if (i > 0)
                buf_add_u8(out, ',');
            if (object) {
                add_blanks(d, out);
                add_string(d, out);
                add_blanks(d, out);
                buf_add_u8(out, ':');
            }
            add_value(d, out, depth + 1);
        }
        add_blanks(d, out);
        buf_add_u8(out, object ? '}' : ']');
    }
    add_blanks(d, out);
}

/* One small damage: a byte changed, dropped or put in, or a piece repeated elsewhere. */
static void mutate(struct dice *d, struct buf *text)
{
    static const uint8_t likely[] = "{}[]\",:'\\u0159-+.eE tfn\n\x01\x80\xc3\xed\xff";
    size_t at = text->len ? dice_below(d, text->len) : 0;
    uint8_t byte = dice_below(d, 4) ? likely[dice_below(d, sizeof likely)] : (uint8_t)dice_next(d);
    struct buf out = buf_upto(1 << 20);

    buf_add(&out, bytes_of(text->at, at));
    switch (dice_below(d, 4)) {
    case 0:
        buf_add_u8(&out, byte);
        at += at < text->len;
        break;
    case 1:
        buf_add_u8(&out, byte);
        break;
    case 2:
        at += at < text->len;
        break;
    default: {
        size_t from = text->len ? dice_below(d, text->len) : 0;
        size_t len = dice_below(d, text->len - from + 1);
        buf_add(&out, bytes_of(text->at + from, len));
        break;
    }
    }
    buf_add(&out, bytes_of(text->at + at, text->len - at));
    buf_clear(text);
    *text = out;
}

/* ---- the tests ---- */

static void agrees_on_generated_documents(void **state)
{
    (void)state;
    struct dice d = test_dice();
    struct arena arena;
    arena_init(&arena, ARENA_MAX);
    size_t agreed = 0;
    for (int i = 0; i < DOCUMENTS; i++) {
        cleanup(buf_clear) struct buf text = buf_upto(1 << 20);
        add_value(&d, &text, 0);
        assert_int_equal(text.err, OK);
        agreed += check_document(&arena, buf_bytes(&text));
    }
    arena_clear(&arena);
    assert_true(agreed > DOCUMENTS / 4); /* the rest has numbers out of jansson's range */
}

static void agrees_on_damaged_documents(void **state)
{
    (void)state;
    struct dice d = test_dice();
    struct arena arena;
    arena_init(&arena, ARENA_MAX);
    size_t agreed = 0;
    for (int i = 0; i < DOCUMENTS; i++) {
        cleanup(buf_clear) struct buf text = buf_upto(1 << 20);
        add_value(&d, &text, 0);
        for (int j = 0; j < MUTANTS; j++) {
            mutate(&d, &text);
            agreed += check_document(&arena, buf_bytes(&text));
        }
    }
    arena_clear(&arena);
    assert_true(agreed > 0);
}

/* Each once by hand: places where readers of JSON like to differ. */
static void agrees_on_known_corners(void **state)
{
    (void)state;
    static const char *const corners[] = {
        "0",
        "-0",
        "-0.0",
        "1E400",
        "1e-400",
        "\"\"",
        "\"\\u0000\"",
        "{\"\":{\"\":[]}}",
        "[[],{}]",
        "{\"a\":1,\"a\":2}",
        "{\"a\":1,\"b\":0,\"a\":{\"a\":3}}",
        "9223372036854775807",
        "-9223372036854775808",
        "-9223372036854775809",
        "\"\\ud800\"",
        "\"\\u0000a\\u0000\"",
        " 1 ",
        "{\"\\u0000\":1}",
        "[1e5,1E+5,1e-5,0e0]",
        "\xef\xbb\xbf{}",
        "\"\xf0\x9f\x98\x80\"",
    };
    struct arena arena;
    arena_init(&arena, ARENA_MAX);
    for (size_t i = 0; i < sizeof corners / sizeof corners[0]; i++)
        (void)check_document(&arena, bytes_str(corners[i]));
    arena_clear(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_on_known_corners),
        cmocka_unit_test(agrees_on_generated_documents),
        cmocka_unit_test(agrees_on_damaged_documents),
    };
    return cmocka_run_group_tests_name("json_oracle", tests, NULL, NULL);
}
