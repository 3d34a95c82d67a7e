/* pick_test.c - which queue a message goes to. */
#include "client/parts_int.h"

#include "base/test.h"

#include <pthread.h>

static const struct omq_queue five[] = {
    {"T", "a", 0}, {"T", "a", 1}, {"T", "a", 2}, {"T", "b", 0}, {"T", "b", 1},
};

static size_t next(struct pick *p, size_t n, const char *last, const struct faults *faults)
{
    size_t at = 99;
    assert_int_equal(pick_next(p, five, n, last, faults, 0, &at), OK);
    return at;
}

static void goes_round(void **state)
{
    (void)state;
    struct pick p = {.turn = 3};
    for (size_t i = 3; i < 20; i++)
        assert_int_equal(next(&p, 5, NULL, NULL), i % 5);
}

static void every_queue_has_its_part(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    struct pick p;
    pick_init(&p, &dice);
    int seen[4] = {0};
    for (int i = 0; i < 1000; i++)
        seen[next(&p, 4, NULL, NULL)]++;
    for (int i = 0; i < 4; i++)
        assert_int_equal(seen[i], 250);
}

/* Many producers that start at once must not all start at the same queue. */
static void starts_anywhere(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    int seen[5] = {0};
    for (int i = 0; i < 500; i++) {
        struct pick p;
        pick_init(&p, &dice);
        seen[next(&p, 5, NULL, NULL)]++;
    }
    for (int i = 0; i < 5; i++)
        assert_true(seen[i] > 0);
}

static void survives_the_end_of_its_counter(void **state)
{
    (void)state;
    struct pick p = {.turn = UINT32_MAX - 3};
    for (int i = 0; i < 20; i++)
        assert_true(next(&p, 5, NULL, NULL) < 5);
}

static void a_retry_goes_to_another_broker(void **state)
{
    (void)state;
    struct pick p = {.turn = 0};
    assert_int_equal(next(&p, 5, "a", NULL), 3);
    assert_int_equal(next(&p, 5, "a", NULL), 4);
    assert_int_equal(next(&p, 5, "b", NULL), 0);
    assert_int_equal(next(&p, 5, "b", NULL), 1);
    assert_int_equal(next(&p, 5, "gone", NULL), 2);
}

static void a_retry_stays_when_there_is_no_other(void **state)
{
    (void)state;
    struct pick p = {.turn = 1};
    for (size_t i = 1; i < 10; i++)
        assert_int_equal(next(&p, 3, "a", NULL), i % 3);
    assert_int_equal(next(&p, 1, "a", NULL), 0);
}

static void no_queues_is_an_answer(void **state)
{
    (void)state;
    struct pick p = {0};
    size_t at = 99;
    assert_int_equal(pick_next(&p, NULL, 0, NULL, NULL, 0, &at), ERR_NOT_FOUND);
    assert_int_equal(at, 99);
}

static void slow_brokers_are_left_out(void **state)
{
    (void)state;
    struct faults f = {0};
    struct pick p = {0};
    assert_int_equal(faults_note(&f, "a", SENT_FAILED, 1, 0), OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(next(&p, 5, NULL, &f), 3 + i % 2);
    size_t at;
    atomic_store(&p.turn, 0);
    assert_int_equal(pick_next(&p, five, 5, NULL, &f, 10000, &at), OK);
    assert_int_equal(at, 0); /* its time is over */

    /* The other one was just tried: better the slow one than the same again. */
    atomic_store(&p.turn, 3);
    assert_int_equal(next(&p, 5, "b", &f), 0);
    /* Unless nobody reaches it: then it is simply the next in the row. */
    assert_int_equal(faults_note(&f, "a", SENT_UNREACHABLE, 1, 0), OK);
    atomic_store(&p.turn, 4);
    assert_int_equal(next(&p, 5, "b", &f), 4);
    faults_clear(&f);
}

static void messages_go_on_when_all_are_slow(void **state)
{
    (void)state;
    struct faults f = {0};
    struct pick p = {0};
    assert_int_equal(faults_note(&f, "a", SENT_UNREACHABLE, 1, 0), OK);
    assert_int_equal(faults_note(&f, "b", SENT_FAILED, 1, 0), OK);
    assert_int_equal(next(&p, 5, NULL, &f), 3); /* slow, but within reach */
    assert_int_equal(faults_note(&f, "b", SENT_UNREACHABLE, 1, 0), OK);
    atomic_store(&p.turn, 0);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(next(&p, 5, NULL, &f), i % 5);
    faults_clear(&f);
}

/* Keys and results of Java's SelectMessageQueueByHash. */
static void keys_go_where_java_sends_them(void **state)
{
    (void)state;
    assert_int_equal(pick_by_key(BYTES(""), 4), 0);
    assert_int_equal(pick_by_key(BYTES("a"), 4), 97 % 4);
    assert_int_equal(pick_by_key(BYTES("TagA"), 7), 2598919 % 7);
    assert_int_equal(pick_by_key(BYTES("order-created"), 8), 392709271 % 8);       /* below zero */
    assert_int_equal(pick_by_key(BYTES("polygenelubricants"), 5), 2147483648 % 5); /* the least */
    assert_int_equal(pick_by_key(BYTES("标签"), 16), 857175 % 16);
    assert_int_equal(pick_by_key(BYTES("🚀"), 10), 1773027 % 10);
    assert_int_equal(pick_by_key(BYTES("anything"), 1), 0);
}

/* No assertion in here: it is not the test's own thread. */
static void *retry_often(void *pick)
{
    for (int i = 0; i < 20000; i++) {
        size_t at = 0;
        if (pick_next(pick, five, 5, "a", NULL, 0, &at) || at < 3)
            return pick;
    }
    return NULL;
}

/* However the threads meet: where there is another broker, a retry finds it. */
static void threads_share_one_row(void **state)
{
    (void)state;
    struct pick p = {0};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, retry_often, &p), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_round),
        test_of_row("LB-1", every_queue_has_its_part),
        cmocka_unit_test(starts_anywhere),
        cmocka_unit_test(survives_the_end_of_its_counter),
        cmocka_unit_test(a_retry_goes_to_another_broker),
        cmocka_unit_test(a_retry_stays_when_there_is_no_other),
        cmocka_unit_test(no_queues_is_an_answer),
        cmocka_unit_test(slow_brokers_are_left_out),
        cmocka_unit_test(messages_go_on_when_all_are_slow),
        cmocka_unit_test(keys_go_where_java_sends_them),
        cmocka_unit_test(threads_share_one_row),
    };
    return cmocka_run_group_tests_name("client/pick", tests, NULL, NULL);
}
