/* timer_test.h - what the tests of timed messages share.
 *
 * Only for the x_test.c files of this folder.
 */
#ifndef BROKER_TIMER_TEST_H
#define BROKER_TIMER_TEST_H

#include "broker/later_test.h"
#include "broker/timer_int.h"

#define WHEEL "rmq_sys_wheel_timer"

/* Sends a message that shall come `delay_ms` from now. */
static inline struct produce timer_send(struct rig *rig, const char *topic, int64_t delay_ms,
                                        const char *body)
{
    char props[96];
    snprintf(props, sizeof props, "TAGS\1A\2TIMER_DELAY_MS\1%lld\2", (long long)delay_ms);
    struct produce r = later_send(rig, topic, props, body);
    return r;
}

/* Turns until nothing is to be done now. How many were delivered or put in again. */
static inline uint64_t timer_turn(struct rig *rig)
{
    uint64_t done = 0;
    struct service_turn turn;
    do {
        broker_timer_turn(rig->broker, &turn);
        assert_int_equal(turn.err, OK);
        done += turn.done;
    } while (turn.next_ms == 0);
    return done;
}

static inline void timer_forward(struct rig *rig, int64_t ms)
{
    clock_manual_advance(&rig->clock, ms);
}

static inline void timer_back(struct rig *rig, int64_t ms)
{
    atomic_fetch_sub(&rig->clock.wall_ms, ms);
}

static inline struct broker_numbers timer_count(struct rig *rig)
{
    struct broker_numbers n;
    broker_numbers(rig->broker, &n);
    return n;
}

static inline enum err timer_recall(struct rig *rig, const char *topic, int64_t due_ms,
                                    const char *uniq_key)
{
    char handle[RECALL_HANDLE_MAX];
    size_t len =
        broker_recall_handle(rig->broker, bytes_str(topic), due_ms, bytes_str(uniq_key), handle);
    assert_true(len > 0);
    struct recall recall = {
        .group = BYTES("PG"), .topic = bytes_str(topic), .handle = bytes_of(handle, len)};
    struct recalled out;
    enum err err = broker_recall(rig->broker, &recall, &out, NULL);
    broker_dispatch_turn(rig->broker);
    return err;
}

#endif
