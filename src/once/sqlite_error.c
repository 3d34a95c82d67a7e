/* sqlite_error.c - what SQLite's codes mean to the SQL stores, and what to do about them. */
#include "once/sqlite_int.h"

#include <errno.h>
#include <string.h>

/* What the system said. A commit that could not write its WAL leaves that with the file alone. */
static int os_of(const struct sql_conn *c)
{
    int os = sqlite3_system_errno(c->db);
    sqlite3_file *wal = NULL;
    if (os == 0)
        (void)sqlite3_file_control(c->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal);
    if (wal && wal->pMethods)
        (void)wal->pMethods->xFileControl(wal, SQLITE_FCNTL_LAST_ERRNO, &os);
    return os;
}

static enum err kind_of(const struct sql_conn *c, int rc, int os)
{
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return ERR_BUSY;
    case SQLITE_CONSTRAINT:
        return rc == SQLITE_CONSTRAINT_UNIQUE || rc == SQLITE_CONSTRAINT_PRIMARYKEY ||
                       rc == SQLITE_CONSTRAINT_ROWID
                   ? ERR_EXISTS
                   : ERR_INVALID;
    case SQLITE_FULL:
        return ERR_DISK_FULL;
    case SQLITE_IOERR:
        return os == ENOSPC || os == EDQUOT || os == EFBIG ? ERR_DISK_FULL : ERR_IO;
    case SQLITE_READONLY:
        return rc == SQLITE_READONLY_DBMOVED ? ERR_STALE : ERR_READ_ONLY;
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return ERR_DENIED;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return ERR_DAMAGED;
    case SQLITE_NOMEM:
        return ERR_NO_MEMORY;
    case SQLITE_CANTOPEN:
        return os == EACCES || os == EPERM ? ERR_DENIED : ERR_IO;
    case SQLITE_TOOBIG:
        return ERR_TOO_BIG;
    case SQLITE_ERROR:
        return strncmp(sqlite3_errmsg(c->db), "no such table", 13) == 0 ? ERR_NOT_FOUND
                                                                        : ERR_INVALID;
    default:
        return ERR_INVALID;
    }
}

const char *sqlite_hint(enum err err)
{
    switch (err) {
    case ERR_DAMAGED:
        return "; the file is damaged or not one of SQLite's: restore it from a copy, or move it "
               "away to begin anew";
    case ERR_READ_ONLY:
    case ERR_DENIED:
        return "; the file, its folder and FILE-wal must be writable for this user";
    case ERR_DISK_FULL:
        return "; make room on the disk";
    case ERR_BUSY:
        return "; another process is writing for longer than wait_ms";
    default:
        return "";
    }
}

enum err sqlite_fail(struct sql_conn *c, int rc, struct fault *why)
{
    bool system = (rc & 0xff) == SQLITE_CANTOPEN || (rc & 0xff) == SQLITE_IOERR;
    int os = system ? os_of(c) : 0;
    enum err err = kind_of(c, rc, os);
    return fault_set(why, err, "sqlite:%s: %s%s%s%s", c->path, sqlite3_errmsg(c->db),
                     system && os ? ": " : "", system && os ? strerror(os) : "", sqlite_hint(err));
}
