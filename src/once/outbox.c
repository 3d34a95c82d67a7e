/* outbox.c - what is to be sent once the transaction has happened (H-30).
 *
 * A message is a row that is written in the run's transaction. Whoever sends takes a claim on the
 * outbox first, as on any key, and keeps it while it sends, so that there is one at a time and the
 * database is not locked meanwhile. A row is deleted after it was sent: a crash in between sends it
 * again, under the same id.
 */
#include "once/once_int.h"
#include "once/sql.h"

#include <stdio.h>
#include <stdlib.h>

#define SOME           32 /* rows that are read and deleted together */
#define SENDER_MS      30000
#define SENDER_KEEP_MS 60000

void hex_of(const uint8_t *at, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[at[i] >> 4];
        out[2 * i + 1] = digits[at[i] & 15];
    }
    out[2 * n] = 0;
}

int outbox_init(struct once *once, struct once_error *why)
{
    struct outbox_sql *sql = &once->outbox;
    char name[64];
    (void)snprintf(name, sizeof name, "%s_outbox", once->with.table);
    if (once->driver->quote(name, sql->table, sizeof sql->table) != OK)
        return once_fail(why, ONCE_INVALID, "the name of the outbox's table is refused");
    (void)snprintf(sql->insert, sizeof sql->insert, "INSERT INTO %s (id, message) VALUES (?, ?)",
                   sql->table);
    (void)snprintf(sql->select, sizeof sql->select,
                   "SELECT number, id, message FROM %s ORDER BY number LIMIT ?", sql->table);
    (void)snprintf(sql->remove, sizeof sql->remove, "DELETE FROM %s WHERE number = ?", sql->table);
    return ONCE_OK;
}

int once_outbox_add(struct once_run *run, const struct once_message *message,
                    struct once_error *why)
{
    if (!run || !message || !message->topic)
        return once_fail(why, ONCE_INVALID, "run, and a message with a topic, are required");
    if (!run->conn)
        return once_fail(why, ONCE_MISUSE,
                         "the outbox needs a transaction: ONCE_TRANSACTION or ONCE_OFFSET");
    cleanup(buf_clear) struct buf bytes = buf_upto(OUTBOX_MESSAGE_MAX);
    outbox_encode(message, &bytes);
    if (bytes.err != OK)
        return once_fail(why, bytes.err == ERR_NO_MEMORY ? ONCE_NO_MEMORY : ONCE_INVALID,
                         "the message has more than %d bytes or %d properties", OUTBOX_MESSAGE_MAX,
                         OUTBOX_PROPERTIES_MAX);
    uint8_t number[4], id[ONCE_ID_SIZE];
    store_u32(number, run->outbox);
    key_id(bytes_of(run->op.id, ONCE_ID_SIZE), bytes_of(number, sizeof number), id);
    struct sql_call insert = {.text = run->once->outbox.insert, .n_params = 2};
    insert.params[0] = (struct sql_value){.type = SQL_BLOB, .bytes = bytes_of(id, sizeof id)};
    insert.params[1] = (struct sql_value){.type = SQL_BLOB, .bytes = buf_bytes(&bytes)};
    int bad = transaction_call(run, &insert, why);
    if (!bad)
        run->outbox++;
    return bad;
}

/* ---- sending ---- */

struct waiting {
    int64_t number;
    uint8_t id[ONCE_ID_SIZE];
    struct buf bytes;
    bool sent;
};

struct sender {
    struct once *once;
    struct op claim;
    uint64_t renew_ns; /* when the claim is due to be renewed */
    struct waiting some[SOME];
    size_t n, max;
    enum err err;
};

static bool keep_row(void *user, const struct sql_value *columns, size_t n)
{
    struct sender *s = user;
    if (n != 3 || columns[1].bytes.len != ONCE_ID_SIZE || s->n == s->max) {
        s->err = ERR_DAMAGED;
        return false;
    }
    struct waiting *w = &s->some[s->n++];
    w->number = columns[0].number;
    memcpy(w->id, columns[1].bytes.at, ONCE_ID_SIZE);
    w->bytes = buf_upto(OUTBOX_MESSAGE_MAX);
    w->sent = false;
    buf_add(&w->bytes, columns[2].bytes);
    s->err = w->bytes.err;
    return s->err == OK;
}

static void forget_rows(struct sender *s)
{
    for (size_t i = 0; i < s->n; i++)
        buf_clear(&s->some[i].bytes);
    s->n = 0;
}

/* Some statements in a transaction of their own. */
static enum err run_calls(struct once *once, struct sql_call *calls, size_t n, struct fault *why)
{
    const struct once_driver *driver = once->driver;
    struct conn *conn;
    enum err err = pool_take(once->pool, once->with.wait_ms, &conn, why);
    if (err != OK)
        return err;
    err = driver->begin(conn, NULL, why);
    bool open = err == OK;
    for (size_t i = 0; i < n && err == OK; i++)
        err = driver->call(conn, &calls[i], why);
    if (open && err == OK)
        err = driver->commit(conn, why);
    else if (open && err != ERR_IO)
        driver->rollback(conn);
    pool_give(once->pool, conn, err != ERR_IO && (!driver->healthy || driver->healthy(conn)));
    return err;
}

static enum err read_some(struct sender *s, size_t most, struct fault *why)
{
    s->max = most < SOME ? most : SOME;
    s->err = OK;
    struct sql_call select = {
        .text = s->once->outbox.select, .n_params = 1, .row = keep_row, .user = s};
    select.params[0] = (struct sql_value){.type = SQL_INT, .number = (int64_t)s->max};
    enum err err = run_calls(s->once, &select, 1, why);
    if (err == OK && s->err != OK)
        err = fault_set(why, s->err, "a row of the outbox cannot be read: %s", err_text(s->err));
    return err;
}

static enum err delete_sent(struct sender *s, struct fault *why)
{
    struct sql_call calls[SOME];
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!s->some[i].sent)
            continue;
        calls[n] = (struct sql_call){.text = s->once->outbox.remove, .n_params = 1};
        calls[n++].params[0] = (struct sql_value){.type = SQL_INT, .number = s->some[i].number};
    }
    return n > 0 ? run_calls(s->once, calls, n, why) : OK;
}

/* Claims the outbox, renews or releases the claim. */
static enum err claim_do(struct sender *s, enum op_kind kind, struct fault *why)
{
    struct op *ops[] = {&s->claim};
    struct span span;
    s->claim.kind = kind;
    enum err err = store_ask(s->once, ops, 1, s->once->with.wait_ms, &span, why);
    s->renew_ns = span.asked_ns + SENDER_MS / 3 * NS_PER_MS;
    if (err != OK)
        return err;
    switch (s->claim.outcome) {
    case OUT_OK:
        return OK;
    case OUT_BUSY:
        return fault_set(why, ERR_BUSY, "another sends from this outbox");
    case OUT_FAILED:
        return fault_set(why, ERR_IO, "%s", s->claim.why.text);
    default:
        return fault_set(why, ERR_BUSY, "another has begun to send from this outbox");
    }
}

typedef int send_fn(void *user, const struct once_message *message);

static enum err send_one(struct waiting *w, struct outbox_message *m, send_fn *send, void *user,
                         struct fault *why)
{
    char id[2 * ONCE_ID_SIZE + 1];
    if (outbox_decode(buf_bytes(&w->bytes), m) != OK)
        return fault_set(why, ERR_DAMAGED, "row %lld of the outbox is no message",
                         (long long)w->number);
    hex_of(w->id, ONCE_ID_SIZE, id);
    m->properties[m->message.n_properties++] = (struct once_property){"ONCE_ID", id};
    w->sent = send(user, &m->message) == 0;
    return OK;
}

/* Sends what was read; what cannot be sent ends it, so that the order stays. */
static enum err send_some(struct sender *s, send_fn *send, void *user, size_t *sent,
                          struct fault *why)
{
    cleanup(free_at) struct outbox_message *m = malloc(sizeof *m);
    if (!m)
        return ERR_NO_MEMORY;
    enum err err = OK;
    for (size_t i = 0; i < s->n && err == OK; i++) {
        if (clock_ns(s->once->clock) >= s->renew_ns)
            err = claim_do(s, OP_RENEW, why);
        if (err == OK)
            err = send_one(&s->some[i], m, send, user, why);
        if (err != OK || !s->some[i].sent)
            break;
        ++*sent;
    }
    return err;
}

static enum err send_all(struct sender *s, size_t max, send_fn *send, void *user, size_t *sent,
                         struct fault *why)
{
    enum err err = OK;
    bool more = true;
    while (more && err == OK && *sent < max) {
        err = read_some(s, max - *sent, why);
        size_t before = *sent;
        if (err == OK)
            err = send_some(s, send, user, sent, why);
        struct fault later = {0};
        enum err deleted = delete_sent(s, &later);
        if (err == OK && deleted != OK) {
            err = deleted;
            if (why)
                *why = later;
        }
        more = *sent - before == s->max; /* all that were asked for came, and went */
        forget_rows(s);
    }
    return err;
}

int once_outbox_send(struct once *once, size_t max, send_fn *send, void *user, size_t *sent,
                     struct once_error *why)
{
    size_t unseen;
    sent = sent ? sent : &unseen;
    *sent = 0;
    if (!once || !send)
        return once_fail(why, ONCE_INVALID, "once and send are required");
    if (!once->pool)
        return once_fail(why, ONCE_MISUSE,
                         "the outbox is of ONCE_TRANSACTION and ONCE_OFFSET only");
    cleanup(free_at) struct sender *s = calloc(1, sizeof *s);
    if (!s)
        return once_fail(why, ONCE_NO_MEMORY, "out of memory");
    s->once = once;
    s->claim = (struct op){.name = "outbox",
                           .token = token_next(once),
                           .fingerprint = 1,
                           .expiry_ms = SENDER_MS,
                           .retention_ms = SENDER_KEEP_MS,
                           .forget = true,
                           .takeover = once->with.takeover};
    key_id(BYTES("outbox"), bytes_str(once->outbox.table), s->claim.id);
    struct fault fault = {0}, ignored;
    enum err err = claim_do(s, OP_CLAIM, &fault);
    if (err == OK) {
        err = send_all(s, max, send, user, sent, &fault);
        (void)claim_do(s, OP_RELEASE, &ignored); /* else it ends by itself */
    }
    return err == OK ? ONCE_OK : once_fail_store(why, err, &fault);
}
