/* top_int.h - a live view of a cluster: gathered by one thread, drawn by another.
 *
 *     gatherer   asks the name servers and all brokers, once an interval, and makes a *survey*:
 * what there is now, and how fast it changes, told from the survey before main       draws the
 * newest survey, reads keys
 *
 * A server that does not answer makes a survey late, never the keys. There are two surveys: the one
 * that counts, which nobody changes, and the one that is being made of it; they change places under
 * the watch's key. What a survey says lives in its arena and is gone with the second one after it.
 *
 * A survey costs three requests for each broker, whatever the number of groups and queues. What has
 * to be asked for one by one (a topic's queues, the latency of a topic or a group, a group's
 * members) is asked in turn, for half of an interval at most; the rest keeps what it had and is
 * asked first the next time.
 */
#ifndef CLI_TOP_INT_H
#define CLI_TOP_INT_H

#include "base/buf.h"
#include "cli/operate_int.h"

#include <pthread.h>

/* ---- what there is: top_survey.c ---- */

/* A rate or a time that is not known is NAN; a number of members that is not, -1. */
struct top_broker {
    const char *name, *cluster, *address; /* address NULL: it has no master */
    bool up, ours;                        /* it answers; it is oncemqd */
    bool forgotten;                       /* the name servers do not know it any more */
    const char *version;
    int64_t ahead_ms; /* its clock, of ours */
    int64_t put, got, duplicates;
    double in, out, refused; /* messages a second; duplicates */
    double put_99, get_99;   /* ms */
    double disk;             /* 0 to 1 */
};

struct top_queue {
    const char *group, *topic, *broker;
    int64_t queue, end, offset, lag, behind_ms;
    double in, out;
};

struct top_group {
    const char *group, *topic;
    int64_t queues, end, offset, lag, behind_ms, members;
    double in, out, get_99;
};

struct top_topic {
    const char *name;
    uint64_t at_ns; /* when it was asked; 0: not yet */
    int64_t queues, end, messages;
    double in, out, put_99, get_99;
};

struct survey {
    struct cli cli; /* a copy of the run's, with an arena of this survey's own */
    uint64_t at_ns;
    int64_t at_ms;
    struct omq_error trouble;     /* with the name servers; its code is 0: they answer */
    struct admin_cluster cluster; /* as the name servers say; empty while they do not */
    struct top_broker *brokers;
    struct top_queue *queues; /* by group, topic, broker, number */
    struct top_group *groups; /* by group, topic */
    struct top_topic *topics; /* by name */
    size_t n_brokers, n_queues, n_groups, n_topics;
    double in, out, refused; /* of all brokers */
    int64_t lag, duplicates;
};

struct survey_plan {
    const char *topic, *group; /* only these; NULL: all */
    bool all;                  /* the system's own, too */
    int64_t budget_ms;         /* for what is asked one by one; INT64_MAX: until it is done */
    struct survey_next {
        char name[512];
    } next_topic, next_group; /* where to go on */
};

void survey_open(struct survey *s, const struct cli *cli);
void survey_close(struct survey *s);
/* What there is now. `then` is the survey before; NULL: there is none. */
void survey_take(struct survey *s, const struct survey *then, struct survey_plan *plan);

/* ---- the gatherer: top_watch.c ---- */

struct watch {
    struct survey surveys[2];
    struct survey_plan plan;
    int64_t interval_ms;
    pthread_mutex_t key; /* guards what follows */
    pthread_cond_t changed;
    size_t current;
    uint64_t number; /* of surveys that were made */
    bool paused, stop;
    int told[2]; /* a pipe: a byte for each survey */
    pthread_t thread;
    bool running;
};

int watch_open(struct watch *w, struct cli *cli, int64_t interval_ms);
/* The end of the program, with this status, if the gatherer waits for somebody. */
void watch_close(struct watch *w, int status);
void watch_pause(struct watch *w, bool paused);

/* ---- views: top_view.c ---- */

enum top_view { VIEW_BROKERS, VIEW_TOPICS, VIEW_GROUPS, VIEW_QUEUES, VIEWS };

#define COLUMNS_MAX 12
#define CELL_MAX    320

enum field {
    NAME, /* the broker, the topic, or the group */
    TOPIC,
    BROKER,
    QUEUE,
    STATE,
    VERSION,
    LAG,
    BEHIND,
    IN,
    OUT,
    PUT_99,
    GET_99,
    DUPLICATES,
    DISK,
    MESSAGES,
    QUEUES,
    MEMBERS,
};

struct head {
    enum field field;
    const char *title;
    int least; /* columns: numbers keep theirs, names give way */
    bool name;
};

struct view {
    const char *name;
    struct head heads[COLUMNS_MAX];
    enum field sorts[6]; /* what its rows can be sorted by */
    size_t n_sorts;
};
const struct view *view_of(enum top_view view);
void cell_of(const struct survey *s, enum top_view view, size_t row, enum field field,
             char out[CELL_MAX]);
/* The rows of a view in the order of its `sort`-th column; to be freed. NULL: no memory. */
size_t *rows_sorted(const struct survey *s, enum top_view view, size_t sort, size_t *n);
void count_text(double value, char *out, size_t room);
void whole_text(int64_t n, char *out, size_t room); /* negative: it is not known */
void ms_text(double ms, char *out, size_t room);

/* ---- pictures: top_draw.c ---- */

struct picture {
    enum top_view view;
    size_t sort[VIEWS]; /* which of a view's columns */
    size_t first;       /* the row that is drawn first; kept within what there is */
    bool paused, help;
    int64_t interval_ms;
    const char *names;
    int rows, columns; /* of the terminal; rows 0: as many as there are */
};

#define ROWS_MAX 512 /* of a terminal; what is below stays empty */

/* Lines of text, each with a style: how a screen and a pipe take a picture. */
enum style { STYLE_PLAIN, STYLE_TITLE, STYLE_HEAD, STYLE_BAD, STYLE_DIM };
struct canvas {
    struct buf text; /* every line ends with a NUL */
    enum style style[ROWS_MAX];
    size_t starts[ROWS_MAX], n;
};
void canvas_clear(struct canvas *lines);
void line_add(struct canvas *lines, enum style style, int columns, const char *text);

void picture_draw(struct picture *p, const struct survey *s, struct canvas *out);
/* For a pipe: all rows of a view as a table. */
void picture_print(struct cli *cli, const struct survey *s, enum top_view view, size_t sort);

/* ---- the terminal: screen.c ---- */

enum key {
    KEY_NONE,
    KEY_UP = 256,
    KEY_DOWN,
    KEY_PAGE_UP,
    KEY_PAGE_DOWN,
    KEY_HOME,
    KEY_END,
    KEY_RESIZED,
    KEY_STOP, /* Ctrl-C, SIGTERM, or the terminal is gone */
};

struct screen;
struct screen *screen_open(struct cli *cli); /* NULL: said */
void screen_close(struct screen *screen);
void screen_size(const struct screen *screen, int *rows, int *columns);
/* Writes what differs from what is there already. */
void screen_show(struct screen *screen, const struct canvas *lines);
/* The next key, or KEY_NONE as soon as `fd` is readable. */
int screen_key(struct screen *screen, int fd);

#endif
