/* dedup_rig_test.h - what the tests of dedup share: a broker that has it on, and short ways to
 * send.
 *
 * Only for the x_test.c files of this folder.
 */
#ifndef BROKER_DEDUP_RIG_TEST_H
#define BROKER_DEDUP_RIG_TEST_H

#include "broker/dedup_int.h"
#include "broker/later_test.h"

static inline void restart_with(struct rig *rig, const char *key)
{
    rig->options.dedup_key = key;
    rig_again(rig);
}

static inline int dedup_rig_open(void **state)
{
    int failed = rig_open(state);
    if (!failed)
        restart_with(*state, "UNIQ_KEY");
    return failed;
}
#define dedup_case(name) cmocka_unit_test_setup_teardown(name, dedup_rig_open, rig_close)

static inline const char *key_props(const char *key)
{
    static char text[4][128];
    static int at;
    char *props = text[at++ % 4];
    snprintf(props, sizeof text[0], "TAGS\1A\2UNIQ_KEY\1%s\2", key);
    return props;
}

static inline struct produce message(const char *topic, const char *key, int32_t queue_id)
{
    struct produce r = rig_message(topic, "x");
    r.props = bytes_str(key_props(key));
    r.queue_id = queue_id;
    return r;
}

struct answer {
    int64_t position, queue_offset;
    int32_t queue_id;
    uint32_t known;
};

static inline struct answer answer_of(struct rig *rig, const struct produce *r)
{
    assert_int_equal(r->err, OK);
    return (struct answer){desk_stored(rig->desk)[r->first].position, r->queue_offset,
                           r->stored_queue_id, r->known};
}

static inline struct answer send_with(struct rig *rig, const char *topic, const char *props,
                                      int32_t queue_id)
{
    struct produce r = rig_message(topic, "x");
    r.props = bytes_str(props);
    r.queue_id = queue_id;
    (void)rig_produce(rig, &r);
    broker_dispatch_turn(rig->broker);
    return answer_of(rig, &r);
}

static inline struct answer send(struct rig *rig, const char *topic, const char *key,
                                 int32_t queue_id)
{
    return send_with(rig, topic, key_props(key), queue_id);
}

static inline void assert_same(struct answer first, struct answer second)
{
    assert_int_equal(first.position, second.position);
    assert_int_equal(first.queue_offset, second.queue_offset);
    assert_int_equal(first.queue_id, second.queue_id);
}

static inline int64_t stored_in(struct rig *rig, const char *topic)
{
    int64_t n = 0;
    for (int32_t i = 0; i < 8; i++)
        n += later_count(rig, topic, i);
    return n;
}

static inline void set_attribute(struct rig *rig, const char *topic, const char *changes)
{
    struct topic_settings set = {
        .name = bytes_str(topic), .read_queues = 4, .write_queues = 4, .perm = 6};
    assert_int_equal(broker_topic_set(rig->broker, &set, bytes_str(changes), NULL), OK);
}

static inline struct broker_numbers numbers(struct rig *rig)
{
    struct broker_numbers n;
    broker_numbers(rig->broker, &n);
    return n;
}

#endif
