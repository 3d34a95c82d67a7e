/* entry.c - what happened in the ledger, as it stands in the log. */
#include "ledger/entry.h"

#include "ledger/text_int.h"

#define VERSION 1
#define FIXED   (1 + 1 + 2 + 32 + 8 + 8 + 8 + 8 + 8)
#define TEXTS   6

const char *ledger_event_text(uint8_t event)
{
    static const char *const texts[] = {
        [EVENT_CLAIMED] = "claimed",       [EVENT_RENEWED] = "renewed",     [EVENT_DONE] = "done",
        [EVENT_RELEASED] = "released",     [EVENT_FORGOTTEN] = "forgotten", [EVENT_STEP] = "step",
        [EVENT_SUPPRESSED] = "suppressed", [EVENT_REFUSED] = "refused",     [EVENT_LOST] = "lost",
    };
    return event <= EVENT_LAST ? texts[event] : NULL;
}

size_t entry_size(const struct ledger_entry *e)
{
    return FIXED + TEXTS * TEXT_ROOM(0) + e->group.len + e->client.len + e->name.len +
           e->topic.len + e->message.len + e->step.len + BLOB_ROOM(e->result.len);
}

void entries_begin(struct wr *w)
{
    wr_u8(w, VERSION);
    wr_u8(w, 0);
    wr_u16(w, 0);
}

void entry_write(struct wr *w, const struct ledger_entry *e)
{
    wr_u8(w, e->event);
    wr_u8(w, e->state);
    wr_u16(w, e->flags);
    wr_bytes_of(w, bytes_of(e->id, sizeof e->id));
    wr_u64(w, e->token);
    wr_u64(w, (uint64_t)e->fence);
    wr_u64(w, (uint64_t)e->until_ms);
    wr_u64(w, (uint64_t)e->at_ms);
    wr_u64(w, e->fingerprint);
    text_write(w, e->group);
    text_write(w, e->client);
    text_write(w, e->name);
    text_write(w, e->topic);
    text_write(w, e->message);
    text_write(w, e->step);
    blob_write(w, e->result);
}

void entries_end(struct wr *w, size_t n)
{
    if (!w->full)
        store_u16(w->start + 2, (uint16_t)n);
}

static void entry_read(struct rd *r, struct ledger_entry *e)
{
    *e = (struct ledger_entry){.event = rd_u8(r)};
    e->state = rd_u8(r);
    e->flags = rd_u16(r);
    struct bytes id = rd_take(r, sizeof e->id);
    if (id.at)
        memcpy(e->id, id.at, sizeof e->id);
    e->token = rd_u64(r);
    e->fence = (int64_t)rd_u64(r);
    e->until_ms = (int64_t)rd_u64(r);
    e->at_ms = (int64_t)rd_u64(r);
    e->fingerprint = rd_u64(r);
    e->group = text_read(r);
    e->client = text_read(r);
    e->name = text_read(r);
    e->topic = text_read(r);
    e->message = text_read(r);
    e->step = text_read(r);
    e->result = blob_read(r);
    if (!ledger_event_text(e->event))
        r->bad = true;
}

static bool entries_walk(struct rd r, size_t n, entry_fn *each, void *user)
{
    struct ledger_entry e;
    for (size_t i = 0; i < n && !r.bad; i++) {
        entry_read(&r, &e);
        if (!r.bad && each && !each(user, &e))
            return true;
    }
    return !r.bad && rd_left(&r) == 0;
}

enum err entries_read(struct bytes body, entry_fn *each, void *user)
{
    struct rd r = rd_over(body);
    uint8_t version = rd_u8(&r);
    (void)rd_u8(&r);
    size_t n = rd_u16(&r);
    if (r.bad)
        return ERR_MALFORMED;
    if (version != VERSION)
        return ERR_UNSUPPORTED;
    if (n > LEDGER_ENTRIES_MAX)
        return ERR_TOO_BIG;
    if (!entries_walk(r, n, NULL, NULL))
        return ERR_MALFORMED;
    (void)entries_walk(r, n, each, user);
    return OK;
}
