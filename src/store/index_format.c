/* index_format.c - the bytes of an index file, and the walk along one of its chains.
 *
 * Witness for the format, the hash and the rules of a query: Apache's IndexFile, IndexHeader and
 * IndexService of 5.x. No I/O here, so that it can be fuzzed.
 */
#include "store/index_int.h"

#include "base/block.h"
#include "base/utf8.h"

uint64_t index_file_size(const struct index_shape *shape)
{
    return index_entry_at(shape, shape->entries);
}

uint64_t index_entry_at(const struct index_shape *shape, uint32_t number)
{
    return INDEX_HEADER_SIZE + (uint64_t)shape->slots * INDEX_CELL_SIZE +
           (uint64_t)number * INDEX_ENTRY_SIZE;
}

/* ---- header and entry ---- */

enum err index_header_decode(struct bytes in, const struct index_shape *shape,
                             struct index_header *out)
{
    struct rd r = rd_over(in);
    struct index_header h = {0};
    h.begin_ms = (int64_t)rd_u64(&r);
    h.end_ms = (int64_t)rd_u64(&r);
    h.begin_position = rd_u64(&r);
    h.end_position = rd_u64(&r);
    h.slot_count = rd_u32(&r);
    h.count = rd_u32(&r);
    if (r.bad)
        return ERR_MALFORMED;

    if (h.count == 0) /* Apache writes it with the first entry */
        h.count = 1;
    if (h.count > shape->entries || h.slot_count > shape->slots)
        return ERR_DAMAGED;
    if (h.begin_ms < 0 || h.begin_ms > INDEX_MS_MAX || h.end_ms < 0 || h.end_ms > INDEX_MS_MAX)
        return ERR_DAMAGED;
    if (h.begin_position > h.end_position || h.end_position > INT64_MAX)
        return ERR_DAMAGED;
    *out = h;
    return OK;
}

void index_header_encode(const struct index_header *head, uint8_t out[INDEX_HEADER_SIZE])
{
    store_u64(out, (uint64_t)head->begin_ms);
    store_u64(out + 8, (uint64_t)head->end_ms);
    store_u64(out + 16, head->begin_position);
    store_u64(out + 24, head->end_position);
    store_u32(out + 32, head->slot_count);
    store_u32(out + 36, head->count);
}

struct index_entry index_entry_load(const uint8_t *at)
{
    return (struct index_entry){load_u32(at), load_u64(at + 4), load_u32(at + 12),
                                load_u32(at + 16)};
}

void index_entry_save(uint8_t *at, const struct index_entry *entry)
{
    store_u32(at, entry->hash);
    store_u64(at + 4, entry->position);
    store_u32(at + 12, entry->seconds);
    store_u32(at + 16, entry->prev);
}

/* Apache computes the first entry's seconds from the end of the file before, and then sets the
 * begin to the entry's own time: after a quiet hour that entry seems to lie an hour ahead, and a
 * query with an end does not find it. Ours has 0 there, which is what the field means. */
uint32_t index_seconds(const struct index_header *head, int64_t store_ms)
{
    if (head->count <= 1 || head->begin_ms <= 0 || store_ms <= head->begin_ms)
        return 0;
    int64_t seconds = (store_ms - head->begin_ms) / 1000;
    return seconds < INT32_MAX ? (uint32_t)seconds : INT32_MAX;
}

/* ---- hash ---- */

/* One character that is not ASCII, or a byte that is none (see tags.c). */
static uint32_t hash_wide(uint32_t hash, const uint8_t **at, const uint8_t *end)
{
    static const uint8_t first_bits[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    size_t len = utf8_length(*at, end);
    uint32_t c = UTF8_REPLACEMENT;
    if (len) {
        c = (*at)[0] & first_bits[len];
        for (size_t i = 1; i < len; i++)
            c = c << 6 | ((*at)[i] & 0x3f);
    }
    *at += len ? len : 1;
    if (c >= 0x10000) {
        c -= 0x10000;
        hash = 31 * hash + (0xd800 + (c >> 10));
        c = 0xdc00 + (c & 0x3ff);
    }
    return 31 * hash + c;
}

#define FOUR_ON  (31u * 31 * 31 * 31) /* what letters weigh when so many come behind them */
#define EIGHT_ON (FOUR_ON * FOUR_ON)

/* The hash of eight letters whose neighbours are joined already, four sums of sixteen bits; the
 * first in the lowest. */
static inline uint32_t pairs_join(uint64_t pairs)
{
    const uint64_t in_four = 0x0000ffff0000ffffu;
    uint64_t fours = (pairs & in_four) * (31 * 31) + (pairs >> 16 & in_four);
    return (uint32_t)fours * FOUR_ON + (uint32_t)(fours >> 32);
}

typedef uint16_t block_pairs __attribute__((vector_size(BLOCK)));

/* Goes on with a Java string hash by sixteen ASCII letters. Step by step it is as many
 * multiplications that wait for one another; here neighbours are joined first, all pairs at once,
 * then pairs. No lane overflows: a pair is below 128 * 32, four letters are below 2^12 * 962. */
static inline uint32_t hash_block(uint32_t hash, block_bytes letters)
{
    block_pairs both = (block_pairs)letters, joined = (both & 0xff) * 31 + (both >> 8);
    uint64_t halves[2];
    memcpy(halves, &joined, sizeof halves);
    return (hash * EIGHT_ON + pairs_join(halves[0])) * EIGHT_ON + pairs_join(halves[1]);
}

static uint32_t hash_more(uint32_t hash, struct bytes text)
{
    const uint8_t *at = text.at, *end = text.at + text.len;
    while (at < end) {
        if (end - at >= BLOCK && block_mask(block_load(at)) == 0) { /* no sign: all are ASCII */
            hash = hash_block(hash, block_load(at));
            at += BLOCK;
        } else if (*at < 0x80) {
            hash = 31 * hash + *at++;
        } else {
            hash = hash_wide(hash, &at, end);
        }
    }
    return hash;
}

static uint32_t hash_begin(struct bytes topic, struct bytes between)
{
    return hash_more(topic.len ? hash_more(0, topic) : 0, between);
}

static uint32_t hash_end(uint32_t hash, struct bytes key)
{
    hash = key.len ? hash_more(hash, key) : hash;
    if (hash == 0x80000000u) /* has no positive counterpart */
        return 0;
    return hash > INT32_MAX ? -hash : hash;
}

uint32_t index_hash(struct bytes topic, struct bytes key)
{
    return hash_end(hash_begin(topic, BYTES("#")), key);
}

uint32_t index_hash_near(struct key_topic *last, struct bytes topic, struct bytes key)
{
    if (last->len == 0 || !bytes_equal(topic, bytes_of(last->name, last->len))) {
        if (topic.len == 0 || topic.len > sizeof last->name)
            return index_hash(topic, key);
        memcpy(last->name, topic.at, topic.len);
        last->len = topic.len;
        last->hash = hash_begin(topic, BYTES("#"));
    }
    return hash_end(last->hash, key);
}

uint32_t index_hash_tag(struct bytes topic, struct bytes tag)
{
    return hash_end(hash_begin(topic, BYTES("#T#")), tag);
}

/* ---- query ---- */

bool index_view_in_time(const struct index_view *view, const struct index_query *query)
{
    int64_t first = view->head.begin_ms, last = view->head.end_ms;
    return (query->begin_ms < first && query->end_ms > last) ||
           (query->begin_ms >= first && query->begin_ms <= last) ||
           (query->end_ms >= first && query->end_ms <= last);
}

static uint32_t view_slot(const struct index_view *view, uint32_t slot)
{
    if (view->table)
        return index_table_get(view->table, view->map, slot);
    uint32_t number = load_u32(view->map + ((size_t)slot + INDEX_CELL_FIRST) * INDEX_CELL_SIZE);
    return number < view->head.count ? number : 0;
}

void index_view_search(const struct index_view *view, uint32_t hash,
                       const struct index_query *query, struct index_result *out)
{
    size_t max = query->max < INDEX_QUERY_MAX ? query->max : INDEX_QUERY_MAX;
    if (view->head.count <= 1)
        return;
    /* A table may be ahead of the count we have; whatever it names is in the file. */
    uint32_t number = view_slot(view, hash % view->shape->slots);
    if (number >= view->shape->entries)
        return;
    while (number > 0 && out->n < max) {
        struct index_entry e = index_entry_load(view->map + index_entry_at(view->shape, number));
        if (e.seconds > INT32_MAX)
            return;
        int64_t entry_ms = view->head.begin_ms + (int64_t)e.seconds * 1000;
        if (e.hash == hash && entry_ms >= query->begin_ms && entry_ms <= query->end_ms)
            out->positions[out->n++] = e.position;
        if (entry_ms < query->begin_ms || e.prev >= number)
            return; /* older ones are older still; a chain that does not fall is damaged */
        number = e.prev;
    }
}
