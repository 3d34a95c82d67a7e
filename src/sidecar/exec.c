/* exec.c - a program for each message.
 *
 * The body is put into a file without a name, in memory, which becomes the program's stdin: it may
 * read all of it, some of it or nothing, and nobody waits for that or hears of a broken pipe. */
#include "sidecar/sidecar_int.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_LATER 75 /* EX_TEMPFAIL of sysexits.h */

struct exec {
    struct program program;
    struct exec_hand *hands; /* one for each thread */
};

struct exec_hand {
    struct exec *exec;
    struct child child;
    struct env env;
};

static enum err exec_open(struct sidecar *s, struct fault *why)
{
    struct exec *exec = calloc(1, sizeof *exec);
    if (!exec)
        return ERR_NO_MEMORY;
    s->state = exec;
    exec->hands = calloc((size_t)s->with.parallel, sizeof *exec->hands);
    enum err err = exec->hands ? program_open(&exec->program, s->with.command, why) : ERR_NO_MEMORY;
    for (int i = 0; exec->hands && i < s->with.parallel; i++)
        child_init(&exec->hands[i].child);
    return err;
}

static void exec_close(struct sidecar *s)
{
    struct exec *exec = s->state;
    for (int i = 0; exec->hands && i < s->with.parallel; i++)
        child_clear(&exec->hands[i].child);
    program_clear(&exec->program);
    free(exec->hands);
    free(exec);
}

static void exec_kill(struct sidecar *s, int signal)
{
    struct exec *exec = s->state;
    for (int i = 0; i < s->with.parallel; i++)
        child_kill(&exec->hands[i].child, signal);
}

static enum err exec_hand_open(struct sidecar *s, size_t number, void **out, struct fault *why)
{
    (void)why;
    struct exec *exec = s->state;
    struct exec_hand *hand = &exec->hands[number];
    hand->exec = exec;
    *out = hand;
    enum err err = env_open(&hand->env, environ);
    if (err)
        env_clear(&hand->env);
    return err;
}

static void exec_hand_close(void *own)
{
    struct exec_hand *hand = own;
    env_clear(&hand->env);
}

/* The body as a file, at its beginning; -1: errno. */
static int body_file(const struct omq_delivery *d)
{
    int fd = memfd_create("body", MFD_CLOEXEC);
    const char *at = d->body;
    for (size_t left = d->body_size; fd >= 0 && left > 0;) {
        ssize_t n = write(fd, at, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            close_at(&fd);
            return -1;
        }
        at += n;
        left -= (size_t)n;
    }
    if (fd >= 0 && d->body_size > 0)
        (void)lseek(fd, 0, SEEK_SET);
    return fd;
}

static enum err start(struct sidecar *s, struct exec_hand *hand, const struct job *job,
                      struct fault *why)
{
    enum err err = env_fill(&hand->env, job);
    if (err)
        return fault_set(why, err, "its properties are too many for an environment");
    cleanup(close_at) int in = body_file(job->d);
    if (in < 0)
        return fault_os(why, "a file for the body");
    return child_start(&hand->child, &hand->exec->program, hand->env.rows, in, s->with.output, why);
}

/* Until it ends, is late, or nobody waits any longer. */
static enum err wait_for(struct sidecar *s, struct child *child, int *status)
{
    enum err err = child_wait(child, s->with.timeout_ms, status);
    if (err)
        child_end(child, status);
    return err;
}

static void exec_work(struct sidecar *s, void *own, struct job *job, struct fate *fate)
{
    struct exec_hand *hand = own;
    struct fault why = {0};
    int status = 0;
    enum err err = start(s, hand, job, &why);
    if (err) { /* ours to mend, not the message's fault */
        bool big = why.os == E2BIG || err == ERR_TOO_BIG;
        fate_set(fate, big ? SIDECAR_FAILED : SIDECAR_LATER, -1, "%s", why.text);
        sidecar_log(s, SIDECAR_ERROR, "%s", why.text);
        return;
    }
    err = wait_for(s, &hand->child, &status);
    char text[64];
    status_text(status, text, sizeof text);
    bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (atomic_load(&s->ending) && !well) /* some catch SIGTERM, and have a status for that */
        fate_set(fate, SIDECAR_LATER, 0, "ended by our stop");
    else if (err)
        fate_set(fate, SIDECAR_FAILED, 0, "no end within %d ms: killed", s->with.timeout_ms);
    else if (well)
        fate_set(fate, SIDECAR_DONE, 0, "%s", "");
    else if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_LATER)
        fate_set(fate, SIDECAR_LATER, -1, "%s", text);
    else
        fate_set(fate, SIDECAR_FAILED, 0, "%s", text);
}

const struct worker worker_exec = {
    .open = exec_open,
    .close = exec_close,
    .kill = exec_kill,
    .hand_open = exec_hand_open,
    .hand_close = exec_hand_close,
    .work = exec_work,
};
