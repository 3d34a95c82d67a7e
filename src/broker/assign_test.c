/* Which queues a client gets: as Apache's own clients would divide them. */
#include "broker/rig_test.h"

/* "0,1 2,3 4": what each of so many clients gets of so many queues. */
static const char *divide(enum assign_strategy strategy, size_t queues, size_t clients)
{
    static char text[256];
    size_t at = 0;
    for (size_t c = 0; c < clients; c++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%s", c ? " " : "");
        bool any = false;
        for (size_t q = 0; q < queues; q++) {
            if (!assign_has(strategy, queues, clients, c, q))
                continue;
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%zu", any ? "," : "", q);
            any = true;
        }
        if (!any)
            at += (size_t)snprintf(text + at, sizeof text - at, "-");
    }
    return text;
}

/* Witness: AllocateMessageQueueAveragely and …ByCircle. */
static void queues_are_divided_as_clients_do_it(void **state)
{
    (void)state;
    assert_string_equal(divide(ASSIGN_AVERAGE, 8, 3), "0,1,2 3,4,5 6,7");
    assert_string_equal(divide(ASSIGN_AVERAGE, 4, 4), "0 1 2 3");
    assert_string_equal(divide(ASSIGN_AVERAGE, 2, 3), "0 1 -");
    assert_string_equal(divide(ASSIGN_AVERAGE, 5, 1), "0,1,2,3,4");
    assert_string_equal(divide(ASSIGN_CIRCLE, 8, 3), "0,3,6 1,4,7 2,5");
    assert_string_equal(divide(ASSIGN_CIRCLE, 2, 3), "0 1 -");
    assert_false(assign_has(ASSIGN_AVERAGE, 4, 0, 0, 0));
    assert_false(assign_has(ASSIGN_AVERAGE, 4, 2, 2, 0));
}

struct member_of {
    struct session session;
    char id[8];
};

static void join(struct rig *rig, struct member_of *m, const char *id)
{
    session_init(&m->session);
    struct client client = {.session = &m->session.counted, .id = bytes_str(id)};
    struct subscription sub = {BYTES("T"), BYTES("*"), BYTES("TAG"), 1};
    struct membership membership = {.group = BYTES("g"), .subs = &sub, .n_subs = 1};
    assert_int_equal(broker_consumer_seen(rig->broker, &client, &membership, NULL), OK);
}

/* "a:-1 b:-1" */
static const char *assigned(struct rig *rig, const char *client, struct arena *arena)
{
    static char text[256];
    struct assign_queue queues[] = {
        {BYTES("b"), 1}, {BYTES("a"), 1}, {BYTES("a"), 0}, {BYTES("b"), 0}};
    struct assign a = {.topic = BYTES("T"),
                       .group = BYTES("g"),
                       .client_id = bytes_str(client),
                       .queues = queues,
                       .n_queues = 4};
    enum err err = broker_assign(rig->broker, &a, arena);
    size_t at = (size_t)snprintf(text, sizeof text, "%s", err ? err_text(err) : "");
    for (size_t i = 0; !err && i < a.n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.*s:%d", i ? " " : "",
                               BYTES_ARG(a.assigned[i].broker), a.assigned[i].queue_id);
    return text;
}

static void each_way_to_read_has_its_division(void **state)
{
    struct rig *rig = *state;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    rig_send(rig, "T", "", "x");
    assert_string_equal(assigned(rig, "c1", &arena), err_text(ERR_NOT_FOUND)); /* nobody is there */
    struct member_of members[3];
    join(rig, &members[0], "c1");
    assert_string_equal(assigned(rig, "c1", &arena), "a:0 a:1 b:0 b:1");
    join(rig, &members[1], "c2");
    join(rig, &members[2], "c3");
    assert_string_equal(assigned(rig, "c1", &arena), "a:0 a:1");
    assert_string_equal(assigned(rig, "c3", &arena), "b:1");
    assert_string_equal(assigned(rig, "stranger", &arena), "");

    struct request_mode mode = {BYTES("T"), BYTES("g"), true, 0};
    assert_int_equal(broker_mode_set(rig->broker, &mode, NULL), OK);
    for (int i = 0; i < 3; i++)
        assert_string_equal(assigned(rig, "c2", &arena), "a:-1 b:-1");
    mode.share = 1;
    assert_int_equal(broker_mode_set(rig->broker, &mode, NULL), OK);
    assert_string_equal(assigned(rig, "c1", &arena), "a:0 a:1 b:0");
    assert_string_equal(assigned(rig, "c2", &arena), "b:0 b:1");
    assert_string_equal(assigned(rig, "c3", &arena), "a:0 a:1 b:1");
    mode.share = 2;
    assert_int_equal(broker_mode_set(rig->broker, &mode, NULL), OK);
    assert_string_equal(assigned(rig, "c3", &arena), "a:-1 b:-1");

    mode.topic = BYTES("%RETRY%g");
    assert_int_equal(broker_mode_set(rig->broker, &mode, NULL), ERR_DENIED);
    mode.topic = BYTES("nowhere");
    assert_int_equal(broker_mode_set(rig->broker, &mode, NULL), ERR_UNKNOWN_TOPIC);
    mode.topic = BYTES("T");
    mode.group = BYTES("no good");
    assert_int_equal(broker_mode_set(rig->broker, &mode, NULL), ERR_UNKNOWN_GROUP);
    arena_clear(&arena);
    for (int i = 0; i < 3; i++)
        broker_session_gone(rig->broker, &members[i].session.counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_are_divided_as_clients_do_it),
        rig_test(each_way_to_read_has_its_division),
    };
    return cmocka_run_group_tests_name("broker/assign", tests, NULL, NULL);
}
