/* Any bytes as the ledger's snapshot: as a head and blocks as they are, and as the content of a
 * block whose sums are right, since hardly any bytes have them. What was taken over is counted. */
#include "ledger/snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum err block_take(struct ledger *l, const struct snapshot_block *block,
                           struct bytes content, struct snapshot_counts *counts)
{
    enum err err = ledger_load_block(l, block, content, counts);
    struct ledger_numbers now;
    ledger_numbers(l, &now);
    invariant(err == OK || err == ERR_DAMAGED || err == ERR_NO_MEMORY);
    invariant(err || (now.keys <= counts->rows && now.steps <= counts->steps));
    return err;
}

static void as_it_is(struct ledger *l, struct bytes in)
{
    struct snapshot_head head;
    struct snapshot_counts counts = {0};
    struct snapshot_block block;
    enum err err = snapshot_head_read(in, &head);
    invariant(err == OK || err == ERR_DAMAGED || err == ERR_UNSUPPORTED);
    for (size_t at = SNAPSHOT_HEAD; !err && at <= in.len; at += SNAPSHOT_BLOCK_HEAD + block.size) {
        struct bytes rest = bytes_from(in, at);
        err = snapshot_block_read(rest, &block);
        if (!err && block.size > rest.len - SNAPSHOT_BLOCK_HEAD)
            return;
        if (!err)
            err =
                block_take(l, &block, bytes_of(rest.at + SNAPSHOT_BLOCK_HEAD, block.size), &counts);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ledger_options options = {1000, 2000, 7};
    struct ledger *l;
    struct snapshot_counts counts = {0};
    if (size < 2 || ledger_open(&options, &l))
        return 0;
    as_it_is(l, bytes_of(data, size));
    ledger_close(l);
    if (ledger_open(&options, &l))
        return 0;
    struct bytes content = bytes_of(data + 2, size - 2);
    struct snapshot_block block = {data[0] % 4u, data[1], (uint32_t)content.len, 0};
    block.crc = snapshot_crc(&block, content);
    (void)(block_take(l, &block, content, &counts) == OK);
    ledger_close(l);
    return 0;
}
