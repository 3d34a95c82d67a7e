/* The laws of the reader and of the writer. What jansson thinks is in json_oracle_test.c. */
#include "base/json.h"
#include "base/test.h"

#include <math.h>
#include <stdio.h>

#define ARENA_MAX (1 << 20)

static struct arena arena;

static int fresh_arena(void **state)
{
    (void)state;
    arena_clear(&arena);
    arena_init(&arena, ARENA_MAX);
    return 0;
}

static int drop_arena(void **state)
{
    (void)state;
    arena_clear(&arena);
    return 0;
}

static const struct json *parsed(const char *text)
{
    const struct json *doc = NULL;
    size_t at = 0;
    enum err err = json_parse(bytes_str(text), &arena, &doc, &at);
    if (err)
        print_error("%s at %zu of %s\n", err_text(err), at, text);
    assert_int_equal(err, OK);
    return doc;
}

/* What the writer makes of a tree. */
static struct buf written(const struct json *doc)
{
    struct buf out = buf_upto(ARENA_MAX);
    struct json_out w = {.buf = &out};
    json_put(&w, doc);
    assert_int_equal(out.err, OK);
    return out;
}

static void check_rewrite(const char *in, const char *wanted)
{
    cleanup(buf_clear) struct buf out = written(parsed(in));
    assert_bytes_equal(buf_bytes(&out), bytes_str(wanted));
}

/* A document with everything in it; every proper prefix is cut inside the outer braces. */
static const char everything[] =
    "{\"brokerAddrs\":{0:\"127.0.0.1:10911\",-1:null}, 'it\\'s' : [true,false,-0.5e+3,[],{}],\n"
    "\t\"offsetTable\":{{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"}:5,\"x\":6},"
    "\"text\":\"\\u0001\\ud83d\\ude00 \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 "
    "\\\"\\\\\\/\\b\\f\\n\\r\\t\"}";

/* ---- reading ---- */

static void reads_proper_json(void **state)
{
    (void)state;
    check_rewrite("null", "null");
    check_rewrite(" \t\r\n[ ] ", "[]");
    check_rewrite("{ }", "{}");
    check_rewrite("\"\"", "\"\"");
    check_rewrite("-0", "-0");
    check_rewrite("[0, -1, 10.25, 1E5, 1e-07, 123456789012345678901234567890]",
                  "[0,-1,10.25,1E5,1e-07,123456789012345678901234567890]");
    check_rewrite("{\"a\" : {\"b\" : [ true , false , null ]} , \"\" : \"c\"}",
                  "{\"a\":{\"b\":[true,false,null]},\"\":\"c\"}");
}

static void reads_what_fastjson_writes(void **state)
{
    (void)state;
    check_rewrite("{\"brokerAddrs\":{0:\"127.0.0.1:10911\", -12 : 1}}",
                  "{\"brokerAddrs\":{0:\"127.0.0.1:10911\",-12:1}}");
    check_rewrite("{{\"queueId\":0, \"topic\":\"T\"} : 5, {} : 6}",
                  "{{\"queueId\":0,\"topic\":\"T\"}:5,{}:6}");
    check_rewrite("{'a':'say \"no\"','b\\'':\"it's\"}",
                  "{\"a\":\"say \\\"no\\\"\",\"b'\":\"it's\"}");
    check_rewrite("{{{0:1}:2}:3}", "{{{0:1}:2}:3}");

    const struct json *doc = parsed("{\"t\":{{\"queueId\":3}:5}}");
    const struct json *member = json_member(doc, "t")->child;
    assert_int_equal(member->key->type, JSON_OBJECT);
    assert_int_equal(json_int(json_member(member->key, "queueId"), 0), 3);
    assert_int_equal(json_int(member, 0), 5);
    assert_int_equal(json_int(json_member(parsed("{7:8}"), "7"), 0), 8);
}

/* Documents that are refused, and where: at the first byte that fits nowhere. */
static const struct {
    const char *text;
    size_t at;
} bad[] = {
    {"", 0},
    {"  ", 2},
    {"nul", 0},
    {"truex", 4},
    {"NULL", 0},
    {"NaN", 0},
    {"Infinity", 0},
    {"1 2", 2},
    {"01", 1},
    {"-", 0},
    {"+1", 0},
    {".5", 0},
    {"1.", 1},
    {"1.e5", 1},
    {"1e", 1},
    {"1e+", 1},
    {"0x10", 1},
    {"--1", 0},
    {"[1,]", 3},
    {"[,1]", 1},
    {"[1 2]", 3},
    {"[1", 2},
    {"]", 0},
    {"[1}", 2},
    {"{\"a\"}", 4},
    {"{\"a\":}", 5},
    {"{\"a\":1,}", 7},
    {"{\"a\" 1}", 5},
    {"{a:1}", 1},
    {"{true:1}", 1},
    {"{null:1}", 1},
    {"{[1]:1}", 1},
    {"{1.5:1}", 1},
    {"{1e3:1}", 1},
    {"{:1}", 1},
    {"{\"a\":1]", 6},
    {"\"a", 2},
    {"\"a'", 3},
    {"'a\"", 3},
    {"\"\\", 1},
    {"\"\\x41\"", 1},
    {"\"\\u12\"", 1},
    {"\"\\u12g4\"", 1},
    {"\"\\U0041\"", 1},
    {"\"a\tb\"", 2},
    {"\"a\nb\"", 2},
    {"/**/1", 0},
    {"// x\n1", 0},
    {"\xef\xbb\xbf"
     "1",
     0},
    {"\"\xff\"", 1},
    {"\"\xc3\"", 1},
    {"\"\xc0\x80\"", 1},
    {"\"\xe0\x80\x80\"", 1},
    {"\"\xed\xa0\x80\"", 1},
    {"\"\xf0\x80\x80\x80\"", 1},
    {"\"\xf4\x90\x80\x80\"", 1},
    {"\"\xf5\x80\x80\x80\"", 1},
    {"\"\xe2\x82\"", 1},
};

static void refuses_everything_else(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct json *doc = NULL;
        size_t at = 999;
        enum err err = json_parse(bytes_str(bad[i].text), &arena, &doc, &at);
        if (err != ERR_MALFORMED || at != bad[i].at)
            print_error("%s: %s at %zu\n", bad[i].text, err_text(err), at);
        assert_int_equal(err, ERR_MALFORMED);
        assert_int_equal(at, bad[i].at);
        assert_null(doc);
    }
    const struct json *doc;
    assert_int_equal(json_parse((struct bytes){0}, &arena, &doc, NULL), ERR_MALFORMED);
    assert_int_equal(json_parse(BYTES("1\0"), &arena, &doc, NULL), ERR_MALFORMED);
}

static void unescapes_strings(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct bytes wanted;
    } cases[] = {
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", {(const uint8_t *)"\"\\/\b\f\n\r\t", 8}},
        {"\"a\\u0000b\"", {(const uint8_t *)"a\0b", 3}},
        {"\"\\u0041\\u00e9\\u20AC\"", {(const uint8_t *)"A\xc3\xa9\xe2\x82\xac", 6}},
        {"\"\\ud83d\\ude00\"", {(const uint8_t *)"\xf0\x9f\x98\x80", 4}},
        {"\"\\uD800\\uDC00\\udbff\\udfff\"",
         {(const uint8_t *)"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 8}},
        {"\"\\ud83d\"", {(const uint8_t *)"\xef\xbf\xbd", 3}},
        {"\"\\ude00x\"", {(const uint8_t *)"\xef\xbf\xbdx", 4}},
        {"\"\\ud83d\\n\"", {(const uint8_t *)"\xef\xbf\xbd\n", 4}},
        {"\"\\ud83d\\ud83d\\ude00\"", {(const uint8_t *)"\xef\xbf\xbd\xf0\x9f\x98\x80", 7}},
        {"\"\\ud83d\\u0041\"",
         {(const uint8_t *)"\xef\xbf\xbd"
                           "A",
          4}},
        {"\"\x7f\"", {(const uint8_t *)"\x7f", 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes got = json_text(parsed(cases[i].text), (struct bytes){0});
        assert_bytes_equal(got, cases[i].wanted);
    }
}

/* A string without escapes is a slice of the input: nothing is copied. */
static void copies_only_what_was_escaped(void **state)
{
    (void)state;
    const char *in = "\"plain\"";
    assert_ptr_equal(parsed(in)->text.at, in + 1);
}

static void round_trips(void **state)
{
    (void)state;
    const struct json *doc = parsed(everything);
    cleanup(buf_clear) struct buf once = written(doc);
    const struct json *again;
    assert_int_equal(json_parse(buf_bytes(&once), &arena, &again, NULL), OK);
    assert_true(json_same(doc, again));
    cleanup(buf_clear) struct buf twice = written(again);
    assert_bytes_equal(buf_bytes(&twice), buf_bytes(&once));
}

static void tells_trees_apart(void **state)
{
    (void)state;
    static const char *const all[] = {
        "null",  "true",      "\"true\"", "[]",     "{}",        "1",
        "\"1\"", "1.0",       "[1]",      "[1,2]",  "[2,1]",     "[[1],2]",
        "{1:2}", "{\"1\":2}", "{1:3}",    "{{}:2}", "{{1:2}:2}", "{{1:3}:2}",
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++)
            assert_int_equal(json_same(parsed(all[i]), parsed(all[j])), i == j);
    assert_false(json_same(parsed("null"), NULL));
}

/* Each prefix sits in its own exact allocation, so the address sanitizer sees a read one byte too
 * far. */
static void refuses_every_prefix(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < sizeof everything - 1; cut++) {
        cleanup(free_at) uint8_t *exact = test_copy(everything, cut);
        const struct json *doc;
        size_t at = 0;
        arena_reset(&arena);
        assert_int_equal(json_parse(bytes_of(exact, cut), &arena, &doc, &at), ERR_MALFORMED);
        assert_true(at <= cut);
    }
    (void)parsed(everything);
}

/* Whatever a byte is changed to: refused, or accepted and then written and read back the same. */
static void survives_every_one_byte_change(void **state)
{
    (void)state;
    size_t len = sizeof everything - 1;
    for (size_t i = 0; i < len; i++) {
        for (int value = 0; value < 256; value++) {
            cleanup(free_at) uint8_t *exact = test_copy(everything, len);
            exact[i] = (uint8_t)value;
            arena_reset(&arena);
            const struct json *doc, *again;
            if (json_parse(bytes_of(exact, len), &arena, &doc, NULL) != OK)
                continue;
            cleanup(buf_clear) struct buf out = written(doc);
            assert_int_equal(json_parse(buf_bytes(&out), &arena, &again, NULL), OK);
            assert_true(json_same(doc, again));
        }
    }
}

/* `open` JSON_DEPTH_MAX times is read, once more is refused - before anything else is looked at. */
static void check_depth(const char *open, const char *middle, const char *close)
{
    for (int depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
        cleanup(buf_clear) struct buf text = buf_upto(4096);
        for (int i = 0; i < depth; i++)
            buf_add_str(&text, open);
        buf_add_str(&text, middle);
        for (int i = 0; i < depth; i++)
            buf_add_str(&text, close);
        const struct json *doc;
        size_t at = 0;
        enum err wanted = depth <= JSON_DEPTH_MAX ? OK : ERR_TOO_BIG;
        assert_int_equal(json_parse(buf_bytes(&text), &arena, &doc, &at), wanted);
        if (wanted)
            assert_int_equal(at, strlen(open) * JSON_DEPTH_MAX);
    }
}

static void bounds_the_depth(void **state)
{
    (void)state;
    check_depth("[", "", "]");
    check_depth("{\"a\":", "1", "}");
    check_depth("{", "0", ":1}");
}

/* With every ceiling below what the document needs: refused as too big, never above the ceiling. */
static void bounds_the_memory(void **state)
{
    (void)state;
    const struct json *doc;
    size_t max = 0;
    for (;; max += 8) {
        struct arena small;
        arena_init(&small, max);
        enum err err = json_parse(bytes_str(everything), &small, &doc, NULL);
        assert_true(small.used <= max);
        arena_clear(&small);
        if (err == OK)
            break;
        assert_int_equal(err, ERR_TOO_BIG);
    }
    assert_in_range(max, 1000, 4096);
}

/* ---- asking ---- */

static void accessors_forgive(void **state)
{
    (void)state;
    const struct json *d =
        parsed("{\"i\":-7,\"s\":\"42\",\"r\":2.9,\"e\":\"1e3\",\"big\":99999999999999999999,"
               "\"t\":true,\"T\":\"True\",\"f\":\"false\",\"one\":1,\"o\":{},\"n\":null,"
               "\"hex\":\"0x10\",\"min\":-9223372036854775808,\"a\":[1],"
               "\"below\":-9223372036854775809,\"blank\":\" 1\",\"inf\":\"inf\"}");
    assert_int_equal(json_int(json_member(d, "i"), 0), -7);
    assert_int_equal(json_int(json_member(d, "s"), 0), 42);
    assert_int_equal(json_int(json_member(d, "r"), 0), 2);
    assert_int_equal(json_int(json_member(d, "e"), 0), 1000);
    assert_true(json_int(json_member(d, "min"), 0) == INT64_MIN);
    static const char *const no_ints[] = {"big", "below", "hex", "blank", "inf",
                                          "t",   "o",     "n",   "a",     "missing"};
    for (size_t i = 0; i < sizeof no_ints / sizeof no_ints[0]; i++)
        assert_int_equal(json_int(json_member(d, no_ints[i]), 5), 5);

    assert_true(json_bool(json_member(d, "t"), false));
    assert_true(json_bool(json_member(d, "T"), false));
    assert_true(json_bool(json_member(d, "one"), false));
    assert_false(json_bool(json_member(d, "f"), true));
    static const char *const no_bools[] = {"i", "s", "o", "n", "a", "missing"};
    for (size_t i = 0; i < sizeof no_bools / sizeof no_bools[0]; i++) {
        assert_true(json_bool(json_member(d, no_bools[i]), true));
        assert_false(json_bool(json_member(d, no_bools[i]), false));
    }

    assert_bytes_equal(json_text(json_member(d, "i"), BYTES("x")), BYTES("-7"));
    assert_bytes_equal(json_text(json_member(d, "t"), BYTES("x")), BYTES("true"));
    assert_bytes_equal(json_text(json_member(d, "n"), BYTES("x")), BYTES("x"));
    assert_bytes_equal(json_text(json_member(d, "a"), BYTES("x")), BYTES("x"));
}

static void lookups_of_nothing_can_be_chained(void **state)
{
    (void)state;
    const struct json *d = parsed("{\"a\":[1]}");
    assert_null(json_member(json_member(json_member(d, "b"), "c"), "d"));
    assert_null(json_member(json_member(d, "a"), "0"));
    json_each(node, json_member(d, "b"))
        fail();
    assert_bytes_equal(json_text(NULL, BYTES("x")), BYTES("x"));
}

static void the_last_of_equal_keys_is_found(void **state)
{
    (void)state;
    const struct json *d = parsed("{\"a\":1,\"b\":2,\"a\":3,{\"a\":9}:9}");
    assert_int_equal(json_int(json_member(d, "a"), 0), 3);
    assert_int_equal(d->n, 4);
}

/* ---- writing ---- */

static void writes_compact_json(void **state)
{
    (void)state;
    cleanup(buf_clear) struct buf out = buf_upto(4096);
    struct json_out w = {.buf = &out};
    json_open(&w);
    json_text_member(&w, "name", BYTES("a\"b\\c\x01\n\x1f\x7f\xc3\xa9"));
    json_int_member(&w, "min", INT64_MIN);
    json_bool_member(&w, "yes", true);
    json_key(&w, "list");
    json_open_array(&w);
    json_put_null(&w);
    json_put_bool(&w, false);
    json_open_array(&w);
    json_close_array(&w);
    json_open(&w);
    json_close(&w);
    json_put_text(&w, (struct bytes){0});
    json_close_array(&w);
    json_key_int(&w, 0);
    json_put_int(&w, -1);
    json_key_quoted(&w, 1);
    json_put_int(&w, 2);
    json_open(&w);
    json_int_member(&w, "queueId", 3);
    json_close(&w);
    json_key_object(&w);
    json_put_int(&w, 5);
    json_key_text(&w, BYTES("last"));
    json_put_real(&w, 0.1);
    json_close(&w);
    assert_int_equal(out.err, OK);
    assert_bytes_equal(
        buf_bytes(&out),
        BYTES("{\"name\":\"a\\\"b\\\\c\\u0001\\u000a\\u001f\x7f\xc3\xa9\","
              "\"min\":-9223372036854775808,\"yes\":true,\"list\":[null,false,[],{},\"\"],"
              "0:-1,\"1\":2,{\"queueId\":3}:5,\"last\":0.1}"));
}

static void replaces_what_is_not_utf8(void **state)
{
    (void)state;
    cleanup(buf_clear) struct buf out = buf_upto(4096);
    struct json_out w = {.buf = &out};
    json_put_text(&w, BYTES("a\xff"
                            "b\xe2\x82"
                            "c\xed\xa0\x80"));
    assert_bytes_equal(buf_bytes(&out), BYTES("\"a\xef\xbf\xbd"
                                              "b\xef\xbf\xbd\xef\xbf\xbd"
                                              "c\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""));
}

/* A real is written so that it is read back as the same number, and shortest where that is easy. */
static void writes_reals(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *wanted;
    } cases[] = {
        {0, "0.0"},
        {-2, "-2.0"},
        {0.1, "0.1"},
        {1e300, "1e+300"},
        {1.0 / 3, "0.3333333333333333"},
        {NAN, "null"},
        {INFINITY, "null"},
        {-INFINITY, "null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cleanup(buf_clear) struct buf out = buf_upto(64);
        json_put_real(&(struct json_out){.buf = &out}, cases[i].value);
        assert_bytes_equal(buf_bytes(&out), bytes_str(cases[i].wanted));
        const struct json *doc;
        assert_int_equal(json_parse(buf_bytes(&out), &arena, &doc, NULL), OK);
    }
}

static void the_writer_stops_at_the_ceiling(void **state)
{
    (void)state;
    const struct json *doc = parsed(everything);
    for (size_t max = 0; max < 200; max++) {
        cleanup(buf_clear) struct buf out = buf_upto(max);
        json_put(&(struct json_out){.buf = &out}, doc);
        assert_int_equal(out.err, ERR_TOO_BIG);
        assert_true(out.len <= max);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh_arena, drop_arena)
    const struct CMUnitTest tests[] = {
        CASE(reads_proper_json),
        CASE(reads_what_fastjson_writes),
        CASE(refuses_everything_else),
        CASE(unescapes_strings),
        CASE(copies_only_what_was_escaped),
        CASE(round_trips),
        CASE(tells_trees_apart),
        CASE(refuses_every_prefix),
        CASE(survives_every_one_byte_change),
        CASE(bounds_the_depth),
        CASE(bounds_the_memory),
        CASE(accessors_forgive),
        CASE(lookups_of_nothing_can_be_chained),
        CASE(the_last_of_equal_keys_is_found),
        CASE(writes_compact_json),
        CASE(replaces_what_is_not_utf8),
        CASE(writes_reals),
        CASE(the_writer_stops_at_the_ceiling),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
