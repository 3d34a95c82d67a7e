/* Plots of results that are ordinary, empty or enormous. tests/cli reads one as XML. */
#include "base/test.h"
#include "load/load.h"

#include <string.h>

static struct load_result result_with(struct load_point *points, size_t n)
{
    struct load_result r = {.points = points, .n_points = n, .seconds = (double)n};
    for (int i = 0; i < LOAD_TIMES; i++) {
        r.times[i] = calloc(1, sizeof *r.times[i]);
        assert_non_null(r.times[i]);
    }
    for (size_t i = 0; i < n; i++) {
        points[i] = (struct load_point){.at_s = (double)i + 1,
                                        .span_s = 1,
                                        .messages = 1000,
                                        .p50_ns = 200000,
                                        .p99_ns = 1000000,
                                        .most_ns = 90000000};
        histogram_add_n(r.times[LOAD_TOOK], 200000, 990);
        histogram_add_n(r.times[LOAD_TOOK], 90000000, 10);
        r.messages += 1000;
    }
    return r;
}

static void result_free(struct load_result *r)
{
    for (int i = 0; i < LOAD_TIMES; i++)
        free(r->times[i]);
}

/* The text of the plot, which has a NUL behind it, a beginning and an end, and no number that is
 * none. */
static char *plot(enum load_kind kind, const struct load_result *r)
{
    const struct load_options o = {.kind = kind, .rate = 1000};
    struct buf out = buf_upto(64u << 20);
    load_result_plot(&o, r, &out);
    buf_add_u8(&out, 0);
    assert_int_equal(out.err, OK);
    char *text = (char *)out.at;
    assert_int_equal(strncmp(text, "<svg ", 5), 0);
    assert_string_equal(text + out.len - 8, "</svg>\n");
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    return text;
}

static void every_kind_can_be_drawn(void **state)
{
    (void)state;
    static struct load_point points[3];
    struct load_result r = result_with(points, 3);
    for (enum load_kind kind = LOAD_SEND; kind <= LOAD_ONCE; kind++) {
        char *text = plot(kind, &r);
        assert_non_null(strstr(text, load_kind_name(kind)));
        assert_non_null(strstr(text, "p99.9 90 ms")); /* ten of a thousand are beyond */
        free(text);
    }
    result_free(&r);
}

static void nothing_can_be_drawn_too(void **state)
{
    (void)state;
    struct load_result r = result_with(NULL, 0);
    free(plot(LOAD_SEND, &r));
    result_free(&r);
    static struct load_point silence[1];
    r = result_with(silence, 1);
    silence[0] = (struct load_point){.at_s = 1, .span_s = 1};
    *r.times[LOAD_TOOK] = (struct histogram){0};
    free(plot(LOAD_E2E, &r));
    result_free(&r);
}

/* A day of seconds is no bigger a picture than a quarter of an hour. */
static void many_points_are_drawn_together(void **state)
{
    (void)state;
    static struct load_point points[86400];
    struct load_result r = result_with(points, 86400);
    char *text = plot(LOAD_SEND, &r);
    assert_true(strlen(text) < 200000);
    free(text);
    result_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_can_be_drawn),
        cmocka_unit_test(nothing_can_be_drawn_too),
        cmocka_unit_test(many_points_are_drawn_together),
    };
    return cmocka_run_group_tests_name("plot", tests, NULL, NULL);
}
