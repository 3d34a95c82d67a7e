/* find.h - finding a message by what somebody wrote down: a unique id, or the id of its place. */
#ifndef CLI_FIND_H
#define CLI_FIND_H

#include "cli/admin.h"
#include "cli/cli.h"

/* All copies of a message in `topic`; NULL: in the first topic that has it, which takes one
 * question for each topic and broker unless the id is that of a place. None is no failure. An enum
 * status; freed with omq_found_free. */
int find_message(struct cli *cli, const char *id, const char *topic, struct omq_found *out);

/* The same for one topic by unique id or key: as omq_query, but a topic that is not there has none.
 * What fails is said. */
int find_in(struct cli *cli, const struct omq_query *query, struct omq_found *out);

#endif
