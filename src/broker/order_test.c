/* Queue locks of groups: who gets them, for how long, and that there are not too many. */
#include "broker/rig_test.h"

static bool lock_one(struct rig *rig, const char *group, const char *client, const char *topic,
                     int32_t queue_id)
{
    struct lock_wish wish = {.topic = bytes_str(topic), .queue_id = queue_id};
    assert_int_equal(broker_lock(rig->broker, bytes_str(group), bytes_str(client), &wish, 1, NULL),
                     OK);
    return wish.granted;
}

static void unlock_one(struct rig *rig, const char *group, const char *client, const char *topic,
                       int32_t queue_id)
{
    struct lock_wish wish = {.topic = bytes_str(topic), .queue_id = queue_id};
    assert_int_equal(
        broker_unlock(rig->broker, bytes_str(group), bytes_str(client), &wish, 1, NULL), OK);
}

static bool group_in_order(struct rig *rig, const char *group)
{
    room_enter(&rig->broker->room);
    bool any = locks_any(rig->broker, bytes_str(group));
    room_leave(&rig->broker->room);
    return any;
}

static void one_client_of_a_group_has_a_queue(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "T", 4, PERM_READ | PERM_WRITE);
    assert_true(lock_one(rig, "g", "one", "T", 0));
    assert_false(lock_one(rig, "g", "two", "T", 0));
    assert_true(lock_one(rig, "g", "two", "T", 1));
    assert_true(lock_one(rig, "h", "two", "T", 0)); /* another group, another lock */
}

static void the_same_client_renews(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "T", 4, PERM_READ | PERM_WRITE);
    for (int i = 0; i < 10; i++) {
        assert_true(lock_one(rig, "g", "one", "T", 0));
        assert_false(lock_one(rig, "g", "two", "T", 0));
        clock_manual_advance(&rig->clock, 59000);
    }
    assert_int_equal(rig->broker->n_locks, 1);
}

/* Exactly 60 s is still held, as with Apache's comparison. */
static void a_lock_ends_after_sixty_seconds_of_silence(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "T", 4, PERM_READ | PERM_WRITE);
    assert_true(lock_one(rig, "g", "one", "T", 0));
    clock_manual_advance(&rig->clock, 60000);
    assert_false(lock_one(rig, "g", "two", "T", 0));
    assert_true(group_in_order(rig, "g"));
    clock_manual_advance(&rig->clock, 1);
    assert_true(lock_one(rig, "g", "two", "T", 0));
    assert_false(lock_one(rig, "g", "one", "T", 0));
}

static void only_the_owner_unlocks(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "T", 4, PERM_READ | PERM_WRITE);
    assert_true(lock_one(rig, "g", "one", "T", 0));
    unlock_one(rig, "g", "two", "T", 0);
    assert_false(lock_one(rig, "g", "two", "T", 0));
    unlock_one(rig, "g", "one", "T", 0);
    assert_false(group_in_order(rig, "g"));
    assert_true(lock_one(rig, "g", "two", "T", 0));
    unlock_one(rig, "nobody", "one", "T", 0);
    unlock_one(rig, "g", "two", "Unknown", 7);
}

static void what_does_not_exist_is_not_locked(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "T", 4, PERM_READ | PERM_WRITE);
    assert_false(lock_one(rig, "g", "one", "Unknown", 0));
    assert_false(lock_one(rig, "g", "one", "T", 4));
    assert_false(lock_one(rig, "g", "one", "T", -1));
    assert_false(lock_one(rig, "g", "one", "", 0));
    assert_int_equal(rig->broker->n_locks, 0);
    assert_int_equal(rig->broker->lock_groups.n, 0);
}

static void forgotten_locks_are_let_go_by_the_turn(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "T", 64, PERM_READ | PERM_WRITE);
    for (int32_t q = 0; q < 64; q++)
        assert_true(lock_one(rig, q % 2 ? "g" : "h", "one", "T", q));
    clock_manual_advance(&rig->clock, 60001);
    broker_client_turn(rig->broker);
    assert_int_equal(rig->broker->n_locks, 0);
    assert_int_equal(rig->broker->lock_groups.n, 0);
}

static void odd_names_and_too_many_at_once_are_refused(void **state)
{
    struct rig *rig = *state;
    char long_name[400];
    memset(long_name, 'x', sizeof long_name);
    struct bytes too_long = bytes_of(long_name, 300);
    struct fault why = {0};
    struct lock_wish wish = {.topic = too_long};
    assert_int_equal(broker_lock(rig->broker, too_long, BYTES("c"), &wish, 1, &why), ERR_INVALID);
    assert_int_equal(broker_lock(rig->broker, BYTES("g"), too_long, &wish, 1, &why), ERR_INVALID);
    assert_int_equal(broker_lock(rig->broker, BYTES("g"), BYTES(""), &wish, 1, &why), ERR_INVALID);
    assert_int_equal(broker_lock(rig->broker, BYTES("g"), BYTES("c"), &wish, 1, &why), OK);
    assert_false(wish.granted);

    struct lock_wish *many = calloc(LOCK_BATCH_MAX + 1, sizeof *many);
    assert_int_equal(
        broker_lock(rig->broker, BYTES("g"), BYTES("c"), many, LOCK_BATCH_MAX + 1, &why),
        ERR_INVALID);
    assert_non_null(strstr(why.text, "16385 queues"));
    assert_int_equal(broker_lock(rig->broker, BYTES("g"), BYTES("c"), many, LOCK_BATCH_MAX, &why),
                     OK);
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(one_client_of_a_group_has_a_queue),
        rig_test(the_same_client_renews),
        rig_test(a_lock_ends_after_sixty_seconds_of_silence),
        rig_test(only_the_owner_unlocks),
        rig_test(what_does_not_exist_is_not_locked),
        rig_test(forgotten_locks_are_let_go_by_the_turn),
        rig_test(odd_names_and_too_many_at_once_are_refused),
    };
    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
