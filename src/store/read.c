/* read.c - from a queue's units to slices of the mapped log.
 *
 * No key is held while reading. A queue's `max` is read once with acquire; everything below it is
 * in the files or on the queue's shelf, which is held from then on, and does not change. Records
 * that stand next to each other in the log become one slice.
 */
#include "store/store_int.h"

#define SCAN_LEAST 800 /* units in one read, as Apache has it: 16000 bytes of the queue */
#define LOOK_BYTES                                                                                 \
    (1u << 20) /* of properties in one read; one message more than that is looked at */

/* Units of a file that is not mapped: `n` of them from offset `from` on. */
struct near {
    int64_t from;
    size_t n;
    uint8_t units[64 * UNIT_SIZE]; /* a pull asks for 32, mostly */
};

/* One read on its way. */
struct reading {
    struct store *store;
    struct queue *queue;
    const struct read_request *request;
    struct read_result *out;
    struct shelf *shelf;   /* the queue's, when its end was read; or NULL */
    struct segment *units; /* the queue file in use … */
    struct near *near;     /* … and what was read of it … */
    const uint8_t *map;    /* … or its mapping, if it has one that is in use */
    struct segment *log;   /* the log file in use */
    const uint8_t *log_map;
    uint64_t looked; /* bytes of properties that the filter was shown */
};

/* What became of one unit. */
enum unit_fate {
    UNIT_TAKEN,
    UNIT_PASSED, /* the filter did not want it */
    UNIT_GONE,   /* its record is not there any more */
    UNIT_LATER,  /* no room for it in this answer */
    UNIT_STUCK,  /* no memory, no file handle: nobody may be sent past it */
};

#define AHEAD 6 /* units whose records are on their way from memory */

static enum unit_fate take_unit(struct reading *rd, const struct unit *unit);

/* From the file that is in use. What stands behind the queue's end, as its reader knows it, may be
 * read along, and is not looked at. */
static enum err unit_near(struct reading *rd, int64_t offset, struct unit *out)
{
    struct near *near = rd->near;
    if (offset < near->from || offset - near->from >= (int64_t)near->n) {
        uint64_t at = (uint64_t)offset * UNIT_SIZE, left = rd->units->base + rd->units->size - at;
        size_t size = left < sizeof near->units ? (size_t)left : sizeof near->units;
        near->n = 0;
        enum err err = segment_read(rd->units, at, near->units, size, NULL);
        if (err)
            return err;
        near->from = offset;
        near->n = size / UNIT_SIZE;
    }
    *out = unit_load(near->units + (size_t)(offset - near->from) * UNIT_SIZE);
    return OK;
}

/* The unit at `offset`. ERR_NOT_FOUND, ERR_DAMAGED: its file is not there, or not whole. */
static enum err unit_at(struct reading *rd, int64_t offset, struct unit *out)
{
    if (rd->shelf && offset >= rd->shelf->from) {
        *out = shelf_unit(rd->shelf, offset);
        return OK;
    }
    uint64_t at = (uint64_t)offset * UNIT_SIZE;
    if (!rd->units || at < rd->units->base || at - rd->units->base >= rd->units->size) {
        segment_drop(take(&rd->units));
        rd->map = NULL;
        enum err err = segment_get(&rd->store->cache, &rd->queue->files, at, &rd->units, NULL);
        if (err)
            return err;
    }
    if (!segment_hot(rd->units))
        return unit_near(rd, offset, out);
    enum err err = segment_map(rd->units, &rd->map, NULL);
    if (!err)
        *out = unit_load(rd->map + (at - rd->units->base));
    return err;
}

/* For a reader that knows the queue's end by now. */
static struct reading reading_start(struct store *store, struct queue *queue, struct near *near)
{
    near->from = 0;
    near->n = 0;
    return (struct reading){
        .store = store, .queue = queue, .shelf = shelf_hold(store, queue), .near = near};
}

static void reading_end(struct reading *rd)
{
    shelf_drop_at(&rd->shelf);
    segment_drop(rd->units);
    segment_drop(rd->log);
}

/* Has the record of a later unit fetched, if it is at hand where it stands: the neighbours of a
 * record belong to other queues, so nothing else would. */
static void fetch_ahead(const struct reading *rd, int64_t offset)
{
    uint64_t at = (uint64_t)offset * UNIT_SIZE;
    const struct near *near = rd->near;
    struct unit unit;
    if (rd->shelf && offset >= rd->shelf->from)
        unit = shelf_unit(rd->shelf, offset);
    else if (rd->map && at >= rd->units->base && at - rd->units->base < rd->units->size)
        unit = unit_load(rd->map + (at - rd->units->base));
    else if (offset >= near->from && offset - near->from < (int64_t)near->n)
        unit = unit_load(near->units + (size_t)(offset - near->from) * UNIT_SIZE);
    else
        return;
    if (rd->log && unit.position >= rd->log->base && unit.position - rd->log->base < rd->log->size)
        __builtin_prefetch(rd->log_map + (unit.position - rd->log->base));
}

static int64_t next_file(const struct reading *rd, int64_t offset)
{
    int64_t units = (int64_t)(rd->queue->files.file_size / UNIT_SIZE);
    int64_t next = offset - offset % units + units;
    return next < rd->out->max ? next : rd->out->max;
}

/* Goes through the units from the wanted offset on. */
static void scan(struct reading *rd)
{
    struct read_result *out = rd->out;
    int64_t at = rd->request->offset;
    int64_t scan_max = rd->request->max_count > SCAN_LEAST ? rd->request->max_count : SCAN_LEAST;
    int64_t stop = out->max - at > scan_max ? at + scan_max : out->max;
    enum read_status nothing = READ_NONE_MATCHED;
    while (at < stop) {
        struct unit unit;
        enum err err = unit_at(rd, at, &unit);
        if (err == ERR_NOT_FOUND || err == ERR_DAMAGED) {
            if (out->count == 0) {
                at = next_file(rd, at);
                nothing = READ_GONE;
            }
            break;
        }
        if (at + AHEAD < stop)
            fetch_ahead(rd, at + AHEAD);
        enum unit_fate fate = err ? UNIT_STUCK : take_unit(rd, &unit);
        if (fate == UNIT_LATER || fate == UNIT_STUCK)
            break;
        if (fate == UNIT_GONE)
            nothing = READ_GONE;
        else if (fate == UNIT_PASSED)
            nothing = READ_NONE_MATCHED;
        at++;
    }
    out->next = at;
    out->status = out->count ? READ_FOUND : nothing;
}

void store_read(struct store *store, struct queue *queue, const struct read_request *request,
                struct read_result *out)
{
    out->max = queue_max(queue);
    out->min = queue_min(store, queue);
    out->count = 0;
    out->size = 0;
    out->n_slices = 0;

    if (out->max == 0) {
        out->status = READ_EMPTY;
        out->next = 0;
    } else if (request->offset < out->min) {
        out->status = READ_TOO_SMALL;
        out->next = out->min;
    } else if (request->offset == out->max) {
        out->status = READ_AT_END;
        out->next = request->offset;
    } else if (request->offset > out->max) {
        out->status = READ_TOO_LARGE;
        out->next = out->max;
    } else {
        struct near near;
        struct reading rd = reading_start(store, queue, &near);
        rd.request = request;
        rd.out = out;
        scan(&rd);
        reading_end(&rd);
    }
}

/* ---- records ---- */

/* Makes rd->log the file that contains `position`. */
static enum err log_file(struct reading *rd, uint64_t position)
{
    if (rd->log && position >= rd->log->base && position - rd->log->base < rd->log->size)
        return OK;
    segment_drop(take(&rd->log));
    enum err err = segment_get(&rd->store->cache, &rd->store->log, position, &rd->log, NULL);
    if (err)
        return err;
    err = segment_map(rd->log, &rd->log_map, NULL);
    if (err)
        segment_drop(take(&rd->log));
    return err;
}

/* A client that gets a torn record throws away everything behind it, so what a unit says is
 * compared with what stands there. */
static bool record_is_there(const struct reading *rd, const struct unit *unit)
{
    uint64_t inside = unit->position - rd->log->base;
    uint32_t size;
    if (unit->size > rd->log->size - inside)
        return false;
    return record_peek(bytes_of(rd->log_map + inside, unit->size), &size) == RECORD_MESSAGE &&
           size == unit->size;
}

/* Adds to the last slice when it goes on there. False: there is no room for another slice. */
static bool slice_add(struct reading *rd, const struct unit *unit)
{
    struct read_result *out = rd->out;
    struct bytes bytes = bytes_of(rd->log_map + (unit->position - rd->log->base), unit->size);
    struct slice *last = out->n_slices ? &out->slices[out->n_slices - 1] : NULL;
    if (last && last->owner == &rd->log->owner && last->bytes.at + last->bytes.len == bytes.at) {
        last->bytes.len += bytes.len;
        return true;
    }
    if (out->n_slices == READ_SLICES_MAX)
        return false;
    counted_hold(&rd->log->owner);
    out->slices[out->n_slices++] = (struct slice){bytes, &rd->log->owner};
    return true;
}

/* Asks the filter about a record that is there. One that cannot be read is nobody's. */
static enum unit_fate look_at_props(struct reading *rd, const struct unit *unit)
{
    const struct read_request *request = rd->request;
    struct record record;
    if (rd->looked >= LOOK_BYTES)
        return UNIT_LATER;
    const uint8_t *at = rd->log_map + (unit->position - rd->log->base);
    if (record_decode(bytes_of(at, unit->size), &record))
        return UNIT_GONE;
    rd->looked += record.props.len;
    return request->wants_props(request->user, record.props) ? UNIT_TAKEN : UNIT_PASSED;
}

static enum unit_fate take_unit(struct reading *rd, const struct unit *unit)
{
    struct read_result *out = rd->out;
    const struct read_request *request = rd->request;
    if (unit->size == 0 || unit_is_filler(unit))
        return UNIT_GONE;
    if (unit->position < position_get(&rd->store->positions.first) ||
        unit->position + unit->size > store_confirmed(rd->store))
        return UNIT_GONE;
    if (request->wants && !request->wants(request->user, unit->tags_code))
        return UNIT_PASSED;
    if (out->count >= request->max_count ||
        (out->count > 0 && out->size + unit->size > request->max_bytes))
        return UNIT_LATER;

    enum err err = log_file(rd, unit->position);
    if (err == ERR_NOT_FOUND)
        return UNIT_GONE;
    if (err)
        return UNIT_STUCK;
    if (!record_is_there(rd, unit))
        return UNIT_GONE;
    if (request->wants_props) {
        enum unit_fate fate = look_at_props(rd, unit);
        if (fate != UNIT_TAKEN)
            return fate;
    }
    if (!slice_add(rd, unit))
        return UNIT_LATER;
    out->count++;
    out->size += unit->size;
    return UNIT_TAKEN;
}

/* Holds the log file that a record stands in. The record is whole, belongs there, and ends at or
 * before `limit`. */
static enum err record_at(struct store *store, uint64_t position, uint64_t limit,
                          struct segment **out, struct record *record, struct bytes *bytes)
{
    if (position < position_get(&store->positions.first) || position >= limit)
        return ERR_NOT_FOUND;
    cleanup(segment_drop_at) struct segment *seg = NULL;
    const uint8_t *map;
    enum err err = segment_get(&store->cache, &store->log, position, &seg, NULL);
    if (!err)
        err = segment_map(seg, &map, NULL);
    if (err)
        return err;
    if (log_look(map, seg->base, seg->size, position, record) != SIGHT_RECORD)
        return ERR_DAMAGED;
    if (position + record->size > limit)
        return ERR_NOT_FOUND;
    *bytes = bytes_of(map + (position - seg->base), record->size);
    *out = take(&seg);
    return OK;
}

static enum err slice_at(struct store *store, int64_t position, uint64_t limit, struct slice *out)
{
    struct segment *seg;
    struct record record;
    struct bytes bytes;
    if (position < 0)
        return ERR_NOT_FOUND;
    enum err err = record_at(store, (uint64_t)position, limit, &seg, &record, &bytes);
    if (err)
        return err;
    if (!record_body_intact(&record)) {
        segment_drop(seg);
        return ERR_DAMAGED;
    }
    *out = (struct slice){bytes, &seg->owner};
    return OK;
}

enum err store_read_at(struct store *store, int64_t position, struct slice *out)
{
    return slice_at(store, position, store_confirmed(store), out);
}

enum err store_peek_at(struct store *store, int64_t position, struct slice *out)
{
    return slice_at(store, position, position_get(&store->positions.written), out);
}

size_t queue_units(struct store *store, struct queue *queue, int64_t offset, struct queue_unit *out,
                   size_t max)
{
    int64_t end = queue_max(queue);
    struct near near;
    struct reading rd = reading_start(store, queue, &near);
    size_t n = 0;
    for (int64_t at = offset; at < end && n < max; at++) {
        struct unit unit = {0};
        enum err err = unit_at(&rd, at, &unit);
        if (err && err != ERR_NOT_FOUND && err != ERR_DAMAGED)
            break; /* not just now */
        bool there = !err && !unit_is_filler(&unit);
        out[n++] =
            there ? (struct queue_unit){(int64_t)unit.position, unit.size} : (struct queue_unit){0};
    }
    reading_end(&rd);
    return n;
}

enum err store_copy_at(struct store *store, int64_t position, uint8_t *into, uint64_t size)
{
    uint64_t from = (uint64_t)position, file = store->log.file_size, end = store_confirmed(store);
    if (position < 0 || from < position_get(&store->positions.first) || from >= end ||
        size > end - from || size > file - from % file)
        return ERR_NOT_FOUND;
    struct segment *seg;
    enum err err = segment_get(&store->cache, &store->log, from, &seg, NULL);
    if (err)
        return err;
    err = segment_read(seg, from, into, size, NULL);
    segment_drop(seg);
    return err;
}

/* ---- time ---- */

int64_t queue_store_time(struct store *store, struct queue *queue, int64_t offset)
{
    if (offset < queue_min(store, queue) || offset >= queue_max(queue))
        return -1;
    struct near near;
    struct reading rd = reading_start(store, queue, &near);
    struct unit unit;
    struct record record;
    struct bytes bytes;
    enum err err = unit_at(&rd, offset, &unit);
    reading_end(&rd);
    if (err || unit.size == 0 || unit_is_filler(&unit))
        return -1;
    struct segment *seg;
    err = record_at(store, unit.position, store_confirmed(store), &seg, &record, &bytes);
    if (err)
        return -1;
    segment_drop(seg);
    return record.store_ms;
}

int64_t queue_due(struct store *store, struct queue *queue, int64_t offset, int64_t max,
                  int64_t upto_ms, int64_t *next_ms)
{
    int64_t at = offset, end = queue_max(queue);
    struct near near;
    struct reading rd = reading_start(store, queue, &near);
    int64_t stop = end - offset > max ? offset + max : end;
    *next_ms = INT64_MAX;
    for (; at < stop; at++) {
        struct unit unit;
        if (unit_at(&rd, at, &unit) || unit_is_filler(&unit) || unit.tags_code <= upto_ms)
            continue;
        *next_ms = unit.tags_code;
        break;
    }
    reading_end(&rd);
    return at > offset ? at - offset : 0;
}

int64_t queue_search_time(struct store *store, struct queue *queue, int64_t ts)
{
    int64_t low = queue_min(store, queue), high = queue_max(queue);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (queue_store_time(store, queue, middle) < ts) /* what cannot be read counts as earlier */
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
