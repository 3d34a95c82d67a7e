/* Any bytes as a record of the ledger. What is accepted is written as the same bytes again, but for
 * the byte behind the version. */
#include "ledger/entry.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct copy {
    struct wr w;
    size_t n;
};

static bool again(void *user, const struct ledger_entry *e)
{
    struct copy *copy = user;
    entry_write(&copy->w, e);
    copy->n++;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *room = malloc(size + 1);
    invariant(room != NULL);
    struct copy copy = {.w = wr_over(room, size)};
    entries_begin(&copy.w);
    if (entries_read(bytes_of(data, size), again, &copy) == OK) {
        entries_end(&copy.w, copy.n);
        invariant(!copy.w.full && wr_len(&copy.w) == size);
        room[1] = data[1];
        invariant(memcmp(room, data, size) == 0);
    } else
        invariant(copy.n == 0);
    free(room);
    return 0;
}
