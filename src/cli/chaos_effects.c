/* chaos_effects.c - what was sent, and what has happened. */
#include "cli/chaos_int.h"

#include "once.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOT_YET 75 /* EX_TEMPFAIL: the program wants to be asked again */

/* ---- what was sent ---- */

/* Where each queue ends now is where ours begins. */
int chaos_sent_begin(struct chaos_run *run)
{
    if (!run->wishes.topic)
        return STATUS_OK;
    int status = scan_open(&run->scan, run->cli, run->wishes.topic);
    for (size_t i = 0; !status && i < run->scan.n; i++)
        run->scan.queues[i].next = run->scan.queues[i].end;
    return status;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct chaos_key *)a)->text, ((const struct chaos_key *)b)->text);
}

static void keys_tidy(struct chaos_run *run)
{
    size_t kept = 0;
    if (run->n_keys > 0)
        qsort(run->keys, run->n_keys, sizeof *run->keys, by_text);
    for (size_t i = 0; i < run->n_keys; i++)
        if (kept == 0 || strcmp(run->keys[i].text, run->keys[kept - 1].text) != 0)
            run->keys[kept++] = run->keys[i];
    run->n_keys = kept;
}

int chaos_sent_end(struct chaos_run *run)
{
    struct scan *scan = &run->scan;
    int status;
    struct omq_client *client = cli_client(run->cli, &status);
    struct omq_error why;
    for (size_t i = 0; !status && i < scan->n; i++)
        if (omq_offset(client, &scan->queues[i].queue, OMQ_END, &scan->queues[i].end, &why))
            status = cli_fail_omq(run->cli, &why, NULL);
    if (status || !run->wishes.topic)
        return status;
    run->keys = admin_alloc(run->cli, scan_left(scan), sizeof *run->keys);
    const struct omq_delivery *d;
    while (!(status = scan_next(scan, &d, NULL)) && d)
        run->keys[run->n_keys++] =
            (struct chaos_key){.text = admin_format(run->cli, "%s", d->keys[0] ? d->keys : d->id)};
    run->records = (int64_t)run->n_keys;
    keys_tidy(run);
    return status;
}

/* ---- by SQL ---- */

struct rows {
    struct chaos_run *run;
    int64_t n, number; /* rows; the first column of the first, if it is a number */
    bool lonely;       /* one column, and it is a number */
    bool bad;          /* a count that is none */
    int64_t others;
};

static bool value_count(const struct once_value *v, int64_t *out)
{
    if (v->type == ONCE_INT)
        *out = v->number;
    return v->type == ONCE_INT ||
           (v->type == ONCE_TEXT && bytes_to_i64(bytes_of(v->bytes, v->size), out));
}

static int row_take(void *user, const struct once_value *columns, size_t n)
{
    struct rows *rows = user;
    struct chaos_run *run = rows->run;
    char text[512];
    int64_t count = 1;
    if (rows->n++ == 0 && n == 1 && columns[0].type == ONCE_INT) {
        rows->lonely = true;
        rows->number = columns[0].number;
    }
    if (n > 1 && !value_count(&columns[1], &count)) {
        rows->bad = true;
        return 1;
    }
    if (columns[0].type == ONCE_INT)
        (void)snprintf(text, sizeof text, "%" PRId64, columns[0].number);
    else
        (void)snprintf(text, sizeof text, "%.*s",
                       (int)(columns[0].size < 511 ? columns[0].size : 511),
                       columns[0].bytes ? (const char *)columns[0].bytes : "");
    struct chaos_key wanted = {.text = text}, *key = NULL;
    if (run->n_keys > 0)
        key = bsearch(&wanted, run->keys, run->n_keys, sizeof *run->keys, by_text);
    if (key)
        key->effects = admin_sum(key->effects, count > 0 ? count : 0);
    else
        rows->others++;
    return 0;
}

static void effects_count(struct chaos_run *run, const struct rows *rows)
{
    struct chaos_effects *e = &run->effects;
    int64_t sent = (int64_t)run->n_keys;
    *e = (struct chaos_effects){.known = true, .others = rows->others};
    if (rows->lonely && rows->n == 1 && rows->others == 1) {
        e->numbered = true;
        e->others = 0;
        e->once = rows->number < sent ? rows->number : sent;
        e->twice = rows->number > sent ? rows->number - sent : 0;
        e->never = rows->number < sent ? sent - rows->number : 0;
        return;
    }
    for (size_t i = 0; i < run->n_keys; i++) {
        e->once += run->keys[i].effects == 1;
        e->twice += run->keys[i].effects > 1;
        e->never += run->keys[i].effects == 0;
    }
}

static int look_sql(struct chaos_run *run)
{
    struct rows rows = {.run = run};
    struct once_error why;
    for (size_t i = 0; i < run->n_keys; i++)
        run->keys[i].effects = 0;
    if (once_select(run->wishes.store, run->wishes.verify, row_take, &rows, &why))
        return cli_fail(run->cli, STATUS_FAILED, "is --store the database of the effects?", "%s",
                        printable(run->cli, bytes_str(why.text)));
    if (rows.bad)
        return cli_fail(run->cli, STATUS_USAGE,
                        "SELECT key, COUNT(*) … GROUP BY key, or SELECT COUNT(*) …",
                        "the second column of --verify is no number");
    effects_count(run, &rows);
    return STATUS_OK;
}

/* ---- by a program ---- */

/* Its stdout is our stderr: stdout has records and nothing else. */
static pid_t program_start(const char *command, int in[2])
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    (void)signal(SIGPIPE, SIG_DFL);
    if (dup2(in[0], STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        _exit(127);
    (void)close(in[0]);
    (void)close(in[1]);
    (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static void keys_write(const struct chaos_run *run, int fd)
{
    FILE *out = fdopen(fd, "w");
    if (!out) {
        (void)close(fd);
        return;
    }
    for (size_t i = 0; i < run->n_keys && !ferror(out); i++)
        (void)fprintf(out, "%s\n", run->keys[i].text);
    (void)fclose(out); /* a program that does not read them all has its reasons */
}

static int look_program(struct chaos_run *run)
{
    int in[2], ended = 0;
    pid_t pid = pipe(in) == 0 ? program_start(run->wishes.program, in) : -1;
    if (pid < 0)
        return cli_fail(run->cli, STATUS_FAILED, NULL, "--verify-exec cannot be started: %s",
                        strerror(errno));
    (void)close(in[0]);
    keys_write(run, in[1]);
    while (waitpid(pid, &ended, 0) < 0 && errno == EINTR)
        ;
    int code = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
    if (code >= 126 && code != NOT_YET)
        return cli_fail(run->cli, STATUS_FAILED, "status 0 is right, 75 not yet, others wrong",
                        "--verify-exec could not be run, or was killed: status %d", code);
    run->effects =
        (struct chaos_effects){.known = true, .not_yet = code == NOT_YET, .right = code == 0};
    return STATUS_OK;
}

int chaos_look(struct chaos_run *run)
{
    if (run->wishes.program)
        return look_program(run);
    return run->wishes.verify ? look_sql(run) : STATUS_OK;
}
