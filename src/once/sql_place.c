/* sql_place.c - how far a queue is done, written in the caller's transaction (ONCE_OFFSET, H-29).
 *
 * Handlers that run side by side end in any order, so one number is not enough: everything before
 * `next` is done, and a window of bits tells what is done beyond it. When the offset `next` itself
 * gets done, `next` moves over all bits that are set.
 *
 * The row has an epoch, which each new owner of the queue raises. A commit names the epoch that its
 * process was given; after a rebalance the former owner's matches nothing any more.
 */
#include "once/sql_int.h"

#include <inttypes.h>

/* ---- the window ---- */

static bool bit(const struct window *w, size_t i)
{
    return w->bits[i / 8] >> (i % 8) & 1;
}

static void shift(struct window *w, uint64_t by)
{
    w->next += (int64_t)by;
    if (by >= WINDOW_BITS) {
        memset(w->bits, 0, sizeof w->bits);
        return;
    }
    size_t bytes = by / 8, bits = by % 8;
    for (size_t i = 0; i < WINDOW_SIZE; i++) {
        unsigned low = i + bytes < WINDOW_SIZE ? w->bits[i + bytes] : 0;
        unsigned high = i + bytes + 1 < WINDOW_SIZE ? w->bits[i + bytes + 1] : 0;
        w->bits[i] = (uint8_t)((low | high << 8) >> bits);
    }
}

/* `next` is the first that is not done. */
static void settle(struct window *w)
{
    size_t done = 0;
    while (done < WINDOW_BITS && bit(w, done))
        done++;
    if (done > 0)
        shift(w, done);
}

enum err window_load(struct window *w, int64_t next, struct bytes bits, struct fault *why)
{
    if (next < 0 || next > INT64_MAX - 2 * (int64_t)WINDOW_BITS || bits.len > WINDOW_SIZE)
        return fault_set(why, ERR_DAMAGED,
                         "the row of a queue is none of ours: next is %" PRId64
                         ", done has %zu bytes",
                         next, bits.len);
    *w = (struct window){.next = next};
    if (bits.len)
        memcpy(w->bits, bits.at, bits.len);
    settle(w);
    return OK;
}

size_t window_used(const struct window *w)
{
    size_t used = WINDOW_SIZE;
    while (used > 0 && w->bits[used - 1] == 0)
        used--;
    return used;
}

void window_floor(struct window *w, int64_t floor)
{
    if (floor <= w->next)
        return;
    shift(w, (uint64_t)(floor - w->next));
    settle(w);
}

enum window_state window_look(const struct window *w, int64_t offset)
{
    if (offset < w->next)
        return WINDOW_DONE;
    if (offset - w->next >= WINDOW_BITS)
        return WINDOW_FAR;
    return bit(w, (size_t)(offset - w->next)) ? WINDOW_DONE : WINDOW_FREE;
}

void window_mark(struct window *w, int64_t offset)
{
    invariant(window_look(w, offset) == WINDOW_FREE);
    size_t i = (size_t)(offset - w->next);
    w->bits[i / 8] |= (uint8_t)(1u << (i % 8));
    settle(w);
}

/* ---- the row ---- */

struct row {
    bool found;
    int64_t epoch;
    struct window window;
    enum err err;
    struct fault *why;
};

static bool row_place(void *user, const struct sql_value *columns, size_t n)
{
    struct row *row = user;
    row->found = n == 3;
    if (!row->found)
        return false;
    row->epoch = value_int(&columns[0]);
    row->err = window_load(&row->window, value_int(&columns[1]), columns[2].bytes, row->why);
    return false;
}

static enum err read_place(struct conn *c, const uint8_t *id, bool locked, struct row *row,
                           struct fault *why)
{
    *row = (struct row){.why = why};
    struct sql_call *call;
    enum err err = conn_add(c, locked ? T_PLACE_LOCKED : T_PLACE_READ, NULL, &call, why);
    if (err)
        return err;
    call_bytes(call, id, ONCE_ID_SIZE);
    call->row = row_place;
    call->user = row;
    err = conn_flush(c, why);
    return err ? err : row->err;
}

/* May this offset be done now, by this epoch? */
static enum err judge(struct row *row, const struct place *place, enum op_outcome *outcome,
                      struct fault *why)
{
    if (!row->found || row->epoch != place->epoch) {
        *outcome = OUT_LOST;
        return OK;
    }
    /* A message that is at hand has come, whatever the floor says. */
    window_floor(&row->window, place->floor < place->offset ? place->floor : place->offset);
    enum window_state state = window_look(&row->window, place->offset);
    if (state == WINDOW_FAR)
        return fault_set(
            why, ERR_BUSY,
            "offset %" PRId64 " of %s is more than %d beyond %" PRId64 ", which is not done yet",
            place->offset, place->name ? place->name : "a queue", WINDOW_BITS, row->window.next);
    *outcome = state == WINDOW_DONE ? OUT_DONE : OUT_OK;
    return OK;
}

static enum err check_offset(struct conn *c, int64_t offset, struct fault *why)
{
    if (c->store->settings.plain)
        return fault_set(why, ERR_UNSUPPORTED, "the plain form has no offsets");
    if (offset < 0 || offset > INT64_MAX - 3 * (int64_t)WINDOW_BITS)
        return fault_set(why, ERR_INVALID, "%" PRId64 " is no offset of a queue", offset);
    return OK;
}

enum err sql_place_look(struct conn *conn, const struct place *place, enum op_outcome *outcome,
                        struct fault *why)
{
    struct row row;
    enum err err = check_offset(conn, place->offset, why);
    if (!err)
        err = conn_fresh(conn, why);
    if (!err)
        err = conn_ask_clock(conn, why);
    if (!err)
        err = read_place(conn, place->id, false, &row, why);
    if (!err)
        err = conn_born(conn, why);
    return err ? err : judge(&row, place, outcome, why);
}

enum err sql_place_mark(struct conn *conn, const struct place *place, enum op_outcome *outcome,
                        struct fault *why)
{
    struct row row;
    enum op_outcome found = OUT_NONE;
    enum err err = check_offset(conn, place->offset, why);
    conn_drop(conn);
    if (!err)
        err = read_place(conn, place->id, true, &row, why);
    if (!err)
        err = judge(&row, place, &found, why);
    if (err)
        return err;
    if (found == OUT_OK) {
        window_mark(&row.window, place->offset);
        struct slot slot = {.changed = 0};
        struct sql_call *call;
        err = conn_add(conn, T_PLACE_UPDATE, &slot, &call, why);
        if (err)
            return err;
        call_int(call, row.window.next);
        call_bytes(call, row.window.bits, window_used(&row.window));
        call_bytes(call, place->id, ONCE_ID_SIZE);
        call_int(call, place->epoch);
        err = conn_flush(conn, why);
        if (err)
            return err;
        if (slot.changed == 0)
            found = OUT_LOST;
    }
    *outcome = found;
    return OK;
}

/* ---- taking a queue ---- */

static enum err insert_place(struct conn *c, const struct place *place, int64_t epoch,
                             struct fault *why)
{
    struct sql_call *call;
    enum err err = conn_add(c, T_PLACE_INSERT, NULL, &call, why);
    if (err)
        return err;
    call_bytes(call, place->id, ONCE_ID_SIZE);
    call_text(call, place->name);
    call_int(call, epoch);
    call_int(call, place->offset);
    call_bytes(call, NULL, 0);
    return conn_flush(c, why);
}

static enum err raise_epoch(struct conn *c, const struct place *place, int64_t from, int64_t to,
                            struct fault *why)
{
    struct slot slot = {.changed = 0};
    struct sql_call *call;
    enum err err = conn_add(c, T_PLACE_TAKE, &slot, &call, why);
    if (err)
        return err;
    call_int(call, to);
    call_bytes(call, place->id, ONCE_ID_SIZE);
    call_int(call, from);
    err = conn_flush(c, why);
    if (!err && slot.changed == 0)
        return fault_set(why, ERR_BUSY, "another took the queue at the same time");
    return err;
}

/* The new epoch is larger than any before, also than one of a row that was deleted meanwhile: it
 * is at least the server's clock. */
static enum err take_place(struct conn *c, const struct place *place, struct place *out,
                           struct fault *why)
{
    struct row row;
    enum err err = conn_ask_clock(c, why);
    if (!err)
        err = read_place(c, place->id, true, &row, why);
    if (!err)
        err = conn_born(c, why);
    if (err)
        return err;
    int64_t epoch = c->now_ms > 0 ? c->now_ms : 1;
    if (row.found && row.epoch == INT64_MAX)
        return fault_set(why, ERR_DAMAGED, "the row of a queue is none of ours: no epoch is left");
    if (row.found && row.epoch >= epoch)
        epoch = row.epoch + 1;
    out->epoch = epoch;
    out->offset = row.found ? row.window.next : place->offset;
    return row.found ? raise_epoch(c, place, row.epoch, epoch, why)
                     : insert_place(c, place, epoch, why);
}

static enum err take_once(struct conn *c, struct place *place, struct fault *why)
{
    const struct sql_engine *engine = c->store->engine;
    struct place taken = *place;
    enum err err = conn_fresh(c, why);
    if (err)
        return err;
    err = engine->begin(c->sql, true, why);
    if (!err)
        err = take_place(c, place, &taken, why);
    if (!err)
        err = engine->commit(c->sql, why);
    if (err) {
        conn_drop(c);
        engine->rollback(c->sql);
        return err;
    }
    *place = taken;
    return OK;
}

/* Two that take a new queue at once both insert its row: who was second finds it the next time.
 * Other conflicts are told: each was waited for already. */
enum err sql_place_take(struct conn *conn, struct place *place, struct fault *why)
{
    enum err err = check_offset(conn, place->offset, why);
    if (!err)
        err = take_once(conn, place, why);
    if (err == ERR_EXISTS)
        err = take_once(conn, place, why);
    return err == ERR_EXISTS ? ERR_BUSY : err;
}
