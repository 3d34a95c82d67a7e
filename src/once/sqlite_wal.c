/* sqlite_wal.c - what a commit writes into the WAL goes there in one piece.
 *
 * SQLite writes each page of a commit as two pieces, its header and itself: some 50 writes for a
 * batch, of which the kernel takes each by itself, and which its cache then holds as many small
 * pieces for the sync to collect. So a VFS of ours stands between our connections and the usual
 * one. It leaves all files alone but the WAL, and there gathers neighbouring writes in memory and
 * hands them on as one.
 *
 *     COMMIT   write write write …  sync  │ the index of the WAL: now others see it
 *              └── gathered ─────┘  ▲
 *                                   └ written, then synced
 *
 * 1. It gathers only within a COMMIT of ours, between sqlite_wal_gather() and sqlite_wal_done().
 *    What SQLite writes before, since its cache is full, goes straight through. So if a write that
 *    was put off fails, that is the failure of the COMMIT, which SQLite then rolls back by itself;
 *    nobody can go on and commit over a hole.
 * 2. Others learn of a commit by the index of the WAL, in shared memory, which SQLite changes after
 *    the sync. All that is gathered is written before the sync, or the sync fails. There is a sync
 *    in each commit, as connections are set to synchronous = FULL; one that was given to a handler,
 *    who can set that to something else, gathers nothing any more.
 * 3. Before any other call on the file what is gathered is written.
 * 4. A disk that may harm what stands beside the bytes it writes, one that does not say
 *    SQLITE_IOCAP_POWERSAFE_OVERWRITE, has commits padded to whole sectors, with a sync in the
 *    middle. Nothing is gathered there.
 * 5. It stands before SQLite's own VFS alone. One that an application has made the default may keep
 *    what it likes behind its struct, and take a write of a certain size for a page: that one is
 *    used as it is.
 */
#include "once/sqlite_int.h"

#include <pthread.h>
#include <stdlib.h>

#define VFS_NAME    "libonce"
#define SQLITE_OWN  "unix"              /* how the names of SQLite's own begin here */
#define GATHER_SIZE ((size_t)128 << 10) /* 31 pages; of a bigger commit, so much at a time */

struct wal_file {
    sqlite3_file base;
    sqlite3_file *real; /* of the usual VFS, behind this struct */
    bool gathers;
    uint8_t *bytes; /* GATHER_SIZE, or NULL */
    size_t n;
    sqlite3_int64 offset; /* of the first of them */
    int failed;           /* why something that was gathered in this COMMIT is not there */
};

static struct wal_file *wal_of(sqlite3_file *f)
{
    return (struct wal_file *)f;
}

static int flush(struct wal_file *w)
{
    if (w->n == 0)
        return SQLITE_OK;
    int size = (int)w->n;
    w->n = 0;
    int rc = w->real->pMethods->xWrite(w->real, w->bytes, size, w->offset);
    w->failed = w->failed ? w->failed : rc;
    return rc;
}

static int wal_write(sqlite3_file *f, const void *at, int size, sqlite3_int64 offset)
{
    struct wal_file *w = wal_of(f);
    bool next =
        w->n > 0 && offset == w->offset + (sqlite3_int64)w->n && (size_t)size <= GATHER_SIZE - w->n;
    int rc = next ? SQLITE_OK : flush(w);
    if (rc != SQLITE_OK)
        return rc;
    if (!w->gathers || (size_t)size > GATHER_SIZE)
        return w->real->pMethods->xWrite(w->real, at, size, offset);
    if (w->n == 0)
        w->offset = offset;
    memcpy(w->bytes + w->n, at, (size_t)size);
    w->n += (size_t)size;
    return SQLITE_OK;
}

static int wal_read(sqlite3_file *f, void *to, int size, sqlite3_int64 offset)
{
    struct wal_file *w = wal_of(f);
    int rc = flush(w);
    return rc ? rc : w->real->pMethods->xRead(w->real, to, size, offset);
}

static int wal_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    struct wal_file *w = wal_of(f);
    int rc = flush(w);
    return rc ? rc : w->real->pMethods->xTruncate(w->real, size);
}

static int wal_sync(sqlite3_file *f, int flags)
{
    struct wal_file *w = wal_of(f);
    int rc = flush(w);
    rc = rc ? rc : w->failed; /* whoever was told before may have gone on */
    return rc ? rc : w->real->pMethods->xSync(w->real, flags);
}

static int wal_size(sqlite3_file *f, sqlite3_int64 *out)
{
    struct wal_file *w = wal_of(f);
    int rc = flush(w);
    return rc ? rc : w->real->pMethods->xFileSize(w->real, out);
}

static int wal_control(sqlite3_file *f, int what, void *arg)
{
    struct wal_file *w = wal_of(f);
    int rc = flush(w);
    return rc ? rc : w->real->pMethods->xFileControl(w->real, what, arg);
}

static int wal_lock(sqlite3_file *f, int how)
{
    struct wal_file *w = wal_of(f);
    int rc = flush(w);
    return rc ? rc : w->real->pMethods->xLock(w->real, how);
}

static int wal_unlock(sqlite3_file *f, int how)
{
    struct wal_file *w = wal_of(f);
    int rc = flush(w);
    return rc ? rc : w->real->pMethods->xUnlock(w->real, how);
}

static int wal_reserved(sqlite3_file *f, int *out)
{
    struct wal_file *w = wal_of(f);
    int rc = flush(w);
    return rc ? rc : w->real->pMethods->xCheckReservedLock(w->real, out);
}

static int wal_sector(sqlite3_file *f)
{
    return wal_of(f)->real->pMethods->xSectorSize(wal_of(f)->real);
}

static int wal_device(sqlite3_file *f)
{
    return wal_of(f)->real->pMethods->xDeviceCharacteristics(wal_of(f)->real);
}

static int wal_close(sqlite3_file *f)
{
    struct wal_file *w = wal_of(f);
    int rc = flush(w), closed = w->real->pMethods->xClose(w->real);
    free(w->bytes);
    w->bytes = NULL;
    return rc ? rc : closed;
}

/* No shared memory and no mapping: SQLite has these of the database's file. */
static const sqlite3_io_methods wal_methods = {
    .iVersion = 1,
    .xClose = wal_close,
    .xRead = wal_read,
    .xWrite = wal_write,
    .xTruncate = wal_truncate,
    .xSync = wal_sync,
    .xFileSize = wal_size,
    .xLock = wal_lock,
    .xUnlock = wal_unlock,
    .xCheckReservedLock = wal_reserved,
    .xFileControl = wal_control,
    .xSectorSize = wal_sector,
    .xDeviceCharacteristics = wal_device,
};

/* ---- the VFS ---- */

static sqlite3_vfs vfs, *usual;
static bool registered;

static int open_file(sqlite3_vfs *ours, const char *name, sqlite3_file *f, int flags, int *out)
{
    if (!(flags & SQLITE_OPEN_WAL))
        return usual->xOpen(usual, name, f, flags, out);
    struct wal_file *w = wal_of(f);
    *w = (struct wal_file){.real = (sqlite3_file *)(w + 1)};
    int rc = usual->xOpen(usual, name, w->real, flags, out);
    w->base.pMethods = w->real->pMethods ? &wal_methods : NULL;
    return rc;
}

static void make(void)
{
    usual = sqlite3_vfs_find(NULL);
    if (!usual || strncmp(usual->zName, SQLITE_OWN, strlen(SQLITE_OWN)) != 0)
        return;
    vfs = *usual;
    vfs.pNext = NULL;
    vfs.zName = VFS_NAME;
    vfs.szOsFile += (int)sizeof(struct wal_file);
    vfs.xOpen = open_file;
    registered = sqlite3_vfs_register(&vfs, 0) == SQLITE_OK;
}

const char *sqlite_wal_vfs(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make);
    return registered && sqlite3_vfs_find(NULL) == usual ? VFS_NAME : NULL;
}

/* ---- a commit ---- */

static struct wal_file *wal_file(const struct sql_conn *c)
{
    sqlite3_file *f = NULL;
    (void)sqlite3_file_control(c->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &f);
    return f && f->pMethods == &wal_methods ? wal_of(f) : NULL;
}

/* SQLite asks the database's file, too, whether it has to pad its WAL. */
static bool writes_harm_nothing_else(const struct sql_conn *c)
{
    sqlite3_file *f = NULL;
    (void)sqlite3_file_control(c->db, "main", SQLITE_FCNTL_FILE_POINTER, &f);
    return f && f->pMethods &&
           (f->pMethods->xDeviceCharacteristics(f) & SQLITE_IOCAP_POWERSAFE_OVERWRITE) != 0;
}

void sqlite_wal_gather(struct sql_conn *c)
{
    struct wal_file *w = c->lent ? NULL : wal_file(c);
    if (!w || !writes_harm_nothing_else(c))
        return;
    if (!w->bytes)
        w->bytes = malloc(GATHER_SIZE);
    w->gathers = w->bytes != NULL;
}

void sqlite_wal_done(struct sql_conn *c, bool committed)
{
    struct wal_file *w = c->lent ? NULL : wal_file(c);
    if (!w)
        return;
    invariant(!committed || w->n == 0);
    w->gathers = false;
    w->n = 0; /* of a COMMIT that failed in the middle */
    w->failed = SQLITE_OK;
}
