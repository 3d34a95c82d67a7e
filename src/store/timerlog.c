/* timerlog.c - the row of files with one unit for each message that waits for its time.
 *
 * Units stand one behind the other; none spans two files. The rest of a file that has no room for
 * another is a blank: how long it is, and a magic number. Units have no checksum, so everything a
 * unit says is checked where it is used: its place must be a possible one, and the place of the one
 * before it must be in front of it, which also keeps a chain from going round in circles.
 *
 * Files are read by copying, never mapped: a chain touches units all over a file, and mapped pages
 * would stay in memory.
 */
#include "store/store_int.h"
#include "store/timers.h"

#include <stdlib.h>

#define FOLDER      "timerlog"
#define BLANK_SIZE  16
#define BLANK_MAGIC 0xcbd43194u /* Apache's, as a number of 32 bits */
#define ADD_UNITS   256         /* added and not written yet */
#define LOOK_SIZE   4096        /* one read of a chain gets this much, or less */
#define SCAN_UNITS  16384       /* and one of a scan */

struct timerlog {
    struct vfs *vfs;
    struct cache cache;
    struct fileset files;
    struct room room;      /* whoever shifts the start of the row: fileset_shift wants one */
    int64_t end;           /* what was added counts */
    uint64_t synced;       /* bytes in front of it are on the disk. timerlog_sync only */
    uint64_t synced_files; /* and the row is known to its folder up to here */
    size_t n;              /* bytes in `added`, which belong in front of `end` */
    uint8_t added[ADD_UNITS * TIMER_UNIT_SIZE + BLANK_SIZE];
    int64_t look_at; /* where the bytes of `look` stand */
    size_t look_len;
    uint8_t look[LOOK_SIZE];
};

/* ---- units ---- */

void timer_unit_save(uint8_t out[TIMER_UNIT_SIZE], const struct timer_unit *unit)
{
    store_u32(out, TIMER_UNIT_SIZE);
    store_u64(out + 4, (uint64_t)unit->prev);
    store_u32(out + 12, unit->magic);
    store_u64(out + 16, (uint64_t)unit->write_ms);
    store_u32(out + 24, (uint32_t)(int32_t)(unit->time_ms - unit->write_ms));
    store_u64(out + 28, (uint64_t)unit->position);
    store_u32(out + 36, unit->size);
    store_u32(out + 40, unit->topic_hash);
    store_u64(out + 44, 0);
}

bool timer_unit_load(const uint8_t in[TIMER_UNIT_SIZE], struct timer_unit *out)
{
    struct rd r = rd_over(bytes_of(in, TIMER_UNIT_SIZE));
    struct timer_unit u = {0};
    uint32_t size = rd_u32(&r);
    u.prev = (int64_t)rd_u64(&r);
    u.magic = rd_u32(&r);
    u.write_ms = (int64_t)rd_u64(&r);
    int32_t delay = (int32_t)rd_u32(&r);
    u.position = (int64_t)rd_u64(&r);
    u.size = rd_u32(&r);
    u.topic_hash = rd_u32(&r);
    if (size != TIMER_UNIT_SIZE || (u.magic & ~0xfu) || !(u.magic & TIMER_PLAIN) || u.prev < -1 ||
        u.write_ms < 0 || u.write_ms > INT64_MAX / 4 || u.position < 0 || u.size == 0 ||
        u.size > INT32_MAX)
        return false;
    u.time_ms = u.write_ms + delay;
    if (u.time_ms < 0)
        return false;
    *out = u;
    return true;
}

/* Where another unit goes that comes after `at`: there, or in the next file. */
static int64_t place_for(const struct timerlog *log, int64_t at)
{
    int64_t size = (int64_t)log->files.file_size, inside = at % size;
    return size - inside < TIMER_UNIT_SIZE + BLANK_SIZE ? at - inside + size : at;
}

/* ---- opening ---- */

bool timerlog_size_possible(uint64_t size)
{
    return size >= 2 * TIMER_UNIT_SIZE + BLANK_SIZE && size <= INT32_MAX;
}

uint64_t timerlog_units(uint64_t size)
{
    return (size - BLANK_SIZE) / TIMER_UNIT_SIZE;
}

static enum err files_find(struct timerlog *log, struct fault *why)
{
    cleanup(free_at) uint64_t *bases = NULL;
    size_t n = 0;
    enum err err = fileset_list(log->vfs, FOLDER, &bases, &n, why);
    if (err || n == 0)
        return err;
    char path[PATH_SIZE];
    fileset_path(path, FOLDER, bases[0]);
    uint64_t size;
    err = vfs_file_size(log->vfs, path, &size, why);
    if (err)
        return err;
    if (!timerlog_size_possible(size))
        return fault_set(why, ERR_DAMAGED, "%s has a size that none can have", path);
    for (size_t i = 0; i < n; i++)
        if (bases[i] % size != 0 || bases[i] != bases[0] + i * size ||
            bases[i] > (uint64_t)INT64_MAX / 2)
            return fault_set(why, ERR_DAMAGED, "the files of %s do not form a row", FOLDER);
    log->files.file_size = size;
    log->files.first = bases[0];
    log->files.end = bases[0] + n * size;
    return OK;
}

enum err timerlog_open(struct vfs *vfs, uint64_t file_size, struct timerlog **out,
                       struct fault *why)
{
    struct timerlog *log = calloc(1, sizeof *log);
    if (!log)
        return fault_set(why, ERR_NO_MEMORY, "no memory for the timers' log");
    invariant(timerlog_size_possible(file_size));
    log->vfs = vfs;
    log->files = (struct fileset){.folder = FOLDER, .file_size = file_size};
    list_init(&log->files.open);
    cache_init(&log->cache, vfs, 0);
    room_init(&log->room, "timerlog", ROOM_DERIVED);
    enum err err = files_find(log, why);
    if (err) {
        timerlog_close(log);
        return err;
    }
    log->end = (int64_t)log->files.first;
    *out = log;
    return OK;
}

void timerlog_close(struct timerlog *log)
{
    if (!log)
        return;
    cache_clear(&log->cache);
    room_clear(&log->room);
    free(log);
}

int64_t timerlog_first(struct timerlog *log)
{
    uint64_t first, end;
    fileset_bounds(&log->cache, &log->files, &first, &end);
    return (int64_t)first;
}

int64_t timerlog_end(const struct timerlog *log)
{
    return log->end;
}

/* ---- going through all of it ---- */

struct scan {
    struct timerlog *log;
    int64_t limit;
    bool (*each)(void *user, int64_t at, const struct timer_unit *unit);
    void *user;
    uint8_t *buffer;
    bool over;
};

/* One file from its start on. `*at` ends where another unit would go. */
static enum err scan_file(struct scan *scan, int64_t base, int64_t *at, struct fault *why)
{
    struct timerlog *log = scan->log;
    int64_t size = (int64_t)log->files.file_size;
    struct segment *seg;
    enum err err = segment_get(&log->cache, &log->files, (uint64_t)base, &seg, why);
    if (err)
        return err;
    *at = base;
    while (!err && !scan->over && place_for(log, *at) == *at) {
        int64_t units = (size - BLANK_SIZE - (*at - base)) / TIMER_UNIT_SIZE;
        units = units < SCAN_UNITS ? units : SCAN_UNITS;
        err = segment_read(seg, (uint64_t)*at, scan->buffer, (size_t)units * TIMER_UNIT_SIZE, why);
        for (int64_t i = 0; !err && i < units; i++) {
            struct timer_unit unit;
            if (*at >= scan->limit || !timer_unit_load(scan->buffer + i * TIMER_UNIT_SIZE, &unit) ||
                unit.prev >= *at || !scan->each(scan->user, *at, &unit)) {
                scan->over = true;
                break;
            }
            *at += TIMER_UNIT_SIZE;
        }
    }
    segment_drop(seg);
    return err;
}

enum err timerlog_scan(struct timerlog *log, int64_t limit,
                       bool (*each)(void *user, int64_t at, const struct timer_unit *unit),
                       void *user, struct fault *why)
{
    struct scan scan = {.log = log, .limit = limit, .each = each, .user = user};
    scan.buffer = malloc((size_t)SCAN_UNITS * TIMER_UNIT_SIZE);
    if (!scan.buffer)
        return fault_set(why, ERR_NO_MEMORY, "no memory to read the timers' log");
    int64_t at = (int64_t)log->files.first, files_end = (int64_t)log->files.end;
    enum err err = OK;
    for (int64_t base = at; !err && !scan.over && base < files_end;
         base += (int64_t)log->files.file_size) {
        err = scan_file(&scan, base, &at, why);
        if (err == ERR_DAMAGED) { /* a file of another size: the units end in front of it */
            fault_forget(why);
            err = OK;
            at = base;
            scan.over = true;
        }
    }
    free(scan.buffer);
    if (!err)
        err = fileset_cut(&log->cache, &log->files, (uint64_t)at, why);
    if (!err)
        log->end = at;
    log->look_len = 0;
    return err;
}

/* ---- adding ---- */

static enum err file_for(struct timerlog *log, int64_t at, struct segment **out, struct fault *why)
{
    uint64_t base = (uint64_t)at - (uint64_t)at % log->files.file_size, first, end;
    fileset_bounds(&log->cache, &log->files, &first, &end);
    bool there = base >= first && base < end;
    return there ? segment_get(&log->cache, &log->files, base, out, why)
                 : segment_make(&log->cache, &log->files, base, out, why);
}

enum err timerlog_write(struct timerlog *log, struct fault *why)
{
    if (log->n == 0)
        return OK;
    int64_t at = log->end - (int64_t)log->n;
    struct segment *seg;
    enum err err = file_for(log, at, &seg, why);
    if (err)
        return err;
    err = segment_write(seg, (uint64_t)at, bytes_of(log->added, log->n), 0, why);
    segment_drop(seg);
    if (err)
        return err; /* what was added stays, and is written the next time */
    log->n = 0;
    log->look_len = 0;
    return OK;
}

enum err timerlog_add(struct timerlog *log, const struct timer_unit *unit, int64_t *at,
                      struct fault *why)
{
    int64_t place = place_for(log, log->end);
    if (place != log->end || log->n >= (size_t)ADD_UNITS * TIMER_UNIT_SIZE) {
        enum err err = timerlog_write(log, why);
        if (err)
            return err;
    }
    if (place != log->end) { /* the rest of the file is a blank */
        struct wr w = wr_over(log->added, BLANK_SIZE);
        wr_u32(&w, (uint32_t)(place - log->end));
        wr_u64(&w, 0);
        wr_u32(&w, BLANK_MAGIC);
        struct segment *seg;
        enum err err = file_for(log, log->end, &seg, why);
        if (err)
            return err;
        if (place - log->end >= BLANK_SIZE)
            err = segment_write(seg, (uint64_t)log->end, wr_bytes(&w), 0, why);
        segment_drop(seg);
        if (err)
            return err;
        log->end = place;
    }
    timer_unit_save(log->added + log->n, unit);
    log->n += TIMER_UNIT_SIZE;
    *at = log->end;
    log->end += TIMER_UNIT_SIZE;
    return OK;
}

/* ---- reading ---- */

/* Chains are walked from their end to their start, so what is read ends with the unit asked for. */
static enum err look_move(struct timerlog *log, int64_t at, struct fault *why)
{
    int64_t base = at - at % (int64_t)log->files.file_size;
    int64_t end = at + TIMER_UNIT_SIZE;
    int64_t from = end - LOOK_SIZE > base ? end - LOOK_SIZE : base;
    struct segment *seg;
    enum err err = segment_get(&log->cache, &log->files, (uint64_t)base, &seg, why);
    if (err)
        return err;
    log->look_len = 0;
    err = segment_read(seg, (uint64_t)from, log->look, (size_t)(end - from), why);
    segment_drop(seg);
    if (err)
        return err;
    log->look_at = from;
    log->look_len = (size_t)(end - from);
    return OK;
}

enum err timerlog_read(struct timerlog *log, int64_t at, struct timer_unit *out, struct fault *why)
{
    int64_t written = log->end - (int64_t)log->n;
    if (at < 0 || at > written - TIMER_UNIT_SIZE ||
        at % (int64_t)log->files.file_size % TIMER_UNIT_SIZE != 0 || place_for(log, at) != at)
        return fault_set(why, ERR_NOT_FOUND, "no timer can be at %lld of %s", (long long)at,
                         FOLDER);
    bool seen = log->look_len > 0 && at >= log->look_at &&
                at + TIMER_UNIT_SIZE <= log->look_at + (int64_t)log->look_len;
    enum err err = seen ? OK : look_move(log, at, why);
    if (err)
        return err;
    struct timer_unit unit;
    if (!timer_unit_load(log->look + (at - log->look_at), &unit) || unit.prev >= at)
        return fault_set(why, ERR_DAMAGED, "what is at %lld of %s is no timer", (long long)at,
                         FOLDER);
    *out = unit;
    return OK;
}

/* ---- the disk, and what is old ---- */

enum err timerlog_sync(struct timerlog *log, int64_t end, struct fault *why)
{
    uint64_t first, files_end;
    fileset_bounds(&log->cache, &log->files, &first, &files_end);
    if ((uint64_t)end <= log->synced)
        return OK;
    enum err err = fileset_sync(&log->cache, &log->files, log->synced, (uint64_t)end, why);
    if (!err && files_end > first && files_end != log->synced_files) {
        err = log->vfs->calls->sync_dir(log->vfs, FOLDER, why);
        if (!err)
            err = log->vfs->calls->sync_dir(log->vfs, "", why);
        if (!err)
            log->synced_files = files_end;
    }
    if (!err)
        log->synced = (uint64_t)end;
    return err;
}

/* The record that the last unit of a full file is of; -1: it cannot be told. */
static int64_t last_position(struct timerlog *log, uint64_t base)
{
    uint64_t units = timerlog_units(log->files.file_size);
    uint8_t text[TIMER_UNIT_SIZE];
    struct timer_unit unit;
    struct segment *seg;
    if (segment_get(&log->cache, &log->files, base, &seg, NULL))
        return -1;
    enum err err = segment_read(seg, base + (units - 1) * TIMER_UNIT_SIZE, text, sizeof text, NULL);
    segment_drop(seg);
    return !err && timer_unit_load(text, &unit) ? unit.position : -1;
}

enum err timerlog_shift(struct timerlog *log, int64_t position, struct fault *why)
{
    for (;;) {
        uint64_t first, end;
        fileset_bounds(&log->cache, &log->files, &first, &end);
        if (end - first <= log->files.file_size)
            return OK;
        int64_t last = last_position(log, first);
        if (last < 0 || last >= position)
            return OK;
        enum err err = fileset_shift(&log->cache, &log->files, &log->room, why);
        if (err)
            return err;
    }
}
