/* Routes, topic lists, and what an operator does to them. */
#include "namesrv/names_test.h"

/* "T1 T2", in the order they were told. */
static const char *topics_text(enum names_topics which, const char *cluster)
{
    static char text[2048];
    text[0] = 0;
    struct bytes *topics, addr;
    size_t n;
    arena_reset(&arena);
    assert_int_equal(names_topic_list(names, which, bytes_str(cluster), &arena, &topics, &n, &addr),
                     OK);
    for (size_t i = 0; i < n; i++)
        add_text(text, sizeof text, "%s%.*s", i ? " " : "", BYTES_ARG(topics[i]));
    if (which == NAMES_SYSTEM && addr.len)
        add_text(text, sizeof text, " @%.*s", BYTES_ARG(addr));
    return text;
}

static void register_flags(const char *name, const char *addr, int32_t t1, int32_t t2, int32_t t3)
{
    struct topic_settings topics[] = {topic_of("T1", 1), topic_of("T2", 1), topic_of("T3", 1)};
    topics[0].sys_flag = t1;
    topics[1].sys_flag = t2;
    topics[2].sys_flag = t3;
    struct names_broker b = broker_of(name, 0, addr);
    assert_int_equal(try_register(&b, version_of(0, 1), topics, 3), OK);
}

/* ---- routes ---- */

static void an_unknown_topic_says_what_is_known_instead(void **state)
{
    (void)state;
    assert_route("T1", "?");
    assert_string_equal(why.text, "No topic route info in name server for the topic: T1; "
                                  "no broker is registered here");
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    assert_route("T9", "?");
    assert_string_equal(why.text,
                        "No topic route info in name server for the topic: T9; 1 broker is "
                        "registered here and none has it; none creates topics on first use "
                        "(autoCreateTopicEnable), so it has to be created before");
    register_usual(broker_of("b", 0, "10.0.0.2:1"), 1);
    assert_route("", "?");
    assert_non_null(strstr(why.text, "topic: ; 2 brokers are registered"));

    static char endless[70000];
    memset(endless, 'x', sizeof endless - 1);
    assert_route(endless, "?");
    assert_non_null(strstr(why.text, "x; 2 brokers are registered"));

    struct topic_settings t[] = {topic_of("T1", 3), topic_of("TBW102", 1)};
    struct names_broker c = broker_of("c", 0, "10.0.0.3:1");
    assert_int_equal(try_register(&c, version_of(0, 1), t, 2), OK);
    assert_route("T9", "?");
    assert_non_null(strstr(why.text, "it is created when the first message is sent to it"));
}

static void assert_lost(const char *topic, const char *words)
{
    assert_route(topic, "?");
    if (!strstr(why.text, words))
        fail_msg("\"%s\" is not in: %s", words, why.text);
}

/* Which broker had the topic, what became of it and when. A topic that comes back is no longer
 * lost, and one that another broker still has never was. */
static void an_unknown_topic_that_was_known_says_who_had_it(void **state)
{
    (void)state;
    struct names_broker a = broker_of("a", 0, "10.0.0.1:1");
    register_usual(a, 1);
    clock_manual_advance(&test_clock, 100000);
    names_unregister(names, &a);
    clock_manual_advance(&test_clock, 7000);
    assert_lost("T1", "topic: T1; broker a had it and unregistered 7 s ago");
    assert_lost("T9", "no broker is registered here");

    a.conn = 77;
    register_usual(a, 2);
    struct names_broker b = broker_of("b", 0, "10.0.0.2:1");
    register_usual(b, 1);
    assert_int_equal(names_gone(names, 77), 1);
    assert_string_not_equal(route_text("T1"), "?");
    struct bytes *addrs;
    clock_manual_advance(&test_clock, NAMES_EXPIRE_MS + 1);
    assert_int_equal(names_expire_turn(names, &arena, &addrs), 1);
    clock_manual_advance(&test_clock, 60000);
    assert_lost("T2", "broker b had it and expired, for want of a sign of life, 60 s ago");

    register_usual(a, 3);
    names_delete_topic(names, BYTES("T1"), (struct bytes){0});
    assert_lost("T1", "1 broker is registered here");
    assert_int_equal(names_gone(names, 77), 1);
    assert_lost("T1", "no broker is registered here");
    assert_lost("T2", "broker a had it and lost its connection to this name server 0 s ago");
}

/* However many topics go, so much is remembered and no more: the latest. */
static void what_is_remembered_of_lost_topics_is_bounded(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    static char name[MANY][8];
    static struct topic_settings t[MANY];
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(name[i], sizeof name[i], "M%d", i);
        t[i] = topic_of(name[i], 1);
    }
    struct names_broker b = broker_of("b", 0, "10.0.0.2:1");
    assert_int_equal(try_register(&b, version_of(0, 1), t, MANY), OK);
    names_unregister(names, &b);
    assert_int_equal(names->lost.n, 4096);
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    names_unregister(names,
                     &(struct names_broker){.name = BYTES("a"), .addr = BYTES("10.0.0.1:1")});
    assert_int_equal(names->lost.n, 4096);
    assert_lost("T1", "broker a had it");
}

static void the_route_carries_counts_flags_and_permissions(void **state)
{
    (void)state;
    struct topic_settings t[] = {topic_of("T1", 3), topic_of("T2", 1)};
    t[0].write_queues = 5;
    t[0].sys_flag = 2;
    t[0].perm = PERM_READ | PERM_INHERIT;
    struct names_broker b = broker_of("a", 0, "10.0.0.1:1");
    b.zone = BYTES("z");
    b.acting_told = b.acting_master = true;
    assert_int_equal(try_register(&b, version_of(0, 1), t, 2), OK);
    struct route r;
    assert_int_equal(names_route(names, BYTES("T1"), &arena, &r, NULL), OK);
    assert_int_equal(r.queues[0].read_queues, 3);
    assert_int_equal(r.queues[0].write_queues, 5);
    assert_int_equal(r.queues[0].sys_flag, 2);
    assert_int_equal(r.queues[0].perm, 5);
    assert_bytes_equal(r.brokers[0].zone, BYTES("z"));
    assert_bytes_equal(r.brokers[0].cluster, BYTES("C1"));
    assert_true(r.brokers[0].acting_master);
    assert_int_equal(r.order_conf.len, 0);
}

static void ordered_topics_are_told_only_if_enabled(void **state)
{
    (void)state;
    struct route r;
    for (int enabled = 0; enabled < 2; enabled++) {
        test_teardown(state);
        test_open((struct names_options){.order_enable = enabled});
        assert_int_equal(names_kv_put(names, ORDER_SPACE, BYTES("T1"), BYTES("a:4"), NULL), OK);
        register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
        assert_true(registered.any_order);
        assert_int_equal(registered.n_order, 1);
        assert_bytes_equal(registered.order[0].value, BYTES("a:4"));
        assert_int_equal(names_route(names, BYTES("T1"), &arena, &r, NULL), OK);
        assert_bytes_equal(r.order_conf, enabled ? BYTES("a:4") : BYTES(""));
        assert_int_equal(names_route(names, BYTES("T2"), &arena, &r, NULL), OK);
        assert_int_equal(r.order_conf.len, 0);
    }
    /* A namespace that was emptied is another answer than none: brokers then clear their flags. */
    assert_int_equal(names_kv_delete(names, ORDER_SPACE, BYTES("T1"), NULL), OK);
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    assert_true(registered.any_order);
    assert_int_equal(registered.n_order, 0);
}

static void an_acting_master_is_shown_as_id_0_if_enabled(void **state)
{
    (void)state;
    test_teardown(state);
    test_open((struct names_options){.acting_master = true});
    struct names_broker slave = broker_of("a", 1, "10.0.0.11:1");
    slave.acting_told = slave.acting_master = true;
    const struct topic_settings topics[] = {topic_of("T1", 4),
                                            topic_of("rmq_sys_SYNC_BROKER_MEMBER_a", 1)};
    assert_int_equal(try_register(&slave, version_of(0, 1), topics, 2), OK);
    assert_route("T1", "a 0=10.0.0.11:1 4/4 r-");
    assert_route("rmq_sys_SYNC_BROKER_MEMBER_a", "a 1=10.0.0.11:1 1/1 r-");
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    assert_route("T1", "a 0=10.0.0.1:1 1=10.0.0.11:1 4/4 rw");

    /* Not for brokers that do not want it, and not while the topic can still be written. */
    slave.name = BYTES("b");
    slave.acting_master = false;
    assert_int_equal(try_register(&slave, version_of(0, 1), topics, 2), OK);
    assert_non_null(strstr(route_text("T1"), "b 1=10.0.0.11:1 4/4 r-"));
    (void)names_write_perm(names, BYTES("b"), true);
    assert_non_null(strstr(route_text("T1"), "b 1=10.0.0.11:1 4/4 rw"));
}

static void a_zone_sees_its_own_brokers_and_those_without_master(void **state)
{
    (void)state;
    struct names_broker a = broker_of("a", 0, "10.0.0.1:1"), b = broker_of("b", 0, "10.0.0.2:1");
    struct names_broker c = broker_of("c", 1, "10.0.0.3:1");
    a.zone = BYTES("East");
    b.zone = c.zone = BYTES("west");
    c.acting_told = true;
    register_usual(a, 1);
    register_usual(b, 1);
    register_usual(c, 1);
    struct route r;
    assert_int_equal(names_route(names, BYTES("T1"), &arena, &r, NULL), OK);
    assert_int_equal(r.n_brokers, 3);
    route_keep_zone(&r, BYTES("eAST"));
    assert_int_equal(r.n_brokers, 2);
    assert_int_equal(r.n_queues, 2);
    assert_bytes_equal(r.brokers[0].name, BYTES("a"));
    assert_bytes_equal(r.queues[1].broker_name, BYTES("c"));
    route_keep_zone(&r, BYTES("north"));
    assert_int_equal(r.n_brokers, 1);
    assert_bytes_equal(r.brokers[0].name, BYTES("c"));
}

/* ---- lists ---- */

static void topics_are_listed_by_cluster_and_by_flag(void **state)
{
    (void)state;
    assert_string_equal(topics_text(NAMES_ALL, ""), "");
    assert_string_equal(topics_text(NAMES_SYSTEM, ""), "");
    register_flags("a", "10.0.0.1:1", 1, 2, 3);
    struct names_broker z = broker_of("z", 0, "10.0.0.9:1");
    z.cluster = BYTES("C2");
    const struct topic_settings more[] = {topic_of("T1", 1), topic_of("A0", 1)};
    assert_int_equal(try_register(&z, version_of(0, 1), more, 2), OK);

    assert_string_equal(topics_text(NAMES_ALL, ""), "A0 T1 T2 T3");
    assert_string_equal(topics_text(NAMES_OF_CLUSTER, "C1"), "T1 T2 T3");
    assert_string_equal(topics_text(NAMES_OF_CLUSTER, "C2"), "A0 T1");
    assert_string_equal(topics_text(NAMES_OF_CLUSTER, "C3"), "");
    assert_string_equal(topics_text(NAMES_UNIT, ""), "T1 T3");
    assert_string_equal(topics_text(NAMES_UNIT_SUB, ""), "T2 T3");
    assert_string_equal(topics_text(NAMES_UNIT_SUB_ONLY, ""), "T2");
    assert_string_equal(topics_text(NAMES_SYSTEM, ""), "C1 C2 a z @10.0.0.1:1");
}

/* ---- permissions ---- */

static void a_taken_permission_holds_until_the_version_changes(void **state)
{
    (void)state;
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    register_usual(broker_of("b", 0, "10.0.0.2:1"), 1);
    assert_int_equal(names_write_perm(names, BYTES("a"), false), 2);
    assert_int_equal(names_write_perm(names, BYTES("x"), false), 0);
    assert_route("T1", "a 0=10.0.0.1:1 4/4 r-; b 0=10.0.0.2:1 4/4 rw");
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    assert_route("T1", "a 0=10.0.0.1:1 4/4 r-; b 0=10.0.0.2:1 4/4 rw");
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 2);
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw; b 0=10.0.0.2:1 4/4 rw");

    assert_int_equal(names_write_perm(names, BYTES("a"), false), 2);
    assert_int_equal(names_write_perm(names, BYTES("a"), true), 2);
    assert_route("T2", "a 0=10.0.0.1:1 8/8 rw; b 0=10.0.0.2:1 8/8 rw");
}

/* ---- topics by hand ---- */

static void a_deleted_topic_comes_back_with_a_broker_that_has_it(void **state)
{
    (void)state;
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    struct names_broker b = broker_of("b", 0, "10.0.0.2:1");
    b.cluster = BYTES("C2");
    register_usual(b, 1);
    names_delete_topic(names, BYTES("T1"), BYTES("C2"));
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw");
    names_delete_topic(names, BYTES("T1"), BYTES("C2"));
    names_delete_topic(names, BYTES("T1"), BYTES("nowhere"));
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw");
    names_delete_topic(names, BYTES("T1"), BYTES("C1"));
    assert_route("T1", "?");
    names_delete_topic(names, BYTES("T2"), (struct bytes){0});
    assert_route("T2", "?");
    assert_int_equal(names->n_places, 0);
    names_delete_topic(names, BYTES("T2"), (struct bytes){0});

    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1); /* the version has not changed */
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw");
}

static void a_topic_may_be_added_for_brokers_that_are_here(void **state)
{
    (void)state;
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    register_usual(broker_of("b", 0, "10.0.0.2:1"), 1);
    struct route_queues queues[] = {{BYTES("b"), 2, 3, 6, 0}, {BYTES("a"), 1, 1, 4, 0}};
    struct route route = {.queues = queues, .n_queues = 2};
    assert_int_equal(names_add_topic(names, BYTES("N"), &route, &why), OK);
    assert_route("N", "a 0=10.0.0.1:1 1/1 r-; b 0=10.0.0.2:1 2/3 rw");
    queues[1].perm = 6;
    assert_int_equal(names_add_topic(names, BYTES("N"), &route, &why), OK);
    assert_route("N", "a 0=10.0.0.1:1 1/1 rw; b 0=10.0.0.2:1 2/3 rw");

    queues[0].broker_name = BYTES("x");
    assert_int_equal(names_add_topic(names, BYTES("M"), &route, &why), ERR_NOT_FOUND);
    assert_string_equal(why.text, "topic M cannot lie on broker x, which is not registered");
    assert_route("M", "?");
    route.n_queues = 0;
    assert_int_equal(names_add_topic(names, BYTES("M"), &route, &why), OK);
    assert_route("M", "?"); /* nothing was said, as Apache has it */
    assert_int_equal(names_add_topic(names, BYTES(""), &route, &why), ERR_INVALID);
}

/* ---- limits ---- */

static struct topic_settings *many_topics(size_t n, const char *prefix, char **text)
{
    struct topic_settings *topics = calloc(n, sizeof *topics);
    *text = malloc(n * 24);
    assert_non_null(topics);
    assert_non_null(*text);
    for (size_t i = 0; i < n; i++) {
        snprintf(*text + i * 24, 24, "%s-%zu", prefix, i);
        topics[i] = topic_of(*text + i * 24, 1);
    }
    return topics;
}

static void refuses_too_many_topics_and_changes_nothing(void **state)
{
    (void)state;
    cleanup(free_at) char *text = NULL, *more_text = NULL;
    cleanup(free_at) struct topic_settings *topics = many_topics(NAMES_TOPICS_MAX + 1, "t", &text);
    cleanup(free_at) struct topic_settings *more = many_topics(2, "more", &more_text);
    struct names_broker a = broker_of("a", 0, "10.0.0.1:1");
    assert_int_equal(try_register(&a, version_of(0, 1), topics, NAMES_TOPICS_MAX + 1), ERR_TOO_BIG);
    assert_string_equal(why.text, "the broker has 262145 topics, more than 262144");
    assert_string_equal(clusters_text(), "");
    assert_int_equal(try_register(&a, version_of(0, 1), topics, NAMES_TOPICS_MAX - 1), OK);
    assert_int_equal(try_register(&a, version_of(0, 2), more, 2), ERR_TOO_BIG);
    assert_route("more-0", "?");
    assert_int_equal(try_register(&a, version_of(0, 2), more, 1), OK);
    assert_route("more-0", "a 0=10.0.0.1:1 1/1 rw");
    const struct route_queues queues = {BYTES("a"), 1, 1, 6, 0};
    const struct route route = {.queues = (struct route_queues *)&queues, .n_queues = 1};
    assert_int_equal(names_add_topic(names, BYTES("x"), &route, &why), ERR_TOO_BIG);
    assert_int_equal(names_add_topic(names, BYTES("t-5"), &route, &why), OK);

    /* Four brokers with all of them, and the fifth is too much. */
    static const char *const rest[] = {"b", "c", "d"};
    for (size_t i = 0; i < 3; i++) {
        struct names_broker b = broker_of(rest[i], 0, "10.0.0.2:1");
        assert_int_equal(try_register(&b, version_of(0, 1), topics, NAMES_TOPICS_MAX - 1), OK);
    }
    struct names_broker e = broker_of("e", 0, "10.0.0.3:1");
    assert_int_equal(try_register(&e, version_of(0, 1), topics, NAMES_TOPICS_MAX - 1), ERR_TOO_BIG);
    assert_string_equal(why.text, "the brokers' topics would be more than 1048576 together");
    assert_string_equal(clusters_text(), "C1: a b c d");
    names_unregister(names, &a);
    assert_int_equal(try_register(&e, version_of(0, 1), topics, NAMES_TOPICS_MAX - 1), OK);
    assert_route("t-7", "b 0=10.0.0.2:1 1/1 rw; c 0=10.0.0.2:1 1/1 rw; d 0=10.0.0.2:1 1/1 rw; "
                        "e 0=10.0.0.3:1 1/1 rw");
}

/* ---- a long random life, against a simple model ---- */

enum { BROKERS = 4, IDS = 3, TOPICS = 5 };

/* What the rules say, in the plainest form: who is there, and what each topic is. */
struct model {
    bool there[BROKERS][IDS];
    int counter[BROKERS][IDS]; /* version it last registered with */
    bool serves[BROKERS][TOPICS];
    int queues[BROKERS][TOPICS];
};

static char model_names[BROKERS][8], model_addrs[BROKERS][IDS][24], model_topics[TOPICS][8];

static void check_model(const struct model *m)
{
    for (int t = 0; t < TOPICS; t++) {
        char wanted[1024] = "";
        for (int b = 0; b < BROKERS; b++) {
            if (!m->serves[b][t])
                continue;
            add_text(wanted, sizeof wanted, "%s%s", wanted[0] ? "; " : "", model_names[b]);
            for (int i = 0; i < IDS; i++)
                if (m->there[b][i])
                    add_text(wanted, sizeof wanted, " %d=%s", i, model_addrs[b][i]);
            add_text(wanted, sizeof wanted, " %d/%d rw", m->queues[b][t], m->queues[b][t]);
        }
        assert_route(model_topics[t], wanted[0] ? wanted : "?");
    }
}

static void model_register(struct model *m, struct dice *dice, int b, int i)
{
    int counter = (int)dice_below(dice, 3), queues = 1 + (int)dice_below(dice, 4);
    struct topic_settings topics[TOPICS];
    bool told[TOPICS] = {false};
    size_t n = 0;
    for (int t = 0; t < TOPICS; t++) {
        told[t] = dice_below(dice, 2);
        if (told[t])
            topics[n++] = topic_of(model_topics[t], queues);
    }
    struct names_broker broker = broker_of(model_names[b], i, model_addrs[b][i]);
    enum err err = try_register(&broker, version_of(0, counter), topics, n);
    if (!m->there[b][i] && n == 1) {
        assert_int_equal(err, ERR_DENIED);
        return;
    }
    assert_int_equal(err, OK);
    bool changed = !m->there[b][i] || m->counter[b][i] != counter;
    m->there[b][i] = true;
    m->counter[b][i] = counter;
    for (int t = 0; i == 0 && t < TOPICS; t++) {
        if (!told[t] || (!changed && m->serves[b][t]))
            continue;
        m->serves[b][t] = true;
        m->queues[b][t] = queues;
    }
}

static void model_leave(struct model *m, int b, int i)
{
    struct names_broker broker = broker_of(model_names[b], i, model_addrs[b][i]);
    names_unregister(names, &broker);
    m->there[b][i] = false;
    bool any = false;
    for (int k = 0; k < IDS; k++)
        any = any || m->there[b][k];
    for (int t = 0; !any && t < TOPICS; t++)
        m->serves[b][t] = false;
}

static void a_long_random_life_follows_the_rules(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    struct model m = {0};
    for (int b = 0; b < BROKERS; b++) {
        snprintf(model_names[b], sizeof model_names[b], "b%d", b);
        for (int i = 0; i < IDS; i++)
            snprintf(model_addrs[b][i], sizeof model_addrs[b][i], "10.0.%d.%d:1", b, i);
    }
    for (int t = 0; t < TOPICS; t++)
        snprintf(model_topics[t], sizeof model_topics[t], "T%d", t);

    for (int step = 0; step < 5000; step++) {
        int b = (int)dice_below(&dice, BROKERS), i = (int)dice_below(&dice, IDS);
        int t = (int)dice_below(&dice, TOPICS);
        uint64_t what = dice_below(&dice, 10);
        if (what < 5) {
            model_register(&m, &dice, b, i);
        } else if (what < 8) {
            model_leave(&m, b, i);
        } else {
            names_delete_topic(names, bytes_str(model_topics[t]), (struct bytes){0});
            for (int k = 0; k < BROKERS; k++)
                m.serves[k][t] = false;
        }
        check_model(&m);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, test_setup, test_teardown)
    const struct CMUnitTest tests[] = {
        CASE(an_unknown_topic_says_what_is_known_instead),
        CASE(an_unknown_topic_that_was_known_says_who_had_it),
        CASE(what_is_remembered_of_lost_topics_is_bounded),
        CASE(the_route_carries_counts_flags_and_permissions),
        CASE(ordered_topics_are_told_only_if_enabled),
        CASE(an_acting_master_is_shown_as_id_0_if_enabled),
        CASE(a_zone_sees_its_own_brokers_and_those_without_master),
        CASE(topics_are_listed_by_cluster_and_by_flag),
        CASE(a_taken_permission_holds_until_the_version_changes),
        CASE(a_deleted_topic_comes_back_with_a_broker_that_has_it),
        CASE(a_topic_may_be_added_for_brokers_that_are_here),
        CASE(refuses_too_many_topics_and_changes_nothing),
        CASE(a_long_random_life_follows_the_rules),
    };
    return cmocka_run_group_tests_name("routes", tests, NULL, NULL);
}
