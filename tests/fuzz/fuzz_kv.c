/* Any bytes as kvConfig.json: refused, or a set within its limits that is the same after it was
 * written and read again. */
#include "namesrv/names_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvset set, again;
    kvset_init(&set, 1);
    kvset_init(&again, 2);
    struct buf out = buf_upto(KV_FILE_MAX), out_again = buf_upto(KV_FILE_MAX);

    enum err err = kvset_read(bytes_of(data, size), &set, NULL);
    invariant(set.spaces.n <= NAMES_KV_SPACES_MAX);
    invariant(set.n_pairs <= NAMES_KV_PAIRS_MAX);
    invariant(set.n_bytes <= NAMES_KV_BYTES_MAX);
    if (err) {
        invariant(err == ERR_DAMAGED || err == ERR_TOO_BIG || err == ERR_INVALID);
    } else {
        kvset_write(&out, &set, NULL);
        invariant(out.err == OK);
        invariant(kvset_read(buf_bytes(&out), &again, NULL) == OK);
        invariant(again.spaces.n == set.spaces.n);
        invariant(again.n_pairs == set.n_pairs);
        invariant(again.n_bytes == set.n_bytes);
        kvset_write(&out_again, &again, NULL);
        invariant(out_again.len == out.len); /* in another order, perhaps */
    }
    buf_clear(&out);
    buf_clear(&out_again);
    kvset_clear(&set);
    kvset_clear(&again);
    return 0;
}
