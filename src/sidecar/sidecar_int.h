/* sidecar_int.h - the inside of the sidecar.
 *
 *     desk.c       jobs: taking them from the consumer, lanes, beginning, ending
 *     sidecar.c    options, life, the threads of exec, http and sql
 *     exec.c env.c spawn.c words.c     programs
 *     http.c       requests
 *     pipe.c       processes that stay;  pipe_code.c: their lines, as pure functions
 *     sql.c        statements;           sql_text.c: reading them, as a pure function
 *
 * A *job* is a message on its way: it has a batch of the consumer's (with one message in it) until
 * it ends, and a run of libonce's from desk_begin to desk_end. Whoever has the job is the only one
 * to touch it.
 *
 * There is one room, the desk's. It guards the lists of jobs and the lanes. Nobody is in it while
 * the consumer, the store or a worker is asked.
 *
 * Threads that want work call desk_next. One of those that wait goes to the consumer for all of
 * them (`leading`), so there is no thread that does nothing but fetch.
 */
#ifndef SIDECAR_INT_H
#define SIDECAR_INT_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/list.h"
#include "base/map.h"
#include "base/room.h"
#include "sidecar/sidecar.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define WHY_MAX   256
#define TAKE_MAX  128 /* jobs taken, begun or ended at a time */
#define NS_PER_MS UINT64_C(1000000)

struct lane;

struct job {
    struct link link; /* in desk.ready, desk.resting, a lane, or its worker's list */
    struct omq_batch *batch;
    const struct omq_delivery *d;
    struct once_run *run;
    struct lane *lane;      /* NULL: in no order */
    uint64_t not_before_ns; /* resting */
    uint64_t begun_ns;
    char *key; /* for whoever listens to events; else NULL */
    int64_t fence;
};

/* What a worker says. */
struct fate {
    int kind;         /* enum sidecar_fate, without DEAD */
    int64_t after_ms; /* LATER; -1: options.later_ms */
    char why[WHY_MAX];
};
void fate_set(struct fate *fate, int kind, int64_t after_ms, const char *format, ...)
    printf_like(4, 5);

/* ---- the desk (desk.c) ---- */

struct desk {
    struct room room;
    struct list ready;   /* jobs that may begin */
    struct list resting; /* jobs that keep their place in a lane, by not_before_ns */
    struct list spare;   /* jobs to be used again */
    struct map lanes;
    size_t held;  /* jobs that were taken and have not ended */
    size_t limit; /* … at most */
    bool leading; /* somebody is at the consumer */
    bool stopping;
    uint64_t last_ns; /* when something was last under way */
    uint64_t ended;   /* for stop_after */
};

struct sidecar {
    struct sidecar_options with; /* defaults filled in; texts are copies where they are kept */
    struct omq_client *client;
    struct omq_consumer *consumer;
    struct once *once;
    struct key *order;
    struct desk desk;
    const struct worker *worker;
    void *state; /* the worker's */
    pthread_t *threads;
    size_t n_threads;
    _Atomic bool ending; /* stop_ms are over: no worker is waited for any longer */
    _Atomic uint64_t fates[5], given_back, restarts, strange, running;
};

/* The next jobs that may begin, at most `max`; waits for one. 0: there will be none. */
size_t desk_next(struct sidecar *s, struct job **out, size_t max);
/* Asks libonce. Those that may run are moved to the front, and their number is returned; the others
 * have ended. */
size_t desk_begin(struct sidecar *s, struct job **jobs, size_t n);
/* Uses both arrays up. */
void desk_end(struct sidecar *s, struct job **jobs, struct fate *fates, size_t n);
must_check enum err desk_open(struct sidecar *s);
void desk_stop(struct sidecar *s);
void desk_clear(struct sidecar *s); /* nobody is there any more */

uint64_t now_ns(void);
void sidecar_log(const struct sidecar *s, int level, const char *format, ...) printf_like(3, 4);

/* ---- workers ---- */

struct worker {
    /* `why` is a sentence for the user. */
    enum err (*open)(struct sidecar *s, struct fault *why);
    void (*close)(struct sidecar *s); /* all threads have ended */
    /* `ending` is set: what runs shall end now; SIGTERM, then SIGKILL. */
    void (*kill)(struct sidecar *s, int signal);
    /* Either: one message at a time, by each of `parallel` threads, with what hand_open made … */
    enum err (*hand_open)(struct sidecar *s, size_t number, void **hand, struct fault *why);
    void (*hand_close)(void *hand);
    void (*work)(struct sidecar *s, void *hand, struct job *job, struct fate *fate);
    /* … or: threads of its own, until desk_next says 0; joined by `close`. */
    enum err (*start)(struct sidecar *s, struct fault *why);
};
extern const struct worker worker_exec, worker_http, worker_pipe, worker_sql;

must_check enum err thread_begin(pthread_t *out, void *(*run)(void *arg), void *arg);

/* ---- programs (words.c, spawn.c) ---- */

/* `text` as words, ended by NULL, in one allocation; the first is found along PATH and becomes a
 * path. ERR_INVALID, ERR_NOT_FOUND with a sentence. */
must_check enum err words_split(const char *text, char ***out, struct fault *why);
must_check enum err words_program(char **words, char **path, struct fault *why);

struct program {
    char **words;
    char *path;
    int signals[64]; /* those that a child must not inherit as we have them */
    size_t n_signals;
};
must_check enum err program_open(struct program *p, const char *command, struct fault *why);
void program_clear(struct program *p);

/* A running program. Any thread may kill it, one waits for it. */
struct child {
    pthread_mutex_t key;
    pid_t pid; /* 0: none runs */
    int fd;    /* readable when it has ended */
};
void child_init(struct child *c);
void child_clear(struct child *c);
/* In a process group of its own, which ends when its first process loses us. -1: as ours. */
must_check enum err child_start(struct child *c, const struct program *p, char *const *env, int in,
                                int out, struct fault *why);
/* ERR_TIMEOUT: it runs. `status` is waitpid's. */
must_check enum err child_wait(struct child *c, int timeout_ms, int *status);
void child_kill(struct child *c, int signal); /* the whole group */
/* Asks it to end, then ends it. Returns when it has. */
void child_end(struct child *c, int *status);
void status_text(int status, char *out, size_t size); /* "exit status 3", "signal 9 (Killed)" */

/* ---- environment (env.c) ---- */

/* "NAME=value" rows, ended by NULL, in memory that is used again for the next. */
struct env {
    char **rows;
    size_t n, cap, n_base;
    struct buf text;
};
must_check enum err env_open(struct env *e, char *const *inherited);
must_check enum err env_fill(struct env *e, const struct job *job);
void env_clear(struct env *e);

/* ---- lines of a pipe (pipe_code.c) ---- */

#define ANSWER_MAX (64 << 10) /* of a line that a worker writes */

void line_write(struct buf *out, const struct omq_delivery *d, struct bytes key, int64_t fence);

struct answer {
    struct bytes id;  /* a slice of the line or of the arena */
    int kind;         /* enum sidecar_fate */
    int64_t after_ms; /* -1: it does not say */
    struct bytes why;
};
struct arena;
must_check enum err line_read(struct bytes line, struct arena *arena, struct answer *out,
                              struct fault *why);

/* ---- statements (sql_text.c) ---- */

#define SQL_VALUES_MAX 32
#define SQL_STEPS_MAX  16

enum sql_field {
    FIELD_KEY,
    FIELD_ID,
    FIELD_TOPIC,
    FIELD_TAG,
    FIELD_KEYS,
    FIELD_ATTEMPT,
    FIELD_QUEUE,
    FIELD_OFFSET,
    FIELD_BROKER,
    FIELD_BORN,
    FIELD_PROP, /* steps[0] is its name */
    FIELD_BODY, /* all of it, or what the steps lead to */
};
struct sql_step {
    struct bytes name; /* NULL: the index */
    size_t index;
};
struct sql_place {
    enum sql_field field;
    struct sql_step steps[SQL_STEPS_MAX];
    size_t n_steps;
};
struct sql_statement {
    char *text; /* with ? in the places of the values */
    struct sql_place values[SQL_VALUES_MAX];
    size_t n_values;
};
struct sql_script {
    struct sql_statement *statements;
    size_t n;
    char *names; /* what the steps' names point into */
};
/* ERR_INVALID with the position of the mistake. */
must_check enum err sql_script_read(const char *text, int dialect, struct sql_script *out,
                                    struct fault *why);
void sql_script_clear(struct sql_script *script);

#endif
