/* Waiting readers: woken by a message or by time, once, and never forgotten. */
#include "broker/crash_test.h"

#include <pthread.h>

struct reader {
    struct hold hold;
    atomic_int woken;
};

static void reader_wake(struct hold *hold)
{
    atomic_fetch_add(&list_entry(hold, struct reader, hold)->woken, 1);
}

/* A reader at `offset` of queue 0 of topic T, wanting `expression`. */
static void reader_init(struct rig *rig, struct reader *r, int64_t offset, const char *expression)
{
    *r = (struct reader){.hold = {.offset = offset, .wake = reader_wake}};
    r->hold.queue = store_queue(rig->store, BYTES("T"), 0);
    assert_non_null(r->hold.queue);
    bool sql = strchr(expression, '=');
    assert_int_equal(filter_make(&rig->broker->filters, bytes_str(expression),
                                 sql ? BYTES("SQL92") : BYTES("TAG"), &r->hold.filter, NULL),
                     OK);
}

static void reader_clear(struct reader *r)
{
    filter_drop(take(&r->hold.filter));
}

static void a_message_wakes_its_readers_once(void **state)
{
    struct rig *rig = *state;
    struct reader all, other_tag, same_tag, later, elsewhere;
    reader_init(rig, &all, 0, "*");
    reader_init(rig, &other_tag, 0, "B || C");
    reader_init(rig, &same_tag, 0, "A || B");
    reader_init(rig, &later, 1, "*");
    reader_init(rig, &elsewhere, 0, "*");
    elsewhere.hold.queue = store_queue(rig->store, BYTES("T"), 1);
    struct reader *each[] = {&all, &other_tag, &same_tag, &later, &elsewhere};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(broker_hold(rig->broker, &each[i]->hold, 15000), OK);
    assert_int_equal(rig->broker->n_holds, 5);

    rig_send(rig, "T", "A", "x");
    assert_int_equal(all.woken, 1);
    assert_int_equal(same_tag.woken, 1);
    assert_int_equal(other_tag.woken, 0);
    assert_int_equal(later.woken, 0);
    assert_int_equal(elsewhere.woken, 0);
    assert_int_equal(rig->broker->n_holds, 3);

    rig_send(rig, "T", "B", "x");
    assert_int_equal(other_tag.woken, 1);
    assert_int_equal(later.woken, 1);
    assert_int_equal(elsewhere.woken, 0);
    clock_manual_advance(&rig->clock, 60000);
    broker_hold_turn(rig->broker);
    assert_int_equal(elsewhere.woken, 1);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(each[i]->woken, 1);
        reader_clear(each[i]);
    }
    assert_int_equal(rig->broker->n_holds, 0);
}

/* Only the last tag of several arrivals is known, so the reader is sent to look. */
static void several_messages_at_once_wake_whatever_the_tag(void **state)
{
    struct rig *rig = *state;
    struct reader r;
    reader_init(rig, &r, 0, "A");
    assert_int_equal(broker_hold(rig->broker, &r.hold, 15000), OK);
    struct produce both[2] = {rig_message("T", "x"), rig_message("T", "y")};
    both[0].props = BYTES("TAGS\1A\2");
    both[1].props = BYTES("TAGS\1B\2");
    uint64_t end;
    broker_produce(rig->broker, rig->desk, both, 2, &end);
    assert_int_equal(r.woken, 0); /* not before it can be read */
    broker_dispatch_turn(rig->broker);
    assert_int_equal(r.woken, 1);
    reader_clear(&r);
}

/* Whether an expression takes a message is for the reader to find out; it may then wait on, behind
 * what it has seen and no longer than it said at first. */
static void a_reader_that_finds_nothing_waits_on(void **state)
{
    struct rig *rig = *state;
    struct reader r;
    reader_init(rig, &r, 0, "a = 5");
    assert_int_equal(broker_hold(rig->broker, &r.hold, 15000), OK);
    clock_manual_advance(&rig->clock, 10000);
    rig_send(rig, "T", "A", "x");
    assert_int_equal(r.woken, 1);
    assert_int_equal(broker_hold_again(rig->broker, &r.hold), ERR_STALE); /* still at 0 */
    r.hold.offset = 1;
    assert_int_equal(broker_hold_again(rig->broker, &r.hold), OK);
    rig_send(rig, "T", "B", "x");
    assert_int_equal(r.woken, 2);
    r.hold.offset = 2;
    assert_int_equal(broker_hold_again(rig->broker, &r.hold), OK);
    clock_manual_advance(&rig->clock, 4999);
    broker_hold_turn(rig->broker);
    assert_int_equal(r.woken, 2);
    clock_manual_advance(&rig->clock, 1);
    broker_hold_turn(rig->broker);
    assert_int_equal(r.woken, 3);
    assert_int_equal(broker_hold_again(rig->broker, &r.hold), ERR_TIMEOUT);
    assert_int_equal(rig->broker->n_holds, 0);
    reader_clear(&r);
}

static void what_is_there_already_is_not_waited_for(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, "T", "", "x");
    struct reader r;
    reader_init(rig, &r, 0, "*");
    assert_int_equal(broker_hold(rig->broker, &r.hold, 15000), ERR_STALE);
    assert_false(broker_unhold(rig->broker, &r.hold));
    reader_init(rig, &r, 1, "*");
    assert_int_equal(broker_hold(rig->broker, &r.hold, 15000), OK);
    assert_true(broker_unhold(rig->broker, &r.hold));
    assert_int_equal(r.woken, 0);
}

/* Deadlines of all lengths, looked at in steps: none before its time, none long after. */
static void time_wakes_each_reader_at_its_own_deadline(void **state)
{
    struct rig *rig = *state;
    enum { N = 60, STEP_MS = 50 };
    struct reader *r = calloc(N, sizeof *r);
    assert_non_null(r);
    for (int i = 0; i < N; i++) {
        reader_init(rig, &r[i], 0, "*");
        assert_int_equal(broker_hold(rig->broker, &r[i].hold, (uint64_t)i * 1537), OK);
    }
    for (int64_t ms = 0; ms <= N * 1537; ms += STEP_MS) {
        broker_hold_turn(rig->broker);
        for (int64_t i = 0; i < N; i++)
            assert_int_equal(r[i].woken, i * 1537 <= ms);
        clock_manual_advance(&rig->clock, STEP_MS);
    }
    assert_int_equal(rig->broker->n_holds, 0);
    free(r);
}

static void a_long_pause_between_turns_wakes_all_that_are_due(void **state)
{
    struct rig *rig = *state;
    struct reader r[3];
    static const uint64_t waits[] = {10, 100000, 100001};
    for (int i = 0; i < 3; i++) {
        reader_init(rig, &r[i], 0, "*");
        assert_int_equal(broker_hold(rig->broker, &r[i].hold, waits[i]), OK);
    }
    clock_manual_advance(&rig->clock, 100000);
    broker_hold_turn(rig->broker);
    assert_int_equal(r[0].woken, 1);
    assert_int_equal(r[1].woken, 1);
    assert_int_equal(r[2].woken, 0);
    clock_manual_advance(&rig->clock, 1);
    broker_hold_turn(rig->broker);
    assert_int_equal(r[2].woken, 1);
}

static void who_gave_up_waiting_is_not_woken(void **state)
{
    struct rig *rig = *state;
    struct reader r;
    reader_init(rig, &r, 0, "*");
    assert_int_equal(broker_hold(rig->broker, &r.hold, 1000), OK);
    assert_true(broker_unhold(rig->broker, &r.hold));
    assert_false(broker_unhold(rig->broker, &r.hold));
    rig_send(rig, "T", "", "x");
    clock_manual_advance(&rig->clock, 5000);
    broker_hold_turn(rig->broker);
    assert_int_equal(r.woken, 0);
    reader_init(rig, &r, 1, "*"); /* the same memory may wait again */
    assert_int_equal(broker_hold(rig->broker, &r.hold, 1000), OK);
    rig_send(rig, "T", "", "y");
    assert_int_equal(r.woken, 1);
    assert_false(broker_unhold(rig->broker, &r.hold));
}

static void only_so_many_may_wait(void **state)
{
    struct rig *rig = *state;
    rig->options.max_holds = 2;
    rig_again(rig);
    struct reader r[3];
    for (int i = 0; i < 3; i++) {
        reader_init(rig, &r[i], 0, "*");
        assert_int_equal(broker_hold(rig->broker, &r[i].hold, 1000), i < 2 ? OK : ERR_BUSY);
    }
    assert_true(broker_unhold(rig->broker, &r[0].hold));
    assert_int_equal(broker_hold(rig->broker, &r[2].hold, 1000), OK);
    rig_send(rig, "T", "", "x");
    assert_int_equal(r[1].woken + r[2].woken, 2);
}

static void the_wait_is_short_where_long_polling_is_off_and_never_endless(void **state)
{
    struct rig *rig = *state;
    struct reader r;
    reader_init(rig, &r, 0, "*");
    assert_int_equal(broker_hold(rig->broker, &r.hold, UINT64_MAX), OK);
    clock_manual_advance(&rig->clock, HOLD_MAX_MS);
    broker_hold_turn(rig->broker);
    assert_int_equal(r.woken, 1);

    rig->options.long_polling = false;
    rig_again(rig);
    reader_init(rig, &r, 0, "*");
    assert_int_equal(broker_hold(rig->broker, &r.hold, 15000), OK);
    clock_manual_advance(&rig->clock, 999);
    broker_hold_turn(rig->broker);
    assert_int_equal(r.woken, 0);
    clock_manual_advance(&rig->clock, 1);
    broker_hold_turn(rig->broker);
    assert_int_equal(r.woken, 1);
}

/* ---- many threads ---- */

enum { MESSAGES = 3000, READERS = 3 };

struct race {
    struct rig *rig;
    atomic_bool done;
    atomic_int lost;
};

static void *race_produce(void *arg)
{
    struct race *race = arg;
    for (int i = 0; i < MESSAGES; i++) {
        struct produce r = rig_message("T", "x");
        if (rig_produce(race->rig, &r) != OK)
            abort();
        broker_dispatch_turn(race->rig->broker);
    }
    atomic_store(&race->done, true);
    return NULL;
}

/* Reads message after message, waiting for each that is not there yet. No deadline is ever reached,
 * as the clock stands still: a wake-up that is lost shows as a reader that never ends. */
static void *race_read(void *arg)
{
    struct race *race = arg;
    struct rig *rig = race->rig;
    unsigned spins = 0;
    for (int64_t offset = 0; offset < MESSAGES;) {
        struct reader r;
        reader_init(rig, &r, offset, "*");
        enum err err = broker_hold(rig->broker, &r.hold, 15000);
        if (err == OK && (offset * 7 + (int64_t)spins) % 5 == 0 &&
            broker_unhold(rig->broker, &r.hold)) {
            spins++;
            continue; /* gave up, and comes back */
        }
        for (int i = 0; err == OK && !atomic_load(&r.woken); i++) {
            usleep(20);
            if (i > 500000) { /* ten seconds */
                atomic_fetch_add(&race->lost, 1);
                (void)broker_unhold(rig->broker, &r.hold);
                return NULL;
            }
        }
        struct pull pull = rig_pull("g", "T", offset);
        struct pulled got;
        if (broker_pull(rig->broker, &pull, &got, NULL) != OK || got.read.status != READ_FOUND)
            abort();
        offset = got.read.next;
        rig_drop(&got.read);
    }
    return NULL;
}

static void *race_time(void *arg)
{
    struct race *race = arg;
    while (!atomic_load(&race->done)) {
        broker_hold_turn(race->rig->broker);
        broker_client_turn(race->rig->broker);
        usleep(100);
    }
    return NULL;
}

static void no_arrival_is_missed_between_looking_and_waiting(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "T", 1, PERM_READ | PERM_WRITE);
    struct race race = {.rig = rig};
    pthread_t producer, timer, readers[READERS];
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, race_read, &race), 0);
    assert_int_equal(pthread_create(&timer, NULL, race_time, &race), 0);
    assert_int_equal(pthread_create(&producer, NULL, race_produce, &race), 0);
    assert_int_equal(pthread_join(producer, NULL), 0);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(readers[i], NULL), 0);
    assert_int_equal(pthread_join(timer, NULL), 0);
    assert_int_equal(race.lost, 0);
    assert_int_equal(rig->broker->n_holds, 0);
}

/* ---- what was answered can be read ---- */

struct answers {
    struct rig *rig;
    struct queue *queue;
    _Atomic int64_t answered; /* the offset of the last message whose producer knows of it */
    atomic_int unseen;
};

/* As the door does it: the answer first, then the dispatch. */
static void *answers_produce(void *arg)
{
    struct answers *a = arg;
    for (int i = 0; i < MESSAGES; i++) {
        struct produce r = rig_message("T", "x");
        if (rig_produce(a->rig, &r) != OK)
            abort();
        atomic_store(&a->answered, r.queue_offset);
        broker_dispatch_turn(a->rig->broker);
    }
    return NULL;
}

static void *answers_ask(void *arg)
{
    struct answers *a = arg;
    for (int64_t known = -1; known < MESSAGES - 1;) {
        known = atomic_load(&a->answered);
        broker_catch_up(a->rig->broker);
        if (queue_max(a->queue) <= known)
            atomic_fetch_add(&a->unseen, 1);
    }
    return NULL;
}

static void what_was_answered_is_there_for_whoever_asks_next(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "T", 1, PERM_READ | PERM_WRITE);
    struct answers a = {.rig = rig, .queue = store_queue(rig->store, BYTES("T"), 0)};
    assert_non_null(a.queue);
    atomic_store(&a.answered, -1);
    struct produce first = rig_message("T", "x");
    assert_int_equal(rig_produce(rig, &first), OK);
    assert_int_equal(queue_max(a.queue), 0); /* nobody dispatches by itself */
    broker_catch_up(rig->broker);
    assert_int_equal(queue_max(a.queue), 1);

    pthread_t producer, askers[READERS];
    assert_int_equal(pthread_create(&producer, NULL, answers_produce, &a), 0);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&askers[i], NULL, answers_ask, &a), 0);
    assert_int_equal(pthread_join(producer, NULL), 0);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(askers[i], NULL), 0);
    assert_int_equal(a.unseen, 0);
}

/* The queue's file cannot be written: each who asks has that tried once more, not a thousand times,
 * and is answered with what there is. When there is room again, the next one sees it all. */
static void who_asks_of_a_stuck_store_is_answered_soon(void **state)
{
    struct rig *rig = *state;
    struct vfs_fault *fault = fault_under(rig, 1);
    rig_topic_put(rig, "T", 1, PERM_READ | PERM_WRITE);
    struct queue *queue = store_queue(rig->store, BYTES("T"), 0);
    assert_non_null(queue);
    for (int i = 0; i < 300; i++) { /* more than stay on a shelf */
        struct produce r = rig_message("T", "x");
        assert_int_equal(rig_produce(rig, &r), OK);
    }
    vfs_fault_plan(fault, 1, ULONG_MAX, ERR_DISK_FULL);
    broker_catch_up(rig->broker);
    unsigned long once = fault->operations;
    assert_in_range(once, 1, 10);
    assert_int_equal(queue_max(queue), 0);
    broker_catch_up(rig->broker);
    assert_int_equal(fault->operations, 2 * once);
    vfs_fault_plan(fault, 0, 0, OK);
    broker_catch_up(rig->broker);
    assert_int_equal(queue_max(queue), 300);
    fault_over(rig, fault);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(a_message_wakes_its_readers_once),
        rig_test(several_messages_at_once_wake_whatever_the_tag),
        rig_test(a_reader_that_finds_nothing_waits_on),
        rig_test(what_is_there_already_is_not_waited_for),
        rig_test(time_wakes_each_reader_at_its_own_deadline),
        rig_test(a_long_pause_between_turns_wakes_all_that_are_due),
        rig_test(who_gave_up_waiting_is_not_woken),
        rig_test(only_so_many_may_wait),
        rig_test(the_wait_is_short_where_long_polling_is_off_and_never_endless),
        rig_test(no_arrival_is_missed_between_looking_and_waiting),
        rig_test(what_was_answered_is_there_for_whoever_asks_next),
        rig_test(who_asks_of_a_stuck_store_is_answered_soon),
    };
    return cmocka_run_group_tests_name("broker/hold", tests, NULL, NULL);
}
