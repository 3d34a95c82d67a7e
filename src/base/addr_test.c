/* Addresses from text and from sockets, and back. */
#include "base/addr.h"
#include "base/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>

static void goes_from_text_and_back(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted, *ip;
        uint8_t ip_len;
    } cases[] = {
        {"127.0.0.1:10911", "127.0.0.1:10911", "127.0.0.1", 4},
        {"255.255.255.255:65535", "255.255.255.255:65535", "255.255.255.255", 4},
        {"0.0.0.0:0", "0.0.0.0:0", "0.0.0.0", 4},
        {"[::1]:5", "[::1]:5", "::1", 16},
        {"[2001:db8:0:0:0:0:0:1]:80", "[2001:db8::1]:80", "2001:db8::1", 16},
        {"[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
         "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
         "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 16},
        {"[::ffff:10.0.0.1]:7", "10.0.0.1:7", "10.0.0.1", 4}, /* mapped: counts as IPv4 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct addr a;
        char text[ADDR_TEXT_MAX];
        assert_int_equal(addr_parse(bytes_str(cases[i].text), &a), OK);
        assert_int_equal(a.ip_len, cases[i].ip_len);
        addr_format(&a, text);
        assert_string_equal(text, cases[i].wanted);
        addr_format_ip(&a, text);
        assert_string_equal(text, cases[i].ip);
    }
}

static void refuses_what_is_no_address(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        ":",
        "1.2.3.4",
        "1.2.3.4:",
        "1.2.3.4:x",
        "1.2.3.4:65536",
        "1.2.3.4:-1",
        ":5",
        "1.2.3:5",
        "::1:5",
        "[::1]",
        "[::1]5",
        "[::1:5",
        "[]:5",
        "[1.2.3.4]:5",
        "host:5",
        "1.2.3.4 :5",
        "[::1]:",
        "256.1.1.1:5",
        "1.2.3.4:5 ",
        "[fe80::1%eth0]:5",
        "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct addr a = {.port = 9};
        cleanup(free_at) uint8_t *exact = test_copy(bad[i], strlen(bad[i]));
        assert_int_equal(addr_parse(bytes_of(exact, strlen(bad[i])), &a), ERR_MALFORMED);
        assert_int_equal(a.port, 9);
    }
}

static void reads_socket_addresses(void **state)
{
    (void)state;
    char text[ADDR_TEXT_MAX];
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(10911)};
    assert_int_equal(inet_pton(AF_INET, "192.168.1.2", &four.sin_addr), 1);
    struct addr a = addr_from_sockaddr((struct sockaddr *)&four);
    addr_format(&a, text);
    assert_string_equal(text, "192.168.1.2:10911");

    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(1)};
    assert_int_equal(inet_pton(AF_INET6, "::ffff:192.168.1.2", &six.sin6_addr), 1);
    a = addr_from_sockaddr((struct sockaddr *)&six);
    addr_format(&a, text);
    assert_string_equal(text, "192.168.1.2:1");

    a = addr_from_sockaddr(&(struct sockaddr){.sa_family = AF_UNIX});
    assert_int_equal(a.ip_len, 0);
    addr_format(&a, text);
    assert_string_equal(text, "-:0");
}

static void goes_to_the_kernel_and_back(void **state)
{
    (void)state;
    for (const char *const *at = (const char *const[]){"10.1.2.3:4567", "[2001:db8::7]:80", NULL};
         *at; at++) {
        struct addr a, back;
        struct sockaddr_storage sa;
        char text[ADDR_TEXT_MAX];
        assert_int_equal(addr_parse(bytes_str(*at), &a), OK);
        unsigned size = addr_to_sockaddr(&a, &sa);
        assert_int_equal(size,
                         a.ip_len == 4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        back = addr_from_sockaddr((struct sockaddr *)&sa);
        addr_format(&back, text);
        assert_string_equal(text, *at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_from_text_and_back),
        cmocka_unit_test(refuses_what_is_no_address),
        cmocka_unit_test(reads_socket_addresses),
        cmocka_unit_test(goes_to_the_kernel_and_back),
    };
    return cmocka_run_group_tests_name("addr", tests, NULL, NULL);
}
