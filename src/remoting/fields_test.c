/* fields_test.c - fields become structs: captured requests, refusals with their sentence, and the
 * tables themselves. */
#include "remoting/fields.h"
#include "remoting/head_test.h"

/* The header of a vector, read through a table. */
struct request {
    struct bytes whole;
    struct decoded *d;
};

static struct request request_read(const char *name, const struct field_table *table, void *out)
{
    struct request r = {.whole = vector_load(name)};
    struct frame frame = vector_frame(r.whole);
    struct fault why = {0};
    r.d = decode_exact(frame.form, frame.head);
    assert_int_equal(r.d->err, OK);
    enum err err = fields_read(table, &r.d->head, out, &why);
    assert_string_equal(why.text, "");
    assert_int_equal(err, OK);
    return r;
}

static void request_free(struct request r)
{
    decoded_free(r.d);
    vector_free(r.whole);
}

static void reads_a_send_in_letters(void **state)
{
    (void)state;
    const char *names[] = {"send_message_v2_json_request", "send_message_v2_binary_request"};
    for (size_t i = 0; i < 2; i++) {
        struct send_fields s = {.max_reconsume_times = -1};
        struct request r = request_read(names[i], &send_fields_letters, &s);
        assert_bytes_equal(s.producer_group, BYTES("vector_producer"));
        assert_bytes_equal(s.topic, BYTES("VectorTopic"));
        assert_bytes_equal(s.default_topic, BYTES("TBW102"));
        assert_bytes_equal(s.broker_name, BYTES("broker-a"));
        assert_true(bytes_start(s.props, BYTES("Größe\1")));
        assert_int_equal(s.default_topic_queues, 4);
        assert_int_equal(s.queue_id, 0);
        assert_int_equal(s.sys_flag, 0);
        assert_int_equal(s.flag, 7);
        assert_true(s.born_ms > 1794780000000);
        assert_int_equal(s.reconsume_times, 0);
        assert_int_equal(s.max_reconsume_times, -1); /* not sent: the default stays */
        assert_false(s.unit_mode || s.batch);
        request_free(r);
    }
    struct send_fields s = {0};
    struct request r = request_read("send_batch_message_json_request", &send_fields_letters, &s);
    assert_true(s.batch);
    request_free(r);
}

static void reads_a_pull(void **state)
{
    (void)state;
    const char *names[] = {"pull_message_found_request", "pull_message_binary_request"};
    for (size_t i = 0; i < 2; i++) {
        struct pull_fields p = {0};
        struct request r = request_read(names[i], &pull_fields_table, &p);
        assert_bytes_equal(p.group, BYTES("vector_consumer"));
        assert_bytes_equal(p.topic, BYTES("VectorTopic"));
        assert_bytes_equal(p.expression_type, BYTES("TAG"));
        assert_null(p.subscription.at);
        assert_int_equal(p.queue_id, 0);
        assert_int_equal(p.max_count, 32);
        assert_int_equal(p.sys_flag, PULL_SUSPEND);
        assert_int_equal(p.offset, 0);
        assert_int_equal(p.commit_offset, 0);
        assert_int_equal(p.suspend_ms, 15000);
        assert_true(p.sub_version > 1794780000000);
        request_free(r);
    }
}

static void reads_offsets_and_clients(void **state)
{
    (void)state;
    struct offset_fields o = {0};
    struct request r = request_read("update_consumer_offset_request", &update_offset_table, &o);
    assert_bytes_equal(o.group, BYTES("vector_consumer"));
    assert_int_equal(o.queue_id, 2);
    assert_int_equal(o.commit_offset, 1);
    request_free(r);
    r = request_read("query_consumer_offset_request", &query_offset_table, &o);
    assert_int_equal(o.queue_id, 1);
    request_free(r);

    struct client_fields c = {0};
    r = request_read("unregister_client_consumer_request", &unregister_client_table, &c);
    assert_bytes_equal(c.client_id, BYTES("127.0.0.1@consumer-1"));
    assert_bytes_equal(c.consumer_group, BYTES("vector_consumer"));
    assert_null(c.producer_group.at);
    request_free(r);
    r = request_read("get_consumer_list_by_group_request", &consumer_list_table, &c);
    request_free(r);
}

static void reads_registrations_and_routes(void **state)
{
    (void)state;
    const char *names[] = {"register_broker_json_request", "register_broker_binary_request",
                           "register_broker_compressed_request"};
    for (size_t i = 0; i < 3; i++) {
        struct broker_fields b = {.broker_id = -1};
        struct request r = request_read(names[i], &register_broker_table, &b);
        assert_bytes_equal(b.broker_name, BYTES("broker-a"));
        assert_bytes_equal(b.broker_addr, BYTES("127.0.0.1:10911"));
        assert_bytes_equal(b.ha_addr, BYTES("127.0.0.1:10912"));
        assert_bytes_equal(b.cluster, BYTES("DefaultCluster"));
        assert_int_equal(b.broker_id, 0);
        assert_true(b.body_crc > 0);
        assert_int_equal(b.compressed, i == 2);
        assert_false(b.acting_master);
        request_free(r);
    }
    struct name_fields n = {0};
    struct request r = request_read("get_routeinfo_request", &route_table, &n);
    assert_bytes_equal(n.topic, BYTES("TBW102"));
    assert_false(n.standard_json);
    request_free(r);
}

static struct head head_of(struct bytes name, struct bytes value)
{
    struct head h = {.n_fields = 2};
    h.fields[0] = (struct field){BYTES("topic"), BYTES("T")};
    h.fields[1] = (struct field){name, value};
    return h;
}

static void names_a_missing_field(void **state)
{
    (void)state;
    struct head h = head_of(BYTES("bname"), BYTES("b"));
    struct offset_fields o = {0};
    struct fault why = {0};
    assert_int_equal(fields_read(&queue_table, &h, &o, &why), ERR_MALFORMED);
    assert_string_equal(why.text, "the field queueId is missing");
    assert_int_equal(fields_read(&queue_table, &h, &o, NULL), ERR_MALFORMED);
    h.n_fields = 0;
    assert_int_equal(fields_read(&queue_table, &h, &o, &why), ERR_MALFORMED);
    assert_string_equal(why.text, "the field topic is missing");
}

static void names_an_unreadable_field(void **state)
{
    (void)state;
    struct bytes bad[] = {BYTES(""),  BYTES("x"),   BYTES("1 "), BYTES("2147483648"), BYTES("1.5"),
                          BYTES("-"), BYTES("0x1"), BYTES("１"), BYTES("-2147483649")};
    struct fault why = {0};
    struct offset_fields o = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct head h = head_of(BYTES("queueId"), bad[i]);
        assert_int_equal(fields_read(&queue_table, &h, &o, &why), ERR_MALFORMED);
    }
    struct head h = head_of(BYTES("queueId"), BYTES("many"));
    assert_int_equal(fields_read(&queue_table, &h, &o, &why), ERR_MALFORMED);
    assert_string_equal(why.text, "the field queueId should be a number of 32 bits, not 'many'");
}

static void names_an_unreadable_long_field(void **state)
{
    (void)state;
    struct head h = head_of(BYTES("timestamp"), BYTES("9223372036854775808"));
    struct offset_fields o = {0};
    struct fault why = {0};
    assert_int_equal(fields_read(&search_offset_table, &h, &o, &why), ERR_MALFORMED);
    assert_string_equal(why.text, "the field timestamp should be a number of 64 bits, not "
                                  "'9223372036854775808'");
}

/* A value of a megabyte is quoted with its start. */
static void cuts_what_it_quotes(void **state)
{
    (void)state;
    size_t size = 1 << 20;
    uint8_t *value = malloc(size);
    memset(value, 'x', size);
    struct head h = head_of(BYTES("queueId"), bytes_of(value, size));
    struct offset_fields o = {0};
    struct fault why = {0};
    assert_int_equal(fields_read(&queue_table, &h, &o, &why), ERR_MALFORMED);
    assert_true(strlen(why.text) < 160);
    free(value);
}

static void booleans_are_true_only_for_true(void **state)
{
    (void)state;
    struct {
        struct bytes text;
        bool yes;
    } cases[] = {{BYTES("true"), true},  {BYTES("TRUE"), true}, {BYTES("True"), true},
                 {BYTES("1"), false},    {BYTES(""), false},    {BYTES("yes"), false},
                 {BYTES("truex"), false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct head h = head_of(BYTES("acceptStandardJsonOnly"), cases[i].text);
        struct name_fields n = {.standard_json = !cases[i].yes};
        assert_int_equal(fields_read(&route_table, &h, &n, NULL), OK);
        assert_int_equal(n.standard_json, cases[i].yes);
    }
}

static void the_last_of_equal_names_wins(void **state)
{
    (void)state;
    struct head h = head_of(BYTES("topic"), BYTES("last"));
    struct name_fields n = {0};
    assert_int_equal(fields_read(&route_table, &h, &n, NULL), OK);
    assert_bytes_equal(n.topic, BYTES("last"));
}

/* The order does not matter: every rotation of a send, in both names. */
static void reads_any_order(void **state)
{
    (void)state;
    const struct field_table *tables[] = {&send_fields_long, &send_fields_letters};
    for (size_t t = 0; t < 2; t++) {
        for (size_t shift = 0; shift < tables[t]->n; shift++) {
            struct head h = {.n_fields = tables[t]->n};
            for (size_t i = 0; i < h.n_fields; i++)
                h.fields[(i * 5 + shift) % h.n_fields] = (struct field){
                    tables[t]->rules[i].name,
                    tables[t]->rules[i].type == FIELD_BOOL ? BYTES("true") : BYTES("42")};
            struct send_fields s = {0};
            assert_int_equal(fields_read(tables[t], &h, &s, NULL), OK);
            assert_int_equal(s.queue_id, 42);
            assert_int_equal(s.born_ms, 42);
            assert_int_equal(s.max_reconsume_times, 42);
            assert_true(s.unit_mode && s.batch);
            assert_bytes_equal(s.props, BYTES("42"));
            assert_bytes_equal(s.broker_name, BYTES("42"));
        }
    }
}

/* No name twice in a table, no two fields in one place, not more than fields_read can count. */
static void the_tables_are_sound(void **state)
{
    (void)state;
    const struct field_table *tables[] = {
        &send_fields_long,
        &send_fields_letters,
        &pull_fields_table,
        &query_offset_table,
        &update_offset_table,
        &search_offset_table,
        &queue_table,
        &unregister_client_table,
        &consumer_list_table,
        &register_broker_table,
        &unregister_broker_table,
        &broker_version_table,
        &broker_heartbeat_table,
        &broker_group_table,
        &broker_perm_table,
        &route_table,
        &delete_topic_table,
        &cluster_topics_table,
        &kv_put_table,
        &kv_key_table,
        &kv_list_table,
    };
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        assert_true(tables[t]->n > 0 && tables[t]->n <= 64);
        for (size_t i = 0; i < tables[t]->n; i++) {
            const struct field_rule *a = &tables[t]->rules[i];
            assert_true(a->name.len > 0);
            for (size_t j = 0; j < i; j++) {
                assert_false(bytes_equal(a->name, tables[t]->rules[j].name));
                assert_true(a->offset != tables[t]->rules[j].offset);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_send_in_letters),
        cmocka_unit_test(reads_a_pull),
        cmocka_unit_test(reads_offsets_and_clients),
        cmocka_unit_test(reads_registrations_and_routes),
        cmocka_unit_test(names_a_missing_field),
        cmocka_unit_test(names_an_unreadable_field),
        cmocka_unit_test(names_an_unreadable_long_field),
        cmocka_unit_test(cuts_what_it_quotes),
        cmocka_unit_test(booleans_are_true_only_for_true),
        cmocka_unit_test(the_last_of_equal_names_wins),
        cmocka_unit_test(reads_any_order),
        cmocka_unit_test(the_tables_are_sound),
    };
    return cmocka_run_group_tests_name("remoting/fields", tests, NULL, NULL);
}
