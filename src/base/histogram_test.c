/* Histograms against the sorted row of all values. */
#include "base/histogram.h"
#include "base/test.h"

#include <string.h>

#define VALUES 20000

static const double parts[] = {0, 0.001, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The value that the definition names: so many of the row are not above it. */
static uint64_t exact(const uint64_t *sorted, size_t n, double part)
{
    size_t i = 0;
    while ((double)(i + 1) < part * (double)n)
        i++;
    return sorted[i];
}

static void assert_near(uint64_t got, uint64_t wanted)
{
    assert_true(got >= wanted);
    assert_true(got <= wanted + wanted / 127);
}

/* Values of all sizes, as times of a disk are: most small, some enormous. */
static void tells_what_the_sorted_row_tells(void **state)
{
    (void)state;
    static uint64_t row[VALUES];
    struct histogram *h = calloc(1, sizeof *h);
    struct dice d = test_dice();
    assert_non_null(h);
    uint64_t sum = 0;
    for (size_t i = 0; i < VALUES; i++) {
        row[i] = dice_below(&d, UINT64_C(1) << (1 + dice_below(&d, 43)));
        sum += row[i];
        histogram_add(h, row[i]);
    }
    qsort(row, VALUES, sizeof *row, by_size);
    assert_int_equal(h->count, VALUES);
    assert_int_equal(h->least, row[0]);
    assert_int_equal(h->most, row[VALUES - 1]);
    assert_int_equal(h->sum, sum);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_near(histogram_at(h, parts[i]), exact(row, VALUES, parts[i]));
    assert_int_equal(histogram_at(h, 1), row[VALUES - 1]);
    free(h);
}

static void is_exact_where_values_are_small(void **state)
{
    (void)state;
    struct histogram *h = calloc(1, sizeof *h);
    assert_non_null(h);
    for (uint64_t i = 0; i < 256; i++)
        histogram_add(h, i);
    for (uint64_t i = 1; i <= 256; i++)
        assert_int_equal(histogram_at(h, (double)i / 256), i - 1);
    free(h);
}

/* The ends of every doubling, and what is beyond the largest: nothing falls out of the array. */
static void has_a_bucket_for_every_value(void **state)
{
    (void)state;
    struct histogram *h = calloc(1, sizeof *h);
    assert_non_null(h);
    for (unsigned bit = 0; bit < 64; bit++)
        for (int off = -1; off <= 1; off++) {
            uint64_t value = (UINT64_C(1) << bit) + (uint64_t)off;
            memset(h, 0, sizeof *h);
            histogram_add(h, 0);
            histogram_add(h, value);
            uint64_t kept = value < HISTOGRAM_MOST ? value : HISTOGRAM_MOST;
            assert_int_equal(histogram_at(h, 1), kept);
            assert_int_equal(h->most, kept);
        }
    free(h);
}

static void merged_is_as_if_added_to_one(void **state)
{
    (void)state;
    struct histogram *h = calloc(3, sizeof *h);
    struct dice d = test_dice();
    assert_non_null(h);
    histogram_merge(&h[2], &h[0]); /* nothing to nothing */
    assert_int_equal(histogram_at(&h[2], 0.5), 0);
    assert_true(histogram_mean(&h[2]) == 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t value = dice_below(&d, 1000000), n = dice_below(&d, 4);
        histogram_add_n(&h[i % 2], value, n);
        histogram_add_n(&h[2], value, n);
    }
    histogram_merge(&h[0], &h[1]);
    assert_memory_equal(&h[0], &h[2], sizeof *h);
    assert_true(histogram_mean(&h[0]) == histogram_mean(&h[2]));
    free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_what_the_sorted_row_tells),
        cmocka_unit_test(is_exact_where_values_are_small),
        cmocka_unit_test(has_a_bucket_for_every_value),
        cmocka_unit_test(merged_is_as_if_added_to_one),
    };
    return cmocka_run_group_tests_name("histogram", tests, NULL, NULL);
}
