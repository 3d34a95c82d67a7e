/* lag.c - how far groups are behind.
 *
 * A row is a group in a topic, or with --queues in one queue of it. The rate of a single look is
 * what the brokers have counted in the last minute; from the second look of --watch on it is what
 * the offsets have moved since the one before.
 */
#include "cli/admin.h"
#include "cli/commands_int.h"

#include <stdlib.h>
#include <string.h>

static const struct column columns[] = {
    {"group", COLUMN_TEXT, "GROUP", "the group"},
    {"topic", COLUMN_TEXT, "TOPIC", "the topic"},
    {"broker", COLUMN_TEXT, "BROKER", "with --queues: the queue's broker", .optional = true},
    {"queue", COLUMN_NUMBER, "QUEUE", "with --queues: the queue's number", .optional = true},
    {"queues", COLUMN_NUMBER, "QUEUES", "without: how many there are", .optional = true},
    {"offset", COLUMN_NUMBER, "OFFSET", "with --queues: the next message to consume",
     .optional = true},
    {"end", COLUMN_NUMBER, "END", "with --queues: the offset that the next message will have",
     .optional = true},
    {"lag", COLUMN_NUMBER, "LAG", "messages that are not consumed"},
    {"inflight", COLUMN_NUMBER, NULL,
     "of these, messages that consumers have got and not acknowledged"},
    {"rate", COLUMN_REAL, "OUT/S", "messages a second that the group consumes"},
    {"behind", COLUMN_DURATION, "BEHIND",
     "the age of the last message that was consumed, of the queue that is worst; 0: nothing is "
     "left"},
    {"clients", COLUMN_NUMBER, "CLIENTS", "consumers of the group that are connected"},
    {"state", COLUMN_STATE, "STATE",
     "bad: it lags and no consumer is connected; warn: it lags and nothing moves"},
    {NULL},
};

static const struct opt options[] = {
    {"group", OPT_TEXT, "GROUP", "only this group", .letter = 'g', .many = true},
    {"topic", OPT_TEXT, "TOPIC", "only in this topic", .letter = 't'},
    {"queues", OPT_SWITCH, NULL, "a row for each queue"},
    {"behind", OPT_SWITCH, NULL, "only what has a lag", .letter = 'b'},
    {"all", OPT_SWITCH, NULL, "also groups that brokers make for themselves", .letter = 'a'},
    {"watch", OPT_DURATION, "TIME", "show it again every TIME until Ctrl-C", .letter = 'w'},
    {"cluster", OPT_TEXT, "NAME", "only of this cluster"},
    {"broker", OPT_TEXT, "NAME", "only of this broker: its name or host:port", .many = true},
    {NULL},
};

/* What the look before saw, for rates. It outlives the rounds. */
struct before {
    struct place {
        char *name; /* group, topic, broker and queue */
        int64_t offset;
    } * places; /* by name */
    size_t n;
    int64_t at_ms;
};

struct look {
    struct admin_cluster on;
    struct admin_names groups;
    struct admin_consume_stats *stats;
    struct admin_consumers *consumers;
    struct before *before;
    int64_t now_ms;
};

/* ---- rates ---- */

static const char *place_name(struct cli *cli, const char *group, const struct admin_progress *p)
{
    return admin_format(cli, "%s\n%s\n%s\n%d", group, p->topic, p->broker, p->queue);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct place *)a)->name, ((const struct place *)b)->name);
}

/* How far the queue has moved since the look before; negative: not known. */
static double moved(struct cli *cli, const struct look *look, const char *group,
                    const struct admin_progress *p)
{
    const struct before *b = look->before;
    if (b->n == 0 || look->now_ms <= b->at_ms)
        return -1;
    char *name = (char *)place_name(cli, group, p);
    const struct place *old =
        bsearch(&(struct place){.name = name}, b->places, b->n, sizeof *b->places, by_name);
    return old && p->offset >= old->offset ? (double)(p->offset - old->offset) : -1;
}

static void before_clear(struct before *b)
{
    for (size_t i = 0; i < b->n; i++)
        free(b->places[i].name);
    free(b->places);
    *b = (struct before){0};
}

static void before_take(struct cli *cli, const struct look *look)
{
    struct before *b = look->before;
    size_t n = 0;
    before_clear(b);
    for (size_t g = 0; g < look->groups.n; g++)
        n += look->stats[g].n;
    b->places = calloc(n + 1, sizeof *b->places);
    for (size_t g = 0; b->places && g < look->groups.n; g++)
        for (size_t i = 0; i < look->stats[g].n; i++) {
            const struct admin_progress *p = &look->stats[g].queues[i];
            char *name = strdup(place_name(cli, look->groups.names[g], p));
            if (name)
                b->places[b->n++] = (struct place){name, p->offset};
        }
    if (b->n > 0)
        qsort(b->places, b->n, sizeof *b->places, by_name);
    b->at_ms = look->now_ms;
}

/* ---- rows ---- */

/* Some queues of one topic: what a row tells. */
struct sum {
    const struct admin_progress *queues;
    size_t n;
    int64_t lag, inflight, behind_ms;
    double rate; /* negative: not known */
};

static struct sum sum_up(struct cli *cli, const struct look *look, const char *group,
                         const struct admin_progress *queues, size_t n)
{
    struct sum s = {.queues = queues, .n = n};
    double seconds = (double)(look->now_ms - look->before->at_ms) / 1000;
    for (size_t i = 0; i < n; i++) {
        const struct admin_progress *p = &queues[i];
        double step = moved(cli, look, group, p);
        s.lag = admin_sum(s.lag, p->lag);
        int64_t out = p->pull_offset > p->offset ? p->pull_offset - p->offset : 0;
        s.inflight = admin_sum(s.inflight, out);
        if (p->lag > 0 && p->last_ms == 0 && s.behind_ms == 0)
            s.behind_ms = -1; /* it has not consumed anything yet */
        if (p->lag > 0 && p->last_ms > 0 && look->now_ms - p->last_ms > s.behind_ms)
            s.behind_ms = look->now_ms - p->last_ms;
        s.rate = step < 0 || s.rate < 0 ? -1 : s.rate + step / seconds;
    }
    return s;
}

static const char *state_of(const struct sum *s, size_t clients)
{
    if (s->lag == 0)
        return "ok";
    return clients == 0 ? "bad" : s->rate == 0 ? "warn" : "ok";
}

static void row_put(struct cli *cli, const char *group, const struct sum *s, size_t clients)
{
    const struct admin_progress *p = s->queues;
    row_begin(cli);
    put_text(cli, "group", group);
    put_text(cli, "topic", p->topic);
    if (arg_has(cli, "queues")) {
        put_text(cli, "broker", p->broker);
        put_number(cli, "queue", p->queue);
        put_number(cli, "offset", p->offset);
        put_number(cli, "end", p->end);
    } else
        put_number(cli, "queues", (int64_t)s->n);
    put_number(cli, "lag", s->lag);
    put_number(cli, "inflight", s->inflight);
    if (s->rate >= 0)
        put_real(cli, "rate", s->rate);
    if (s->behind_ms >= 0)
        put_number(cli, "behind", s->behind_ms);
    put_number(cli, "clients", (int64_t)clients);
    put_text(cli, "state", state_of(s, clients));
    row_end(cli);
}

/* What the brokers have counted, for rows that know no rate of their own. */
static int rates_ask(struct cli *cli, const struct look *look, struct sum *sums,
                     const char **groups, size_t n)
{
    struct admin_stat *stats = admin_alloc(cli, n, sizeof *stats);
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (sums[i].rate < 0)
            stats[count++] = (struct admin_stat){
                .name = "GROUP_GET_NUMS",
                .key = admin_format(cli, "%s@%s", sums[i].queues->topic, groups[i])};
    int status = count > 0 ? admin_stats(cli, &look->on, stats, count) : STATUS_OK;
    if (admin_none(status))
        return status;
    count = 0;
    for (size_t i = 0; i < n; i++)
        if (sums[i].rate < 0)
            sums[i].rate = stats[count++].minute_tps;
    return status;
}

static int rows_put(struct cli *cli, const struct look *look)
{
    size_t max = 0, n = 0;
    for (size_t g = 0; g < look->groups.n; g++)
        max += look->stats[g].n;
    struct sum *sums = admin_alloc(cli, max, sizeof *sums);
    const char **groups = admin_alloc(cli, max, sizeof *groups);
    size_t *owner = admin_alloc(cli, max, sizeof *owner);
    for (size_t g = 0; g < look->groups.n; g++) {
        const struct admin_consume_stats *stats = &look->stats[g];
        for (size_t i = 0, end; i < stats->n; i = end) {
            end = i + 1;
            while (!arg_has(cli, "queues") && end < stats->n &&
                   strcmp(stats->queues[end].topic, stats->queues[i].topic) == 0)
                end++;
            sums[n] = sum_up(cli, look, look->groups.names[g], &stats->queues[i], end - i);
            if (arg_has(cli, "behind") && sums[n].lag == 0)
                continue;
            groups[n] = look->groups.names[g];
            owner[n++] = g;
        }
    }
    int status = arg_has(cli, "queues") ? STATUS_OK : rates_ask(cli, look, sums, groups, n);
    for (size_t i = 0; !admin_none(status) && i < n; i++)
        row_put(cli, groups[i], &sums[i], look->consumers[owner[i]].n);
    return status;
}

/* ---- the command ---- */

static int groups_find(struct cli *cli, struct look *look)
{
    struct admin_group *all;
    const char *name;
    size_t n;
    int status = admin_groups(cli, &look->on, &all, &n);
    if (admin_none(status))
        return status;
    look->groups = (struct admin_names){admin_alloc(cli, n, sizeof *look->groups.names), 0};
    for (size_t i = 0; i < n; i++) {
        bool wanted = arg_has(cli, "all") || !admin_group_is_system(all[i].group);
        for (size_t k = 0; (name = arg_nth(cli, "group", k)); k++) {
            wanted = strcmp(name, all[i].group) == 0;
            if (wanted)
                break;
        }
        if (wanted && (i == 0 || strcmp(all[i].group, all[i - 1].group) != 0))
            look->groups.names[look->groups.n++] = all[i].group;
    }
    for (size_t k = 0; (name = arg_nth(cli, "group", k)); k++) {
        bool found = false;
        for (size_t i = 0; i < look->groups.n; i++)
            found = found || strcmp(look->groups.names[i], name) == 0;
        if (!found)
            return admin_group_missing(cli, &look->on, name);
    }
    return status;
}

static int look_once(struct cli *cli, struct before *before)
{
    struct look look = {.before = before};
    int status = admin_chosen(cli, &look.on);
    if (!status)
        status = groups_find(cli, &look);
    const char *const *names = look.groups.names;
    size_t n = look.groups.n;
    if (!admin_none(status))
        status = admin_join(status, admin_consume_stats(cli, &look.on, names, n,
                                                        arg_text(cli, "topic", NULL), &look.stats));
    look.now_ms = now_ms();
    if (!admin_none(status))
        status = admin_join(status, admin_consumers(cli, &look.on, names, n, &look.consumers));
    if (!admin_none(status))
        status = admin_join(status, rows_put(cli, &look));
    if (!admin_none(status))
        before_take(cli, &look);
    return status;
}

static int lag(struct cli *cli)
{
    struct before before = {0};
    int64_t every = arg_number(cli, "watch", 0);
    const char *name;
    int status = STATUS_OK;
    for (size_t i = 0; !status && (name = arg_nth(cli, "group", i)); i++)
        status = admin_group_check(cli, name);
    if (status)
        return status;
    if (!arg_has(cli, "watch")) {
        status = look_once(cli, &before);
        before_clear(&before);
        return status;
    }
    cli_catch_stop(cli);
    while (!cli_stopped(cli) && !out_broken(cli)) {
        struct admin_round round;
        admin_round_begin(cli, &round);
        status = look_once(cli, &before);
        rows_show(cli);
        admin_round_end(cli, &round);
        if (status == STATUS_USAGE || status == STATUS_NOT_FOUND)
            break;
        cli_wait(cli, every > 100 ? every : 100);
    }
    before_clear(&before);
    return cli_stopped(cli) ? STATUS_OK : status;
}

const struct command lag_commands[] = {
    {
        .name = "lag",
        .summary = "how far groups are behind, by topic or by queue",
        .text = "Without --watch the rate is that of the last minute, as the brokers have counted "
                "it. With --watch it "
                "is what has moved since the look before; on a terminal each look replaces the "
                "last one, "
                "with --json each is an array in a line of its own.",
        .examples =
            "oncemq lag\noncemq lag --group billing --queues\noncemq lag --behind --watch 2s",
        .options = options,
        .shape = SHAPE_LIST,
        .columns = columns,
        .run = lag,
    },
    {NULL},
};
