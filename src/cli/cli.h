/* cli.h - the command line `oncemq`.
 *
 * A *command* is an entry of a table: its words ("topic create"), its arguments and options, what
 * explains it, the form of what it prints, and a function. Everything that is said about commands
 * comes from that table: parsing, --help, the man pages, the completion of shells, docs/cli.md with
 * the forms of --json, and the nearest name when one is misspelt. Families of commands have a file
 * each; commands.c lists them.
 *
 * A command prints *records*. Its entry names their columns; the function fills them in by name and
 * never formats. A person sees a table or a sheet, a program the same fields under the same names
 * (--json):
 *
 *     SHAPE_LIST    a table                        an array of objects
 *     SHAPE_ONE     a sheet of names and values    an object
 *     SHAPE_LINES   a line as soon as it is there  an object a line
 *     SHAPE_NONE    what the command writes itself
 *
 * Text of strangers (a body, a name) reaches a terminal only through here: what is no printable
 * character is escaped, so no message can move the cursor or set a title.
 *
 * Records go to stdout; progress, questions and errors to stderr. The exit status is the function's
 * result, an enum status.
 *
 * Threads: everything here belongs to the main thread, but cli_stopped.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "oncemq.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum status {
    STATUS_OK = 0,
    STATUS_FAILED = 1,      /* a server said no, or something here went wrong */
    STATUS_USAGE = 2,       /* the command line; nothing was done */
    STATUS_NOT_FOUND = 3,   /* no such topic, group, message, file */
    STATUS_UNREACHABLE = 4, /* no server answered */
    STATUS_PARTLY = 5,      /* some of it is done; what, is said */
    STATUS_DECLINED = 6,    /* the question was answered with no, or --yes is missing */
    STATUS_INTERRUPTED = 130,
    STATUS_PIPE = 141, /* whoever read our output is gone */
};

/* ---- commands ---- */

enum opt_kind {
    OPT_SWITCH,
    OPT_TEXT,
    OPT_NUMBER,   /* a whole number, not negative; 10k and 2M are understood */
    OPT_SIZE,     /* bytes: 100, 4k, 4KiB, 1MiB */
    OPT_DURATION, /* in ms: 90s, 1h30m, 250ms, 2d; a bare number is seconds */
    OPT_TIME,   /* in ms since 1970: 2026-11-16T12:00:00Z, 2026-11-16 12:00, 12:00, -1h, now, ms */
    OPT_CHOICE, /* one of `choices` */
    OPT_REAL,   /* 0.5 */
};

struct opt {
    const char *name; /* without the dashes; NULL ends the list */
    enum opt_kind kind;
    const char *value;   /* what the help calls it: "TIME" */
    const char *help;    /* one sentence, without an end */
    const char *choices; /* OPT_CHOICE: "lease|table" */
    char letter;         /* -n; 0: none */
    bool many;           /* may be repeated */
};

enum column_kind {
    COLUMN_TEXT,
    COLUMN_NUMBER,
    COLUMN_REAL,
    COLUMN_BOOL,
    COLUMN_SIZE,     /* bytes; JSON: a number */
    COLUMN_DURATION, /* ms; JSON: a number */
    COLUMN_TIME,     /* ms since 1970; JSON: a number */
    COLUMN_STATE,    /* "ok", "warn", "bad": in colour */
    COLUMN_MAP,      /* names and texts; JSON: an object */
    COLUMN_LIST,     /* records of their own: `of` */
};

struct column {
    const char *name; /* in JSON; NULL ends the list */
    enum column_kind kind;
    const char *title; /* for people; NULL: for programs only */
    const char *help;  /* for docs/cli.md */
    const struct column *of;
    bool optional; /* people see it only when some record has it */
};

enum shape { SHAPE_NONE, SHAPE_LIST, SHAPE_ONE, SHAPE_LINES };

struct cli;

struct command {
    const char *name; /* "topic create"; NULL ends the list */
    const char
        *arguments; /* "TOPIC", "TOPIC [BODY]", "GROUP…" (one or more), "[FILE…]"; NULL: none */
    const char *summary;  /* one line, without an end */
    const char *text;     /* paragraphs, divided by empty lines; may be NULL */
    const char *examples; /* lines to copy; may be NULL */
    const struct opt *options;
    enum shape shape;
    const struct column *columns;
    int (*run)(struct cli *cli); /* enum status */
    bool hidden;                 /* not in the help */
    bool endless;                /* a stop is how it ends, and no interruption */
};

struct family {
    const char *title; /* in `oncemq --help` */
    const struct command *commands;
};
extern const struct family families[]; /* ended by a NULL title */
extern const struct opt global_options[];

/* ---- what was given: args.c ---- */

/* Of the running command. Asking for an option that its entry does not have is a mistake of ours.
 */
bool arg_has(const struct cli *cli, const char *option);
const char *arg_text(const struct cli *cli, const char *option, const char *fallback);
/* NUMBER, SIZE, DURATION, TIME */
int64_t arg_number(const struct cli *cli, const char *option, int64_t fallback);
double arg_real(const struct cli *cli, const char *option, double fallback);
/* The n-th of an option that may be repeated; NULL: there are fewer. */
const char *arg_nth(const struct cli *cli, const char *option, size_t n);
/* The arguments beside the options; NULL: there are fewer. */
const char *arg_at(const struct cli *cli, size_t n);
size_t arg_count(const struct cli *cli);

/* values.c; `now_ms` is what "-1h" and "12:00" are told from. False: it is none. */
bool value_number(const char *text, int64_t *out);
bool value_size(const char *text, int64_t *out);
bool value_duration(const char *text, int64_t *ms);
bool value_time(const char *text, int64_t now_ms, int64_t *ms);
int64_t now_ms(void);
/* The entry of a list of n words that was probably meant; NULL: none is near. */
const char *nearest_word(const char *word, const char *const *words, size_t n);

/* ---- the way out: out.c ---- */

/* Records, as the command's entry describes them. A column that is not put is null. Outside of a
 * list record, row_begin opens a record of the command itself; SHAPE_ONE has exactly one. */
void row_begin(struct cli *cli);
void row_end(struct cli *cli);
void put_text(struct cli *cli, const char *column, const char *text); /* NULL: null */
void put_bytes(struct cli *cli, const char *column, struct bytes text);
void put_format(struct cli *cli, const char *column, const char *format, ...) printf_like(3, 4);
void put_number(struct cli *cli, const char *column, int64_t number); /* also sizes, times */
void put_real(struct cli *cli, const char *column, double number);
void put_bool(struct cli *cli, const char *column, bool yes);
void put_entry(struct cli *cli, const char *column, struct bytes name,
               struct bytes value); /* MAP */
/* Records of a COLUMN_LIST: row_begin … row_end between these. */
void list_open(struct cli *cli, const char *column);
void list_close(struct cli *cli);
/* SHAPE_LIST: shows the records there are, and forgets them. For commands that show the same again
 * and again: on a terminal in the same place, with --json an array a line. */
void rows_show(struct cli *cli);

/* For SHAPE_NONE, and words beside the records. cli_print writes to stdout, cli_note to stderr and
 * not with --json or --quiet: "sent 3 messages". */
void cli_print(struct cli *cli, const char *format, ...) printf_like(2, 3);
void cli_note(struct cli *cli, const char *format, ...) printf_like(2, 3);
void cli_write(struct cli *cli, struct bytes raw); /* stdout, as it is */
/* What a terminal can bear of a stranger's text; valid until the next row_end or out_forget. */
const char *printable(struct cli *cli, struct bytes text);
void out_forget(struct cli *cli); /* those texts, between records: for what runs for days */
bool out_broken(struct cli *cli); /* whoever read stdout is gone: stop */
void out_flush(struct cli *cli);

/* A failure: says it, with what to do next (`hint`, may be NULL), and gives `status` back. With
 * --json stderr gets {"error":…,"message":…,"hint":…}. */
int cli_fail(struct cli *cli, int status, const char *hint, const char *format, ...)
    printf_like(4, 5);
/* The same for what liboncemq says. `what` (may be NULL) is put in front. */
int cli_fail_omq(struct cli *cli, const struct omq_error *why, const char *what);
int status_of(int omq_code);

/* A dangerous command: asks "…? [y/N]" on a terminal, wants --yes elsewhere. STATUS_OK: go on. */
int cli_confirm(struct cli *cli, const char *format, ...) printf_like(2, 3);

/* ---- long work: progress.c ---- */

/* A line on stderr, if that is a terminal and --quiet is not given: what, how far, rate, time left.
 */
struct progress {
    struct cli *cli;
    const char *what; /* "sending" */
    uint64_t total;   /* 0: not known */
    uint64_t done;
    int64_t began_ms, shown_ms;
    bool visible;
};
void progress_begin(struct progress *p, struct cli *cli, const char *what, uint64_t total);
void progress_move(struct progress *p, uint64_t done); /* cheap: draws ten times a second */
void progress_end(struct progress *p);                 /* wipes the line */

/* Ctrl-C and SIGTERM: from here on they are noted, and the command ends its work by itself; a
 * second one ends the program at once. Any thread may ask. */
void cli_catch_stop(struct cli *cli);
bool cli_stopped(const struct cli *cli);
/* Waits at most `ms`, less if a stop comes. */
void cli_wait(const struct cli *cli, int64_t ms);
/* The same, until one of these (-1: none) can be read; after a stop, for them alone. */
void cli_wait_for(const struct cli *cli, const int *fds, size_t n, int64_t ms);

/* ---- the cluster: session.c ---- */

/* The client of this run, opened when first asked for and closed at the end; the command says so
 * itself when it fails: `status` is then what to return. */
struct omq_client *cli_client(struct cli *cli, int *status);
/* What it is opened with, for commands that open more of them. */
struct omq_client_options cli_client_options(struct cli *cli);
const char *cli_names(struct cli *cli); /* "host:port;host:port" */
int cli_timeout_ms(const struct cli *cli);

/* ---- the run ---- */

struct args;
struct out;
struct session;

struct cli {
    const struct command *command;
    struct args *args;
    struct out *out;
    struct session *session;
    struct arena arena; /* lives as long as the command */
    bool json, quiet, yes;
    bool colour_out, colour_err; /* of what is written there */
    bool terminal_in, terminal_out, terminal_err;
    int width; /* of the terminal; 0: none */
};

#endif
