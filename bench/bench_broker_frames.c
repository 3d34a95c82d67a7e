/* bench_broker_frames.c - the requests of the load generator. Fields and their order are those of
 * the Java client 5.5.0 (tests/vectors), so that every server sees what it sees all day. */
#include "bench_broker.h"
#include "msg/msg.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define KEY          "7F00000125CD4E0E2F2A4CDE00000000"
#define KEY_DIGITS   8
#define BATCH_OVER   22 /* what a message of a batch has beside body and properties */
#define BROKER       "broker-a"
#define PULL_COMMITS 1 /* bits of a pull's system flag */
#define PULL_WAITS   2
#define PULL_NAMES   4
#define DUE          "7777777777777" /* a time in ms */

static size_t find(const struct stamp *s, const char *text, size_t beyond)
{
    /* Behind the lengths, which may have any bytes. */
    const uint8_t *at = memmem(s->frame + FRAME_PREFIX, s->len - FRAME_PREFIX, text, strlen(text));
    if (!at)
        wrong("a request without %s", text);
    return (size_t)(at - s->frame) + beyond;
}

/* The body, which is `size` bytes or a batch of such. */
static void body_make(struct wr *w, const struct load *load, const struct mould *mould,
                      const char *props)
{
    uint8_t *body = malloc(load->size);
    must(body, "memory");
    for (unsigned i = 0; i < load->size; i++) /* no body is all zeros */
        body[i] = (uint8_t)(i * 7 + i / 256);
    if (!mould->batch)
        wr_bytes_of(w, bytes_of(body, load->size));
    for (unsigned i = 0; i < mould->batch; i++)
        batch_add(
            w, &(struct batch_item){.body = bytes_of(body, load->size), .props = bytes_str(props)});
    free(body);
    must(!w->full, "a send request");
}

void stamp_make(struct stamp *s, const struct load *load, const struct mould *mould)
{
    char props[256], queue[16];
    (void)snprintf(props, sizeof props, "UNIQ_KEY\1" KEY "\2WAIT\1true\2TAGS\1TagA\2%s%s",
                   mould->half ? "TRAN_MSG\1true\2PGROUP\1" PRODUCERS "\2" : "",
                   mould->timed ? "TIMER_DELIVER_MS\1" DUE "\2" : "");
    (void)snprintf(queue, sizeof queue, "%u", mould->queue);
    size_t item = BATCH_OVER + strlen(props) + load->size;
    size_t size = mould->batch ? mould->batch * item : load->size;
    size_t room = 2048 + size;
    *s = (struct stamp){.frame = calloc(1, room), .form = load->form};
    must(s->frame, "memory");
    char born[24];
    (void)snprintf(born, sizeof born, "%lld", (long long)time(NULL) * 1000);

    struct wr w = wr_over(s->frame, room);
    struct frame_out f;
    frame_begin(
        &f, &w, load->form,
        &(struct head_start){.code = mould->batch ? REQ_SEND_BATCH_MESSAGE : REQ_SEND_MESSAGE_V2,
                             .opaque = (int)FIRST_OPAQUE});
    frame_put(&f, BYTES("a"), BYTES(PRODUCERS));
    frame_put(&f, BYTES("b"), bytes_str(mould->topic));
    frame_put(&f, BYTES("c"), BYTES("TBW102"));
    frame_put_int(&f, BYTES("d"), mould->one_queue ? load->queues : QUEUES);
    frame_put(&f, BYTES("e"), mould->one_queue ? bytes_str(queue) : BYTES("#"));
    frame_put(&f, BYTES("f"), mould->half ? BYTES("4") : BYTES("0"));
    frame_put(&f, BYTES("g"), bytes_str(born));
    frame_put(&f, BYTES("h"), BYTES("0"));
    frame_put(&f, BYTES("i"), mould->batch ? BYTES("WAIT\1true\2") : bytes_str(props));
    frame_put(&f, BYTES("j"), BYTES("0"));
    frame_put(&f, BYTES("k"), BYTES("false"));
    frame_put(&f, BYTES("m"), mould->batch ? BYTES("true") : BYTES("false"));
    frame_put(&f, BYTES("n"), BYTES(BROKER));
    frame_end_head(&f, size);
    s->body = wr_len(&w);
    body_make(&w, load, mould, props);
    s->len = wr_len(&w);
    s->items = mould->batch ? mould->batch : 1;
    s->stride = item;

    s->opaque = s->form == HEAD_JSON ? find(s, "\"opaque\":", 9) : FRAME_PREFIX + 5;
    s->queue = mould->one_queue ? 0 : find(s, "#", 0);
    s->due = mould->timed ? find(s, DUE, 0) : 0;
    s->key = find(s, KEY, sizeof KEY - 1 - KEY_DIGITS);
}

static void digits_put(uint8_t *to, size_t n, uint64_t number)
{
    for (size_t i = n; i-- > 0; number /= 10)
        to[i] = (uint8_t)('0' + number % 10);
}

void stamp_due(const struct stamp *s, uint8_t *frame, int64_t due_ms)
{
    digits_put(frame + s->due, sizeof DUE - 1, (uint64_t)due_ms);
}

static void key_put(uint8_t *to, uint64_t key)
{
    for (size_t i = KEY_DIGITS; i-- > 0; key >>= 4)
        to[i] = (uint8_t) "0123456789ABCDEF"[key & 15];
}

void stamp_put(const struct stamp *s, uint8_t *to, uint32_t opaque, uint32_t queue, uint64_t key)
{
    memcpy(to, s->frame, s->len);
    opaque += FIRST_OPAQUE;
    if (s->form == HEAD_BINARY)
        store_u32(to + s->opaque, opaque);
    else
        digits_put(to + s->opaque, 10, opaque);
    if (s->queue)
        to[s->queue] = (uint8_t)('0' + queue);
    for (size_t item = 0; item < s->items; item++)
        key_put(to + s->key + item * s->stride, key + item);
}

uint32_t answer_opaque(const struct answer *a)
{
    return (uint32_t)a->head.opaque - FIRST_OPAQUE;
}

void stamp_clear(struct stamp *s)
{
    free(s->frame);
    *s = (struct stamp){0};
}

/* Frames the body that stands at the end of `w`'s buffer already. */
static size_t frame_done(struct wr *w, struct frame_out *f, struct bytes body)
{
    frame_end_head(f, body.len);
    wr_bytes_of(w, body);
    if (w->full)
        wrong("a request that is too long");
    return wr_len(w);
}

size_t heartbeat_frame(void *out, size_t size, const struct load *load, const char *client,
                       const char *group, const char *topic)
{
    char body[2048];
    int n = snprintf(
        body, sizeof body,
        "{\"clientID\":\"%s\",\"consumerDataSet\":[{\"consumeFromWhere\":"
        "\"CONSUME_FROM_FIRST_OFFSET\",\"consumeType\":\"CONSUME_PASSIVELY\",\"groupName\":\"%s\","
        "\"messageModel\":\"CLUSTERING\",\"subscriptionDataSet\":[{\"classFilterMode\":false,"
        "\"codeSet\":[],\"expressionType\":\"TAG\",\"subString\":\"*\",\"subVersion\":1,"
        "\"tagsSet\":[],\"topic\":\"%s\"},{\"classFilterMode\":false,\"codeSet\":[],"
        "\"expressionType\":\"TAG\",\"subString\":\"*\",\"subVersion\":1,\"tagsSet\":[],"
        "\"topic\":\"%%RETRY%%%s\"}],\"unitMode\":false}],\"heartbeatFingerprint\":0,"
        "\"producerDataSet\":[{\"groupName\":\"CLIENT_INNER_PRODUCER\"}],\"withoutSub\":false}",
        client, group, topic, group);
    struct wr w = wr_over(out, size);
    struct frame_out f;
    frame_begin(&f, &w, load->form, &(struct head_start){.code = REQ_HEART_BEAT});
    return frame_done(&w, &f, bytes_of(body, (size_t)n));
}

/* The fields of every pull, in their order; who says what it subscribes to has that between them.
 */
static size_t pull_write(void *out, size_t size, enum head_form form, const struct pull_of *pull,
                         int flags, int wait_ms)
{
    struct wr w = wr_over(out, size);
    struct frame_out f;
    frame_begin(&f, &w, form,
                &(struct head_start){.code = REQ_PULL_MESSAGE, .opaque = (int32_t)pull->opaque});
    frame_put(&f, BYTES("consumerGroup"), bytes_str(pull->group));
    frame_put(&f, BYTES("topic"), bytes_str(pull->topic));
    frame_put_int(&f, BYTES("queueId"), pull->queue);
    frame_put_int(&f, BYTES("queueOffset"), pull->offset);
    frame_put_int(&f, BYTES("maxMsgNums"), pull->count);
    frame_put_int(&f, BYTES("sysFlag"), flags);
    frame_put_int(&f, BYTES("commitOffset"), pull->offset);
    frame_put_int(&f, BYTES("suspendTimeoutMillis"), wait_ms);
    if (flags & PULL_NAMES)
        frame_put(&f, BYTES("subscription"), BYTES("*"));
    frame_put_int(&f, BYTES("subVersion"), 1);
    frame_put(&f, BYTES("expressionType"), BYTES("TAG"));
    frame_put_int(&f, BYTES("maxMsgBytes"), 262144);
    frame_put(&f, BYTES("bname"), BYTES(BROKER));
    return frame_done(&w, &f, (struct bytes){0});
}

size_t pull_frame(void *out, size_t size, const struct load *load, const char *group,
                  const char *topic, int queue, int64_t offset)
{
    const struct pull_of pull = {.group = group,
                                 .topic = topic,
                                 .queue = (unsigned)queue,
                                 .count = 32,
                                 .offset = offset,
                                 .opaque = (uint32_t)queue};
    return pull_write(out, size, load->form, &pull, PULL_COMMITS | PULL_WAITS, 15000);
}

size_t pull_frame_of(void *out, size_t size, const struct load *load, const struct pull_of *pull)
{
    struct pull_of numbered = *pull;
    numbered.opaque += FIRST_OPAQUE;
    return pull_write(out, size, load->form, &numbered, PULL_COMMITS | PULL_NAMES, 0);
}

int64_t answer_number(const struct answer *a, struct bytes field)
{
    int64_t number;
    if (!bytes_to_i64(head_field(&a->head, field), &number))
        wrong("an answer without %.*s", BYTES_ARG(field));
    return number;
}

void topic_name(char out[TEXT_ROOM], const char *prefix)
{
    (void)snprintf(out, TEXT_ROOM, "%s_%d_%llu", prefix, (int)getpid(),
                   (unsigned long long)now_ns());
}
