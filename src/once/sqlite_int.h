/* sqlite_int.h - a connection to SQLite, as the files of this engine share it. */
#ifndef ONCE_SQLITE_INT_H
#define ONCE_SQLITE_INT_H

#include "once/sql.h"

#include <sqlite3.h>

#define CACHED_MAX 48

struct cached {
    const char *text;
    sqlite3_stmt *stmt;
};

struct sql_conn {
    sqlite3 *db;
    char *path;
    int wait_ms;
    int64_t busy_since_ms;
    bool broken;
    bool open, committing; /* between begin and commit or rollback; in our own commit */
    bool ended;            /* it was rolled back, but not by us */
    bool lent;             /* a handler had it, and may have set what it liked */
    int64_t tick_ms;       /* the clock of straight writes */

    int alive_fd; /* FILE-alive, or -1 */
    bool alive;
    uint32_t instance;

    struct cached cached[CACHED_MAX];
    size_t n_cached;
};

/* sqlite_error.c: a code of SQLite as ours, with its words; what to do about one. */
enum err sqlite_fail(struct sql_conn *c, int rc, struct fault *why);
const char *sqlite_hint(enum err err);

/* sqlite_alive.c */
enum err sqlite_live(struct sql_conn *c, uint32_t instance, struct fault *why);
bool sqlite_gone(struct sql_conn *c, uint32_t instance);
bool sqlite_alive_is_there(const struct sql_conn *c);

/* sqlite_clock.c: once_tick() and once_now() for this connection; a code of SQLite. */
int sqlite_clock(struct sql_conn *c);

/* sqlite_wal.c: the VFS to open connections with, NULL for the usual one. Around a COMMIT: what it
 * writes into the WAL is gathered. */
const char *sqlite_wal_vfs(void);
void sqlite_wal_gather(struct sql_conn *c);
void sqlite_wal_done(struct sql_conn *c, bool committed);

#endif
