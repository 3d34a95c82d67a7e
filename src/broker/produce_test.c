/* Sending: what is stored, what is refused and with which words. */
#include "broker/disk_test.h"
#include "broker/rig_test.h"

#include "base/crc32.h"

/* Reads one stored message back. The record's slices live in `got`. */
static struct record read_back(struct rig *rig, const struct produce *r, uint32_t i,
                               struct slice *got)
{
    const struct stored *stored = &desk_stored(rig->desk)[r->first + i];
    assert_int_equal(stored->err, OK);
    assert_int_equal(store_read_at(rig->store, stored->position, got), OK);
    struct record record;
    assert_int_equal(record_decode(got->bytes, &record), OK);
    return record;
}

static struct bytes prop(struct bytes props, const char *name)
{
    struct bytes value = BYTES("(none)");
    (void)props_get(props, bytes_str(name), &value);
    return value;
}

static void a_message_is_stored_as_it_was_sent(void **state)
{
    struct rig *rig = *state;
    struct produce r = rig_message("T", "hello");
    r.props = BYTES("KEYS\1k1 k2\2TAGS\1TagA\2UNIQ_KEY\1ABC\2own\1 value \2");
    r.queue_id = 2;
    r.flag = 77;
    r.sys_flag = SYS_COMPRESSED | 0x300;
    r.reconsume_times = 1;
    assert_int_equal(rig_produce(rig, &r), OK);
    assert_int_equal(r.stored_queue_id, 2);
    assert_int_equal(r.queue_offset, 0);
    assert_int_equal(r.count, 1);
    assert_true(r.wait);
    assert_string_equal(r.uniq_key, "ABC");

    struct slice got;
    struct record record = read_back(rig, &r, 0, &got);
    assert_bytes_equal(record.topic, BYTES("T"));
    assert_bytes_equal(record.body, BYTES("hello"));
    assert_int_equal(record.body_crc, crc32_positive(BYTES("hello")));
    assert_int_equal(record.queue_id, 2);
    assert_int_equal(record.flag, 77);
    assert_int_equal(record.sys_flag, SYS_COMPRESSED | 0x300);
    assert_int_equal(record.reconsume_times, 1);
    assert_int_equal(record.born_ms, START_MS);
    assert_int_equal(record.store_ms, START_MS);
    assert_int_equal(record.born_host.port, 4711);
    assert_int_equal(record.store_host.port, 10911);
    assert_bytes_equal(prop(record.props, "KEYS"), BYTES("k1 k2"));
    assert_bytes_equal(prop(record.props, "own"), BYTES(" value "));
    assert_bytes_equal(prop(record.props, "MSG_REGION"), BYTES("DefaultRegion"));
    assert_bytes_equal(prop(record.props, "TRACE_ON"), BYTES("true"));
    assert_bytes_equal(prop(record.props, "CLUSTER"), BYTES("DefaultCluster"));
    counted_drop(got.owner);
}

static void names_that_are_the_broker_s_are_replaced_or_dropped(void **state)
{
    struct rig *rig = *state;
    struct produce r = rig_message("T", "x");
    r.props =
        BYTES("MSG_REGION\1lie\2POP_CK\1lie\2CLUSTER\1lie\2junk\2a\1\2\1b\2TRACE_ON\1lie\2z\1last");
    assert_int_equal(rig_produce(rig, &r), OK);
    struct slice got;
    struct record record = read_back(rig, &r, 0, &got);
    assert_null(memmem(record.props.at, record.props.len, "lie", 3));
    assert_null(memmem(record.props.at, record.props.len, "junk", 4));
    assert_bytes_equal(prop(record.props, "z"), BYTES("last"));
    assert_bytes_equal(prop(record.props, "CLUSTER"), BYTES("DefaultCluster"));
    assert_bytes_equal(prop(record.props, "POP_CK"), BYTES("(none)"));
    counted_drop(got.owner);
}

/* An item of nothing is one byte less to keep, an end that 4.9 clients leave out one more: the two
 * together have the size of what came, which is not what is to be stored. */
static void an_empty_property_does_not_take_the_end_of_the_last(void **state)
{
    struct rig *rig = *state;
    static const char *const cases[] = {
        "UNIQ_KEY\1U\2own\1v\2\2TAGS\1tagA", "\2UNIQ_KEY\1U\2own\1v\2TAGS\1tagA",
        "UNIQ_KEY\1U\2own\1v\2TAGS\1tagA\2\2", "UNIQ_KEY\1U\2own\1v\2TAGS\1tagA"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct produce r = rig_message("T", "x");
        r.props = bytes_str(cases[i]);
        assert_int_equal(rig_produce(rig, &r), OK);
        struct slice got;
        struct record record = read_back(rig, &r, 0, &got);
        assert_bytes_equal(prop(record.props, "own"), BYTES("v"));
        assert_bytes_equal(prop(record.props, "TAGS"), BYTES("tagA"));
        assert_bytes_equal(prop(record.props, "MSG_REGION"), BYTES("DefaultRegion"));
        counted_drop(got.owner);
    }
}

static void a_message_without_a_unique_key_gets_one(void **state)
{
    struct rig *rig = *state;
    struct produce r[2] = {rig_message("T", "x"), rig_message("T", "x")};
    uint64_t end;
    broker_produce(rig->broker, rig->desk, r, 2, &end);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r[i].err, OK);
        assert_int_equal(strlen(r[i].uniq_key), 32);
        assert_memory_equal(r[i].uniq_key, "7F000001", 8);
        struct slice got;
        struct record record = read_back(rig, &r[i], 0, &got);
        assert_bytes_equal(prop(record.props, "UNIQ_KEY"), bytes_str(r[i].uniq_key));
        counted_drop(got.owner);
    }
    assert_string_not_equal(r[0].uniq_key, r[1].uniq_key);
}

static void wait_is_taken_from_the_properties(void **state)
{
    struct rig *rig = *state;
    static const struct {
        const char *props;
        bool wait;
    } cases[] = {{"", true},
                 {"WAIT\1true\2", true},
                 {"WAIT\1TRUE", true},
                 {"WAIT\1false\2", false},
                 {"WAIT\1x", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct produce r = rig_message("T", "x");
        r.props = bytes_str(cases[i].props);
        assert_int_equal(rig_produce(rig, &r), OK);
        assert_int_equal(r.wait, cases[i].wait);
    }
}

static void a_negative_queue_id_means_any(void **state)
{
    struct rig *rig = *state;
    bool seen[4] = {0};
    for (int i = 0; i < 200; i++) {
        struct produce r = rig_message("T", "x");
        r.queue_id = i % 2 ? -1 : INT32_MIN;
        assert_int_equal(rig_produce(rig, &r), OK);
        assert_in_range(r.stored_queue_id, 0, 3);
        seen[r.stored_queue_id] = true;
    }
    assert_true(seen[0] && seen[1] && seen[2] && seen[3]);
}

/* The name of a topic is looked at once for all that follow with it, but a refused one each time.
 */
static void a_topic_is_refused_as_often_as_it_comes(void **state)
{
    struct rig *rig = *state;
    struct produce r[6] = {rig_message("T", "a"),
                           rig_message("T", "b"),
                           rig_message("bad topic", "c"),
                           rig_message("bad topic", "d"),
                           rig_message("SCHEDULE_TOPIC_XXXX", "e"),
                           rig_message("SCHEDULE_TOPIC_XXXX", "f")};
    static const enum err wanted[6] = {OK, OK, ERR_INVALID, ERR_INVALID, ERR_DENIED, ERR_DENIED};
    uint64_t end = 0;
    broker_produce(rig->broker, rig->desk, r, 6, &end);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(r[i].err, wanted[i]);
        assert_int_equal(r[i].why.text[0] != 0, wanted[i] != OK);
    }
}

/* One visit to the log: the positions follow each other, refused ones leave no hole. */
static void one_turn_stores_all_and_refuses_some(void **state)
{
    struct rig *rig = *state;
    struct produce r[5] = {rig_message("T", "a"), rig_message("bad topic", "b"),
                           rig_message("T", "c"), rig_message("T", "d"), rig_message("U", "e")};
    r[3].queue_id = 99;
    r[2].props = BYTES("DELAY\1\0010"); /* a malformed value is refused while preparing */
    uint64_t end = 0;
    broker_produce(rig->broker, rig->desk, r, 5, &end);
    assert_int_equal(r[0].err, OK);
    assert_int_equal(r[1].err, ERR_INVALID);
    assert_int_equal(r[2].err, ERR_MALFORMED);
    assert_int_equal(r[3].err, ERR_INVALID);
    assert_int_equal(r[4].err, OK);
    const struct stored *s = desk_stored(rig->desk);
    assert_int_equal(r[4].first, 1);
    assert_int_equal(s[1].position, s[0].position + s[0].size);
    assert_true(end >= (uint64_t)s[1].position + s[1].size);
    struct slice got;
    assert_bytes_equal(read_back(rig, &r[4], 0, &got).body, BYTES("e"));
    counted_drop(got.owner);
    assert_true(rig_topic(rig, "U", NULL));
}

static void one_turn_brings_each_to_its_own_topic(void **state)
{
    struct rig *rig = *state;
    const char *const topics[] = {"T", "T", "U", "T", "U", "U"};
    enum { N = sizeof topics / sizeof *topics };
    struct produce r[N];
    for (size_t i = 0; i < N; i++)
        r[i] = rig_message(topics[i], "x");
    uint64_t end = 0;
    broker_produce(rig->broker, rig->desk, r, N, &end);
    for (size_t i = 0; i < N; i++) {
        struct slice got;
        assert_int_equal(r[i].err, OK);
        assert_bytes_equal(read_back(rig, &r[i], 0, &got).topic, bytes_str(topics[i]));
        counted_drop(got.owner);
    }
}

/* Of two messages that one consumer gives up in one turn, one was tried too often. */
static void one_turn_asks_for_each_that_is_tried_again(void **state)
{
    struct rig *rig = *state;
    struct group_settings set = group_settings_default(BYTES("g"));
    rig_group_put(rig, &set);
    struct produce r[] = {rig_message("%RETRY%g", "a"), rig_message("%RETRY%g", "b"),
                          rig_message("%RETRY%g", "c")};
    r[0].reconsume_times = r[2].reconsume_times = 16;
    r[1].reconsume_times = 17;
    uint64_t end = 0;
    broker_produce(rig->broker, rig->desk, r, 3, &end);
    for (size_t i = 0; i < 3; i++) {
        struct slice got;
        assert_int_equal(r[i].err, OK);
        assert_bytes_equal(read_back(rig, &r[i], 0, &got).topic,
                           i == 1 ? BYTES("%DLQ%g") : BYTES("%RETRY%g"));
        counted_drop(got.owner);
    }
}

static void when_all_are_refused_the_log_is_left_alone(void **state)
{
    struct rig *rig = *state;
    uint64_t before = store_confirmed(rig->store), end = 1;
    struct produce r = rig_message("no good", "a");
    broker_produce(rig->broker, rig->desk, &r, 1, &end);
    assert_int_equal(r.err, ERR_INVALID);
    assert_int_equal(end, 0);
    broker_produce(rig->broker, rig->desk, NULL, 0, &end);
    assert_int_equal(end, 0);
    assert_int_equal(store_confirmed(rig->store), before);
}

/* Every way to be refused for what is in the request. */
static void what_cannot_be_stored_is_refused_with_a_reason(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "readonly", 1, PERM_READ);
    rig_topic_put(rig, "unwritable", 0, PERM_READ | PERM_WRITE);
    static const struct {
        const char *topic, *props;
        int32_t queue_id, sys_flag;
        enum err err;
        const char *word;
    } cases[] = {
        {"", "", 0, 0, ERR_INVALID, "name"},
        {"with blank", "", 0, 0, ERR_INVALID, "name"},
        {"SCHEDULE_TOPIC_XXXX", "", 0, 0, ERR_DENIED, "forbidden"},
        {"RMQ_SYS_TRANS_HALF_TOPIC", "", 0, 0, ERR_DENIED, "forbidden"},
        {"SELF_TEST_TOPIC", "", 0, 0, ERR_DENIED, "forbidden"},
        {"readonly", "", 0, 0, ERR_DENIED, "readonly"},
        {"unwritable", "", -1, 0, ERR_INVALID, "no queue"},
        {"T", "", 4, 0, ERR_INVALID, "queueId[4]"},
        {"T", "", INT32_MAX, 0, ERR_INVALID, "queueId"},
        {"T", "TRAN_MSG\1true\2", 0, 0, ERR_MALFORMED, "PGROUP"},
        {"T", "", 0, SYS_TX_PREPARED, ERR_MALFORMED, "TRAN_MSG"},
        {"T", "DELAY\1soon\2", 0, 0, ERR_MALFORMED, "DELAY"},
        {"T", "TIMER_DELAY_SEC\1soon\2", 0, 0, ERR_MALFORMED, "not a number"},
        {"T",
         "TIMER_DELIVER_MS\1"
         "99999999999999\2",
         0, 0, ERR_MALFORMED, "timerMaxDelaySec"},
        {"T",
         "INNER_NUM\1"
         "2\2",
         0, 0, ERR_MALFORMED, "inner"},
        {"T", "", 0, SYS_INNER_BATCH, ERR_MALFORMED, "inner"},
        {"%RETRY%", "", 0, 0, ERR_UNKNOWN_GROUP, "group"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct produce r = rig_message(cases[i].topic, "x");
        r.props = bytes_str(cases[i].props);
        r.queue_id = cases[i].queue_id;
        r.sys_flag = cases[i].sys_flag;
        assert_int_equal(rig_produce(rig, &r), cases[i].err);
        assert_non_null(strstr(r.why.text, cases[i].word));
    }
    assert_int_equal(store_confirmed(rig->store), 0);
}

static void asking_for_no_delay_is_no_delay(void **state)
{
    struct rig *rig = *state;
    static const char *const fine[] = {"DELAY\1"
                                       "0\2",
                                       "DELAY\1-1\2", "TRAN_MSG\1false\2",
                                       "TIMER_DELAY_MS\1"
                                       "5\2TIMER_OUT_MS\1"
                                       "7\2"};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        struct produce r = rig_message("T", "x");
        r.props = bytes_str(fine[i]);
        assert_int_equal(rig_produce(rig, &r), OK);
    }
}

static void sizes_are_limited(void **state)
{
    struct rig *rig = *state;
    size_t max = rig->options.max_message_size;
    cleanup(free_at) uint8_t *big = calloc(1, max + 1);
    assert_non_null(big);
    struct produce r = rig_message("T", "");
    assert_int_equal(rig_produce(rig, &r), OK); /* an empty body is a body */
    r.body = bytes_of(big, max);
    assert_int_equal(rig_produce(rig, &r), OK);
    r.body = bytes_of(big, max + 1);
    assert_int_equal(rig_produce(rig, &r), ERR_TOO_BIG);
    assert_non_null(strstr(r.why.text, "maxMessageSize"));

    memset(big, 'v', 40000);
    memcpy(big, "own\1", 4);
    size_t ours = rig->broker->added.len + sizeof "UNIQ_KEY" + 33;
    r.body = BYTES("x");
    r.props = bytes_of(big, RECORD_PROPS_MAX - ours - 1); /* one byte for the end that is missing */
    assert_int_equal(rig_produce(rig, &r), OK);
    r.props.len++;
    assert_int_equal(rig_produce(rig, &r), ERR_TOO_BIG);
    assert_non_null(strstr(r.why.text, "properties"));
    r.props.len = RECORD_PROPS_MAX + 1;
    assert_int_equal(rig_produce(rig, &r), ERR_TOO_BIG);
}

static void a_broker_that_may_not_be_written_refuses(void **state)
{
    struct rig *rig = *state;
    rig->options.perm = PERM_READ;
    rig_again(rig);
    struct produce r = rig_message("T", "x");
    assert_int_equal(rig_produce(rig, &r), ERR_DENIED);
    assert_non_null(strstr(r.why.text, "brokerPermission"));
    assert_false(rig_topic(rig, "T", NULL));
}

static void a_retry_topic_is_for_a_known_group_and_has_one_queue(void **state)
{
    struct rig *rig = *state;
    struct group_settings set = group_settings_default(BYTES("g"));
    rig_group_put(rig, &set);
    struct produce r = rig_message("%RETRY%g", "x");
    r.reconsume_times = 16;
    assert_int_equal(rig_produce(rig, &r), OK);
    struct topic_settings t = {0};
    assert_true(rig_topic(rig, "%RETRY%g", &t));
    assert_int_equal(t.write_queues, 1);
    assert_int_equal(t.perm, PERM_READ | PERM_WRITE);
    assert_false(rig_topic(rig, "%DLQ%g", NULL));

    rig->options.auto_groups = false;
    rig_again(rig);
    r = rig_message("%RETRY%nobody", "x");
    assert_int_equal(rig_produce(rig, &r), ERR_UNKNOWN_GROUP);
    assert_non_null(strstr(r.why.text, "nobody"));
    assert_false(rig_topic(rig, "%RETRY%nobody", NULL));
}

static void a_topic_of_many_tags_marks_its_messages(void **state)
{
    struct rig *rig = *state;
    struct topic_settings set = {BYTES("multi"), 1, 1, PERM_READ | PERM_WRITE, .multi_tag = true};
    struct topic *made;
    room_enter(&rig->broker->room);
    assert_int_equal(topic_put(rig->broker, &set, &made), OK);
    room_leave(&rig->broker->room);
    struct produce r = rig_message("multi", "x");
    r.sys_flag = SYS_BORN_V6 | SYS_STORE_V6; /* not for a client to say */
    assert_int_equal(rig_produce(rig, &r), OK);
    struct slice got;
    assert_int_equal(read_back(rig, &r, 0, &got).sys_flag, SYS_MULTI_TAGS);
    counted_drop(got.owner);
}

/* Nothing is answered as stored that is not, everybody is told why, and it goes on afterwards. */
static void a_disk_that_fails_is_everybody_s_answer(void **state)
{
    struct rig *rig = *state;
    rig->store_vfs = disk_over(rig->vfs);
    rig_again(rig);
    rig_send(rig, "T", "", "before");
    disk.left = 0;
    for (int round = 0; round < 2; round++) {
        struct produce r[3] = {rig_message("T", "a"), rig_message("no good", "b"),
                               rig_message("T", "c")};
        uint64_t end = 1;
        broker_produce(rig->broker, rig->desk, r, 3, &end);
        assert_int_equal(end, 0);
        assert_int_equal(r[1].err, ERR_INVALID);
        for (int i = 0; i < 3; i += 2) {
            assert_int_equal(r[i].err, ERR_IO);
            assert_non_null(strstr(r[i].why.text, "not stored"));
        }
    }
    disk.left = -1;
    rig_send(rig, "T", "", "after");
    struct pull pull = rig_pull("g", "T", 0);
    struct pulled got;
    assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), OK);
    struct record records[4];
    assert_int_equal(rig_records(&got.read, records, 4), 2);
    assert_bytes_equal(records[0].body, BYTES("before"));
    assert_bytes_equal(records[1].body, BYTES("after"));
    rig_drop(&got.read);
}

/* ---- batches ---- */

static void each_message_of_a_batch_is_its_own_record(void **state)
{
    struct rig *rig = *state;
    uint8_t body[1024];
    struct wr w = wr_over(body, sizeof body);
    batch_add(&w, &(struct batch_item){1, BYTES("one"), BYTES("UNIQ_KEY\1first\2TAGS\1A\2")});
    batch_add(&w, &(struct batch_item){2, BYTES("two"), BYTES("UNIQ_KEY\1second")});
    batch_add(&w, &(struct batch_item){3, BYTES("three"), BYTES("")});
    struct produce r = rig_message("T", "");
    r.body = wr_bytes(&w);
    r.props = BYTES("UNIQ_KEY\1whole\2WAIT\1false\2");
    r.batch = true;
    rig_send(rig, "T", "", "before");
    assert_int_equal(rig_produce(rig, &r), OK);
    assert_int_equal(r.count, 3);
    assert_int_equal(r.queue_offset, 1);
    assert_false(r.wait);
    assert_string_equal(r.uniq_key, "whole");

    static const char *const bodies[] = {"one", "two", "three"}, *const keys[] = {"first", "second",
                                                                                  NULL};
    for (uint32_t i = 0; i < 3; i++) {
        struct slice got;
        struct record record = read_back(rig, &r, i, &got);
        assert_bytes_equal(record.body, bytes_str(bodies[i]));
        assert_int_equal(record.flag, (int)i + 1);
        assert_int_equal(record.queue_offset, 1 + i);
        assert_bytes_equal(prop(record.props, "MSG_REGION"), BYTES("DefaultRegion"));
        struct bytes key = prop(record.props, "UNIQ_KEY");
        if (keys[i])
            assert_bytes_equal(key, bytes_str(keys[i]));
        else
            assert_int_equal(key.len, 32);
        counted_drop(got.owner);
    }
}

static void a_batch_without_a_key_is_answered_with_its_first_message_s(void **state)
{
    struct rig *rig = *state;
    uint8_t body[256];
    struct wr w = wr_over(body, sizeof body);
    batch_add(&w, &(struct batch_item){0, BYTES("one"), BYTES("UNIQ_KEY\1first\2WAIT\1false\2")});
    batch_add(&w, &(struct batch_item){0, BYTES("two"), BYTES("UNIQ_KEY\1second\2")});
    struct produce r = rig_message("T", "");
    r.body = wr_bytes(&w);
    r.batch = true;
    assert_int_equal(rig_produce(rig, &r), OK);
    assert_string_equal(r.uniq_key, "first");
    assert_true(r.wait); /* the batch decides */
}

static void a_broken_batch_is_refused_whole(void **state)
{
    struct rig *rig = *state;
    uint8_t body[256];
    struct wr w = wr_over(body, sizeof body);
    batch_add(&w, &(struct batch_item){0, BYTES("one"), BYTES("UNIQ_KEY\1first\2")});
    size_t first = wr_len(&w);
    batch_add(&w, &(struct batch_item){0, BYTES("two"),
                                       BYTES("DELAY\1"
                                             "2\2")});
    struct produce r = rig_message("T", "");
    r.batch = true;
    r.body = wr_bytes(&w);
    assert_int_equal(rig_produce(rig, &r), ERR_MALFORMED); /* its second message is to come later */
    assert_non_null(strstr(r.why.text, "DELAY=2"));
    struct produce whole = r;
    whole.props = BYTES("DELAY\1"
                        "2\2");
    whole.body = bytes_of(body, first);
    assert_int_equal(rig_produce(rig, &whole), ERR_MALFORMED); /* all of it is */
    for (size_t cut = 0; cut < wr_len(&w); cut++) {
        if (cut == first)
            continue;
        cleanup(free_at) uint8_t *exact = test_copy(body, cut);
        r.body = bytes_of(exact, cut);
        assert_int_equal(rig_produce(rig, &r), ERR_MALFORMED);
        assert_non_null(strstr(r.why.text, "batch"));
    }
    assert_int_equal(store_confirmed(rig->store), 0);

    r = rig_message("%RETRY%TOOLS_CONSUMER", "");
    r.batch = true;
    r.body = bytes_of(body, first);
    assert_int_equal(rig_produce(rig, &r), ERR_MALFORMED);
}

/* Far more messages than a desk starts with, and then few again. */
static void a_desk_grows_and_shrinks(void **state)
{
    struct rig *rig = *state;
    size_t size = 3 << 20;
    cleanup(free_at) uint8_t *body = malloc(size);
    assert_non_null(body);
    struct wr w = wr_over(body, size);
    for (int i = 0; i < BATCH_MAX; i++)
        batch_add(&w, &(struct batch_item){i, BYTES("m"), BYTES("")});
    struct produce r = rig_message("T", "");
    r.batch = true;
    r.body = wr_bytes(&w);
    assert_int_equal(rig_produce(rig, &r), ERR_TOO_BIG); /* more than one log file of this test */
    w.at = body + 10000 * 23;
    r.body = wr_bytes(&w);
    assert_int_equal(rig_produce(rig, &r), OK);
    assert_int_equal(r.count, 10000);
    struct produce small = rig_message("T", "x");
    assert_int_equal(rig_produce(rig, &small), OK);
    assert_int_equal(small.queue_offset, 10000);
    assert_true(rig->desk != NULL);

    w.at = body + BATCH_MAX * 23;
    batch_add(&w, &(struct batch_item){0, BYTES("m"), BYTES("")});
    r.body = wr_bytes(&w);
    assert_int_equal(rig_produce(rig, &r), ERR_TOO_BIG);
    assert_non_null(strstr(r.why.text, "batch"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(a_message_is_stored_as_it_was_sent),
        rig_test(names_that_are_the_broker_s_are_replaced_or_dropped),
        rig_test(an_empty_property_does_not_take_the_end_of_the_last),
        rig_test(a_message_without_a_unique_key_gets_one),
        rig_test(wait_is_taken_from_the_properties),
        rig_test(a_negative_queue_id_means_any),
        rig_test(a_topic_is_refused_as_often_as_it_comes),
        rig_test(one_turn_stores_all_and_refuses_some),
        rig_test(one_turn_brings_each_to_its_own_topic),
        rig_test(one_turn_asks_for_each_that_is_tried_again),
        rig_test(when_all_are_refused_the_log_is_left_alone),
        rig_test(what_cannot_be_stored_is_refused_with_a_reason),
        rig_test(asking_for_no_delay_is_no_delay),
        rig_test(sizes_are_limited),
        rig_test(a_broker_that_may_not_be_written_refuses),
        rig_test(a_retry_topic_is_for_a_known_group_and_has_one_queue),
        rig_test(a_topic_of_many_tags_marks_its_messages),
        rig_test(a_disk_that_fails_is_everybody_s_answer),
        rig_test(each_message_of_a_batch_is_its_own_record),
        rig_test(a_batch_without_a_key_is_answered_with_its_first_message_s),
        rig_test(a_broken_batch_is_refused_whole),
        rig_test(a_desk_grows_and_shrinks),
    };
    return cmocka_run_group_tests_name("broker/produce", tests, NULL, NULL);
}
