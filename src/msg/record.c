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

#define AT_QUEUE_OFFSET 20
#define AT_POSITION     28
#define AT_SYS_FLAG     36
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
static struct addr host_read(struct rd *r, bool v6)
{
    struct addr a = {.ip_len = v6 ? 16 : 4};
    struct bytes ip = rd_take(r, a.ip_len);
    uint32_t port = rd_u32(r);
    if (r->bad || port > UINT16_MAX) {
        r->bad = true;
        return (struct addr){0};
    }
    memcpy(a.ip, ip.at, ip.len);
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
    struct record rec = {0};
    rec.size = rd_u32(&r);
    bool long_topic = rd_u32(&r) == RECORD_MAGIC_LONG;
    rec.body_crc = rd_u32(&r);
    rec.queue_id = (int32_t)rd_u32(&r);
    rec.flag = (int32_t)rd_u32(&r);
    rec.queue_offset = (int64_t)rd_u64(&r);
    rec.position = (int64_t)rd_u64(&r);
    rec.sys_flag = (int32_t)rd_u32(&r);
    rec.born_ms = (int64_t)rd_u64(&r);
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

static void host_write(struct wr *w, const struct addr *a)
{
    wr_bytes_of(w, bytes_of(a->ip, a->ip_len == 16 ? 16 : 4));
    wr_u32(w, a->port);
}

enum err record_encode(const struct record *r, struct wr *w)
{
    size_t size = record_size(r);
    if (size == 0 || w->full || size > wr_room(w))
        return ERR_TOO_BIG;

    bool long_topic = r->topic.len > TOPIC_SHORT;
    uint32_t sys_flag = (uint32_t)r->sys_flag & ~(uint32_t)(SYS_BORN_V6 | SYS_STORE_V6);
    sys_flag |= r->born_host.ip_len == 16 ? SYS_BORN_V6 : 0;
    sys_flag |= r->store_host.ip_len == 16 ? SYS_STORE_V6 : 0;

    const uint8_t *start = w->at;
    wr_u32(w, (uint32_t)size);
    wr_u32(w, long_topic ? RECORD_MAGIC_LONG : RECORD_MAGIC);
    wr_u32(w, r->body_crc);
    wr_u32(w, (uint32_t)r->queue_id);
    wr_u32(w, (uint32_t)r->flag);
    wr_u64(w, (uint64_t)r->queue_offset);
    wr_u64(w, (uint64_t)r->position);
    wr_u32(w, sys_flag);
    wr_u64(w, (uint64_t)r->born_ms);
    host_write(w, &r->born_host);
    wr_u64(w, (uint64_t)r->store_ms);
    host_write(w, &r->store_host);
    wr_u32(w, (uint32_t)r->reconsume_times);
    wr_u64(w, (uint64_t)r->prepared_position);
    wr_u32(w, (uint32_t)r->body.len);
    wr_bytes_of(w, r->body);
    if (long_topic)
        wr_u16(w, (uint16_t)r->topic.len);
    else
        wr_u8(w, (uint8_t)r->topic.len);
    wr_bytes_of(w, r->topic);
    wr_u16(w, (uint16_t)r->props.len);
    wr_bytes_of(w, r->props);

    invariant(!w->full);
    invariant((size_t)(w->at - start) == size);
    return OK;
}

void record_place(uint8_t *encoded, int64_t queue_offset, int64_t position, int64_t store_ms)
{
    bool born_v6 = load_u32(encoded + AT_SYS_FLAG) & SYS_BORN_V6;
    store_u64(encoded + AT_QUEUE_OFFSET, (uint64_t)queue_offset);
    store_u64(encoded + AT_POSITION, (uint64_t)position);
    store_u64(encoded + AT_BORN_HOST + host_size(born_v6), (uint64_t)store_ms);
}
