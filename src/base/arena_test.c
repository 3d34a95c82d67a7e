/* Request memory: aligned, zeroed, bounded, and kept for the next request. */
#include "base/arena.h"
#include "base/test.h"

/* Sizes below and above a block; every byte is written, so overlap and overrun would be seen. */
static void gives_zeroed_aligned_memory_of_its_own(void **state)
{
    (void)state;
    struct dice d = test_dice();
    struct arena a;
    arena_init(&a, 64 << 20);
    enum { N = 500 };
    uint8_t *at[N];
    size_t size[N];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            size[i] = dice_below(&d, dice_below(&d, 20) ? 300 : 40000);
            at[i] = arena_alloc(&a, size[i]);
            assert_non_null(at[i]);
            assert_int_equal((uintptr_t)at[i] % 16, 0);
            for (size_t j = 0; j < size[i]; j++)
                assert_int_equal(at[i][j], 0);
            memset(at[i], i % 255 + 1, size[i]);
        }
        for (int i = 0; i < N; i++)
            for (size_t j = 0; j < size[i]; j++)
                assert_int_equal(at[i][j], i % 255 + 1);
        arena_reset(&a);
        assert_int_equal(a.used, 0);
    }
    arena_clear(&a);
}

/* What is given back is given out again, up to what was kept of it. */
static void takes_back_what_was_not_needed(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    for (size_t size = 0; size < 100; size++) {
        for (size_t kept = 0; kept <= size; kept++) {
            uint8_t *first = arena_space(&a, size);
            assert_non_null(first);
            memset(first, 1, size);
            arena_trim(&a, first + kept);
            uint8_t *next = arena_alloc(&a, 40);
            assert_int_equal((uintptr_t)next % 16, 0);
            assert_true(next >= first + kept && next < first + kept + 32);
            for (size_t j = 0; j < 40; j++)
                assert_int_equal(next[j], 0);
            arena_reset(&a);
            assert_int_equal(a.used, 0);
        }
    }
    assert_null(arena_space(&a, (1 << 20) + 1));
    assert_null(arena_space(&a, SIZE_MAX));
    assert_null(arena_space(&a, SIZE_MAX - 15));
    arena_clear(&a);
}

/* After the first request, requests of that size find all they need in the block that was kept. */
static void keeps_what_the_last_request_needed(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    arena_reset(&a); /* of nothing */
    struct arena_block *kept = NULL;
    for (int request = 0; request < 4; request++) {
        for (int i = 0; i < 10; i++)
            assert_non_null(arena_alloc(&a, 10000));
        if (request > 0)
            assert_ptr_equal(a.first, a.current);
        if (request > 1)
            assert_ptr_equal(a.first, kept);
        kept = a.first;
        arena_reset(&a);
    }
    arena_clear(&a);
}

/* What was given back counts as needed: the next request will ask for as much before it knows how
 * little it keeps. */
static void keeps_room_for_what_is_given_back(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    struct arena_block *kept = NULL;
    for (int request = 0; request < 4; request++) {
        assert_non_null(arena_alloc(&a, 64));
        if (request > 0) {
            uint8_t *most = arena_space(&a, 20000);
            assert_non_null(most);
            arena_trim(&a, most);
        }
        if (request > 1)
            assert_ptr_equal(a.first, a.current);
        if (request > 2)
            assert_ptr_equal(a.first, kept);
        kept = a.first;
        arena_reset(&a);
        assert_int_equal(a.used, 0);
    }
    arena_clear(&a);
}

/* Nothing is not the same as no memory: an empty text must have an address. */
static void nothing_has_an_address(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1000);
    assert_non_null(arena_alloc(&a, 0));
    assert_non_null(arena_copy(&a, BYTES("")).at);
    arena_clear(&a);
}

static void stops_at_its_ceiling(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1000);
    assert_null(arena_alloc(&a, 1001));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 8));
    size_t n = 0;
    while (arena_alloc(&a, 16))
        n++;
    assert_int_equal(n, 62);
    assert_null(arena_copy(&a, BYTES("seventeen bytes .")).at);
    arena_reset(&a);
    assert_bytes_equal(arena_copy(&a, BYTES("text")), BYTES("text"));
    assert_int_equal(arena_copy(&a, (struct bytes){0}).len, 0);
    arena_clear(&a);

    arena_init(&a, SIZE_MAX); /* no ceiling: a silly size must not wrap around */
    assert_null(arena_alloc(&a, SIZE_MAX));
    arena_clear(&a);
}

/* Small work stays in the caller's memory; what does not fit goes to blocks, and the ceiling counts
 * both. */
static void begins_in_memory_of_the_caller(void **state)
{
    (void)state;
    struct arena a;
    _Alignas(16) uint8_t room[64];
    memset(room, 0xaa, sizeof room);
    for (int round = 0; round < 2; round++) {
        arena_init_in(&a, 1000, room, sizeof room);
        assert_ptr_equal(arena_alloc(&a, 40), room);
        assert_int_equal(room[39], 0);
        assert_null(a.first);
        uint8_t *more = arena_alloc(&a, 40);
        assert_non_null(more);
        assert_true(more < room || more >= room + sizeof room);
        assert_null(arena_alloc(&a, 1000 - 96 + 1));
        assert_non_null(arena_alloc(&a, 1000 - 96 - 8));
        arena_clear(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_zeroed_aligned_memory_of_its_own),
        cmocka_unit_test(takes_back_what_was_not_needed),
        cmocka_unit_test(keeps_what_the_last_request_needed),
        cmocka_unit_test(keeps_room_for_what_is_given_back),
        cmocka_unit_test(nothing_has_an_address),
        cmocka_unit_test(stops_at_its_ceiling),
        cmocka_unit_test(begins_in_memory_of_the_caller),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
