/* dlq_drop.c - `oncemq dlq drop`: dead letters that nobody is to be shown again.
 *
 * All of them, or all that are older: the mark moves behind them. Some of them, by key or id: each
 * gets a note (dlq_settle.c), for letters that stay may stand before it.
 */
#include "cli/dlq_int.h"

#include <inttypes.h>
#include <stdlib.h>

const struct column dlq_drop_columns[] = {
    {"group", COLUMN_TEXT, "GROUP", "whose dead letters they were"},
    {"dropped", COLUMN_NUMBER, "DROPPED",
     "how many are passed over from now on (with --dry-run: would be)"},
    {NULL},
};

const struct opt dlq_drop_options[] = {
    {"all", OPT_SWITCH, NULL, "of all groups"},
    {"key", OPT_TEXT, "KEY", "only those with this word among their keys", .letter = 'k',
     .many = true},
    {"id", OPT_TEXT, "ID", "only the one with this id", .letter = 'i', .many = true},
    {"before", OPT_TIME, "TIME", "only those that are older: -7d, 2026-11-16"},
    {"dry-run", OPT_SWITCH, NULL, "only say what would be done"},
    {NULL},
};

/* ---- what both have ---- */

static int end_put(struct box *box)
{
    return arg_has(box->cli, "before") ? scan_end_at(&box->scan, arg_number(box->cli, "before", 0))
                                       : STATUS_OK;
}

static uint64_t sum(const uint64_t *counts, size_t n)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += counts[i];
    return total;
}

static int ask(struct cli *cli, const struct admin_names *groups, uint64_t letters)
{
    return cli_confirm(cli, "Drop %" PRIu64 " dead letter%s of %s? Nobody will be shown %s again",
                       letters, letters == 1 ? "" : "s",
                       admin_list_text(cli, groups->names, groups->n, 5),
                       letters == 1 ? "it" : "them");
}

static void put_dropped(struct cli *cli, const struct admin_names *groups, const uint64_t *dropped)
{
    for (size_t i = 0; i < groups->n; i++) {
        if (dropped[i] == 0 && groups->n > 1)
            continue;
        row_begin(cli);
        put_text(cli, "group", groups->names[i]);
        put_number(cli, "dropped", (int64_t)dropped[i]);
        row_end(cli);
    }
}

/* ---- by key or id ---- */

static int notes_open(struct settle *run)
{
    run->target = run->box->topic;
    return end_put(run->box);
}

static const char *note_topic(struct settle *run, const struct omq_delivery *d,
                              struct omq_error *why)
{
    (void)d, (void)why;
    return run->target;
}

static int note_send(struct settle *run, struct letter *l, const struct omq_delivery *d)
{
    (void)d;
    settle_note(run, l);
    return STATUS_OK;
}

static const struct settle_verb drop = {
    .how = NOTED_DROPPED,
    .doing = "dropping",
    .otherwise = "had been resent",
    .undone = "not dropped",
    .again = "the same command goes on",
    .open = notes_open,
    .topic = note_topic,
    .send = note_send,
};

static int boxes_settle(struct settle *run, const struct admin_names *groups, uint64_t *dropped)
{
    int status = settle_begin(run);
    for (size_t i = 0; !status && i < groups->n && !settle_stopping(run); i++) {
        uint64_t before = run->counts[OUTCOME_DONE];
        status = settle_box(run, groups->names[i]);
        dropped[i] = run->counts[OUTCOME_DONE] - before;
    }
    return status;
}

/* A first run counts, for the question. */
static int drop_chosen(struct cli *cli, const struct admin_names *groups)
{
    bool dry = arg_has(cli, "dry-run");
    uint64_t *dropped = admin_alloc(cli, groups->n + 1, sizeof *dropped);
    struct settle run = {.cli = cli, .verb = &drop, .dry = true};
    int status = STATUS_OK;
    if (dry || !cli->yes) {
        status = boxes_settle(&run, groups, dropped);
        if (!status && !dry && sum(dropped, groups->n) > 0)
            status = ask(cli, groups, sum(dropped, groups->n));
        if (status && !dry) {
            settle_close(&run);
            return status;
        }
    }
    if (!dry) {
        settle_close(&run);
        run = (struct settle){.cli = cli, .verb = &drop};
        cli_catch_stop(cli);
        status = boxes_settle(&run, groups, dropped);
    }
    put_dropped(cli, groups, dropped);
    status = settle_report(&run, status);
    settle_close(&run);
    return status;
}

/* ---- all ---- */

static int box_drop(struct box *box)
{
    for (size_t i = 0; i < box->scan.n; i++) {
        const struct scan_queue *q = &box->scan.queues[i];
        if (q->end > q->next)
            box->marks[i].now = q->end;
    }
    return box_mark(box);
}

static int drop_all(struct cli *cli, const struct admin_names *groups)
{
    bool dry = arg_has(cli, "dry-run");
    struct box *boxes = admin_alloc(cli, groups->n + 1, sizeof *boxes);
    uint64_t *left = admin_alloc(cli, groups->n + 1, sizeof *left);
    uint64_t *dropped = admin_alloc(cli, groups->n + 1, sizeof *dropped);
    int status = STATUS_OK;
    for (size_t i = 0; !status && i < groups->n; i++) {
        status = box_open(&boxes[i], cli, groups->names[i], false);
        if (!status)
            status = end_put(&boxes[i]);
        left[i] = status ? 0 : box_unsettled(&boxes[i]);
    }
    if (!status && !dry && sum(left, groups->n) > 0)
        status = ask(cli, groups, sum(left, groups->n));
    bool begun = !status;
    for (size_t i = 0; !status && i < groups->n; i++) {
        status = dry ? STATUS_OK : box_drop(&boxes[i]);
        dropped[i] = status ? 0 : left[i];
    }
    if (begun && (!status || sum(dropped, groups->n) > 0))
        put_dropped(cli, groups, dropped);
    for (size_t i = 0; i < groups->n; i++)
        box_close(&boxes[i]);
    return status;
}

int dlq_drop(struct cli *cli)
{
    struct admin_names groups;
    int status = box_groups(cli, &groups);
    if (status)
        return status;
    return arg_has(cli, "key") || arg_has(cli, "id") ? drop_chosen(cli, &groups)
                                                     : drop_all(cli, &groups);
}
