/* clock.c - the clocks of brokers: what they show, and putting forward one that is made for it.
 *
 * No request of the protocol asks for the time. oncemqd tells it among its numbers
 * (currentTimestamp of GET_BROKER_RUNTIME_INFO): the clock that dates messages, which a virtual one
 * has put forward. Apache's broker tells when it last heard of a producer, so one is announced for
 * a moment and looked up; it is forgotten when our connection closes.
 */
#include "cli/operate_int.h"
#include "remoting/codes.h"

#include <stdlib.h>
#include <unistd.h>

#define CLOCK_GROUP "ONCEMQ_CLOCK" /* of the producer that is announced */

const struct column clock_columns[] = {
    {"broker", COLUMN_TEXT, "BROKER", "its name"},
    {"address", COLUMN_TEXT, "ADDRESS", "of the master"},
    {"time", COLUMN_TIME, "TIME", "what its clock shows"},
    {"ahead_ms", COLUMN_NUMBER, "AHEAD (MS)",
     "of the clock of this machine, in ms; negative: behind"},
    {NULL},
};
const struct column clock_advance_columns[] = {
    {"broker", COLUMN_TEXT, "BROKER", "its name"},
    {"address", COLUMN_TEXT, "ADDRESS", "of the master"},
    {"advanced", COLUMN_DURATION, "ADVANCED", "by how much"},
    {"time", COLUMN_TIME, "TIME", "what its clock shows now"},
    {NULL},
};
const struct opt clock_options[] = {
    {"broker", OPT_TEXT, "NAME", "only the broker of that name"},
    {NULL},
};

/* ---- asking ---- */

/* Apache's broker: -1 if it does not know the producer either. */
static int64_t producer_seen(const struct json *body, const char *client_id)
{
    json_each(one, json_member(json_member(body, "data"), CLOCK_GROUP))
        if (bytes_equal(json_text(json_member(one, "clientId"), BYTES("")), bytes_str(client_id)))
            return admin_time(json_member(one, "lastUpdateTimestamp"));
    return -1;
}

static int announced(struct cli *cli, const char *broker, int64_t *at_ms, struct clock_lead *lead,
                     struct omq_error *why)
{
    char id[64], heartbeat[256];
    const struct json *body;
    (void)snprintf(id, sizeof id, "oncemq@%d", (int)getpid());
    int n = snprintf(heartbeat, sizeof heartbeat,
                     "{\"clientID\":\"%s\",\"consumerDataSet\":[],"
                     "\"producerDataSet\":[{\"groupName\":\"" CLOCK_GROUP "\"}]}",
                     id);
    int64_t before = now_ms();
    int code =
        admin_ask(cli, broker, REQ_HEART_BEAT, NULL, bytes_of(heartbeat, (size_t)n), &body, why);
    int64_t after = now_ms();
    if (!code)
        code =
            admin_ask(cli, broker, REQ_GET_ALL_PRODUCER_INFO, NULL, (struct bytes){0}, &body, why);
    if (code)
        return code;
    *at_ms = producer_seen(body, id);
    lead->exact_ms = (after - before + 1) / 2;
    lead->ms = *at_ms - (before + lead->exact_ms);
    return OMQ_OK;
}

int clock_ask(struct cli *cli, const char *broker, struct clock_lead *out, struct omq_error *why)
{
    const struct json *body;
    int64_t before = now_ms();
    int code =
        admin_ask(cli, broker, REQ_GET_BROKER_RUNTIME_INFO, NULL, (struct bytes){0}, &body, why);
    int64_t after = now_ms();
    if (code)
        return code;
    int64_t at_ms = admin_time(json_member(json_member(body, "table"), "currentTimestamp"));
    struct clock_lead lead = {.exact_ms = (after - before + 1) / 2};
    lead.ms = at_ms - (before + lead.exact_ms);
    if (at_ms < 0 && (code = announced(cli, broker, &at_ms, &lead, why)))
        return code;
    if (at_ms < 0) {
        *why = (struct omq_error){.code = OMQ_PROTOCOL};
        (void)snprintf(why->text, sizeof why->text, "the broker %s does not tell its time", broker);
        return OMQ_PROTOCOL;
    }
    *out = lead;
    return OMQ_OK;
}

/* ---- commands ---- */

/* Calls `each` for the masters that --broker means. */
static int for_masters(struct cli *cli, int (*each)(struct cli *, const struct admin_broker *))
{
    struct admin_cluster cluster;
    const char *only = arg_text(cli, "broker", NULL);
    int status = admin_cluster(cli, &cluster), worst = STATUS_OK;
    size_t asked = 0;
    for (size_t i = 0; !status && i < cluster.n; i++) {
        const struct admin_broker *b = &cluster.brokers[i];
        if (!b->master || (only && strcmp(b->name, only) != 0))
            continue;
        int one = each(cli, b);
        asked++;
        worst = one ? one : worst;
    }
    if (status)
        return status;
    if (asked == 0)
        return cli_fail(cli, STATUS_NOT_FOUND, "oncemq cluster shows what there is",
                        "there is no broker%s%s with a master", only ? " " : "",
                        only ? printable(cli, bytes_str(only)) : "");
    return worst && asked > 1 ? STATUS_PARTLY : worst;
}

static int show_one(struct cli *cli, const struct admin_broker *b)
{
    struct clock_lead lead;
    struct omq_error why;
    if (clock_ask(cli, b->master, &lead, &why))
        return cli_fail_omq(cli, &why, b->name);
    row_begin(cli);
    put_text(cli, "broker", b->name);
    put_text(cli, "address", b->master);
    put_number(cli, "time", now_ms() + lead.ms);
    put_number(cli, "ahead_ms", lead.ms);
    row_end(cli);
    return STATUS_OK;
}

int clock_show(struct cli *cli)
{
    return for_masters(cli, show_one);
}

static int advance_one(struct cli *cli, const struct admin_broker *b)
{
    int status;
    struct omq_client *client = cli_client(cli, &status);
    int64_t by_ms = 0, at_ms = 0;
    if (!client || !value_duration(arg_at(cli, 0), &by_ms))
        return client ? STATUS_USAGE : status;
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)by_ms);
    struct omq_property field = {"advanceMillis", text};
    struct omq_answer *answer;
    struct omq_error why;
    int code =
        omq_call(client, b->master, REQ_ONCE_ADVANCE_CLOCK, &field, 1, NULL, 0, 0, &answer, &why);
    if (code && (why.response_code == RES_NO_PERMISSION ||
                 why.response_code == RES_REQUEST_CODE_NOT_SUPPORTED))
        return cli_fail(cli, STATUS_FAILED, "a daemon for tests is started with --clock virtual",
                        "%s: %s", b->name, printable(cli, bytes_str(why.text)));
    if (code)
        return cli_fail_omq(cli, &why, b->name);
    const char *now = omq_answer_field(answer, "timestamp");
    row_begin(cli);
    put_text(cli, "broker", b->name);
    put_text(cli, "address", b->master);
    put_number(cli, "advanced", by_ms);
    if (now && bytes_to_i64(bytes_str(now), &at_ms))
        put_number(cli, "time", at_ms);
    row_end(cli);
    omq_answer_free(answer);
    return STATUS_OK;
}

int clock_advance(struct cli *cli)
{
    int64_t ms;
    if (!value_duration(arg_at(cli, 0), &ms))
        return cli_fail(cli, STATUS_USAGE, "a duration is 250ms, 90s, 1h30m, 2d",
                        "%s is no duration", printable(cli, bytes_str(arg_at(cli, 0))));
    return for_masters(cli, advance_one);
}
