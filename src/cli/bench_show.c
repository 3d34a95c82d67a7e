/* bench_show.c - a measurement for people and programs: progress, the record, the plot. */
#include "cli/bench_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define PLOT_MAX (64u << 20)

/* ---- the form ---- */

static const struct column times_columns[] = {
    {"of", COLUMN_TEXT, "LATENCY", "what took that long"},
    {"count", COLUMN_NUMBER, "COUNT", "how many were measured"},
    {"min_us", COLUMN_REAL, NULL, "the quickest, in µs"},
    {"mean_us", COLUMN_REAL, "MEAN µs", "the mean, in µs"},
    {"p50_us", COLUMN_REAL, "P50 µs", "half of them were quicker, in µs"},
    {"p90_us", COLUMN_REAL, "P90 µs", "90 of 100 were quicker"},
    {"p99_us", COLUMN_REAL, "P99 µs", "99 of 100"},
    {"p999_us", COLUMN_REAL, "P99.9 µs", "999 of 1000"},
    {"max_us", COLUMN_REAL, "MAX µs", "the slowest"},
    {NULL},
};

static const struct column point_columns[] = {
    {"seconds", COLUMN_REAL, "SECONDS", "since it began: the end of this piece of time"},
    {"per_second", COLUMN_REAL, "PER SECOND", "messages a second in it"},
    {"failures", COLUMN_NUMBER, "FAILURES", "in it"},
    {"p50_us", COLUMN_REAL, "P50 µs", "of what came in it"},
    {"p99_us", COLUMN_REAL, "P99 µs", "of what came in it"},
    {"max_us", COLUMN_REAL, "MAX µs", "of what came in it"},
    {NULL},
};

const struct column bench_columns[] = {
    {"bench", COLUMN_TEXT, NULL, "send, consume, e2e or once"},
    {"topic", COLUMN_TEXT, "Topic", "or the first part of their names; null for once"},
    {"topics", COLUMN_NUMBER, NULL, "how many"},
    {"connections", COLUMN_NUMBER, NULL, "how many"},
    {"in_flight", COLUMN_NUMBER, NULL, "places of each connection; for once: threads"},
    {"batch", COLUMN_NUMBER, NULL, "messages of one request"},
    {"size", COLUMN_NUMBER, NULL, "bytes of a body"},
    {"rate", COLUMN_REAL, NULL, "messages a second that were wanted; null: as many as can be"},
    {"raw", COLUMN_BOOL, NULL, "bare sockets, no client library"},
    {"begin_ms", COLUMN_TIME, NULL, "when measuring began"},
    {"seconds", COLUMN_REAL, "Seconds", "measured"},
    {"stopped", COLUMN_BOOL, NULL, "it was interrupted"},
    {"messages", COLUMN_NUMBER, "Messages", "that came through"},
    {"per_second", COLUMN_REAL, "Per second", "messages"},
    {"bytes_per_second", COLUMN_SIZE, "Bytes a second", "of their bodies"},
    {"failures", COLUMN_NUMBER, "Failures", "messages that did not"},
    {"first_failure", COLUMN_TEXT, "First failure", "its words"},
    {"sent", COLUMN_NUMBER, "Acknowledged", "e2e: messages"},
    {"missing", COLUMN_NUMBER, "Missing", "e2e: messages that were acknowledged and did not come"},
    {"out_of_row", COLUMN_NUMBER, "Out of row",
     "consume, e2e: offsets that did not follow the one before in their queue"},
    {"stored", COLUMN_NUMBER, NULL, "messages that it left in its topics, warming up included"},
    {"cpu_seconds", COLUMN_REAL, "Own CPU seconds", "of the generator, while it measured"},
    {"left_behind", COLUMN_TEXT, "Left behind", "what is still there"},
    {"latency", COLUMN_LIST, "In microseconds", "one record for each kind of time", times_columns},
    {"over_time", COLUMN_LIST, NULL, "one record for each --interval", point_columns},
    {NULL},
};

/* ---- progress ---- */

static void how_far(const struct load_progress *p, char out[64])
{
    if (p->of_messages > 0)
        (void)snprintf(out, 64, "%" PRIu64 "/%" PRIu64, p->messages, p->of_messages);
    else if (p->of_seconds > 0)
        (void)snprintf(out, 64, "%.0f/%.0f s", p->seconds, p->of_seconds);
    else
        (void)snprintf(out, 64, "%.0f s", p->seconds);
}

void bench_progress(void *user, const struct load_progress *p)
{
    struct bench *b = user;
    const struct cli *cli = b->cli;
    char far[64];
    if (!cli->terminal_err || cli->quiet || cli->json)
        return;
    how_far(p, far);
    (void)fprintf(stderr, "\r\033[K%s %s  %.0f/s", load_phase_name(p->phase), far, p->per_second);
    if (p->most_ns > 0)
        (void)fprintf(stderr, "  p50 %.2f ms  p99 %.2f ms  max %.2f ms", (double)p->p50_ns / 1e6,
                      (double)p->p99_ns / 1e6, (double)p->most_ns / 1e6);
    if (p->failures > 0)
        (void)fprintf(stderr, "  %" PRIu64 " failures", p->failures);
    (void)fflush(stderr);
    b->drawn = true;
}

void bench_progress_end(const struct bench *b)
{
    if (b->drawn)
        (void)fputs("\r\033[K", stderr);
}

/* ---- the plot: a file beside, which takes its place when it is whole ---- */

int bench_plot_begin(struct bench *b)
{
    const char *file = arg_text(b->cli, "plot", NULL);
    b->plot_fd = -1;
    if (!file)
        return STATUS_OK;
    int n = snprintf(b->plot, sizeof b->plot, "%s.new", file);
    if (n > 0 && (size_t)n < sizeof b->plot)
        b->plot_fd = open(b->plot, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (b->plot_fd < 0)
        return cli_fail(b->cli, STATUS_USAGE, NULL, "the plot cannot be written to %s: %s", file,
                        strerror(errno));
    return STATUS_OK;
}

void bench_plot_forget(struct bench *b)
{
    if (b->plot_fd < 0)
        return;
    (void)close(b->plot_fd);
    (void)unlink(b->plot);
    b->plot_fd = -1;
}

int bench_plot_end(struct bench *b, const struct load_result *r)
{
    if (b->plot_fd < 0)
        return STATUS_OK;
    struct buf svg = buf_upto(PLOT_MAX);
    load_result_plot(&b->load, r, &svg);
    size_t done = 0;
    ssize_t n = 0;
    while (!svg.err && done < svg.len && (n = write(b->plot_fd, svg.at + done, svg.len - done)) > 0)
        done += (size_t)n;
    const char *file = arg_text(b->cli, "plot", NULL);
    bool good = !svg.err && done == svg.len && rename(b->plot, file) == 0;
    int error = errno;
    buf_clear(&svg);
    if (!good) {
        bench_plot_forget(b);
        return cli_fail(b->cli, STATUS_PARTLY, NULL, "the plot cannot be written to %s: %s", file,
                        strerror(error));
    }
    (void)close(b->plot_fd);
    b->plot_fd = -1;
    cli_note(b->cli, "plot: %s", file);
    return STATUS_OK;
}

/* ---- results ---- */

static void put_times(struct cli *cli, const struct load_options *o, const struct load_result *r)
{
    list_open(cli, "latency");
    for (int i = 0; i < LOAD_TIMES; i++) {
        const struct histogram *h = r->times[i];
        if (h->count == 0)
            continue;
        row_begin(cli);
        put_text(cli, "of", load_times_name(o->kind, (enum load_times)i));
        put_number(cli, "count", (int64_t)h->count);
        put_real(cli, "min_us", (double)h->least / 1e3);
        put_real(cli, "mean_us", histogram_mean(h) / 1e3);
        put_real(cli, "p50_us", (double)histogram_at(h, 0.5) / 1e3);
        put_real(cli, "p90_us", (double)histogram_at(h, 0.9) / 1e3);
        put_real(cli, "p99_us", (double)histogram_at(h, 0.99) / 1e3);
        put_real(cli, "p999_us", (double)histogram_at(h, 0.999) / 1e3);
        put_real(cli, "max_us", (double)h->most / 1e3);
        row_end(cli);
    }
    list_close(cli);
}

static void put_points(struct cli *cli, const struct load_result *r)
{
    list_open(cli, "over_time");
    for (size_t i = 0; i < r->n_points; i++) {
        const struct load_point *p = &r->points[i];
        row_begin(cli);
        put_real(cli, "seconds", p->at_s);
        put_real(cli, "per_second", (double)p->messages / p->span_s);
        put_number(cli, "failures", (int64_t)p->failures);
        put_real(cli, "p50_us", (double)p->p50_ns / 1e3);
        put_real(cli, "p99_us", (double)p->p99_ns / 1e3);
        put_real(cli, "max_us", (double)p->most_ns / 1e3);
        row_end(cli);
    }
    list_close(cli);
}

static void put_settings(struct cli *cli, const struct load_options *given)
{
    struct load_options o;
    load_defaults(given, &o);
    put_text(cli, "bench", load_kind_name(o.kind));
    if (o.kind != LOAD_ONCE) {
        put_text(cli, "topic", o.topic);
        put_number(cli, "topics", o.topics);
        put_bool(cli, "raw", o.raw);
    }
    put_number(cli, "connections", o.connections);
    put_number(cli, "in_flight", o.in_flight);
    put_number(cli, "batch", o.batch);
    put_number(cli, "size", o.size);
    if (o.rate > 0)
        put_real(cli, "rate", o.rate);
}

static void put_left(struct bench *b, const struct load_result *r, bool deleted)
{
    struct cli *cli = b->cli;
    if (b->load.kind == LOAD_ONCE && strncmp(b->load.once->store, "memory:", 7) == 0)
        put_text(cli, "left_behind", "nothing");
    else if (b->load.kind == LOAD_ONCE && strncmp(b->load.once->store, "broker:", 7) == 0)
        put_format(cli, "left_behind",
                   "%" PRIu64 " marks of group " BENCH_GROUP
                   " in the broker's ledger, which expire after ten minutes",
                   r->stored);
    else if (b->load.kind == LOAD_ONCE)
        put_format(cli, "left_behind",
                   "%" PRIu64 " marks of group " BENCH_GROUP " in the tables or keys " BENCH_TABLE
                   "*, which expire after ten minutes",
                   r->stored);
    else if (b->load.kind == LOAD_CONSUME && b->load.fill == 0)
        put_text(cli, "left_behind", "nothing: no message was sent, no offset committed");
    else if (deleted)
        put_text(cli, "left_behind",
                 "nothing but the log's bytes, until they are too old: its topics were deleted");
    else
        put_format(cli, "left_behind", "%" PRIu64 " messages in topic %s%s", r->stored,
                   b->load.topic, b->load.topics > 1 ? "-*" : "");
}

void bench_put(struct bench *b, const struct load_result *r, bool deleted)
{
    struct cli *cli = b->cli;
    enum load_kind kind = b->load.kind;
    row_begin(cli);
    put_settings(cli, &b->load);
    put_number(cli, "begin_ms", r->begin_ms);
    put_real(cli, "seconds", r->seconds);
    put_bool(cli, "stopped", r->stopped);
    put_number(cli, "messages", (int64_t)r->messages);
    put_real(cli, "per_second", r->seconds > 0 ? (double)r->messages / r->seconds : 0);
    put_number(cli, "bytes_per_second",
               r->seconds > 0 ? (int64_t)((double)r->bytes / r->seconds) : 0);
    put_number(cli, "failures", (int64_t)r->failures);
    if (r->failure[0])
        put_text(cli, "first_failure", r->failure);
    if (kind == LOAD_E2E) {
        put_number(cli, "sent", (int64_t)r->sent);
        put_number(cli, "missing", (int64_t)r->missing);
    }
    if (kind == LOAD_E2E || kind == LOAD_CONSUME)
        put_number(cli, "out_of_row", (int64_t)r->out_of_row);
    if (kind != LOAD_ONCE)
        put_number(cli, "stored", (int64_t)r->stored);
    put_real(cli, "cpu_seconds", r->cpu_seconds);
    put_left(b, r, deleted);
    put_times(cli, &b->load, r);
    put_points(cli, r);
    row_end(cli);
}
