/* Messages that were stored before are not stored again: which those are, and what the answer is.
 */
#include "broker/dedup_rig_test.h"

/* ---- which ---- */

static void off_by_default_and_then_for_nothing(void **state)
{
    struct rig *rig = *state;
    send(rig, "T", "K", 0);
    send(rig, "T", "K", 0);
    assert_int_equal(stored_in(rig, "T"), 2);
    assert_false(rig->desk->noting);
    assert_null(rig->desk->notes);
    struct broker_numbers n = numbers(rig);
    assert_int_equal(n.keys + n.keys_bytes + n.duplicates, 0);
}

static void DS_6_the_second_gets_the_answer_of_the_first(void **state)
{
    struct rig *rig = *state;
    send(rig, "T", "another", 1);
    struct answer first = send(rig, "T", "K", 1);
    assert_int_equal(first.known, 0);
    struct answer second = send(rig, "T", "K", 3); /* a retry may choose another queue */
    assert_same(first, second);
    assert_int_equal(second.queue_id, 1);
    assert_int_equal(second.queue_offset, 1);
    assert_int_equal(second.known, 1);
    assert_int_equal(stored_in(rig, "T"), 2);
    assert_int_equal(numbers(rig).duplicates, 1);
    assert_int_equal(numbers(rig).keys, 2);
    assert_int_equal(numbers(rig).put, 2);
}

static void a_key_belongs_to_its_topic(void **state)
{
    struct rig *rig = *state;
    send(rig, "T", "K", 0);
    assert_int_equal(send(rig, "U", "K", 0).known, 0);
    assert_int_equal(send(rig, "U", "k", 0).known, 0);
    assert_int_equal(stored_in(rig, "U"), 2);
}

static void a_topic_decides_for_itself(void **state)
{
    struct rig *rig = *state;
    set_attribute(rig, "Off", "+dedup.key=OFF");
    set_attribute(rig, "Orders", "+dedup.key=orderId");
    send(rig, "Off", "K", 0);
    send(rig, "Off", "K", 0);
    assert_int_equal(stored_in(rig, "Off"), 2);

    struct answer first = send_with(rig, "Orders",
                                    "orderId\1"
                                    "7\2UNIQ_KEY\1a\2",
                                    0);
    struct answer second = send_with(rig, "Orders",
                                     "UNIQ_KEY\1b\2orderId\1"
                                     "7\2",
                                     1);
    assert_same(first, second);
    assert_int_equal(second.known, 1);
    send_with(rig, "Orders",
              "UNIQ_KEY\1a\2orderId\1"
              "8\2",
              0);
    send_with(rig, "Orders", "UNIQ_KEY\1a\2", 0); /* without a number: it is not looked at */
    send_with(rig, "Orders", "UNIQ_KEY\1a\2", 0);
    assert_int_equal(stored_in(rig, "Orders"), 4);

    restart_with(rig, NULL); /* the attribute is in topics.json */
    assert_int_equal(send_with(rig, "Orders",
                               "orderId\1"
                               "8\2",
                               2)
                         .known,
                     1);
    set_attribute(rig, "Orders", "-dedup.key");
    assert_int_equal(send_with(rig, "Orders",
                               "orderId\1"
                               "8\2",
                               2)
                         .known,
                     0);
}

static void an_attribute_that_names_nothing_is_refused(void **state)
{
    struct rig *rig = *state;
    struct topic_settings set = {BYTES("T"), 4, 4, 6};
    char longer[128] = "+dedup.key=";
    memset(longer + strlen(longer), 'x', PROP_NAME_MAX + 1);
    const char *bad[] = {"+dedup.key=", "+dedup.key=a b", "+dedup.key=a\1b", longer};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(broker_topic_set(rig->broker, &set, bytes_str(bad[i]), NULL), ERR_INVALID);
}

/* A consumer that gives a message back repeats its key on purpose. */
static void retries_of_consumers_are_not_touched(void **state)
{
    struct rig *rig = *state;
    send(rig, "T", "K", 0);
    const char *topics[] = {"%RETRY%g", "%DLQ%g"};
    for (int i = 0; i < 4; i++) {
        struct group_settings g = group_settings_default(BYTES("g"));
        rig_group_put(rig, &g);
        rig_topic_put(rig, topics[i % 2], 1, 6);
        struct produce r = message(topics[i % 2], "K", 0);
        r.reconsume_times = i / 2;
        assert_int_equal(rig_produce(rig, &r), OK);
        assert_int_equal(r.known, 0);
    }
    struct produce again = message("T", "K", 0);
    again.reconsume_times = 1;
    assert_int_equal(rig_produce(rig, &again), OK);
    assert_int_equal(again.known, 0);
}

/* Whether the first one will count nobody knows: its producer may take it back. */
static void half_messages_are_not_touched(void **state)
{
    struct rig *rig = *state;
    const char *half = "UNIQ_KEY\1K\2TRAN_MSG\1true\2PGROUP\1g\2";
    struct answer first = send_with(rig, "T", half, 0);
    struct answer second = send_with(rig, "T", half, 0);
    assert_int_not_equal(first.position, second.position);
    assert_int_equal(second.known, 0);
    assert_int_equal(numbers(rig).keys, 0);
}

/* A message with a time of its own can be recalled; what is sent again then must come. */
static void timed_messages_are_not_touched(void **state)
{
    struct rig *rig = *state;
    const char *props = "UNIQ_KEY\1K\2TIMER_DELAY_MS\1"
                        "5000\2";
    struct answer first = send_with(rig, "T", props, 0);
    struct answer second = send_with(rig, "T", props, 0);
    assert_int_not_equal(first.position, second.position);
    assert_int_equal(second.known, 0);
    rig_again(rig);
    assert_int_equal(numbers(rig).keys, 0);
    assert_int_equal(send(rig, "T", "K", 0).known, 0);
}

/* The broker gives a key to what came without: nobody can send that again. */
static void what_has_no_key_is_not_remembered(void **state)
{
    struct rig *rig = *state;
    send_with(rig, "T", "TAGS\1A\2", 0);
    send_with(rig, "T", "REAL_TOPIC\1U\2UNIQ_KEY\1K\2", 0); /* says that it is a copy */
    send_with(rig, "T", "REAL_TOPIC\1U\2UNIQ_KEY\1K\2", 0);
    assert_int_equal(stored_in(rig, "T"), 3);
    assert_int_equal(numbers(rig).keys, 0);
    rig_again(rig);
    assert_int_equal(send(rig, "T", "K", 0).known, 0);
}

/* Two names with one hash, which cannot be had by trying: the table is told a lie instead. */
static void a_message_is_never_taken_for_another(void **state)
{
    struct rig *rig = *state;
    struct answer a = send(rig, "T", "A", 0);
    struct dedup *d = rig->broker->dedup;
    const struct dedup_name names[] = {{BYTES("T"), BYTES("B"), 0, 0},
                                       {BYTES("U"), BYTES("A"), 0, 0},
                                       {BYTES("T"), BYTES("A"), 1, 0}};
    room_enter(&d->room);
    assert_int_equal(dedup_table_reserve(&d->table, 4), OK);
    for (size_t i = 0; i < 3; i++) {
        uint64_t number = dedup_table_add(&d->table, dedup_hash(d, &names[i]), 0);
        dedup_table_set(&d->table, number, (uint64_t)a.position);
    }
    uint64_t nowhere = dedup_table_add(&d->table, dedup_hash(d, &names[0]), 0);
    dedup_table_set(&d->table, nowhere, (uint64_t)a.position + 3);
    room_leave(&d->room);
    assert_int_equal(send(rig, "T", "B", 0).known, 0);
    assert_int_equal(send(rig, "U", "A", 0).known, 0);
    assert_int_equal(stored_in(rig, "T"), 2);
    assert_same(a, send(rig, "T", "A", 1));
}

/* ---- batches ---- */

struct batch_text {
    uint8_t at[4096];
    struct wr w;
};

static struct produce batch(struct batch_text *text, const char *const *keys, int32_t queue_id)
{
    text->w = wr_over(text->at, sizeof text->at);
    for (; *keys; keys++)
        batch_add(&text->w, &(struct batch_item){0, bytes_str(*keys), bytes_str(key_props(*keys))});
    struct produce r = rig_message("T", "");
    r.body = wr_bytes(&text->w);
    r.batch = true;
    r.queue_id = queue_id;
    return r;
}

static void batch_send(struct rig *rig, struct produce *r, int64_t *positions)
{
    assert_int_equal(rig_produce(rig, r), OK);
    broker_dispatch_turn(rig->broker);
    for (uint32_t i = 0; i < r->count; i++)
        positions[i] = desk_stored(rig->desk)[r->first + i].position;
}

static void a_batch_sent_again_is_answered_as_the_first_time(void **state)
{
    struct rig *rig = *state;
    struct batch_text text;
    const char *keys[] = {"a", "b", "c", NULL};
    int64_t first[3], second[3];
    struct produce r = batch(&text, keys, 2);
    batch_send(rig, &r, first);
    struct produce again = batch(&text, keys, 3);
    batch_send(rig, &again, second);
    assert_memory_equal(first, second, sizeof first);
    assert_int_equal(again.known, 3);
    assert_int_equal(again.stored_queue_id, 2);
    assert_int_equal(again.queue_offset, 0);
    assert_int_equal(stored_in(rig, "T"), 3);
    assert_int_equal(send(rig, "T", "b", 0).position, first[1]); /* alone, too */
}

static void only_what_is_missing_of_a_batch_is_stored(void **state)
{
    struct rig *rig = *state;
    struct batch_text text;
    struct answer c = send(rig, "T", "c", 1), e = send(rig, "T", "e", 1);
    const char *keys[] = {"a", "b", "c", "d", "e", NULL};
    int64_t at[5];
    struct produce r = batch(&text, keys, 0);
    batch_send(rig, &r, at);
    assert_int_equal(r.known, 2);
    assert_int_equal(at[2], c.position);
    assert_int_equal(at[4], e.position);
    assert_int_equal(r.stored_queue_id, 0);
    assert_int_equal(later_count(rig, "T", 0), 3);
    assert_int_equal(later_count(rig, "T", 1), 2);
    for (int64_t i = 0; i < 3; i++) {
        struct slice got;
        struct record record = later_record(rig, "T", 0, i, &got);
        assert_bytes_equal(record.body, bytes_str(((const char *[]){"a", "b", "d"})[i]));
        counted_drop(got.owner);
    }
    int64_t again[5];
    struct produce second = batch(&text, keys, 0);
    batch_send(rig, &second, again);
    assert_memory_equal(at, again, sizeof at);
}

static void messages_of_a_batch_may_share_their_key(void **state)
{
    struct rig *rig = *state;
    struct batch_text text;
    const char *keys[] = {"K", "other", "K", "K", NULL};
    int64_t first[4], second[4];
    struct produce r = batch(&text, keys, 0);
    batch_send(rig, &r, first);
    assert_int_equal(r.known, 0);
    assert_int_equal(stored_in(rig, "T"), 4);
    for (int restart = 0; restart < 2; restart++) {
        struct produce again = batch(&text, keys, 1);
        batch_send(rig, &again, second);
        assert_memory_equal(first, second, sizeof first);
        const char *fewer[] = {"K", "K", NULL};
        struct produce two = batch(&text, fewer, 1);
        batch_send(rig, &two, second);
        assert_int_equal(two.known, 2);
        assert_int_equal(second[1], first[2]);
        const char *more[] = {"K", "K", "K", "K", NULL};
        struct produce four = batch(&text, more, 1);
        batch_send(rig, &four, second);
        assert_int_equal(four.known, restart == 0 ? 3 : 4);
        assert_int_equal(stored_in(rig, "T"), 5);
        rig_again(rig);
    }
}

/* By a property there are no places: what has the same order number is the same order. */
static void twice_in_one_batch_by_a_property(void **state)
{
    struct rig *rig = *state;
    restart_with(rig, "order");
    uint8_t body[1024];
    struct wr w = wr_over(body, sizeof body);
    const char *orders[] = {"order\1"
                            "1\2",
                            "order\1"
                            "2\2",
                            "order\1"
                            "1\2",
                            "x\1y\2"};
    for (int i = 0; i < 4; i++)
        batch_add(&w, &(struct batch_item){0, BYTES("m"), bytes_str(orders[i])});
    struct produce r = rig_message("T", "");
    r.body = wr_bytes(&w);
    r.batch = true;
    int64_t at[4];
    batch_send(rig, &r, at);
    assert_int_equal(r.known, 1);
    assert_int_equal(at[2], at[0]);
    assert_int_equal(stored_in(rig, "T"), 3);
}

/* A loop takes many requests at once, and both tries may be among them. */
static void twice_in_one_turn(void **state)
{
    struct rig *rig = *state;
    struct produce r[] = {message("T", "A", 0), message("U", "A", 0), message("T", "B", 1),
                          message("T", "A", 2), message("!", "A", 0), message("T", "B", 0)};
    uint64_t end;
    broker_produce(rig->broker, rig->desk, r, 6, &end);
    broker_dispatch_turn(rig->broker);
    assert_same(answer_of(rig, &r[0]), answer_of(rig, &r[3]));
    assert_same(answer_of(rig, &r[2]), answer_of(rig, &r[5]));
    assert_int_equal(r[3].known + r[5].known, 2);
    assert_int_equal(r[4].err, ERR_INVALID);
    assert_int_equal(stored_in(rig, "T"), 2);
    assert_int_equal(stored_in(rig, "U"), 1);
    assert_int_equal(end, store_confirmed(rig->store));
}

/* ---- messages that come later ---- */

static void a_delayed_message_is_recognised_before_and_after_it_came(void **state)
{
    struct rig *rig = *state;
    const char *props = "UNIQ_KEY\1K\2DELAY\1"
                        "1\2";
    struct answer first = send_with(rig, "T", props, 3);
    for (int i = 0; i < 3; i++) {
        assert_same(first, send_with(rig, "T", props, 1));
        assert_same(first, send(rig, "T", "K", 1)); /* it was sent to that topic */
        assert_int_equal(stored_in(rig, "T"), i > 0);
        clock_manual_advance(&rig->clock, 2000);
        assert_int_equal(later_turn(rig), i == 0);
        if (i == 1)
            rig_again(rig);
    }
    assert_int_equal(numbers(rig).keys, 1); /* the copy is no key of its own */
    assert_int_equal(send(rig, "U", "K", 0).known, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(off_by_default_and_then_for_nothing),
        dedup_case(DS_6_the_second_gets_the_answer_of_the_first),
        dedup_case(a_key_belongs_to_its_topic),
        dedup_case(a_topic_decides_for_itself),
        dedup_case(an_attribute_that_names_nothing_is_refused),
        dedup_case(retries_of_consumers_are_not_touched),
        dedup_case(half_messages_are_not_touched),
        dedup_case(timed_messages_are_not_touched),
        dedup_case(what_has_no_key_is_not_remembered),
        dedup_case(a_message_is_never_taken_for_another),
        dedup_case(a_batch_sent_again_is_answered_as_the_first_time),
        dedup_case(only_what_is_missing_of_a_batch_is_stored),
        dedup_case(messages_of_a_batch_may_share_their_key),
        dedup_case(twice_in_one_batch_by_a_property),
        dedup_case(twice_in_one_turn),
        dedup_case(a_delayed_message_is_recognised_before_and_after_it_came),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
