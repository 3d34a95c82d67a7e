/* frames.c - requests of the raw load. Fields and their order are those of the Java client 5.5.0
 * (tests/vectors), so that every broker sees what it sees all day. */
#include "load/raw_int.h"
#include "msg/msg.h"
#include "remoting/codes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_SIZE       32 /* of hexadecimal digits: the run's, then the message's */
#define KEY_OWN        16
#define HEAD_ROOM      2048
#define ITEM_OVER      256 /* what a message of a batch has beside its body, at most */
#define PULL_AND_NAME  4   /* of a pull's system flag: it names its subscription */
#define PULL_AND_WAIT  2   /* it may wait */
#define PULL_MAX_BYTES 262144

static void key_text(char out[KEY_SIZE + 1], const struct run *run)
{
    (void)snprintf(out, KEY_SIZE + 1, "%016" PRIX64 "%016d", run->id, 0);
}

static void hex_put(uint8_t *to, uint64_t number)
{
    for (size_t i = KEY_OWN; i-- > 0; number >>= 4)
        to[i] = (uint8_t) "0123456789ABCDEF"[number & 15];
}

static struct bytes props_make(char out[128], const struct run *run)
{
    char key[KEY_SIZE + 1];
    key_text(key, run);
    int n = snprintf(out, 128, "UNIQ_KEY\1%s\2WAIT\1true\2TAGS\1bench\2", key);
    return bytes_of(out, (size_t)n);
}

static size_t key_find(const uint8_t *in, size_t len, const struct run *run)
{
    char key[KEY_SIZE + 1];
    key_text(key, run);
    const uint8_t *at = memmem(in, len, key, KEY_SIZE);
    invariant(at);
    return (size_t)(at - in) + KEY_SIZE - KEY_OWN;
}

/* ---- what all requests carry ---- */

enum err payload_make(struct payload *p, const struct run *run)
{
    const struct load_options *o = &run->options;
    size_t room = (size_t)o->batch * (o->size + ITEM_OVER);
    uint8_t *body = malloc(o->size + 1);
    *p = (struct payload){.body = malloc(room)};
    if (!p->body || !body) {
        free(body);
        return ERR_NO_MEMORY;
    }
    body_fill(body, o->size);
    struct wr w = wr_over(p->body, room);
    char props[128];
    if (o->batch == 1)
        wr_bytes_of(&w, bytes_of(body, o->size));
    for (unsigned i = 0; o->batch > 1 && i < o->batch; i++)
        batch_add(&w, &(struct batch_item){.body = bytes_of(body, o->size),
                                           .props = props_make(props, run)});
    invariant(!w.full);
    p->size = wr_len(&w);
    p->stride = p->size / o->batch;
    if (o->batch > 1) {
        p->key_at = key_find(p->body, p->size, run);
        const uint8_t *first = memmem(p->body, p->size, body, o->size);
        p->first_at = (size_t)(first - p->body);
    }
    free(body);
    return OK;
}

void payload_clear(struct payload *p)
{
    free(p->body);
    *p = (struct payload){0};
}

/* ---- sends ---- */

enum err template_make(struct template *t, const struct run *run, const struct place *place,
                       const struct payload *payload)
{
    const struct load_options *o = &run->options;
    bool batch = o->batch > 1;
    uint8_t head[HEAD_ROOM];
    char props[128];
    struct wr w = wr_over(head, sizeof head);
    struct frame_out f;
    enum head_form form = o->binary ? HEAD_BINARY : HEAD_JSON;
    frame_begin(&f, &w, form,
                &(struct head_start){.code = batch ? REQ_SEND_BATCH_MESSAGE : REQ_SEND_MESSAGE_V2,
                                     .opaque = (int32_t)OPAQUE_FIRST});
    frame_put(&f, BYTES("a"), bytes_str(o->group));
    frame_put(&f, BYTES("b"), bytes_str(place->queue.topic));
    frame_put(&f, BYTES("c"), BYTES("TBW102"));
    frame_put_int(&f, BYTES("d"), 8);
    frame_put_int(&f, BYTES("e"), place->queue.id);
    frame_put_int(&f, BYTES("f"), 0);
    frame_put_int(&f, BYTES("g"), clock_ms(run->clock));
    frame_put_int(&f, BYTES("h"), 0);
    frame_put(&f, BYTES("i"), batch ? BYTES("WAIT\1true\2") : props_make(props, run));
    frame_put_int(&f, BYTES("j"), 0);
    frame_put_bool(&f, BYTES("k"), false);
    frame_put_bool(&f, BYTES("m"), batch);
    frame_put(&f, BYTES("n"), bytes_str(place->queue.broker));
    frame_end_head(&f, payload->size);
    if (w.full)
        return ERR_TOO_BIG;
    *t = (struct template){.head = malloc(wr_len(&w)), .len = (uint32_t)wr_len(&w), .form = form};
    if (!t->head)
        return ERR_NO_MEMORY;
    memcpy(t->head, head, t->len);
    const uint8_t *opaque = memmem(head, t->len, "\"opaque\":", 9);
    t->opaque_at = form == HEAD_BINARY ? FRAME_PREFIX + 5 : (uint32_t)(opaque + 9 - head);
    t->key_at = batch ? 0 : (uint32_t)key_find(head, t->len, run);
    return OK;
}

void template_clear(struct template *t)
{
    free(t->head);
    *t = (struct template){0};
}

static void opaque_put(uint8_t *at, enum head_form form, uint32_t opaque)
{
    if (form == HEAD_BINARY)
        store_u32(at, opaque);
    else
        for (size_t i = 10; i-- > 0; opaque /= 10)
            at[i] = (uint8_t)('0' + opaque % 10);
}

size_t request_put(uint8_t *to, const struct template *t, const struct payload *p,
                   const struct run *run, uint32_t opaque, uint64_t number, uint64_t due_ns)
{
    uint8_t *body = to + t->len;
    memcpy(to, t->head, t->len);
    memcpy(body, p->body, p->size);
    opaque_put(to + t->opaque_at, t->form, opaque);
    if (t->key_at)
        hex_put(to + t->key_at, number);
    for (unsigned i = 0; i < run->options.batch; i++) {
        if (p->key_at)
            hex_put(body + p->key_at + i * p->stride, number + i);
        if (run->options.kind == LOAD_E2E)
            stamp_put(body + p->first_at + i * p->stride,
                      &(struct stamp){run->id, due_ns, number + i});
    }
    return t->len + p->size;
}

/* ---- pulls ---- */

size_t pull_put(uint8_t *to, size_t room, const struct run *run, const struct omq_queue *queue,
                int64_t offset, uint32_t opaque, int suspend_ms)
{
    struct wr w = wr_over(to, room);
    struct frame_out f;
    frame_begin(&f, &w, run->options.binary ? HEAD_BINARY : HEAD_JSON,
                &(struct head_start){.code = REQ_PULL_MESSAGE, .opaque = (int32_t)opaque});
    frame_put(&f, BYTES("consumerGroup"), bytes_str(run->options.group));
    frame_put(&f, BYTES("topic"), bytes_str(queue->topic));
    frame_put_int(&f, BYTES("queueId"), queue->id);
    frame_put_int(&f, BYTES("queueOffset"), offset);
    frame_put_int(&f, BYTES("maxMsgNums"),
                  run->options.kind == LOAD_CONSUME ? (int64_t)run->options.batch : 32);
    frame_put_int(&f, BYTES("sysFlag"), suspend_ms ? PULL_AND_NAME | PULL_AND_WAIT : PULL_AND_NAME);
    frame_put_int(&f, BYTES("commitOffset"), 0);
    frame_put_int(&f, BYTES("suspendTimeoutMillis"), suspend_ms);
    frame_put(&f, BYTES("subscription"), BYTES("*"));
    frame_put_int(&f, BYTES("subVersion"), 1);
    frame_put(&f, BYTES("expressionType"), BYTES("TAG"));
    frame_put_int(&f, BYTES("maxMsgBytes"), PULL_MAX_BYTES);
    frame_put(&f, BYTES("bname"), bytes_str(queue->broker));
    frame_end_head(&f, 0);
    return w.full ? 0 : wr_len(&w);
}
