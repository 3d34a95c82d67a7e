/* ledger_load.c - after a start: the ledger is made from what the log has, before anybody asks.
 *
 * First the snapshot, if there is one, then the records of its queue that came behind it, in their
 * order; each entry says what its key had afterwards. If records are missing between the two, or
 * cannot be read, marks may be missing: what is there is kept, but the ledger is another one from
 * now on, and says so.
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
    uint64_t damaged;          /* records */
    uint64_t tail, tail_first; /* bytes of records; where the first stands */
    enum err err;
};

static bool entry_take(void *user, const struct ledger_entry *e)
{
    struct loading *l = user;
    enum err err = ledger_load(l->b->ledger->ledger, e, l->position);
    if (!err && e->at_ms > l->seen_ms)
        l->seen_ms = e->at_ms;
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
    l->tail_first = l->tail ? l->tail_first : (uint64_t)record->position;
    l->tail += record->size;
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

/* What the file says; where in the queue to go on. `*lost`: a snapshot that cannot be used. */
static enum err snapshot_take(struct loading *l, int64_t *offset, bool *damaged, struct fault *why)
{
    struct snapshot_head head;
    enum err err = ledger_saved_read(l->b, &head, why);
    *offset = 0;
    *damaged = err == ERR_DAMAGED || err == ERR_UNSUPPORTED;
    if (*damaged)
        err = ledger_table_open(l->b); /* a part of it is worse than nothing */
    else if (!err) {
        *offset = head.offset;
        l->birth = head.birth;
        l->seen_ms = head.time_ms;
    }
    return err == ERR_NOT_FOUND ? OK : err;
}

/* The queue's end is known, and how far before it the snapshot is. */
static void tail_begin(struct ledger_room *r, const struct loading *l, int64_t end)
{
    r->next_offset = end;
    r->tail = l->tail;
    r->tail_first = l->tail_first;
}

/* Marks may be missing: it is another one from now on, and a start after this one must not find the
 * same gap. */
static enum err born_again(struct broker *b, const char *reason, struct fault *why)
{
    char text[256];
    snprintf(text, sizeof text,
             "the once ledger may have lost marks that clients were told of: %s. What is left "
             "counts; consumers stop until they are told to go on, or are started anew",
             reason);
    note_add(b, text);
    b->ledger->birth = ledger_birth_make(b);
    enum err err = store_flush_all(b->store, why);
    return err ? err : ledger_save_now(b, why);
}

static const char *what_is_lost(const struct loading *l, int64_t from, int64_t min, int64_t max)
{
    if (min > from)
        return "the log was deleted further than its snapshot knows it";
    if (from > max)
        return "its snapshot knows more of the log than there is";
    return l->damaged ? "records of it cannot be read" : NULL;
}

enum err ledger_replay(struct broker *b, struct fault *why)
{
    struct ledger_room *r = b->ledger;
    struct loading l = {.b = b};
    int64_t from = 0;
    bool damaged = false;
    time_begin(b, 0);
    if (!r->on)
        return OK;
    enum err err = snapshot_take(&l, &from, &damaged, why);
    r->queue = store_queue_find(b->store, BYTES(LEDGER_TOPIC), 0);
    int64_t min = r->queue ? queue_min(b->store, r->queue) : 0;
    int64_t max = r->queue ? queue_max(r->queue) : 0;
    if (!err && r->queue)
        err = queue_take(&l, r->queue, from > min ? from : min);
    if (err)
        return fault_add(why, err, "reading the once ledger");
    r->birth = l.birth;
    r->end = store_confirmed(b->store);
    tail_begin(r, &l, max);
    time_begin(b, l.seen_ms);
    ledger_sweep(r->ledger, ledger_now_ms(b), UINT32_MAX);
    const char *lost = what_is_lost(&l, from, min, max);
    if (damaged)
        note_add(b, lost ? "config/onceLedger is damaged"
                         : "config/onceLedger was damaged; the log still had all of it");
    err = lost ? born_again(b, lost, why) : OK;
    if (err && from > max) /* else new records would be behind what the snapshot knows */
        return fault_add(why, err, "saving the once ledger");
    return OK;
}
