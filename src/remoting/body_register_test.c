/* body_register_test.c - registrations: JSON, packed, and of very old brokers. */
#include "base/json.h"
#include "remoting/body_test.h"

#include <libdeflate.h>

#define V5_0_0 413

static enum err read_json(struct bytes body, struct arena *arena)
{
    struct registration r;
    return registration_read(body, false, 513, arena, &r);
}

static enum err read_packed(struct bytes body, struct arena *arena)
{
    struct registration r;
    return registration_read(body, true, 513, arena, &r);
}

static const struct topic_settings *topic_of(const struct registration *r, struct bytes name)
{
    for (size_t i = 0; i < r->n_topics; i++)
        if (bytes_equal(r->topics[i].name, name))
            return &r->topics[i];
    fail_msg("no topic %.*s", BYTES_ARG(name));
    return NULL;
}

static void reads_an_apache_broker(void **state)
{
    struct desk *d = *state;
    struct bytes frame = vector_load("register_broker_json_request");
    struct registration r;
    assert_int_equal(registration_read(vector_body(frame), false, 513, &d->arena, &r), OK);
    assert_true(r.n_topics > 8);
    assert_int_equal(r.n_filter_servers, 0);
    assert_true(r.version.timestamp > 1794780000000);
    const struct topic_settings *t = topic_of(&r, BYTES("TBW102"));
    assert_int_equal(t->perm, 7);
    assert_int_equal(t->read_queues, 8);
    t = topic_of(&r, BYTES("BenchmarkTest"));
    assert_int_equal(t->write_queues, 1024);

    frame = (vector_free(frame), vector_load("register_broker_json_one_topic_request"));
    assert_int_equal(registration_read(vector_body(frame), false, 513, &d->arena, &r), OK);
    assert_int_equal(r.n_topics, 1);
    vector_free(frame);
}

/* What we write says the same as what an Apache broker wrote, member by member. */
static void writes_what_an_apache_broker_writes(void **state)
{
    struct desk *d = *state;
    struct bytes frame = vector_load("register_broker_json_request");
    struct registration r;
    assert_int_equal(registration_read(vector_body(frame), false, 513, &d->arena, &r), OK);
    registration_write(&d->out, &r);
    assert_int_equal(d->out.err, OK);

    const struct json *theirs, *ours;
    assert_int_equal(json_parse(vector_body(frame), &d->arena, &theirs, NULL), OK);
    assert_int_equal(json_parse(buf_bytes(&d->out), &d->arena, &ours, NULL), OK);
    assert_true(
        json_same(json_member(theirs, "filterServerList"), json_member(ours, "filterServerList")));
    theirs = json_member(theirs, "topicConfigSerializeWrapper");
    ours = json_member(ours, "topicConfigSerializeWrapper");
    const char *members[] = {"dataVersion", "topicConfigTable", "topicQueueMappingDetailMap",
                             "topicQueueMappingInfoMap"};
    for (size_t i = 0; i < 4; i++) {
        assert_non_null(json_member(ours, members[i]));
        assert_true(json_same(json_member(theirs, members[i]), json_member(ours, members[i])));
    }
    assert_non_null(json_member(ours, "mappingDataVersion")); /* its time is another */
    vector_free(frame);
}

static void goes_both_ways(void **state)
{
    struct desk *d = *state;
    struct topic_settings topics[] = {
        {.name = BYTES("A\"B"), .read_queues = 1, .write_queues = 2, .perm = 4, .order = true},
        {.name = BYTES("C"), .multi_tag = true, .attributes = BYTES("{\"a\":\"b\"}")},
    };
    struct bytes servers[] = {BYTES("f1"), BYTES("f2")};
    struct registration r = {.version = {.state = 1, .timestamp = 2, .counter = 3},
                             .topics = topics,
                             .n_topics = 2,
                             .filter_servers = servers,
                             .n_filter_servers = 2},
                        again;
    registration_write(&d->out, &r);
    assert_int_equal(registration_read(buf_bytes(&d->out), false, 479, &d->arena, &again), OK);
    assert_memory_equal(&again.version, &r.version, sizeof r.version);
    assert_int_equal(again.n_topics, 2);
    assert_bytes_equal(again.topics[0].name, topics[0].name);
    assert_int_equal(again.topics[0].read_queues, 1);
    assert_int_equal(again.topics[0].write_queues, 2);
    assert_int_equal(again.topics[0].perm, 4);
    assert_true(again.topics[0].order);
    assert_true(again.topics[1].multi_tag);
    assert_bytes_equal(again.topics[1].attributes, topics[1].attributes);
    assert_int_equal(again.n_filter_servers, 2);
    assert_bytes_equal(again.filter_servers[1], servers[1]);
}

/* Made by Java's own RegisterBrokerBody.encode(true). */
static void reads_the_packed_form(void **state)
{
    struct desk *d = *state;
    struct bytes frame = vector_load("register_broker_compressed_request");
    struct registration r;
    assert_int_equal(registration_read(vector_body(frame), true, 513, &d->arena, &r), OK);
    assert_int_equal(r.version.counter, 3);
    assert_int_equal(r.version.timestamp, 1700000000000);
    assert_int_equal(r.n_topics, 3);
    const struct topic_settings *t = topic_of(&r, BYTES("FifoTopic"));
    assert_int_equal(t->read_queues, 4);
    assert_bytes_equal(t->attributes, BYTES("{\"message.type\":\"FIFO\"}"));
    t = topic_of(&r, BYTES("OrderTopic"));
    assert_int_equal(t->read_queues, 16);
    assert_int_equal(t->write_queues, 12);
    assert_int_equal(t->perm, 6);
    assert_int_equal(t->attributes.len, 0);
    vector_free(frame);
}

/* ---- packed bodies made here ---- */

static struct bytes packed(struct desk *d, struct bytes plain)
{
    struct libdeflate_compressor *c = libdeflate_alloc_compressor(6);
    size_t room = libdeflate_zlib_compress_bound(c, plain.len);
    uint8_t *out = arena_alloc(&d->arena, room);
    assert_non_null(out);
    size_t len = libdeflate_zlib_compress(c, plain.at, plain.len, out, room);
    assert_true(len > 0);
    libdeflate_free_compressor(c);
    return bytes_of(out, len);
}

static void put(struct buf *b, struct bytes text)
{
    buf_add_u32(b, (uint32_t)text.len);
    buf_add(b, text);
}

/* One topic with this line. */
static enum err with_topic(struct desk *d, struct bytes line, int32_t version,
                           struct registration *r)
{
    buf_clear(&d->out);
    put(&d->out, BYTES("{\"counter\":1}"));
    buf_add_u32(&d->out, 1);
    put(&d->out, line);
    put(&d->out, BYTES("[\"f\"]"));
    if (version >= V5_0_0)
        buf_add_u32(&d->out, 0);
    return registration_read(packed(d, buf_bytes(&d->out)), true, version, &d->arena, r);
}

/* 4.9 has five parts and no section of static topics. */
static void reads_packed_topics_of_4_9(void **state)
{
    struct desk *d = *state;
    struct registration r;
    assert_int_equal(with_topic(d, BYTES("T 1 2 6 MULTI_TAG"), 409, &r), OK);
    assert_int_equal(r.n_topics, 1);
    assert_int_equal(r.topics[0].write_queues, 2);
    assert_true(r.topics[0].multi_tag);
    assert_int_equal(r.n_filter_servers, 1);
    assert_int_equal(with_topic(d, BYTES("T 1 2 6 SINGLE_TAG {\"a b\": 1}"), 513, &r), OK);
    assert_bytes_equal(r.topics[0].attributes, BYTES("{\"a b\": 1}"));
}

static void refuses_packed_topics_that_make_no_sense(void **state)
{
    struct desk *d = *state;
    struct bytes bad[] = {
        BYTES("        "),
        BYTES("T 1 2 6 "),
        BYTES("T 1 2 6 OTHER_TAG"),
        BYTES("T x 2 6 SINGLE_TAG"),
        BYTES("T 1 2 99999999999 SINGLE_TAG"),
        BYTES(" 1 2 6 SINGLE_TAG"),
        BYTES("T 1 2 6 SINGLE_TAG {"),
        BYTES("T 1 2 6 SINGLE_TAG []"),
    };
    struct registration r;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(with_topic(d, bad[i], 513, &r), ERR_MALFORMED);
}

/* A million topics in twelve bytes, static topics without end, something behind the end. */
static void refuses_counts_that_lie(void **state)
{
    struct desk *d = *state;
    struct registration r;
    put(&d->out, BYTES("{}"));
    buf_add_u32(&d->out, 0xffffffff);
    assert_int_equal(read_packed(packed(d, buf_bytes(&d->out)), &d->arena), ERR_MALFORMED);

    buf_clear(&d->out);
    put(&d->out, BYTES("{}"));
    buf_add_u32(&d->out, 0);
    put(&d->out, BYTES("[]"));
    assert_int_equal(read_packed(packed(d, buf_bytes(&d->out)), &d->arena), ERR_MALFORMED);
    assert_int_equal(registration_read(packed(d, buf_bytes(&d->out)), true, 409, &d->arena, &r),
                     OK);
    buf_add_u32(&d->out, 0x7fffffff);
    assert_int_equal(read_packed(packed(d, buf_bytes(&d->out)), &d->arena), ERR_MALFORMED);
    d->out.len -= 4;
    buf_add_u32(&d->out, 1);
    put(&d->out, BYTES("{\"static\":1}"));
    assert_int_equal(read_packed(packed(d, buf_bytes(&d->out)), &d->arena), OK);
    buf_add_u8(&d->out, 0);
    assert_int_equal(read_packed(packed(d, buf_bytes(&d->out)), &d->arena), ERR_MALFORMED);
}

/* A megabyte of zeros packs into a kilobyte: refused at the arena's ceiling. */
static void a_bomb_ends_at_the_ceiling(void **state)
{
    struct desk *d = *state;
    struct bytes zeros = {arena_alloc(&d->arena, 1 << 20), 1 << 20};
    struct bytes bomb = packed(d, zeros);
    assert_true(bomb.len < 4096);
    struct arena small;
    arena_init(&small, 1 << 18);
    assert_int_equal(read_packed(bomb, &small), ERR_TOO_BIG);
    assert_true(small.used <= 1 << 18);
    arena_clear(&small);
}

static void refuses_what_is_no_zlib_stream(void **state)
{
    struct desk *d = *state;
    assert_int_equal(read_packed(BYTES(""), &d->arena), ERR_MALFORMED);
    assert_int_equal(read_packed(BYTES("{\"json\":1}"), &d->arena), ERR_MALFORMED);
    struct bytes frame = vector_load("register_broker_compressed_request");
    struct bytes body = vector_body(frame);
    uint8_t *more = test_copy(body.at, body.len);
    more = realloc(more, body.len + 1);
    more[body.len] = 0; /* one byte behind the stream */
    assert_int_equal(read_packed(bytes_of(more, body.len + 1), &d->arena), ERR_MALFORMED);
    free(more);
    vector_free(frame);
}

/* Before V3_0_11 the body is the topic table alone. */
static void reads_very_old_brokers(void **state)
{
    struct desk *d = *state;
    struct bytes body = BYTES("{\"dataVersion\":{\"counter\":9},\"topicConfigTable\":{\"T\":{}}}");
    struct registration r;
    assert_int_equal(registration_read(body, false, 36, &d->arena, &r), OK);
    assert_int_equal(r.n_topics, 1);
    assert_int_equal(r.version.counter, 9);
    assert_int_equal(registration_read(body, false, 37, &d->arena, &r), ERR_MALFORMED);
}

static void refuses_json_that_makes_no_sense(void **state)
{
    struct desk *d = *state;
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"topicConfigSerializeWrapper\":{}}",
        "{\"topicConfigSerializeWrapper\":{\"topicConfigTable\":[]}}",
        "{\"topicConfigSerializeWrapper\":{\"topicConfigTable\":{\"T\":1}}}",
        "{\"topicConfigSerializeWrapper\":{\"topicConfigTable\":{\"\":{}}}}",
        "{\"topicConfigSerializeWrapper\":{\"topicConfigTable\":{{\"a\":1}:{}}}}",
        "{\"filterServerList\":{},\"topicConfigSerializeWrapper\":{\"topicConfigTable\":{}}}",
        "{\"filterServerList\":[1],\"topicConfigSerializeWrapper\":{\"topicConfigTable\":{}}}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(read_json(bytes_str(bad[i]), &d->arena), ERR_MALFORMED);
    struct bytes empty = BYTES("{\"topicConfigSerializeWrapper\":{\"topicConfigTable\":{}}}");
    assert_int_equal(read_json(empty, &d->arena), OK);
}

static void data_versions_go_both_ways(void **state)
{
    struct desk *d = *state;
    struct data_version v = {.state = 1, .timestamp = 2, .counter = 3}, again;
    data_version_body_write(&d->out, &v);
    assert_bytes_equal(buf_bytes(&d->out),
                       BYTES("{\"counter\":3,\"stateVersion\":1,\"timestamp\":2}"));
    assert_int_equal(data_version_body_read(buf_bytes(&d->out), &d->arena, &again), OK);
    assert_memory_equal(&v, &again, sizeof v);
    assert_int_equal(data_version_body_read(BYTES("[]"), &d->arena, &again), ERR_MALFORMED);
    assert_int_equal(data_version_body_read(BYTES(""), &d->arena, &again), ERR_MALFORMED);
}

static void keeps_the_laws(void **state)
{
    struct desk *d = *state;
    struct bytes frame = vector_load("register_broker_json_one_topic_request");
    refuses_prefixes(vector_body(frame), read_json, &d->arena);
    survives_changes(vector_body(frame), read_json, &d->arena);
    bounded_by_the_arena(vector_body(frame), read_json);
    vector_free(frame);

    frame = vector_load("register_broker_compressed_request");
    refuses_prefixes(vector_body(frame), read_packed, &d->arena);
    survives_changes(vector_body(frame), read_packed, &d->arena);
    bounded_by_the_arena(vector_body(frame), read_packed);
    vector_free(frame);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(reads_an_apache_broker),
        CASE(writes_what_an_apache_broker_writes),
        CASE(goes_both_ways),
        CASE(reads_the_packed_form),
        CASE(reads_packed_topics_of_4_9),
        CASE(refuses_packed_topics_that_make_no_sense),
        CASE(refuses_counts_that_lie),
        CASE(a_bomb_ends_at_the_ceiling),
        CASE(refuses_what_is_no_zlib_stream),
        CASE(reads_very_old_brokers),
        CASE(refuses_json_that_makes_no_sense),
        CASE(data_versions_go_both_ways),
        CASE(keeps_the_laws),
    };
    return cmocka_run_group_tests_name("remoting/body_register", tests, NULL, NULL);
}
