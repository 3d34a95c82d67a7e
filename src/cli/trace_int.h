/* trace_int.h - the story of one message: its copies, what each group made of it, what its clients
 * told (message trace).
 *
 * A message that a group could not use is stored again, under the same unique id: in
 * SCHEDULE_TOPIC_XXXX while it waits, then in %RETRY%group, and in the end in %DLQ%group, where a
 * note may say that it was dropped (dlq_int.h). So all of its life is found by its id in these
 * topics, and a group has it behind it when its offset there has passed the last copy.
 */
#ifndef CLI_TRACE_INT_H
#define CLI_TRACE_INT_H

#include "cli/admin.h"
#include "cli/cli.h"
#include "cli/trace_read.h"

enum copy_kind { COPY_MESSAGE, COPY_RESENT, COPY_WAITING, COPY_RETRY, COPY_DEAD, COPY_NOTE };

/* Where the message stands, or stood. */
struct copy {
    enum copy_kind kind;
    const char *topic; /* where it stands: not where it was sent to */
    const char *group; /* whose; NULL: everybody's */
    const struct omq_delivery *message;
    int64_t dropped; /* the offset of the letter that a note says is dropped; -1: none */
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

/* The message and its copies that wait, by its unique id or that of a place; none: there is no such
 * message. An enum status, as of all of these. */
int story_find(struct story *story, const char *id, const char *topic);
void story_close(struct story *story);
int story_keep(struct story *story, struct omq_found found); /* until story_close */
/* The copies in `topic`, if that is a topic. */
int story_look(struct story *story, const char *topic, const char *group);

/* trace_groups.c: the groups that read the topic, without those of tools; looks for their copies.
 */
int story_groups(struct story *story, struct admin_names *groups);

/* What one of them made of it. */
struct group_state {
    const char *group;
    const char *state; /* "consumed", "retrying" …: the words are in docs/cli.md */
    int64_t attempts, members;
    int64_t offset, behind; /* -1: it has none */
    const char *expression; /* NULL: not known */
};
/* In the order of `groups`; when their copies were looked for. */
int story_group_states(struct story *story, const struct admin_names *groups,
                       struct group_state **out);

/* trace_events.c: what clients told of it, by time. */
#define TRACE_TOPIC "RMQ_SYS_TRACE_TOPIC"
struct told {
    struct trace_event event;
    const char *client;
};
int story_events(struct story *story, const char *trace_topic, struct told **out, size_t *n);
const char *told_text(const struct told *t);

#endif
