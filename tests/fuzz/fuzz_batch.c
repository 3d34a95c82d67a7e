/* Any bytes as a batch body. What is accepted is written and read back as the same. */
#include "msg/msg.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all of `in` and writes it to `w`; false if it is refused. */
static bool rewrite(struct bytes in, struct wr *w)
{
    struct rd r = rd_over(in);
    struct batch_item item;
    bool more;
    for (;;) {
        enum err err = batch_next(&r, &item, &more);
        invariant(err == OK || err == ERR_MALFORMED);
        if (err)
            return false;
        if (!more)
            return true;
        batch_add(w, &item);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *once = malloc(size ? size : 1), *twice = malloc(size ? size : 1);
    invariant(once && twice);
    struct wr first = wr_over(once, size), second = wr_over(twice, size);
    if (rewrite(bytes_of(data, size), &first)) {
        invariant(!first.full);
        invariant(wr_len(&first) == size);
        invariant(rewrite(wr_bytes(&first), &second));
        invariant(bytes_equal(wr_bytes(&first), wr_bytes(&second)));
    }
    free(once);
    free(twice);
    return 0;
}
