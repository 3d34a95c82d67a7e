/* later_test.h - what the tests of delays and of retries share.
 *
 * Only for the x_test.c files of this folder.
 */
#ifndef BROKER_LATER_TEST_H
#define BROKER_LATER_TEST_H

#include "broker/rig_test.h"

/* Sends one message with these properties (or with a delay level) and lets it be seen. */
static inline struct produce later_send(struct rig *rig, const char *topic, const char *props,
                                        const char *body)
{
    struct produce r = rig_message(topic, body);
    r.props = bytes_str(props);
    assert_int_equal(rig_produce(rig, &r), OK);
    broker_dispatch_turn(rig->broker);
    return r;
}

static inline struct produce later_level(struct rig *rig, const char *topic, int level,
                                         const char *body)
{
    char props[64];
    snprintf(props, sizeof props, "TAGS\1A\2DELAY\1%d\2", level);
    return later_send(rig, topic, props, body);
}

/* Turns until nothing is due any more. How many were delivered. */
static inline uint64_t later_turn(struct rig *rig)
{
    uint64_t delivered = 0;
    struct service_turn turn;
    do {
        broker_delay_turn(rig->broker, &turn);
        assert_int_equal(turn.err, OK);
        delivered += turn.done;
    } while (turn.next_ms == 0);
    return delivered;
}

static inline int64_t later_count(struct rig *rig, const char *topic, int32_t queue_id)
{
    struct queue *queue = store_queue_find(rig->store, bytes_str(topic), queue_id);
    return queue ? queue_max(queue) : 0;
}

/* One record of a queue, straight from the store; its slice is `*got`. */
static inline struct record later_record(struct rig *rig, const char *topic, int32_t queue_id,
                                         int64_t offset, struct slice *got)
{
    struct queue *queue = store_queue_find(rig->store, bytes_str(topic), queue_id);
    assert_non_null(queue);
    struct read_result read;
    store_read(rig->store, queue, &(struct read_request){.offset = offset, .max_count = 1}, &read);
    assert_int_equal(read.status, READ_FOUND);
    assert_int_equal(read.n_slices, 1);
    *got = read.slices[0];
    struct record record;
    assert_int_equal(record_decode(got->bytes, &record), OK);
    return record;
}

/* Its properties, in the order of their names: "A=1 B=2". */
static inline int later_by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static inline const char *later_props(struct bytes props, char out[1024])
{
    char *pairs[64], text[4096];
    size_t n = 0, used = 0, at = 0;
    struct props_walk walk = props_walk(props);
    struct prop p;
    while (props_next(&walk, &p)) {
        assert_true(n < 64 && used + p.name.len + p.value.len + 2 < sizeof text);
        pairs[n++] = text + used;
        used += (size_t)snprintf(text + used, sizeof text - used, "%.*s=%.*s", BYTES_ARG(p.name),
                                 BYTES_ARG(p.value)) +
                1;
    }
    qsort(pairs, n, sizeof *pairs, later_by_name);
    out[0] = 0;
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, 1024 - at, "%s%s", i ? " " : "", pairs[i]);
    return out;
}

static inline struct bytes later_prop(struct bytes props, const char *name)
{
    struct bytes value = BYTES("(none)");
    (void)props_get(props, bytes_str(name), &value);
    return value;
}

#endif
