/* Operation n of the disk fails, for n = 1, 2, 3 … until nothing fails any more.
 *
 * The life of a store with everything in it: opening after a crash, sending over some files,
 * flushing, dispatching, keeping, closing. Whatever fails, and once or from then on: no crash, no
 * leak; who was told that a message is stored finds it afterwards; who was told that it is not does
 * not, unless it was the last one that was tried and the disk would not have it wiped, either.
 */
#include "store/test_house.h"

#include <limits.h>

#define CALLS 12
#define EACH  25

struct tried {
    bool stored[CALLS];
};

static void live(struct house *h, struct tried *tried)
{
    static struct arrival news[ARRIVALS_MAX];
    struct stored out[EACH];
    uint64_t end;
    for (unsigned i = 0; i < CALLS; i++) {
        tried->stored[i] = house_send(h, i * EACH, EACH, out, &end) == OK;
        clock_manual_advance(&h->clock, 600);
        (void)store_flush_turn(h->store);
        while (store_dispatch_turn(h->store, news) > 0)
            ;
        if (i == CALLS / 2)
            clock_manual_advance(&h->clock, 61000);
        store_keep_turn(h->store);
    }
}

static void check(struct house *h, const struct tried *tried, bool once)
{
    uint8_t seen[CALLS * EACH] = {0};
    (void)house_read_all(h, seen, CALLS * EACH);
    bool wiped = once; /* or else before something that was stored later */
    for (unsigned i = CALLS; i-- > 0;) {
        for (unsigned k = i * EACH; k < (i + 1) * EACH; k++) {
            if (tried->stored[i])
                assert_int_equal(seen[k], 1);
            else if (wiped)
                assert_int_equal(seen[k], 0);
        }
        wiped = wiped || tried->stored[i];
    }
}

/* False: nothing failed. */
static bool run(unsigned long at, unsigned long times, enum err err, bool sync_flush)
{
    struct house h;
    house_init(&h, at);
    house_vary_shelves(&h, at);
    h.options.sync_flush = sync_flush;
    house_must_open(&h); /* something to recover from */
    house_must_send(&h, 0, 1);
    house_crash(&h);
    house_remove(&h, "commitlog");

    struct tried tried = {0};
    vfs_fault_plan(h.fault, at, times, err);
    if (house_open(&h) == OK) {
        live(&h, &tried);
        if (at % 2) {
            enum err closed = store_close(take(&h.store), &h.why);
            (void)closed; /* it may well fail */
        } else {
            house_crash(&h);
        }
    } else {
        assert_null(h.store);
        assert_string_not_equal(h.why.text, "");
    }
    bool failed = h.fault->operations >= at;
    vfs_fault_plan(h.fault, 0, 0, OK);
    house_must_open(&h);
    check(&h, &tried, times == 1);
    house_must_send(&h, CALLS * EACH, 1); /* and it works */
    house_dispatch(&h);
    house_must_close(&h);
    house_clear(&h);
    return failed;
}

static void run_all(unsigned long times, enum err err, bool sync_flush)
{
    unsigned long at = 1;
    while (run(at, times, err, sync_flush))
        at++;
    assert_true(at > 100);
}

static void a_full_disk_once(void **state)
{
    (void)state;
    run_all(1, ERR_DISK_FULL, false);
}

static void a_full_disk_for_good(void **state)
{
    (void)state;
    run_all(ULONG_MAX, ERR_DISK_FULL, true);
}

static void a_failing_disk_once(void **state)
{
    (void)state;
    run_all(1, ERR_IO, true);
}

static void a_failing_disk_for_good(void **state)
{
    (void)state;
    run_all(ULONG_MAX, ERR_IO, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_once),
        cmocka_unit_test(a_full_disk_for_good),
        cmocka_unit_test(a_failing_disk_once),
        cmocka_unit_test(a_failing_disk_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
