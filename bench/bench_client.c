/* bench_client - what liboncemq costs; bench/client.py compares it with others.
 *
 *     bench_client async names topic count flight    1 KiB each, `flight` of them under way
 *     bench_client sync names topic count broker     one after the other, and the same on a bare
 *                                                    socket to that address, in turns
 *     bench_client threads names topic count n       one after the other in each of n threads
 *     bench_client first names topic                 from main() to the first receipt
 *     bench_client consume names topic count group   so many of its messages to a push consumer
 *
 * Prints one line of JSON. Linked with the shared library, as an application would be. */
#include "remoting/codes.h"
#include "remoting/remoting.h"
#include <oncemq.h>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIZE        1024
#define WARM        2000
#define ROUNDS      10
#define THREADS_MAX 64

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_s(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* What is resident, and how much of it is this process's alone. */
static void memory_kb(long *resident, long *own)
{
    char line[256];
    *resident = *own = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file)) {
        long n;
        if (sscanf(line, "Rss: %ld", &n) == 1)
            *resident = n;
        if (sscanf(line, "Private_Dirty: %ld", &n) == 1)
            *own = n;
    }
    if (file)
        (void)fclose(file);
}

static struct omq_client *client;
static struct omq_producer *producer;
static char body[SIZE];
static struct omq_message message = {.body = body, .body_size = sizeof body};

static void fail(const char *what)
{
    (void)fprintf(stderr, "%s\n", what);
    exit(1);
}

static void open_all(const char *names, const char *topic)
{
    struct omq_error why;
    const struct omq_producer_options o = {.group = "bench"};
    message.topic = topic;
    memset(body, 'x', sizeof body);
    if (omq_client_open(&(struct omq_client_options){.names = names}, &client, &why) ||
        omq_producer_open(client, &o, &producer, &why) || omq_send(producer, &message, NULL, &why))
        fail(why.text);
}

/* ---- async ---- */

static sem_t room;
static atomic_long failed;

static void sent(void *user, const struct omq_receipt *receipt, const struct omq_error *why)
{
    (void)user;
    (void)why;
    if (!receipt)
        atomic_fetch_add(&failed, 1);
    (void)sem_post(&room);
}

static void send_many(long count, unsigned flight)
{
    struct omq_error why;
    for (long i = 0; i < count; i++) {
        (void)sem_wait(&room);
        if (omq_send_async(producer, &message, sent, NULL, &why))
            fail(why.text);
    }
    for (unsigned i = 0; i < flight; i++)
        (void)sem_wait(&room);
    for (unsigned i = 0; i < flight; i++)
        (void)sem_post(&room);
}

static void async(long count, unsigned flight)
{
    (void)sem_init(&room, 0, flight);
    send_many(WARM, flight);
    double wall = now_s(), cpu = cpu_s();
    send_many(count, flight);
    wall = now_s() - wall;
    cpu = cpu_s() - cpu;
    long resident, own;
    memory_kb(&resident, &own);
    (void)printf("{\"per_second\":%.0f,\"per_core\":%.0f,\"failed\":%ld,\"resident_kb\":%ld,"
                 "\"own_kb\":%ld}\n",
                 (double)count / wall, (double)count / cpu, atomic_load(&failed), resident, own);
}

/* ---- sync ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_size);
    return values[n / 2];
}

static int dial(const char *address)
{
    char host[64];
    const char *colon = strrchr(address, ':');
    if (!colon || colon - address >= (long)sizeof host)
        fail("the broker is not host:port");
    (void)snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)strtol(colon + 1, NULL, 10))};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1 ||
        connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        fail("the broker cannot be reached");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* The same request that the library makes, but for its properties. */
static size_t frame_make(uint8_t *out, size_t size, const char *topic)
{
    struct wr w = wr_over(out, size);
    struct frame_out f;
    frame_begin(&f, &w, HEAD_JSON, &(struct head_start){.code = REQ_SEND_MESSAGE_V2, .opaque = 1});
    frame_put(&f, BYTES("a"), BYTES("bench"));
    frame_put(&f, BYTES("b"), bytes_str(topic));
    frame_put(&f, BYTES("c"), BYTES("TBW102"));
    frame_put_int(&f, BYTES("d"), 4);
    frame_put_int(&f, BYTES("e"), 0);
    frame_put_int(&f, BYTES("f"), 0);
    frame_put_int(&f, BYTES("g"), 1700000000000);
    frame_put_int(&f, BYTES("h"), 0);
    frame_put(&f, BYTES("i"), BYTES("WAIT\1true\2UNIQ_KEY\00170000000000000000000000000000000\2"));
    frame_put_int(&f, BYTES("j"), 0);
    frame_put_bool(&f, BYTES("k"), false);
    frame_put_bool(&f, BYTES("m"), false);
    frame_end_head(&f, SIZE);
    wr_bytes_of(&w, bytes_of(body, SIZE));
    return wr_len(&w);
}

static void bare_send(int fd, const uint8_t *frame, size_t size)
{
    uint8_t in[4096];
    size_t have = 0;
    if (send(fd, frame, size, 0) != (ssize_t)size)
        fail("the bare socket does not take a frame");
    while (have < 4 || have < 4 + load_u32(in)) {
        ssize_t n = recv(fd, in + have, sizeof in - have, 0);
        if (n <= 0)
            fail("the bare socket gets no answer");
        have += (size_t)n;
    }
}

static void sync_(long count, const char *broker)
{
    static uint8_t frame[SIZE + 1024];
    int fd = dial(broker);
    size_t size = frame_make(frame, sizeof frame, message.topic);
    size_t n = (size_t)count / ROUNDS;
    double *ours = calloc(n * ROUNDS, sizeof *ours), *bare = calloc(n * ROUNDS, sizeof *bare);
    if (!ours || !bare)
        fail("no memory");
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < n; i++) {
            double begin = now_s();
            if (omq_send(producer, &message, NULL, NULL))
                fail("a message was not sent");
            ours[round * n + i] = (now_s() - begin) * 1e6;
        }
        for (size_t i = 0; i < n; i++) {
            double begin = now_s();
            bare_send(fd, frame, size);
            bare[round * n + i] = (now_s() - begin) * 1e6;
        }
    }
    long resident, own;
    memory_kb(&resident, &own);
    (void)printf("{\"median_us\":%.1f,\"bare_us\":%.1f,\"resident_kb\":%ld,\"own_kb\":%ld}\n",
                 median(ours, n * ROUNDS), median(bare, n * ROUNDS), resident, own);
    (void)close(fd);
    free(ours);
    free(bare);
}

/* ---- threads ---- */

static void *send_in_turn(void *arg)
{
    for (long left = *(const long *)arg; left > 0; left--)
        if (omq_send(producer, &message, NULL, NULL))
            fail("a message was not sent");
    return NULL;
}

static void threads(long count, size_t n)
{
    pthread_t ids[THREADS_MAX];
    n = n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : n;
    long each = count / (long)n;
    double wall = now_s(), cpu = cpu_s();
    for (size_t i = 0; i < n; i++)
        if (pthread_create(&ids[i], NULL, send_in_turn, &each) != 0)
            fail("no thread");
    for (size_t i = 0; i < n; i++)
        (void)pthread_join(ids[i], NULL);
    wall = now_s() - wall;
    cpu = cpu_s() - cpu;
    double sends = (double)each * (double)n;
    (void)printf("{\"per_second\":%.0f,\"per_core\":%.0f}\n", sends / wall, sends / cpu);
}

static atomic_long handled;

static int handle(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
{
    (void)user, (void)messages, (void)done;
    atomic_fetch_add(&handled, (long)n);
    for (size_t i = 0; i < n; i++)
        (void)sem_post(&room);
    return OMQ_DONE;
}

/* As it comes, with its 20 threads. */
static void consume(const char *names, const char *topic, long count, const char *group)
{
    struct omq_error why;
    struct omq_consumer *consumer;
    struct omq_subscription what = {.topic = topic};
    (void)sem_init(&room, 0, 0);
    if (omq_client_open(&(struct omq_client_options){.names = names}, &client, &why) ||
        omq_consumer_open(client,
                          &(struct omq_consumer_options){.group = group,
                                                         .subscriptions = &what,
                                                         .n_subscriptions = 1,
                                                         .start = OMQ_FROM_FIRST,
                                                         .handle = handle},
                          &consumer, &why))
        fail(why.text);
    for (long i = 0; i < count; i++)
        (void)sem_wait(&room);
    long resident, own;
    memory_kb(&resident, &own);
    (void)printf("{\"handled\":%ld,\"resident_kb\":%ld,\"own_kb\":%ld}\n", atomic_load(&handled),
                 resident, own);
    omq_consumer_close(consumer);
    omq_client_close(client);
}

int main(int argc, char **argv)
{
    double begin = now_s();
    if (argc > 5 && strcmp(argv[1], "consume") == 0) {
        consume(argv[2], argv[3], strtol(argv[4], NULL, 10), argv[5]);
        return 0;
    }
    if (argc < 4)
        fail("bench_client async|sync|threads|first|consume names topic …");
    open_all(argv[2], argv[3]);
    double first_ms = (now_s() - begin) * 1e3;
    if (strcmp(argv[1], "async") == 0 && argc > 5)
        async(strtol(argv[4], NULL, 10), (unsigned)strtol(argv[5], NULL, 10));
    else if (strcmp(argv[1], "sync") == 0 && argc > 5)
        sync_(strtol(argv[4], NULL, 10), argv[5]);
    else if (strcmp(argv[1], "threads") == 0 && argc > 5)
        threads(strtol(argv[4], NULL, 10), (size_t)strtol(argv[5], NULL, 10));
    else
        (void)printf("{\"first_ms\":%.2f}\n", first_ms);
    omq_client_close(client);
    return 0;
}
