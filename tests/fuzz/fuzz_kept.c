/* Any bytes as a record of a local retry table. */
#include "client/producer_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kept_record k;
    if (kept_read(bytes_of(data, size), &k) == OK) {
        invariant(k.size <= size);
        invariant(k.topic.len > 0 && k.topic.len + k.props.len + k.body.len + 21 == k.size);
        invariant(k.body.at + k.body.len == data + k.size);
    }
    return 0;
}
