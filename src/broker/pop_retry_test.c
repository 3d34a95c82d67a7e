/* POP: the two forms of a group's retry topic, enableRetryTopicV2 and its companion. */
#include "broker/pop_test.h"

static void restart(struct popper *p, bool v2, bool v1_too)
{
    p->rig->options.pop_retry_v2 = v2;
    p->rig->options.pop_retry_v1_too = v1_too;
    rig_again(p->rig);
}

/* Pops one message and lets its time pass. */
static void let_one_expire(struct popper *p)
{
    assert_int_equal(pop_count(p, "g", "T", 1, 1000), 1);
    clock_manual_advance(&p->rig->clock, 1001);
    assert_int_equal(pop_turn(p->rig), 1);
}

static void the_second_form_has_its_own_topic(void **state)
{
    struct popper *p = *state;
    restart(p, true, true);
    send_to(p, 0, "x");
    let_one_expire(p);
    assert_int_equal(later_count(p->rig, "%RETRY%g+T", 0), 1);
    let_one_expire(p); /* from there it goes there again */
    assert_string_equal(p->held[0].topic, "%RETRY%g+T");
    assert_int_equal(later_count(p->rig, "%RETRY%g+T", 0), 2);
    restart(p, true, true); /* its name stands in topics.json */
    assert_int_equal(pop_count(p, "g", "T", 1, 1000), 1);
    assert_int_equal(p->held[0].tries, 2);
    assert_int_equal(pop_ack(p, "g", &p->held[0]), OK);
    clock_manual_advance(&p->rig->clock, 5000);
    assert_int_equal(pop_turn(p->rig), 0);
    assert_int_equal(pop_count(p, "g", "T", 1, 1000), 0);
}

static void its_tries_end_in_the_dead_letters(void **state)
{
    struct popper *p = *state;
    restart(p, true, true);
    struct group_settings set = group_settings_default(BYTES("g"));
    set.retry_max = 1;
    rig_group_put(p->rig, &set);
    send_to(p, 0, "x");
    let_one_expire(p);
    let_one_expire(p);
    struct slice slice;
    struct record dead = later_record(p->rig, "%DLQ%g", 0, 0, &slice);
    assert_bytes_equal(later_prop(dead.props, "DLQ_ORIGIN_TOPIC"), BYTES("T"));
    counted_drop(slice.owner);
}

/* One waits in each form. */
static void two_wait(struct popper *p)
{
    send_to(p, 0, "first");
    let_one_expire(p);
    restart(p, true, false);
    send_to(p, 0, "second");
    let_one_expire(p);
    assert_int_equal(later_count(p->rig, "%RETRY%g_T", 0), 1);
    assert_int_equal(later_count(p->rig, "%RETRY%g+T", 0), 1);
}

static void both_are_looked_at(void **state)
{
    struct popper *p = *state;
    two_wait(p);
    restart(p, true, true);
    assert_int_equal(pop_count(p, "g", "T", 32, 1000), 2);
}

static void the_first_only_if_it_is_wanted(void **state)
{
    struct popper *p = *state;
    two_wait(p);
    assert_int_equal(pop_count(p, "g", "T", 32, 1000), 1);
    assert_string_equal(p->held[0].body, "second");
    bool found;
    uint32_t waiting;
    struct pop pop = pop_wish("g", "T", 32, 1000);
    assert_int_equal(broker_pop_look(p->rig->broker, &pop, &found, &waiting, NULL), OK);
    assert_false(found);
}

/* Apache's broker leaves them where they are. */
static void the_second_also_when_it_is_switched_off_again(void **state)
{
    struct popper *p = *state;
    two_wait(p);
    restart(p, false, true);
    assert_int_equal(pop_count(p, "g", "T", 32, 1000), 2);
}

static void a_deleted_topic_takes_both_along(void **state)
{
    struct popper *p = *state;
    two_wait(p);
    rig_topic_put(p->rig, "%RETRY%other_T", 1, PERM_READ | PERM_WRITE); /* nobody has read T so */
    assert_int_equal(broker_topic_delete(p->rig->broker, BYTES("T"), NULL), OK);
    room_enter(&p->rig->broker->room);
    assert_null(topic_find(p->rig->broker, BYTES("%RETRY%g_T")));
    assert_null(topic_find(p->rig->broker, BYTES("%RETRY%g+T")));
    assert_non_null(topic_find(p->rig->broker, BYTES("%RETRY%other_T")));
    room_leave(&p->rig->broker->room);
}

struct waiter {
    struct hold hold;
    int woken;
};

static void waiter_wake(struct hold *hold)
{
    list_entry(hold, struct waiter, hold)->woken++;
}

static void who_waits_is_woken_by_either(void **state)
{
    struct popper *p = *state;
    for (int v2 = 0; v2 < 2; v2++) {
        restart(p, v2, true);
        send_to(p, 0, "x");
        assert_int_equal(pop_count(p, "g", "T", 1, 1000), 1);
        struct waiter w = {.hold.wake = waiter_wake};
        struct pop pop = pop_wish("g", "T", 1, 1000);
        uint64_t until_ns = clock_ns(p->rig->broker->clock) + UINT64_C(60) * 1000000000;
        assert_int_equal(broker_pop_hold(p->rig->broker, &pop, &w.hold, until_ns), OK);
        clock_manual_advance(&p->rig->clock, 1001);
        assert_int_equal(pop_turn(p->rig), 1);
        broker_dispatch_turn(p->rig->broker);
        assert_int_equal(w.woken, 1);
        assert_int_equal(pop_count(p, "g", "T", 1, 1000), 1);
        assert_int_equal(pop_ack(p, "g", &p->held[0]), OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pop_case(the_second_form_has_its_own_topic),
        pop_case(its_tries_end_in_the_dead_letters),
        pop_case(both_are_looked_at),
        pop_case(the_first_only_if_it_is_wanted),
        pop_case(the_second_also_when_it_is_switched_off_again),
        pop_case(a_deleted_topic_takes_both_along),
        pop_case(who_waits_is_woken_by_either),
    };
    return cmocka_run_group_tests_name("broker/pop_retry", tests, NULL, NULL);
}
