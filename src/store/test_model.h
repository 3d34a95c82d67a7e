/* test_model.h - what a store must answer, told by arrays. Tests only.
 *
 * The model is as simple as the store is not: a list of all messages that were stored, for each
 * queue the list of its messages, and the named positions. It knows no files beyond the arithmetic
 * of where one ends, and it calls nothing of the store: sizes, places and hashes are worked out
 * here a second time.
 *
 * What message number n carries is decided by n and the seed, so nothing has to be kept of it.
 */
#ifndef STORE_TEST_MODEL_H
#define STORE_TEST_MODEL_H

#include "base/dice.h"
#include "store/store.h"

#define MODEL_QUEUES_MAX 300
#define MODEL_KEYS_MAX   4
#define MODEL_KEYS       24 /* different ones, for each topic */
#define MODEL_BODY_MAX   16000
#define MODEL_PROPS_MAX  34000 /* more than a record can have */
#define MODEL_DELAYS     3

/* A message that was stored. */
struct model_entry {
    uint64_t number;
    uint32_t queue, size;
    int64_t position, offset, store_ms;
    int64_t tags; /* what its unit has as third field */
    uint32_t hashes[MODEL_KEYS_MAX];
    size_t n_hashes;
};

struct model_queue {
    uint32_t *at; /* by offset: which of model.log */
    int64_t n, cap;
    int64_t min, max; /* what can be read */
};

struct model {
    uint64_t seed;
    uint64_t log_file_size;
    uint32_t record_max;
    size_t n_queues, n_in_topic;
    int64_t delays_ms[MODEL_DELAYS];
    bool sync_flush;

    struct model_entry *log;
    size_t n, cap;
    struct model_queue queues[MODEL_QUEUES_MAX];
    uint64_t next_number;
    int64_t last_ms;
    uint64_t first, written, flushed, confirmed, dispatched;

    int64_t reserved_ms;
    bool any_hour;   /* retention works at any hour; else on request or under pressure */
    unsigned used;   /* percent of the disk */
    int64_t round;   /* ms: when it was last looked at */
    unsigned manual; /* rounds */
    bool full;
};

/* The buffers of a draft. */
struct model_room {
    char topic[160], props[MODEL_PROPS_MAX];
    uint8_t body[MODEL_BODY_MAX];
};

void model_init(struct model *m, uint64_t seed); /* chooses the sizes as well */
void model_clear(struct model *m);

struct bytes model_topic(const struct model *m, uint32_t queue, char out[160]);
int32_t model_queue_id(const struct model *m, uint32_t queue);
struct bytes model_key(uint64_t key, char out[32]);
/* Message `number` for a queue; its `queue` and `with_next` are the caller's. */
struct draft model_draft(const struct model *m, uint64_t number, uint32_t queue,
                         struct model_room *room);

/* The drafts are stored: what must be the answer for each, and the end. */
void model_append(struct model *m, const struct draft *drafts, const uint32_t *queues, size_t n,
                  int64_t now_ms, struct stored *out);
/* All that is confirmed becomes readable; so many messages. */
uint64_t model_dispatch(struct model *m);
/* The store was closed or left, and opened at this time. */
void model_reopen(struct model *m, int64_t mono_ms);
void model_clean(struct model *m, int64_t now_ms, int64_t mono_ms);

/* `out` has no slices, only their number; `picked` are the messages, as many as out->count. */
void model_read(const struct model *m, uint32_t queue, const struct read_request *request,
                struct read_result *out, uint32_t *picked);
int64_t model_store_time(const struct model *m, uint32_t queue, int64_t offset);
int64_t model_search_time(const struct model *m, uint32_t queue, int64_t ts);
/* The newest `max` places with a key that were stored in this time; rising. */
size_t model_query(const struct model *m, struct bytes topic, struct bytes key, int64_t begin_ms,
                   int64_t end_ms, size_t max, int64_t *out);
/* The message at a position, if it is confirmed and still there; or NULL. */
const struct model_entry *model_at(const struct model *m, int64_t position);
/* How many messages the log has. */
size_t model_log_count(const struct model *m);
uint64_t model_units(const struct model *m); /* that can be read */

#endif
