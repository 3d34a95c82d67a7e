/* where_test.c - URLs of the store, and lists of brokers. */
#include "ledger_driver/ledger_driver.h"

#include "base/test.h"

#include <stdio.h>

static void urls_name_servers_and_a_broker(void **state)
{
    (void)state;
    static const struct {
        const char *url, *names, *name;
    } good[] = {
        {"broker:", "", ""},
        {"broker:broker-a", "", "broker-a"},
        {"broker://10.0.0.1:9876", "10.0.0.1:9876", ""},
        {"broker://10.0.0.1:9876/", "10.0.0.1:9876", ""},
        {"broker://a:1;b:2/broker-b", "a:1;b:2", "broker-b"},
        {"broker://[::1]:9876/x", "[::1]:9876", "x"},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct where w;
        assert_int_equal(where_parse(good[i].url, &w, NULL), OK);
        assert_string_equal(w.names, good[i].names);
        assert_string_equal(w.name, good[i].name);
    }
}

static void other_urls_are_refused_with_the_form(void **state)
{
    (void)state;
    char long_one[2000] = "broker:";
    memset(long_one + 7, 'x', 300);
    char many[2000] = "broker://";
    memset(many + 9, 'y', WHERE_NAMES_MAX);
    const char *const bad[] = {"brokers:",
                               "redis://h",
                               "broker://",
                               "broker:///name",
                               "broker:/name",
                               "broker:a/b",
                               "broker:a b",
                               "broker://h:1/a/b",
                               "broker://u@h:1",
                               "broker:name?tls=1",
                               "broker:\xc3\xa9",
                               long_one,
                               many};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct where w;
        struct fault why = {0};
        assert_int_equal(where_parse(bad[i], &w, &why), ERR_INVALID);
        assert_non_null(strstr(why.text, "broker://host:port"));
    }
}

#define ONE                                                                                        \
    "\"a\":{\"brokerAddrs\":{0:\"10.0.0.1:10911\",1:\"10.0.0.2:10911\"},\"brokerName\":\"a\"}"
#define TWO              "\"b\":{\"brokerAddrs\":{\"0\":\"10.0.0.3:10911\"}}"
#define SLAVE            "\"c\":{\"brokerAddrs\":{\"1\":\"10.0.0.4:10911\"}}"
#define CLUSTER(brokers) BYTES("{\"brokerAddrTable\":{" brokers "},\"clusterAddrTable\":{}}")

static void the_only_master_is_found_and_any_by_its_name(void **state)
{
    (void)state;
    struct spot spot;
    assert_int_equal(where_find(CLUSTER(ONE), "", &spot, NULL), OK);
    assert_string_equal(spot.name, "a");
    assert_string_equal(spot.address, "10.0.0.1:10911");
    assert_int_equal(where_find(CLUSTER(SLAVE "," ONE), "", &spot, NULL), OK);
    assert_string_equal(spot.name, "a");
    assert_int_equal(where_find(CLUSTER(ONE "," TWO), "b", &spot, NULL), OK);
    assert_string_equal(spot.address, "10.0.0.3:10911");
}

static void several_masters_are_refused_with_their_names(void **state)
{
    (void)state;
    struct spot spot;
    struct fault why = {0};
    assert_int_equal(where_find(CLUSTER(ONE "," TWO), "", &spot, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "2 brokers (a, b)"));
    assert_non_null(strstr(why.text, "broker:NAME"));
}

static void who_is_not_there_may_come_yet(void **state)
{
    (void)state;
    struct spot spot;
    struct fault why = {0};
    assert_int_equal(where_find(CLUSTER(""), "", &spot, &why), ERR_IO);
    assert_int_equal(where_find(BYTES("{}"), "", &spot, &why), ERR_IO);
    assert_int_equal(where_find(CLUSTER(ONE), "z", &spot, &why), ERR_IO);
    assert_non_null(strstr(why.text, "broker z"));
    assert_int_equal(where_find(CLUSTER(SLAVE), "c", &spot, &why), ERR_IO);
}

/* Many brokers, long names: the sentence has what fits of them. */
static void names_that_are_too_many_or_too_long_do_no_harm(void **state)
{
    (void)state;
    static char text[40000] = "{\"brokerAddrTable\":{";
    struct spot spot;
    struct fault why = {0};
    size_t at = strlen(text);
    for (int i = 0; i < 100; i++)
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "%s\"%0*d\":{\"brokerAddrs\":{0:\"h:1\"}}", i ? "," : "", i + 1, i);
    (void)snprintf(text + at, sizeof text - at, "}}");
    assert_int_equal(where_find(bytes_str(text), "", &spot, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "100 brokers (0, 01, 002"));
    assert_non_null(strstr(why.text, " ...)"));
    at = (size_t)snprintf(text, sizeof text, "{\"brokerAddrTable\":{\"a\":{\"brokerAddrs\":{0:\"");
    memset(text + at, 'h', 1000);
    (void)snprintf(text + at + 1000, 100, "\"}}}}");
    assert_int_equal(where_find(bytes_str(text), "", &spot, &why), ERR_MALFORMED);
    assert_int_equal(where_find(BYTES("{\"brokerAddrTable\":"), "", &spot, &why), ERR_MALFORMED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_name_servers_and_a_broker),
        cmocka_unit_test(other_urls_are_refused_with_the_form),
        cmocka_unit_test(the_only_master_is_found_and_any_by_its_name),
        cmocka_unit_test(several_masters_are_refused_with_their_names),
        cmocka_unit_test(who_is_not_there_may_come_yet),
        cmocka_unit_test(names_that_are_too_many_or_too_long_do_no_harm),
    };
    return cmocka_run_group_tests_name("ledger_driver/where", tests, NULL, NULL);
}
