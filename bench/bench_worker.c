/* bench_worker - the least that a worker of `oncemq run --pipe` can be: it says done to every
 * message, reading and writing in big pieces.
 *
 *     bench_worker            lines of JSON in, answers out
 *     bench_worker spawn N T  fork and exec of /bin/true N times by each of T threads: what
 * programs cost without anything around them; prints how many a second
 */
#include <pthread.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHUNK (1 << 20)

static char in[8 * CHUNK], out[2 * CHUNK];

static int flush(size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t put = write(STDOUT_FILENO, out + at, n - at);
        if (put <= 0)
            return -1;
        at += (size_t)put;
    }
    return 0;
}

/* The id stands first in a line: {"id":"…", */
static size_t answer(const char *line, size_t n_out)
{
    const char *id = line + strlen("{\"id\":\"");
    size_t n = (size_t)(strchr(id, '"') - id);
    return n_out + (size_t)snprintf(out + n_out, 200, "{\"id\":\"%.*s\",\"result\":\"done\"}\n",
                                    (int)(n < 100 ? n : 100), id);
}

static int work(void)
{
    size_t have = 0;
    for (;;) {
        ssize_t got = read(STDIN_FILENO, in + have, sizeof in - have);
        if (got <= 0)
            return 0;
        have += (size_t)got;
        size_t at = 0, n_out = 0;
        for (char *end; (end = memchr(in + at, '\n', have - at)); at = (size_t)(end - in) + 1) {
            n_out = answer(in + at, n_out);
            if (n_out > sizeof out - 200) {
                if (flush(n_out))
                    return 1;
                n_out = 0;
            }
        }
        if (flush(n_out))
            return 1;
        memmove(in, in + at, have - at);
        have -= at;
    }
}

static bool by_fork;

static void *spawn_run(void *arg)
{
    char program[] = "/bin/true", *const words[] = {program, NULL};
    for (int i = *(int *)arg; i > 0; i--) {
        pid_t pid = by_fork ? fork() : -1;
        if (pid == 0) {
            (void)execve(words[0], words, environ);
            _exit(127);
        }
        if (!by_fork && posix_spawn(&pid, program, NULL, NULL, words, environ))
            exit(1);
        if (pid < 0 || waitpid(pid, NULL, 0) != pid)
            exit(1);
    }
    return NULL;
}

static int spawn(int n, int n_threads)
{
    pthread_t threads[64];
    struct timespec from, to;
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, spawn_run, &n))
            return 1;
    for (int i = 0; i < n_threads; i++)
        (void)pthread_join(threads[i], NULL);
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    double s = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    return printf("%.1f\n", (double)n * n_threads / s) < 0;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return work();
    by_fork = strcmp(argv[1], "fork") == 0;
    return spawn((int)strtol(argv[2], NULL, 10), (int)strtol(argv[3], NULL, 10) % 64);
}
