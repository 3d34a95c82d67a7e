/* head_stamp_test.c - stamped frames are those that would have been written. */
#include "base/test.h"
#include "remoting/head_test.h"

#define ROOM 2048

static const struct head_start start = {.code = 0, .flag = FLAG_RESPONSE};

static void value_put(struct frame_out *f, struct bytes name, const struct stamp_value *value)
{
    if (value->is_number)
        frame_put_int(f, name, value->number);
    else
        frame_put(f, name, value->text);
}

/* The ordinary way, with these values in the places of those that are missing. */
static struct bytes written(uint8_t *room, int32_t opaque, const struct field *fields, size_t n,
                            const struct stamp_value *values)
{
    struct wr w = wr_over(room, ROOM);
    struct frame_out f;
    struct head_start head = start;
    head.opaque = opaque;
    frame_begin(&f, &w, HEAD_JSON, &head);
    for (size_t i = 0; i < n; i++)
        if (fields[i].value.at)
            frame_put(&f, fields[i].name, fields[i].value);
        else
            value_put(&f, fields[i].name, values++);
    frame_end_head(&f, 0);
    assert_false(w.full);
    return wr_bytes(&w);
}

#define TEXT(literal)                                                                              \
    {                                                                                              \
        (const uint8_t *)(literal), sizeof(literal) - 1                                            \
    }

static const struct field answer[] = {
    {.name = TEXT("msgId")},
    {.name = TEXT("queueOffset")},
    {TEXT("MSG_REGION"), TEXT("Default \"Region\"")},
    {.name = TEXT("transactionId")},
    {TEXT("TRACE_ON"), TEXT("true")},
};
#define ANSWER (sizeof answer / sizeof *answer)

/* Values of every length up to some blocks, and numbers of every length. */
static void stamps_what_would_be_written(void **state)
{
    (void)state;
    struct frame_stamp stamp;
    frame_stamp_make(&stamp, &start, answer, ANSWER);
    char text[128];
    memset(text, 'x', sizeof text);
    int32_t opaque = 0;
    int64_t number = 1;
    for (size_t len = 0; len < sizeof text; len++) {
        const struct stamp_value values[] = {stamp_text(bytes_of(text, len)), stamp_number(number),
                                             stamp_text(bytes_of(text, sizeof text - len))};
        uint8_t one[ROOM], other[ROOM];
        struct wr w = wr_over(one, ROOM);
        assert_true(frame_stamp_write(&stamp, &w, opaque, values));
        assert_bytes_equal(wr_bytes(&w), written(other, opaque, answer, ANSWER, values));
        opaque = (int32_t)(0u - (uint32_t)opaque * 3 + 7);
        number = (int64_t)(0u - (uint64_t)number * 3 + 7);
    }
}

static void two_stand_behind_each_other(void **state)
{
    (void)state;
    struct frame_stamp stamp;
    frame_stamp_make(&stamp, &start, answer, ANSWER);
    const struct stamp_value values[] = {stamp_text(BYTES("a")), stamp_number(INT64_MIN),
                                         stamp_text(BYTES("c"))};
    uint8_t one[ROOM], other[ROOM];
    struct wr w = wr_over(one, ROOM);
    assert_true(frame_stamp_write(&stamp, &w, INT32_MAX, values));
    size_t first = wr_len(&w);
    assert_true(frame_stamp_write(&stamp, &w, INT32_MIN, values));
    assert_bytes_equal(bytes_of(one, first), written(other, INT32_MAX, answer, ANSWER, values));
    assert_bytes_equal(bytes_from(wr_bytes(&w), first),
                       written(other, INT32_MIN, answer, ANSWER, values));
}

/* A quote, a control character, a byte beyond ASCII: anywhere in any value. */
static void leaves_values_with_escapes_to_others(void **state)
{
    (void)state;
    struct frame_stamp stamp;
    frame_stamp_make(&stamp, &start, answer, ANSWER);
    const char odd[] = {'"', '\\', '\1', '\x80', '\xff'};
    for (size_t place = 0; place < 3; place++) {
        for (size_t at = 0; at < 40; at++) {
            char text[40];
            memset(text, 'x', sizeof text);
            text[at] = odd[at % sizeof odd];
            struct stamp_value values[] = {stamp_text(BYTES("a")), stamp_text(BYTES("b")),
                                           stamp_text(BYTES("c"))};
            values[place] = stamp_text(bytes_of(text, sizeof text));
            uint8_t room[ROOM];
            struct wr w = wr_over(room, ROOM);
            assert_false(frame_stamp_write(&stamp, &w, 1, values));
            assert_int_equal(wr_len(&w), 0);
        }
    }
}

/* Each room stands in an allocation of its own, so that a byte too many is seen. */
static void writes_into_enough_room_or_not_at_all(void **state)
{
    (void)state;
    struct frame_stamp stamp;
    frame_stamp_make(&stamp, &start, answer, ANSWER);
    const struct stamp_value values[] = {stamp_text(BYTES("id")), stamp_number(7),
                                         stamp_text(BYTES("key"))};
    bool enough = false;
    for (size_t size = 0; !enough; size++) {
        cleanup(free_at) uint8_t *room = malloc(size + 1);
        struct wr w = wr_over(room, size);
        enough = frame_stamp_write(&stamp, &w, 1, values);
        assert_true(enough || wr_len(&w) == 0);
        assert_false(w.full);
        assert_true(size < ROOM);
    }
}

/* Its text has a place of fixed size: with more it is never used. */
static void a_long_one_cannot_be_used(void **state)
{
    (void)state;
    uint8_t room[ROOM];
    bool refused = false;
    for (size_t len = 0; len < 2 * STAMP_TEXT; len++) {
        cleanup(free_at) char *region = malloc(len + 1);
        memset(region, 'r', len + 1);
        const struct field fields[] = {{.name = BYTES("msgId")},
                                       {BYTES("MSG_REGION"), bytes_of(region, len)}};
        struct frame_stamp stamp;
        frame_stamp_make(&stamp, &start, fields, 2);
        struct wr w = wr_over(room, ROOM);
        const struct stamp_value value = stamp_text(BYTES("id"));
        bool done = frame_stamp_write(&stamp, &w, 1, &value);
        uint8_t other[ROOM];
        if (done)
            assert_bytes_equal(wr_bytes(&w), written(other, 1, fields, 2, &value));
        assert_false(done && refused); /* one that is longer than a refused one is refused */
        refused = refused || !done;
    }
    assert_true(refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stamps_what_would_be_written),
        cmocka_unit_test(two_stand_behind_each_other),
        cmocka_unit_test(leaves_values_with_escapes_to_others),
        cmocka_unit_test(writes_into_enough_room_or_not_at_all),
        cmocka_unit_test(a_long_one_cannot_be_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
