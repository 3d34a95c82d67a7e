/* bench_ledger.c - what `broker:` costs, beside the same broker without it.
 *
 *     bench_ledger NAMES [PART]   of a broker of one's own: bench/ledger.py starts it
 *
 *     keys         claims and completions a second, 64 of them in flight
 *     consumption  a consumer with `once` beside one without, on the same messages: as it comes,
 *                  and with 64 messages in two hands
 *     round trip   a claim beside a request that asks for nothing but an offset
 *
 * Each pair takes turns; of all rounds the median counts. The parts `plain` and `exact` are one
 * kind of consumption with 64 in two hands alone, for who wants to look at it with a profiler.
 */
#include "once.h"
#include "oncemq.h"

#include <err.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS     7
#define IN_FLIGHT  64
#define KEYS       200000 /* of a round */
#define MESSAGES   200000
#define TRIPS      3000
#define BATCH      32
#define MAX_OFFSET 30 /* GET_MAX_OFFSET */

static struct omq_client *client;
static const char *names;
static unsigned long run_number; /* keys of this run are not those of the one before */

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *all, size_t n)
{
    qsort(all, n, sizeof *all, by_size);
    return all[n / 2];
}

static bool verdict(const char *what, double is, const char *unit, bool good, const char *target)
{
    printf("ledger: %s: %.2f %s, target %s %s\n", what, is, unit, target, good ? "PASS" : "MISS");
    (void)fflush(stdout);
    return good;
}

static struct once *store_open(void)
{
    struct omq_client_options to = {.names = names};
    struct once_options with = {.store = "broker:", .group = "bench", .client = &to};
    struct once *once;
    struct once_error why;
    if (once_open(&with, &once, &why))
        errx(1, "%s", why.text);
    return once;
}

/* ---- keys ---- */

struct hand {
    struct once *once;
    unsigned n, number; /* keys at a time; which hand */
    pthread_t thread;
};

static _Atomic uint64_t next_key;

static void keys_turn(const struct hand *hand)
{
    struct once_message messages[IN_FLIGHT];
    struct once_run *runs[IN_FLIGHT];
    struct once_answer answers[IN_FLIGHT];
    static const int done[IN_FLIGHT]; /* ONCE_DONE */
    char keys[IN_FLIGHT][48];
    uint64_t key = atomic_fetch_add(&next_key, hand->n);
    for (unsigned i = 0; i < hand->n; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "order-%lx-%" PRIu64, run_number, key + i);
        messages[i] = (struct once_message){
            .topic = "Orders", .keys = keys[i], .id = keys[i], .body = "b", .body_size = 1};
    }
    once_begin_all(hand->once, messages, hand->n, runs, answers);
    for (unsigned i = 0; i < hand->n; i++)
        if (!runs[i])
            errx(1, "not ours: %s %s", once_cause_text(answers[i].cause), answers[i].why.text);
    once_end_all(runs, done, hand->n, answers);
    for (unsigned i = 0; i < hand->n; i++) {
        if (answers[i].verdict == ONCE_RUN)
            (void)once_end(runs[i], ONCE_DONE, &answers[i]);
        if (answers[i].verdict != ONCE_ACK)
            errx(1, "not done: %s", answers[i].why.text);
    }
}

static void *keys_run(void *arg)
{
    const struct hand *hand = arg;
    for (unsigned i = 0; i < KEYS / IN_FLIGHT; i++)
        keys_turn(hand);
    return NULL;
}

/* So many hands, IN_FLIGHT keys in all. */
static double keys_rate(struct once *once, unsigned hands)
{
    struct hand all[IN_FLIGHT];
    double begin = now();
    for (unsigned i = 0; i < hands; i++) {
        all[i] = (struct hand){.once = once, .n = IN_FLIGHT / hands, .number = i};
        if (pthread_create(&all[i].thread, NULL, keys_run, &all[i]))
            errx(1, "no thread");
    }
    for (unsigned i = 0; i < hands; i++)
        (void)pthread_join(all[i].thread, NULL);
    size_t keys = KEYS / IN_FLIGHT * IN_FLIGHT; /* each has as many as the others */
    return (double)keys / (now() - begin);
}

static bool keys(void)
{
    struct once *once = store_open();
    bool good = true;
    static const unsigned hands[] = {2, 1, 64};
    for (size_t i = 0; i < sizeof hands / sizeof *hands; i++) {
        double rates[ROUNDS];
        for (int round = 0; round < ROUNDS; round++)
            rates[round] = keys_rate(once, hands[i]);
        char what[80];
        (void)snprintf(what, sizeof what, "keys, 64 in flight in %u threads", hands[i]);
        double rate = median(rates, ROUNDS);
        bool is = verdict(what, rate, "a second", rate >= 150000, "150000");
        good = good && (is || i > 0); /* what other numbers of threads do is for information */
    }
    once_close(once);
    return good;
}

/* ---- consumption ---- */

static void preload(const char *topic)
{
    struct omq_producer_options as = {.group = "bench"};
    struct omq_producer *producer;
    struct omq_error why;
    if (omq_producer_open(client, &as, &producer, &why))
        errx(1, "%s", why.text);
    static struct omq_message batch[100];
    static char keys[100][24];
    char body[128];
    memset(body, 'x', sizeof body);
    for (unsigned i = 0; i < MESSAGES; i += 100) {
        for (unsigned k = 0; k < 100; k++) {
            (void)snprintf(keys[k], sizeof keys[k], "order-%u", i + k);
            batch[k] = (struct omq_message){
                .topic = topic, .keys = keys[k], .body = body, .body_size = sizeof body};
        }
        if (omq_send_batch(producer, batch, 100, NULL, NULL, &why))
            errx(1, "%s", why.text);
    }
    omq_producer_close(producer);
}

static _Atomic unsigned long handled;
static _Atomic bool all_handled;

static int handle(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
{
    (void)user;
    (void)messages;
    (void)done;
    if (atomic_fetch_add(&handled, n) + n >= MESSAGES)
        atomic_store(&all_handled, true);
    return OMQ_DONE;
}

struct shape {
    const char *name;
    int threads, batch; /* 0: whatever a consumer has by itself */
};
static const struct shape as_it_comes = {"as it comes", 0, 0};
static const struct shape two_hands = {"32 in each of two hands", IN_FLIGHT / BATCH, BATCH};

static double consume_rate(const char *topic, const char *group, const struct shape *shape,
                           const struct once_options *once)
{
    struct omq_subscription to = {.topic = topic};
    struct omq_consumer_options o = {.group = group,
                                     .subscriptions = &to,
                                     .n_subscriptions = 1,
                                     .handle = handle,
                                     .start = OMQ_FROM_FIRST,
                                     .threads = shape->threads,
                                     .batch = shape->batch,
                                     .once = once};
    struct omq_consumer *consumer;
    struct omq_error why;
    atomic_store(&handled, 0);
    atomic_store(&all_handled, false);
    if (omq_consumer_open(client, &o, &consumer, &why))
        errx(1, "%s", why.text);
    struct timespec pause = {.tv_nsec = 100000};
    while (atomic_load(&handled) == 0)
        (void)nanosleep(&pause, NULL);
    double begin = now();
    while (!atomic_load(&all_handled))
        (void)nanosleep(&pause, NULL);
    double rate = MESSAGES / (now() - begin);
    omq_consumer_close(consumer);
    return rate;
}

static double consume_as(const char *kind, const char *topic, const struct shape *shape, int round)
{
    struct once_options with = {.key = "{key}"};
    char group[64];
    (void)snprintf(group, sizeof group, "%s%d_%lx_%d", kind, shape->batch, run_number, round);
    return consume_rate(topic, group, shape, strcmp(kind, "exact") == 0 ? &with : NULL);
}

static bool consumption_of(const char *kind)
{
    char topic[48];
    (void)snprintf(topic, sizeof topic, "Bench_%lx", run_number);
    preload(topic);
    for (int i = 0; i < ROUNDS; i++)
        printf("ledger: %s: %.0f a second\n", kind, consume_as(kind, topic, &two_hands, i));
    return true;
}

static bool consumption_in(const char *topic, const struct shape *shape)
{
    double plain[ROUNDS], exact[ROUNDS], ratios[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        plain[i] = consume_as("plain", topic, shape, i);
        exact[i] = consume_as("exact", topic, shape, i);
        ratios[i] = exact[i] / plain[i];
    }
    printf("ledger: consumption, %s: %.0f a second with `once`, %.0f without\n", shape->name,
           median(exact, ROUNDS), median(plain, ROUNDS));
    double ratio = median(ratios, ROUNDS);
    char what[80];
    (void)snprintf(what, sizeof what, "consumption, %s, with beside without", shape->name);
    return verdict(what, ratio, "of it", ratio >= 0.75, "0.75");
}

static bool consumption(void)
{
    char topic[48];
    (void)snprintf(topic, sizeof topic, "Bench_%lx", run_number);
    preload(topic);
    bool good = consumption_in(topic, &as_it_comes);
    return consumption_in(topic, &two_hands) && good;
}

/* ---- round trip ---- */

static char *broker_address(void)
{
    struct omq_answer *answer;
    struct omq_error why;
    if (omq_call(client, NULL, 106, NULL, 0, NULL, 0, 0, &answer, &why))
        errx(1, "%s", why.text);
    const char *at = strstr(answer->body, "\"0\":\"");
    at = at ? at + 5 : strstr(answer->body, "0:\"") + 3;
    char *address = strndup(at, strcspn(at, "\""));
    omq_answer_free(answer);
    return address;
}

static double plain_trip(const char *address)
{
    const struct omq_property fields[] = {{"topic", "TBW102"}, {"queueId", "0"}};
    struct omq_answer *answer;
    struct omq_error why;
    double begin = now();
    if (omq_call(client, address, MAX_OFFSET, fields, 2, NULL, 0, 0, &answer, &why))
        errx(1, "%s", why.text);
    double took = now() - begin;
    omq_answer_free(answer);
    return took;
}

static double claim_trip(struct once *once)
{
    char key[48];
    (void)snprintf(key, sizeof key, "trip-%lx-%" PRIu64, run_number,
                   atomic_fetch_add(&next_key, 1));
    struct once_message m = {.topic = "T", .keys = key, .id = key, .body = "b", .body_size = 1};
    struct once_answer answer;
    struct once_run *run;
    double begin = now();
    if (once_begin(once, &m, &run, &answer) != ONCE_RUN)
        errx(1, "%s", answer.why.text);
    double took = now() - begin;
    (void)once_end(run, ONCE_DONE, &answer);
    return took;
}

static bool round_trip(void)
{
    static double plain[TRIPS], claim[TRIPS];
    struct once *once = store_open();
    char *address = broker_address();
    for (int i = -100; i < TRIPS; i++) {
        double a = plain_trip(address), b = claim_trip(once);
        if (i >= 0) {
            plain[i] = a * 1e6;
            claim[i] = b * 1e6;
        }
    }
    double p = median(plain, TRIPS), c = median(claim, TRIPS);
    printf("ledger: round trip: a claim %.0f us, a plain request %.0f us\n", c, p);
    free(address);
    once_close(once);
    return verdict("round trip, beyond a plain request's", c - p, "us", c - p <= 50, "50");
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    names = argv[1];
    const char *part = argc > 2 ? argv[2] : "";
    run_number = (unsigned long)time(NULL);
    struct omq_client_options to = {.names = names};
    struct omq_error why;
    if (omq_client_open(&to, &client, &why))
        errx(1, "%s", why.text);
    bool good = true;
    if (!*part || strcmp(part, "trip") == 0)
        good = round_trip();
    if (!*part || strcmp(part, "keys") == 0)
        good = keys() && good;
    if (!*part || strcmp(part, "consumption") == 0)
        good = consumption() && good;
    if (strcmp(part, "plain") == 0 || strcmp(part, "exact") == 0)
        good = consumption_of(part);
    omq_client_close(client);
    return good ? 0 : 1;
}
