/* The first byte says which body the others are. What is accepted and can be written is written and
 * read back as the same. */
#include "remoting/bodies.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROOM (8u << 20)

static void heartbeat(struct bytes body, struct arena *arena)
{
    struct heartbeat h;
    enum err err = heartbeat_read(body, arena, &h);
    invariant(err == OK || err == ERR_MALFORMED || err == ERR_TOO_BIG);
    if (err)
        return;
    invariant(h.client_id.len > 0);
    for (size_t i = 0; i < h.n_consumers; i++) {
        invariant(h.consumers[i].group.len > 0);
        for (size_t j = 0; j < h.consumers[i].n_subs; j++)
            invariant(h.consumers[i].subs[j].topic.len > 0);
    }
}

static void client_check(struct bytes body, struct arena *arena)
{
    struct client_check c;
    enum err err = client_check_read(body, arena, &c);
    invariant(err == OK || err == ERR_MALFORMED || err == ERR_TOO_BIG);
    if (!err && c.has_sub)
        invariant(c.sub.topic.len > 0);
}

static void registration(struct bytes body, bool compressed, int32_t version, struct arena *arena)
{
    struct registration r, again;
    enum err err = registration_read(body, compressed, version, arena, &r);
    invariant(err == OK || err == ERR_MALFORMED || err == ERR_TOO_BIG);
    struct buf once = buf_upto(ROOM), twice = buf_upto(ROOM);
    if (!err && body.len < 4096) {
        registration_write(&once, &r);
        invariant(once.err == OK);
        err = registration_read(buf_bytes(&once), false, 513, arena, &again);
        invariant(err == OK || err == ERR_TOO_BIG);
        if (!err) {
            registration_write(&twice, &again);
            invariant(again.n_topics == r.n_topics);
            invariant(compressed || bytes_equal(buf_bytes(&once), buf_bytes(&twice)));
        }
    }
    buf_clear(&once);
    buf_clear(&twice);
}

static void data_version(struct bytes body, struct arena *arena)
{
    struct data_version v, again;
    enum err err = data_version_body_read(body, arena, &v);
    invariant(err == OK || err == ERR_MALFORMED || err == ERR_TOO_BIG);
    if (err)
        return;
    struct buf out = buf_upto(ROOM);
    data_version_body_write(&out, &v);
    invariant(data_version_body_read(buf_bytes(&out), arena, &again) == OK);
    invariant(again.counter == v.counter);
    invariant(again.state == v.state);
    invariant(again.timestamp == v.timestamp);
    buf_clear(&out);
}

static void route(struct bytes body, bool quoted, struct arena *arena)
{
    struct route r, again;
    enum err err = route_read(body, arena, &r);
    invariant(err == OK || err == ERR_MALFORMED || err == ERR_TOO_BIG);
    struct buf once = buf_upto(ROOM), twice = buf_upto(ROOM);
    if (!err && body.len < 4096) {
        route_write(&once, &r, quoted);
        invariant(once.err == OK);
        invariant(route_read(buf_bytes(&once), arena, &again) == OK);
        route_write(&twice, &again, quoted);
        invariant(bytes_equal(buf_bytes(&once), buf_bytes(&twice)));
    }
    buf_clear(&once);
    buf_clear(&twice);
}

static void locks(struct bytes body, struct arena *arena)
{
    struct lock_batch b, again;
    enum err err = lock_batch_read(body, arena, &b);
    invariant(err == OK || err == ERR_MALFORMED || err == ERR_TOO_BIG);
    if (err || body.len > 4096)
        return;
    struct buf out = buf_upto(ROOM);
    lock_batch_write(&out, &b);
    invariant(lock_batch_read(buf_bytes(&out), arena, &again) == OK);
    invariant(bytes_equal(again.group, b.group));
    invariant(again.n_queues == b.n_queues);
    for (size_t i = 0; i < b.n_queues; i++) {
        invariant(b.queues[i].topic.len > 0);
        invariant(b.queues[i].queue_id == again.queues[i].queue_id);
    }
    buf_clear(&out);
}

static void pop(struct bytes body, struct arena *arena)
{
    struct batch_ack *acks;
    size_t n;
    if (batch_acks_read(body, arena, &acks, &n) == OK)
        for (size_t i = 0; i < n; i++)
            invariant(acks[i].n <= BATCH_ACK_MAX && acks[i].group.len > 0);
    struct assignment_query q;
    if (assignment_query_read(body, arena, &q) == OK)
        invariant(q.topic.len > 0 && q.group.len > 0);
    struct mode_body m;
    if (mode_body_read(body, arena, &m) == OK)
        invariant(m.topic.len > 0 && m.group.len > 0);
    struct pop_handle h;
    (void)(pop_handle_read(body, &h) == OK);
    struct pop_place p;
    if (pop_place_read(body, &p) == OK)
        invariant(p.kind >= 0 && p.kind <= 2 && p.queue_id >= 0 && p.offset >= 0);
    int64_t start;
    for (int32_t queue = 0; queue < 4; queue++)
        (void)(pop_start_find(body, queue, &start) == OK);
}

/* What brokers tell clients about their group. */
static void members(struct bytes body, struct arena *arena)
{
    struct bytes *ids;
    struct queue_name *queues;
    size_t n;
    enum err err = consumer_list_read(body, arena, &ids, &n);
    invariant(err == OK || err == ERR_MALFORMED || err == ERR_TOO_BIG);
    for (size_t i = 0; !err && i < n; i++)
        invariant(ids[i].len <= body.len);
    err = locked_read(body, arena, &queues, &n);
    invariant(err == OK || err == ERR_MALFORMED || err == ERR_TOO_BIG);
    for (size_t i = 0; !err && i < n; i++)
        invariant(queues[i].topic.len <= body.len && queues[i].broker.len <= body.len);
}

static void offsets(struct bytes body, struct arena *arena)
{
    struct queue_offset *read, *again;
    size_t n, n_again;
    enum err err = queue_offsets_read(body, "offsetTable", arena, &read, &n);
    invariant(err == OK || err == ERR_MALFORMED || err == ERR_TOO_BIG);
    if (err || body.len > 4096)
        return;
    struct buf out = buf_upto(ROOM);
    queue_offsets_write(&out, "offsetTable", read, n);
    invariant(queue_offsets_read(buf_bytes(&out), "offsetTable", arena, &again, &n_again) == OK);
    invariant(n == n_again);
    for (size_t i = 0; i < n; i++) {
        invariant(read[i].offset >= 0);
        invariant(read[i].offset == again[i].offset);
    }
    buf_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct bytes body = bytes_of(data + 1, size - 1);
    struct arena arena;
    arena_init(&arena, ROOM);
    switch (data[0] % 11) {
    case 0:
        heartbeat(body, &arena);
        client_check(body, &arena);
        break;
    case 1:
        registration(body, false, 513, &arena);
        break;
    case 2:
        registration(body, true, 513, &arena);
        break;
    case 3:
        registration(body, true, 409, &arena);
        break;
    case 4:
        registration(body, false, 36, &arena);
        break;
    case 5:
        data_version(body, &arena);
        break;
    case 8:
        locks(body, &arena);
        offsets(body, &arena);
        break;
    case 9:
        pop(body, &arena);
        break;
    case 10:
        members(body, &arena);
        break;
    default:
        route(body, data[0] % 2, &arena);
        break;
    }
    arena_clear(&arena);
    return 0;
}
