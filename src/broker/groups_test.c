/* Groups that every broker has, and groups that come to be. */
#include "broker/rig_test.h"

static void every_broker_has_the_system_groups(void **state)
{
    struct rig *rig = *state;
    static const char *const names[] = {
        "TOOLS_CONSUMER",  "FILTERSRV_CONSUMER",    "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",  "CID_RMQ_SYS_TRANS",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(rig_group(rig, names[i]));
    assert_int_equal(rig->broker->groups.n, sizeof names / sizeof *names);
}

static void a_pull_makes_its_group(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, "T", "", "x");
    struct pull pull = rig_pull("fresh", "T", 0);
    struct pulled got;
    assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), OK);
    rig_drop(&got.read);
    assert_true(rig_group(rig, "fresh"));
    rig_again(rig);
    assert_true(rig_group(rig, "fresh"));
}

static void without_automatic_creation_only_system_groups_are_made(void **state)
{
    struct rig *rig = *state;
    rig->options.auto_groups = false;
    rig_again(rig);
    rig_send(rig, "T", "", "x");
    struct pull pull = rig_pull("fresh", "T", 0);
    struct pulled got;
    struct fault why = {0};
    assert_int_equal(broker_pull(rig->broker, &pull, &got, &why), ERR_UNKNOWN_GROUP);
    assert_non_null(strstr(why.text, "autoCreateSubscriptionGroup"));
    assert_false(rig_group(rig, "fresh"));

    pull = rig_pull("CID_RMQ_SYS_TOOL", "T", 0);
    assert_int_equal(broker_pull(rig->broker, &pull, &got, &why), OK);
    rig_drop(&got.read);
}

static void a_name_that_cannot_be_is_refused(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, "T", "", "x");
    char long_name[200];
    memset(long_name, 'g', sizeof long_name);
    long_name[NAME_GROUP_MAX + 1] = 0;
    const char *const bad[] = {"", "with blank", "a@b", "a/b", long_name};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pull pull = rig_pull(bad[i], "T", 0);
        struct pulled got;
        struct fault why = {0};
        assert_int_equal(broker_pull(rig->broker, &pull, &got, &why), ERR_INVALID);
        assert_true(why.text[0]);
    }
}

static void the_limit_of_groups_is_named(void **state)
{
    struct rig *rig = *state;
    rig->options.max_groups = (uint32_t)rig->broker->groups.n + 1;
    rig_again(rig);
    rig_send(rig, "T", "", "x");
    struct pull pull = rig_pull("one", "T", 0);
    struct pulled got;
    struct fault why = {0};
    assert_int_equal(broker_pull(rig->broker, &pull, &got, &why), OK);
    rig_drop(&got.read);
    pull = rig_pull("two", "T", 0);
    assert_int_equal(broker_pull(rig->broker, &pull, &got, &why), ERR_BUSY);
    assert_non_null(strstr(why.text, "maxGroups"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(every_broker_has_the_system_groups),
        rig_test(a_pull_makes_its_group),
        rig_test(without_automatic_creation_only_system_groups_are_made),
        rig_test(a_name_that_cannot_be_is_refused),
        rig_test(the_limit_of_groups_is_named),
    };
    return cmocka_run_group_tests_name("broker/groups", tests, NULL, NULL);
}
