/* Lines as the operator sees them, read back from a pipe; time is a clock moved by hand. */
#include "base/log.h"
#include "base/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static struct clock_manual hands;
static struct log journal;
static int from;

static int open_log(void **state)
{
    (void)state;
    int ends[2];
    if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) < 0)
        return -1;
    clock_manual_init(&hands, 1700000000123);
    from = ends[0];
    journal = (struct log){.fd = ends[1], .least = LOG_INFO, .clock = &hands.clock};
    return 0;
}

static int close_log(void **state)
{
    (void)state;
    (void)close(from);
    (void)close(journal.fd);
    return 0;
}

/* What has been written since the last look. */
static const char *lines(void)
{
    static char text[8192];
    ssize_t n = read(from, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void one_event_is_one_line(void **state)
{
    (void)state;
    log_event(&journal, LOG_INFO, "started port=%d", 10911);
    assert_string_equal(lines(), "2023-11-14T22:13:20.123Z info  started port=10911\n");
    log_event(&journal, LOG_ERROR, "failed");
    assert_string_equal(lines(), "2023-11-14T22:13:20.123Z error failed\n");
    log_event(&journal, LOG_DEBUG, "too small");
    assert_string_equal(lines(), "");
    log_event(NULL, LOG_ERROR, "nobody listens");
}

static void a_long_line_is_cut_but_ends(void **state)
{
    (void)state;
    char text[3000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    log_event(&journal, LOG_WARN, "%s", text);
    const char *line = lines();
    assert_in_range(strlen(line), 900, 1024);
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
}

static void a_stranger_gets_one_line_a_second(void **state)
{
    (void)state;
    struct log_limit limit = {0};
    for (int i = 0; i < 5; i++)
        log_limited(&journal, &limit, LOG_WARN, "bad frame conn=%d", i);
    assert_string_equal(lines(), "2023-11-14T22:13:20.123Z warn  bad frame conn=0\n");
    clock_manual_advance(&hands, 999);
    log_limited(&journal, &limit, LOG_WARN, "bad frame conn=5");
    assert_string_equal(lines(), "");
    clock_manual_advance(&hands, 1);
    log_limited(&journal, &limit, LOG_WARN, "bad frame conn=6");
    assert_string_equal(lines(), "2023-11-14T22:13:21.123Z warn  bad frame conn=6 left_out=5\n");
    clock_manual_advance(&hands, 1000);
    log_limited(&journal, &limit, LOG_WARN, "bad frame conn=7");
    assert_string_equal(lines(), "2023-11-14T22:13:22.123Z warn  bad frame conn=7\n");
}

static void quotes_what_could_fool_a_reader(void **state)
{
    (void)state;
    assert_string_equal(LOG_QUOTE(BYTES("topic-1")), "topic-1");
    assert_string_equal(LOG_QUOTE(BYTES("")), "\"\"");
    assert_string_equal(LOG_QUOTE((struct bytes){0}), "\"\"");
    assert_string_equal(LOG_QUOTE(BYTES("a b")), "\"a b\"");
    assert_string_equal(LOG_QUOTE(BYTES("a\nlevel=error")), "\"a\\x0alevel=error\"");
    assert_string_equal(LOG_QUOTE(BYTES("\"\x1b[2J")), "\"\\x22\\x1b[2J\"");
    assert_string_equal(LOG_QUOTE(BYTES("\xc3\xa9")), "\xc3\xa9");
}

/* Every length around the limit, with the escapes beginning at every place, in an exact allocation.
 */
static void a_long_quote_is_cut_to_fit(void **state)
{
    (void)state;
    char text[400];
    for (size_t plain = 0; plain < LOG_QUOTE_MAX + 2; plain++) {
        memset(text, 'a', plain);
        memset(text + plain, '\n', sizeof text - plain);
        for (size_t more = 0; more < 50; more++) {
            cleanup(free_at) char *out = malloc(LOG_QUOTE_MAX);
            assert_non_null(out);
            log_quote(out, bytes_of(text, plain + more));
            size_t len = strlen(out);
            assert_true(len < LOG_QUOTE_MAX);
            if (plain + 4 * more > LOG_QUOTE_MAX)
                assert_non_null(strstr(out + len - 5, "..."));
        }
    }
}

static void knows_its_levels(void **state)
{
    (void)state;
    enum log_level level = LOG_DEBUG;
    assert_int_equal(log_level_parse(BYTES("warn"), &level), OK);
    assert_int_equal(level, LOG_WARN);
    assert_int_equal(log_level_parse(BYTES("loud"), &level), ERR_INVALID);
    assert_int_equal(log_level_parse(BYTES(""), &level), ERR_INVALID);
    assert_int_equal(level, LOG_WARN);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_log, close_log)
    const struct CMUnitTest tests[] = {
        CASE(one_event_is_one_line),
        CASE(a_long_line_is_cut_but_ends),
        CASE(a_stranger_gets_one_line_a_second),
        CASE(quotes_what_could_fool_a_reader),
        CASE(a_long_quote_is_cut_to_fit),
        CASE(knows_its_levels),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
