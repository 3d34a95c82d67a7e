/* why_ledger.c - the part of the once ledger that is about some messages. */
#include "cli/scan.h"
#include "cli/why_int.h"

#include <string.h>

struct reading {
    struct why *why;
    const char *name;               /* entries of this key … */
    bool ids;                       /* … or that name one of the messages … */
    const struct why_entries *keys; /* … or of the keys of these */
    struct why_entries *out;
};

static bool is_one_of(const struct why *w, struct bytes message)
{
    for (size_t i = 0; i < w->n; i++)
        if (bytes_equal(message, bytes_str(w->stories[i].id)))
            return true;
    return false;
}

static bool wanted(const struct reading *r, const struct ledger_entry *e)
{
    if (r->name && bytes_equal(e->name, bytes_str(r->name)))
        return true;
    if (r->ids && e->message.len > 0 && is_one_of(r->why, e->message))
        return true;
    for (size_t i = 0; r->keys && i < r->keys->n; i++)
        if (memcmp(r->keys->at[i].id, e->id, sizeof e->id) == 0)
            return true;
    return false;
}

static struct bytes kept(struct cli *cli, struct bytes text)
{
    return bytes_str(admin_format(cli, "%.*s", BYTES_ARG(text)));
}

static bool entry_take(void *user, const struct ledger_entry *e)
{
    struct reading *r = user;
    struct cli *cli = r->why->cli;
    if (!wanted(r, e))
        return true;
    struct why_entries *out = r->out;
    out->cut = out->n == WHY_ENTRIES_MAX;
    if (out->cut)
        return false;
    if (out->n == out->room) {
        size_t room = 2 * out->room + 64;
        struct ledger_entry *more = admin_alloc(cli, room, sizeof *more);
        if (out->n > 0)
            memcpy(more, out->at, out->n * sizeof *more);
        out->at = more;
        out->room = room;
    }
    struct ledger_entry *mine = &out->at[out->n++];
    *mine = *e;
    mine->group = kept(cli, e->group);
    mine->client = kept(cli, e->client);
    mine->name = kept(cli, e->name);
    mine->topic = kept(cli, e->topic);
    mine->message = kept(cli, e->message);
    mine->step = kept(cli, e->step);
    mine->result = (struct bytes){0};
    return true;
}

static int ledger_walk(struct reading *r, int64_t from_ms)
{
    struct cli *cli = r->why->cli;
    struct admin_route route;
    struct omq_error why;
    if (admin_route_try(cli, LEDGER_TOPIC, &route, &why)) /* Apache's brokers have none */
        return STATUS_OK;
    struct scan scan;
    int status = scan_open(&scan, cli, LEDGER_TOPIC);
    if (!status && from_ms > 0)
        status = scan_begin_at(&scan, from_ms);
    struct progress progress;
    progress_begin(&progress, cli, "reading the ledger", scan_left(&scan));
    uint64_t done = 0;
    const struct omq_delivery *d = NULL;
    while (!status && !(status = scan_next(&scan, &d, NULL)) && d && !r->out->cut) {
        /* A record that cannot be read is for `oncemq audit` to tell. */
        enum err ignored = entries_read(bytes_of(d->body, d->body_size), entry_take, r);
        (void)ignored;
        progress_move(&progress, ++done);
    }
    progress_end(&progress);
    scan_close(&scan);
    return status;
}

int why_ledger(struct why *w, const char *name)
{
    int64_t first_ms = INT64_MAX;
    for (size_t i = 0; i < w->n; i++)
        if (w->stories[i].copies[0].message->stored_ms < first_ms)
            first_ms = w->stories[i].copies[0].message->stored_ms;
    struct why_entries keys = {0};
    struct reading first = {.why = w, .name = name, .ids = true, .out = &keys};
    int status = ledger_walk(&first, w->n > 0 && !name ? first_ms : 0);
    if (status || keys.n == 0)
        return status;
    struct reading all = {.why = w, .keys = &keys, .out = &w->entries};
    status = ledger_walk(&all, 0);
    w->entries.cut |= keys.cut;
    return status;
}

int why_ids(struct why *w, const char *name, struct admin_names *out)
{
    struct why_entries found = {0};
    struct reading r = {.why = w, .name = name, .out = &found};
    int status = ledger_walk(&r, 0);
    *out = (struct admin_names){admin_alloc(w->cli, found.n + 1, sizeof *out->names), 0};
    for (size_t i = 0; i < found.n; i++) {
        bool known = found.at[i].message.len == 0 || is_one_of(w, found.at[i].message);
        for (size_t k = 0; k < out->n && !known; k++)
            known = bytes_equal(found.at[i].message, bytes_str(out->names[k]));
        if (!known)
            out->names[out->n++] = (const char *)found.at[i].message.at;
    }
    return status;
}
