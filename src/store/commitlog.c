/* commitlog.c - the end of the log: records get their places and go to the file.
 *
 * One call is one visit. Its records were written on a sheet before (sheet.c), or are encoded
 * behind each other into the tail's window, and leave in one write for each file they touch.
 * Nothing moves before everything is written: on an error the offsets that were given out are taken
 * back and the end stays where it was. What a failed write may have left behind the end is wiped
 * before the caller is told, because it could look like a record: to recovery, and behind the next
 * one.
 *
 * Plain messages leave slips for the dispatcher (slip.c). If a record has none, what is written
 * stays in the window until that is big enough: the dispatcher comes soon and takes it, rather than
 * to touch pages of the mapping that nobody has touched before.
 *
 * The log is *paved*: the first write that gets into a new stone of 128 KiB brings zeros for the
 * rest of it, which is what stands there anyway. For a write that long the kernel makes one big
 * page where it would make many small ones, and the appends that follow only copy. It takes a
 * seventh off a batch of 32. With stones of 32 KiB a busy broker stores 6 to 10 % less on reserved
 * blocks; 256 are no better than 128.
 */
#include "store/store_int.h"

#include <stdlib.h>

#define WINDOW_LEAST (256u << 10)
#define WINDOW_KEEP  (512u << 10) /* with more in it, it begins anew */
#define WINDOW_MORE  (64u << 10)  /* on top of the biggest unit: its blank, and some company */

/* A call of store_append on its way. */
struct placing {
    struct store *store;
    uint64_t at; /* where the next record goes */
    size_t done; /* so much of the window is written */
    int64_t now_ms;
    struct slips_put slips;
};

static enum err place_all(struct placing *p, const struct draft *drafts, size_t n,
                          struct stored *out);
static bool sheet_fits(struct placing *p, const struct sheet *sheet, size_t n);
static enum err place_sheet(struct placing *p, struct sheet *sheet, const struct draft *drafts,
                            size_t n, struct stored *out);
static void take_back(const struct draft *drafts, size_t n, const struct stored *out);

/* The window is empty and goes on at `from`. */
static void window_restart(struct window *w, uint64_t from)
{
    w->len = 0;
    w->from = from;
}

enum err store_append(struct store *store, const struct draft *drafts, size_t n, struct stored *out,
                      uint64_t *end)
{
    struct tail *tail = &store->tail;
    struct sheet *sheet = sheet_write(store, drafts, n, out);
    room_enter_soon(&tail->room);
    enum err err = OK;
    if (store_failed(store))
        err = ERR_READ_ONLY;
    if (!err)
        err = (enum err)atomic_load_explicit(&store->derived.trouble, memory_order_relaxed);
    if (!err && atomic_load_explicit(&store->cleaner.full, memory_order_relaxed))
        err = ERR_DISK_FULL;
    if (!err && tail->soiled)
        err = tail_wipe(store, NULL);
    if (err) {
        room_leave(&tail->room);
        sheet_put_back(sheet);
        return err;
    }

    uint64_t start = position_get(&store->positions.written);
    struct window *w = &tail->window;
    if (w->from + w->len != start || w->len > WINDOW_KEEP || !slips_lack(&store->slips, w->from))
        window_restart(w, start);
    int64_t now_ms = clock_ms(store->options.clock);
    struct placing p = {
        .store = store,
        .at = start,
        .done = w->len,
        .now_ms =
            now_ms > tail->last_ms ? now_ms : tail->last_ms, /* search by time needs it to rise */
        .slips = slips_begin(&store->slips),
    };
    bool ring = false;
    err = sheet && sheet_fits(&p, sheet, n) ? place_sheet(&p, sheet, drafts, n, out)
                                            : place_all(&p, drafts, n, out);
    if (err) {
        take_back(drafts, n, out);
        window_restart(w, start);
        segment_drop(take(&tail->seg));
        tail->soiled = true;
        tail->paved = 0;
        /* Before the caller knows: else a kill from here on would bring to life what was refused.
         * If the disk refuses this too, the next append tries again, and so does the close. */
        enum err wiped = tail_wipe(store, NULL);
        (void)wiped;
    } else if (p.at > start) {
        tail->last_ms = p.now_ms;
        slips_publish(&store->slips, &p.slips);
        ring = positions_written(store, p.at, n);
    }
    room_leave(&tail->room);
    sheet_put_back(sheet);
    if (ring)
        flush_ring(store);
    if (!err)
        *end = p.at;
    return err;
}

enum log_sight stretch_look(const struct stretch *s, uint64_t position, struct record *out)
{
    uint64_t left = s->file_end - position;
    struct bytes rest = bytes_of(s->at + (position - s->from), s->end - position);
    if (rest.len < RECORD_BLANK_SIZE)
        return SIGHT_BAD;

    uint32_t size;
    switch (record_peek(rest, &size)) {
    case RECORD_BLANK:
        return size == left ? SIGHT_BLANK : SIGHT_BAD;
    case RECORD_MESSAGE:
        if (size + (uint64_t)RECORD_BLANK_SIZE > left || size > rest.len)
            return SIGHT_BAD;
        if (record_decode(bytes_of(rest.at, size), out))
            return SIGHT_BAD;
        return out->position == (int64_t)position ? SIGHT_RECORD : SIGHT_BAD;
    case RECORD_NONE:
        break;
    }
    return load_u64(rest.at) == 0 ? SIGHT_EMPTY : SIGHT_BAD;
}

enum log_sight log_look(const uint8_t *map, uint64_t base, uint64_t file_size, uint64_t position,
                        struct record *out)
{
    struct stretch s = {map, base, base + file_size, base + file_size};
    return stretch_look(&s, position, out);
}

enum err stretch_step(const struct stretch *s, uint64_t *at, struct record *out, struct fault *why)
{
    switch (stretch_look(s, *at, out)) {
    case SIGHT_RECORD:
        *at += out->size;
        return OK;
    case SIGHT_BLANK:
        *at = s->file_end;
        out->size = 0;
        return OK;
    case SIGHT_EMPTY:
    case SIGHT_BAD:
        break;
    }
    return fault_set(why, ERR_DAMAGED, "the log cannot be read at position %llu",
                     (unsigned long long)*at);
}

enum err log_stretch(struct store *store, uint64_t position, struct segment **seg,
                     struct stretch *out, struct fault *why)
{
    cleanup(segment_drop_at) struct segment *got = NULL;
    const uint8_t *map;
    enum err err = segment_get(&store->cache, &store->log, position, &got, why);
    if (!err)
        err = segment_map(got, &map, why);
    if (err)
        return err;
    uint64_t end = got->base + got->size;
    *out = (struct stretch){map, got->base, end, end};
    *seg = take(&got);
    return OK;
}

#define SECTOR 512 /* what a disk writes all or nothing of */

/* True if a sector that `text` has a part in holds only zeros of it. */
static bool sector_lost(const uint8_t *map, struct bytes text)
{
    for (const uint8_t *at = text.at, *end = at + text.len; at < end;) {
        size_t into = (size_t)(at - map) % SECTOR;
        const uint8_t *stop = (size_t)(end - at) > SECTOR - into ? at + (SECTOR - into) : end;
        while (at < stop && *at == 0)
            at++;
        if (at == stop)
            return true;
        at = stop;
    }
    return false;
}

bool log_record_whole(const uint8_t *map, const struct record *r)
{
    return record_body_intact(r) && !sector_lost(map, r->topic) && !sector_lost(map, r->props);
}

/* ---- the file ---- */

enum err tail_wipe(struct store *store, struct fault *why)
{
    struct tail *tail = &store->tail;
    uint64_t written = position_get(&store->positions.written);
    enum err err = fileset_cut(&store->cache, &store->log, written, why);
    atomic_store(&store->blocks.lost, true); /* those behind the end, too */
    if (!err)
        tail->soiled = false;
    return err;
}

/* Room: tail. The file behind the last one: that which was made ahead, or else it is made now. The
 * very first is on the disk before anything is in it: a power loss that took it and left the second
 * would look as if the log had begun there. */
static enum err next_file(struct store *store, uint64_t base)
{
    struct tail *tail = &store->tail;
    bool made = tail->ahead == base + store->log.file_size;
    fill_claim(store, base + 1);
    tail->ahead = 0;
    if (store->log.first == store->log.end) {
        enum err err = made ? OK : segment_make_ahead(&store->cache, &store->log, base, NULL);
        return err ? err : segment_adopt(&store->cache, &store->log, base, &tail->seg, NULL);
    }
    if (made && segment_adopt(&store->cache, &store->log, base, &tail->seg, NULL) == OK)
        return OK;
    return segment_make(&store->cache, &store->log, base, &tail->seg, NULL);
}

/* Room: tail. Makes tail->seg the file that contains `position`. */
static enum err tail_file(struct store *store, uint64_t position)
{
    struct tail *tail = &store->tail;
    if (tail->seg && position >= tail->seg->base && position - tail->seg->base < tail->seg->size)
        return OK;
    segment_drop(take(&tail->seg));
    if (position == store->log.end || store->log.first == store->log.end)
        return next_file(store, position);
    return segment_get(&store->cache, &store->log, position, &tail->seg, NULL);
}

/* Room: tail. How many zeros go behind a write that ends at `end`. */
static size_t paving(const struct tail *tail, uint64_t end)
{
    uint64_t file_end = tail->seg->base + tail->seg->size, upto = end - end % STONE + STONE;
    if (end <= tail->paved)
        return 0;
    return (size_t)((upto < file_end ? upto : file_end) - end);
}

/* Room: tail. The bytes that come next, in the file that the log ends in. */
static enum err paved_write(struct store *store, uint64_t at, struct bytes bytes)
{
    struct tail *tail = &store->tail;
    uint64_t end = at + bytes.len;
    size_t zeros = paving(tail, end);
    fill_claim(store, end + zeros);
    enum err err = segment_write(tail->seg, at, bytes, zeros, NULL);
    if (!err && zeros)
        tail->paved = end + zeros;
    return err;
}

static enum err window_write(struct placing *p)
{
    struct tail *tail = &p->store->tail;
    const struct window *w = &tail->window;
    if (w->len == p->done)
        return OK;
    enum err err =
        paved_write(p->store, w->from + p->done, bytes_of(w->at + p->done, w->len - p->done));
    if (!err)
        p->done = w->len;
    return err;
}

/* Sees to it that `more` bytes fit into the window. */
static enum err window_room(struct placing *p, size_t more)
{
    struct window *w = &p->store->tail.window;
    size_t max = atomic_load_explicit(&p->store->record_max, memory_order_relaxed);
    max += WINDOW_MORE;
    invariant(more <= max);
    if (w->len + more > max) {
        enum err err = window_write(p);
        if (err)
            return err;
        window_restart(w, p->at);
        p->done = 0;
    }
    if (w->len + more <= w->size)
        return OK;
    size_t size = w->size ? w->size : WINDOW_LEAST;
    while (size < w->len + more)
        size *= 2;
    uint8_t *bigger = realloc(w->at, size);
    if (!bigger)
        return ERR_NO_MEMORY;
    w->at = bigger;
    w->size = size;
    return OK;
}

/* Closes the file with a blank and goes on in the next one. */
static enum err roll(struct placing *p, uint64_t left)
{
    struct window *w = &p->store->tail.window;
    enum err err = window_room(p, RECORD_BLANK_SIZE);
    if (err)
        return err;
    store_u32(w->at + w->len, (uint32_t)left);
    store_u32(w->at + w->len + 4, RECORD_MAGIC_BLANK);
    w->len += RECORD_BLANK_SIZE;
    err = window_write(p);
    if (err)
        return err;
    p->at += left;
    window_restart(w, p->at);
    p->done = 0;
    return tail_file(p->store, p->at);
}

/* ---- records ---- */

static bool takes_offset(const struct draft *draft)
{
    int32_t kind = draft->sys_flag & SYS_TX_MASK;
    return kind != SYS_TX_PREPARED && kind != SYS_TX_ROLLBACK;
}

struct record draft_record(const struct draft *d)
{
    return (struct record){
        .body_crc = d->body_crc,
        .queue_id = d->queue_id,
        .flag = d->flag,
        .sys_flag = d->sys_flag,
        .born_ms = d->born_ms,
        .born_host = d->born_host,
        .store_host = d->store_host,
        .reconsume_times = d->reconsume_times,
        .prepared_position = d->prepared_position,
        .body = d->body,
        .topic = d->topic,
        .props = d->props,
    };
}

size_t unit_measure(const struct store *store, const struct draft *drafts, size_t n,
                    struct stored *out, uint64_t *size)
{
    uint64_t limit = store_biggest(store);
    size_t count = 0;
    uint64_t total = 0;
    bool fits = true;
    for (;;) {
        const struct draft *d = &drafts[count];
        invariant(d->queue == drafts[0].queue);
        invariant(d->queue_id == d->queue->queue_id);
        invariant(bytes_equal(d->topic, d->queue->topic));
        struct record r = draft_record(d);
        size_t one = record_size(&r);
        out[count].size = (uint32_t)one;
        total += one;
        fits = fits && one > 0 && total <= limit;
        count++;
        if (!d->with_next || count == n)
            break;
    }
    *size = fits ? total : 0;
    return count;
}

uint64_t store_biggest(const struct store *store)
{
    uint64_t limit = store->log.file_size - RECORD_BLANK_SIZE;
    uint64_t most = atomic_load_explicit(&store->record_max, memory_order_relaxed);
    return limit < most ? limit : most;
}

bool store_fits(const struct store *store, const struct draft *draft)
{
    struct stored out;
    uint64_t size;
    struct draft alone = *draft;
    alone.with_next = false;
    (void)unit_measure(store, &alone, 1, &out, &size);
    return size > 0;
}

static enum err unit_place(struct placing *p, const struct draft *drafts, size_t n, uint64_t size,
                           struct stored *out)
{
    struct tail *tail = &p->store->tail;
    enum err err = tail_file(p->store, p->at);
    if (err)
        return err;
    uint64_t left = tail->seg->base + tail->seg->size - p->at;
    if (size + RECORD_BLANK_SIZE > left)
        err = roll(p, left);
    if (!err)
        err = window_room(p, size);
    if (err)
        return err;

    struct wr w = wr_over(tail->window.at + tail->window.len, size);
    for (size_t i = 0; i < n; i++) {
        struct record r = draft_record(&drafts[i]);
        r.position = (int64_t)p->at;
        r.store_ms = p->now_ms;
        if (takes_offset(&drafts[i]))
            r.queue_offset = drafts[i].queue->next++;
        out[i] = (struct stored){OK, r.position, r.queue_offset, r.store_ms, out[i].size};
        err = record_encode(&r, &w);
        invariant(err == OK); /* unit_measure has seen it */
        invariant(!drafts[i].marks.known || takes_offset(&drafts[i]));
        slip_put(&p->store->slips, &p->slips, &drafts[i], &out[i]);
        p->at += out[i].size;
    }
    invariant(wr_room(&w) == 0);
    tail->window.len += size;
    return OK;
}

static enum err place_all(struct placing *p, const struct draft *drafts, size_t n,
                          struct stored *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (struct stored){.err = ERR_CLOSED}; /* not placed: take_back leaves it alone */
    for (size_t i = 0; i < n;) {
        uint64_t size;
        size_t count = unit_measure(p->store, drafts + i, n - i, out + i, &size);
        if (size == 0) {
            for (size_t k = i; k < i + count; k++)
                out[k] = (struct stored){.err = ERR_TOO_BIG};
        } else {
            enum err err = unit_place(p, drafts + i, count, size, out + i);
            if (err)
                return err;
        }
        i += count;
    }
    return window_write(p);
}

/* ---- records that stand on a sheet ---- */

/* In the file that the log ends in. What does not is written inside, over its end. So is what the
 * dispatcher wants in the window: records without slips, and what stands behind such. */
static bool sheet_fits(struct placing *p, const struct sheet *sheet, size_t n)
{
    if (p->store->tail.window.len > 0 || !slips_have_room(&p->store->slips, &p->slips, n) ||
        tail_file(p->store, p->at) != OK)
        return false;
    const struct segment *seg = p->store->tail.seg;
    return sheet->len + RECORD_BLANK_SIZE <= seg->base + seg->size - p->at;
}

static enum err place_sheet(struct placing *p, struct sheet *sheet, const struct draft *drafts,
                            size_t n, struct stored *out)
{
    uint64_t start = p->at;
    for (size_t i = 0; i < n; i++) {
        invariant(takes_offset(&drafts[i])); /* it leaves a slip */
        out[i] =
            (struct stored){OK, (int64_t)p->at, drafts[i].queue->next++, p->now_ms, out[i].size};
        record_place(sheet->at + (p->at - start), out[i].queue_offset, out[i].position, p->now_ms);
        slip_put(&p->store->slips, &p->slips, &drafts[i], &out[i]);
        p->at += out[i].size;
    }
    invariant(p->at - start == sheet->len);
    return paved_write(p->store, start, bytes_of(sheet->at, sheet->len));
}

/* Gives back the offsets that were handed out, the latest first. */
static void take_back(const struct draft *drafts, size_t n, const struct stored *out)
{
    while (n-- > 0) {
        if (out[n].err == OK && takes_offset(&drafts[n]))
            drafts[n].queue->next = out[n].queue_offset;
    }
}
