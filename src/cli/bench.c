/* bench.c - measuring: the load generator from a shell.
 *
 * A run has topics of its own, which are deleted behind it, unless it was told to use one that is
 * there. What it leaves is said.
 */
#include "cli/admin.h"
#include "cli/bench_int.h"
#include "cli/commands_int.h"
#include "remoting/codes.h"

#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PLOT_EVERY_MS 200
#define WARM_MS       1000
#define CONSUME_COUNT 100000
#define REMEMBERED_MS 600000 /* marks of `bench once` are forgotten after this time */

#define CONNECTIONS_HELP "connections, each with a client of its own; 1"
#define RATE_HELP                                                                                  \
    "messages a second in all; latency counts from when each was due. Default: no limit"
#define RAW_HELP      "bare sockets instead of the client library, which costs more than a broker"
#define INTERVAL_HELP "of progress and of points over time; 1s, with --plot 200ms"

static const struct opt send_options[] = {
    {"topic", OPT_TEXT, "TOPIC", "use this topic, and keep it; default: a new one"},
    {"topics", OPT_NUMBER, "N", "spread over so many topics; 1"},
    {"keep", OPT_SWITCH, NULL, "do not delete the topics that were made"},
    {"size", OPT_SIZE, "BYTES", "of a body; 1KiB"},
    {"connections", OPT_NUMBER, "N", CONNECTIONS_HELP, .letter = 'c'},
    {"in-flight", OPT_NUMBER, "N", "messages under way on each connection; 32", .letter = 'i'},
    {"batch", OPT_NUMBER, "N", "messages of one request; 1"},
    {"rate", OPT_NUMBER, "N", RATE_HELP, .letter = 'r'},
    {"count", OPT_NUMBER, "N", "end after so many messages, in whole batches"},
    {"duration", OPT_DURATION, "TIME", "measure so long; 10s", .letter = 'd'},
    {"warmup", OPT_DURATION, "TIME", "load before it counts; 1s, with --count none"},
    {"raw", OPT_SWITCH, NULL, RAW_HELP},
    {"header", OPT_CHOICE, "FORM", "raw: headers of requests; json", "json|binary"},
    {"interval", OPT_DURATION, "TIME", INTERVAL_HELP},
    {"plot", OPT_TEXT, "FILE", "draw latency and throughput over time into an SVG file"},
    {NULL},
};

static const struct opt consume_options[] = {
    {"topic", OPT_TEXT, "TOPIC", "use this topic, and keep it; default: a new one"},
    {"topics", OPT_NUMBER, "N", "spread over so many topics; 1"},
    {"keep", OPT_SWITCH, NULL, "do not delete the topics that were made"},
    {"size", OPT_SIZE, "BYTES", "of a body; 1KiB"},
    {"connections", OPT_NUMBER, "N", CONNECTIONS_HELP, .letter = 'c'},
    {"batch", OPT_NUMBER, "N", "messages that one pull asks for; 32"},
    {"count", OPT_NUMBER, "N", "messages to write first, and to take; 100k"},
    {"duration", OPT_DURATION, "TIME", "end after this time at the latest", .letter = 'd'},
    {"raw", OPT_SWITCH, NULL, RAW_HELP},
    {"header", OPT_CHOICE, "FORM", "raw: headers of requests; json", "json|binary"},
    {"interval", OPT_DURATION, "TIME", INTERVAL_HELP},
    {"plot", OPT_TEXT, "FILE", "draw latency and throughput over time into an SVG file"},
    {NULL},
};

static const struct opt once_options[] = {
    {"store", OPT_TEXT, "URL", "where claims are kept, as for oncemq run; memory:"},
    {"mode", OPT_CHOICE, "MODE", "the state lock or the dedup table; lease", "lease|table"},
    {"repeats", OPT_NUMBER, "N", "how often each key comes again; 1"},
    {"size", OPT_SIZE, "BYTES", "of a body; 1KiB"},
    {"connections", OPT_NUMBER, "N", "connections to the store, at most; 1", .letter = 'c'},
    {"in-flight", OPT_NUMBER, "N", "threads that claim at the same time; 32", .letter = 'i'},
    {"batch", OPT_NUMBER, "N", "claims of one round; 1"},
    {"rate", OPT_NUMBER, "N", RATE_HELP, .letter = 'r'},
    {"count", OPT_NUMBER, "N", "end after so many messages, in whole batches"},
    {"duration", OPT_DURATION, "TIME", "measure so long; 10s", .letter = 'd'},
    {"warmup", OPT_DURATION, "TIME", "load before it counts; 1s, with --count none"},
    {"interval", OPT_DURATION, "TIME", INTERVAL_HELP},
    {"plot", OPT_TEXT, "FILE", "draw latency and throughput over time into an SVG file"},
    {NULL},
};

/* ---- topics that were made ---- */

/* The same request for each topic to each of these servers. */
static int topics_ask(struct bench *b, int request, const char *const *servers, size_t n)
{
    struct cli *cli = b->cli;
    size_t topics = b->load.topics;
    struct admin_ask *asks = admin_alloc(cli, n * topics, sizeof *asks);
    for (size_t i = 0; i < n * topics; i++) {
        char *topic = admin_alloc(cli, 1, LOAD_NAME_SIZE);
        load_topic_name(&b->load, (unsigned)(i % topics), topic);
        asks[i] = (struct admin_ask){.server = servers[i / topics],
                                     .request = request,
                                     .fields = admin_fields(cli, ASK("topic", topic))};
    }
    int status = admin_ask_all(cli, asks, n * topics);
    return status ? status : admin_verdict(cli, asks, n * topics);
}

/* Brokers first: one that still has it would tell the name servers again. */
static int topics_delete(struct bench *b)
{
    struct admin_cluster cluster;
    int status = admin_cluster(b->cli, &cluster);
    if (status)
        return status;
    const char **masters = admin_alloc(b->cli, cluster.n, sizeof *masters);
    size_t n = 0;
    for (size_t i = 0; i < cluster.n; i++)
        if (cluster.brokers[i].master)
            masters[n++] = cluster.brokers[i].master;
    status = topics_ask(b, REQ_DELETE_TOPIC_IN_BROKER, masters, n);
    struct admin_names names = admin_name_servers(b->cli);
    return status ? status : topics_ask(b, REQ_DELETE_TOPIC_IN_NAMESRV, names.names, names.n);
}

/* What was promised and not kept is a failure, whatever the numbers are. */
static int judge(struct cli *cli, const struct load_result *r)
{
    if (r->missing > 0 || r->out_of_row > 0)
        return cli_fail(cli, STATUS_FAILED, NULL,
                        "%" PRIu64 " acknowledged messages did not come, %" PRIu64
                        " came out of their row",
                        r->missing, r->out_of_row);
    if (r->failures > 0)
        return cli_fail(cli, STATUS_PARTLY, NULL, "%" PRIu64 " messages failed; the first: %s",
                        r->failures, r->failure);
    return STATUS_OK;
}

/* ---- running ---- */

static bool bench_stopped(void *user)
{
    const struct bench *b = user;
    return cli_stopped(b->cli);
}

static int status_of_load(enum err err)
{
    switch (err) {
    case ERR_INVALID:
        return STATUS_USAGE;
    case ERR_UNKNOWN_TOPIC:
    case ERR_NOT_FOUND:
        return STATUS_NOT_FOUND;
    case ERR_CLOSED:
    case ERR_TIMEOUT:
        return STATUS_UNREACHABLE;
    default:
        return STATUS_FAILED;
    }
}

/* As many open files as this process may have: a connection is one, a client some more. */
static void files_allow(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

static int bench_run(struct bench *b)
{
    struct cli *cli = b->cli;
    struct load_result result;
    struct fault why = {0};
    int status = bench_plot_begin(b);
    if (status)
        return status;
    cli_catch_stop(cli);
    files_allow();
    b->load.progress = bench_progress;
    b->load.stopped = bench_stopped;
    b->load.user = b;
    enum err err = load_run(&b->load, &result, &why);
    bench_progress_end(b);
    if (err) {
        bench_plot_forget(b);
        return cli_fail(cli, status_of_load(err),
                        err == ERR_CLOSED ? "is the daemon up? --names or ONCEMQ_NAMES says where"
                                          : NULL,
                        "%s", why.text[0] ? why.text : err_text(err));
    }
    status = b->own ? topics_delete(b) : STATUS_OK;
    bench_put(b, &result, b->own && !status);
    int judged = judge(cli, &result), plotted = bench_plot_end(b, &result);
    load_result_clear(&result);
    return judged ? judged : status ? status : plotted;
}

/* Options that all have. */
static void options_take(struct bench *b)
{
    struct cli *cli = b->cli;
    struct load_options *o = &b->load;
    bool count = arg_has(cli, "count");
    o->connections = (unsigned)arg_number(cli, "connections", 1);
    o->size = (uint32_t)arg_number(cli, "size", 1024);
    o->batch = (unsigned)arg_number(cli, "batch", 0);
    o->count = (uint64_t)arg_number(cli, "count", 0);
    o->run_ms = (uint64_t)arg_number(cli, "duration", 0);
    o->interval_ms =
        (uint64_t)arg_number(cli, "interval", arg_has(cli, "plot") ? PLOT_EVERY_MS : 1000);
    if (o->kind == LOAD_CONSUME)
        return;
    o->in_flight = (unsigned)arg_number(cli, "in-flight", 32);
    o->rate = (double)arg_number(cli, "rate", 0);
    o->warm_ms = (uint64_t)arg_number(cli, "warmup", count ? 0 : WARM_MS);
}

/* Numbers that do not fit their types were cut above. */
static int numbers_check(struct cli *cli)
{
    static const char *const names[] = {"connections", "size",   "batch",
                                        "in-flight",   "topics", "repeats"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (opt_find(cli->command, bytes_str(names[i])) &&
            arg_number(cli, names[i], 1) - 1 >= INT32_MAX)
            return cli_fail(cli, STATUS_USAGE, NULL, "--%s is too big", names[i]);
    return STATUS_OK;
}

static int bench_topics(struct cli *cli, enum load_kind kind)
{
    struct bench b = {.cli = cli, .load.kind = kind, .plot_fd = -1};
    const struct omq_client_options client = cli_client_options(cli);
    const char *topic = arg_text(cli, "topic", NULL);
    int status = numbers_check(cli);
    if (status)
        return status;
    options_take(&b);
    b.load.client = &client;
    b.load.topics = (unsigned)arg_number(cli, "topics", 1);
    b.load.topic = topic;
    b.load.group = BENCH_GROUP;
    b.load.raw = arg_has(cli, "raw");
    b.load.binary = strcmp(arg_text(cli, "header", "json"), "binary") == 0;
    if (b.load.binary && !b.load.raw)
        return cli_fail(cli, STATUS_USAGE, "add --raw", "the library chooses its headers itself");
    if (!topic) {
        (void)snprintf(b.topic, sizeof b.topic, "oncemq-bench-%" PRId64 "-%ld", now_ms(),
                       (long)getpid());
        b.load.topic = b.topic;
        b.own = !arg_has(cli, "keep");
    }
    if (kind == LOAD_CONSUME && !topic) {
        b.load.count = b.load.count ? b.load.count : CONSUME_COUNT;
        b.load.fill = b.load.count;
    }
    return bench_run(&b);
}

static int bench_send(struct cli *cli)
{
    return bench_topics(cli, LOAD_SEND);
}

static int bench_consume(struct cli *cli)
{
    return bench_topics(cli, LOAD_CONSUME);
}

static int bench_e2e(struct cli *cli)
{
    return bench_topics(cli, LOAD_E2E);
}

static int bench_once(struct cli *cli)
{
    struct bench b = {.cli = cli, .load.kind = LOAD_ONCE, .plot_fd = -1};
    const struct omq_client_options client = cli_client_options(cli);
    const struct once_options with = {
        .store = arg_text(cli, "store", "memory:"),
        .client = &client,
        .mode = strcmp(arg_text(cli, "mode", "lease"), "table") == 0 ? ONCE_TABLE : ONCE_LEASE,
        .group = BENCH_GROUP,
        .table = BENCH_TABLE,
        .create = true,
        .retention_ms = REMEMBERED_MS,
        .retention_short = true,
    };
    int status = numbers_check(cli);
    if (status)
        return status;
    options_take(&b);
    b.load.once = &with;
    b.load.repeats = (unsigned)arg_number(cli, "repeats", 1);
    return bench_run(&b);
}

#define TEXT_RATE                                                                                  \
    "Without --rate there are always --in-flight messages under way on each connection: that "     \
    "shows what can be had, and latencies are those of a full pipe. With --rate a message has a "  \
    "time at which it is due, and its latency counts from there, so a server that stalls cannot "  \
    "hide what would have been sent meanwhile."

const struct command bench_commands[] = {
    {
        .name = "bench send",
        .summary = "how fast messages are stored, and how long each takes",
        .text = TEXT_RATE "\n\nThe topic is made for the run and deleted behind it, unless --topic "
                          "or --keep is given.",
        .examples = "oncemq bench send -c 8 -i 32 --size 1k\n"
                    "oncemq bench send --rate 1000 -d 30s --plot send.svg",
        .options = send_options,
        .shape = SHAPE_ONE,
        .columns = bench_columns,
        .run = bench_send,
    },
    {
        .name = "bench consume",
        .summary = "how fast a backlog is taken",
        .text = "Writes --count messages and takes them all, or takes what is in --topic, from its "
                "beginning. Each connection has a part of the queues. No offset is committed.",
        .examples = "oncemq bench consume --count 1M -c 4",
        .options = consume_options,
        .shape = SHAPE_ONE,
        .columns = bench_columns,
        .run = bench_consume,
    },
    {
        .name = "bench e2e",
        .summary = "how long a message takes from its producer to a consumer that waits for it",
        .text = TEXT_RATE,
        .examples = "oncemq bench e2e --rate 10k -d 30s --plot e2e.svg",
        .options = send_options,
        .shape = SHAPE_ONE,
        .columns = bench_columns,
        .run = bench_e2e,
    },
    {
        .name = "bench once",
        .summary = "what a claim of an idempotence store costs",
        .text = "Claims fresh keys and marks them as done, around a handler that does nothing, and "
                "brings each again --repeats times. Times of fresh and of repeated keys are told "
                "apart. --in-flight threads share --connections connections to the store.",
        .examples = "oncemq bench once --store redis://127.0.0.1 -c 8 -i 64",
        .options = once_options,
        .shape = SHAPE_ONE,
        .columns = bench_columns,
        .run = bench_once,
    },
    {NULL},
};
