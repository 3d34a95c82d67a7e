/* The hash map against the simplest thing that could be right: an array with one place for each
 * key. */
#include "base/map.h"
#include "base/test.h"

#include <stdio.h>

#define KEYS  200
#define STEPS 50000

static char names[KEYS][16];
static struct bytes keys[KEYS];

static int make_keys(void **state)
{
    (void)state;
    for (int i = 0; i < KEYS; i++) {
        int len = snprintf(names[i], sizeof names[i], "%%RETRY%%g%d", i);
        keys[i] = bytes_of(names[i], i == 0 ? 0 : (size_t)len); /* the empty key is a key */
    }
    return 0;
}

static void check_all(const struct map *m, int *const *model)
{
    size_t n = 0, seen = 0, at = 0;
    for (int i = 0; i < KEYS; i++) {
        n += model[i] != NULL;
        assert_ptr_equal(map_get(m, keys[i]), model[i]);
    }
    assert_int_equal(m->n, n);
    while (map_next(m, &at))
        seen++;
    assert_int_equal(seen, n);
}

static void agrees_with_an_array(void **state)
{
    (void)state;
    static int values[2];
    int *model[KEYS] = {0};
    struct dice d = test_dice();
    struct map m;
    map_init(&m, dice_next(&d));
    for (int i = 0; i < STEPS; i++) {
        size_t k = dice_below(&d, KEYS);
        uint64_t fill = (uint64_t)(i / 1000 % 2); /* it swells and shrinks in turn */
        if (dice_below(&d, 4) > 2 * fill) {
            int *value = &values[dice_below(&d, 2)];
            assert_int_equal(map_put(&m, keys[k], value), OK);
            model[k] = value;
        } else {
            assert_ptr_equal(map_remove(&m, keys[k]), model[k]);
            model[k] = NULL;
        }
        if (i % 500 == 0)
            check_all(&m, model);
    }
    check_all(&m, model);
    map_clear(&m);
    assert_null(map_get(&m, keys[1]));
    assert_null(map_remove(&m, keys[1]));
}

/* Keys that share all but a little must not share their places; and another seed places them anew.
 */
static void the_hash_spreads_and_depends_on_the_seed(void **state)
{
    (void)state;
    int used[64] = {0}, moved = 0;
    for (int i = 0; i < KEYS; i++) {
        used[bytes_hash(keys[i], 1) % 64]++;
        moved += bytes_hash(keys[i], 1) % 64 != bytes_hash(keys[i], 2) % 64;
    }
    for (int i = 0; i < 64; i++)
        assert_in_range(used[i], 0, 12); /* three on average */
    assert_true(moved > KEYS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_an_array),
        cmocka_unit_test(the_hash_spreads_and_depends_on_the_seed),
    };
    return cmocka_run_group_tests_name("map", tests, make_keys, NULL);
}
