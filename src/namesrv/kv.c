/* kv.c - settings by namespace and key, and the file they are kept in.
 *
 * A change is first written to the file as it will be, and then made in memory: nobody reads what a
 * crash could take back. The file is written outside of the room; `saving` keeps others from
 * changing anything meanwhile.
 */
#include "base/json.h"
#include "base/utf8.h"
#include "namesrv/names_int.h"

#include <stdlib.h>

#define READ_MEMORY_MAX (128u << 20) /* the tree of a file of KV_FILE_MAX bytes */

struct kv_pair {
    struct bytes key, value; /* kept behind the struct */
};

struct kv_space {
    struct bytes name; /* kept behind the struct */
    struct map pairs;
};

static enum err make_change(struct names *names, const struct kv_change *change, struct fault *why);
static struct kv_space *space_find(const struct kvset *set, struct bytes name);

/* ---- verbs ---- */

enum err names_kv_put(struct names *names, struct bytes space, struct bytes key, struct bytes value,
                      struct fault *why)
{
    return make_change(names, &(struct kv_change){space, key, value, .drop = false}, why);
}

enum err names_kv_delete(struct names *names, struct bytes space, struct bytes key,
                         struct fault *why)
{
    return make_change(names, &(struct kv_change){space, key, {0}, .drop = true}, why);
}

enum err names_kv_get(struct names *names, struct bytes space, struct bytes key,
                      struct arena *arena, struct bytes *value)
{
    room_enter(&names->room);
    const struct bytes *known = kvset_get(&names->settings, space, key);
    enum err err = known ? OK : ERR_NOT_FOUND;
    if (known && !names_keep(arena, *known, value))
        err = ERR_TOO_BIG;
    room_leave(&names->room);
    return err;
}

enum err names_kv_list(struct names *names, struct bytes space, struct arena *arena,
                       struct kv **out, size_t *n)
{
    room_enter(&names->room);
    enum err err = kv_show(names, space, arena, out, n);
    room_leave(&names->room);
    return err;
}

static enum err save(struct vfs *vfs, const struct buf *text, struct fault *why)
{
    enum err err = vfs->calls->mkdir(vfs, "config", why);
    if (!err)
        err = vfs_replace(vfs, KV_PATH, buf_bytes(text), why);
    return err;
}

/* Room: routes, which it leaves while the file is written. */
static enum err save_then_apply(struct names *names, const struct kv_change *change,
                                struct fault *why)
{
    room_held(&names->room);
    enum err err = kvset_check(&names->settings, change, why);
    bool known = kvset_get(&names->settings, change->space, change->key) != NULL;
    if (err || (change->drop && !known))
        return err;
    if (names->options.vfs) {
        cleanup(buf_clear) struct buf text = buf_upto(KV_FILE_MAX);
        kvset_write(&text, &names->settings, change);
        if (text.err)
            return fault_set(why, text.err, "the settings do not fit into %s", KV_PATH);
        names->saving = true;
        room_leave(&names->room);
        err = save(names->options.vfs, &text, why);
        room_enter(&names->room);
        names->saving = false;
        room_tell(&names->room);
    }
    return err ? err : kvset_apply(&names->settings, change);
}

static enum err make_change(struct names *names, const struct kv_change *change, struct fault *why)
{
    room_enter(&names->room);
    while (names->saving)
        room_wait(&names->room, -1);
    enum err err = save_then_apply(names, change, why);
    room_leave(&names->room);
    return err;
}

/* ---- for the neighbours ---- */

static int compare_keys(const void *a, const void *b)
{
    const struct kv *x = a, *y = b;
    return bytes_compare(x->key, y->key);
}

enum err kv_show(const struct names *names, struct bytes space, struct arena *arena,
                 struct kv **out, size_t *n)
{
    room_held(&names->room);
    const struct kv_space *known = space_find(&names->settings, space);
    if (!known)
        return ERR_NOT_FOUND;
    struct kv *list = arena_alloc(arena, known->pairs.n * sizeof *list);
    if (!list)
        return ERR_TOO_BIG;
    size_t found = 0;
    const struct kv_pair *pair;
    for (size_t i = 0; (pair = map_next(&known->pairs, &i)); found++)
        if (!names_keep(arena, pair->key, &list[found].key) ||
            !names_keep(arena, pair->value, &list[found].value))
            return ERR_TOO_BIG;
    if (found > 0)
        qsort(list, found, sizeof *list, compare_keys);
    *out = list;
    *n = found;
    return OK;
}

/* A file that is empty is as good as none: it is what a lost write leaves behind. */
static enum err load_file(struct names *names, const char *path, struct fault *why)
{
    cleanup(free_at) uint8_t *text = NULL;
    size_t len;
    enum err err = vfs_read_all(names->options.vfs, path, KV_FILE_MAX, &text, &len, why);
    if (err)
        return err;
    if (len == 0)
        return fault_set(why, ERR_NOT_FOUND, "%s is empty", path);
    err = kvset_read(bytes_of(text, len), &names->settings, why);
    if (err)
        kvset_clear(&names->settings);
    return err ? fault_add(why, err, "%s", path) : OK;
}

enum err kv_load(struct names *names, struct fault *why)
{
    struct fault first = {0}, second = {0};
    enum err err = load_file(names, KV_PATH, &first);
    if (err == OK || (err != ERR_NOT_FOUND && err != ERR_DAMAGED)) {
        if (err && why)
            *why = first;
        return err;
    }
    enum err from_backup = load_file(names, KV_PATH ".bak", &second);
    if (from_backup == OK) {
        (void)fault_set(&names->note, OK, "%.200s; the settings were taken from %s.bak instead",
                        first.text, KV_PATH);
        return OK;
    }
    if (err == ERR_NOT_FOUND && from_backup == ERR_NOT_FOUND)
        return OK; /* the first start, or no setting yet */
    if (why)
        *why = err == ERR_NOT_FOUND ? second : first;
    return err == ERR_NOT_FOUND ? from_backup : err;
}

/* ---- the set ---- */

void kvset_init(struct kvset *set, uint64_t seed)
{
    *set = (struct kvset){0};
    map_init(&set->spaces, seed);
}

static void space_free(struct kv_space *space)
{
    struct kv_pair *pair;
    for (size_t i = 0; (pair = map_next(&space->pairs, &i));)
        free(pair);
    map_clear(&space->pairs);
    free(space);
}

void kvset_clear(struct kvset *set)
{
    struct kv_space *space;
    for (size_t i = 0; (space = map_next(&set->spaces, &i));)
        space_free(space);
    map_clear(&set->spaces);
    set->n_pairs = set->n_bytes = 0;
}

static struct kv_space *space_find(const struct kvset *set, struct bytes name)
{
    return map_get(&set->spaces, name);
}

const struct bytes *kvset_get(const struct kvset *set, struct bytes space, struct bytes key)
{
    const struct kv_space *known = space_find(set, space);
    const struct kv_pair *pair = known ? map_get(&known->pairs, key) : NULL;
    return pair ? &pair->value : NULL;
}

static enum err check_text(const char *what, struct bytes text, size_t min, size_t max,
                           struct fault *why)
{
    if (text.len < min)
        return fault_set(why, ERR_INVALID, "the setting has no %s", what);
    if (text.len > max)
        return fault_set(why, ERR_TOO_BIG, "the setting's %s has %zu bytes, more than %zu", what,
                         text.len, max);
    const uint8_t *end = text.at + text.len;
    for (const uint8_t *at = text.at; at < end;) {
        size_t length = utf8_length(at, end);
        if (length == 0)
            return fault_set(why, ERR_INVALID, "the setting's %s is not UTF-8", what);
        at += length;
    }
    return OK;
}

enum err kvset_check(const struct kvset *set, const struct kv_change *change, struct fault *why)
{
    enum err err = check_text("namespace", change->space, 1, NAMES_TEXT_MAX, why);
    if (!err)
        err = check_text("key", change->key, 1, NAMES_TOPIC_MAX, why);
    if (!err && !change->drop)
        err = check_text("value", change->value, 0, NAMES_KV_VALUE_MAX, why);
    if (err || change->drop)
        return err;

    if (!space_find(set, change->space) && set->spaces.n >= NAMES_KV_SPACES_MAX)
        return fault_set(why, ERR_TOO_BIG, "there are %d namespaces, which is the maximum",
                         NAMES_KV_SPACES_MAX);
    const struct bytes *old = kvset_get(set, change->space, change->key);
    if (!old && set->n_pairs >= NAMES_KV_PAIRS_MAX)
        return fault_set(why, ERR_TOO_BIG, "there are %d settings, which is the maximum",
                         NAMES_KV_PAIRS_MAX);
    size_t left = set->n_bytes - (old ? change->key.len + old->len : 0);
    if (left + change->key.len + change->value.len > NAMES_KV_BYTES_MAX)
        return fault_set(why, ERR_TOO_BIG, "all settings together would have more than %d bytes",
                         NAMES_KV_BYTES_MAX);
    return OK;
}

static enum err space_new(struct kvset *set, struct bytes name, struct kv_space **out)
{
    cleanup(free_at) struct kv_space *space = calloc(1, sizeof *space + name.len);
    if (!space)
        return ERR_NO_MEMORY;
    uint8_t *behind = (uint8_t *)(space + 1);
    space->name = put_behind(&behind, name);
    map_init(&space->pairs, set->spaces.seed);
    enum err err = map_put(&set->spaces, space->name, space);
    if (err)
        return err;
    *out = take(&space);
    return OK;
}

static void drop_pair(struct kvset *set, struct kv_space *space, struct bytes key)
{
    struct kv_pair *pair = map_remove(&space->pairs, key);
    if (!pair)
        return;
    set->n_pairs--;
    set->n_bytes -= pair->key.len + pair->value.len;
    free(pair);
}

static enum err put_pair(struct kvset *set, struct kv_space *space, struct bytes key,
                         struct bytes value)
{
    struct kv_pair *pair = calloc(1, sizeof *pair + key.len + value.len);
    if (!pair)
        return ERR_NO_MEMORY;
    uint8_t *behind = (uint8_t *)(pair + 1);
    pair->key = put_behind(&behind, key);
    pair->value = put_behind(&behind, value);
    drop_pair(set, space, key);
    enum err err = map_put(&space->pairs, pair->key, pair);
    if (err) {
        free(pair);
        return err;
    }
    set->n_pairs++;
    set->n_bytes += key.len + value.len;
    return OK;
}

/* A namespace stays when its last key goes, as in Apache: listing it gives an empty table. */
enum err kvset_apply(struct kvset *set, const struct kv_change *change)
{
    struct kv_space *space = space_find(set, change->space);
    if (change->drop) {
        if (space)
            drop_pair(set, space, change->key);
        return OK;
    }
    enum err err = space ? OK : space_new(set, change->space, &space);
    return err ? err : put_pair(set, space, change->key, change->value);
}

/* ---- the file ---- */

static enum err read_space(const struct json *node, struct kvset *set, struct fault *why)
{
    struct bytes name = json_text(node->key, (struct bytes){0});
    if (node->type != JSON_OBJECT || node->key->type == JSON_OBJECT || name.len == 0)
        return fault_set(why, ERR_DAMAGED, "namespace \"%.*s\" is not an object", SHOWN(name));
    struct kv_space *space = space_find(set, name);
    if (name.len > NAMES_TEXT_MAX || (!space && set->spaces.n >= NAMES_KV_SPACES_MAX))
        return fault_set(why, ERR_TOO_BIG, "too many namespaces, or one with too long a name");
    enum err err = space ? OK : space_new(set, name, &space);
    json_each(pair, node) {
        if (err)
            return err;
        if (pair->type == JSON_NULL)
            continue;
        struct bytes key = json_text(pair->key, (struct bytes){0});
        if (pair->type >= JSON_ARRAY || pair->key->type == JSON_OBJECT || key.len == 0)
            return fault_set(why, ERR_DAMAGED, "\"%.*s\" in \"%.*s\" is not a text", SHOWN(key),
                             SHOWN(name));
        const struct kv_change change = {name, key, json_text(pair, (struct bytes){0})};
        err = kvset_check(set, &change, why);
        if (!err)
            err = kvset_apply(set, &change);
    }
    return err;
}

enum err kvset_read(struct bytes text, struct kvset *set, struct fault *why)
{
    struct arena arena;
    arena_init(&arena, READ_MEMORY_MAX);
    const struct json *doc = NULL;
    size_t at = 0;
    enum err err = json_parse(text, &arena, &doc, &at);
    if (err == ERR_MALFORMED)
        err = fault_set(why, ERR_DAMAGED, "is not the JSON it should be, at byte %zu", at);
    else if (err)
        err = fault_set(why, err, "is too big");

    const struct json *table = err ? NULL : json_member(doc, "configTable");
    if (!err && (doc->type != JSON_OBJECT ||
                 (table && table->type > JSON_NULL && table->type != JSON_OBJECT)))
        err = fault_set(why, ERR_DAMAGED, "has no table of settings");
    json_each(node, table) {
        if (!err)
            err = read_space(node, set, why);
    }
    arena_clear(&arena);
    return err;
}

static void write_space(struct json_out *w, const struct kv_space *space,
                        const struct kv_change *change)
{
    json_key_text(w, space->name);
    json_open(w);
    const struct kv_pair *pair;
    for (size_t i = 0; (pair = map_next(&space->pairs, &i));) {
        if (change && bytes_equal(pair->key, change->key))
            continue;
        json_key_text(w, pair->key);
        json_put_text(w, pair->value);
    }
    if (change && !change->drop) {
        json_key_text(w, change->key);
        json_put_text(w, change->value);
    }
    json_close(w);
}

void kvset_write(struct buf *out, const struct kvset *set, const struct kv_change *change)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_key(&w, "configTable");
    json_open(&w);
    const struct kv_space *space;
    for (size_t i = 0; (space = map_next(&set->spaces, &i));) {
        bool here = change && bytes_equal(space->name, change->space);
        write_space(&w, space, here ? change : NULL);
    }
    if (change && !change->drop && !space_find(set, change->space)) {
        struct kv_space fresh = {.name = change->space};
        write_space(&w, &fresh, change);
    }
    json_close(&w);
    json_close(&w);
}
