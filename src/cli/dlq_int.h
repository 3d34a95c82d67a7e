/* dlq_int.h - dead letters: what a group could not use in all its tries, in its topic %DLQ%group.
 *
 * A letter is *settled* when it has been sent back, or dropped. A topic is a log, no letter can be
 * taken out of it; so what is settled is kept beside the letters, in three places, and an
 * interrupted command can be run again and settles none twice:
 *
 *   the mark    the offset, in each queue of %DLQ%group, before which all is settled. Its broker
 *               has it, as the offset of the group TOOLS_CONSUMER, which every broker has and
 *               nobody consumes as
 *   the note    a message in the letter's own queue that says which letter before it was settled
 *               out of turn, and how. Dropping a letter by its key is to store its note; of one
 *               that was sent back while others before it were not, the note is there so that it
 *               is counted and shown right
 *   the copy    a message that was sent back has the property ONCEMQ_DEAD_LETTER: the offset id of
 *               its dead letter. A letter behind the mark that has no note is sent back only after
 *               its copy was looked for, by its unique id
 *
 * So what was sent and neither marked nor noted (the program was killed) is known all the same, and
 * so is a copy whose answer got lost.
 *
 *     offset    0   1   2   3   4   5          letter 2 was dropped: 5 is its note. Left are 1, 3
 *               A   B   C   D   E   (C)        and 4. When B is settled, the mark moves to 3
 *                   ^mark
 *
 * A note has a tag, so brokers pick notes out of a queue by its index, and what is left is counted
 * without reading letters. It stands in the letter's queue, so it is there as long as the letter.
 */
#ifndef CLI_DLQ_INT_H
#define CLI_DLQ_INT_H

#include "cli/admin.h"
#include "cli/flight.h"
#include "cli/pace.h"
#include "cli/scan.h"

#define LETTER_PROPERTY "ONCEMQ_DEAD_LETTER"
#define NOTE_PROPERTY   "ONCEMQ_SETTLED" /* "dropped:%DLQ%group:queue:offset" */
#define NOTE_TAG        "ONCEMQ_SETTLED"

/* ---- notes: dlq_notes.c ---- */

enum noted { NOTED_NOT, NOTED_RESENT, NOTED_DROPPED, NOTE_ITSELF };

/* What the notes of a queue say. */
struct notes {
    struct noted_at {
        int64_t offset;
        enum noted how;
    } * all; /* by rising offset, each once */
    size_t n, room;
    int64_t next; /* the offset to read on from */
};

/* Reads on, up to `end`. A queue that may not be read has none. An enum omq_code. */
int notes_read(struct cli *cli, const struct omq_queue *queue, int64_t end, struct notes *notes,
               struct omq_error *why);
void notes_clear(struct notes *notes);
enum noted notes_say(const struct notes *notes, int64_t offset);
/* How many offsets in this range are settled by a note, or have one. */
int64_t notes_count(const struct notes *notes, int64_t from, int64_t end);
/* What this message of a dead-letter topic notes of the letter at `*offset` of its queue;
 * NOTED_NOT: it is no note, but a letter. */
enum noted note_of(const struct omq_delivery *d, const char *topic, int64_t *offset);
const char *noted_text(enum noted how);
/* The value of NOTE_PROPERTY. */
struct note_text {
    char text[512];
};
struct note_text note_text(enum noted how, const struct omq_queue *queue, int64_t offset);

/* ---- boxes: dlq_box.c ---- */

struct mark {
    int64_t told; /* what the broker has; 0: nothing */
    int64_t now;  /* where it should be */
};

/* The dead letters of a group. */
struct box {
    struct cli *cli;
    const char *group, *topic;
    struct admin_cluster cluster;
    struct scan scan;    /* of those behind the marks; no queues: there are none */
    struct mark *marks;  /* of the scan's queues */
    struct notes *notes; /* behind the marks; of the scan's queues */
};

/* An enum status. A topic that may not be read (some brokers make it so) is made readable. `whole`:
 * the scan begins where the queues do, not at the marks. A box that could not be opened may be
 * closed as well. */
int box_open(struct box *box, struct cli *cli, const char *group, bool whole);
void box_close(struct box *box);
/* Tells the brokers where the marks should be. */
int box_mark(struct box *box);
/* Reads notes that came since; nothing is said if that fails. */
void box_notes_refresh(struct box *box);
/* How many letters of the scan's range are not settled, by marks and notes. */
uint64_t box_unsettled(const struct box *box);
/* The next letter, settled or not, as scan_next has it. What is a note is passed over. */
int box_next(struct box *box, const struct omq_delivery **out, size_t *queue, enum noted *how);
/* The marks of n queues, -1: there is none. */
int box_marks_ask(struct cli *cli, const struct admin_cluster *on, const struct omq_queue *queues,
                  size_t n, int64_t *marks);
/* How many letters of n topics %DLQ%… are not settled, by marks and notes. */
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

/* ---- settling letter by letter: dlq_settle.c ---- */

/* One that is not settled yet, or stands behind such a one. */
struct letter {
    struct letter *next;
    size_t queue; /* of the box's scan */
    int64_t offset;
    bool over, settled, noted;
    char place[64];         /* its offset id */
    const char *id, *topic; /* of it; of the message that settles it */
    char texts[];
};

enum outcome {
    OUTCOME_DONE,
    OUTCOME_BEFORE,
    OUTCOME_OTHERWISE,
    OUTCOME_KNOWN,
    OUTCOME_REFUSED,
    OUTCOME_UNSURE,
    OUTCOMES
};

struct settle;
/* What is done to letters. */
struct settle_verb {
    enum noted how;
    const char *doing;     /* "sending back" */
    const char *otherwise; /* what letters are that were settled before in the other way */
    const char *undone;    /* those that failed */
    const char *again;     /* the hint after a failure */
    const char *known;     /* the hint when a broker does not take what it knows */
    bool looks;            /* for copies, before sending */
    int (*open)(struct settle *run); /* when the box is; an enum status */
    /* The topic of the message that settles the letter; NULL: there is none, and `why` says why. */
    const char *(*topic)(struct settle *run, const struct omq_delivery *d, struct omq_error *why);
    int (*send)(struct settle *run, struct letter *l, const struct omq_delivery *d);
    /* Says what became of it; may be NULL. */
    void (*print)(struct settle *run, const struct letter *l, enum outcome outcome,
                  const struct landed *landed);
};

struct row; /* of letters */
struct settle {
    struct cli *cli;
    const struct settle_verb *verb;
    bool dry;
    struct pace pace;
    const char *target; /* the verb's: where all its messages go; NULL: each to its own topic */
    /* Its own. */
    struct box *box;
    struct row *rows; /* for each queue */
    struct letter *to_note, **to_note_end;
    struct flight *flight;
    struct progress progress;
    uint64_t seen, seen_before; /* letters; of the boxes before this one */
    uint64_t counts[OUTCOMES], skipped;
    int64_t marked_ms;
    struct unsure {
        struct letter *letter;
        struct landed landed;
    } * unsure; /* to be looked for at the end */
    size_t n_unsure;
    bool failed;
    struct omq_error why; /* of the first that failed */
};

/* An enum status each. The caller has filled in what is not the run's own. */
int settle_begin(struct settle *run);
int settle_box(struct settle *run, const char *group);
bool settle_stopping(const struct settle *run);
/* Tells what was done; the status of the command. */
int settle_report(struct settle *run, int status);
void settle_close(struct settle *run);
/* For verbs: a message about this letter leaves. */
void settle_send(struct settle *run, const struct omq_message *message, struct letter *l);
void settle_note(struct settle *run, struct letter *l);

/* ---- commands ---- */

extern const struct opt dlq_resend_options[], dlq_drop_options[];
extern const struct column dlq_resend_columns[], dlq_drop_columns[];
int dlq_resend(struct cli *cli);
int dlq_drop(struct cli *cli);

#endif
