#include "store/test_house.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Another process has the folder: we are told which. When it is gone, without a word, we get it. */
static void a_folder_in_use_is_refused_with_its_pid(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    int ready[2], go[2];
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* no assertions here: it must not run on as a second test */
        char byte = 0;
        bool fine = house_open(&h) == OK && write(ready[1], "x", 1) == 1 && close(go[1]) == 0;
        _exit(fine && read(go[0], &byte, 1) == 0 ? 0 : 1);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(house_open(&h), ERR_IN_USE);
    char wanted[32];
    (void)snprintf(wanted, sizeof wanted, "process %ld", (long)child);
    assert_non_null(strstr(h.why.text, wanted));
    assert_true(house_has(&h, "abort")); /* the other's: untouched */

    int status;
    (void)close(go[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    house_must_open(&h);
    assert_false(h.report.clean);
    house_must_close(&h);
    house_must_open(&h);
    assert_true(h.report.clean);
    (void)close(ready[0]), (void)close(ready[1]), (void)close(go[0]);
    house_clear(&h);
}

/* The three small files, as Apache RocketMQ has them. */
static void the_root_folder_looks_as_it_should(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    assert_int_equal(house_size(&h, "lock"), 4);
    uint8_t *text;
    size_t len;
    char pid[24];
    (void)snprintf(pid, sizeof pid, "%ld", (long)getpid());
    assert_int_equal(vfs_read_all(h.disk, "abort", 100, &text, &len, NULL), OK);
    assert_bytes_equal(bytes_of(text, len), bytes_str(pid));
    free(text);
    house_must_send(&h, 0, 10);
    house_dispatch(&h);
    int64_t now = clock_ms(&h.clock.clock);
    house_must_close(&h);

    assert_false(house_has(&h, "abort"));
    assert_int_equal(vfs_read_all(h.disk, "checkpoint", 5000, &text, &len, NULL), OK);
    assert_int_equal(len, 4096);
    assert_int_equal(load_u64(text), now);     /* physicMsgTimestamp */
    assert_int_equal(load_u64(text + 8), now); /* logicsMsgTimestamp */
    free(text);
    house_clear(&h);
}

/* What Apache keeps in the checkpoint comes back as it was. */
static void carries_along_what_it_does_not_use(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    struct checkpoint c = {.index_ms = 11, .master_flushed = 22, .confirmed = 33};
    assert_int_equal(checkpoint_write(h.disk, &c, NULL), OK);
    house_must_open(&h);
    house_must_close(&h);
    struct checkpoint after;
    assert_int_equal(checkpoint_read(h.disk, &after, NULL), OK);
    assert_int_equal(after.index_ms, 11);
    assert_int_equal(after.master_flushed, 22);
    assert_int_equal(after.confirmed, 33);
    house_clear(&h);
}

/* Any bytes may stand in the checkpoint: the store opens and has everything. Only a seal, which is
 * under a checksum, is believed when it says that the log went further: recover_test. */
static void survives_any_checkpoint(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    house_must_send(&h, 0, 300);
    house_dispatch(&h);
    house_must_close(&h);
    struct checkpoint true_one;
    assert_int_equal(checkpoint_read(h.disk, &true_one, NULL), OK);
    for (int i = 0; i < 60; i++) {
        struct checkpoint c = {.sealed = dice_below(&dice, 2)};
        c.log_ms = (int64_t)dice_next(&dice) >> dice_below(&dice, 64);
        c.queues_ms = (int64_t)dice_next(&dice) >> dice_below(&dice, 64);
        c.sealed_first = dice_next(&dice);
        c.sealed_end = dice_below(&dice, true_one.sealed_end + 1);
        c.sealed_units = dice_next(&dice);
        assert_int_equal(checkpoint_write(h.disk, &c, NULL), OK);
        if (dice_below(&dice, 4) == 0)
            house_flip(&h, "checkpoint", dice_below(&dice, 4096), 0xff);
        if (dice_below(&dice, 4) == 0)
            house_truncate(&h, "checkpoint", dice_below(&dice, 5000));
        house_must_open(&h);
        assert_int_equal(house_read_all(&h, NULL, 0), 300);
        if (dice_below(&dice, 2))
            house_must_close(&h);
        else
            house_crash(&h);
    }
    house_clear(&h);
}

static void an_empty_store_opens_and_closes(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    for (int i = 0; i < 3; i++) {
        house_must_open(&h);
        assert_int_equal(h.report.log_end, 0);
        assert_int_equal(store_confirmed(h.store), 0);
        assert_int_equal(store_state(h.store, NULL), OK);
        (void)store_flush_turn(h.store);
        clock_manual_advance(&h.clock, 61000);
        store_keep_turn(h.store);
        house_dispatch(&h);
        if (i == 1)
            house_crash(&h);
        else
            house_must_close(&h);
    }
    house_clear(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_in_use_is_refused_with_its_pid),
        cmocka_unit_test(the_root_folder_looks_as_it_should),
        cmocka_unit_test(carries_along_what_it_does_not_use),
        cmocka_unit_test(survives_any_checkpoint),
        cmocka_unit_test(an_empty_store_opens_and_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
