/* compress.c - the compressors of a producer.
 *
 * Bodies are compressed on the threads that send them. What a compressor needs is big and costly to
 * make, so those that are idle are kept: as many as were ever busy at once, at most a few. */
#include "client/producer_int.h"

#include <stdlib.h>

#define IDLE_MAX 8

struct idle_compressor {
    struct link link;
    struct compressor compressor;
};

static struct idle_compressor *compressor_take(struct omq_producer *producer)
{
    room_enter(&producer->room);
    struct link *k = list_pop(&producer->compressors);
    producer->n_compressors -= k != NULL;
    room_leave(&producer->room);
    return k ? list_entry(k, struct idle_compressor, link)
             : calloc(1, sizeof(struct idle_compressor));
}

static void compressor_give(struct omq_producer *producer, struct idle_compressor *idle)
{
    room_enter(&producer->room);
    bool keep = producer->n_compressors < IDLE_MAX;
    if (keep)
        list_add_tail(&producer->compressors, &idle->link);
    producer->n_compressors += keep;
    room_leave(&producer->room);
    if (!keep) {
        compressor_clear(&idle->compressor);
        free(idle);
    }
}

bool producer_compress(struct omq_producer *producer, struct bytes plain, struct buf *out)
{
    const struct omq_producer_options *o = &producer->options;
    if (plain.len < o->compress_over)
        return false;
    struct idle_compressor *idle = compressor_take(producer);
    if (!idle)
        return false;
    struct buf packed = buf_upto(plain.len + plain.len / 64 + 4096);
    enum err err = body_compress(&idle->compressor, (enum compression)o->compression,
                                 o->compression_level, plain, &packed);
    compressor_give(producer, idle);
    if (err || packed.len >= plain.len) { /* it is sent as it is */
        buf_clear(&packed);
        return false;
    }
    *out = packed;
    return true;
}

void compressors_clear(struct omq_producer *producer)
{
    struct link *k;
    while ((k = list_pop(&producer->compressors))) {
        struct idle_compressor *idle = list_entry(k, struct idle_compressor, link);
        compressor_clear(&idle->compressor);
        free(idle);
    }
}
