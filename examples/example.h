/* example.h - what the programs in these folders need and none of them is about: the end by Ctrl-C,
 * lines of the log, a field of a message, work that takes its time. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <oncemq.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Before there are threads: those of the library then leave Ctrl-C to us. */
static inline sigset_t hold_ctrl_c(void)
{
    sigset_t end;
    (void)sigemptyset(&end);
    (void)sigaddset(&end, SIGINT);
    (void)sigaddset(&end, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &end, NULL);
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* lines are seen when they are written */
    return end;
}

static inline void await_ctrl_c(const sigset_t *end)
{
    int signal;
    (void)sigwait(end, &signal);
}

/* For .log: what the library would like to tell. */
static inline void log_line(void *user, int level, const char *line)
{
    (void)user;
    if (level >= OMQ_INFO)
        (void)fprintf(stderr, "%s\n", line);
}

/* The value of a field in a flat JSON body, as text. A real program has a JSON library for this. */
static inline bool field(const struct omq_delivery *message, const char *name, char *out,
                         size_t size)
{
    char body[512], mark[64];
    (void)snprintf(body, sizeof body, "%.*s", (int)message->body_size, (const char *)message->body);
    (void)snprintf(mark, sizeof mark, "\"%s\":", name);
    const char *at = strstr(body, mark);
    if (!at)
        return false;
    at += strlen(mark);
    at += *at == '"';
    int n = snprintf(out, size, "%.*s", (int)strcspn(at, "\",}"), at);
    return n > 0 && (size_t)n < size;
}

/* What is done here would be a call of a service or a slow disk in earnest: long enough to be
 * killed in the middle. */
static inline void take_time(void)
{
    (void)usleep(20000);
}

#endif
