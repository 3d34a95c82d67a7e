/* dlq_resend.c - `oncemq dlq resend`: dead letters, back to where they came from, each once.
 *
 * Letters are read in order and are under way many at once. Those of a queue stand in a row; the
 * queue's mark follows as far as the row is settled without a gap. A letter that is not wanted
 * (--key), or that failed, is a gap: the mark stays before it, and the letters behind it are known
 * by their copies.
 */
#include "cli/commands_int.h"
#include "cli/dlq_int.h"
#include "cli/flight.h"
#include "cli/pace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define UNDER_WAY     500
#define MARK_EVERY_MS 1000
#define GROUP         "oncemq"

enum outcome { RESENT, BEFORE, KNOWN, REFUSED, UNSURE, OUTCOMES };
static const char *const outcome_texts[] = {"resent", "resent before", "duplicate", "not stored",
                                            "unsure"};

/* One that is not settled yet, or stands behind such a one. */
struct letter {
    struct letter *next;
    size_t queue; /* of the box's scan */
    int64_t offset;
    bool over, settled;
    char place[64]; /* its offset id */
    char topic[];   /* of its copy */
};

struct row {
    struct letter *first, **end;
    bool gap;
};

struct resend {
    struct cli *cli;
    struct box *box;
    struct row *rows; /* for each queue */
    struct flight *flight;
    struct progress progress;
    struct pace pace;
    bool to_group, dry, each;
    uint64_t seen, counts[OUTCOMES], skipped;
    int64_t marked_ms;
    struct letter **unsure; /* to be looked for at the end */
    struct landed *unsure_landed;
    size_t n_unsure;
    bool failed;
    struct omq_error why; /* of the first that failed */
};

/* ---- rows and marks ---- */

static struct letter *letter_add(struct resend *r, size_t queue, const struct omq_delivery *d,
                                 const char *topic)
{
    struct letter *l = malloc(sizeof *l + strlen(topic) + 1);
    if (!l)
        return NULL;
    *l = (struct letter){.queue = queue, .offset = d->offset};
    (void)snprintf(l->place, sizeof l->place, "%s", d->offset_id);
    memcpy(l->topic, topic, strlen(topic) + 1);
    *r->rows[queue].end = l;
    r->rows[queue].end = &l->next;
    return l;
}

/* Moves the mark of a queue over what is settled, and forgets what is over. */
static void row_settle(struct resend *r, size_t queue)
{
    struct row *row = &r->rows[queue];
    struct letter *l;
    while ((l = row->first) && l->over) {
        row->gap = row->gap || !l->settled;
        if (!row->gap)
            r->box->marks[queue].now = l->offset + 1;
        row->first = l->next;
        free(l);
    }
    if (!row->first)
        row->end = &row->first;
}

static void rows_free(struct resend *r)
{
    for (size_t i = 0; i < r->box->scan.n; i++)
        while (r->rows[i].first) {
            struct letter *l = r->rows[i].first;
            r->rows[i].first = l->next;
            free(l);
        }
}

/* ---- what became of one ---- */

static void print(struct resend *r, const char *place, const char *topic, enum outcome outcome,
                  const struct landed *landed)
{
    struct cli *cli = r->cli;
    if (!r->each)
        return;
    row_begin(cli);
    put_text(cli, "group", r->box->group);
    put_text(cli, "state", outcome == RESENT && r->dry ? "to be sent" : outcome_texts[outcome]);
    put_text(cli, "id", landed->receipt.id);
    put_text(cli, "dead_letter", place);
    put_text(cli, "topic", topic);
    if (outcome == RESENT && !r->dry) {
        put_text(cli, "broker", landed->receipt.broker);
        put_number(cli, "queue", landed->receipt.queue_id);
        put_number(cli, "offset", landed->receipt.queue_offset);
    } else if (outcome == REFUSED || outcome == UNSURE)
        put_text(cli, "error", landed->why.text);
    row_end(cli);
}

/* Whether a copy of this very letter is stored; `found` (may be NULL) hears where. False with
 * `why->code`: nobody knows. */
static bool copy_find(struct resend *r, const char *topic, const char *id, const char *place,
                      struct omq_receipt *where, struct omq_error *why)
{
    int status;
    struct omq_client *client = cli_client(r->cli, &status);
    struct omq_found found;
    why->code = OMQ_OK;
    int code = omq_query(client, &(struct omq_query){.topic = topic, .id = id}, &found, why);
    if (code) {
        if (code == OMQ_NO_TOPIC)
            why->code = OMQ_OK; /* then there is no copy, either */
        return false;
    }
    bool there = false;
    for (size_t i = 0; !there && i < found.n; i++) {
        const struct omq_delivery *d = found.messages[i];
        const char *of = omq_delivery_property(d, LETTER_PROPERTY);
        there = of && strcmp(of, place) == 0;
        if (there && where) {
            (void)snprintf(where->broker, sizeof where->broker, "%s", d->queue.broker);
            where->queue_id = d->queue.id;
            where->queue_offset = d->offset;
        }
    }
    omq_found_free(&found);
    return there;
}

/* Of the way there, which the next letter has to go, too; else one letter is refused, and the next
 * may be taken. */
static bool is_trouble(int code)
{
    return status_of(code) == STATUS_UNREACHABLE || code == OMQ_BUSY || code == OMQ_CLOSED ||
           code == OMQ_PROTOCOL || code == OMQ_NO_MEMORY;
}

static void over(struct resend *r, struct letter *l, enum outcome outcome,
                 const struct landed *landed)
{
    r->counts[outcome]++;
    print(r, l->place, l->topic, outcome, landed);
    l->over = true;
    l->settled = outcome == RESENT || outcome == BEFORE;
    if ((outcome == REFUSED || outcome == UNSURE) && !r->failed) {
        r->why = landed->why;
        r->failed = is_trouble(landed->why.code);
    }
    row_settle(r, l->queue);
}

static bool unsure_keep(struct resend *r, struct letter *l, const struct landed *landed)
{
    size_t n = r->n_unsure + 1;
    struct letter **letters = realloc(r->unsure, n * sizeof *letters);
    if (letters)
        r->unsure = letters;
    struct landed *all = letters ? realloc(r->unsure_landed, n * sizeof *all) : NULL;
    if (!all)
        return false;
    r->unsure_landed = all;
    r->unsure[r->n_unsure] = l;
    all[r->n_unsure++] = *landed;
    return true;
}

static void land_one(void *user, const struct landed *landed)
{
    struct resend *r = user;
    struct letter *l = landed->what;
    struct omq_error why;
    switch (landed->fate) {
    case FATE_STORED:
        over(r, l, RESENT, landed);
        break;
    case FATE_DUPLICATE: /* of our own copy, or of the message that died? */
        over(r, l,
             copy_find(r, l->topic, landed->receipt.id, l->place, NULL, &why) ? BEFORE : KNOWN,
             landed);
        break;
    case FATE_NOT_STORED:
        over(r, l, REFUSED, landed);
        break;
    case FATE_UNSURE:
        r->failed = true;
        r->why = landed->why;
        if (!unsure_keep(r, l, landed))
            over(r, l, UNSURE, landed);
        break;
    }
}

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
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0)
            return false;
    return strncmp(name, "TIMER_", 6) != 0;
}

static int letter_send(struct resend *r, struct letter *l, const struct omq_delivery *d,
                       const char *origin)
{
    struct omq_property *properties = calloc(d->n_properties + 2, sizeof *properties);
    if (!properties)
        return cli_fail(r->cli, STATUS_FAILED, NULL, "no memory for a message");
    struct omq_message message = {
        .topic = l->topic,
        .body = d->body,
        .body_size = d->body_size,
        .tag = d->tag[0] ? d->tag : NULL,
        .keys = d->keys[0] ? d->keys : NULL,
        .sharding_key = r->to_group ? NULL : omq_delivery_property(d, "__SHARDINGKEY"),
        .properties = properties,
        .flag = d->flag,
        .id = letter_id(d),
    };
    size_t n = 0;
    for (size_t i = 0; i < d->n_properties; i++)
        if (is_own(d->properties[i].name))
            properties[n++] = d->properties[i];
    properties[n++] = (struct omq_property){LETTER_PROPERTY, l->place};
    if (r->to_group)
        properties[n++] = (struct omq_property){"RETRY_TOPIC", origin};
    message.n_properties = n;
    flight_send(r->flight, &message, 0, l);
    pace_step(&r->pace);
    free(properties);
    return STATUS_OK;
}

/* ---- one after the other ---- */

static bool is_stopping(struct resend *r)
{
    return cli_stopped(r->cli) || out_broken(r->cli) || r->failed;
}

static int letter_take(struct resend *r, const struct omq_delivery *d, size_t queue)
{
    const char *origin = letter_origin(d);
    struct landed landed = {0};
    (void)snprintf(landed.receipt.id, sizeof landed.receipt.id, "%s", letter_id(d));
    const char *topic = r->to_group && origin ? admin_format(r->cli, "%%RETRY%%%s", r->box->group)
                        : origin              ? origin
                                              : "";
    struct letter *l = letter_add(r, queue, d, topic);
    if (!l)
        return cli_fail(r->cli, STATUS_FAILED, NULL, "no memory for a letter");
    if (!letter_wanted(r->cli, d)) {
        l->over = true;
        r->skipped++;
        row_settle(r, queue);
        return STATUS_OK;
    }
    if (!origin) {
        (void)snprintf(landed.why.text, sizeof landed.why.text,
                       "dead letter %s does not say which topic it came from", l->place);
        landed.why.code = OMQ_REFUSED;
        over(r, l, REFUSED, &landed);
        return STATUS_OK;
    }
    if (copy_find(r, topic, landed.receipt.id, l->place, NULL, &landed.why))
        over(r, l, BEFORE, &landed);
    else if (landed.why.code) /* not sent, for it may be a second time */
        over(r, l, REFUSED, &landed);
    else if (r->dry)
        over(r, l, RESENT, &landed);
    else
        return letter_send(r, l, d, origin);
    return STATUS_OK;
}

static void land(struct resend *r, int64_t ms)
{
    flight_wait(r->flight, -1, ms);
    flight_land(r->flight, land_one, r);
    progress_move(&r->progress, r->counts[RESENT] + r->counts[BEFORE]);
    if (!r->dry && now_ms() - r->marked_ms > MARK_EVERY_MS) {
        (void)box_mark(r->box); /* at the latest at the end */
        r->marked_ms = now_ms();
    }
}

static int letters_send(struct resend *r)
{
    int status = STATUS_OK;
    while (!status && !is_stopping(r)) {
        int64_t due = pace_due_ms(&r->pace);
        if (due > 0 || !flight_room(r->flight, 1)) {
            land(r, due > 0 && due < 100 ? due : 100);
            continue;
        }
        const struct omq_delivery *d;
        struct scan_queue *where;
        status = scan_next(&r->box->scan, &d, &where);
        if (status || !d)
            break;
        r->seen++;
        status = letter_take(r, d, (size_t)(where - r->box->scan.queues));
        land(r, 0);
    }
    while (flight_under_way(r->flight) > 0)
        land(r, 100);
    return status;
}

/* Answers that did not come: the copies are looked for. */
static void unsure_settle(struct resend *r)
{
    bool reachable = true;
    for (size_t i = 0; i < r->n_unsure; i++) {
        struct letter *l = r->unsure[i];
        struct landed *landed = &r->unsure_landed[i];
        struct omq_error why = {0};
        bool there = reachable &&
                     copy_find(r, l->topic, landed->receipt.id, l->place, &landed->receipt, &why);
        reachable = reachable && why.code == OMQ_OK;
        over(r, l, there ? RESENT : UNSURE, landed);
    }
    r->n_unsure = 0;
}

/* ---- a box after the other ---- */

/* Groups beside this one that read the topics the letters go back to. */
static void others_note(struct resend *r)
{
    struct cli *cli = r->cli;
    struct admin_names *names, *topics;
    if (r->to_group || cli->json || cli->quiet ||
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

static int box_resend(struct resend *r, const char *group)
{
    struct box box;
    int status = box_open(&box, r->cli, group, false);
    if (status)
        return status;
    r->box = &box;
    r->rows = admin_alloc(r->cli, box.scan.n + 1, sizeof *r->rows);
    for (size_t i = 0; i < box.scan.n; i++) {
        r->rows[i].end = &r->rows[i].first;
        if (box.marks[i].now < box.scan.queues[i].next) /* what is gone needs no sending */
            box.marks[i].now = box.scan.queues[i].next;
    }
    uint64_t left = scan_left(&box.scan);
    if (left > 0 && !r->dry)
        others_note(r);
    progress_begin(&r->progress, r->cli, "sending back", left);
    r->marked_ms = now_ms();
    status = left > 0 ? letters_send(r) : STATUS_OK;
    progress_end(&r->progress);
    unsure_settle(r);
    if (!r->dry && box_mark(&box) && !status)
        status = STATUS_PARTLY; /* said; the copies are known all the same */
    rows_free(r);
    box_close(&box);
    return status;
}

/* ---- the end ---- */

static void account(const struct resend *r, struct buf *out)
{
    buf_printf(out, "%" PRIu64 " %s", r->counts[RESENT], r->dry ? "would be resent" : "resent");
    if (r->counts[BEFORE] > 0)
        buf_printf(out, ", %" PRIu64 " had been before", r->counts[BEFORE]);
    if (r->counts[KNOWN] > 0)
        buf_printf(out, ", %" PRIu64 " not taken: the broker knows their ids (producer dedup)",
                   r->counts[KNOWN]);
    if (r->counts[REFUSED] > 0)
        buf_printf(out, ", %" PRIu64 " not sent", r->counts[REFUSED]);
    if (r->counts[UNSURE] > 0)
        buf_printf(out, ", %" PRIu64 " unsure: sent, but no answer came", r->counts[UNSURE]);
    if (r->skipped > 0)
        buf_printf(out, ", %" PRIu64 " left alone", r->skipped);
    buf_add_u8(out, 0);
}

static int report(struct resend *r, int status)
{
    struct cli *cli = r->cli;
    struct buf counts = buf_upto(4096);
    account(r, &counts);
    const char *text = counts.err ? "no memory to say what was done" : (const char *)counts.at;
    bool stopped = cli_stopped(cli);
    bool refused = r->counts[REFUSED] > 0;
    if (r->failed || refused || stopped || out_broken(cli)) {
        int worst = stopped                 ? STATUS_INTERRUPTED
                    : out_broken(cli)       ? STATUS_PIPE
                    : r->counts[RESENT] > 0 ? STATUS_PARTLY
                                            : status_of(r->why.code);
        status = cli_fail(
            cli, worst ? worst : STATUS_FAILED,
            "the same command goes on: what was sent back is not sent again", "%s: %s", text,
            r->failed || refused ? printable(cli, bytes_str(r->why.text)) : "stopped");
    } else if (!status && r->counts[KNOWN] > 0)
        status =
            cli_fail(cli, STATUS_PARTLY,
                     "--to-group sends them to this group alone, which dedup does not look at; "
                     "or wait for dedupWindowSeconds",
                     "%s", text);
    else if (!status)
        cli_note(cli, "%s", text);
    else if (r->seen > 0)
        cli_note(cli, "so far: %s", text);
    buf_clear(&counts);
    return status;
}

int dlq_resend(struct cli *cli)
{
    struct resend r = {.cli = cli,
                       .to_group = arg_has(cli, "to-group"),
                       .dry = arg_has(cli, "dry-run"),
                       .each = cli->json || arg_has(cli, "each")};
    struct admin_names groups;
    int status = pace_read(&r.pace, cli, "rate");
    if (!status)
        status = box_groups(cli, &groups);
    if (status)
        return status;
    cli_catch_stop(cli);
    status =
        flight_open(cli, &(struct flight_limits){.messages = UNDER_WAY, .group = GROUP}, &r.flight);
    if (status)
        return status;
    pace_begin(&r.pace);
    for (size_t i = 0; !status && i < groups.n && !is_stopping(&r); i++)
        status = box_resend(&r, groups.names[i]);
    status = report(&r, status);
    flight_close(r.flight);
    free(r.unsure);
    free(r.unsure_landed);
    return status;
}

const struct column dlq_resend_columns[] = {
    {"group", COLUMN_TEXT, NULL, "whose dead letter it is"},
    {"state", COLUMN_TEXT, "STATE",
     "resent (with --dry-run: to be sent); resent before; duplicate (producer dedup knows the id: "
     "not taken); not stored; unsure "
     "(no answer: it may be stored)"},
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
