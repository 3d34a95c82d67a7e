/* broker_int.h - brokers: what cluster.c, which has the table, and broker_config.c share. */
#ifndef CLI_BROKER_INT_H
#define CLI_BROKER_INT_H

#include "cli/admin.h"
#include "cli/commands_int.h"

extern const struct opt broker_config_options[];
extern const struct column broker_config_columns[];
int broker_config(struct cli *cli);

#endif
