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
    assert_int_equal(rests.tired, 0); /* that was not in vain */
    assert_int_equal(read(e.reads, &byte, 1), 1);
    p->rest = 0; /* as after so many turns */
    return n;
}

static void looks_less_often_the_longer_it_is_in_vain(void **state)
{
    (void)state;
    const unsigned expected[] = {1, 2, 4, 8, 8, 8};
    struct ends e = ends_make();
    struct patience p = {0};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_int_equal(sleeps_at_once(&p, e), expected[i]);
    ends_close(e);
}

static void a_look_that_is_not_in_vain_makes_it_patient_again(void **state)
{
    (void)state;
    struct ends e = ends_make();
    struct patience p = {.tired = 8};
    char byte;
    assert_int_equal(write(e.writes, "x", 1), 1);
    assert_true(patience_look(&p, e.reads));
    assert_int_equal(read(e.reads, &byte, 1), 1);
    assert_int_equal(sleeps_at_once(&p, e), 1);
    ends_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sees_what_is_there),
        cmocka_unit_test(looks_less_often_the_longer_it_is_in_vain),
        cmocka_unit_test(a_look_that_is_not_in_vain_makes_it_patient_again),
    };
    return cmocka_run_group_tests_name("patience", tests, NULL, NULL);
}
