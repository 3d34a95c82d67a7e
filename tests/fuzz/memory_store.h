/* memory_store.h - a store on a disk in memory, and what must be true of it whatever its files
 * were.
 */
#ifndef FUZZ_MEMORY_STORE_H
#define FUZZ_MEMORY_STORE_H

#include "memory_vfs.h"

#include "base/crc32.h"
#include "store/store_int.h"

#include <stdio.h>

#define LOG_SIZE   4096
#define QUEUE_SIZE 400 /* 20 units */
#define MESSAGES   60
#define QUEUES     2

struct memory_store {
    struct clock_manual clock;
    struct store_options options;
    struct store *store;
    struct store_report report;
};

static inline enum err memory_store_open(struct memory_store *s, struct memory_vfs *m)
{
    *s = (struct memory_store){0};
    clock_manual_init(&s->clock, 1700000000000);
    s->options = (struct store_options){.vfs = &m->vfs,
                                        .clock = &s->clock.clock,
                                        .log_file_size = LOG_SIZE,
                                        .queue_file_size = QUEUE_SIZE,
                                        .max_record_size = 2048};
    struct fault why = {0};
    enum err err = store_open(&s->options, &s->store, &s->report, &why);
    invariant(err == OK || why.text[0] != 0); /* a refusal comes with its reason */
    return err;
}

static inline void dispatch_all(struct store *store)
{
    static struct arrival news[ARRIVALS_MAX];
    while (store_dispatch_turn(store, news) > 0)
        ;
}

/* Goes through a queue as a consumer does. Returns how many messages it got. */
static inline uint64_t read_all(struct store *store, struct queue *queue)
{
    uint64_t count = 0;
    for (int64_t at = queue_min(store, queue); at < queue_max(queue);) {
        static struct read_result found;
        const struct read_request request = {.offset = at, .max_count = 32, .max_bytes = 1 << 16};
        store_read(store, queue, &request, &found);
        if (found.status != READ_FOUND)
            return count;
        for (size_t i = 0; i < found.n_slices; i++) {
            struct bytes rest = found.slices[i].bytes;
            uint32_t size;
            while (rest.len > 0 && record_peek(rest, &size) == RECORD_MESSAGE && size <= rest.len)
                rest = bytes_from(rest, size);
            counted_drop(found.slices[i].owner);
        }
        invariant(found.next > at); /* a reader always gets on */
        count += found.count;
        at = found.next;
    }
    return count;
}

static inline void ignore_finding(void *user, const struct check_finding *finding)
{
    const bool *show = user;
    if (*show)
        (void)fprintf(stderr, "%s at %lld: %s\n", finding->file, (long long)finding->at,
                      finding->text);
}

/* How much damage a check finds; it ends, and changes nothing, in any folder. */
static inline uint64_t check_damages(struct memory_vfs *m, bool show, uint64_t *records)
{
    struct check_summary sum = {0};
    const struct check_calls calls = {ignore_finding, NULL, &show};
    enum err err = store_check(&m->vfs, &calls, &sum, NULL);
    invariant(err == OK || err == ERR_NOT_FOUND);
    if (records)
        *records = sum.records;
    return sum.damages;
}

/* MESSAGES messages in the queues of topic T, closed cleanly. */
static inline void memory_store_fill(struct memory_vfs *m)
{
    struct memory_store s;
    memory_init(m);
    invariant(memory_store_open(&s, m) == OK);
    for (int32_t i = 0; i < MESSAGES; i++) {
        struct draft d = {.queue = store_queue(s.store, BYTES("T"), i % QUEUES),
                          .topic = BYTES("T"),
                          .body = BYTES("some body that is neither short nor long"),
                          .props = i % 3 ? BYTES("TAGS\1TagA\2KEYS\1k\2") : BYTES(""),
                          .queue_id = i % QUEUES};
        d.body_crc = crc32_positive(d.body);
        d.born_host.ip_len = d.store_host.ip_len = 4;
        clock_manual_advance(&s.clock, 1000);
        struct stored out;
        uint64_t end;
        invariant(store_append(s.store, &d, 1, &out, &end) == OK);
    }
    dispatch_all(s.store);
    invariant(store_close(s.store, NULL) == OK);
    invariant(check_damages(m, true, NULL) == 0);
}

/* All MESSAGES are there, each in its queue. */
static inline void law_all_there(struct memory_store *s)
{
    uint64_t count = 0;
    for (int32_t i = 0; i < QUEUES; i++) {
        struct queue *queue = store_queue_find(s->store, BYTES("T"), i);
        invariant(queue);
        invariant(queue_min(s->store, queue) == 0);
        invariant(queue_max(queue) == MESSAGES / QUEUES);
        count += read_all(s->store, queue);
    }
    invariant(count == MESSAGES);
}

#endif
