#include "daemon/check.h"

#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is on the terminal's last line. */
struct progress {
    bool shown;
    int percent;
};

static void progress_wipe(struct progress *p)
{
    if (p->percent >= 0)
        (void)fputs("\r\033[K", stderr);
    p->percent = -1;
}

static void tell(void *user, const struct check_finding *f)
{
    struct progress *p = user;
    progress_wipe(p);
    const char *grade = f->grade == CHECK_DAMAGE ? "damage" : "note";
    if (f->at >= 0)
        (void)printf("%s: %s at %" PRId64 ": %s\n", grade, f->file, f->at, f->text);
    else
        (void)printf("%s: %s: %s\n", grade, f->file, f->text);
}

static void tell_progress(void *user, uint64_t done, uint64_t of)
{
    struct progress *p = user;
    int percent = of ? (int)(done * 100 / of) : 100;
    if (!p->shown || percent == p->percent)
        return;
    p->percent = percent;
    (void)fprintf(stderr, "\rchecking the log: %d %%", percent);
}

static void tell_summary(const struct check_summary *s)
{
    uint64_t all = s->damages + s->notes;
    if (all > CHECK_FINDINGS_MAX)
        (void)printf("… and %" PRIu64 " more\n", all - CHECK_FINDINGS_MAX);
    (void)printf("%s: %" PRIu64 " records, %" PRIu64 " bytes, in %" PRIu64 " log files of %" PRIu64
                 " (positions %" PRIu64 " to %" PRIu64 "); %" PRIu64 " units in %" PRIu64
                 " queues, files of %" PRIu64 "; %" PRIu64 " keys in %" PRIu64
                 " index files; %" PRIu64 " timers in %" PRIu64 " files; damage %" PRIu64
                 ", notes %" PRIu64 ", last stop %s\n",
                 s->damages ? "damaged" : "sound", s->records, s->bytes, s->log_files,
                 s->log_file_size, s->log_first, s->log_end, s->units, s->queues,
                 s->queue_file_size, s->index_entries, s->index_files, s->timer_units,
                 s->timer_files, s->damages, s->notes, s->clean ? "clean" : "not clean");
}

enum err check_folder(const char *folder, bool *sound, struct fault *why)
{
    struct stat s;
    if (stat(folder, &s) < 0) /* opening the vfs would make the folder */
        return fault_os(why, "opening %s", folder);
    if (!S_ISDIR(s.st_mode)) {
        errno = ENOTDIR;
        return fault_os(why, "opening %s", folder);
    }
    struct vfs *vfs;
    enum err err = vfs_posix_open(folder, &vfs, why);
    if (err)
        return err;
    struct progress p = {isatty(STDERR_FILENO) == 1, -1};
    const struct check_calls calls = {tell, tell_progress, &p};
    struct check_summary summary;
    err = store_check(vfs, &calls, &summary, why);
    progress_wipe(&p);
    vfs->calls->dispose(vfs);
    if (err)
        return fault_add(why, err, "checking %s", folder);
    tell_summary(&summary);
    if (fflush(stdout) != 0)
        return fault_os(why, "writing to standard output");
    *sound = summary.damages == 0;
    return OK;
}
