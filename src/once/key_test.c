/* Keys: what an expression makes of a message, and what it refuses. */
#include "once/key.h"

#include "base/test.h"

#include <stdio.h>

static struct fault why;

static const struct once_property properties[] = {
    {"region", "eu"}, {"empty", ""}, {"a.b", "dotted"}, {"region", "us"}, {"none", NULL}};

static struct once_message sample(const char *body)
{
    return (struct once_message){
        .topic = "Orders",
        .tag = "new",
        .keys = "K1",
        .id = "0A0B",
        .body = body,
        .body_size = body ? strlen(body) : 0,
        .properties = properties,
        .n_properties = sizeof properties / sizeof properties[0],
    };
}

static enum err make(const char *expression, const struct once_message *m, struct buf *out)
{
    struct key *key = NULL;
    *out = buf_upto(2 * KEY_MAX);
    why = (struct fault){0};
    enum err err = key_compile(expression, &key, &why);
    if (!err)
        err = key_make(key, m, out, &why);
    key_free(key);
    return err;
}

static void gives(const char *expression, const char *body, const char *wanted)
{
    struct buf out;
    struct once_message m = sample(body);
    assert_int_equal(make(expression, &m, &out), OK);
    assert_bytes_equal(buf_bytes(&out), bytes_str(wanted));
    buf_clear(&out);
}

static void fails(enum err err, const char *expression, const char *body, const char *says)
{
    struct buf out;
    struct once_message m = sample(body);
    assert_int_equal(make(expression, &m, &out), err);
    assert_int_equal(out.len, 0);
    if (!strstr(why.text, says))
        fail_msg("\"%s\" does not say \"%s\"", why.text, says);
    buf_clear(&out);
}

static void every_field_of_a_message_can_be_a_part(void **state)
{
    (void)state;
    gives("{key}", NULL, "K1");
    gives("{topic}/{tag}/{msgid}", NULL, "Orders/new/0A0B");
    gives("order:{prop.region}", NULL, "order:us"); /* the last one counts */
    gives("{prop.a.b}", NULL, "dotted");
    gives("{{{key}}}", NULL, "{K1}");
}

static void ID_16_a_path_leads_into_the_body(void **state)
{
    (void)state;
    gives("$.couponTaskId", "{\"couponTaskId\":\"task12345\"}", "task12345");
    gives("order:{body.orderId}", "{\"orderId\":17}", "order:17");
    gives("{body.a.b[1].c}", "{\"a\":{\"b\":[0,{\"c\":\"x\"}]}}", "x");
    gives("{body[0]}", "[\"first\"]", "first");
    gives("{body[\"a.b\"]}", "{\"a.b\":1}", "1");
    gives("{body.a\\.b}", "{\"a.b\":1}", "1");
    gives("{body.odd\\}name}", "{\"odd}name\":true}", "true");
    gives("{body.a}", "{\"a\":\"\\u00e4\\u0041\"}",
          "\xc3\xa4"
          "A");
    gives("{body.a}", "{\"a\":1,\"a\":2}", "2");
    gives("{body.n}", "{\"n\":1.0}", "1.0");
}

static void a_key_may_hold_zero_bytes(void **state)
{
    (void)state;
    struct buf out;
    struct once_message m = sample("{\"a\":\"x\\u0000y\"}");
    assert_int_equal(make("{body.a}", &m, &out), OK);
    assert_bytes_equal(buf_bytes(&out), bytes_of("x\0y", 3));
    buf_clear(&out);
}

static void H_15_what_is_missing_null_or_empty_is_no_key(void **state)
{
    (void)state;
    struct buf out;
    fails(ERR_NOT_FOUND, "p:{prop.nothing}", NULL, "no property nothing");
    fails(ERR_NOT_FOUND, "p:{prop.empty}", NULL, "no property empty");
    fails(ERR_NOT_FOUND, "p:{prop.none}", NULL, "no property none");
    fails(ERR_NOT_FOUND, "p:{body.a}", "{}", "{body.a}");
    fails(ERR_NOT_FOUND, "p:{body.a}", "{\"a\":null}", "no key");
    fails(ERR_NOT_FOUND, "p:{body.a}", "{\"a\":\"\"}", "no key");
    fails(ERR_NOT_FOUND, "p:{body.a}", "{\"a\":{}}", "no key");
    fails(ERR_NOT_FOUND, "p:{body.a[2]}", "{\"a\":[1,2]}", "no key");
    fails(ERR_NOT_FOUND, "p:{body.a.b}", "{\"a\":1}", "no key");
    fails(ERR_NOT_FOUND, "$.a", "[1]", "$.a");
    struct once_message nothing = {0};
    const char *const fields[] = {"x{key}", "x{tag}", "x{topic}", "x{msgid}"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(make(fields[i], &nothing, &out), ERR_NOT_FOUND);
        buf_clear(&out);
    }
}

static void H_15_an_expression_that_is_the_same_for_all_is_refused(void **state)
{
    (void)state;
    fails(ERR_INVALID, "", NULL, "all messages would be one");
    fails(ERR_INVALID, "coupon", NULL, "all messages would be one");
    fails(ERR_INVALID, "{{key}}", NULL, "all messages would be one");
}

static void a_mistake_is_shown_with_its_position(void **state)
{
    (void)state;
    fails(ERR_INVALID, "a{", NULL, "position 3: unknown field");
    fails(ERR_INVALID, "a{key", NULL, "position 2: a { that is not closed");
    fails(ERR_INVALID, "a{kez}", NULL, "position 3: unknown field");
    fails(ERR_INVALID, "a{keys}", NULL, "position 3: unknown field");
    fails(ERR_INVALID, "a}b{key}", NULL, "position 2: a } that closes nothing");
    fails(ERR_INVALID, "{prop}", NULL, "position 6: a name is wanted");
    fails(ERR_INVALID, "{prop.}", NULL, "an empty name");
    fails(ERR_INVALID, "{prop.x", NULL, "not closed");
    fails(ERR_INVALID, "{body}", NULL, "a path into the body");
    fails(ERR_INVALID, "{body.}", NULL, "an empty name");
    fails(ERR_INVALID, "{body.a..b}", NULL, "an empty name");
    fails(ERR_INVALID, "{body.a[}", NULL, "an index");
    fails(ERR_INVALID, "{body.a[1}", NULL, "a ] is wanted");
    fails(ERR_INVALID, "{body.a[\"x]}", NULL, "not closed");
    fails(ERR_INVALID, "{body.a[\"\"]}", NULL, "an empty name");
    fails(ERR_INVALID, "{body.a[1]b}", NULL, "a . or a [");
    fails(ERR_INVALID, "$.", NULL, "an empty name");
    fails(ERR_INVALID, "{key.x}", NULL, "not closed");
}

static void a_body_that_is_no_json_makes_no_key(void **state)
{
    (void)state;
    fails(ERR_MALFORMED, "{body.a}", NULL, "empty");
    fails(ERR_MALFORMED, "{body.a}", "hello", "not JSON at byte 1");
    fails(ERR_MALFORMED, "{body.a}", "{\"a\":1", "not JSON");
    static char deep[20002];
    memset(deep, '[', 10000);
    memset(deep + 10000, ']', 10000);
    fails(ERR_TOO_BIG, "{body.a}", deep, "nested too deep");
}

static void a_key_has_64_KiB_at_most(void **state)
{
    (void)state;
    static char body[KEY_MAX + 64];
    struct buf out;
    int head = snprintf(body, sizeof body, "{\"a\":\"");
    memset(body + head, 'k', KEY_MAX);
    memcpy(body + head + KEY_MAX, "\"}", 3);
    struct once_message m = sample(body);
    assert_int_equal(make("{body.a}", &m, &out), OK);
    assert_int_equal(out.len, KEY_MAX);
    buf_clear(&out);
    fails(ERR_TOO_BIG, "x{body.a}", body, "longer than 64 KiB");
    static char parts[33 * 5 + 1];
    for (size_t i = 0; i < 33; i++)
        memcpy(parts + i * 5, "{key}", 5);
    fails(ERR_INVALID, parts, NULL, "too many parts");
}

static void ids_differ(struct bytes scope_a, struct bytes a, struct bytes scope_b, struct bytes b)
{
    uint8_t id_a[32], id_b[32];
    key_id(scope_a, a, id_a);
    key_id(scope_b, b, id_b);
    assert_memory_not_equal(id_a, id_b, sizeof id_a);
}

static void H_14_H_16_H_17_different_keys_have_different_ids(void **state)
{
    (void)state;
    struct bytes g = BYTES("g");
    ids_differ(g, BYTES("Order-a"), g, BYTES("order-A"));
    ids_differ(g, BYTES("Order-a"), g, BYTES("Order-a "));
    ids_differ(g, BYTES("a\0"), g, BYTES("a"));
    ids_differ(g, BYTES("k"), BYTES("h"), BYTES("k"));
    ids_differ(BYTES("gk"), BYTES("k"), g, BYTES("kk"));
    char a[300], b[300];
    memset(a, 'x', sizeof a);
    memset(b, 'x', sizeof b);
    b[200] = 'y';
    ids_differ(g, bytes_of(a, sizeof a), g, bytes_of(b, sizeof b));
}

/* SHA-256 of eight bytes of length, "g" and "k", as any other program computes it. */
static void an_id_is_the_same_for_ever(void **state)
{
    (void)state;
    static const char wanted[] = "4816cf89fcfb15e43347ee6e39004d0415b6904e76606e9b81d4a4a4f6141999";
    uint8_t id[32];
    char hex[65];
    key_id(BYTES("g"), BYTES("k"), id);
    for (size_t i = 0; i < 32; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", id[i]);
    assert_string_equal(hex, wanted);
}

static void a_name_is_for_people(void **state)
{
    (void)state;
    char name[12];
    key_name(BYTES("order:1"), name, sizeof name);
    assert_string_equal(name, "order:1");
    key_name(BYTES("a\0\xff\\"), name, sizeof name);
    assert_string_equal(name, "a\\x00\\xff");
    key_name(BYTES("much too long for it"), name, sizeof name);
    assert_string_equal(name, "much too lo");
}

static void fingerprints_tell_bodies_apart(void **state)
{
    (void)state;
    assert_true(key_fingerprint("a", 1) != key_fingerprint("b", 1));
    assert_true(key_fingerprint(NULL, 0) == key_fingerprint("", 0));
    assert_true(key_fingerprint(NULL, 0) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_a_message_can_be_a_part),
        cmocka_unit_test(ID_16_a_path_leads_into_the_body),
        cmocka_unit_test(a_key_may_hold_zero_bytes),
        cmocka_unit_test(H_15_what_is_missing_null_or_empty_is_no_key),
        cmocka_unit_test(H_15_an_expression_that_is_the_same_for_all_is_refused),
        cmocka_unit_test(a_mistake_is_shown_with_its_position),
        cmocka_unit_test(a_body_that_is_no_json_makes_no_key),
        cmocka_unit_test(a_key_has_64_KiB_at_most),
        cmocka_unit_test(H_14_H_16_H_17_different_keys_have_different_ids),
        cmocka_unit_test(an_id_is_the_same_for_ever),
        cmocka_unit_test(a_name_is_for_people),
        cmocka_unit_test(fingerprints_tell_bodies_apart),
    };
    return cmocka_run_group_tests_name("once/key", tests, NULL, NULL);
}
