/* group_int.h - groups: what group.c, which has the table, and the files beside it share. */
#ifndef CLI_GROUP_INT_H
#define CLI_GROUP_INT_H

#include "cli/admin.h"
#include "cli/commands_int.h"

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
