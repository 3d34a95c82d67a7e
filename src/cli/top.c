/* top.c - `oncemq top`: the live view, one picture of it, or an object a line. */
#include "cli/top_int.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

static const struct column broker_columns[] = {
    {"broker", COLUMN_TEXT, NULL, "its name"},
    {"address", COLUMN_TEXT, NULL, "of the master; null: there is none"},
    {"up", COLUMN_BOOL, NULL, "whether it answers"},
    {"version", COLUMN_TEXT, NULL, "what it calls itself"},
    {"in", COLUMN_REAL, NULL, "messages a second that came"},
    {"out", COLUMN_REAL, NULL, "messages a second that were read"},
    {"send_99_ms", COLUMN_REAL, NULL, "99 % of the sends were answered within so many ms"},
    {"pull_99_ms", COLUMN_REAL, NULL, "99 % of the pulls found their messages within so many ms"},
    {"duplicates", COLUMN_NUMBER, NULL,
     "sends that were not stored again, and claims of keys that were done (the once ledger), since "
     "the start"},
    {"disk", COLUMN_REAL, NULL, "part of the disk that is used, 0 to 1"},
    {NULL},
};
static const struct column topic_columns[] = {
    {"topic", COLUMN_TEXT, NULL, "its name"},
    {"queues", COLUMN_NUMBER, NULL, "on all brokers"},
    {"messages", COLUMN_NUMBER, NULL, "that are there"},
    {"in", COLUMN_REAL, NULL, "messages a second that came"},
    {"out", COLUMN_REAL, NULL, "messages a second that groups have consumed"},
    {"send_99_ms", COLUMN_REAL, NULL, "as above, of this topic"},
    {"pull_99_ms", COLUMN_REAL, NULL, "as above, of this topic"},
    {NULL},
};
static const struct column group_columns[] = {
    {"group", COLUMN_TEXT, NULL, "its name"},
    {"topic", COLUMN_TEXT, NULL, "what it consumes"},
    {"lag", COLUMN_NUMBER, NULL, "messages that it has before it"},
    {"behind", COLUMN_DURATION, NULL,
     "age of the last message it has consumed, while it has a lag"},
    {"in", COLUMN_REAL, NULL, "messages a second that came for it"},
    {"out", COLUMN_REAL, NULL, "messages a second that it has consumed"},
    {"members", COLUMN_NUMBER, NULL, "connected now"},
    {"pull_99_ms", COLUMN_REAL, NULL, "as above, of its pulls"},
    {NULL},
};
static const struct column queue_columns[] = {
    {"group", COLUMN_TEXT, NULL, "whose offset it is"},
    {"topic", COLUMN_TEXT, NULL, "of the queue"},
    {"broker", COLUMN_TEXT, NULL, "that has it"},
    {"queue", COLUMN_NUMBER, NULL, "its number"},
    {"offset", COLUMN_NUMBER, NULL, "of the group"},
    {"end", COLUMN_NUMBER, NULL, "of the queue"},
    {"lag", COLUMN_NUMBER, NULL, "what is between them"},
    {"behind", COLUMN_DURATION, NULL, "as above"},
    {"in", COLUMN_REAL, NULL, "messages a second that came"},
    {"out", COLUMN_REAL, NULL, "messages a second that the group has consumed"},
    {NULL},
};
const struct column top_columns[] = {
    {"time", COLUMN_TIME, NULL, "of this machine"},
    {"trouble", COLUMN_TEXT, NULL, "why the name servers do not answer; null: they do"},
    {"in", COLUMN_REAL, NULL, "messages a second that came to all brokers"},
    {"out", COLUMN_REAL, NULL, "messages a second that were read"},
    {"lag", COLUMN_NUMBER, NULL, "messages that all groups have before them"},
    {"duplicates", COLUMN_NUMBER, NULL, "suppressed since the start; null: no broker does"},
    {"brokers", COLUMN_LIST, NULL, "each broker", broker_columns},
    {"topics", COLUMN_LIST, NULL, "each topic", topic_columns},
    {"groups", COLUMN_LIST, NULL, "each group and topic", group_columns},
    {"queues", COLUMN_LIST, NULL, "each group and queue", queue_columns},
    {NULL},
};
const struct opt top_options[] = {
    {"interval", OPT_DURATION, "TIME", "between two looks; 2s"},
    {"once", OPT_SWITCH, NULL, "one picture, or one object, of one interval"},
    {"count", OPT_NUMBER, "N", "with --json: so many objects"},
    {"view", OPT_CHOICE, "VIEW", "what is shown first", "brokers|topics|groups|queues"},
    {"topic", OPT_TEXT, "TOPIC", "only this topic"},
    {"group", OPT_TEXT, "GROUP", "only this group"},
    {"all", OPT_SWITCH, NULL, "also topics of the system", .letter = 'a'},
    {NULL},
};

#define INTERVAL_MIN_MS 100

static enum top_view view_asked(const struct cli *cli)
{
    const char *name = arg_text(cli, "view", "groups");
    enum top_view view = VIEW_BROKERS;
    while (view < VIEW_GROUPS && strcmp(view_of(view)->name, name) != 0)
        view++;
    return strcmp(name, "queues") == 0 ? VIEW_QUEUES : view;
}

/* ---- for programs ---- */

static void put_known(struct cli *cli, const char *column, double number)
{
    if (!isnan(number))
        put_real(cli, column, number);
}

static void put_count(struct cli *cli, const char *column, int64_t number)
{
    if (number >= 0)
        put_number(cli, column, number);
}

static void brokers_put(struct cli *cli, const struct survey *s)
{
    list_open(cli, "brokers");
    for (size_t i = 0; i < s->n_brokers; i++) {
        const struct top_broker *b = &s->brokers[i];
        row_begin(cli);
        put_text(cli, "broker", b->name);
        put_text(cli, "address", b->address);
        put_bool(cli, "up", b->up);
        put_text(cli, "version", b->up ? b->version : NULL);
        put_known(cli, "in", b->in);
        put_known(cli, "out", b->out);
        put_known(cli, "send_99_ms", b->put_99);
        put_known(cli, "pull_99_ms", b->get_99);
        put_count(cli, "duplicates", b->duplicates);
        put_known(cli, "disk", b->disk);
        row_end(cli);
    }
    list_close(cli);
}

static void topics_put(struct cli *cli, const struct survey *s)
{
    list_open(cli, "topics");
    for (size_t i = 0; i < s->n_topics; i++) {
        const struct top_topic *t = &s->topics[i];
        row_begin(cli);
        put_text(cli, "topic", t->name);
        put_count(cli, "queues", t->at_ns ? t->queues : -1);
        put_count(cli, "messages", t->at_ns ? t->messages : -1);
        put_known(cli, "in", t->in);
        put_known(cli, "out", t->out);
        put_known(cli, "send_99_ms", t->put_99);
        put_known(cli, "pull_99_ms", t->get_99);
        row_end(cli);
    }
    list_close(cli);
}

static void groups_put(struct cli *cli, const struct survey *s)
{
    list_open(cli, "groups");
    for (size_t i = 0; i < s->n_groups; i++) {
        const struct top_group *g = &s->groups[i];
        row_begin(cli);
        put_text(cli, "group", g->group);
        put_text(cli, "topic", g->topic);
        put_number(cli, "lag", g->lag);
        put_count(cli, "behind", g->behind_ms);
        put_known(cli, "in", g->in);
        put_known(cli, "out", g->out);
        put_count(cli, "members", g->members);
        put_known(cli, "pull_99_ms", g->get_99);
        row_end(cli);
    }
    list_close(cli);
}

static void queues_put(struct cli *cli, const struct survey *s)
{
    list_open(cli, "queues");
    for (size_t i = 0; i < s->n_queues; i++) {
        const struct top_queue *q = &s->queues[i];
        row_begin(cli);
        put_text(cli, "group", q->group);
        put_text(cli, "topic", q->topic);
        put_text(cli, "broker", q->broker);
        put_number(cli, "queue", q->queue);
        put_number(cli, "offset", q->offset);
        put_number(cli, "end", q->end);
        put_number(cli, "lag", q->lag);
        put_count(cli, "behind", q->behind_ms);
        put_known(cli, "in", q->in);
        put_known(cli, "out", q->out);
        row_end(cli);
    }
    list_close(cli);
}

static void survey_put(struct cli *cli, const struct survey *s)
{
    row_begin(cli);
    put_number(cli, "time", s->at_ms);
    put_text(cli, "trouble", s->trouble.code ? s->trouble.text : NULL);
    put_known(cli, "in", s->in);
    put_known(cli, "out", s->out);
    put_number(cli, "lag", s->lag);
    put_count(cli, "duplicates", s->duplicates);
    brokers_put(cli, s);
    topics_put(cli, s);
    groups_put(cli, s);
    queues_put(cli, s);
    row_end(cli);
    out_flush(cli);
}

/* ---- one picture ---- */

static void survey_print(struct cli *cli, const struct survey *s)
{
    bool one = arg_has(cli, "view");
    for (enum top_view view = VIEW_BROKERS; view < VIEWS; view++) {
        if (one ? view != view_asked(cli) : view == VIEW_QUEUES)
            continue;
        if (!one && view > VIEW_BROKERS)
            cli_print(cli, "\n");
        picture_print(cli, s, view, 0);
    }
}

/* Without a terminal: surveys in a row, told by this thread alone. */
static int top_stream(struct cli *cli, int64_t interval_ms, bool once)
{
    int status;
    if (!cli_client(cli, &status))
        return status;
    cli_catch_stop(cli);
    struct survey_plan plan = {.topic = arg_text(cli, "topic", NULL),
                               .group = arg_text(cli, "group", NULL),
                               .all = arg_has(cli, "all"),
                               .budget_ms = INT64_MAX};
    struct survey surveys[2];
    survey_open(&surveys[0], cli);
    survey_open(&surveys[1], cli);
    int64_t left = once ? 1 : arg_number(cli, "count", INT64_MAX);
    survey_take(&surveys[0], NULL, &plan);
    if (once && surveys[0].trouble.code)
        left = 0; /* there is nothing to wait for */
    for (size_t next = 1; left > 0 && !cli_stopped(cli) && !out_broken(cli); next = 1 - next) {
        int64_t due = surveys[1 - next].at_ms + interval_ms;
        cli_wait(cli, due - now_ms());
        if (cli_stopped(cli))
            break;
        survey_take(&surveys[next], &surveys[1 - next], &plan);
        if (cli->json)
            survey_put(cli, &surveys[next]);
        else
            survey_print(cli, &surveys[next]);
        left--;
    }
    if (once && surveys[0].trouble.code)
        status = cli_fail_omq(cli, &surveys[0].trouble, NULL);
    survey_close(&surveys[0]);
    survey_close(&surveys[1]);
    return status;
}

/* ---- live ---- */

static void scroll(struct picture *p, int64_t by)
{
    p->first = by < 0 && (size_t)-by > p->first ? 0 : p->first + (size_t)by;
}

static void view_set(struct picture *p, enum top_view view)
{
    p->view = view;
    p->first = 0;
}

/* False: the end. */
static bool key_take(struct picture *p, struct watch *w, int key)
{
    int64_t page = p->rows > 5 ? p->rows - 4 : 1;
    switch (key) {
    case 'q':
    case KEY_STOP:
        return false;
    case 'b':
    case 't':
    case 'g':
    case 'u':
        view_set(p, key == 'b'   ? VIEW_BROKERS
                    : key == 't' ? VIEW_TOPICS
                    : key == 'g' ? VIEW_GROUPS
                                 : VIEW_QUEUES);
        break;
    case '\t':
        view_set(p, (p->view + 1) % VIEWS);
        break;
    case 's':
        p->sort[p->view] = (p->sort[p->view] + 1) % view_of(p->view)->n_sorts;
        break;
    case 'p':
        p->paused = !p->paused;
        watch_pause(w, p->paused);
        break;
    case 'h':
    case '?':
        p->help = !p->help;
        break;
    case 'j':
    case KEY_DOWN:
        scroll(p, 1);
        break;
    case 'k':
    case KEY_UP:
        scroll(p, -1);
        break;
    case ' ':
    case KEY_PAGE_DOWN:
        scroll(p, page);
        break;
    case KEY_PAGE_UP:
        scroll(p, -page);
        break;
    case KEY_HOME:
        p->first = 0;
        break;
    case KEY_END:
        p->first = INT32_MAX;
        break;
    default:
        break;
    }
    return true;
}

static void waiting_draw(const struct picture *p, struct canvas *out)
{
    char line[300];
    canvas_clear(out);
    (void)snprintf(line, sizeof line, "oncemq top  %.200s", p->names);
    line_add(out, STYLE_TITLE, p->columns, line);
    line_add(out, STYLE_PLAIN, p->columns, "looking …");
}

static int top_live(struct cli *cli, int64_t interval_ms)
{
    struct watch w;
    struct screen *screen = NULL;
    int status = watch_open(&w, cli, interval_ms), key = KEY_NONE;
    if (!status && !(screen = screen_open(cli)))
        status = STATUS_FAILED;
    struct picture p = {
        .view = view_asked(cli), .interval_ms = interval_ms, .names = cli_names(cli)};
    struct canvas lines = {0};
    while (!status && key_take(&p, &w, key)) {
        screen_size(screen, &p.rows, &p.columns);
        (void)pthread_mutex_lock(&w.key);
        if (w.number > 0)
            picture_draw(&p, &w.surveys[w.current], &lines);
        else
            waiting_draw(&p, &lines);
        (void)pthread_mutex_unlock(&w.key);
        screen_show(screen, &lines);
        key = screen_key(screen, w.told[0]);
    }
    if (screen)
        screen_close(screen);
    buf_clear(&lines.text);
    status = status ? status : key == KEY_STOP ? STATUS_INTERRUPTED : STATUS_OK;
    watch_close(&w, status);
    return status;
}

int top_run(struct cli *cli)
{
    int64_t interval_ms = arg_number(cli, "interval", 2000);
    if (interval_ms < INTERVAL_MIN_MS || interval_ms > 3600000)
        return cli_fail(cli, STATUS_USAGE, NULL, "--interval is from 100ms to 1h");
    bool live = cli->terminal_in && cli->terminal_out && !cli->json && !arg_has(cli, "once");
    return live ? top_live(cli, interval_ms)
                : top_stream(cli, interval_ms, arg_has(cli, "once") || !cli->json);
}
