#include "daemon/check.h"

#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
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
    char text[CHECK_TEXT_MAX];
    check_finding_text(f, text);
    progress_wipe(user);
    (void)printf("%s\n", text);
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
    char text[CHECK_TEXT_MAX];
    check_summary_text(s, text);
    if (all > CHECK_FINDINGS_MAX)
        (void)printf("… and %" PRIu64 " more\n", all - CHECK_FINDINGS_MAX);
    (void)printf("%s\n", text);
}

enum err check_folder(const char *folder, bool *sound, struct fault *why)
{
    struct vfs *vfs;
    enum err err = vfs_posix_find(folder, &vfs, why);
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
