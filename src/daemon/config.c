#include "daemon/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX (1u << 20)

static const char heading[] = "# Settings that were changed while oncemqd ran. They win over the "
                              "configuration file, and the\n"
                              "# command line wins over them. Removing a line while oncemqd does "
                              "not run undoes its change.\n";

void config_init(struct config *c, const struct settings *start, struct clock *clock)
{
    room_init(&c->room, "config", ROOM_LEAF);
    c->now = *start;
    c->clock = clock;
    c->version.timestamp = clock_ms(clock);
}

void config_clear(struct config *c)
{
    room_clear(&c->room);
}

uint64_t config_get(struct config *c, struct settings *out)
{
    room_enter(&c->room);
    *out = c->now;
    uint64_t changes = c->changes;
    room_leave(&c->room);
    return changes;
}

void config_print(struct config *c, const char *broker_name, struct buf *out,
                  struct data_version *version)
{
    room_enter(&c->room);
    for (size_t i = 0; i < settings_table.n; i++) {
        const struct conf_option *option = &settings_table.options[i];
        buf_printf(out, "%s=", option->key);
        if (strcmp(option->key, "brokerName") == 0)
            buf_add_str(out, broker_name);
        else
            conf_format(option, &c->now, out);
        buf_add_u8(out, '\n');
    }
    *version = c->version;
    room_leave(&c->room);
}

/* ---- changing ---- */

/* The first key that the table does not have. */
struct stranger {
    char key[128], nearest[128];
};

static void meet_stranger(void *user, const char *where, const char *key, const char *nearest)
{
    (void)where;
    struct stranger *first = user;
    if (first->key[0])
        return;
    (void)snprintf(first->key, sizeof first->key, "%s", LOG_QUOTE(bytes_str(key)));
    (void)snprintf(first->nearest, sizeof first->nearest, "%s", nearest ? nearest : "");
}

/* What the settings would be. */
static enum err settings_read(struct settings *next, struct bytes text, struct fault *why)
{
    struct stranger stranger = {0};
    const struct conf_unknown unknown = {meet_stranger, &stranger};
    enum err err = conf_parse(&settings_table, next, "the request", text, &unknown, why);
    if (!err && stranger.key[0])
        return fault_set(why, ERR_INVALID, "there is no key %s%s%s%s", stranger.key,
                         stranger.nearest[0] ? "; did you mean " : "", stranger.nearest,
                         stranger.nearest[0] ? "?" : "");
    return err ? err : settings_check(next, why);
}

/* Room: config. All of it may change now. */
static enum err change_allow(const struct config *c, const struct settings *next, struct fault *why)
{
    for (size_t i = 0; i < settings_table.n; i++) {
        const struct conf_option *option = &settings_table.options[i];
        if (!option->live && !conf_same(option, &c->now, next))
            return fault_set(why, ERR_DENIED,
                             "%s cannot change while the daemon runs: set it in the configuration "
                             "file and restart",
                             option->key);
    }
    return OK;
}

/* Room: config. */
static void change_take(struct config *c, const struct settings *next)
{
    for (size_t i = 0; i < settings_table.n; i++)
        if (!conf_same(&settings_table.options[i], &c->now, next))
            c->changed[i] = true;
    c->now = *next;
    c->changes++;
    c->version.counter++;
    c->version.timestamp = clock_ms(c->clock);
}

enum err config_change(struct config *c, struct bytes text, struct fault *why)
{
    cleanup(free_at) struct settings *next = malloc(sizeof *next);
    if (!next)
        return fault_set(why, ERR_NO_MEMORY, "no memory to read the settings");
    room_enter(&c->room);
    *next = c->now;
    enum err err = settings_read(next, text, why);
    if (!err)
        err = change_allow(c, next, why);
    if (!err)
        change_take(c, next);
    room_leave(&c->room);
    return err;
}

/* ---- the file ---- */

enum err config_save(struct config *c, struct fault *why)
{
    struct buf text = buf_upto(FILE_MAX);
    room_enter(&c->room);
    uint64_t changes = c->changes;
    bool due = c->vfs && changes != c->saved;
    if (due)
        buf_add_str(&text, heading);
    for (size_t i = 0; due && i < settings_table.n; i++) {
        if (!c->changed[i])
            continue;
        buf_printf(&text, "%s=", settings_table.options[i].key);
        conf_format(&settings_table.options[i], &c->now, &text);
        buf_add_u8(&text, '\n');
    }
    room_leave(&c->room);
    enum err err = text.err;
    if (due && !err)
        err = vfs_replace(c->vfs, c->path, buf_bytes(&text), why);
    buf_clear(&text);
    if (!due || err)
        return err;
    room_enter(&c->room);
    c->saved = changes;
    room_leave(&c->room);
    return OK;
}

static void tell_stranger(void *user, const char *where, const char *key, const char *nearest)
{
    (void)nearest;
    log_event(user, LOG_WARN, "unknown key is ignored where=%s key=%s", where,
              LOG_QUOTE(bytes_str(key)));
}

/* What an earlier run was told counts now, unless somebody says otherwise today. */
static void earlier_take(struct config *c, const struct settings *earlier, const bool *given,
                         struct log *log)
{
    for (size_t i = 0; i < settings_table.n; i++) {
        const struct conf_option *option = &settings_table.options[i];
        if (conf_same(option, &c->now, earlier))
            continue;
        struct buf value = buf_upto(CONF_TEXT_MAX * 2);
        conf_format(option, earlier, &value);
        bool wins = option->live && !(given && given[i]);
        log_event(log, wins ? LOG_INFO : LOG_WARN, "%s key=%s value=%s file=%s%s",
                  wins ? "setting was changed while running" : "changed setting is ignored",
                  option->key, LOG_QUOTE(buf_bytes(&value)), c->path,
                  wins           ? ""
                  : option->live ? " reason=\"the command line says otherwise\""
                                 : " reason=\"it belongs into the configuration file\"");
        if (wins)
            conf_copy(option, &c->now, earlier);
        c->changed[i] |= option->live;
        buf_clear(&value);
    }
}

enum err config_load(struct config *c, struct vfs *vfs, const char *path, const bool *given,
                     struct log *log, struct fault *why)
{
    c->vfs = vfs;
    c->path = path;
    cleanup(free_at) uint8_t *text = NULL;
    size_t len;
    enum err err = vfs_read_all(vfs, path, FILE_MAX, &text, &len, why);
    if (err)
        return err == ERR_NOT_FOUND ? OK : err;
    cleanup(free_at) struct settings *earlier = malloc(sizeof *earlier);
    if (!earlier)
        return fault_set(why, ERR_NO_MEMORY, "no memory to read the settings");
    *earlier = c->now;
    const struct conf_unknown unknown = {tell_stranger, log};
    err = conf_parse(&settings_table, earlier, path, bytes_of(text, len), &unknown, why);
    if (err)
        return err;
    earlier_take(c, earlier, given, log);
    err = settings_check(&c->now, why);
    return err ? fault_add(why, err, "%s and the configuration together", path) : OK;
}
