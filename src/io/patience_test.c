/* Patience: when it looks for input, and when it sleeps at once. */
#include "io/test_int.h"

struct ends {
    int reads, writes;
};

static struct ends ends_make(void)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    return (struct ends){fds[0], fds[1]};
}

static void ends_close(struct ends e)
{
    (void)close(e.reads);
    (void)close(e.writes);
}

static void sees_what_is_there(void **state)
{
    (void)state;
    struct ends e = ends_make();
    struct patience p = {0};
    assert_int_equal(write(e.writes, "x", 1), 1);
    assert_true(patience_look(&p, e.reads));
    assert_true(patience_look(&p, e.reads));
    ends_close(e);
}

/* How many calls after a look in vain return without looking: input is there by then, so one that
 * looks says so. */
static unsigned sleeps_at_once(struct patience *p, struct ends e)
{
    char byte;
    assert_false(patience_look(p, e.reads));
    struct patience rests = *p;
    assert_int_equal(write(e.writes, "x", 1), 1);
    unsigned n = 0;
    while (!patience_look(&rests, e.reads))
        n++;
    assert_true(rests.balance_ns > 0); /* that was not in vain */
    assert_int_equal(read(e.reads, &byte, 1), 1);
    p->rest = 0; /* as after so many turns */
    return n;
}

static void looks_less_often_the_longer_it_is_in_vain(void **state)
{
    (void)state;
    const unsigned expected[] = {1, 2, 4, 8, 16, 32, 64, 64};
    struct ends e = ends_make();
    struct patience p = {0};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_int_equal(sleeps_at_once(&p, e), expected[i]);
    ends_close(e);
}

static void finds(struct patience *p, struct ends e, int times)
{
    char byte;
    assert_int_equal(write(e.writes, "x", 1), 1);
    for (int i = 0; i < times; i++)
        assert_true(patience_look(p, e.reads));
    assert_int_equal(read(e.reads, &byte, 1), 1);
}

/* Input that is there every other time, as where a request is followed by a pause. */
static void looks_no_more_than_pays(void **state)
{
    (void)state;
    struct ends e = ends_make();
    struct patience p = {.rest_last = 32};
    finds(&p, e, 1);
    assert_false(patience_look(&p, e.reads)); /* that is what it has earned */
    assert_int_equal(p.rest, 0);
    assert_int_equal(sleeps_at_once(&p, e), 64);
    ends_close(e);
}

static void looking_that_pays_for_a_while_makes_it_patient_again(void **state)
{
    (void)state;
    struct ends e = ends_make();
    struct patience p = {.rest_last = 64};
    finds(&p, e, 100);
    for (int i = 0; i < 4; i++) { /* it has not earned more than that */
        assert_false(patience_look(&p, e.reads));
        assert_int_equal(p.rest, 0);
    }
    assert_int_equal(sleeps_at_once(&p, e), 1);
    ends_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sees_what_is_there),
        cmocka_unit_test(looks_less_often_the_longer_it_is_in_vain),
        cmocka_unit_test(looks_no_more_than_pays),
        cmocka_unit_test(looking_that_pays_for_a_while_makes_it_patient_again),
    };
    return cmocka_run_group_tests_name("patience", tests, NULL, NULL);
}
