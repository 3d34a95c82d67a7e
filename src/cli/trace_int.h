/* trace_int.h - the story of one message: its copies, what each group made of it, what its clients
 * told (message trace).
 *
 * A message that a group could not use is stored again, under the same unique id: in
 * SCHEDULE_TOPIC_XXXX while it waits, then in %RETRY%group, and in the end in %DLQ%group. So all of
 * its life is found by its id in these topics, and a group has it behind it when its offset there
 * has passed the last copy.
 */
#ifndef CLI_TRACE_INT_H
#define CLI_TRACE_INT_H

#include "cli/admin.h"
#include "cli/cli.h"

enum copy_kind { COPY_MESSAGE, COPY_RESENT, COPY_WAITING, COPY_RETRY, COPY_DEAD };

/* Where the message stands, or stood. */
struct copy {
    enum copy_kind kind;
    const char *topic; /* where it stands: not where it was sent to */
    const char *group; /* whose; NULL: everybody's */
    const struct omq_delivery *message;
};

struct story {
    struct cli *cli;
    const char *id, *topic; /* its unique id; the topic it was sent to */
    struct admin_cluster cluster;
    struct copy *copies; /* in the arena */
    size_t n_copies;
    struct omq_found *founds; /* what they are in */
    size_t n_founds;
};

/* The copies in `topic`, if that is a topic; an enum status. */
int story_look(struct story *story, const char *topic, const char *group);
/* trace_groups.c: a record for each group that reads the topic; looks for their copies first. */
int story_groups(struct story *story, struct admin_names *groups);
int story_groups_put(struct story *story, const struct admin_names *groups);
extern const struct column trace_group_columns[];

/* trace_events.c: what clients told of it. Fills the list `events`. */
int story_events_put(struct story *story, const char *trace_topic);
extern const struct column trace_event_columns[];

#endif
