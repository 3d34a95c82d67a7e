/* chaos_drive.c - plans to brokers, messages to the topic, jumps of the clock. */
#include "cli/chaos_int.h"

#include "remoting/codes.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#define PRODUCER_GROUP "ONCEMQ_CHAOS"
#define TRY_MS         700 /* of a send whose answer may have been dropped */
#define SEND_MS        6000
#define TRIES          6
#define TICK_MS        20
#define LIFE_SPARE_MS  60000 /* a plan whose owner has died ends so much later by itself */

/* ---- plans ---- */

static const char *const names[CHAOS_COUNTS] = {
    [COUNT_TWICE] = "twice",           [COUNT_LATER] = "twiceLater",
    [COUNT_ACKS] = "dropAcks",         [COUNT_RESPONSES] = "dropResponses",
    [COUNT_DELAYED] = "delayed",       [COUNT_KILLS] = "kills",
    [COUNT_REBALANCES] = "rebalances", [COUNT_LEFT_OUT] = "leftOut",
    [COUNT_WAITING] = "waiting"};

/* The same question to every master; `fields` may be NULL. */
static struct admin_ask *ask_all(struct chaos_run *run, int request, const char *const *fields,
                                 int *status)
{
    struct admin_ask *asks = admin_alloc(run->cli, run->brokers.n, sizeof *asks);
    for (size_t i = 0; i < run->brokers.n; i++)
        asks[i] = (struct admin_ask){.server = run->brokers.brokers[i].master,
                                     .broker = run->brokers.brokers[i].name,
                                     .request = request,
                                     .fields = fields};
    *status = admin_ask_all(run->cli, asks, run->brokers.n);
    return asks;
}

static int refused(struct chaos_run *run, const struct admin_ask *ask, const char *hint)
{
    bool never = ask->why.response_code == RES_NO_PERMISSION ||
                 ask->why.response_code == RES_REQUEST_CODE_NOT_SUPPORTED;
    if (!never)
        return cli_fail_omq(run->cli, &ask->why, ask->broker);
    return cli_fail(run->cli, STATUS_FAILED, hint, "%s: %s", ask->broker,
                    printable(run->cli, bytes_str(ask->why.text)));
}

static const char *number(struct cli *cli, int64_t n)
{
    return admin_format(cli, "%" PRId64, n);
}

int chaos_begin(struct chaos_run *run)
{
    struct cli *cli = run->cli;
    const struct chaos_wishes *w = &run->wishes;
    int status;
    const char *const *fields = admin_fields(
        cli, ASK("action", "set", "topic", w->topic ? w->topic : "", "group",
                 w->group ? w->group : "", "seed", number(cli, w->seed), "twice",
                 number(cli, w->twice), "twiceLater", number(cli, w->later), "laterMillis",
                 number(cli, w->later_ms), "dropAcks", number(cli, w->drop_acks), "dropResponses",
                 number(cli, w->drop_responses), "delayMinMillis", number(cli, w->delay_min_ms),
                 "delayMaxMillis", number(cli, w->delay_max_ms), "killsPerMinute",
                 number(cli, w->kills), "rebalancesPerMinute", number(cli, w->rebalances),
                 "lifeMillis", number(cli, w->run_ms + LIFE_SPARE_MS)));
    struct admin_ask *asks = ask_all(run, REQ_ONCE_CHAOS, fields, &status);
    run->plans = admin_alloc(cli, run->brokers.n, sizeof *run->plans);
    for (size_t i = 0; !status && i < run->brokers.n; i++) {
        const char *plan = asks[i].code ? NULL : admin_answer_field(&asks[i], "plan");
        run->plans[i] = plan ? admin_format(cli, "%s", plan) : NULL;
    }
    for (size_t i = 0; !status && i < run->brokers.n; i++)
        if (!run->plans[i])
            status =
                refused(run, &asks[i], "faults are made by a daemon for tests: oncemqd --chaos");
    if (status)
        (void)chaos_clear(run);
    return status;
}

/* The answers to one question of all, added up. */
static int counts_take(struct chaos_run *run, const struct admin_ask *asks)
{
    int64_t sums[CHAOS_COUNTS] = {0};
    for (size_t i = 0; i < run->brokers.n; i++) {
        const char *plan = asks[i].code ? NULL : admin_answer_field(&asks[i], "plan");
        if (!plan)
            return refused(run, &asks[i], NULL);
        if (run->plans[i] && strcmp(plan, run->plans[i]) != 0)
            return cli_fail(run->cli, STATUS_FAILED, "one run at a time on a broker",
                            "%s: another run has put its plan in the place of this one",
                            asks[i].broker);
        for (size_t c = 0; c < CHAOS_COUNTS; c++) {
            const char *text = admin_answer_field(&asks[i], names[c]);
            int64_t n = 0;
            if (text && bytes_to_i64(bytes_str(text), &n) && n > 0)
                sums[c] = admin_sum(sums[c], n);
        }
    }
    memcpy(run->counts, sums, sizeof sums);
    return STATUS_OK;
}

int chaos_read(struct chaos_run *run)
{
    int status;
    struct admin_round round;
    admin_round_begin(run->cli, &round);
    struct admin_ask *asks =
        ask_all(run, REQ_ONCE_CHAOS, admin_fields(run->cli, ASK("action", "read")), &status);
    status = status ? status : counts_take(run, asks);
    admin_round_end(run->cli, &round);
    return status;
}

int chaos_clear(struct chaos_run *run)
{
    int worst = STATUS_OK;
    for (size_t i = 0; i < run->brokers.n; i++) {
        const struct json *body;
        struct omq_error why;
        if (run->plans[i] && admin_ask(run->cli, run->brokers.brokers[i].master, REQ_ONCE_CHAOS,
                                       ASK("action", "clear", "plan", run->plans[i]),
                                       (struct bytes){0}, &body, &why))
            worst = cli_fail_omq(run->cli, &why, run->brokers.brokers[i].name);
    }
    return worst;
}

static int jump(struct chaos_run *run)
{
    int status;
    struct admin_round round;
    admin_round_begin(run->cli, &round);
    struct admin_ask *asks =
        ask_all(run, REQ_ONCE_ADVANCE_CLOCK,
                admin_fields(run->cli, ASK("advanceMillis", number(run->cli, run->wishes.jump_ms))),
                &status);
    for (size_t i = 0; !status && i < run->brokers.n; i++)
        if (asks[i].code)
            status = refused(run, &asks[i], "a clock that jumps is oncemqd --clock virtual");
    admin_round_end(run->cli, &round);
    if (!status)
        run->advanced_ms += run->wishes.jump_ms;
    return status;
}

/* ---- sending ---- */

/* Its own client: connections that send are killed. */
struct sending {
    struct chaos_run *run;
    struct omq_client *client;
    struct omq_producer *producer;
    int64_t begun;
    atomic_llong done, failed;
};

static int sending_open(struct sending *s)
{
    struct cli *cli = s->run->cli;
    const struct omq_client_options options = cli_client_options(cli);
    const struct omq_producer_options as = {
        .group = PRODUCER_GROUP, .timeout_ms = SEND_MS, .try_timeout_ms = TRY_MS, .retries = TRIES};
    struct omq_error why;
    if (s->run->wishes.send == 0)
        return STATUS_OK;
    if (omq_client_open(&options, &s->client, &why))
        return cli_fail_omq(cli, &why, NULL);
    if (omq_producer_open(s->client, &as, &s->producer, &why)) {
        omq_client_close(s->client);
        s->client = NULL;
        return cli_fail_omq(cli, &why, NULL);
    }
    return STATUS_OK;
}

static void sending_close(struct sending *s)
{
    if (s->producer)
        omq_producer_close(s->producer);
    if (s->client)
        omq_client_close(s->client);
}

/* A thread of the library's. */
static void sent(void *user, const struct omq_receipt *receipt, const struct omq_error *why)
{
    struct sending *s = user;
    (void)receipt;
    if (why)
        atomic_fetch_add(&s->failed, 1);
    atomic_fetch_add(&s->done, 1);
}

static int send_one(struct sending *s)
{
    const struct chaos_wishes *w = &s->run->wishes;
    char key[300], body[400];
    (void)snprintf(key, sizeof key, "%s%06" PRId64, w->prefix, s->begun + 1);
    int n = snprintf(body, sizeof body, "{\"key\":\"%s\"}", key);
    const struct omq_message m = {
        .topic = w->topic, .keys = key, .body = body, .body_size = (size_t)n};
    struct omq_error why;
    int code = omq_send_async(s->producer, &m, sent, s, &why);
    if (code == OMQ_BUSY)
        return STATUS_OK; /* the next tick tries again */
    if (code)
        return cli_fail_omq(s->run->cli, &why, "sending");
    s->begun++;
    return STATUS_OK;
}

static bool sending_over(struct sending *s)
{
    return s->begun == s->run->wishes.send && atomic_load(&s->done) == s->begun;
}

/* ---- driving ---- */

/* What is due after so many ms: messages are spread over nine tenths of the time, jumps over all of
 * it. */
static int drive_turn(struct sending *s, int64_t at_ms, int64_t *jumped)
{
    struct chaos_run *run = s->run;
    const struct chaos_wishes *w = &run->wishes;
    int64_t span_ms = w->run_ms - w->run_ms / 10, due = w->send;
    int status = STATUS_OK;
    if (at_ms < span_ms)
        due = (int64_t)((double)w->send * (double)at_ms / (double)span_ms);
    for (int64_t before = -1; !status && s->begun < due && s->begun != before;) {
        before = s->begun;
        status = send_one(s);
    }
    if (!status && *jumped < w->jumps && at_ms >= (*jumped + 1) * w->run_ms / (w->jumps + 1)) {
        status = jump(run);
        (*jumped)++;
    }
    return status;
}

int chaos_drive(struct chaos_run *run)
{
    struct cli *cli = run->cli;
    struct sending sending = {.run = run};
    struct progress progress;
    int64_t began_ms = now_ms(), at_ms = 0, jumped = 0, run_ms = run->wishes.run_ms;
    int status = sending_open(&sending);
    progress_begin(&progress, cli, "making faults", (uint64_t)run_ms);
    while (!status && !cli_stopped(cli) && (at_ms < run_ms || !sending_over(&sending))) {
        status = drive_turn(&sending, at_ms, &jumped);
        progress_move(&progress, (uint64_t)(at_ms < run_ms ? at_ms : run_ms));
        cli_wait(cli, TICK_MS);
        at_ms = now_ms() - began_ms;
    }
    progress_end(&progress);
    sending_close(&sending);
    int64_t failed = atomic_load(&sending.failed);
    if (!status && failed > 0)
        cli_note(cli, "%" PRId64 " sends have failed; what of them was stored counts as sent",
                 failed);
    return status;
}
