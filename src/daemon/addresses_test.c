/* From what a user writes to addresses. The resolver is replaced for names that begin with "test-",
 * so that nothing here depends on the machine. */
#include "base/test.h"
#include "daemon/addresses.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);
void __real_freeaddrinfo(struct addrinfo *list);
void __wrap_freeaddrinfo(struct addrinfo *list);

static struct sockaddr_in6 six;
static struct sockaddr_in four;
static struct addrinfo four_found = {.ai_family = AF_INET, .ai_addr = (struct sockaddr *)&four};
static struct addrinfo six_found = {.ai_family = AF_INET6, .ai_addr = (struct sockaddr *)&six};

/* test-both is ::1 and then 127.0.0.1, as localhost is on many machines; test-six is ::1 alone. */
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    if (strncmp(host, "test-", 5) != 0)
        return __real_getaddrinfo(host, service, hints, out);
    six.sin6_family = AF_INET6;
    six.sin6_addr = in6addr_loopback;
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    six_found.ai_next = strcmp(host, "test-both") == 0 ? &four_found : NULL;
    *out = &six_found;
    return strcmp(host, "test-none") == 0 ? EAI_NONAME : 0;
}

void __wrap_freeaddrinfo(struct addrinfo *list)
{
    if (list != &six_found)
        __real_freeaddrinfo(list);
}

static struct addr addr_of(const char *text)
{
    struct addr addr;
    assert_int_equal(addr_parse(bytes_str(text), &addr), OK);
    return addr;
}

static void assert_addr(const struct addr *addr, const char *wanted)
{
    char text[ADDR_TEXT_MAX];
    addr_format(addr, text);
    assert_string_equal(text, wanted);
}

static void takes_the_ipv4_address_of_a_name_that_has_both(void **state)
{
    (void)state;
    struct addr addr;
    assert_int_equal(address_of_host("test-both", 9876, &addr, NULL), OK);
    assert_addr(&addr, "127.0.0.1:9876");
    assert_int_equal(address_of_host("test-six", 9876, &addr, NULL), OK);
    assert_addr(&addr, "[::1]:9876");
}

static void refuses_a_host_that_is_none_with_its_name(void **state)
{
    (void)state;
    struct addr addr;
    struct fault why = {0};
    assert_int_equal(address_of_host("test-none", 1, &addr, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "\"test-none\""));
}

static void reads_lists_in_order_and_takes_each_once(void **state)
{
    (void)state;
    struct name_server list[ADDRESSES_MAX];
    size_t n = 0;
    assert_int_equal(addresses_of_list("", list, &n, NULL), OK);
    assert_int_equal(addresses_of_list(" ; ;; ", list, &n, NULL), OK);
    assert_int_equal(n, 0);

    list[n++] = (struct name_server){.addr = addr_of("10.0.0.1:9876")};
    const char *text = ";10.0.0.2:9876; [::1]:7;test-both:65535 10.0.0.1:9876;::1:7;10.0.0.2:9877;";
    assert_int_equal(addresses_of_list(text, list, &n, NULL), OK);
    static const char *const wanted[] = {"10.0.0.1:9876", "10.0.0.2:9876", "[::1]:7",
                                         "127.0.0.1:65535", "10.0.0.2:9877"};
    assert_int_equal(n, sizeof wanted / sizeof wanted[0]);
    for (size_t i = 0; i < n; i++)
        assert_addr(&list[i].addr, wanted[i]);
    assert_string_equal(list[3].host, "test-both");
    assert_string_equal(list[1].host, ""); /* an address, which leads nowhere else */
}

static void refuses_what_is_not_host_and_port(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "host",
        "host:",
        ":9876",
        "127.0.0.1:0",
        "127.0.0.1:-1",
        "1.2.3.4:1x",
        "127.0.0.1:65536",
        "127.0.0.1:99999999999",
        "127.0.0.1 : 1",
        "test-none:80",
        "10.0.0.1:1;nobody",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct name_server list[ADDRESSES_MAX];
        size_t n = 0;
        struct fault why = {0};
        assert_int_equal(addresses_of_list(bad[i], list, &n, &why), ERR_INVALID);
        assert_int_not_equal(why.text[0], 0);
    }
}

/* A host of 255 letters is asked for, one of 256 is not. */
static void bounds_the_length_of_a_host(void **state)
{
    (void)state;
    for (int len = 255; len <= 256; len++) {
        char text[300];
        (void)snprintf(text, sizeof text, "test-%0*d:80", len - 5, 0);
        struct name_server list[ADDRESSES_MAX];
        size_t n = 0;
        assert_int_equal(addresses_of_list(text, list, &n, NULL), len == 255 ? OK : ERR_INVALID);
    }
}

static void await(struct lookup *lookup)
{
    for (int i = 0; !lookup_done(lookup) && i < 10000; i++)
        (void)usleep(1000);
    assert_true(lookup_done(lookup));
}

static void looks_names_up_in_the_background(void **state)
{
    (void)state;
    struct addr addr;
    struct lookup *lookup = lookup_start("test-both", 9876);
    assert_non_null(lookup);
    await(lookup);
    assert_int_equal(lookup_result(lookup, &addr), OK);
    assert_addr(&addr, "127.0.0.1:9876");
    lookup_close(lookup);

    lookup = lookup_start("test-none", 9876);
    assert_non_null(lookup);
    await(lookup);
    assert_int_equal(lookup_result(lookup, &addr), ERR_NOT_FOUND);
    lookup_close(lookup);
    lookup_close(NULL);
}

static void refuses_more_name_servers_than_there_is_room_for(void **state)
{
    (void)state;
    char text[1024] = "";
    struct name_server list[ADDRESSES_MAX];
    for (int i = 1; i <= ADDRESSES_MAX; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "10.0.0.%d:1;", i);
    size_t n = 0;
    assert_int_equal(addresses_of_list(text, list, &n, NULL), OK);
    assert_int_equal(n, ADDRESSES_MAX);
    assert_int_equal(addresses_of_list(text, list, &n, NULL), OK); /* known ones take no room */
    assert_int_equal(addresses_of_list("10.1.0.0:1", list, &n, NULL), ERR_TOO_BIG);
    assert_int_equal(n, ADDRESSES_MAX);
}

static void tells_clients_an_address_they_can_reach(void **state)
{
    (void)state;
    struct addr bound = addr_of("127.0.0.1:10911"), told;
    assert_int_equal(address_to_advertise("", &bound, &told, NULL), OK);
    assert_addr(&told, "127.0.0.1:10911");
    assert_int_equal(address_to_advertise("10.1.2.3", &bound, &told, NULL), OK);
    assert_addr(&told, "10.1.2.3:10911");

    bound = addr_of("0.0.0.0:10911");
    assert_int_equal(address_to_advertise("", &bound, &told, NULL), OK);
    assert_int_equal(told.port, 10911);
    assert_true(told.ip[0] || told.ip[15]); /* whatever this machine has, it is no wildcard */

    struct addr before = told;
    struct fault why = {0};
    assert_int_equal(address_to_advertise("0.0.0.0", &bound, &told, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "wildcard"));
    assert_int_equal(address_to_advertise("::", &bound, &told, NULL), ERR_INVALID);
    assert_int_equal(address_to_advertise("test-none", &bound, &told, NULL), ERR_INVALID);
    assert_memory_equal(&told, &before, sizeof told);
}

static void reaches_itself_by_loopback_when_bound_to_all(void **state)
{
    (void)state;
    static const struct {
        const char *bound, *wanted;
    } cases[] = {
        {"0.0.0.0:9876", "127.0.0.1:9876"},
        {"[::]:9876", "[::1]:9876"},
        {"10.0.0.5:1", "10.0.0.5:1"},
        {"[2001:db8::1]:2", "[2001:db8::1]:2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct addr bound = addr_of(cases[i].bound), reach = address_to_reach(&bound);
        assert_addr(&reach, cases[i].wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_ipv4_address_of_a_name_that_has_both),
        cmocka_unit_test(refuses_a_host_that_is_none_with_its_name),
        cmocka_unit_test(reads_lists_in_order_and_takes_each_once),
        cmocka_unit_test(refuses_what_is_not_host_and_port),
        cmocka_unit_test(bounds_the_length_of_a_host),
        cmocka_unit_test(looks_names_up_in_the_background),
        cmocka_unit_test(refuses_more_name_servers_than_there_is_room_for),
        cmocka_unit_test(tells_clients_an_address_they_can_reach),
        cmocka_unit_test(reaches_itself_by_loopback_when_bound_to_all),
    };
    return cmocka_run_group_tests_name("addresses", tests, NULL, NULL);
}
