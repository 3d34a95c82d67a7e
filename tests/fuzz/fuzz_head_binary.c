/* Any bytes as a binary header. What is accepted is written and read back as the same. */
#include "head_laws.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct head head;
    enum err err = head_decode_binary(bytes_of(data, size), &head);
    if (err) {
        invariant(err == ERR_MALFORMED || err == ERR_TOO_BIG);
    } else {
        law_round_trip(&head, size);
        law_fields(&head);
    }
    return 0;
}
