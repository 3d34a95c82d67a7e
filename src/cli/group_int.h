/* group_int.h - groups: what group.c, which has the table, and the files beside it share. */
#ifndef CLI_GROUP_INT_H
#define CLI_GROUP_INT_H

#include "cli/admin.h"
#include "cli/commands_int.h"

/* group.c: the settings of a group on one broker, and their columns */
#define GROUP_SETTINGS_COLUMNS                                                                     \
    {"enabled", COLUMN_BOOL, "ENABLED", "whether it may consume there"},                           \
        {"retry_max", COLUMN_NUMBER, "RETRIES", "how often a message is tried again"},             \
        {"retry_queues", COLUMN_NUMBER, "RETRY QUEUES", "queues of its retry topic"},              \
        {"orderly", COLUMN_BOOL, "ORDERLY", "whether it consumes in order"},                       \
        {"broadcast", COLUMN_BOOL, "BROADCAST", "whether it may consume as broadcast"},            \
        {"from_min", COLUMN_BOOL, "FROM FIRST", "whether it may begin with the first message"},    \
    {                                                                                              \
        "consume_timeout", COLUMN_DURATION, "TIMEOUT", "how long one message may take"             \
    }
void group_settings_put(struct cli *cli, const struct group_settings *set);

/* group_set.c */
extern const struct opt group_set_options[], group_delete_options[];
extern const struct column group_set_columns[], group_delete_columns[];
int group_set(struct cli *cli);
int group_delete(struct cli *cli);

/* group_reset.c */
extern const struct opt group_reset_options[];
extern const struct column group_reset_columns[];
int group_reset(struct cli *cli);

#endif
