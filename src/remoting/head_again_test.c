/* head_again_test.c - a header that is like one before: the result is that of a full decode. */
#include "remoting/fields.h"
#include "remoting/head_test.h"

/* Room that is exact, so that the address sanitizer sees a byte too far. */
struct both {
    struct head_memories memories;
    struct head plain, again;
    uint8_t *text, *room_plain, *room_again;
};

static void *both_new(void **state)
{
    (void)state;
    struct both *b = calloc(1, sizeof *b);
    assert_non_null(b);
    return b;
}

static void both_forget(struct both *b)
{
    free(b->text);
    free(b->room_plain);
    free(b->room_again);
    b->text = b->room_plain = b->room_again = NULL;
}

static void both_free(struct both *b)
{
    both_forget(b);
    free(b);
}

/* Through a table they say the same, missing and unreadable ones included; twice, since the second
 * time the rules are known. */
static void both_fields(struct both *b)
{
    const struct field_table *tables[] = {&send_fields_letters, &pull_fields_table, &topic_table};
    for (size_t i = 0; i < 2 * sizeof tables / sizeof *tables; i++) {
        union {
            struct send_fields send;
            struct pull_fields pull;
            struct topic_fields topic;
            uint8_t all[512];
        } plain, again;
        struct fault why_plain = {0}, why_again = {0};
        memset(&plain, 0, sizeof plain);
        memset(&again, 0, sizeof again);
        enum err err = fields_read(tables[i / 2], &b->plain, &plain, &why_plain);
        assert_int_equal(fields_read(tables[i / 2], &b->again, &again, &why_again), err);
        assert_string_equal(why_plain.text, why_again.text);
        assert_true(plain.send.queue_id == again.send.queue_id || i > 1);
        assert_true(plain.send.born_ms == again.send.born_ms || i > 1);
        if (!err && i < 2)
            assert_true(bytes_equal(plain.send.props, again.send.props));
        if (!err && i / 2 == 1)
            assert_int_equal(plain.pull.offset, again.pull.offset);
    }
}

/* Decodes in both ways and compares all there is. */
static enum err both_decode(struct both *b, struct bytes in)
{
    both_forget(b);
    b->text = test_copy(in.at, in.len);
    b->room_plain = malloc(in.len + 1);
    b->room_again = malloc(in.len + 1);
    assert_true(b->room_plain && b->room_again);
    struct wr spare_plain = wr_over(b->room_plain, in.len);
    struct wr spare_again = wr_over(b->room_again, in.len);
    struct frame frame = {.form = HEAD_JSON, .head = bytes_of(b->text, in.len)};
    enum err err = head_decode_json(frame.head, &spare_plain, &b->plain);
    assert_int_equal(head_decode_again(&frame, &b->memories, &spare_again, &b->again), err);
    assert_true(wr_len(&spare_again) <= wr_len(&spare_plain) && !spare_again.full);
    if (err)
        return err;
    assert_int_equal(b->again.form, HEAD_JSON);
    assert_int_equal(b->again.code, b->plain.code);
    assert_int_equal(b->again.version, b->plain.version);
    assert_int_equal(b->again.opaque, b->plain.opaque);
    assert_int_equal(b->again.flag, b->plain.flag);
    assert_int_equal(b->again.language, b->plain.language);
    assert_true(bytes_equal(b->again.remark, b->plain.remark));
    assert_int_equal(b->again.n_fields, b->plain.n_fields);
    both_fields(b);
    for (size_t i = 0; i < b->plain.n_fields; i++) {
        assert_true(bytes_equal(b->again.fields[i].name, b->plain.fields[i].name));
        assert_true(bytes_equal(b->again.fields[i].value, b->plain.fields[i].value));
    }
    return OK;
}

static const struct head_memory *remembered(const struct both *b)
{
    for (size_t i = 0; i < HEAD_MEMORIES; i++)
        if (b->memories.of[i].len > 0)
            return &b->memories.of[i];
    return NULL;
}

#define START "{\"code\":310,\"extFields\":{\"a\":\"group\",\"i\":\"K\\u0001v\\u0002\",\"bb\":\""
#define END   "\"},\"flag\":0,\"language\":\"GO\",\"opaque\":17,\"version\":5}"

static void remembers_what_clients_send(void **state)
{
    static const char *const names[] = {"send_message_v2_json_request",
                                        "pull_message_found_request", "heart_beat_producer_request",
                                        "get_routeinfo_request"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct both *b = both_new(state);
        struct bytes whole = vector_load(names[i]);
        struct frame frame = vector_frame(whole);
        assert_int_equal(both_decode(b, frame.head), OK);
        const struct head_memory *m = remembered(b);
        assert_non_null(m);
        uint16_t len = m->len;
        assert_int_equal(both_decode(b, frame.head), OK);
        assert_int_equal(m->len, len);
        vector_free(whole);
        both_free(b);
    }
}

/* Each in turn on the memory that the one before has left, and all in changing order. */
static void other_values_are_read_anew(void **state)
{
    static const char *const texts[] = {
        START "value" END,
        START "" END,
        START "a longer one, which does not fit into sixteen bytes" END,
        START "with \\\"escapes\\\" and \\u00e4" END,
        START "x\"},\"flag\":2,\"language\":\"GO\",\"opaque\":2147483647,\"version\":5}",
        START "x\"},\"flag\":0,\"language\":\"GO\",\"opaque\":0,\"version\":5}",
        START "x\"},\"flag\":0,\"language\":\"GO\",\"opaque\":-1,\"version\":5}",
        START "x\"},\"flag\":0,\"language\":\"GO\",\"version\":5,\"opaque\":9}",
        START "x\"},\"flag\":0,\"language\":\"GO\",\"opaque\":9 ,\"version\":5}",
        START "x\",\"more\":\"y" END,
        START "x\",\"more\":null,\"z\":\"y" END,
        START "x\",\"more\":7,\"z\":\"y" END,
        START "x\"},\"remark\":\"\",\"opaque\":12,\"flag\":0}",
        START "x\"},\"remark\":\"some\",\"opaque\":12,\"flag\":0}",
        "{\"opaque\":5,\"code\":10,\"extFields\":{\"a\":\"1\"},\"extFields\":{\"b\":\"2\"}}",
        "{\"opaque\":5,\"code\":10,\"opaque\":6,\"flag\":1}",
        "{\"opaque\":5,\"code\":10,\"x\\\"opaque\":6,\"flag\":1}",
        "{ \"opaque\" : 5 , \"code\" : 10 , \"extFields\" : { \"a\" : \"1\" } }",
    };
    size_t n = sizeof texts / sizeof *texts;
    struct both *b = both_new(state);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            memset(&b->memories, 0, sizeof b->memories);
            assert_int_equal(both_decode(b, bytes_str(texts[i])), OK);
            assert_int_equal(both_decode(b, bytes_str(texts[k])), OK);
            assert_int_equal(both_decode(b, bytes_str(texts[k])), OK);
            assert_int_equal(both_decode(b, bytes_str(texts[i])), OK);
        }
    both_free(b);
}

/* The first with another value is read value by value, all that follow by runs: what has escapes
 * and what has changed is read, the rest is compared at once. A memory that is begun anew expects
 * no change. */
static void learns_which_values_change(void **state)
{
    struct both *b = both_new(state);
    assert_int_equal(both_decode(b, bytes_str(START "one" END)), OK);
    const struct head_memory *m = remembered(b);
    assert_int_equal(m->varies, 1u << 1); /* "i" */
    assert_int_equal(m->n_runs, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(both_decode(b, bytes_str(i ? START "two" END : START "three" END)), OK);
        assert_int_equal(m->varies, 1u << 1 | 1u << 2);
        assert_int_equal(m->n_runs, 4);
    }
    assert_int_equal(both_decode(b, bytes_str(START "one\",\"c\":\"new" END)), OK);
    assert_int_equal(m->n_fields, 4);
    assert_int_equal(m->varies, 1u << 1);
    both_free(b);
}

/* A head that somebody altered says the new thing, and those after it what they say themselves. */
static void an_altered_head_says_the_new_thing(void **state)
{
    struct both *b = both_new(state);
    struct bytes whole = vector_load("pull_message_found_request");
    struct bytes text = vector_frame(whole).head;
    for (int i = 0; i < 3; i++) {
        struct pull_fields before = {0}, after = {0};
        assert_int_equal(both_decode(b, text), OK);
        assert_int_equal(fields_read(&pull_fields_table, &b->again, &before, NULL), OK);
        assert_int_not_equal(before.queue_id, 77);
        for (size_t k = 0; k < b->again.n_fields; k++)
            if (bytes_equal(b->again.fields[k].name, BYTES("queueId")))
                head_alter(&b->again, k, BYTES("77"));
        assert_int_equal(fields_read(&pull_fields_table, &b->again, &after, NULL), OK);
        assert_int_equal(after.queue_id, 77);
    }
    vector_free(whole);
    both_free(b);
}

/* With any byte changed, left out or doubled it is what a full decode says it is. */
static void every_change_is_seen(void **state)
{
    struct both *b = both_new(state);
    const char *whole = START "value" END;
    size_t len = strlen(whole);
    static const uint8_t bytes[] = {'"', '\\', ',', ':', '}', '{', '0', '7', 'x', ' ', 0, 1, 0xc3};
    for (size_t at = 0; at < len; at++) {
        uint8_t text[512];
        for (size_t k = 0; k < sizeof bytes; k++) {
            assert_int_equal(both_decode(b, bytes_str(whole)), OK);
            memcpy(text, whole, len);
            text[at] = bytes[k];
            (void)both_decode(b, bytes_of(text, len));
        }
        assert_int_equal(both_decode(b, bytes_str(whole)), OK);
        memcpy(text, whole, at);
        memcpy(text + at, whole + at + 1, len - at - 1);
        (void)both_decode(b, bytes_of(text, len - 1));
        assert_int_equal(both_decode(b, bytes_str(whole)), OK);
        memcpy(text, whole, at + 1);
        memcpy(text + at + 1, whole + at, len - at);
        (void)both_decode(b, bytes_of(text, len + 1));
        (void)both_decode(b, bytes_of(whole, at));
    }
    both_free(b);
}

/* Too long, too many fields: decoded all the same, and nothing is remembered. */
static void what_is_unusual_is_not_remembered(void **state)
{
    struct both *b = both_new(state);
    struct buf text = buf_upto(1u << 16);
    for (int kind = 0; kind < 2; kind++) {
        text.len = 0;
        buf_add(&text, BYTES("{\"code\":1,\"opaque\":3,\"extFields\":{\"first\":\"1\""));
        for (int i = 0; i < (kind ? 40 : 3); i++) {
            char field[600];
            int n = snprintf(field, sizeof field, ",\"f%d\":\"%*d\"", i, kind ? 1 : 500, i);
            buf_add(&text, bytes_of(field, (size_t)n));
        }
        buf_add(&text, BYTES("}}"));
        assert_int_equal(both_decode(b, buf_bytes(&text)), OK);
        assert_int_equal(both_decode(b, buf_bytes(&text)), OK);
        assert_null(remembered(b));
    }
    buf_clear(&text);
    both_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(remembers_what_clients_send),
        cmocka_unit_test(other_values_are_read_anew),
        cmocka_unit_test(learns_which_values_change),
        cmocka_unit_test(an_altered_head_says_the_new_thing),
        cmocka_unit_test(every_change_is_seen),
        cmocka_unit_test(what_is_unusual_is_not_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
