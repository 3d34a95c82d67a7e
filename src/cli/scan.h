/* scan.h - reading a part of a topic from beginning to end, as nobody in particular.
 *
 * A scan has a range of offsets in each queue. Messages come in the order of their storing, across
 * queues (as their brokers' clocks have it); of one queue in the order of the queue. At most one
 * answer of each queue is in memory.
 */
#ifndef CLI_SCAN_H
#define CLI_SCAN_H

#include "cli/cli.h"

struct scan_queue {
    struct omq_queue queue;
    int64_t next, end; /* the offset to read next; where it ends */
    /* The scan's own. */
    struct omq_found found;
    size_t at;
};

struct scan {
    struct cli *cli;
    struct scan_queue *queues; /* in the command's arena */
    size_t n;
    const struct omq_subscription *filter; /* NULL: all */
};

/* All readable queues of a topic, each from its beginning to its end; an enum status. */
int scan_open(struct scan *scan, struct cli *cli, const char *topic);
/* Puts the beginning, or the end, of each queue to that time. */
int scan_begin_at(struct scan *scan, int64_t time_ms);
int scan_end_at(struct scan *scan, int64_t time_ms);
/* How many offsets are left: an upper bound for its messages. */
uint64_t scan_left(const struct scan *scan);
/* The next message, valid until the next call; `*out` NULL: there is none. `*where` (may be NULL)
 * is its queue: `next` there is behind it. */
int scan_next(struct scan *scan, const struct omq_delivery **out, struct scan_queue **where);
void scan_close(struct scan *scan);

#endif
