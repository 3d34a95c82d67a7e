/* rows.c - rows by id. */
#include "once/rows.h"

#include "base/bytes.h"
#include "base/map.h"
#include "once.h"

#include <stdlib.h>

#define NONE      UINT32_MAX
#define SLOTS_FEW 16

void rows_init(struct rows *rows, uint64_t seed)
{
    *rows = (struct rows){.free = NONE, .seed = seed};
}

void rows_clear(struct rows *rows)
{
    for (uint32_t p = 0; p < rows->n_pages; p++)
        free(rows->page[p]);
    free(rows->page);
    free(rows->slot);
    rows_init(rows, rows->seed);
}

static uint32_t tag_of(const struct rows *rows, const uint8_t *id)
{
    return (uint32_t)bytes_hash(bytes_of(id, ROWS_ID_SIZE), rows->seed);
}

/* The slot of this id, or the free one where the search for it ends: some always are. */
static struct rows_slot *slot_find(const struct rows *rows, const uint8_t *id)
{
    uint32_t mask = rows->n_slots - 1, tag = tag_of(rows, id), i = tag & mask;
    for (; rows->slot[i].number != NONE; i = (i + 1) & mask) {
        if (rows->slot[i].tag == tag &&
            memcmp(rows_at(rows, rows->slot[i].number)->id, id, ROWS_ID_SIZE) == 0)
            break;
    }
    return &rows->slot[i];
}

struct row *rows_find(const struct rows *rows, const uint8_t *id)
{
    if (rows->n_slots == 0)
        return NULL;
    const struct rows_slot *slot = slot_find(rows, id);
    return slot->number == NONE ? NULL : rows_at(rows, slot->number);
}

void rows_expect(const struct rows *rows, const uint8_t *id, bool far)
{
    if (rows->n_slots == 0)
        return;
    uint32_t tag = tag_of(rows, id);
    const struct rows_slot *slot = &rows->slot[tag & (rows->n_slots - 1)];
    if (far)
        __builtin_prefetch(slot);
    else if (slot->number != NONE &&
             slot->tag == tag) /* else it is new, or not where it would be */
        __builtin_prefetch(rows_at(rows, slot->number), 1);
}

static enum err slots_set(struct rows *rows, uint32_t n)
{
    uint32_t mask = n - 1;
    struct rows_slot *grown = malloc((size_t)n * sizeof *grown);
    if (!grown)
        return ERR_NO_MEMORY;
    memset(grown, 0xff, (size_t)n * sizeof *grown); /* NONE */
    for (uint32_t old = 0; old < rows->n_slots; old++) {
        if (rows->slot[old].number == NONE)
            continue;
        uint32_t i = rows->slot[old].tag & mask;
        while (grown[i].number != NONE)
            i = (i + 1) & mask;
        grown[i] = rows->slot[old];
    }
    free(rows->slot);
    rows->slot = grown;
    rows->n_slots = n;
    return OK;
}

static enum err slots_grow(struct rows *rows)
{
    enum err err = slots_set(rows, rows->n_slots ? rows->n_slots * 2 : SLOTS_FEW);
    return rows->n + 1 < rows->n_slots ? OK : err; /* one more will do, if one stays free */
}

/* What stands behind it and would rather stand here, or before, moves up. */
static void slot_free(struct rows *rows, struct rows_slot *slot)
{
    uint32_t mask = rows->n_slots - 1, hole = (uint32_t)(slot - rows->slot);
    for (uint32_t i = (hole + 1) & mask; rows->slot[i].number != NONE; i = (i + 1) & mask) {
        uint32_t way = (i - rows->slot[i].tag) & mask; /* from where it would like to stand */
        if (way < ((i - hole) & mask))
            continue;
        rows->slot[hole] = rows->slot[i];
        hole = i;
    }
    rows->slot[hole].number = NONE;
}

static enum err page_add(struct rows *rows)
{
    struct row **page = realloc(rows->page, (rows->n_pages + 1) * sizeof(struct row *));
    if (!page)
        return ERR_NO_MEMORY;
    rows->page = page;
    page[rows->n_pages] = malloc(ROWS_PAGE_ROWS * sizeof(struct row));
    if (!page[rows->n_pages])
        return ERR_NO_MEMORY;
    rows->n_pages++;
    return OK;
}

struct row *rows_add(struct rows *rows, const uint8_t *id)
{
    if (rows->n >= rows->n_slots / 4 * 3 && slots_grow(rows) != OK)
        return NULL;
    uint32_t number = rows->free;
    if (number != NONE)
        rows->free = rows_at(rows, number)->next;
    else if (rows->top == rows->n_pages * ROWS_PAGE_ROWS && page_add(rows) != OK)
        return NULL;
    else
        number = rows->top++;
    struct row *row = rows_at(rows, number);
    *row = (struct row){.state = ONCE_ABSENT};
    memcpy(row->id, id, ROWS_ID_SIZE);
    __builtin_prefetch(row + 1, 1); /* probably the next one to be written */
    *slot_find(rows, id) = (struct rows_slot){tag_of(rows, id), number};
    rows->n++;
    return row;
}

void rows_drop(struct rows *rows, struct row *row)
{
    struct rows_slot *slot = slot_find(rows, row->id);
    row->state = ONCE_ABSENT;
    row->next = rows->free;
    rows->free = slot->number;
    slot_free(rows, slot);
    rows->n--;
}

size_t rows_bytes(const struct rows *rows)
{
    return (size_t)rows->n_slots * sizeof *rows->slot +
           (size_t)rows->n_pages * (ROWS_PAGE_ROWS * sizeof(struct row) + sizeof(struct row *));
}
