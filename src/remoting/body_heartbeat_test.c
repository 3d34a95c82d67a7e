/* body_heartbeat_test.c - heartbeats of the Java and the Go client. */
#include "remoting/body_test.h"

static enum err read_it(struct bytes body, struct arena *arena)
{
    struct heartbeat h;
    return heartbeat_read(body, arena, &h);
}

static void reads_a_push_consumer(void **state)
{
    struct desk *d = *state;
    const char *names[] = {"heart_beat_push_consumer_request",
                           "heart_beat_push_consumer_binary_request"};
    for (size_t i = 0; i < 2; i++) {
        struct bytes frame = vector_load(names[i]);
        struct heartbeat h;
        assert_int_equal(heartbeat_read(vector_body(frame), &d->arena, &h), OK);
        assert_bytes_equal(h.client_id, BYTES("127.0.0.1@consumer-1"));
        assert_int_equal(h.fingerprint, 0);
        assert_false(h.without_sub);
        assert_int_equal(h.n_producers, 1);
        assert_bytes_equal(h.producers[0], BYTES("CLIENT_INNER_PRODUCER"));
        assert_int_equal(h.n_consumers, 1);

        struct heart_consumer *c = &h.consumers[0];
        assert_bytes_equal(c->group, BYTES("vector_consumer"));
        assert_bytes_equal(c->from_where, BYTES("CONSUME_FROM_FIRST_OFFSET"));
        assert_int_equal(c->type, CONSUME_PASSIVELY);
        assert_int_equal(c->model, MODEL_CLUSTERING);
        assert_false(c->unit_mode);
        assert_int_equal(c->n_subs, 2);
        assert_bytes_equal(c->subs[0].topic, BYTES("VectorTopic"));
        assert_bytes_equal(c->subs[0].expression, BYTES("TagA || TagB || TagC || 标签"));
        assert_bytes_equal(c->subs[0].expression_type, BYTES("TAG"));
        assert_true(c->subs[0].version > 1794780000000);
        assert_int_equal(c->subs[0].n_tags, 4);
        assert_bytes_equal(c->subs[0].tags[1], BYTES("标签"));
        assert_bytes_equal(c->subs[1].topic, BYTES("%RETRY%vector_consumer"));
        assert_bytes_equal(c->subs[1].expression, BYTES("*"));
        assert_int_equal(c->subs[1].n_tags, 0);
        vector_free(frame);
    }
}

static void reads_a_producer(void **state)
{
    struct desk *d = *state;
    struct bytes frame = vector_load("heart_beat_producer_request");
    struct heartbeat h;
    assert_int_equal(heartbeat_read(vector_body(frame), &d->arena, &h), OK);
    assert_int_equal(h.n_consumers, 0);
    assert_int_equal(h.n_producers, 2);
    assert_bytes_equal(h.producers[0], BYTES("vector_producer"));
    vector_free(frame);
}

/* Go: codes as strings, subVersion in nanoseconds, no fingerprint; 4.9: members left out. */
static void reads_what_other_clients_leave_out(void **state)
{
    struct desk *d = *state;
    struct heartbeat h;
    struct bytes body =
        BYTES("{\"clientID\":\"go@1\",\"producerDataSet\":[],\"consumerDataSet\":[{"
              "\"groupName\":\"g\",\"consumeType\":\"CONSUME_ACTIVELY\",\"messageModel\":"
              "\"BROADCASTING\",\"subscriptionDataSet\":[{\"topic\":\"T\",\"codeSet\":[\"97\"],"
              "\"subVersion\":1700000000000000000,\"expressionType\":\"\"}]},"
              "{\"groupName\":\"h\",\"consumeType\":null,\"subscriptionDataSet\":null}],"
              "\"withoutSub\":true,\"heartbeatFingerprint\":-5}");
    assert_int_equal(heartbeat_read(body, &d->arena, &h), OK);
    assert_int_equal(h.consumers[0].type, CONSUME_ACTIVELY);
    assert_int_equal(h.consumers[0].model, MODEL_BROADCASTING);
    assert_bytes_equal(h.consumers[0].subs[0].expression, BYTES("*"));
    assert_bytes_equal(h.consumers[0].subs[0].expression_type, BYTES("TAG"));
    assert_int_equal(h.consumers[0].subs[0].version, 1700000000000000000);
    assert_int_equal(h.consumers[1].type, CONSUME_PASSIVELY);
    assert_int_equal(h.consumers[1].model, MODEL_CLUSTERING);
    assert_bytes_equal(h.consumers[1].from_where, BYTES("CONSUME_FROM_LAST_OFFSET"));
    assert_int_equal(h.consumers[1].n_subs, 0);
    assert_int_equal(h.fingerprint, -5);
    assert_true(h.without_sub);

    assert_int_equal(heartbeat_read(BYTES("{\"clientID\":\"c\"}"), &d->arena, &h), OK);
    assert_int_equal(h.n_producers + h.n_consumers, 0);
}

/* CHECK_CLIENT_CONFIG, as the Java consumer writes it. */
static void reads_a_question_about_a_subscription(void **state)
{
    struct desk *d = *state;
    struct client_check c;
    struct bytes body = BYTES("{\"clientId\":\"c@1\",\"group\":\"g\",\"namespace\":null,"
                              "\"subscriptionData\":{\"classFilterMode\":false,\"codeSet\":[],"
                              "\"expressionType\":\"SQL92\",\"subString\":\"a > 5\","
                              "\"subVersion\":7,\"tagsSet\":[],\"topic\":\"T\"}}");
    assert_int_equal(client_check_read(body, &d->arena, &c), OK);
    assert_bytes_equal(c.client_id, BYTES("c@1"));
    assert_bytes_equal(c.group, BYTES("g"));
    assert_true(c.has_sub);
    assert_bytes_equal(c.sub.topic, BYTES("T"));
    assert_bytes_equal(c.sub.expression, BYTES("a > 5"));
    assert_bytes_equal(c.sub.expression_type, BYTES("SQL92"));

    assert_int_equal(client_check_read(BYTES("{\"subscriptionData\":null}"), &d->arena, &c), OK);
    assert_false(c.has_sub);
    static const char *const bad[] = {"", "[]", "{\"subscriptionData\":[]}",
                                      "{\"subscriptionData\":{}}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(client_check_read(bytes_str(bad[i]), &d->arena, &c), ERR_MALFORMED);
}

#define CLIENT    "{\"clientID\":\"c\",\"consumerDataSet\":"
#define CONSUMER  CLIENT "[{\"groupName\":\"g\","
#define SUB(text) CONSUMER "\"subscriptionDataSet\":[" text "]}]}"

static void refuses_what_makes_no_sense(void **state)
{
    struct desk *d = *state;
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"clientID\":\"\"}",
        "{\"clientID\":{}}",
        "{\"clientID\":\"c\",\"producerDataSet\":{}}",
        "{\"clientID\":\"c\",\"producerDataSet\":[{}]}",
        "{\"clientID\":\"c\",\"producerDataSet\":[\"g\"]}",
        CLIENT "\"x\"}",
        CLIENT "[1]}",
        CLIENT "[{}]}",
        CONSUMER "\"consumeType\":\"X\"}]}",
        CONSUMER "\"messageModel\":\"\"}]}",
        SUB("{}"),
        SUB("7"),
        SUB("{\"topic\":\"T\",\"tagsSet\":[1]}"),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(read_it(bytes_str(bad[i]), &d->arena), ERR_MALFORMED);
}

static void keeps_the_laws(void **state)
{
    struct desk *d = *state;
    struct bytes frame = vector_load("heart_beat_push_consumer_request");
    refuses_prefixes(vector_body(frame), read_it, &d->arena);
    survives_changes(vector_body(frame), read_it, &d->arena);
    bounded_by_the_arena(vector_body(frame), read_it);
    vector_free(frame);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(reads_a_push_consumer),
        CASE(reads_a_producer),
        CASE(reads_what_other_clients_leave_out),
        CASE(reads_a_question_about_a_subscription),
        CASE(refuses_what_makes_no_sense),
        CASE(keeps_the_laws),
    };
    return cmocka_run_group_tests_name("remoting/body_heartbeat", tests, NULL, NULL);
}
