/* dlq_resend.c - `oncemq dlq resend`: dead letters, back to where they came from, each once. */
#include "cli/dlq_int.h"

#include <stdlib.h>
#include <string.h>

/* ---- a letter as a message ---- */

/* What a broker or a client wrote there on the way, and what has a place of its own. */
static bool is_own(const char *name)
{
    static const char *const others[] = {
        "UNIQ_KEY",
        "KEYS",
        "TAGS",
        "WAIT",
        "DELAY",
        "RETRY_TOPIC",
        "ORIGIN_MESSAGE_ID",
        "REAL_TOPIC",
        "REAL_QID",
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
        "RECONSUME_TIME",
        "MAX_RECONSUME_TIMES",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "CLUSTER",
        "TRAN_MSG",
        "PGROUP",
        "CONSUME_START_TIME",
        "POP_CK",
        "1ST_POP_TIME",
        "MSG_REGION",
        "TRACE_ON",
        "DEDUP_PLACE",
        "TRANSACTION_PREPARED_QUEUE_OFFSET",
        "TRANSACTION_CHECK_TIMES",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "__transactionId__",
        "__SHARDINGKEY",
        "INNER_NUM",
        "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET",
        LETTER_PROPERTY,
        NOTE_PROPERTY,
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0)
            return false;
    return strncmp(name, "TIMER_", 6) != 0;
}

static int copy_send(struct settle *r, struct letter *l, const struct omq_delivery *d)
{
    struct omq_property *properties = calloc(d->n_properties + 2, sizeof *properties);
    if (!properties)
        return cli_fail(r->cli, STATUS_FAILED, NULL, "no memory for a message");
    bool to_group = r->target != NULL;
    struct omq_message message = {
        .topic = l->topic,
        .body = d->body,
        .body_size = d->body_size,
        .tag = d->tag[0] ? d->tag : NULL,
        .keys = d->keys[0] ? d->keys : NULL,
        .sharding_key = to_group ? NULL : omq_delivery_property(d, "__SHARDINGKEY"),
        .properties = properties,
        .flag = d->flag,
        .id = l->id,
    };
    size_t n = 0;
    for (size_t i = 0; i < d->n_properties; i++)
        if (is_own(d->properties[i].name))
            properties[n++] = d->properties[i];
    properties[n++] = (struct omq_property){LETTER_PROPERTY, l->place};
    if (to_group)
        properties[n++] = (struct omq_property){"RETRY_TOPIC", letter_origin(d)};
    message.n_properties = n;
    settle_send(r, &message, l);
    free(properties);
    return STATUS_OK;
}

static const char *copy_topic(struct settle *r, const struct omq_delivery *d, struct omq_error *why)
{
    const char *origin = letter_origin(d);
    if (!origin) {
        why->code = OMQ_REFUSED;
        (void)snprintf(why->text, sizeof why->text,
                       "dead letter %s does not say which topic it came from", d->offset_id);
    }
    return origin && r->target ? r->target : origin;
}

/* ---- what is said ---- */

/* Groups beside this one that read the topics the letters go back to. */
static void others_note(struct settle *r)
{
    struct cli *cli = r->cli;
    struct admin_names *names, *topics;
    if (r->target || cli->json || cli->quiet ||
        admin_group_topics(cli, &r->box->cluster, &r->box->group, 1, &topics) || topics->n == 0 ||
        admin_topic_groups(cli, &r->box->cluster, topics->names, topics->n, &names))
        return;
    for (size_t i = 0; i < topics->n; i++) {
        if (admin_topic_is_system(NULL, topics->names[i]))
            continue;
        size_t kept = 0;
        for (size_t k = 0; k < names[i].n; k++)
            if (strcmp(names[i].names[k], r->box->group) != 0 &&
                !admin_group_is_system(names[i].names[k]))
                names[i].names[kept++] = names[i].names[k];
        if (kept > 0)
            cli_note(cli, "what goes back to %s is read again by %s, too (--to-group: by %s alone)",
                     topics->names[i], admin_list_text(cli, names[i].names, kept, 5),
                     r->box->group);
    }
}

static int copies_open(struct settle *r)
{
    r->target =
        arg_has(r->cli, "to-group") ? admin_format(r->cli, "%%RETRY%%%s", r->box->group) : NULL;
    if (box_unsettled(r->box) > 0 && !r->dry)
        others_note(r);
    return STATUS_OK;
}

static void copy_print(struct settle *r, const struct letter *l, enum outcome outcome,
                       const struct landed *landed)
{
    static const char *const texts[OUTCOMES] = {[OUTCOME_DONE] = "resent",
                                                [OUTCOME_BEFORE] = "resent before",
                                                [OUTCOME_OTHERWISE] = "dropped before",
                                                [OUTCOME_KNOWN] = "duplicate",
                                                [OUTCOME_REFUSED] = "not stored",
                                                [OUTCOME_UNSURE] = "unsure"};
    struct cli *cli = r->cli;
    if (!cli->json && !arg_has(cli, "each"))
        return;
    row_begin(cli);
    put_text(cli, "group", r->box->group);
    put_text(cli, "state", outcome == OUTCOME_DONE && r->dry ? "to be sent" : texts[outcome]);
    put_text(cli, "id", landed->receipt.id);
    put_text(cli, "dead_letter", l->place);
    put_text(cli, "topic", l->topic);
    if (outcome == OUTCOME_DONE && !r->dry) {
        put_text(cli, "broker", landed->receipt.broker);
        put_number(cli, "queue", landed->receipt.queue_id);
        put_number(cli, "offset", landed->receipt.queue_offset);
    } else if (outcome == OUTCOME_REFUSED || outcome == OUTCOME_UNSURE)
        put_text(cli, "error", landed->why.text);
    row_end(cli);
}

/* ---- the command ---- */

static const struct settle_verb resend = {
    .how = NOTED_RESENT,
    .doing = "sending back",
    .otherwise = "had been dropped",
    .undone = "not sent",
    .again = "the same command goes on: what was sent back is not sent again",
    .known = "--to-group sends them to this group alone, which dedup does not look at; "
             "or wait for dedupWindowSeconds",
    .looks = true,
    .open = copies_open,
    .topic = copy_topic,
    .send = copy_send,
    .print = copy_print,
};

int dlq_resend(struct cli *cli)
{
    struct settle run = {.cli = cli, .verb = &resend, .dry = arg_has(cli, "dry-run")};
    struct admin_names groups;
    int status = pace_read(&run.pace, cli, "rate");
    if (!status)
        status = box_groups(cli, &groups);
    if (status)
        return status;
    cli_catch_stop(cli);
    status = settle_begin(&run);
    if (status)
        return status;
    for (size_t i = 0; !status && i < groups.n && !settle_stopping(&run); i++)
        status = settle_box(&run, groups.names[i]);
    status = settle_report(&run, status);
    settle_close(&run);
    return status;
}

const struct column dlq_resend_columns[] = {
    {"group", COLUMN_TEXT, NULL, "whose dead letter it is"},
    {"state", COLUMN_TEXT, "STATE",
     "resent (with --dry-run: to be sent); resent before; dropped before; duplicate (producer "
     "dedup "
     "knows the id: not taken); not stored; unsure (no answer: it may be stored)"},
    {"id", COLUMN_TEXT, "ID", "the unique id, of the letter and of its copy"},
    {"dead_letter", COLUMN_TEXT, NULL, "the offset id of the dead letter"},
    {"topic", COLUMN_TEXT, "TOPIC", "where it goes"},
    {"broker", COLUMN_TEXT, "BROKER", "where the copy is stored"},
    {"queue", COLUMN_NUMBER, "QUEUE", "the number of the queue there"},
    {"offset", COLUMN_NUMBER, "OFFSET", "its place in the queue"},
    {"error", COLUMN_TEXT, NULL, "why it is not stored, or unsure"},
    {NULL},
};

const struct opt dlq_resend_options[] = {
    {"all", OPT_SWITCH, NULL, "of all groups"},
    {"key", OPT_TEXT, "KEY", "only those with this word among their keys", .letter = 'k',
     .many = true},
    {"id", OPT_TEXT, "ID", "only the one with this id", .letter = 'i', .many = true},
    {"to-group", OPT_SWITCH, NULL, "to this group alone, not to all that read the topic"},
    {"rate", OPT_TEXT, "N/s", "at most so many a second (N/m, N/h: a minute, an hour)"},
    {"dry-run", OPT_SWITCH, NULL, "only say what would be done"},
    {"each", OPT_SWITCH, NULL, "say of each letter what became of it"},
    {NULL},
};
