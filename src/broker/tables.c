/* tables.c - the text of the four tables: to rows, and back. Pure, but for the tables written.
 *
 *     topics.json             "topicConfigTable":{"T":{…}}
 *     subscriptionGroup.json  "forbiddenTable":{},"subscriptionGroupTable":{"g":{…}}
 *     consumerOffset.json     "offsetTable":{"T@g":{0:5,1:7}}
 *     delayOffset.json        "offsetTable":{1:10,3:2}, by delay level
 *     consumerOrderInfo.json  "table":{"T@g":{0:{…}}}, by queue; it has no version
 *     messageRequestMode.json "messageRequestModeMap":{"T":{"g":{…}}}; nor has this
 *
 * each in one object, after "dataVersion":{…}.
 *
 * Members that we do not know are ignored, absent ones take Apache's defaults. A table without its
 * main member, or with a name or number that cannot be, is damaged: better to stop and use the
 * older file than to run on half of the truth.
 */
#include "broker/pop_int.h"
#include "broker/tables_int.h"

#include "base/json.h"

#include <stdio.h>

static const struct json *table_find(struct bytes text, struct arena *arena, const char *member,
                                     struct data_version *version, const struct json **root,
                                     struct fault *why);

/* ---- reading ---- */

enum err table_check(enum table_name which, struct bytes text, struct fault *why)
{
    struct arena arena;
    arena_init(&arena, TABLE_ARENA_MAX);
    enum err err = ERR_INVALID;
    if (which == TABLE_TOPICS)
        err = topic_rows_read(text, &arena, &(struct topic_rows){0}, why);
    else if (which == TABLE_GROUPS)
        err = group_rows_read(text, &arena, &(struct group_rows){0}, why);
    else if (which == TABLE_OFFSETS)
        err = offset_rows_read(text, &arena, &(struct offset_rows){0}, why);
    else if (which == TABLE_DELAYS)
        err = delay_rows_read(text, &arena, &(struct delay_rows){0}, why);
    else if (which == TABLE_ORDERS)
        err = order_rows_read(text, &arena, &(struct order_rows){0}, why);
    else if (which == TABLE_MODES)
        err = mode_rows_read(text, &arena, &(struct mode_rows){0}, why);
    arena_clear(&arena);
    return err;
}

static bool queues_possible(int32_t n)
{
    return n >= 0 && n <= QUEUES_MAX;
}

static enum err deleted_read(const struct json *table, struct arena *arena, struct topic_rows *t,
                             struct fault *why)
{
    if (!table || table->type != JSON_OBJECT)
        return OK;
    t->deleted = arena_alloc(arena, (table->n + 1) * sizeof *t->deleted);
    if (!t->deleted)
        return ERR_NO_MEMORY;
    json_each(node, table) {
        struct deleted_row *row = &t->deleted[t->n_deleted++];
        *row = (struct deleted_row){node->key->text, json_int(node, 0)};
        if (row->name.len == 0 || row->name.len > NAME_MAX_ANY)
            return fault_set(why, ERR_DAMAGED, "deleted topic %zu has no name", t->n_deleted);
    }
    return OK;
}

enum err topic_rows_read(struct bytes text, struct arena *arena, struct topic_rows *out,
                         struct fault *why)
{
    struct topic_rows t = {0};
    const struct json *root = NULL;
    const struct json *table = table_find(text, arena, "topicConfigTable", &t.version, &root, why);
    if (!table)
        return ERR_DAMAGED;
    t.rows = arena_alloc(arena, (table->n + 1) * sizeof *t.rows);
    if (!t.rows)
        return ERR_NO_MEMORY;
    json_each(node, table) {
        struct topic_settings *row = &t.rows[t.n];
        enum err err = topic_settings_read(node, node->key->text, arena, row);
        if (err)
            return err == ERR_TOO_BIG ? ERR_NO_MEMORY : err;
        if (row->name.len == 0 || row->name.len > NAME_MAX_ANY || node->type != JSON_OBJECT)
            return fault_set(why, ERR_DAMAGED, "entry %zu is no topic", t.n);
        if (!queues_possible(row->read_queues) || !queues_possible(row->write_queues))
            return fault_set(why, ERR_DAMAGED, "topic %.*s has %d read and %d write queues",
                             BRIEF(row->name), row->read_queues, row->write_queues);
        t.n++;
    }
    enum err err = deleted_read(json_member(root, "deletedTopics"), arena, &t, why);
    if (err)
        return err;
    *out = t;
    return OK;
}

enum err group_rows_read(struct bytes text, struct arena *arena, struct group_rows *out,
                         struct fault *why)
{
    struct group_rows t = {0};
    const struct json *root = NULL;
    const struct json *table =
        table_find(text, arena, "subscriptionGroupTable", &t.version, &root, why);
    if (!table)
        return ERR_DAMAGED;
    t.rows = arena_alloc(arena, (table->n + 1) * sizeof *t.rows);
    if (!t.rows)
        return ERR_NO_MEMORY;
    json_each(node, table) {
        struct group_settings *row = &t.rows[t.n];
        enum err err = group_settings_read(node, node->key->text, arena, row);
        if (err)
            return err;
        if (row->name.len == 0 || row->name.len > NAME_MAX_ANY || node->type != JSON_OBJECT)
            return fault_set(why, ERR_DAMAGED, "entry %zu is no group", t.n);
        if (row->retry_queues > QUEUES_MAX)
            return fault_set(why, ERR_DAMAGED, "group %.*s has %d retry queues", BRIEF(row->name),
                             row->retry_queues);
        t.n++;
    }
    const struct json *forbidden = json_member(root, "forbiddenTable");
    if (forbidden && forbidden->type == JSON_OBJECT)
        t.forbidden = forbidden;
    *out = t;
    return OK;
}

static enum err offset_row_read(const struct json *node, struct arena *arena,
                                struct offset_row *out, struct fault *why)
{
    struct offset_row row = {.key = node->key->text};
    if (row.key.len == 0 || row.key.len > PROGRESS_KEY_MAX || node->type != JSON_OBJECT)
        return fault_set(why, ERR_DAMAGED, "an entry is not the progress of a group");
    row.places = arena_alloc(arena, (node->n + 1) * sizeof *row.places);
    if (!row.places)
        return ERR_NO_MEMORY;
    json_each(place, node) {
        struct place *p = &row.places[row.n];
        p->offset = json_int(place, -1);
        if (!bytes_to_i32(place->key->text, &p->queue_id) || p->queue_id < 0)
            return fault_set(why, ERR_DAMAGED, "%.*s has no queue %.*s", BRIEF(row.key),
                             BRIEF(place->key->text));
        if (p->offset >= 0) /* Apache leaves -1 behind where an offset was taken back */
            row.n++;
    }
    *out = row;
    return OK;
}

enum err offset_rows_read(struct bytes text, struct arena *arena, struct offset_rows *out,
                          struct fault *why)
{
    struct offset_rows t = {0};
    const struct json *root = NULL;
    const struct json *table = table_find(text, arena, "offsetTable", &t.version, &root, why);
    if (!table)
        return ERR_DAMAGED;
    t.rows = arena_alloc(arena, (table->n + 1) * sizeof *t.rows);
    if (!t.rows)
        return ERR_NO_MEMORY;
    json_each(node, table) {
        enum err err = offset_row_read(node, arena, &t.rows[t.n], why);
        if (err)
            return err;
        t.n++;
    }
    int64_t known = json_int(json_member(root, "popPosition"), 0);
    t.pop_known = known < 0 ? 0 : (uint64_t)known;
    *out = t;
    return OK;
}

/* Queues of one topic@group. */
static enum err order_queues_read(const struct json *node, struct order_rows *t, struct fault *why)
{
    struct bytes key = node->key->text;
    const uint8_t *at = key.len ? memchr(key.at, '@', key.len) : NULL;
    if (!at || node->type != JSON_OBJECT)
        return fault_set(why, ERR_DAMAGED, "%.*s is no topic@group", BRIEF(key));
    size_t len = (size_t)(at - key.at);
    json_each(queue, node) {
        struct order_row *row = &t->rows[t->n++];
        *row = (struct order_row){
            .topic = {key.at, len}, .group = bytes_from(key, len + 1), .node = queue};
        if (!bytes_to_i32(queue->key->text, &row->queue_id) || row->queue_id < 0 ||
            queue->type != JSON_OBJECT || row->topic.len > NAME_MAX_ANY ||
            row->group.len > NAME_MAX_ANY)
            return fault_set(why, ERR_DAMAGED, "%.*s has no queue %.*s", BRIEF(key),
                             BRIEF(queue->key->text));
    }
    return OK;
}

enum err order_rows_read(struct bytes text, struct arena *arena, struct order_rows *out,
                         struct fault *why)
{
    struct order_rows t = {0};
    const struct json *root = NULL;
    struct data_version version;
    const struct json *table = table_find(text, arena, "table", &version, &root, why);
    if (!table)
        return ERR_DAMAGED;
    size_t n = 0;
    json_each(group, table)
        n += group->n;
    t.rows = arena_alloc(arena, (n + 1) * sizeof *t.rows);
    if (!t.rows)
        return ERR_NO_MEMORY;
    json_each(node, table) {
        enum err err = order_queues_read(node, &t, why);
        if (err)
            return err;
    }
    *out = t;
    return OK;
}

static enum err mode_row_read(const struct json *topic, const struct json *node,
                              struct request_mode *out, struct fault *why)
{
    int64_t share = json_int(json_member(node, "popShareQueueNum"), 0);
    *out = (struct request_mode){
        .topic = topic->key->text,
        .group = node->key->text,
        .pops = bytes_equal(json_text(json_member(node, "mode"), BYTES("PULL")), BYTES("POP")),
        .share = share < -1 || share > INT32_MAX ? -1 : (int32_t)share,
    };
    bool names = out->topic.len > 0 && out->topic.len <= NAME_MAX_ANY && out->group.len > 0 &&
                 out->group.len <= NAME_MAX_ANY;
    return names && node->type == JSON_OBJECT
               ? OK
               : fault_set(why, ERR_DAMAGED, "%.*s has no mode for %.*s", BRIEF(out->topic),
                           BRIEF(out->group));
}

enum err mode_rows_read(struct bytes text, struct arena *arena, struct mode_rows *out,
                        struct fault *why)
{
    struct mode_rows t = {0};
    const struct json *root = NULL;
    struct data_version version;
    const struct json *table =
        table_find(text, arena, "messageRequestModeMap", &version, &root, why);
    if (!table)
        return ERR_DAMAGED;
    size_t n = 0;
    json_each(topic, table)
        n += topic->n;
    t.rows = arena_alloc(arena, (n + 1) * sizeof *t.rows);
    if (!t.rows)
        return ERR_NO_MEMORY;
    json_each(topic, table) {
        if (topic->type != JSON_OBJECT)
            return fault_set(why, ERR_DAMAGED, "%.*s has no groups", BRIEF(topic->key->text));
        json_each(node, topic) {
            enum err err = mode_row_read(topic, node, &t.rows[t.n++], why);
            if (err)
                return err;
        }
    }
    *out = t;
    return OK;
}

/* Levels beyond what a ladder may have here are of another broker's ladder, and nothing is known
 * that waits there. */
enum err delay_rows_read(struct bytes text, struct arena *arena, struct delay_rows *out,
                         struct fault *why)
{
    struct delay_rows t = {0};
    const struct json *root = NULL;
    const struct json *table = table_find(text, arena, "offsetTable", &t.version, &root, why);
    if (!table)
        return ERR_DAMAGED;
    for (size_t i = 0; i < DELAY_LEVELS; i++)
        t.offsets[i] = -1;
    json_each(node, table) {
        int32_t level;
        int64_t offset = json_int(node, -1);
        if (!bytes_to_i32(node->key->text, &level) || level < 1 || offset < 0)
            return fault_set(why, ERR_DAMAGED, "level %.*s has no offset", BRIEF(node->key->text));
        if (level <= DELAY_LEVELS)
            t.offsets[level - 1] = offset;
    }
    *out = t;
    return OK;
}

/* The document's main member, and its version. NULL: damaged. */
static const struct json *table_find(struct bytes text, struct arena *arena, const char *member,
                                     struct data_version *version, const struct json **root,
                                     struct fault *why)
{
    const struct json *doc = NULL;
    size_t at = 0;
    enum err err = json_parse(text, arena, &doc, &at);
    const struct json *table = err ? NULL : json_member(doc, member);
    if (err)
        (void)fault_set(why, ERR_DAMAGED, "it cannot be read from byte %zu on: %s", at,
                        err_text(err));
    else if (!table || table->type != JSON_OBJECT)
        (void)fault_set(why, ERR_DAMAGED, "it has no object %s", member);
    if (!table || table->type != JSON_OBJECT)
        return NULL;
    *version = data_version_read(json_member(doc, "dataVersion"));
    *root = doc;
    return table;
}

/* ---- writing; room: core ---- */

static void tombs_write(struct broker *b, struct json_out *w)
{
    if (b->tombs.n == 0)
        return;
    json_key(w, "deletedTopics");
    json_open(w);
    const struct tomb *tomb;
    for (size_t i = 0; (tomb = map_next(&b->tombs, &i));) {
        json_key_text(w, bytes_of(tomb->name, tomb->name_len));
        json_put_int(w, tomb->end);
    }
    json_close(w);
}

void topics_write(struct broker *b, struct json_out *w)
{
    room_held(&b->room);
    json_open(w);
    json_key(w, "dataVersion");
    data_version_write(w, &b->tables[TABLE_TOPICS].version);
    tombs_write(b, w);
    json_key(w, "topicConfigTable");
    json_open(w);
    const struct topic *topic;
    for (size_t i = 0; (topic = map_next(&b->topics, &i));) {
        json_key_text(w, topic->set.name);
        topic_settings_write(w, &topic->set);
    }
    json_close(w);
    json_close(w);
}

void groups_write(struct broker *b, struct json_out *w)
{
    room_held(&b->room);
    json_open(w);
    json_key(w, "dataVersion");
    data_version_write(w, &b->tables[TABLE_GROUPS].version);
    json_key(w, "forbiddenTable");
    buf_add(w->buf, b->forbidden.len ? buf_bytes(&b->forbidden) : BYTES("{}"));
    w->comma = true;
    json_key(w, "subscriptionGroupTable");
    json_open(w);
    const struct group *group;
    for (size_t i = 0; (group = map_next(&b->groups, &i));) {
        json_key_text(w, group->set.name);
        group_settings_write(w, &group->set);
    }
    json_close(w);
    json_close(w);
}

void offsets_write(struct broker *b, struct json_out *w)
{
    room_held(&b->room);
    json_open(w);
    json_key(w, "dataVersion");
    data_version_write(w, &b->tables[TABLE_OFFSETS].version);
    json_key(w, "offsetTable");
    json_open(w);
    const struct progress *p;
    for (size_t i = 0; (p = map_next(&b->progress, &i));) {
        if (p->n == 0)
            continue;
        json_key_text(w, bytes_of(p->key, p->key_len));
        json_open(w);
        for (size_t q = 0; q < p->n; q++) {
            json_key_int(w, p->places[q].queue_id);
            json_put_int(w, pop_saved_offset(b, p, &p->places[q]));
        }
        json_close(w);
    }
    json_close(w);
    if (b->pop->known > 0)
        json_int_member(w, "popPosition", (int64_t)b->pop->known);
    json_close(w);
}

void delays_write(struct broker *b, struct json_out *w)
{
    room_held(&b->room);
    json_open(w);
    json_key(w, "dataVersion");
    data_version_write(w, &b->tables[TABLE_DELAYS].version);
    json_key(w, "offsetTable");
    json_open(w);
    for (int32_t i = 0; i < DELAY_LEVELS; i++) {
        if (b->delay_saved[i] < 0)
            continue;
        json_key_int(w, i + 1);
        json_put_int(w, b->delay_saved[i]);
    }
    json_close(w);
    json_close(w);
}
