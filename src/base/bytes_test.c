/* Slices, the two cursors, and the growing buffer. */
#include "base/buf.h"
#include "base/test.h"

#include <stdio.h>

static void a_cursor_that_failed_stays_failed(void **state)
{
    (void)state;
    static const uint8_t in[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    struct rd r = rd_over(bytes_of(in, sizeof in));
    assert_int_equal(rd_u8(&r), 1);
    assert_int_equal(rd_u16(&r), 0x0203);
    assert_int_equal(rd_u32(&r), 0x04050607);
    assert_true(rd_u64(&r) == 0x08090a0b0c0d0e0f);
    assert_false(r.bad);
    assert_int_equal(rd_u16(&r), 0); /* one byte is left */
    assert_true(r.bad);
    assert_int_equal(rd_u8(&r), 0); /* which now nobody gets */
    assert_null(rd_take(&r, 0).at);
}

/* A length that a stranger claims is compared, never added to a pointer. */
static void a_claimed_length_cannot_overflow(void **state)
{
    (void)state;
    cleanup(free_at) uint8_t *in = test_copy("abcd", 4);
    struct rd r = rd_over(bytes_of(in, 4));
    assert_null(rd_take(&r, SIZE_MAX).at);
    assert_true(r.bad);

    struct rd none = rd_over((struct bytes){NULL, 7});
    assert_int_equal(rd_left(&none), 0);
    assert_int_equal(rd_u8(&none), 0);
    assert_true(none.bad);
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    uint8_t out[20];
    struct wr w = wr_over(out, sizeof out);
    wr_u8(&w, 0xfe);
    wr_u16(&w, 0xfedc);
    wr_u32(&w, 0xfedcba98);
    wr_u64(&w, 0xfedcba9876543210);
    wr_bytes_of(&w, BYTES("hello"));
    assert_false(w.full);
    assert_int_equal(wr_room(&w), 0);

    struct rd r = rd_over(wr_bytes(&w));
    assert_int_equal(rd_u8(&r), 0xfe);
    assert_int_equal(rd_u16(&r), 0xfedc);
    assert_int_equal(rd_u32(&r), 0xfedcba98);
    assert_true(rd_u64(&r) == 0xfedcba9876543210);
    assert_bytes_equal(rd_take(&r, 5), BYTES("hello"));
    assert_false(r.bad);
}

/* Into every size that is too small: it says so and leaves the rest alone. */
static void the_writer_never_leaves_its_buffer(void **state)
{
    (void)state;
    for (size_t size = 0; size < 15; size++) {
        cleanup(free_at) uint8_t *exact = test_copy("................", size);
        struct wr w = wr_over(exact, size);
        wr_u32(&w, 1);
        wr_i64(&w, -1234567);
        wr_bytes_of(&w, BYTES("abc"));
        wr_bytes_of(&w, (struct bytes){0});
        assert_int_equal(w.full, true);
        assert_true(wr_len(&w) <= size);
    }
}

static void compares_as_memory_does(void **state)
{
    (void)state;
    assert_true(bytes_equal(BYTES(""), (struct bytes){0}));
    assert_false(bytes_equal(BYTES("a"), BYTES("ab")));
    assert_true(bytes_start(BYTES("abc"), BYTES("ab")));
    assert_true(bytes_start(BYTES("abc"), (struct bytes){0}));
    assert_false(bytes_start(BYTES("a"), BYTES("ab")));
    assert_true(bytes_compare(BYTES("a"), BYTES("ab")) < 0);
    assert_true(bytes_compare(BYTES("b"), BYTES("ab")) > 0);
    assert_true(bytes_compare(BYTES("\xff"), BYTES("a")) > 0);
    assert_int_equal(bytes_compare((struct bytes){0}, BYTES("")), 0);
    assert_int_equal(bytes_str(NULL).len, 0);
}

static void decimal_text_goes_both_ways(void **state)
{
    (void)state;
    static const int64_t numbers[] = {0,         1,
                                      -1,        9,
                                      10,        -9,
                                      -10,       INT32_MAX,
                                      INT32_MIN, 999999999999999999,
                                      INT64_MAX, -1000000000000000000,
                                      INT64_MIN};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char wanted[32];
        uint8_t out[32];
        snprintf(wanted, sizeof wanted, "%" PRId64, numbers[i]);
        struct wr w = wr_over(out, sizeof out);
        wr_i64(&w, numbers[i]);
        assert_bytes_equal(wr_bytes(&w), bytes_str(wanted));
        int64_t back = 5;
        assert_true(bytes_to_i64(wr_bytes(&w), &back));
        assert_true(back == numbers[i]);
    }
}

/* Every length, at both of its ends and somewhere between. */
static void numbers_of_every_length_are_written(void **state)
{
    (void)state;
    struct dice d = test_dice();
    uint64_t least = 1;
    for (int len = 1; len <= 18; len++, least *= 10) {
        for (int i = 0; i < 1000; i++) {
            uint64_t n = i == 0   ? least
                         : i == 1 ? least * 10 - 1
                                  : least + dice_below(&d, least * 9);
            char wanted[32];
            uint8_t out[32];
            struct wr w = wr_over(out, sizeof out);
            int64_t number = i % 2 ? (int64_t)n : -(int64_t)n;
            snprintf(wanted, sizeof wanted, "%" PRId64, number);
            wr_i64(&w, number);
            assert_bytes_equal(wr_bytes(&w), bytes_str(wanted));
        }
    }
}

static void only_true_is_true(void **state)
{
    (void)state;
    assert_true(bytes_true(BYTES("true")));
    assert_true(bytes_true(BYTES("TrUE")));
    char text[] = "true";
    for (size_t at = 0; at < 4; at++) {
        for (int c = 0; c < 256; c++) {
            text[at] = (char)c;
            assert_int_equal(bytes_true(bytes_of(text, 4)), strncasecmp(text, "true", 4) == 0);
        }
        text[at] = "true"[at];
    }
    assert_false(bytes_true(BYTES("tru")));
    assert_false(bytes_true(BYTES("true ")));
    assert_false(bytes_true((struct bytes){0}));
}

static void refuses_what_is_no_decimal(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "-",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1a",
                                      "0x1",
                                      "--1",
                                      "1.0",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999",
                                      "18446744073709551616"};
    int64_t wide = 5;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(bytes_to_i64(bytes_str(bad[i]), &wide));
    assert_int_equal(wide, 5);

    int32_t narrow = 5;
    assert_true(bytes_to_i32(BYTES("-2147483648"), &narrow));
    assert_int_equal(narrow, INT32_MIN);
    assert_false(bytes_to_i32(BYTES("2147483648"), &narrow));
    assert_false(bytes_to_i32(BYTES("-2147483649"), &narrow));
    assert_int_equal(narrow, INT32_MIN);
}

static void a_buffer_grows_to_its_ceiling_and_no_further(void **state)
{
    (void)state;
    cleanup(buf_clear) struct buf b = buf_upto(1000);
    for (int i = 0; i < 100; i++)
        buf_add_str(&b, "0123456789");
    assert_int_equal(b.err, OK);
    assert_int_equal(b.len, 1000);
    buf_add_u8(&b, 'x');
    assert_int_equal(b.err, ERR_TOO_BIG);
    assert_int_equal(b.len, 1000);
    assert_null(buf_space(&b, 0)); /* and stays failed */

    buf_clear(&b);
    buf_add_u32(&b, 0x01020304);
    buf_add_u64(&b, 5);
    buf_printf(&b, "%s-%d", "text", 42);
    buf_add(&b, (struct bytes){0});
    assert_int_equal(b.err, OK);
    assert_bytes_equal(buf_bytes(&b), BYTES("\1\2\3\4\0\0\0\0\0\0\0\5text-42"));
    assert_null(buf_space(&b, SIZE_MAX));
    assert_int_equal(b.err, ERR_TOO_BIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cursor_that_failed_stays_failed),
        cmocka_unit_test(a_claimed_length_cannot_overflow),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(the_writer_never_leaves_its_buffer),
        cmocka_unit_test(compares_as_memory_does),
        cmocka_unit_test(decimal_text_goes_both_ways),
        cmocka_unit_test(numbers_of_every_length_are_written),
        cmocka_unit_test(only_true_is_true),
        cmocka_unit_test(refuses_what_is_no_decimal),
        cmocka_unit_test(a_buffer_grows_to_its_ceiling_and_no_further),
    };
    return cmocka_run_group_tests_name("bytes", tests, NULL, NULL);
}
