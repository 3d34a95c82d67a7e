/* share_test.c - the examples of the strategies, computed with the Java classes, and the laws that
 * all of them keep. tests/interop/client_parts.py compares far more with the classes themselves. */
#include "client/parts_int.h"

#include "base/test.h"

#include <stdio.h>

#define QUEUES_MAX  100
#define CLIENTS_MAX 40

/* Two brokers with four queues each, three clients: a0 … a3 are 0 … 3, b0 … b3 are 4 … 7. */
static const struct omq_queue eight[] = {
    {"T", "broker-a", 0}, {"T", "broker-a", 1}, {"T", "broker-a", 2}, {"T", "broker-a", 3},
    {"T", "broker-b", 0}, {"T", "broker-b", 1}, {"T", "broker-b", 2}, {"T", "broker-b", 3},
};
static const char *const three[] = {"10.0.0.1@100", "10.0.0.2@200", "10.0.0.3@300"};

static struct share_table table_of(const struct omq_queue *queues, size_t n_queues,
                                   const char *const *clients, size_t n_clients, const char *me)
{
    return (struct share_table){queues, n_queues, clients, n_clients, me};
}

/* `wanted` is the indexes as text: "0 1 2". */
static void assert_share(const struct share_rule *rule, struct share_table table,
                         const char *wanted)
{
    size_t mine[QUEUES_MAX], n = 99;
    char got[QUEUES_MAX * 4] = "";
    assert_int_equal(share_mine(rule, &table, mine, &n), OK);
    for (size_t i = 0, at = 0; i < n; i++)
        at += (size_t)snprintf(got + at, sizeof got - at, "%s%zu", i ? " " : "", mine[i]);
    assert_string_equal(got, wanted);
}

static void assert_shares(const struct share_rule *rule, const struct omq_queue *queues,
                          size_t n_queues, const char *const *clients, const char *const *wanted)
{
    for (size_t i = 0; i < 3; i++)
        assert_share(rule, table_of(queues, n_queues, clients, 3, clients[i]), wanted[i]);
}

/* Ten queues of one broker. */
static const struct omq_queue ten[] = {
    {"T", "a", 0}, {"T", "a", 1}, {"T", "a", 2}, {"T", "a", 3}, {"T", "a", 4},
    {"T", "a", 5}, {"T", "a", 6}, {"T", "a", 7}, {"T", "a", 8}, {"T", "a", 9},
};

static void averagely_gives_runs(void **state)
{
    (void)state;
    const struct share_rule rule = {.kind = OMQ_AVERAGELY};
    assert_shares(&rule, eight, 8, three, (const char *const[]){"0 1 2", "3 4 5", "6 7"});
    assert_shares(&rule, eight, 2, three, (const char *const[]){"0", "1", ""});
    assert_shares(&rule, ten, 10, three, (const char *const[]){"0 1 2 3", "4 5 6", "7 8 9"});
}

static void by_circle_deals_like_cards(void **state)
{
    (void)state;
    const struct share_rule rule = {.kind = OMQ_BY_CIRCLE};
    assert_shares(&rule, eight, 8, three, (const char *const[]){"0 3 6", "1 4 7", "2 5"});
    assert_shares(&rule, ten, 10, three, (const char *const[]){"0 3 6 9", "1 4 7", "2 5 8"});
}

static void by_hash_is_javas_ring(void **state)
{
    (void)state;
    const struct share_rule rule = {.kind = OMQ_BY_HASH};
    const struct share_rule said = {.kind = OMQ_BY_HASH, .hash_nodes = 10};
    const char *const wanted[] = {"0 1 4", "2 7", "3 5 6"};
    assert_shares(&rule, eight, 8, three, wanted);
    assert_shares(&said, eight, 8, three, wanted);

    struct omq_queue other[8]; /* the topic counts, too */
    for (size_t i = 0; i < 8; i++)
        other[i] = (struct omq_queue){"TopicTest", eight[i].broker, eight[i].id};
    assert_shares(&rule, other, 8, three, (const char *const[]){"0 2 4 7", "1", "3 5 6"});
}

static const struct omq_queue roomy[] = {
    {"T", "room1@a", 0}, {"T", "room1@a", 1}, {"T", "room1@a", 2}, {"T", "room1@a", 3},
    {"T", "room2@b", 0}, {"T", "room2@b", 1}, {"T", "room2@b", 2}, {"T", "room2@b", 3},
    {"T", "room3@c", 0}, {"T", "room3@c", 1}, {"T", "room3@c", 2}, {"T", "room3@c", 3},
};

static void by_room_takes_listed_rooms_only(void **state)
{
    (void)state;
    const struct share_rule rule = {.kind = OMQ_BY_ROOM, .rooms = "room1"};
    assert_shares(&rule, roomy, 8, three, (const char *const[]){"0 3", "1", "2"});
    const struct share_rule two = {.kind = OMQ_BY_ROOM, .rooms = "room9,room1,room2"};
    assert_shares(&two, roomy, 12, three, (const char *const[]){"0 1 6", "2 3 7", "4 5"});
}

/* Java's split drops empty parts at the end, and wants exactly two of what is left. */
static void by_room_reads_names_as_java_splits_them(void **state)
{
    (void)state;
    static const struct omq_queue odd[] = {
        {"T", "@a", 0},   {"T", "r", 0},    {"T", "r@", 0},    {"T", "r@@a", 0},
        {"T", "r@a", 0},  {"T", "r@a@", 0}, {"T", "r@a@@", 0}, {"T", "r@a@b", 0},
        {"T", "rr@a", 0}, {"T", "", 0},     {"T", "@", 0},
    };
    const struct share_rule rule = {.kind = OMQ_BY_ROOM, .rooms = "r"};
    const char *const me[] = {"me"};
    assert_share(&rule, table_of(odd, sizeof odd / sizeof *odd, me, 1, "me"), "4 5 6");
}

/* Before the @ of a broker, before the - of a client; always in the same buffer, which only works
 * if it is copied. */
static const char *room_of(void *user, const char *broker, const char *client)
{
    char *room = user;
    snprintf(room, 32, "%s", broker ? broker : client);
    room[strcspn(room, "@-")] = 0;
    return room;
}

static void nearby_keeps_queues_in_their_room(void **state)
{
    (void)state;
    static const char *const clients[] = {"room1-c1", "room1-c2", "room2-c3"};
    char room[32];
    struct share_rule rule = {.kind = OMQ_BY_ROOM_NEARBY, .room_of = room_of, .user = room};
    assert_shares(&rule, roomy, 12, clients,
                  (const char *const[]){"0 1 8 9", "2 3 10", "4 5 6 7 11"});
    rule.nearby = OMQ_BY_CIRCLE;
    assert_shares(&rule, roomy, 12, clients,
                  (const char *const[]){"0 2 8 11", "1 3 9", "4 5 6 7 10"});
}

static void nearby_refuses_what_is_in_no_room(void **state)
{
    (void)state;
    static const char *const clients[] = {"room1-c1", "-c2"};
    static const struct omq_queue homeless[] = {{"T", "@a", 0}};
    char room[32];
    size_t mine[12], n = 7;
    struct share_rule rule = {.kind = OMQ_BY_ROOM_NEARBY, .room_of = room_of, .user = room};
    struct share_table table = table_of(roomy, 12, clients, 2, clients[0]);
    assert_int_equal(share_mine(&rule, &table, mine, &n), ERR_INVALID);
    table = table_of(homeless, 1, clients, 1, clients[0]);
    assert_int_equal(share_mine(&rule, &table, mine, &n), ERR_INVALID);
    assert_int_equal(n, 7);
}

static void by_config_takes_what_was_said_and_exists(void **state)
{
    (void)state;
    const struct omq_queue config[] = {
        {"T", "broker-b", 1}, {"T", "broker-a", 9}, {"T", "broker-a", 0},
        {"T", "broker-b", 1}, {"U", "broker-a", 1},
    };
    const struct share_rule rule = {.kind = OMQ_BY_CONFIG, .config = config, .n_config = 5};
    assert_share(&rule, table_of(eight, 8, three, 3, three[1]), "5 0");
    assert_share(&rule, table_of(eight, 8, three, 3, "a stranger"), "5 0");
    const struct share_rule none = {.kind = OMQ_BY_CONFIG};
    assert_share(&none, table_of(eight, 8, three, 3, three[1]), "");
}

static void all_members_take_what_they_are_configured_with(void **state)
{
    (void)state;
    const struct share_rule rule = {.kind = OMQ_BY_CONFIG, .config = ten, .n_config = 2};
    assert_shares(&rule, ten, 10, three, (const char *const[]){"0 1", "0 1", "0 1"});
}

static void owners_find(const struct share_rule *rule, const struct omq_queue *queues, size_t n,
                        const char *const *clients, size_t n_clients, const char **owners)
{
    for (size_t i = 0; i < n_clients; i++) {
        size_t mine[QUEUES_MAX], n_mine;
        struct share_table table = table_of(queues, n, clients, n_clients, clients[i]);
        assert_int_equal(share_mine(rule, &table, mine, &n_mine), OK);
        for (size_t m = 0; m < n_mine; m++)
            owners[mine[m]] = clients[i];
    }
}

/* Five members and a hundred queues; one member leaves. */
static void on_the_ring_only_the_queues_of_who_left_move(void **state)
{
    (void)state;
    static const char *const members[] = {"c1", "c2", "c3", "c4", "c5"};
    struct omq_queue queues[100];
    for (int i = 0; i < 100; i++)
        queues[i] = (struct omq_queue){"T", "a", i};
    const struct share_rule rule = {.kind = OMQ_BY_HASH};
    for (size_t gone = 0; gone < 5; gone++) {
        const char *left[5], *before[100] = {0}, *after[100] = {0};
        size_t n = 0, moved = 0;
        for (size_t i = 0; i < 5; i++)
            if (i != gone)
                left[n++] = members[i];
        owners_find(&rule, queues, 100, members, 5, before);
        owners_find(&rule, queues, 100, left, n, after);
        for (size_t i = 0; i < 100; i++) {
            assert_non_null(after[i]);
            if (before[i] == members[gone])
                moved++;
            else
                assert_ptr_equal(before[i], after[i]);
        }
        assert_true(moved > 0);
    }
}

static void a_stranger_gets_nothing(void **state)
{
    (void)state;
    char room[32];
    for (enum omq_share kind = OMQ_AVERAGELY; kind <= OMQ_BY_HASH; kind++) {
        struct share_rule rule = {
            .kind = kind, .rooms = "broker", .room_of = room_of, .user = room};
        assert_share(&rule, table_of(eight, 8, three, 3, "10.0.0.2@2000"), "");
    }
}

static void refuses_nothing_to_share_and_nobody_to_share_with(void **state)
{
    (void)state;
    char room[32];
    size_t mine[8], n = 7;
    for (enum omq_share kind = OMQ_AVERAGELY; kind <= OMQ_BY_HASH; kind++) {
        struct share_rule rule = {
            .kind = kind, .rooms = "broker", .room_of = room_of, .user = room};
        const struct share_table tables[] = {
            table_of(eight, 0, three, 3, three[0]),
            table_of(eight, 8, three, 0, three[0]),
            table_of(eight, 8, three, 3, ""),
            table_of(eight, 8, three, 3, NULL),
        };
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(share_mine(&rule, &tables[i], mine, &n), ERR_INVALID);
    }
    assert_int_equal(n, 7);
}

static void refuses_rules_that_lack_something(void **state)
{
    (void)state;
    char room[32];
    const struct share_rule rules[] = {
        {.kind = OMQ_BY_ROOM},
        {.kind = OMQ_BY_ROOM_NEARBY},
        {.kind = OMQ_BY_ROOM_NEARBY, .nearby = OMQ_BY_CONFIG, .room_of = room_of, .user = room},
        {.kind = OMQ_BY_ROOM_NEARBY,
         .nearby = OMQ_BY_ROOM_NEARBY,
         .room_of = room_of,
         .user = room},
        {.kind = OMQ_BY_ROOM_NEARBY, .nearby = OMQ_BY_ROOM, .room_of = room_of, .user = room},
        {.kind = OMQ_BY_HASH, .hash_nodes = -1},
        {.kind = (enum omq_share)99},
    };
    struct share_table table = table_of(eight, 8, three, 3, three[0]);
    size_t mine[8], n = 7;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        assert_int_equal(share_mine(&rules[i], &table, mine, &n), ERR_INVALID);
    assert_int_equal(n, 7);
}

/* Whatever the queues and clients: together the members take each queue once. */
static void every_queue_has_exactly_one_owner(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    static const enum omq_share kinds[] = {OMQ_AVERAGELY, OMQ_BY_CIRCLE, OMQ_BY_HASH, OMQ_BY_ROOM,
                                           OMQ_BY_ROOM_NEARBY};
    for (int round = 0; round < 60; round++) {
        struct omq_queue queues[QUEUES_MAX];
        char names[CLIENTS_MAX][32], brokers[4][32], room[32];
        const char *clients[CLIENTS_MAX];
        size_t n_queues = 1 + dice_below(&dice, QUEUES_MAX);
        size_t n_clients = 1 + dice_below(&dice, CLIENTS_MAX);
        for (size_t i = 0; i < 4; i++)
            snprintf(brokers[i], sizeof brokers[i], "r%zu@b", i);
        for (size_t i = 0; i < n_queues; i++)
            queues[i] = (struct omq_queue){"T", brokers[i * 4 / n_queues], (int32_t)i};
        for (size_t i = 0; i < n_clients; i++) {
            snprintf(names[i], sizeof names[i], "r%d-%03zu", (int)dice_below(&dice, 3), i);
            clients[i] = names[i];
        }
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            struct share_rule rule = {.kind = kinds[k],
                                      .rooms = "r0,r1,r2,r3",
                                      .user = room,
                                      .room_of = room_of,
                                      .nearby = kinds[dice_below(&dice, 4)]};
            int owners[QUEUES_MAX] = {0};
            for (size_t i = 0; i < n_clients; i++) {
                size_t mine[QUEUES_MAX], n;
                struct share_table table =
                    table_of(queues, n_queues, clients, n_clients, clients[i]);
                assert_int_equal(share_mine(&rule, &table, mine, &n), OK);
                for (size_t m = 0; m < n; m++)
                    owners[mine[m]]++;
            }
            for (size_t i = 0; i < n_queues; i++)
                assert_int_equal(owners[i], 1);
        }
    }
}

static void names_are_ordered_by_utf16_units(void **state)
{
    (void)state;
    static const char *const rising[] = {"",  "A",  "a",          "ab",    "b",
                                         "é", "中", "\U0001f680", "\uffff"};
    for (size_t i = 0; i < sizeof rising / sizeof *rising; i++)
        for (size_t k = 0; k < sizeof rising / sizeof *rising; k++)
            assert_int_equal(name_compare(rising[i], rising[k]), (i > k) - (i < k));
}

static void queues_are_ordered_by_topic_broker_and_number(void **state)
{
    (void)state;
    const struct omq_queue rising[] = {
        {"T", "a", 2},
        {"T", "a", 10},
        {"T", "b", 0},
        {"U", "a", 0},
    };
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 4; k++)
            assert_int_equal(queue_compare(&rising[i], &rising[k]), (i > k) - (i < k));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_of_row("LB-4", averagely_gives_runs),
        test_of_row("LB-5", by_circle_deals_like_cards),
        cmocka_unit_test(by_hash_is_javas_ring),
        test_of_row("LB-7", by_room_takes_listed_rooms_only),
        cmocka_unit_test(by_room_reads_names_as_java_splits_them),
        test_of_row("LB-8", nearby_keeps_queues_in_their_room),
        cmocka_unit_test(nearby_refuses_what_is_in_no_room),
        cmocka_unit_test(by_config_takes_what_was_said_and_exists),
        test_of_row("LB-6", all_members_take_what_they_are_configured_with),
        test_of_row("LB-9", on_the_ring_only_the_queues_of_who_left_move),
        cmocka_unit_test(a_stranger_gets_nothing),
        cmocka_unit_test(refuses_nothing_to_share_and_nobody_to_share_with),
        cmocka_unit_test(refuses_rules_that_lack_something),
        cmocka_unit_test(every_queue_has_exactly_one_owner),
        cmocka_unit_test(names_are_ordered_by_utf16_units),
        cmocka_unit_test(queues_are_ordered_by_topic_broker_and_number),
    };
    return cmocka_run_group_tests_name("client/share", tests, NULL, NULL);
}
