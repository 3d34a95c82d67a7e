/* Any bytes as an index file: the header is refused or makes sense, its slots can be made again
 * from its entries and taken back, and walks along every chain end inside the file, with the slots
 * of the file and with those made again. */
#include "store/index_int.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const struct index_view *view)
{
    static const int64_t times[][2] = {{0, INT64_MAX}, {INT64_MIN, 0}, {1700000001000, INT64_MAX}};
    for (uint32_t hash = 0; hash < view->shape->slots; hash++) {
        for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
            struct index_query q = {.max = 64, .begin_ms = times[i][0], .end_ms = times[i][1]};
            struct index_result got = {0};
            (void)index_view_in_time(view, &q);
            index_view_search(view, hash, &q, &got);
            invariant(got.n <= INDEX_QUERY_MAX);
        }
    }
}

/* What was made from sound entries finds the last of them. */
static void find_last(const struct index_view *view)
{
    uint32_t last = view->head.count - 1;
    struct index_entry e = index_entry_load(view->map + index_entry_at(view->shape, last));
    struct index_query q = {.max = 1, .end_ms = INT64_MAX};
    struct index_result got = {0};
    index_view_search(view, e.hash, &q, &got);
    invariant(got.n == 1);
    invariant(got.positions[0] == e.position);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct index_shape shape = {.slots = 1 + data[0] % 32};
    data++, size--;
    uint64_t before_entries = index_entry_at(&shape, 0);
    if (size < before_entries + 2 * INDEX_ENTRY_SIZE)
        return 0;
    shape.entries = (uint32_t)((size - before_entries) / INDEX_ENTRY_SIZE);
    struct index_view view = {.shape = &shape, .map = data};
    if (index_header_decode(bytes_of(data, INDEX_HEADER_SIZE), &shape, &view.head))
        return 0;
    invariant(view.head.count >= 1);
    invariant(view.head.count <= shape.entries);
    walk(&view);

    struct index_table *lazy = index_table_new(&shape, view.head.count);
    struct index_table *built = index_table_new(&shape, 0);
    invariant(lazy && built);
    view.table = lazy;
    walk(&view);
    index_table_set(lazy, data, 0, 1);
    walk(&view);

    view.head.count = index_table_build(built, data, &view.head);
    view.table = built;
    walk(&view);
    if (view.head.count > 1)
        find_last(&view);
    index_table_compare(built, data);
    index_table_cut(built, data, &view.head,
                    view.head.begin_position +
                        (view.head.end_position - view.head.begin_position) / 2);
    walk(&view);
    index_table_cut(built, data, &view.head, 0);
    invariant(view.head.count == 1);
    invariant(view.head.slot_count == 0);
    index_table_drop(lazy);
    index_table_drop(built);
    return 0;
}
