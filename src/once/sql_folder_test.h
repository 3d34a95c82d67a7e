/* sql_folder_test.h - SQLite stores in a temporary folder, which is removed in the end.
 *
 * Only for the x_test.c files of this folder.
 */
#ifndef ONCE_SQL_FOLDER_TEST_H
#define ONCE_SQL_FOLDER_TEST_H

#include "once/sql_rig_test.h"
#include "once/sqlite_disk_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

static char folder[256];
static int folder_files;

/* fork, for a child that ends with _exit: it does not outlive its parent, nor a minute, whatever
 * becomes of the test. */
static inline pid_t fork_child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(60);
    }
    return pid;
}

static int folder_make(void **state)
{
    disk_put_between();
    const char *where = getenv("TMPDIR");
    (void)snprintf(folder, sizeof folder, "%s/oncemq-sql-XXXXXX", where ? where : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%.200s", folder, e->d_name);
        (void)unlink(path);
    }
    (void)closedir(dir);
    return rmdir(folder);
}

static inline const char *rig_path(const struct rig *rig)
{
    return rig->url + sizeof "sqlite:" - 1;
}

/* A fresh file for each store. */
static void rig_settings(struct rig *rig)
{
    rig->engine = &sql_engine_sqlite;
    rig->plain_create = "CREATE TABLE {plain} (id INTEGER PRIMARY KEY, k VARCHAR(100) NOT NULL "
                        "UNIQUE, update_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)";
    (void)snprintf(rig->url, sizeof rig->url, "sqlite:%s/%d.db", folder, folder_files++);
    (void)snprintf(rig->table, sizeof rig->table, "once");
    /* There, and empty: for a file that it makes itself the engine syncs the folder. */
    (void)close(open(rig_path(rig), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

#endif
