/* body_test.h - what the tests of bodies share: an arena and a buffer for each case, and the laws.
 */
#ifndef REMOTING_BODY_TEST_H
#define REMOTING_BODY_TEST_H

#include "msg/vector_test.h"
#include "remoting/bodies.h"

struct desk {
    struct arena arena;
    struct buf out;
};

static inline int desk_set_up(void **state)
{
    struct desk *d = calloc(1, sizeof *d);
    arena_init(&d->arena, 1 << 22);
    d->out = buf_upto(1 << 22);
    *state = d;
    return 0;
}

static inline int desk_tear_down(void **state)
{
    struct desk *d = *state;
    arena_clear(&d->arena);
    buf_clear(&d->out);
    free(d);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, desk_set_up, desk_tear_down)

/* A reader under test, with whatever it needs besides the bytes. */
typedef enum err body_reader(struct bytes body, struct arena *arena);

/* Law: every prefix is refused, and none is read beyond its end. */
static inline void refuses_prefixes(struct bytes body, body_reader *read, struct arena *arena)
{
    for (size_t cut = 0; cut < body.len; cut++) {
        cleanup(free_at) uint8_t *exact = test_copy(body.at, cut);
        assert_int_equal(read(bytes_of(exact, cut), arena), ERR_MALFORMED);
        arena_reset(arena);
    }
}

/* Law: any one byte may change; the reader says something and stays within its bounds. */
static inline void survives_changes(struct bytes body, body_reader *read, struct arena *arena)
{
    uint8_t *bytes = test_copy(body.at, body.len);
    for (size_t at = 0; at < body.len; at++) {
        for (int change = 1; change < 256; change += at % 8 ? 17 : 1) {
            bytes[at] = (uint8_t)(body.at[at] ^ change);
            enum err err = read(bytes_of(bytes, body.len), arena);
            assert_true(err == OK || err == ERR_MALFORMED || err == ERR_TOO_BIG);
            arena_reset(arena);
        }
        bytes[at] = body.at[at];
    }
    free(bytes);
}

/* Law: with any ceiling the reader ends in OK or ERR_TOO_BIG, and at some ceiling it is content. */
static inline void bounded_by_the_arena(struct bytes body, body_reader *read)
{
    enum err err = ERR_TOO_BIG;
    for (size_t max = 0; err != OK; max += 16) {
        struct arena small;
        arena_init(&small, max);
        err = read(body, &small);
        assert_true(err == OK || err == ERR_TOO_BIG);
        assert_true(max < 1 << 20);
        arena_clear(&small);
    }
}

#endif
