/* The output queue on its own: no socket, no loop. */
#include "io/test_int.h"

static struct out out;
static struct pool pool;

static int fresh(void **state)
{
    (void)state;
    out = (struct out){0};
    return 0;
}

static int empty(void **state)
{
    (void)state;
    out_clear(&out, &pool);
    pool_clear(&pool);
    return 0;
}

static void put(const void *at, size_t len)
{
    uint8_t *space = out_space(&out, &pool, len);
    assert_non_null(space);
    memcpy(space, at, len);
    out_used(&out, &pool, len);
}

static struct iovec one_part(void)
{
    struct iovec parts[2];
    size_t total;
    assert_int_equal(out_gather(&out, parts, 2, &total), 1);
    assert_int_equal(total, out.queued);
    return parts[0];
}

static void copies_that_follow_each_other_are_one_part(void **state)
{
    (void)state;
    put("one", 3);
    put(" and", 4);
    put(" two", 4);
    struct iovec part = one_part();
    assert_bytes_equal(bytes_of(part.iov_base, part.iov_len), BYTES("one and two"));
}

static void less_may_be_used_than_was_asked_for(void **state)
{
    (void)state;
    uint8_t *space = out_space(&out, &pool, 1000);
    memcpy(space, "ab", 2);
    out_used(&out, &pool, 2);
    assert_non_null(out_space(&out, &pool, 1000));
    out_used(&out, &pool, 0);
    put("c", 1);
    struct iovec part = one_part();
    assert_bytes_equal(bytes_of(part.iov_base, part.iov_len), BYTES("abc"));
}

static void bytes_go_on_behind_what_was_partly_sent(void **state)
{
    (void)state;
    put("abcdef", 6);
    out_sent(&out, &pool, 4);
    put("gh", 2);
    struct iovec part = one_part();
    assert_bytes_equal(bytes_of(part.iov_base, part.iov_len), BYTES("efgh"));
}

static void more_than_a_chunk_gets_memory_of_its_own_size(void **state)
{
    (void)state;
    size_t size = 10 * CHUNK_SIZE;
    uint8_t *space = out_space(&out, &pool, size);
    assert_non_null(space);
    memset(space, 'x', size);
    out_used(&out, &pool, size);
    assert_int_equal(one_part().iov_len, size);
    out_sent(&out, &pool, size);
    assert_int_equal(pool.n_chunks, 0); /* not worth keeping */
}

static void whoever_has_nothing_queued_owns_no_memory(void **state)
{
    (void)state;
    put("abc", 3);
    out_sent(&out, &pool, 3);
    assert_null(out.first);
    assert_null(out.last);
    assert_null(out.chunk);
    assert_int_equal(out.queued, 0);
    assert_int_equal(pool.n_chunks, 1);

    const struct chunk *kept = pool.chunks;
    put("def", 3);
    assert_ptr_equal(out.chunk, kept); /* and the next one gets the same again */
}

static void the_pool_keeps_only_so_much(void **state)
{
    (void)state;
    uint8_t big[CHUNK_SIZE / 2 + 100];
    memset(big, 'x', sizeof big);
    for (unsigned i = 0; i < POOL_CHUNKS_MAX + 50; i++)
        put(big, sizeof big);
    for (unsigned i = 0; i < POOL_PIECES_MAX + 50; i++)
        assert_int_equal(out_slice(&out, &pool, BYTES("s"), NULL), OK);
    out_sent(&out, &pool, out.queued);
    assert_int_equal(pool.n_chunks, POOL_CHUNKS_MAX);
    assert_int_equal(pool.n_pieces, POOL_PIECES_MAX);
}

static void gathers_no_more_parts_than_asked_for(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        assert_int_equal(out_slice(&out, &pool, BYTES("abc"), NULL), OK);
    struct iovec parts[4];
    size_t total;
    assert_int_equal(out_gather(&out, parts, 4, &total), 4);
    assert_int_equal(total, 12);
}

/* ---- slices ---- */

struct block {
    struct counted counted;
    unsigned released;
    uint8_t data[64];
};

static void on_release(struct counted *counted)
{
    ((struct block *)(void *)counted)->released++;
}

static void an_empty_slice_is_dropped_at_once(void **state)
{
    (void)state;
    struct block block = {.released = 0};
    counted_init(&block.counted, on_release);
    assert_int_equal(out_slice(&out, &pool, bytes_of(block.data, 0), &block.counted), OK);
    assert_int_equal(block.released, 1);
    assert_null(out.first);
}

static void a_slice_is_dropped_with_its_last_byte_and_not_before(void **state)
{
    (void)state;
    struct block block = {.released = 0};
    counted_init(&block.counted, on_release);
    put("head", 4);
    assert_int_equal(out_slice(&out, &pool, bytes_of(block.data, 10), &block.counted), OK);
    put("tail", 4);
    out_sent(&out, &pool, 13);
    assert_int_equal(block.released, 0);
    out_sent(&out, &pool, 1);
    assert_int_equal(block.released, 1);
    out_clear(&out, &pool);
    assert_int_equal(block.released, 1);
}

static void clearing_drops_every_slice_once(void **state)
{
    (void)state;
    struct block blocks[20] = {0};
    for (int i = 0; i < 20; i++) {
        counted_init(&blocks[i].counted, on_release);
        put("x", 1);
        assert_int_equal(out_slice(&out, &pool, bytes_of(blocks[i].data, 10), &blocks[i].counted),
                         OK);
    }
    out_sent(&out, &pool, 11 * 7 + 5); /* in the middle of the eighth */
    out_clear(&out, &pool);
    for (int i = 0; i < 20; i++)
        assert_int_equal(blocks[i].released, 1);
    assert_int_equal(out.queued, 0);
}

/* ---- any order of everything ---- */

#define MODEL_SIZE (4u << 20)

struct model { /* the same bytes in one long row */
    uint8_t *row;
    size_t written, sent;
};

static void write_at_random(struct model *model, struct dice *dice, struct block *blocks, int *n)
{
    size_t len =
        dice_below(dice, 3) == 0 ? dice_below(dice, 3 * CHUNK_SIZE) : dice_below(dice, 200);
    uint8_t *at = model->row + model->written;
    bool slice = dice_below(dice, 3) == 0;
    if (slice)
        len = len % sizeof blocks->data;
    for (size_t i = 0; i < len; i++)
        at[i] = (uint8_t)dice_next(dice);
    if (slice) {
        struct block *block = &blocks[(*n)++];
        counted_init(&block->counted, on_release);
        memcpy(block->data, at, len);
        assert_int_equal(out_slice(&out, &pool, bytes_of(block->data, len), &block->counted), OK);
    } else {
        put(at, len);
    }
    model->written += len;
}

static void send_at_random(struct model *model, struct dice *dice)
{
    struct iovec parts[16];
    size_t total, seen = 0;
    int n = out_gather(&out, parts, 1 + (int)dice_below(dice, 16), &total);
    for (int i = 0; i < n; i++) {
        assert_memory_equal(parts[i].iov_base, model->row + model->sent + seen, parts[i].iov_len);
        seen += parts[i].iov_len;
    }
    assert_int_equal(seen, total);
    size_t sent = total == 0 ? 0 : dice_below(dice, total + 1);
    out_sent(&out, &pool, sent);
    model->sent += sent;
}

/* Whatever is written in whatever way, and however little the kernel takes at a time, leaves in
 * order, and every slice is let go of exactly once. Compared with one long row of the same bytes.
 */
static void everything_leaves_in_order(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    cleanup(free_at) struct block *blocks = calloc(1000, sizeof *blocks);
    struct model model = {.row = calloc(1, MODEL_SIZE)};
    assert_non_null(blocks);
    assert_non_null(model.row);

    int n = 0;
    for (int i = 0; i < 1000 && model.written + 3 * CHUNK_SIZE < MODEL_SIZE; i++) {
        if (dice_below(&dice, 2) == 0)
            write_at_random(&model, &dice, blocks, &n);
        else
            send_at_random(&model, &dice);
        assert_int_equal(out.queued, model.written - model.sent);
    }
    while (out.first)
        send_at_random(&model, &dice);
    assert_int_equal(model.sent, model.written);
    for (int i = 0; i < n; i++)
        assert_int_equal(blocks[i].released, 1);
    free(model.row);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, fresh, empty)
    const struct CMUnitTest tests[] = {
        CASE(copies_that_follow_each_other_are_one_part),
        CASE(less_may_be_used_than_was_asked_for),
        CASE(bytes_go_on_behind_what_was_partly_sent),
        CASE(more_than_a_chunk_gets_memory_of_its_own_size),
        CASE(whoever_has_nothing_queued_owns_no_memory),
        CASE(the_pool_keeps_only_so_much),
        CASE(gathers_no_more_parts_than_asked_for),
        CASE(an_empty_slice_is_dropped_at_once),
        CASE(a_slice_is_dropped_with_its_last_byte_and_not_before),
        CASE(clearing_drops_every_slice_once),
        CASE(everything_leaves_in_order),
    };
    return cmocka_run_group_tests_name("out", tests, NULL, NULL);
}
