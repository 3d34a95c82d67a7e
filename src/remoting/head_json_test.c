/* head_json_test.c - the JSON header: what clients send, what is tolerated, what is refused. */
#include "remoting/head_test.h"

#define UNIQ "7F00000125CD4E0E2F2A4CDEA6550001"

static struct decoded *decode(const char *text)
{
    return decode_exact(HEAD_JSON, bytes_str(text));
}

static void reads_what_the_java_client_sends(void **state)
{
    (void)state;
    struct bytes whole = vector_load("send_message_v2_json_request");
    struct frame frame = vector_frame(whole);
    struct decoded *d = decode_exact(frame.form, frame.head);
    assert_int_equal(d->err, OK);
    assert_int_equal(d->head.form, HEAD_JSON);
    assert_int_equal(d->head.code, 310);
    assert_int_equal(d->head.flag, 0);
    assert_int_equal(d->head.opaque, 11);
    assert_int_equal(d->head.version, 513);
    assert_int_equal(d->head.language, 0);
    assert_null(d->head.remark.at);
    assert_int_equal(d->head.n_fields, 13);
    assert_bytes_equal(head_field(&d->head, BYTES("a")), BYTES("vector_producer"));
    assert_bytes_equal(head_field(&d->head, BYTES("g")), BYTES("1794780859989"));
    assert_bytes_equal(head_field(&d->head, BYTES("n")), BYTES("broker-a"));
    assert_bytes_equal(head_field(&d->head, BYTES("i")),
                       BYTES("Größe\00112 \"inch\" \\ 标\2colour\1green\2KEYS\1order-1\2"
                             "UNIQ_KEY\1" UNIQ "\2WAIT\1true\2TAGS\1TagA\2"));
    assert_bytes_equal(frame.body, BYTES("with keys, tags and properties"));
    assert_round_trip(&d->head);
    decoded_free(d);
    vector_free(whole);
}

/* Every JSON frame that was captured, requests and responses. */
static void reads_every_vector(void **state)
{
    (void)state;
    static const char *const names[] = {
        "consumer_send_msg_back_request",
        "consumer_send_msg_back_response",
        "get_broker_cluster_info_request",
        "get_broker_cluster_info_response",
        "get_consumer_list_by_group_request",
        "get_consumer_list_by_group_response",
        "get_routeinfo_request",
        "get_routeinfo_response",
        "get_routeinfo_unknown_request",
        "get_routeinfo_unknown_response",
        "heart_beat_producer_request",
        "heart_beat_producer_response",
        "heart_beat_push_consumer_request",
        "heart_beat_push_consumer_response",
        "notify_consumer_ids_changed_request",
        "pull_message_commit_request",
        "pull_message_found_request",
        "pull_message_found_response",
        "query_consumer_offset_request",
        "query_consumer_offset_response",
        "register_broker_json_request",
        "register_broker_json_response",
        "register_broker_compressed_request",
        "send_batch_message_json_request",
        "send_batch_message_json_response",
        "send_message_v2_json_compressed_request",
        "send_message_v2_json_oneway_request",
        "send_message_v2_json_response",
        "send_message_v2_json_unicode_request",
        "unregister_client_consumer_request",
        "unregister_client_producer_response",
        "update_consumer_offset_request",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct bytes whole = vector_load(names[i]);
        struct frame frame = vector_frame(whole);
        struct decoded *d = decode_exact(frame.form, frame.head);
        assert_int_equal(frame.form, HEAD_JSON);
        assert_int_equal(d->err, OK);
        assert_int_equal(d->head.version, 513);
        assert_int_equal(d->head.flag & FLAG_RESPONSE, strstr(names[i], "_response") != NULL);
        assert_round_trip(&d->head);
        decoded_free(d);
        vector_free(whole);
    }
}

static void reads_a_remark(void **state)
{
    (void)state;
    struct bytes whole = vector_load("get_routeinfo_unknown_response");
    struct frame frame = vector_frame(whole);
    struct decoded *d = decode_exact(frame.form, frame.head);
    assert_int_equal(d->err, OK);
    assert_int_equal(d->head.code, 17);
    assert_true(bytes_start(d->head.remark, BYTES("No topic route info in name server for the "
                                                  "topic: VectorTopic\nSee https://")));
    decoded_free(d);
    vector_free(whole);
}

/* ali-ons sends raw numbers and booleans; null is absent. */
static void takes_numbers_and_booleans_as_text(void **state)
{
    (void)state;
    struct decoded *d = decode("{\"code\":11,\"extFields\":{\"a\":12,\"b\":-0,\"c\":1.5e+3,"
                               "\"d\":true,\"e\":false,\"f\":null,\"g\":\"\"}}");
    assert_int_equal(d->err, OK);
    assert_int_equal(d->head.n_fields, 6);
    assert_bytes_equal(head_field(&d->head, BYTES("a")), BYTES("12"));
    assert_bytes_equal(head_field(&d->head, BYTES("b")), BYTES("-0"));
    assert_bytes_equal(head_field(&d->head, BYTES("c")), BYTES("1.5e+3"));
    assert_bytes_equal(head_field(&d->head, BYTES("d")), BYTES("true"));
    assert_bytes_equal(head_field(&d->head, BYTES("e")), BYTES("false"));
    assert_null(head_field(&d->head, BYTES("f")).at);
    assert_non_null(head_field(&d->head, BYTES("g")).at);
    assert_int_equal(head_field(&d->head, BYTES("g")).len, 0);
    decoded_free(d);
}

static void order_blanks_and_unknown_members_do_not_matter(void **state)
{
    (void)state;
    struct decoded *d =
        decode(" {\r\n\t\"version\" : 317 ,\"x\":[1,[2,{\"y\":{}}],\"z\",null,true,-1.5E-2,[]],"
               "\"flag\":1,\"extFields\" : { \"k\" : \"v\" , \"l\":\"w\" } ,\"language\":\"COBOL\","
               "\"more\":{\"a\":{\"b\":[{}]},\"c\":\"\\u0041\"},\"opaque\":-5,\"code\":-3,"
               "\"remark\":null} \n");
    assert_int_equal(d->err, OK);
    assert_int_equal(d->head.code, -3);
    assert_int_equal(d->head.flag, 1);
    assert_int_equal(d->head.opaque, -5);
    assert_int_equal(d->head.version, 317);
    assert_int_equal(d->head.language, 7);
    assert_int_equal(d->head.n_fields, 2);
    assert_bytes_equal(head_field(&d->head, BYTES("l")), BYTES("w"));
    decoded_free(d);
}

static void null_is_absent(void **state)
{
    (void)state;
    struct decoded *d = decode("{\"code\":1,\"flag\":null,\"extFields\":null,\"language\":null,"
                               "\"remark\":null,\"opaque\":null}");
    assert_int_equal(d->err, OK);
    assert_int_equal(d->head.n_fields, 0);
    assert_null(d->head.remark.at);
    decoded_free(d);
    assert_int_equal(decode_err(HEAD_JSON, BYTES("{\"code\":null}")), ERR_MALFORMED);
}

static void the_last_of_equal_names_wins(void **state)
{
    (void)state;
    struct decoded *d = decode("{\"code\":1,\"code\":2,\"extFields\":{\"gone\":\"1\"},"
                               "\"extFields\":{\"a\":\"1\",\"a\":\"2\"}}");
    assert_int_equal(d->err, OK);
    assert_int_equal(d->head.code, 2);
    assert_bytes_equal(head_field(&d->head, BYTES("a")), BYTES("2"));
    assert_null(head_field(&d->head, BYTES("gone")).at);
    decoded_free(d);
}

static void unescapes(void **state)
{
    (void)state;
    struct decoded *d =
        decode("{\"c\\u006fde\":7,\"extFields\":{\"\\u0061\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\","
               "\"b\":\"\\u0000\\u0001\\u001f\\u00e9\\u20AC\","
               "\"c\":\"\\ud83d\\ude80\",\"d\":\"x\\ud83dx\",\"e\":\"\\ude80\\ud83d\","
               "\"f\":\"\\ud83d\\u0041\",\"g\":\"12345678\\u000212345678\\u0001123456789\"}}");
    assert_int_equal(d->err, OK);
    assert_int_equal(d->head.code, 7);
    assert_bytes_equal(head_field(&d->head, BYTES("a")), BYTES("\"\\/\b\f\n\r\t"));
    assert_bytes_equal(head_field(&d->head, BYTES("b")), BYTES("\0\1\x1fé€"));
    assert_bytes_equal(head_field(&d->head, BYTES("c")), BYTES("🚀"));
    assert_bytes_equal(head_field(&d->head, BYTES("d")), BYTES("x\xef\xbf\xbdx"));
    assert_bytes_equal(head_field(&d->head, BYTES("e")), BYTES("\xef\xbf\xbd\xef\xbf\xbd"));
    assert_bytes_equal(head_field(&d->head, BYTES("f")), BYTES("\xef\xbf\xbd"
                                                               "A"));
    assert_bytes_equal(head_field(&d->head, BYTES("g")),
                       BYTES("12345678\00212345678\001123456789"));
    assert_round_trip(&d->head);
    decoded_free(d);
}

static const char *const garbage[] = {
    "",
    " ",
    "{",
    "}",
    "{}",
    "[]",
    "null",
    "\"code\"",
    "{\"flag\":0}",
    "x{\"code\":1}",
    "{\"code\":1}x",
    "{\"code\":1}}",
    "{\"code\":1},",
    "{\"code\":1,}",
    "{,\"code\":1}",
    "{\"code\" 1}",
    "{\"code\":}",
    "{\"code\":\"1\"}",
    "{\"code\":1.0}",
    "{\"code\":1e3}",
    "{\"code\":01}",
    "{\"code\":+1}",
    "{\"code\":-}",
    "{\"code\":2147483648}",
    "{\"code\":-2147483649}",
    "{\"code\":99999999999999999999}",
    "{\"code\":true}",
    "{code:1}",
    "{'code':1}",
    "{\"code\":1,\"extFields\":[]}",
    "{\"code\":1,\"extFields\":\"x\"}",
    "{\"code\":1,\"extFields\":{\"a\"}}",
    "{\"code\":1,\"extFields\":{\"a\":}}",
    "{\"code\":1,\"extFields\":{\"a\":\"b\",}}",
    "{\"code\":1,\"extFields\":{\"a\":{}}}",
    "{\"code\":1,\"extFields\":{\"a\":[]}}",
    "{\"code\":1,\"extFields\":{\"\":\"b\"}}",
    "{\"code\":1,\"extFields\":{a:\"b\"}}",
    "{\"code\":1,\"extFields\":{\"a\":tru}}",
    "{\"code\":1,\"extFields\":{\"a\":True}}",
    "{\"code\":1,\"extFields\":{\"a\":01}}",
    "{\"code\":1,\"extFields\":{\"a\":1.}}",
    "{\"code\":1,\"extFields\":{\"a\":.5}}",
    "{\"code\":1,\"extFields\":{\"a\":1e}}",
    "{\"code\":1,\"extFields\":{\"a\":\"x\ny\"}}",
    "{\"code\":1,\"remark\":\"\t\"}",
    "{\"code\":1,\"remark\":5}",
    "{\"code\":1,\"language\":5}",
    "{\"code\":1,\"remark\":\"\\x\"}",
    "{\"code\":1,\"remark\":\"\\u12\"}",
    "{\"code\":1,\"remark\":\"\\u12g4\"}",
    "{\"code\":1,\"remark\":\"\\\"}",
    "{\"code\":1,\"remark\":\"\xff\"}",
    "{\"code\":1,\"remark\":\"\xc0\x80\"}",
    "{\"code\":1,\"remark\":\"\xed\xa0\x80\"}",
    "{\"code\":1,\"remark\":\"\xe6\xa0\"}",
    "{\"code\":1,\"x\":{\"a\":1}",
    "{\"code\":1,\"x\":[1,]}",
    "{\"code\":1,\"x\":[1 2]}",
    "{\"code\":1,\"x\":{1:2}}",
    "{\"code\":1,\"x\":{\"a\" 2}}",
    "{\"code\":1,\"x\":nul}",
    "{\"code\":1,\"x\":[}",
    "{\"code\":1,\"x\":{]}",
};

static void refuses_garbage(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        enum err err = decode_err(HEAD_JSON, bytes_str(garbage[i]));
        if (err != ERR_MALFORMED)
            print_error("%s: %s\n", garbage[i], err_text(err));
        assert_int_equal(err, ERR_MALFORMED);
    }
    assert_int_equal(decode_err(HEAD_JSON, BYTES("{\"code\":1,\"remark\":\"\0\"}")), ERR_MALFORMED);
}

#define NESTED_MAX 512

static struct bytes nested(char *room, char open, char close, int depth)
{
    struct wr w = wr_over(room, NESTED_MAX);
    wr_bytes_of(&w, BYTES("{\"code\":1,\"x\":"));
    for (int i = 0; i < 2 * depth; i++)
        wr_u8(&w, (uint8_t)(i < depth ? open : close));
    wr_u8(&w, '}');
    assert_false(w.full);
    return wr_bytes(&w);
}

static void bounds_the_depth(void **state)
{
    (void)state;
    char room[NESTED_MAX];
    assert_int_equal(decode_err(HEAD_JSON, nested(room, '[', ']', 31)), OK);
    assert_int_equal(decode_err(HEAD_JSON, nested(room, '[', ']', 32)), ERR_TOO_BIG);
    assert_int_equal(decode_err(HEAD_JSON, nested(room, '[', ']', 100)), ERR_TOO_BIG);
}

static struct bytes with_fields(char *room, size_t size, int n)
{
    struct wr w = wr_over(room, size);
    wr_bytes_of(&w, BYTES("{\"code\":1,\"extFields\":{"));
    for (int i = 0; i < n; i++) {
        wr_bytes_of(&w, i ? BYTES(",\"k") : BYTES("\"k"));
        wr_i64(&w, i);
        wr_bytes_of(&w, BYTES("\":\"v\""));
    }
    wr_bytes_of(&w, BYTES("}}"));
    assert_false(w.full);
    return wr_bytes(&w);
}

static void bounds_the_fields(void **state)
{
    (void)state;
    char room[2048];
    struct decoded *d = decode_exact(HEAD_JSON, with_fields(room, sizeof room, HEAD_FIELDS_MAX));
    assert_int_equal(d->err, OK);
    assert_int_equal(d->head.n_fields, HEAD_FIELDS_MAX);
    decoded_free(d);
    struct bytes more = with_fields(room, sizeof room, HEAD_FIELDS_MAX + 1);
    assert_int_equal(decode_err(HEAD_JSON, more), ERR_TOO_BIG);
}

/* What came before the fault can be used to answer. */
static void keeps_opaque_and_flag_of_what_it_refuses(void **state)
{
    (void)state;
    struct decoded *d = decode("{\"flag\":2,\"opaque\":99,\"code\":310,\"extFields\":{\"a\":}}");
    assert_int_equal(d->err, ERR_MALFORMED);
    assert_int_equal(d->head.opaque, 99);
    assert_int_equal(d->head.flag, 2);
    decoded_free(d);
    d = decode("{\"code\":[],\"flag\":2,\"opaque\":99}");
    assert_int_equal(d->err, ERR_MALFORMED);
    assert_int_equal(d->head.opaque, 0);
    assert_int_equal(d->head.flag, 0);
    decoded_free(d);
}

/* Text without escapes needs no spare space; text with them is refused if there is too little. */
static void uses_the_spare_space_only_for_escapes(void **state)
{
    (void)state;
    struct head h;
    struct wr none = wr_over(NULL, 0);
    assert_int_equal(head_decode_json(BYTES("{\"code\":1,\"remark\":\"ok\"}"), &none, &h), OK);
    struct bytes escaped = BYTES("{\"code\":1,\"remark\":\"a\\n\"}");
    assert_int_equal(head_decode_json(escaped, &none, &h), ERR_TOO_BIG);
    assert_int_equal(head_decode_json(escaped, NULL, &h), ERR_TOO_BIG);
}

static struct bytes sample(const char *name, struct bytes *whole)
{
    *whole = vector_load(name);
    return vector_frame(*whole).head;
}

static void refuses_every_prefix(void **state)
{
    (void)state;
    struct bytes whole, head = sample("send_message_v2_json_unicode_request", &whole);
    for (size_t cut = 0; cut < head.len; cut++)
        assert_int_equal(decode_err(HEAD_JSON, bytes_of(head.at, cut)), ERR_MALFORMED);
    vector_free(whole);
}

/* Every byte takes every other value; what is still accepted keeps the round-trip law. */
static void survives_every_one_byte_change(void **state)
{
    (void)state;
    struct bytes whole, head = sample("send_message_v2_json_unicode_request", &whole);
    uint8_t *bytes = test_copy(head.at, head.len);
    for (size_t at = 0; at < head.len; at++) {
        for (int change = 1; change < 256; change++) {
            bytes[at] = (uint8_t)(head.at[at] ^ change);
            struct decoded *d = decode_exact(HEAD_JSON, bytes_of(bytes, head.len));
            if (d->err == OK && change % 16 == 1)
                assert_round_trip(&d->head);
            decoded_free(d);
        }
        bytes[at] = head.at[at];
    }
    free(bytes);
    vector_free(whole);
}

/* Plain text of every length at every distance from the end: the eight-byte steps and the rest of
 * them meet everywhere. */
static void scans_every_length(void **state)
{
    (void)state;
    for (size_t len = 0; len < 40; len++) {
        for (int odd = 0; odd < 3; odd++) {
            char room[128];
            struct wr w = wr_over(room, sizeof room);
            wr_bytes_of(&w, BYTES("{\"code\":1,\"remark\":\""));
            for (size_t i = 0; i < len; i++)
                wr_u8(&w, (uint8_t)('a' + i % 26));
            wr_bytes_of(&w, odd == 0 ? BYTES("") : odd == 1 ? BYTES("\\n") : BYTES("é"));
            wr_bytes_of(&w, BYTES("\"}"));
            struct decoded *d = decode_exact(HEAD_JSON, wr_bytes(&w));
            assert_int_equal(d->err, OK);
            assert_int_equal(d->head.remark.len, len + (size_t)odd);
            for (size_t i = 0; i < len; i++)
                assert_int_equal(d->head.remark.at[i], 'a' + i % 26);
            decoded_free(d);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_the_java_client_sends),
        cmocka_unit_test(reads_every_vector),
        cmocka_unit_test(reads_a_remark),
        cmocka_unit_test(takes_numbers_and_booleans_as_text),
        cmocka_unit_test(order_blanks_and_unknown_members_do_not_matter),
        cmocka_unit_test(null_is_absent),
        cmocka_unit_test(the_last_of_equal_names_wins),
        cmocka_unit_test(unescapes),
        cmocka_unit_test(refuses_garbage),
        cmocka_unit_test(bounds_the_depth),
        cmocka_unit_test(bounds_the_fields),
        cmocka_unit_test(keeps_opaque_and_flag_of_what_it_refuses),
        cmocka_unit_test(uses_the_spare_space_only_for_escapes),
        cmocka_unit_test(refuses_every_prefix),
        cmocka_unit_test(survives_every_one_byte_change),
        cmocka_unit_test(scans_every_length),
    };
    return cmocka_run_group_tests_name("remoting/head_json", tests, NULL, NULL);
}
