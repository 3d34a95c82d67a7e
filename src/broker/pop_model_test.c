/* Lives of a broker whose consumers pop, acknowledge, change times and forget, and what is true
 * whatever happens.
 *
 * One seed is a folder and several lives in it; each ends cleanly, by the end of the process, or by
 * power loss. An oracle knows of each message until when it is in flight and whether its
 * acknowledgement is safe: written, or, when the power goes, flushed.
 *
 *     no message is handed out while it is in flight
 *     none comes again once its acknowledgement was safe
 *     whatever was safe before comes until it is acknowledged
 *     a yes to an acknowledgement is never a yes to nothing
 */
#include "broker/pop_test.h"
#include "store/vfs_fault.h"

#include <limits.h>

#define SEEDS    16
#define LIVES    5
#define STEPS    120
#define MESSAGES 400
#define HELD_MAX 256
#define QUEUES   3

struct story {
    uint64_t sent_end; /* of its record; UINT64_MAX: not known to be there */
    bool sent, safe;   /* was accepted; cannot be lost any more */
    bool acked;
    uint64_t acked_end;
    int64_t until_ms; /* in flight; 0: not */
};

struct life {
    struct popper p;
    struct vfs_fault *fault;
    struct dice dice;
    uint64_t seed;
    struct story stories[MESSAGES];
    int n;
    struct held held[HELD_MAX];
    size_t n_held;
    long handed, acked, late, again;
};

static long all_handed, all_acked, all_again;

#define claim(l, cond, ...)                                                                        \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            print_error("seed %llu: ", (unsigned long long)(l)->seed);                             \
            fail_msg(__VA_ARGS__);                                                                 \
        }                                                                                          \
    } while (0)

static int64_t now_ms(struct life *l)
{
    return clock_ms(&l->p.rig->clock.clock);
}

static void step_send(struct life *l)
{
    if (l->n == MESSAGES)
        return;
    char body[16];
    snprintf(body, sizeof body, "%d", l->n);
    struct produce r = rig_message("T", body);
    r.queue_id = (int32_t)dice_below(&l->dice, QUEUES);
    uint64_t end = 0;
    broker_produce(l->p.rig->broker, l->p.rig->desk, &r, 1, &end);
    broker_dispatch_turn(l->p.rig->broker);
    l->stories[l->n].sent = !r.err;
    l->stories[l->n++].sent_end = r.err ? UINT64_MAX : end;
}

static int number_of(const struct held *h)
{
    int32_t number = -1;
    assert_true(bytes_to_i32(bytes_str(h->body), &number));
    return number;
}

static void hand(struct life *l, const struct held *h, int64_t until)
{
    int number = number_of(h);
    struct story *s = &l->stories[number];
    claim(l, !s->acked, "message %d came again after it was acknowledged", number);
    claim(l, s->until_ms <= now_ms(l), "message %d is in flight until %lld, it is %lld", number,
          (long long)s->until_ms, (long long)now_ms(l));
    s->until_ms = until;
    l->handed++;
    l->again += h->tries > 0;
    if (l->n_held == HELD_MAX)
        l->held[dice_below(&l->dice, HELD_MAX)] = *h; /* a consumer that has forgotten */
    else
        l->held[l->n_held++] = *h;
}

static size_t step_pop(struct life *l, int64_t invisible_ms)
{
    struct pop pop = pop_wish("g", "T", 1 + (uint32_t)dice_below(&l->dice, 32), invisible_ms);
    if (dice_below(&l->dice, 4) == 0)
        pop.queue_id = (int32_t)dice_below(&l->dice, QUEUES);
    if (pop_now(&l->p, &pop))
        return 0; /* the disk has no power */
    for (size_t i = 0; i < l->p.n; i++)
        hand(l, &l->p.held[i], l->p.got.pop_ms + invisible_ms);
    return l->p.n;
}

static void forget(struct life *l, size_t i)
{
    l->held[i] = l->held[--l->n_held];
}

static void step_ack(struct life *l)
{
    if (l->n_held == 0)
        return;
    size_t i = (size_t)dice_below(&l->dice, l->n_held);
    struct held *h = &l->held[i];
    struct story *s = &l->stories[number_of(h)];
    enum err err = pop_ack(&l->p, "g", h);
    if (err == ERR_NOT_FOUND)
        l->late++;
    claim(l, err || s->acked || l->p.end > 0, "message %s: yes, but nothing was written", h->body);
    if (!err && l->p.end > 0) {
        s->acked = true;
        s->acked_end = l->p.end;
        s->until_ms = 0;
        l->acked++;
    }
    if (!err && dice_below(&l->dice, 10) == 0)
        (void)(pop_ack(&l->p, "g", h) == OK); /* once more */
    forget(l, i);
}

static void step_retime(struct life *l)
{
    if (l->n_held == 0)
        return;
    struct held *h = &l->held[dice_below(&l->dice, l->n_held)];
    struct story *s = &l->stories[number_of(h)];
    int64_t ms = (int64_t)dice_below(&l->dice, 8000);
    enum err err = pop_retime(&l->p, "g", h, ms);
    claim(l, err || !s->acked, "message %s got more time after it was acknowledged", h->body);
    if (!err)
        s->until_ms = h->handle.pop_ms + ms;
}

static void step(struct life *l)
{
    struct rig *rig = l->p.rig;
    struct service_turn turn;
    uint64_t which = dice_below(&l->dice, 20);
    if (which < 5)
        step_send(l);
    else if (which < 8)
        (void)step_pop(l, 1 + (int64_t)dice_below(&l->dice, 10000));
    else if (which < 12)
        step_ack(l);
    else if (which < 14)
        step_retime(l);
    else if (which < 16)
        clock_manual_advance(&rig->clock, (int64_t)dice_below(&l->dice, 3000));
    else if (which < 18)
        broker_pop_turn(rig->broker, &turn);
    else if (which < 19)
        (void)store_flush_turn(rig->store);
    else
        (void)(broker_save_turn(rig->broker, NULL) == OK);
}

/* What the oracle may still rely on after the power went. */
static void power_gone(struct life *l, uint64_t flushed)
{
    for (int i = 0; i < l->n; i++) {
        struct story *s = &l->stories[i];
        if (s->sent && s->sent_end > flushed && !s->safe)
            s->sent = false;
        if (s->acked && s->acked_end > flushed) { /* it may come again, and need not */
            s->acked = false;
            s->sent = false;
        }
        s->until_ms = 0; /* a mark may be lost: then it comes at once */
    }
    l->n_held = 0;
}

static void life_end(struct life *l)
{
    struct rig *rig = l->p.rig;
    uint64_t how = dice_below(&l->dice, 3), flushed = store_flushed(rig->store);
    for (int i = 0; i < l->n; i++) {
        l->stories[i].safe |= l->stories[i].sent && (how != 2 || l->stories[i].sent_end <= flushed);
        if (l->stories[i].acked && (how != 2 || l->stories[i].acked_end <= flushed))
            l->stories[i].acked_end = 0; /* for ever */
    }
    struct fault why = {0};
    if (how == 0) {
        rig_stop(rig);
    } else {
        vfs_fault_plan(l->fault, 1, ULONG_MAX, ERR_IO);
        desk_close(rig->desk);
        (void)(broker_close(rig->broker, NULL) == OK);
        (void)(store_close(rig->store, NULL) == OK);
        vfs_fault_plan(l->fault, 0, 0, OK);
    }
    if (how == 2) {
        vfs_fault_power_loss(l->fault);
        power_gone(l, flushed);
    }
    claim(l, rig_start(rig, &why) == OK, "it does not start: %s", why.text);
}

/* Everybody works until nothing is left. */
static void finish(struct life *l)
{
    struct rig *rig = l->p.rig;
    for (int idle = 0; idle < 3;) {
        clock_manual_advance(&rig->clock, 20000);
        (void)pop_turn(rig);
        l->n_held = 0;
        idle = step_pop(l, 1000) == 0 ? idle + 1 : 0;
        while (l->n_held > 0)
            step_ack(l);
    }
    for (int i = 0; i < l->n; i++)
        claim(l, !l->stories[i].sent || l->stories[i].acked, "message %d never came", i);
    claim(l, pop_numbers_of(rig).pop_in_flight == 0, "%llu are left in flight",
          (unsigned long long)pop_numbers_of(rig).pop_in_flight);
    rig_stop(rig);
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    claim(l, pop_numbers_of(rig).pop_marks == 0, "%zu marks are left",
          pop_numbers_of(rig).pop_marks);
}

static void life_run(uint64_t seed)
{
    struct life *l = calloc(1, sizeof *l);
    void *state = NULL;
    rig_open(&state);
    struct rig *rig = l->p.rig = state;
    l->seed = seed;
    l->dice = dice_seeded(seed);
    assert_int_equal(mark_desk_open(&l->p.desk), OK);
    rig_stop(rig);
    l->fault = vfs_fault_new(rig->vfs, seed);
    rig->options.vfs = rig->store_vfs = &l->fault->vfs;
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    rig_topic_put(rig, "T", QUEUES, PERM_READ | PERM_WRITE);
    struct group_settings set = group_settings_default(BYTES("g"));
    set.retry_max = 100000;
    rig_group_put(rig, &set);
    room_enter(&rig->broker->room);
    table_changed(rig->broker, TABLE_TOPICS);
    table_changed(rig->broker, TABLE_GROUPS);
    room_leave(&rig->broker->room);
    assert_int_equal(broker_save_turn(rig->broker, NULL), OK);
    for (int life = 0; life < LIVES; life++) {
        for (int i = 0; i < STEPS; i++)
            step(l);
        life_end(l);
    }
    finish(l);
    rig_stop(rig);
    rig->broker = NULL;
    mark_desk_close(l->p.desk);
    vfs_fault_free(l->fault);
    rig_close(&state);
    all_handed += l->handed;
    all_acked += l->acked;
    all_again += l->again;
    free(l);
}

/* The process ends between two saves: what was acknowledged in order stays so. */
static void in_order_a_crash_forgets_no_acknowledgement(void **state)
{
    (void)state;
    struct popper p = {0};
    void *opened = NULL;
    rig_open(&opened);
    struct rig *rig = p.rig = opened;
    assert_int_equal(mark_desk_open(&p.desk), OK);
    rig_stop(rig);
    struct vfs_fault *fault = vfs_fault_new(rig->vfs, 1);
    rig->options.vfs = rig->store_vfs = &fault->vfs;
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    for (int i = 0; i < 4; i++)
        rig_send(rig, "T", "", "x");
    struct pop pop = pop_wish("g", "T", 3, 10000), other = pop;
    pop.ordered = other.ordered = true;
    pop.attempt_id = BYTES("a");
    other.attempt_id = BYTES("b");
    assert_int_equal(pop_now(&p, &pop), OK);
    struct held held[3] = {p.held[0], p.held[1], p.held[2]};
    static const int order[] = {1, 0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pop_ack(&p, "g", &held[order[i]]), OK);
        vfs_fault_plan(fault, 1, ULONG_MAX, ERR_IO);
        desk_close(rig->desk);
        (void)(broker_close(rig->broker, NULL) == OK);
        (void)(store_close(rig->store, NULL) == OK);
        vfs_fault_plan(fault, 0, 0, OK);
        assert_int_equal(rig_start(rig, &why), OK);
        assert_int_equal(pop_now(&p, &other), OK);
        assert_int_equal(p.n, 0); /* still blocked by what is left */
    }
    assert_int_equal(rig_offset(rig, "g", "T", 0), 2);
    clock_manual_advance(&rig->clock, 10000);
    assert_int_equal(pop_now(&p, &other), OK);
    assert_int_equal(p.n, 2);
    assert_int_equal(p.held[0].offset, 2);
    rig_stop(rig);
    rig->broker = NULL;
    mark_desk_close(p.desk);
    vfs_fault_free(fault);
    rig_close(&opened);
}

static void nothing_is_lost_and_nothing_acknowledged_comes_again(void **state)
{
    (void)state;
    const char *one = getenv("SEED");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + (one ? 1 : SEEDS); seed++)
        life_run(seed);
    if (!one) {
        assert_true(all_handed > 1000);
        assert_true(all_again > 100);
        assert_true(all_acked > 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order_a_crash_forgets_no_acknowledgement),
        cmocka_unit_test(nothing_is_lost_and_nothing_acknowledged_comes_again),
    };
    return cmocka_run_group_tests_name("broker/pop_model", tests, NULL, NULL);
}
