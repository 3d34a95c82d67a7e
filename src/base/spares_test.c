/* Spare blocks: used again, for what needs their size, and never more of them than the limit. */
#include "base/spares.h"
#include "base/test.h"

#include <string.h>

#define MAX 4096u

static void what_was_given_back_is_taken_again(void **state)
{
    (void)state;
    struct spares s;
    spares_init(&s, MAX);
    void *a = spares_take(&s, 100), *b = spares_take(&s, 100);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    assert_int_equal((uintptr_t)a % _Alignof(max_align_t), 0);
    memset(a, 1, 100);
    memset(b, 2, 100);
    spares_give(&s, a);
    assert_ptr_equal(spares_take(&s, 90), a);
    assert_int_equal(((uint8_t *)b)[99], 2);
    assert_int_equal(s.bytes, 0);
    spares_give(&s, a);
    spares_give(&s, b);
    spares_give(&s, NULL);
    spares_clear(&s);
    assert_int_equal(s.bytes, 0);
}

/* A pull that waits for a minute must not keep what was made for something large. */
static void a_block_serves_only_what_needs_its_size(void **state)
{
    (void)state;
    struct spares s;
    spares_init(&s, MAX);
    uint8_t *big = spares_take(&s, 1000);
    assert_non_null(big);
    memset(big, 7, 1000);
    spares_give(&s, big);
    size_t kept = s.bytes;
    void *small = spares_take(&s, 10);
    assert_ptr_not_equal(small, big);
    assert_int_equal(s.bytes, kept);
    assert_ptr_equal(spares_take(&s, 999), big);
    assert_int_equal(s.bytes, 0);
    spares_give(&s, big);
    spares_give(&s, small);
    assert_ptr_equal(spares_take(&s, 1), small);
    spares_give(&s, small);
    spares_clear(&s);
}

static void no_more_is_kept_than_the_limit(void **state)
{
    (void)state;
    struct spares s;
    void *blocks[64];
    spares_init(&s, MAX);
    for (size_t i = 0; i < 64; i++)
        assert_non_null(blocks[i] = spares_take(&s, 200));
    for (size_t i = 0; i < 64; i++) {
        spares_give(&s, blocks[i]);
        assert_true(s.bytes <= MAX);
    }
    assert_true(s.bytes > MAX / 2);
    spares_clear(&s);
    s.bytes_max = SIZE_MAX;
    uint8_t *huge = spares_take(&s, 1u << 20); /* as large as nobody asks for twice */
    assert_non_null(huge);
    huge[(1u << 20) - 1] = 1;
    spares_give(&s, huge);
    assert_int_equal(s.bytes, 0);
    assert_null(spares_take(&s, SIZE_MAX));
    spares_clear(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_given_back_is_taken_again),
        cmocka_unit_test(a_block_serves_only_what_needs_its_size),
        cmocka_unit_test(no_more_is_kept_than_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
