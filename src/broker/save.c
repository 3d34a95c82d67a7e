/* save.c - the tables' files: loading them at the start, writing those that changed.
 *
 * vfs_replace leaves either the old or the new content, and the one before as .bak. A file that
 * cannot be read is moved aside as .damaged before its .bak is used, so that the next save cannot
 * push the good copy out by the bad one.
 */
#include "broker/pop_int.h"
#include "broker/tables_int.h"

#include <stdio.h>
#include <stdlib.h>

#define PATH_MAX_ANY 64

static enum err topics_load(struct broker *b, struct bytes text, struct arena *arena,
                            struct fault *why);
static enum err groups_load(struct broker *b, struct bytes text, struct arena *arena,
                            struct fault *why);
static enum err offsets_load(struct broker *b, struct bytes text, struct arena *arena,
                             struct fault *why);
static enum err delays_load(struct broker *b, struct bytes text, struct arena *arena,
                            struct fault *why);

static enum err orders_load(struct broker *b, struct bytes text, struct arena *arena,
                            struct fault *why);
static enum err modes_load(struct broker *b, struct bytes text, struct arena *arena,
                           struct fault *why);

static const struct {
    const char *path;
    enum err (*load)(struct broker *b, struct bytes text, struct arena *arena, struct fault *why);
    void (*write)(struct broker *b, struct json_out *w);
} files[TABLES] = {
    [TABLE_TOPICS] = {"config/topics.json", topics_load, topics_write},
    [TABLE_GROUPS] = {"config/subscriptionGroup.json", groups_load, groups_write},
    [TABLE_OFFSETS] = {"config/consumerOffset.json", offsets_load, offsets_write},
    [TABLE_DELAYS] = {"config/delayOffset.json", delays_load, delays_write},
    [TABLE_ORDERS] = {"config/consumerOrderInfo.json", orders_load, orders_write},
    [TABLE_MODES] = {"config/messageRequestMode.json", modes_load, modes_write},
};

/* ---- saving ---- */

void table_write(struct broker *b, enum table_name which, struct json_out *w)
{
    files[which].write(b, w);
}

void table_changed(struct broker *b, enum table_name which)
{
    room_held(&b->room);
    b->tables[which].changes++;
    b->tables[which].version.counter++;
    b->tables[which].version.timestamp = clock_ms(b->clock);
}

static enum err table_save(struct broker *b, enum table_name which, struct fault *why)
{
    struct buf text = buf_upto(TABLE_FILE_MAX);
    room_enter(&b->room);
    uint64_t changes = b->tables[which].changes;
    bool due = changes != b->tables[which].saved;
    if (due)
        files[which].write(b, &(struct json_out){.buf = &text});
    room_leave(&b->room);
    if (!due)
        return OK;

    enum err err = text.err;
    if (err)
        err =
            fault_set(why, err, "%s does not fit into %u bytes", files[which].path, TABLE_FILE_MAX);
    else
        err = vfs_replace(b->vfs, files[which].path, buf_bytes(&text), why);
    buf_clear(&text);
    if (err)
        return err; /* stays due */
    room_enter(&b->room);
    b->tables[which].saved = changes;
    room_leave(&b->room);
    return OK;
}

enum err broker_save_turn(struct broker *b, struct fault *why)
{
    enum err first = OK;
    room_enter(&b->room);
    pop_settle(b);
    room_leave(&b->room);
    for (enum table_name which = 0; which < TABLES; which++) {
        enum err err = table_save(b, which, first ? NULL : why);
        if (!first)
            first = err;
    }
    enum err err = timers_keep(b, first ? NULL : why);
    return first ? first : err;
}

/* ---- loading ---- */

/* Room: core, at start-up, when nobody waits for it. OK, ERR_NOT_FOUND, ERR_DAMAGED or worse. */
static enum err file_try(struct broker *b, enum table_name which, const char *path,
                         struct fault *why)
{
    cleanup(free_at) uint8_t *text = NULL;
    size_t len;
    enum err err = vfs_read_all(b->vfs, path, TABLE_FILE_MAX, &text, &len, why);
    if (err)
        return err;
    struct arena arena;
    arena_init(&arena, TABLE_ARENA_MAX);
    err = files[which].load(b, bytes_of(text, len), &arena, why);
    arena_clear(&arena);
    if (err)
        return fault_add(why, err, err == ERR_DAMAGED ? "%s is damaged" : "reading %s", path);
    return OK;
}

static enum err table_load(struct broker *b, enum table_name which, struct fault *why)
{
    const char *path = files[which].path;
    struct fault newest = {0};
    enum err err = file_try(b, which, path, &newest);
    if (err != ERR_NOT_FOUND && err != ERR_DAMAGED) {
        if (err && why)
            *why = newest;
        return err;
    }

    char bak[PATH_MAX_ANY], aside[PATH_MAX_ANY];
    snprintf(bak, sizeof bak, "%s.bak", path);
    snprintf(aside, sizeof aside, "%s.damaged", path);
    struct fault older = {0};
    enum err bak_err = file_try(b, which, bak, &older);
    if (err == ERR_NOT_FOUND && bak_err == ERR_NOT_FOUND)
        return OK; /* a new broker */
    if (err == ERR_NOT_FOUND)
        (void)fault_set(&newest, err, "%s is missing", path);
    if (bak_err == ERR_NOT_FOUND)
        (void)fault_set(&older, bak_err, "there is no %s", bak);
    if (bak_err)
        return fault_set(why, bak_err == ERR_NOT_FOUND ? err : bak_err, "%.230s; %.230s",
                         newest.text, older.text);
    size_t used = strlen(b->note);
    snprintf(b->note + used, sizeof b->note - used, "%s%s was %s, %s is used", used ? "; " : "",
             path, err == ERR_DAMAGED ? "damaged" : "missing", bak);
    b->tables[which].changes++;
    return err == ERR_DAMAGED ? b->vfs->calls->rename(b->vfs, path, aside, why) : OK;
}

/* Room: core. */
enum err tables_load(struct broker *b, struct fault *why)
{
    room_held(&b->room);
    for (enum table_name which = 0; which < TABLES; which++) {
        enum err err = table_load(b, which, why);
        if (err)
            return err;
    }
    return OK;
}

/* Each reads the whole text before it touches the table. */
static enum err topics_load(struct broker *b, struct bytes text, struct arena *arena,
                            struct fault *why)
{
    struct topic_rows t;
    enum err err = topic_rows_read(text, arena, &t, why);
    struct topic *made;
    for (size_t i = 0; !err && i < t.n; i++)
        err = topic_put(b, &t.rows[i], &made);
    for (size_t i = 0; !err && i < t.n_deleted; i++)
        if (!topic_find(b, t.deleted[i].name))
            err = tomb_put(b, t.deleted[i].name, t.deleted[i].end);
    if (!err)
        b->tables[TABLE_TOPICS].version = t.version;
    return err;
}

static enum err groups_load(struct broker *b, struct bytes text, struct arena *arena,
                            struct fault *why)
{
    struct group_rows t;
    enum err err = group_rows_read(text, arena, &t, why);
    struct group *made;
    for (size_t i = 0; !err && i < t.n; i++)
        err = group_put(b, &t.rows[i], &made);
    if (err)
        return err;
    if (t.forbidden) {
        json_put(&(struct json_out){.buf = &b->forbidden}, t.forbidden);
        if (b->forbidden.err)
            return b->forbidden.err;
    }
    b->tables[TABLE_GROUPS].version = t.version;
    return OK;
}

static enum err offsets_load(struct broker *b, struct bytes text, struct arena *arena,
                             struct fault *why)
{
    struct offset_rows t;
    enum err err = offset_rows_read(text, arena, &t, why);
    for (size_t i = 0; !err && i < t.n; i++)
        err = progress_put(b, t.rows[i].key, t.rows[i].places, t.rows[i].n);
    if (!err)
        b->tables[TABLE_OFFSETS].version = t.version;
    b->pop->known = t.pop_known;
    return err;
}

/* Of queues that are there. What is missing only comes again. */
static enum err orders_load(struct broker *b, struct bytes text, struct arena *arena,
                            struct fault *why)
{
    struct order_rows t;
    enum err err = order_rows_read(text, arena, &t, why);
    for (size_t i = 0; !err && i < t.n; i++) {
        const struct order_row *row = &t.rows[i];
        struct queue *queue = store_queue_find(b->store, row->topic, row->queue_id);
        struct pop_queue *q =
            queue ? pop_queue_need(b, row->topic, row->group, row->queue_id, queue) : NULL;
        struct pop_order *order;
        if (q && order_read(row->node, &order) == OK)
            order_merge(q, order);
    }
    return err;
}

static enum err delays_load(struct broker *b, struct bytes text, struct arena *arena,
                            struct fault *why)
{
    struct delay_rows t;
    enum err err = delay_rows_read(text, arena, &t, why);
    if (err)
        return err;
    memcpy(b->delay_saved, t.offsets, sizeof t.offsets);
    b->tables[TABLE_DELAYS].version = t.version;
    return OK;
}

static enum err modes_load(struct broker *b, struct bytes text, struct arena *arena,
                           struct fault *why)
{
    struct mode_rows t;
    enum err err = mode_rows_read(text, arena, &t, why);
    for (size_t i = 0; !err && i < t.n; i++)
        err = mode_put(b, &t.rows[i]);
    return err;
}
