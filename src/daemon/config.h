/* config.h - the settings in force, and how they change while the daemon runs.
 *
 * The table of settings.c says which keys are live. A change (UPDATE_BROKER_CONFIG,
 * UPDATE_NAMESRV_CONFIG) names some keys; it is checked as a start would check it, and counts as a
 * whole or not at all:
 *
 *     copy the settings → set the keys → check → refuse those that are not live → it counts
 *
 * Then house.c makes options of the settings once more, as it does at the start, and each module
 * takes over what may change (store_tune, broker_tune, door_tune, names_tune). So a key becomes
 * live by a LIVE_ in the table and a line in one of these.
 *
 * What was changed so is kept: in a file of the data folder, of the same form as the configuration
 * file, with the changed keys only. Apache writes all keys into the configuration file itself; ours
 * stays the operator's own. At a start the file of changes wins over the configuration file, with a
 * line in the log for each key, and the command line wins over both. Who wants to be rid of a
 * change removes its line while the daemon does not run.
 *
 * Threads: any; the room is a leaf. config_save is called by one thread at a time.
 */
#ifndef DAEMON_CONFIG_H
#define DAEMON_CONFIG_H

#include "base/clock.h"
#include "base/log.h"
#include "base/room.h"
#include "base/vfs.h"
#include "daemon/settings.h"
#include "msg/msg.h"

struct config {
    struct room room;
    struct settings now;
    bool changed[SETTINGS_MAX]; /* by index into the table: in the file */
    uint64_t changes, saved;    /* equal: the file is up to date */
    struct data_version version;
    struct clock *clock;
    struct vfs *vfs;
    const char *path;
};

void config_init(struct config *config, const struct settings *start, struct clock *clock);
void config_clear(struct config *config);

/* Reads the changes of earlier runs. `given`: which keys the command line has, by index; may be
 * NULL. The vfs and the path stay the caller's. */
must_check enum err config_load(struct config *config, struct vfs *vfs, const char *path,
                                const bool *given, struct log *log, struct fault *why);

/* `text` is a file of properties. ERR_INVALID: no such key, or a value that makes no sense.
 * ERR_DENIED: a key that cannot change now. ERR_NO_MEMORY. */
must_check enum err config_change(struct config *config, struct bytes text, struct fault *why);

/* Writes the file, if something has changed since the last time. */
must_check enum err config_save(struct config *config, struct fault *why);

/* A copy; returns how often they have changed. */
uint64_t config_get(struct config *config, struct settings *out);

/* All keys as a file of properties; `broker_name` is what an empty brokerName stands for. */
void config_print(struct config *config, const char *broker_name, struct buf *out,
                  struct data_version *version);

#endif
