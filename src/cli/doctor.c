/* doctor.c - `oncemq doctor`: the checks in their order, what they found, and the verdict. */
#include "cli/doctor_int.h"

#include <stdarg.h>
#include <stdlib.h>

#define PAGE 20 /* findings of one check that are told one by one */

const struct column doctor_columns[] = {
    {"check", COLUMN_TEXT, "CHECK", "what was looked at; a name that stays"},
    {"state", COLUMN_STATE, "STATE", "the verdict"},
    {"about", COLUMN_TEXT, "ABOUT", "which server, topic or group; null: all of them"},
    {"found", COLUMN_TEXT, "FOUND", "what is so"},
    {"advice", COLUMN_TEXT, "WHAT TO DO", "null: nothing"},
    {NULL},
};
const struct opt doctor_options[] = {
    {"lag", OPT_NUMBER, "N", "a lag from which on it is a warning; 10000"},
    {"wait", OPT_DURATION, "TIME", "how long is watched whether a lag grows; 2s"},
    {NULL},
};

static void told(struct doctor *d, enum health state, const char *about, const char *found,
                 const char *advice)
{
    static const char *const words[] = {"ok", "warn", "bad"};
    row_begin(d->cli);
    put_text(d->cli, "check", d->check);
    put_text(d->cli, "state", words[state]);
    put_text(d->cli, "about", about);
    put_text(d->cli, "found", found);
    put_text(d->cli, "advice", advice);
    row_end(d->cli);
}

void check_begin(struct doctor *d, const char *check)
{
    d->check = check;
    d->n_wrong = 0;
    d->hidden = HEALTH_OK;
}

void wrong(struct doctor *d, enum health state, const char *about, const char *advice,
           const char *format, ...)
{
    char found[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(found, sizeof found, format, args);
    va_end(args);
    d->worst = state > d->worst ? state : d->worst;
    if (++d->n_wrong <= PAGE)
        told(d, state, about, found, advice);
    else
        d->hidden = state > d->hidden ? state : d->hidden;
}

void check_end(struct doctor *d, const char *format, ...)
{
    char found[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(found, sizeof found, format, args);
    va_end(args);
    if (d->n_wrong > PAGE) {
        (void)snprintf(found, sizeof found, "and %zu more of the same kind", d->n_wrong - PAGE);
        told(d, d->hidden, NULL, found, NULL);
    } else if (d->n_wrong == 0)
        told(d, HEALTH_OK, NULL, found, NULL);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool names_have(const struct admin_names *sorted, const char *name)
{
    return sorted->n > 0 &&
           bsearch(&name, sorted->names, sorted->n, sizeof *sorted->names, by_text);
}

int doctor_run(struct cli *cli)
{
    int status;
    if (!cli_client(cli, &status))
        return status;
    cli_catch_stop(cli);
    struct doctor d = {.cli = cli, .lag_most = arg_number(cli, "lag", 10000)};
    doctor_names(&d);
    if (d.n_answering > 0)
        doctor_brokers(&d);
    doctor_here(&d);
    if (d.up.n > 0)
        doctor_topics(&d);
    if (d.up.n > 0)
        doctor_groups(&d);
    if (d.n_answering == 0)
        return STATUS_UNREACHABLE;
    return d.worst == HEALTH_OK     ? STATUS_OK
           : d.worst == HEALTH_WARN ? STATUS_PARTLY
                                    : STATUS_FAILED;
}
