/* The tables' files: surviving a stop, falling back, refusing, and a disk that fails. */
#include "broker/disk_test.h"
#include "broker/rig_test.h"

static const char *const paths[] = {
    "config/topics.json",      "config/subscriptionGroup.json", "config/consumerOffset.json",
    "config/delayOffset.json", "config/consumerOrderInfo.json", "config/messageRequestMode.json"};
_Static_assert(sizeof paths / sizeof *paths == TABLES, "each table has a file");

static void file_write(struct rig *rig, const char *path, const char *ending, const char *text)
{
    char name[256];
    snprintf(name, sizeof name, "%s/%s%s", rig->folder, path, ending);
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static bool file_there(struct rig *rig, const char *path, const char *ending)
{
    char name[256];
    snprintf(name, sizeof name, "%s/%s%s", rig->folder, path, ending);
    return access(name, F_OK) == 0;
}

static void file_remove(struct rig *rig, const char *path, const char *ending)
{
    char name[256];
    snprintf(name, sizeof name, "%s/%s%s", rig->folder, path, ending);
    assert_int_equal(unlink(name), 0);
}

/* Makes a delay level known to its table. */
static void delay_one(struct rig *rig, int level)
{
    char props[32];
    snprintf(props, sizeof props, "DELAY\1%d\2", level);
    struct produce r = rig_message("T", "later");
    r.props = bytes_str(props);
    struct service_turn turn;
    assert_int_equal(rig_produce(rig, &r), OK);
    broker_dispatch_turn(rig->broker);
    broker_delay_turn(rig->broker, &turn);
}

/* Makes something known to the tables of POP. */
static void pop_one(struct rig *rig, int share)
{
    struct request_mode mode = {BYTES("T"), BYTES("g"), true, share};
    assert_int_equal(broker_mode_set(rig->broker, &mode, NULL), OK);
    room_enter(&rig->broker->room);
    table_changed(rig->broker, TABLE_ORDERS);
    room_leave(&rig->broker->room);
}

/* A topic T, a group g, an offset, a delay level and a mode, each in its file and, older, in its
 * .bak; the broker is stopped. */
static int saved_open(void **state)
{
    rig_open(state);
    struct rig *rig = *state;
    for (int i = 1; i <= 2; i++) {
        rig_send(rig, i == 1 ? "T" : "U", "", "x");
        struct pull pull = rig_pull(i == 1 ? "g" : "h", "T", 0);
        struct pulled got;
        assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), OK);
        rig_drop(&got.read);
        assert_int_equal(broker_offset_commit(rig->broker,
                                              &(struct commit){NULL, BYTES("g"), BYTES("T"), 0, i},
                                              NULL),
                         OK);
        delay_one(rig, i);
        pop_one(rig, i);
        assert_int_equal(broker_save_turn(rig->broker, NULL), OK);
    }
    rig_stop(rig);
    rig->broker = NULL;
    return 0;
}

#define saved_test(name) cmocka_unit_test_setup_teardown(name, saved_open, rig_close)

static void tables_survive_a_stop(void **state)
{
    struct rig *rig = *state;
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    assert_true(rig_topic(rig, "T", NULL));
    assert_true(rig_topic(rig, "U", NULL));
    assert_true(rig_group(rig, "g"));
    assert_true(rig_group(rig, "h"));
    assert_int_equal(rig_offset(rig, "g", "T", 0), 2);
    assert_int_equal(rig->broker->delay_saved[0], 0);
    assert_int_equal(rig->broker->delay_saved[1], 0);
    assert_int_equal(rig->broker->delay_saved[2], -1);
    struct request_mode mode;
    broker_mode_get(rig->broker, BYTES("T"), BYTES("g"), &mode);
    assert_true(mode.pops);
    assert_int_equal(mode.share, 2);
    assert_int_equal(rig->broker->tables[TABLE_TOPICS].version.counter, 2);
    assert_int_equal(rig->broker->tables[TABLE_GROUPS].version.counter, 2);
    assert_string_equal(broker_note(rig->broker), "");
}

/* Whatever befalls the newest file, the one before it is used, and the operator is told. */
static void a_bad_file_falls_back_to_the_one_before(void **state)
{
    struct rig *rig = *state;
    static const char *const bad[] = {NULL, "", "{", "{}", "\xff"};
    size_t n = sizeof bad / sizeof *bad;
    for (size_t i = 0; i < n; i++) {
        for (int p = 0; p < TABLES; p++) {
            if (bad[i])
                file_write(rig, paths[p], "", bad[i]);
            else
                file_remove(rig, paths[p], "");
        }
        struct fault why = {0};
        assert_int_equal(rig_start(rig, &why), OK);
        assert_true(rig_topic(rig, "T", NULL));
        assert_true(rig_topic(rig, "U", NULL)); /* not in it, but there are messages */
        assert_true(rig_group(rig, "g"));
        assert_false(rig_group(rig, "h"));
        assert_int_equal(rig_offset(rig, "g", "T", 0), 1);
        assert_int_equal(rig->broker->delay_saved[0], 0);
        assert_int_equal(rig->broker->delay_saved[1], -1);
        assert_non_null(strstr(broker_note(rig->broker), paths[0]));
        assert_non_null(strstr(broker_note(rig->broker), bad[i] ? "damaged" : "missing"));
        for (int p = 0; p < TABLES; p++)
            assert_int_equal(file_there(rig, paths[p], ".damaged"), bad[i] != NULL);
        rig_stop(rig); /* writes a good one; the .bak is untouched, or this loop would end here */
        rig->broker = NULL;
        for (int p = 0; p < TABLES; p++)
            assert_true(file_there(rig, paths[p], ""));
    }
}

static void a_damaged_pair_is_an_error_that_names_the_file(void **state)
{
    struct rig *rig = *state;
    for (int p = 0; p < TABLES; p++) {
        cleanup(free_at) uint8_t *good = NULL;
        size_t len;
        assert_int_equal(vfs_read_all(rig->vfs, paths[p], 1 << 20, &good, &len, NULL), OK);

        file_write(rig, paths[p], "", "{");
        file_write(rig, paths[p], ".bak", "]");
        struct fault why = {0};
        assert_int_equal(rig_start(rig, &why), ERR_DAMAGED);
        assert_non_null(strstr(why.text, paths[p]));
        assert_non_null(strstr(why.text, ".bak"));
        file_remove(rig, paths[p], "");
        assert_int_equal(rig_start(rig, &why), ERR_DAMAGED); /* nothing but a damaged .bak */
        assert_non_null(strstr(why.text, paths[p]));
        file_remove(rig, paths[p], ".bak");
        file_write(rig, paths[p], "", "{");
        assert_int_equal(rig_start(rig, &why), ERR_DAMAGED); /* a damaged one without .bak */
        assert_non_null(strstr(why.text, paths[p]));
        assert_false(file_there(rig, paths[p], ".damaged")); /* nothing was touched */
        assert_int_equal(vfs_replace(rig->vfs, paths[p], bytes_of(good, len), NULL), OK);
    }
    rig->broker = NULL;
}

/* A crash between the first message and the next save of the tables. */
static void a_topic_with_messages_but_no_settings_is_made_anew(void **state)
{
    struct rig *rig = *state;
    struct fault why = {0};
    file_remove(rig, paths[0], "");
    file_remove(rig, paths[0], ".bak");
    assert_int_equal(rig_start(rig, &why), OK);
    assert_true(rig_topic(rig, "T", NULL));
    assert_true(rig_topic(rig, "U", NULL));
    assert_non_null(strstr(broker_note(rig->broker), "2 topics had messages"));
    struct pull pull = rig_pull("g", "T", 0);
    struct pulled got;
    assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), OK);
    assert_int_equal(got.read.status, READ_FOUND);
    rig_drop(&got.read);
    rig_again(rig);
    assert_string_equal(broker_note(rig->broker), "");
}

static void only_what_changed_is_written(void **state)
{
    struct rig *rig = *state;
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    for (int p = 0; p < TABLES; p++)
        file_remove(rig, paths[p], "");
    assert_int_equal(broker_save_turn(rig->broker, NULL), OK);
    for (int p = 0; p < TABLES; p++)
        assert_false(file_there(rig, paths[p], ""));
    assert_int_equal(broker_offset_commit(
                         rig->broker, &(struct commit){NULL, BYTES("g"), BYTES("T"), 0, 9}, NULL),
                     OK);
    assert_int_equal(broker_save_turn(rig->broker, NULL), OK);
    assert_false(file_there(rig, paths[TABLE_TOPICS], ""));
    assert_true(file_there(rig, paths[TABLE_OFFSETS], ""));
    file_remove(rig, paths[TABLE_OFFSETS], "");
    assert_int_equal(broker_save_turn(rig->broker, NULL), OK);
    assert_false(file_there(rig, paths[TABLE_OFFSETS], ""));
}

static void what_we_do_not_understand_in_a_group_file_is_kept(void **state)
{
    struct rig *rig = *state;
    file_write(rig, paths[TABLE_GROUPS], "",
               "{\"forbiddenTable\":{\"g\":{\"T\":2}},\"subscriptionGroupTable\":{\"g\":{"
               "\"retryMaxTimes\":4,\"attributes\":{\"a\":\"b\"},"
               "\"groupRetryPolicy\":{\"type\":\"EXPONENTIAL\"}}}}");
    for (int round = 0; round < 2; round++) {
        struct fault why = {0};
        assert_int_equal(rig_start(rig, &why),
                         OK); /* system groups are missing, so it is written anew */
        assert_bytes_equal(buf_bytes(&rig->broker->forbidden), BYTES("{\"g\":{\"T\":2}}"));
        room_enter(&rig->broker->room);
        const struct group_settings *set = &group_find(rig->broker, BYTES("g"))->set;
        assert_int_equal(set->retry_max, 4);
        assert_bytes_equal(set->attributes, BYTES("{\"a\":\"b\"}"));
        assert_bytes_equal(set->retry_policy, BYTES("{\"type\":\"EXPONENTIAL\"}"));
        room_leave(&rig->broker->room);
        rig_stop(rig);
    }
    rig->broker = NULL;
}

/* ---- a disk that fails ---- */

/* Operation n of a save fails, for n = 1, 2, 3 … until nothing fails: the error is returned, the
 * next save makes it good, and at any moment the files can be started from. */
static void a_save_that_fails_is_made_up_for(void **state)
{
    struct rig *rig = *state;
    struct fault why = {0};
    rig->options.vfs = disk_over(rig->vfs);

    enum err err = ERR_IO;
    int n = 0;
    for (; err; n++) {
        assert_in_range(n, 0, 100);
        assert_int_equal(rig_start(rig, &why), OK);
        assert_true(rig_offset(rig, "g", "T", 0) >= 2);
        assert_int_equal(
            broker_offset_commit(rig->broker,
                                 &(struct commit){NULL, BYTES("g"), BYTES("T"), 0, 100 + n}, NULL),
            OK);
        disk.left = n;
        err = broker_save_turn(rig->broker, &why);
        disk.left = -1;
        if (err)
            assert_non_null(strstr(why.text, "the disk fails"));
        bool due =
            rig->broker->tables[TABLE_OFFSETS].changes != rig->broker->tables[TABLE_OFFSETS].saved;
        assert_int_equal(due, err != OK);
        rig_stop(rig);
        assert_int_equal(rig_start(rig, &why), OK);
        assert_int_equal(rig_offset(rig, "g", "T", 0), 100 + n);
        rig_stop(rig);
    }
    rig->broker = NULL;
    assert_true(n > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        saved_test(tables_survive_a_stop),
        saved_test(a_bad_file_falls_back_to_the_one_before),
        saved_test(a_damaged_pair_is_an_error_that_names_the_file),
        saved_test(a_topic_with_messages_but_no_settings_is_made_anew),
        saved_test(only_what_changed_is_written),
        saved_test(what_we_do_not_understand_in_a_group_file_is_kept),
        saved_test(a_save_that_fails_is_made_up_for),
    };
    return cmocka_run_group_tests_name("broker/save", tests, NULL, NULL);
}
