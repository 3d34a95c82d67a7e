/* pipe_int.h - processes that stay: messages go in as lines, fates come out as lines, in any order.
 *
 * Each process has two threads. The *feeder* (pipe_feed.c) takes jobs, writes them into one buffer
 * and that into the process, waiting as long as it must. The *reader* (pipe.c) starts the process,
 * reads what it says in big pieces, ends jobs many at a time, watches their time, and starts it
 * again when it has died.
 *
 * Which message is to blame when a process dies? If it had one alone, that one: it failed. If it
 * had many, nobody knows, so all of them come again (`again`), one at a time with nothing beside
 * it, until the one is found that kills, or none does. The others have lost no attempt. A message
 * that is not answered in time is to blame alone; what else the process had comes again as well.
 * The reader gives those away, since the feeder may be waiting for messages that never come; it
 * waits until they are through.
 *
 * Room: the process's, over its list of what is in flight and the process itself.
 */
#ifndef SIDECAR_PIPE_INT_H
#define SIDECAR_PIPE_INT_H

#include "sidecar/sidecar_int.h"

#include "base/arena.h"

#define LINES_MAX (128 << 20) /* of what is written at once: a piece, and one big message */

/* What one piece of the process's output says. */
struct ended {
    struct answer answers[TAKE_MAX];
    struct bytes lines[TAKE_MAX]; /* theirs */
    size_t n_answers;
    struct job *jobs[TAKE_MAX];
    struct fate fates[TAKE_MAX];
    size_t n;
};

struct process {
    struct sidecar *sidecar;
    struct pipe *pipe;
    pthread_t feeder, reader;
    bool feeding_thread, reading_thread;
    struct child child;

    struct room room;
    struct list flying; /* jobs, in the order in which they were given */
    struct map by_id;   /* the same */
    size_t n_flying;
    struct list again;  /* what a process that died had */
    bool alone;         /* what flies is one of those */
    bool alive, fed_up; /* it runs; nothing more will be given to it */
    bool writing;       /* the feeder is in the middle of a write */
    int in;             /* its stdin */
    bool started;       /* once: how that went */
    enum err start_err;
    struct fault start_why;

    /* The reader's own. */
    int out; /* its stdout */
    uint8_t *chunk;
    size_t n_chunk;
    struct arena arena;
    struct buf line; /* for one that comes again */
    unsigned fails;
    bool answered;       /* since it was started */
    uint64_t leaving_ns; /* since when it has nothing and will get nothing; 0: that is not so */
    struct ended ended;
};

/* ---- what goes in: pipe_feed.c ---- */

void *feeder_run(void *process); /* a thread */
/* Room: the process's. No more lines for it, once the feeder is out of its write. */
void process_in_close(struct process *p);
/* The next of those that come again, if nothing flies. False: the process does not read. */
bool process_again_feed(struct process *p);
/* What comes again, when it will not be given to anybody any more. */
void process_again_drop(struct process *p);

#endif
