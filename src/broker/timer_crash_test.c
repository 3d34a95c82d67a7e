/* Timed messages over crashes, power losses, clocks that step, and damaged files: none is lost,
 * none is early, none comes twice, and what was recalled never comes. */
#include "broker/timer_test.h"
#include "store/vfs_fault.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#define MESSAGES 120

enum ending { END_CLEAN, END_CRASH, END_POWER };

/* One message of the play, and what was promised about it. */
struct promise {
    int64_t due_ms;
    uint64_t end;        /* of its record; 0: it was not stored, or may be gone */
    uint64_t recall_end; /* of the record that takes it back; 0: none, or it may be gone */
    bool safe;           /* on the disk for certain */
    bool recalled, recall_safe;
    char uniq_key[65];
};

struct play {
    struct rig *rig;
    struct vfs_fault *fault;
    struct dice dice;
    struct promise all[MESSAGES];
    int n, crashes;
    int64_t topic_end; /* messages in T that are known to be safe */
};

static void play_begin(struct play *p, struct rig *rig, uint64_t seed)
{
    *p = (struct play){.rig = rig, .dice = dice_seeded(seed)};
    p->fault = vfs_fault_new(rig->vfs, seed);
    rig_stop(rig);
    rig->options.vfs = rig->store_vfs = &p->fault->vfs;
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
}

static void play_end(struct play *p)
{
    struct rig *rig = p->rig;
    rig_stop(rig);
    vfs_fault_free(p->fault);
    rig->store_vfs = NULL;
    rig->vfs->calls->dispose(rig->vfs);
    (void)nftw(rig->folder, rig_remove, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(rig->folder, 0700), 0);
    struct fault why = {0};
    assert_int_equal(vfs_posix_open(rig->folder, &rig->vfs, &why), OK);
    rig->options.vfs = rig->vfs;
    assert_int_equal(rig_start(rig, &why), OK);
}

/* How often message `number` is in T, and when it was first stored there. */
static int came(struct play *p, int number, int64_t *first_ms)
{
    char body[16];
    int times = 0;
    snprintf(body, sizeof body, "%d", number);
    for (int64_t i = 0; i < later_count(p->rig, "T", 0); i++) {
        struct slice got;
        struct record record = later_record(p->rig, "T", 0, i, &got);
        if (bytes_equal(record.body, bytes_str(body)) && times++ == 0)
            *first_ms = record.store_ms;
        counted_drop(got.owner);
    }
    return times;
}

static void step_send(struct play *p)
{
    struct rig *rig = p->rig;
    if (p->n == MESSAGES)
        return;
    char body[16], props[96];
    struct promise *m = &p->all[p->n];
    snprintf(body, sizeof body, "%d", p->n);
    int64_t delay =
        dice_below(&p->dice, 8) ? 1 + (int64_t)dice_below(&p->dice, 6000) : INT64_C(190000000);
    snprintf(props, sizeof props, "TIMER_DELAY_MS\1%lld\2UNIQ_KEY\1U%d\2", (long long)delay, p->n);
    struct produce r = rig_message("T", body);
    r.props = bytes_str(props);
    uint64_t end = 0;
    broker_produce(rig->broker, rig->desk, &r, 1, &end);
    broker_dispatch_turn(rig->broker);
    p->n++;
    if (r.err)
        return;
    m->due_ms = r.timer_due_ms;
    m->end = end;
    memcpy(m->uniq_key, r.uniq_key, sizeof m->uniq_key);
}

static void step_recall(struct play *p)
{
    if (p->n == 0)
        return;
    int number = (int)dice_below(&p->dice, (uint64_t)p->n);
    struct promise *m = &p->all[number];
    if (!m->end && !m->safe)
        return;
    char handle[RECALL_HANDLE_MAX];
    size_t len =
        broker_recall_handle(p->rig->broker, BYTES("T"), m->due_ms, bytes_str(m->uniq_key), handle);
    struct recall recall = {.topic = BYTES("T"), .handle = bytes_of(handle, len)};
    struct recalled out;
    int64_t when;
    bool before = came(p, number, &when) > 0;
    if (broker_recall(p->rig->broker, &recall, &out, NULL))
        return;
    if (before)
        fail_msg("a message that has come was recalled");
    broker_dispatch_turn(p->rig->broker);
    m->recalled = true;
    m->recall_end = out.end;
}

static void step_clock(struct play *p, bool back)
{
    if (back && dice_below(&p->dice, 6) == 0)
        timer_back(p->rig, (int64_t)dice_below(&p->dice, 20000));
    else
        timer_forward(p->rig, (int64_t)dice_below(&p->dice, 900));
}

static void step(struct play *p, bool back)
{
    struct service_turn turn;
    switch (dice_below(&p->dice, 9)) {
    case 0:
    case 1:
    case 2:
        step_send(p);
        break;
    case 3:
        step_clock(p, back);
        break;
    case 4:
        (void)store_flush_turn(p->rig->store);
        store_keep_turn(p->rig->store);
        break;
    case 5:
    case 6:
        broker_timer_turn(p->rig->broker, &turn);
        break;
    case 7:
        (void)(broker_save_turn(p->rig->broker, NULL) == OK);
        break;
    case 8:
        step_recall(p);
        break;
    }
}

/* From here on nothing reaches the disk, as if the process had ended here. */
static void life_end(struct play *p, enum ending ending)
{
    struct rig *rig = p->rig;
    struct fault why = {0};
    if (ending == END_CLEAN) {
        rig_stop(rig);
    } else {
        uint64_t flushed = store_flushed(rig->store);
        vfs_fault_plan(p->fault, 1, ULONG_MAX, ERR_IO);
        desk_close(rig->desk);
        (void)(broker_close(rig->broker, NULL) == OK);
        (void)(store_close(rig->store, NULL) == OK);
        vfs_fault_plan(p->fault, 0, 0, OK);
        for (int i = 0; i < p->n; i++) {
            struct promise *m = &p->all[i];
            bool power = ending == END_POWER;
            m->safe |= m->end && (!power || m->end <= flushed);
            m->recall_safe |= m->recall_end && (!power || m->recall_end <= flushed);
            if (power) /* what was not safe may be gone, and its place taken by another */
                m->end = m->recall_end = 0;
        }
        if (ending == END_POWER)
            vfs_fault_power_loss(p->fault);
    }
    assert_int_equal(rig_start(rig, &why), OK);
}

static void play_judge(struct play *p, uint64_t seed, bool exact)
{
    timer_forward(p->rig, 60000);
    for (int day = 0; day < 4; day++) {
        timer_turn(p->rig);
        timer_turn(p->rig);
        timer_forward(p->rig, 86400000);
    }
    timer_turn(p->rig);
    for (int i = 0; i < p->n; i++) {
        struct promise *m = &p->all[i];
        int64_t when = 0;
        int times = came(p, i, &when);
        bool there = m->safe || m->end, taken = m->recall_safe || m->recall_end;
        if (there && !m->recalled && times == 0)
            fail_msg("seed %llu: message %d never came", (unsigned long long)seed, i);
        if (taken && times > 0)
            fail_msg("seed %llu: message %d was recalled and came", (unsigned long long)seed, i);
        if (times > 0 && when < m->due_ms)
            fail_msg("seed %llu: message %d came %lld ms early", (unsigned long long)seed, i,
                     (long long)(m->due_ms - when));
        if (exact && times > 1)
            fail_msg("seed %llu: message %d came %d times", (unsigned long long)seed, i, times);
    }
}

static void play_run(struct rig *rig, uint64_t seed, bool power, bool back)
{
    struct play p;
    play_begin(&p, rig, seed);
    for (int life = 0; life < 4; life++) {
        int steps = 10 + (int)dice_below(&p.dice, 80);
        for (int i = 0; i < steps; i++)
            step(&p, back);
        uint64_t how = dice_below(&p.dice, 4);
        life_end(&p, how == 0 ? END_CLEAN : power ? END_POWER : END_CRASH);
    }
    play_judge(&p, seed, true);
    play_end(&p);
}

/* SEEDS=300 for a long night. */
static void plays(struct rig *rig, uint64_t first, bool power, bool back)
{
    const char *text = getenv("SEEDS");
    uint64_t n = text ? strtoull(text, NULL, 10) : 3;
    for (uint64_t seed = first; seed < first + n; seed++)
        play_run(rig, seed, power, back);
}

static void crashes_lose_nothing_and_repeat_nothing(void **state)
{
    plays(*state, 1, false, false);
}

static void a_clock_that_steps_back_changes_nothing_of_that(void **state)
{
    plays(*state, 1001, false, true);
}

static void power_losses_lose_nothing_that_was_flushed(void **state)
{
    plays(*state, 2001, true, false);
}

static void power_losses_and_a_clock_that_steps_back(void **state)
{
    plays(*state, 3001, true, true);
}

/* ---- damaged files ---- */

enum damage {
    DAMAGE_GONE,
    DAMAGE_SHORT,
    DAMAGE_ZEROS,
    DAMAGE_NOISE, /* in the middle of what is used */
    DAMAGE_KINDS,
};

static void damage(struct rig *rig, const char *name, enum damage kind, uint64_t seed)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", rig->folder, name);
    struct dice dice = dice_seeded(seed);
    uint8_t bytes[64];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = kind == DAMAGE_ZEROS ? 0 : (uint8_t)dice_next(&dice);
    if (kind == DAMAGE_GONE) {
        assert_int_equal(remove(path), 0);
        return;
    }
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    if (kind == DAMAGE_SHORT)
        assert_int_equal(ftruncate(fd, (off_t)dice_below(&dice, 50)), 0);
    else
        assert_int_equal(pwrite(fd, bytes, sizeof bytes, (off_t)dice_below(&dice, 500)),
                         sizeof bytes);
    close(fd);
}

/* Each file in each way, some messages delivered before and some not: all come, once. */
static void damaged_files_are_repaired_from_the_log(void **state)
{
    struct rig *rig = *state;
    static const char *const files[] = {"timerlog/00000000000000000000", "timerwheel",
                                        "config/timercheck"};
    int64_t expected = 0;
    for (size_t f = 0; f < 3; f++) {
        for (enum damage kind = 0; kind < DAMAGE_KINDS; kind++) {
            for (int i = 0; i < 30; i++)
                timer_send(rig, "T", 100 + i * 100, "x");
            struct produce taken = timer_send(rig, "T", 2500, "recalled");
            timer_turn(rig);
            assert_int_equal(timer_recall(rig, "T", taken.timer_due_ms, taken.uniq_key), OK);
            timer_forward(rig, 1550);
            timer_turn(rig);
            rig_stop(rig);
            damage(rig, files[f], kind, f * 10 + kind);
            struct fault why = {0};
            assert_int_equal(rig_start(rig, &why), OK);
            timer_turn(rig);
            timer_forward(rig, 5000);
            timer_turn(rig);
            timer_turn(rig);
            expected += 30;
            if (later_count(rig, "T", 0) != expected)
                fail_msg("%s, damage %d: %lld in all, wanted %lld (%s)", files[f], kind,
                         (long long)later_count(rig, "T", 0), (long long)expected,
                         broker_note(rig->broker));
        }
    }
}

/* Numbers in Apache's part that cannot be true, and no sign of ours. */
static void a_check_that_lies_is_found_out(void **state)
{
    struct rig *rig = *state;
    static const int64_t lies[][4] = {
        {INT64_C(1) << 60, 0, 0, 0},                   /* all of it is over */
        {0, INT64_C(1) << 60, 0, 0},                   /* units without end */
        {1000, 0, INT64_C(1) << 60, INT64_C(1) << 60}, /* a queue without end */
        {0, 0, 0, 0},
    };
    int64_t expected = 0;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        for (int k = 0; k < 20; k++)
            timer_send(rig, "T", 100 + k * 150, "x");
        timer_turn(rig);
        for (int k = 0; k < 5; k++) /* without units yet */
            timer_send(rig, "T", 2000 + k, "y");
        timer_forward(rig, 1000);
        rig_stop(rig);
        uint8_t text[TIMER_CHECK_SIZE] = {0};
        for (size_t n = 0; n < 4; n++)
            store_u64(text + 8 * n, (uint64_t)lies[i][n]);
        assert_int_equal(vfs_replace(rig->vfs, TIMER_CHECK_PATH, bytes_of(text, sizeof text), NULL),
                         OK);
        struct fault why = {0};
        assert_int_equal(rig_start(rig, &why), OK);
        timer_turn(rig);
        timer_forward(rig, 5000);
        timer_turn(rig);
        expected += 25;
        if (later_count(rig, "T", 0) != expected)
            fail_msg("lie %zu: %lld in all, wanted %lld", i, (long long)later_count(rig, "T", 0),
                     (long long)expected);
    }
}

/* Files are put aside with a word about it, not thrown away. */
static void the_operator_hears_of_damage(void **state)
{
    struct rig *rig = *state;
    timer_send(rig, "T", 1000, "x");
    timer_turn(rig);
    rig_stop(rig);
    char path[128];
    snprintf(path, sizeof path, "%s/config/timercheck", rig->folder);
    assert_int_equal(truncate(path, 20), 0);
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    assert_non_null(strstr(broker_note(rig->broker), "timercheck"));
    snprintf(path, sizeof path, "%s/config/timercheck.damaged", rig->folder);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    timer_turn(rig);
    timer_forward(rig, 1000);
    timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 1);
}

/* Units that are damaged while nobody looks, in a slot that is not near yet. */
static void damage_in_a_running_broker_is_repaired_too(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 50; i++)
        timer_send(rig, "T", 20000 + i * 10, "x");
    timer_turn(rig);
    damage(rig, "timerlog/00000000000000000000", DAMAGE_NOISE, 4);
    timer_forward(rig, 30000);
    for (int i = 0; i < 5; i++)
        timer_turn(rig);
    assert_int_equal(later_count(rig, "T", 0), 50);
    assert_true(rig->warned > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(crashes_lose_nothing_and_repeat_nothing),
        rig_test(a_clock_that_steps_back_changes_nothing_of_that),
        rig_test(power_losses_lose_nothing_that_was_flushed),
        rig_test(power_losses_and_a_clock_that_steps_back),
        rig_test(damaged_files_are_repaired_from_the_log),
        rig_test(a_check_that_lies_is_found_out),
        rig_test(the_operator_hears_of_damage),
        rig_test(damage_in_a_running_broker_is_repaired_too),
    };
    return cmocka_run_group_tests_name("broker/timer_crash", tests, NULL, NULL);
}
