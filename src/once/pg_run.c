/* pg_run.c - statements on PostgreSQL: prepared once, sent in a pipeline, answers read in order. */
#include "once/pg_int.h"
#include "once/sql_scan.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int64_t pg_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool pg_wait(PGconn *pg, short events, int64_t deadline_ms)
{
    for (;;) {
        int64_t left = deadline_ms - pg_clock_ms();
        if (left <= 0)
            return false;
        struct pollfd at = {.fd = PQsocket(pg), .events = events};
        if (poll(&at, 1, left < 60000 ? (int)left : 60000) > 0)
            return true;
    }
}

/* ---- errors ---- */

static bool in_class(const char *sqlstate, const char *class)
{
    return strncmp(sqlstate, class, strlen(class)) == 0;
}

enum err pg_error(const char *sqlstate)
{
    static const struct {
        const char *start;
        enum err err;
    } table[] = {
        {"40001", ERR_BUSY},      {"40P01", ERR_BUSY},      {"55P03", ERR_BUSY},
        {"57014", ERR_BUSY}, /* cancelled, by an operator or by statement_timeout */
        {"23505", ERR_EXISTS},    {"42P07", ERR_EXISTS},    {"42710", ERR_EXISTS},
        {"42P01", ERR_NOT_FOUND}, {"3D000", ERR_NOT_FOUND}, {"3F000", ERR_NOT_FOUND},
        {"53100", ERR_DISK_FULL}, {"25006", ERR_READ_ONLY}, {"53200", ERR_NO_MEMORY},
        {"42501", ERR_DENIED},    {"28", ERR_DENIED},       {"53300", ERR_IO},
        {"08", ERR_IO},           {"57P", ERR_IO}, /* the server stops, or is not up yet */
        {"25P03", ERR_IO}, /* the server closed us for being idle in a transaction */
    };
    if (!sqlstate)
        return ERR_IO;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (in_class(sqlstate, table[i].start))
            return table[i].err;
    return ERR_INVALID;
}

/* libpq ends its sentences with a new line. */
static int sentence(const char *text)
{
    return (int)strcspn(text, "\n");
}

static enum err lost(struct sql_conn *conn, const char *words, struct fault *why)
{
    conn->dead = true;
    return fault_set(why, ERR_IO, "PostgreSQL: %.*s", sentence(words), words);
}

static enum err refused(struct sql_conn *conn, const PGresult *result, struct fault *why)
{
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    enum err err = PQstatus(conn->pg) == CONNECTION_BAD ? ERR_IO : pg_error(code);
    if (err == ERR_IO)
        return lost(conn, words ? words : PQerrorMessage(conn->pg), why);
    return fault_set(why, err, "PostgreSQL: %.*s (%s)", sentence(words ? words : ""),
                     words ? words : "", code ? code : "");
}

/* ---- sending ---- */

/* `?` becomes $1, $2 …, where it is code. malloc'ed; NULL: no memory, or not n of them. */
static char *with_numbers(const char *text, size_t n)
{
    size_t size = strlen(text) + n * 2 + 1, count = 0;
    char *out = malloc(size);
    if (!out)
        return NULL;
    struct wr w = wr_over(out, size);
    for (size_t at = 0, skip; text[at] && !w.full; at += skip ? skip : 1) {
        skip = sql_scan(SQL_POSTGRESQL, text, at);
        if (skip == SIZE_MAX) /* not closed: the server says so */
            skip = strlen(text + at);
        if (skip) {
            wr_bytes_of(&w, bytes_of(text + at, skip));
        } else if (text[at] == '?') {
            wr_u8(&w, '$');
            wr_i64(&w, (int64_t)++count);
        } else
            wr_u8(&w, (uint8_t)text[at]);
    }
    wr_u8(&w, 0);
    if (w.full || count != n) {
        free(out);
        return NULL;
    }
    return out;
}

/* The parameters of one call as libpq wants them. */
struct sent {
    Oid types[SQL_PARAMS_MAX];
    const char *values[SQL_PARAMS_MAX];
    int lengths[SQL_PARAMS_MAX], formats[SQL_PARAMS_MAX];
    char numbers[SQL_PARAMS_MAX][24];
    char *texts; /* those that need a NUL behind them */
};

static void sent_clear(struct sent *s)
{
    free(s->texts);
}

static enum err sent_texts(struct sent *s, const struct sql_call *call, struct fault *why)
{
    size_t size = 0;
    for (size_t i = 0; i < call->n_params; i++)
        size += call->params[i].type == SQL_TEXT ? call->params[i].bytes.len + 1 : 0;
    if (size == 0)
        return OK;
    char *at = s->texts = malloc(size);
    if (!at)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < call->n_params; i++) {
        struct bytes b = call->params[i].bytes;
        if (call->params[i].type != SQL_TEXT)
            continue;
        if (b.len && memchr(b.at, 0, b.len))
            return fault_set(why, ERR_INVALID, "PostgreSQL: a text has a zero byte in it");
        if (b.len)
            memcpy(at, b.at, b.len);
        at[b.len] = 0;
        s->values[i] = at;
        at += b.len + 1;
    }
    return OK;
}

/* Numbers and bytes are sent as they are. A text is sent as text of a type that the server finds
 * out itself, so that it can be held against any column of a user's table; so is a number of a
 * statement that is an application's own. The types of a set's arrays stand in its text. */
static enum err sent_make(struct sent *s, const struct sql_call *call, struct fault *why)
{
    for (size_t i = 0; i < call->n_params; i++) {
        const struct sql_value *v = &call->params[i];
        if (v->type == SQL_INT && call->foreign) {
            (void)snprintf(s->numbers[i], sizeof s->numbers[i], "%lld", (long long)v->number);
            s->values[i] = s->numbers[i];
        } else if (v->type == SQL_INT) {
            store_u64((uint8_t *)s->numbers[i], (uint64_t)v->number);
            s->types[i] = OID_INT8;
            s->values[i] = s->numbers[i];
            s->lengths[i] = 8;
            s->formats[i] = 1;
        } else if (v->type == SQL_BLOB) {
            if (v->bytes.len > INT32_MAX)
                return ERR_TOO_BIG;
            s->types[i] = call->text == call->many ? 0 : OID_BYTEA;
            s->values[i] = v->bytes.len ? (const char *)v->bytes.at : "";
            s->lengths[i] = (int)v->bytes.len;
            s->formats[i] = 1;
        }
    }
    return sent_texts(s, call, why);
}

static struct pg_statement *statement_of(struct sql_conn *conn, const struct sql_call *call)
{
    for (size_t i = 0; i < conn->n_statements; i++) {
        struct pg_statement *s = &conn->statements[i];
        bool same = s->text == call->text && s->n_params == call->n_params;
        for (size_t p = 0; same && p < s->n_params; p++)
            same = s->types[p] == call->params[p].type;
        if (same)
            return s;
    }
    return NULL;
}

static void statement_name(const struct sql_conn *conn, const struct pg_statement *s, char out[24])
{
    snprintf(out, 24, "once_%zu", (size_t)(s - conn->statements));
}

/* Sends the Parse of a statement that is not known yet. */
static enum err send_prepare(struct sql_conn *conn, const struct sql_call *call, size_t place,
                             const struct sent *sent, struct pg_statement **out, struct fault *why)
{
    struct pg_statement *s = &conn->statements[conn->n_statements];
    *s = (struct pg_statement){.text = call->text, .n_params = call->n_params, .asked_by = place};
    for (size_t i = 0; i < call->n_params; i++)
        s->types[i] = (uint8_t)call->params[i].type;

    cleanup(free_at) char *text = with_numbers(call->text, call->n_params);
    if (!text)
        return fault_set(why, ERR_INVALID, "PostgreSQL: %zu values do not fit: %.100s",
                         call->n_params, call->text);
    char name[24];
    statement_name(conn, s, name);
    if (!PQsendPrepare(conn->pg, name, text, (int)call->n_params, sent->types))
        return lost(conn, PQerrorMessage(conn->pg), why);
    conn->n_statements++;
    *out = s;
    return OK;
}

static enum err send_whole(struct sql_conn *conn, const struct sql_call *call,
                           const struct sent *sent, struct fault *why)
{
    cleanup(free_at) char *text = with_numbers(call->text, call->n_params);
    if (!text)
        return fault_set(why, ERR_INVALID, "PostgreSQL: %zu values do not fit: %.100s",
                         call->n_params, call->text);
    /* Columns of a user's table come as text: that is a form which every type has. */
    if (!PQsendQueryParams(conn->pg, text, (int)call->n_params, sent->types, sent->values,
                           sent->lengths, sent->formats, call->once ? 0 : 1))
        return lost(conn, PQerrorMessage(conn->pg), why);
    return OK;
}

static enum err send_call(struct sql_conn *conn, const struct sql_call *call, size_t place,
                          struct fault *why)
{
    cleanup(sent_clear) struct sent sent = {0};
    if (call->n_params > SQL_PARAMS_MAX)
        return ERR_TOO_BIG;
    enum err err = sent_make(&sent, call, why);
    if (err)
        return err;

    struct pg_statement *s = call->once ? NULL : statement_of(conn, call);
    if (!s && !call->once && conn->n_statements < PG_STATEMENTS_MAX)
        err = send_prepare(conn, call, place, &sent, &s, why);
    if (err)
        return err;
    if (!s)
        return send_whole(conn, call, &sent, why);
    char name[24];
    statement_name(conn, s, name);
    if (!PQsendQueryPrepared(conn->pg, name, (int)call->n_params, sent.values, sent.lengths,
                             sent.formats, 1))
        return lost(conn, PQerrorMessage(conn->pg), why);
    return OK;
}

/* ---- reading ---- */

/* The next result; NULL also when the connection is lost, which `dead` says. */
static PGresult *next_result(struct sql_conn *conn, struct fault *why)
{
    int64_t deadline_ms = pg_clock_ms() + conn->silence_ms;
    while (!conn->dead && PQisBusy(conn->pg)) {
        int unsent = PQflush(conn->pg);
        if (unsent < 0 || !pg_wait(conn->pg, POLLIN | (unsent ? POLLOUT : 0), deadline_ms)) {
            (void)lost(conn, unsent < 0 ? PQerrorMessage(conn->pg) : "it does not answer", why);
            return NULL;
        }
        if (!PQconsumeInput(conn->pg))
            (void)lost(conn, PQerrorMessage(conn->pg), why);
    }
    return PQgetResult(conn->pg);
}

/* A column in its binary form. */
static bool binary_value(const PGresult *r, int row, int column, struct sql_value *out)
{
    const uint8_t *at = (const uint8_t *)PQgetvalue(r, row, column);
    size_t len = (size_t)PQgetlength(r, row, column);
    *out = (struct sql_value){.type = SQL_INT};
    switch (PQftype(r, column)) {
    case OID_BOOL:
        out->number = len == 1 && at[0];
        return len == 1;
    case OID_INT2:
        out->number = len == 2 ? (int16_t)load_u16(at) : 0;
        return len == 2;
    case OID_INT4:
        out->number = len == 4 ? (int32_t)load_u32(at) : 0;
        return len == 4;
    case OID_INT8:
        out->number = len == 8 ? (int64_t)load_u64(at) : 0;
        return len == 8;
    case OID_BYTEA:
        *out = (struct sql_value){.type = SQL_BLOB, .bytes = {at, len}};
        return true;
    default:
        *out = (struct sql_value){.type = SQL_TEXT, .bytes = {at, len}};
        return true;
    }
}

/* A column in its text form. What had to be decoded is `made`, to be freed by PQfreemem. */
static bool text_value(const PGresult *r, int row, int column, struct sql_value *out, void **made)
{
    const char *text = PQgetvalue(r, row, column);
    struct bytes b = bytes_of(text, (size_t)PQgetlength(r, row, column));
    *out = (struct sql_value){.type = SQL_TEXT, .bytes = b};
    switch (PQftype(r, column)) {
    case OID_INT2:
    case OID_INT4:
    case OID_INT8:
    case OID_NUMERIC: /* sums are such */
        if (bytes_to_i64(b, &out->number))
            out->type = SQL_INT;
        return true;
    case OID_BYTEA:
        out->type = SQL_BLOB;
        *made = PQunescapeBytea((const unsigned char *)text, &out->bytes.len);
        out->bytes.at = *made;
        return *made != NULL;
    default:
        return true;
    }
}

/* One row; `more`: whether the caller wants another. */
static enum err hand_row(const PGresult *r, int row, const struct sql_call *call, bool *more,
                         struct fault *why)
{
    struct sql_value columns[SQL_COLUMNS_MAX];
    void *made[SQL_COLUMNS_MAX] = {NULL};
    int n = PQnfields(r);
    enum err err = OK;
    for (int i = 0; i < n && !err; i++) {
        columns[i] = (struct sql_value){.type = SQL_NULL};
        if (PQgetisnull(r, row, i))
            continue;
        bool good = PQfformat(r, i) == 1 ? binary_value(r, row, i, &columns[i])
                                         : text_value(r, row, i, &columns[i], &made[i]);
        if (!good)
            err =
                fault_set(why, ERR_INVALID, "PostgreSQL: column %s cannot be read", PQfname(r, i));
    }
    *more = !err && call->row(call->user, columns, (size_t)n);
    for (int i = 0; i < n; i++)
        PQfreemem(made[i]);
    return err;
}

static enum err hand_rows(const PGresult *r, const struct sql_call *call, struct fault *why)
{
    if (PQnfields(r) > SQL_COLUMNS_MAX)
        return fault_set(why, ERR_INVALID, "PostgreSQL: %d columns are too many", PQnfields(r));
    enum err err = OK;
    bool more = true;
    for (int row = 0; row < PQntuples(r) && more; row++)
        err = hand_row(r, row, call, &more, why);
    return err;
}

static uint64_t changed_by(PGresult *r)
{
    int64_t n = 0;
    if (strncmp(PQcmdStatus(r), "SELECT", 6) == 0 || !bytes_to_i64(bytes_str(PQcmdTuples(r)), &n))
        return 0;
    return n > 0 ? (uint64_t)n : 0;
}

/* One answer of the pipeline: a result and the NULL that ends it. */
static enum err read_answer(struct sql_conn *conn, struct sql_call *call, struct fault *why)
{
    PGresult *r = next_result(conn, why);
    if (!r)
        return conn->dead ? ERR_IO : lost(conn, "an answer is missing", why);
    enum err err = OK;
    switch (PQresultStatus(r)) {
    case PGRES_TUPLES_OK:
        if (call && call->row)
            err = hand_rows(r, call, why);
        /* fall through */
    case PGRES_COMMAND_OK:
    case PGRES_EMPTY_QUERY:
        if (call)
            call->changed = changed_by(r);
        break;
    case PGRES_PIPELINE_ABORTED:
        err = ERR_CLOSED; /* another before it failed */
        break;
    default:
        err = refused(conn, r, why);
        break;
    }
    PQclear(r);
    if (!conn->dead)
        PQclear(next_result(conn, why));
    return conn->dead ? ERR_IO : err;
}

/* Reads up to the end of the pipeline, so that the connection is in step again. */
static void read_end(struct sql_conn *conn)
{
    bool end = false;
    while (!end && !conn->dead) {
        PGresult *r = next_result(conn, NULL);
        end = r && PQresultStatus(r) == PGRES_PIPELINE_SYNC;
        if (!r && PQstatus(conn->pg) == CONNECTION_BAD)
            conn->dead = true;
        PQclear(r);
    }
    if (!conn->dead && !PQexitPipelineMode(conn->pg))
        conn->dead = true;
}

/* The first of the calls, and those that go with it: `*size`. */
static enum err send_next(struct sql_conn *conn, struct sql_call *calls, size_t n, size_t place,
                          size_t *size, struct fault *why)
{
    *size = pg_set_size(conn, calls, n);
    if (*size == 1)
        return send_call(conn, calls, place, why);
    cleanup(pg_set_clear) struct pg_set set;
    pg_set_over(&set, calls, *size);
    enum err err = pg_set_fill(&set);
    return err ? err : send_call(conn, &set.call, place, why);
}

static enum err send_all(struct sql_conn *conn, struct sql_call *calls, size_t n, size_t *sent,
                         struct fault *why)
{
    static const struct sql_call begin = {.text = "BEGIN"};
    enum err err = conn->begin_due ? send_call(conn, &begin, SIZE_MAX, why) : OK;
    while (!err && *sent < n) {
        size_t size;
        err = send_next(conn, &calls[*sent], n - *sent, *sent, &size, why);
        *sent += err ? 0 : size;
    }
    if (!conn->dead && !PQpipelineSync(conn->pg))
        return lost(conn, PQerrorMessage(conn->pg), why);
    return err;
}

/* The answer to a Parse, if this call sent one, then that to the call. */
static enum err read_call(struct sql_conn *conn, struct sql_call *call, size_t place,
                          struct fault *why)
{
    struct pg_statement *s = call->once ? NULL : statement_of(conn, call);
    if (s && !s->ready && s->asked_by == place) {
        enum err err = read_answer(conn, NULL, why);
        s->ready = !err;
        if (err)
            return err;
    }
    return read_answer(conn, call, why);
}

/* A statement whose Parse was refused or skipped is forgotten, and with it those that came after
 * it: none of them was reached. */
static void forget_unready(struct sql_conn *conn)
{
    while (conn->n_statements > 0 && !conn->statements[conn->n_statements - 1].ready)
        conn->n_statements--;
}

static enum err read_next(struct sql_conn *conn, struct sql_call *calls, size_t n, size_t place,
                          size_t *size, struct fault *why)
{
    *size = pg_set_size(conn, calls, n);
    if (*size == 1)
        return read_call(conn, calls, place, why);
    struct pg_set set;
    pg_set_over(&set, calls, *size);
    return read_call(conn, &set.call, place, why);
}

static enum err read_all(struct sql_conn *conn, struct sql_call *calls, size_t n, size_t *failed,
                         struct fault *why)
{
    static struct sql_call begin = {.text = "BEGIN"};
    if (conn->begin_due) {
        enum err err = read_call(conn, &begin, SIZE_MAX, why);
        if (err)
            return err;
        conn->begin_due = false;
    }
    for (size_t i = 0, size; i < n; i += size) {
        *failed = i;
        enum err err = read_next(conn, &calls[i], n - i, i, &size, why);
        if (err)
            return err;
    }
    return OK;
}

enum err pg_run(struct sql_conn *conn, struct sql_call *calls, size_t n, size_t *failed,
                struct fault *why)
{
    *failed = 0;
    if (n == 0)
        return OK;
    if (conn->dead)
        return fault_set(why, ERR_IO, "PostgreSQL: the connection is gone");
    if (!PQenterPipelineMode(conn->pg) || PQsetnonblocking(conn->pg, 1) != 0)
        return lost(conn, PQerrorMessage(conn->pg), why); /* a handler has left it in the middle */

    struct fault sending = {0};
    size_t sent = 0;
    enum err unsent = send_all(conn, calls, n, &sent, &sending);
    enum err err = conn->dead ? unsent : read_all(conn, calls, sent, failed, why);
    read_end(conn);
    forget_unready(conn);
    if (!conn->dead && PQsetnonblocking(conn->pg, 0) != 0)
        conn->dead = true;
    if (!err && unsent) {
        *failed = sent;
        err = unsent;
    }
    if (err == unsent && sending.text[0] && why)
        *why = sending;
    return err;
}
