/* sqlite_disk_test.h - a disk under SQLite that fails, or ends the process, at its n-th write.
 *
 * A VFS of SQLite that hands everything to the usual one and counts what changes files. A write may
 * fail at any of its pieces, of which those before it are there then. Only for the x_test.c files
 * of this folder.
 */
#ifndef ONCE_SQLITE_DISK_TEST_H
#define ONCE_SQLITE_DISK_TEST_H

#include "base/test.h"

#include <signal.h>
#include <sqlite3.h>
#include <unistd.h>

#define DISK_PIECE 2048

enum disk_fault {
    DISK_FAILS, /* this piece and all after it */
    DISK_FULL,
    DISK_SLIPS, /* this one alone: what comes after goes well */
    DISK_TEARS, /* half of it is written, then it fails, and all after it */
    DISK_KILLS, /* half of it is written, then the process is no more */
};

static struct {
    long left; /* pieces of writes, and syncs, until it happens; negative: never */
    enum disk_fault fault;
    bool happened;
    long writes, syncs;
    bool harms; /* what stands beside the bytes that it writes, if the power goes */
} disk = {.left = -1};

struct disk_file {
    sqlite3_file base;
    sqlite3_file *real;
};

static sqlite3_file *disk_real(sqlite3_file *f)
{
    return ((struct disk_file *)f)->real;
}

/* What becomes of a change: SQLITE_OK to go on. `part` writes half of it. */
static int disk_change(sqlite3_file *f, const void *at, int size, sqlite3_int64 offset)
{
    if (disk.left < 0)
        return SQLITE_OK;
    if (disk.left > 0) {
        disk.left--;
        return SQLITE_OK;
    }
    bool first = !disk.happened;
    if (!first && disk.fault == DISK_SLIPS)
        return SQLITE_OK;
    disk.happened = true;
    if (first && at && (disk.fault == DISK_TEARS || disk.fault == DISK_KILLS))
        (void)disk_real(f)->pMethods->xWrite(disk_real(f), at, size / 2, offset);
    if (disk.fault == DISK_KILLS)
        (void)kill(getpid(), SIGKILL);
    return disk.fault == DISK_FULL ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

static int disk_close(sqlite3_file *f)
{
    return disk_real(f)->pMethods->xClose(disk_real(f));
}

static int disk_read(sqlite3_file *f, void *to, int size, sqlite3_int64 offset)
{
    return disk_real(f)->pMethods->xRead(disk_real(f), to, size, offset);
}

static int disk_write(sqlite3_file *f, const void *at, int size, sqlite3_int64 offset)
{
    const uint8_t *bytes = at;
    int rc = SQLITE_OK;
    disk.writes++;
    for (int done = 0; rc == SQLITE_OK && done < size; done += DISK_PIECE) {
        int piece = size - done < DISK_PIECE ? size - done : DISK_PIECE;
        rc = disk_change(f, bytes + done, piece, offset + done);
        if (rc == SQLITE_OK)
            rc = disk_real(f)->pMethods->xWrite(disk_real(f), bytes + done, piece, offset + done);
    }
    return rc;
}

static int disk_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    int rc = disk_change(f, NULL, 0, 0);
    return rc ? rc : disk_real(f)->pMethods->xTruncate(disk_real(f), size);
}

static int disk_sync(sqlite3_file *f, int flags)
{
    disk.syncs++;
    return disk_change(f, NULL, 0, 0);
}

static int disk_size(sqlite3_file *f, sqlite3_int64 *out)
{
    return disk_real(f)->pMethods->xFileSize(disk_real(f), out);
}

static int disk_lock(sqlite3_file *f, int how)
{
    return disk_real(f)->pMethods->xLock(disk_real(f), how);
}

static int disk_unlock(sqlite3_file *f, int how)
{
    return disk_real(f)->pMethods->xUnlock(disk_real(f), how);
}

static int disk_reserved(sqlite3_file *f, int *out)
{
    return disk_real(f)->pMethods->xCheckReservedLock(disk_real(f), out);
}

static int disk_control(sqlite3_file *f, int what, void *arg)
{
    return disk_real(f)->pMethods->xFileControl(disk_real(f), what, arg);
}

static int disk_sector(sqlite3_file *f)
{
    return disk_real(f)->pMethods->xSectorSize(disk_real(f));
}

static int disk_device(sqlite3_file *f)
{
    int is = disk_real(f)->pMethods->xDeviceCharacteristics(disk_real(f));
    return disk.harms ? is & ~SQLITE_IOCAP_POWERSAFE_OVERWRITE : is;
}

static int disk_map(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
    return disk_real(f)->pMethods->xShmMap(disk_real(f), page, size, extend, out);
}

static int disk_shm_lock(sqlite3_file *f, int offset, int n, int flags)
{
    return disk_real(f)->pMethods->xShmLock(disk_real(f), offset, n, flags);
}

static void disk_barrier(sqlite3_file *f)
{
    disk_real(f)->pMethods->xShmBarrier(disk_real(f));
}

static int disk_unmap(sqlite3_file *f, int remove)
{
    return disk_real(f)->pMethods->xShmUnmap(disk_real(f), remove);
}

static const sqlite3_io_methods disk_methods = {
    .iVersion = 2,
    .xClose = disk_close,
    .xRead = disk_read,
    .xWrite = disk_write,
    .xTruncate = disk_truncate,
    .xSync = disk_sync,
    .xFileSize = disk_size,
    .xLock = disk_lock,
    .xUnlock = disk_unlock,
    .xCheckReservedLock = disk_reserved,
    .xFileControl = disk_control,
    .xSectorSize = disk_sector,
    .xDeviceCharacteristics = disk_device,
    .xShmMap = disk_map,
    .xShmLock = disk_shm_lock,
    .xShmBarrier = disk_barrier,
    .xShmUnmap = disk_unmap,
};

static sqlite3_vfs disk_vfs, *disk_usual;

static int disk_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out)
{
    struct disk_file *file = (struct disk_file *)f;
    file->real = (sqlite3_file *)(file + 1);
    int rc = disk_usual->xOpen(disk_usual, name, file->real, flags, out);
    file->base.pMethods = file->real->pMethods ? &disk_methods : NULL;
    return rc;
}

/* From here on every connection of this process goes through it. */
static inline void disk_put_between(void)
{
    disk_usual = sqlite3_vfs_find(NULL);
    disk_vfs = *disk_usual;
    disk_vfs.zName = "unix-failing"; /* as if it were SQLite's own */
    disk_vfs.szOsFile += (int)sizeof(struct disk_file);
    disk_vfs.xOpen = disk_open;
    assert_int_equal(sqlite3_vfs_register(&disk_vfs, 1), SQLITE_OK);
}

#endif
