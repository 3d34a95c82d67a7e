/* Lives of an index that end at any moment, and what is there afterwards.
 *
 * One seed is a folder and several lives in it. A life opens the index, adds records, flushes, and
 * ends by power loss at some operation (maybe while opening), by the end of the process, or
 * cleanly. The log may lose its tail with it. Then the index is opened again and brought up to the
 * log from where it asks for, and must find exactly what the log has.
 */
#include "store/index_rig_test.h"

#include <limits.h>

#define SEEDS 40
#define LIVES 6

struct life {
    struct rig r;
    struct dice dice;
    uint64_t durable; /* what index_flush said */
};

/* False: the power is gone. */
static bool life_step(struct life *l)
{
    struct rig *r = &l->r;
    struct index_flushed flushed;
    size_t before = r->n;
    switch (dice_below(&l->dice, 6)) {
    default:
        for (uint64_t i = dice_below(&l->dice, 20); i > 0; i--)
            (void)rig_append(r, &l->dice);
        return r->n == before ||
               rig_redo(r, r->log[before].position, 1 + (size_t)dice_below(&l->dice, 9)) == OK;
    case 4:
        clock_manual_advance(&r->h.clock, (int64_t)dice_below(&l->dice, 5000));
        return true;
    case 5:
        if (index_flush(r->index, &flushed, &r->h.why))
            return false;
        assert_true(flushed.position >= l->durable);
        l->durable = flushed.position;
        return true;
    }
}

/* The log's last records were not on disk. Others will stand in their place. */
static void log_cut(struct life *l)
{
    struct rig *r = &l->r;
    size_t most = r->n < 30 ? r->n : 30;
    size_t gone = dice_below(&l->dice, 2) ? (size_t)dice_below(&l->dice, most + 1) : 0;
    r->n -= gone;
    r->end = r->n ? r->log[r->n - 1].position + r->log[r->n - 1].size : 0;
    if (l->durable > r->end)
        l->durable = r->end;
}

/* Of what was on disk only the last record is taken back; one more where that empties a file, and
 * all of it twice, because the life before may have ended while opening. Short files hold so few
 * records that whole rows of them may go. */
static void durable_check(const struct life *l)
{
    const struct rig *r = &l->r;
    size_t again = 0;
    for (size_t i = 0; i < r->n && r->log[i].position < l->durable; i++)
        again +=
            r->log[i].position >= r->report.redo && (r->log[i].has_unique || r->log[i].n_words);
    assert_true(again <= 4 || r->options.shape.entries < 4 * RIG_KEYS_MAX);
}

/* From here on nothing more is promised than what opening kept. */
static void durable_lower(struct life *l)
{
    if (l->durable > l->r.report.redo)
        l->durable = l->r.report.redo;
}

static void life_run(struct life *l, bool *clean)
{
    struct rig *r = &l->r;
    uint64_t ending = dice_below(&l->dice, 4);
    unsigned long at = 1 + (unsigned long)dice_below(&l->dice, dice_below(&l->dice, 4) ? 200 : 20);
    vfs_fault_plan(r->h.fault, ending > 1 ? at : 0, ULONG_MAX, ERR_IO);
    bool power = rig_open(r, *clean) == OK;
    if (power) {
        durable_lower(l);
        power = rig_redo(r, r->report.redo, 3) == OK;
    }
    assert_true(power || ending > 1);
    for (int steps = (int)dice_below(&l->dice, 40); power && steps > 0; steps--)
        power = life_step(l);

    *clean = false;
    if (power && ending == 0) {
        rig_must_close(r);
        *clean = true;
    } else if (r->index && power && dice_below(&l->dice, 3) == 0) {
        *clean = index_close(take(&r->index), &r->h.why) == OK; /* the power may go in here, too */
    }
    index_abandon(take(&r->index));
    if (ending > 1)
        vfs_fault_power_loss(r->h.fault);
    if (ending > 1 || dice_below(&l->dice, 8) == 0)
        log_cut(l);
}

static void seed_run(uint64_t seed)
{
    struct life l = {.dice = dice_seeded(seed)};
    uint32_t slots = 1 + (uint32_t)dice_below(&l.dice, 2500);
    uint32_t entries = 2 + (uint32_t)dice_below(&l.dice, dice_below(&l.dice, 3) ? 400 : 30);
    rig_init(&l.r, seed, slots, entries);
    bool clean = true;
    for (int i = 0; i < LIVES; i++) {
        life_run(&l, &clean);
        vfs_fault_plan(l.r.h.fault, 0, 0, OK);
        rig_must(&l.r, rig_open(&l.r, clean));
        durable_check(&l);
        durable_lower(&l);
        rig_must(&l.r, rig_redo(&l.r, l.r.report.redo, 4));
        rig_check(&l.r, &l.dice, false);
        clean = dice_below(&l.dice, 2);
        if (clean) {
            rig_must_close(&l.r);
            l.durable = l.r.end;
        } else {
            index_abandon(take(&l.r.index));
        }
    }
    rig_clear(&l.r);
}

static uint64_t current_seed;

static int say_seed(void **state)
{
    (void)state;
    print_message("# last seed was %llu\n", (unsigned long long)current_seed);
    return 0;
}

static void finds_what_the_log_has_after_any_end(void **state)
{
    (void)state;
    const char *only = getenv("TEST_SEED");
    uint64_t first = only ? strtoull(only, NULL, 0) : dice_seed_from_os() >> 20;
    print_message("# seeds from %llu on; one alone: TEST_SEED=...\n", (unsigned long long)first);
    for (current_seed = first; current_seed < first + (only ? 1 : SEEDS); current_seed++)
        seed_run(current_seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(finds_what_the_log_has_after_any_end, say_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
