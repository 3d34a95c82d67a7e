/* dedup_load.c - after a start: the table is filled from the log, before anybody can send.
 *
 * Only queues whose messages have names are read, and those in which messages wait for their time;
 * each from the first message within the window on. The table wants them in the order of the log,
 * so the queues are merged by position. With more messages than the table can hold, only as many of
 * the last ones are read as it may take to fill it.
 */
#include "broker/dedup_int.h"

#include <stdlib.h>

#define READ_MOST 4 /* messages, for each key that there is room for: not all of them have one */

struct cursor {
    struct queue *queue;
    struct bytes name; /* of its topic */
    int32_t queue_id;
    const struct topic *topic; /* NULL: messages for others wait here */
    int64_t offset, end;
    struct slice slice;
    struct record record;
};

struct loading {
    struct broker *broker;
    struct cursor *cursors;
    size_t n, cap;
    struct cursor **heap; /* the one whose record comes first on top */
    size_t n_heap;
    int64_t now_ms, steady_ms; /* when it began */
    enum err err;
    struct fault *why;
};

/* ---- which queues ---- */

/* Room: core. */
static void queue_meet(void *user, struct bytes topic, int32_t queue_id, struct queue *queue)
{
    struct loading *l = user;
    const struct topic *known = topic_find(l->broker, topic);
    bool waits = dedup_waits_there(topic);
    if (l->err || (!waits && (!known || dedup_by(l->broker, known).len == 0)))
        return;
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        struct cursor *bigger = realloc(l->cursors, cap * sizeof *bigger);
        if (!bigger) {
            l->err = ERR_NO_MEMORY;
            return;
        }
        l->cursors = bigger;
        l->cap = cap;
    }
    l->cursors[l->n++] = (struct cursor){
        .queue = queue, .name = topic, .queue_id = queue_id, .topic = waits ? NULL : known};
}

/* The message is there and cannot be read: for want of memory, of file handles, or of a sound disk.
 */
static bool is_stuck(const struct read_result *read, int64_t offset)
{
    return read->status == READ_NONE_MATCHED && read->next <= offset;
}

/* A name that is passed over would be stored a second time, so there is no start without it. */
static void stuck(struct loading *l, const struct cursor *c, int64_t offset)
{
    l->err = fault_set(
        l->why, ERR_IO,
        "the message at offset %lld of queue %d of topic %.*s cannot be read, so which messages "
        "were stored before is not known; for want of memory or open files, try again; if it is "
        "always this one, see what `oncemq store check` says of this folder",
        (long long)offset, c->queue_id, BRIEF(c->name));
}

/* A search by time takes what it cannot read for earlier than all else: so nothing is known if that
 * is why it ended where it did. */
static bool search_was_blind(struct store *store, const struct cursor *c)
{
    struct read_result read;
    int64_t before = c->offset - 1;
    if (before < queue_min(store, c->queue) || queue_store_time(store, c->queue, before) >= 0)
        return false;
    store_read(store, c->queue, &(struct read_request){.offset = before, .max_count = 1}, &read);
    if (read.status == READ_FOUND)
        counted_drop(read.slices[0].owner);
    return is_stuck(&read, before);
}

/* Puts all cursors where the messages from that time on begin. How many these are. */
static uint64_t cursors_seek(struct loading *l, int64_t from_ms)
{
    struct store *store = l->broker->store;
    uint64_t total = 0;
    for (size_t i = 0; i < l->n; i++) {
        struct cursor *c = &l->cursors[i];
        c->end = queue_max(c->queue);
        c->offset = queue_search_time(store, c->queue, from_ms);
        if (search_was_blind(store, c))
            stuck(l, c, c->offset - 1);
        total += c->offset < c->end ? (uint64_t)(c->end - c->offset) : 0;
    }
    return total;
}

/* The window, or if that is too much the last part of it that is not. */
static void cursors_begin(struct loading *l)
{
    const struct dedup *d = l->broker->dedup;
    int64_t now_ms = l->now_ms, window_ms = d->window_ms;
    uint64_t most = READ_MOST * d->max_keys;
    if (cursors_seek(l, now_ms - window_ms) <= most)
        return;
    int64_t fits = 0; /* so long a time, and window_ms is too long */
    while (window_ms - fits > d->tick_ms) {
        int64_t middle = fits + (window_ms - fits) / 2;
        if (cursors_seek(l, now_ms - middle) <= most)
            fits = middle;
        else
            window_ms = middle;
    }
    (void)cursors_seek(l, now_ms - window_ms);
}

/* ---- in the order of the log ---- */

/* Holds the next record of a queue. False: it is at its end, or what comes next cannot be read,
 * which ends the loading. */
static bool cursor_read(struct loading *l, struct cursor *c)
{
    while (!l->err && c->offset < c->end) {
        struct read_result read;
        store_read(l->broker->store, c->queue,
                   &(struct read_request){.offset = c->offset, .max_count = 1}, &read);
        if (is_stuck(&read, c->offset)) {
            stuck(l, c, c->offset);
            return false;
        }
        c->offset = read.next > c->offset ? read.next : c->offset + 1;
        if (read.status != READ_FOUND)
            continue;
        c->slice = read.slices[0];
        if (record_decode(c->slice.bytes, &c->record) == OK)
            return true;
        counted_drop(c->slice.owner);
    }
    return false;
}

static void heap_sink(struct loading *l, size_t at)
{
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < l->n_heap; child++)
            if (l->heap[child]->record.position < l->heap[least]->record.position)
                least = child;
        if (least == at)
            return;
        struct cursor *swap = l->heap[at];
        l->heap[at] = l->heap[least];
        l->heap[least] = swap;
        at = least;
    }
}

static enum err heap_make(struct loading *l)
{
    if (l->n == 0)
        return OK;
    l->heap = malloc(l->n * sizeof(struct cursor *));
    if (!l->heap)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < l->n; i++)
        if (cursor_read(l, &l->cursors[i]))
            l->heap[l->n_heap++] = &l->cursors[i];
    for (size_t i = l->n_heap; i-- > 0;)
        heap_sink(l, i);
    return OK; /* names_add gives back what is held, also after an error */
}

/* Room: core. */
static bool record_name(struct broker *b, const struct cursor *c, struct dedup_name *out)
{
    const struct topic *topic = c->topic;
    struct bytes name;
    if (!topic && props_get(c->record.props, PROP_REAL_TOPIC, &name))
        topic = topic_find(b, name);
    struct bytes by = topic ? dedup_by(b, topic) : (struct bytes){0};
    return by.len > 0 && dedup_name_of(&c->record, by, out);
}

static enum err name_add(struct loading *l, const struct record *record,
                         const struct dedup_name *name)
{
    struct dedup *d = l->broker->dedup;
    enum err err = dedup_table_reserve(&d->table, 1);
    if (err)
        return err;
    int64_t age_ms = l->now_ms - record->store_ms;
    age_ms = age_ms < 0 ? 0 : age_ms < d->window_ms ? age_ms : d->window_ms;
    dedup_mark(d, l->steady_ms - age_ms);
    uint64_t number = dedup_table_add(&d->table, dedup_hash(d, name), 0);
    dedup_table_set(&d->table, number, (uint64_t)record->position);
    if (dedup_table_count(&d->table) > d->max_keys)
        dedup_table_forget(&d->table, number - d->max_keys + 1);
    return OK;
}

static enum err names_add(struct loading *l)
{
    struct broker *b = l->broker;
    while (l->n_heap > 0) {
        struct cursor *c = l->heap[0];
        struct dedup_name name;
        if (!l->err && record_name(b, c, &name))
            l->err = name_add(l, &c->record, &name);
        counted_drop(c->slice.owner);
        if (!cursor_read(l, c))
            l->heap[0] = l->heap[--l->n_heap];
        heap_sink(l, 0);
    }
    return l->err;
}

enum err dedup_load(struct broker *b, struct fault *why)
{
    if (!atomic_load_explicit(&b->dedup_used, memory_order_relaxed))
        return OK;
    struct loading l = {
        .broker = b,
        .now_ms = clock_ms(b->clock),
        .steady_ms = dedup_now_ms(b),
        .why = why,
    };
    room_enter(&b->room); /* for its settings; nobody else is here yet */
    store_each_queue(b->store, queue_meet, &l);
    enum err err = l.err;
    if (!err) {
        cursors_begin(&l);
        err = l.err ? l.err : heap_make(&l);
    }
    if (!err)
        err = names_add(&l);
    room_leave(&b->room);
    free(l.cursors);
    free(l.heap);
    return err;
}
