/* Memory that runs out: allocation n fails, for n = 1, 2, 3 … until nothing fails.
 *
 * The allocator's functions are wrapped by the linker (see meson.build), so that also the maps and
 * arenas of base are refused.
 */
#include "namesrv/names_test.h"

static int allocation, fail_at; /* 0: never */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);

static bool fails(void)
{
    return fail_at && ++allocation == fail_at;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

/* From here on, allocation n fails. */
static void fail_allocation(int n)
{
    allocation = 0;
    fail_at = n;
}

static void opening_without_memory_is_refused(void **state)
{
    (void)state;
    enum err err = ERR_NO_MEMORY;
    for (int n = 1; err; n++) {
        assert_true(n < 50);
        struct names *other = NULL;
        fail_allocation(n);
        err = names_open(&(struct names_options){.clock = &test_clock.clock}, &other, NULL);
        fail_allocation(0);
        assert_true(err == OK || err == ERR_NO_MEMORY);
        names_close(other);
    }
}

/* What a refused registration has left behind is completed by the next one, although its version is
 * the same: the broker knows no better than to say it again. */
static void a_registration_is_completed_when_memory_is_back(void **state)
{
    (void)state;
    const struct names_broker a = broker_of("a", 0, "10.0.0.1:1"),
                              b = broker_of("b", 0, "1.1.1.1:1");
    const struct topic_settings usual[] = {topic_of("T1", 4), topic_of("T2", 8)};
    struct topic_settings topics[40];
    char text[40][8];
    for (int i = 0; i < 40; i++) {
        snprintf(text[i], sizeof text[i], "T%d", i + 1);
        topics[i] = topic_of(text[i], 3);
    }
    enum err err = ERR_NO_MEMORY;
    for (int n = 1; err; n++) {
        assert_true(n < 500);
        test_teardown(state);
        test_setup(state);
        assert_int_equal(try_register(&b, version_of(0, 1), usual, 2), OK);
        fail_allocation(n);
        err = try_register(&a, version_of(0, 1), topics, 40);
        fail_allocation(0);
        assert_true(err == OK || err == ERR_NO_MEMORY || err == ERR_TOO_BIG); /* full arena */
        assert_int_equal(try_register(&a, version_of(0, 1), topics, 40), OK);
        assert_route("T1", "a 0=10.0.0.1:1 3/3 rw; b 0=1.1.1.1:1 4/4 rw");
        assert_route("T40", "a 0=10.0.0.1:1 3/3 rw");
        assert_int_equal(names->topics.n, 40);
        assert_int_equal(names->n_places, 42);
        names_unregister(names, &a);
        assert_int_equal(names->topics.n, 2);
    }
}

static void a_setting_without_memory_is_refused(void **state)
{
    (void)state;
    enum err err = ERR_NO_MEMORY;
    for (int n = 1; err; n++) {
        assert_true(n < 50);
        test_teardown(state);
        test_setup(state);
        assert_int_equal(names_kv_put(names, BYTES("N"), BYTES("k"), BYTES("v"), NULL), OK);
        fail_allocation(n);
        err = names_kv_put(names, BYTES("M"), BYTES("k"), BYTES("v"), NULL);
        fail_allocation(0);
        assert_true(err == OK || err == ERR_NO_MEMORY);
        struct bytes value;
        assert_int_equal(names_kv_get(names, BYTES("M"), BYTES("k"), &arena, &value),
                         err ? ERR_NOT_FOUND : OK);
        assert_int_equal(names_kv_get(names, BYTES("N"), BYTES("k"), &arena, &value), OK);
        assert_int_equal(names_kv_put(names, BYTES("M"), BYTES("k"), BYTES("v"), NULL), OK);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, test_setup, test_teardown)
    const struct CMUnitTest tests[] = {
        CASE(opening_without_memory_is_refused),
        CASE(a_registration_is_completed_when_memory_is_back),
        CASE(a_setting_without_memory_is_refused),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
