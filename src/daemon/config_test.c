/* Settings that change while the daemon runs: all or nothing, kept, and found again. */
#include "daemon/config.h"

#include "base/test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PATH "changed.conf"

struct rig {
    char folder[32];
    struct vfs *vfs;
    struct clock_manual clock;
    struct config config;
    struct log log;
    char log_path[64];
};

static void start_with(struct rig *rig, const char *file, const bool *given)
{
    struct settings *s = calloc(1, sizeof *s);
    assert_non_null(s);
    assert_int_equal(conf_defaults(&settings_table, s, NULL), OK);
    assert_int_equal(conf_parse(&settings_table, s, "file", bytes_str(file), NULL, NULL), OK);
    memset(&rig->config, 0, sizeof rig->config);
    config_init(&rig->config, s, &rig->clock.clock);
    free(s);
    struct fault why = {0};
    if (config_load(&rig->config, rig->vfs, PATH, given, &rig->log, &why))
        fail_msg("%s", why.text);
}

static void stop(struct rig *rig)
{
    config_clear(&rig->config);
}

static int rig_open(void **state)
{
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    snprintf(rig->folder, sizeof rig->folder, "/tmp/config-test-XXXXXX");
    assert_non_null(mkdtemp(rig->folder));
    assert_int_equal(vfs_posix_open(rig->folder, &rig->vfs, NULL), OK);
    clock_manual_init(&rig->clock, 1000);
    rig->log = (struct log){.fd = STDERR_FILENO, .least = LOG_ERROR, .clock = &rig->clock.clock};
    *state = rig;
    return 0;
}

static int remove_it(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    return remove(path);
}

static int rig_close(void **state)
{
    struct rig *rig = *state;
    rig->vfs->calls->dispose(rig->vfs);
    (void)nftw(rig->folder, remove_it, 16, FTW_DEPTH | FTW_PHYS);
    free(rig);
    return 0;
}

static enum err change(struct rig *rig, const char *text, const char *word)
{
    struct fault why = {0};
    enum err err = config_change(&rig->config, bytes_str(text), &why);
    if (word && !strstr(why.text, word))
        fail_msg("'%s' does not say '%s'", why.text, word);
    return err;
}

static void a_change_counts_is_kept_and_found_again(void **state)
{
    struct rig *rig = *state;
    start_with(rig, "maxMessageSize=2000000\nfileReservedTime=10", NULL);
    struct settings s;
    uint64_t before = config_get(&rig->config, &s);
    assert_int_equal(s.max_message_size, 2000000);
    assert_int_equal(change(rig, "maxMessageSize=5000\ndeleteWhen=02;14\n", NULL), OK);
    assert_true(config_get(&rig->config, &s) > before);
    assert_int_equal(s.max_message_size, 5000);
    assert_int_equal(config_save(&rig->config, NULL), OK);
    stop(rig);

    start_with(rig, "maxMessageSize=3000000\nfileReservedTime=11", NULL);
    (void)config_get(&rig->config, &s);
    assert_int_equal(s.max_message_size, 5000); /* wins over the file */
    assert_string_equal(s.delete_when, "02;14");
    assert_int_equal(s.reserved_hours, 11); /* was never changed */
    assert_int_equal(change(rig, "fileReservedTime=12", NULL), OK);
    assert_int_equal(config_save(&rig->config, NULL), OK);
    stop(rig);

    bool given[SETTINGS_MAX] = {false};
    given[conf_find(&settings_table, "maxMessageSize") - settings_table.options] = true;
    start_with(rig, "maxMessageSize=4000", given);
    (void)config_get(&rig->config, &s);
    assert_int_equal(s.max_message_size, 4000); /* the command line wins over the change */
    assert_int_equal(s.reserved_hours, 12);
    stop(rig);
}

static void what_is_not_right_changes_nothing(void **state)
{
    struct rig *rig = *state;
    start_with(rig, "", NULL);
    struct settings s;
    uint64_t before = config_get(&rig->config, &s);
    assert_int_equal(change(rig, "maxTopics=5\nmaxMessageSize=none", "maxMessageSize"),
                     ERR_INVALID);
    assert_int_equal(change(rig, "maxTopics=5\nmaxTopic=6", "did you mean maxTopics"), ERR_INVALID);
    assert_int_equal(change(rig, "maxTopics=5\nconfigBlackList=x", "configBlackList"), ERR_INVALID);
    assert_int_equal(change(rig, "maxTopics=5\nflushDiskType=SYNC_FLUSH", "flushDiskType"),
                     ERR_DENIED);
    assert_int_equal(change(rig, "maxTopics=5\nstorePathRootDir=/", "storePathRootDir"),
                     ERR_DENIED);
    assert_int_equal(change(rig, "maxTopics=5\n\\u00zz=1", NULL), ERR_INVALID);
    /* Each is fine alone, and not together with what outputMaxBytes is. */
    assert_int_equal(change(rig, "maxTopics=5\nmaxMessageSize=15728640", NULL), OK);
    assert_int_equal(config_get(&rig->config, &s), before + 1);
    assert_int_equal(s.max_topics, 5);
    /* A key that is named with the value it has is no change. */
    assert_int_equal(change(rig, "flushDiskType=ASYNC_FLUSH\nmaxTopics=6", NULL), OK);
    stop(rig);
}

static void settings_that_do_not_go_together_are_refused(void **state)
{
    struct rig *rig = *state;
    start_with(rig, "outputMaxBytes=7000000", NULL);
    assert_int_equal(change(rig, "maxMessageSize=15728640", "outputMaxBytes"), ERR_INVALID);
    struct settings s;
    (void)config_get(&rig->config, &s);
    assert_int_equal(s.max_message_size, 4 << 20);
    stop(rig);
}

static void a_file_that_makes_no_sense_is_told_by_name(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(vfs_replace(rig->vfs, PATH, BYTES("maxTopics=none\n"), NULL), OK);
    struct settings *s = calloc(1, sizeof *s);
    assert_int_equal(conf_defaults(&settings_table, s, NULL), OK);
    memset(&rig->config, 0, sizeof rig->config);
    config_init(&rig->config, s, &rig->clock.clock);
    struct fault why = {0};
    assert_int_equal(config_load(&rig->config, rig->vfs, PATH, NULL, &rig->log, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, PATH ":1"));
    stop(rig);
    /* What cannot change while running has no business there, and is left alone. */
    assert_int_equal(
        vfs_replace(rig->vfs, PATH, BYTES("listenPort=1\nmaxTopics=7\nnobody=1\n"), NULL), OK);
    start_with(rig, "", NULL);
    (void)config_get(&rig->config, s);
    assert_int_equal(s->listen_port, 10911);
    assert_int_equal(s->max_topics, 7);
    stop(rig);
    free(s);
}

static void all_keys_are_shown_with_a_version_that_rises(void **state)
{
    struct rig *rig = *state;
    start_with(rig, "", NULL);
    cleanup(buf_clear) struct buf text = buf_upto(1 << 20);
    struct data_version first, second;
    config_print(&rig->config, "me", &text, &first);
    assert_non_null(memmem(text.at, text.len, "\nbrokerName=me\n", 15));
    assert_int_equal(change(rig, "maxTopics=8", NULL), OK);
    text.len = 0;
    config_print(&rig->config, "me", &text, &second);
    assert_non_null(memmem(text.at, text.len, "\nmaxTopics=8\n", 13));
    assert_true(second.counter > first.counter);
    struct settings again;
    assert_int_equal(conf_defaults(&settings_table, &again, NULL), OK);
    assert_int_equal(conf_parse(&settings_table, &again, "t", buf_bytes(&text), NULL, NULL), OK);
    stop(rig);
}

#define rig_test(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(a_change_counts_is_kept_and_found_again),
        rig_test(what_is_not_right_changes_nothing),
        rig_test(settings_that_do_not_go_together_are_refused),
        rig_test(a_file_that_makes_no_sense_is_told_by_name),
        rig_test(all_keys_are_shown_with_a_version_that_rises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
