/* Loops: posts, stopping, timers, signals. */
#include "io/test_int.h"

#include <signal.h>

static struct loop *loop;
static pthread_t thread;

static int open_loop(void **state)
{
    (void)state;
    return loop_open(&loop, clock_system(), NULL, NULL) == OK ? 0 : -1;
}

static int close_loop(void **state)
{
    (void)state;
    loop_close(loop);
    return 0;
}

static void start(void)
{
    assert_int_equal(pthread_create(&thread, NULL, house_thread, loop), 0);
}

static void stop(void)
{
    loop_stop(loop);
    (void)pthread_join(thread, NULL);
}

static void a_stop_before_the_start_is_not_forgotten(void **state)
{
    (void)state;
    loop_stop(loop);
    loop_run(loop);
    loop_stop(loop); /* and it may run again */
    loop_run(loop);
}

/* ---- posts ---- */

#define POSTERS       4
#define POSTS_OF_EACH 5000

struct numbered {
    struct post post;
    struct poster *by;
    unsigned number;
};

struct poster {
    pthread_t thread;
    struct numbered posts[POSTS_OF_EACH];
    unsigned next; /* expected; touched on the loop */
    bool in_order;
};

static struct tally all_run;

static void on_numbered(struct post *post)
{
    loop_here(loop);
    struct numbered *mine = list_entry(post, struct numbered, post);
    struct poster *by = mine->by;
    by->in_order = by->in_order && mine->number == by->next;
    if (++by->next == POSTS_OF_EACH)
        tally_add(&all_run);
}

static void *post_all(void *arg)
{
    struct poster *poster = arg;
    for (unsigned i = 0; i < POSTS_OF_EACH; i++) {
        poster->posts[i] = (struct numbered){{.run = on_numbered}, poster, i};
        loop_post(loop, &poster->posts[i].post);
    }
    return NULL;
}

static void posts_of_many_threads_all_run_each_in_its_order(void **state)
{
    (void)state;
    static struct poster posters[POSTERS];
    tally_init(&all_run);
    start();
    for (int i = 0; i < POSTERS; i++) {
        posters[i].next = 0;
        posters[i].in_order = true;
        assert_int_equal(pthread_create(&posters[i].thread, NULL, post_all, &posters[i]), 0);
    }
    for (int i = 0; i < POSTERS; i++)
        (void)pthread_join(posters[i].thread, NULL);
    tally_await(&all_run, POSTERS);
    stop();
    for (int i = 0; i < POSTERS; i++)
        assert_true(posters[i].in_order);
}

struct relay {
    struct post post;
    unsigned left;
    struct tally done;
};

static void on_relay(struct post *post)
{
    struct relay *relay = list_entry(post, struct relay, post);
    if (--relay->left > 0)
        loop_post(loop, &relay->post); /* ours again as soon as it runs */
    else
        tally_add(&relay->done);
}

static void a_post_may_post_itself_again(void **state)
{
    (void)state;
    struct relay relay = {.post.run = on_relay, .left = 100};
    tally_init(&relay.done);
    start();
    loop_post(loop, &relay.post);
    tally_await(&relay.done, 1);
    stop();
}

struct homely {
    struct post post;
    unsigned turns, posted_in, ran_in;
    struct tally done;
};

static void count_turn(void *user)
{
    ((struct homely *)user)->turns++;
}

static void post_at_home(void *user)
{
    struct homely *homely = user;
    homely->posted_in = homely->turns;
    loop_post(loop, &homely->post);
}

static void on_homely(struct post *post)
{
    struct homely *homely = list_entry(post, struct homely, post);
    homely->ran_in = homely->turns;
    tally_add(&homely->done);
}

/* What it writes leaves with the turn, and nobody has to ring the bell for it. */
static void a_post_of_the_loop_s_own_runs_in_the_same_turn(void **state)
{
    (void)state;
    struct homely homely = {.post.run = on_homely};
    struct timer *timer;
    tally_init(&homely.done);
    assert_int_equal(timer_open(loop, post_at_home, &homely, &timer), OK);
    loop_at_turn_end(loop, count_turn, &homely);
    timer_start(timer, 1, 0);
    start();
    tally_await(&homely.done, 1);
    stop();
    assert_int_equal(homely.ran_in, homely.posted_in);
}

static void post_at_turn_end(void *user)
{
    struct homely *homely = user;
    if (homely->turns++ == 0)
        loop_post(loop, &homely->post);
}

/* It comes after the other posts of its turn, and nobody else wakes the loop. */
static void what_the_hook_posts_is_not_left_lying(void **state)
{
    (void)state;
    struct homely homely = {.post.run = on_homely};
    tally_init(&homely.done);
    loop_at_turn_end(loop, post_at_turn_end, &homely);
    start();
    tally_await(&homely.done, 1);
    stop();
    assert_true(homely.ran_in >= 1);
}

/* So that whoever owns what a post carries gets to free it. */
static void closing_runs_the_posts_that_are_left(void **state)
{
    (void)state;
    struct loop *other;
    assert_int_equal(loop_open(&other, clock_system(), NULL, NULL), OK);
    struct loop *mine = loop;
    loop = other;
    struct relay relay = {.post.run = on_relay, .left = 3};
    tally_init(&relay.done);
    loop_post(other, &relay.post);
    loop_close(other);
    loop = mine;
    assert_int_equal(tally_now(&relay.done), 1);
}

/* ---- timers ---- */

struct beat {
    struct timer *timer;
    struct tally fired;
    unsigned stop_at;
    bool close_then;
};

static void on_beat(void *user)
{
    struct beat *beat = user;
    loop_here(loop);
    if (beat->fired.n + 1 == beat->stop_at) {
        if (beat->close_then)
            timer_close(beat->timer);
        else
            timer_stop(beat->timer);
    }
    tally_add(&beat->fired);
}

static void beat_open(struct beat *beat, unsigned stop_at, bool close_then)
{
    *beat = (struct beat){.stop_at = stop_at, .close_then = close_then};
    tally_init(&beat->fired);
    assert_int_equal(timer_open(loop, on_beat, beat, &beat->timer), OK);
}

static void beat_late(void *user)
{
    timer_start(((struct beat *)user)->timer, 50, 0);
}

/* The last one, set when the others have fired, tells that they had the time to fire too often. */
static void timers_fire_once_or_again_until_stopped_or_closed(void **state)
{
    (void)state;
    struct beat once, stopped, closed, last;
    beat_open(&once, 0, false);
    beat_open(&stopped, 3, false);
    beat_open(&closed, 5, true);
    beat_open(&last, 0, false);
    timer_start(once.timer, 1, 0);
    timer_start(stopped.timer, 1, 1);
    timer_start(closed.timer, 0, 1);
    start();
    tally_await(&once.fired, 1);
    tally_await(&stopped.fired, 3);
    tally_await(&closed.fired, 5);
    uint64_t before = clock_ns(clock_system());
    on_loop(loop, beat_late, &last);
    tally_await(&last.fired, 1);
    assert_true(clock_ns(clock_system()) - before >= 49 * 1000000u);
    stop();
    assert_int_equal(once.fired.n, 1);
    assert_int_equal(stopped.fired.n, 3);
    assert_int_equal(closed.fired.n, 5);
    timer_close(once.timer);
    timer_close(NULL);
    /* loop_close closes the two that are left. */
}

/* ---- signals ---- */

static struct tally signalled;

static void on_usr1(void *user, int signum)
{
    loop_here(loop);
    if (signum == SIGUSR1 && user == &signalled)
        tally_add(&signalled);
}

static void a_signal_comes_as_an_event(void **state)
{
    (void)state;
    tally_init(&signalled);
    assert_int_equal(loop_on_signal(loop, SIGUSR1, on_usr1, &signalled), OK);
    start();
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    tally_await(&signalled, 1);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    tally_await(&signalled, 2);
    stop();
}

static void a_signal_that_cannot_be_caught_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(loop_on_signal(loop, SIGKILL, on_usr1, NULL), ERR_IO);
}

/* ---- the turn ---- */

static void on_turn(void *user)
{
    tally_add(user);
}

static void nothing(void *user)
{
    (void)user;
}

static void every_turn_has_an_end(void **state)
{
    (void)state;
    struct tally turns;
    tally_init(&turns);
    loop_at_turn_end(loop, on_turn, &turns);
    start();
    unsigned before = tally_now(&turns);
    on_loop(loop, nothing, NULL);
    tally_await(&turns, before + 1);
    stop();
}

static void draining_a_loop_without_connections_is_done_soon(void **state)
{
    (void)state;
    struct tally done;
    tally_init(&done);
    loop_drain(loop, on_turn, &done);
    assert_int_equal(tally_now(&done), 0); /* from the loop, not from inside the call */
    start();
    tally_await(&done, 1);
    stop();
    assert_int_equal(done.n, 1);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_loop, close_loop)
    const struct CMUnitTest tests[] = {
        CASE(a_stop_before_the_start_is_not_forgotten),
        CASE(posts_of_many_threads_all_run_each_in_its_order),
        CASE(a_post_may_post_itself_again),
        CASE(a_post_of_the_loop_s_own_runs_in_the_same_turn),
        CASE(what_the_hook_posts_is_not_left_lying),
        CASE(closing_runs_the_posts_that_are_left),
        CASE(timers_fire_once_or_again_until_stopped_or_closed),
        CASE(a_signal_comes_as_an_event),
        CASE(a_signal_that_cannot_be_caught_is_an_error),
        CASE(every_turn_has_an_end),
        CASE(draining_a_loop_without_connections_is_done_soon),
    };
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
