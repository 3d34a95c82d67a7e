/* dlq.c - `oncemq dlq`: dead letters, listed and shown; the table of what is done to them. */
#include "cli/commands_int.h"
#include "cli/dlq_int.h"
#include "cli/message.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHOW_COUNT 64
#define BODY_MAX   80

/* ---- list ---- */

static const struct column list_columns[] = {
    {"group", COLUMN_TEXT, "GROUP", "whose dead letters they are"},
    {"left", COLUMN_NUMBER, "LEFT", "neither sent back nor dropped"},
    {"letters", COLUMN_NUMBER, "STORED",
     "all messages that the brokers still have there, notes of what was settled included"},
    {"last_ms", COLUMN_TIME, "LAST", "when the newest one came"},
    {NULL},
};

static const struct opt list_options[] = {
    {"all", OPT_SWITCH, NULL, "also groups whose letters are all sent back or dropped",
     .letter = 'a'},
    {NULL},
};

static int list_print(struct cli *cli, const struct admin_cluster *cluster,
                      const struct admin_topic_stats *stats, size_t n)
{
    int64_t *left = admin_alloc(cli, n, sizeof *left);
    int status = box_left(cli, cluster, stats, n, left);
    for (size_t i = 0; !status && i < n; i++) {
        if (left[i] == 0 && !(arg_has(cli, "all") && stats[i].messages > 0))
            continue;
        row_begin(cli);
        put_text(cli, "group", stats[i].topic + DLQ_PREFIX.len);
        put_number(cli, "left", left[i]);
        put_number(cli, "letters", stats[i].messages);
        put_number(cli, "last_ms", stats[i].last_ms);
        row_end(cli);
    }
    return status;
}

static int dlq_list(struct cli *cli)
{
    struct admin_cluster cluster;
    struct admin_names topics;
    struct admin_topic_stats *stats = NULL;
    size_t n = 0;
    int status = admin_cluster(cli, &cluster);
    if (!admin_none(status))
        status = admin_join(status, admin_topics(cli, &topics));
    if (admin_none(status))
        return status;
    for (size_t i = 0; i < topics.n; i++)
        if (bytes_start(bytes_str(topics.names[i]), DLQ_PREFIX))
            topics.names[n++] = topics.names[i];
    if (n > 0)
        status = admin_join(status, admin_topic_stats(cli, &cluster, topics.names, n, &stats));
    if (n == 0 || admin_none(status))
        return status;
    return admin_join(status, list_print(cli, &cluster, stats, n));
}

/* ---- show ---- */

static const struct column show_columns[] = {
    {"settled", COLUMN_TEXT, "SETTLED",
     "with --all: dropped, resent, or settled (one of both, as all before it); null: it is left",
     .optional = true},
    MESSAGE_COLUMNS,
    {NULL},
};

static const struct opt show_options[] = {
    {"key", OPT_TEXT, "KEY", "only those with this word among their keys", .letter = 'k',
     .many = true},
    {"id", OPT_TEXT, "ID", "only the one with this id", .letter = 'i', .many = true},
    {"all", OPT_SWITCH, NULL, "also those that were sent back or dropped", .letter = 'a'},
    {"count", OPT_NUMBER, "N", "at most so many; 64", .letter = 'c'},
    {NULL},
};

/* NULL: it is left. */
static const char *settled_text(const struct box *box, size_t queue, enum noted how, int64_t offset)
{
    if (how != NOTED_NOT)
        return noted_text(how);
    return offset < box->marks[queue].told ? "settled" : NULL;
}

static int dlq_show(struct cli *cli)
{
    bool all = arg_has(cli, "all");
    int64_t count = arg_number(cli, "count", SHOW_COUNT), n = 0;
    struct box box;
    const struct omq_delivery *d = NULL;
    size_t queue;
    enum noted how;
    cli_catch_stop(cli);
    int status = box_open(&box, cli, arg_at(cli, 0), all);
    while (!status && !(status = box_next(&box, &d, &queue, &how)) && d) {
        const char *settled = settled_text(&box, queue, how, d->offset);
        if ((settled && !all) || !letter_wanted(cli, d))
            continue;
        if (n++ == count)
            break;
        row_begin(cli);
        put_text(cli, "settled", settled);
        message_put(cli, d, BODY_MAX);
        row_end(cli);
    }
    if (!status && d && n > count)
        cli_note(cli, "there are more: --count N shows them");
    box_close(&box);
    return status;
}

/* ---- the table ---- */

const struct command dlq_commands[] = {
    {
        .name = "dlq list",
        .summary = "groups with dead letters",
        .text = "A dead letter is a message that a group could not use in all its tries. It is "
                "left until it is sent back or dropped, all at once or by key. One that was sent "
                "back before others, by a command that was killed or lost its broker before it "
                "could note that, still counts until the command is run again, which does not "
                "send it twice.",
        .options = list_options,
        .shape = SHAPE_LIST,
        .columns = list_columns,
        .run = dlq_list,
    },
    {
        .name = "dlq show",
        .arguments = "GROUP",
        .summary = "the dead letters of a group",
        .text =
            "Some brokers make %DLQ% topics that cannot be read; such a topic is made readable.",
        .examples = "oncemq dlq show billing\n"
                    "oncemq dlq show billing --key order-17 --json",
        .options = show_options,
        .shape = SHAPE_LIST,
        .columns = show_columns,
        .run = dlq_show,
    },
    {
        .name = "dlq resend",
        .arguments = "[GROUP]",
        .summary = "send dead letters back to where they came from",
        .text =
            "Each letter is sent again to the topic it came from, with its id, keys, tag and "
            "properties, and is then settled. All groups that read the topic get it again; with "
            "--to-group only this one does, through its retry topic.\n\n"
            "None is sent twice: a letter is settled when the broker has confirmed its copy, and "
            "the copy says whose it is (the property ONCEMQ_DEAD_LETTER), so it is found also if "
            "this program was killed, or the answer got lost. After a failure or Ctrl-C it is "
            "said exactly what was done; the same command goes on. Of letters that are sent back "
            "before others (--key, --id) notes are stored, as `dlq drop --key` does.\n\n"
            "A broker with producer dedup that still knows the message of that id takes no copy: "
            "such letters are told as duplicates and stay; --to-group is not looked at by dedup.",
        .examples = "oncemq dlq resend billing\n"
                    "oncemq dlq resend billing --key order-17 --to-group\n"
                    "oncemq dlq resend --all --rate 100/s",
        .options = dlq_resend_options,
        .shape = SHAPE_LINES,
        .columns = dlq_resend_columns,
        .run = dlq_resend,
    },
    {
        .name = "dlq drop",
        .arguments = "[GROUP]",
        .summary = "pass over dead letters for good",
        .text =
            "They stay where they are until the broker deletes them by age, but `dlq list`, "
            "`dlq show` and `dlq resend` pass over them. `dlq show --all` still has them.\n\n"
            "With --key or --id the others stay. No single message can be taken out of a topic, so "
            "a note is stored behind each letter that is dropped so: a message of its id in the "
            "same %DLQ% topic, with the tag and the property ONCEMQ_SETTLED. Whoever consumes that "
            "topic gets notes as well, and can tell them by their tag. After a failure or "
            "Ctrl-C it is said what was done; the same command goes on.",
        .examples = "oncemq dlq drop billing --before -7d\n"
                    "oncemq dlq drop billing --key order-17 --dry-run",
        .options = dlq_drop_options,
        .shape = SHAPE_LIST,
        .columns = dlq_drop_columns,
        .run = dlq_drop,
    },
    {NULL},
};
