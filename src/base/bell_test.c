/* A bell: heard by who waits and by who comes later, and a wait has an end. */
#include "base/bell.h"
#include "base/clock.h"
#include "base/test.h"

#include <pthread.h>

#define TURNS 2000

struct pair {
    struct bell there, back;
    int said;
};

static void *answer(void *user)
{
    struct pair *pairs = user;
    for (int i = 0; i < TURNS; i++) {
        assert_true(bell_wait(&pairs[i].there, UINT64_MAX));
        pairs[i].said *= 2;
        bell_ring(&pairs[i].back);
    }
    return NULL;
}

/* Two threads hand numbers to and fro; what was written before the ring is seen after it. */
static void who_is_rung_sees_what_was_done_before(void **state)
{
    (void)state;
    static struct pair pairs[TURNS];
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, answer, pairs), 0);
    for (int i = 0; i < TURNS; i++) {
        pairs[i].said = i;
        bell_ring(&pairs[i].there);
        assert_true(bell_wait(&pairs[i].back, UINT64_MAX));
        assert_int_equal(pairs[i].said, 2 * i);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_wait_has_an_end(void **state)
{
    (void)state;
    struct bell bell = {0};
    uint64_t end_ns = clock_ns(clock_system()) + 2000000;
    assert_false(bell_wait(&bell, 0));
    assert_false(bell_wait(&bell, end_ns));
    assert_true(clock_ns(clock_system()) >= end_ns);
    bell_ring(&bell);
    assert_true(bell_wait(&bell, 0)); /* it was rung before */
    bell_clear(&bell);
    assert_false(bell_wait(&bell, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_rung_sees_what_was_done_before),
        cmocka_unit_test(a_wait_has_an_end),
    };
    return cmocka_run_group_tests_name("bell", tests, NULL, NULL);
}
