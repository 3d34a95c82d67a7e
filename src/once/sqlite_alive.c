/* sqlite_alive.c - who lives, for takeover.
 *
 * A process that lives holds a lock on one byte of FILE-alive, at the offset of its instance. The
 * lock belongs to the open file (F_OFD_SETLK), so that the kernel lets go of it when the process
 * ends, however it ends. It is not in the database itself: to close that file a second time would
 * drop SQLite's own locks.
 */
#include "once/sqlite_int.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

static int open_alive(const struct sql_conn *c, bool make)
{
    struct stat db;
    char path[PATH_MAX + 8];
    (void)snprintf(path, sizeof path, "%s-alive", c->path);
    mode_t mode = stat(c->path, &db) == 0 ? db.st_mode & 0777 : 0644;
    return open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), mode);
}

/* A file without a name is one that nobody else looks at. */
bool sqlite_alive_is_there(const struct sql_conn *c)
{
    struct stat st;
    return c->alive_fd >= 0 && fstat(c->alive_fd, &st) == 0 && st.st_nlink > 0;
}

enum err sqlite_live(struct sql_conn *c, uint32_t instance, struct fault *why)
{
    close_at(&c->alive_fd);
    c->alive = false;
    c->alive_fd = open_alive(c, true);
    if (c->alive_fd < 0)
        return fault_os(why, "sqlite:%s: opening FILE-alive, for takeover", c->path);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = instance, .l_len = 1};
    if (fcntl(c->alive_fd, F_OFD_SETLK, &lock) != 0)
        return fault_os(why, "sqlite:%s: locking FILE-alive, for takeover", c->path);
    c->alive = true;
    c->instance = instance;
    return OK;
}

bool sqlite_gone(struct sql_conn *c, uint32_t instance)
{
    if (c->alive && c->instance == instance)
        return false;
    if (!c->alive && !sqlite_alive_is_there(c)) {
        close_at(&c->alive_fd);
        c->alive_fd = open_alive(c, false);
    }
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = instance, .l_len = 1};
    if (c->alive_fd < 0 || fcntl(c->alive_fd, F_OFD_GETLK, &lock) != 0)
        return false;
    return lock.l_type == F_UNLCK;
}
