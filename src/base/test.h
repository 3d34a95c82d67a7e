/* test.h - what every unit test begins with: cmocka and what it wants included before it, exact
 * copies for the address sanitizer, and chance with a seed that is printed.
 *
 * Only for x_test.c files, of any module.
 */
#ifndef BASE_TEST_H
#define BASE_TEST_H

#include "base/bytes.h"
#include "base/dice.h"
#include "base/err.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* A test that proves a row of the requirements: its name begins with the row's number. */
#define test_of_row(row, f) ((struct CMUnitTest){row " " #f, f, NULL, NULL, NULL})

/* A copy in an allocation of exactly this size, so that a read one byte too far is seen. */
static inline uint8_t *test_copy(const void *at, size_t len)
{
    uint8_t *copy = malloc(len); /* of nothing, glibc gives a pointer to nothing */
    assert_non_null(copy);
    if (len)
        memcpy(copy, at, len);
    return copy;
}

/* Another throw in every run. To see a failure again: TEST_SEED=<what was printed>. */
static inline struct dice test_dice(void)
{
    const char *given = getenv("TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : dice_seed_from_os();
    print_message("# TEST_SEED=%" PRIu64 "\n", seed);
    return dice_seeded(seed);
}

/* As assert_string_equal, for bytes. */
static inline void assert_bytes_equal(struct bytes got, struct bytes wanted)
{
    if (!bytes_equal(got, wanted))
        print_error("got    %.*s\nwanted %.*s\n", BYTES_ARG(got), BYTES_ARG(wanted));
    assert_true(bytes_equal(got, wanted));
}

#endif
