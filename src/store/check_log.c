/* check_log.c - walks all files of the log, as recovery does but without an end: behind what cannot
 * be read it looks for the next whole record.
 */
#include "store/check_int.h"

#include <inttypes.h>

#define PROGRESS_STEP (32u << 20)

/* Where recovery would start after a crash: see recover.c. */
static enum err find_rebuilt(struct check *c, struct fault *why)
{
    struct store *store = c->store;
    int64_t safe_ms = checkpoint_start_ms(&c->checkpoint);
    c->rebuilt_from = store->log.first;
    for (size_t i = c->n_bases; i-- > 0;) {
        cleanup(segment_drop_at) struct segment *seg = NULL;
        const uint8_t *map;
        struct record r;
        enum err err = segment_get(&store->cache, &store->log, c->bases[i], &seg, NULL);
        if (err == ERR_NO_MEMORY)
            return err;
        if (err)
            continue; /* it has been told */
        err = segment_map(seg, &map, why);
        if (err)
            return err;
        if (log_look(map, seg->base, seg->size, seg->base, &r) == SIGHT_RECORD &&
            log_record_whole(map, &r) && r.store_ms > 0 && r.store_ms <= safe_ms) {
            c->rebuilt_from = seg->base;
            return OK;
        }
    }
    return OK;
}

enum err check_log_load(struct check *c, struct fault *why)
{
    struct fileset *log = &c->store->log;
    c->sum.log_files = c->n_bases;
    if (c->n_bases == 0)
        return OK;
    enum err err = check_sizes(c, LOG_FOLDER, c->bases, c->n_bases, &log->file_size, why);
    if (err)
        return err;
    if (log->file_size < RECORD_BLANK_SIZE) { /* the first file was just being made */
        check_say(c, CHECK_NOTE, LOG_FOLDER, -1, "has no file with anything in it");
        c->n_bases = 0;
        return OK;
    }
    c->sum.log_file_size = log->file_size;
    c->sum.log_first = c->sum.log_end = log->first = c->bases[0];
    log->end = c->bases[c->n_bases - 1] + log->file_size;
    c->total = log->end - log->first;
    atomic_store(&c->store->positions.first, log->first);
    err = check_files(c, LOG_FOLDER, log->file_size, c->bases, c->n_bases, why);
    return err || !c->aborted ? err : find_rebuilt(c, why);
}

/* ---- what cannot be read ---- */

/* The next whole record of the file behind `at`; the end of the file when there is none. */
static uint64_t next_record(const struct segment *seg, const uint8_t *map, uint64_t at)
{
    uint64_t end = seg->base + seg->size;
    const uint8_t magic = RECORD_MAGIC >> 24;
    for (at += 5; at < end;) { /* the first byte of the magic stands 4 behind the start */
        const uint8_t *hit = memchr(map + (at - seg->base), magic, end - at);
        if (!hit)
            return end;
        at = seg->base + (uint64_t)(hit - map);
        struct record r;
        if (log_look(map, seg->base, seg->size, at - 4, &r) == SIGHT_RECORD &&
            log_record_whole(map, &r))
            return at - 4;
        at++;
    }
    return end;
}

static void path_of(const struct check *c, uint64_t position, char path[PATH_SIZE], int64_t *at)
{
    uint64_t into = position % c->store->log.file_size;
    fileset_path(path, LOG_FOLDER, position - into);
    *at = (int64_t)into;
}

/* A whole record stands at `to`, behind a gap. Apache does not wipe what it cuts off, so it may be
 * one of an earlier life: then everything else agrees that the log ends where the gap begins. */
static void gap_closed(struct check *c, uint64_t to)
{
    char path[PATH_SIZE];
    int64_t at;
    path_of(c, c->gap, path, &at);
    const struct checkpoint *cp = &c->checkpoint;
    bool sealed_here = cp->sealed && cp->sealed_end == c->gap;
    if (!c->aborted && (sealed_here || c->units_end == c->gap)) {
        check_say(c, CHECK_NOTE, path, at,
                  "the log ends here, and a record that was cut off earlier stands behind it");
        c->ended = true;
        return;
    }
    check_say(c, CHECK_DAMAGE, path, at,
              "the log cannot be read at position %" PRIu64 ", and goes on at %" PRIu64 ", %" PRIu64
              " bytes later",
              c->gap, to, to - c->gap);
    c->gap = NO_GAP;
}

static void tell_tail(struct check *c, const struct segment *seg, const uint8_t *map)
{
    if (c->ended || c->gap == NO_GAP || c->gap < seg->base || c->gap >= seg->base + seg->size)
        return;
    uint64_t end = seg->base + seg->size;
    while (end > c->gap && map[end - 1 - seg->base] == 0)
        end--;
    if (end == c->gap)
        return;
    char path[PATH_SIZE];
    int64_t at;
    path_of(c, c->gap, path, &at);
    check_say(c, CHECK_NOTE, path, at,
              "the log ends here; %" PRIu64 " bytes behind it are no record, the next start cuts "
              "them off",
              end - c->gap);
}

/* ---- walking ---- */

static void tell_progress(struct check *c, uint64_t at, bool now)
{
    if (c->calls->progress && (now || at - c->told >= PROGRESS_STEP)) {
        c->told = at;
        c->calls->progress(c->calls->user, at - c->store->log.first, c->total);
    }
}

static enum err walk_file(struct check *c, const struct segment *seg, const uint8_t *map,
                          struct fault *why)
{
    uint64_t at = seg->base, end = seg->base + seg->size;
    while (at < end && !c->ended) {
        struct record r;
        enum log_sight sight = log_look(map, seg->base, seg->size, at, &r);
        if (sight == SIGHT_RECORD && log_record_whole(map, &r)) {
            if (c->gap != NO_GAP)
                gap_closed(c, at);
            if (c->ended)
                break;
            enum err err = check_record(c, &r, why);
            if (err)
                return err;
            at += r.size;
            c->sum.records++;
            c->sum.bytes += r.size;
            c->sum.log_end = at;
            c->last_ms = r.store_ms > c->last_ms ? r.store_ms : c->last_ms;
            tell_progress(c, at, false);
        } else if (sight == SIGHT_BLANK && c->gap == NO_GAP) {
            at = end;
        } else {
            c->gap = c->gap == NO_GAP ? at : c->gap;
            at = next_record(seg, map, at);
        }
    }
    return OK;
}

enum err check_log_walk(struct check *c, struct fault *why)
{
    struct store *store = c->store;
    for (size_t i = 0; i < c->n_bases && !c->ended; i++) {
        cleanup(segment_drop_at) struct segment *seg = NULL;
        const uint8_t *map;
        uint64_t base = c->bases[i];
        if (base % store->log.file_size != 0)
            continue;
        enum err err = segment_get(&store->cache, &store->log, base, &seg, why);
        if (err == ERR_DAMAGED) { /* its size, which has been told */
            fault_forget(why);
            c->gap = c->gap == NO_GAP && i == c->n_bases - 1 ? base : c->gap;
            continue;
        }
        if (!err)
            err = segment_map(seg, &map, why);
        if (!err)
            err = walk_file(c, seg, map, why);
        if (err)
            return err;
        tell_tail(c, seg, map);
        tell_progress(c, seg->base + seg->size, true);
    }
    if (c->gap != NO_GAP)
        c->sum.log_end = c->gap;
    return OK;
}
