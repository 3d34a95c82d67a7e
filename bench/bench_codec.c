/* bench_codec.c - what decoding a request's header costs, and that it allocates nothing.
 *
 * The header is a SEND_MESSAGE_V2 with 14 fields, as the Java client 5.5.0 sends it, in both forms.
 * Each measure is the best of many short rounds, so that a neighbour on the machine does not count
 * as ours. The bare loop reads the same bytes once, eight at a time, looking for quotes: nobody who
 * reads every byte can do with much less, so the ratio to it says how much the work itself costs.
 */
#include "remoting/fields.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS         400
#define TIMES          2000 /* per round */
#define TARGET_JSON_NS 600.0
#define TARGET_BIN_NS  150.0

static const char json_text[] =
    "{\"code\":310,\"extFields\":{\"a\":\"vector_producer\",\"b\":\"VectorTopic\",\"c\":\"TBW102\","
    "\"d\":\"4\",\"e\":\"0\",\"f\":\"0\",\"g\":\"1794780859989\",\"h\":\"7\",\"i\":"
    "\"colour\\u0001green\\u0002KEYS\\u0001order-1\\u0002"
    "UNIQ_KEY\\u00017F00000125CD4E0E2F2A4CDEA6550001\\u0002WAIT\\u0001true\\u0002"
    "TAGS\\u0001TagA\\u0002\",\"j\":\"0\",\"k\":\"false\",\"l\":\"16\",\"m\":\"false\","
    "\"n\":\"broker-a\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":11,"
    "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}";

/* ---- every allocation of the code under test comes through here (linked with --wrap) ---- */

static atomic_ulong allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *at, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *at, size_t size);

void *__wrap_malloc(size_t size)
{
    allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    allocations++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *at, size_t size)
{
    allocations++;
    return __real_realloc(at, size);
}

/* ---- what is measured ---- */

struct subject {
    struct bytes json, binary;
    struct frame json_frame, binary_frame;
    uint8_t spare[4096];
    struct head head;
    struct send_fields fields;
};

static size_t sink; /* what a loop found goes here, so that it is not optimised away */

static void bare_loop(struct bytes in)
{
    const uint64_t ones = 0x0101010101010101u, quotes = ones * '"';
    uint64_t found = 0, word;
    size_t at = 0;
    for (; at + sizeof word <= in.len; at += sizeof word) {
        memcpy(&word, in.at + at, sizeof word);
        word ^= quotes;
        found += (word - ones) & ~word & (ones << 7);
        __asm__ volatile("" : "+r"(found)); /* one word after the other, as a scanner goes */
    }
    for (; at < in.len; at++)
        found += in.at[at] == '"';
    sink += found;
}

static void run_bare_json(struct subject *s)
{
    bare_loop(s->json_frame.head);
}

static void run_bare_binary(struct subject *s)
{
    bare_loop(s->binary_frame.head);
}

static void run_json(struct subject *s)
{
    struct wr spare = wr_over(s->spare, sizeof s->spare);
    if (head_decode(&s->json_frame, &spare, &s->head))
        abort();
}

static void run_binary(struct subject *s)
{
    if (head_decode(&s->binary_frame, NULL, &s->head))
        abort();
}

static void run_fields(struct subject *s)
{
    if (fields_read(&send_fields_letters, &s->head, &s->fields, NULL))
        abort();
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The best round, in nanoseconds per call. */
static double measure(void (*run)(struct subject *), struct subject *s)
{
    uint64_t best = UINT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = now_ns();
        for (int i = 0; i < TIMES; i++) {
            run(s);
            __asm__ volatile("" : : "r"(s) : "memory");
        }
        uint64_t took = now_ns() - start;
        best = took < best ? took : best;
    }
    return (double)best / TIMES;
}

/* ---- set-up and report ---- */

static struct bytes frame_json(uint8_t *room)
{
    size_t head = sizeof json_text - 1;
    store_u32(room, (uint32_t)(4 + head));
    store_u32(room + 4, (uint32_t)head);
    memcpy(room + FRAME_PREFIX, json_text, head);
    return bytes_of(room, FRAME_PREFIX + head);
}

/* The same fields in the other form. */
static struct bytes frame_binary(const struct head *from, uint8_t *room, size_t size)
{
    struct wr w = wr_over(room, size);
    struct frame_out f;
    frame_begin(&f, &w, HEAD_BINARY, &(struct head_start){.code = from->code, .opaque = 11});
    for (size_t i = 0; i < from->n_fields; i++)
        frame_put(&f, from->fields[i].name, from->fields[i].value);
    frame_end_head(&f, 0);
    if (w.full)
        abort();
    return wr_bytes(&w);
}

static void line(const char *what, double ns, double bare_ns)
{
    printf("  %-28s %8.1f ns   %5.1f x the bare loop\n", what, ns, ns / bare_ns);
}

static bool judge(const char *what, double ns, double target_ns)
{
    bool good = ns < target_ns;
    printf("%s %s: %.0f ns, target under %.0f ns\n", good ? "PASS" : "MISS", what, ns, target_ns);
    return good;
}

int main(void)
{
    static struct subject s;
    static uint8_t json_room[2048], binary_room[2048];
    size_t need;
    s.json = frame_json(json_room);
    if (frame_split(s.json, &s.json_frame, &need))
        abort();
    run_json(&s);
    s.binary = frame_binary(&s.head, binary_room, sizeof binary_room);
    if (frame_split(s.binary, &s.binary_frame, &need) || s.head.n_fields != 14)
        abort();
    printf("header of SEND_MESSAGE_V2, 14 fields: %zu bytes of JSON, %zu bytes binary\n",
           s.json_frame.head.len, s.binary_frame.head.len);

    unsigned long before = allocations;
    double bare_json = measure(run_bare_json, &s), json = measure(run_json, &s);
    double fields = measure(run_fields, &s);
    double bare_binary = measure(run_bare_binary, &s), binary = measure(run_binary, &s);
    double fields_binary = measure(run_fields, &s);
    unsigned long made = allocations - before;

    line("bare loop over the JSON", bare_json, bare_json);
    line("head_decode, JSON", json, bare_json);
    line("fields_read after it", fields, bare_json);
    line("bare loop over the binary", bare_binary, bare_binary);
    line("head_decode, binary", binary, bare_binary);
    line("fields_read after it", fields_binary, bare_binary);

    bool good = judge("decoding the JSON header", json, TARGET_JSON_NS);
    good &= judge("decoding the binary header", binary, TARGET_BIN_NS);
    printf("%s allocations while measuring: %lu, target 0\n", made ? "MISS" : "PASS", made);
    return good && made == 0 ? 0 : 1;
}
