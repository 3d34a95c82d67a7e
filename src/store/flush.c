/* flush.c - getting the log and the queues onto the disk.
 *
 * Group commit: while one fdatasync runs, appends pile up behind it, and the next one covers them
 * all. Those that it confirms usually send again at once. If nobody has come meanwhile they are all
 * there are, and if the next sync began with the first of them, the others would have to wait for
 * the one after. So the flusher *gathers*: it waits until as many records have come as it just
 * confirmed, though only for a part of what a sync takes, and less and less if they do not come.
 * Never for long: a sync may have taken seconds for once, or the clock may have been put forward
 * meanwhile, and then a send that comes alone would wait for a crowd that is gone.
 *
 * Who has come while the sync ran does not wait for those that it confirmed: answering takes about
 * as long as a sync where there is a network between, and then it is right that the crowd goes in
 * two halves, one on its way to the disk while the other is answered.
 *
 * A failed fdatasync is believed for good: the kernel may have thrown the
 * pages away and would report success the next time. From then on nothing is accepted. Only what
 * was not even begun, because no file handle was free (ERR_BUSY), is tried again.
 */
#include "store/store_int.h"

#define PAGE 4096
#define QUEUE_LEAST_UNITS                                                                          \
    (2 * PAGE / UNIT_SIZE)       /* with less a queue waits for the thorough flush */
#define SYNC_ALONE_MAX     64    /* more queues than that are synced together */
#define QUEUE_THOROUGH_MS  60000 /* of all queues, and then the checkpoint */
#define SYNC_FLUSH_LOOK_MS 500   /* an append wakes the flusher before */
#define FLUSH_AGAIN_MS     20    /* after a flush that could not begin */
#define GATHER_PART        2     /* at most this part of the time that the sync took */
#define GATHER_ALONE_MAX   5     /* each time few of them come it is halved, so often */
#define GATHER_TRIES       64    /* and after so many it starts again */

uint64_t ms_between(uint64_t earlier_ns, uint64_t later_ns)
{
    return later_ns > earlier_ns ? (later_ns - earlier_ns) / 1000000 : 0;
}

/* What became of a sync is the store's fate, unless it did not begin. */
static void sync_judge(struct store *store, enum err err, const struct fault *why)
{
    if (err && err != ERR_BUSY)
        store_fail(store, err, why);
}

/* Flusher only. */
enum err log_flush(struct store *store, uint64_t upto, int64_t upto_ms, struct fault *why)
{
    struct flusher *f = &store->flusher;
    uint64_t from = position_get(&store->positions.flushed);
    if (upto == from)
        return OK;
    uint64_t began_ns = clock_ns(store->options.clock);
    atomic_store(&f->syncing, true);
    enum err err = fileset_sync(&store->cache, &store->log, from, upto, why);
    atomic_store(&f->syncing, false);
    atomic_fetch_add(&f->synced_ns, clock_ns(store->options.clock) - began_ns);
    if (!err && upto > f->folder_synced) {
        err = store->vfs->calls->sync_dir(store->vfs, LOG_FOLDER, why);
        if (!err && f->folder_synced == 0)
            err = store->vfs->calls->sync_dir(store->vfs, ".", why); /* the folder itself is new */
        if (!err)
            f->folder_synced = upto - upto % store->log.file_size + store->log.file_size;
    }
    if (err)
        return err;
    atomic_store_explicit(&f->flushed_ms, upto_ms, memory_order_release);
    position_raise(&store->positions.flushed, upto);
    if (store->options.sync_flush)
        position_raise(&store->positions.confirmed, upto);
    return OK;
}

static bool flush_due(struct store *store, uint64_t upto, uint64_t now_ns)
{
    const struct store_options *o = &store->options;
    const struct flusher *f = &store->flusher;
    uint64_t flushed = position_get(&store->positions.flushed);
    if (upto == flushed)
        return false;
    if (o->sync_flush || ms_between(f->thorough_ns, now_ns) >= o->flush_thorough_interval_ms)
        return true;
    return ms_between(f->last_ns, now_ns) >= o->flush_interval_ms &&
           upto / PAGE - flushed / PAGE >= o->flush_least_pages;
}

/* ---- the bell ---- */

/* Rings until the flusher has heard it. */
void flush_ring(struct store *store)
{
    struct bell *bell = &store->flusher.bell;
    room_enter(&bell->room);
    bell->rung = true;
    room_tell(&bell->room);
    room_leave(&bell->room);
}

static void bell_silence(struct bell *bell)
{
    room_enter(&bell->room);
    bell->rung = false;
    room_leave(&bell->room);
}

static void bell_wait(struct bell *bell, uint64_t timeout_ns)
{
    room_enter(&bell->room);
    if (!bell->rung)
        room_wait_ns(&bell->room, timeout_ns);
    bell->rung = false;
    room_leave(&bell->room);
}

bool flush_ask(struct tail *tail)
{
    room_held(&tail->room);
    bool ring = !tail->rung && tail->records >= tail->wake_at;
    tail->flush_asked = true;
    tail->rung = tail->rung || ring;
    return ring;
}

/* ---- gathering ---- */

/* After a synchronous flush of all `records`, which began at `began_ns`, before anybody is told of
 * it. The last of those that are waited for rings. */
static void gather_plan(struct store *store, uint64_t records, uint64_t began_ns)
{
    struct tail *tail = &store->tail;
    struct gathering *g = &tail->gathering;
    uint64_t now_ns = clock_ns(store->options.clock);
    uint64_t patience_ns = now_ns > began_ns ? (now_ns - began_ns) / GATHER_PART : 0;
    room_enter(&tail->room);
    if (++g->tries >= GATHER_TRIES)
        g->tries = g->alone = 0;
    if (patience_ns > g->most_ns)
        patience_ns = g->most_ns;
    patience_ns >>= g->alone;
    g->expected = records - g->flushed;
    g->flushed = records;
    bool waits = patience_ns > 0 && g->expected > 0 && tail->records == records;
    g->until_ns = waits ? now_ns + patience_ns : 0;
    tail->wake_at = waits ? tail->records + g->expected : 0;
    if (waits) {
        tail->rung = false;
        bell_silence(&store->flusher.bell);
    }
    room_leave(&tail->room);
}

/* Waits as planned, without a key: those who are waited for need it. True: somebody wants a flush.
 */
static bool gather_wait(struct store *store)
{
    struct tail *tail = &store->tail;
    struct gathering *g = &tail->gathering;
    uint64_t now_ns = clock_ns(store->options.clock);
    if (g->until_ns > now_ns)
        bell_wait(&store->flusher.bell, g->until_ns - now_ns);
    room_enter(&tail->room);
    uint64_t missing = tail->records < tail->wake_at ? tail->wake_at - tail->records : 0;
    if (missing <= g->expected / 2)
        g->alone = 0;
    else if (g->alone < GATHER_ALONE_MAX)
        g->alone++;
    tail->wake_at = 0;
    bool asked = tail->flush_asked;
    room_leave(&tail->room);
    g->until_ns = 0;
    return asked;
}

int store_flush_turn(struct store *store)
{
    struct flusher *f = &store->flusher;
    const struct store_options *o = &store->options;
    if (atomic_flag_test_and_set_explicit(&f->busy, memory_order_acquire))
        return 1;

    room_enter(&store->tail.room);
    uint64_t upto = position_get(&store->positions.written);
    int64_t upto_ms = store->tail.last_ms;
    uint64_t records = store->tail.records;
    store->tail.flush_asked = store->tail.rung = false;
    room_leave(&store->tail.room);

    uint64_t now_ns = clock_ns(o->clock);
    enum err err = OK;
    if (!store_failed(store) && flush_due(store, upto, now_ns)) {
        struct fault why = {0};
        err = log_flush(store, upto, upto_ms, &why);
        sync_judge(store, err, &why);
        put_off_set(store, PUT_OFF_FLUSH, err == ERR_BUSY ? err : OK, &why);
        if (err != ERR_BUSY)
            f->thorough_ns = now_ns;
        if (!err && o->sync_flush)
            gather_plan(store, records, now_ns);
    }
    if (err != ERR_BUSY && ms_between(f->last_ns, now_ns) >= o->flush_interval_ms)
        f->last_ns = now_ns;
    waits_complete(store);

    uint64_t passed_ms = ms_between(f->last_ns, now_ns);
    atomic_flag_clear_explicit(&f->busy, memory_order_release);
    if (err == ERR_BUSY)
        return FLUSH_AGAIN_MS;
    if (o->sync_flush)
        return SYNC_FLUSH_LOOK_MS; /* store_flush_wait does not sleep when something is asked for */
    uint64_t interval_ms = o->flush_interval_ms;
    return passed_ms < interval_ms ? (int)(interval_ms - passed_ms) : 0;
}

void store_flush_wait(struct store *store, int timeout_ms)
{
    if (!store->tail.gathering.until_ns || !gather_wait(store))
        bell_wait(&store->flusher.bell, (uint64_t)timeout_ms * 1000000);
}

void store_flush_wake(struct store *store)
{
    room_enter(&store->tail.room);
    store->tail.flush_asked = true;
    room_leave(&store->tail.room);
    flush_ring(store);
}

enum err store_flush_all(struct store *store, struct fault *why)
{
    enum err err = store_failed(store) ? store_trouble(store, why) : OK;
    if (err)
        return err;
    room_enter(&store->tail.room);
    uint64_t upto = position_get(&store->positions.written);
    int64_t upto_ms = store->tail.last_ms;
    room_leave(&store->tail.room);
    struct fault reason = {0};
    err = log_flush(store, upto, upto_ms, &reason);
    if (err)
        store_fail(store, err, &reason);
    if (err && why)
        *why = reason;
    return err;
}

/* ---- queues ---- */

/* The folder's own entry, and those of the folders it stands in: a queue whose folder is forgotten
 * by a power loss would look as if it had never been. */
static enum err queue_sync_folders(struct store *store, struct queue *queue, struct fault *why)
{
    char topic[PATH_SIZE];
    size_t len = sizeof QUEUE_FOLDER + queue->topic.len; /* the slash takes the place of the zero */
    memcpy(topic, queue->folder, len);
    topic[len] = '\0';
    const char *const folders[] = {queue->folder, topic, QUEUE_FOLDER, "."};
    size_t n = queue->known_end ? 1 : sizeof folders / sizeof folders[0];
    for (size_t i = 0; i < n; i++) {
        enum err err = store->vfs->calls->sync_dir(store->vfs, folders[i], why);
        if (err)
            return err;
    }
    return OK;
}

/* Syncs the units from..to-1; after a cut also the file that was shortened, whether anything came
 * or not. */
static enum err queue_sync(struct store *store, struct queue *queue, int64_t from, int64_t to,
                           bool cut, struct fault *why)
{
    uint64_t start = (uint64_t)from * UNIT_SIZE, end_at = (uint64_t)to * UNIT_SIZE + (cut ? 1 : 0);
    if (cut && start > 0)
        start--;
    enum err err = fileset_sync(&store->cache, &queue->files, start, end_at, why);
    room_enter(&store->cache.room);
    uint64_t end = queue->files.end;
    room_leave(&store->cache.room);
    if (!err && end != queue->known_end)
        err = queue_sync_folders(store, queue, why);
    if (err)
        return err;

    room_enter(&store->derived.room);
    queue->synced = to;
    queue->known_end = end;
    room_leave(&store->derived.room);
    return OK;
}

/* Room: derived, which is left while the disk works. One call for all of them: a sync for each of
 * ten thousand queues takes a minute. */
static enum err sync_together(struct store *store, struct list *due, struct fault *why)
{
    struct derived *derived = &store->derived;
    list_each(k, due) {
        struct queue *queue = list_entry(k, struct queue, dirty);
        queue->syncing = queue_filed(queue);
        queue->syncing_end = queue->files.end;
        queue->cut = false;
    }
    room_leave(&derived->room);
    enum err err = store->vfs->calls->sync_all(store->vfs, why);
    room_enter(&derived->room);
    for (struct link *k; (k = list_pop(due)) != NULL;) {
        struct queue *queue = list_entry(k, struct queue, dirty);
        if (!err) {
            queue->synced = queue->syncing;
            queue->known_end = queue->syncing_end;
        }
        if (err || queue->cut ||
            atomic_load_explicit(&queue->max, memory_order_relaxed) > queue->synced)
            list_add_tail(&derived->dirty, k); /* more has come meanwhile */
    }
    return err;
}

static bool longer_than(const struct list *list, size_t n)
{
    const struct link *k = list->head.next;
    while (k != &list->head && n > 0) {
        k = k->next;
        n--;
    }
    return k != &list->head;
}

enum err queues_sync(struct store *store, int64_t least, struct fault *why)
{
    struct derived *derived = &store->derived;
    struct list due;
    list_init(&due);
    room_enter(&derived->room);
    list_append_all(&due, &derived->dirty);

    enum err err = OK;
    if (least <= 1 && longer_than(&due, SYNC_ALONE_MAX))
        err = sync_together(store, &due, why);
    for (struct link *k; (k = list_pop(&due)) != NULL;) {
        struct queue *queue = list_entry(k, struct queue, dirty);
        int64_t from = queue->synced, to = queue_filed(queue);
        if (err || (to - from < least && !queue->cut)) {
            list_add_tail(&derived->dirty, k);
            continue;
        }
        bool cut = queue->cut;
        queue->cut = false;
        room_leave(&derived->room);
        err = queue_sync(store, queue, from, to, cut, why);
        room_enter(&derived->room);
        if (err)
            queue->cut = queue->cut || cut;
        if (err || queue_max(queue) > queue->synced)
            queue_mark_dirty(store, queue);
    }
    room_leave(&derived->room);
    return err;
}

enum err queues_keep(struct store *store, int64_t least, int64_t *queues_ms)
{
    struct fault why = {0};
    room_enter(&store->derived.room); /* before the sync: what comes meanwhile may miss it */
    uint64_t upto = position_get(&store->positions.dispatched);
    *queues_ms = store->derived.dispatched_ms;
    room_leave(&store->derived.room);
    enum err filed = shelves_file(store, &why);
    enum err err = filed ? filed : queues_sync(store, least, &why);
    if (!filed) /* else no sync has begun, and all of it can be read */
        sync_judge(store, err, &why);
    put_off_set(store, PUT_OFF_KEEP, filed || err == ERR_BUSY ? err : OK, &why);
    if (!err && least <= 1)
        store->kept = upto;
    return err;
}

void store_keep_turn(struct store *store)
{
    uint64_t now_ns = clock_ns(store->options.clock);
    bool due = ms_between(store->kept_ns, now_ns) >= store->options.queue_flush_interval_ms;
    if (store_failed(store))
        return;
    if (due || store->ahead == OK) /* what failed is not tried at every turn */
        store->ahead = log_make_ahead(store, &store->ahead_why);
    log_prepare(store);
    if (!due)
        return;
    store->kept_ns = now_ns;
    atomic_store_explicit(&store->derived.trouble, OK,
                          memory_order_release); /* dispatch gets another chance */
    bool thorough = ms_between(store->kept_thorough_ns, now_ns) >= QUEUE_THOROUGH_MS;

    int64_t queues_ms;
    enum err err = queues_keep(store, thorough ? 1 : QUEUE_LEAST_UNITS, &queues_ms);
    if (err || !thorough)
        return;
    store->kept_thorough_ns = now_ns;
    store->checkpoint.queues_ms = queues_ms;
    store->checkpoint.log_ms =
        atomic_load_explicit(&store->flusher.flushed_ms, memory_order_acquire);
    keys_keep(store);
    err = checkpoint_write(store->vfs, &store->checkpoint, NULL);
    (void)err; /* the one on disk stays true; next time again */
}
