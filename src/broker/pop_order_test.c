/* POP: consumers that wait for messages, and consumption in order. */
#include "broker/pop_test.h"

static void send_some(struct popper *p, int n)
{
    char body[16];
    for (int i = 0; i < n; i++) {
        snprintf(body, sizeof body, "%d", i);
        send_to(p, i % 4, body);
    }
}

/* ---- waiting ---- */

struct waiter {
    struct hold hold;
    int woken;
};

static void waiter_wake(struct hold *hold)
{
    list_entry(hold, struct waiter, hold)->woken++;
}

static enum err wait_for(struct popper *p, struct waiter *w, const struct pop *pop, int64_t ms)
{
    *w = (struct waiter){.hold.wake = waiter_wake};
    return broker_pop_hold(p->rig->broker, pop, &w->hold,
                           clock_ns(&p->rig->clock.clock) + (uint64_t)ms * 1000000);
}

static void an_arrival_wakes_one_of_each_group(void **state)
{
    struct popper *p = *state;
    struct pop pop = pop_wish("g", "T", 32, 1000), other = pop_wish("h", "T", 32, 1000);
    struct waiter first, second, third, one_queue;
    assert_int_equal(wait_for(p, &first, &pop, 10000), OK);
    assert_int_equal(wait_for(p, &second, &pop, 10000), OK);
    assert_int_equal(wait_for(p, &third, &other, 10000), OK);
    struct pop third_queue = pop;
    third_queue.queue_id = 3;
    assert_int_equal(wait_for(p, &one_queue, &third_queue, 10000), OK);
    bool found;
    uint32_t waiting;
    assert_int_equal(broker_pop_look(p->rig->broker, &pop, &found, &waiting, NULL), OK);
    assert_int_equal(waiting, 2);
    assert_false(found);
    send_to(p, 1, "x");
    assert_int_equal(first.woken + second.woken, 1);
    assert_int_equal(third.woken, 1);
    assert_int_equal(one_queue.woken, 0);
    struct waiter late;
    assert_int_equal(wait_for(p, &late, &pop, 10000), ERR_STALE);
    /* Two more come; whoever takes one of them wakes the next. */
    send_to(p, 2, "y");
    assert_int_equal(second.woken, 1);
    clock_manual_advance(&p->rig->clock, 10000);
    broker_hold_turn(p->rig->broker);
    assert_int_equal(one_queue.woken, 1);
    assert_int_equal(p->rig->broker->n_holds, 0);
}

static void what_comes_again_wakes_too(void **state)
{
    struct popper *p = *state;
    send_some(p, 2);
    assert_int_equal(pop_count(p, "g", "T", 32, 1000), 2);
    struct pop pop = pop_wish("g", "T", 1, 1000);
    struct waiter first, second;
    assert_int_equal(wait_for(p, &first, &pop, 10000), OK);
    assert_int_equal(wait_for(p, &second, &pop, 10000), OK);
    clock_manual_advance(&p->rig->clock, 1000);
    assert_int_equal(pop_turn(p->rig), 2);
    assert_int_equal(first.woken, 1);
    assert_int_equal(second.woken, 0);
    assert_int_equal(pop_now(p, &pop), OK); /* takes one, and there is another */
    assert_int_equal(p->n, 1);
    assert_int_equal(second.woken, 1);
}

static void who_takes_back_its_wait_is_not_woken(void **state)
{
    struct popper *p = *state;
    p->rig->options.max_pop_waiting = 1;
    rig_again(p->rig);
    rig_topic_put(p->rig, "T", 4, PERM_READ | PERM_WRITE);
    struct pop pop = pop_wish("g", "T", 1, 1000);
    struct waiter first, second;
    assert_int_equal(wait_for(p, &first, &pop, 10000), OK);
    assert_int_equal(wait_for(p, &second, &pop, 10000), ERR_BUSY);
    assert_true(broker_unhold(p->rig->broker, &first.hold));
    assert_int_equal(wait_for(p, &second, &pop, 10000), OK);
    assert_int_equal(wait_for(p, &first, &pop, 0), ERR_TIMEOUT);
    send_to(p, 0, "x");
    assert_int_equal(first.woken, 0);
    assert_int_equal(second.woken, 1);
}

/* ---- in order ---- */

static struct pop in_order(uint32_t count, const char *attempt)
{
    struct pop pop = pop_wish("g", "T", count, 10000);
    pop.queue_id = 0;
    pop.ordered = true;
    pop.attempt_id = bytes_str(attempt);
    return pop;
}

static void in_order_nothing_overtakes(void **state)
{
    struct popper *p = *state;
    for (int i = 0; i < 6; i++)
        send_to(p, 0, "x");
    struct pop pop = in_order(2, "first"), other = in_order(2, "second");
    assert_int_equal(pop_now(p, &pop), OK);
    assert_int_equal(p->n, 2);
    assert_int_equal(p->got.revive_id, POP_ORDERED);
    struct held held[2] = {p->held[0], p->held[1]};
    assert_int_equal(pop_now(p, &other), OK);
    assert_int_equal(p->n, 0);
    assert_int_equal(pop_now(p, &pop), OK); /* its answer got lost */
    assert_int_equal(p->n, 2);
    assert_int_equal(p->got.counts[0], 0);
    held[0].handle = held[1].handle = p->held[0].handle;

    assert_int_equal(pop_ack(p, "g", &held[1]), OK);
    assert_int_equal(rig_offset(p->rig, "g", "T", 0), 0); /* the first is missing */
    assert_int_equal(pop_now(p, &other), OK);
    assert_int_equal(p->n, 0);
    assert_int_equal(pop_ack(p, "g", &held[0]), OK);
    assert_int_equal(rig_offset(p->rig, "g", "T", 0), 2);
    assert_int_equal(pop_now(p, &other), OK);
    assert_int_equal(p->n, 2);
    assert_int_equal(p->held[0].offset, 2);
}

static void in_order_the_same_comes_again(void **state)
{
    struct popper *p = *state;
    for (int i = 0; i < 3; i++)
        send_to(p, 0, "x");
    struct pop pop = in_order(2, "");
    assert_int_equal(pop_now(p, &pop), OK);
    struct held held = p->held[0];
    assert_int_equal(pop_ack(p, "g", &held), OK);
    struct waiter w;
    assert_int_equal(wait_for(p, &w, &pop, 60000), OK);
    clock_manual_advance(&p->rig->clock, 9900);
    broker_hold_turn(p->rig->broker);
    assert_int_equal(w.woken, 0);
    clock_manual_advance(&p->rig->clock, 200);
    broker_hold_turn(p->rig->broker);
    assert_int_equal(w.woken, 1); /* it is visible again */
    assert_int_equal(pop_now(p, &pop), OK);
    assert_int_equal(p->n, 2);
    assert_int_equal(p->held[0].offset, 1);
    assert_int_equal(p->got.counts[0], 1);
    assert_int_equal(p->got.counts[1], 0);
    /* Later than before: the time was changed. */
    assert_int_equal(pop_retime(p, "g", &p->held[0], 30000), OK);
    clock_manual_advance(&p->rig->clock, 10000);
    assert_int_equal(pop_now(p, &pop), OK);
    assert_int_equal(p->n, 0);
    clock_manual_advance(&p->rig->clock, 20000);
    assert_int_equal(pop_now(p, &pop), OK);
    assert_int_equal(p->n, 2);
    assert_int_equal(p->got.counts[0], 2);
}

static void in_order_a_restart_forgets_nothing(void **state)
{
    struct popper *p = *state;
    for (int i = 0; i < 4; i++)
        send_to(p, 0, "x");
    struct pop pop = in_order(3, "a");
    assert_int_equal(pop_now(p, &pop), OK);
    struct held held[3] = {p->held[0], p->held[1], p->held[2]};
    assert_int_equal(pop_ack(p, "g", &held[1]), OK);
    rig_again(p->rig);
    struct pop other = in_order(3, "b");
    assert_int_equal(pop_now(p, &other), OK);
    assert_int_equal(p->n, 0);
    assert_int_equal(pop_ack(p, "g", &held[0]), OK);
    assert_int_equal(rig_offset(p->rig, "g", "T", 0), 2);
    assert_int_equal(pop_ack(p, "g", &held[2]), OK);
    assert_int_equal(pop_now(p, &other), OK);
    assert_int_equal(p->n, 1);
    assert_int_equal(p->held[0].offset, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pop_case(an_arrival_wakes_one_of_each_group),
        pop_case(what_comes_again_wakes_too),
        pop_case(who_takes_back_its_wait_is_not_woken),
        pop_case(in_order_nothing_overtakes),
        pop_case(in_order_the_same_comes_again),
        pop_case(in_order_a_restart_forgets_nothing),
    };
    return cmocka_run_group_tests_name("broker/pop_order", tests, NULL, NULL);
}
