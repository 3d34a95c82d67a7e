/* Timed messages: when they come, what they look like, what is refused, and taking them back. */
#include "broker/timer_test.h"
#include "base/crc32.h"
#include "broker/disk_test.h"

/* ---- when ---- */

static void a_message_comes_at_its_millisecond_and_not_before(void **state)
{
    struct rig *rig = *state;
    static const int64_t delays[] = {1, 2, 50, 999, 1000, 1001, 1500, 60000, 86400000, 259200000};
    for (size_t i = 0; i < sizeof delays / sizeof *delays; i++) {
        int64_t before = later_count(rig, "T", 0);
        struct produce r = timer_send(rig, "T", delays[i], "x");
        int64_t due = clock_ms(&rig->clock.clock) + delays[i];
        assert_int_equal(r.timer_due_ms, due);
        assert_int_equal(r.stored_queue_id, 0);
        int64_t late = due % 1000 == 1; /* a full second is left to Apache */
        timer_turn(rig);
        assert_int_equal(timer_count(rig).timers_pending, 1);
        if (delays[i] + late > 1) {
            timer_forward(rig, delays[i] + late - 1);
            timer_turn(rig);
            assert_int_equal(later_count(rig, "T", 0), before);
        }
        timer_forward(rig, 1);
        assert_true(timer_turn(rig) >= 1);
        assert_int_equal(later_count(rig, "T", 0), before + 1);
        assert_int_equal(timer_count(rig).timers_pending, 0);
    }
}

/* What a turn says about its next one is when the first message is due. */
static void the_turn_knows_when_it_is_needed_again(void **state)
{
    struct rig *rig = *state;
    struct service_turn turn;
    timer_send(rig, "T", 37, "x");
    broker_timer_turn(rig->broker, &turn);
    assert_int_equal(turn.next_ms, 37);
    timer_send(rig, "T", 10, "y");
    broker_timer_turn(rig->broker, &turn);
    assert_int_equal(turn.next_ms, 10);
    timer_forward(rig, 10);
    broker_timer_turn(rig->broker, &turn);
    assert_int_equal(turn.done, 1);
    broker_timer_turn(rig->broker, &turn);
    assert_int_equal(turn.next_ms, 27);
}

/* In the order of their times, and those of one millisecond in the order they came. */
static void they_come_in_order(void **state)
{
    struct rig *rig = *state;
    enum { N = 600 };
    char body[16];
    struct dice dice = dice_seeded(5);
    int delay[N];
    for (int i = 0; i < N; i++) {
        delay[i] = 1 + (int)dice_below(&dice, 3000);
        snprintf(body, sizeof body, "%d", i);
        timer_send(rig, "T", delay[i], body);
    }
    timer_turn(rig);
    timer_forward(rig, 10000);
    assert_int_equal(timer_turn(rig), N);
    int last = -1;
    for (int64_t at = 0; at < N; at++) {
        struct slice got;
        struct record record = later_record(rig, "T", 0, at, &got);
        int64_t i;
        assert_true(bytes_to_i64(record.body, &i));
        counted_drop(got.owner);
        if (last >= 0)
            assert_true(delay[i] > delay[last] || (delay[i] == delay[last] && i > last) ||
                        delay[i] + 1 >= delay[last]); /* the millisecond behind a full second */
        last = (int)i;
    }
}

/* 3,000 over five seconds, the clock in small steps: each in the first step after its time. */
static void none_is_early_or_late(void **state)
{
    struct rig *rig = *state;
    enum { N = 3000, STEP = 20 };
    struct dice dice = dice_seeded(11);
    for (int i = 0; i < N; i++) {
        timer_send(rig, "T", 1 + (int64_t)dice_below(&dice, 5000), "x");
        if (i % 10 == 9) {
            timer_forward(rig, 1);
            timer_turn(rig);
        }
    }
    for (int i = 0; i < 6000 / STEP; i++) {
        timer_forward(rig, STEP);
        timer_turn(rig);
    }
    assert_int_equal(later_count(rig, "T", 0), N);
    for (int64_t at = 0; at < N; at++) {
        struct slice got;
        struct record c = later_record(rig, "T", 0, at, &got);
        int64_t out;
        assert_true(bytes_to_i64(later_prop(c.props, "TIMER_OUT_MS"), &out));
        assert_in_range(c.store_ms - timer_due(out), 0, STEP - 1);
        counted_drop(got.owner);
    }
}

static void the_time_is_the_first_of_three_properties(void **state)
{
    struct rig *rig = *state;
    char props[256];
    int64_t now = clock_ms(&rig->clock.clock);
    snprintf(props, sizeof props,
             "TIMER_DELIVER_MS\1%lld\2TIMER_DELAY_MS\1%d\2TIMER_DELAY_SEC\1%d\2",
             (long long)now + 1000, 2000, 3);
    assert_int_equal(later_send(rig, "T", props, "x").timer_due_ms, now + 3000);
    snprintf(props, sizeof props, "TIMER_DELIVER_MS\1%lld\2TIMER_DELAY_MS\1%d\2",
             (long long)now + 1000, 2000);
    assert_int_equal(later_send(rig, "T", props, "x").timer_due_ms, now + 2000);
    snprintf(props, sizeof props, "TIMER_DELIVER_MS\1%lld\2", (long long)now + 1000);
    assert_int_equal(later_send(rig, "T", props, "x").timer_due_ms, now + 1000);
    snprintf(props, sizeof props, "DELAY\1%d\2TIMER_DELAY_SEC\1%d\2", 0, 4);
    assert_int_equal(later_send(rig, "T", props, "x").timer_due_ms, now + 4000);
    snprintf(props, sizeof props, "DELAY\1%d\2TIMER_DELAY_SEC\1%d\2", 1, 4);
    assert_int_equal(later_send(rig, "T", props, "x").timer_due_ms, 0);
    assert_int_equal(later_count(rig, WHEEL, 0), 4);
    assert_int_equal(later_count(rig, "SCHEDULE_TOPIC_XXXX", 0), 1);
}

/* A time that is over: an ordinary message, at once. */
static void a_time_in_the_past_is_now(void **state)
{
    struct rig *rig = *state;
    static const char *const past[] = {
        "TIMER_DELAY_MS\0010\2", "TIMER_DELAY_SEC\1-5\2", "TIMER_DELIVER_MS\1001\2",
        "TIMER_DELIVER_MS\1-9223372036854775808\2", "TIMER_DELIVER_MS\0011700000000000\2"};
    for (size_t i = 0; i < sizeof past / sizeof *past; i++) {
        assert_int_equal(later_send(rig, "T", past[i], "x").timer_due_ms, 0);
        assert_int_equal(later_count(rig, "T", 0), (int64_t)i + 1);
    }
    assert_int_equal(later_count(rig, WHEEL, 0), 0);
}

static void what_cannot_be_is_refused(void **state)
{
    struct rig *rig = *state;
    static const char *const bad[] = {
        "TIMER_DELAY_SEC\1soon\2",
        "TIMER_DELIVER_MS\0011e9\2",
        "TIMER_DELAY_SEC\00199999999999999999999\2",
        "TIMER_DELAY_SEC\0019223372036854775807\2",
        "TIMER_DELIVER_MS\0019223372036854775807\2",
        "TIMER_DELAY_SEC\001259201\2",
        "TIMER_DELAY_MS\001259200001\2",
        "TIMER_DELIVER_MS\001100\2TIMER_DEL_UNIQKEY\1k\2",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct produce r = rig_message("T", "x");
        r.props = bytes_str(bad[i]);
        assert_int_equal(rig_produce(rig, &r), ERR_MALFORMED);
    }
    struct produce r = rig_message("T", "x");
    r.props = BYTES("TIMER_DELAY_SEC\001259200\2");
    assert_int_equal(rig_produce(rig, &r), OK);
    rig->options.timers = false;
    rig_again(rig);
    assert_int_equal(rig_produce(rig, &r), ERR_UNSUPPORTED);
}

static void a_batch_has_no_timers(void **state)
{
    struct rig *rig = *state;
    uint8_t body[128];
    struct wr w = wr_over(body, sizeof body);
    struct bytes props = BYTES("TIMER_DELAY_MS\0015\2");
    wr_u32(&w, (uint32_t)(4 + 4 + 4 + 4 + 4 + 1 + 2 + props.len));
    wr_u32(&w, 0);
    wr_u32(&w, 0);
    wr_u32(&w, 0);
    wr_u32(&w, 1);
    wr_u8(&w, 'x');
    wr_u16(&w, (uint16_t)props.len);
    wr_bytes_of(&w, props);
    struct produce r = rig_message("T", "");
    r.body = wr_bytes(&w);
    r.batch = true;
    assert_int_equal(rig_produce(rig, &r), ERR_MALFORMED);
    assert_int_equal(store_confirmed(rig->store), 0);
}

/* ---- what ---- */

static void the_copy_is_the_message(void **state)
{
    struct rig *rig = *state;
    char text[1024];
    struct produce r = rig_message("T", "hello");
    r.props = BYTES("KEYS\1k1 k2\2TAGS\1A\2own\1v\2UNIQ_KEY\0017F01\2WAIT\1true\2REAL_TOPIC\1Lie\2"
                    "REAL_QID\0017\2TIMER_DELAY_MS\0011500\2");
    r.queue_id = 1;
    r.flag = 5;
    r.sys_flag = SYS_COMPRESSED;
    assert_int_equal(rig_produce(rig, &r), OK);
    assert_int_equal(r.stored_queue_id, 1);
    assert_int_equal(r.queue_offset, 0); /* in the queue where it waits, as Apache answers */
    broker_dispatch_turn(rig->broker);
    struct slice waits, came;
    struct record w = later_record(rig, WHEEL, 0, 0, &waits);
    assert_string_equal(later_props(w.props, text),
                        "CLUSTER=DefaultCluster KEYS=k1 k2 MSG_REGION=DefaultRegion REAL_QID=1 "
                        "REAL_TOPIC=T TAGS=A TIMER_DELAY_MS=1500 TIMER_OUT_MS=1700000001499 "
                        "TRACE_ON=true UNIQ_KEY=7F01 WAIT=true own=v");
    timer_turn(rig);
    timer_forward(rig, 1500);
    assert_int_equal(timer_turn(rig), 1);
    struct record c = later_record(rig, "T", 1, 0, &came);
    assert_string_equal(later_props(c.props, text),
                        "CLUSTER=DefaultCluster KEYS=k1 k2 MSG_REGION=DefaultRegion REAL_QID=1 "
                        "REAL_TOPIC=T TAGS=A TIMER_DELAY_MS=1500 TIMER_DEQUEUE_MS=1700000001500 "
                        "TIMER_ENQUEUE_MS=1700000000000 TIMER_OUT_MS=1700000001499 "
                        "TRACE_ON=true UNIQ_KEY=7F01 WAIT=true own=v");
    assert_bytes_equal(c.body, BYTES("hello"));
    assert_int_equal(c.flag, 5);
    assert_int_equal(c.sys_flag, SYS_COMPRESSED);
    assert_int_equal(c.born_ms, START_MS);
    assert_int_equal(c.born_host.port, 4711);
    counted_drop(waits.owner);
    counted_drop(came.owner);
}

/* Records that somebody else put there: one for a topic of the system goes, those for topics that
 * no client may send to do not; the ledger would take what it finds there for its own at the next
 * start. */
static void it_is_no_way_to_other_services(void **state)
{
    struct rig *rig = *state;
    static const char *const to[] = {"SCHEDULE_TOPIC_XXXX",
                                     "RMQ_SYS_TRANS_HALF_TOPIC",
                                     "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                                     "rmq_sys_ONCE_LEDGER",
                                     WHEEL,
                                     "rmq_sys_REVIVE_LOG_DefaultCluster"};
    for (size_t i = 0; i < 6; i++) {
        char props[256];
        snprintf(props, sizeof props,
                 "REAL_TOPIC\1%s\2REAL_QID\1%d\2TIMER_OUT_MS\1%lld\2UNIQ_KEY\1u%zu\2", to[i], 0,
                 (long long)START_MS + 5, i);
        struct draft draft = {.queue = store_queue(rig->store, TIMER_TOPIC, 0),
                              .topic = TIMER_TOPIC,
                              .body = BYTES("x"),
                              .body_crc = crc32_positive(BYTES("x")),
                              .props = bytes_str(props),
                              .born_host = rig->options.host,
                              .store_host = rig->options.host};
        struct stored stored;
        uint64_t end;
        assert_int_equal(store_append(rig->store, &draft, 1, &stored, &end), OK);
    }
    broker_dispatch_turn(rig->broker);
    timer_turn(rig);
    timer_forward(rig, 10);
    struct service_turn turn;
    broker_timer_turn(rig->broker, &turn);
    assert_int_equal(turn.done, 1);
    assert_int_equal(turn.skipped, 5);
    assert_int_equal(later_count(rig, "rmq_sys_REVIVE_LOG_DefaultCluster", 0), 1);
    assert_int_equal(later_count(rig, "rmq_sys_ONCE_LEDGER", 0), 0);
    assert_int_equal(timer_count(rig).timers_lost, 5);
}

/* ---- long delays ---- */

/* Half a year in windows of two days: put in again and again, and in time in the end. */
static void a_long_delay_rolls(void **state)
{
    struct rig *rig = *state;
    rig->options.timer_max_s = 400 * 86400;
    rig_again(rig);
    int64_t delay = INT64_C(183) * 86400000 + 777;
    struct produce r = timer_send(rig, "T", delay, "x");
    timer_turn(rig);
    for (int64_t left = delay; left > 3600000; left -= 3600000) {
        timer_forward(rig, 3600000);
        timer_turn(rig);
        timer_turn(rig);
        assert_int_equal(later_count(rig, "T", 0), 0);
        assert_int_equal(timer_count(rig).timers_pending, 1);
    }
    uint64_t rolled = timer_count(rig).timers_rolled;
    assert_in_range(rolled, 85, 95);
    timer_forward(rig, r.timer_due_ms - clock_ms(&rig->clock.clock) - 1);
    timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 0);
    timer_forward(rig, 1);
    timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 1);
    struct slice got;
    struct record c = later_record(rig, "T", 0, 0, &got);
    char times[16];
    snprintf(times, sizeof times, "%d", (int)rolled);
    assert_bytes_equal(later_prop(c.props, "TIMER_ROLL_TIMES"), bytes_str(times));
    counted_drop(got.owner);
}

/* A shorter retention than the window: rolls come before the files go. */
static void the_window_is_shorter_than_the_retention(void **state)
{
    struct rig *rig = *state;
    rig->options.reserved_ms = 3600000;
    rig_again(rig);
    assert_true(rig->broker->timer->window_ms <= 2400000);
    rig->options.reserved_ms = 1;
    rig_again(rig);
    assert_true(rig->broker->timer->window_ms >= 2000);
}

static uint64_t clean(struct rig *rig)
{
    struct store_cleaned cleaned;
    timer_forward(rig, 11000);
    store_clean_turn(rig->store, &cleaned);
    return cleaned.log_first;
}

/* A broker that was down for longer than messages are kept: those that wait are delivered first. */
static void retention_waits_for_what_is_late(void **state)
{
    struct rig *rig = *state;
    rig->reserved_ms = 3600000;
    rig->options.reserved_ms = 3600000;
    rig_again(rig);
    timer_send(rig, "T", 1800000, "x");
    timer_turn(rig);
    static char big[1 << 20];
    memset(big, 'b', sizeof big - 1);
    for (int i = 0; i < 10; i++) /* a log file has 8 MiB */
        rig_send(rig, "Big", "A", big);
    rig_stop(rig);
    timer_forward(rig, 3 * 3600000);
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    rig_send(rig, "Big", "A", "now");
    assert_int_equal(store_flush_all(rig->store, NULL), OK);
    assert_int_equal(clean(rig), 0);
    timer_turn(rig);
    timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 1);
    assert_int_equal(store_flush_all(rig->store, NULL), OK);
    assert_true(clean(rig) > 0);
}

/* ---- clocks ---- */

static void a_clock_that_goes_back_makes_nothing_early_and_nothing_twice(void **state)
{
    struct rig *rig = *state;
    for (int again = 0; again <= 1; again++) { /* also over a restart */
        int64_t before = later_count(rig, "T", 0);
        for (int i = 0; i < 10; i++)
            timer_send(rig, "T", 500 + 300 * i, "x");
        timer_turn(rig);
        timer_forward(rig, 1500);
        assert_int_equal(timer_turn(rig), 4);
        timer_back(rig, 3600000);
        if (again)
            rig_again(rig);
        timer_turn(rig);
        assert_int_equal(later_count(rig, "T", 0), before + 4);
        timer_send(rig, "T", 1000, "new"); /* by the clock as it is now */
        timer_turn(rig);
        timer_forward(rig, 1000);
        timer_turn(rig);
        timer_forward(rig, 1);
        timer_turn(rig);
        assert_int_equal(later_count(rig, "T", 0), before + 5);
        if (again)
            rig_again(rig);
        timer_forward(rig, 3599000);
        timer_turn(rig);
        timer_forward(rig, 5000);
        timer_turn(rig);
        assert_int_equal(later_count(rig, "T", 0), before + 11);
    }
}

static void a_clock_that_jumps_ahead_delivers_all_that_is_due(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 50; i++)
        timer_send(rig, "T", INT64_C(5184000) * i + 1, "x");
    timer_turn(rig);
    timer_forward(rig, INT64_C(20) * 86400000);
    assert_int_equal(timer_turn(rig), 50 + timer_count(rig).timers_rolled);
    timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 50);
}

/* What was sent by a clock that was a year ahead keeps its slot for so long. Another message for
 * the same place of the wheel comes a second later, and nobody waits behind it. */
static void a_year_that_was_not_keeps_nobody_back(void **state)
{
    struct rig *rig = *state;
    const int64_t year = INT64_C(364) * 86400000, hour = 3600000; /* 26 times around the wheel */
    timer_send(rig, "U", 1, "first");
    timer_turn(rig);
    timer_forward(rig, 5);
    timer_turn(rig);
    timer_forward(rig, year);
    timer_send(rig, "T", hour, "far");
    timer_turn(rig);
    timer_back(rig, year);
    timer_turn(rig);
    struct produce recalled = timer_send(rig, "T", hour, "recalled");
    timer_send(rig, "T", hour, "same");
    timer_send(rig, "T", 10000, "near");
    assert_int_equal(timer_recall(rig, "T", recalled.timer_due_ms, recalled.uniq_key), OK);
    for (int again = 0; again <= 1; again++) {
        timer_turn(rig);
        assert_int_equal(timer_count(rig).timers_behind, 0);
        assert_int_equal(timer_count(rig).timers_pending, 4);
        rig_again(rig);
    }
    timer_forward(rig, 10001);
    timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 1);
    timer_forward(rig, hour - 10002);
    timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 1);
    timer_forward(rig, 2000);
    timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 2);
    assert_int_equal(timer_count(rig).timers_recalled, 1);
    timer_forward(rig, year);
    timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 3);
}

/* ---- taking back ---- */

static void a_recalled_message_never_comes(void **state)
{
    struct rig *rig = *state;
    static const int64_t delays[] = {300, 5000, 200000000};
    for (size_t i = 0; i < 3; i++) {
        int64_t before = later_count(rig, "T", 0);
        struct produce a = timer_send(rig, "T", delays[i], "a");
        struct produce b = timer_send(rig, "T", delays[i], "b");
        if (i != 1)
            timer_turn(rig);
        assert_int_equal(timer_recall(rig, "T", a.timer_due_ms, a.uniq_key), OK);
        timer_turn(rig);
        timer_forward(rig, delays[i] + 5);
        timer_turn(rig);
        timer_turn(rig);
        assert_int_equal(later_count(rig, "T", 0), before + 1);
        (void)b;
        assert_int_equal(timer_count(rig).timers_recalled, i + 1);
        assert_int_equal(timer_recall(rig, "T", b.timer_due_ms, b.uniq_key), ERR_INVALID);
    }
}

/* A message that is to be put in again is recalled, then the broker is away until its time is over.
 * What was to be put in again meanwhile is the message, or the recall; it never comes. */
static void a_recall_lasts_while_the_broker_is_away(void **state)
{
    struct rig *rig = *state;
    const int64_t hour = 3600000;
    static const struct {
        int64_t recalled, stopped; /* hours */
    } rows[] = {{20, 21}, {10, 25}, {1, 2}};
    for (size_t i = 0; i < 3; i++) {
        struct produce m = timer_send(rig, "T", 60 * hour, "m");
        timer_turn(rig);
        timer_forward(rig, rows[i].recalled * hour);
        timer_turn(rig);
        assert_int_equal(timer_recall(rig, "T", m.timer_due_ms, m.uniq_key), OK);
        timer_turn(rig);
        timer_forward(rig, (rows[i].stopped - rows[i].recalled) * hour);
        timer_turn(rig);
        rig_again(rig);
        timer_forward(rig, (61 - rows[i].stopped) * hour);
        timer_turn(rig);
        timer_turn(rig);
        timer_forward(rig, hour);
        timer_turn(rig);
        assert_int_equal(later_count(rig, "T", 0), 0);
        assert_int_equal(timer_count(rig).timers_recalled, 1);
        assert_int_equal(timer_count(rig).timers_pending, 0);
        assert_int_equal(rig->broker->timer->recalls.n, 0);
    }
}

/* A recall whose time is far is in its unit, and not in memory until then. */
static void a_recall_for_later_takes_no_memory(void **state)
{
    struct rig *rig = *state;
    struct produce m = timer_send(rig, "T", 200000000, "m");
    assert_int_equal(timer_recall(rig, "T", m.timer_due_ms, m.uniq_key), OK);
    assert_int_equal(rig->broker->timer->recalls.n, 1);
    timer_turn(rig);
    assert_int_equal(rig->broker->timer->recalls.n, 0);
    for (int i = 0; i < 300; i++) {
        timer_forward(rig, 1000000);
        timer_turn(rig);
    }
    assert_int_equal(later_count(rig, "T", 0), 0);
    assert_int_equal(timer_count(rig).timers_recalled, 1);
}

/* The record of the recall is in the log but not yet in the queue, as with SYNC_FLUSH. */
static void a_recall_counts_before_its_record_is_seen(void **state)
{
    struct rig *rig = *state;
    struct produce a = timer_send(rig, "T", 300, "a");
    timer_turn(rig);
    timer_forward(rig, 299);
    char handle[RECALL_HANDLE_MAX];
    size_t len = broker_recall_handle(rig->broker, BYTES("T"), a.timer_due_ms,
                                      bytes_str(a.uniq_key), handle);
    struct recall recall = {.topic = BYTES("T"), .handle = bytes_of(handle, len)};
    struct recalled out;
    assert_int_equal(broker_recall(rig->broker, &recall, &out, NULL), OK);
    timer_forward(rig, 1); /* nothing was dispatched */
    timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 0);
    broker_dispatch_turn(rig->broker);
    timer_turn(rig);
    timer_forward(rig, 10000);
    timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 0);
    assert_int_equal(rig->broker->timer->recalls.n, 0);
}

static enum err recall_with(struct rig *rig, const char *topic, const char *handle)
{
    struct recall recall = {.topic = bytes_str(topic), .handle = bytes_str(handle)};
    struct recalled out;
    return broker_recall(rig->broker, &recall, &out, NULL);
}

static void a_recall_that_cannot_be_is_refused(void **state)
{
    struct rig *rig = *state;
    struct produce a = timer_send(rig, "T", 5000, "a");
    timer_send(rig, "U", 5000, "b");
    timer_turn(rig);
    assert_int_equal(recall_with(rig, "T", ""), ERR_INVALID);
    assert_int_equal(recall_with(rig, "T", "not a handle!"), ERR_INVALID);
    assert_int_equal(recall_with(rig, "T", "djEgVA=="), ERR_INVALID);         /* v1 T */
    assert_int_equal(recall_with(rig, "T", "djIgVCBiIDEgdQ=="), ERR_INVALID); /* v2 T b 1 u */
    char handle[RECALL_HANDLE_MAX + 1] = {0};
    size_t len = broker_recall_handle(rig->broker, BYTES("T"), a.timer_due_ms,
                                      bytes_str(a.uniq_key), handle);
    assert_true(len > 0);
    assert_int_equal(recall_with(rig, "U", handle), ERR_INVALID); /* of another topic */
    assert_int_equal(recall_with(rig, "None", handle), ERR_UNKNOWN_TOPIC);
    assert_int_equal(timer_recall(rig, "T", clock_ms(&rig->clock.clock), "u"), ERR_INVALID);
    assert_int_equal(timer_recall(rig, "T", START_MS + INT64_C(259300000), "u"), ERR_INVALID);
    assert_int_equal(timer_recall(rig, "T", a.timer_due_ms, "somebody\1else\2"), ERR_INVALID);
    rig->options.name = "broker-b";
    rig_again(rig);
    assert_int_equal(recall_with(rig, "T", handle), ERR_INVALID); /* of another broker */
    rig->options.name = "broker-a";
    rig->options.recalls = false;
    rig_again(rig);
    assert_int_equal(recall_with(rig, "T", handle), ERR_DENIED);
    timer_forward(rig, 6000);
    timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 1);
}

/* A handle with the right message and another time recalls nothing, and undoes nothing. */
static void a_forged_time_is_no_recall(void **state)
{
    struct rig *rig = *state;
    struct produce a = timer_send(rig, "T", 500, "a");
    struct produce b = timer_send(rig, "T", 500, "b");
    timer_turn(rig);
    assert_int_equal(timer_recall(rig, "T", a.timer_due_ms, a.uniq_key), OK);
    assert_int_equal(timer_recall(rig, "T", a.timer_due_ms + 3600000, a.uniq_key), OK);
    assert_int_equal(timer_recall(rig, "T", b.timer_due_ms + 3600000, b.uniq_key), OK);
    timer_turn(rig);
    timer_forward(rig, 600);
    timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 1);
}

/* ---- many ---- */

/* More for one second than are held in memory at once: in order all the same, none missing. */
static void a_second_may_have_more_than_fits(void **state)
{
    struct rig *rig = *state;
    rig->options.max_topics = 10;
    struct timers *t = rig->broker->timer;
    timer_send(rig, "T", 1, "x");
    timer_forward(rig, 1);
    timer_turn(rig);
    enum { N = 2000 };
    for (int i = 0; i < N; i++)
        timer_send(rig, "T", 5000 + (i * 7919) % 900, "x");
    timer_turn(rig);
    timer_forward(rig, 4500); /* brought in */
    timer_turn(rig);
    assert_true(t->n >= N);
    for (int i = 0; i < 20; i++) { /* thrown away in between */
        near_forget(t);
        timer_forward(rig, 100);
        timer_turn(rig);
    }
    assert_int_equal(later_count(rig, "T", 0), N + 1);
}

/* ---- trouble ---- */

static void a_disk_that_fails_puts_it_off(void **state)
{
    struct rig *rig = *state;
    for (int n = 0; n < 12; n++) {
        int64_t before = later_count(rig, "T", 0);
        rig_stop(rig);
        struct vfs *inner = rig->vfs;
        rig->options.vfs = rig->store_vfs = disk_over(inner);
        struct fault why = {0};
        assert_int_equal(rig_start(rig, &why), OK);
        for (int i = 0; i < 5; i++)
            timer_send(rig, "T", 100 + i, "x");
        disk.left = n;
        struct service_turn turn;
        broker_timer_turn(rig->broker, &turn);
        timer_forward(rig, 200);
        broker_timer_turn(rig->broker, &turn);
        (void)(broker_save_turn(rig->broker, NULL) == OK);
        disk.left = -1;
        for (int i = 0; i < 5; i++) {
            timer_forward(rig, 1500);
            broker_timer_turn(rig->broker, &turn);
        }
        assert_int_equal(turn.err, OK);
        if (store_state(rig->store, NULL) == OK)
            assert_int_equal(later_count(rig, "T", 0), before + 5);
        desk_close(rig->desk);
        (void)(broker_close(rig->broker, NULL) == OK);
        (void)(store_close(rig->store, NULL) == OK);
        rig->options.vfs = inner;
        rig->store_vfs = NULL;
        assert_int_equal(rig_start(rig, &why), OK);
        for (int i = 0; i < 3; i++) {
            timer_turn(rig);
            timer_forward(rig, 1500);
        }
        assert_int_equal(later_count(rig, "T", 0), before + 5);
    }
}

/* ---- stopping and starting ---- */

static void a_restart_delivers_each_once(void **state)
{
    struct rig *rig = *state;
    for (int no_index = 0; no_index <= 1; no_index++) {
        rig->no_index = no_index;
        rig_again(rig);
        int64_t before = later_count(rig, "T", 0);
        for (int i = 0; i < 60; i++) {
            timer_send(rig, "T", 10 + i * 137 % 9000, "x");
            timer_forward(rig, 10);
            if (i % 7 == 0)
                timer_turn(rig);
        }
        for (int i = 0; i < 20; i++) {
            timer_turn(rig);
            assert_int_equal(broker_save_turn(rig->broker, NULL), OK); /* not flushed: kept back */
            timer_forward(rig, 255);
            timer_turn(rig);
            rig_again(rig);
            timer_forward(rig, 255);
        }
        timer_turn(rig);
        assert_int_equal(later_count(rig, "T", 0), before + 60);
        assert_int_equal(timer_count(rig).timers_pending, 0);
    }
}

/* Nothing is there that nobody needs. */
static void without_timers_there_are_no_files(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, "T", "A", "x");
    timer_turn(rig);
    assert_int_equal(broker_save_turn(rig->broker, NULL), OK);
    rig_again(rig);
    assert_null(rig->broker->timer->log);
    struct vfs_file *file;
    assert_int_equal(rig->vfs->calls->open(rig->vfs, "timerwheel", VFS_READ, &file, NULL),
                     ERR_NOT_FOUND);
    assert_int_equal(rig->vfs->calls->open(rig->vfs, "config/timercheck", VFS_READ, &file, NULL),
                     ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(a_message_comes_at_its_millisecond_and_not_before),
        rig_test(the_turn_knows_when_it_is_needed_again),
        rig_test(they_come_in_order),
        rig_test(none_is_early_or_late),
        rig_test(the_time_is_the_first_of_three_properties),
        rig_test(a_time_in_the_past_is_now),
        rig_test(what_cannot_be_is_refused),
        rig_test(a_batch_has_no_timers),
        rig_test(the_copy_is_the_message),
        rig_test(it_is_no_way_to_other_services),
        rig_test(a_long_delay_rolls),
        rig_test(the_window_is_shorter_than_the_retention),
        rig_test(retention_waits_for_what_is_late),
        rig_test(a_clock_that_goes_back_makes_nothing_early_and_nothing_twice),
        rig_test(a_clock_that_jumps_ahead_delivers_all_that_is_due),
        rig_test(a_year_that_was_not_keeps_nobody_back),
        rig_test(a_recalled_message_never_comes),
        rig_test(a_recall_lasts_while_the_broker_is_away),
        rig_test(a_recall_for_later_takes_no_memory),
        rig_test(a_recall_counts_before_its_record_is_seen),
        rig_test(a_recall_that_cannot_be_is_refused),
        rig_test(a_forged_time_is_no_recall),
        rig_test(a_second_may_have_more_than_fits),
        rig_test(a_disk_that_fails_puts_it_off),
        rig_test(a_restart_delivers_each_once),
        rig_test(without_timers_there_are_no_files),
    };
    return cmocka_run_group_tests_name("broker/timer", tests, NULL, NULL);
}
