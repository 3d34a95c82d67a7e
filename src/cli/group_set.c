/* group_set.c - making, changing and deleting groups. */
#include "cli/group_int.h"

#include "cli/topic_int.h"
#include "remoting/codes.h"

#include <string.h>

#define NAMES_SHOWN 5
#define NUMBER_MAX  1000000

const struct column group_set_columns[] = {
    {"group", COLUMN_TEXT, "GROUP", "its name"},
    {"broker", COLUMN_TEXT, "BROKER", "where"},
    {"result", COLUMN_TEXT, "RESULT", "created, changed, unchanged or failed"},
    GROUP_SETTINGS_COLUMNS,
    {NULL},
};

const struct opt group_set_options[] = {
    {"retry-max", OPT_NUMBER, "N", "how often a message is tried again before it is a dead letter"},
    {"retry-queues", OPT_NUMBER, "N", "queues of its retry topic"},
    {"enable", OPT_CHOICE, "YES", "whether it may consume", .choices = "yes|no"},
    {"orderly", OPT_CHOICE, "YES", "whether it consumes in order", .choices = "yes|no"},
    {"broadcast", OPT_CHOICE, "YES", "whether it may consume as broadcast", .choices = "yes|no"},
    {"from-min", OPT_CHOICE, "YES", "whether it may begin with the first message there is",
     .choices = "yes|no"},
    {"consume-timeout", OPT_DURATION, "TIME", "how long one message may take, in whole minutes"},
    {"cluster", OPT_TEXT, "NAME", "on the brokers of this cluster"},
    {"broker", OPT_TEXT, "NAME", "on this broker: its name or host:port", .many = true},
    {NULL},
};

struct change {
    const struct admin_broker *broker;
    const struct admin_group *now; /* NULL: it does not know the group */
    struct group_settings then;
    bool differs, done;
};

/* ---- group set ---- */

static void flag_take(const struct cli *cli, const char *option, bool *flag)
{
    const char *given = arg_text(cli, option, NULL);
    if (given)
        *flag = strcmp(given, "yes") == 0;
}

static void change_plan(const struct cli *cli, const char *group, struct change *c)
{
    c->then = c->now ? c->now->set : group_settings_default(bytes_str(group));
    const struct group_settings before = c->then;
    struct group_settings *t = &c->then;
    t->retry_max = (int32_t)arg_number(cli, "retry-max", t->retry_max);
    t->retry_queues = (int32_t)arg_number(cli, "retry-queues", t->retry_queues);
    t->consume_timeout_min =
        (int32_t)(arg_number(cli, "consume-timeout", (int64_t)t->consume_timeout_min * 60000) /
                  60000);
    flag_take(cli, "enable", &t->consume_enable);
    flag_take(cli, "orderly", &t->orderly);
    flag_take(cli, "broadcast", &t->broadcast_enable);
    flag_take(cli, "from-min", &t->from_min_enable);
    c->differs = !c->now || t->retry_max != before.retry_max ||
                 t->retry_queues != before.retry_queues ||
                 t->consume_timeout_min != before.consume_timeout_min ||
                 t->consume_enable != before.consume_enable || t->orderly != before.orderly ||
                 t->broadcast_enable != before.broadcast_enable ||
                 t->from_min_enable != before.from_min_enable;
}

/* What we change is written anew, the rest goes back as it came: a broker may know more of a group
 * than we do. Attributes are left out, which leaves them alone: in a change they mean orders. */
static struct bytes body_write(struct cli *cli, const struct change *c)
{
    static const char *const ours[] = {
        "attributes",           "consumeEnable", "consumeMessageOrderly", "consumeBroadcastEnable",
        "consumeFromMinEnable", "retryMaxTimes", "retryQueueNums",        "consumeTimeoutMinute"};
    struct buf text = buf_upto((size_t)1 << 24);
    struct json_out w = {.buf = &text};
    if (!c->now)
        group_settings_write(&w, &c->then);
    else {
        json_open(&w);
        json_each(node, c->now->json) {
            bool kept = node->key != NULL;
            for (size_t i = 0; kept && i < sizeof ours / sizeof *ours; i++)
                kept = !bytes_equal(json_text(node->key, BYTES("")), bytes_str(ours[i]));
            if (kept) {
                json_key_text(&w, json_text(node->key, BYTES("")));
                json_put(&w, node);
            }
        }
        json_bool_member(&w, "consumeEnable", c->then.consume_enable);
        json_bool_member(&w, "consumeMessageOrderly", c->then.orderly);
        json_bool_member(&w, "consumeBroadcastEnable", c->then.broadcast_enable);
        json_bool_member(&w, "consumeFromMinEnable", c->then.from_min_enable);
        json_int_member(&w, "retryMaxTimes", c->then.retry_max);
        json_int_member(&w, "retryQueueNums", c->then.retry_queues);
        json_int_member(&w, "consumeTimeoutMinute", c->then.consume_timeout_min);
        json_close(&w);
    }
    char *copy = admin_alloc(cli, text.len, 1);
    memcpy(copy, text.at, text.len);
    struct bytes body = bytes_of(copy, text.len);
    buf_clear(&text);
    return body;
}

static int changes_make(struct cli *cli, struct change *changes, size_t n)
{
    struct admin_ask *asks = admin_alloc(cli, n, sizeof *asks);
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (changes[i].differs)
            asks[count++] = (struct admin_ask){.server = changes[i].broker->master,
                                               .broker = changes[i].broker->name,
                                               .request = REQ_UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                                               .body = body_write(cli, &changes[i])};
    int status = count > 0 ? admin_ask_all(cli, asks, count) : STATUS_OK;
    if (status)
        return status;
    count = 0;
    for (size_t i = 0; i < n; i++)
        if (changes[i].differs)
            changes[i].done = asks[count++].code == OMQ_OK;
    return admin_verdict(cli, asks, count);
}

static void change_show(struct cli *cli, const char *group, const struct change *c)
{
    const struct group_settings *set = c->done || !c->differs ? &c->then
                                       : c->now               ? &c->now->set
                                                              : NULL;
    row_begin(cli);
    put_text(cli, "group", group);
    put_text(cli, "broker", c->broker->name);
    put_text(cli, "result", admin_change_text(c->differs, c->done, c->now != NULL));
    if (set)
        group_settings_put(cli, set);
    row_end(cli);
}

static int options_check(struct cli *cli)
{
    int64_t ms = arg_number(cli, "consume-timeout", 60000);
    if (arg_number(cli, "retry-max", 0) > NUMBER_MAX || arg_number(cli, "retry-queues", 1) < 1 ||
        arg_number(cli, "retry-queues", 1) > NUMBER_MAX)
        return cli_fail(cli, STATUS_USAGE, NULL,
                        "retries and queues are at most %d, queues 1 or more", NUMBER_MAX);
    if (ms < 60000 || ms % 60000 || ms / 60000 > NUMBER_MAX)
        return cli_fail(cli, STATUS_USAGE, "--consume-timeout 15m",
                        "the time that one message may take is in whole minutes");
    return STATUS_OK;
}

int group_set(struct cli *cli)
{
    const char *group = arg_at(cli, 0);
    struct admin_cluster on;
    struct admin_group *groups;
    size_t n;
    int status = admin_group_check(cli, group);
    if (!status)
        status = options_check(cli);
    if (!status)
        status = admin_chosen(cli, &on);
    if (!status)
        status = admin_masters(cli, &on);
    if (!status)
        status = admin_whole(cli, admin_group_config(cli, &on, group, &groups, &n));
    if (status)
        return status;
    struct change *changes = admin_alloc(cli, on.n, sizeof *changes);
    for (size_t b = 0; b < on.n; b++) {
        changes[b].broker = &on.brokers[b];
        for (size_t i = 0; i < n; i++)
            if (strcmp(groups[i].broker, on.brokers[b].name) == 0)
                changes[b].now = &groups[i];
        change_plan(cli, group, &changes[b]);
    }
    status = changes_make(cli, changes, on.n);
    for (size_t b = 0; b < on.n; b++)
        change_show(cli, group, &changes[b]);
    return status;
}

/* ---- group delete ---- */

const struct column group_delete_columns[] = {
    {"group", COLUMN_TEXT, "GROUP", "its name"},
    {"topic", COLUMN_TEXT, "TOPIC", "with --topics: its retry topic or dead letters",
     .optional = true},
    {"server", COLUMN_TEXT, "SERVER", "a broker's name, or a name server's address"},
    {"result", COLUMN_TEXT, "RESULT", "deleted or failed"},
    {NULL},
};

const struct opt group_delete_options[] = {
    {"keep-offsets", OPT_SWITCH, NULL, "its offsets stay: a group of that name goes on from there"},
    {"topics", OPT_SWITCH, NULL, "also its retry topic and its dead letters"},
    {"cluster", OPT_TEXT, "NAME", "only on the brokers of this cluster"},
    {NULL},
};

static int delete_confirm(struct cli *cli, const struct admin_cluster *on,
                          const char *const *groups, size_t n)
{
    struct admin_consume_stats *stats;
    struct admin_consumers *consumers;
    struct admin_topic_stats *dead;
    const char **dlqs = admin_alloc(cli, n, sizeof *dlqs);
    for (size_t i = 0; i < n; i++)
        dlqs[i] = admin_format(cli, "%%DLQ%%%s", groups[i]);
    int status = admin_whole(cli, admin_consume_stats(cli, on, groups, n, NULL, &stats));
    if (!status)
        status = admin_whole(cli, admin_consumers(cli, on, groups, n, &consumers));
    if (!status)
        status = admin_whole(cli, admin_topic_stats(cli, on, dlqs, n, &dead));
    if (status)
        return status;
    size_t clients = 0;
    double lag = 0, letters = 0;
    for (size_t i = 0; i < n; i++) {
        clients += consumers[i].n;
        lag += (double)stats[i].lag;
        letters += (double)dead[i].messages;
    }
    return cli_confirm(
        cli, "delete group%s %s (%.0f messages not consumed%s%s)%s?", n > 1 ? "s" : "",
        admin_list_text(cli, groups, n, NAMES_SHOWN), lag,
        clients > 0 ? admin_format(cli, ", %zu clients connected", clients) : "",
        arg_has(cli, "topics") ? admin_format(cli, ", %.0f dead letters to be lost", letters) : "",
        arg_has(cli, "keep-offsets") ? "" : " with all offsets");
}

static int group_forget(struct cli *cli, const struct admin_cluster *on, const char *group)
{
    struct admin_ask *asks = admin_alloc(cli, on->n, sizeof *asks);
    const char *offsets = arg_has(cli, "keep-offsets") ? "false" : "true";
    for (size_t i = 0; i < on->n; i++)
        asks[i] = (struct admin_ask){
            .server = on->brokers[i].master,
            .broker = on->brokers[i].name,
            .request = REQ_DELETE_SUBSCRIPTIONGROUP,
            .absent = RES_SUBSCRIPTION_GROUP_NOT_EXIST,
            .fields = admin_fields(
                cli, ASK("groupName", group, "cleanOffset", offsets, "removeOffset", offsets)),
        };
    int status = admin_ask_all(cli, asks, on->n);
    for (size_t i = 0; !status && i < on->n; i++) {
        row_begin(cli);
        put_text(cli, "group", group);
        put_text(cli, "server", asks[i].broker);
        put_text(cli, "result", asks[i].code ? "failed" : "deleted");
        row_end(cli);
    }
    if (!status)
        status = admin_verdict(cli, asks, on->n);
    static const char *const prefixes[] = {"%RETRY%", "%DLQ%"};
    for (size_t i = 0; !status && arg_has(cli, "topics") && i < 2; i++)
        status = topic_forget(cli, on, group, admin_format(cli, "%s%s", prefixes[i], group));
    return status;
}

/* Consumers that are connected make a group anew, and so does Apache's broker 5.5.0 itself when its
 * offsets are to stay: it looks for the settings that it has just deleted. */
static void rebirth_note(struct cli *cli, const struct admin_cluster *on, const char *group)
{
    struct admin_group *known;
    size_t n = 0;
    if (!admin_none(admin_group_config(cli, on, group, &known, &n)) && n > 0)
        cli_note(cli,
                 "group %s is there again, with default settings: a consumer or the broker made it",
                 group);
}

int group_delete(struct cli *cli)
{
    struct admin_cluster on;
    size_t n = arg_count(cli), done = 0;
    const char **groups = admin_alloc(cli, n, sizeof *groups);
    int status = admin_chosen(cli, &on);
    if (!status)
        status = admin_masters(cli, &on);
    for (size_t i = 0; !status && i < n; i++) {
        struct admin_group *known;
        size_t found = 0;
        groups[i] = arg_at(cli, i);
        status = admin_group_check(cli, groups[i]);
        if (!status && admin_group_is_system(groups[i]))
            status = cli_fail(cli, STATUS_USAGE, NULL, "%s is a group of the system", groups[i]);
        if (!status)
            status = admin_whole(cli, admin_group_config(cli, &on, groups[i], &known, &found));
        if (!status && found == 0)
            status = admin_group_missing(cli, &on, groups[i]);
    }
    if (!status)
        status = delete_confirm(cli, &on, groups, n);
    for (; !status && done < n; done++)
        status = group_forget(cli, &on, groups[done]);
    for (size_t i = 0; !status && i < n; i++)
        rebirth_note(cli, &on, groups[i]);
    return status && done > 1 ? STATUS_PARTLY : status;
}
