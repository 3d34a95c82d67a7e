/* dlq_int.h - dead letters: what a group could not use in all its tries, in its topic %DLQ%group.
 *
 * A letter is *settled* when it has been sent back, or dropped. What is settled is kept in two
 * places, so that an interrupted command can be run again and sends none twice:
 *
 *   the mark     the offset, in each queue of %DLQ%group, before which all is settled. Its broker
 *                has it, as the offset of the group TOOLS_CONSUMER, which every broker has and
 *                nobody consumes as. It moves behind a letter when the broker has confirmed its
 * copy the copy     a message that was sent back has the property ONCEMQ_DEAD_LETTER: the offset id
 * of its dead letter. Behind the mark, each letter's copy is looked for, by its unique id, before
 * it is sent
 *
 * So what was sent and not marked (the program was killed, or only letters with some key were sent
 * back) is known all the same, and so is a copy whose answer got lost.
 */
#ifndef CLI_DLQ_INT_H
#define CLI_DLQ_INT_H

#include "cli/admin.h"
#include "cli/scan.h"

#define LETTER_PROPERTY "ONCEMQ_DEAD_LETTER"

struct mark {
    int64_t told; /* what the broker has; 0: nothing */
    int64_t now;  /* where it should be */
};

/* The dead letters of a group. */
struct box {
    struct cli *cli;
    const char *group, *topic;
    struct admin_cluster cluster;
    struct scan scan;   /* of those that are not settled; no queues: there are none */
    struct mark *marks; /* of the scan's queues */
};

/* An enum status. A topic that may not be read (some brokers make it so) is made readable. `whole`:
 * the scan begins where the queues do, not at the marks. */
int box_open(struct box *box, struct cli *cli, const char *group, bool whole);
void box_close(struct box *box);
/* Tells the brokers where the marks should be. */
int box_mark(struct box *box);
/* The marks of n queues, -1: there is none. */
int box_marks_ask(struct cli *cli, const struct admin_cluster *on, const struct omq_queue *queues,
                  size_t n, int64_t *marks);
/* How many letters of n topics %DLQ%… are not settled, by the marks. */
int box_left(struct cli *cli, const struct admin_cluster *on, const struct admin_topic_stats *stats,
             size_t n, int64_t *left);
/* The groups of the command: its argument, or with --all all that have dead letters. */
int box_groups(struct cli *cli, struct admin_names *out);

/* Whether the options --key and --id want this letter; without them all are. */
bool letter_wanted(const struct cli *cli, const struct omq_delivery *d);
/* The topic it was sent to first; NULL: it does not say. */
const char *letter_origin(const struct omq_delivery *d);
/* Its unique id; a message that never had one goes by that of its place. */
const char *letter_id(const struct omq_delivery *d);

/* dlq_resend.c */
extern const struct opt dlq_resend_options[];
extern const struct column dlq_resend_columns[];
int dlq_resend(struct cli *cli);

#endif
