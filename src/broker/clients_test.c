/* Who is in which group, who is told of changes, and who is forgotten. */
#include "broker/rig_test.h"

/* A connection with its client; a group of them subscribes to T. */
struct visit {
    struct session session;
    struct client client;
};

static void visit_init(struct visit *v, const char *id)
{
    session_init(&v->session);
    v->client = (struct client){
        .session = &v->session.counted, .id = bytes_str(id), .language = 9, .version = 399};
}

static struct membership in_group(const char *group)
{
    static struct subscription sub;
    sub = (struct subscription){BYTES("T"), BYTES("*"), BYTES("TAG"), 1};
    return (struct membership){.group = bytes_str(group), .subs = &sub, .n_subs = 1};
}

static enum err join(struct rig *rig, struct visit *v, const char *group)
{
    struct membership m = in_group(group);
    return broker_consumer_seen(rig->broker, &v->client, &m, NULL);
}

static unsigned holders(const struct visit *v)
{
    return atomic_load(&v->session.counted.holders);
}

static void a_consumer_makes_its_group_and_its_retry_topic(void **state)
{
    struct rig *rig = *state;
    struct visit v;
    visit_init(&v, "c1");
    assert_int_equal(join(rig, &v, "g"), OK);
    assert_true(rig_group(rig, "g"));
    struct topic_settings t = {0};
    assert_true(rig_topic(rig, "%RETRY%g", &t));
    assert_int_equal(t.read_queues, 1);
    assert_int_equal(t.perm, PERM_READ | PERM_WRITE);
    assert_int_equal(rig->topics_changed, 1);
    assert_int_equal(join(rig, &v, "g"), OK);
    assert_int_equal(rig->topics_changed, 1);

    struct group_settings set = group_settings_default(BYTES("many"));
    set.retry_queues = 3;
    rig_group_put(rig, &set);
    assert_int_equal(join(rig, &v, "many"), OK);
    assert_true(rig_topic(rig, "%RETRY%many", &t));
    assert_int_equal(t.write_queues, 3);
    set = group_settings_default(BYTES("none"));
    set.retry_queues = 0;
    rig_group_put(rig, &set);
    assert_int_equal(join(rig, &v, "none"), OK);
    assert_false(rig_topic(rig, "%RETRY%none", NULL));
    broker_session_gone(rig->broker, &v.session.counted);
}

static void all_members_are_told_when_one_comes_or_goes(void **state)
{
    struct rig *rig = *state;
    struct visit a, b, other;
    visit_init(&a, "a");
    visit_init(&b, "b");
    visit_init(&other, "o");
    assert_int_equal(join(rig, &other, "elsewhere"), OK);
    assert_int_equal(join(rig, &a, "g"), OK);
    assert_int_equal(a.session.told, 1); /* the newcomer too */
    assert_string_equal(a.session.group, "g");
    assert_int_equal(join(rig, &b, "g"), OK);
    assert_int_equal(a.session.told, 2);
    assert_int_equal(b.session.told, 1);
    assert_int_equal(join(rig, &b, "g"), OK); /* merely alive */
    assert_int_equal(a.session.told, 2);

    broker_client_leaves(rig->broker, &b.session.counted, BYTES("b"), BYTES(""), BYTES("g"));
    assert_int_equal(a.session.told, 3);
    assert_int_equal(b.session.told, 1);
    assert_int_equal(other.session.told, 1);
    broker_client_leaves(rig->broker, &b.session.counted, BYTES("b"), BYTES("p"),
                         BYTES("g")); /* again */
    broker_session_gone(rig->broker, &b.session.counted);
    assert_int_equal(a.session.told, 3);
    broker_session_gone(rig->broker, &a.session.counted);
    broker_session_gone(rig->broker, &other.session.counted);
    assert_int_equal(rig->broker->members.n + rig->broker->visitors.n + rig->broker->consumers.n,
                     0);
}

static void who_joins_to_read_nothing_changes_nothing_but_the_shares(void **state)
{
    struct rig *rig = *state;
    struct visit one, ghost;
    visit_init(&one, "c1");
    visit_init(&ghost, "!ghost");
    assert_int_equal(broker_consumer_joins(rig->broker, &ghost.client, BYTES("g")), ERR_NOT_FOUND);
    assert_int_equal(join(rig, &one, "g"), OK);
    int told = one.session.told;
    assert_int_equal(broker_consumer_joins(rig->broker, &ghost.client, BYTES("g")), OK);
    assert_int_equal(one.session.told, told + 1);
    broker_session_gone(rig->broker, &ghost.session.counted);
    assert_int_equal(one.session.told, told + 2);
    assert_int_equal(holders(&ghost), 1);
    assert_int_equal(broker_consumer_joins(rig->broker, &ghost.client, BYTES("other")),
                     ERR_NOT_FOUND);
    broker_session_gone(rig->broker, &one.session.counted);
}

static void topics_that_come_or_go_are_news_and_versions_are_not(void **state)
{
    struct rig *rig = *state;
    struct visit v;
    visit_init(&v, "a");
    struct subscription subs[] = {{BYTES("T"), BYTES("A"), BYTES("TAG"), 1},
                                  {BYTES("U"), BYTES("*"), BYTES("TAG"), 1}};
    struct membership m = {.group = BYTES("g"), .subs = subs, .n_subs = 1};
    static const struct {
        size_t n_subs;
        int64_t version;
        bool without;
        int told;
    } steps[] = {
        {1, 1, false, 1}, /* new */
        {1, 2, false, 1}, /* another expression */
        {2, 2, false, 2}, /* one more topic */
        {0, 2, true, 2},  /* said to be unchanged */
        {1, 2, false, 3}, /* one less */
        {0, 2, false, 4}, /* none left */
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        subs[0].version = steps[i].version;
        m.n_subs = steps[i].n_subs;
        m.without_subs = steps[i].without;
        assert_int_equal(broker_consumer_seen(rig->broker, &v.client, &m, NULL), OK);
        assert_int_equal(v.session.told, steps[i].told);
    }
    broker_session_gone(rig->broker, &v.session.counted);
}

static void a_higher_version_replaces_the_expression_and_a_lower_does_not(void **state)
{
    struct rig *rig = *state;
    struct visit v;
    visit_init(&v, "a");
    struct subscription sub = {BYTES("T"), BYTES("A"), BYTES("TAG"), 5};
    struct membership m = {.group = BYTES("g"), .subs = &sub, .n_subs = 1};
    static const struct {
        const char *expression;
        int64_t version;
        const char *tag;
    } steps[] = {{"A", 5, "A"}, {"B", 4, "A"}, {"B", 5, "A"}, {"B", 6, "B"}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        sub.expression = bytes_str(steps[i].expression);
        sub.version = steps[i].version;
        assert_int_equal(broker_consumer_seen(rig->broker, &v.client, &m, NULL), OK);
        room_enter(&rig->broker->room);
        const struct sub *known = subs_find(consumers_find(rig->broker, BYTES("g")), BYTES("T"));
        assert_non_null(known);
        assert_true(filter_wants(known->verdict.filter, tags_code(bytes_str(steps[i].tag))));
        room_leave(&rig->broker->room);
    }
    broker_session_gone(rig->broker, &v.session.counted);
}

static struct membership subscribed(const struct subscription *subs, size_t n)
{
    return (struct membership){.group = BYTES("g"), .subs = subs, .n_subs = n};
}

/* Told once for each change, with both names; not again with every heartbeat, and not of a client
 * that has come back with other wishes. */
static void members_that_subscribe_differently_are_told_of(void **state)
{
    struct rig *rig = *state;
    struct visit a, b, a_again;
    visit_init(&a, "client-a");
    visit_init(&b, "client-b");
    visit_init(&a_again, "client-a");
    struct subscription tu[] = {{BYTES("T"), BYTES("x || y"), BYTES("TAG"), 9},
                                {BYTES("U"), BYTES("*"), BYTES("TAG"), 1}};
    struct subscription ut[] = {tu[1], {BYTES("T"), BYTES("y||x"), BYTES("TAG"), 9}};
    struct subscription other[] = {{BYTES("T"), BYTES("z"), BYTES("TAG"), 3}, tu[1]};
    struct membership m = subscribed(tu, 2), same = subscribed(ut, 2),
                      differs = subscribed(other, 2), fewer = subscribed(tu, 1);

    assert_int_equal(broker_consumer_seen(rig->broker, &a.client, &m, NULL), OK);
    assert_int_equal(broker_consumer_seen(rig->broker, &b.client, &same, NULL), OK);
    assert_int_equal(rig->warned, 0);
    assert_int_equal(broker_consumer_seen(rig->broker, &b.client, &differs, NULL), OK);
    assert_int_equal(rig->warned, 1);
    static const char *const words[] = {"client-a", "client-b", "[g]", "topic T"};
    for (size_t i = 0; i < 4; i++)
        assert_non_null(strstr(rig->warning, words[i]));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(broker_consumer_seen(rig->broker, &a.client, &m, NULL), OK);
        assert_int_equal(broker_consumer_seen(rig->broker, &b.client, &differs, NULL), OK);
    }
    assert_int_equal(rig->warned, 1);
    assert_int_equal(broker_consumer_seen(rig->broker, &b.client, &m, NULL), OK);
    assert_int_equal(rig->warned, 1);
    assert_int_equal(broker_consumer_seen(rig->broker, &b.client, &fewer, NULL), OK);
    assert_int_equal(rig->warned, 2);
    assert_non_null(strstr(rig->warning, "topic U"));

    broker_session_gone(rig->broker, &b.session.counted);
    assert_int_equal(broker_consumer_seen(rig->broker, &a_again.client, &differs, NULL), OK);
    assert_int_equal(rig->warned, 2);
    broker_session_gone(rig->broker, &a.session.counted);
    broker_session_gone(rig->broker, &a_again.session.counted);
}

static void the_retry_topic_is_everybody_s_and_nobody_s_concern(void **state)
{
    struct rig *rig = *state;
    struct visit a, b;
    visit_init(&a, "client-a");
    visit_init(&b, "client-b");
    struct subscription subs[] = {{BYTES("T"), BYTES("*"), BYTES("TAG"), 1},
                                  {BYTES("%RETRY%g"), BYTES("*"), BYTES("TAG"), 1}};
    struct membership with = subscribed(subs, 2), without = subscribed(subs, 1);
    assert_int_equal(broker_consumer_seen(rig->broker, &a.client, &with, NULL), OK);
    assert_int_equal(broker_consumer_seen(rig->broker, &b.client, &without, NULL), OK);
    assert_int_equal(broker_consumer_seen(rig->broker, &a.client, &with, NULL), OK);
    assert_int_equal(rig->warned, 0);
    broker_session_gone(rig->broker, &a.session.counted);
    broker_session_gone(rig->broker, &b.session.counted);
}

static void broadcasting_groups_and_those_that_do_not_want_it_are_left_in_peace(void **state)
{
    struct rig *rig = *state;
    struct visit a, b;
    visit_init(&a, "a");
    visit_init(&b, "b");
    struct membership m = in_group("everyone");
    m.broadcasting = true;
    assert_int_equal(broker_consumer_seen(rig->broker, &a.client, &m, NULL), OK);
    assert_int_equal(broker_consumer_seen(rig->broker, &b.client, &m, NULL), OK);
    struct group_settings set = group_settings_default(BYTES("quiet"));
    set.notify_changes = false;
    rig_group_put(rig, &set);
    assert_int_equal(join(rig, &a, "quiet"), OK);
    assert_int_equal(join(rig, &b, "quiet"), OK);
    broker_session_gone(rig->broker, &b.session.counted);
    assert_int_equal(a.session.told, 0);
    assert_int_equal(b.session.told, 0);
    broker_session_gone(rig->broker, &a.session.counted);
}

/* A count for each membership, and none when all is over. */
static void a_session_is_kept_as_long_as_it_is_known(void **state)
{
    struct rig *rig = *state;
    struct visit v;
    visit_init(&v, "a");
    assert_int_equal(join(rig, &v, "g"), OK);
    assert_int_equal(join(rig, &v, "h"), OK);
    assert_int_equal(broker_producer_seen(rig->broker, &v.client, BYTES("p"), NULL), OK);
    assert_int_equal(broker_producer_seen(rig->broker, &v.client, BYTES("p"), NULL), OK);
    assert_int_equal(holders(&v), 4);
    counted_drop(&v.session.counted); /* the door lets go first */
    assert_false(v.session.released);
    broker_client_leaves(rig->broker, &v.session.counted, BYTES("a"), BYTES("p"), BYTES("h"));
    assert_int_equal(holders(&v), 1);
    broker_session_gone(rig->broker, &v.session.counted);
    assert_true(v.session.released);
}

static void who_is_still_known_at_the_end_is_let_go(void **state)
{
    struct rig *rig = *state;
    struct visit v;
    visit_init(&v, "a");
    assert_int_equal(join(rig, &v, "g"), OK);
    assert_int_equal(broker_producer_seen(rig->broker, &v.client, BYTES("p"), NULL), OK);
    rig_again(rig);
    assert_int_equal(holders(&v), 1);
}

static void silence_of_two_minutes_ends_a_membership(void **state)
{
    struct rig *rig = *state;
    struct visit a, b;
    visit_init(&a, "a");
    visit_init(&b, "b");
    assert_int_equal(join(rig, &a, "g"), OK);
    clock_manual_advance(&rig->clock, 60000);
    assert_int_equal(join(rig, &b, "g"), OK);
    clock_manual_advance(&rig->clock, 60000);
    broker_client_turn(rig->broker);
    assert_int_equal(holders(&a), 2); /* exactly two minutes is not longer */
    clock_manual_advance(&rig->clock, 1);
    int told = b.session.told;
    broker_client_turn(rig->broker);
    assert_int_equal(holders(&a), 1);
    assert_int_equal(holders(&b), 2);
    assert_int_equal(b.session.told, told + 1);
    assert_int_equal(a.session.expired, 1); /* its connection is to be closed */
    assert_int_equal(b.session.expired, 0);
    assert_int_equal(join(rig, &b, "g"), OK); /* heard again */
    clock_manual_advance(&rig->clock, 119999);
    broker_client_turn(rig->broker);
    assert_int_equal(holders(&b), 2);
    clock_manual_advance(&rig->clock, 2);
    broker_client_turn(rig->broker);
    assert_int_equal(holders(&b), 1);
}

/* One that is heard again goes to the end of the row: who came after it may be silent for longer.
 */
static void the_longest_silent_goes_first(void **state)
{
    struct rig *rig = *state;
    struct visit a, b;
    visit_init(&a, "a");
    visit_init(&b, "b");
    assert_int_equal(join(rig, &a, "g"), OK);
    assert_int_equal(join(rig, &b, "g"), OK);
    clock_manual_advance(&rig->clock, 60000);
    assert_int_equal(join(rig, &a, "g"), OK);
    clock_manual_advance(&rig->clock, 60001);
    broker_client_turn(rig->broker);
    assert_int_equal(holders(&a), 2);
    assert_int_equal(holders(&b), 1);
    broker_session_gone(rig->broker, &a.session.counted);
}

static void visit_from(struct visit *v, const char *id, const char *addr)
{
    visit_init(v, id);
    assert_int_equal(addr_parse(bytes_str(addr), &v->client.addr), OK);
}

/* Heartbeats take turns, as those of two programs do. One warning for the two, and again only after
 * a while. */
static void two_live_clients_with_one_id_are_told_of_with_both_addresses(void **state)
{
    struct rig *rig = *state;
    struct visit a, b, other;
    visit_from(&a, "same@1", "10.0.0.1:1111");
    visit_from(&b, "same@1", "10.0.0.2:2222");
    visit_from(&other, "same@1", "10.0.0.3:3333");
    assert_int_equal(join(rig, &other, "elsewhere"), OK); /* another group is no conflict */
    assert_int_equal(join(rig, &a, "g"), OK);
    assert_int_equal(join(rig, &b, "g"), OK);
    assert_int_equal(join(rig, &other, "elsewhere"), OK);
    assert_int_equal(rig->warned, 0); /* it may have reconnected */
    assert_int_equal(join(rig, &a, "g"), OK);
    assert_int_equal(rig->warned, 1);
    static const char *const words[] = {"consumers", "[g]", "[same@1]", "10.0.0.1:1111",
                                        "10.0.0.2:2222"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        assert_non_null(strstr(rig->warning, words[i]));

    for (int i = 0; i < 19; i++) {
        clock_manual_advance(&rig->clock, 30000);
        assert_int_equal(join(rig, &b, "g"), OK);
        assert_int_equal(join(rig, &a, "g"), OK);
    }
    assert_int_equal(rig->warned, 1);
    clock_manual_advance(&rig->clock, 30000);
    assert_int_equal(join(rig, &b, "g"), OK);
    assert_int_equal(join(rig, &a, "g"), OK);
    assert_int_equal(rig->warned, 2);
    broker_session_gone(rig->broker, &a.session.counted);
    broker_session_gone(rig->broker, &b.session.counted);
    broker_session_gone(rig->broker, &other.session.counted);
}

/* Its old connection is still in the tables, but never speaks again. */
static void a_client_that_reconnects_is_not_taken_for_two(void **state)
{
    struct rig *rig = *state;
    struct visit before, after;
    visit_from(&before, "c@1", "10.0.0.1:1");
    visit_from(&after, "c@1", "10.0.0.1:2");
    for (int i = 0; i < 3; i++)
        assert_int_equal(join(rig, &before, "g"), OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(join(rig, &after, "g"), OK);
    broker_session_gone(rig->broker, &before.session.counted);
    assert_int_equal(join(rig, &after, "g"), OK);
    assert_int_equal(rig->warned, 0);
    broker_session_gone(rig->broker, &after.session.counted);
}

/* A connection that takes another id, and one that leaves, are no longer anybody's namesake; ids
 * may have bytes that would break a line. */
static void namesakes_are_those_of_now(void **state)
{
    struct rig *rig = *state;
    struct visit a, b;
    visit_from(&a, "x\n\x1b", "10.0.0.1:1");
    visit_from(&b, "x\n\x1b", "10.0.0.2:2");
    struct broker *broker = rig->broker;
    assert_int_equal(broker_producer_seen(broker, &a.client, BYTES("p"), NULL), OK);
    assert_int_equal(broker_producer_seen(broker, &b.client, BYTES("p"), NULL), OK);
    b.client.id = BYTES("y");
    assert_int_equal(broker_producer_seen(broker, &b.client, BYTES("p"), NULL), OK);
    assert_int_equal(broker_producer_seen(broker, &a.client, BYTES("p"), NULL), OK);
    assert_int_equal(rig->warned, 0);
    b.client.id = a.client.id;
    assert_int_equal(broker_producer_seen(broker, &b.client, BYTES("p"), NULL), OK);
    assert_int_equal(broker_producer_seen(broker, &a.client, BYTES("p"), NULL), OK);
    assert_int_equal(rig->warned, 1);
    assert_non_null(strstr(rig->warning, "producers of group [p]"));
    assert_non_null(strstr(rig->warning, "[x??]"));
    broker_session_gone(rig->broker, &b.session.counted);
    clock_manual_advance(&rig->clock, 3600000);
    assert_int_equal(broker_producer_seen(broker, &a.client, BYTES("p"), NULL), OK);
    assert_int_equal(rig->warned, 1);
    broker_session_gone(rig->broker, &a.session.counted);
}

static void ids_assert(struct rig *rig, const char *group, const char *const *ids, size_t n)
{
    struct arena arena;
    arena_init(&arena, 1 << 16);
    struct bytes *got;
    size_t n_got;
    assert_int_equal(broker_consumer_ids(rig->broker, bytes_str(group), &arena, &got, &n_got), OK);
    assert_int_equal(n_got, n);
    for (size_t i = 0; i < n; i++)
        assert_bytes_equal(got[i], bytes_str(ids[i]));
    arena_clear(&arena);
}

static void a_group_s_ids_are_listed_once_each(void **state)
{
    struct rig *rig = *state;
    struct visit v[4];
    static const char *const ids[] = {"z@1", "a@1", "z@1", "m@1"};
    for (int i = 0; i < 4; i++) {
        visit_init(&v[i], ids[i]);
        assert_int_equal(join(rig, &v[i], "g"), OK);
    }
    ids_assert(rig, "g", (const char *const[]){"a@1", "m@1", "z@1"}, 3);
    broker_session_gone(rig->broker,
                        &v[0].session.counted); /* the other connection is still there */
    ids_assert(rig, "g", (const char *const[]){"a@1", "m@1", "z@1"}, 3);
    v[1].client.id = BYTES("b@2"); /* the same connection under another name */
    assert_int_equal(join(rig, &v[1], "g"), OK);
    ids_assert(rig, "g", (const char *const[]){"b@2", "m@1", "z@1"}, 3);

    struct arena small;
    arena_init(&small, 16);
    struct bytes *got;
    size_t n;
    assert_int_equal(broker_consumer_ids(rig->broker, BYTES("g"), &small, &got, &n), ERR_TOO_BIG);
    for (int i = 1; i < 4; i++)
        broker_session_gone(rig->broker, &v[i].session.counted);
    assert_int_equal(broker_consumer_ids(rig->broker, BYTES("g"), &small, &got, &n), ERR_NOT_FOUND);
    assert_int_equal(broker_consumer_ids(rig->broker, BYTES("never"), &small, &got, &n),
                     ERR_NOT_FOUND);
    arena_clear(&small);
}

static void producers_are_no_consumers(void **state)
{
    struct rig *rig = *state;
    struct visit v;
    visit_init(&v, "p1");
    assert_int_equal(broker_producer_seen(rig->broker, &v.client, BYTES("g"), NULL), OK);
    struct arena arena;
    arena_init(&arena, 4096);
    struct bytes *got;
    size_t n;
    assert_int_equal(broker_consumer_ids(rig->broker, BYTES("g"), &arena, &got, &n), ERR_NOT_FOUND);
    arena_clear(&arena);
    assert_int_equal(v.session.told, 0);
    assert_false(rig_group(rig, "g"));
    broker_session_gone(rig->broker, &v.session.counted);
}

static void limits_and_bad_names_are_refused_with_a_reason(void **state)
{
    struct rig *rig = *state;
    struct visit v;
    visit_init(&v, "a");
    struct fault why = {0};
    struct membership m = in_group("bad name");
    assert_int_equal(broker_consumer_seen(rig->broker, &v.client, &m, &why), ERR_INVALID);
    assert_int_equal(broker_producer_seen(rig->broker, &v.client, BYTES("bad name"), &why),
                     ERR_INVALID);
    assert_int_equal(broker_producer_seen(rig->broker, &v.client, BYTES(""), &why), ERR_INVALID);

    char big[SUB_MAX + 2];
    memset(big, 'x', sizeof big);
    struct subscription sub = {bytes_of(big, NAME_MAX_ANY + 1), BYTES("*"), BYTES("TAG"), 1};
    m = (struct membership){.group = BYTES("g"), .subs = &sub, .n_subs = 1};
    assert_int_equal(broker_consumer_seen(rig->broker, &v.client, &m, &why), ERR_INVALID);
    sub = (struct subscription){BYTES("T"), bytes_of(big, SUB_MAX + 1), BYTES("TAG"), 1};
    assert_int_equal(broker_consumer_seen(rig->broker, &v.client, &m, &why), ERR_TOO_BIG);
    m.n_subs = GROUP_SUBS + 1; /* refused before any is looked at */
    assert_int_equal(broker_consumer_seen(rig->broker, &v.client, &m, &why), ERR_TOO_BIG);
    v.client.id = bytes_of(big, NAME_MAX_ANY + 1);
    assert_int_equal(broker_producer_seen(rig->broker, &v.client, BYTES("p"), &why), ERR_INVALID);
    assert_int_equal(holders(&v), 1);
    assert_false(rig_group(rig, "g"));

    rig->options.max_clients = 2;
    rig->options.auto_groups = false;
    rig_again(rig);
    v.client.id = BYTES("a");
    assert_int_equal(broker_producer_seen(rig->broker, &v.client, BYTES("p1"), &why), OK);
    assert_int_equal(broker_producer_seen(rig->broker, &v.client, BYTES("p2"), &why), OK);
    assert_int_equal(broker_producer_seen(rig->broker, &v.client, BYTES("p3"), &why), ERR_BUSY);
    assert_non_null(strstr(why.text, "maxClients"));
    assert_int_equal(broker_producer_seen(rig->broker, &v.client, BYTES("p2"), &why), OK);
    assert_int_equal(rig->broker->producers.n, 2);
    m = in_group("g");
    assert_int_equal(broker_consumer_seen(rig->broker, &v.client, &m, &why), ERR_UNKNOWN_GROUP);
    broker_session_gone(rig->broker, &v.session.counted);
    assert_int_equal(holders(&v), 1);
}

/* As many topics as allowed, all replaced by as many others in one heartbeat. */
static void a_group_may_change_all_its_topics_at_once(void **state)
{
    struct rig *rig = *state;
    struct visit v;
    visit_init(&v, "a");
    static char names[2 * GROUP_SUBS][8];
    static struct subscription subs[2 * GROUP_SUBS];
    for (int i = 0; i < 2 * GROUP_SUBS; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        subs[i] = (struct subscription){bytes_str(names[i]), BYTES("*"), BYTES("TAG"), 1};
    }
    struct membership m = {.group = BYTES("g"), .n_subs = GROUP_SUBS};
    for (int round = 0; round < 4; round++) {
        m.subs = subs + (round % 2) * GROUP_SUBS;
        assert_int_equal(broker_consumer_seen(rig->broker, &v.client, &m, NULL), OK);
        room_enter(&rig->broker->room);
        const struct crowd *crowd = consumers_find(rig->broker, BYTES("g"));
        assert_int_equal(crowd->subs.n, GROUP_SUBS);
        assert_non_null(subs_find(crowd, m.subs[GROUP_SUBS - 1].topic));
        room_leave(&rig->broker->room);
    }
    broker_session_gone(rig->broker, &v.session.counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(a_consumer_makes_its_group_and_its_retry_topic),
        rig_test(all_members_are_told_when_one_comes_or_goes),
        rig_test(who_joins_to_read_nothing_changes_nothing_but_the_shares),
        rig_test(topics_that_come_or_go_are_news_and_versions_are_not),
        rig_test(a_higher_version_replaces_the_expression_and_a_lower_does_not),
        rig_row("RM-6", members_that_subscribe_differently_are_told_of),
        rig_test(the_retry_topic_is_everybody_s_and_nobody_s_concern),
        rig_test(broadcasting_groups_and_those_that_do_not_want_it_are_left_in_peace),
        rig_test(a_session_is_kept_as_long_as_it_is_known),
        rig_test(who_is_still_known_at_the_end_is_let_go),
        rig_test(silence_of_two_minutes_ends_a_membership),
        rig_test(the_longest_silent_goes_first),
        rig_test(two_live_clients_with_one_id_are_told_of_with_both_addresses),
        rig_test(a_client_that_reconnects_is_not_taken_for_two),
        rig_test(namesakes_are_those_of_now),
        rig_test(a_group_s_ids_are_listed_once_each),
        rig_test(producers_are_no_consumers),
        rig_test(limits_and_bad_names_are_refused_with_a_reason),
        rig_test(a_group_may_change_all_its_topics_at_once),
    };
    return cmocka_run_group_tests_name("broker/clients", tests, NULL, NULL);
}
