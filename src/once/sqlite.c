/* sqlite.c - the engine of the SQL stores on SQLite 3.
 *
 * One file, opened by any number of processes of one machine. It is in WAL mode with full syncs:
 * readers wait for nobody, there is one writer at a time, and a commit that was answered is on the
 * disk. A writer begins with BEGIN IMMEDIATE, so it never finds out in the middle that another was
 * first.
 *
 * Somebody who removes the file leaves us with one that has no name, in which we could go on
 * happily while others begin a new one: so each transaction asks first whether the file is still
 * what its path says (H-13).
 *
 * What a batch costs is pages: each one that it touches goes into the WAL whole, with a checksum.
 * Ids are hashes, so a table in their order would touch a page for each claim and another for each
 * finish. Rows stand in the order they came in instead, and only the index of ids is touched at
 * random, by claims; a finish finds its row among the last ones, and leaves both indexes alone. A
 * WAL that is copied into the file less often has more of its pages several times, which are copied
 * once, and more neighbours, which the disk takes together; and a cache that holds the index spares
 * reading it again for each batch. What a commit writes goes into the WAL in one piece
 * (sqlite_wal.c).
 */
#include "once/sqlite_int.h"

#include "once.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NAP_SHORT_NS  200000L
#define NAP_DOUBLINGS 5 /* up to 6.4 ms */

/* Up to 64 MiB of WAL; up to 8 of cache, in KiB, for each connection that needs them. */
#define WAL_BYTES (64 << 20)
#define CACHE_KIB "8192"

/* ---- waiting ---- */

static int64_t clock_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* SQLite's own handler soon sleeps for a tenth of a second; commits take some milliseconds. */
static int wait_busy(void *user, int tries)
{
    struct sql_conn *c = user;
    int64_t now_ms = clock_ms();
    if (tries == 0)
        c->busy_since_ms = now_ms;
    if (now_ms - c->busy_since_ms >= c->wait_ms)
        return 0;
    struct timespec nap = {.tv_nsec = NAP_SHORT_NS
                                      << (tries < NAP_DOUBLINGS ? tries : NAP_DOUBLINGS)};
    (void)nanosleep(&nap, NULL);
    return 1;
}

/* ---- statements ---- */

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n;")] == '\0';
}

static enum err prepare(struct sql_conn *c, const char *text, bool keep, sqlite3_stmt **out,
                        struct fault *why)
{
    const char *rest = "";
    sqlite3_stmt *stmt = NULL;
    int rc =
        sqlite3_prepare_v3(c->db, text, -1, keep ? SQLITE_PREPARE_PERSISTENT : 0, &stmt, &rest);
    if (rc != SQLITE_OK)
        return sqlite_fail(c, rc, why);
    if (!stmt || !is_blank(rest)) {
        (void)sqlite3_finalize(stmt);
        return fault_set(why, ERR_INVALID, "sqlite:%s: not one statement: %.200s", c->path, text);
    }
    *out = stmt;
    return OK;
}

/* The prepared form of a text that lives as long as the connection. `*owned`: it is the caller's to
 * finalize. */
static enum err statement(struct sql_conn *c, const char *text, bool once, sqlite3_stmt **out,
                          bool *owned, struct fault *why)
{
    for (size_t i = 0; !once && i < c->n_cached; i++) {
        if (c->cached[i].text == text) {
            *out = c->cached[i].stmt;
            *owned = false;
            return OK;
        }
    }
    *owned = once || c->n_cached == CACHED_MAX;
    enum err err = prepare(c, text, !*owned, out, why);
    if (!err && !*owned)
        c->cached[c->n_cached++] = (struct cached){text, *out};
    return err;
}

static int bind(sqlite3_stmt *stmt, int at, const struct sql_value *value)
{
    const char *bytes = value->bytes.at ? (const char *)value->bytes.at : "";
    switch (value->type) {
    case SQL_INT:
        return sqlite3_bind_int64(stmt, at, value->number);
    case SQL_TEXT:
        return sqlite3_bind_text64(stmt, at, bytes, value->bytes.len, SQLITE_STATIC, SQLITE_UTF8);
    case SQL_BLOB:
        return sqlite3_bind_blob64(stmt, at, bytes, value->bytes.len, SQLITE_STATIC);
    case SQL_NULL:
        break;
    }
    return sqlite3_bind_null(stmt, at);
}

static struct sql_value column(sqlite3_stmt *stmt, int i)
{
    struct sql_value value = {.type = SQL_NULL};
    switch (sqlite3_column_type(stmt, i)) {
    case SQLITE_INTEGER:
        value.type = SQL_INT;
        value.number = sqlite3_column_int64(stmt, i);
        return value;
    case SQLITE_NULL:
        return value;
    case SQLITE_BLOB:
        value.type = SQL_BLOB;
        value.bytes.at = sqlite3_column_blob(stmt, i);
        break;
    default: /* a REAL too: nobody here asks for one */
        value.type = SQL_TEXT;
        value.bytes.at = sqlite3_column_text(stmt, i);
        break;
    }
    value.bytes.len = (size_t)sqlite3_column_bytes(stmt, i);
    return value;
}

static bool give_row(sqlite3_stmt *stmt, const struct sql_call *call)
{
    struct sql_value columns[SQL_COLUMNS_MAX];
    int n = sqlite3_column_count(stmt);
    if (n > SQL_COLUMNS_MAX)
        n = SQL_COLUMNS_MAX;
    for (int i = 0; i < n; i++)
        columns[i] = column(stmt, i);
    return !call->row || call->row(call->user, columns, (size_t)n);
}

static int step_all(struct sql_conn *c, sqlite3_stmt *stmt, struct sql_call *call)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; i < call->n_params && rc == SQLITE_OK; i++)
        rc = bind(stmt, (int)i + 1, &call->params[i]);
    if (rc != SQLITE_OK)
        return rc;
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        if (!give_row(stmt, call)) {
            rc = SQLITE_DONE;
            break;
        }
    }
    if (rc == SQLITE_DONE)
        call->changed = sqlite3_stmt_readonly(stmt) ? 0 : (uint64_t)sqlite3_changes64(c->db);
    return rc;
}

static enum err run_one(struct sql_conn *c, struct sql_call *call, struct fault *why)
{
    sqlite3_stmt *stmt = NULL;
    bool owned = false;
    call->changed = 0;
    enum err err = statement(c, call->text, call->once, &stmt, &owned, why);
    if (err)
        return err;
    int rc = step_all(c, stmt, call);
    if (rc != SQLITE_DONE)
        err = sqlite_fail(c, rc, why);
    (void)sqlite3_reset(stmt);
    (void)sqlite3_clear_bindings(stmt);
    if (owned)
        (void)sqlite3_finalize(stmt);
    return err;
}

static enum err check_place(struct sql_conn *c, struct fault *why)
{
    int moved = 0;
    int rc = sqlite3_file_control(c->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    if (rc == SQLITE_OK && moved)
        return fault_set(why, ERR_STALE,
                         "sqlite:%s: the file was removed or replaced while it was open: what was "
                         "done before is forgotten",
                         c->path);
    return OK;
}

static enum err run(struct sql_conn *c, struct sql_call *calls, size_t n, size_t *failed,
                    struct fault *why)
{
    enum err err = sqlite3_get_autocommit(c->db) ? check_place(c, why) : OK;
    *failed = 0;
    for (size_t i = 0; !err && i < n; i++) {
        *failed = i;
        err = run_one(c, &calls[i], why);
        /* A handler has ended its transaction, whatever it is to do then. */
        c->lent = c->lent || (calls[i].foreign && sqlite3_get_autocommit(c->db));
    }
    return err;
}

static enum err run_text(struct sql_conn *c, const char *text, struct fault *why)
{
    struct sql_call call = {.text = text};
    return run_one(c, &call, why);
}

/* ---- transactions ---- */

/* A SELECT that a handler left in the middle would hold the connection to what the file was then:
 * nothing could ever be written by it again. */
static void reset_all(struct sql_conn *c)
{
    for (sqlite3_stmt *s = NULL; (s = sqlite3_next_stmt(c->db, s));)
        if (sqlite3_stmt_busy(s))
            (void)sqlite3_reset(s);
}

/* While a transaction is ours nothing is committed but by us. A full disk makes SQLite roll back by
 * itself, and what a handler then wrote without looking would be committed alone, without its mark;
 * so would everything if it said COMMIT. */
static int may_commit(void *user)
{
    struct sql_conn *c = user;
    return c->open && !c->committing;
}

static void rolled_back(void *user)
{
    struct sql_conn *c = user;
    c->ended = true;
}

static enum err begin(struct sql_conn *c, bool writes, struct fault *why)
{
    enum err err = check_place(c, why);
    (void)sqlite3_busy_handler(c->db, wait_busy, c); /* a handler may have set its own */
    if (!err)
        err = run_text(c, writes ? "BEGIN IMMEDIATE" : "BEGIN", why);
    c->open = !err;
    c->ended = false;
    return err;
}

static enum err commit(struct sql_conn *c, struct fault *why)
{
    if (sqlite3_get_autocommit(c->db) || c->ended)
        return fault_set(why, ERR_INVALID,
                         "sqlite:%s: the transaction was over before its commit: a statement in it "
                         "failed, or somebody else ended it; nothing of it is counted as done",
                         c->path);
    c->committing = true;
    sqlite_wal_gather(c);
    enum err err = run_text(c, "COMMIT", why);
    sqlite_wal_done(c, err == OK);
    c->committing = false;
    if (err)
        return err;
    c->open = false;
    reset_all(c);
    return OK;
}

static void rollback(struct sql_conn *c)
{
    if (!sqlite3_get_autocommit(c->db))
        (void)run_text(c, "ROLLBACK", NULL);
    reset_all(c);
    c->open = false;
    if (!sqlite3_get_autocommit(c->db))
        c->broken = true;
}

/* ---- connections ---- */

/* The path of a URL. A relative one gets a ./ so that no name means something special to SQLite. */
static enum err path_of(const char *url, char **out, struct fault *why)
{
    if (strncmp(url, "sqlite:", 7) != 0)
        return fault_set(why, ERR_INVALID, "%.100s: an SQLite store is sqlite:FILE", url);
    const char *path = url + 7;
    if (strcmp(path, ":memory:") == 0)
        return fault_set(why, ERR_INVALID,
                         "sqlite::memory: is no store: connections would not share it; for a store "
                         "in memory use memory:");
    if (*path == '\0')
        return fault_set(why, ERR_INVALID, "sqlite: without a file: write sqlite:once.db");
    if (path[0] == '/' && path[1] == '/' && path[2] != '/')
        return fault_set(why, ERR_INVALID,
                         "%.100s: sqlite: has no host; write sqlite:FILE or sqlite:/FOLDER/FILE",
                         url);
    if (strlen(path) >= PATH_MAX)
        return fault_set(why, ERR_INVALID, "sqlite:%.60s…: the path is too long", path);
    if (asprintf(out, "%s%s", path[0] == '/' ? "" : "./", path) < 0)
        return ERR_NO_MEMORY;
    return OK;
}

/* A file that was just made is there after a power failure only when its folder was synced. */
static void sync_folder(const char *path)
{
    cleanup(free_at) char *copy = strdup(path);
    if (!copy)
        return;
    cleanup(close_at) int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        (void)fsync(fd);
}

static bool row_mode(void *user, const struct sql_value *columns, size_t n)
{
    bool *wal = user;
    *wal = n == 1 && columns[0].type == SQL_TEXT && bytes_equal(columns[0].bytes, BYTES("wal"));
    return true;
}

/* The change to WAL asks for the whole file, and SQLite does not always wait for it. */
static enum err set_wal(struct sql_conn *c, struct fault *why)
{
    bool wal = false;
    enum err err;
    int tries = 0;
    do {
        struct sql_call call = {
            .text = "PRAGMA journal_mode = WAL", .once = true, .row = row_mode, .user = &wal};
        err = run_one(c, &call, why);
    } while (err == ERR_BUSY && wait_busy(c, tries++));
    if (!err && !wal)
        return fault_set(why, ERR_UNSUPPORTED,
                         "sqlite:%s: no WAL mode here; a network file system has none", c->path);
    return err;
}

static bool row_number(void *user, const struct sql_value *columns, size_t n)
{
    int64_t *number = user;
    *number = n == 1 && columns[0].type == SQL_INT ? columns[0].number : 0;
    return true;
}

/* The file may be an application's, with pages of any size. */
static enum err set_wal_size(struct sql_conn *c, struct fault *why)
{
    int64_t page_size = 0;
    struct sql_call call = {
        .text = "PRAGMA page_size", .once = true, .row = row_number, .user = &page_size};
    enum err err = run_one(c, &call, why);
    if (!err && page_size > 0)
        (void)sqlite3_wal_autocheckpoint(c->db, (int)(WAL_BYTES / page_size));
    return err;
}

static enum err set_up(struct sql_conn *c, struct fault *why)
{
    if (sqlite3_db_readonly(c->db, "main") == 1)
        return fault_set(why, ERR_READ_ONLY, "sqlite:%s: the file can only be read%s", c->path,
                         sqlite_hint(ERR_READ_ONLY));
    (void)sqlite3_busy_handler(c->db, wait_busy, c);
    (void)sqlite3_commit_hook(c->db, may_commit, c);
    (void)sqlite3_rollback_hook(c->db, rolled_back, c);
    int rc = sqlite_clock(c);
    enum err err = rc == SQLITE_OK ? set_wal(c, why) : sqlite_fail(c, rc, why);
    if (!err)
        err = set_wal_size(c, why);
    static const char *const settings[] = {"PRAGMA synchronous = FULL",
                                           "PRAGMA cache_size = -" CACHE_KIB};
    for (size_t i = 0; !err && i < sizeof settings / sizeof settings[0]; i++) {
        struct sql_call call = {.text = settings[i], .once = true};
        err = run_one(c, &call, why);
    }
    return err;
}

static void disconnect(struct sql_conn *c)
{
    for (size_t i = 0; i < c->n_cached; i++)
        (void)sqlite3_finalize(c->cached[i].stmt);
    (void)sqlite3_close_v2(
        c->db); /* statements that a handler forgot keep it until they are gone */
    close_at(&c->alive_fd);
    free(c->path);
    free(c);
}

static enum err connect(const struct store_settings *settings, struct sql_conn **out,
                        struct fault *why)
{
    struct sql_conn *c = calloc(1, sizeof *c);
    if (!c)
        return ERR_NO_MEMORY;
    c->alive_fd = -1;
    c->wait_ms = settings->wait_ms;
    enum err err = path_of(settings->url, &c->path, why);
    if (!err) {
        bool looks = settings->looks, is_new = !looks && access(c->path, F_OK) != 0;
        /* Each with a cache and a WAL of its own, whatever the application has made the default. */
        int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE;
        flags |= looks ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
        int rc = sqlite3_open_v2(c->path, &c->db, flags, sqlite_wal_vfs());
        if (rc != SQLITE_OK)
            err = c->db ? sqlite_fail(c, rc, why) : ERR_NO_MEMORY;
        else if (looks)
            (void)sqlite3_busy_handler(c->db, wait_busy, c);
        else
            err = set_up(c, why);
        if (!err && is_new)
            sync_folder(c->path);
    }
    if (err)
        disconnect(c);
    else
        *out = c;
    return err;
}

static void *native(struct sql_conn *c)
{
    c->lent = true;
    return c->db;
}

/* ---- life ---- */

static bool healthy(struct sql_conn *c)
{
    return !c->broken && sqlite3_get_autocommit(c->db) && (!c->alive || sqlite_alive_is_there(c));
}

/* ---- dialect ---- */

/* Milliseconds since 1970 of SQLite's own clock, which stands still within a statement. A Julian
 * day in milliseconds is a whole number that a double holds exactly; half of one more corrects what
 * the division by a day left over. */
#define NOW "(CAST(julianday('now') * 86400000.0 + 0.5 AS INTEGER) - 210866760000000)"

static const char *const create[] = {
    "CREATE TABLE IF NOT EXISTS {claims} (\n"
    "    id          BLOB    NOT NULL PRIMARY KEY,\n"
    "    name        TEXT    NOT NULL,\n"
    "    state       INTEGER NOT NULL,\n"
    "    token       INTEGER NOT NULL,\n"
    "    fence       INTEGER NOT NULL,\n"
    "    until_ms    INTEGER NOT NULL,\n"
    "    keep_ms     INTEGER NOT NULL,\n"
    "    fingerprint INTEGER NOT NULL\n"
    ")",
    "CREATE INDEX IF NOT EXISTS {keep} ON {claims} (keep_ms)",
    "CREATE TABLE IF NOT EXISTS {steps} (\n"
    "    id     BLOB NOT NULL,\n"
    "    step   BLOB NOT NULL,\n"
    "    result BLOB NOT NULL,\n"
    "    PRIMARY KEY (id, step)\n"
    ")",
    "CREATE TABLE IF NOT EXISTS {places} (\n"
    "    id    BLOB    NOT NULL PRIMARY KEY,\n"
    "    name  TEXT    NOT NULL,\n"
    "    epoch INTEGER NOT NULL,\n"
    "    next  INTEGER NOT NULL,\n"
    "    done  BLOB    NOT NULL\n"
    ") WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS {outbox} (\n"
    "    number  INTEGER PRIMARY KEY AUTOINCREMENT,\n"
    "    id      BLOB NOT NULL,\n"
    "    message BLOB NOT NULL\n"
    ")",
    "CREATE TABLE IF NOT EXISTS {birth} (\n"
    "    one    INTEGER NOT NULL PRIMARY KEY,\n"
    "    number INTEGER NOT NULL\n"
    ")",
    NULL,
};

const struct sql_engine sql_engine_sqlite = {
    .name = "sqlite",
    .connect = connect,
    .disconnect = disconnect,
    .healthy = healthy,
    .native = native,
    .run = run,
    .begin = begin,
    .commit = commit,
    .rollback = rollback,
    .live = sqlite_live,
    .gone = sqlite_gone,
    .quote = '"',
    .now_ms = NOW,
    .for_update = "",
    .create = create,
    .insert_claim = "INSERT INTO {claims} (id, name, state, token, fence, until_ms, keep_ms, "
                    "fingerprint) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
    .tick = "SELECT once_tick({now}) FROM {birth} WHERE one = 1 AND number = ?",
    .straight_claim =
        "INSERT INTO {claims} (id, name, state, token, fence, until_ms, keep_ms, fingerprint) "
        "VALUES (?, ?, ?, ?, once_now() * 1000, once_now() + ?, once_now() + ?, ?) "
        "ON CONFLICT (id) DO NOTHING",
    /* Only where keep_ms can stay: a statement that could change it would write the index of it
     * anew, changed or not. */
    .straight_finish = "UPDATE {claims} SET until_ms = once_now() + ?4, state = ?5 WHERE state IN "
                       "(?6, ?7) AND id = ?8 AND token = ?9 AND keep_ms BETWEEN once_now() + ?1 "
                       "AND once_now() + ?2",
};

/* The same file for every connection, wherever the program may go meanwhile. */
static enum err absolute(const char *url, char **out, struct fault *why)
{
    cleanup(free_at) char *path = NULL, *here = NULL;
    enum err err = path_of(url, &path, why);
    if (err)
        return err;
    if (path[0] != '/' && !(here = getcwd(NULL, 0)))
        return fault_os(why, "sqlite:%.200s: where is this folder", path);
    if (asprintf(out, "sqlite:%s%s%s", here ? here : "", here ? "/" : "", path) < 0)
        return ERR_NO_MEMORY;
    return OK;
}

static enum err open_store(const struct store_settings *settings, struct store **out,
                           struct fault *why)
{
    struct store_settings with = *settings;
    cleanup(free_at) char *url = NULL;
    enum err err = absolute(settings->url, &url, why);
    if (err)
        return err;
    with.url = url;
    with.create = true; /* a file of its own: who could open it may also fill it */
    return sql_open(&sql_engine_sqlite, &with, out, why);
}

static enum err ask(const struct store_settings *settings, struct sql_call *call, struct fault *why)
{
    return sql_ask(&sql_engine_sqlite, settings, call, why);
}

static enum err quote(const char *name, char *out, size_t size)
{
    return sql_quote('"', name, out, size);
}

ONCE_DRIVER_EXPORT(sqlite);
const struct once_driver once_driver_sqlite = {SQL_DRIVER("sqlite", open_store, quote, ""),
                                               .ask = ask};
