/* Delay levels: when messages come, what they look like, and that none is lost on the way. */
#include "broker/crash_test.h"
#include "broker/disk_test.h"
#include "broker/later_test.h"

#define SCHEDULE "SCHEDULE_TOPIC_XXXX"

static const int64_t ladder_s[] = {1,   5,   10,  30,  60,  120,  180,  240,  300,
                                   360, 420, 480, 540, 600, 1200, 1800, 3600, 7200};

static void DE_1_level_3_arrives_after_ten_seconds_and_not_before(void **state)
{
    struct rig *rig = *state;
    struct produce r = later_level(rig, "T", 3, "x");
    assert_int_equal(r.stored_queue_id, 0);
    assert_int_equal(r.queue_offset, 0); /* in the queue of its level, as Apache answers */
    assert_int_equal(later_turn(rig), 0);
    clock_manual_advance(&rig->clock, 9999);
    struct service_turn turn;
    broker_delay_turn(rig->broker, &turn);
    assert_int_equal(turn.done, 0);
    assert_int_equal(turn.next_ms, 1);
    assert_int_equal(later_count(rig, "T", 0), 0);
    clock_manual_advance(&rig->clock, 1);
    assert_int_equal(later_turn(rig), 1);
    assert_int_equal(later_count(rig, "T", 0), 1);
    clock_manual_advance(&rig->clock, 100000);
    assert_int_equal(later_turn(rig), 0);
}

/* Every level at its time; what is above the ladder is its last level. */
static void each_level_has_its_own_delay(void **state)
{
    struct rig *rig = *state;
    for (int level = 1; level <= 18; level++)
        later_level(rig, "T", level, "x");
    later_level(rig, "T", 99, "y");
    int64_t passed = 0;
    for (int i = 0; i < 18; i++) {
        clock_manual_advance(&rig->clock, ladder_s[i] * 1000 - passed - 1);
        assert_int_equal(later_turn(rig), 0);
        clock_manual_advance(&rig->clock, 1);
        assert_int_equal(later_turn(rig), i == 17 ? 2 : 1);
        passed = ladder_s[i] * 1000;
    }
    struct slice got;
    struct record record = later_record(rig, SCHEDULE, 17, 1, &got);
    assert_bytes_equal(later_prop(record.props, "DELAY"), BYTES("18"));
    counted_drop(got.owner);
}

/* Field by field what Apache RocketMQ 5.5.0 was seen to store, waiting and delivered. */
static void records_are_as_apache_stores_them(void **state)
{
    struct rig *rig = *state;
    char text[1024];
    static const char wanted[] =
        "CLUSTER=DefaultCluster DELAY=1 KEYS=k1 k2 MSG_REGION=DefaultRegion "
        "REAL_QID=1 REAL_TOPIC=T TAGS=A TRACE_ON=true UNIQ_KEY=7F01 "
        "WAIT=true own=v";
    struct produce r = rig_message("T", "hello");
    r.props = BYTES("KEYS\1k1 k2\2TAGS\1A\2DELAY\1"
                    "1\2own\1v\2UNIQ_KEY\0017F01\2WAIT\1true\2REAL_TOPIC\1Lie\2REAL_QID\1"
                    "7\2TIMER_DELIVER_MS\1"
                    "99\2TIMER_DELAY_SEC\1"
                    "5\2TIMER_DELAY_MS\1"
                    "7\2");
    r.queue_id = 1;
    r.flag = 5;
    r.sys_flag = SYS_COMPRESSED;
    r.reconsume_times = 3;
    assert_int_equal(rig_produce(rig, &r), OK);
    assert_int_equal(r.stored_queue_id, 1);
    broker_dispatch_turn(rig->broker);

    struct slice waits, came;
    struct record w = later_record(rig, SCHEDULE, 0, 0, &waits);
    assert_string_equal(later_props(w.props, text), wanted);
    clock_manual_advance(&rig->clock, 1000);
    assert_int_equal(later_turn(rig), 1);
    struct record c = later_record(rig, "T", 1, 0, &came);
    assert_bytes_equal(c.props, w.props);
    assert_bytes_equal(c.body, BYTES("hello"));
    assert_bytes_equal(c.topic, BYTES("T"));
    assert_int_equal(c.body_crc, w.body_crc);
    assert_int_equal(c.queue_id, 1);
    assert_int_equal(c.flag, 5);
    assert_int_equal(c.sys_flag, SYS_COMPRESSED);
    assert_int_equal(c.reconsume_times, 3);
    assert_int_equal(c.born_ms, START_MS);
    assert_int_equal(c.born_host.port, 4711);
    assert_int_equal(c.store_host.port, 10911);
    assert_int_equal(c.prepared_position, 0);
    assert_int_equal(w.store_ms, START_MS);
    assert_int_equal(c.store_ms, START_MS + 1000);
    counted_drop(waits.owner);
    counted_drop(came.owner);
}

static void a_consumer_that_waits_is_woken(void **state)
{
    struct rig *rig = *state;
    later_level(rig, "T", 1, "x");
    struct pull pull = rig_pull("g", "T", 0);
    struct pulled got;
    clock_manual_advance(&rig->clock, 1000);
    assert_int_equal(later_turn(rig), 1);
    assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), OK);
    assert_int_equal(got.read.status, READ_FOUND);
    rig_drop(&got.read);
}

/* Permissions and queues of the real topic are looked at when the message is sent. */
static void a_delay_is_no_way_around_a_refusal(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "readonly", 1, PERM_READ);
    struct produce r = rig_message("readonly", "x");
    r.props = BYTES("DELAY\1"
                    "1\2");
    assert_int_equal(rig_produce(rig, &r), ERR_DENIED);
    r.topic = BYTES("T");
    r.queue_id = 4;
    assert_int_equal(rig_produce(rig, &r), ERR_INVALID);
    assert_int_equal(store_confirmed(rig->store), 0);
}

/* 5,000 in one second over three levels. The clock goes in small steps, and each must come in the
 * first step after its time. */
static void none_of_5000_is_early_or_late(void **state)
{
    struct rig *rig = *state;
    enum { N = 5000, STEP = 20 };
    struct slice got;
    for (int i = 0; i < N; i++) {
        later_level(rig, "T", 1 + i % 3, "x");
        if (i % 5 == 4)
            clock_manual_advance(&rig->clock, 1);
    }
    for (int ms = 0; ms < 12000; ms += STEP) {
        later_turn(rig);
        clock_manual_advance(&rig->clock, STEP);
    }
    assert_int_equal(later_count(rig, "T", 0), N);
    int64_t next[3] = {0};
    for (int64_t i = 0; i < N; i++) { /* the n-th of a level is the n-th of its queue */
        struct record came = later_record(rig, "T", 0, i, &got);
        int32_t level;
        assert_true(bytes_to_i32(later_prop(came.props, "DELAY"), &level));
        struct slice waits;
        struct record waited = later_record(rig, SCHEDULE, level - 1, next[level - 1]++, &waits);
        assert_bytes_equal(later_prop(came.props, "UNIQ_KEY"),
                           later_prop(waited.props, "UNIQ_KEY"));
        int64_t late = came.store_ms - waited.store_ms - ladder_s[level - 1] * 1000;
        assert_in_range(late, 0, STEP);
        counted_drop(got.owner);
        counted_drop(waits.owner);
    }
}

/* RT-6: another ladder is another delay, and it ends where it ends. */
static void RT_6_the_ladder_can_be_changed(void **state)
{
    struct rig *rig = *state;
    static const int64_t two[] = {7000, 20000};
    rig->delays_ms = two;
    rig->n_delays = 2;
    rig_again(rig);
    later_level(rig, "T", 1, "x");
    later_level(rig, "T", 3, "y");
    clock_manual_advance(&rig->clock, 6999);
    assert_int_equal(later_turn(rig), 0);
    clock_manual_advance(&rig->clock, 1);
    assert_int_equal(later_turn(rig), 1);
    clock_manual_advance(&rig->clock, 12999);
    assert_int_equal(later_turn(rig), 0);
    clock_manual_advance(&rig->clock, 1);
    assert_int_equal(later_turn(rig), 1);
    assert_int_equal(later_count(rig, SCHEDULE, 1), 1);
}

/* What waits by a longer ladder waits no longer than the new one says, counted from the start, and
 * a level that is no more keeps what it has until it is there again. */
static void a_shorter_ladder_delivers_what_waits(void **state)
{
    struct rig *rig = *state;
    static const int64_t shorter[] = {1000, 2000};
    later_level(rig, "T", 2, "x");
    later_level(rig, "T", 3, "y");
    rig->delays_ms = shorter;
    rig->n_delays = 2;
    rig_again(rig);
    assert_int_equal(later_turn(rig), 0);
    clock_manual_advance(&rig->clock, 1999);
    assert_int_equal(later_turn(rig), 0);
    clock_manual_advance(&rig->clock, 1);
    assert_int_equal(later_turn(rig), 1);
    clock_manual_advance(&rig->clock, 20000);
    assert_int_equal(later_turn(rig), 0);
    rig->n_delays = 0;
    rig_again(rig);
    assert_int_equal(later_turn(rig), 1);
}

/* The wall clock goes back by an hour: what was stored before waits for as long as its level says,
 * neither for an hour nor for nothing; so does what is stored meanwhile. */
static void a_clock_that_goes_back_makes_nothing_early(void **state)
{
    struct rig *rig = *state;
    later_level(rig, "T", 3, "before");
    atomic_fetch_sub(&rig->clock.wall_ms, 3600 * 1000);
    assert_int_equal(later_turn(rig), 0);
    clock_manual_advance(&rig->clock, 5000);
    later_level(rig, "T", 3, "after");
    assert_int_equal(later_turn(rig), 0);
    clock_manual_advance(&rig->clock, 4999);
    assert_int_equal(later_turn(rig), 0);
    clock_manual_advance(&rig->clock, 1);
    assert_int_equal(later_turn(rig), 1);
    clock_manual_advance(&rig->clock, 9999);
    assert_int_equal(later_turn(rig), 0);
    clock_manual_advance(&rig->clock, 1);
    assert_int_equal(later_turn(rig), 1);
}

/* ---- trouble ---- */

static void the_topic_may_be_gone_or_smaller(void **state)
{
    struct rig *rig = *state;
    struct produce r = rig_message("T", "x");
    r.props = BYTES("DELAY\1"
                    "1\2");
    r.queue_id = 3;
    assert_int_equal(rig_produce(rig, &r), OK);
    broker_dispatch_turn(rig->broker);
    rig_topic_put(rig, "T", 1, PERM_READ);
    clock_manual_advance(&rig->clock, 1000);
    assert_int_equal(later_turn(rig), 1);
    assert_int_equal(later_count(rig, "T", 3), 1);
}

/* Records that somebody else made: without a place to go, or with one that cannot be or that no
 * client may send to. */
static void a_record_that_belongs_nowhere_is_passed_over(void **state)
{
    struct rig *rig = *state;
    static const char *const bad[] = {
        "DELAY\0011\2",
        "DELAY\0011\2REAL_TOPIC\1T\2",
        "DELAY\0011\2REAL_TOPIC\1T\2REAL_QID\1x\2",
        "DELAY\0011\2REAL_TOPIC\1T\2REAL_QID\1-1\2",
        "DELAY\0011\2REAL_TOPIC\1T\2REAL_QID\00199999999\2",
        "DELAY\0011\2REAL_TOPIC\1SCHEDULE_TOPIC_XXXX\2REAL_QID\0010\2",
        "DELAY\0011\2REAL_TOPIC\1RMQ_SYS_TRANS_HALF_TOPIC\2REAL_QID\0010\2",
        "DELAY\0011\2REAL_TOPIC\1RMQ_SYS_TRANS_OP_HALF_TOPIC\2REAL_QID\0010\2",
        "DELAY\0011\2REAL_TOPIC\1rmq_sys_ONCE_LEDGER\2REAL_QID\0010\2",
        "DELAY\0011\2REAL_TOPIC\1rmq_sys_wheel_timer\2REAL_QID\0010\2",
        "DELAY\0011\2REAL_TOPIC\1../../x\2REAL_QID\0010\2",
    };
    enum { N = sizeof bad / sizeof *bad };
    struct draft drafts[N];
    struct stored stored[N];
    uint64_t end;
    for (size_t i = 0; i < N; i++)
        drafts[i] = (struct draft){
            .queue = store_queue(rig->store, SCHEDULE_TOPIC, 0),
            .topic = SCHEDULE_TOPIC,
            .props = bytes_str(bad[i]),
            .born_host = rig->options.host,
            .store_host = rig->options.host,
        };
    assert_int_equal(store_append(rig->store, drafts, N, stored, &end), OK);
    later_level(rig, "T", 1, "good");
    clock_manual_advance(&rig->clock, 1000);
    struct service_turn turn;
    broker_delay_turn(rig->broker, &turn);
    assert_int_equal(turn.skipped, N);
    assert_int_equal(turn.done, 1);
    assert_int_equal(later_count(rig, "T", 0), 1);
}

/* The store takes nothing: nothing is lost, it is tried again, and then all of it comes once. */
static void a_disk_that_fails_puts_it_off(void **state)
{
    struct rig *rig = *state;
    rig->store_vfs = disk_over(rig->vfs);
    rig_again(rig);
    for (int i = 0; i < 10; i++)
        later_level(rig, "T", 1 + i % 2, "x");
    clock_manual_advance(&rig->clock, 5000);
    disk.left = 0;
    struct service_turn turn;
    broker_delay_turn(rig->broker, &turn);
    assert_int_equal(turn.done, 0);
    assert_int_equal(turn.err, ERR_IO);
    assert_non_null(strstr(turn.why.text, "level"));
    broker_delay_turn(rig->broker, &turn);
    assert_int_equal(turn.err, ERR_IO); /* still so, without trying */
    assert_true(turn.next_ms > 0);
    disk.left = -1;
    clock_manual_advance(&rig->clock, 1000);
    assert_int_equal(later_turn(rig), 10);
    assert_int_equal(later_count(rig, "T", 0), 10);
}

/* maxMessageSize was lowered: the message stays where it is, the other levels go on. */
static void a_level_that_is_stuck_does_not_hold_up_others(void **state)
{
    struct rig *rig = *state;
    char big[3000];
    memset(big, 'b', sizeof big - 1);
    big[sizeof big - 1] = 0;
    later_level(rig, "T", 1, "first");
    later_level(rig, "T", 1, big);
    later_level(rig, "T", 1, "behind");
    later_level(rig, "T", 2, "other");
    rig->options.max_message_size = 2000;
    rig_again(rig);
    clock_manual_advance(&rig->clock, 5000);
    struct service_turn turn;
    broker_delay_turn(rig->broker, &turn);
    assert_int_equal(turn.done, 2);
    assert_int_equal(turn.err, ERR_TOO_BIG);
    assert_non_null(strstr(turn.why.text, "maxMessageSize"));
    rig->options.max_message_size = 4000;
    rig_again(rig);
    assert_int_equal(later_turn(rig), 2);
    assert_int_equal(later_count(rig, "T", 0), 4);
}

/* ---- stopping and starting ---- */

static void a_restart_delivers_each_once(void **state)
{
    struct rig *rig = *state;
    for (int no_index = 0; no_index <= 1; no_index++) {
        rig->no_index = no_index;
        rig_again(rig);
        int64_t before = later_count(rig, "T", 0);
        for (int i = 0; i < 30; i++) {
            later_level(rig, "T", 1 + i % 3, "x");
            clock_manual_advance(&rig->clock, 100);
        }
        for (int i = 0; i < 15; i++) {
            later_turn(rig);
            rig_again(rig);
            clock_manual_advance(&rig->clock, 1000);
        }
        assert_int_equal(later_count(rig, "T", 0), before + 30);
    }
}

/* A table whose numbers are not in the queues: Apache's corrections. */
static void offsets_are_brought_into_the_bounds(void **state)
{
    struct rig *rig = *state;
    later_level(rig, "T", 1, "x");
    rig_stop(rig);
    struct fault why = {0};
    assert_int_equal(vfs_replace(rig->vfs, "config/delayOffset.json",
                                 BYTES("{\"offsetTable\":{1:999,40:3}}"), NULL),
                     OK);
    assert_int_equal(rig_start(rig, &why), OK);
    clock_manual_advance(&rig->clock, 1000);
    assert_int_equal(later_turn(rig), 0); /* beyond the end: as if all had been delivered */
    later_level(rig, "T", 1, "y");
    clock_manual_advance(&rig->clock, 1000);
    assert_int_equal(later_turn(rig), 1);
    rig_again(rig);
    assert_int_equal(rig->broker->delay_saved[0], 2);
    assert_int_equal(rig->broker->delay_saved[39], 3); /* of a level that this ladder has not */
}

/* ---- crashes ---- */

/* The process ends between deliveries and the save of the table. With an index nobody gets a
 * message twice; without, nobody misses one. */
static void a_crash_loses_nothing_and_repeats_nothing_that_can_be_found(void **state)
{
    struct rig *rig = *state;
    for (int no_index = 0; no_index <= 1; no_index++) {
        rig->no_index = no_index;
        struct vfs_fault *fault = fault_under(rig, 1);
        int64_t before = later_count(rig, "T", 0);
        for (int i = 0; i < 40; i++)
            later_level(rig, "T", 1 + i % 4, "x");
        for (int i = 0; i < 8; i++) {
            clock_manual_advance(&rig->clock, 5000);
            struct service_turn turn;
            broker_delay_turn(rig->broker, &turn);
            if (i % 3 == 0)
                assert_int_equal(broker_save_turn(rig->broker, NULL), OK);
            fault_crash(rig, fault);
            struct fault why = {0};
            assert_int_equal(rig_start(rig, &why), OK);
        }
        later_turn(rig);
        int64_t came = later_count(rig, "T", 0) - before;
        if (no_index)
            assert_in_range(came, 40, 400);
        else
            assert_int_equal(came, 40);
        fault_over(rig, fault);
        struct fault why = {0};
        assert_int_equal(rig_start(rig, &why), OK);
    }
}

#define POWER_SEEDS    25
#define POWER_MESSAGES 60

struct power {
    struct rig *rig;
    struct vfs_fault *fault;
    struct dice dice;
    uint64_t
        ends[POWER_MESSAGES]; /* where each message that waits ends in the log; 0: not stored */
    int n;
};

/* One step of a life; a disk without power is noticed by the next one. */
static void power_step(struct power *p)
{
    struct rig *rig = p->rig;
    char body[16], props[32];
    struct service_turn turn;
    switch (dice_below(&p->dice, 6)) {
    case 0:
    case 1:
        if (p->n == POWER_MESSAGES)
            break;
        snprintf(body, sizeof body, "%d", p->n);
        snprintf(props, sizeof props, "DELAY\1%d\2", 1 + (int)dice_below(&p->dice, 3));
        struct produce r = rig_message("T", body);
        r.props = bytes_str(props);
        uint64_t end = 0;
        broker_produce(rig->broker, rig->desk, &r, 1, &end);
        broker_dispatch_turn(rig->broker);
        p->ends[p->n++] = r.err ? 0 : end;
        break;
    case 2:
        clock_manual_advance(&rig->clock, (int64_t)dice_below(&p->dice, 3000));
        break;
    case 3:
        (void)store_flush_turn(rig->store);
        store_keep_turn(rig->store);
        break;
    case 4:
        broker_delay_turn(rig->broker, &turn);
        break;
    case 5:
        (void)(broker_save_turn(rig->broker, NULL) == OK);
        break;
    }
}

static bool power_came(struct power *p, int number)
{
    char body[16];
    snprintf(body, sizeof body, "%d", number);
    for (int64_t i = 0; i < later_count(p->rig, "T", 0); i++) {
        struct slice got;
        struct record record = later_record(p->rig, "T", 0, i, &got);
        bool same = bytes_equal(record.body, bytes_str(body));
        counted_drop(got.owner);
        if (same)
            return true;
    }
    return false;
}

/* The power goes at any moment. Every message that was on the disk by then comes in the end: the
 * table never counts a delivery that the power loss took away. */
static void a_power_loss_loses_nothing_that_was_flushed(void **state)
{
    struct rig *rig = *state;
    int promised = 0;
    for (uint64_t seed = 1; seed <= POWER_SEEDS; seed++) {
        struct power p = {.rig = rig, .dice = dice_seeded(seed)};
        p.fault = fault_under(rig, seed);
        bool safe[POWER_MESSAGES] = {0};
        for (int life = 0; life < 4; life++) {
            int steps = 5 + (int)dice_below(&p.dice, 60);
            for (int i = 0; i < steps; i++)
                power_step(&p);
            for (int i = 0; i < p.n; i++)
                safe[i] |= p.ends[i] && p.ends[i] <= store_flushed(rig->store);
            fault_crash(rig, p.fault);
            vfs_fault_power_loss(p.fault);
            for (int i = 0; i < p.n; i++)
                p.ends[i] = 0; /* what was not safe may be gone, and its place taken by another */
            struct fault why = {0};
            assert_int_equal(rig_start(rig, &why), OK);
        }
        clock_manual_advance(&rig->clock, 60000);
        later_turn(rig);
        for (int i = 0; i < p.n; i++) {
            promised += safe[i];
            if (safe[i] && !power_came(&p, i))
                fail_msg("seed %llu: message %d never came", (unsigned long long)seed, i);
        }
        fault_over(rig, p.fault);
        rig_anew(rig);
    }
    assert_true(promised > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(DE_1_level_3_arrives_after_ten_seconds_and_not_before),
        rig_test(each_level_has_its_own_delay),
        rig_test(records_are_as_apache_stores_them),
        rig_test(a_consumer_that_waits_is_woken),
        rig_test(a_delay_is_no_way_around_a_refusal),
        rig_test(none_of_5000_is_early_or_late),
        rig_test(RT_6_the_ladder_can_be_changed),
        rig_test(a_shorter_ladder_delivers_what_waits),
        rig_test(a_clock_that_goes_back_makes_nothing_early),
        rig_test(the_topic_may_be_gone_or_smaller),
        rig_test(a_record_that_belongs_nowhere_is_passed_over),
        rig_test(a_disk_that_fails_puts_it_off),
        rig_test(a_level_that_is_stuck_does_not_hold_up_others),
        rig_test(a_restart_delivers_each_once),
        rig_test(offsets_are_brought_into_the_bounds),
        rig_test(a_crash_loses_nothing_and_repeats_nothing_that_can_be_found),
        rig_test(a_power_loss_loses_nothing_that_was_flushed),
    };
    return cmocka_run_group_tests_name("broker/delay", tests, NULL, NULL);
}
