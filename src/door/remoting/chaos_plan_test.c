#include "base/test.h"
#include "door/remoting/chaos_int.h"

#include <stdio.h>

static struct chaos_fields good(void)
{
    return (struct chaos_fields){.topic = BYTES("T"), .seed = 7, .life_ms = 1000};
}

static struct bytes props_of(char *room, size_t size, const char *keys, const char *unique)
{
    struct wr w = wr_over(room, size);
    if (keys)
        props_add(&w, PROP_KEYS, bytes_str(keys));
    if (unique)
        props_add(&w, PROP_UNIQ_KEY, bytes_str(unique));
    return wr_bytes(&w);
}

/* How many of 100,000 things are hit. */
static size_t hits(const struct chaos_plan *plan, enum chaos_kind kind)
{
    size_t n = 0;
    for (uint64_t i = 0; i < 100000; i++)
        n += chaos_hits(plan, kind, i);
    return n;
}

static void a_share_is_what_it_says_whatever_the_seed(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct chaos_plan plan = {
            .seed = seed, .twice = CHAOS_WHOLE / 10, .later = CHAOS_WHOLE, .drop_acks = 0};
        size_t twice = hits(&plan, CHAOS_TWICE);
        assert_in_range(twice, 9500, 10500);
        assert_int_equal(hits(&plan, CHAOS_LATER), 100000);
        assert_int_equal(hits(&plan, CHAOS_ACKS), 0);
    }
}

/* Kinds do not follow each other, nor do seeds: of two tenths a hundredth is hit by both. */
static void seeds_and_kinds_have_nothing_to_do_with_each_other(void **state)
{
    (void)state;
    struct chaos_plan a = {.seed = 1, .twice = CHAOS_WHOLE / 10, .later = CHAOS_WHOLE / 10},
                      b = {.seed = 2, .twice = CHAOS_WHOLE / 10, .later = CHAOS_WHOLE / 10};
    size_t kinds = 0, seeds = 0, same = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        bool hit = chaos_hits(&a, CHAOS_TWICE, i);
        kinds += hit && chaos_hits(&a, CHAOS_LATER, i);
        seeds += hit && chaos_hits(&b, CHAOS_TWICE, i);
        same += hit == chaos_hits(&a, CHAOS_TWICE, i);
    }
    assert_in_range(kinds, 800, 1200);
    assert_in_range(seeds, 800, 1200);
    assert_int_equal(same, 100000);
}

/* A run that is made again has other unique keys, and the same KEYS and bodies. */
static void a_message_is_known_by_keys_and_body_and_else_by_its_unique_key(void **state)
{
    (void)state;
    char a[256], b[256];
    struct bytes body = BYTES("body");
    assert_true(chaos_message(props_of(a, sizeof a, "k1", "u1"), body) ==
                chaos_message(props_of(b, sizeof b, "k1", "u2"), body));
    assert_false(chaos_message(props_of(a, sizeof a, "k1", "u1"), body) ==
                 chaos_message(props_of(b, sizeof b, "k2", "u1"), body));
    assert_false(chaos_message(props_of(a, sizeof a, "k1", "u1"), body) ==
                 chaos_message(props_of(b, sizeof b, "k1", "u1"), BYTES("other")));
    assert_false(chaos_message(props_of(a, sizeof a, NULL, "u1"), body) ==
                 chaos_message(props_of(b, sizeof b, NULL, "u2"), body));
}

static void the_first_of_what_goes_by_time_comes_after_half_of_its_interval(void **state)
{
    (void)state;
    assert_int_equal(chaos_due(6, 4999), 0);
    assert_int_equal(chaos_due(6, 5000), 1);
    assert_int_equal(chaos_due(6, 14999), 1);
    assert_int_equal(chaos_due(6, 15000), 2);
    assert_int_equal(chaos_due(0, 3600000), 0);
}

static void what_a_plan_is_about(void **state)
{
    (void)state;
    struct chaos_plan topic = {.topic = "T"}, group = {.group = "g"}, both = {"T", "g"};
    assert_true(chaos_sends_to(&topic, BYTES("T")));
    assert_false(chaos_sends_to(&topic, BYTES("U")));
    assert_false(chaos_sends_to(&group, BYTES("T")));
    assert_true(chaos_reads(&topic, BYTES("any"), BYTES("T")));
    assert_true(chaos_reads(&group, BYTES("g"), BYTES("any")));
    assert_false(chaos_reads(&group, BYTES("h"), BYTES("any")));
    assert_true(chaos_reads(&both, BYTES("g"), BYTES("T")));
    assert_true(chaos_reads(&both, BYTES("g"), BYTES("%RETRY%g")));
    assert_false(chaos_reads(&both, BYTES("g"), BYTES("U")));
    assert_false(chaos_reads(&both, BYTES("h"), BYTES("T")));
}

static void plans_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    struct chaos_plan plan;
    struct fault why;
    struct chaos_fields f = good();
    assert_int_equal(chaos_plan_read(&f, &plan, &why), OK);
    assert_string_equal(plan.topic, "T");
    assert_string_equal(plan.group, "");

    char longer[CHAOS_NAME_MAX + 1];
    memset(longer, 'x', sizeof longer);
    f.topic = bytes_of(longer, sizeof longer);
    assert_int_equal(chaos_plan_read(&f, &plan, &why), ERR_INVALID);
    f.topic = (struct bytes){0};
    assert_int_equal(chaos_plan_read(&f, &plan, &why), ERR_INVALID);
    f.group = bytes_of("a\0b", 3);
    assert_int_equal(chaos_plan_read(&f, &plan, &why), ERR_INVALID);

    static const size_t numbers[] = {
        offsetof(struct chaos_fields, twice),     offsetof(struct chaos_fields, twice_later),
        offsetof(struct chaos_fields, drop_acks), offsetof(struct chaos_fields, drop_responses),
        offsetof(struct chaos_fields, later_ms),  offsetof(struct chaos_fields, delay_max_ms),
        offsetof(struct chaos_fields, kills),     offsetof(struct chaos_fields, rebalances),
        offsetof(struct chaos_fields, life_ms),
    };
    static const int64_t wrong[] = {-1, INT64_MIN, INT64_MAX, (int64_t)1 << 32, 3600001};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            f = good();
            *(int64_t *)((char *)&f + numbers[i]) = wrong[k];
            assert_int_equal(chaos_plan_read(&f, &plan, &why), ERR_INVALID);
        }
    f = good();
    f.life_ms = 0;
    assert_int_equal(chaos_plan_read(&f, &plan, &why), ERR_INVALID);
    f = good();
    f.delay_min_ms = 5;
    f.delay_max_ms = 4;
    assert_int_equal(chaos_plan_read(&f, &plan, &why), ERR_INVALID);
}

/* When it is full nothing is new any more: rather too few faults than one twice. */
static void what_was_seen_is_remembered_up_to_a_limit(void **state)
{
    (void)state;
    struct chaos_seen seen = {0};
    size_t taken = 0;
    for (uint64_t i = 0; i < CHAOS_SEEN_MAX; i++)
        taken += chaos_seen_add(&seen, i * 977);
    assert_in_range(taken, CHAOS_SEEN_MAX / 2, CHAOS_SEEN_MAX - 1);
    for (uint64_t i = 0; i < CHAOS_SEEN_MAX; i++)
        assert_false(chaos_seen_add(&seen, i * 977));
    chaos_seen_clear(&seen);
    assert_true(chaos_seen_add(&seen, 0));
    assert_false(chaos_seen_add(&seen, 0));
    chaos_seen_clear(&seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_is_what_it_says_whatever_the_seed),
        cmocka_unit_test(seeds_and_kinds_have_nothing_to_do_with_each_other),
        cmocka_unit_test(a_message_is_known_by_keys_and_body_and_else_by_its_unique_key),
        cmocka_unit_test(the_first_of_what_goes_by_time_comes_after_half_of_its_interval),
        cmocka_unit_test(what_a_plan_is_about),
        cmocka_unit_test(plans_that_make_no_sense_are_refused),
        cmocka_unit_test(what_was_seen_is_remembered_up_to_a_limit),
    };
    return cmocka_run_group_tests_name("chaos_plan", tests, NULL, NULL);
}
