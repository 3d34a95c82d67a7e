/* The text of the tables: what is read, what is refused, what is written. */
#include "broker/pop_int.h"
#include "broker/rig_test.h"
#include "broker/tables_int.h"

/* As an Apache 5.x broker writes them: pretty, with tabs; keys of queues without quotes. */
static const char topics_apache[] =
    "{\n\t\"dataVersion\":{\n\t\t\"counter\":5,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":"
    "1794770173872\n\t},\n"
    "\t\"topicConfigTable\":{\n\t\t\"T\":{\n\t\t\t\"attributes\":{\"message.type\":\"FIFO\"},"
    "\n\t\t\t\"order\":true,\n"
    "\t\t\t\"perm\":6,\n\t\t\t\"readQueueNums\":4,\n\t\t\t\"topicFilterType\":\"MULTI_TAG\","
    "\n\t\t\t\"topicName\":\"T\",\n"
    "\t\t\t\"topicSysFlag\":2,\n\t\t\t\"writeQueueNums\":3\n\t\t}\n\t}\n}";
static const char groups_apache[] =
    "{\"dataVersion\":{\"counter\":9,\"stateVersion\":0,\"timestamp\":7},\"forbiddenTable\":{\"g\":"
    "{\"T\":2}},\n"
    "\"subscriptionGroupTable\":{\"g\":{\"brokerId\":0,\"consumeBroadcastEnable\":false,"
    "\"consumeEnable\":true,\n"
    "\"groupName\":\"g\",\"retryMaxTimes\":3,\"retryQueueNums\":2,\"somethingNew\":[1,2]}}}";
static const char offsets_apache[] =
    "{\"dataVersion\":{\"counter\":1,\"stateVersion\":0,\"timestamp\":8},\"groupTopicMap\":{"
    "\"CGX\":[\"TD\"]},\n"
    "\"offsetTable\":{\"TD@CGX\":{0:5,1:0,\"7\":12},\"%RETRY%CGP_TD@CGP\":{0:-1},\"X@Y\":{}}}";

static const char delays_apache[] =
    "{\n\t\"dataVersion\":{\n\t\t\"counter\":1,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":"
    "1794792743184\n\t},\n\t\"offsetTable\":{\n\t\t1:10,\n\t\t2:1,\n\t\t\"18\":0,\n\t\t99:7\n\t}"
    "\n}";

static const char orders_apache[] =
    "{\n\t\"table\":{\n\t\t\"T@g\":{0:{\n\t\t\t\"a\":\"x1\",\n\t\t\t\"cm\":2,\n\t\t\t\"i\":60000,"
    "\n\t\t\t\"l\":1794792743184,\n\t\t\t\"o\":[7,1,3],\n\t\t\t\"oc\":{7:1},\n\t\t\t\"ot\":{10:"
    "1794792743999},\n\t\t\t\"popTime\":1794792743100\n\t\t}},\"E@g\":{}\n\t}\n}";
static const char modes_apache[] =
    "{\n\t\"messageRequestModeMap\":{\n\t\t\"T\":{\n\t\t\t\"g\":{\n\t\t\t\t\"consumerGroup\":\"g\","
    "\n\t\t\t\t\"mode\":\"POP\",\n\t\t\t\t\"popShareQueueNum\":3,\n\t\t\t\t\"topic\":\"T\"\n\t\t\t}"
    "\n\t\t}\n\t}\n}";

static void apache_s_orders_and_modes_are_read(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 1 << 16);
    struct order_rows o;
    assert_int_equal(order_rows_read(bytes_str(orders_apache), &arena, &o, NULL), OK);
    assert_int_equal(o.n, 1);
    assert_bytes_equal(o.rows[0].topic, BYTES("T"));
    assert_bytes_equal(o.rows[0].group, BYTES("g"));
    assert_int_equal(o.rows[0].queue_id, 0);
    struct pop_order *order;
    assert_int_equal(order_read(o.rows[0].node, &order), OK);
    struct buf text = buf_upto(1 << 16);
    order_write(order, &(struct json_out){.buf = &text});
    assert_bytes_equal(buf_bytes(&text),
                       BYTES("{\"a\":\"x1\",\"cm\":2,\"i\":60000,\"l\":1794792743184,\"o\":[7,1,3],"
                             "\"oc\":{7:1},\"ot\":{10:1794792743999},\"popTime\":1794792743100}"));
    buf_clear(&text);
    free(order);
    struct mode_rows m;
    assert_int_equal(mode_rows_read(bytes_str(modes_apache), &arena, &m, NULL), OK);
    assert_int_equal(m.n, 1);
    assert_true(m.rows[0].pops);
    assert_int_equal(m.rows[0].share, 3);
    arena_clear(&arena);
}

static void apache_s_delays_are_read(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 1 << 16);
    struct delay_rows t;
    assert_int_equal(delay_rows_read(bytes_str(delays_apache), &arena, &t, NULL), OK);
    assert_int_equal(t.version.counter, 1);
    assert_int_equal(t.version.timestamp, 1794792743184);
    assert_int_equal(t.offsets[0], 10);
    assert_int_equal(t.offsets[1], 1);
    assert_int_equal(t.offsets[2], -1);
    assert_int_equal(t.offsets[17], 0);
    /* 4.9 writes no version */
    assert_int_equal(delay_rows_read(BYTES("{\"offsetTable\":{3:4}}"), &arena, &t, NULL), OK);
    assert_int_equal(t.offsets[2], 4);
    arena_clear(&arena);
}

static void apache_s_topics_are_read(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 1 << 16);
    struct topic_rows t;
    assert_int_equal(topic_rows_read(bytes_str(topics_apache), &arena, &t, NULL), OK);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.version.counter, 5);
    assert_int_equal(t.version.timestamp, 1794770173872);
    assert_bytes_equal(t.rows[0].name, BYTES("T"));
    assert_int_equal(t.rows[0].read_queues, 4);
    assert_int_equal(t.rows[0].write_queues, 3);
    assert_int_equal(t.rows[0].sys_flag, 2);
    assert_true(t.rows[0].order);
    assert_true(t.rows[0].multi_tag);
    assert_bytes_equal(t.rows[0].attributes, BYTES("{\"message.type\":\"FIFO\"}"));
    arena_clear(&arena);
}

static void apache_s_groups_are_read(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 1 << 16);
    struct group_rows t;
    assert_int_equal(group_rows_read(bytes_str(groups_apache), &arena, &t, NULL), OK);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.version.counter, 9);
    assert_int_equal(t.rows[0].retry_max, 3);
    assert_int_equal(t.rows[0].retry_queues, 2);
    assert_false(t.rows[0].broadcast_enable);
    assert_true(t.rows[0].notify_changes); /* 4.9 does not write it */
    assert_non_null(t.forbidden);
    arena_clear(&arena);
}

static void apache_s_offsets_are_read(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 1 << 16);
    struct offset_rows t;
    assert_int_equal(offset_rows_read(bytes_str(offsets_apache), &arena, &t, NULL), OK);
    assert_int_equal(t.n, 3);
    assert_bytes_equal(t.rows[0].key, BYTES("TD@CGX"));
    assert_int_equal(t.rows[0].n, 3);
    assert_int_equal(t.rows[0].places[2].queue_id, 7);
    assert_int_equal(t.rows[0].places[2].offset, 12);
    assert_int_equal(t.rows[1].n, 0); /* -1 is none */
    arena_clear(&arena);
}

/* Every prefix but the whole is refused, each in its own exact allocation. */
static void a_table_that_was_cut_is_damaged(void **state)
{
    (void)state;
    const char *const texts[TABLES] = {topics_apache, groups_apache, offsets_apache,
                                       delays_apache, orders_apache, modes_apache};
    for (enum table_name which = 0; which < TABLES; which++) {
        struct bytes whole = bytes_str(texts[which]);
        assert_int_equal(table_check(which, whole, NULL), OK);
        for (size_t cut = 0; cut < whole.len; cut++) {
            cleanup(free_at) uint8_t *exact = test_copy(whole.at, cut);
            struct fault why = {0};
            assert_int_equal(table_check(which, bytes_of(exact, cut), &why), ERR_DAMAGED);
            assert_true(why.text[0]);
        }
    }
}

static void tables_that_say_nonsense_are_damaged(void **state)
{
    (void)state;
    static const struct {
        enum table_name which;
        const char *text, *word;
    } cases[] = {
        {TABLE_TOPICS, "[]", "topicConfigTable"},
        {TABLE_TOPICS, "{}", "topicConfigTable"},
        {TABLE_TOPICS, "null", "topicConfigTable"},
        {TABLE_TOPICS, "{\"topicConfigTable\":[1]}", "topicConfigTable"},
        {TABLE_TOPICS, "{\"topicConfigTable\":{\"T\":5}}", "no topic"},
        {TABLE_TOPICS, "{\"topicConfigTable\":{\"\":{}}}", "no topic"},
        {TABLE_TOPICS, "{\"topicConfigTable\":{{\"a\":1}:{}}}", "no topic"},
        {TABLE_TOPICS, "{\"topicConfigTable\":{\"T\":{\"readQueueNums\":-1}}}", "-1 read"},
        {TABLE_TOPICS, "{\"topicConfigTable\":{\"T\":{\"writeQueueNums\":2000000000}}}",
         "2000000000 write"},
        {TABLE_GROUPS, "{}", "subscriptionGroupTable"},
        {TABLE_GROUPS, "{\"subscriptionGroupTable\":{\"g\":[]}}", "no group"},
        {TABLE_GROUPS, "{\"subscriptionGroupTable\":{\"g\":{\"retryQueueNums\":99999}}}", "99999"},
        {TABLE_OFFSETS, "{}", "offsetTable"},
        {TABLE_OFFSETS, "{\"offsetTable\":{\"T@g\":7}}", "progress"},
        {TABLE_OFFSETS, "{\"offsetTable\":{\"T@g\":{\"x\":7}}}", "queue x"},
        {TABLE_OFFSETS, "{\"offsetTable\":{\"T@g\":{-1:7}}}", "queue -1"},
        {TABLE_OFFSETS, "{\"offsetTable\":{\"T@g\":{99999999999:7}}}", "queue"},
        {TABLE_DELAYS, "{}", "offsetTable"},
        {TABLE_DELAYS, "{\"offsetTable\":{0:7}}", "level 0"},
        {TABLE_DELAYS, "{\"offsetTable\":{\"x\":7}}", "level x"},
        {TABLE_DELAYS, "{\"offsetTable\":{1:-7}}", "level 1"},
        {TABLE_DELAYS, "{\"offsetTable\":{1:{}}}", "level 1"},
        {TABLE_ORDERS, "{}", "table"},
        {TABLE_ORDERS, "{\"table\":{\"T\":{}}}", "topic@group"},
        {TABLE_ORDERS, "{\"table\":{\"T@g\":{\"x\":{}}}}", "queue x"},
        {TABLE_ORDERS, "{\"table\":{\"T@g\":{0:[]}}}", "queue 0"},
        {TABLE_MODES, "{\"messageRequestModeMap\":{\"T\":7}}", "no groups"},
        {TABLE_MODES, "{\"messageRequestModeMap\":{\"T\":{\"g\":7}}}", "no mode"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fault why = {0};
        assert_int_equal(table_check(cases[i].which, bytes_str(cases[i].text), &why), ERR_DAMAGED);
        if (!strstr(why.text, cases[i].word))
            fail_msg("'%s' does not say '%s'", why.text, cases[i].word);
    }
}

static void name_of_length(char *out, size_t len)
{
    memset(out, 'n', len);
    out[len] = 0;
}

static void names_have_a_limit(void **state)
{
    (void)state;
    char name[600], text[700];
    for (int over = 0; over <= 1; over++) {
        name_of_length(name, (size_t)(NAME_MAX_ANY + over));
        snprintf(text, sizeof text, "{\"topicConfigTable\":{\"%s\":{}}}", name);
        assert_int_equal(table_check(TABLE_TOPICS, bytes_str(text), NULL), over ? ERR_DAMAGED : OK);
        snprintf(text, sizeof text, "{\"subscriptionGroupTable\":{\"%s\":{}}}", name);
        assert_int_equal(table_check(TABLE_GROUPS, bytes_str(text), NULL), over ? ERR_DAMAGED : OK);
        name_of_length(name, (size_t)(PROGRESS_KEY_MAX + over));
        snprintf(text, sizeof text, "{\"offsetTable\":{\"%s\":{0:1}}}", name);
        assert_int_equal(table_check(TABLE_OFFSETS, bytes_str(text), NULL),
                         over ? ERR_DAMAGED : OK);
    }
}

/* What is written is what was read, in the form that Apache's readers know. */
static void a_table_that_is_written_reads_the_same(void **state)
{
    struct rig *rig = *state;
    struct broker *b = rig->broker;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    struct buf text = buf_upto(1 << 20);
    struct place places[] = {{0, 5}, {1, 0}, {7, 12}};

    room_enter(&b->room);
    assert_int_equal(progress_put(b, BYTES("TD@CGX"), places, 3), OK);
    offsets_write(b, &(struct json_out){.buf = &text});
    room_leave(&b->room);
    assert_bytes_equal(
        buf_bytes(&text),
        BYTES("{\"dataVersion\":{\"counter\":0,\"stateVersion\":0,\"timestamp\":1700000000000},"
              "\"offsetTable\":{\"TD@CGX\":{0:5,1:0,7:12}}}"));

    buf_clear(&text);
    room_enter(&b->room);
    topics_write(b, &(struct json_out){.buf = &text});
    room_leave(&b->room);
    struct topic_rows t;
    assert_int_equal(topic_rows_read(buf_bytes(&text), &arena, &t, NULL), OK);
    assert_int_equal(t.n, b->topics.n);
    buf_clear(&text);
    room_enter(&b->room);
    buf_add_str(&b->forbidden, "{\"g\":{\"T\":2}}");
    groups_write(b, &(struct json_out){.buf = &text});
    room_leave(&b->room);
    struct group_rows g;
    assert_int_equal(group_rows_read(buf_bytes(&text), &arena, &g, NULL), OK);
    assert_int_equal(g.n, b->groups.n);
    assert_non_null(json_member(json_member(g.forbidden, "g"), "T"));
    buf_clear(&text);
    arena_clear(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(apache_s_topics_are_read),
        cmocka_unit_test(apache_s_groups_are_read),
        cmocka_unit_test(apache_s_offsets_are_read),
        cmocka_unit_test(apache_s_delays_are_read),
        cmocka_unit_test(apache_s_orders_and_modes_are_read),
        cmocka_unit_test(a_table_that_was_cut_is_damaged),
        cmocka_unit_test(tables_that_say_nonsense_are_damaged),
        cmocka_unit_test(names_have_a_limit),
        rig_test(a_table_that_is_written_reads_the_same),
    };
    return cmocka_run_group_tests_name("broker/tables", tests, NULL, NULL);
}
