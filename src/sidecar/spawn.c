/* spawn.c - programs: starting one, waiting for it, ending it with its process group.
 *
 * A child is made by vfork, which copies no memory: a program costs hardly more than its own exec,
 * however big we are. Until the exec it runs in our memory while the thread that made it stands
 * still, so it calls nothing but the kernel. (posix_spawn does the same, but cannot ask for
 * PR_SET_PDEATHSIG: if we are killed, what we started is too, so that it does not go on beside the
 * one who gets its message next.) */
#include "sidecar/sidecar_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_MS 1000 /* between asking a program to end and ending it */

enum err program_open(struct program *p, const char *command, struct fault *why)
{
    *p = (struct program){0};
    enum err err = words_split(command, &p->words, why);
    if (!err)
        err = words_program(p->words, &p->path, why);
    /* Handlers must not run in the child while it is in our memory; what we ignore it shall not. */
    for (int signal = 1; !err && signal < NSIG && p->n_signals < 64; signal++) {
        struct sigaction now;
        if (sigaction(signal, NULL, &now) == 0 && now.sa_handler != SIG_DFL)
            p->signals[p->n_signals++] = signal;
    }
    return err;
}

void program_clear(struct program *p)
{
    free(take(&p->words));
    free(take(&p->path));
}

void child_init(struct child *c)
{
    *c = (struct child){.fd = -1};
    invariant(pthread_mutex_init(&c->key, NULL) == 0);
}

void child_clear(struct child *c)
{
    (void)pthread_mutex_destroy(&c->key);
}

/* ---- starting ---- */

/* In the child, and in our memory: nothing but system calls. */
static _Noreturn void become(const struct program *p, char *const *env, int in, int out,
                             pid_t parent, volatile int *error)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (size_t i = 0; i < p->n_signals; i++)
        (void)sigaction(p->signals[i], &plain, NULL);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* killed before that */
        _exit(127);
    if ((in >= 0 && dup2(in, STDIN_FILENO) < 0) || (out >= 0 && dup2(out, STDOUT_FILENO) < 0)) {
        *error = errno;
        _exit(127);
    }
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)execve(p->path, p->words, env);
    *error = errno;
    _exit(127);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wclobbered"
static pid_t spawn(const struct program *p, char *const *env, int in, int out, int *error)
{
    volatile int failed = 0;
    sigset_t all, before;
    pid_t parent = getpid();
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = vfork(); /* NOLINT: see above */
    if (pid == 0)
        become(p, env, in, out, parent, &failed);
    int os = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    *error = pid < 0 ? os : failed;
    return pid;
}
#pragma GCC diagnostic pop

enum err child_start(struct child *c, const struct program *p, char *const *env, int in, int out,
                     struct fault *why)
{
    int error = 0;
    pid_t pid = spawn(p, env, in, out, &error);
    if (pid > 0 && error)
        (void)waitpid(pid, NULL, 0);
    int fd = pid > 0 && !error ? pidfd_open(pid, 0) : -1;
    if (pid > 0 && !error && fd < 0) {
        error = errno;
        (void)kill(-pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    if (error) {
        errno = error;
        return fault_os(why, "starting %s", p->path);
    }
    invariant(pthread_mutex_lock(&c->key) == 0);
    c->pid = pid;
    c->fd = fd;
    invariant(pthread_mutex_unlock(&c->key) == 0);
    return OK;
}

/* ---- waiting, ending ---- */

/* After this its number may be another's, so nobody may kill it any more. */
static void reap(struct child *c, int *status)
{
    invariant(pthread_mutex_lock(&c->key) == 0);
    while (waitpid(c->pid, status, 0) < 0 && errno == EINTR)
        ;
    (void)close(c->fd);
    c->fd = -1;
    c->pid = 0;
    invariant(pthread_mutex_unlock(&c->key) == 0);
}

/* It has ended, but is still there to be asked and killed. */
static bool has_ended(const struct child *c, int within_ms)
{
    struct pollfd at = {.fd = c->fd, .events = POLLIN};
    uint64_t until = now_ns() + (uint64_t)within_ms * NS_PER_MS;
    for (;;) {
        uint64_t now = now_ns();
        int left_ms = now < until ? (int)((until - now + NS_PER_MS - 1) / NS_PER_MS) : 0;
        int n = poll(&at, 1, left_ms);
        if (n > 0)
            return true;
        if (n == 0 && now_ns() >= until)
            return false;
    }
}

enum err child_wait(struct child *c, int timeout_ms, int *status)
{
    if (!has_ended(c, timeout_ms))
        return ERR_TIMEOUT;
    reap(c, status);
    return OK;
}

void child_kill(struct child *c, int signal)
{
    invariant(pthread_mutex_lock(&c->key) == 0);
    if (c->pid > 0)
        (void)kill(-c->pid, signal);
    invariant(pthread_mutex_unlock(&c->key) == 0);
}

/* The rest of its group, too, which may have outlived it. */
void child_end(struct child *c, int *status)
{
    child_kill(c, SIGTERM);
    (void)has_ended(c, GRACE_MS);
    child_kill(c, SIGKILL);
    while (!has_ended(c, GRACE_MS))
        ;
    reap(c, status);
}

void status_text(int status, char *out, size_t size)
{
    if (WIFSIGNALED(status))
        (void)snprintf(out, size, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        (void)snprintf(out, size, "exit status %d", WEXITSTATUS(status));
}
