/* popmark.c - marks in memory: by their key, by time, by where their records stand; and what of all
 * this the file of offsets may say.
 *
 * Where a revive queue would have to be read from after a crash is the *bound* of its first open
 * mark. A mark gets its bound before its record is written: the place behind all records of ours
 * that are known by then. Its record can only come to stand there or later, so bounds never fall
 * along the list, and one visit to the room before the write and one after it are enough.
 *
 * Saving. The file must not be ahead of the disk: if it said that a group has come so far and the
 * power took the mark of what it was handed last, nobody would ever see those messages again. And
 * it must not let go of a finished mark while it does not know how far its group had come. So all
 * these numbers are taken together (`settles`) with the place where the log ended then, and when it
 * is flushed so far they are what the file says (`saved`), and the next ones are taken.
 */
#include "broker/pop_int.h"

#include <stdio.h>
#include <stdlib.h>

#define HEAP_FIRST 64

/* ---- queues ---- */

struct bytes pop_key(uint8_t text[POP_KEY_MAX], struct bytes topic, struct bytes group,
                     int32_t queue_id)
{
    struct wr w = wr_over(text, POP_KEY_MAX);
    char number[16];
    int len = snprintf(number, sizeof number, "@%d", queue_id);
    wr_bytes_of(&w, topic);
    wr_u8(&w, '@');
    wr_bytes_of(&w, group);
    wr_bytes_of(&w, bytes_of(number, (size_t)len));
    return w.full ? (struct bytes){0} : wr_bytes(&w);
}

/* Room: core. */
struct pop_queue *pop_queue_find(struct broker *b, struct bytes topic, struct bytes group,
                                 int32_t queue_id)
{
    room_held(&b->room);
    uint8_t text[POP_KEY_MAX];
    return map_get(&b->pop->queues, pop_key(text, topic, group, queue_id));
}

/* Room: core. */
struct pop_queue *pop_queue_need(struct broker *b, struct bytes topic, struct bytes group,
                                 int32_t queue_id, struct queue *queue)
{
    room_held(&b->room);
    uint8_t text[POP_KEY_MAX];
    struct bytes key = pop_key(text, topic, group, queue_id);
    struct pop_queue *q = map_get(&b->pop->queues, key);
    if (q || key.len == 0)
        return q;
    q = calloc(1, sizeof *q + key.len);
    if (!q)
        return NULL;
    memcpy(q->text, key.at, key.len);
    q->key_len = key.len;
    q->topic = bytes_of(q->text, topic.len);
    q->group = bytes_of(q->text + topic.len + 1, group.len);
    q->queue_id = queue_id;
    q->queue = queue;
    q->saved = q->settles = progress_get(b, group, topic, queue_id);
    if (map_put(&b->pop->queues, bytes_of(q->text, q->key_len), q)) {
        free(q);
        return NULL;
    }
    return q;
}

static void pop_queue_free(struct pop_queue *q)
{
    if (q)
        free(q->order);
    free(q);
}

int32_t revive_id_of(struct broker *b, struct bytes topic, struct bytes group)
{
    size_t prefix = RETRY_PREFIX.len + group.len + 1; /* %RETRY%group_topic goes with its topic */
    if (bytes_start(topic, RETRY_PREFIX) && topic.len > prefix &&
        bytes_start(bytes_from(topic, RETRY_PREFIX.len), group))
        topic = bytes_from(topic, prefix);
    uint64_t hash = bytes_hash(topic, bytes_hash(group, 0));
    return (int32_t)(hash % (uint64_t)b->pop->n_revive);
}

/* ---- the heap ---- */

static void heap_set(struct pop_room *p, size_t at, struct mark *mark)
{
    p->heap[at] = mark;
    mark->heap_at = at;
}

static void heap_up(struct pop_room *p, size_t at)
{
    struct mark *mark = p->heap[at];
    for (; at > 0 && p->heap[(at - 1) / 2]->revive_ms > mark->revive_ms; at = (at - 1) / 2)
        heap_set(p, at, p->heap[(at - 1) / 2]);
    heap_set(p, at, mark);
}

static void heap_down(struct pop_room *p, size_t at)
{
    struct mark *mark = p->heap[at];
    for (size_t child; (child = 2 * at + 1) < p->n_heap; at = child) {
        if (child + 1 < p->n_heap && p->heap[child + 1]->revive_ms < p->heap[child]->revive_ms)
            child++;
        if (p->heap[child]->revive_ms >= mark->revive_ms)
            break;
        heap_set(p, at, p->heap[child]);
    }
    heap_set(p, at, mark);
}

static enum err heap_add(struct pop_room *p, struct mark *mark)
{
    if (p->n_heap == p->cap_heap) {
        size_t cap = p->cap_heap ? 2 * p->cap_heap : HEAP_FIRST;
        struct mark **heap = realloc(p->heap, cap * sizeof(struct mark *));
        if (!heap)
            return ERR_NO_MEMORY;
        p->heap = heap;
        p->cap_heap = cap;
    }
    p->heap[p->n_heap] = mark;
    heap_up(p, p->n_heap++);
    return OK;
}

static void heap_remove(struct pop_room *p, struct mark *mark)
{
    size_t at = mark->heap_at;
    struct mark *last = p->heap[--p->n_heap];
    if (last == mark)
        return;
    heap_set(p, at, last);
    heap_up(p, at);
    heap_down(p, last->heap_at);
}

void mark_retime(struct broker *b, struct mark *mark, int64_t revive_ms)
{
    room_held(&b->room);
    mark->revive_ms = revive_ms;
    heap_up(b->pop, mark->heap_at);
    heap_down(b->pop, mark->heap_at);
}

/* ---- marks ---- */

static struct bytes mark_key_of(const struct mark_key *key)
{
    return bytes_of(key, sizeof *key);
}

struct mark *mark_find(struct broker *b, const struct pop_queue *queue, int64_t start,
                       int64_t pop_ms)
{
    room_held(&b->room);
    struct mark_key key = {queue, start, pop_ms};
    return map_get(&b->pop->marks, mark_key_of(&key));
}

/* Room: core. */
enum err mark_make(struct broker *b, const struct mark_wish *wish, bool limited, struct mark **out,
                   struct fault *why)
{
    room_held(&b->room);
    struct pop_room *p = b->pop;
    if (mark_find(b, wish->queue, wish->start, wish->pop_ms))
        return ERR_EXISTS;
    if (limited && p->marks.n >= b->set.max_pop_marks)
        return fault_set(why, ERR_BUSY,
                         "%zu check-points are in flight, as many as may be (maxPopInFlight); "
                         "acknowledge some of them first",
                         p->marks.n);
    struct mark *mark = calloc(1, sizeof *mark + wish->n * sizeof mark->diffs[0]);
    if (!mark)
        return ERR_NO_MEMORY;
    *mark = (struct mark){
        .key = {wish->queue, wish->start, wish->pop_ms},
        .queue = wish->queue,
        .bound = p->revive[wish->revive_id].next,
        .invisible_ms = wish->invisible_ms,
        .revive_ms = wish->pop_ms + wish->invisible_ms,
        .revive_id = wish->revive_id,
        .n = wish->n,
    };
    enum err err = heap_add(p, mark);
    if (!err && map_put(&p->marks, mark_key_of(&mark->key), mark)) {
        heap_remove(p, mark);
        err = ERR_NO_MEMORY;
    }
    if (err) {
        free(mark);
        return err;
    }
    list_add_tail(&p->revive[wish->revive_id].open, &mark->by_record);
    wish->queue->n_marks++;
    if (p->unwritten++ == 0)
        p->unwritten_since = p->end;
    *out = mark;
    return OK;
}

void mark_stands(struct broker *b, struct mark *mark, int64_t offset)
{
    room_held(&b->room);
    struct list *open = &b->pop->revive[mark->revive_id].open;
    list_remove(&mark->by_record);
    mark->bound = offset;
    struct link *before = open->head.prev; /* others may have been met out of their order */
    while (before != &open->head && list_entry(before, struct mark, by_record)->bound > mark->bound)
        before = before->prev;
    mark->by_record = (struct link){before, before->next};
    before->next->prev = &mark->by_record;
    before->next = &mark->by_record;
}

void mark_written(struct broker *b, struct mark *mark)
{
    room_held(&b->room);
    invariant(!mark->written);
    mark->written = true;
    b->pop->unwritten--;
    b->pop->messages += mark->n;
}

int mark_index(const struct mark *mark, int64_t offset)
{
    for (uint32_t i = 0; i < mark->n; i++)
        if (mark->key.start + mark->diffs[i] == offset)
            return (int)i;
    return -1;
}

void mark_claim(struct mark *mark, uint32_t bits, bool moving)
{
    mark->writing++;
    if (moving)
        mark->moving |= bits;
    else
        mark->claimed |= bits;
}

void mark_unclaim(struct mark *mark, uint32_t moved)
{
    mark->moving &= ~moved;
    if (--mark->writing == 0)
        mark->claimed = 0;
}

void mark_moved(struct mark *mark, uint32_t bits)
{
    struct pop_queue *q = mark->queue;
    int64_t until_ms = mark->key.pop_ms + mark->invisible_ms;
    mark->moved |= bits;
    if (mark->key.pop_ms > q->moved_ms)
        q->moved_ms = mark->key.pop_ms;
    if (until_ms > q->moved_until_ms)
        q->moved_until_ms = until_ms;
}

void mark_done(struct broker *b, struct mark *mark, uint32_t bits)
{
    room_held(&b->room);
    uint32_t fresh = bits & mark_all(mark) & ~mark->acked;
    mark->acked |= fresh;
    b->pop->messages -= (size_t)__builtin_popcount(fresh);
    b->pop->unsettled = true;
    if (mark->acked == mark_all(mark) && mark->writing == 0 && !mark->reviving)
        mark_free(b, mark);
}

void mark_free(struct broker *b, struct mark *mark)
{
    room_held(&b->room);
    if (mark->written)
        b->pop->messages -= (size_t)__builtin_popcount(mark_all(mark) & ~mark->acked);
    else
        b->pop->unwritten--;
    (void)map_remove(&b->pop->marks, mark_key_of(&mark->key));
    heap_remove(b->pop, mark);
    list_remove(&mark->by_record);
    mark->queue->n_marks--;
    free(mark);
}

void pop_wrote(struct broker *b, int32_t revive_id, int64_t last_offset, uint64_t end)
{
    room_held(&b->room);
    struct revive_queue *r = &b->pop->revive[revive_id];
    if (last_offset >= r->next)
        r->next = last_offset + 1;
    if (end > b->pop->end)
        b->pop->end = end;
    b->pop->unsettled = true;
}

/* ---- saving ---- */

/* Room: core. Everything of a revive queue before this is done with. */
static int64_t revive_done(const struct revive_queue *r)
{
    int64_t done = r->next;
    if (!list_empty(&r->open))
        done = list_entry(list_first(&r->open), struct mark, by_record)->bound;
    return done < r->at ? done : r->at;
}

int64_t pop_saved_offset(struct broker *b, const struct progress *p, const struct place *place)
{
    room_held(&b->room);
    if (b->pop->queues.n == 0)
        return place->offset;
    struct bytes topic, group;
    progress_names(p, &topic, &group);
    const struct pop_queue *q = pop_queue_find(b, topic, group, place->queue_id);
    return q && q->saved >= 0 && q->saved < place->offset ? q->saved : place->offset;
}

void pop_moved(struct broker *b)
{
    room_held(&b->room);
    b->pop->unsettled |= b->pop->queues.n > 0;
}

static bool pop_queue_idle(struct broker *b, const struct pop_queue *q)
{
    return !q->busy && q->n_marks == 0 && order_is_over(b, q) &&
           q->moved_until_ms <= clock_ms(b->clock) && q->saved == q->settles &&
           q->saved == progress_get(b, q->group, q->topic, q->queue_id);
}

/* Room: core. Lets go of a queue that nothing is to be remembered of. */
static void pop_queues_tidy(struct broker *b)
{
    struct pop_queue **idle = calloc(b->pop->queues.n + 1, sizeof(struct pop_queue *));
    if (!idle)
        return;
    size_t n = 0;
    struct pop_queue *q;
    for (size_t i = 0; (q = map_next(&b->pop->queues, &i));)
        if (pop_queue_idle(b, q))
            idle[n++] = q;
    for (size_t i = 0; i < n; i++) {
        (void)map_remove(&b->pop->queues, bytes_of(idle[i]->text, idle[i]->key_len));
        pop_queue_free(idle[i]);
    }
    free(idle);
}

/* What `settles` stands for is on the disk. */
static void settled(struct broker *b)
{
    b->pop->known = b->pop->settles_known;
    struct pop_queue *q;
    for (size_t i = 0; (q = map_next(&b->pop->queues, &i));)
        q->saved = q->settles;
    for (int32_t i = 0; i < b->pop->n_revive; i++) {
        struct revive_queue *r = &b->pop->revive[i];
        if (r->saved == r->settles)
            continue;
        r->saved = r->settles;
        struct commit done = {NULL, REVIVE_GROUP, bytes_str(b->pop->revive_topic), i, r->saved - 1};
        if (r->saved > 0 && progress_set(b, &done))
            r->saved = -1; /* no memory: the next time */
    }
}

static bool settle_next(struct broker *b)
{
    bool differs = false;
    struct pop_queue *q;
    for (size_t i = 0; (q = map_next(&b->pop->queues, &i));) {
        q->settles = progress_get(b, q->group, q->topic, q->queue_id);
        differs |= q->settles != q->saved;
    }
    for (int32_t i = 0; i < b->pop->n_revive; i++) {
        struct revive_queue *r = &b->pop->revive[i];
        r->settles = revive_done(r);
        differs |= r->settles != r->saved;
    }
    b->pop->settles = b->pop->end;
    b->pop->settles_known = b->pop->unwritten ? b->pop->unwritten_since : b->pop->end;
    return differs;
}

void pop_settle(struct broker *b)
{
    room_held(&b->room);
    if (!b->pop->unsettled || store_flushed(b->store) < b->pop->settles)
        return;
    settled(b);
    b->pop->unsettled = settle_next(b);
    b->tables[TABLE_OFFSETS].changes++;
    pop_queues_tidy(b);
    pop_crowds_tidy(b);
}

void pop_settle_all(struct broker *b)
{
    struct service_turn read = {0};
    broker_dispatch_turn(b);
    pop_follow(b, &read);
    room_enter(&b->room);
    pop_settle(b); /* what was on its way … */
    pop_settle(b); /* … and what came after it */
    room_leave(&b->room);
}

bool pop_unsettled(const struct broker *b)
{
    return b->pop->unsettled;
}

/* ---- opening ---- */

/* Room: core. */
enum err pop_open(struct broker *b, struct fault *why)
{
    room_held(&b->room);
    struct pop_room *p = b->pop;
    p->opened_ms = clock_ms(b->clock);
    (void)snprintf(p->revive_topic, sizeof p->revive_topic, "rmq_sys_REVIVE_LOG_%s",
                   b->set.cluster);
    const struct topic *topic = topic_find(b, bytes_str(p->revive_topic));
    int32_t width = topic ? topic_width(topic) : 0;
    p->n_revive = width < 1 ? 1 : width < REVIVE_QUEUES_MAX ? width : REVIVE_QUEUES_MAX;
    return pop_replay(b, why);
}

void pop_free(struct broker *b)
{
    if (!b->pop)
        return;
    size_t i;
    void *each;
    for (i = 0; (each = map_next(&b->pop->marks, &i));)
        free(each);
    for (i = 0; (each = map_next(&b->pop->queues, &i));)
        pop_queue_free(each);
    pop_crowds_clear(b);
    map_clear(&b->pop->marks);
    map_clear(&b->pop->queues);
    free(b->pop->heap);
    pop_turn_free(b->pop->turn);
    free(b->pop);
}

enum err pop_init(struct broker *b)
{
    struct pop_room *p = b->pop = calloc(1, sizeof *p);
    if (!p)
        return ERR_NO_MEMORY;
    map_init(&p->queues, dice_next(&b->dice));
    map_init(&p->marks, dice_next(&b->dice));
    map_init(&p->crowds, dice_next(&b->dice));
    map_init(&p->topics, dice_next(&b->dice));
    for (int32_t i = 0; i < REVIVE_QUEUES_MAX; i++)
        list_init(&p->revive[i].open);
    return OK;
}

void pop_numbers(struct broker *b, struct broker_numbers *out)
{
    room_held(&b->room);
    out->pop_in_flight = b->pop->messages;
    out->popped = b->pop->popped;
    out->pop_acked = b->pop->acked;
    out->pop_revived = b->pop->revived;
    out->pop_dead = b->pop->dead;
    out->pop_late = b->pop->late;
    out->pop_marks = b->pop->marks.n;
}
