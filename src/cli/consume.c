/* consume.c - `oncemq consume`: messages as they come.
 *
 * Without a group it reads all queues and disturbs nobody: nothing is committed, and no group hears
 * of it. It begins where it was told and goes on (a reader with queues of its own), or stops at
 * what was the end when it began (a scan). With a group it is a member like any other: messages it
 * prints are done, those that it cannot print come again.
 */
#include "cli/commands_int.h"
#include "cli/message.h"
#include "cli/scan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_EVERY_MS   200   /* at Ctrl-C and the clock */
#define QUEUES_EVERY_MS 30000 /* the topic may have got more */
#define READER_GROUP    "TOOLS_CONSUMER"

struct consume {
    struct cli *cli;
    struct omq_client *client;
    const char *topic, *group;
    struct omq_subscription filter;
    const struct form *form; /* NULL: records */
    int start;               /* enum omq_start */
    int64_t start_ms;
    uint64_t count, max; /* printed; 0: no limit */
    int64_t until_ms;    /* 0: no limit */
};

/* ---- printing ---- */

static void print(struct consume *c, const struct omq_delivery *d)
{
    c->count++;
    if (c->form) {
        form_write(c->cli, c->form, d);
        return;
    }
    row_begin(c->cli);
    message_put(c->cli, d, SIZE_MAX);
    row_end(c->cli);
}

static bool is_enough(const struct consume *c)
{
    return c->max > 0 && c->count >= c->max;
}

static bool is_over(struct consume *c)
{
    return cli_stopped(c->cli) || out_broken(c->cli) || is_enough(c) ||
           (c->until_ms > 0 && now_ms() >= c->until_ms);
}

/* How long to wait for the next messages. */
static int patience(const struct consume *c)
{
    int64_t left = c->until_ms > 0 ? c->until_ms - now_ms() : LOOK_EVERY_MS;
    return left < 1 ? 1 : left < LOOK_EVERY_MS ? (int)left : LOOK_EVERY_MS;
}

/* ---- what there is ---- */

static int consume_scan(struct consume *c)
{
    struct scan scan;
    int status = scan_open(&scan, c->cli, c->topic);
    if (!status && c->start == OMQ_FROM_TIME)
        status = scan_begin_at(&scan, c->start_ms);
    if (c->filter.expression)
        scan.filter = &c->filter;
    while (!status && !is_over(c)) {
        const struct omq_delivery *d;
        status = scan_next(&scan, &d, NULL);
        if (!status && !d)
            break;
        if (!status)
            print(c, d);
    }
    scan_close(&scan);
    return status;
}

/* ---- as nobody ---- */

struct tail {
    struct consume *c;
    struct omq_reader *reader;
    struct omq_queue *queues;
    size_t n;
};

static bool has_queue(const struct omq_queue *queues, size_t n, const struct omq_queue *q)
{
    for (size_t i = 0; i < n; i++)
        if (queues[i].id == q->id && strcmp(queues[i].broker, q->broker) == 0)
            return true;
    return false;
}

static int start_of(struct consume *c, const struct omq_queue *queue, bool is_new, int64_t *offset,
                    struct omq_error *why)
{
    if (c->start == OMQ_FROM_TIME && !is_new)
        return omq_offset_at(c->client, queue, c->start_ms, offset, why);
    return omq_offset(c->client, queue, c->start == OMQ_FROM_LAST && !is_new ? OMQ_END : OMQ_BEGIN,
                      offset, why);
}

/* Takes the queues of the topic. One that was not there before is read from its beginning. */
static int tail_queues(struct tail *t, struct omq_error *why)
{
    struct consume *c = t->c;
    struct omq_queue *queues;
    size_t n;
    int code = omq_topic_readable(c->client, c->topic, &queues, &n, why);
    if (code)
        return code;
    int64_t *offsets = calloc(n + 1, sizeof *offsets);
    for (size_t i = 0; !code && offsets && i < n; i++)
        if (!has_queue(t->queues, t->n, &queues[i]))
            code = start_of(c, &queues[i], t->queues != NULL, &offsets[i], why);
    if (!code && offsets)
        code = omq_reader_assign(t->reader, queues, n, why);
    for (size_t i = 0; !code && offsets && i < n; i++)
        if (!has_queue(t->queues, t->n, &queues[i]))
            code = omq_reader_seek(t->reader, &queues[i], offsets[i], why);
    if (!offsets)
        *why = (struct omq_error){.code = code = OMQ_NO_MEMORY, .text = "no memory for queues"};
    free(offsets);
    if (code) {
        omq_queues_free(queues);
        return code;
    }
    omq_queues_free(t->queues);
    t->queues = queues;
    t->n = n;
    return OMQ_OK;
}

/* A broker that does not take the filter says so only when it is asked. */
static int filter_check(struct tail *t, struct omq_error *why)
{
    struct omq_read read = {.queue = t->queues[0], .filter = &t->c->filter, .max = 1};
    struct omq_found found;
    int64_t next;
    int code = omq_read(t->c->client, &read, &found, &next, why);
    if (!code)
        omq_found_free(&found);
    return code;
}

/* What was taken is printed, also when it came just as we were to stop: a member says that it is
 * done. */
static void print_batch(struct consume *c, struct omq_batch *batch)
{
    size_t n;
    const struct omq_delivery *const *messages = omq_batch_messages(batch, &n);
    for (size_t i = 0; i < n && !is_enough(c); i++)
        print(c, messages[i]);
    out_flush(c->cli);
}

static int tail_run(struct tail *t)
{
    struct consume *c = t->c;
    struct omq_error why;
    int code = tail_queues(t, &why);
    if (!code && c->filter.expression && t->n > 0)
        code = filter_check(t, &why);
    int64_t looked_ms = now_ms();
    while (!code && !is_over(c)) {
        struct omq_batch *batch;
        code = omq_reader_take(t->reader, patience(c), &batch, &why);
        if (code == OMQ_OK) {
            print_batch(c, batch);
            omq_batch_finish(batch, OMQ_DONE, 0);
        } else if (code == OMQ_TIMEOUT)
            code = OMQ_OK;
        if (now_ms() - looked_ms > QUEUES_EVERY_MS) {
            struct omq_error later;
            (void)tail_queues(t, &later); /* the next time, then */
            looked_ms = now_ms();
        }
    }
    return code ? cli_fail_omq(c->cli, &why, NULL) : STATUS_OK;
}

static int consume_tail(struct consume *c)
{
    struct omq_reader_options options = {.group = READER_GROUP,
                                         .commit_every_ms = -1,
                                         .expression = c->filter.expression,
                                         .sql = c->filter.sql,
                                         .pull_batch = 32};
    struct tail tail = {.c = c};
    struct omq_error why;
    if (omq_reader_open(c->client, &options, &tail.reader, &why))
        return cli_fail_omq(c->cli, &why, NULL);
    int status = tail_run(&tail);
    omq_reader_close(tail.reader);
    omq_queues_free(tail.queues);
    return status;
}

/* ---- as a member ---- */

/* What was printed is done. A batch that nobody could read is left as it is: the consumer is
 * closed, and it comes again to whoever is next. */
static int member_run(struct consume *c, struct omq_consumer *consumer, struct omq_batch **left)
{
    struct omq_error why;
    int code = OMQ_OK;
    while (!code && !is_over(c)) {
        struct omq_batch *batch;
        code = omq_consumer_take(consumer, patience(c), &batch, &why);
        if (code == OMQ_OK) {
            print_batch(c, batch);
            if (out_broken(c->cli))
                *left = batch;
            else
                omq_batch_finish(batch, OMQ_DONE, 0);
        } else if (code == OMQ_TIMEOUT)
            code = OMQ_OK;
    }
    return code ? cli_fail_omq(c->cli, &why, NULL) : STATUS_OK;
}

static int consume_member(struct consume *c)
{
    struct omq_subscription subscription = c->filter;
    subscription.topic = c->topic;
    struct omq_consumer_options options = {
        .group = c->group,
        .subscriptions = &subscription,
        .n_subscriptions = 1,
        .ordered = arg_has(c->cli, "ordered"),
        .start = c->start,
        .start_ms = c->start_ms,
        .batch = 1, /* so that no more are done than were printed */
        .close_ms = 1000,
        .trace = arg_has(c->cli, "trace"),
    };
    struct omq_consumer *consumer;
    struct omq_batch *left = NULL;
    struct omq_error why;
    struct omq_queue *queues;
    size_t n;
    if (omq_topic_readable(c->client, c->topic, &queues, &n, &why))
        return cli_fail_omq(c->cli, &why, NULL); /* else it would wait without a word */
    omq_queues_free(queues);
    if (omq_consumer_open(c->client, &options, &consumer, &why))
        return cli_fail_omq(c->cli, &why, NULL);
    int status = member_run(c, consumer, &left);
    omq_consumer_close(consumer);
    if (left)
        omq_batch_finish(left, OMQ_LATER, 0); /* behind the close it counts no more */
    return status;
}

/* ---- the command ---- */

static int start_read(struct consume *c, const char *text)
{
    c->start = OMQ_FROM_LAST;
    if (strcmp(text, "now") == 0)
        return STATUS_OK;
    if (strcmp(text, "first") == 0) {
        c->start = OMQ_FROM_FIRST;
        return STATUS_OK;
    }
    if (!value_time(text, now_ms(), &c->start_ms))
        return cli_fail(c->cli, STATUS_USAGE, NULL,
                        "--from %s is not valid: it must be now, first, or a time: -1h, 14:30, "
                        "2026-11-16T14:30:00Z",
                        printable(c->cli, bytes_str(text)));
    c->start = OMQ_FROM_TIME;
    return STATUS_OK;
}

static int form_choose(struct consume *c)
{
    struct cli *cli = c->cli;
    const char *text = arg_text(cli, "format", arg_has(cli, "raw") ? "{raw}\\n" : NULL);
    if (!text)
        return STATUS_OK;
    if (cli->json || (arg_has(cli, "format") && arg_has(cli, "raw")))
        return cli_fail(cli, STATUS_USAGE, NULL, "--format, --raw and --json do not go together");
    c->form = form_read(cli, text);
    return c->form ? STATUS_OK : STATUS_USAGE;
}

static int consume_read(struct consume *c)
{
    struct cli *cli = c->cli;
    c->topic = arg_at(cli, 0);
    c->group = arg_text(cli, "group", NULL);
    c->max = (uint64_t)arg_number(cli, "count", 0);
    if (arg_has(cli, "count") && c->max == 0)
        return cli_fail(cli, STATUS_USAGE, NULL, "--count 0 consumes nothing");
    if (arg_has(cli, "for"))
        c->until_ms = now_ms() + arg_number(cli, "for", 0);
    c->filter.expression = arg_text(cli, "filter", arg_text(cli, "sql", NULL));
    c->filter.sql = arg_has(cli, "sql");
    if (arg_has(cli, "filter") && arg_has(cli, "sql"))
        return cli_fail(cli, STATUS_USAGE, NULL, "--filter and --sql do not go together");
    if (c->group && arg_has(cli, "end"))
        return cli_fail(cli, STATUS_USAGE, "--for 5s ends it after a while",
                        "--end and --group do not go together: a member shares its queues");
    if (!c->group && (arg_has(cli, "ordered") || arg_has(cli, "trace")))
        return cli_fail(cli, STATUS_USAGE, NULL, "--ordered and --trace want a --group");
    int status = start_read(c, arg_text(cli, "from", arg_has(cli, "end") ? "first" : "now"));
    return status ? status : form_choose(c);
}

static int consume_run(struct cli *cli)
{
    struct consume c = {.cli = cli};
    int status = consume_read(&c);
    if (status)
        return status;
    cli_catch_stop(cli);
    c.client = cli_client(cli, &status);
    if (!c.client)
        return status;
    if (c.group)
        return consume_member(&c);
    return arg_has(cli, "end") ? consume_scan(&c) : consume_tail(&c);
}

static const struct column consume_columns[] = {MESSAGE_COLUMNS, {NULL}};

static const struct opt consume_options[] = {
    {"from", OPT_TEXT, "WHERE",
     "now (the default), first, or a time such as -1h; with --group: where a new group begins"},
    {"end", OPT_SWITCH, NULL, "stop at what is the end now; from the first one on", .letter = 'e'},
    {"count", OPT_NUMBER, "N", "stop after so many", .letter = 'c'},
    {"for", OPT_DURATION, "TIME", "stop after so long"},
    {"filter", OPT_TEXT, "TAGS", "only these: 'created || paid'", .letter = 't'},
    {"sql", OPT_TEXT, "EXPRESSION",
     "only those whose properties fit: 'price > 5 AND city IS NOT NULL'"},
    {"format", OPT_TEXT, "FORM", "a form of your own, such as '{id} {tag} {body}\\n'",
     .letter = 'F'},
    {"raw", OPT_SWITCH, NULL, "the bodies as they are, each with a newline behind it"},
    {"group", OPT_TEXT, "GROUP", "take part as a member of this group: what is printed is done",
     .letter = 'g'},
    {"ordered", OPT_SWITCH, NULL, "with --group: one message of a queue at a time, in order"},
    {"trace", OPT_SWITCH, NULL, "with --group: send message trace, for oncemq trace"},
    {NULL},
};

const struct command consume_commands[] = {
    {
        .name = "consume",
        .arguments = "TOPIC",
        .summary = "print messages as they come",
        .text =
            "Without --group all queues are read and nobody is disturbed: nothing is committed, no "
            "group hears of it, and whoever consumes the topic gets its messages all the same. "
            "With --group this is one more member of the group: it gets its share, and what it "
            "has printed is done.\n\n"
            "For people there is a line for each message, with what no terminal should see "
            "escaped; --raw writes bodies as they are. Fields of --format: " FORM_FIELDS
            ". {body} is escaped, {raw} is not; \\n, \\t, \\r, \\0 and \\\\ are understood.",
        .examples = "oncemq consume orders\n"
                    "oncemq consume orders --from -1h --filter 'created || paid'\n"
                    "oncemq consume orders --end --format '{id} {prop.city} {body}\\n'\n"
                    "oncemq consume orders --group billing --count 10 --json",
        .options = consume_options,
        .shape = SHAPE_LINES,
        .columns = consume_columns,
        .run = consume_run,
    },
    {NULL},
};
