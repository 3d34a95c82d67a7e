/* Many pop, acknowledge and change times at once, while others revive and save: each message is
 * acknowledged once, and nobody gets one that somebody else has. Run it in a build with
 * -Db_sanitize=thread too. */
#include "broker/pop_test.h"

#include <pthread.h>

#define WORKERS  4
#define MESSAGES 3000
#define QUEUES   3

struct crowd_of {
    struct rig *rig;
    atomic_int holders[MESSAGES]; /* who has it in flight */
    atomic_int acked[MESSAGES];
    atomic_int left;
    atomic_bool stop;
};

struct worker {
    struct crowd_of *all;
    struct popper p;
    struct dice dice;
    pthread_t thread;
};

static int number_of(const struct held *h)
{
    int32_t number = -1;
    assert_true(bytes_to_i32(bytes_str(h->body), &number));
    return number;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct crowd_of *all = w->all;
    while (atomic_load(&all->left) > 0) {
        /* Nobody is ever too late: the clock stands still. */
        size_t n = pop_count(&w->p, "g", "T", 1 + (uint32_t)dice_below(&w->dice, 32), 60000);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(atomic_fetch_add(&all->holders[number_of(&w->p.held[i])], 1), 0);
        for (size_t i = 0; i < n; i++) {
            struct held *h = &w->p.held[i];
            if (dice_below(&w->dice, 4) == 0)
                assert_int_equal(pop_retime(&w->p, "g", h, 60000), OK);
            if (dice_below(&w->dice, 8) == 0) { /* gives it back */
                atomic_fetch_sub(&all->holders[number_of(h)], 1);
                assert_int_equal(pop_retime(&w->p, "g", h, 0), OK);
                continue;
            }
            assert_int_equal(pop_ack(&w->p, "g", h), OK);
            assert_int_equal(atomic_fetch_add(&all->acked[number_of(h)], 1), 0);
            atomic_fetch_sub(&all->left, 1);
        }
    }
    return NULL;
}

static void *keep(void *arg)
{
    struct crowd_of *all = arg;
    struct service_turn turn;
    while (!atomic_load(&all->stop)) {
        clock_manual_advance(&all->rig->clock, 1); /* for what was given back */
        broker_pop_turn(all->rig->broker, &turn);
        (void)store_flush_turn(all->rig->store);
        assert_int_equal(broker_save_turn(all->rig->broker, NULL), OK);
    }
    return NULL;
}

static void each_is_one_consumer_s_alone(void **state)
{
    struct rig *rig = *state;
    struct crowd_of *all = calloc(1, sizeof *all);
    struct worker *workers = calloc(WORKERS, sizeof *workers);
    struct group_settings set = group_settings_default(BYTES("g"));
    set.retry_max = 100000;
    rig_group_put(rig, &set);
    rig_topic_put(rig, "T", QUEUES, PERM_READ | PERM_WRITE);
    all->rig = rig;
    atomic_store(&all->left, MESSAGES);
    for (int i = 0; i < MESSAGES; i++) {
        char body[16];
        snprintf(body, sizeof body, "%d", i);
        struct produce r = rig_message("T", body);
        r.queue_id = i % QUEUES;
        assert_int_equal(rig_produce(rig, &r), OK);
    }
    broker_dispatch_turn(rig->broker);
    pthread_t keeper;
    assert_int_equal(pthread_create(&keeper, NULL, keep, all), 0);
    for (int i = 0; i < WORKERS; i++) {
        workers[i].all = all;
        workers[i].p.rig = rig;
        workers[i].dice = dice_seeded((uint64_t)i + 1);
        assert_int_equal(mark_desk_open(&workers[i].p.desk), OK);
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        mark_desk_close(workers[i].p.desk);
    }
    atomic_store(&all->stop, true);
    assert_int_equal(pthread_join(keeper, NULL), 0);
    for (int i = 0; i < MESSAGES; i++)
        assert_int_equal(atomic_load(&all->acked[i]), 1);
    assert_int_equal(pop_numbers_of(rig).pop_in_flight, 0);
    assert_int_equal(pop_numbers_of(rig).pop_acked, MESSAGES);
    free(workers);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {rig_test(each_is_one_consumer_s_alone)};
    return cmocka_run_group_tests_name("broker/pop_race", tests, NULL, NULL);
}
