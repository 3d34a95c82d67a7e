/* The once ledger through crashes, losses of power, failing disks and clocks that are set back.
 *
 * A life is a row of random turns of several clients, flushes, snapshots and jumps of the clock; it
 * ends by a stop, by a crash or by a loss of power, and the next one opens what is left. The oracle
 * keeps for each key all it ever had, and where in the log that ends. After a start a key must have
 * something that is not older than what was safe; from then on that is what it has. What was told
 * to be done is done, and by one token only; fences grow; no key stays blocked longer than its
 * claim and the grace. */
#include "broker/crash_test.h"
#include "broker/ledger_int.h"
#include "once.h"

#define SEEDS    40
#define LIVES    6
#define KEYS     12
#define CLIENTS  4
#define VERSIONS 4000
#define TOLD     100
#define REFUSED  100
#define MOST     4 /* operations of a turn */
#define HOUR_MS  INT64_C(3600000)

struct version {
    int state;
    int64_t fence, until_ms;
    uint64_t token, mark;
    uint64_t end; /* in the log */
};

struct key {
    struct version had[VERSIONS];
    size_t n;
    struct version maybe[REFUSED]; /* what the disk refused and may have: seen after a crash */
    size_t n_maybe;
    uint64_t done_by; /* the token that was told so, and nothing has taken that back; 0: none */
};

struct told { /* a finish that was decided, and is told when it is confirmed */
    int key;
    uint64_t token, end;
};

struct world {
    struct rig *rig;
    struct vfs_fault *fault;
    struct ledger_desk *desk;
    struct dice dice;
    uint64_t seed, serial, birth, birth_end;
    uint64_t end; /* of the ledger in the log */
    struct key keys[KEYS];
    struct told told[TOLD];
    size_t n_told;
    bool there[CLIENTS];
};

static struct world w;

static const struct version *latest(const struct key *k)
{
    static const struct version nothing;
    return k->n ? &k->had[k->n - 1] : &nothing;
}

static struct op op_make(enum op_kind kind, int key, uint64_t token)
{
    struct op op = {.kind = kind,
                    .name = "",
                    .token = token,
                    .expiry_ms = 1 + (int64_t)dice_below(&w.dice, 5000),
                    .retention_ms = HOUR_MS * 24 * 300};
    memset(op.id, 'a' + key, sizeof op.id);
    return op;
}

/* ---- what a turn leaves ---- */

static struct version version_of(int key, const struct op *op, uint64_t mark, uint64_t end,
                                 int64_t now_ms)
{
    struct version v = *latest(&w.keys[key]);
    switch (op->kind) {
    case OP_CLAIM:
        v = (struct version){ONCE_CONSUMING, op->fence, now_ms + op->expiry_ms, op->token, 0, 0};
        break;
    case OP_RENEW:
        v.until_ms = now_ms + op->expiry_ms;
        break;
    case OP_FINISH:
        v.state = ONCE_CONSUMED;
        v.mark = mark;
        break;
    case OP_RELEASE:
        v.state = ONCE_RELEASED;
        break;
    default:
        break;
    }
    v.end = end;
    return v;
}

static void version_add(int key, const struct op *op, const struct version *v, bool refused)
{
    struct key *k = &w.keys[key];
    bool repeated =
        op->kind != OP_RENEW && op->kind != OP_CLAIM && latest(k)->state != ONCE_CONSUMING;
    if (op->outcome != OUT_OK || repeated || op->kind == OP_LOOK)
        return;
    assert_true(k->n < VERSIONS);
    if (!refused)
        k->had[k->n++] = *v;
    else if (k->n_maybe < REFUSED)
        k->maybe[k->n_maybe++] = *v;
}

static void claim_check(int key, const struct op *op, uint64_t mark, int64_t now_ms)
{
    struct key *k = &w.keys[key];
    const struct version *v = latest(k);
    if (op->outcome == OUT_OK) {
        assert_int_not_equal(v->state, ONCE_CONSUMED);
        assert_int_equal(k->done_by, 0); /* never a second one */
        assert_true(op->fence > v->fence || (op->fence == v->fence && op->token == v->token));
    } else if (op->outcome == OUT_DONE) {
        assert_int_equal(v->state, ONCE_CONSUMED);
        assert_int_equal(mark, v->mark);
    } else {
        assert_int_equal(op->outcome, OUT_BUSY);
        assert_int_equal(v->state, ONCE_CONSUMING);
        assert_true(now_ms < v->until_ms + 1);
    }
}

static uint64_t mark_of(const struct op *op)
{
    uint64_t mark = 0;
    if (op->result.len == sizeof mark)
        memcpy(&mark, op->result.at, sizeof mark);
    return mark;
}

/* What is confirmed is told. */
static void told_settle(void)
{
    uint64_t confirmed = store_confirmed(w.rig->store);
    size_t left = 0;
    for (size_t i = 0; i < w.n_told; i++) {
        const struct told *t = &w.told[i];
        struct key *k = &w.keys[t->key];
        if (t->end > confirmed) {
            w.told[left++] = *t;
            continue;
        }
        assert_true(k->done_by == 0 || k->done_by == t->token); /* two commits never both succeed */
        k->done_by = t->token;
    }
    w.n_told = left;
}

static void step_turn(void)
{
    struct op ops[MOST];
    uint64_t results[MOST];
    int keys[MOST];
    size_t n = 1 + dice_below(&w.dice, MOST);
    int first = (int)dice_below(&w.dice, KEYS);
    struct arena arena;
    arena_init(&arena, 1 << 20);
    for (size_t i = 0; i < n; i++) { /* of different keys, as a driver's are */
        keys[i] = (first + (int)i) % KEYS;
        const struct version *v = latest(&w.keys[keys[i]]);
        enum op_kind kind = (enum op_kind)dice_below(&w.dice, OP_LOOK + 1);
        bool own = kind != OP_CLAIM && v->token && dice_below(&w.dice, 6);
        uint64_t client = 1 + dice_below(&w.dice, CLIENTS);
        ops[i] = op_make(kind, keys[i], own ? v->token : client << 32 | ++w.serial);
        results[i] = ++w.serial;
        if (kind == OP_FINISH)
            ops[i].result = bytes_of(&results[i], sizeof results[i]);
    }
    struct ledger_ask ask = {
        .group = BYTES("g"), .birth = w.birth, .ops = ops, .n = n, .arena = &arena};
    struct ledger_told told;
    int64_t now_ms = ledger_now_ms(w.rig->broker);
    broker_ledger(w.rig->broker, w.desk, &ask, 1, &told);
    if (!ask.err && w.birth == 0) {
        w.birth = told.birth;
        w.birth_end = told.end;
    }
    assert_int_not_equal(ask.err, ERR_STALE);
    w.end = told.end;
    for (size_t i = 0; ask.err && i < n; i++) {
        struct version v = version_of(keys[i], &ops[i], results[i], told.end, now_ms);
        version_add(keys[i], &ops[i], &v, true);
    }
    for (size_t i = 0; !ask.err && i < n; i++) {
        const struct op *op = &ops[i];
        struct key *k = &w.keys[keys[i]];
        const struct version before = *latest(k);
        if (op->outcome == OUT_FAILED) { /* the disk fails just now */
            assert_non_null(strstr(op->why.text, "cannot be read now"));
            continue;
        }
        if (op->kind == OP_CLAIM)
            claim_check(keys[i], op, mark_of(op), now_ms);
        if (op->kind == OP_FINISH && op->outcome == OUT_OK)
            assert_true(before.token == op->token && before.state != ONCE_RELEASED);
        struct version v = version_of(keys[i], op, results[i], told.end, now_ms);
        version_add(keys[i], op, &v, false);
        if (op->kind == OP_FINISH && op->outcome == OUT_OK && w.n_told < TOLD)
            w.told[w.n_told++] = (struct told){keys[i], op->token, told.end};
    }
    arena_clear(&arena);
    told_settle();
}

/* ---- steps of a life ---- */

static void step_client(void)
{
    size_t c = dice_below(&w.dice, CLIENTS);
    if (w.there[c])
        broker_absent(w.rig->broker, (uint32_t)c + 1);
    else if (broker_present(w.rig->broker, (uint32_t)c + 1, BYTES("c"), NULL, 0, NULL))
        return;
    w.there[c] = !w.there[c];
}

static void step_any(void)
{
    struct fault why = {0};
    switch (dice_below(&w.dice, 12)) {
    case 0:
        (void)store_flush_turn(w.rig->store);
        store_keep_turn(w.rig->store);
        break;
    case 1:
        clock_manual_advance(&w.rig->clock, (int64_t)dice_below(&w.dice, 6000));
        break;
    case 2:
        step_client();
        break;
    case 3:
        if (dice_below(&w.dice, 3) == 0)
            clock_manual_advance(&w.rig->clock, HOUR_MS + 1); /* a snapshot is due */
        break;
    case 4:
    case 5:
        (void)(broker_ledger_save_turn(w.rig->broker, &why) == OK);
        broker_ledger_turn(w.rig->broker);
        break;
    case 6:
        if (dice_below(&w.dice, 6) == 0) /* the disk is full for a while */
            vfs_fault_plan(w.fault, 1 + dice_below(&w.dice, 4), 1 + dice_below(&w.dice, 6),
                           ERR_DISK_FULL);
        break;
    case 7:
        broker_dispatch_turn(w.rig->broker);
        break;
    default:
        step_turn();
    }
    told_settle();
}

/* ---- ends and starts ---- */

/* After a start: what a key has is something it had, not older than what was safe. */
static void key_resolve(int key, uint64_t safe)
{
    struct key *k = &w.keys[key];
    struct op look = op_make(OP_LOOK, key, 0);
    struct ledger_ask ask = {.group = BYTES("g"), .birth = w.birth, .ops = &look, .n = 1};
    struct ledger_told told;
    broker_ledger(w.rig->broker, w.desk, &ask, 1, &told);
    assert_int_equal(ask.err, OK);
    size_t least = 0;
    for (size_t i = 0; i < k->n; i++)
        least = k->had[i].end <= safe ? i + 1 : least;
    size_t found = SIZE_MAX;
    int state = look.outcome == OUT_ABSENT ? ONCE_ABSENT : look.state;
    for (size_t i = k->n; i > 0 && found == SIZE_MAX; i--)
        if (k->had[i - 1].state == state && k->had[i - 1].fence == look.fence)
            found = i;
    if (state == ONCE_ABSENT)
        found = 0;
    uint64_t over = safe < w.end ? safe : w.end; /* before it something else stands for good */
    for (size_t i = 0; i < k->n_maybe && found == SIZE_MAX; i++) {
        if (k->maybe[i].state != state || k->maybe[i].fence != look.fence || k->maybe[i].end < over)
            continue;
        k->maybe[i].end = 0;
        k->had[k->n++] = k->maybe[i];
        found = k->n;
    }
    k->n_maybe = 0;
    if (found == SIZE_MAX || found < least)
        fail_msg("SEED=%llu key %d: state %d fence %lld is number %zu of what it had, %zu was safe",
                 (unsigned long long)w.seed, key, state, (long long)look.fence, found, least);
    k->n = found;
    if (k->done_by)
        assert_true(state == ONCE_CONSUMED && latest(k)->token == k->done_by);
}

static void life_end(void)
{
    struct rig *rig = w.rig;
    unsigned how = (unsigned)dice_below(&w.dice, 3);
    vfs_fault_plan(w.fault, 0, 0, OK);
    told_settle();
    uint64_t safe = how == 2 ? store_flushed(rig->store) : UINT64_MAX;
    for (int i = 0; how == 2 && !rig->sync_flush && i < KEYS;
         i++) /* told too early, as it is set */
        if (w.keys[i].done_by && latest(&w.keys[i])->end > safe)
            w.keys[i].done_by = 0;
    w.n_told = 0;
    ledger_desk_close(w.desk);
    if (how == 0) {
        desk_close(rig->desk);
        (void)(broker_close(rig->broker, NULL) == OK); /* after a failed sync it cannot be */
        (void)(store_close(rig->store, NULL) == OK);
    } else {
        fault_crash(rig, w.fault);
        if (how == 2)
            vfs_fault_power_loss(w.fault);
    }
    if (dice_below(&w.dice, 3) == 0 && (rig->sync_flush || how != 2))
        atomic_fetch_sub(&rig->clock.wall_ms, (int64_t)dice_below(&w.dice, 2 * HOUR_MS));
    clock_manual_advance(&rig->clock, 1);
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    assert_null(strstr(broker_note(rig->broker), "once ledger"));
    assert_int_equal(ledger_desk_open(&w.desk), OK);
    memset(w.there, 0, sizeof w.there);
    if (safe < w.birth_end && rig->broker->ledger->birth != w.birth)
        w.birth = 0; /* its first record was lost */
    for (int i = 0; i < KEYS; i++)
        key_resolve(i, safe);
}

static void run_of(struct rig *rig, uint64_t seed)
{
    w = (struct world){.rig = rig, .dice = dice_seeded(seed), .seed = seed};
    rig->sync_flush = seed % 2;
    w.fault = fault_under(rig, seed);
    assert_int_equal(ledger_desk_open(&w.desk), OK);
    for (int life = 0; life < LIVES; life++) {
        int steps = 5 + (int)dice_below(&w.dice, 120);
        for (int i = 0; i < steps; i++)
            step_any();
        life_end();
    }
    ledger_desk_close(w.desk);
    fault_over(rig, w.fault);
    rig_anew(rig);
}

static void what_was_told_to_be_done_is_done_once(void **state)
{
    const char *one = getenv("SEED"), *more = getenv("SEEDS");
    uint64_t seeds = more ? strtoull(more, NULL, 10) : SEEDS;
    if (one) {
        run_of(*state, strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        print_message("# seed %llu\n", (unsigned long long)seed);
        run_of(*state, seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(what_was_told_to_be_done_is_done_once),
    };
    return cmocka_run_group_tests_name("broker/ledger_crash", tests, NULL, NULL);
}
