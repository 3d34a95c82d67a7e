/* client_parts.c - the pure parts of our client, asked line by line.
 *
 * Reads the questions that ClientOracle.java describes and answers each on a line, from our code
 * instead of the Java client's; client_parts.py compares. An error is "X".
 */
#include "client/parts_int.h"
#include "msg/msg.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS_MAX 24
#define LIST_MAX  4096
#define BODY_MAX  (64u << 20)

struct question {
    char *words[WORDS_MAX];
    size_t n;
};

/* ---- words, lists and bodies ---- */

static size_t split(char *text, char at, char **out, size_t max)
{
    size_t n = 0;
    if (*text == 0 && at == ',')
        return 0;
    for (char *next = text; next; text = next) {
        invariant(n < max);
        next = strchr(text, at);
        if (next)
            *next++ = 0;
        out[n++] = text;
    }
    return n;
}

/* broker:id,broker:id … */
static size_t queues_read(char *topic, char *text, struct omq_queue *out)
{
    char *words[LIST_MAX];
    size_t n = split(text, ',', words, LIST_MAX);
    for (size_t i = 0; i < n; i++) {
        char *colon = strrchr(words[i], ':');
        invariant(colon);
        *colon = 0;
        out[i] = (struct omq_queue){topic, words[i], (int32_t)strtol(colon + 1, NULL, 10)};
    }
    return n;
}

static struct buf body_read(const char *hex)
{
    struct buf body = buf_upto(BODY_MAX);
    size_t len = strlen(hex) / 2;
    uint8_t *to = len ? buf_space(&body, len) : NULL;
    for (size_t i = 0; to && i < len; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};
        to[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return body;
}

static void body_write(struct bytes body)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < body.len; i++) {
        putchar(digits[body.at[i] >> 4]);
        putchar(digits[body.at[i] & 15]);
    }
}

static void indexes_write(const size_t *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf("%s%zu", i ? "," : "", list[i]);
}

/* ---- bodies ---- */

static enum err answer_compress(struct question *q)
{
    static const char *const names[] = {"ZLIB", "LZ4", "ZSTD"};
    enum compression how = COMPRESS_ZLIB;
    while (strcmp(names[how], q->words[1]) != 0)
        how++;
    struct compressor c = {0};
    struct buf plain = body_read(q->words[3]), out = buf_upto(BODY_MAX);
    enum err err =
        body_compress(&c, how, (int)strtol(q->words[2], NULL, 10), buf_bytes(&plain), &out);
    if (!err)
        body_write(buf_bytes(&out));
    buf_clear(&plain);
    buf_clear(&out);
    compressor_clear(&c);
    return err;
}

static enum err answer_expand(struct question *q)
{
    struct compressor c = {0};
    struct buf packed = body_read(q->words[2]), out = buf_upto(BODY_MAX);
    enum err err = body_expand(&c, (int32_t)strtol(q->words[1], NULL, 0), buf_bytes(&packed), &out);
    if (!err)
        body_write(buf_bytes(&out));
    buf_clear(&packed);
    buf_clear(&out);
    compressor_clear(&c);
    return err;
}

/* ---- queues ---- */

static int by_name(const void *a, const void *b)
{
    return name_compare(*(char *const *)a, *(char *const *)b);
}

static enum err answer_sort(struct question *q)
{
    char *names[LIST_MAX];
    size_t n = split(q->words[1], ',', names, LIST_MAX);
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++)
        printf("%s%s", i ? "," : "", names[i]);
    return OK;
}

/* What stands before the @, always in the same buffer: the caller has to copy it. */
static const char *room_of(void *user, const char *broker, const char *client)
{
    char *room = user;
    snprintf(room, 64, "%s", broker ? broker : client);
    room[strcspn(room, "@")] = 0;
    return room;
}

static enum omq_share kind_of(const char *name)
{
    static const char *const names[] = {"averagely", "circle", "config", "room", "", "hash"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum omq_share)i;
    return OMQ_BY_ROOM_NEARBY;
}

static enum err answer_share(struct question *q)
{
    static struct omq_queue queues[LIST_MAX], config[LIST_MAX];
    char *clients[LIST_MAX], room[64];
    size_t mine[LIST_MAX], n = 0;
    struct share_rule rule = {.kind = kind_of(q->words[1]), .room_of = room_of, .user = room};
    enum omq_share inner = rule.kind;
    if (rule.kind == OMQ_BY_ROOM_NEARBY)
        rule.nearby = inner = kind_of(q->words[1] + strlen("nearby-"));
    if (inner == OMQ_BY_CONFIG) {
        rule.config = config;
        rule.n_config = queues_read(q->words[5], q->words[2], config);
    } else if (inner == OMQ_BY_ROOM) {
        rule.rooms = q->words[2];
    } else if (inner == OMQ_BY_HASH) {
        rule.hash_nodes = (int)strtol(q->words[2], NULL, 10);
    }
    struct share_table table = {
        .queues = queues,
        .n_queues = queues_read(q->words[5], q->words[6], queues),
        .clients = (const char *const *)clients,
        .n_clients = split(q->words[4], ',', clients, LIST_MAX),
        .me = q->words[3],
    };
    enum err err = share_mine(&rule, &table, mine, &n);
    if (!err)
        indexes_write(mine, n);
    return err;
}

static enum err answer_pick(struct question *q)
{
    static struct omq_queue queues[LIST_MAX];
    char *brokers[LIST_MAX], *lasts[LIST_MAX], nobody[] = "";
    struct faults faults = {0};
    enum err err = OK;
    size_t n = split(q->words[4], ',', brokers, LIST_MAX);
    for (size_t i = 0; !err && i < n; i++)
        err = faults_note(&faults, brokers[i], SENT_UNREACHABLE, 0, -FAULTS_FAILURE_MS);
    n = split(q->words[3], ',', brokers, LIST_MAX);
    for (size_t i = 0; !err && i < n; i++) {
        bool out_of_reach = faults_unreachable(&faults, brokers[i]);
        err = faults_note(&faults, brokers[i], out_of_reach ? SENT_UNREACHABLE : SENT_FAILED, 0, 0);
    }
    bool avoid = strcmp(q->words[2], "true") == 0;
    n = queues_read(nobody, q->words[5], queues);
    size_t tries = split(q->words[6], ',', lasts, LIST_MAX), picked[LIST_MAX];
    if (tries == 0)
        lasts[tries++] = nobody;
    struct pick pick = {.turn = (uint32_t)strtoul(q->words[1], NULL, 10)};
    for (size_t i = 0; !err && i < tries; i++)
        err = pick_next(&pick, queues, n, *lasts[i] ? lasts[i] : NULL, avoid ? &faults : NULL, 0,
                        &picked[i]);
    if (!err)
        indexes_write(picked, tries);
    faults_clear(&faults);
    return err;
}

static enum err answer_key(struct question *q)
{
    printf("%zu", pick_by_key(bytes_str(q->words[1]), strtoul(q->words[2], NULL, 10)));
    return OK;
}

static enum err answer_fault(struct question *q)
{
    struct faults faults = {0};
    enum sent how = strcmp(q->words[2], "true") == 0 ? SENT_FAILED : SENT;
    enum err err = faults_note(&faults, "b", how, strtol(q->words[1], NULL, 10), 0);
    int64_t ms = 0;
    while (!err && faults_slow(&faults, "b", ms))
        ms++;
    if (!err)
        printf("%" PRId64, ms);
    faults_clear(&faults);
    return err;
}

/* ---- trace and ids ---- */

static struct trace_record record_read(struct question *q)
{
    static const char *const kinds[] = {"Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"};
    enum trace_kind kind = TRACE_PUB;
    while (strcmp(kinds[kind], q->words[1]) != 0)
        kind++;
    struct trace_record r = {
        .kind = kind,
        .time_ms = strtoll(q->words[2], NULL, 10),
        .region = bytes_str(q->words[3]),
        .group = bytes_str(q->words[4]),
        .topic = bytes_str(q->words[5]),
        .id = bytes_str(q->words[6]),
        .tags = bytes_str(q->words[7]),
        .keys = bytes_str(q->words[8]),
        .store_host = bytes_str(q->words[9]),
        .offset_id = bytes_str(q->words[10]),
        .request_id = bytes_str(q->words[11]),
        .transaction = bytes_str(q->words[12]),
        .body_size = (int32_t)strtol(q->words[13], NULL, 10),
        .cost_ms = (int32_t)strtol(q->words[14], NULL, 10),
        .retry = (int32_t)strtol(q->words[15], NULL, 10),
        .type = (enum trace_type)strtol(q->words[16], NULL, 10),
        .state = (enum trace_state)strtol(q->words[17], NULL, 10),
        .result = (enum trace_result)strtol(q->words[18], NULL, 10),
        .success = strcmp(q->words[19], "true") == 0,
        .from_check = strcmp(q->words[20], "true") == 0,
    };
    return r;
}

static enum err answer_trace(struct question *q)
{
    struct trace_record r = record_read(q);
    struct trace_batch batch;
    char *keys[LIST_MAX];
    trace_init(&batch);
    enum err err = trace_add(&batch, &r);
    if (!err) {
        buf_add_u8(&batch.keys, 0);
        size_t n = split((char *)batch.keys.at, ' ', keys, LIST_MAX);
        qsort(keys, n, sizeof *keys, by_name);
        body_write(buf_bytes(&batch.body));
        for (size_t i = 0; i < n; i++)
            printf(" %s", keys[i]);
        if (n == 0)
            putchar(' ');
    }
    trace_clear(&batch);
    return err;
}

/* newid address pid: an id of ours, for Java to take apart. */
static enum err answer_newid(struct question *q)
{
    struct addr host = {.ip_len = 4};
    if (inet_pton(AF_INET, q->words[1], host.ip) != 1) {
        host.ip_len = 16;
        if (inet_pton(AF_INET6, q->words[1], host.ip) != 1)
            return ERR_INVALID;
    }
    struct id_maker maker;
    char id[ID_TEXT_MAX];
    id_maker_init(&maker, &host, (uint16_t)strtoul(q->words[2], NULL, 10), 0xcafe);
    (void)id_make(&maker, 1709208000000, id);
    printf("%s", id);
    return OK;
}

/* ---- the loop ---- */

static const struct {
    const char *name;
    enum err (*answer)(struct question *q);
    size_t words;
} answers[] = {
    {"compress", answer_compress, 4}, {"expand", answer_expand, 3}, {"sort", answer_sort, 2},
    {"share", answer_share, 7},       {"pick", answer_pick, 7},     {"key", answer_key, 3},
    {"fault", answer_fault, 3},       {"trace", answer_trace, 21},  {"newid", answer_newid, 3},
};

static enum err answer(struct question *q)
{
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (strcmp(q->words[0], answers[i].name) == 0 && q->n == answers[i].words)
            return answers[i].answer(q);
    return ERR_UNSUPPORTED;
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    for (ssize_t len; (len = getline(&line, &room, stdin)) > 0;) {
        if (line[len - 1] == '\n')
            line[len - 1] = 0;
        struct question q;
        q.n = split(line, '\t', q.words, WORDS_MAX);
        if (answer(&q) != OK)
            putchar('X');
        putchar('\n');
    }
    free(line);
    return fflush(stdout) == 0 ? 0 : 1;
}
