/* Memory that grows in place. */
#include "base/reserve.h"

#include "base/test.h"

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define MOST  (UINT64_C(256) << 20)
#define USED  (UINT64_C(64) << 20)
#define SLACK (UINT64_C(8) << 20) /* what else may come and go meanwhile */

static uint64_t resident(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    assert_non_null(f);
    unsigned long long all, pages;
    assert_int_equal(fscanf(f, "%llu %llu", &all, &pages), 2);
    (void)fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Only what was touched takes memory, and what was given back no longer does. */
static void takes_memory_for_what_is_used(void **state)
{
    (void)state;
    uint64_t before = resident();
    uint8_t *at = reserve_open(MOST);
    assert_non_null(at);
    assert_true(resident() < before + SLACK);
    memset(at, 1, USED);
    assert_true(resident() > before + USED - SLACK);
    reserve_trim(at, 0, USED);
    assert_true(resident() < before + SLACK);
    reserve_close(at, MOST);
}

/* Pages that are only partly given back keep what they have. */
static void gives_back_whole_pages_only(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *at = reserve_open(8 * page);
    assert_non_null(at);
    memset(at, 7, 4 * page);
    reserve_trim(at, page / 2, 3 * page + 1);
    assert_int_equal(at[0], 7);
    assert_int_equal(at[page - 1], 7);
    assert_int_equal(at[page], 0);
    assert_int_equal(at[3 * page - 1], 0);
    assert_int_equal(at[3 * page], 7);
    at[page] = 9;
    reserve_trim(at, page + 1, 2 * page - 1);
    assert_int_equal(at[page], 9);
    reserve_close(at, 8 * page);
}

/* Whether the kernel did it or not, nothing else changes. */
static void firm_memory_keeps_what_it_has(void **state)
{
    (void)state;
    uint8_t *at = reserve_open(2 * RESERVE_UNIT + 1);
    assert_non_null(at);
    assert_int_equal((uintptr_t)at % RESERVE_UNIT, 0);
    memset(at, 3, 2 * RESERVE_UNIT);
    uint64_t before = resident();
    reserve_firm(at, 0, 2 * RESERVE_UNIT);
    assert_true(resident() < before + SLACK);
    for (size_t i = 0; i < 2 * RESERVE_UNIT; i += 1000)
        assert_int_equal(at[i], 3);
    at[2 * RESERVE_UNIT] = 1;
    reserve_trim(at, RESERVE_UNIT, 2 * RESERVE_UNIT);
    assert_int_equal(at[RESERVE_UNIT - 1], 3);
    assert_int_equal(at[RESERVE_UNIT], 0);
    assert_int_equal(at[2 * RESERVE_UNIT], 1);
    reserve_close(at, 2 * RESERVE_UNIT + 1);
}

static void no_space_is_an_answer(void **state)
{
    (void)state;
    assert_null(reserve_open(SIZE_MAX / 2));
    assert_null(reserve_open(SIZE_MAX));
    reserve_close(NULL, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_memory_for_what_is_used),
        cmocka_unit_test(gives_back_whole_pages_only),
        cmocka_unit_test(firm_memory_keeps_what_it_has),
        cmocka_unit_test(no_space_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
