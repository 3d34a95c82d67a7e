/* check_timers.c - are the files of timed messages (timers.h) what they say, and what the log says?
 *
 * The check, config/timercheck, tells how far the units go and how many messages of their queue
 * have one. It is written when both are on the disk, so a unit in front of that place that cannot
 * be read, or that leads to no record, is damage; what is behind is made again from the queue. The
 * wheel is made anew by our broker and believed by Apache's: after a clean stop each slot leads to
 * a unit of its second.
 *
 * Where the log cannot be read, that has been told, and what a unit leads to is not asked.
 */
#include "store/check_int.h"
#include "store/timers.h"

#include <inttypes.h>
#include <stdlib.h>

#define LOG        "timerlog"
#define WHEEL      "timerwheel"
#define READ_UNITS 16384
#define READ_SLOTS 16384

struct look {
    struct check *c;
    struct timer_check check;
    bool there; /* the check is */
    enum check_grade grade;
    struct cache cache; /* of these: */
    struct fileset files;
    uint8_t *buffer;
    int64_t end;         /* where the units end that can be read */
    struct segment *seg; /* the log file that was needed last */
    struct stretch log;
    /* Units that lead to no record, slots that lead to no unit of theirs: how many, the first. */
    uint64_t n_lost, n_astray;
    int64_t lost, astray;
};

/* ---- units ---- */

static enum err files_look(struct look *l, struct fault *why)
{
    cleanup(free_at) uint64_t *bases = NULL;
    size_t n = 0;
    uint64_t size = 0;
    enum err err = fileset_list(l->c->store->vfs, LOG, &bases, &n, why);
    if (!err)
        err = check_sizes(l->c, LOG, bases, n, &size, why);
    if (err || n == 0)
        return err;
    if (!timerlog_size_possible(size)) {
        check_say(l->c, l->grade, LOG, -1, "has files of a size that none can have");
        return OK;
    }
    err = check_files(l->c, LOG, size, bases, n, why);
    size_t row = 1; /* what stands in a row, and is read */
    while (row < n && bases[row] == bases[row - 1] + size)
        row++;
    l->files.file_size = size;
    l->files.first = bases[0] - bases[0] % size;
    l->files.end = l->files.first + row * size;
    l->c->sum.timer_files = n;
    return err;
}

/* Whether a record of the unit's size is where it says. What is not in the log any more was
 * delivered long ago. */
static enum err unit_leads(struct look *l, const struct timer_unit *unit, bool *leads,
                           struct fault *why)
{
    uint64_t position = (uint64_t)unit->position;
    *leads = true;
    if (position < l->c->sum.log_first || !l->c->log_whole)
        return OK;
    *leads = position + unit->size <= l->c->sum.log_end;
    if (!*leads)
        return OK;
    if (!l->seg || position < l->log.from || position >= l->log.end) {
        segment_drop(take(&l->seg));
        enum err err = log_stretch(l->c->store, position, &l->seg, &l->log, why);
        if (err)
            return err;
    }
    struct record record;
    *leads = stretch_look(&l->log, position, &record) == SIGHT_RECORD && record.size == unit->size;
    return OK;
}

/* The units of one file. False in `*whole`: they end in it. */
static enum err units_look(struct look *l, uint64_t base, bool *whole, struct fault *why)
{
    struct segment *seg;
    enum err err = segment_get(&l->cache, &l->files, base, &seg, why);
    *whole = false;
    if (err == ERR_DAMAGED) { /* its size was told */
        fault_forget(why);
        return OK;
    }
    if (err)
        return err;
    int64_t left = (int64_t)timerlog_units(l->files.file_size);
    l->end = (int64_t)base;
    for (bool over = false; !err && !over && left > 0;) {
        int64_t n = left < READ_UNITS ? left : READ_UNITS;
        err = segment_read(seg, (uint64_t)l->end, l->buffer, (size_t)n * TIMER_UNIT_SIZE, why);
        for (int64_t i = 0; !err && !over && i < n; i++) {
            struct timer_unit unit;
            bool leads;
            over = l->end >= l->check.log_end ||
                   !timer_unit_load(l->buffer + i * TIMER_UNIT_SIZE, &unit) || unit.prev >= l->end;
            if (over)
                break;
            err = unit_leads(l, &unit, &leads, why);
            if (!err && !leads && l->n_lost++ == 0)
                l->lost = l->end;
            l->end += TIMER_UNIT_SIZE;
            l->c->sum.timer_units++;
        }
        left -= n;
        *whole = !over && left == 0;
    }
    segment_drop(seg);
    return err;
}

static enum err timerlog_look(struct look *l, struct fault *why)
{
    enum err err = files_look(l, why);
    bool whole = true;
    l->end = (int64_t)l->files.first;
    for (uint64_t base = l->files.first; !err && whole && base < l->files.end;) {
        err = units_look(l, base, &whole, why);
        base += l->files.file_size;
        if (whole)
            l->end = (int64_t)base;
    }
    if (err)
        return err;
    if (l->end < l->check.log_end)
        check_say(l->c, l->grade, LOG, l->end,
                  "what is here is no timer, and %s says that they go on to %" PRId64
                  "; the next start takes up those messages again",
                  TIMER_CHECK_PATH, l->check.log_end);
    if (l->n_lost > 0)
        check_say(l->c, l->grade, LOG, l->lost,
                  "%" PRIu64 " timers lead to no message of the log, this is the first", l->n_lost);
    return OK;
}

/* ---- slots ---- */

static bool slot_fits(size_t index, const struct timer_slot *slot, struct segment *seg)
{
    uint8_t text[TIMER_UNIT_SIZE];
    struct timer_unit unit;
    return slot->second % TIMER_SLOTS == (int64_t)index &&
           segment_read(seg, (uint64_t)slot->last, text, sizeof text, NULL) == OK &&
           timer_unit_load(text, &unit) && unit.time_ms / TIMER_SECOND == slot->second;
}

static void slot_look(struct look *l, size_t index, const uint8_t *text)
{
    struct timer_slot slot = {.second = (int64_t)load_u64(text),
                              .last = (int64_t)load_u64(text + 16)};
    bool used = slot.second > 0 && slot.last >= (int64_t)l->files.first;
    if (!used)
        return;
    struct segment *seg = NULL;
    uint64_t file = l->files.file_size;
    bool fits = slot.last < l->end && (uint64_t)slot.last % file % TIMER_UNIT_SIZE == 0 &&
                segment_get(&l->cache, &l->files, (uint64_t)slot.last, &seg, NULL) == OK;
    fits = fits && slot_fits(index, &slot, seg);
    segment_drop(seg);
    if (!fits && l->n_astray++ == 0)
        l->astray = (int64_t)index * TIMER_SLOT_SIZE;
}

static enum err slots_look(struct look *l, struct vfs_file *file, struct fault *why)
{
    for (size_t index = 0; index < TIMER_SLOTS; index += READ_SLOTS) {
        size_t n = TIMER_SLOTS - index < READ_SLOTS ? TIMER_SLOTS - index : READ_SLOTS;
        enum err err = l->c->store->vfs->calls->read(file, index * TIMER_SLOT_SIZE, l->buffer,
                                                     n * TIMER_SLOT_SIZE, why);
        if (err)
            return err;
        for (size_t i = 0; i < n; i++)
            slot_look(l, index + i, l->buffer + i * TIMER_SLOT_SIZE);
    }
    return OK;
}

static enum err wheel_look(struct look *l, struct fault *why)
{
    struct vfs *vfs = l->c->store->vfs;
    uint64_t size, wanted = (uint64_t)TIMER_SLOTS * TIMER_SLOT_SIZE;
    enum err err = vfs_file_size(vfs, WHEEL, &size, why);
    if (err == ERR_NOT_FOUND) {
        fault_forget(why);
        return OK;
    }
    if (err || l->c->aborted) /* it is not written together with the units */
        return err;
    if (size != wanted) {
        check_say(l->c, CHECK_NOTE, WHEEL, -1,
                  "has %" PRIu64 " bytes instead of %" PRIu64 "; the next start makes it anew",
                  size, wanted);
        return OK;
    }
    struct vfs_file *file;
    err = vfs->calls->open(vfs, WHEEL, VFS_READ, &file, why);
    if (err)
        return err;
    err = slots_look(l, file, why);
    vfs->calls->close(file);
    if (!err && l->n_astray > 0)
        check_say(l->c, CHECK_DAMAGE, WHEEL, l->astray,
                  "%" PRIu64 " slots lead to no timer of their second, this is the first; our next "
                  "start makes the wheel anew, Apache's would believe it",
                  l->n_astray);
    return err;
}

/* ---- the whole ---- */

static enum err timercheck_look(struct look *l, struct fault *why)
{
    enum err err = timercheck_read(l->c->store->vfs, &l->check, why);
    l->there = !err;
    l->grade = l->check.ours || !l->c->aborted ? CHECK_DAMAGE : CHECK_NOTE;
    if (err == ERR_DAMAGED)
        check_say(l->c, CHECK_DAMAGE, TIMER_CHECK_PATH, -1,
                  "has numbers that cannot be; the next start takes up all timed messages again");
    if (err != ERR_DAMAGED && err != ERR_NOT_FOUND)
        return err;
    fault_forget(why);
    return OK;
}

/* The check counts messages of the queue in which they wait. */
static void queue_look(struct look *l)
{
    int64_t next = 0;
    for (size_t i = 0; i < l->c->n_rows; i++) {
        const struct check_row *row = &l->c->rows[i];
        if (row->queue && bytes_equal(row->queue->topic, TIMER_TOPIC) && row->queue->queue_id == 0)
            next = row->queue->max > row->next ? row->queue->max : row->next;
    }
    if (l->c->log_whole && l->check.queue_offset > next)
        check_say(l->c, l->grade, TIMER_CHECK_PATH, -1,
                  "says that %" PRId64 " timed messages have their timer, and there are %" PRId64,
                  l->check.queue_offset, next);
}

enum err check_timers(struct check *c, struct fault *why)
{
    struct look l = {.c = c, .files = {.folder = LOG}};
    list_init(&l.files.open);
    enum err err = timercheck_look(&l, why);
    if (err || !l.there)
        return err;
    l.buffer = malloc((size_t)READ_UNITS * TIMER_UNIT_SIZE);
    if (!l.buffer)
        return fault_set(why, ERR_NO_MEMORY, "no memory to read the timers' log");
    cache_init(&l.cache, c->store->vfs, 0);
    queue_look(&l);
    err = timerlog_look(&l, why);
    if (!err)
        err = wheel_look(&l, why);
    segment_drop(l.seg);
    cache_clear(&l.cache);
    free(l.buffer);
    return err;
}
