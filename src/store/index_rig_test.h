/* index_rig_test.h - an index in a folder of its own, and a model of it that is a plain array.
 *
 * The model holds the log: records with their keys. The index must hold their entries in that
 * order, cut into files of the same length, whatever happened on the way; so what a query has to
 * find follows from the array alone.
 */
#ifndef STORE_INDEX_RIG_TEST_H
#define STORE_INDEX_RIG_TEST_H

#include "store/index_int.h"
#include "store/test_house.h"

#include <stdio.h>

#define RIG_RECORDS_MAX 20000
#define RIG_KEYS_MAX    4  /* words in one record */
#define RIG_TEXTS       40 /* different words */
#define RIG_START_MS    1700000000000

struct rig_record {
    uint64_t position;
    uint32_t size;
    int64_t store_ms;
    bool has_unique; /* its UNIQ_KEY is U and its number */
    uint64_t number;
    uint32_t n_words;
    uint32_t words[RIG_KEYS_MAX];
};

struct rig {
    struct house h; /* only its folder, disk and clock */
    struct index_options options;
    struct index *index;
    struct index_report report;
    struct rig_record *log;
    size_t n;
    uint64_t end; /* of the log */
    uint64_t numbers;
};

static inline void rig_init(struct rig *r, uint64_t seed, uint32_t slots, uint32_t entries)
{
    memset(r, 0, sizeof *r);
    house_init(&r->h, seed);
    r->options = (struct index_options){&r->h.fault->vfs, &r->h.clock.clock, {slots, entries}};
    r->log = calloc(RIG_RECORDS_MAX, sizeof *r->log);
    assert_non_null(r->log);
}

static inline void rig_clear(struct rig *r)
{
    index_abandon(r->index);
    free(r->log);
    house_clear(&r->h);
}

static inline struct bytes rig_text(char out[32], char kind, uint64_t n)
{
    int len = snprintf(out, 32, "%c%llu", kind, (unsigned long long)n);
    return bytes_of(out, (size_t)len);
}

static inline enum err rig_offer(struct rig *r, const struct rig_record *rec)
{
    char text[256], key[32];
    struct wr w = wr_over(text, sizeof text);
    if (rec->has_unique)
        props_add(&w, PROP_UNIQ_KEY, rig_text(key, 'U', rec->number));
    char words[RIG_KEYS_MAX * 32];
    struct wr list = wr_over(words, sizeof words);
    for (uint32_t i = 0; i < rec->n_words; i++) {
        if (i)
            wr_u8(&list, ' ');
        wr_bytes_of(&list, rig_text(key, 'K', rec->words[i]));
    }
    if (rec->n_words)
        props_add(&w, PROP_KEYS, wr_bytes(&list));
    struct record record = {.position = (int64_t)rec->position,
                            .size = rec->size,
                            .store_ms = rec->store_ms,
                            .topic = BYTES("Topic"),
                            .props = wr_bytes(&w)};
    return index_add(r->index, &record, &r->h.why);
}

/* Adds the log from a position on, in turns of some records. */
static inline enum err rig_redo(struct rig *r, uint64_t from, size_t turn)
{
    enum err err = OK;
    size_t in_turn = 0;
    for (size_t i = 0; i < r->n && !err; i++) {
        if (r->log[i].position < from)
            continue;
        err = rig_offer(r, &r->log[i]);
        if (!err && ++in_turn % turn == 0)
            err = index_turn_end(r->index, &r->h.why);
    }
    return err ? err : index_turn_end(r->index, &r->h.why);
}

static inline enum err rig_open(struct rig *r, bool clean)
{
    return index_open(&r->options, clean, r->end, &r->index, &r->report, &r->h.why);
}

static inline void rig_must(struct rig *r, enum err err)
{
    if (err)
        print_error("%s: %s\n", err_text(err), r->h.why.text);
    assert_int_equal(err, OK);
}

/* Opens and brings it up to the log, as the store does. */
static inline void rig_must_open(struct rig *r, bool clean)
{
    rig_must(r, rig_open(r, clean));
    rig_must(r, rig_redo(r, r->report.redo, 3));
}

static inline void rig_must_close(struct rig *r)
{
    rig_must(r, index_close(take(&r->index), &r->h.why));
}

/* One more record in the log; not yet in the index. */
static inline struct rig_record *rig_append(struct rig *r, struct dice *dice)
{
    assert_true(r->n < RIG_RECORDS_MAX);
    struct rig_record *rec = &r->log[r->n++];
    *rec = (struct rig_record){.position = r->end, .size = 100 + (uint32_t)dice_below(dice, 300)};
    rec->store_ms = clock_ms(&r->h.clock.clock);
    rec->number = r->numbers++;
    rec->has_unique = dice_below(dice, 8) != 0;
    rec->n_words = dice_below(dice, 2) ? (uint32_t)dice_below(dice, RIG_KEYS_MAX + 1) : 0;
    for (uint32_t i = 0; i < rec->n_words; i++)
        rec->words[i] = (uint32_t)dice_below(dice, RIG_TEXTS);
    r->end += rec->size;
    return rec;
}

/* ---- what must be found ---- */

struct rig_entry {
    uint32_t hash;
    uint64_t position;
    int64_t store_ms;
};

static inline size_t rig_entries(const struct rig *r, struct rig_entry *out)
{
    size_t n = 0;
    char key[32];
    struct bytes topic = BYTES("Topic");
    for (size_t i = 0; i < r->n; i++) {
        const struct rig_record *rec = &r->log[i];
        uint32_t keys = rec->has_unique + rec->n_words;
        for (uint32_t k = 0; k < keys; k++) {
            struct bytes text = rec->has_unique && k == 0
                                    ? rig_text(key, 'U', rec->number)
                                    : rig_text(key, 'K', rec->words[k - rec->has_unique]);
            out[n++] = (struct rig_entry){index_hash(topic, text), rec->position, rec->store_ms};
        }
    }
    return n;
}

/* One file of the model: entries [from, to). Newest first; what it may not find is not in it. */
static inline bool rig_search_file(const struct rig *r, const struct rig_entry *all, size_t from,
                                   size_t to, uint32_t hash, const struct index_query *q,
                                   struct index_result *out)
{
    int64_t begin = all[from].store_ms, end = all[to - 1].store_ms;
    bool overlaps = (q->begin_ms < begin && q->end_ms > end) ||
                    (q->begin_ms >= begin && q->begin_ms <= end) ||
                    (q->end_ms >= begin && q->end_ms <= end);
    for (size_t i = to; overlaps && i-- > from && out->n < q->max;) {
        if (all[i].hash % r->options.shape.slots != hash % r->options.shape.slots)
            continue;
        int64_t ms = begin + (all[i].store_ms - begin) / 1000 * 1000;
        if (all[i].hash == hash && ms >= q->begin_ms && ms <= q->end_ms)
            out->positions[out->n++] = all[i].position;
        if (ms < q->begin_ms)
            break;
    }
    return out->n < q->max && begin >= q->begin_ms;
}

static inline void rig_expect(const struct rig *r, const struct rig_entry *all, size_t n,
                              uint32_t hash, const struct index_query *q, struct index_result *out)
{
    size_t a_file = r->options.shape.entries - 1;
    *out = (struct index_result){0};
    for (size_t to = n; to > 0;) {
        size_t from = (to - 1) / a_file * a_file;
        if (!rig_search_file(r, all, from, to, hash, q, out))
            break;
        to = from;
    }
    for (size_t i = 1; i < out->n; i++) /* rising */
        for (size_t k = i; k > 0 && out->positions[k - 1] > out->positions[k]; k--) {
            uint64_t swap = out->positions[k];
            out->positions[k] = out->positions[k - 1];
            out->positions[k - 1] = swap;
        }
}

static inline void rig_check_one(struct rig *r, const struct rig_entry *all, size_t n,
                                 struct bytes key, int64_t begin_ms, int64_t end_ms)
{
    struct index_query q = {BYTES("Topic"), key, INDEX_QUERY_MAX, begin_ms, end_ms};
    struct index_result got, wanted;
    rig_expect(r, all, n, index_hash(q.topic, key), &q, &wanted);
    assert_int_equal(index_query(r->index, &q, &got), OK);
    if (got.n != wanted.n)
        print_error("%.*s: %zu found, %zu expected\n", BYTES_ARG(key), got.n, wanted.n);
    assert_int_equal(got.n, wanted.n);
    assert_memory_equal(got.positions, wanted.positions, got.n * sizeof *got.positions);
}

/* Asks for every word and for some unique keys, over all time and over a random stretch. */
static inline void rig_check(struct rig *r, struct dice *dice, bool stretches)
{
    struct rig_entry *all = calloc(r->n * (RIG_KEYS_MAX + 1) + 1, sizeof *all);
    assert_non_null(all);
    size_t n = rig_entries(r, all);
    char key[32];
    for (uint64_t i = 0; i < RIG_TEXTS; i++)
        rig_check_one(r, all, n, rig_text(key, 'K', i), 0, INT64_MAX);
    size_t step = r->n / 200 + 1;
    for (size_t i = r->n ? (size_t)dice_below(dice, step) : 0; i < r->n; i += step)
        rig_check_one(r, all, n, rig_text(key, 'U', r->log[i].number), 0, INT64_MAX);
    int64_t span = clock_ms(&r->h.clock.clock) - RIG_START_MS + 2000;
    for (uint64_t i = 0; stretches && i < RIG_TEXTS; i++) {
        int64_t begin = RIG_START_MS - 1000 + (int64_t)dice_below(dice, (uint64_t)span);
        int64_t end = begin + (int64_t)dice_below(dice, (uint64_t)span);
        rig_check_one(r, all, n, rig_text(key, 'K', i), begin, end);
    }
    free(all);
}

#endif
