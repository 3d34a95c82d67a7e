/* record.c - the stored form of a message.
 *
 *      0 size        4 magic         8 body crc     12 queue id     16 flag
 *     20 queue offset               28 position     36 system flag  40 born time
 *     48 born host (ip, port)          store time      store host (ip, port)
 *        reconsume times               prepared position
 *        body: 4 + n                   topic: 1 + n or 2 + n        properties: 2 + n
 *
 * An IPv4 host takes 8 bytes, an IPv6 host 20; two bits of the system flag say which, so they are
 * read first. From the hosts on, places depend on them.
 */
#include "base/crc32.h"
#include "msg/msg.h"

#define AT_MAGIC        4
#define AT_BODY_CRC     8
#define AT_QUEUE_ID     12
#define AT_FLAG         16
#define AT_QUEUE_OFFSET 20
#define AT_POSITION     28
#define AT_SYS_FLAG     36
#define AT_BORN_MS      40
#define AT_BORN_HOST    48

#define HOST_V4    8
#define HOST_V6    20
#define LEAST_SIZE 91 /* IPv4 hosts, short form, everything empty */
#define TOPIC_SHORT                                                                                \
    127 /* the longest topic whose length stands in one byte: Java reads it signed */

static size_t host_size(bool v6)
{
    return v6 ? HOST_V6 : HOST_V4;
}

enum record_kind record_peek(struct bytes in, uint32_t *size)
{
    struct rd r = rd_over(in);
    uint32_t claimed = rd_u32(&r);
    uint32_t magic = rd_u32(&r);
    if (r.bad || claimed > INT32_MAX)
        return RECORD_NONE;

    enum record_kind kind = RECORD_NONE;
    if ((magic == RECORD_MAGIC || magic == RECORD_MAGIC_LONG) && claimed >= LEAST_SIZE)
        kind = RECORD_MESSAGE;
    else if (magic == RECORD_MAGIC_BLANK && claimed >= RECORD_BLANK_SIZE)
        kind = RECORD_BLANK;
    if (kind != RECORD_NONE)
        *size = claimed;
    return kind;
}

/* An address and its port, which takes four bytes though two would do. */
static inline struct addr host_read(struct rd *r, bool v6)
{
    struct addr a = {.ip_len = v6 ? 16 : 4};
    struct bytes host = rd_take(r, host_size(v6));
    uint32_t port = r->bad ? UINT32_MAX : load_u32(host.at + a.ip_len);
    if (port > UINT16_MAX) {
        r->bad = true;
        return (struct addr){0};
    }
    memcpy(a.ip, host.at, v6 ? 16 : 4);
    a.port = (uint16_t)port;
    return a;
}

enum err record_decode(struct bytes in, struct record *out)
{
    uint32_t size;
    if (in.len < RECORD_BLANK_SIZE)
        return ERR_INCOMPLETE;
    if (record_peek(in, &size) != RECORD_MESSAGE)
        return ERR_MALFORMED;
    if (size > in.len)
        return ERR_INCOMPLETE;

    struct rd r = rd_over(bytes_of(in.at, size));
    struct bytes head = rd_take(&r, AT_BORN_HOST);
    if (r.bad)
        return ERR_MALFORMED;
    bool long_topic = load_u32(head.at + AT_MAGIC) == RECORD_MAGIC_LONG;
    struct record rec = {
        .size = size,
        .body_crc = load_u32(head.at + AT_BODY_CRC),
        .queue_id = (int32_t)load_u32(head.at + AT_QUEUE_ID),
        .flag = (int32_t)load_u32(head.at + AT_FLAG),
        .queue_offset = (int64_t)load_u64(head.at + AT_QUEUE_OFFSET),
        .position = (int64_t)load_u64(head.at + AT_POSITION),
        .sys_flag = (int32_t)load_u32(head.at + AT_SYS_FLAG),
        .born_ms = (int64_t)load_u64(head.at + AT_BORN_MS),
    };
    rec.born_host = host_read(&r, rec.sys_flag & SYS_BORN_V6);
    rec.store_ms = (int64_t)rd_u64(&r);
    rec.store_host = host_read(&r, rec.sys_flag & SYS_STORE_V6);
    rec.reconsume_times = (int32_t)rd_u32(&r);
    rec.prepared_position = (int64_t)rd_u64(&r);
    rec.body = rd_take(&r, rd_u32(&r));

    size_t topic_len = long_topic ? rd_u16(&r) : rd_u8(&r);
    rec.topic = rd_take(&r, topic_len);
    size_t props_len = rd_u16(&r);
    rec.props = rd_take(&r, props_len);

    if (r.bad || rd_left(&r) > 0)
        return ERR_MALFORMED;
    /* Both lengths are signed in Java: a record with more would be readable for us alone. */
    if (topic_len > (long_topic ? RECORD_TOPIC_MAX : TOPIC_SHORT) || props_len > RECORD_PROPS_MAX)
        return ERR_MALFORMED;
    *out = rec;
    return OK;
}

bool record_body_intact(const struct record *r)
{
    return crc32_positive(r->body) == r->body_crc;
}

size_t record_size(const struct record *r)
{
    if (r->topic.len > RECORD_TOPIC_MAX || r->props.len > RECORD_PROPS_MAX ||
        r->body.len > INT32_MAX)
        return 0;
    size_t size = LEAST_SIZE - 2 * HOST_V4;
    size += host_size(r->born_host.ip_len == 16) + host_size(r->store_host.ip_len == 16);
    size += r->body.len + r->topic.len + r->props.len + (r->topic.len > TOPIC_SHORT);
    return size <= INT32_MAX ? size : 0;
}

/* Each of these writes where it is told and returns what is behind it. There is room: the caller
 * has asked once for all of it. */
static inline uint8_t *put_u32(uint8_t *at, uint32_t v)
{
    store_u32(at, v);
    return at + 4;
}

static inline uint8_t *put_u64(uint8_t *at, uint64_t v)
{
    store_u64(at, v);
    return at + 8;
}

static inline uint8_t *put_bytes(uint8_t *at, struct bytes b)
{
    if (b.len)
        memcpy(at, b.at, b.len);
    return at + b.len;
}

static inline uint8_t *put_host(uint8_t *at, const struct addr *a)
{
    memcpy(at, a->ip, sizeof a->ip); /* what of it is too much is written over by what comes next */
    return put_u32(at + (a->ip_len == 16 ? 16 : 4), a->port);
}

static uint8_t *put_topic(uint8_t *at, struct bytes topic)
{
    if (topic.len > TOPIC_SHORT)
        *at++ = (uint8_t)(topic.len >> 8);
    *at++ = (uint8_t)topic.len;
    return put_bytes(at, topic);
}

enum err record_encode(const struct record *r, struct wr *w)
{
    size_t size = record_size(r);
    uint8_t *start = size ? wr_space(w, size) : NULL;
    if (!start)
        return ERR_TOO_BIG;

    uint32_t sys_flag = (uint32_t)r->sys_flag & ~(uint32_t)(SYS_BORN_V6 | SYS_STORE_V6);
    sys_flag |= r->born_host.ip_len == 16 ? SYS_BORN_V6 : 0;
    sys_flag |= r->store_host.ip_len == 16 ? SYS_STORE_V6 : 0;

    store_u32(start, (uint32_t)size);
    store_u32(start + AT_MAGIC, r->topic.len > TOPIC_SHORT ? RECORD_MAGIC_LONG : RECORD_MAGIC);
    store_u32(start + AT_BODY_CRC, r->body_crc);
    store_u32(start + AT_QUEUE_ID, (uint32_t)r->queue_id);
    store_u32(start + AT_FLAG, (uint32_t)r->flag);
    store_u64(start + AT_QUEUE_OFFSET, (uint64_t)r->queue_offset);
    store_u64(start + AT_POSITION, (uint64_t)r->position);
    store_u32(start + AT_SYS_FLAG, sys_flag);
    store_u64(start + AT_BORN_MS, (uint64_t)r->born_ms);
    uint8_t *at = put_host(start + AT_BORN_HOST, &r->born_host);
    at = put_u64(at, (uint64_t)r->store_ms);
    at = put_host(at, &r->store_host);
    at = put_u32(at, (uint32_t)r->reconsume_times);
    at = put_u64(at, (uint64_t)r->prepared_position);
    at = put_u32(at, (uint32_t)r->body.len);
    at = put_bytes(at, r->body);
    at = put_topic(at, r->topic);
    store_u16(at, (uint16_t)r->props.len);
    at = put_bytes(at + 2, r->props);

    invariant((size_t)(at - start) == size);
    return OK;
}

void record_place(uint8_t *encoded, int64_t queue_offset, int64_t position, int64_t store_ms)
{
    bool born_v6 = load_u32(encoded + AT_SYS_FLAG) & SYS_BORN_V6;
    store_u64(encoded + AT_QUEUE_OFFSET, (uint64_t)queue_offset);
    store_u64(encoded + AT_POSITION, (uint64_t)position);
    store_u64(encoded + AT_BORN_HOST + host_size(born_v6), (uint64_t)store_ms);
}
