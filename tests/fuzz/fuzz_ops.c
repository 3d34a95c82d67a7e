/* Any bytes as the body of an op record: offsets of half messages, none negative, and an end. */
#include "broker/txn_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = bytes_of(data, size);
    size_t n = 0;
    for (int64_t offset; ops_next(&rest, &offset); n++)
        invariant(offset >= 0);
    invariant(rest.len == 0);
    invariant(n <= size / 2 + 1);

    uint8_t text[OP_TEXT];
    struct wr w = wr_over(text, sizeof text);
    int64_t wanted = 0, found = -1;
    for (size_t i = 0; i < size && i < 8; i++)
        wanted = (int64_t)((uint64_t)wanted << 7 | (data[i] & 0x7f));
    ops_add(&w, wanted);
    rest = wr_bytes(&w);
    invariant(ops_next(&rest, &found) && found == wanted && !ops_next(&rest, &found));
    return 0;
}
