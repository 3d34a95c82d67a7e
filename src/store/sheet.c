/* sheet.c - records are written down before they have a place.
 *
 * All that a record says is known before it gets into the log, but for three numbers: where it
 * stands, its place in its queue, and the time. So whoever appends writes its records on a *sheet*
 * outside of the tail's room. Inside, these numbers are filled in, and the sheet goes to the file
 * as it is: others wait only for that.
 *
 * Some sheets lie in the store. Whoever comes takes one that nobody has, without waiting. Who finds
 * none, or has too much for one, or something that leaves no slip, which the dispatcher wants to
 * find in the tail's window, writes inside, into that window (commitlog.c). So does, with its sheet
 * in hand, who finds the ring of slips full, or such a record in the window.
 */
#include "store/store_int.h"

#include <stdlib.h>

#define SHEET_LEAST (64u << 10)
#define SHEET_MOST  (512u << 10)

void sheets_clear(struct sheet *sheets)
{
    for (size_t i = 0; i < SHEETS; i++)
        free(sheets[i].at);
}

/* The bytes of all drafts; 0: they do not go on a sheet. The sizes go into `out`. */
static uint64_t sheet_measure(const struct store *store, const struct draft *drafts, size_t n,
                              struct stored *out)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n;) {
        uint64_t size;
        size_t count = unit_measure(store, drafts + i, n - i, out + i, &size);
        for (size_t k = i; k < i + count; k++)
            if (!drafts[k].marks.known)
                return 0;
        total += size;
        i += count;
        if (size == 0 || total > SHEET_MOST)
            return 0;
    }
    return total;
}

static struct sheet *sheet_take(struct store *store, size_t size)
{
    struct sheet *sheet = NULL;
    for (size_t i = 0; !sheet && i < SHEETS; i++)
        if (!atomic_flag_test_and_set_explicit(&store->sheets[i].taken, memory_order_acquire))
            sheet = &store->sheets[i];
    if (!sheet || size <= sheet->size)
        return sheet;
    size_t bigger = sheet->size ? sheet->size : SHEET_LEAST;
    while (bigger < size)
        bigger *= 2;
    free(sheet->at);
    sheet->at = malloc(bigger);
    sheet->size = sheet->at ? bigger : 0;
    if (sheet->at)
        return sheet;
    sheet_put_back(sheet);
    return NULL;
}

struct sheet *sheet_write(struct store *store, const struct draft *drafts, size_t n,
                          struct stored *out)
{
    uint64_t size = sheet_measure(store, drafts, n, out);
    struct sheet *sheet = size ? sheet_take(store, size) : NULL;
    if (!sheet)
        return NULL;
    struct wr w = wr_over(sheet->at, size);
    for (size_t i = 0; i < n; i++) {
        struct record r = draft_record(&drafts[i]);
        enum err err = record_encode(&r, &w);
        invariant(err == OK); /* unit_measure has seen it */
    }
    invariant(wr_room(&w) == 0);
    sheet->len = size;
    return sheet;
}

void sheet_put_back(struct sheet *sheet)
{
    if (sheet)
        atomic_flag_clear_explicit(&sheet->taken, memory_order_release);
}
