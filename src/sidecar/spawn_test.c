/* Words, environments and programs. */
#include "sidecar/sidecar_int.h"

#include "base/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void words_are_divided_as_in_a_shell(void **state)
{
    (void)state;
    char **words;
    assert_int_equal(words_split("  a 'b  $c'd \"e\\\"f\" g\\ h '' ", &words, NULL), OK);
    static const char *const wanted[] = {"a", "b  $cd", "e\"f", "g h", ""};
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(words[i], wanted[i]);
    assert_null(words[5]);
    free(words);
    struct fault why = {0};
    assert_int_equal(words_split("a 'b", &words, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "position 3"));
    assert_int_equal(words_split(" ", &words, &why), ERR_INVALID);
    assert_int_equal(words_split("''", &words, &why), OK);
    char *path = NULL;
    assert_int_equal(words_program(words, &path, &why), ERR_NOT_FOUND);
    free(words);
}

/* Every number of words, and every text of three of these characters: no byte too far. */
static void no_text_is_too_odd(void **state)
{
    (void)state;
    static const char odd[] = " a'\"\\\t";
    for (size_t i = 0; i < 6 * 6 * 6 * 6; i++) {
        char text[] = {odd[i % 6], odd[i / 6 % 6], odd[i / 36 % 6], odd[i / 216], 0};
        cleanup(free_at) char *exact = (char *)test_copy(text, sizeof text);
        char **words;
        if (words_split(exact, &words, NULL) == OK)
            free(words);
    }
}

static const char *row_of(const struct env *e, const char *name)
{
    size_t n = strlen(name);
    const char *found = NULL;
    for (char **row = e->rows; *row; row++)
        if (strncmp(*row, name, n) == 0 && (*row)[n] == '=') {
            assert_null(found); /* each name stands there once */
            found = *row + n + 1;
        }
    return found;
}

static void strangers_set_their_own_variables_only(void **state)
{
    (void)state;
    static char path[] = "PATH=/bin", key[] = "ONCEMQ_KEY=old", prop[] = "ONCEMQ_PROP_X=old",
                names[] = "ONCEMQ_NAMES=n";
    char *inherited[] = {path, key, prop, names, NULL};
    const struct omq_property properties[] = {{"PATH", "/evil"}, {"a-b", "1"},  {"a.b", "2"},
                                              {"=x", "3"},       {"key", "=="}, {"\xc3\xa4", "4"}};
    struct omq_delivery d = {.queue = {"T", "b", 1},
                             .id = "ID",
                             .tag = "",
                             .keys = "k",
                             .properties = properties,
                             .n_properties = 6,
                             .attempt = 3};
    struct job job = {.d = &d};
    struct env e;
    assert_int_equal(env_open(&e, inherited), OK);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(env_fill(&e, &job), OK);
        assert_string_equal(row_of(&e, "PATH"), "/bin");
        assert_string_equal(row_of(&e, "ONCEMQ_NAMES"), "n");
        assert_string_equal(row_of(&e, "ONCEMQ_KEY"), "");
        assert_string_equal(row_of(&e, "ONCEMQ_ATTEMPT"), "3");
        assert_string_equal(row_of(&e, "ONCEMQ_PROP_PATH"), "/evil");
        assert_string_equal(row_of(&e, "ONCEMQ_PROP_A_B"), "1");
        assert_string_equal(row_of(&e, "ONCEMQ_PROP__X"), "3");
        assert_string_equal(row_of(&e, "ONCEMQ_PROP_KEY"), "==");
        assert_string_equal(row_of(&e, "ONCEMQ_PROP___"), "4");
        assert_null(row_of(&e, "ONCEMQ_PROP_X"));
    }
    env_clear(&e);
}

static int status_of(const char *command, int wait_ms)
{
    struct program p;
    struct child c;
    struct fault why = {0};
    static char path[] = "PATH=/usr/bin:/bin";
    char *env[] = {path, NULL};
    int status = -1;
    child_init(&c);
    assert_int_equal(program_open(&p, command, &why), OK);
    if (child_start(&c, &p, env, -1, -1, &why))
        fail_msg("%s", why.text);
    if (child_wait(&c, wait_ms, &status))
        child_end(&c, &status);
    child_clear(&c);
    program_clear(&p);
    return status;
}

static void a_program_ends_or_is_ended(void **state)
{
    (void)state;
    assert_int_equal(WEXITSTATUS(status_of("sh -c 'exit 7'", 60000)), 7);
    int late = status_of("sleep 1000", 10);
    assert_true(WIFSIGNALED(late) && WTERMSIG(late) == SIGTERM);
    late = status_of("sh -c 'trap \"\" TERM; while :; do sleep 0.1; done'", 200);
    assert_true(WIFSIGNALED(late));
    char text[64];
    status_text(late, text, sizeof text);
    assert_non_null(strstr(text, "signal"));
}

/* What a program inherits of our signals is nothing. */
static void signals_are_as_they_were(void **state)
{
    (void)state;
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int status = status_of("sh -c 'kill -PIPE $$; exit 3'", 60000);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)signal(SIGPIPE, before);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
}

static void what_is_no_program_is_said(void **state)
{
    (void)state;
    struct program p;
    struct fault why = {0};
    assert_int_equal(program_open(&p, "/etc", &why), ERR_NOT_FOUND);
    program_clear(&p);
    assert_int_equal(program_open(&p, "no-such-program-here", &why), ERR_NOT_FOUND);
    assert_non_null(strstr(why.text, "PATH"));
    program_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_divided_as_in_a_shell),
        cmocka_unit_test(no_text_is_too_odd),
        cmocka_unit_test(strangers_set_their_own_variables_only),
        cmocka_unit_test(a_program_ends_or_is_ended),
        cmocka_unit_test(signals_are_as_they_were),
        cmocka_unit_test(what_is_no_program_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
