/* id_test.c - offset ids as Java makes them, and unique ids. */
#include "msg/msg.h"
#include "msg/vector_test.h"

#include <arpa/inet.h>

/* Lines `id TAB address port offset TAB result` of facts.txt, computed by Java. */
static void formats_and_parses_as_java_does(void **state)
{
    (void)state;
    char *text = vector_text("facts.txt"), *save = NULL;
    size_t n = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char ip[64], wanted[80], got[ID_TEXT_MAX];
        unsigned port;
        int64_t position, parsed;
        if (sscanf(line, "id\t%63s %u %" SCNd64 "\t%79s", ip, &port, &position, wanted) != 4)
            continue;
        struct addr a = {.port = (uint16_t)port, .ip_len = 4}, back;
        if (inet_pton(AF_INET, ip, a.ip) != 1) {
            a.ip_len = 16;
            assert_int_equal(inet_pton(AF_INET6, ip, a.ip), 1);
        }
        assert_int_equal(id_format(&a, position, got), strlen(wanted));
        assert_string_equal(got, wanted);
        assert_int_equal(id_parse(bytes_str(got), &back, &parsed), OK);
        assert_int_equal(parsed, position);
        assert_memory_equal(back.ip, a.ip, 16);
        assert_int_equal(back.ip_len, a.ip_len);
        assert_int_equal(back.port, a.port);
        n++;
    }
    assert_true(n >= 7);
    free(text);
}

static const char *const golden[] = {
    "7F00000100002A9F0000000000001000",
    "FD00000000000000000000000000000100002A9F0000000000001000",
};

/* For who writes many of one host. */
static void puts_what_it_would_format(void **state)
{
    (void)state;
    for (int v6 = 0; v6 < 2; v6++) {
        struct addr host = {.ip = {10, 20, 255, 4, 9}, .ip_len = v6 ? 16 : 4, .port = 10911};
        struct id_host h;
        id_host_init(&h, &host);
        for (int64_t position = 0; position >= 0 && position < INT64_MAX / 37;
             position = position * 31 + 7) {
            char wanted[ID_TEXT_MAX];
            uint8_t got[ID_TEXT_MAX];
            size_t len = id_format(&host, position, wanted);
            assert_bytes_equal(bytes_of(got, (size_t)(id_put(got, &h, position) - got)),
                               bytes_of(wanted, len));
        }
    }
}

static void reads_both_cases(void **state)
{
    (void)state;
    struct addr a;
    int64_t position;
    assert_int_equal(id_parse(BYTES("7f00000100002a9F0000000000001000"), &a, &position), OK);
    assert_int_equal(position, 4096);
    assert_int_equal(a.port, 10911);
}

static void refuses_every_prefix(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        for (size_t cut = 0; cut < strlen(golden[i]); cut++) {
            if (i == 1 && cut == 32)
                continue; /* as long as an IPv4 id: judged by its digits, below */
            cleanup(free_at) uint8_t *exact = test_copy(golden[i], cut);
            struct addr a;
            int64_t position;
            assert_int_equal(id_parse(bytes_of(exact, cut), &a, &position), ERR_MALFORMED);
        }
    }
}

/* Whatever is still accepted is written back to the same digits, in upper case. */
static void survives_every_one_byte_change(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        size_t len = strlen(golden[i]);
        uint8_t *text = test_copy(golden[i], len);
        for (size_t at = 0; at < len; at++) {
            for (int change = 1; change < 256; change++) {
                text[at] = (uint8_t)((uint8_t)golden[i][at] ^ change);
                struct addr a;
                int64_t position;
                char again[ID_TEXT_MAX];
                if (id_parse(bytes_of(text, len), &a, &position) == OK) {
                    assert_int_equal(id_format(&a, position, again), len);
                    assert_int_equal(strncasecmp(again, (char *)text, len), 0);
                }
            }
            text[at] = (uint8_t)golden[i][at];
        }
        free(text);
    }
}

static void refuses_what_no_host_or_log_has(void **state)
{
    (void)state;
    struct addr a;
    int64_t position;
    assert_int_equal(id_parse(BYTES("7F000001000100000000000000001000"), &a, &position),
                     ERR_MALFORMED); /* port 65536 */
    assert_int_equal(id_parse(BYTES("7F00000100002A9F8000000000000000"), &a, &position),
                     ERR_MALFORMED); /* a position below zero */
    assert_int_equal(id_parse(BYTES("7F00000100002A9G0000000000001000"), &a, &position),
                     ERR_MALFORMED);
}

/* 2024-02-29 12:00:00 UTC is 28.5 days into its month. */
static void makes_unique_ids_of_known_parts(void **state)
{
    (void)state;
    struct id_maker m;
    struct addr v4 = {.ip = {10, 11, 12, 13}, .ip_len = 4};
    char id[ID_TEXT_MAX];
    id_maker_init(&m, &v4, 0x1234, 0xdeadbeef);
    assert_int_equal(id_make(&m, 1709208000000, id), 32);
    assert_string_equal(id, "0A0B0C0D1234DEADBEEF92C53E000000");
    assert_int_equal(id_make(&m, 1709208000000, id), 32);
    assert_string_equal(id + 28, "0001");

    struct addr v6 = {.ip = {[0] = 0xfd, [15] = 1}, .ip_len = 16};
    id_maker_init(&m, &v6, 1, 2);
    assert_int_equal(id_make(&m, 1709208000000, id), 56);
    assert_memory_equal(id, "FD000000000000000000000000000001000100000002", 44);
}

static uint32_t time_of(const char *id)
{
    char digits[9] = {0};
    memcpy(digits, id + 20, 8);
    return (uint32_t)strtoul(digits, NULL, 16);
}

/* Over the end of a month and of a year, and back. */
static void the_month_rolls_over(void **state)
{
    (void)state;
    struct id_maker m;
    struct addr v4 = {.ip_len = 4};
    char id[ID_TEXT_MAX];
    id_maker_init(&m, &v4, 1, 2);
    (void)id_make(&m, 1709251199999, id); /* 2024-02-29 23:59:59.999 */
    assert_int_equal(time_of(id), 29u * 86400000 - 1);
    (void)id_make(&m, 1709251200000, id);
    assert_int_equal(time_of(id), 0);
    (void)id_make(&m, 1735689600000 - 1, id); /* 2024-12-31 23:59:59.999 */
    assert_int_equal(time_of(id), 31u * 86400000 - 1);
    (void)id_make(&m, 1735689600000, id); /* 2025-01-01 */
    assert_int_equal(time_of(id), 0);
    (void)id_make(&m, 1709251199999, id);
    assert_int_equal(time_of(id), 29u * 86400000 - 1);
}

/* Clocks that no calendar has still give ids, one unlike the other. */
static void survives_any_clock(void **state)
{
    (void)state;
    const int64_t clocks[] = {INT64_MIN, -1, 0, 253402300799999, 253402300800000, INT64_MAX};
    struct id_maker m;
    struct addr v4 = {.ip_len = 4};
    id_maker_init(&m, &v4, 1, 2);
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        char id[ID_TEXT_MAX], again[ID_TEXT_MAX];
        assert_int_equal(id_make(&m, clocks[i], id), 32);
        assert_int_equal(id_make(&m, clocks[i], again), 32);
        assert_string_not_equal(id, again);
    }
}

static void ids_of_one_instant_differ(void **state)
{
    (void)state;
    struct id_maker m;
    struct addr v4 = {.ip_len = 4};
    char first[ID_TEXT_MAX], id[ID_TEXT_MAX];
    id_maker_init(&m, &v4, 1, 2);
    (void)id_make(&m, 1709208000000, first);
    for (int i = 1; i < 65536; i++) {
        (void)id_make(&m, 1709208000000, id);
        assert_string_not_equal(id, first);
    }
    (void)id_make(&m, 1709208000000, id);
    assert_string_equal(id, first); /* 65536 in a millisecond are all there are */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_and_parses_as_java_does),
        cmocka_unit_test(puts_what_it_would_format),
        cmocka_unit_test(reads_both_cases),
        cmocka_unit_test(refuses_every_prefix),
        cmocka_unit_test(survives_every_one_byte_change),
        cmocka_unit_test(refuses_what_no_host_or_log_has),
        cmocka_unit_test(makes_unique_ids_of_known_parts),
        cmocka_unit_test(the_month_rolls_over),
        cmocka_unit_test(survives_any_clock),
        cmocka_unit_test(ids_of_one_instant_differ),
    };
    return cmocka_run_group_tests_name("msg/id", tests, NULL, NULL);
}
