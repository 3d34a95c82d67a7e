/* keys.c - the store's side of the index: filled as the log grows and after a start, asked for
 * keys.
 *
 * The index is derived like the queues, and follows `dispatched` with them: a turn adds the keys of
 * the records it reads and makes them visible together with their units. A store without an index
 * (its shape has no slots) passes all of this over.
 */
#include "store/index_int.h"
#include "store/store_int.h"

#include <stdio.h>

static bool wanted(const struct store *store)
{
    return store->options.index_slots > 0;
}

enum err keys_add(struct store *store, const struct record *record, const struct marks *marks,
                  struct fault *why)
{
    return store->index ? index_add_marked(store->index, record, marks, why) : OK;
}

enum err keys_add_slip(struct store *store, const struct slip *slip, struct fault *why)
{
    if (!store->index)
        return OK;
    struct index_item item = {slip->position, slip->size, slip->store_ms};
    return index_add_hashes(store->index, &item, slip->marks.keys, slip->marks.n_keys, why);
}

enum err keys_turn_end(struct store *store, struct fault *why)
{
    return store->index ? index_turn_end(store->index, why) : OK;
}

/* ---- at the start ---- */

/* Adds one file's records from `*at` on. Recovery has verified everything up to `end`. */
static enum err add_file(struct store *store, uint64_t end, uint64_t *at, struct fault *why)
{
    cleanup(segment_drop_at) struct segment *seg = NULL;
    struct stretch s;
    enum err err = log_stretch(store, *at, &seg, &s, why);
    while (!err && *at < end && *at < s.end) {
        struct record r;
        err = stretch_step(&s, at, &r, why);
        if (!err && r.size > 0)
            err = index_add(store->index, &r, why);
    }
    return err ? err : index_turn_end(store->index, why);
}

/* After a crash the newest files of the index are doubtful as a rule, and simply built again. */
static void tell(const struct index_report *found, struct store_report *report)
{
    if (!report->clean)
        return;
    size_t used = strlen(report->note);
    if (found->note[0] && used + 4 < sizeof report->note)
        (void)snprintf(report->note + used, sizeof report->note - used, "%s%s", used ? "; " : "",
                       found->note);
}

enum err keys_open(struct store *store, struct store_report *report, struct fault *why)
{
    if (!wanted(store))
        return OK;
    struct index_options options = {
        .vfs = store->vfs,
        .clock = store->options.clock,
        .shape = {store->options.index_slots, store->options.index_entries},
    };
    uint64_t end = position_get(&store->positions.dispatched);
    struct index_report found;
    enum err err = index_open(&options, report->clean, end, &store->index, &found, why);
    if (err)
        return err;
    tell(&found, report);
    uint64_t at = found.redo > store->log.first ? found.redo : store->log.first;
    while (!err && at < end)
        err = add_file(store, end, &at, why);
    return err;
}

/* ---- keeping and closing ---- */

void keys_keep(struct store *store)
{
    struct index_flushed flushed;
    if (!store->index || index_flush(store->index, &flushed, NULL))
        return; /* what is on disk stays true; the log has the rest */
    store->checkpoint.index_ms = flushed.sealed_ms;
}

enum err keys_forget(struct store *store, uint64_t first, struct fault *why)
{
    return store->index ? index_remove_before(store->index, first, why) : OK;
}

enum err keys_close(struct store *store, struct fault *why)
{
    return store->index ? index_close(take(&store->index), why) : OK;
}

void keys_abandon(struct store *store)
{
    if (store->index)
        index_abandon(take(&store->index));
}

/* ---- asking ---- */

enum err store_query(struct store *store, const struct store_query *query, struct store_found *out)
{
    if (!store->index)
        return ERR_UNSUPPORTED;
    struct index_query q = {query->topic, query->key, query->max, query->begin_ms, query->end_ms};
    struct index_result got;
    enum err err = index_query(store->index, &q, &got);
    if (err)
        return err;
    *out = (struct store_found){.end_ms = got.end_ms, .end_position = (int64_t)got.end_position};
    uint64_t first = position_get(&store->positions.first);
    for (size_t i = 0; i < got.n; i++) {
        if (got.positions[i] >= first)
            out->positions[out->n++] = (int64_t)got.positions[i];
    }
    return OK;
}
