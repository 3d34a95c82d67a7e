/* look.c - the messages of a folder, one after the other, whoever has it open.
 *
 * Files are read piece by piece into a window, never mapped: the owner of the folder may make a
 * file shorter at any moment, which is an error code for a read and a signal for a mapping.
 *
 * A queue's own files serve as a hint only: the unit of an offset says where in the log to begin.
 * If the record there is not the one that was asked for, the look begins at the log's start.
 *
 * Where nothing whole can be read, the next whole record is searched for, through all files; if
 * there is none, the log is over. A record that is just being written looks like that, too.
 */
#include "store/store_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PIECE       (1u << 20)
#define ALIGNED     4096u       /* windows begin at a page, so sectors in them are those on disk */
#define RECORD_MOST (64u << 20) /* nobody stores a bigger one; a claim beyond it is none */
#define MAGIC_AT    4           /* in a record */
#define NO_GAP      UINT64_MAX

struct look {
    struct vfs *vfs;
    const struct look_request *request;
    const struct look_calls *calls;
    struct look_summary sum;
    uint64_t *bases; /* of the log's files */
    size_t n_bases;
    uint64_t file_size; /* of a whole one */

    struct vfs_file *file; /* the one that is open, from `base` to `end` */
    uint64_t base, end;
    struct window window;
    uint64_t gap;  /* from here on nothing was readable; NO_GAP: it is */
    bool searches; /* began in the middle: what is in front of the first record is no gap */
    bool enough;
};

/* ---- the window ---- */

static enum err window_grow(struct window *w, size_t size)
{
    if (size <= w->size)
        return OK;
    uint8_t *bigger = realloc(w->at, size);
    if (!bigger)
        return ERR_NO_MEMORY;
    w->at = bigger;
    w->size = size;
    return OK;
}

/* Sees to it that the window has `n` bytes at `position`, or what there is of them in the file. */
static enum err window_move(struct look *l, uint64_t position, size_t n, struct fault *why)
{
    struct window *w = &l->window;
    uint64_t left = l->end - position;
    n = n < left ? n : (size_t)left;
    if (window_has(w, position) && w->len - (position - w->from) >= n)
        return OK;
    uint64_t from = position - (position - l->base) % ALIGNED;
    size_t wanted = (size_t)(position - from) + (n > PIECE ? n : PIECE);
    wanted = wanted < l->end - from ? wanted : (size_t)(l->end - from);
    enum err err = window_grow(w, wanted);
    w->len = 0;
    if (!err)
        err = l->vfs->calls->read(l->file, from - l->base, w->at, wanted, why);
    if (err)
        return err;
    w->from = from;
    w->len = wanted;
    return OK;
}

/* Whether a whole record stands at a position of the open file. */
static enum err sight_at(struct look *l, uint64_t position, enum log_sight *out, struct record *r,
                         struct fault *why)
{
    uint32_t size = 0;
    enum err err = window_move(l, position, RECORD_BLANK_SIZE, why);
    if (err)
        return err;
    const struct window *w = &l->window;
    struct bytes rest = bytes_from(bytes_of(w->at, w->len), (size_t)(position - w->from));
    *out = SIGHT_BAD;
    if (record_peek(rest, &size) == RECORD_MESSAGE) {
        if (size > RECORD_MOST || size > l->end - position)
            return OK;
        err = window_move(l, position, size, why);
        if (err)
            return err;
    }
    struct stretch s = {w->at, w->from, w->from + w->len, l->base + l->file_size};
    *out = stretch_look(&s, position, r);
    if (*out == SIGHT_RECORD && !log_record_whole(w->at, r))
        *out = SIGHT_BAD;
    return OK;
}

/* The rest of the last file may be a gigabyte that nobody has written to. */
static uint64_t data_behind(const struct look *l, uint64_t position)
{
    if (!l->vfs->calls->next_data)
        return position;
    return l->base + l->vfs->calls->next_data(l->file, position - l->base);
}

/* The next place behind `at` that may be the start of a record; the file's end: none. */
static enum err next_start(struct look *l, uint64_t *at, struct fault *why)
{
    uint64_t from = *at + MAGIC_AT + 1;
    while (from < l->end) {
        if (!window_has(&l->window, from))
            from = data_behind(l, from);
        if (from >= l->end)
            break;
        enum err err = window_move(l, from, 1, why);
        if (err)
            return err;
        const struct window *w = &l->window;
        size_t into = (size_t)(from - w->from);
        const uint8_t *hit = memchr(w->at + into, RECORD_MAGIC >> 24, w->len - into);
        if (hit) {
            *at = w->from + (uint64_t)(hit - w->at) - MAGIC_AT;
            return OK;
        }
        from = w->from + w->len;
    }
    *at = l->end;
    return OK;
}

/* ---- one file after the other ---- */

static void file_leave(struct look *l)
{
    if (l->file)
        l->vfs->calls->close(l->file);
    l->file = NULL;
    l->window.len = 0;
}

/* ERR_NOT_FOUND: its owner has removed it meanwhile. */
static enum err file_enter(struct look *l, const char *folder, uint64_t base, uint64_t most,
                           struct fault *why)
{
    char path[PATH_SIZE];
    uint64_t size = 0;
    file_leave(l);
    fileset_path(path, folder, base);
    enum err err = l->vfs->calls->open(l->vfs, path, VFS_READ, &l->file, why);
    if (!err)
        err = l->vfs->calls->size(l->file, &size, why);
    if (err)
        return err;
    l->base = base;
    l->end = base + (size < most ? size : most);
    return OK;
}

static bool wanted(const struct look_request *q, const struct record *r)
{
    if (q->topic.len > 0 && !bytes_equal(q->topic, r->topic))
        return false;
    if (q->queue_id < 0)
        return true;
    return r->queue_id == q->queue_id && r->queue_offset >= q->from;
}

static void gap_tell(struct look *l, uint64_t to)
{
    uint64_t gap = l->gap;
    l->gap = NO_GAP;
    if (l->searches)
        return;
    char path[PATH_SIZE], text[200];
    uint64_t into = gap % l->file_size;
    fileset_path(path, LOG_FOLDER, gap - into);
    (void)snprintf(text, sizeof text,
                   "the log cannot be read at position %" PRIu64 ", and goes on at %" PRIu64
                   ", %" PRIu64 " bytes later",
                   gap, to, to - gap);
    l->sum.damages++;
    if (l->sum.damages <= CHECK_FINDINGS_MAX)
        l->calls->found(l->calls->user,
                        &(struct check_finding){CHECK_DAMAGE, path, (int64_t)into, text});
}

static void record_take(struct look *l, const struct record *r)
{
    uint64_t position = (uint64_t)r->position;
    if (l->gap != NO_GAP)
        gap_tell(l, position);
    l->searches = false;
    l->sum.log_end = position + r->size;
    if (!wanted(l->request, r))
        return;
    l->sum.records++;
    l->enough = !l->calls->record(l->calls->user, r) ||
                (l->request->count > 0 && l->sum.records >= l->request->count);
}

static enum err file_walk(struct look *l, uint64_t at, struct fault *why)
{
    enum err err = OK;
    while (!err && !l->enough && at < l->end && l->end - at >= RECORD_BLANK_SIZE) {
        enum log_sight sight;
        struct record r;
        err = sight_at(l, at, &sight, &r, why);
        if (err)
            break;
        if (sight == SIGHT_RECORD) {
            record_take(l, &r);
            at += r.size;
        } else if (sight == SIGHT_BLANK && l->gap == NO_GAP) {
            return OK;
        } else {
            l->gap = l->gap == NO_GAP ? at : l->gap;
            err = next_start(l, &at, why);
        }
    }
    if (err == ERR_RANGE) { /* it has become shorter since */
        fault_forget(why);
        err = OK;
    }
    if (!err && !l->enough && l->gap == NO_GAP && at < l->base + l->file_size)
        l->gap = at;
    return err;
}

/* ---- where to begin ---- */

/* The unit of the offset that was asked for, if the queue's files have it. */
static enum err unit_find(struct look *l, struct unit *out, struct fault *why)
{
    const struct look_request *q = l->request;
    char folder[PATH_SIZE];
    cleanup(free_at) uint64_t *bases = NULL;
    size_t n = 0;
    *out = (struct unit){0};
    if (memchr(q->topic.at, '/', q->topic.len) || q->topic.len > NAME_RETRY_MAX)
        return OK;
    (void)snprintf(folder, sizeof folder, QUEUE_FOLDER "/%.*s/%" PRId32, BYTES_ARG(q->topic),
                   q->queue_id);
    enum err err = fileset_list(l->vfs, folder, &bases, &n, why);
    if (err || q->from > INT64_MAX / UNIT_SIZE)
        return err == ERR_NOT_FOUND ? OK : err;
    uint64_t at = (uint64_t)q->from * UNIT_SIZE;
    while (n > 0 && bases[n - 1] > at)
        n--;
    if (n == 0)
        return OK;
    err = file_enter(l, folder, bases[n - 1], INT64_MAX - bases[n - 1], why);
    uint8_t unit[UNIT_SIZE];
    if (!err && l->end - l->base >= UNIT_SIZE && at - l->base <= l->end - l->base - UNIT_SIZE) {
        err = l->vfs->calls->read(l->file, at - l->base, unit, UNIT_SIZE, why);
        if (!err)
            *out = unit_load(unit);
    }
    file_leave(l);
    return err;
}

/* The log file that has a position; n_bases: none. */
static size_t file_of(const struct look *l, uint64_t position)
{
    for (size_t i = l->n_bases; i-- > 0;)
        if (l->bases[i] <= position)
            return position - l->bases[i] < l->file_size ? i : l->n_bases;
    return l->n_bases;
}

/* Where the message of the offset that was asked for stands; 0, so the log's start, when that is
 * not known for sure. */
static enum err hint(struct look *l, uint64_t *out, struct fault *why)
{
    struct unit unit;
    *out = 0;
    enum err err = unit_find(l, &unit, why);
    size_t file = file_of(l, unit.position);
    if (!err && unit.size > 0 && file < l->n_bases)
        err = file_enter(l, LOG_FOLDER, l->bases[file], l->file_size, why);
    if (!err && l->file && unit.position < l->end) {
        enum log_sight sight;
        struct record r;
        err = sight_at(l, unit.position, &sight, &r, why);
        if (!err && sight == SIGHT_RECORD && wanted(l->request, &r) &&
            r.queue_offset == l->request->from)
            *out = unit.position;
    }
    if (err && err != ERR_NO_MEMORY) { /* it was a hint */
        fault_forget(why);
        err = OK;
    }
    return err;
}

static enum err look_all(struct look *l, struct fault *why)
{
    const struct look_request *q = l->request;
    uint64_t from = 0;
    enum err err = OK;
    if (q->queue_id >= 0)
        err = hint(l, &from, why);
    else
        from = (uint64_t)q->from;
    l->searches = q->queue_id < 0 && from > 0;
    uint64_t next = 0; /* where the next file begins, if none is missing */
    for (size_t i = 0; !err && !l->enough && i < l->n_bases; i++) {
        uint64_t base = l->bases[i];
        if (base + l->file_size <= from || base % l->file_size != 0)
            continue;
        if (next > 0 && base > next && l->gap == NO_GAP)
            l->gap = next;
        next = base + l->file_size;
        err = file_enter(l, LOG_FOLDER, base, l->file_size, why);
        if (!err)
            err = file_walk(l, from > base ? from : base, why);
        if (err == ERR_NOT_FOUND) { /* removed for its age since it was listed */
            fault_forget(why);
            err = OK;
        }
    }
    return err;
}

static enum err log_exists(struct look *l, struct fault *why)
{
    cleanup(names_clear) struct names folders = {0};
    enum err err = names_list(l->vfs, "", true, &folders, why);
    for (size_t i = 0; !err && i < folders.n; i++)
        if (strcmp(folders.at[i], LOG_FOLDER) == 0)
            return OK;
    return err ? err : fault_set(why, ERR_NOT_FOUND, "there is no store: no folder " LOG_FOLDER);
}

static enum err log_list(struct look *l, struct fault *why)
{
    enum err err = log_exists(l, why);
    if (!err)
        err = fileset_list(l->vfs, LOG_FOLDER, &l->bases, &l->n_bases, why);
    for (size_t i = 0; !err && i < l->n_bases; i++) {
        char path[PATH_SIZE];
        uint64_t size = 0;
        fileset_path(path, LOG_FOLDER, l->bases[i]);
        err = vfs_file_size(l->vfs, path, &size, why);
        if (err == ERR_NOT_FOUND) {
            fault_forget(why);
            err = OK;
        }
        l->file_size = size > l->file_size ? size : l->file_size;
    }
    l->sum.log_files = l->n_bases;
    l->sum.log_first = l->sum.log_end = l->n_bases > 0 ? l->bases[0] : 0;
    return err;
}

enum err store_look(struct vfs *vfs, const struct look_request *request,
                    const struct look_calls *calls, struct look_summary *out, struct fault *why)
{
    if (request->from < 0 || (request->queue_id >= 0 && request->topic.len == 0))
        return fault_set(why, ERR_INVALID,
                         "a queue has a topic, and what it begins with is not "
                         "below 0");
    struct look l = {.vfs = vfs, .request = request, .calls = calls, .gap = NO_GAP};
    enum err err = log_list(&l, why);
    if (!err && l.file_size >= RECORD_BLANK_SIZE)
        err = look_all(&l, why);
    file_leave(&l);
    free(l.window.at);
    free(l.bases);
    if (!err)
        *out = l.sum;
    return err;
}
