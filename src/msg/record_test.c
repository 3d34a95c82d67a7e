/* record_test.c - records: golden bytes, both ways, and everything that must be refused. */
#include "base/crc32.h"
#include "msg/msg.h"
#include "msg/vector_test.h"

/* Decoded by Apache RocketMQ 5.3.3: topic TopicTest, IPv4, three properties. */
static const char golden_short[] =
    "00000088 daa320a7 3610a686 00000001 00000000 0000000000000007 0000000000001000 00000000"
    "0000018bcfe56800 7f0000010000c350 0000018bcfe56805 7f00000100002a9f 00000000"
    "0000000000000000 00000005 68656c6c6f 09 546f70696354657374"
    "001f 4b455953016b31206b32025441475301546167410257414954017472756502";

/* The same with a topic of 130 T, both hosts fd00::1, no properties; the topic is put in below. */
static const char golden_long_start[] =
    "000000f7 daa320ab 0cdc1683 00000001 00000000 0000000000000007 0000000000001000 00000030"
    "0000018bcfe56800 fd000000000000000000000000000001 0000c350"
    "0000018bcfe56805 fd000000000000000000000000000001 00002a9f 00000000 0000000000000000"
    "00000001 78 0082";

#define LONG_TOPIC 130

static struct bytes golden_long(void)
{
    struct bytes start = vector_from_hex(golden_long_start);
    uint8_t whole[247];
    assert_int_equal(start.len + LONG_TOPIC + 2, sizeof whole);
    memcpy(whole, start.at, start.len);
    memset(whole + start.len, 'T', LONG_TOPIC);
    memset(whole + start.len + LONG_TOPIC, 0, 2);
    vector_free(start);
    return bytes_of(test_copy(whole, sizeof whole), sizeof whole);
}

static void assert_addr_equal(const struct addr *a, const struct addr *b)
{
    assert_int_equal(a->ip_len, b->ip_len);
    assert_memory_equal(a->ip, b->ip, a->ip_len);
    assert_int_equal(a->port, b->port);
}

/* Everything but the size and the bits that follow from the hosts. */
static void assert_record_equal(const struct record *a, const struct record *b)
{
    const int32_t hosts = SYS_BORN_V6 | SYS_STORE_V6;
    assert_int_equal(a->body_crc, b->body_crc);
    assert_int_equal(a->queue_id, b->queue_id);
    assert_int_equal(a->flag, b->flag);
    assert_int_equal(a->queue_offset, b->queue_offset);
    assert_int_equal(a->position, b->position);
    assert_int_equal(a->sys_flag & ~hosts, b->sys_flag & ~hosts);
    assert_int_equal(a->born_ms, b->born_ms);
    assert_addr_equal(&a->born_host, &b->born_host);
    assert_int_equal(a->store_ms, b->store_ms);
    assert_addr_equal(&a->store_host, &b->store_host);
    assert_int_equal(a->reconsume_times, b->reconsume_times);
    assert_int_equal(a->prepared_position, b->prepared_position);
    assert_bytes_equal(a->body, b->body);
    assert_bytes_equal(a->topic, b->topic);
    assert_bytes_equal(a->props, b->props);
}

/* Encodes into an exact allocation; to be freed. */
static struct bytes encoded(const struct record *r)
{
    size_t size = record_size(r);
    assert_true(size > 0);
    uint8_t *room = malloc(size);
    assert_non_null(room);
    struct wr w = wr_over(room, size);
    assert_int_equal(record_encode(r, &w), OK);
    assert_int_equal(wr_len(&w), size);
    return wr_bytes(&w);
}

static void encodes_back_to(const struct record *r, struct bytes wanted)
{
    struct bytes again = encoded(r);
    assert_int_equal(again.len, wanted.len);
    assert_memory_equal(again.at, wanted.at, wanted.len);
    vector_free(again);
}

static void reads_and_writes_the_golden_short_record(void **state)
{
    (void)state;
    struct bytes in = vector_from_hex(golden_short);
    struct record r;
    assert_int_equal(record_decode(in, &r), OK);
    assert_int_equal(r.size, 136);
    assert_int_equal(r.queue_id, 1);
    assert_int_equal(r.queue_offset, 7);
    assert_int_equal(r.position, 4096);
    assert_int_equal(r.sys_flag, 0);
    assert_int_equal(r.born_ms, 1700000000000);
    assert_int_equal(r.store_ms, 1700000000005);
    assert_int_equal(r.born_host.port, 50000);
    assert_int_equal(r.store_host.port, 10911);
    assert_memory_equal(r.store_host.ip, "\x7f\0\0\1", 4);
    assert_bytes_equal(r.body, BYTES("hello"));
    assert_bytes_equal(r.topic, BYTES("TopicTest"));
    assert_bytes_equal(r.props, BYTES("KEYS\1k1 k2\2TAGS\1TagA\2WAIT\1true\2"));
    assert_true(record_body_intact(&r));
    encodes_back_to(&r, in);
    vector_free(in);
}

static void reads_and_writes_the_golden_long_record(void **state)
{
    (void)state;
    struct bytes in = golden_long();
    struct record r;
    assert_int_equal(record_decode(in, &r), OK);
    assert_int_equal(r.sys_flag, SYS_BORN_V6 | SYS_STORE_V6);
    assert_int_equal(r.topic.len, LONG_TOPIC);
    assert_int_equal(r.born_host.ip_len, 16);
    assert_int_equal(r.store_host.ip[0], 0xfd);
    assert_int_equal(r.props.len, 0);
    assert_bytes_equal(r.body, BYTES("x"));
    assert_true(record_body_intact(&r));
    encodes_back_to(&r, in);
    vector_free(in);
}

/* The body of a pull answered by an Apache broker is a row of records; each is read, its body is
 * intact, and it is written back to the same bytes. */
static void walks_what_an_apache_broker_answered(const char *name)
{
    struct bytes frame = vector_load(name), rest = vector_body(frame);
    size_t n = 0;
    for (; rest.len > 0; n++) {
        uint32_t size;
        struct record r;
        assert_int_equal(record_peek(rest, &size), RECORD_MESSAGE);
        assert_int_equal(record_decode(rest, &r), OK);
        assert_int_equal(r.size, size);
        assert_true(record_body_intact(&r));
        assert_bytes_equal(r.topic, BYTES("VectorTopic"));
        encodes_back_to(&r, bytes_of(rest.at, size));
        rest = bytes_from(rest, size);
    }
    assert_true(n > 1);
    vector_free(frame);
}

static void walks_pulled_records(void **state)
{
    (void)state;
    walks_what_an_apache_broker_answered("pull_message_found_response");
    walks_what_an_apache_broker_answered("pull_message_binary_response");
}

/* Each prefix sits in its own exact allocation, so the address sanitizer sees a read too far. */
static void refuses_every_prefix(void **state)
{
    (void)state;
    struct bytes samples[] = {vector_from_hex(golden_short), golden_long()};
    for (size_t s = 0; s < 2; s++) {
        for (size_t cut = 0; cut < samples[s].len; cut++) {
            cleanup(free_at) uint8_t *exact = test_copy(samples[s].at, cut);
            struct record r;
            assert_int_equal(record_decode(bytes_of(exact, cut), &r), ERR_INCOMPLETE);
        }
        vector_free(samples[s]);
    }
}

/* A prefix whose size claims to be complete: now the parts do not fit into it. */
static void refuses_every_shortened_record(void **state)
{
    (void)state;
    struct bytes samples[] = {vector_from_hex(golden_short), golden_long()};
    for (size_t s = 0; s < 2; s++) {
        for (size_t cut = 8; cut < samples[s].len; cut++) {
            cleanup(free_at) uint8_t *exact = test_copy(samples[s].at, cut);
            store_u32(exact, (uint32_t)cut);
            struct record r;
            assert_int_equal(record_decode(bytes_of(exact, cut), &r), ERR_MALFORMED);
        }
        vector_free(samples[s]);
    }
}

/* Every byte takes every other value. Whatever is still accepted is written and read back the same.
 */
static void survives_every_one_byte_change(void **state)
{
    (void)state;
    struct bytes samples[] = {vector_from_hex(golden_short), golden_long()};
    for (size_t s = 0; s < 2; s++) {
        uint8_t *bytes = test_copy(samples[s].at, samples[s].len);
        for (size_t at = 0; at < samples[s].len; at++) {
            for (int change = 1; change < 256; change++) {
                bytes[at] = (uint8_t)(samples[s].at[at] ^ change);
                struct record r, again;
                if (record_decode(bytes_of(bytes, samples[s].len), &r) == OK) {
                    struct bytes out = encoded(&r);
                    assert_int_equal(record_decode(out, &again), OK);
                    assert_record_equal(&r, &again);
                    vector_free(out);
                }
            }
            bytes[at] = samples[s].at[at];
        }
        free(bytes);
        vector_free(samples[s]);
    }
}

static struct addr random_addr(struct dice *dice)
{
    struct addr a = {.ip_len = dice_below(dice, 2) ? 16 : 4};
    for (size_t i = 0; i < a.ip_len; i++)
        a.ip[i] = (uint8_t)dice_below(dice, 256);
    a.port = (uint16_t)dice_below(dice, 65536);
    return a;
}

static void round_trip_of_random_records(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    static uint8_t text[40000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)dice_below(&dice, 256);
    for (int turn = 0; turn < 500; turn++) {
        struct record r = {
            .queue_id = (int32_t)dice_next(&dice),
            .flag = (int32_t)dice_next(&dice),
            .queue_offset = (int64_t)dice_next(&dice),
            .position = (int64_t)dice_next(&dice),
            .sys_flag = (int32_t)dice_below(&dice, 0x800),
            .born_ms = (int64_t)dice_next(&dice),
            .born_host = random_addr(&dice),
            .store_ms = (int64_t)dice_next(&dice),
            .store_host = random_addr(&dice),
            .reconsume_times = (int32_t)dice_next(&dice),
            .prepared_position = (int64_t)dice_next(&dice),
            .body = bytes_of(text, dice_below(&dice, sizeof text)),
            .topic = bytes_of(text, dice_below(&dice, turn % 2 ? 300 : RECORD_TOPIC_MAX + 1)),
            .props = bytes_of(text, dice_below(&dice, RECORD_PROPS_MAX + 1)),
        };
        r.body_crc = crc32_positive(r.body);
        struct bytes out = encoded(&r);
        struct record again;
        assert_int_equal(record_decode(out, &again), OK);
        assert_int_equal(again.size, out.len);
        assert_record_equal(&r, &again);
        assert_true(record_body_intact(&again));
        vector_free(out);
    }
}

/* Changes one place of the golden short record and says what decoding makes of it. */
static enum err decode_changed(size_t at, const void *bytes, size_t n)
{
    struct bytes in = vector_from_hex(golden_short);
    uint8_t *room = test_copy(in.at, in.len);
    memcpy(room + at, bytes, n);
    struct record r;
    enum err err = record_decode(bytes_of(room, in.len), &r);
    free(room);
    vector_free(in);
    return err;
}

static void refuses_parts_that_lie(void **state)
{
    (void)state;
    assert_int_equal(decode_changed(0, "\0\0\0\x88", 4), OK); /* as it was */
    assert_int_equal(decode_changed(0, "\0\0\0\x87", 4), ERR_MALFORMED);
    assert_int_equal(decode_changed(0, "\0\0\0\x89", 4), ERR_INCOMPLETE);
    assert_int_equal(decode_changed(0, "\xff\xff\xff\xff", 4), ERR_MALFORMED);
    assert_int_equal(decode_changed(0, "\0\0\0\0", 4), ERR_MALFORMED);
    assert_int_equal(decode_changed(4, "\xda\xa3\x20\xa8", 4), ERR_MALFORMED);  /* magic */
    assert_int_equal(decode_changed(4, "\xcb\xd4\x31\x94", 4), ERR_MALFORMED);  /* a blank */
    assert_int_equal(decode_changed(52, "\0\1\0\0", 4), ERR_MALFORMED);         /* born port */
    assert_int_equal(decode_changed(84, "\xff\xff\xff\xff", 4), ERR_MALFORMED); /* body */
    assert_int_equal(decode_changed(84, "\0\0\0\6", 4), ERR_MALFORMED);
    assert_int_equal(decode_changed(93, "\xff", 1), ERR_MALFORMED);      /* topic */
    assert_int_equal(decode_changed(103, "\xff\xff", 2), ERR_MALFORMED); /* properties */
    assert_int_equal(decode_changed(103, "\0\x1e", 2), ERR_MALFORMED);
}

/* A topic length over 127 in one byte would be negative for Java. Made from the long form by taking
 * the first byte of the length out. */
static void refuses_a_long_topic_in_the_short_form(void **state)
{
    (void)state;
    uint8_t text[128] = {0};
    struct record r = {.body = BYTES(""), .topic = bytes_of(text, sizeof text)};
    struct bytes out = encoded(&r);
    size_t size = out.len - 1, length_at = 88;
    uint8_t *room = test_copy(out.at, size);
    memcpy(room + length_at, out.at + length_at + 1, size - length_at);
    store_u32(room, (uint32_t)size);
    store_u32(room + 4, RECORD_MAGIC);
    assert_int_equal(room[length_at], 128);
    assert_int_equal(record_decode(out, &r), OK);
    assert_int_equal(record_decode(bytes_of(room, size), &r), ERR_MALFORMED);
    free(room);
    vector_free(out);
}

static void refuses_to_encode_what_does_not_fit(void **state)
{
    (void)state;
    static uint8_t text[RECORD_TOPIC_MAX + 1];
    uint8_t room[256];
    struct record r = {.body = BYTES("b"), .topic = BYTES("t")};
    assert_int_equal(record_size(&r), 93);

    struct wr w = wr_over(room, 92);
    assert_int_equal(record_encode(&r, &w), ERR_TOO_BIG);
    assert_int_equal(wr_len(&w), 0);
    w = wr_over(room, 93);
    assert_int_equal(record_encode(&r, &w), OK);

    r.props = bytes_of(text, RECORD_PROPS_MAX + 1);
    assert_int_equal(record_size(&r), 0);
    r.props = BYTES("");
    r.topic = bytes_of(text, RECORD_TOPIC_MAX + 1);
    assert_int_equal(record_size(&r), 0);
    r.topic = BYTES("t");
    r.body = bytes_of(text, (size_t)INT32_MAX - 91);
    assert_int_equal(record_size(&r), 0);
    r.body = bytes_of(text, SIZE_MAX);
    w = wr_over(room, sizeof room);
    assert_int_equal(record_encode(&r, &w), ERR_TOO_BIG);
}

static void peeks_at_what_stands_there(void **state)
{
    (void)state;
    uint32_t size = 77;
    assert_int_equal(record_peek(BYTES("\0\0\0\x5b\xda\xa3\x20\xa7"), &size), RECORD_MESSAGE);
    assert_int_equal(size, 91);
    assert_int_equal(record_peek(BYTES("\0\0\1\0\xda\xa3\x20\xab"), &size), RECORD_MESSAGE);
    assert_int_equal(size, 256);
    assert_int_equal(record_peek(BYTES("\0\0\0\x08\xcb\xd4\x31\x94"), &size), RECORD_BLANK);
    assert_int_equal(size, 8);

    size = 77;
    assert_int_equal(record_peek(BYTES("\0\0\0\x5a\xda\xa3\x20\xa7"), &size), RECORD_NONE);
    assert_int_equal(record_peek(BYTES("\0\0\0\x07\xcb\xd4\x31\x94"), &size), RECORD_NONE);
    assert_int_equal(record_peek(BYTES("\x80\0\0\0\xcb\xd4\x31\x94"), &size), RECORD_NONE);
    assert_int_equal(record_peek(BYTES("\0\0\0\0\0\0\0\0"), &size), RECORD_NONE);
    assert_int_equal(record_peek(BYTES("\0\0\0\x5b\xda\xa3\x20"), &size), RECORD_NONE);
    assert_int_equal(record_peek((struct bytes){0}, &size), RECORD_NONE);
    assert_int_equal(size, 77);
}

static void a_record_gets_its_place_later(void **state)
{
    (void)state;
    struct bytes samples[] = {vector_from_hex(golden_short), golden_long()};
    for (size_t s = 0; s < 2; s++) {
        uint8_t *room = test_copy(samples[s].at, samples[s].len);
        record_place(room, 0x0102030405060708, INT64_MAX, -2);
        struct record before, after;
        assert_int_equal(record_decode(samples[s], &before), OK);
        assert_int_equal(record_decode(bytes_of(room, samples[s].len), &after), OK);
        assert_int_equal(after.queue_offset, 0x0102030405060708);
        assert_int_equal(after.position, INT64_MAX);
        assert_int_equal(after.store_ms, -2);
        before.queue_offset = after.queue_offset;
        before.position = after.position;
        before.store_ms = after.store_ms;
        assert_record_equal(&before, &after);
        free(room);
        vector_free(samples[s]);
    }
}

static void sees_a_damaged_body(void **state)
{
    (void)state;
    struct bytes in = vector_from_hex(golden_short);
    uint8_t *room = test_copy(in.at, in.len);
    struct record r;
    room[88] ^= 1;
    assert_int_equal(record_decode(bytes_of(room, in.len), &r), OK);
    assert_false(record_body_intact(&r));
    assert_true(record_body_intact(&(struct record){0})); /* nothing has CRC 0 */
    free(room);
    vector_free(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_and_writes_the_golden_short_record),
        cmocka_unit_test(reads_and_writes_the_golden_long_record),
        cmocka_unit_test(walks_pulled_records),
        cmocka_unit_test(refuses_every_prefix),
        cmocka_unit_test(refuses_every_shortened_record),
        cmocka_unit_test(survives_every_one_byte_change),
        cmocka_unit_test(round_trip_of_random_records),
        cmocka_unit_test(refuses_parts_that_lie),
        cmocka_unit_test(refuses_a_long_topic_in_the_short_form),
        cmocka_unit_test(refuses_to_encode_what_does_not_fit),
        cmocka_unit_test(peeks_at_what_stands_there),
        cmocka_unit_test(a_record_gets_its_place_later),
        cmocka_unit_test(sees_a_damaged_body),
    };
    return cmocka_run_group_tests_name("msg/record", tests, NULL, NULL);
}
