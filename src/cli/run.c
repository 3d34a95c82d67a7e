/* run.c - the sidecar (src/sidecar) as a command: options in, events and a summary out.
 *
 * Events come on the sidecar's threads, and output belongs to the main thread: so they are copied
 * into a queue with an end, which the main thread empties. When nobody reads our output the queue
 * fills, and the sidecar waits. */
#include "cli/commands_int.h"
#include "sidecar/sidecar.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_MAX  2048
#define LOOK_MS    50
#define TOPICS_MAX 64

static const struct column run_columns[] = {
    {"event", COLUMN_TEXT, "EVENT", "done, already, later, failed or dead; log; at last, summary"},
    {"id", COLUMN_TEXT, "ID", "of the message"},
    {"key", COLUMN_TEXT, "KEY", "under which its effect happens once"},
    {"topic", COLUMN_TEXT, "TOPIC", "to which it was sent"},
    {"attempt", COLUMN_NUMBER, "ATTEMPT", "1 is the first"},
    {"took_ms", COLUMN_DURATION, "TOOK", "the worker's time"},
    {"after_ms", COLUMN_DURATION, "AGAIN IN", "of what comes later"},
    {"why", COLUMN_TEXT, "WHY", "in words; of log, the line"},
    {"done", COLUMN_NUMBER, NULL, "summary: effects that happened"},
    {"already", COLUMN_NUMBER, NULL, "summary: messages whose effect had happened before"},
    {"later", COLUMN_NUMBER, NULL, "summary: how often something was put off"},
    {"failed", COLUMN_NUMBER, NULL, "summary: attempts that failed"},
    {"dead", COLUMN_NUMBER, NULL, "summary: of these, the last ones: dead letters"},
    {"given_back", COLUMN_NUMBER, NULL, "summary: messages that had not begun when it stopped"},
    {"restarts", COLUMN_NUMBER, NULL, "summary: of the processes of --pipe"},
    {NULL},
};

static const struct opt run_options[] = {
    {"topic", OPT_TEXT, "TOPIC", "what to consume", .many = true},
    {"group", OPT_TEXT, "GROUP", "the consumer group", .letter = 'g'},
    {"filter", OPT_TEXT, "TAGS", "only these tags: A || B"},
    {"filter-sql", OPT_TEXT, "EXPRESSION", "only messages whose properties fulfil it (SQL92)"},
    {"from", OPT_TEXT, "WHERE", "where a new group begins: first, last (default) or a time"},
    {"exec", OPT_TEXT, "COMMAND", "a program for each message"},
    {"http", OPT_TEXT, "URL", "a POST for each message"},
    {"content-type", OPT_TEXT, "TYPE", "of the POST; application/octet-stream"},
    {"pipe", OPT_TEXT, "COMMAND", "a program that stays, and speaks lines of JSON"},
    {"sql", OPT_TEXT, "STATEMENTS", "in a transaction of the store's database"},
    {"key", OPT_TEXT, "TEMPLATE", "what makes an effect one: order:{body.orderId}; default {key}"},
    {"no-key", OPT_CHOICE, "POLICY", "a message without a key: retry (default)",
     "retry|dead-letter|message-id"},
    {"store", OPT_TEXT, "URL",
     "where it is remembered: broker: (default), sqlite:FILE (--sql: sqlite:once.db), memory:, "
     "redis://…, postgresql://…, mysql://…"},
    {"once-mode", OPT_CHOICE, "MODE", "lease (default) or table; --sql is always a transaction",
     "lease|table"},
    {"create", OPT_SWITCH, NULL, "make the store's tables if they are not there"},
    {"table", OPT_TEXT, "NAME", "first part of the names of its tables; once"},
    {"expiry", OPT_DURATION, "TIME", "of a claim that nobody renews; lease 30s, table 1h"},
    {"retention", OPT_DURATION, "TIME", "how long an effect is remembered; 72h"},
    {"parallel", OPT_NUMBER, "N", "messages at a time; 8. Of --pipe: processes; 1", .letter = 'p'},
    {"in-flight", OPT_NUMBER, "N", "messages that one process of --pipe has at a time; 1000"},
    {"order-by", OPT_TEXT, "TEMPLATE", "equal values run one after another: {body.customer}"},
    {"work-timeout", OPT_DURATION, "TIME", "of the worker, for one message; 60s"},
    {"later", OPT_DURATION, "TIME", "when it comes again if the worker does not say; 10s"},
    {"retries", OPT_NUMBER, "N", "then a message is a dead letter; 16"},
    {"stop-timeout", OPT_DURATION, "TIME", "how long a stop waits for workers; 30s"},
    {"count", OPT_NUMBER, "N", "stop after so many messages"},
    {"idle", OPT_DURATION, "TIME", "stop when nothing came for so long"},
    {"verbose", OPT_SWITCH, NULL, "a line for each message", .letter = 'v'},
    {NULL},
};

/* ---- events ---- */

struct note {
    char event[16];
    char id[80], key[256], topic[160], why[400];
    int64_t attempt, took_ms, after_ms;
    bool message; /* else a line of the log */
    int level;
};

struct notes {
    pthread_mutex_t lock;
    pthread_cond_t room;
    struct note *ring;
    size_t first, n;
    bool open;
};

static void note_put(struct notes *q, const struct note *note)
{
    (void)pthread_mutex_lock(&q->lock);
    while (q->open && q->n == QUEUE_MAX)
        (void)pthread_cond_wait(&q->room, &q->lock);
    if (q->n < QUEUE_MAX)
        q->ring[(q->first + q->n++) % QUEUE_MAX] = *note;
    (void)pthread_mutex_unlock(&q->lock);
}

static bool note_take(struct notes *q, struct note *out)
{
    (void)pthread_mutex_lock(&q->lock);
    bool there = q->n > 0;
    if (there) {
        *out = q->ring[q->first];
        q->first = (q->first + 1) % QUEUE_MAX;
        q->n--;
        (void)pthread_cond_signal(&q->room);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return there;
}

/* Nobody waits for room any more: what has none is lost. */
static void notes_loosen(struct notes *q)
{
    (void)pthread_mutex_lock(&q->lock);
    q->open = false;
    (void)pthread_cond_broadcast(&q->room);
    (void)pthread_mutex_unlock(&q->lock);
}

static void copy(char *to, size_t size, const char *from)
{
    (void)snprintf(to, size, "%s", from ? from : "");
}

static void on_event(void *user, const struct sidecar_event *e)
{
    static const char *const words[] = {"done", "already", "later", "failed", "dead"};
    struct note note = {
        .message = true, .attempt = e->of->attempt, .took_ms = e->took_ms, .after_ms = e->after_ms};
    copy(note.event, sizeof note.event, words[e->fate]);
    copy(note.id, sizeof note.id, e->of->id);
    copy(note.key, sizeof note.key, e->key);
    copy(note.topic, sizeof note.topic, e->of->queue.topic);
    copy(note.why, sizeof note.why, e->why);
    note_put(user, &note);
}

static void on_log(void *user, int level, const char *line)
{
    struct note note = {.event = "log", .level = level};
    copy(note.why, sizeof note.why, line);
    note_put(user, &note);
}

static void note_show(struct cli *cli, const struct note *note)
{
    if (!note->message && !cli->json) {
        if (note->level > SIDECAR_INFO || arg_has(cli, "verbose"))
            cli_note(cli, "%s", printable(cli, bytes_str(note->why)));
        return;
    }
    row_begin(cli);
    put_text(cli, "event", note->event);
    put_text(cli, "why", note->why[0] ? note->why : NULL);
    if (note->message) {
        put_text(cli, "id", note->id);
        put_text(cli, "key", note->key[0] ? note->key : NULL);
        put_text(cli, "topic", note->topic);
        put_number(cli, "attempt", note->attempt);
        put_number(cli, "took_ms", note->took_ms);
        if (strcmp(note->event, "later") == 0)
            put_number(cli, "after_ms", note->after_ms);
    }
    row_end(cli);
}

static void summary(struct cli *cli, const struct sidecar_stats *s)
{
    if (!cli->json) {
        cli_note(cli, "done %llu, already done %llu, later %llu, failed %llu (dead letters %llu)%s",
                 (unsigned long long)s->done, (unsigned long long)s->already,
                 (unsigned long long)s->later, (unsigned long long)s->failed,
                 (unsigned long long)s->dead, s->restarts ? "; the worker was restarted" : "");
        return;
    }
    row_begin(cli);
    put_text(cli, "event", "summary");
    put_number(cli, "done", (int64_t)s->done);
    put_number(cli, "already", (int64_t)s->already);
    put_number(cli, "later", (int64_t)s->later);
    put_number(cli, "failed", (int64_t)s->failed);
    put_number(cli, "dead", (int64_t)s->dead);
    put_number(cli, "given_back", (int64_t)s->given_back);
    put_number(cli, "restarts", (int64_t)s->restarts);
    row_end(cli);
}

/* ---- options ---- */

static int worker_take(struct cli *cli, struct sidecar_options *o)
{
    static const char *const names[] = {[SIDECAR_EXEC] = "exec",
                                        [SIDECAR_HTTP] = "http",
                                        [SIDECAR_PIPE] = "pipe",
                                        [SIDECAR_SQL] = "sql"};
    int found = 0;
    for (int i = 0; i < 4; i++)
        if (arg_has(cli, names[i])) {
            o->worker = i;
            found++;
        }
    if (found != 1)
        return cli_fail(cli, STATUS_USAGE, "for example --exec ./charge.sh",
                        "one of --exec, --http, --pipe and --sql says who works on the messages");
    const char *value = arg_text(cli, names[o->worker], "");
    o->command = o->url = o->sql = value;
    o->content_type = arg_text(cli, "content-type", NULL);
    if (o->worker == SIDECAR_SQL && arg_has(cli, "once-mode"))
        return cli_fail(cli, STATUS_USAGE, NULL,
                        "--once-mode is for --exec, --http and --pipe: --sql is a transaction");
    if (o->worker != SIDECAR_PIPE && arg_has(cli, "in-flight"))
        return cli_fail(cli, STATUS_USAGE, "--parallel says how many run at a time",
                        "--in-flight is for --pipe");
    return STATUS_OK;
}

static int subscriptions_take(struct cli *cli, struct omq_subscription *out,
                              struct sidecar_options *o)
{
    const char *tags = arg_text(cli, "filter", NULL), *sql = arg_text(cli, "filter-sql", NULL);
    size_t n = 0;
    for (const char *topic; (topic = arg_nth(cli, "topic", n)) && n < TOPICS_MAX; n++)
        out[n] = (struct omq_subscription){topic, sql ? sql : tags, sql != NULL};
    if (tags && sql)
        return cli_fail(cli, STATUS_USAGE, NULL, "--filter and --filter-sql do not go together");
    if (n == 0 || arg_nth(cli, "topic", n) || !arg_has(cli, "group"))
        return cli_fail(cli, STATUS_USAGE, "oncemq run --topic orders --group billing --exec …",
                        "--group and --topic (at most %d) are needed", TOPICS_MAX);
    o->group = arg_text(cli, "group", NULL);
    o->subscriptions = out;
    o->n_subscriptions = n;
    return STATUS_OK;
}

static int start_take(struct cli *cli, struct sidecar_options *o)
{
    const char *from = arg_text(cli, "from", "last");
    if (strcmp(from, "last") == 0)
        o->start = OMQ_FROM_LAST;
    else if (strcmp(from, "first") == 0)
        o->start = OMQ_FROM_FIRST;
    else if (value_time(from, now_ms(), &o->start_ms))
        o->start = OMQ_FROM_TIME;
    else
        return cli_fail(cli, STATUS_USAGE, "first, last, -1h, 2026-11-16T12:00:00Z",
                        "--from %s is neither first, last nor a time",
                        printable(cli, bytes_str(from)));
    return STATUS_OK;
}

static void once_take(struct cli *cli, struct once_options *o)
{
    const char *policy = arg_text(cli, "no-key", "retry");
    o->store = arg_text(cli, "store", NULL);
    o->key = arg_text(cli, "key", NULL);
    o->no_key = strcmp(policy, "dead-letter") == 0  ? ONCE_BY_DEAD_LETTER
                : strcmp(policy, "message-id") == 0 ? ONCE_BY_MESSAGE_ID
                                                    : ONCE_BY_RETRY;
    o->mode = strcmp(arg_text(cli, "once-mode", "lease"), "table") == 0 ? ONCE_TABLE : ONCE_LEASE;
    o->create = arg_has(cli, "create");
    o->table = arg_text(cli, "table", NULL);
    o->expiry_ms = arg_number(cli, "expiry", 0);
    o->retention_ms = arg_number(cli, "retention", 0);
}

/* A number that an int can hold; zero, where zero would mean the default, is not meant. */
static int number_take(struct cli *cli, const char *option, int64_t least, int *out)
{
    int64_t n = arg_number(cli, option, 0);
    if (arg_has(cli, option) && (n < least || n > INT32_MAX))
        return cli_fail(cli, STATUS_USAGE, NULL, "--%s is %lld to %d", option, (long long)least,
                        INT32_MAX);
    *out = (int)n;
    return STATUS_OK;
}

static int numbers_take(struct cli *cli, struct sidecar_options *o)
{
    int status = number_take(cli, "parallel", 1, &o->parallel);
    if (!status)
        status = number_take(cli, "in-flight", 1, &o->in_flight);
    if (!status)
        status = number_take(cli, "work-timeout", 1, &o->timeout_ms);
    if (!status)
        status = number_take(cli, "later", 1, &o->later_ms);
    if (!status)
        status = number_take(cli, "stop-timeout", 1, &o->stop_ms);
    if (!status)
        status = number_take(cli, "idle", 1, &o->idle_ms);
    if (!status)
        status = number_take(cli, "retries", 0, &o->max_attempts);
    if (arg_has(cli, "retries") && o->max_attempts == 0)
        o->max_attempts = -1;
    o->stop_after = (uint64_t)arg_number(cli, "count", 0);
    if (!status && arg_has(cli, "count") && o->stop_after == 0)
        status = cli_fail(cli, STATUS_USAGE, NULL, "--count 0 does nothing");
    o->order_by = arg_text(cli, "order-by", NULL);
    return status;
}

static int options_take(struct cli *cli, struct omq_subscription *topics, struct sidecar_options *o)
{
    int status = worker_take(cli, o);
    if (!status)
        status = subscriptions_take(cli, topics, o);
    if (!status)
        status = start_take(cli, o);
    if (!status)
        status = numbers_take(cli, o);
    once_take(cli, &o->once);
    if (cli->json)
        o->output = STDERR_FILENO; /* stdout has our records */
    return status;
}

/* ---- running ---- */

/* All that are there. False: there was none. */
static bool notes_show(struct cli *cli, struct notes *q)
{
    struct note note;
    bool any = false;
    for (; note_take(q, &note); any = true)
        note_show(cli, &note);
    if (any) {
        out_flush(cli);
        out_forget(cli);
    }
    return any;
}

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L / 5}, NULL);
}

struct closing {
    struct sidecar *sidecar;
    struct sidecar_stats last;
    _Atomic bool over;
};

static void *close_run(void *arg)
{
    struct closing *closing = arg;
    sidecar_close(closing->sidecar, &closing->last);
    closing->over = true;
    return NULL;
}

/* Until it is to stop; then it is closed beside us, since its last events are still to be shown. */
static int tend(struct cli *cli, struct sidecar *sidecar, struct notes *notes)
{
    struct closing closing = {.sidecar = sidecar};
    pthread_t thread;
    while (!cli_stopped(cli) && !out_broken(cli) && !sidecar_wait(sidecar, 0))
        if (!notes_show(cli, notes))
            cli_wait(cli, LOOK_MS); /* a stop ends it */
    sidecar_stop(sidecar);
    if (cli_stopped(cli))
        on_log(notes, SIDECAR_WARN,
               "stopping: what runs is waited for; a second signal ends it at once");
    if (out_broken(cli))
        notes_loosen(notes);
    if (pthread_create(&thread, NULL, close_run, &closing) == 0) {
        while (!closing.over)
            if (!notes_show(cli, notes))
                nap();
        (void)pthread_join(thread, NULL);
    } else {
        notes_loosen(notes);
        (void)close_run(&closing);
    }
    (void)notes_show(cli, notes);
    summary(cli, &closing.last);
    return STATUS_OK;
}

static bool notes_open(struct notes *q)
{
    (void)pthread_mutex_init(&q->lock, NULL);
    (void)pthread_cond_init(&q->room, NULL);
    q->open = true;
    q->ring = calloc(QUEUE_MAX, sizeof *q->ring);
    return q->ring != NULL;
}

/* Somebody must be there; a topic may come later, as those do that are made by sending. */
static int topics_look(struct cli *cli, struct omq_client *client, const struct sidecar_options *o)
{
    for (size_t i = 0; i < o->n_subscriptions; i++) {
        const char *topic = o->subscriptions[i].topic;
        struct omq_queue *queues;
        struct omq_error why;
        size_t n;
        int code = omq_topic_queues(client, topic, &queues, &n, &why);
        if (code == OMQ_NO_TOPIC)
            cli_note(cli, "there is no topic %s yet; it is looked for every second",
                     printable(cli, bytes_str(topic)));
        else if (code)
            return cli_fail_omq(cli, &why, NULL);
        else
            omq_queues_free(queues);
    }
    return STATUS_OK;
}

static int run_it(struct cli *cli, const struct sidecar_options *o, struct notes *notes)
{
    int status;
    struct fault why = {0};
    struct sidecar *sidecar;
    struct omq_client *client = cli_client(cli, &status);
    if (!client || (status = topics_look(cli, client, o)))
        return status;
    cli_catch_stop(cli);
    enum err err = sidecar_open(client, o, &sidecar, &why);
    if (err) {
        (void)notes_show(cli, notes);
        return cli_fail(cli,
                        err == ERR_IO          ? STATUS_UNREACHABLE
                        : err == ERR_NOT_FOUND ? STATUS_NOT_FOUND
                                               : STATUS_USAGE,
                        NULL, "%s",
                        why.text[0] ? printable(cli, bytes_str(why.text)) : err_text(err));
    }
    return tend(cli, sidecar, notes);
}

static int run_run(struct cli *cli)
{
    struct omq_subscription topics[TOPICS_MAX];
    struct notes notes = {0};
    const struct omq_client_options client = cli_client_options(cli);
    struct sidecar_options o = {.log = on_log, .user = &notes, .once.client = &client};
    int status = options_take(cli, topics, &o);
    if (status)
        return status;
    if (cli->json || arg_has(cli, "verbose"))
        o.event = on_event;
    status = notes_open(&notes) ? run_it(cli, &o, &notes)
                                : cli_fail(cli, STATUS_FAILED, NULL, "no memory");
    free(notes.ring);
    return status;
}

const struct command run_commands[] = {
    {
        .name = "run",
        .summary = "gives each message to a program, a web service or a database, once",
        .text =
            "Consumes topics and gives each message to a worker. What was done is remembered under "
            "its key, so a message that comes twice takes effect once, whatever the worker is "
            "written in.\n\n"
            "--exec runs a program for each message: the body on stdin; ONCEMQ_KEY, ONCEMQ_ID, "
            "ONCEMQ_TOPIC, ONCEMQ_TAG, ONCEMQ_KEYS, ONCEMQ_ATTEMPT, ONCEMQ_FENCE, ONCEMQ_BROKER, "
            "ONCEMQ_QUEUE, ONCEMQ_OFFSET, ONCEMQ_BORN_MS and ONCEMQ_PROP_NAME in the environment. "
            "Status 0 is done, 75 later, anything else failed.\n\n"
            "--http posts the body: 2xx is done, 409 done already, 429 and 503 later (as "
            "Retry-After says), anything else failed. The key is in Idempotency-Key.\n\n"
            "--pipe starts a program that stays; it reads a message a line and answers each with a "
            "line {\"id\":…,\"result\":\"done\"|\"later\"|\"failed\"}, in any order.\n\n"
            "--sql runs statements in the transaction in which the store notes the message, with "
            "values such as :body.amount, :key and :prop.NAME.\n\n"
            "What failed comes again as the broker's retries go, at last it is a dead letter. What "
            "comes later counts as no attempt. A first SIGTERM or Ctrl-C waits for what runs; a "
            "second one does not. docs/sidecar.md tells it all.",
        .examples =
            "oncemq run --topic orders --group billing --key 'order:{body.orderId}' --exec "
            "./charge.sh\n"
            "oncemq run --topic orders --group billing --http http://127.0.0.1:8080/charge\n"
            "oncemq run --topic orders --group books --store postgresql://localhost/shop --create "
            "--sql 'INSERT INTO paid(id, amount) VALUES (:body.orderId, :body.amount)'",
        .options = run_options,
        .shape = SHAPE_LINES,
        .columns = run_columns,
        .run = run_run,
        .endless = true,
    },
    {NULL},
};
