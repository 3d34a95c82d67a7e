/* check_int.h - one check of a folder on its way. check.c opens and judges, check_log.c walks the
 * log, check_queue.c, check_index.c and check_timers.c hold the rest against it.
 *
 * The order matters: files of log and queues are listed and measured, then the log is walked once
 * from end to end and each record looks for its unit, then each queue is walked for units that no
 * record has asked for.
 */
#ifndef STORE_CHECK_INT_H
#define STORE_CHECK_INT_H

#include "store/store_int.h"

#define NO_GAP UINT64_MAX

/* What the log's records say about one queue. */
struct check_row {
    struct queue *queue;
    int64_t first, next;    /* offsets of its records: from, to; both -1 before the first */
    int64_t missing, wrong; /* the first offset of each; -1: none */
    uint64_t n_missing, n_wrong;
    bool firm; /* one of them is not among those that the next start builds again */
};

struct check {
    const struct check_calls *calls;
    struct check_summary sum;
    struct store *store; /* only what reading takes: cache, log, queues */
    struct checkpoint checkpoint;
    bool aborted;
    bool ext;        /* Apache's consumequeue_ext is there, and units may point into it */
    uint64_t *bases; /* of the log's files */
    size_t n_bases;

    uint64_t total;        /* bytes from the first log file to the last */
    uint64_t told;         /* position at which progress was told last */
    uint64_t units_end;    /* the highest end of a record that a unit knows */
    uint64_t rebuilt_from; /* after a crash: units of records from here on are built again */
    uint64_t gap;          /* from here on nothing was readable; NO_GAP: it is */
    bool ended;            /* what follows is of an earlier life */
    int64_t last_ms;       /* the latest store time of a record */
    bool log_whole;        /* the walk found nothing worth telling */

    struct check_row *rows; /* by queue->slot */
    size_t n_rows, cap_rows;
};

void check_say(struct check *c, enum check_grade grade, const char *file, int64_t at,
               const char *format, ...) printf_like(5, 6);
/* The size that a row's files have, from those that are there: a crash leaves shorter ones only. */
must_check enum err check_sizes(struct check *c, const char *folder, const uint64_t *bases,
                                size_t n, uint64_t *most, struct fault *why);
/* Says what is wrong with the names and sizes of a row of files. */
must_check enum err check_files(struct check *c, const char *folder, uint64_t file_size,
                                const uint64_t *bases, size_t n, struct fault *why);

/* check_log.c */
must_check enum err check_log_load(struct check *c, struct fault *why);
must_check enum err check_log_walk(struct check *c, struct fault *why);

/* check_index.c: after the log was walked */
must_check enum err check_index(struct check *c, struct fault *why);

/* check_timers.c: the same */
must_check enum err check_timers(struct check *c, struct fault *why);

/* check_queue.c */
must_check enum err check_queues_load(struct check *c, struct fault *why);
must_check enum err check_record(struct check *c, const struct record *r, struct fault *why);
must_check enum err check_queues_walk(struct check *c, struct fault *why);

#endif
