/* index_load.c - which files of the index can be believed at the start, and how far.
 *
 * A row is believed up to the first file that is damaged, lies before its neighbour, or stands
 * behind one that is not full; from there on files are removed. Then the newest that is left is
 * looked into, unless the last stop was clean: its slots are made again from its entries, and what
 * is in doubt is taken back. If nothing stays, it goes, and the one before it is the newest.
 */
#include "store/index_int.h"
#include "store/store_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME_DIGITS 17

static enum err row_load(struct index *index, struct index_report *report, struct fault *why);
static enum err tail_settle(struct index *index, bool clean, uint64_t log_end,
                            struct index_report *report, struct fault *why);

enum err index_load(struct index *index, bool clean, uint64_t log_end, struct index_report *report,
                    struct fault *why)
{
    enum err err = row_load(index, report, why);
    clean = clean && report->removed == 0; /* else the last record may have lost its later keys */
    if (!err)
        err = tail_settle(index, clean, log_end, report, why);
    if (!err && report->removed > 0)
        err = index->vfs->calls->sync_dir(index->vfs, INDEX_FOLDER, why);
    report->files = index->n;
    return err;
}

/* ---- the row ---- */

static int by_name(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* 17 digits and nothing else; files of other names are not ours to touch. */
static bool name_read(const char *text, uint64_t *out)
{
    int64_t value;
    if (strlen(text) != NAME_DIGITS || strspn(text, "0123456789") != NAME_DIGITS ||
        !bytes_to_i64(bytes_str(text), &value))
        return false;
    *out = (uint64_t)value;
    return true;
}

enum err index_names(struct vfs *vfs, uint64_t **out, size_t *n, struct fault *why)
{
    cleanup(names_clear) struct names names = {0};
    enum err err = names_list(vfs, INDEX_FOLDER, false, &names, why);
    if (err)
        return err;
    uint64_t *numbers = calloc(names.n + 1, sizeof *numbers);
    if (!numbers)
        return ERR_NO_MEMORY;
    *n = 0;
    for (size_t i = 0; i < names.n; i++)
        *n += name_read(names.at[i], &numbers[*n]);
    qsort(numbers, *n, sizeof *numbers, by_name);
    *out = numbers;
    return OK;
}

/* The first damage is told; what follows from it is not. */
static void report_damage(struct index_report *report, const char *what)
{
    if (report->note[0] == '\0')
        (void)snprintf(report->note, sizeof report->note, "%.120s; built again from the log", what);
}

static enum err name_remove(struct index *index, uint64_t name, struct index_report *report,
                            struct fault *why)
{
    char path[INDEX_PATH_SIZE];
    index_path(path, name);
    report->removed++;
    return index->vfs->calls->remove(index->vfs, path, why);
}

/* ERR_DAMAGED: it does not go on where the row ends. */
static enum err row_check(const struct index *index, const struct index_file *file,
                          struct fault *why)
{
    const struct index_file *before = index->newest;
    if (!before)
        return OK;
    char path[INDEX_PATH_SIZE];
    index_path(path, file->name);
    if (!index_full(before))
        return fault_set(why, ERR_DAMAGED, "%s: the file before it is not full", path);
    if (file->head.begin_position < before->head.end_position)
        return fault_set(why, ERR_DAMAGED, "%s: it begins before its neighbour ends", path);
    return OK;
}

static enum err row_load(struct index *index, struct index_report *report, struct fault *why)
{
    cleanup(free_at) uint64_t *names = NULL;
    size_t n;
    enum err err = index_names(index->vfs, &names, &n, why);
    if (err)
        return err;
    bool believed = true;
    for (size_t i = 0; i < n && !err; i++) {
        struct fault found = {0};
        struct index_file *file = NULL;
        if (believed)
            err = index_file_open(index->vfs, &index->shape, names[i], &file, &found);
        if (believed && !err)
            err = row_check(index, file, &found);
        if (believed && !err) {
            err = index_append_file(index, file);
            continue;
        }
        index_file_drop(file);
        if (err == ERR_DAMAGED)
            report_damage(report, found.text);
        else if (err && why)
            *why = found;
        believed = false;
        if (!err || err == ERR_DAMAGED)
            err = name_remove(index, names[i], report, why);
    }
    return err;
}

/* ---- the newest file ---- */

static enum err newest_remove(struct index *index, struct index_report *report, struct fault *why)
{
    room_enter(&index->room);
    struct index_file *file = index->files[--index->n];
    room_leave(&index->room);
    index->newest = index->n ? index->files[index->n - 1] : NULL;
    enum err err = name_remove(index, file->name, report, why);
    index_file_drop(file);
    return err;
}

static void tail_adopt(struct index *index, uint64_t next, uint64_t redo,
                       struct index_report *report)
{
    room_enter(&index->room);
    index->next = next;
    room_leave(&index->room);
    report->redo = redo;
}

/* After a clean stop: everything is as it should be, and pages of slots are read when they are
 * needed. */
static enum err tail_trust(struct index *index, struct index_file *file,
                           struct index_report *report)
{
    file->table = index_table_new(file->shape, file->head.count);
    if (!file->table)
        return ERR_NO_MEMORY;
    bool untouched = file->head.count == 1 && file->head.end_position == 0;
    tail_adopt(index, untouched ? 0 : file->head.end_position + 1, file->head.end_position, report);
    return OK;
}

/* What the file says from now on has to be on disk before the first new entry is written over
 * those that were taken back. */
static enum err tail_keep(struct index *index, struct index_file *file, uint64_t redo,
                          struct index_report *report, struct fault *why)
{
    memset(file->on_disk, 0xff, sizeof file->on_disk); /* unlike any header */
    tail_adopt(index, redo, redo, report);
    bool lost = false;
    room_enter(&index->flushing);
    enum err err = index_file_flush(file, &file->head, NULL, &lost, why);
    room_leave(&index->flushing);
    return err;
}

/* The end goes back to the last entry that stays. */
static void head_settle(const struct index_file *file, const uint8_t *map,
                        struct index_header *head)
{
    struct index_entry last = index_entry_load(map + index_entry_at(file->shape, head->count - 1));
    head->end_position = last.position;
    head->end_ms = head->begin_ms + (int64_t)last.seconds * 1000;
}

/* Takes back what is in doubt: entries that make no sense and all behind them, those at `*cut` or
 * behind, and those of the last record, unless a later one was looked at while there was room. */
static enum err tail_examine(struct index_file *file, uint64_t *cut, uint64_t *redo,
                             struct index_report *report, struct fault *why)
{
    const uint8_t *map;
    enum err err = index_file_map(file, &map, why);
    if (err)
        return err;
    index_table_drop(file->table);
    file->table = index_table_new(file->shape, 0);
    if (!file->table)
        return ERR_NO_MEMORY;

    struct index_header head = file->head;
    uint32_t before = head.count, sound = index_table_build(file->table, map, &head);
    head.count = sound;
    if (sound < before) {
        char what[80];
        (void)snprintf(what, sizeof what,
                       INDEX_FOLDER "/%017" PRIu64 ": entry %" PRIu32 " makes no sense", file->name,
                       sound);
        report_damage(report, what);
    }
    if (sound > 1) {
        struct index_entry last = index_entry_load(map + index_entry_at(file->shape, sound - 1));
        bool went_on = sound == before && !index_full(file) && head.end_position > last.position;
        uint64_t whole = went_on ? head.end_position : last.position;
        *redo = whole < *cut ? whole : *cut;
        *cut = went_on ? *cut : *redo;
        index_table_cut(file->table, map, &head, *cut);
    }
    report->dropped += before - head.count;
    if (head.count > 1 && (head.count < before || head.end_position >= *cut))
        head_settle(file, map, &head);
    index_table_compare(file->table, map);
    file->head = head;
    return OK;
}

/* The very first file, still empty: all records that were looked at had no keys. An empty file that
 * begins with its neighbour's end is no proof of anything when the neighbour is gone: it may have
 * been made by a crash that kept the younger of two new files. */
static bool keyless(const struct index *index, const struct index_file *file)
{
    return index->n == 1 && file->head.begin_position == 0 && file->head.begin_ms == 0;
}

static enum err tail_settle(struct index *index, bool clean, uint64_t log_end,
                            struct index_report *report, struct fault *why)
{
    uint64_t cut = log_end;
    for (struct index_file *file; (file = index->newest) != NULL;) {
        if (clean && file->head.end_position < log_end)
            return tail_trust(index, file, report);
        uint64_t redo = 0;
        enum err err = OK;
        if (file->head.count > 1) {
            err = tail_examine(file, &cut, &redo, report, why);
            if (!err && file->head.count > 1)
                return tail_keep(index, file, redo, report, why);
        } else if (keyless(index, file) && cut == log_end && log_end > 0) {
            redo = file->head.end_position < log_end ? file->head.end_position : log_end - 1;
            file->head.end_position = redo;
            file->table = index_table_new(file->shape, 0);
            return file->table ? tail_keep(index, file, redo, report, why) : ERR_NO_MEMORY;
        }
        clean = false; /* the one before was finished, but what follows it is gone */
        if (!err)
            err = newest_remove(index, report, why);
        if (err)
            return err;
    }
    tail_adopt(index, 0, 0, report);
    return OK;
}
