/* consumer.c - a consumer with `once`, as an application would have it: started, killed and started
 * again by tests.
 *
 *     consumer NAMES GROUP TOPIC URL MODE FILE [option=value …]
 *
 * The effect of a message is a row in its transaction (modes transaction and offset), else a line
 * in FILE: "KEY FENCE", and " overtook" when an earlier run of the key never ended. KEY is the
 * message's; in mode offset, where a message is known by its place, its id. Prints "ready", and at
 * the end of its input closes and prints its numbers.
 *
 *     sleep=MS fail=PERCENT     what a handler does before its effect
 *     hang=KEY                  the handler of that message says "at KEY" and never returns
 *     linger=MS                 stays after everything was closed, and says how often it was called
 */
#include "business.h"
#include "once.h"
#include "oncemq.h"

#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *url, *file, *hang;
static int mode, sleep_ms, fail_percent, linger_ms;
static _Atomic unsigned dice = 1;
static _Atomic unsigned long handled;

static unsigned roll(void)
{
    unsigned x = atomic_load(&dice);
    atomic_store(&dice, x * 1664525u + 1013904223u);
    return x >> 8;
}

static int effect(const struct omq_delivery *d)
{
    const char *name = mode == ONCE_OFFSET ? d->id : d->keys;
    if (mode >= ONCE_TRANSACTION)
        return business_run(business_of(url), once_run_connection(d->run),
                            "INSERT INTO effects VALUES ('%s')", name)
                   ? OMQ_DONE
                   : OMQ_LATER;
    char line[300];
    int n = snprintf(line, sizeof line, "%s %" PRId64 "%s\n", name, once_run_fence(d->run),
                     once_run_overtook(d->run) ? " overtook" : "");
    int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    bool good = fd >= 0 && write(fd, line, (size_t)n) == n;
    (void)close(fd);
    return good ? OMQ_DONE : OMQ_LATER;
}

static int handle(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
{
    (void)user;
    for (; *done < n; ++*done) {
        const struct omq_delivery *d = messages[*done];
        struct timespec pause = {sleep_ms / 1000, sleep_ms % 1000 * 1000000L};
        atomic_fetch_add(&handled, 1);
        if (hang && strcmp(hang, d->keys) == 0) {
            printf("at %s\n", d->keys);
            (void)fflush(stdout);
            for (;;)
                (void)sleep(1000);
        }
        if (sleep_ms)
            (void)nanosleep(&pause, NULL);
        if ((int)(roll() % 100) < fail_percent || once_run_lost(d->run) || effect(d) != OMQ_DONE)
            return OMQ_LATER;
    }
    return OMQ_DONE;
}

static void show(void *user, int level, const char *line)
{
    (void)user;
    (void)fprintf(stderr, "%d %s\n", level, line);
}

static bool is(const char *pair, const char *name, const char **value)
{
    size_t n = strlen(name);
    *value = pair + n + 1;
    return strncmp(pair, name, n) == 0 && pair[n] == '=';
}

static void set(const char *pair, struct omq_consumer_options *o, struct once_options *with)
{
    const char *value;
    if (is(pair, "expiry", &value))
        with->expiry_ms = strtol(value, NULL, 10);
    else if (is(pair, "key", &value))
        with->key = value;
    else if (is(pair, "threads", &value))
        o->threads = (int)strtol(value, NULL, 10);
    else if (is(pair, "batch", &value))
        o->batch = (int)strtol(value, NULL, 10);
    else if (is(pair, "ordered", &value))
        o->ordered = strtol(value, NULL, 10);
    else if (is(pair, "pop", &value))
        o->pop = strtol(value, NULL, 10);
    else if (is(pair, "lock", &value))
        o->lock_ms = (int)strtol(value, NULL, 10);
    else if (is(pair, "retries", &value))
        o->max_attempts = (int)strtol(value, NULL, 10);
    else if (is(pair, "sleep", &value))
        sleep_ms = (int)strtol(value, NULL, 10);
    else if (is(pair, "fail", &value))
        fail_percent = (int)strtol(value, NULL, 10);
    else if (is(pair, "timeout", &value))
        o->timeout_ms = (int)strtol(value, NULL, 10);
    else if (is(pair, "close", &value))
        o->close_ms = (int)strtol(value, NULL, 10);
    else if (is(pair, "linger", &value))
        linger_ms = (int)strtol(value, NULL, 10);
    else if (is(pair, "hang", &value))
        hang = value;
    else
        errx(2, "%s: no such option", pair);
}

static void numbers(const struct once *once)
{
    struct once_stats s;
    once_stats(once, &s);
    printf("handled=%lu first_runs=%" PRIu64 " duplicates=%" PRIu64 " busy=%" PRIu64
           " lost=%" PRIu64 " unsure=%" PRIu64 " released=%" PRIu64 " store_errors=%" PRIu64
           " running=%" PRIu64 "\n",
           atomic_load(&handled), s.first_runs, s.duplicates, s.busy, s.lost, s.unsure, s.released,
           s.store_errors, s.running);
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"lease", "table", "transaction", "offset"};
    if (argc < 7)
        return 2;
    while (mode < 4 && strcmp(modes[mode], argv[5]) != 0)
        mode++;
    url = strcmp(argv[4], "-") == 0 ? NULL : argv[4]; /* none named: the broker's own ledger */
    file = argv[6];
    dice = (unsigned)getpid();
    struct once_options with = {.store = url, .mode = mode, .create = true};
    struct omq_subscription topic = {.topic = argv[3]};
    struct omq_consumer_options o = {
        .group = argv[2],
        .subscriptions = &topic,
        .n_subscriptions = 1,
        .handle = handle,
        .start = OMQ_FROM_FIRST,
        .once = &with,
        .suspend_ms = 100,
    };
    for (int i = 7; i < argc; i++)
        set(argv[i], &o, &with);
    if (mode >= ONCE_TRANSACTION)
        business_open(url);
    struct omq_client_options to = {.names = argv[1], .log = show};
    struct omq_client *client;
    struct omq_consumer *consumer;
    struct omq_error why;
    if (omq_client_open(&to, &client, &why) || omq_consumer_open(client, &o, &consumer, &why))
        errx(1, "%s", why.text);
    puts("ready");
    (void)fflush(stdout);
    while (getchar() != EOF)
        numbers(omq_consumer_once(consumer));
    numbers(omq_consumer_once(consumer));
    omq_consumer_close(consumer);
    omq_client_close(client);
    if (linger_ms) {
        puts("closed");
        (void)fflush(stdout);
        struct timespec pause = {linger_ms / 1000, linger_ms % 1000 * 1000000L};
        (void)nanosleep(&pause, NULL);
        printf("called %lu\n", atomic_load(&handled));
    }
    return 0;
}
