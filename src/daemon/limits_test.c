/* How descriptors are shared out between files and connections. */
#include "base/test.h"
#include "daemon/limits.h"

#include <sys/resource.h>

static void gives_what_is_wanted_where_there_is_plenty(void **state)
{
    (void)state;
    assert_int_equal(connections_allowed(10000 + DESCRIPTORS_KEPT, 10000), 10000);
    assert_int_equal(connections_allowed(UINT64_MAX, 1000000), 1000000);
    assert_int_equal(connections_allowed(1024, 100), 100);
}

/* Whatever the limit is, most of the first thousand stays with the files. */
static void keeps_descriptors_for_files(void **state)
{
    (void)state;
    unsigned before = 0;
    for (uint64_t descriptors = 0; descriptors < 20000; descriptors++) {
        unsigned allowed = connections_allowed(descriptors, 10000);
        assert_true(allowed >= 1 && allowed <= 10000);
        assert_true(allowed >= before);
        if (descriptors >= DESCRIPTORS_LEAST)
            assert_true(allowed + 768 <= descriptors);
        before = allowed;
    }
    assert_int_equal(connections_allowed(1024, 10000), 256);
    assert_int_equal(connections_allowed(65536, 1000000), 65536 - DESCRIPTORS_KEPT);
}

/* Connections are served first: the store keeps open what they leave, and never fewer than it
 * needs. */
static void gives_files_what_connections_leave(void **state)
{
    (void)state;
    for (uint64_t descriptors = DESCRIPTORS_LEAST; descriptors < 60000; descriptors += 7) {
        unsigned connections = connections_allowed(descriptors, 10000);
        unsigned files = files_allowed(descriptors, connections);
        assert_true(files >= FILES_LEAST && files <= FILES_MOST);
        assert_true(files == FILES_LEAST || files + connections <= descriptors - 512);
    }
    assert_int_equal(files_allowed(1024, 256), FILES_LEAST);
    assert_int_equal(files_allowed(20000, 10000), 20000 - 10000 - 512);
    assert_int_equal(files_allowed(524288, 10000), FILES_MOST);
}

/* With a low soft limit and whatever hard limit this machine has. */
static void raises_the_soft_limit_as_far_as_it_may(void **state)
{
    (void)state;
    struct rlimit was, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    rlim_t hard = was.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, hard}), 0);

    uint64_t need = 100 + DESCRIPTORS_KEPT - FILES_LEAST + FILES_MOST;
    uint64_t wanted = hard < need ? hard : need;
    assert_int_equal(descriptors_raise(100), wanted);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, wanted);
    assert_int_equal(now.rlim_max, hard);
    assert_int_equal(descriptors_raise(1), wanted); /* never lowered */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_what_is_wanted_where_there_is_plenty),
        cmocka_unit_test(keeps_descriptors_for_files),
        cmocka_unit_test(gives_files_what_connections_leave),
        cmocka_unit_test(raises_the_soft_limit_as_far_as_it_may),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
