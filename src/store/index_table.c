/* index_table.c - the slots of an unfinished index file, in memory. */
#include "store/index_int.h"

#include "base/list.h"

#include <stdlib.h>

#define WRITE_PAGES 32 /* neighbours that leave in one write */

static void table_release(struct counted *owner)
{
    struct index_table *table = list_entry(owner, struct index_table, owner);
    free(table->cells);
    free(table->loaded);
    free(table->dirty);
    free(table);
}

struct index_table *index_table_new(const struct index_shape *shape, uint32_t known)
{
    struct index_table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    counted_init(&table->owner, table_release);
    table->shape = shape;
    table->known = known;
    table->lazy = known > 0;
    table->pages = (uint32_t)((index_entry_at(shape, 0) + INDEX_PAGE - 1) / INDEX_PAGE);
    size_t words = table->pages / 64 + 1;
    /* calloc takes big areas straight from the kernel: pages that nobody touches cost nothing. */
    table->cells = calloc((size_t)table->pages * INDEX_PAGE_CELLS, sizeof *table->cells);
    table->loaded = calloc(words, sizeof *table->loaded);
    table->dirty = calloc(words, sizeof *table->dirty);
    if (!table->cells || !table->loaded || !table->dirty) {
        index_table_drop(table);
        return NULL;
    }
    return table;
}

void index_table_drop(struct index_table *table)
{
    if (table)
        counted_drop(&table->owner);
}

/* ---- one slot ---- */

static bool page_loaded(const struct index_table *table, uint32_t page)
{
    return atomic_load_explicit(&table->loaded[page / 64], memory_order_acquire) >> page % 64 & 1;
}

static uint32_t cell_get(const struct index_table *table, uint32_t cell)
{
    return __builtin_bswap32(atomic_load_explicit(&table->cells[cell], memory_order_acquire));
}

static void cell_set(struct index_table *table, uint32_t cell, uint32_t number)
{
    atomic_store_explicit(&table->cells[cell], __builtin_bswap32(number), memory_order_release);
}

/* A slot as the file has it; what it cannot have known is none. */
static uint32_t cell_in_file(const struct index_table *table, const uint8_t *map, uint32_t cell)
{
    uint32_t number = load_u32(map + (size_t)cell * INDEX_CELL_SIZE);
    return number < table->known ? number : 0;
}

uint32_t index_table_get(const struct index_table *table, const uint8_t *map, uint32_t slot)
{
    uint32_t cell = slot + INDEX_CELL_FIRST, page = cell / INDEX_PAGE_CELLS;
    if (page_loaded(table, page))
        return cell_get(table, cell);
    if (!table->lazy)
        return 0; /* reading it would have the kernel make the page, and once more for writing */
    uint32_t number = cell_in_file(table, map, cell);
    /* 0 is also what we made of a number that came to the file after the page was loaded. */
    return number == 0 && page_loaded(table, page) ? cell_get(table, cell) : number;
}

static void page_mark(struct index_table *table, uint32_t page)
{
    atomic_fetch_or_explicit(&table->loaded[page / 64], (uint64_t)1 << page % 64,
                             memory_order_release);
}

static void page_load(struct index_table *table, const uint8_t *map, uint32_t page)
{
    uint32_t slots_end = table->shape->slots + INDEX_CELL_FIRST;
    uint32_t cell = page ? page * INDEX_PAGE_CELLS : INDEX_CELL_FIRST;
    for (; cell < slots_end && cell / INDEX_PAGE_CELLS == page; cell++)
        cell_set(table, cell, cell_in_file(table, map, cell));
    page_mark(table, page);
}

void index_table_set(struct index_table *table, const uint8_t *map, uint32_t slot, uint32_t number)
{
    uint32_t cell = slot + INDEX_CELL_FIRST, page = cell / INDEX_PAGE_CELLS;
    bool loaded = page_loaded(table, page);
    if (table->lazy && !loaded)
        page_load(table, map, page);
    cell_set(table, cell, number);
    if (!table->lazy && !loaded)
        page_mark(table, page);
    table->dirty[page / 64] |= (uint64_t)1 << page % 64;
}

/* ---- after a crash ---- */

/* Each entry must lead to the one before it in its chain: damage is rarely that clever. */
uint32_t index_table_build(struct index_table *table, const uint8_t *map, struct index_header *head)
{
    invariant(!table->lazy);
    const struct index_shape *shape = table->shape;
    uint64_t position = head->begin_position;
    head->slot_count = 0;
    for (uint32_t number = 1; number < head->count; number++) {
        struct index_entry e = index_entry_load(map + index_entry_at(shape, number));
        uint32_t slot = e.hash % shape->slots;
        if (e.hash > INT32_MAX || e.seconds > INT32_MAX || e.position < position ||
            e.position > head->end_position || e.prev != index_table_get(table, map, slot))
            return number;
        position = e.position;
        head->slot_count += e.prev == 0;
        index_table_set(table, map, slot, number);
    }
    return head->count;
}

void index_table_cut(struct index_table *table, const uint8_t *map, struct index_header *head,
                     uint64_t position)
{
    const struct index_shape *shape = table->shape;
    while (head->count > 1) {
        uint32_t number = head->count - 1;
        struct index_entry e = index_entry_load(map + index_entry_at(shape, number));
        if (e.position < position)
            break;
        index_table_set(table, map, e.hash % shape->slots, e.prev);
        head->slot_count -= e.prev == 0;
        head->count = number;
    }
}

/* ---- to the disk ---- */

/* The slots of `n` pages, as they stand in memory and in the file. */
static struct bytes pages_bytes(const struct index_table *table, uint32_t page, uint32_t n,
                                uint64_t *at)
{
    uint64_t slots_end = index_entry_at(table->shape, 0);
    uint64_t from = (uint64_t)page * INDEX_PAGE, to = from + (uint64_t)n * INDEX_PAGE;
    from = page ? from : INDEX_HEADER_SIZE;
    to = to < slots_end ? to : slots_end;
    *at = from;
    return bytes_of((const uint8_t *)table->cells + from, (size_t)(to - from));
}

static bool page_dirty(const struct index_table *table, uint32_t page)
{
    return table->dirty[page / 64] >> page % 64 & 1;
}

void index_table_compare(struct index_table *table, const uint8_t *map)
{
    for (uint32_t page = 0; page < table->pages; page++) {
        uint64_t at, bit = (uint64_t)1 << page % 64;
        struct bytes slots = pages_bytes(table, page, 1, &at);
        if (memcmp(slots.at, map + at, slots.len) != 0)
            table->dirty[page / 64] |= bit;
        else
            table->dirty[page / 64] &= ~bit;
    }
}

enum err index_table_write(struct index_table *table, struct vfs *vfs, struct vfs_file *file,
                           struct fault *why)
{
    for (uint32_t page = 0; page < table->pages; page++) {
        uint32_t n = 0;
        while (n < WRITE_PAGES && page + n < table->pages && page_dirty(table, page + n))
            n++;
        if (n == 0)
            continue;
        uint64_t at;
        struct bytes slots = pages_bytes(table, page, n, &at);
        struct iovec part = {.iov_len = slots.len};
        memcpy(&part.iov_base, &slots.at, sizeof part.iov_base); /* an iovec has no const */
        enum err err = vfs->calls->write(file, at, &part, 1, why);
        if (err)
            return err;
        for (; n > 0; n--, page++)
            table->dirty[page / 64] &= ~((uint64_t)1 << page % 64);
        page--;
    }
    return OK;
}
