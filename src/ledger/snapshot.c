/* snapshot.c - the whole ledger as bytes. */
#include "ledger/snapshot.h"

#include "base/crc32.h"
#include "ledger/ledger_int.h"
#include "once.h"

#define MAGIC    UINT64_C(0x4f4e43454c444752) /* ONCELDGR */
#define VERSION  1
#define ROW_SIZE (ROWS_ID_SIZE + 8 * 5 + 4)
#define PART_MAX (1u << 20) /* bytes of rows or steps, before the part is as big as it gets */

/* ---- head and blocks ---- */

void snapshot_head_write(uint8_t out[SNAPSHOT_HEAD], const struct snapshot_head *head)
{
    uint8_t text[SNAPSHOT_HEAD];
    struct wr w = wr_over(text, sizeof text);
    wr_u64(&w, MAGIC);
    wr_u32(&w, VERSION);
    wr_u32(&w, 0);
    wr_u64(&w, head->birth);
    wr_u64(&w, head->position);
    wr_u64(&w, (uint64_t)head->offset);
    wr_u64(&w, (uint64_t)head->time_ms);
    wr_u64(&w, (uint64_t)head->floor);
    wr_u64(&w, 0);
    wr_u32(&w, 0);
    wr_u32(&w, crc32_of(wr_bytes(&w)));
    invariant(!w.full && wr_len(&w) == SNAPSHOT_HEAD);
    memcpy(out, text, sizeof text);
}

enum err snapshot_head_read(struct bytes in, struct snapshot_head *out)
{
    struct rd r = rd_over(in);
    struct snapshot_head h = {0};
    bool magic = rd_u64(&r) == MAGIC;
    uint32_t version = rd_u32(&r);
    (void)rd_u32(&r);
    h.birth = rd_u64(&r);
    h.position = rd_u64(&r);
    h.offset = (int64_t)rd_u64(&r);
    h.time_ms = (int64_t)rd_u64(&r);
    h.floor = (int64_t)rd_u64(&r);
    (void)rd_u64(&r);
    (void)rd_u32(&r);
    uint32_t crc = rd_u32(&r);
    if (r.bad || !magic || crc != crc32_of(bytes_of(in.at, SNAPSHOT_HEAD - 4)))
        return ERR_DAMAGED;
    if (version != VERSION)
        return ERR_UNSUPPORTED;
    if (h.birth > INT64_MAX || h.position > INT64_MAX || h.offset < 0 || h.time_ms < 0)
        return ERR_DAMAGED;
    *out = h;
    return OK;
}

uint32_t snapshot_crc(const struct snapshot_block *block, struct bytes content)
{
    uint8_t numbers[16];
    struct wr w = wr_over(numbers, sizeof numbers);
    wr_u32(&w, block->kind);
    wr_u32(&w, block->n);
    wr_u32(&w, block->size);
    wr_u32(&w, crc32_of(content));
    return crc32_of(wr_bytes(&w));
}

enum err snapshot_block_read(struct bytes in, struct snapshot_block *out)
{
    struct rd r = rd_over(in);
    struct snapshot_block block = {.kind = rd_u32(&r)};
    block.n = rd_u32(&r);
    block.size = rd_u32(&r);
    block.crc = rd_u32(&r);
    if (r.bad || block.size > SNAPSHOT_BLOCK_MAX)
        return ERR_DAMAGED;
    *out = block;
    return OK;
}

static void block_write(struct buf *out, uint32_t kind, uint32_t n, struct bytes content)
{
    struct snapshot_block block = {kind, n, (uint32_t)content.len, 0};
    buf_add_u32(out, kind);
    buf_add_u32(out, n);
    buf_add_u32(out, block.size);
    buf_add_u32(out, snapshot_crc(&block, content));
    buf_add(out, content);
}

/* ---- writing ---- */

void ledger_part_init(struct ledger_part *part)
{
    *part = (struct ledger_part){.rows = buf_upto(SNAPSHOT_BLOCK_MAX),
                                 .steps = buf_upto(SNAPSHOT_BLOCK_MAX)};
}

void ledger_part_clear(struct ledger_part *part)
{
    buf_clear(&part->rows);
    buf_clear(&part->steps);
}

int64_t ledger_floor(const struct ledger *l)
{
    return l->floor;
}

static void row_copy(const struct row *row, struct ledger_part *part)
{
    uint8_t *at = buf_space(&part->rows, ROW_SIZE);
    if (!at)
        return;
    struct wr w = wr_over(at, ROW_SIZE);
    wr_bytes_of(&w, bytes_of(row->id, ROWS_ID_SIZE));
    wr_u64(&w, row->token);
    wr_u64(&w, (uint64_t)row->fence);
    wr_u64(&w, (uint64_t)row->until_ms);
    wr_u64(&w, row->fingerprint);
    wr_u64(&w, row->where);
    wr_u8(&w, row->state);
    wr_u8(&w, 0);
    wr_u16(&w, row->flags);
    part->n_rows++;
}

static void steps_copy(const struct ledger *l, const struct row *row, struct ledger_part *part)
{
    const struct ledger_steps *steps = map_get(&l->steps, bytes_of(row->id, ROWS_ID_SIZE));
    for (const struct ledger_step *s = steps ? steps->first : NULL; s; s = s->next) {
        size_t size = ROWS_ID_SIZE + 8 + 2 + s->name_size;
        uint8_t *at = buf_space(&part->steps, size);
        if (!at)
            return;
        struct wr w = wr_over(at, size);
        wr_bytes_of(&w, bytes_of(row->id, ROWS_ID_SIZE));
        wr_u64(&w, s->where);
        wr_u16(&w, (uint16_t)s->name_size);
        wr_bytes_of(&w, bytes_of(s->name, s->name_size));
        part->n_steps++;
    }
}

bool ledger_copy(const struct ledger *l, struct ledger_cursor *at, uint32_t rows,
                 struct ledger_part *part)
{
    while (rows > 0 && part->rows.len < PART_MAX && part->steps.len < PART_MAX) {
        const struct rows *shard = at->shard < ROWS_SHARDS ? &l->shard[at->shard] : NULL;
        if (!shard)
            return false;
        if (at->row >= shard->top) {
            *at = (struct ledger_cursor){at->shard + 1, 0};
            continue;
        }
        const struct row *row = rows_at(shard, at->row++);
        rows--;
        if (row->state == ONCE_ABSENT)
            continue;
        row_copy(row, part);
        if (row->stepped)
            steps_copy(l, row, part);
    }
    return true;
}

enum err ledger_part_write(struct ledger_part *part, struct buf *out)
{
    enum err err = part->rows.err ? part->rows.err : part->steps.err;
    if (!err && part->n_rows)
        block_write(out, SNAPSHOT_ROWS, part->n_rows, buf_bytes(&part->rows));
    if (!err && part->n_steps)
        block_write(out, SNAPSHOT_STEPS, part->n_steps, buf_bytes(&part->steps));
    part->rows.len = part->steps.len = 0;
    part->n_rows = part->n_steps = 0;
    return err ? err : out->err;
}

void snapshot_end_write(struct buf *out, uint64_t rows, uint64_t steps)
{
    uint8_t counts[16];
    store_u64(counts, rows);
    store_u64(counts + 8, steps);
    block_write(out, SNAPSHOT_END, 0, bytes_of(counts, sizeof counts));
}

/* ---- reading ---- */

static enum err row_load(struct ledger *l, struct rd *r)
{
    struct bytes id = rd_take(r, ROWS_ID_SIZE);
    uint64_t token = rd_u64(r);
    int64_t fence = (int64_t)rd_u64(r), until_ms = (int64_t)rd_u64(r);
    uint64_t fingerprint = rd_u64(r), where = rd_u64(r);
    uint8_t state = rd_u8(r);
    (void)rd_u8(r);
    uint16_t flags = rd_u16(r);
    if (r->bad || state == ONCE_ABSENT || state > ONCE_RELEASED || where >= LEDGER_PENDING)
        return ERR_DAMAGED;
    struct row *row = ledger_row_need(l, id.at);
    if (!row)
        return ERR_NO_MEMORY;
    /* One that was swept and came again meanwhile stands here twice. The later copy counts, with
     * the steps behind it alone: nothing in the log says that those of the first are over. */
    ledger_steps_drop(l, row);
    row->token = token;
    row->fence = fence;
    row->until_ms = until_ms;
    row->fingerprint = fingerprint;
    row->where = where;
    row->state = state;
    row->flags = flags & ROW_FLAGS;
    return OK;
}

static enum err step_load(struct ledger *l, struct rd *r)
{
    struct bytes id = rd_take(r, ROWS_ID_SIZE);
    uint64_t where = rd_u64(r);
    struct bytes name = rd_take(r, rd_u16(r));
    struct row *row = r->bad ? NULL : rows_find(&l->shard[rows_shard(id.at)], id.at);
    struct ledger_step *step;
    if (!row || name.len == 0 || name.len > ONCE_STEP_MAX || where >= LEDGER_PENDING)
        return ERR_DAMAGED;
    return ledger_step_add(l, row, name, where, &step);
}

enum err ledger_load_block(struct ledger *l, const struct snapshot_block *block,
                           struct bytes content, struct snapshot_counts *counts)
{
    if (content.len != block->size || block->crc != snapshot_crc(block, content) || counts->ended)
        return ERR_DAMAGED;
    struct rd r = rd_over(content);
    enum err err = OK;
    switch (block->kind) {
    case SNAPSHOT_ROWS:
        for (uint32_t i = 0; !err && i < block->n; i++)
            err = row_load(l, &r);
        counts->rows += block->n;
        break;
    case SNAPSHOT_STEPS:
        for (uint32_t i = 0; !err && i < block->n; i++)
            err = step_load(l, &r);
        counts->steps += block->n;
        break;
    case SNAPSHOT_END:
        counts->ended = true;
        if (rd_u64(&r) != counts->rows || rd_u64(&r) != counts->steps)
            return ERR_DAMAGED;
        break;
    default:
        return ERR_DAMAGED;
    }
    return !err && (r.bad || rd_left(&r) > 0) ? ERR_DAMAGED : err;
}

void ledger_load_floor(struct ledger *l, int64_t floor)
{
    l->floor = floor > l->floor ? floor : l->floor;
}
