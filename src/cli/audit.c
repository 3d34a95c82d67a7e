/* audit.c - `oncemq audit`: how many duplicates were sent, delivered, suppressed, and how many
 * effects are unsure. */
#include "cli/audit_int.h"

#include "cli/admin.h"
#include "cli/commands_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct column topic_columns[] = {
    {"topic", COLUMN_TEXT, "TOPIC", "the topic"},
    {"messages", COLUMN_NUMBER, "MESSAGES", "that are stored in it"},
    {"sent_twice", COLUMN_NUMBER, "SENT TWICE", "of these, copies of an earlier one"},
    {"by_id", COLUMN_NUMBER, "BY ID", "same unique id and body: a producer's retry"},
    {"by_key", COLUMN_NUMBER, "BY KEY",
     "same keys and body under another id: somebody upstream sent it twice"},
    {NULL},
};

static const struct column group_columns[] = {
    {"group", COLUMN_TEXT, "GROUP", "the group, as its consumers call it"},
    {"keys", COLUMN_NUMBER, "KEYS", "that were delivered to it"},
    {"done", COLUMN_NUMBER, "DONE", "of these, keys whose effect is recorded"},
    {"delivered_again", COLUMN_NUMBER, "AGAIN",
     "deliveries of a key beyond the first that no failure had asked for"},
    {"suppressed", COLUMN_NUMBER, "SUPPRESSED", "deliveries that found their effect done already"},
    {"refused", COLUMN_NUMBER, "REFUSED", "the same, with another body"},
    {"unsure", COLUMN_NUMBER, "UNSURE",
     "keys whose claim was lost, or taken over, while a handler had it"},
    {NULL},
};

static const struct column copy_columns[] = {
    {"topic", COLUMN_TEXT, "TOPIC", "the topic"},
    {"kind", COLUMN_TEXT, "SAME", "id: same unique id; key: same keys, another id"},
    {"copies", COLUMN_NUMBER, "COPIES", "of this message, with the first"},
    {"id", COLUMN_TEXT, "ID", "of one of them"},
    {"keys", COLUMN_TEXT, "KEYS", "its keys"},
    {"stored_ms", COLUMN_TIME, "STORED", "when it was stored"},
    {"broker", COLUMN_TEXT, NULL, "where"},
    {"queue", COLUMN_NUMBER, "QUEUE", "in which queue"},
    {"offset", COLUMN_NUMBER, "OFFSET", "at which place"},
    {NULL},
};

static const struct column doubt_columns[] = {
    {"group", COLUMN_TEXT, "GROUP", "the group"},
    {"key", COLUMN_TEXT, "KEY", "the key, as far as it can be shown"},
    {"at_ms", COLUMN_TIME, "WHEN", "by the broker's clock"},
    {"what", COLUMN_TEXT, "WHAT", "why it is unsure"},
    {NULL},
};

static const struct column columns[] = {
    {"state", COLUMN_STATE, "State", "warn: some effects are unsure"},
    {"messages", COLUMN_NUMBER, "Messages", "that were looked at"},
    {"sent_twice", COLUMN_NUMBER, "Sent twice", "of these, copies of an earlier one"},
    {"refused_at_producer", COLUMN_NUMBER, "Refused at the producer",
     "sends that brokers with producer dedup have not stored again, since they started; null: "
     "nobody tells"},
    {"resent", COLUMN_NUMBER, "Resent", "dead letters that were sent back; no duplicates"},
    {"delivered_again", COLUMN_NUMBER, "Delivered again",
     "beyond the first, without a failure; null: there is no once ledger"},
    {"suppressed", COLUMN_NUMBER, "Suppressed", "of those, without effect"},
    {"refused", COLUMN_NUMBER, "Refused", "of those, because their body was another"},
    {"unsure", COLUMN_NUMBER, "Unsure", "keys whose effect may have happened twice"},
    {"bad_records", COLUMN_NUMBER, NULL, "records of the ledger that cannot be read"},
    {"topics", COLUMN_LIST, "Topics", "that have messages", topic_columns},
    {"groups", COLUMN_LIST, "Groups", "that the ledger knows", group_columns},
    {"copies", COLUMN_LIST, "Examples of copies",
     "examples: two of each message that was sent twice", copy_columns},
    {"doubts", COLUMN_LIST, "Examples of doubts", "examples of keys that are unsure",
     doubt_columns},
    {NULL},
};

static void topics_put(struct audit *a)
{
    struct cli *cli = a->cli;
    list_open(cli, "topics");
    for (size_t i = 0; i < a->n_topics; i++) {
        const struct audit_topic *t = a->topic_list[i];
        if (t->messages == 0)
            continue;
        row_begin(cli);
        put_text(cli, "topic", t->name);
        put_number(cli, "messages", (int64_t)t->messages);
        put_number(cli, "sent_twice", (int64_t)(t->twice_by_id + t->twice_by_key));
        put_number(cli, "by_id", (int64_t)t->twice_by_id);
        put_number(cli, "by_key", (int64_t)t->twice_by_key);
        row_end(cli);
    }
    list_close(cli);
}

static void groups_put(struct audit *a)
{
    struct cli *cli = a->cli;
    list_open(cli, "groups");
    for (size_t i = 0; i < a->n_groups; i++) {
        const struct audit_group *g = a->group_list[i];
        row_begin(cli);
        put_text(cli, "group", g->name);
        put_number(cli, "keys", (int64_t)g->keys);
        put_number(cli, "done", (int64_t)g->done);
        put_number(cli, "delivered_again", (int64_t)g->again);
        put_number(cli, "suppressed", (int64_t)g->suppressed);
        put_number(cli, "refused", (int64_t)g->refused);
        put_number(cli, "unsure", (int64_t)g->unsure);
        row_end(cli);
    }
    list_close(cli);
}

static void copy_put(struct cli *cli, struct bytes id, struct bytes keys, int64_t stored_ms,
                     int32_t queue, int64_t offset)
{
    put_bytes(cli, "id", id);
    put_bytes(cli, "keys", keys);
    put_number(cli, "stored_ms", stored_ms);
    put_number(cli, "queue", queue);
    put_number(cli, "offset", offset);
}

static void pairs_put(struct audit *a, const char *folder)
{
    struct cli *cli = a->cli;
    list_open(cli, "copies");
    for (size_t i = 0; i < 2 * a->n_pairs; i++) {
        const struct audit_pair *p = &a->pairs[i / 2];
        const struct audit_lane *lane = p->lanes[i % 2];
        row_begin(cli);
        put_text(cli, "topic", lane->topic->name);
        put_text(cli, "kind", p->by_key ? "key" : "id");
        put_number(cli, "copies", (int64_t)p->copies);
        put_text(cli, "broker", lane->broker);
        /* One that is gone meanwhile is shown without its names. */
        int ignored = folder ? audit_folder_show(a, folder, p->places[i % 2], copy_put)
                             : audit_live_show(a, lane, p->places[i % 2], copy_put);
        (void)ignored;
        row_end(cli);
    }
    list_close(cli);
}

static void doubts_put(struct audit *a)
{
    struct cli *cli = a->cli;
    list_open(cli, "doubts");
    for (size_t i = 0; i < a->n_doubts; i++) {
        if (a->doubts[i].group->unsure == 0)
            continue; /* whoever lost it never had it */
        row_begin(cli);
        put_text(cli, "group", a->doubts[i].group->name);
        put_text(cli, "key", a->doubts[i].key);
        put_number(cli, "at_ms", a->doubts[i].at_ms);
        put_text(cli, "what", a->doubts[i].event);
        row_end(cli);
    }
    list_close(cli);
}

static void sums_put(struct audit *a)
{
    struct cli *cli = a->cli;
    uint64_t twice = 0, again = 0, suppressed = 0, refused = 0, unsure = 0;
    for (size_t i = 0; i < a->n_topics; i++)
        twice += a->topic_list[i]->twice_by_id + a->topic_list[i]->twice_by_key;
    for (size_t i = 0; i < a->n_groups; i++) {
        again += a->group_list[i]->again;
        suppressed += a->group_list[i]->suppressed;
        refused += a->group_list[i]->refused;
        unsure += a->group_list[i]->unsure;
    }
    put_text(cli, "state", unsure > 0 || a->bad_entries > 0 ? "warn" : "ok");
    put_number(cli, "messages", (int64_t)a->n_messages);
    put_number(cli, "sent_twice", (int64_t)twice);
    put_number(cli, "resent", (int64_t)a->resent);
    if (a->refused >= 0)
        put_number(cli, "refused_at_producer", a->refused);
    if (!a->ledger)
        return;
    put_number(cli, "delivered_again", (int64_t)again);
    put_number(cli, "suppressed", (int64_t)suppressed);
    put_number(cli, "refused", (int64_t)refused);
    put_number(cli, "unsure", (int64_t)unsure);
    put_number(cli, "bad_records", (int64_t)a->bad_entries);
}

static int audit_run(struct cli *cli)
{
    const char *folder = arg_text(cli, "dir", NULL);
    struct audit a;
    cli_catch_stop(cli);
    int status = audit_open(&a, cli);
    if (!status)
        status = folder ? audit_folder(&a, folder) : audit_live(&a);
    if (!admin_none(status) && !cli_stopped(cli))
        status = admin_join(status, audit_count(&a));
    if (!admin_none(status) && !cli_stopped(cli)) {
        row_begin(cli);
        sums_put(&a);
        topics_put(&a);
        groups_put(&a);
        pairs_put(&a, folder);
        doubts_put(&a);
        row_end(cli);
    }
    audit_close(&a);
    return cli_stopped(cli) ? STATUS_INTERRUPTED : status;
}

static const struct opt options[] = {
    {"dir", OPT_TEXT, "DIR", "a data folder, of oncemqd or of Apache RocketMQ, instead of brokers",
     .letter = 'd'},
    {"from", OPT_TIME, "TIME", "what was stored then or later: -1h, 2026-11-16T14:30:00Z"},
    {"to", OPT_TIME, "TIME", "what was stored before that"},
    {NULL},
};

const struct command audit_commands[] = {
    {
        .name = "audit",
        .arguments = "[TOPIC…]",
        .summary = "how many duplicates were sent, delivered and suppressed; which effects are "
                   "unsure",
        .text =
            "Reads all messages of the topics (default: all but those that brokers keep for "
            "themselves) and counts those that were sent twice: the same unique id and body, which "
            "is what a producer's retry makes, or the same keys and body under another id, which "
            "is what somebody upstream did. Retries of consumers and dead letters are not "
            "duplicates.\n\nThe once ledger tells the rest (consumers with store broker:): which "
            "keys were delivered again, what was suppressed, and which effects are unsure: those "
            "whose claim was lost, or taken over from a run that never ended.\n\nWith --dir a data "
            "folder is read instead, also one that is in use: the log alone, once. Memory is "
            "bounded: what does not fit is sorted in a file below TMPDIR, about 40 bytes a "
            "message.",
        .examples = "oncemq audit\n"
                    "oncemq audit orders payments --from -1d --json\n"
                    "oncemq audit --dir /var/lib/oncemq",
        .options = options,
        .shape = SHAPE_ONE,
        .columns = columns,
        .run = audit_run,
    },
    {NULL},
};
