/* What an operator changes and sees: topics, groups, offsets, tombs of deleted topics. */
#include "broker/admin_int.h"
#include "broker/rig_test.h"

static struct topic_settings topic_like(const char *name, int32_t queues, int32_t perm)
{
    return (struct topic_settings){
        .name = bytes_str(name), .read_queues = queues, .write_queues = queues, .perm = perm};
}

static enum err topic_set(struct rig *rig, const char *name, int32_t queues, const char *changes)
{
    struct topic_settings set = topic_like(name, queues, PERM_READ | PERM_WRITE);
    struct fault why = {0};
    enum err err = broker_topic_set(rig->broker, &set, bytes_str(changes), &why);
    assert_int_equal(err != OK, why.text[0] != 0);
    return err;
}

static void topic_delete(struct rig *rig, const char *name)
{
    assert_int_equal(broker_topic_delete(rig->broker, bytes_str(name), NULL), OK);
}

static void woken(struct hold *hold)
{
    hold->offset = -7;
}

/* Name servers are told of a change, and not of a request that changes nothing. */
static void a_topic_is_made_changed_and_kept(void **state)
{
    struct rig *rig = *state;
    int told = rig->topics_changed;
    assert_int_equal(topic_set(rig, "T", 4, "+message.type=FIFO"), OK);
    assert_int_equal(rig->topics_changed, told + 1);
    assert_int_equal(topic_set(rig, "T", 4, ""), OK);
    assert_int_equal(rig->topics_changed, told + 1);
    assert_int_equal(topic_set(rig, "T", 6, "+reserve.time=5"), OK);
    assert_int_equal(rig->topics_changed, told + 2);
    rig_again(rig);
    struct topic_settings set;
    assert_true(rig_topic(rig, "T", &set));
    assert_int_equal(set.read_queues, 6);
    assert_true(
        bytes_equal(set.attributes, BYTES("{\"message.type\":\"FIFO\",\"reserve.time\":\"5\"}")));
    assert_int_equal(topic_set(rig, "T", 6, "-message.type,-reserve.time"), OK);
    assert_true(rig_topic(rig, "T", &set));
    assert_int_equal(set.attributes.len, 0);
}

static void attributes_that_cannot_be_are_refused(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(topic_set(rig, "T", 4, "+queue.type=SimpleCQ"), OK);
    static const char *const bad[] = {
        "x",
        "+",
        "-",
        "+unknown=1",
        "-message.type",
        "+message.type=",
        "+message.type=MIXED",
        "+queue.type=SimpleCQ", /* fixed at creation */
        "+cleanup.policy=COMPACTION",
        "+reserve.time=-2",
        "+reserve.time=soon",
        "+message.type=FIFO,-message.type",
        "+message.type=FIFO,",
    };
    for (size_t i = 0; i + 1 < sizeof bad / sizeof *bad; i++)
        assert_int_equal(topic_set(rig, "T", 4, bad[i]), ERR_INVALID);
    assert_int_equal(topic_set(rig, "T", 4, bad[sizeof bad / sizeof *bad - 1]), OK);
    assert_int_equal(topic_set(rig, "Fresh", 4, "-message.type"), ERR_INVALID);
    assert_false(rig_topic(rig, "Fresh", NULL));
}

static void the_systems_own_topics_stay_as_they_are(void **state)
{
    struct rig *rig = *state;
    static const char *const own[] = {"TBW102", "DefaultCluster", "broker-a",
                                      "DefaultCluster_REPLY_TOPIC", "rmq_sys_wheel_timer"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        assert_int_equal(topic_set(rig, own[i], 4, ""), ERR_INVALID);
        assert_int_equal(broker_topic_delete(rig->broker, bytes_str(own[i]), NULL), ERR_INVALID);
        assert_true(rig_topic(rig, own[i], NULL));
    }
}

static void a_deleted_topic_takes_offsets_and_readers_along(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, "T", "", "x");
    rig_send(rig, "Other", "", "x");
    struct pull pull = rig_pull("g", "T", 1);
    struct pulled got;
    assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), OK);
    assert_int_equal(broker_offset_commit(
                         rig->broker, &(struct commit){NULL, BYTES("g"), BYTES("T"), 0, 1}, NULL),
                     OK);
    assert_int_equal(broker_offset_commit(rig->broker,
                                          &(struct commit){NULL, BYTES("g"), BYTES("Other"), 0, 1},
                                          NULL),
                     OK);
    struct hold hold = {.queue = got.queue, .offset = 1, .wake = woken};
    assert_int_equal(broker_hold(rig->broker, &hold, 60000), OK);

    topic_delete(rig, "T");
    assert_int_equal(hold.offset, -7);
    assert_int_equal(rig->broker->n_holds, 0);
    assert_int_equal(rig_offset(rig, "g", "T", 0), -1);
    assert_int_equal(rig_offset(rig, "g", "Other", 0), 1);
    assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), ERR_UNKNOWN_TOPIC);
}

/* Its messages are still in the store, which must not bring it back. */
static void a_deleted_topic_stays_deleted_over_a_start(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, "T", "", "x");
    topic_delete(rig, "T");
    rig_again(rig);
    assert_false(rig_topic(rig, "T", NULL));
    assert_int_equal(rig->broker->tombs.n, 1);
    rig_again(rig);
    assert_false(rig_topic(rig, "T", NULL));
    rig_send(rig, "T", "", "y"); /* made anew */
    assert_int_equal(rig->broker->tombs.n, 0);
    rig_again(rig);
    assert_true(rig_topic(rig, "T", NULL));
}

/* The tomb is on the disk; then a message makes the topic anew, and a crash takes the settings. */
static void a_message_after_the_deletion_brings_the_topic_back(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, "T", "", "x");
    topic_delete(rig, "T");
    assert_int_equal(broker_save_turn(rig->broker, NULL), OK);
    rig_send(rig, "T", "", "y");
    for (enum table_name which = 0; which < TABLES; which++)
        rig->broker->tables[which].saved = rig->broker->tables[which].changes; /* not saved */
    rig_again(rig);
    assert_true(rig_topic(rig, "T", NULL));
}

static void a_topic_without_messages_needs_no_tomb(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(topic_set(rig, "Empty", 4, ""), OK);
    topic_delete(rig, "Empty");
    assert_int_equal(rig->broker->tombs.n, 0);
    topic_delete(rig, "Empty");
    topic_delete(rig, "NeverThere");
}

static void a_group_is_set_shown_and_deleted(void **state)
{
    struct rig *rig = *state;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    struct group_settings set = group_settings_default(BYTES("g")), got;
    set.retry_max = 3;
    assert_int_equal(broker_group_set(rig->broker, &set, NULL), OK);
    rig_again(rig);
    assert_int_equal(broker_group_get(rig->broker, BYTES("g"), &arena, &got, NULL), OK);
    assert_int_equal(got.retry_max, 3);
    rig_send(rig, "T", "", "x");
    assert_int_equal(broker_offset_commit(
                         rig->broker, &(struct commit){NULL, BYTES("g"), BYTES("T"), 0, 1}, NULL),
                     OK);

    assert_int_equal(broker_group_delete(rig->broker, BYTES("g"), false, NULL), OK);
    assert_int_equal(broker_group_get(rig->broker, BYTES("g"), &arena, &got, NULL),
                     ERR_UNKNOWN_GROUP);
    assert_int_equal(rig_offset(rig, "g", "T", 0), 1);
    assert_int_equal(broker_group_delete(rig->broker, BYTES("g"), true, NULL), OK);
    assert_int_equal(rig_offset(rig, "g", "T", 0), -1);

    rig->options.max_groups = (uint32_t)rig->broker->groups.n;
    rig_again(rig);
    assert_int_equal(broker_group_set(rig->broker, &set, NULL), ERR_BUSY);
    arena_clear(&arena);
}

static void a_reset_counts_until_its_reader_is_told(void **state)
{
    struct rig *rig = *state;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    for (int i = 0; i < 5; i++)
        rig_send(rig, "T", "", "x");
    struct group_settings set = group_settings_default(BYTES("g"));
    assert_int_equal(broker_group_set(rig->broker, &set, NULL), OK);
    assert_int_equal(broker_offset_commit(
                         rig->broker, &(struct commit){NULL, BYTES("g"), BYTES("T"), 0, 5}, NULL),
                     OK);
    struct offsets_reset reset = {
        .group = BYTES("g"), .topic = BYTES("T"), .queue_id = 0, .offset = 2};
    assert_int_equal(broker_offsets_reset(rig->broker, &reset, &arena, NULL), OK);
    assert_int_equal(reset.n, 1);
    assert_int_equal(rig_offset(rig, "g", "T", 0), 2);

    assert_int_equal(broker_offset_commit(
                         rig->broker, &(struct commit){NULL, BYTES("g"), BYTES("T"), 0, 5}, NULL),
                     OK);
    assert_int_equal(rig_offset(rig, "g", "T", 0), 2);
    struct pull pull = rig_pull("g", "T", 5);
    pull.commit = true;
    pull.commit_offset = 5;
    struct pulled got;
    assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), OK);
    assert_true(got.reset);
    assert_int_equal(got.read.next, 2);
    assert_int_equal(rig_offset(rig, "g", "T", 0), 2);
    assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), OK);
    assert_false(got.reset);
    assert_int_equal(rig_offset(rig, "g", "T", 0), 5);
    arena_clear(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(a_topic_is_made_changed_and_kept),
        rig_test(attributes_that_cannot_be_are_refused),
        rig_test(the_systems_own_topics_stay_as_they_are),
        rig_test(a_deleted_topic_takes_offsets_and_readers_along),
        rig_test(a_deleted_topic_stays_deleted_over_a_start),
        rig_test(a_message_after_the_deletion_brings_the_topic_back),
        rig_test(a_topic_without_messages_needs_no_tomb),
        rig_test(a_group_is_set_shown_and_deleted),
        rig_test(a_reset_counts_until_its_reader_is_told),
    };
    return cmocka_run_group_tests_name("admin", tests, NULL, NULL);
}
