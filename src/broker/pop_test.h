/* pop_test.h - what the tests of POP share.
 *
 * Only for the x_test.c files of this folder.
 */
#ifndef BROKER_POP_TEST_H
#define BROKER_POP_TEST_H

#include "broker/later_test.h"
#include "broker/pop_int.h"

/* A message as a consumer has it. */
struct held {
    char topic[64], body[32];
    int32_t queue_id;
    int64_t offset;
    struct handle handle;
    int32_t tries;
};

struct popper {
    struct rig *rig;
    struct mark_desk *desk;
    struct held held[POP_MAX];
    size_t n;
    struct popped got;
    struct fault why;
    uint64_t end; /* of the last write */
};

static inline struct pop pop_wish(const char *group, const char *topic, uint32_t count,
                                  int64_t invisible_ms)
{
    return (struct pop){.group = bytes_str(group),
                        .topic = bytes_str(topic),
                        .queue_id = -1,
                        .max_count = count,
                        .invisible_ms = invisible_ms};
}

/* Pops, notes what came, and lets go of it. */
static inline enum err pop_now(struct popper *p, const struct pop *pop)
{
    p->n = 0;
    enum err err = broker_pop(p->rig->broker, p->desk, pop, &p->got, &p->why);
    if (err)
        return err;
    size_t slice = 0;
    uint32_t at = 0;
    for (size_t i = 0; i < p->got.n_parts; i++) {
        const struct pop_part *part = &p->got.parts[i];
        struct bytes rest = {0};
        for (uint32_t k = 0; k < part->n; k++, at++) {
            if (rest.len == 0)
                rest = p->got.slices[slice++].bytes;
            struct record record;
            assert_int_equal(record_decode(rest, &record), OK);
            rest = bytes_from(rest, record.size);
            struct held *h = &p->held[p->n++];
            snprintf(h->topic, sizeof h->topic, "%.*s", BYTES_ARG(record.topic));
            snprintf(h->body, sizeof h->body, "%.*s", BYTES_ARG(record.body));
            h->queue_id = part->queue_id;
            h->offset = p->got.offsets[at];
            h->tries = record.reconsume_times;
            h->handle =
                (struct handle){part->start, p->got.pop_ms, pop->invisible_ms, p->got.revive_id};
            assert_int_equal(record.queue_offset, h->offset);
            bool second = memchr(record.topic.at, '+', record.topic.len);
            assert_int_equal(part->retry, bytes_start(record.topic, RETRY_PREFIX) + second);
        }
        assert_int_equal(rest.len, 0);
    }
    assert_int_equal(slice, p->got.n_slices);
    for (size_t i = 0; i < p->got.n_slices; i++)
        counted_drop(p->got.slices[i].owner);
    filter_drop(p->got.filter);
    return OK;
}

/* How many messages such a pop gets. */
static inline size_t pop_count(struct popper *p, const char *group, const char *topic,
                               uint32_t count, int64_t invisible_ms)
{
    struct pop pop = pop_wish(group, topic, count, invisible_ms);
    assert_int_equal(pop_now(p, &pop), OK);
    return p->n;
}

static inline enum err pop_ack(struct popper *p, const char *group, const struct held *h)
{
    struct ack ack = {.group = bytes_str(group),
                      .topic = bytes_str(h->topic),
                      .queue_id = h->queue_id,
                      .handle = h->handle,
                      .n = 1,
                      .offsets = &h->offset};
    broker_ack(p->rig->broker, p->desk, &ack, 1, &p->end);
    p->why = ack.why;
    if (ack.stored)
        broker_dispatch_turn(p->rig->broker);
    else
        p->end = 0;
    return ack.err;
}

/* The held message has the new handle afterwards. */
static inline enum err pop_retime(struct popper *p, const char *group, struct held *h,
                                  int64_t invisible_ms)
{
    struct retime r = {.group = bytes_str(group),
                       .topic = bytes_str(h->topic),
                       .queue_id = h->queue_id,
                       .handle = h->handle,
                       .offset = h->offset,
                       .invisible_ms = invisible_ms};
    enum err err = broker_retime(p->rig->broker, p->desk, &r, &p->end, &p->why);
    if (!err)
        h->handle = r.renewed;
    broker_dispatch_turn(p->rig->broker);
    return err;
}

/* Turns until nothing is due; how many came again or are dead. */
static inline uint64_t pop_turn(struct rig *rig)
{
    uint64_t done = 0;
    struct service_turn turn;
    do {
        broker_pop_turn(rig->broker, &turn);
        assert_int_equal(turn.err, OK);
        done += turn.done;
    } while (turn.next_ms == 0);
    return done;
}

static inline struct broker_numbers pop_numbers_of(struct rig *rig)
{
    struct broker_numbers n;
    broker_numbers(rig->broker, &n);
    return n;
}

/* ---- a case of its own ---- */

static inline int pop_open_rig(void **state)
{
    struct popper *p = calloc(1, sizeof *p);
    void *rig = NULL;
    rig_open(&rig);
    p->rig = rig;
    assert_int_equal(mark_desk_open(&p->desk), OK);
    rig_topic_put(p->rig, "T", 4, PERM_READ | PERM_WRITE);
    *state = p;
    return 0;
}

static inline int pop_close_rig(void **state)
{
    struct popper *p = *state;
    void *rig = p->rig;
    mark_desk_close(p->desk);
    rig_close(&rig);
    free(p);
    return 0;
}

#define pop_case(name) cmocka_unit_test_setup_teardown(name, pop_open_rig, pop_close_rig)

static inline void send_to(struct popper *p, int32_t queue_id, const char *body)
{
    struct produce r = rig_message("T", body);
    r.queue_id = queue_id;
    assert_int_equal(rig_produce(p->rig, &r), OK);
    broker_dispatch_turn(p->rig->broker);
}

#endif
