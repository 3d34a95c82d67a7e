/* Messages that were stored before are not stored again: for how long, how many, when the disk
 * fails, and when several loops have the same message at once. */
#include "broker/dedup_rig_test.h"
#include "broker/disk_test.h"

#include <pthread.h>

#define WINDOW_MS INT64_C(600000)

/* ---- time ---- */

static void for_as_long_as_the_window(void **state)
{
    struct rig *rig = *state;
    struct answer first = send(rig, "T", "K", 0);
    for (int i = 0; i < 60; i++) {
        clock_manual_advance(&rig->clock, WINDOW_MS / 60 - 1);
        send(rig, "T", "other", 0);
        assert_same(first, send(rig, "T", "K", 0));
    }
    clock_manual_advance(&rig->clock, 60 + WINDOW_MS / 60);
    assert_int_equal(send(rig, "T", "K", 0).known, 0);
    assert_int_equal(send(rig, "T", "K", 0).known, 1);
}

static void a_restart_does_not_make_it_longer_or_shorter(void **state)
{
    struct rig *rig = *state;
    struct answer first = send(rig, "T", "K", 0);
    for (int i = 0; i < 9; i++) {
        clock_manual_advance(&rig->clock, WINDOW_MS / 10);
        rig_again(rig);
        assert_same(first, send(rig, "T", "K", 0));
    }
    clock_manual_advance(&rig->clock, WINDOW_MS / 10 + WINDOW_MS / 60);
    assert_int_equal(send(rig, "T", "K", 0).known, 0);
}

/* The wall clock is put back or forward; what has passed is what counts. */
static void a_clock_that_jumps(void **state)
{
    struct rig *rig = *state;
    const int64_t jumps[] = {-3600000, 7200000};
    for (int i = 0; i < 2; i++) {
        char key[8];
        snprintf(key, sizeof key, "K%d", i);
        struct answer first = send(rig, "T", key, 0);
        atomic_fetch_add(&rig->clock.wall_ms, jumps[i]);
        clock_manual_advance(&rig->clock, WINDOW_MS - 1000);
        assert_same(first, send(rig, "T", key, 0));
        clock_manual_advance(&rig->clock, 1000 + WINDOW_MS / 60);
        assert_int_equal(send(rig, "T", key, 0).known, 0);
    }
    /* Put back while nobody was there: what seems to come from the future is new. */
    struct answer last = send(rig, "T", "last", 0);
    atomic_fetch_add(&rig->clock.wall_ms, -86400000);
    rig_again(rig);
    assert_same(last, send(rig, "T", "last", 0));
    clock_manual_advance(&rig->clock, WINDOW_MS + WINDOW_MS / 60);
    assert_int_equal(send(rig, "T", "last", 0).known, 0);
}

static void memory_is_given_back_when_nothing_comes(void **state)
{
    struct rig *rig = *state;
    char key[16];
    for (int i = 0; i < 3000; i++) {
        snprintf(key, sizeof key, "K%d", i);
        send(rig, "T", key, i % 4);
    }
    assert_int_equal(numbers(rig).keys, 3000);
    assert_true(numbers(rig).keys_bytes < 24 * 3000 + 30000);
    clock_manual_advance(&rig->clock, WINDOW_MS + WINDOW_MS / 60);
    broker_dedup_turn(rig->broker);
    assert_int_equal(numbers(rig).keys, 0);
    assert_int_equal(numbers(rig).keys_bytes, 0);
}

static void when_there_are_too_many_the_oldest_go(void **state)
{
    struct rig *rig = *state;
    rig->options.dedup_max_keys = 100;
    rig_again(rig);
    char key[16];
    for (int i = 0; i < 150; i++) {
        snprintf(key, sizeof key, "K%d", i);
        send(rig, "T", key, 0);
    }
    for (int restart = 0; restart < 2; restart++) {
        assert_int_equal(numbers(rig).keys, 100);
        assert_int_equal(send(rig, "T", "K149", 0).known, 1);
        assert_int_equal(send(rig, "T", "K51", 0).known, 1);
        assert_int_equal(numbers(rig).keys_displaced, restart ? 0 : 50);
        rig_again(rig);
    }
    assert_int_equal(rig->warned, 1); /* at once, and then once a minute */
    assert_non_null(strstr(rig->warning, "dedupMaxKeys=100"));
    assert_int_equal(send(rig, "T", "K49", 0).known, 0);
}

static void what_the_log_has_lost_is_stored_again(void **state)
{
    struct rig *rig = *state;
    rig->reserved_ms = 60000;
    rig_again(rig);
    send(rig, "T", "K", 0);
    cleanup(free_at) char *big = calloc(1, 2 << 20);
    for (int i = 0; i < 10; i++) { /* more than two log files */
        struct produce r = rig_message("T", "");
        r.body = bytes_of(big, 2 << 20);
        assert_int_equal(rig_produce(rig, &r), OK);
        broker_dispatch_turn(rig->broker);
    }
    assert_int_equal(store_flush_all(rig->store, NULL), OK);
    clock_manual_advance(&rig->clock, 120000);
    struct store_cleaned cleaned;
    store_keep_turn(rig->store);
    store_clean_turn(rig->store, &cleaned);
    assert_true(store_first(rig->store) > 0);
    assert_int_equal(send(rig, "T", "K", 0).known, 0);
    assert_int_equal(send(rig, "T", "K", 0).known, 1);
}

/* ---- trouble ---- */

static struct rig *rig_on_disk(void **state)
{
    struct rig *rig = *state;
    rig_stop(rig);
    rig->store_vfs = disk_over(rig->vfs);
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    return rig;
}

/* What could not be stored must not be answered for, now or later. */
static void a_first_one_that_fails_is_no_first_one(void **state)
{
    struct rig *rig = rig_on_disk(state);
    struct answer known = send(rig, "T", "known", 0);
    disk.left = 0;
    struct produce r[] = {message("T", "A", 0), message("T", "known", 0), message("T", "A", 1),
                          message("T", "B", 0)};
    uint64_t end;
    broker_produce(rig->broker, rig->desk, r, 4, &end);
    disk.left = -1;
    assert_int_equal(r[0].err, ERR_IO);
    assert_int_equal(r[2].err, ERR_IO);
    assert_int_equal(r[3].err, ERR_IO);
    assert_same(known, answer_of(rig, &r[1])); /* this one was, long ago */
    assert_int_equal(numbers(rig).keys, 1);
    assert_int_equal(send(rig, "T", "A", 0).known, 0);
    assert_int_equal(send(rig, "T", "A", 0).known, 1);
    assert_int_equal(send(rig, "T", "B", 0).known, 0);
}

/* A start that cannot read a message just now, for want of memory or handles, is no start: it would
 * store that message a second time. */
static void a_start_does_not_pass_over_what_it_cannot_read(void **state)
{
    struct rig *rig = rig_on_disk(state);
    rig->open_files = 1;
    rig_again(rig);
    struct answer first = send(rig, "T", "K", 0);
    rig_fill(rig, 6); /* it is not in the file that is open anyway */
    rig_stop(rig);
    struct fault why = {0};
    rig->store_open = &disk.blind;
    enum err err = rig_start(rig, &why);
    rig->store_open = NULL;
    disk.blind = false;
    assert_int_equal(err, ERR_IO);
    assert_non_null(strstr(why.text, "cannot be read"));
    assert_non_null(strstr(why.text, "queue "));
    assert_int_equal(rig_start(rig, &why), OK);
    assert_same(first, send(rig, "T", "K", 0));
}

/* With SYNC_FLUSH the second one's answer waits for the first one's record. */
static void the_answer_waits_for_the_first_one_s_record(void **state)
{
    struct rig *rig = *state;
    rig->sync_flush = true;
    rig_again(rig);
    struct produce first = message("T", "K", 0), second = message("T", "K", 1);
    uint64_t first_end, second_end;
    broker_produce(rig->broker, rig->desk, &first, 1, &first_end);
    assert_true(store_confirmed(rig->store) < first_end);
    broker_produce(rig->broker, rig->desk, &second, 1, &second_end);
    assert_int_equal(second.known, 1);
    assert_int_equal(second_end, first_end);
    (void)store_flush_turn(rig->store);
    assert_true(store_confirmed(rig->store) >= first_end);
}

/* ---- two loops at once ---- */

#define RACE_KEYS    2000
#define RACE_THREADS 4

struct racer {
    struct rig *rig;
    pthread_t thread;
    int64_t positions[RACE_KEYS];
    uint32_t known;
};

/* Each sends all keys, in an order of its own, and remembers what it was told. */
static void *race(void *arg)
{
    struct racer *me = arg;
    struct desk *desk = NULL;
    if (desk_open(me->rig->broker, &desk))
        return NULL;
    struct dice dice = dice_seeded((uint64_t)(uintptr_t)me);
    size_t start = (size_t)dice_below(&dice, RACE_KEYS), step = 7;
    for (size_t i = 0; i < RACE_KEYS; i += 4) {
        struct produce r[4];
        char props[4][32];
        uint64_t end;
        for (size_t k = 0; k < 4; k++) {
            size_t key = (start + (i + k) * step) % RACE_KEYS;
            snprintf(props[k], sizeof props[k], "UNIQ_KEY\1%zu\2", key);
            r[k] = rig_message("T", "x");
            r[k].props = bytes_str(props[k]);
            r[k].queue_id = (int32_t)dice_below(&dice, 4);
        }
        broker_produce(me->rig->broker, desk, r, 4, &end);
        for (size_t k = 0; k < 4; k++) {
            size_t key = (start + (i + k) * step) % RACE_KEYS;
            me->positions[key] = r[k].err ? -1 : desk_stored(desk)[r[k].first].position;
            me->known += r[k].known;
        }
    }
    desk_close(desk);
    return NULL;
}

static void each_key_is_stored_once_however_many_send_it(void **state)
{
    struct rig *rig = *state;
    set_attribute(rig, "T", "");
    static struct racer racers[RACE_THREADS];
    memset(racers, 0, sizeof racers);
    for (int i = 0; i < RACE_THREADS; i++) {
        racers[i].rig = rig;
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    uint32_t known = 0;
    for (int i = 0; i < RACE_THREADS; i++) {
        assert_int_equal(pthread_join(racers[i].thread, NULL), 0);
        known += racers[i].known;
        assert_memory_equal(racers[i].positions, racers[0].positions, sizeof racers[0].positions);
    }
    broker_dispatch_turn(rig->broker);
    assert_int_equal(stored_in(rig, "T"), RACE_KEYS);
    assert_int_equal(known, RACE_KEYS * (RACE_THREADS - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        dedup_case(for_as_long_as_the_window),
        dedup_case(a_restart_does_not_make_it_longer_or_shorter),
        dedup_case(a_clock_that_jumps),
        dedup_case(memory_is_given_back_when_nothing_comes),
        dedup_case(when_there_are_too_many_the_oldest_go),
        dedup_case(what_the_log_has_lost_is_stored_again),
        dedup_case(a_first_one_that_fails_is_no_first_one),
        dedup_case(a_start_does_not_pass_over_what_it_cannot_read),
        dedup_case(the_answer_waits_for_the_first_one_s_record),
        dedup_case(each_key_is_stored_once_however_many_send_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
