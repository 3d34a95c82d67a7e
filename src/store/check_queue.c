/* check_queue.c - holds the queues against the log.
 *
 * Going through the log, each record looks for its unit at its own offset. Afterwards each queue is
 * gone through for units that no record has asked for. What is wrong is counted for each queue and
 * told once, with the first place.
 */
#include "store/check_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define EXT_ADDRESS INT32_MIN /* a tag hash below it is a place in Apache's consumequeue_ext */

/* ---- which queues there are ---- */

static enum err row_of(struct check *c, struct queue *queue, struct check_row **out)
{
    if (queue->turn == 0) { /* no dispatch here, so its marks are free: `slot` is the row */
        if (c->n_rows == c->cap_rows) {
            size_t cap = c->cap_rows ? c->cap_rows * 2 : 64;
            struct check_row *bigger = realloc(c->rows, cap * sizeof *bigger);
            if (!bigger)
                return ERR_NO_MEMORY;
            c->rows = bigger;
            c->cap_rows = cap;
        }
        c->rows[c->n_rows] = (struct check_row){queue, -1, -1, -1, -1, 0, 0, false};
        queue->turn = 1;
        queue->slot = (uint32_t)c->n_rows++;
    }
    *out = &c->rows[queue->slot];
    return OK;
}

static enum err queue_found(struct check *c, struct queue *queue, struct fault *why)
{
    cleanup(free_at) uint64_t *bases = NULL;
    size_t n;
    struct fileset *files = &queue->files;
    struct check_row *row;
    enum err err = row_of(c, queue, &row);
    if (!err)
        err = fileset_list(c->store->vfs, queue->folder, &bases, &n, why);
    if (err || n == 0)
        return err;
    c->sum.queues++;
    err = check_files(c, queue->folder, files->file_size, bases, n, why);
    if (err)
        return err;
    files->first = bases[0] - bases[0] % files->file_size;
    files->end = bases[n - 1] - bases[n - 1] % files->file_size + files->file_size;
    err = queue_measure(c->store, queue, why);
    if (err == ERR_DAMAGED || err == ERR_NOT_FOUND) { /* a file's size, which has been told */
        fault_forget(why);
        return OK;
    }
    if (queue->log_end > c->units_end)
        c->units_end = queue->log_end;
    return err;
}

/* One round measures all files, the next one takes them up. */
static enum err topic_load(struct check *c, const char *topic, bool measure, struct fault *why)
{
    char folder[PATH_SIZE];
    (void)snprintf(folder, sizeof folder, QUEUE_FOLDER "/%s", topic);
    cleanup(names_clear) struct names ids = {0};
    enum err err = names_list(c->store->vfs, folder, true, &ids, why);
    for (size_t i = 0; !err && i < ids.n; i++) {
        int32_t id;
        struct queue *queue;
        if (!bytes_to_i32(bytes_str(ids.at[i]), &id) || id < 0)
            continue;
        if (!measure) {
            err = queue_get(c->store, bytes_str(topic), id, &queue);
            if (!err)
                err = queue_found(c, queue, why);
            continue;
        }
        cleanup(free_at) uint64_t *bases = NULL;
        size_t n;
        (void)snprintf(folder, sizeof folder, QUEUE_FOLDER "/%s/%s", topic, ids.at[i]);
        err = fileset_list(c->store->vfs, folder, &bases, &n, why);
        if (!err)
            err = check_sizes(c, folder, bases, n, &c->sum.queue_file_size, why);
    }
    return err;
}

enum err check_queues_load(struct check *c, struct fault *why)
{
    cleanup(names_clear) struct names topics = {0};
    enum err err = names_list(c->store->vfs, QUEUE_FOLDER, true, &topics, why);
    for (size_t i = 0; !err && i < topics.n; i++)
        err = topic_load(c, topics.at[i], true, why);
    if (!err && c->sum.queue_file_size % UNIT_SIZE != 0) {
        check_say(c, CHECK_DAMAGE, QUEUE_FOLDER, -1,
                  "the biggest file has %" PRIu64 " bytes, which is no multiple of %d",
                  c->sum.queue_file_size, UNIT_SIZE);
        c->sum.queue_file_size = 0;
    }
    c->store->options.queue_file_size = c->sum.queue_file_size;
    for (size_t i = 0; !err && i < topics.n && c->sum.queue_file_size > 0; i++)
        err = topic_load(c, topics.at[i], false, why);
    return err;
}

/* ---- a record and its unit ---- */

/* The unit at an offset; empty when there is none, or its file is not as it should be. */
static enum err unit_look(struct check *c, struct queue *queue, int64_t offset, struct unit *out,
                          struct fault *why)
{
    cleanup(segment_drop_at) struct segment *seg = NULL;
    const uint8_t *map;
    *out = (struct unit){0};
    if (queue->files.first == queue->files.end || offset < 0 || offset > INT64_MAX / UNIT_SIZE)
        return OK;
    uint64_t at = (uint64_t)offset * UNIT_SIZE;
    enum err err = segment_get(&c->store->cache, &queue->files, at, &seg, why);
    if (err == ERR_NOT_FOUND || err == ERR_DAMAGED) {
        fault_forget(why);
        return OK;
    }
    if (!err)
        err = segment_map(seg, &map, why);
    if (!err)
        *out = unit_load(map + (at - seg->base));
    return err;
}

/* The ladder of delays is not known here, so a time of delivery is only asked to be behind the
 * store time. */
static bool tags_fit(const struct check *c, const struct unit *unit, const struct record *r)
{
    struct marks marks = props_marks(r->props);
    int64_t wanted = unit_tags(&c->store->options, r, &marks);
    if (unit->tags_code == wanted || (c->ext && unit->tags_code < EXT_ADDRESS))
        return true;
    return bytes_equal(r->topic, SCHEDULE_TOPIC) && unit->tags_code >= r->store_ms;
}

/* Offsets of a queue rise by one. From anywhere to 0 is a topic that was deleted and made again. A
 * queue that begins later though the log has its beginning was cut once, together with the log. */
static void follow_offsets(struct check *c, struct check_row *row, const struct record *r)
{
    bool begins = row->next < 0;
    int64_t wanted = begins && c->store->log.first == 0 ? 0 : row->next;
    if (wanted > 0 && r->queue_offset == 0)
        *row = (struct check_row){row->queue, -1, -1, -1, -1, 0, 0, false};
    else if (wanted >= 0 && r->queue_offset > wanted)
        check_say(c, begins ? CHECK_NOTE : CHECK_DAMAGE, row->queue->folder, wanted * UNIT_SIZE,
                  "messages %" PRId64 " to %" PRId64 " of the queue are not in the log", wanted,
                  r->queue_offset - 1);
    else if (wanted >= 0 && r->queue_offset < wanted)
        check_say(c, CHECK_DAMAGE, row->queue->folder, r->queue_offset * UNIT_SIZE,
                  "offset %" PRId64 " is in the log again, at position %" PRId64, r->queue_offset,
                  r->position);
    if (row->first < 0)
        row->first = r->queue_offset;
    row->next = r->queue_offset + 1;
}

enum err check_record(struct check *c, const struct record *r, struct fault *why)
{
    struct queue *queue;
    struct check_row *row;
    if (!record_has_unit(r))
        return OK;
    enum err err = queue_get(c->store, r->topic, r->queue_id, &queue);
    if (err == ERR_INVALID ||
        (!err && (r->queue_offset < 0 || r->queue_offset >= INT64_MAX / UNIT_SIZE / 2))) {
        check_say(c, CHECK_DAMAGE, LOG_FOLDER, r->position,
                  "the record at position %" PRId64 " names no queue that can be", r->position);
        return OK;
    }
    if (!err)
        err = row_of(c, queue, &row);
    if (err)
        return err;
    follow_offsets(c, row, r);

    struct unit unit;
    err = unit_look(c, queue, r->queue_offset, &unit, why);
    if (err)
        return err;
    bool missing = unit.size == 0;
    if (!missing && unit.position == (uint64_t)r->position && unit.size == r->size &&
        tags_fit(c, &unit, r))
        return OK;
    uint64_t *count = missing ? &row->n_missing : &row->n_wrong;
    int64_t *first = missing ? &row->missing : &row->wrong;
    if (++*count == 1)
        *first = r->queue_offset;
    row->firm = row->firm || (uint64_t)r->position < c->rebuilt_from;
    return OK;
}

/* ---- units that nobody asked for ---- */

struct extra {
    int64_t first; /* offset */
    uint64_t n, position;
    bool firm;
};

static void unit_count(struct check *c, const struct check_row *row, int64_t offset,
                       const struct unit *unit, struct extra *extra)
{
    bool asked = row->first >= 0 && offset >= row->first && offset < row->next;
    bool old = unit_is_filler(unit) || unit->position < c->store->log.first;
    if (unit->size == 0 || (old && (row->first < 0 || offset < row->first)))
        return;
    c->sum.units++;
    if (asked)
        return;
    if (extra->n++ == 0) {
        extra->first = offset;
        extra->position = unit->position;
    }
    extra->firm = extra->firm || unit->position < c->rebuilt_from;
}

static enum err row_walk(struct check *c, const struct check_row *row, struct extra *extra,
                         struct fault *why)
{
    struct fileset *files = &row->queue->files;
    for (uint64_t base = files->first; base < files->end; base += files->file_size) {
        cleanup(segment_drop_at) struct segment *seg = NULL;
        const uint8_t *map;
        enum err err = segment_get(&c->store->cache, files, base, &seg, why);
        if (err == ERR_NOT_FOUND || err == ERR_DAMAGED) {
            fault_forget(why);
            continue;
        }
        if (!err)
            err = segment_map(seg, &map, why);
        if (err)
            return err;
        for (uint64_t at = 0; at < seg->size; at += UNIT_SIZE) {
            struct unit unit = unit_load(map + at);
            unit_count(c, row, (int64_t)((base + at) / UNIT_SIZE), &unit, extra);
        }
    }
    return OK;
}

static void row_tell(struct check *c, const struct check_row *row, const struct extra *extra)
{
    const char *folder = row->queue->folder;
    if (row->firm && row->n_missing > 0 && row->queue->files.first == row->queue->files.end) {
        check_say(c, CHECK_NOTE, folder, -1,
                  "has %" PRIu64 " messages in the log and no files: deleted with its topic, or "
                  "lost",
                  row->n_missing);
        return;
    }
    enum check_grade grade = row->firm ? CHECK_DAMAGE : CHECK_NOTE;
    const char *more = row->firm ? "" : "; the next start builds it again";
    if (row->n_missing > 0)
        check_say(c, grade, folder, row->missing * UNIT_SIZE,
                  "%" PRIu64 " messages of the log have no unit, the first is that of offset "
                  "%" PRId64 "%s",
                  row->n_missing, row->missing, more);
    if (row->n_wrong > 0)
        check_say(c, grade, folder, row->wrong * UNIT_SIZE,
                  "%" PRIu64 " units do not fit their messages, the first is that of offset "
                  "%" PRId64 "%s",
                  row->n_wrong, row->wrong, more);
    if (extra->n > 0)
        check_say(c, extra->firm ? CHECK_DAMAGE : CHECK_NOTE, folder, extra->first * UNIT_SIZE,
                  "%" PRIu64 " units have no message in the log, the first is that of offset "
                  "%" PRId64 " for position %" PRIu64 "%s",
                  extra->n, extra->first, extra->position,
                  extra->firm ? "" : "; the next start cuts it off");
}

enum err check_queues_walk(struct check *c, struct fault *why)
{
    for (size_t i = 0; i < c->n_rows; i++) {
        struct extra extra = {0};
        enum err err = row_walk(c, &c->rows[i], &extra, why);
        if (err)
            return err;
        row_tell(c, &c->rows[i], &extra);
    }
    return OK;
}
