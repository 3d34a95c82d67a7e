/* Registering, moving, leaving and falling silent, as Apache's name server does it. */
#include "namesrv/names_test.h"

/* ---- registering ---- */

static void a_registered_broker_serves_its_topics(void **state)
{
    (void)state;
    assert_route("T1", "?");
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw");
    assert_route("T2", "a 0=10.0.0.1:1 8/8 rw");
    assert_false(registered.any_order);
    assert_int_equal(registered.master_addr.len, 0);
    assert_string_equal(clusters_text(), "C1: a");
}

static void several_brokers_and_addresses_stand_in_one_route(void **state)
{
    (void)state;
    register_usual(broker_of("b", 0, "10.0.0.2:1"), 1);
    register_usual(broker_of("a", 2, "10.0.0.12:1"), 1);
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    register_usual(broker_of("a", 1, "10.0.0.11:1"), 1);
    assert_route("T1", "a 0=10.0.0.1:1 1=10.0.0.11:1 2=10.0.0.12:1 4/4 rw; b 0=10.0.0.2:1 4/4 rw");
}

static void a_slave_is_told_where_its_master_is(void **state)
{
    (void)state;
    register_usual(broker_of("a", 1, "10.0.0.11:1"), 1);
    assert_int_equal(registered.master_addr.len, 0);
    struct names_broker master = broker_of("a", 0, "10.0.0.1:1");
    master.ha_addr = BYTES("10.0.0.1:2");
    register_usual(master, 1);
    assert_int_equal(registered.master_addr.len, 0);
    register_usual(broker_of("a", 1, "10.0.0.11:1"), 1);
    assert_bytes_equal(registered.master_addr, BYTES("10.0.0.1:1"));
    assert_bytes_equal(registered.ha_addr, BYTES("10.0.0.1:2"));
}

/* A 4.x slave says nothing about acting masters, and its topics are never taken. */
static void an_old_slave_alone_makes_no_route(void **state)
{
    (void)state;
    register_usual(broker_of("a", 1, "10.0.0.11:1"), 1);
    assert_route("T1", "?");
    assert_string_equal(clusters_text(), "C1: a");
}

/* A 5.x slave without a master speaks for the broker, but only for reading; the master's word then
 * replaces it, and another slave's does not. */
static void the_smallest_id_speaks_for_reading(void **state)
{
    (void)state;
    struct names_broker slave = broker_of("a", 2, "10.0.0.12:1");
    slave.acting_told = true;
    register_usual(slave, 1);
    assert_route("T1", "a 2=10.0.0.12:1 4/4 r-");

    const struct topic_settings other[] = {topic_of("T1", 16), topic_of("T3", 16)};
    struct names_broker third = broker_of("a", 3, "10.0.0.13:1");
    third.acting_told = true;
    assert_int_equal(try_register(&third, version_of(0, 9), other, 2), OK);
    assert_route("T1", "a 2=10.0.0.12:1 3=10.0.0.13:1 4/4 r-");
    assert_route("T3", "?");

    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    assert_route("T1", "a 0=10.0.0.1:1 2=10.0.0.12:1 3=10.0.0.13:1 4/4 rw");
}

static void only_a_changed_version_replaces_what_is_known(void **state)
{
    (void)state;
    const struct names_broker a = broker_of("a", 0, "10.0.0.1:1");
    register_usual(a, 1);
    const struct topic_settings other[] = {topic_of("T1", 16), topic_of("T3", 16)};
    assert_int_equal(try_register(&a, version_of(0, 1), other, 2), OK);
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw");
    assert_route("T3", "a 0=10.0.0.1:1 16/16 rw"); /* what is missing is added all the same */

    assert_int_equal(try_register(&a, version_of(0, 2), other, 2), OK);
    assert_route("T1", "a 0=10.0.0.1:1 16/16 rw");
    assert_route("T2",
                 "a 0=10.0.0.1:1 8/8 rw"); /* a topic leaves by DELETE_TOPIC_IN_NAMESRV only */

    /* Any of the three numbers makes a version another one. */
    register_usual(a, 2);
    assert_route("T1", "a 0=10.0.0.1:1 16/16 rw");
    const struct topic_settings usual[] = {topic_of("T1", 4), topic_of("T2", 8)};
    struct data_version later = version_of(0, 2);
    later.timestamp++;
    assert_int_equal(try_register(&a, later, usual, 2), OK);
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw");
    later.state--;
    assert_int_equal(try_register(&a, later, other, 2), OK);
    assert_route("T1", "a 0=10.0.0.1:1 16/16 rw");
}

static void a_single_topic_updates_a_known_broker(void **state)
{
    (void)state;
    const struct names_broker a = broker_of("a", 0, "10.0.0.1:1");
    register_usual(a, 1);
    const struct topic_settings one = topic_of("T1", 5);
    assert_int_equal(try_register(&a, version_of(0, 2), &one, 1), OK);
    assert_route("T1", "a 0=10.0.0.1:1 5/5 rw");
    assert_route("T2", "a 0=10.0.0.1:1 8/8 rw");
}

/* ---- moving ---- */

static void an_address_under_another_id_moves(void **state)
{
    (void)state;
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    register_usual(broker_of("a", 1, "10.0.0.11:1"), 1);
    register_usual(broker_of("a", 2, "10.0.0.11:1"), 1);
    assert_route("T1", "a 0=10.0.0.1:1 2=10.0.0.11:1 4/4 rw");

    /* The slave takes over: one step, and the former master is out. */
    struct names_broker next = broker_of("a", 0, "10.0.0.11:1");
    const struct topic_settings topics[] = {topic_of("T1", 6), topic_of("T2", 6)};
    assert_int_equal(try_register(&next, version_of(1, 1), topics, 2), OK);
    assert_route("T1", "a 0=10.0.0.11:1 6/6 rw");
}

static void a_lone_slave_becomes_the_master(void **state)
{
    (void)state;
    register_usual(broker_of("a", 1, "10.0.0.1:1"), 1);
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw");
}

static void an_older_state_does_not_take_an_id(void **state)
{
    (void)state;
    const struct topic_settings topics[] = {topic_of("T1", 4), topic_of("T2", 8)};
    struct names_broker a = broker_of("a", 0, "10.0.0.1:1");
    assert_int_equal(try_register(&a, version_of(5, 1), topics, 2), OK);
    struct names_broker old = broker_of("a", 0, "10.0.0.9:1");
    assert_int_equal(try_register(&old, version_of(4, 1), topics, 2), ERR_STALE);
    assert_non_null(strstr(why.text, "10.0.0.1:1"));
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw");

    /* The same state takes it: a broker that was set up again on another machine. */
    assert_int_equal(try_register(&old, version_of(5, 1), topics, 2), OK);
    assert_route("T1", "a 0=10.0.0.9:1 4/4 rw");
    /* And its own older state is no reason to refuse. */
    assert_int_equal(try_register(&old, version_of(0, 1), topics, 2), OK);
}

/* It has said that it is no longer id 1, so it is not, whatever becomes of its wish for 0. */
static void a_refused_address_has_lost_its_former_id(void **state)
{
    (void)state;
    const struct topic_settings topics[] = {topic_of("T1", 4), topic_of("T2", 8)};
    struct names_broker a = broker_of("a", 0, "10.0.0.1:1");
    assert_int_equal(try_register(&a, version_of(5, 1), topics, 2), OK);
    register_usual(broker_of("a", 1, "10.0.0.11:1"), 1);
    struct names_broker wish = broker_of("a", 0, "10.0.0.11:1");
    assert_int_equal(try_register(&wish, version_of(4, 1), topics, 2), ERR_STALE);
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw");
}

static void a_first_registration_with_one_topic_is_refused(void **state)
{
    (void)state;
    const struct names_broker a = broker_of("a", 0, "10.0.0.1:1");
    const struct topic_settings one = topic_of("T1", 4);
    assert_int_equal(try_register(&a, version_of(0, 1), &one, 1), ERR_DENIED);
    assert_true(bytes_start(bytes_str(why.text), BYTES("register broker failed")));
    assert_string_equal(clusters_text(), ""); /* and leaves no trace */
    assert_int_equal(try_register(&a, version_of(0, 1), NULL, 0), OK);
    assert_string_equal(clusters_text(), "C1: a");

    /* The same for each id of a broker that is known. */
    const struct names_broker slave = broker_of("a", 1, "10.0.0.11:1");
    assert_int_equal(try_register(&slave, version_of(0, 1), &one, 1), ERR_DENIED);
}

/* ---- versions and heartbeats ---- */

static void a_broker_may_ask_whether_it_has_news(void **state)
{
    (void)state;
    const struct names_broker a = broker_of("a", 0, "10.0.0.1:1");
    struct data_version known, mine = version_of(0, 1);
    bool changed = false;
    assert_int_equal(names_version(names, &a, &mine, &changed, &known), ERR_NOT_FOUND);
    register_usual(a, 1);
    assert_int_equal(names_version(names, &a, &mine, &changed, &known), OK);
    assert_false(changed);
    mine.counter = 2;
    assert_int_equal(names_version(names, &a, &mine, &changed, &known), OK);
    assert_true(changed);
    assert_int_equal(known.counter, 1);
    const struct names_broker elsewhere = broker_of("a", 0, "10.0.0.2:1");
    assert_int_equal(names_version(names, &elsewhere, &mine, &changed, &known), ERR_NOT_FOUND);
}

static size_t expire(const char *wanted)
{
    struct bytes *addrs = NULL;
    arena_reset(&arena);
    size_t n = names_expire_turn(names, &arena, &addrs);
    if (wanted) {
        assert_int_equal(n, 1);
        assert_bytes_equal(addrs[0], bytes_str(wanted));
    }
    return n;
}

static void the_silent_are_forgotten_after_two_minutes(void **state)
{
    (void)state;
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    clock_manual_advance(&test_clock, 1000);
    register_usual(broker_of("b", 0, "10.0.0.2:1"), 1);
    clock_manual_advance(&test_clock, NAMES_EXPIRE_MS - 1000);
    assert_int_equal(expire(NULL), 0);
    clock_manual_advance(&test_clock, 1);
    expire("10.0.0.1:1");
    assert_route("T1", "b 0=10.0.0.2:1 4/4 rw");
    clock_manual_advance(&test_clock, 1000);
    expire("10.0.0.2:1");
    assert_route("T1", "?");
    assert_string_equal(clusters_text(), "");
    assert_int_equal(expire(NULL), 0);
}

static void a_broker_may_ask_for_another_patience(void **state)
{
    (void)state;
    struct names_broker hasty = broker_of("a", 0, "10.0.0.1:1");
    hasty.timeout_ms = 10000;
    register_usual(hasty, 1);
    struct names_broker slow = broker_of("b", 0, "10.0.0.2:1");
    slow.timeout_ms = INT64_MAX;
    register_usual(slow, 1);
    struct names_broker odd = broker_of("c", 0, "10.0.0.3:1");
    odd.timeout_ms = -5;
    register_usual(odd, 1);
    clock_manual_advance(&test_clock, 10001);
    expire("10.0.0.1:1");
    clock_manual_advance(&test_clock, NAMES_EXPIRE_MS);
    expire("10.0.0.3:1");
    clock_manual_advance(&test_clock, 24 * 3600 * 1000);
    expire("10.0.0.2:1"); /* nobody stays for ever */
}

static void every_word_of_a_broker_keeps_it_alive(void **state)
{
    (void)state;
    const struct names_broker a = broker_of("a", 0, "10.0.0.1:1");
    register_usual(a, 1);
    for (int i = 0; i < 9; i++) {
        clock_manual_advance(&test_clock, NAMES_EXPIRE_MS);
        assert_int_equal(expire(NULL), 0);
        struct data_version known, other = version_of(0, 7);
        bool changed;
        if (i % 3 == 0)
            names_heartbeat(names, &a);
        else if (i % 3 == 1)
            assert_int_equal(names_version(names, &a, &other, &changed, &known), OK);
        else
            register_usual(a, 1);
    }
}

/* More than one turn tells of; the rest goes in the next. */
static void many_expire_in_several_turns(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        char name[16];
        snprintf(name, sizeof name, "b%d", i);
        register_usual(broker_of(name, 0, "10.0.0.1:1"), 1);
    }
    clock_manual_advance(&test_clock, NAMES_EXPIRE_MS + 1);
    size_t total = 0, n;
    while ((n = expire(NULL)) > 0)
        total += n;
    assert_int_equal(total, 300);
    assert_int_equal(names->topics.n, 0);
    assert_int_equal(names->n_places, 0);
}

/* ---- leaving ---- */

static void unregistering_takes_the_address_and_then_the_topics(void **state)
{
    (void)state;
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    register_usual(broker_of("a", 1, "10.0.0.11:1"), 1);
    const struct names_broker nobody = broker_of("a", 0, "10.0.0.77:1");
    names_unregister(names, &nobody);
    const struct names_broker other = broker_of("x", 0, "10.0.0.1:1");
    names_unregister(names, &other);
    assert_route("T1", "a 0=10.0.0.1:1 1=10.0.0.11:1 4/4 rw");

    /* The address counts, not the id. */
    const struct names_broker master = broker_of("a", 5, "10.0.0.1:1");
    names_unregister(names, &master);
    assert_route("T1", "a 1=10.0.0.11:1 4/4 rw");
    const struct names_broker slave = broker_of("a", 1, "10.0.0.11:1");
    names_unregister(names, &slave);
    assert_route("T1", "?");
    assert_string_equal(clusters_text(), "");
    names_unregister(names, &slave);
}

/* With acting masters, the loss of the master takes the write permission. */
static void without_a_master_nothing_is_written_to_slaves_that_act(void **state)
{
    (void)state;
    struct names_broker slave = broker_of("a", 1, "10.0.0.11:1");
    slave.acting_told = slave.acting_master = true;
    struct names_broker master = broker_of("a", 0, "10.0.0.1:1");
    master.acting_told = master.acting_master = true;
    register_usual(master, 1);
    register_usual(slave, 1);
    names_unregister(names, &master);
    assert_route("T1", "a 1=10.0.0.11:1 4/4 r-");
    register_usual(slave, 1);
    assert_route("T1", "a 1=10.0.0.11:1 4/4 r-");
    register_usual(master, 1);
    assert_route("T1", "a 0=10.0.0.1:1 1=10.0.0.11:1 4/4 rw");
    names_unregister(names, &slave);
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw");
}

static void a_closed_connection_ends_what_came_by_it(void **state)
{
    (void)state;
    struct names_broker a = broker_of("a", 0, "10.0.0.1:1");
    a.conn = 41;
    struct names_broker b = broker_of("b", 0, "10.0.0.2:1"), b1 = broker_of("b", 1, "10.0.0.3:1");
    b.conn = b1.conn = 42;
    register_usual(a, 1);
    register_usual(b, 1);
    register_usual(b1, 1);
    assert_int_equal(names_gone(names, 40), 0);
    assert_int_equal(names_gone(names, 42), 2);
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw");

    /* It has registered again by another connection before the first was seen to close. */
    a.conn = 43;
    register_usual(a, 1);
    assert_int_equal(names_gone(names, 41), 0);
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw");
    assert_int_equal(names_gone(names, 43), 1);
    assert_route("T1", "?");
}

/* ---- clusters ---- */

static void brokers_are_listed_under_their_clusters(void **state)
{
    (void)state;
    struct names_broker c = broker_of("c", 0, "10.0.0.3:1");
    c.cluster = BYTES("C0");
    c.zone = BYTES("east");
    register_usual(broker_of("b", 0, "10.0.0.2:1"), 1);
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    register_usual(c, 1);
    assert_string_equal(clusters_text(), "C0: c; C1: a b");

    struct route_broker shown;
    assert_int_equal(names_members(names, BYTES("c"), &arena, &shown), OK);
    assert_bytes_equal(shown.cluster, BYTES("C0"));
    assert_bytes_equal(shown.zone, BYTES("east"));
    assert_int_equal(shown.n_addrs, 1);
    assert_int_equal(names_members(names, BYTES("x"), &arena, &shown), ERR_NOT_FOUND);
}

/* While a cluster is renamed, broker by broker, both names lead to the broker. */
static void a_broker_may_stand_in_two_clusters_for_a_while(void **state)
{
    (void)state;
    struct names_broker master = broker_of("a", 0, "10.0.0.1:1");
    struct names_broker slave = broker_of("a", 1, "10.0.0.11:1");
    register_usual(master, 1);
    register_usual(slave, 1);
    master.cluster = BYTES("C2");
    register_usual(master, 1);
    assert_string_equal(clusters_text(), "C1: a; C2: a");
    slave.cluster = BYTES("C2");
    register_usual(slave, 1);
    assert_string_equal(clusters_text(), "C2: a");
}

/* ---- refusals ---- */

static void check_refused(struct names_broker b, enum err wanted, const char *sentence)
{
    const struct topic_settings topics[] = {topic_of("T1", 4), topic_of("T2", 8)};
    assert_int_equal(try_register(&b, version_of(0, 1), topics, 2), wanted);
    if (!strstr(why.text, sentence))
        print_error("got \"%s\"\n", why.text);
    assert_non_null(strstr(why.text, sentence));
    assert_string_equal(clusters_text(), "");
}

static void refuses_names_and_addresses_that_are_none(void **state)
{
    (void)state;
    struct names_broker b = broker_of("", 0, "10.0.0.1:1");
    check_refused(b, ERR_INVALID, "has no name");
    b = broker_of("a", 0, "10.0.0.1:1");
    b.cluster = (struct bytes){0};
    check_refused(b, ERR_INVALID, "has no cluster");
    b = broker_of("a\n", 0, "10.0.0.1:1");
    check_refused(b, ERR_INVALID, "control character");
    b = broker_of("a", -1, "10.0.0.1:1");
    check_refused(b, ERR_INVALID, "negative");

    static const char *const bad[] = {"10.0.0.1",   ":1",          "10.0.0.1:",      "10.0.0.1:x",
                                      "10.0.0.1:0", "10.0.0.1:-1", "10.0.0.1:65536", "a,b:1",
                                      "a\"b:1",     "a b:1",       "a\\b:1",         "\xc3\xa9:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_refused(broker_of("a", 0, bad[i]), ERR_INVALID, "is not host:port");
    check_refused(broker_of("a", 0, ""), ERR_INVALID, "has no address");
    b = broker_of("a", 0, "10.0.0.1:1");
    b.ha_addr = BYTES("nowhere");
    check_refused(b, ERR_INVALID, "replication address");

    static const char *const good[] = {"mq.example.org:1", "[2001:db8::1]:65535", "1.2.3.4:1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        register_usual(broker_of("a", 0, good[i]), 1);
}

static void refuses_what_is_too_long(void **state)
{
    (void)state;
    static char text[NAMES_TOPIC_MAX + 2];
    memset(text, 'x', sizeof text - 1);
    struct names_broker b = broker_of("a", 0, "10.0.0.1:1");
    b.cluster = bytes_of(text, NAMES_TEXT_MAX + 1);
    check_refused(b, ERR_TOO_BIG, "cluster has 256 bytes, more than 255");
    b.cluster = bytes_of(text, NAMES_TEXT_MAX);
    b.zone = bytes_of(text, NAMES_TEXT_MAX + 1);
    check_refused(b, ERR_TOO_BIG, "zone has 256 bytes");
    b.zone = (struct bytes){0};
    b.name = bytes_of(text, NAMES_TEXT_MAX + 1);
    check_refused(b, ERR_TOO_BIG, "name has 256 bytes");

    b = broker_of("a", 0, "10.0.0.1:1");
    struct topic_settings topics[] = {topic_of(text, 1), topic_of("T2", 1)};
    assert_int_equal(try_register(&b, version_of(0, 1), topics, 2), ERR_TOO_BIG);
    topics[0].name.len = NAMES_TOPIC_MAX;
    assert_int_equal(try_register(&b, version_of(0, 1), topics, 2), OK);
    topics[0].name.len = 0;
    assert_int_equal(try_register(&b, version_of(0, 2), topics, 2), ERR_INVALID);
}

static void refuses_too_many_brokers_and_addresses(void **state)
{
    (void)state;
    char name[32], addr[32];
    for (int i = 0; i < NAMES_BROKERS_MAX; i++) {
        snprintf(name, sizeof name, "b%d", i);
        register_usual(broker_of(name, 0, "10.0.0.1:1"), 1);
    }
    struct names_broker b = broker_of("one more", 0, "10.0.0.1:1");
    assert_int_equal(try_register(&b, version_of(0, 1), NULL, 0), ERR_TOO_BIG);
    assert_string_equal(why.text, "1024 brokers are registered, which is the maximum");

    for (int i = 1; i < NAMES_ADDRS_MAX; i++) {
        snprintf(addr, sizeof addr, "10.0.1.%d:1", i);
        register_usual(broker_of("b7", i, addr), 1);
    }
    b = broker_of("b7", NAMES_ADDRS_MAX, "10.0.9.9:1");
    assert_int_equal(try_register(&b, version_of(0, 1), NULL, 0), ERR_TOO_BIG);
    assert_string_equal(why.text, "broker b7 has 64 addresses, which is the maximum");
    b.id = 3; /* in somebody's place there is room */
    register_usual(b, 1);
    assert_int_equal(team_find(names, BYTES("b7"))->n_members, NAMES_ADDRS_MAX);
}

/* An arena that cannot hold the answer: an error, and the name server goes on. */
static void a_full_arena_is_an_error(void **state)
{
    (void)state;
    register_usual(broker_of("a", 0, "10.0.0.1:1"), 1);
    struct arena small;
    struct route r;
    struct route_broker *brokers;
    struct cluster_names *clusters;
    struct bytes *texts, addr;
    size_t n, m;
    int fitting = 0;
    for (size_t max = 0; max < 2000; max += 16) {
        arena_init(&small, max);
        bool ok = names_route(names, BYTES("T1"), &small, &r, NULL) == OK;
        arena_reset(&small);
        ok = names_clusters(names, &small, &brokers, &n, &clusters, &m) == OK && ok;
        arena_reset(&small);
        ok = names_topic_list(names, NAMES_ALL, (struct bytes){0}, &small, &texts, &n, &addr) ==
                 OK &&
             ok;
        arena_reset(&small);
        ok = names_topic_list(names, NAMES_SYSTEM, (struct bytes){0}, &small, &texts, &n, &addr) ==
                 OK &&
             ok;
        fitting += ok;
        arena_clear(&small);
    }
    assert_true(fitting > 0 && fitting < 125);
    assert_route("T1", "a 0=10.0.0.1:1 4/4 rw");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, test_setup, test_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_registered_broker_serves_its_topics),
        CASE(several_brokers_and_addresses_stand_in_one_route),
        CASE(a_slave_is_told_where_its_master_is),
        CASE(an_old_slave_alone_makes_no_route),
        CASE(the_smallest_id_speaks_for_reading),
        CASE(only_a_changed_version_replaces_what_is_known),
        CASE(a_single_topic_updates_a_known_broker),
        CASE(an_address_under_another_id_moves),
        CASE(a_lone_slave_becomes_the_master),
        CASE(an_older_state_does_not_take_an_id),
        CASE(a_refused_address_has_lost_its_former_id),
        CASE(a_first_registration_with_one_topic_is_refused),
        CASE(a_broker_may_ask_whether_it_has_news),
        CASE(the_silent_are_forgotten_after_two_minutes),
        CASE(a_broker_may_ask_for_another_patience),
        CASE(every_word_of_a_broker_keeps_it_alive),
        CASE(many_expire_in_several_turns),
        CASE(unregistering_takes_the_address_and_then_the_topics),
        CASE(without_a_master_nothing_is_written_to_slaves_that_act),
        CASE(a_closed_connection_ends_what_came_by_it),
        CASE(brokers_are_listed_under_their_clusters),
        CASE(a_broker_may_stand_in_two_clusters_for_a_while),
        CASE(refuses_names_and_addresses_that_are_none),
        CASE(refuses_what_is_too_long),
        CASE(refuses_too_many_brokers_and_addresses),
        CASE(a_full_arena_is_an_error),
    };
    return cmocka_run_group_tests_name("brokers", tests, NULL, NULL);
}
