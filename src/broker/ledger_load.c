/* ledger_load.c - after a start: the ledger is made from what the log has, before anybody asks.
 *
 * The entries of its queue are read in their order; each says what its key had afterwards. If the
 * queue does not begin with its first record any more, or a record cannot be read, marks may be
 * missing: what is there is kept, but the ledger is another one from now on, and says so.
 */
#include "broker/ledger_int.h"

#include <stdio.h>

#define READ_COUNT 256
#define READ_BYTES (1u << 20)

struct loading {
    struct broker *b;
    int64_t position; /* of the record that is read */
    int64_t seen_ms;  /* the latest time that an entry tells */
    uint64_t birth;
    uint64_t damaged; /* records */
    enum err err;
};

static bool entry_take(void *user, const struct ledger_entry *e)
{
    struct loading *l = user;
    l->seen_ms = e->at_ms > l->seen_ms ? e->at_ms : l->seen_ms;
    enum err err = ledger_load(l->b->ledger->ledger, e, l->position);
    if (err == ERR_NO_MEMORY)
        l->err = err;
    else if (err)
        l->damaged++;
    return !l->err;
}

static void record_take(struct loading *l, const struct record *record)
{
    struct bytes text;
    int64_t birth;
    l->position = record->position;
    if (entries_read(record->body, entry_take, l))
        l->damaged++;
    if (props_get(record->props, LEDGER_BIRTH, &text) && bytes_to_i64(text, &birth) && birth > 0)
        l->birth = (uint64_t)birth;
}

static void slices_take(struct loading *l, const struct read_result *got)
{
    for (size_t i = 0; i < got->n_slices; i++) {
        struct bytes rest = got->slices[i].bytes;
        struct record record;
        while (!l->err && rest.len > 0 && record_decode(rest, &record) == OK) {
            rest = bytes_from(rest, record.size);
            record_take(l, &record);
        }
        counted_drop(got->slices[i].owner);
    }
}

static enum err queue_take(struct loading *l, struct queue *queue, int64_t from)
{
    struct store *store = l->b->store;
    for (int64_t at = from; !l->err && at < queue_max(queue);) {
        struct read_request request = {
            .offset = at, .max_count = READ_COUNT, .max_bytes = READ_BYTES};
        struct read_result got;
        store_read(store, queue, &request, &got);
        if (got.status == READ_FOUND)
            slices_take(l, &got);
        else
            l->damaged++;
        at = got.next > at ? got.next : at + 1;
    }
    return l->err;
}

/* The operator should know, in any case. */
static void note_add(struct broker *b, const char *text)
{
    size_t used = strlen(b->note);
    snprintf(b->note + used, sizeof b->note - used, "%s%s", used ? "; " : "", text);
}

static void time_begin(struct broker *b, int64_t seen_ms)
{
    int64_t wall_ms = clock_ms(b->clock), start_ms = wall_ms > seen_ms ? wall_ms : seen_ms + 1;
    b->ledger->ahead_ms = start_ms - (int64_t)(clock_ns(b->clock) / 1000000);
    ledger_begins(b->ledger->ledger, start_ms);
}

enum err ledger_replay(struct broker *b, struct fault *why)
{
    struct ledger_room *r = b->ledger;
    struct loading l = {.b = b};
    time_begin(b, 0);
    if (!r->on)
        return OK;
    r->queue = store_queue_find(b->store, BYTES(LEDGER_TOPIC), 0);
    if (!r->queue)
        return OK;
    int64_t first = queue_min(b->store, r->queue);
    enum err err = queue_take(&l, r->queue, first);
    if (err)
        return fault_set(why, err, "reading the once ledger: %s", err_text(err));
    r->birth = l.birth;
    r->end = store_confirmed(b->store);
    time_begin(b, l.seen_ms);
    if (first > 0 || l.damaged) {
        r->birth = 0; /* the next turn gives it another one */
        note_add(b, first > 0 ? "the once ledger has lost marks that its clients were told of: the "
                                "log's beginning was deleted. They are told once"
                              : "the once ledger has lost marks that its clients were told of: "
                                "records cannot be read. They are told once");
    }
    return OK;
}
