/* commands_int.h - the families of commands; each is defined in the file of its name. */
#ifndef CLI_COMMANDS_INT_H
#define CLI_COMMANDS_INT_H

#include "cli/cli_int.h"

extern const struct command audit_commands[];
extern const struct command consume_commands[];
extern const struct command dlq_commands[];
extern const struct command query_commands[];
extern const struct command send_commands[];
extern const struct command topic_commands[];
extern const struct command trace_commands[];
extern const struct command bench_commands[];
extern const struct command chaos_commands[];
extern const struct command store_commands[];
extern const struct command operate_commands[];
extern const struct command group_commands[];
extern const struct command cluster_commands[];
extern const struct command lag_commands[];
extern const struct command run_commands[];
extern const struct command why_commands[];

#endif
