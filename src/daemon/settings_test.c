/* The table of settings: that it is whole, and that each refusal says what would be valid. */
#include "base/test.h"
#include "daemon/settings.h"

#include <stdio.h>

static struct settings defaults(void)
{
    struct settings s;
    memset(&s, 0xa5, sizeof s); /* whatever is not set is seen */
    struct fault why = {0};
    enum err err = conf_defaults(&settings_table, &s, &why);
    if (err)
        print_error("%s\n", why.text);
    assert_int_equal(err, OK);
    return s;
}

static enum err set(struct settings *s, const char *key, const char *value, struct fault *why)
{
    return conf_set(&settings_table, s, "here", key, value, why);
}

static void has_defaults_that_are_valid(void **state)
{
    (void)state;
    struct settings s = defaults();
    assert_int_equal(settings_check(&s, NULL), OK);
    assert_string_equal(s.bind_address, "127.0.0.1"); /* nobody is let in unless told to */
    assert_int_equal(s.listen_port, 10911);
    assert_int_equal(s.names_port, 9876);
    assert_int_equal(s.flush_type, FLUSH_ASYNC);
    assert_int_equal(s.broker_role, ROLE_ASYNC_MASTER);
    assert_true(s.auto_topics);
    assert_int_equal(s.max_message_size, 4 << 20);
    assert_int_equal(s.idle_seconds, 120);
    assert_int_equal(settings_delete_hours(&s), 1u << 4);
}

static void knows_the_hours_to_delete_in(void **state)
{
    (void)state;
    struct settings s = defaults();
    assert_int_equal(set(&s, "deleteWhen", "00;7;23", NULL), OK);
    assert_int_equal(settings_delete_hours(&s), 1u | 1u << 7 | 1u << 23);
}

/* Help is one line that goes into a table, and no two options share a key or a place. */
static void knows_the_delay_ladder(void **state)
{
    (void)state;
    struct settings s;
    int64_t delays[DELAY_LEVELS_MAX];
    assert_int_equal(conf_defaults(&settings_table, &s, NULL), OK);
    assert_int_equal(settings_delays(&s, delays), 18);
    assert_int_equal(delays[0], 1000);
    assert_int_equal(delays[17], 2 * 3600 * 1000);
    assert_int_equal(set(&s, "messageDelayLevel", "5m  1d", NULL), OK);
    assert_int_equal(settings_delays(&s, delays), 2);
    assert_int_equal(delays[0], 300000);
    assert_int_equal(delays[1], 86400000);
}

static void says_something_about_every_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < settings_table.n; i++) {
        const struct conf_option *o = &settings_table.options[i];
        assert_true(o->help && strlen(o->help) > 5);
        assert_null(strpbrk(o->help, "\n|"));
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(o->key, settings_table.options[j].key);
            assert_int_not_equal(o->offset, settings_table.options[j].offset);
        }
    }
}

/* Every number is refused just outside its bounds and taken on them, every other type is refused
 * some nonsense; refusals name the key and the value. */
static void refuses_what_is_out_of_bounds(void **state)
{
    (void)state;
    struct settings s = defaults();
    for (size_t i = 0; i < settings_table.n; i++) {
        const struct conf_option *o = &settings_table.options[i];
        char low[32], high[32];
        (void)snprintf(low, sizeof low, "%" PRId64, o->min - 1);
        (void)snprintf(high, sizeof high, "%" PRId64, o->max + 1);
        const char *bad[] = {o->type == CONF_INT ? low : "perhaps", o->type == CONF_INT ? high : "",
                             o->type == CONF_INT ? "1k" : "truefalse"};
        for (size_t k = 0; o->type != CONF_TEXT && k < 3; k++) {
            struct fault why = {0};
            assert_int_equal(set(&s, o->key, bad[k], &why), ERR_INVALID);
            assert_non_null(strstr(why.text, o->key));
            assert_non_null(strstr(why.text, bad[k]));
            assert_non_null(strstr(why.text, "is not valid: "));
        }
        if (o->type != CONF_INT)
            continue;
        (void)snprintf(low, sizeof low, "%" PRId64, o->min);
        assert_int_equal(set(&s, o->key, low, NULL), OK);
    }
}

static void refuses_texts_with_what_would_be_valid(void **state)
{
    (void)state;
    static char long_text[257];
    memset(long_text, 'x', sizeof long_text - 1);
    static const struct {
        const char *key, *value, *valid;
    } cases[] = {
        {"bindAddress", "", "must not be empty"},
        {"storePathRootDir", "", "must not be empty"}, /* it would be the root of the disk */
        {"brokerClusterName", "", "at least one letter"},
        {"brokerClusterName", long_text, "at most 255 bytes"},
        {"brokerName", long_text, "at most 255 bytes"},
        {"brokerName", "a\nb", "no control characters"},
        {"regionId", long_text, "at most 255 bytes"},
        {"regionId", "a\001b", "no control characters"}, /* it would be a property of its own */
        {"mappedFileSizeConsumeQueue", "6000001", "multiple of 20"},
        {"messageDelayLevel", "", "1 to 64 delays"},
        {"messageDelayLevel", "1s 5x", "separated by blanks"},
        {"messageDelayLevel", "1s,5s", "separated by blanks"},
        {"messageDelayLevel", "0s", "separated by blanks"},
        {"messageDelayLevel", "99999999999999999999s", "separated by blanks"},
        {"deleteWhen", "24", "00 to 23"},
        {"deleteWhen", "-1", "00 to 23"},
        {"deleteWhen", "04;", "00 to 23"},
        {"deleteWhen", "", "00 to 23"},
        {"flushDiskType", "SOMETIMES", "ASYNC_FLUSH or SYNC_FLUSH"},
    };
    struct settings s = defaults();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fault why = {0};
        assert_int_equal(set(&s, cases[i].key, cases[i].value, &why), ERR_INVALID);
        assert_non_null(strstr(why.text, cases[i].key));
        if (!strstr(why.text, cases[i].valid))
            print_error("%s\n", why.text);
        assert_non_null(strstr(why.text, cases[i].valid));
    }
    assert_int_equal(set(&s, "brokerName", "", NULL), OK); /* this machine's name */
    assert_int_equal(set(&s, "deleteWhen", "02;14", NULL), OK);
    assert_int_equal(set(&s, "messageDelayLevel", "1s  2m 3h 4d", NULL), OK);
}

/* Otherwise a consumer would be cut off each time it asks for one large message. */
static void output_must_have_room_for_an_answer(void **state)
{
    (void)state;
    struct settings s = defaults();
    struct fault why = {0};
    assert_int_equal(set(&s, "outputMaxBytes", "5242880", NULL), OK);
    assert_int_equal(settings_check(&s, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "outputMaxBytes=5242880"));
    assert_non_null(strstr(why.text, "at least 6291456"));
    assert_int_equal(set(&s, "outputMaxBytes", "6291456", NULL), OK);
    assert_int_equal(settings_check(&s, NULL), OK);
    assert_int_equal(set(&s, "outputHighBytes", "1048577", NULL), OK);
    assert_int_equal(settings_check(&s, NULL), ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_defaults_that_are_valid),
        cmocka_unit_test(knows_the_hours_to_delete_in),
        cmocka_unit_test(knows_the_delay_ladder),
        cmocka_unit_test(says_something_about_every_key),
        cmocka_unit_test(refuses_what_is_out_of_bounds),
        cmocka_unit_test(refuses_texts_with_what_would_be_valid),
        cmocka_unit_test(output_must_have_room_for_an_answer),
    };
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
