/* props_test.c - properties: what readers of all versions agree on. */
#include "base/test.h"
#include "msg/msg.h"

#define FIVE_X   BYTES("KEYS\1k1\2TAGS\1TagA\2")
#define FOUR_DOT BYTES("KEYS\1k1\2TAGS\1TagA") /* 4.9 leaves the last separator out */

static size_t count(struct bytes text)
{
    struct props_walk walk = props_walk(text);
    struct prop pair;
    size_t n = 0;
    while (props_next(&walk, &pair))
        n++;
    return n;
}

static void yields_pairs_in_order(void **state)
{
    (void)state;
    struct bytes forms[] = {FIVE_X, FOUR_DOT};
    for (size_t i = 0; i < 2; i++) {
        struct props_walk walk = props_walk(forms[i]);
        struct prop pair;
        assert_true(props_next(&walk, &pair));
        assert_bytes_equal(pair.name, PROP_KEYS);
        assert_bytes_equal(pair.value, BYTES("k1"));
        assert_true(props_next(&walk, &pair));
        assert_bytes_equal(pair.name, PROP_TAGS);
        assert_bytes_equal(pair.value, BYTES("TagA"));
        assert_false(props_next(&walk, &pair));
        assert_false(props_next(&walk, &pair));
    }
}

static void skips_what_is_no_pair(void **state)
{
    (void)state;
    assert_int_equal(count((struct bytes){0}), 0);
    assert_int_equal(count(BYTES("")), 0);
    assert_int_equal(count(BYTES("\2\2\2")), 0);
    assert_int_equal(count(BYTES("no separator\2")), 0);
    assert_int_equal(count(BYTES("\1no name\2")), 0);
    assert_int_equal(count(BYTES("no value\1\2")), 0);
    assert_int_equal(count(BYTES("\2x\2\1\2a\1b\2rest")), 1);
}

static void a_value_may_hold_the_first_separator(void **state)
{
    (void)state;
    struct bytes value;
    assert_true(props_get(BYTES("a\1b\1c\2"), BYTES("a"), &value));
    assert_bytes_equal(value, BYTES("b\1c"));
}

/* Texts of every length up to some windows of a walk, each in its own exact allocation, beside a
 * walk that looks at one byte after the other. */
static void long_texts_are_walked_as_short_ones(void **state)
{
    (void)state;
    struct dice d = test_dice();
    for (size_t len = 0; len < 300; len++) {
        cleanup(free_at) uint8_t *text = malloc(len + !len);
        unsigned rare = 1 + (unsigned)dice_below(&d, 60);
        for (size_t i = 0; i < len; i++)
            text[i] = dice_below(&d, rare) ? 'x' : (uint8_t)(1 + dice_below(&d, 2));
        struct props_walk walk = props_walk(bytes_of(text, len));
        struct prop pair;
        for (size_t at = 0; at < len;) {
            size_t split = at, end = at;
            while (end < len && text[end] != 2)
                end++;
            while (split < end && text[split] != 1)
                split++;
            if (split > at && split < end && end > split + 1) {
                assert_true(props_next(&walk, &pair));
                assert_bytes_equal(pair.name, bytes_of(text + at, split - at));
                assert_bytes_equal(pair.value, bytes_of(text + split + 1, end - split - 1));
            }
            at = end + 1;
        }
        assert_false(props_next(&walk, &pair));
    }
}

static void the_last_of_equal_names_wins(void **state)
{
    (void)state;
    struct bytes value = BYTES("untouched");
    assert_true(props_get(BYTES("a\1first\2b\1x\2a\1last\2"), BYTES("a"), &value));
    assert_bytes_equal(value, BYTES("last"));
    value = BYTES("untouched");
    assert_false(props_get(BYTES("ab\1x\2"), BYTES("a"), &value));
    assert_false(props_get(BYTES(""), BYTES("a"), &value));
    assert_bytes_equal(value, BYTES("untouched"));
}

static void adding_puts_a_missing_separator_first(void **state)
{
    (void)state;
    struct bytes forms[] = {FIVE_X, FOUR_DOT};
    for (size_t i = 0; i < 2; i++) {
        uint8_t room[64];
        struct wr w = wr_over(room, sizeof room);
        wr_bytes_of(&w, forms[i]);
        props_add(&w, PROP_WAIT, BYTES("true"));
        assert_false(w.full);
        assert_bytes_equal(wr_bytes(&w), BYTES("KEYS\1k1\2TAGS\1TagA\2WAIT\1true\2"));
    }
    uint8_t room[8];
    struct wr w = wr_over(room, sizeof room);
    props_add(&w, BYTES("a"), BYTES("b"));
    assert_bytes_equal(wr_bytes(&w), BYTES("a\1b\2"));
}

static void adding_to_a_full_buffer_is_seen(void **state)
{
    (void)state;
    for (size_t size = 0; size < 4; size++) {
        uint8_t *room = test_copy("....", size);
        struct wr w = wr_over(room, size);
        props_add(&w, BYTES("a"), BYTES("b"));
        assert_true(w.full);
        free(room);
    }
}

static void assert_all_but(struct bytes text, struct bytes name, struct bytes wanted)
{
    uint8_t room[256];
    struct wr w = wr_over(room, sizeof room);
    props_add_all_but(&w, text, name);
    assert_false(w.full);
    assert_bytes_equal(wr_bytes(&w), wanted);
}

static void all_but_one_name_are_kept(void **state)
{
    (void)state;
    assert_all_but(FIVE_X, PROP_KEYS, BYTES("TAGS\1TagA\2"));
    assert_all_but(FOUR_DOT, PROP_KEYS, BYTES("TAGS\1TagA\2"));
    assert_all_but(FOUR_DOT, BYTES("KEY"), FIVE_X);
    assert_all_but(BYTES("a\1x\2b\1y\2a\1z"), BYTES("a"), BYTES("b\1y\2"));
    assert_all_but(BYTES("a\1\2b\1y\2"), BYTES("a"), BYTES("b\1y\2")); /* also without a value */
    assert_all_but(BYTES("odd\2b\1y\2"), BYTES("a"), BYTES("odd\2b\1y\2"));
    assert_all_but(BYTES(""), BYTES("a"), BYTES(""));
}

/* Behind something that lacks its separator. */
static void all_but_joins_what_is_there(void **state)
{
    (void)state;
    uint8_t room[64];
    struct wr w = wr_over(room, sizeof room);
    wr_bytes_of(&w, BYTES("x\1y"));
    props_add_all_but(&w, BYTES("a\1b"), BYTES("c"));
    assert_bytes_equal(wr_bytes(&w), BYTES("x\1y\2a\1b\2"));
}

/* What was added is found again, whatever stood before. */
static void round_trip_of_random_pairs(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    for (int turn = 0; turn < 2000; turn++) {
        uint8_t room[256], name[8], value[8];
        size_t name_len = 1 + dice_below(&dice, sizeof name);
        size_t value_len = 1 + dice_below(&dice, sizeof value);
        struct wr w = wr_over(room, sizeof room);
        for (size_t n = dice_below(&dice, 40); n > 0; n--)
            wr_u8(&w, (uint8_t)dice_below(&dice, 4));
        for (size_t i = 0; i < sizeof name; i++)
            name[i] = (uint8_t)(3 + dice_below(&dice, 253));
        for (size_t i = 0; i < sizeof value; i++)
            value[i] = (uint8_t)(3 + dice_below(&dice, 253));

        struct bytes found;
        props_add(&w, bytes_of(name, name_len), bytes_of(value, value_len));
        cleanup(free_at) uint8_t *exact = test_copy(room, wr_len(&w));
        assert_true(props_get(bytes_of(exact, wr_len(&w)), bytes_of(name, name_len), &found));
        assert_bytes_equal(found, bytes_of(value, value_len));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yields_pairs_in_order),
        cmocka_unit_test(skips_what_is_no_pair),
        cmocka_unit_test(a_value_may_hold_the_first_separator),
        cmocka_unit_test(long_texts_are_walked_as_short_ones),
        cmocka_unit_test(the_last_of_equal_names_wins),
        cmocka_unit_test(adding_puts_a_missing_separator_first),
        cmocka_unit_test(adding_to_a_full_buffer_is_seen),
        cmocka_unit_test(all_but_one_name_are_kept),
        cmocka_unit_test(all_but_joins_what_is_there),
        cmocka_unit_test(round_trip_of_random_pairs),
    };
    return cmocka_run_group_tests_name("msg/props", tests, NULL, NULL);
}
