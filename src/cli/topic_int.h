/* topic_int.h - topics: what topic.c, which has the table, and topic_set.c share. */
#ifndef CLI_TOPIC_INT_H
#define CLI_TOPIC_INT_H

#include "cli/admin.h"
#include "cli/commands_int.h"

const char *topic_type(struct cli *cli, const struct admin_topic *topic);
void topic_attributes_put(struct cli *cli, const struct admin_topic *topic);

/* topic_set.c */
extern const struct opt topic_set_options[];
extern const struct column topic_set_columns[];
int topic_create(struct cli *cli);
int topic_set(struct cli *cli);

/* topic_delete.c */
extern const struct opt topic_delete_options[];
extern const struct column topic_delete_columns[];
int topic_delete(struct cli *cli);
/* Deletes one and puts a record for each server; `group` NULL: these have no such column. The
 * command has the option --cluster. */
int topic_forget(struct cli *cli, const struct admin_cluster *on, const char *group,
                 const char *topic);

#endif
