/* progress.c - long work: how far it is, and how it ends when somebody wants it to. */
#include "cli/out_int.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define DRAW_EVERY_MS 100
#define SHOW_AFTER_MS 300 /* what is over sooner needs no bar */
#define BAR           24

static void draw(struct progress *p, int64_t now)
{
    double seconds = (double)(now - p->began_ms) / 1000,
           rate = seconds > 0 ? (double)p->done / seconds : 0;
    char left[32] = "";
    if (p->total > 0) {
        uint64_t done = p->done < p->total ? p->done : p->total;
        int full = (int)((double)done / (double)p->total * BAR);
        if (rate > 0)
            duration_text((int64_t)((double)(p->total - done) / rate * 1000), left);
        static const char line[] = "########################"; /* BAR of them */
        static_assert(sizeof line == BAR + 1, "the bar is as long as it says");
        (void)fprintf(stderr, "\r\033[K%s [%.*s%*s] %llu/%llu  %.0f/s  %s left", p->what, full,
                      line, BAR - full, "", (unsigned long long)done, (unsigned long long)p->total,
                      rate, *left ? left : "?");
    } else {
        (void)fprintf(stderr, "\r\033[K%s %llu  %.0f/s", p->what, (unsigned long long)p->done,
                      rate);
    }
    (void)fflush(stderr);
    p->shown_ms = now;
}

void progress_begin(struct progress *p, struct cli *cli, const char *what, uint64_t total)
{
    *p = (struct progress){.cli = cli, .what = what, .total = total, .began_ms = now_ms()};
    p->visible = cli->terminal_err && !cli->quiet && !cli->json;
    p->shown_ms = p->began_ms + SHOW_AFTER_MS - DRAW_EVERY_MS;
}

void progress_move(struct progress *p, uint64_t done)
{
    p->done = done;
    if (!p->visible)
        return;
    int64_t now = now_ms();
    if (now - p->shown_ms >= DRAW_EVERY_MS)
        draw(p, now);
}

void progress_end(struct progress *p)
{
    if (p->visible && p->shown_ms >= p->began_ms + SHOW_AFTER_MS)
        (void)fputs("\r\033[K", stderr);
    (void)fflush(stderr);
    p->visible = false;
}

/* ---- the end on request: signals are the process's, so this is the one place that is ---- */

static _Atomic bool stopped;
static int stop_pipe[2] = {-1, -1}; /* readable once somebody wants us to stop */

static void on_stop(int number)
{
    int saved = errno;
    stopped = true;
    (void)!write(stop_pipe[1], "", 1);
    (void)signal(number, SIG_DFL); /* the next one ends us at once */
    errno = saved;
}

void cli_catch_stop(struct cli *cli)
{
    (void)cli;
    if (stop_pipe[0] >= 0 || pipe2(stop_pipe, O_CLOEXEC | O_NONBLOCK))
        return;
    struct sigaction action = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

bool cli_stopped(const struct cli *cli)
{
    (void)cli;
    return stopped;
}

void cli_wait(const struct cli *cli, int64_t ms)
{
    if (!cli_stopped(cli))
        cli_wait_for(cli, NULL, 0, ms);
}

#define WAIT_MAX 8

void cli_wait_for(const struct cli *cli, const int *fds, size_t n, int64_t ms)
{
    struct pollfd wanted[WAIT_MAX + 1];
    invariant(n <= WAIT_MAX);
    nfds_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (fds[i] >= 0)
            wanted[count++] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    if (stop_pipe[0] >= 0 && !cli_stopped(cli)) /* it is heard of once */
        wanted[count++] = (struct pollfd){.fd = stop_pipe[0], .events = POLLIN};
    if (ms > 0)
        (void)poll(wanted, count, ms > 3600000 ? 3600000 : (int)ms);
}
