/* pile_test.c - what is put on comes off sorted, in memory and beyond. */
#include "cli/pile.h"

#include "base/bytes.h"
#include "base/test.h"

#define THING 12

static void sorts(size_t n, size_t memory)
{
    struct dice dice = test_dice();
    struct pile *pile;
    uint64_t sum = 0, taken_sum = 0, before = 0;
    assert_int_equal(pile_open(THING, memory, &pile), OK);
    for (size_t i = 0; i < n; i++) {
        uint8_t thing[THING] = {0};
        uint64_t value = dice_below(&dice, n); /* many of them twice */
        store_u64(thing, value);
        store_u32(thing + 8, (uint32_t)i);
        sum += value * 31 + i;
        assert_int_equal(pile_add(pile, thing, NULL), OK);
    }
    assert_int_equal(pile_count(pile), n);
    assert_int_equal(pile_sort(pile, NULL), OK);
    const uint8_t *thing;
    size_t taken = 0;
    for (;; taken++) {
        assert_int_equal(pile_next(pile, (const void **)&thing, NULL), OK);
        if (!thing)
            break;
        uint64_t value = load_u64(thing);
        assert_true(value >= before);
        before = value;
        taken_sum += value * 31 + load_u32(thing + 8);
    }
    assert_int_equal(taken, n);
    assert_int_equal(taken_sum, sum);
    assert_int_equal(pile_next(pile, (const void **)&thing, NULL), OK);
    assert_null(thing);
    pile_close(pile);
}

static void sorts_in_memory(void **state)
{
    (void)state;
    sorts(0, 4096);
    sorts(1, 4096);
    sorts(300, 1 << 20);
}

static void sorts_beyond_memory(void **state)
{
    (void)state;
    sorts(341, 4096);   /* exactly as many as there is room for … */
    sorts(342, 4096);   /* … and one more */
    sorts(20000, 4096); /* sixty runs */
    sorts(20000, 100000);
}

static void a_folder_that_is_not_there_is_said(void **state)
{
    (void)state;
    struct pile *pile;
    struct fault why = {0};
    enum err err = OK;
    assert_int_equal(setenv("TMPDIR", "/nowhere/at/all", 1), 0);
    assert_int_equal(pile_open(THING, 0, &pile), OK);
    for (int i = 0; !err && i < 100; i++)
        err = pile_add(pile, (uint8_t[THING]){0}, &why);
    assert_int_equal(err, ERR_NOT_FOUND);
    assert_non_null(strstr(why.text, "/nowhere/at/all"));
    pile_close(pile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sorts_in_memory),
        cmocka_unit_test(sorts_beyond_memory),
        cmocka_unit_test(a_folder_that_is_not_there_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
