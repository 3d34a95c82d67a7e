/* Routes of topics elsewhere: asked for once wanted, kept, and forgotten. */
#include "daemon/watch.h"

#include "base/test.h"

#include <stdio.h>

static int asked, last_number;

static void ask(void *user, struct bytes topic, int32_t number)
{
    assert_ptr_equal(user, &asked);
    assert_bytes_equal(topic, BYTES("T"));
    asked++;
    last_number = number;
}

static void a_topic_is_asked_for_and_its_answer_kept(void **state)
{
    (void)state;
    struct watch *w;
    assert_int_equal(watch_open(7, &w), OK);
    struct arena arena;
    arena_init(&arena, 1 << 20);
    struct assign_queue *queues;
    size_t n;
    bool soon;
    asked = 0;
    assert_int_equal(watch_find(w, BYTES("T"), &arena, &queues, &n, &soon), ERR_NOT_FOUND);
    assert_true(soon);
    watch_each(w, false, ask, &asked);
    watch_each(w, false, ask, &asked); /* it is on its way */
    assert_int_equal(asked, 1);

    struct route_queues rows[] = {{BYTES("b"), 2, 2, PERM_READ | PERM_WRITE, 0},
                                  {BYTES("closed"), 4, 4, PERM_WRITE, 0},
                                  {BYTES("a"), 1, 1, PERM_READ, 0}};
    struct route route = {.queues = rows, .n_queues = 3};
    watch_learn(w, last_number + 1, &route); /* somebody else's */
    assert_int_equal(watch_find(w, BYTES("T"), &arena, &queues, &n, &soon), ERR_NOT_FOUND);
    assert_false(soon);
    watch_learn(w, last_number, &route);
    assert_int_equal(watch_find(w, BYTES("T"), &arena, &queues, &n, &soon), OK);
    assert_int_equal(n, 3);
    assert_bytes_equal(queues[1].broker, BYTES("b"));
    assert_int_equal(queues[1].queue_id, 1);
    assert_bytes_equal(queues[2].broker, BYTES("a"));
    watch_learn(w, last_number, NULL); /* deleted */
    assert_int_equal(watch_find(w, BYTES("T"), &arena, &queues, &n, &soon), ERR_NOT_FOUND);

    asked = 0;
    for (int i = 0; i < 100; i++)
        watch_each(w, true, ask, &asked);
    assert_in_range(asked, 10, 50); /* until nobody has wanted it for long */
    assert_int_equal(watch_find(w, BYTES("T"), &arena, &queues, &n, &soon), ERR_NOT_FOUND);
    assert_true(soon);
    watch_close(w);
    arena_clear(&arena);
}

static void there_is_a_limit(void **state)
{
    (void)state;
    struct watch *w;
    assert_int_equal(watch_open(7, &w), OK);
    struct arena arena;
    arena_init(&arena, 1 << 20);
    struct assign_queue *queues;
    size_t n;
    bool soon;
    char name[16];
    for (int i = 0; i < WATCH_MAX + 10; i++) {
        snprintf(name, sizeof name, "T%d", i);
        assert_int_equal(watch_find(w, bytes_str(name), &arena, &queues, &n, &soon), ERR_NOT_FOUND);
    }
    watch_close(w);
    arena_clear(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_topic_is_asked_for_and_its_answer_kept),
        cmocka_unit_test(there_is_a_limit),
    };
    return cmocka_run_group_tests_name("daemon/watch", tests, NULL, NULL);
}
