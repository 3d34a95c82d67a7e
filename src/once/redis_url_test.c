#include "base/test.h"
#include "once/redis_int.h"

static struct redis_url parsed(const char *text)
{
    struct redis_url url;
    struct fault why = {0};
    if (redis_url_parse(text, &url, &why))
        fail_msg("%s: %s", text, why.text);
    return url;
}

static void reads_host_port_and_database(void **state)
{
    (void)state;
    struct redis_url url = parsed("redis://cache.example");
    assert_string_equal(url.host, "cache.example");
    assert_int_equal(url.port, 6379);
    assert_int_equal(url.db, 0);
    assert_false(url.login);
    assert_string_equal(url.where, "cache.example:6379");
    url = parsed("redis://127.0.0.1:7000/15");
    assert_string_equal(url.host, "127.0.0.1");
    assert_int_equal(url.port, 7000);
    assert_int_equal(url.db, 15);
    assert_int_equal(parsed("redis://h/").db, 0);
}

static void reads_ipv6_in_brackets(void **state)
{
    (void)state;
    struct redis_url url = parsed("redis://[::1]:7000/2");
    assert_string_equal(url.host, "::1");
    assert_int_equal(url.port, 7000);
    assert_int_equal(url.db, 2);
    assert_string_equal(url.where, "[::1]:7000");
    assert_int_equal(parsed("redis://[fe80::1]").port, 6379);
}

static void reads_user_and_password(void **state)
{
    (void)state;
    struct redis_url url = parsed("redis://ann:s%20c%3Aret%25@h:1");
    assert_true(url.login);
    assert_string_equal(url.user, "ann");
    assert_string_equal(url.password, "s c:ret%");
    assert_string_equal(url.where, "h:1");
    url = parsed("redis://:p@ss:w/rd?x@h");
    assert_string_equal(url.user, "");
    assert_string_equal(url.password, "p@ss:w/rd?x");
    assert_string_equal(url.host, "h");
    url = parsed("redis://:@h");
    assert_true(url.login);
    assert_string_equal(url.password, "");
}

static void reads_sockets(void **state)
{
    (void)state;
    struct redis_url url = parsed("redis+unix:///run/redis%20a.sock?db=3");
    assert_string_equal(url.host, "");
    assert_string_equal(url.path, "/run/redis a.sock");
    assert_int_equal(url.db, 3);
    url = parsed("redis+unix://ann:pw@/run/redis.sock");
    assert_string_equal(url.path, "/run/redis.sock");
    assert_string_equal(url.user, "ann");
    assert_string_equal(url.where, "/run/redis.sock");
}

/* Each with "secret" where a password or something like it stands: no sentence has it. */
static void refuses_what_it_does_not_understand(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "redis:",
        "redis:/h",
        "http://secret@h",
        "redis://",
        "redis:///0",
        "redis://:6379",
        "redis://secret@h",
        "redis://u:secret%@h",
        "redis://u:secret%2@h",
        "redis://u:secret%zz@h",
        "redis://u:secret%00@h",
        "redis://u:secret word@h",
        "redis://u:secret@",
        "redis://u:secret@h:",
        "redis://u:secret@h:0",
        "redis://u:secret@h:65536",
        "redis://u:secret@h:-1",
        "redis://u:secret@h:99999999999999999999",
        "redis://u:secret@h:6379x",
        "redis://u:secret@h/x",
        "redis://u:secret@h/-1",
        "redis://u:secret@h/1/2",
        "redis://u:secret@h/99999999999",
        "redis://u:secret@h?db=1",
        "redis://u:secret@h#f",
        "redis://u:secret@::1",
        "redis://u:secret@[::1",
        "redis://u:secret@[]",
        "redis://u:secret@[::1]x",
        "redis://u:secret@h\n",
        "redis+unix://",
        "redis+unix:///",
        "redis+unix://u:secret@relative",
        "redis+unix:///s?x=secret",
        "redis+unix:///s?db=",
        "redis+unix:///s?db=-2",
        "redis://h?ca=secret",
        "rediss://h?",
        "rediss://h?ca=",
        "rediss://h?ca=/a&&cert=/b",
        "rediss://h?ca=/a&ca=/b",
        "rediss://h?key=/secret",
        "rediss://h?verify=no",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct redis_url url;
        struct fault why = {0};
        cleanup(free_at) char *exact = (char *)test_copy(wrong[i], strlen(wrong[i]) + 1);
        if (redis_url_parse(exact, &url, &why) != ERR_INVALID)
            fail_msg("accepted: %s", wrong[i]);
        assert_true(why.text[0] != 0);
        assert_null(strstr(why.text, "secret"));
    }
}

static void refuses_what_is_too_long(void **state)
{
    (void)state;
    static const size_t sizes[] = {300, 1100, 4097, 100000};
    static const char *const forms[] = {"redis://", "redis://:", "redis+unix:///"};
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t start = strlen(forms[f]);
            cleanup(free_at) char *text = malloc(start + sizes[i] + 3);
            assert_non_null(text);
            memset(text, 'a', start + sizes[i]);
            memcpy(text, forms[f], start);
            memcpy(text + start + sizes[i], f == 1 ? "@h" : "", f == 1 ? 3 : 1);
            struct redis_url url;
            enum err err = redis_url_parse(text, &url, NULL);
            assert_int_equal(err, f == 1 && sizes[i] == 300 ? OK : ERR_INVALID);
        }
}

static void reads_what_tls_needs(void **state)
{
    (void)state;
    struct redis_url url;
    assert_int_equal(redis_url_parse("redis://h", &url, NULL), OK);
    assert_false(url.tls);
    assert_int_equal(redis_url_parse("rediss://u:p?@h:7/3", &url, NULL), OK);
    assert_true(url.tls);
    assert_string_equal(url.password, "p?");
    assert_string_equal(url.ca, "");
    assert_int_equal(url.port, 7);
    assert_int_equal(url.db, 3);
    assert_int_equal(
        redis_url_parse("rediss://[::1]?key=/a/k&ca=/b%26c/x.pem&cert=./y%40z", &url, NULL), OK);
    assert_string_equal(url.where, "[::1]:6379");
    assert_string_equal(url.ca, "/b&c/x.pem");
    assert_string_equal(url.cert, "./y@z");
    assert_string_equal(url.key, "/a/k");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_host_port_and_database),
        cmocka_unit_test(reads_ipv6_in_brackets),
        cmocka_unit_test(reads_user_and_password),
        cmocka_unit_test(reads_sockets),
        cmocka_unit_test(refuses_what_it_does_not_understand),
        cmocka_unit_test(refuses_what_is_too_long),
        cmocka_unit_test(reads_what_tls_needs),
    };
    return cmocka_run_group_tests_name("once/redis_url", tests, NULL, NULL);
}
