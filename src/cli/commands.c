/* commands.c - the table of all commands, by family, in the order of `oncemq --help`. */
#include "cli/commands_int.h"

const struct family families[] = {
    {"Messages", send_commands},
    {"Messages", consume_commands},
    {"Messages", query_commands},
    {"Messages", trace_commands},
    {"Duplicates", why_commands},
    {"Duplicates", audit_commands},
    {"Duplicates", chaos_commands},
    {"Dead letters", dlq_commands},
    {"The sidecar", run_commands},
    {"Topics", topic_commands},
    {"Groups", group_commands},
    {"The cluster", cluster_commands},
    {"Operation", lag_commands},
    {"Operation", operate_commands},
    {"Measuring", bench_commands},
    {"Data folders", store_commands},
    {"Contexts", context_commands},
    {"Help", help_commands},
    {NULL, NULL},
};
