/* dlq_settle.c - dead letters settled one by one, each by a message that says so.
 *
 * Letters are read in order and are under way many at once. Those of a queue stand in a row; the
 * queue's mark follows as far as the row is settled without a gap. A letter that is not wanted
 * (--key), or that failed, is a gap: the mark stays before it, and letters behind it that are
 * settled get a note.
 */
#include "cli/dlq_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define UNDER_WAY     500
#define MARK_EVERY_MS 1000
#define GROUP         "oncemq"

struct row {
    struct letter *first, **end;
    bool gap;
};

/* ---- rows and marks ---- */

static struct letter *letter_add(struct settle *r, size_t queue, const struct omq_delivery *d,
                                 const char *topic)
{
    const char *id = letter_id(d);
    size_t id_size = strlen(id) + 1, topic_size = strlen(topic) + 1;
    struct letter *l = malloc(sizeof *l + id_size + topic_size);
    if (!l)
        return NULL;
    *l = (struct letter){.queue = queue, .offset = d->offset};
    (void)snprintf(l->place, sizeof l->place, "%s", d->offset_id);
    l->id = memcpy(l->texts, id, id_size);
    l->topic = memcpy(l->texts + id_size, topic, topic_size);
    *r->rows[queue].end = l;
    r->rows[queue].end = &l->next;
    return l;
}

/* Moves the mark of a queue over what is settled, and forgets what is over. */
static void row_settle(struct settle *r, size_t queue)
{
    struct row *row = &r->rows[queue];
    struct letter *l;
    while ((l = row->first) && l->over) {
        row->gap = row->gap || !l->settled;
        row->first = l->next;
        if (!row->gap)
            r->box->marks[queue].now = l->offset + 1;
        if (row->gap && l->settled && !l->noted && !r->dry) {
            l->next = NULL;
            *r->to_note_end = l;
            r->to_note_end = &l->next;
        } else
            free(l);
    }
    if (!row->first)
        row->end = &row->first;
}

static void letters_free(struct letter *l)
{
    while (l) {
        struct letter *next = l->next;
        free(l);
        l = next;
    }
}

static void rows_open(struct settle *r)
{
    struct box *box = r->box;
    r->rows = admin_alloc(r->cli, box->scan.n + 1, sizeof *r->rows);
    r->to_note = NULL;
    r->to_note_end = &r->to_note;
    for (size_t i = 0; i < box->scan.n; i++) {
        r->rows[i].end = &r->rows[i].first;
        if (box->marks[i].now < box->scan.queues[i].next) /* what is gone needs no settling */
            box->marks[i].now = box->scan.queues[i].next;
    }
}

/* The marks move over notes at the end, too. */
static void rows_close(struct settle *r)
{
    for (size_t i = 0; i < r->box->scan.n; i++) {
        int64_t next = r->box->scan.queues[i].next;
        if (!r->rows[i].first && !r->rows[i].gap && r->box->marks[i].now < next)
            r->box->marks[i].now = next;
        letters_free(r->rows[i].first);
    }
    letters_free(r->to_note);
}

/* ---- what became of one ---- */

/* Whether the message that settles this very letter is stored; `where` (may be NULL) hears where.
 * False with `why->code`: nobody knows. */
static bool copy_find(struct settle *r, const struct letter *l, struct omq_receipt *where,
                      struct omq_error *why)
{
    int status;
    struct omq_client *client = cli_client(r->cli, &status);
    struct omq_found found;
    why->code = OMQ_OK;
    int code = omq_query(client, &(struct omq_query){.topic = l->topic, .id = l->id}, &found, why);
    if (code) {
        if (code == OMQ_NO_TOPIC)
            why->code = OMQ_OK; /* then there is no copy, either */
        return false;
    }
    bool there = false;
    for (size_t i = 0; !there && i < found.n; i++) {
        const struct omq_delivery *d = found.messages[i];
        const char *of = omq_delivery_property(d, LETTER_PROPERTY);
        there = of && strcmp(of, l->place) == 0;
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

static void over(struct settle *r, struct letter *l, enum outcome outcome,
                 const struct landed *landed)
{
    r->counts[outcome]++;
    if (r->verb->print)
        r->verb->print(r, l, outcome, landed);
    l->over = true;
    l->settled = outcome <= OUTCOME_OTHERWISE;
    if ((outcome == OUTCOME_REFUSED || outcome == OUTCOME_UNSURE) && !r->failed) {
        r->why = landed->why;
        r->failed = is_trouble(landed->why.code);
    }
    row_settle(r, l->queue);
}

static bool unsure_keep(struct settle *r, struct letter *l, const struct landed *landed)
{
    struct unsure *all = realloc(r->unsure, (r->n_unsure + 1) * sizeof *all);
    if (!all)
        return false;
    r->unsure = all;
    all[r->n_unsure++] = (struct unsure){l, *landed};
    return true;
}

static void land_one(void *user, const struct landed *landed)
{
    struct settle *r = user;
    struct letter *l = landed->what;
    struct omq_error why;
    if (l->over) { /* its note; without it, it is settled all the same */
        free(l);
        return;
    }
    switch (landed->fate) {
    case FATE_STORED:
        over(r, l, OUTCOME_DONE, landed);
        break;
    case FATE_DUPLICATE: /* of our own copy, or of the message that died? */
        over(r, l, copy_find(r, l, NULL, &why) ? OUTCOME_BEFORE : OUTCOME_KNOWN, landed);
        break;
    case FATE_NOT_STORED:
        over(r, l, OUTCOME_REFUSED, landed);
        break;
    case FATE_UNSURE:
        r->failed = true;
        r->why = landed->why;
        if (!unsure_keep(r, l, landed))
            over(r, l, OUTCOME_UNSURE, landed);
        break;
    }
}

/* ---- one after the other ---- */

void settle_send(struct settle *r, const struct omq_message *message, struct letter *l)
{
    flight_send(r->flight, message, 0, l);
}

void settle_note(struct settle *r, struct letter *l)
{
    const struct omq_queue *queue = &r->box->scan.queues[l->queue].queue;
    const char *word = noted_text(r->verb->how);
    struct note_text settled = note_text(r->verb->how, queue, l->offset);
    struct omq_property properties[] = {{LETTER_PROPERTY, l->place}, {NOTE_PROPERTY, settled.text}};
    l->noted = true;
    settle_send(r,
                &(struct omq_message){
                    .topic = r->box->topic,
                    .queue = queue,
                    .body = word, /* Apache's broker refuses an empty one */
                    .body_size = strlen(word),
                    .tag = NOTE_TAG,
                    .properties = properties,
                    .n_properties = 2,
                    .id = l->id,
                },
                l);
}

bool settle_stopping(const struct settle *r)
{
    return cli_stopped(r->cli) || out_broken(r->cli) || r->failed;
}

static void pass_over(struct settle *r, struct letter *l, bool settled)
{
    l->over = l->noted = true;
    l->settled = settled;
    r->skipped += !settled;
    row_settle(r, l->queue);
}

static int letter_take(struct settle *r, const struct omq_delivery *d, size_t queue, enum noted how)
{
    struct landed landed = {0};
    (void)snprintf(landed.receipt.id, sizeof landed.receipt.id, "%s", letter_id(d));
    const char *topic = r->verb->topic(r, d, &landed.why);
    struct letter *l = letter_add(r, queue, d, topic ? topic : "");
    if (!l)
        return cli_fail(r->cli, STATUS_FAILED, NULL, "no memory for a letter");
    l->noted = how != NOTED_NOT;
    if (!letter_wanted(r->cli, d))
        pass_over(r, l, l->noted);
    else if (l->noted)
        over(r, l, how == r->verb->how ? OUTCOME_BEFORE : OUTCOME_OTHERWISE, &landed);
    else if (topic && r->verb->looks && copy_find(r, l, NULL, &landed.why))
        over(r, l, OUTCOME_BEFORE, &landed);
    else if (landed.why.code) /* of a copy: not sent, for it may be a second time */
        over(r, l, OUTCOME_REFUSED, &landed);
    else if (r->dry)
        over(r, l, OUTCOME_DONE, &landed);
    else {
        pace_step(&r->pace);
        return r->verb->send(r, l, d);
    }
    return STATUS_OK;
}

static void land(struct settle *r, int64_t ms)
{
    flight_wait(r->flight, -1, ms);
    flight_land(r->flight, land_one, r);
    progress_move(&r->progress, r->seen - r->seen_before - flight_under_way(r->flight));
    if (!r->dry && now_ms() - r->marked_ms > MARK_EVERY_MS) {
        (void)box_mark(r->box); /* at the latest at the end */
        box_notes_refresh(r->box);
        r->marked_ms = now_ms();
    }
}

/* Sends what there is room for. */
static void notes_send(struct settle *r)
{
    while (r->to_note && !r->failed && flight_room(r->flight, 1)) {
        struct letter *l = r->to_note;
        r->to_note = l->next;
        if (!r->to_note)
            r->to_note_end = &r->to_note;
        settle_note(r, l);
    }
}

static int letters_settle(struct settle *r)
{
    int status = STATUS_OK;
    while (!status && !settle_stopping(r)) {
        int64_t due = pace_due_ms(&r->pace);
        notes_send(r);
        if (due > 0 || !flight_room(r->flight, 1)) {
            land(r, due > 0 && due < 100 ? due : 100);
            continue;
        }
        const struct omq_delivery *d;
        size_t queue;
        enum noted how;
        status = box_next(r->box, &d, &queue, &how);
        if (status || !d)
            break;
        r->seen++;
        status = letter_take(r, d, queue, how);
        land(r, 0);
    }
    while (flight_under_way(r->flight) > 0 || (r->to_note && !r->failed)) {
        notes_send(r);
        land(r, 100);
    }
    return status;
}

/* Answers that did not come: what they would have told of is looked for. */
static void unsure_settle(struct settle *r)
{
    bool reachable = true;
    for (size_t i = 0; i < r->n_unsure; i++) {
        struct letter *l = r->unsure[i].letter;
        struct landed *landed = &r->unsure[i].landed;
        struct omq_error why = {0};
        bool there = reachable && copy_find(r, l, &landed->receipt, &why);
        reachable = reachable && why.code == OMQ_OK;
        over(r, l, there ? OUTCOME_DONE : OUTCOME_UNSURE, landed);
    }
    r->n_unsure = 0;
}

/* ---- a box after the other ---- */

int settle_begin(struct settle *r)
{
    int status = flight_open(r->cli, &(struct flight_limits){.messages = UNDER_WAY, .group = GROUP},
                             &r->flight);
    pace_begin(&r->pace);
    return status;
}

int settle_box(struct settle *r, const char *group)
{
    struct box box;
    int status = box_open(&box, r->cli, group, false);
    r->box = &box;
    if (!status)
        status = r->verb->open(r);
    if (status) {
        box_close(&box);
        return status;
    }
    uint64_t left = scan_left(&box.scan);
    rows_open(r);
    progress_begin(&r->progress, r->cli, r->dry ? "looking" : r->verb->doing, left);
    r->seen_before = r->seen;
    r->marked_ms = now_ms();
    status = left > 0 ? letters_settle(r) : STATUS_OK;
    progress_end(&r->progress);
    unsure_settle(r);
    rows_close(r);
    if (!r->dry && box_mark(&box) && !status)
        status = STATUS_PARTLY; /* said; what is settled is known all the same */
    box_close(&box);
    return status;
}

/* ---- the end ---- */

static void account(const struct settle *r, struct buf *out)
{
    const struct settle_verb *verb = r->verb;
    const uint64_t *counts = r->counts;
    buf_printf(out, "%" PRIu64 " %s%s", counts[OUTCOME_DONE], r->dry ? "would be " : "",
               noted_text(verb->how));
    if (counts[OUTCOME_BEFORE] > 0)
        buf_printf(out, ", %" PRIu64 " had been before", counts[OUTCOME_BEFORE]);
    if (counts[OUTCOME_OTHERWISE] > 0)
        buf_printf(out, ", %" PRIu64 " %s", counts[OUTCOME_OTHERWISE], verb->otherwise);
    if (counts[OUTCOME_KNOWN] > 0)
        buf_printf(out, ", %" PRIu64 " not taken: the broker knows their ids (producer dedup)",
                   counts[OUTCOME_KNOWN]);
    if (counts[OUTCOME_REFUSED] > 0)
        buf_printf(out, ", %" PRIu64 " %s", counts[OUTCOME_REFUSED], verb->undone);
    if (counts[OUTCOME_UNSURE] > 0)
        buf_printf(out, ", %" PRIu64 " unsure: sent, but no answer came", counts[OUTCOME_UNSURE]);
    if (r->skipped > 0)
        buf_printf(out, ", %" PRIu64 " left alone", r->skipped);
    buf_add_u8(out, 0);
}

int settle_report(struct settle *r, int status)
{
    struct cli *cli = r->cli;
    struct buf counts = buf_upto(4096);
    account(r, &counts);
    const char *text = counts.err ? "no memory to say what was done" : (const char *)counts.at;
    bool stopped = cli_stopped(cli);
    bool refused = r->counts[OUTCOME_REFUSED] > 0;
    if (r->failed || refused || stopped || out_broken(cli)) {
        int worst = stopped                       ? STATUS_INTERRUPTED
                    : out_broken(cli)             ? STATUS_PIPE
                    : r->counts[OUTCOME_DONE] > 0 ? STATUS_PARTLY
                                                  : status_of(r->why.code);
        status =
            cli_fail(cli, worst ? worst : STATUS_FAILED, r->verb->again, "%s: %s", text,
                     r->failed || refused ? printable(cli, bytes_str(r->why.text)) : "stopped");
    } else if (!status && r->counts[OUTCOME_KNOWN] > 0)
        status = cli_fail(cli, STATUS_PARTLY, r->verb->known, "%s", text);
    else if (!status)
        cli_note(cli, "%s", text);
    else if (r->seen > 0)
        cli_note(cli, "so far: %s", text);
    buf_clear(&counts);
    return status;
}

void settle_close(struct settle *r)
{
    flight_close(r->flight);
    free(r->unsure);
}
