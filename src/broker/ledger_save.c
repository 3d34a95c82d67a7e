/* ledger_save.c - the ledger's snapshot, config/onceLedger: made in small steps by the keeper while
 * others write, so that a start reads it and only the end of the log (ledger/snapshot.h).
 *
 *     begin: where the log is  ──►  parts, each copied in one short visit  ──►  end, sync
 *                                        ──►  once the log is flushed as far as that: rename
 *
 * The last condition keeps a loss of power from leaving a snapshot that knows more than the log.
 * One is due when what would have to be read of the log is much, or old, or could be deleted by the
 * next cleaning.
 */
#include "broker/ledger_int.h"

#include <stdlib.h>

#define PATH        "config/onceLedger"
#define TEMPORARY   "config/onceLedger.tmp"
#define TAIL_MUCH   (64u << 20)
#define TAIL_LITTLE (1u << 20) /* at a stop: not worth a file */
#define TAIL_OLD_NS (UINT64_C(3600) * 1000000000)
#define AGAIN_NS    UINT64_C(5000000000)
#define VISIT_ROWS  4096
#define TURN_BYTES  (8u << 20)

struct ledger_saving {
    struct vfs_file *file; /* NULL: none is being made */
    bool copied;           /* all is written and synced */
    uint64_t at;
    struct snapshot_head head;
    uint64_t upto; /* nothing in it stands behind this position of the log */
    uint64_t tail; /* bytes of records behind the last one, when this one began */
    struct ledger_cursor cursor;
    struct ledger_part part;
    struct buf out;
    uint64_t rows, steps;
    uint64_t size; /* of the last one */
    uint64_t made_ns;
    uint64_t failed_ns; /* when one could not be written; 0: it could */
};

enum err ledger_saving_make(struct broker *b)
{
    struct ledger_saving *s = calloc(1, sizeof *s);
    if (!s)
        return ERR_NO_MEMORY;
    ledger_part_init(&s->part);
    s->out = buf_upto(TURN_BYTES + 4 * SNAPSHOT_BLOCK_MAX);
    s->made_ns = clock_ns(b->clock);
    b->ledger->saving = s;
    return OK;
}

static void saving_drop(struct broker *b, struct ledger_saving *s)
{
    if (s->file)
        b->vfs->calls->close(s->file);
    s->file = NULL;
    ledger_part_clear(&s->part);
    buf_clear(&s->out);
    s->copied = false;
}

void ledger_saving_free(struct broker *b)
{
    if (!b->ledger->saving)
        return;
    saving_drop(b, b->ledger->saving);
    free(b->ledger->saving);
}

/* ---- steps of one snapshot ---- */

static enum err out_write(struct broker *b, struct ledger_saving *s, struct fault *why)
{
    struct iovec part = {s->out.at, s->out.len};
    enum err err = s->out.err ? fault_set(why, s->out.err, "no memory for the once ledger's file")
                              : b->vfs->calls->write(s->file, s->at, &part, 1, why);
    if (!err) /* so that the sync at the end is short */
        (void)(b->vfs->calls->push(s->file, s->at, s->out.len, NULL) == OK);
    s->at += s->out.len;
    s->out.len = 0;
    return err;
}

static enum err saving_begin(struct broker *b, struct ledger_saving *s, struct fault *why)
{
    struct ledger_room *r = b->ledger;
    enum err err = b->vfs->calls->open(b->vfs, TEMPORARY, VFS_FRESH, &s->file, why);
    if (err)
        return err;
    room_enter(&r->room);
    s->head = (struct snapshot_head){.birth = r->birth,
                                     .position = r->end,
                                     .offset = r->next_offset,
                                     .time_ms = ledger_now_ms(b),
                                     .floor = ledger_floor(r->ledger)};
    s->tail = r->tail;
    room_leave(&r->room);
    s->at = s->rows = s->steps = 0;
    s->cursor = (struct ledger_cursor){0};
    uint8_t *at = buf_space(&s->out, SNAPSHOT_HEAD);
    if (at)
        snapshot_head_write(at, &s->head);
    return out_write(b, s, why);
}

/* Some megabytes. `*more`: that was not all. */
static enum err saving_copy(struct broker *b, struct ledger_saving *s, bool *more,
                            struct fault *why)
{
    enum err err = OK;
    *more = true;
    while (!err && *more && s->out.len < TURN_BYTES) {
        room_enter(&b->ledger->room);
        *more = ledger_copy(b->ledger->ledger, &s->cursor, VISIT_ROWS, &s->part);
        s->upto = b->ledger->end;
        room_leave(&b->ledger->room);
        s->rows += s->part.n_rows;
        s->steps += s->part.n_steps;
        err = ledger_part_write(&s->part, &s->out);
    }
    if (err)
        return fault_set(why, err, "copying the once ledger: %s", err_text(err));
    if (!*more)
        snapshot_end_write(&s->out, s->rows, s->steps);
    return out_write(b, s, why);
}

/* The new one takes the place of the old. */
static enum err saving_end(struct broker *b, struct ledger_saving *s, struct fault *why)
{
    struct ledger_room *r = b->ledger;
    const struct vfs_calls *calls = b->vfs->calls;
    enum err err = calls->rename(b->vfs, TEMPORARY, PATH, why);
    if (!err)
        err = calls->sync_dir(b->vfs, "config", why);
    if (err)
        return err;
    s->size = s->at;
    s->made_ns = clock_ns(b->clock);
    room_enter(&r->room);
    r->tail -= s->tail;
    r->tail_first = s->head.position; /* or behind it */
    room_leave(&r->room);
    return OK;
}

static enum err saving_step(struct broker *b, struct ledger_saving *s, struct fault *why)
{
    bool more = false;
    enum err err = OK;
    if (!s->file)
        err = saving_begin(b, s, why);
    if (!err && !s->copied) {
        err = saving_copy(b, s, &more, why);
        if (!err && !more)
            err = b->vfs->calls->sync(s->file, why);
        s->copied = !err && !more;
    }
    if (!err && s->copied && store_flushed(b->store) >= s->upto) {
        err = saving_end(b, s, why);
        saving_drop(b, s);
    }
    if (err)
        saving_drop(b, s);
    s->failed_ns = err ? clock_ns(b->clock) : 0;
    return err;
}

/* ---- when ---- */

static bool saving_is_due(struct broker *b, const struct ledger_saving *s)
{
    struct ledger_room *r = b->ledger;
    room_enter(&r->room);
    uint64_t tail = r->tail, first = r->tail_first;
    room_leave(&r->room);
    uint64_t much = s->size / 2 > TAIL_MUCH ? s->size / 2 : TAIL_MUCH, now_ns = clock_ns(b->clock);
    if (tail == 0 || (s->failed_ns && now_ns - s->failed_ns < AGAIN_NS))
        return false;
    return tail > much || now_ns - s->made_ns > TAIL_OLD_NS || first < store_clean_reach(b->store);
}

enum err broker_ledger_save_turn(struct broker *b, struct fault *why)
{
    struct ledger_saving *s = b->ledger->saving;
    if (!s->file && !saving_is_due(b, s))
        return OK;
    return saving_step(b, s, why);
}

enum err ledger_save_now(struct broker *b, struct fault *why)
{
    struct ledger_saving *s = b->ledger->saving;
    saving_drop(b, s);
    enum err err = OK;
    do
        err = saving_step(b, s, why);
    while (!err && s->file && !s->copied);
    if (!err && s->file)
        err = fault_set(why, ERR_IO, "the log is not flushed as far as the once ledger has come");
    saving_drop(b, s);
    return err;
}

enum err ledger_save_last(struct broker *b, struct fault *why)
{
    struct ledger_room *r = b->ledger;
    if (!r->on || r->birth == 0 || r->tail <= TAIL_LITTLE)
        return OK;
    enum err err = store_flush_all(b->store, why);
    return err ? err : ledger_save_now(b, why);
}

/* ---- reading ---- */

struct reading {
    struct vfs *vfs;
    struct vfs_file *file;
    uint64_t at, size;
    struct buf content;
};

/* The next bytes; into `content`. */
static enum err bytes_read(struct reading *in, size_t n, struct fault *why)
{
    if (n > in->size - in->at)
        return ERR_DAMAGED;
    in->content.len = 0;
    uint8_t *at = buf_space(&in->content, n);
    if (!at)
        return ERR_NO_MEMORY;
    enum err err = in->vfs->calls->read(in->file, in->at, at, n, why);
    in->at += n;
    return err;
}

static enum err snapshot_read(struct broker *b, struct reading *in, struct snapshot_head *head,
                              struct fault *why)
{
    struct snapshot_counts counts = {0};
    enum err err = bytes_read(in, SNAPSHOT_HEAD, why);
    if (!err)
        err = snapshot_head_read(buf_bytes(&in->content), head);
    while (!err && in->at < in->size) {
        struct snapshot_block block;
        err = bytes_read(in, SNAPSHOT_BLOCK_HEAD, why);
        if (!err)
            err = snapshot_block_read(buf_bytes(&in->content), &block);
        if (!err)
            err = bytes_read(in, block.size, why);
        if (!err)
            err = ledger_load_block(b->ledger->ledger, &block, buf_bytes(&in->content), &counts);
    }
    if (!err && !counts.ended)
        err = ERR_DAMAGED; /* the end is missing */
    if (!err)
        ledger_load_floor(b->ledger->ledger, head->floor);
    return err;
}

enum err ledger_saved_read(struct broker *b, struct snapshot_head *head, struct fault *why)
{
    struct reading in = {.vfs = b->vfs, .content = buf_upto(SNAPSHOT_BLOCK_MAX)};
    enum err err = b->vfs->calls->open(b->vfs, PATH, VFS_READ, &in.file, why);
    if (err)
        return err;
    err = b->vfs->calls->size(in.file, &in.size, why);
    if (!err)
        err = snapshot_read(b, &in, head, why);
    b->vfs->calls->close(in.file);
    buf_clear(&in.content);
    if (!err)
        b->ledger->saving->size = in.size;
    return err;
}
