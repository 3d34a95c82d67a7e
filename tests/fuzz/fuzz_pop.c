/* Any bytes as a record of the revive topic; the first byte says of which kind. What is accepted is
 * within the bounds that others rely on. */
#include "broker/pop_int.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROOM (1u << 20)

static void record(struct bytes tag, struct bytes body, struct arena *arena)
{
    struct mark_record r;
    enum err err = mark_record_read(tag, body, arena, &r);
    invariant(err == OK || err == ERR_MALFORMED || err == ERR_TOO_BIG);
    if (err || r.kind == MARK_NONE)
        return;
    invariant(r.n <= POP_MAX && r.queue_id >= 0 && r.start >= 0 && r.pop_ms >= 0);
    invariant(r.topic.len > 0 && r.group.len > 0);
    for (uint32_t i = 0; r.kind == MARK_CK && i < r.n; i++)
        invariant(r.offsets[i] - r.start >= 0 && r.offsets[i] - r.start <= INT32_MAX);
    struct pop_order *order;
    if (r.kind == MARK_ORDER && r.order && order_read(r.order, &order) == OK)
        free(order);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const tags[] = {"ck", "ack", "bAck", "order"};
    if (size == 0)
        return 0;
    struct arena arena;
    arena_init(&arena, ROOM);
    record(bytes_str(tags[data[0] % 4]), bytes_of(data + 1, size - 1), &arena);
    arena_clear(&arena);
    return 0;
}
