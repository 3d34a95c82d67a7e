/* mariadb_run.c - statements on MariaDB and MySQL: sent ahead, answers read in order. */
#include "once/mariadb_int.h"

#include <errmsg.h>
#include <mysqld_error.h>
#include <stdlib.h>

/* How much may be under way before answers are read: less than what the kernel keeps for a socket.
 * With more, the server could wait for us to read while we wait for it to read. */
#define AHEAD_BYTES (16 << 10)

/* Codes that the header of one or the other client library does not have. */
enum {
    CLIENT_ERRORS = 2000,
    CLIENT_ERRORS_END = 3000,
    QUERY_TIMEOUT_MYSQL = 3024,
    ROLLED_BACK_MYSQL = 3101, /* by the other members of its group */
    IDLE_CLOSED_MYSQL = 4031,
};

/* ---- errors ---- */

static enum err meaning(unsigned code)
{
    if (code == CR_OUT_OF_MEMORY)
        return ERR_NO_MEMORY;
    if (code >= CLIENT_ERRORS && code < CLIENT_ERRORS_END)
        return ERR_IO;
    switch (code) {
    case ER_LOCK_WAIT_TIMEOUT:
    case ER_LOCK_DEADLOCK:
    case ER_QUERY_INTERRUPTED: /* by an operator */
    case ER_STATEMENT_TIMEOUT:
    case QUERY_TIMEOUT_MYSQL:
    case ROLLED_BACK_MYSQL:
    case ER_CHECKREAD: /* another has changed the row: MariaDB's snapshot isolation */
        return ERR_BUSY;
    case ER_DUP_ENTRY:
    case ER_DUP_ENTRY_WITH_KEY_NAME:
    case ER_TABLE_EXISTS_ERROR:
        return ERR_EXISTS;
    case ER_NO_SUCH_TABLE:
    case ER_BAD_DB_ERROR:
        return ERR_NOT_FOUND;
    case ER_DISK_FULL:
    case ER_RECORD_FILE_FULL:
        return ERR_DISK_FULL;
    case ER_OPTION_PREVENTS_STATEMENT: /* read_only */
    case ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION:
    case ER_READ_ONLY_MODE:
        return ERR_READ_ONLY;
    case ER_ACCESS_DENIED_ERROR:
    case ER_DBACCESS_DENIED_ERROR:
    case ER_TABLEACCESS_DENIED_ERROR:
    case ER_COLUMNACCESS_DENIED_ERROR:
    case ER_SPECIFIC_ACCESS_DENIED_ERROR:
    case ER_ACCESS_DENIED_NO_PASSWORD_ERROR:
        return ERR_DENIED;
    case ER_OUTOFMEMORY:
    case ER_OUT_OF_RESOURCES:
        return ERR_NO_MEMORY;
    case ER_SERVER_SHUTDOWN:
    case ER_CONNECTION_KILLED:
    case ER_NEW_ABORTING_CONNECTION:
    case ER_CON_COUNT_ERROR:
    case ER_TOO_MANY_USER_CONNECTIONS:
    case ER_NET_PACKET_TOO_LARGE: /* the server hangs up after it */
    case IDLE_CLOSED_MYSQL:
        return ERR_IO;
    default:
        return ERR_INVALID;
    }
}

enum err mariadb_failed(struct sql_conn *conn, unsigned code, const char *words, struct fault *why)
{
    enum err err = meaning(code);
    if (err == ERR_IO)
        conn->dead = true;
    return fault_set(why, err, "MariaDB: %s (%u)", words, code);
}

enum err mariadb_error(struct sql_conn *conn, struct fault *why)
{
    return mariadb_failed(conn, mysql_errno(conn->mysql), mysql_error(conn->mysql), why);
}

enum err mariadb_does_not_fit(const struct sql_call *call, struct fault *why)
{
    return fault_set(why, ERR_INVALID, "MariaDB: %zu values do not fit: %.100s", call->n_params,
                     call->text);
}

/* ---- reading ---- */

static struct sql_value value_of(const MYSQL_FIELD *field, const char *at, unsigned long len)
{
    enum { BINARY = 63 }; /* the number of the character set that is none */
    if (!at)
        return (struct sql_value){.type = SQL_NULL};
    struct sql_value v = {.type = SQL_TEXT, .bytes = bytes_of(at, len)};
    switch (field->type) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
    case MYSQL_TYPE_YEAR:
    case MYSQL_TYPE_NEWDECIMAL: /* sums are such */
        if (bytes_to_i64(v.bytes, &v.number))
            v.type = SQL_INT;
        break;
    case MYSQL_TYPE_STRING:
    case MYSQL_TYPE_VAR_STRING:
    case MYSQL_TYPE_VARCHAR:
    case MYSQL_TYPE_TINY_BLOB:
    case MYSQL_TYPE_BLOB:
    case MYSQL_TYPE_MEDIUM_BLOB:
    case MYSQL_TYPE_LONG_BLOB:
        if (field->charsetnr == BINARY)
            v.type = SQL_BLOB;
        break;
    default:
        break;
    }
    return v;
}

static enum err hand_rows(MYSQL_RES *result, const struct sql_call *call, struct fault *why)
{
    unsigned n = mysql_num_fields(result);
    if (n > SQL_COLUMNS_MAX)
        return fault_set(why, ERR_INVALID, "MariaDB: %u columns are too many", n);
    const MYSQL_FIELD *fields = mysql_fetch_fields(result);
    for (MYSQL_ROW row; (row = mysql_fetch_row(result));) {
        const unsigned long *lengths = mysql_fetch_lengths(result);
        struct sql_value columns[SQL_COLUMNS_MAX];
        for (unsigned i = 0; i < n; i++)
            columns[i] = value_of(&fields[i], row[i], lengths[i]);
        if (!call->row(call->user, columns, n))
            break;
    }
    return OK;
}

/* Rows that an UPDATE found, also those that were so already: to be counted as changed they need
 * not differ, as in the other databases. A renewal within the same millisecond is no lost claim.
 * CLIENT_FOUND_ROWS would do the same, but for the handler's statements too, which expect the
 * library's default; and an INSERT … ON DUPLICATE KEY UPDATE could not be told from one that found
 * its row. So it is read from "Rows matched: 1  Changed: 0  Warnings: 0", in whatever language. */
static bool matched(MYSQL *mysql, const char *text, uint64_t *out)
{
    const char *info = strncasecmp(text, "UPDATE ", 7) == 0 ? mysql_info(mysql) : NULL;
    if (!info)
        return false;
    info += strcspn(info, "0123456789");
    int64_t n;
    if (!bytes_to_i64(bytes_of(info, strspn(info, "0123456789")), &n))
        return false;
    *out = (uint64_t)n;
    return true;
}

static enum err read_answer(struct sql_conn *conn, struct sql_call *call, struct fault *why)
{
    if (mysql_read_query_result(conn->mysql))
        return mariadb_error(conn, why);
    if (mysql_field_count(conn->mysql) == 0) {
        uint64_t rows = (uint64_t)mysql_affected_rows(conn->mysql);
        if (call && !matched(conn->mysql, call->text, &call->changed))
            call->changed = rows;
        if (call)
            call->told = (int64_t)mysql_insert_id(conn->mysql);
        return OK;
    }
    MYSQL_RES *result = mysql_store_result(conn->mysql);
    if (!result)
        return mariadb_error(conn, why);
    enum err err = OK;
    if (call) {
        call->changed = 0;
        if (call->row)
            err = hand_rows(result, call, why);
    }
    mysql_free_result(result);
    return err;
}

/* ---- running ---- */

#define SETS_MAX 8 /* under way */

/* What stands around the calls: the beginning of a transaction, or, outside of one, a COMMIT. */
struct trip {
    struct sql_conn *conn;
    struct sql_call *calls;
    size_t sent, read; /* of the calls */
    struct {
        size_t first, n; /* calls that have one answer */
    } sets[SETS_MAX];
    size_t n_sets, sets_read;
    size_t before;     /* answers that come before theirs */
    size_t ahead;      /* bytes under way */
    enum err err;      /* the first that failed, */
    size_t failed;     /* its place, */
    struct fault *why; /* and its words */
};

static enum err send_text(struct sql_conn *conn, const char *text, size_t len, struct fault *why)
{
    return mysql_send_query(conn->mysql, text, (unsigned long)len) ? mariadb_error(conn, why) : OK;
}

/* The next answer, which is that of one call or of several that are counted together; after a
 * failure it counts for nothing. */
static void read_next(struct trip *t)
{
    bool is_set = t->sets_read < t->n_sets && t->sets[t->sets_read].first == t->read;
    size_t n = is_set ? t->sets[t->sets_read++].n : 1;
    struct sql_call *calls = &t->calls[t->read];
    struct sql_call all = {.text = calls[0].text}, ignored = {.text = ""};
    struct sql_call *into = t->err ? &ignored : is_set ? &all : calls;
    enum err err = read_answer(t->conn, into, t->err ? NULL : t->why);
    for (size_t i = 0; is_set && i < n; i++) {
        calls[i].changed = !err && all.changed == n;
        calls[i].told = all.told;
    }
    if (err && !t->err) {
        t->err = err;
        t->failed = t->read;
    }
    t->read += n;
}

/* Reads the answers to all that was sent. */
static void read_sent(struct trip *t)
{
    struct sql_conn *conn = t->conn;
    for (; t->before > 0 && !conn->dead; t->before--) {
        enum err err = read_answer(conn, NULL, t->err ? NULL : t->why);
        if (!t->err)
            t->err = err;
    }
    while (t->read < t->sent && !conn->dead)
        read_next(t);
    if (conn->dead)
        t->err = ERR_IO;
    t->n_sets = t->sets_read = 0;
    t->ahead = 0;
}

static void send_first(struct trip *t, const char *text)
{
    if (!t->err)
        t->err = send_text(t->conn, text, strlen(text), t->why);
    t->before += !t->err;
}

/* What was sent before may have failed before: then that counts. */
static void stop_sending(struct trip *t, enum err err, const struct fault *words)
{
    read_sent(t);
    if (t->err)
        return;
    t->err = err;
    t->failed = t->sent;
    if (t->why)
        *t->why = *words;
}

/* Before so much is sent: not more may be under way than what both sides can keep. */
static bool has_room(struct trip *t, size_t size)
{
    if (t->n_sets == SETS_MAX || (t->ahead > 0 && t->ahead + size > AHEAD_BYTES))
        read_sent(t);
    return !t->err;
}

static void send_next(struct trip *t)
{
    struct sql_conn *conn = t->conn;
    struct sql_call *call = &t->calls[t->sent];
    MYSQL_STMT *prepared = mariadb_prepared(conn, call);
    struct fault words = {0};
    enum err err = prepared ? OK : mariadb_write(&conn->text, call, 1, &words);
    size_t size = prepared ? mariadb_prepared_size(call) : conn->text.len;
    if (!err && !has_room(t, size))
        return;
    if (!err)
        err = prepared ? mariadb_send_prepared(conn, prepared, call, &words)
                       : send_text(conn, (const char *)conn->text.at, conn->text.len, &words);
    if (err) {
        stop_sending(t, err, &words);
        return;
    }
    t->ahead += size + 1;
    t->sent++;
}

/* Several that are counted together: one statement, one answer. */
static void send_set(struct trip *t, size_t n)
{
    struct sql_conn *conn = t->conn;
    struct sql_call *calls = &t->calls[t->sent];
    struct fault words = {0};
    MYSQL_STMT *prepared = calls->many ? mariadb_prepared_set(conn, calls, n) : NULL;
    bool text = calls->many && !prepared;
    enum err err = text ? mariadb_write(&conn->text, calls, n, &words) : OK;
    size_t size = text ? conn->text.len : n * mariadb_prepared_size(calls);
    if (!err && !has_room(t, size))
        return;
    if (!err)
        err = text       ? send_text(conn, (const char *)conn->text.at, conn->text.len, &words)
              : prepared ? mariadb_send_set(conn, prepared, calls, n, &words)
                         : mariadb_send_bulk(conn, calls, n, &words);
    if (err) {
        stop_sending(t, err, &words);
        return;
    }
    t->sets[t->n_sets].first = t->sent;
    t->sets[t->n_sets++].n = n;
    t->ahead += size + 1;
    t->sent += n;
}

/* Many of one text in one packet, where each one's count is wanted. There is one for all of them:
 * as long as each has changed one row, which is what is expected, it tells enough. Else they are
 * taken back and sent one by one. */
static void send_together(struct trip *t, size_t count)
{
    struct sql_conn *conn = t->conn;
    size_t first = t->sent;
    struct sql_call all = {.text = ""};
    read_sent(t);
    if (t->err)
        return;
    t->failed = first;
    t->err = send_text(conn, "SAVEPOINT once_bulk", 19, t->why);
    if (!t->err)
        t->err = mariadb_send_bulk(conn, &t->calls[first], count, t->why);
    if (t->err)
        return;
    t->err = read_answer(conn, NULL, t->why);
    enum err err = conn->dead ? ERR_IO : read_answer(conn, &all, t->err ? NULL : t->why);
    if (t->err || err == ERR_IO || err == ERR_BUSY) {
        t->err = t->err ? t->err : err;
        return;
    }
    if (!err && all.changed == count) {
        for (size_t i = first; i < first + count; i++)
            t->calls[i].changed = 1;
        t->sent = t->read = first + count;
        return;
    }
    t->err = mariadb_tell(conn, "ROLLBACK TO SAVEPOINT once_bulk", t->why);
    while (t->sent < first + count && !t->err)
        send_next(t);
}

enum err mariadb_tell(struct sql_conn *conn, const char *text, struct fault *why)
{
    if (conn->dead)
        return fault_set(why, ERR_IO, "MariaDB: the connection is gone");
    enum err err = send_text(conn, text, strlen(text), why);
    return err ? err : read_answer(conn, NULL, why);
}

enum err mariadb_tell_again(struct sql_conn *conn, const char *text, struct fault *why)
{
    struct sql_call call = {.text = text};
    bool idle = !conn->dead && conn->mysql->status == MYSQL_STATUS_READY;
    if (idle) /* else a handler has left rows unread, over which preparing would pass */
        mariadb_prepare(conn, &call);
    MYSQL_STMT *prepared = mariadb_prepared(conn, &call);
    if (!idle || !prepared)
        return mariadb_tell(conn, text, why);
    enum err err = mariadb_send_prepared(conn, prepared, &call, why);
    return err ? err : read_answer(conn, &call, why);
}

/* Outside of a transaction: all of them or none. One alone needs no second trip, since a COMMIT
 * after it failed commits nothing. */
static void finish_alone(struct trip *t, size_t n)
{
    struct sql_conn *conn = t->conn;
    enum err err = ERR_CLOSED; /* the end was not sent */
    conn->ready = false;
    if (!t->err && n == 1)
        err = send_text(conn, "COMMIT", 6, t->why);
    read_sent(t);
    if (conn->dead)
        return;
    err = err ? mariadb_tell(conn, t->err ? "ROLLBACK" : "COMMIT", t->err ? NULL : t->why)
              : read_answer(conn, NULL, t->err ? NULL : t->why);
    t->err = t->err ? t->err : err;
}

/* While nothing is under way. */
static void prepare_all(struct sql_conn *conn, const struct sql_call *calls, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mariadb_prepare(conn, &calls[i]);
    for (size_t i = 0, together; i < n; i += together) {
        together = mariadb_together(conn, &calls[i], n - i);
        if (together > 1 && calls[i].counted_together && calls[i].many)
            mariadb_prepare_set(conn, &calls[i], together);
    }
}

enum err mariadb_run(struct sql_conn *conn, struct sql_call *calls, size_t n, size_t *place,
                     struct fault *why)
{
    *place = 0;
    if (n == 0)
        return OK;
    if (conn->dead)
        return fault_set(why, ERR_IO, "MariaDB: the connection is gone");
    if (conn->spoiled)
        return fault_set(why, ERR_INVALID, "MariaDB: a statement of this transaction has failed");

    prepare_all(conn, calls, n);
    struct trip t = {.conn = conn, .calls = calls, .why = why};
    if (conn->begin_due && conn->savepoints && !conn->ready) /* else a statement begins it */
        send_first(&t, "SAVEPOINT once");
    conn->begin_due = false;
    while (t.sent < n && !t.err) {
        const struct sql_call *next = &calls[t.sent];
        size_t together = mariadb_together(conn, next, n - t.sent);
        if (together > 1 && next->counted_together)
            send_set(&t, together);
        else if (together > 1)
            send_together(&t, together);
        else
            send_next(&t);
    }
    if (conn->transaction) {
        read_sent(&t);
        conn->spoiled = t.err != OK;
        if (calls[n - 1].commits && !t.err) {
            conn->transaction = false;
            conn->ready = false;
        }
    } else
        finish_alone(&t, n);
    *place = t.failed;
    return t.err;
}
