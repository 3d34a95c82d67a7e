/* names_test.h - a name server with a clock of its own, and short words for what brokers say to it.
 *
 * Only for the x_test.c files of this folder.
 */
#ifndef NAMESRV_NAMES_TEST_H
#define NAMESRV_NAMES_TEST_H

#include "base/test.h"
#include "namesrv/names_int.h"

#include <stdio.h>

static struct names *names;
static struct clock_manual test_clock;
static struct arena arena;
static struct fault why;
static struct names_registered registered; /* the last answer */

static inline void test_open(struct names_options options)
{
    clock_manual_init(&test_clock, 1700000000000);
    options.clock = &test_clock.clock;
    options.seed = 7;
    why = (struct fault){0};
    arena_init(&arena, 64 << 20);
    assert_int_equal(names_open(&options, &names, &why), OK);
}

static inline int test_setup(void **state)
{
    (void)state;
    test_open((struct names_options){0});
    return 0;
}

static inline int test_teardown(void **state)
{
    (void)state;
    names_close(names);
    names = NULL;
    arena_clear(&arena);
    return 0;
}

/* A broker as a test says it: "broker-a", id 0, its address. */
static inline struct names_broker broker_of(const char *name, int64_t id, const char *addr)
{
    return (struct names_broker){.cluster = BYTES("C1"),
                                 .name = bytes_str(name),
                                 .addr = bytes_str(addr),
                                 .ha_addr = BYTES("10.9.9.9:10912"),
                                 .id = id};
}

static inline struct topic_settings topic_of(const char *name, int32_t queues)
{
    return (struct topic_settings){.name = bytes_str(name),
                                   .read_queues = queues,
                                   .write_queues = queues,
                                   .perm = PERM_READ | PERM_WRITE};
}

static inline struct data_version version_of(int64_t state, int64_t counter)
{
    return (struct data_version){.state = state, .timestamp = 1000, .counter = counter};
}

static inline enum err try_register(const struct names_broker *b, struct data_version version,
                                    const struct topic_settings *topics, size_t n)
{
    arena_reset(&arena);
    why = (struct fault){0};
    registered = (struct names_registered){0};
    return names_register(names, b, &version, topics, n, &arena, &registered, &why);
}

/* Registers with the topics T1 (4 queues) and T2 (8), in version `counter`. */
static inline void register_usual(struct names_broker b, int64_t counter)
{
    const struct topic_settings topics[] = {topic_of("T1", 4), topic_of("T2", 8)};
    enum err err = try_register(&b, version_of(0, counter), topics, 2);
    if (err)
        print_error("%s\n", why.text);
    assert_int_equal(err, OK);
}

static inline void add_text(char *out, size_t size, const char *format, ...) printf_like(3, 4);
static inline void add_text(char *out, size_t size, const char *format, ...)
{
    size_t used = strlen(out);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(out + used, size - used, format, args);
    va_end(args);
}

/* "broker-a 0=10.0.0.1:1 1=10.0.0.2:1 4/4 rw; …", or "?" for a topic that is not known. */
static inline const char *route_text(const char *topic)
{
    static char text[2048];
    text[0] = 0;
    struct route r;
    arena_reset(&arena);
    enum err err = names_route(names, bytes_str(topic), &arena, &r, &why);
    if (err == ERR_UNKNOWN_TOPIC)
        return "?";
    assert_int_equal(err, OK);
    assert_int_equal(r.n_brokers, r.n_queues);
    for (size_t i = 0; i < r.n_brokers; i++) {
        const struct route_broker *b = &r.brokers[i];
        const struct route_queues *q = &r.queues[i];
        assert_bytes_equal(b->name, q->broker_name);
        add_text(text, sizeof text, "%s%.*s", i ? "; " : "", BYTES_ARG(b->name));
        for (size_t k = 0; k < b->n_addrs; k++)
            add_text(text, sizeof text, " %" PRId64 "=%.*s", b->addrs[k].id,
                     BYTES_ARG(b->addrs[k].addr));
        add_text(text, sizeof text, " %d/%d %s%s", q->read_queues, q->write_queues,
                 q->perm & PERM_READ ? "r" : "-", q->perm & PERM_WRITE ? "w" : "-");
    }
    return text;
}

#define assert_route(topic, wanted) assert_string_equal(route_text(topic), wanted)

/* "C1: broker-a broker-b; C2: broker-c" */
static inline const char *clusters_text(void)
{
    static char text[2048];
    text[0] = 0;
    struct route_broker *brokers;
    struct cluster_names *clusters;
    size_t n_brokers, n_clusters;
    arena_reset(&arena);
    assert_int_equal(names_clusters(names, &arena, &brokers, &n_brokers, &clusters, &n_clusters),
                     OK);
    for (size_t i = 0; i < n_clusters; i++) {
        add_text(text, sizeof text, "%s%.*s:", i ? "; " : "", BYTES_ARG(clusters[i].cluster));
        for (size_t k = 0; k < clusters[i].n_brokers; k++)
            add_text(text, sizeof text, " %.*s", BYTES_ARG(clusters[i].brokers[k]));
    }
    return text;
}

#endif
