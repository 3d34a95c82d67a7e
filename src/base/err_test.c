/* Sentences of failures; and the small parameters: chance, time, checksums. */
#include "base/clock.h"
#include "base/crc32.h"
#include "base/test.h"

#include <fcntl.h>
#include <unistd.h>

#include <errno.h>
#include <stdio.h>

static void a_fault_carries_the_sentence(void **state)
{
    (void)state;
    struct fault why = {0};
    assert_int_equal(fault_set(&why, ERR_DAMAGED, "record at %d", 7), ERR_DAMAGED);
    assert_string_equal(why.text, "record at 7");
    assert_int_equal(fault_add(&why, ERR_DAMAGED, "loading %s", "x"), ERR_DAMAGED);
    assert_string_equal(why.text, "loading x: record at 7");

    why = (struct fault){0};
    assert_int_equal(fault_add(&why, ERR_NO_MEMORY, "loading %s", "x"), ERR_NO_MEMORY);
    assert_string_equal(why.text, "loading x: out of memory");

    errno = ENOSPC;
    assert_int_equal(fault_os(&why, "writing"), ERR_DISK_FULL);
    assert_int_equal(why.os, ENOSPC);
    assert_string_equal(why.text, "writing: No space left on device");
    errno = EMFILE;
    assert_int_equal(fault_os(&why, "opening"), ERR_BUSY);
    errno = EACCES;
    assert_int_equal(fault_os(NULL, "nobody asks"), ERR_IO);
    assert_int_equal(fault_set(NULL, ERR_STALE, "nobody asks"), ERR_STALE);
    assert_int_equal(fault_add(NULL, ERR_STALE, "nobody asks"), ERR_STALE);
}

static void a_sentence_that_is_too_long_is_cut(void **state)
{
    (void)state;
    char text[1000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct fault why = {0};
    errno = EIO;
    assert_int_equal(fault_os(&why, "%s", text), ERR_IO);
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
    (void)fault_add(&why, ERR_IO, "%s", text);
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
}

static void every_code_has_a_text(void **state)
{
    (void)state;
    for (int i = OK; i <= ERR_STALE; i++)
        assert_string_not_equal(err_text((enum err)i), "unknown error");
    assert_string_equal(err_text((enum err)9999), "unknown error");
}

static void the_same_seed_throws_the_same(void **state)
{
    (void)state;
    struct dice a = dice_seeded(1), b = dice_seeded(1), c = dice_seeded(2);
    int same = 0, seen[6] = {0};
    for (int i = 0; i < 600; i++) {
        uint64_t throw = dice_next(&a);
        assert_true(throw == dice_next(&b));
        same += throw == dice_next(&c);
        seen[dice_below(&a, 6)]++;
        (void)dice_below(&b, 6);
    }
    assert_int_equal(same, 0);
    for (int i = 0; i < 6; i++)
        assert_in_range(seen[i], 50, 150);
    assert_int_equal(dice_below(&a, 1), 0);
}

static void a_manual_clock_moves_only_by_hand(void **state)
{
    (void)state;
    struct clock_manual c;
    clock_manual_init(&c, 1000);
    uint64_t before = clock_ns(&c.clock);
    assert_int_equal(clock_ms(&c.clock), 1000);
    clock_manual_advance(&c, 250);
    assert_int_equal(clock_ms(&c.clock), 1250);
    assert_true(clock_ns(&c.clock) - before == 250000000);
    assert_true(clock_ms(clock_system()) > 1600000000000);
}

/* The check value that every description of CRC-32 gives. */
static void the_checksum_is_the_known_one(void **state)
{
    (void)state;
    assert_true(crc32_of(BYTES("123456789")) == 0xcbf43926);
    assert_true(crc32_positive(BYTES("123456789")) == 0x4bf43926);
    assert_true(crc32_of((struct bytes){0}) == 0);
}

static void who_closes_twice_closes_nobody_elses(void **state)
{
    (void)state;
    int fd = dup(STDERR_FILENO), number = fd;
    assert_true(fd >= 0);
    close_at(&fd);
    assert_int_equal(fd, -1);
    int next = dup(STDERR_FILENO);
    assert_int_equal(next, number);
    close_at(&fd);
    assert_true(fcntl(next, F_GETFD) >= 0);
    close_at(&next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_carries_the_sentence),
        cmocka_unit_test(a_sentence_that_is_too_long_is_cut),
        cmocka_unit_test(every_code_has_a_text),
        cmocka_unit_test(the_same_seed_throws_the_same),
        cmocka_unit_test(a_manual_clock_moves_only_by_hand),
        cmocka_unit_test(the_checksum_is_the_known_one),
        cmocka_unit_test(who_closes_twice_closes_nobody_elses),
    };
    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
