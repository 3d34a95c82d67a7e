/* Rooms: who may enter, and what happens to who may not. Broken rules stop the process, so those
 * are broken in a child. */
#include "base/room.h"
#include "base/test.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static struct room core, tail;

static int open_rooms(void **state)
{
    (void)state;
    room_init(&core, "core", ROOM_CORE);
    room_init(&tail, "tail", ROOM_TAIL);
    return 0;
}

static int close_rooms(void **state)
{
    (void)state;
    room_clear(&core);
    room_clear(&tail);
    return 0;
}

static void wrong_order(void)
{
    room_enter(&tail);
    room_enter(&core);
}

static void twice(void)
{
    room_enter(&core);
    room_enter(&core);
}

static void without_the_key(void)
{
    room_held(&core);
}

static void leaving_what_was_not_entered(void)
{
    room_leave(&core);
}

static void check_stops(void (*mistake)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)!freopen("/dev/null", "w", stderr);
        mistake();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void a_broken_rule_stops_the_process(void **state)
{
    (void)state;
    check_stops(wrong_order);
    check_stops(twice);
    check_stops(without_the_key);
    check_stops(leaving_what_was_not_entered);
}

static void rooms_are_entered_in_rising_rank(void **state)
{
    (void)state;
    room_enter(&core);
    room_enter(&tail);
    room_held(&core);
    room_held(&tail);
    room_leave(&tail);
    assert_true(room_try(&tail));
    room_leave(&tail);
    room_leave(&core);
    room_enter(&tail); /* the core is forgotten */
    room_leave(&tail);
}

struct attempt {
    bool soon, got;
};

static void *try_core(void *user)
{
    struct attempt *a = user;
    a->got = a->soon ? room_try_soon(&core) : room_try(&core);
    if (a->got)
        room_leave(&core);
    return NULL;
}

static bool another_thread_gets_in(bool soon)
{
    pthread_t thread;
    struct attempt a = {.soon = soon};
    assert_int_equal(pthread_create(&thread, NULL, try_core, &a), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return a.got;
}

static void only_one_is_inside(void **state)
{
    (void)state;
    room_enter(&core);
    assert_false(another_thread_gets_in(false));
    room_leave(&core);
    assert_true(another_thread_gets_in(false));
}

static unsigned inside, met, visits;

static void *visit_often(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        room_enter_soon(&core);
        met += inside++ != 0;
        visits++;
        inside--;
        room_leave(&core);
    }
    return NULL;
}

static void only_one_is_inside_however_many_want_to_be_soon(void **state)
{
    (void)state;
    pthread_t threads[3];
    met = visits = 0;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, visit_often, NULL), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(met, 0);
    assert_int_equal(visits, 3 * 20000);
}

static void *visit_once(void *got)
{
    room_enter_soon(&core);
    *(bool *)got = true;
    room_leave(&core);
    return NULL;
}

/* It is no shorter wait than another: who wants to be in soon comes in when the room is free. */
static void soon_may_be_long(void **state)
{
    (void)state;
    pthread_t thread;
    bool got = false;
    room_enter(&core);
    assert_false(another_thread_gets_in(true));
    assert_int_equal(pthread_create(&thread, NULL, visit_once, &got), 0);
    for (int i = 0; i < 5000; i++) /* time to go to sleep, if it is quick; nothing depends on it */
        (void)sched_yield();
    assert_false(got);
    room_leave(&core);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(got);
    assert_true(another_thread_gets_in(true));
}

static void *bring_news(void *news)
{
    room_enter(&core);
    *(bool *)news = true;
    room_tell(&core);
    room_leave(&core);
    return NULL;
}

static void waits_for_news(void **state)
{
    (void)state;
    pthread_t thread;
    bool news = false;
    room_enter(&core);
    room_wait(&core, 1); /* nobody tells; it ends */
    room_held(&core);
    assert_int_equal(pthread_create(&thread, NULL, bring_news, &news), 0);
    while (!news)
        room_wait(&core, -1);
    room_held(&core);
    room_leave(&core);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_rooms, close_rooms)
    const struct CMUnitTest tests[] = {
        CASE(a_broken_rule_stops_the_process),
        CASE(rooms_are_entered_in_rising_rank),
        CASE(only_one_is_inside),
        CASE(only_one_is_inside_however_many_want_to_be_soon),
        CASE(soon_may_be_long),
        CASE(waits_for_news),
    };
    return cmocka_run_group_tests_name("room", tests, NULL, NULL);
}
