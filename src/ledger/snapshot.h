/* snapshot.h - the whole ledger as bytes, so that a start need not read all of the log. Pure.
 *
 * A file is a head, blocks and an end. It is made while others write: rows are copied in parts, and
 * what changes meanwhile stands in the log behind the place that the head names, so that reading
 * both gives what was so at any later moment.
 *
 *     head      "ONCELDGR", u32 version 1, u32 0, u64 birth, u64 position, i64 offset, i64 time,
 *               i64 floor, u64 0, u32 0, u32 CRC of all before it
 *     block     u32 kind, u32 n, u32 size, u32 CRC of kind, n, size and content; `size` bytes:
 *       1 rows  n times: id[16], u64 token, i64 fence, i64 until, u64 fingerprint, u64 where,
 *               u8 state, u8 0, u16 flags
 *       2 steps n times: id[16], u64 where, u16 length, the name
 *       3 end   how many rows and steps there were: u64, u64. Nothing comes behind it
 *
 * Entries before `position`, the first of which in the queue is that at `offset`, are in it.
 */
#ifndef LEDGER_SNAPSHOT_H
#define LEDGER_SNAPSHOT_H

#include "base/buf.h"
#include "ledger/ledger.h"

#define SNAPSHOT_HEAD       72
#define SNAPSHOT_BLOCK_HEAD 16
#define SNAPSHOT_BLOCK_MAX  (4u << 20) /* of its content */

struct snapshot_head {
    uint64_t birth, position;
    int64_t offset; /* of the first record behind it */
    int64_t time_ms, floor;
};

struct snapshot_block {
    uint32_t kind, n, size, crc;
};
enum { SNAPSHOT_ROWS = 1, SNAPSHOT_STEPS, SNAPSHOT_END };

void snapshot_head_write(uint8_t out[SNAPSHOT_HEAD], const struct snapshot_head *head);
/* ERR_DAMAGED; ERR_UNSUPPORTED: another version. */
must_check enum err snapshot_head_read(struct bytes in, struct snapshot_head *out);
/* ERR_DAMAGED: a size that cannot be. */
must_check enum err snapshot_block_read(struct bytes in, struct snapshot_block *out);

uint32_t snapshot_crc(const struct snapshot_block *block, struct bytes content);

/* ---- writing ---- */

/* Some rows and the steps of these, on their way into a file. */
struct ledger_part {
    struct buf rows, steps;
    uint32_t n_rows, n_steps;
};
struct ledger_cursor {
    uint32_t shard, row;
};
void ledger_part_init(struct ledger_part *part);
void ledger_part_clear(struct ledger_part *part);
int64_t ledger_floor(const struct ledger *l);
/* With the key: copies what stands in up to `rows` places from the cursor on, and moves it. False:
 * that was the end; there may be something all the same. */
must_check bool ledger_copy(const struct ledger *l, struct ledger_cursor *at, uint32_t rows,
                            struct ledger_part *part);
/* Without it: as blocks, behind what is in `out`. Its err, and the part's. */
must_check enum err ledger_part_write(struct ledger_part *part, struct buf *out);
void snapshot_end_write(struct buf *out, uint64_t rows, uint64_t steps);

/* ---- reading ---- */

struct snapshot_counts {
    uint64_t rows, steps;
    bool ended;
};
/* Takes over the content of a block. ERR_DAMAGED: anything that cannot be; ERR_NO_MEMORY. */
must_check enum err ledger_load_block(struct ledger *l, const struct snapshot_block *block,
                                      struct bytes content, struct snapshot_counts *counts);
void ledger_load_floor(struct ledger *l, int64_t floor);

#endif
