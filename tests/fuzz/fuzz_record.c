/* Any bytes as a row of records, as in the answer to a pull. What is accepted is written and read
 * back as the same. */
#include "msg/msg.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A record keeps its size when written again, but for one of the long form that did not need it. */
static void law_round_trip(const struct record *r)
{
    size_t size = record_size(r);
    invariant(size > 0);
    invariant(size == r->size || size == r->size - 1);
    uint8_t *once = malloc(size), *twice = malloc(size);
    invariant(once && twice);
    struct wr w = wr_over(once, size);
    invariant(record_encode(r, &w) == OK);

    struct record again;
    invariant(record_decode(wr_bytes(&w), &again) == OK);
    invariant(again.size == size);
    invariant(again.sys_flag == r->sys_flag);
    invariant(record_body_intact(&again) == record_body_intact(r));
    w = wr_over(twice, size);
    invariant(record_encode(&again, &w) == OK);
    invariant(memcmp(once, twice, size) == 0);

    record_place(once, 1, 2, 3);
    invariant(record_decode(bytes_of(once, size), &again) == OK);
    invariant(again.queue_offset == 1);
    invariant(again.position == 2);
    invariant(again.store_ms == 3);
    invariant(again.born_ms == r->born_ms);
    free(once);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = bytes_of(data, size);
    uint32_t skip;
    while (record_peek(rest, &skip) != RECORD_NONE && skip <= rest.len) {
        invariant(skip >= RECORD_BLANK_SIZE);
        struct record r;
        enum err err = record_decode(rest, &r);
        invariant(err == OK || err == ERR_MALFORMED);
        if (!err)
            law_round_trip(&r);
        rest = bytes_from(rest, skip);
    }
    struct record r;
    enum err err = record_decode(rest, &r);
    invariant(err == ERR_MALFORMED || err == ERR_INCOMPLETE);
    return 0;
}
