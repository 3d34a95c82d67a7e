/* mariadb_prepared.c - prepared statements on MariaDB and MySQL, which are sent and not waited for:
 * one by one, or many of one text in one packet where the server can (MariaDB's bulk operations).
 */
#include "once/mariadb_int.h"

#include <assert.h>

#define BULK_MIN   4
#define BULK_MAX   64
#define BULK_BYTES (1 << 20)
#define SET_STEP   8 /* the length of lists in sets that are prepared: 8, 16, … */
#define BINDS_MAX  (SQL_PARAMS_MAX + 2 * BULK_MAX)

/* Statements whose answer is a count and never a row. */
static bool writes(const char *text)
{
    return strncmp(text, "INSERT ", 7) == 0 || strncmp(text, "UPDATE ", 7) == 0 ||
           strncmp(text, "DELETE ", 7) == 0 || strncmp(text, "BEGIN NOT ATOMIC ", 17) == 0;
}

static MYSQL_STMT *remembered(const struct sql_conn *conn, const char *text, size_t length)
{
    for (size_t i = 0; i < conn->n_statements; i++)
        if (conn->statements[i].text == text && conn->statements[i].length == length)
            return conn->statements[i].prepared;
    return NULL;
}

static size_t length_of(size_t n)
{
    return (n + SET_STEP - 1) / SET_STEP * SET_STEP;
}

MYSQL_STMT *mariadb_prepared(const struct sql_conn *conn, const struct sql_call *call)
{
    return call->once ? NULL : remembered(conn, call->text, 0);
}

MYSQL_STMT *mariadb_prepared_set(const struct sql_conn *conn, const struct sql_call *calls,
                                 size_t n)
{
    return remembered(conn, calls->many, length_of(n));
}

static void prepare(struct sql_conn *conn, const char *name, size_t length, struct bytes text)
{
    MYSQL_STMT *prepared = mysql_stmt_init(conn->mysql);
    if (!prepared)
        return;
    if (mysql_stmt_prepare(prepared, (const char *)text.at, (unsigned long)text.len)) {
        (void)mysql_stmt_close(prepared);
        return;
    }
    conn->statements[conn->n_statements++] = (struct mariadb_statement){name, length, prepared};
}

/* While nothing is under way. What is foreign may give rows all the same (RETURNING). One that
 * cannot be prepared is sent as text, and what is wrong with it is told in its place. */
void mariadb_prepare(struct sql_conn *conn, const struct sql_call *call)
{
    if (call->once || call->foreign || !writes(call->text) || mariadb_prepared(conn, call) ||
        conn->n_statements == MARIADB_STATEMENTS_MAX)
        return;
    prepare(conn, call->text, 0, bytes_str(call->text));
}

/* Reading 16 ids as text is a quarter of what such an UPDATE costs the server. */
void mariadb_prepare_set(struct sql_conn *conn, const struct sql_call *calls, size_t n)
{
    size_t length = length_of(n);
    if (conn->n_statements == MARIADB_STATEMENTS_MAX || remembered(conn, calls->many, length))
        return;
    if (!mariadb_write_set(&conn->text, calls->many, length))
        prepare(conn, calls->many, length, bytes_of(conn->text.at, conn->text.len));
}

void mariadb_forget(struct sql_conn *conn)
{
    while (conn->n_statements > 0)
        (void)mysql_stmt_close(conn->statements[--conn->n_statements].prepared);
}

size_t mariadb_prepared_size(const struct sql_call *call)
{
    size_t size = call->n_params * 12 + 16;
    for (size_t i = 0; i < call->n_params; i++)
        size += call->params[i].bytes.len;
    return size;
}

static const enum enum_field_types types[] = {[SQL_NULL] = MYSQL_TYPE_NULL,
                                              [SQL_INT] = MYSQL_TYPE_LONGLONG,
                                              [SQL_TEXT] = MYSQL_TYPE_STRING,
                                              [SQL_BLOB] = MYSQL_TYPE_BLOB};

static enum err send_bound(struct sql_conn *conn, MYSQL_STMT *prepared, MYSQL_BIND *binds,
                           struct fault *why)
{
    my_bool leave = 1, read = 0;
    (void)mysql_optionsv(conn->mysql, MARIADB_OPT_SKIP_READ_RESPONSE, &leave);
    bool bad = (mysql_stmt_param_count(prepared) && mysql_stmt_bind_param(prepared, binds)) ||
               mysql_stmt_execute(prepared);
    (void)mysql_optionsv(conn->mysql, MARIADB_OPT_SKIP_READ_RESPONSE, &read);
    if (bad)
        return mariadb_failed(conn, mysql_stmt_errno(prepared), mysql_stmt_error(prepared), why);
    return OK;
}

static MYSQL_BIND bound(const struct sql_value *v, unsigned long *length)
{
    bool number = v->type == SQL_INT;
    *length = number ? sizeof v->number : (unsigned long)v->bytes.len;
    return (MYSQL_BIND){
        .buffer_type = types[v->type],
        .buffer = number ? (void *)&v->number : (void *)v->bytes.at,
        .buffer_length = *length,
        .length = length,
    };
}

/* Sends it; its answer, a count, is read as that of any other. */
enum err mariadb_send_prepared(struct sql_conn *conn, MYSQL_STMT *prepared, struct sql_call *call,
                               struct fault *why)
{
    MYSQL_BIND binds[SQL_PARAMS_MAX];
    unsigned long lengths[SQL_PARAMS_MAX];
    if (mysql_stmt_param_count(prepared) != call->n_params)
        return mariadb_does_not_fit(call, why);
    for (size_t i = 0; i < call->n_params; i++)
        binds[i] = bound(&call->params[i], &lengths[i]);
    return send_bound(conn, prepared, binds, why);
}

/* ---- many at once ---- */

static bool alike(const struct sql_call *a, const struct sql_call *b)
{
    bool same = a->text == b->text && !b->once && a->n_params == b->n_params &&
                a->counted_together == b->counted_together;
    for (size_t i = 0; same && i < a->n_params; i++)
        same = a->params[i].type == b->params[i].type && a->params[i].type != SQL_NULL;
    return same;
}

static bool takes_bulk(const struct sql_conn *conn, const struct sql_call *call)
{
    MYSQL_STMT *prepared = mariadb_prepared(conn, call);
    return conn->bulk && conn->transaction && prepared && strncmp(call->text, "DELETE ", 7) != 0 &&
           call->n_params > 0 && mysql_stmt_param_count(prepared) == call->n_params;
}

size_t mariadb_together(const struct sql_conn *conn, const struct sql_call *calls, size_t n)
{
    const char *many = calls[0].many;
    if (!many && !takes_bulk(conn, &calls[0]))
        return 1;
    size_t count = 0, size = 0;
    while (count < n && count < BULK_MAX && alike(&calls[0], &calls[count]) &&
           (!many || mariadb_set_takes(&calls[0], &calls[count]))) {
        size += mariadb_prepared_size(&calls[count]);
        if (size > BULK_BYTES)
            break;
        count++;
    }
    return count < BULK_MIN ? 1 : count;
}

enum err mariadb_send_bulk(struct sql_conn *conn, const struct sql_call *calls, size_t n,
                           struct fault *why)
{
    /* A column of numbers is an array of them, one of bytes an array of pointers. */
    union {
        int64_t number;
        const void *at;
    } cells[SQL_PARAMS_MAX][BULK_MAX];
    unsigned long lengths[SQL_PARAMS_MAX][BULK_MAX];
    MYSQL_BIND binds[SQL_PARAMS_MAX] = {{0}};
    static_assert(sizeof cells[0][0] == sizeof(int64_t), "an array of numbers");
    invariant(n <= BULK_MAX);
    for (size_t p = 0; p < calls[0].n_params; p++) {
        bool number = calls[0].params[p].type == SQL_INT;
        for (size_t i = 0; i < n; i++) {
            struct bytes b = calls[i].params[p].bytes;
            lengths[p][i] = number ? sizeof(int64_t) : (unsigned long)b.len;
            if (number)
                cells[p][i].number = calls[i].params[p].number;
            else
                cells[p][i].at = b.len ? (const void *)b.at : "";
        }
        binds[p].buffer_type = types[calls[0].params[p].type];
        binds[p].buffer = cells[p];
        binds[p].length = lengths[p];
    }
    MYSQL_STMT *prepared = mariadb_prepared(conn, &calls[0]);
    unsigned rows = (unsigned)n, none = 0;
    (void)mysql_stmt_attr_set(prepared, STMT_ATTR_ARRAY_SIZE, &rows);
    enum err err = send_bound(conn, prepared, binds, why);
    (void)mysql_stmt_attr_set(prepared, STMT_ATTR_ARRAY_SIZE, &none);
    return err;
}

enum err mariadb_send_set(struct sql_conn *conn, MYSQL_STMT *prepared, const struct sql_call *calls,
                          size_t n, struct fault *why)
{
    MYSQL_BIND binds[BINDS_MAX];
    unsigned long lengths[BINDS_MAX];
    size_t used = 0, wanted = mysql_stmt_param_count(prepared);
    for (size_t p = 0; p < calls->n_params; p++) {
        size_t length = mariadb_is_list(calls->many, p) ? length_of(n) : 1;
        for (size_t i = 0; i < length && used < BINDS_MAX; i++, used++)
            binds[used] = bound(&calls[i < n ? i : n - 1].params[p], &lengths[used]);
    }
    if (used != wanted)
        return mariadb_does_not_fit(calls, why);
    return send_bound(conn, prepared, binds, why);
}
