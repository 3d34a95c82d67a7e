/* query.c - messages by key and by place. No table is needed: the store knows. */
#include "broker/broker_int.h"

#include <stdio.h>

/* How much of the answers to a query may be given back at once. */
#define FOUND_BYTES_MAX (8u << 20)

enum err broker_view(struct broker *b, int64_t position, struct slice *out, struct fault *why)
{
    enum err err = store_read_at(b->store, position, out);
    /* Apache's words. */
    return err ? fault_set(why, err, "can not find message by the offset, %lld",
                           (long long)position)
               : OK;
}

static enum err not_found(struct fault *why)
{
    return fault_set(why, ERR_NOT_FOUND, "can not find message, maybe time range not correct");
}

enum err broker_query(struct broker *b, const struct store_query *query, struct queried *out,
                      struct fault *why)
{
    struct store_found found;
    enum err err = store_query(b->store, query, &found);
    if (err == ERR_UNSUPPORTED)
        return fault_set(why, err, "this broker keeps no index of keys (messageIndexEnable)");
    if (err)
        return err;
    *out = (struct queried){.index_ms = found.end_ms, .index_position = found.end_position};
    for (size_t i = 0; i < found.n; i++) {
        struct slice slice;
        if (store_read_at(b->store, found.positions[i], &slice))
            continue; /* deleted in this moment */
        if (out->n > 0 && out->size + slice.bytes.len > FOUND_BYTES_MAX) {
            counted_drop(slice.owner);
            break;
        }
        out->slices[out->n++] = slice;
        out->size += slice.bytes.len;
    }
    return out->n ? OK : not_found(why);
}
