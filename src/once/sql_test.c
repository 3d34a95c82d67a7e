/* The SQL stores over SQLite: what is true of all of them, and what needs no store. */
#include "once/sql_cases_test.h"
#include "once/sql_folder_test.h"
#include "once/sql_int.h"
#include "once/sql_places_test.h"
#include "once/sql_plain_test.h"

/* ---- names ---- */

static void names_are_quoted_whatever_they_are(void **state)
{
    char out[64];
    assert_int_equal(sql_quote('"', "orders", out, sizeof out), OK);
    assert_string_equal(out, "\"orders\"");
    assert_int_equal(sql_quote('`', "shop.orders", out, sizeof out), OK);
    assert_string_equal(out, "`shop`.`orders`");
    assert_int_equal(sql_quote('"', "a\"; DROP TABLE b; --", out, sizeof out), OK);
    assert_string_equal(out, "\"a\"\"; DROP TABLE b; --\"");
    static const char *const bad[] = {"", ".", "a.", ".a", "a..b"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(sql_quote('"', bad[i], out, sizeof out), ERR_INVALID);
    char longer[80];
    memset(longer, 'x', sizeof longer);
    longer[64] = '\0';
    char room[200];
    assert_int_equal(sql_quote('"', longer, room, sizeof room), ERR_INVALID);
    longer[63] = '\0';
    assert_int_equal(sql_quote('"', longer, room, sizeof room), OK);
}

/* Every size of buffer, each an exact allocation: too small is refused, and nothing is written
 * beyond. */
static void quoting_stays_within_its_buffer(void **state)
{
    const char *name = "a\"\"b.c\"";
    for (size_t size = 1; size < 40; size++) {
        cleanup(free_at) char *out = malloc(size);
        assert_non_null(out);
        if (sql_quote('"', name, out, size) == OK)
            assert_string_equal(out, "\"a\"\"\"\"b\".\"c\"\"\"");
        else
            assert_true(size < 20);
    }
}

/* ---- the window ---- */

/* Beside a plain array of flags: offsets anywhere, floors, saved and loaded at any time. */
static void a_window_is_an_array_of_flags(void **state)
{
    enum { SPAN = 20000 };
    static bool done[SPAN];
    struct dice dice = test_dice();
    struct window w = {.next = 0};
    int64_t first = 0;
    for (int i = 0; i < 30000 && first < SPAN; i++) {
        int64_t offset = first + (int64_t)dice_below(&dice, i % 7 == 0 ? 5000 : 200);
        if (offset >= SPAN)
            offset = SPAN - 1;
        if (dice_below(&dice, 1000) == 0) {
            window_floor(&w, offset);
            for (int64_t o = 0; o < offset; o++)
                done[o] = true;
        } else {
            enum window_state got = window_look(&w, offset);
            if (offset - first >= WINDOW_BITS)
                assert_int_equal(got, WINDOW_FAR);
            else
                assert_int_equal(got, done[offset] ? WINDOW_DONE : WINDOW_FREE);
            if (got == WINDOW_FREE) {
                window_mark(&w, offset);
                done[offset] = true;
            }
        }
        while (first < SPAN && done[first])
            first++;
        assert_int_equal(w.next, first);
        if (dice_below(&dice, 10) == 0) {
            struct window copy;
            assert_int_equal(window_load(&copy, w.next, bytes_of(w.bits, window_used(&w)), NULL),
                             OK);
            assert_memory_equal(&copy, &w, sizeof w);
        }
    }
}

static void a_window_of_a_stranger_is_refused(void **state)
{
    static uint8_t bits[WINDOW_SIZE + 1];
    struct window w;
    assert_int_equal(window_load(&w, -1, (struct bytes){0}, NULL), ERR_DAMAGED);
    assert_int_equal(window_load(&w, INT64_MAX, (struct bytes){0}, NULL), ERR_DAMAGED);
    assert_int_equal(window_load(&w, 0, bytes_of(bits, sizeof bits), NULL), ERR_DAMAGED);
    memset(bits, 0xff, sizeof bits);
    assert_int_equal(window_load(&w, 7, bytes_of(bits, WINDOW_SIZE), NULL), OK);
    assert_int_equal(w.next, 7 + WINDOW_BITS); /* all done: so it goes on behind them */
    assert_int_equal(window_used(&w), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SQL_CASES,
        SQL_PLACE_CASES,
        SQL_PLAIN_CASES,
        cmocka_unit_test(names_are_quoted_whatever_they_are),
        cmocka_unit_test(quoting_stays_within_its_buffer),
        cmocka_unit_test(a_window_is_an_array_of_flags),
        cmocka_unit_test(a_window_of_a_stranger_is_refused),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
