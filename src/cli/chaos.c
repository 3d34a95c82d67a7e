/* chaos.c - the command `chaos`; chaos_int.h has the model. */
#include "cli/chaos_int.h"
#include "cli/commands_int.h"

#include <inttypes.h>
#include <stdlib.h>

#define LOOK_MS      250 /* between two looks at the lag */
#define STABLE_LOOKS 3   /* without any, before it is believed */
#define EXAMPLES     10
#define RUN_MAX_MS   (50 * 60 * 1000) /* a plan lives for an hour at most */
#define SEND_MAX     1000000

static const struct opt options[] = {
    {"topic", OPT_TEXT, "TOPIC", "whose messages are hit", .letter = 't'},
    {"group", OPT_TEXT, "GROUP", "whose consumers are hit", .letter = 'g'},
    {"seed", OPT_NUMBER, "N", "which messages are hit; the same again with the same one; 1"},
    {"twice", OPT_TEXT, "SHARE", "of the messages: a second copy at once"},
    {"twice-later", OPT_TEXT, "SHARE", "of the messages: a second copy later"},
    {"later", OPT_DURATION, "TIME", "how much later, at most; 2s"},
    {"drop-acks", OPT_TEXT, "SHARE", "of commits and acknowledgements: forgotten"},
    {"drop-responses", OPT_TEXT, "SHARE", "of the sends: stored and not answered"},
    {"delay", OPT_TEXT, "RANGE", "of requests: 0..50ms"},
    {"kill-connections", OPT_TEXT, "RATE", "connections that are closed: 6/min"},
    {"rebalance", OPT_TEXT, "RATE", "a member comes and goes, so queues move: 6/min"},
    {"clock-jump", OPT_DURATION, "TIME", "put the virtual clock forward by this much"},
    {"jumps", OPT_NUMBER, "N", "so many times in the run; 1"},
    {"duration", OPT_DURATION, "TIME", "how long faults are made; 5s", .letter = 'd'},
    {"send", OPT_NUMBER, "N", "send so many messages meanwhile, each with a key of its own"},
    {"prefix", OPT_TEXT, "TEXT", "of their keys; chaos-SEED-"},
    {"verify", OPT_TEXT, "SQL",
     "gives each key with the number of its effects, or how many there "
     "are: each key must have one"},
    {"store", OPT_TEXT, "URL", "where --verify is asked: sqlite:FILE, postgresql://…, mysql://…"},
    {"verify-exec", OPT_TEXT, "COMMAND",
     "gets the keys on stdin, a line each; its status is 0: right, 75: not yet, else wrong"},
    {"patience", OPT_DURATION, "TIME", "for the group to be through afterwards; 30s"},
    {NULL},
};

static const struct column example_columns[] = {
    {"key", COLUMN_TEXT, "KEY", "a key that was sent"},
    {"effects", COLUMN_NUMBER, "EFFECTS", "how often it took effect"},
    {NULL},
};

static const struct column columns[] = {
    {"verdict", COLUMN_STATE, "Verdict",
     "ok: each key that was sent took effect once; bad; null: nobody was asked"},
    {"topic", COLUMN_TEXT, "Topic", "the topic", .optional = true},
    {"group", COLUMN_TEXT, "Group", "the group", .optional = true},
    {"seed", COLUMN_NUMBER, "Seed", "for the same again"},
    {"twice", COLUMN_NUMBER, "Stored twice", "messages that got a second copy at once"},
    {"twice_later", COLUMN_NUMBER, "Twice, later", "messages that got a second copy later"},
    {"dropped_acks", COLUMN_NUMBER, "Dropped acks", "acknowledgements that were forgotten"},
    {"dropped_responses", COLUMN_NUMBER, "Dropped answers", "sends that were not answered"},
    {"delayed", COLUMN_NUMBER, "Delayed", "requests that were held up"},
    {"kills", COLUMN_NUMBER, "Killed", "connections"},
    {"rebalances", COLUMN_NUMBER, "Rebalances", "members that came and went"},
    {"advanced", COLUMN_DURATION, "Clock ahead", "by how much the clock was put forward"},
    {"left_out", COLUMN_NUMBER, "Left out", "faults that could not be made"},
    {"sent", COLUMN_NUMBER, "Sent", "different keys that were stored meanwhile", .optional = true},
    {"records", COLUMN_NUMBER, "Records", "messages in the topic that have them: with all copies",
     .optional = true},
    {"consumed", COLUMN_BOOL, "Consumed", "the group has no lag any more", .optional = true},
    {"effects_once", COLUMN_NUMBER, "Once", "keys that took effect once", .optional = true},
    {"effects_twice", COLUMN_NUMBER, "More than once", "keys that took effect more often",
     .optional = true},
    {"effects_never", COLUMN_NUMBER, "Never", "keys that did not take effect", .optional = true},
    {"effects_others", COLUMN_NUMBER, "Other keys", "effects of keys that were not sent now",
     .optional = true},
    {"took", COLUMN_DURATION, "Took", "the whole run"},
    {"examples", COLUMN_LIST, "Examples", "keys that took effect more than once, or never",
     .of = example_columns, .optional = true},
    {NULL},
};

/* ---- wishes ---- */

static int share_take(struct cli *cli, const char *option, int64_t fallback, int64_t *out)
{
    const char *text = arg_text(cli, option, NULL);
    *out = fallback;
    if (!text || chaos_share(text, out))
        return STATUS_OK;
    return cli_fail(cli, STATUS_USAGE, "a share is 10% or 0.1", "--%s: %s is no share", option,
                    printable(cli, bytes_str(text)));
}

static int rate_take(struct cli *cli, const char *option, int64_t fallback, int64_t *out)
{
    const char *text = arg_text(cli, option, NULL);
    *out = fallback;
    if (!text || chaos_rate(text, out))
        return STATUS_OK;
    return cli_fail(cli, STATUS_USAGE, "a rate is 6/min or 1/s, and 100/s at most",
                    "--%s: %s is no rate", option, printable(cli, bytes_str(text)));
}

/* Those that are given, or else some of each. */
static int faults_take(struct cli *cli, struct chaos_wishes *w)
{
    static const char *const faults[] = {"twice", "twice-later",      "drop-acks", "drop-responses",
                                         "delay", "kill-connections", "rebalance", "clock-jump"};
    const char *delay = arg_text(cli, "delay", NULL);
    bool any = false;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        any = any || arg_has(cli, faults[i]);
    int status = share_take(cli, "twice", any ? 0 : 200000, &w->twice);
    status = status ? status : share_take(cli, "twice-later", any ? 0 : 100000, &w->later);
    status = status ? status : share_take(cli, "drop-acks", any ? 0 : 100000, &w->drop_acks);
    status =
        status ? status : share_take(cli, "drop-responses", any ? 0 : 50000, &w->drop_responses);
    status = status ? status : rate_take(cli, "kill-connections", any ? 0 : 12, &w->kills);
    status = status ? status : rate_take(cli, "rebalance", any ? 0 : 24, &w->rebalances);
    w->delay_max_ms = any ? 0 : 20;
    if (!status && delay && !chaos_range(delay, &w->delay_min_ms, &w->delay_max_ms))
        status = cli_fail(cli, STATUS_USAGE, "a range is 0..50ms or 50ms, and 60s at most",
                          "--delay: %s is no range", printable(cli, bytes_str(delay)));
    w->later_ms = arg_number(cli, "later", 2000);
    w->jump_ms = arg_number(cli, "clock-jump", 0);
    w->jumps = w->jump_ms > 0 ? arg_number(cli, "jumps", 1) : 0;
    return status;
}

/* What does not go together. */
static int wishes_check(struct cli *cli, const struct chaos_wishes *w)
{
    if (!w->topic && !w->group)
        return cli_fail(cli, STATUS_USAGE, NULL, "--topic, --group or both are needed");
    if (!w->topic && (w->send > 0 || w->verify || w->program))
        return cli_fail(cli, STATUS_USAGE, "add --topic", "what was sent is known of a topic only");
    if (!w->group && w->rebalances > 0 && arg_has(cli, "rebalance"))
        return cli_fail(cli, STATUS_USAGE, "add --group", "a rebalance is of a group");
    if (w->verify && w->program)
        return cli_fail(cli, STATUS_USAGE, NULL, "either --verify or --verify-exec");
    if ((w->verify != NULL) != (w->store != NULL))
        return cli_fail(cli, STATUS_USAGE, NULL, "--verify and --store go together");
    if (w->run_ms < 1 || w->run_ms > RUN_MAX_MS || w->jumps > 1000 || w->later_ms > 60000)
        return cli_fail(cli, STATUS_USAGE, NULL,
                        "--duration is at most 50m, --jumps 1000, --later 60s");
    if (w->send > SEND_MAX)
        return cli_fail(cli, STATUS_USAGE, NULL, "--send is at most %d", SEND_MAX);
    if (strlen(w->prefix) > 200 || strpbrk(w->prefix, " \"\\\n\t"))
        return cli_fail(cli, STATUS_USAGE, NULL,
                        "--prefix is at most 200 bytes without blanks, quotes and backslashes");
    int status = w->topic ? admin_topic_check(cli, w->topic) : STATUS_OK;
    return status || !w->group ? status : admin_group_check(cli, w->group);
}

static int wishes_take(struct cli *cli, struct chaos_wishes *w)
{
    w->topic = arg_text(cli, "topic", NULL);
    w->group = arg_text(cli, "group", NULL);
    w->seed = arg_number(cli, "seed", 1);
    w->run_ms = arg_number(cli, "duration", 5000);
    w->patience_ms = arg_number(cli, "patience", 30000);
    w->send = arg_number(cli, "send", 0);
    w->prefix = arg_text(cli, "prefix", admin_format(cli, "chaos-%" PRId64 "-", w->seed));
    w->verify = arg_text(cli, "verify", NULL);
    w->store = arg_text(cli, "store", NULL);
    w->program = arg_text(cli, "verify-exec", NULL);
    int status = faults_take(cli, w);
    return status ? status : wishes_check(cli, w);
}

/* ---- afterwards ---- */

static bool patient(const struct chaos_run *run, int64_t since_ms)
{
    return !cli_stopped(run->cli) && now_ms() - since_ms < run->wishes.patience_ms;
}

/* Later copies are waited for; then the plan ends, whatever has happened. */
static int quiet(struct chaos_run *run)
{
    int64_t since_ms = now_ms();
    int status = chaos_read(run);
    while (!status && run->counts[COUNT_WAITING] > 0 && patient(run, since_ms)) {
        cli_wait(run->cli, LOOK_MS);
        status = chaos_read(run);
    }
    int cleared = chaos_clear(run);
    status = status ? status : cleared;
    return status ? status : chaos_read(run);
}

static int lag_look(struct chaos_run *run, int64_t *lag)
{
    struct admin_consume_stats *stats;
    struct admin_round round;
    *lag = 0;
    if (!run->wishes.group)
        return STATUS_OK;
    admin_round_begin(run->cli, &round);
    int status = admin_consume_stats(run->cli, &run->brokers, &run->wishes.group, 1, NULL, &stats);
    bool unread = !status && stats[0].n == 0 && run->wishes.send > 0;
    if (!status) /* who has read nothing has no lag, and is not through all the same */
        *lag = unread ? run->wishes.send : stats[0].lag;
    admin_round_end(run->cli, &round);
    return status;
}

static bool effects_right(const struct chaos_run *run)
{
    const struct chaos_effects *e = &run->effects;
    return run->wishes.program ? e->right : e->twice == 0 && e->never == 0;
}

/* Surely wrong is what happened twice; what has not happened yet may still come, after a retry. */
static bool effects_settled(const struct chaos_run *run)
{
    const struct chaos_effects *e = &run->effects;
    return !e->known || effects_right(run) || e->twice > 0 || (run->wishes.program && !e->not_yet);
}

static int settle(struct chaos_run *run)
{
    struct progress progress;
    int64_t since_ms = now_ms(), lag = 0;
    int status = STATUS_OK, stable = 0;
    progress_begin(&progress, run->cli, "waiting for the group", 0);
    do {
        status = lag_look(run, &lag);
        stable = lag == 0 ? stable + 1 : 0;
        run->consumed = stable >= STABLE_LOOKS;
        if (!status && (run->consumed || run->wishes.verify))
            status = chaos_look(run);
        if (status || (run->effects.twice > 0 && !run->effects.numbered) ||
            (run->consumed && effects_settled(run)))
            break;
        cli_wait(run->cli, LOOK_MS);
    } while (patient(run, since_ms));
    progress_end(&progress);
    if (!status && !run->effects.known)
        status = chaos_look(run); /* what is there now is what is told */
    return status;
}

/* ---- the result ---- */

static void examples_put(struct chaos_run *run)
{
    struct cli *cli = run->cli;
    int64_t left = EXAMPLES;
    if (!run->effects.known || run->effects.numbered || run->wishes.program)
        return;
    list_open(cli, "examples");
    for (int never = 0; never <= 1; never++)
        for (size_t i = 0; i < run->n_keys && left > 0; i++) {
            const struct chaos_key *key = &run->keys[i];
            if (never ? key->effects != 0 : key->effects <= 1)
                continue;
            row_begin(cli);
            put_text(cli, "key", key->text);
            put_number(cli, "effects", key->effects);
            row_end(cli);
            left--;
        }
    list_close(cli);
}

static void effects_put(struct chaos_run *run)
{
    const struct chaos_effects *e = &run->effects;
    struct cli *cli = run->cli;
    if (!e->known || run->wishes.program)
        return;
    put_number(cli, "effects_once", e->once);
    put_number(cli, "effects_twice", e->twice);
    put_number(cli, "effects_never", e->never);
    put_number(cli, "effects_others", e->others);
}

static void result_put(struct chaos_run *run, int64_t took_ms)
{
    static const struct {
        const char *column;
        enum chaos_count count;
    } counts[] = {{"twice", COUNT_TWICE},           {"twice_later", COUNT_LATER},
                  {"dropped_acks", COUNT_ACKS},     {"dropped_responses", COUNT_RESPONSES},
                  {"delayed", COUNT_DELAYED},       {"kills", COUNT_KILLS},
                  {"rebalances", COUNT_REBALANCES}, {"left_out", COUNT_LEFT_OUT}};
    struct cli *cli = run->cli;
    row_begin(cli);
    if (run->effects.known)
        put_text(cli, "verdict", effects_right(run) ? "ok" : "bad");
    put_text(cli, "topic", run->wishes.topic);
    put_text(cli, "group", run->wishes.group);
    put_number(cli, "seed", run->wishes.seed);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        put_number(cli, counts[i].column, run->counts[counts[i].count]);
    put_number(cli, "advanced", run->advanced_ms);
    if (run->wishes.topic) {
        put_number(cli, "sent", (int64_t)run->n_keys);
        put_number(cli, "records", run->records);
    }
    if (run->wishes.group)
        put_bool(cli, "consumed", run->consumed);
    effects_put(run);
    put_number(cli, "took", took_ms);
    examples_put(run);
    row_end(cli);
}

static int judge(const struct chaos_run *run)
{
    const struct chaos_effects *e = &run->effects;
    struct cli *cli = run->cli;
    if (cli_stopped(cli))
        return STATUS_INTERRUPTED;
    if (e->known && run->wishes.program && !effects_right(run))
        return cli_fail(cli, STATUS_FAILED, NULL, "--verify-exec says %s",
                        e->not_yet ? "not yet, and patience is over" : "the effects are wrong");
    if (e->known && !effects_right(run))
        return cli_fail(cli, STATUS_FAILED,
                        e->twice > 0 ? "the consumer is not idempotent: docs/once.md tells how it "
                                       "can be, and why looking before inserting is not enough"
                                     : NULL,
                        "of %zu keys %" PRId64 " took effect more than once, and %" PRId64 " never",
                        run->n_keys, e->twice, e->never);
    if (run->wishes.group && !run->consumed)
        return cli_fail(cli, STATUS_FAILED,
                        "is a consumer of the group running? --patience waits longer",
                        "the group %s has not consumed everything", run->wishes.group);
    if (!e->known)
        cli_note(cli, "nobody was asked what came of it: --verify or --verify-exec");
    return STATUS_OK;
}

/* ---- the command ---- */

static int chaos(struct cli *cli)
{
    struct chaos_run run = {.cli = cli};
    int64_t began_ms = now_ms();
    int status = wishes_take(cli, &run.wishes);
    status = status ? status : admin_whole(cli, admin_cluster(cli, &run.brokers));
    status = status ? status : admin_masters(cli, &run.brokers);
    status = status ? status : chaos_sent_begin(&run);
    if (status)
        return status;
    cli_catch_stop(cli);
    status = chaos_begin(&run);
    if (status)
        return status;
    status = chaos_drive(&run);
    int after = quiet(&run);
    status = status ? status : after;
    status = status ? status : chaos_sent_end(&run);
    if (!status && !cli_stopped(cli))
        status = settle(&run);
    scan_close(&run.scan);
    if (status)
        return status;
    result_put(&run, now_ms() - began_ms);
    return judge(&run);
}

const struct command chaos_commands[] = {
    {
        .name = "chaos",
        .summary = "make faults for a while, then see whether each message took effect once",
        .text =
            "For testing any consumer's idempotence, on brokers that were started for it (oncemqd "
            "--chaos). While --duration runs, a share of the messages of --topic is stored twice, "
            "acknowledgements of --group and answers to sends are dropped, requests delayed, "
            "connections killed, queues moved between members; without any such option some of "
            "each. Which messages are hit depends on --seed and the messages alone.\n\n"
            "Then the broker is an ordinary one again, and the command waits until the group has "
            "consumed everything. What was sent is told from the topic: the keys of everything "
            "that was stored there in the meantime, by --send or by anybody. --verify asks a "
            "database for the effects: rows of a key and a number, or rows of a key each, or just "
            "a number. Each key that was sent must be there once.\n\n"
            "With --group alone, messages come twice through the group's retry topic, so that "
            "others do not see it. The exit status is 0 when the effects are right and 1 when "
            "they are not.",
        .examples =
            "oncemq chaos --topic Orders --group billing --send 500 --store sqlite:billing.db "
            "--verify 'SELECT order_no, COUNT(*) FROM payments GROUP BY order_no'\n"
            "oncemq chaos --topic Orders --group billing --twice 10% --delay 0..50ms -d 1m "
            "--verify-exec ./compare.sh\n"
            "oncemq chaos --group billing --drop-acks 20% --rebalance 12/min -d 1m",
        .options = options,
        .shape = SHAPE_ONE,
        .columns = columns,
        .run = chaos,
    },
    {NULL},
};
