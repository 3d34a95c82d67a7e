/* The ledger against a model: random operations of random clients, turns that the log refuses,
 * clocks, instances that come and go, and starts from the entries alone or from a snapshot and
 * what came behind it. The model is a plain array, and has no idea of rows, undo or bytes. */
#include "base/arena.h"
#include "base/dice.h"
#include "base/test.h"
#include "ledger/snapshot.h"
#include "once.h"
#include "once/decide.h"
#include "once/rows.h"

#include <stdlib.h>

#define KEYS    40
#define CLIENTS 6
#define STEPS   3
#define GRACE   2000
#define SEEDS   400
#define TURNS   400
#define ENTRIES 60000
#define START   INT64_C(1700000000000)

/* ---- the model ---- */

struct model_key {
    struct stored s;
    bool watched;
    int64_t keep_ms;
    uint64_t mark; /* of the result; 0: none */
    uint64_t steps[STEPS];
    int64_t highest; /* fence, ever */
};

struct model {
    struct model_key key[KEYS];
    int open[CLIENTS];
    int64_t ended_ms[CLIENTS];
    int64_t since_ms;
};

struct world {
    struct dice dice;
    struct model model, before;
    struct ledger *ledger;
    int64_t now_ms;
    uint64_t last_token[KEYS]; /* somebody's claim of it */
    uint64_t serial;
    struct ledger_entry *log; /* what is in it, in order */
    struct arena texts;
    size_t n_log, from_log;
    int64_t next_position;
    struct buf saved; /* a snapshot of before from_log */
    int64_t saved_floor;
    uint64_t seed;
};

static void id_of(int key, uint8_t id[ONCE_ID_SIZE])
{
    for (size_t i = 0; i < ONCE_ID_SIZE; i++)
        id[i] = (uint8_t)((unsigned)key * 37 + i * 11 + 5);
}

static bool model_gone(const struct world *w, uint64_t token)
{
    const struct model *m = &w->model;
    int c = (int)(token >> 32) - 1;
    if (m->open[c])
        return false;
    int64_t since = m->ended_ms[c] > m->since_ms ? m->ended_ms[c] : m->since_ms;
    return w->now_ms - since >= GRACE;
}

static bool model_there(const struct world *w, uint64_t token)
{
    int c = (int)(token >> 32) - 1;
    return w->model.open[c] || (w->model.ended_ms[c] > w->model.since_ms && !model_gone(w, token));
}

static bool model_over(const struct world *w, const struct model_key *k)
{
    int64_t keep = k->s.state == ONCE_CONSUMING ? k->keep_ms : 0;
    return k->s.state != ONCE_ABSENT && k->s.until_ms + keep <= w->now_ms;
}

/* The same operation, told of in the same words. The result's mark is in `*mark`. */
static void model_run(struct world *w, int key, struct op *op, int step, uint64_t *mark)
{
    struct model_key *k = &w->model.key[key];
    *mark = 0;
    if (op->kind == OP_STEP_GET) {
        *mark = k->steps[step];
        op->outcome = *mark ? OUT_OK : OUT_ABSENT;
        return;
    }
    if (op->kind == OP_STEP_PUT) {
        bool has = k->s.state == ONCE_CONSUMING && k->s.token == op->token;
        op->outcome = has ? OUT_OK : OUT_LOST;
        if (has && !k->steps[step])
            memcpy(&k->steps[step], op->result.at, 8);
        return;
    }
    struct stored after;
    bool again = op->kind == OP_CLAIM && k->s.state == ONCE_CONSUMING && k->s.token == op->token;
    bool gone = op->kind == OP_CLAIM && k->s.state == ONCE_CONSUMING && k->watched &&
                model_gone(w, k->s.token);
    op->takeover = true;
    bool changed = decide(&k->s, w->now_ms, gone, op, &after);
    if (op->outcome == OUT_DONE)
        *mark = k->mark;
    if (!changed)
        return;
    k->s = after;
    if (op->kind == OP_CLAIM) {
        k->watched = model_there(w, op->token);
        k->keep_ms = op->retention_ms; /* a power of two */
    }
    if (op->kind == OP_CLAIM && !again)
        k->mark = 0;
    if (op->kind == OP_FINISH)
        memcpy(&k->mark, op->result.at, 8);
    if (after.state == ONCE_ABSENT || after.state == ONCE_CONSUMED)
        memset(k->steps, 0, sizeof k->steps);
}

/* ---- the log ---- */

/* Entries go through their bytes. */
static bool entry_keep(void *user, const struct ledger_entry *e)
{
    struct world *w = user;
    assert_true(w->n_log < ENTRIES);
    struct ledger_entry *kept = &w->log[w->n_log++];
    *kept = *e;
    kept->group = kept->client = kept->name = kept->topic = kept->message = (struct bytes){0};
    kept->step = arena_copy(&w->texts, e->step);
    kept->result = arena_copy(&w->texts, e->result);
    return true;
}

static void log_add(struct world *w, const struct ledger_entry *e)
{
    uint8_t bytes[1024];
    struct wr out = wr_over(bytes, sizeof bytes);
    entries_begin(&out);
    entry_write(&out, e);
    entries_end(&out, 1);
    assert_false(out.full);
    assert_int_equal(wr_len(&out), ENTRIES_HEAD + entry_size(e));
    assert_int_equal(entries_read(wr_bytes(&out), entry_keep, w), OK);
}

/* The mark at a place of the log: the position of an entry is its number. */
static uint64_t log_mark(const struct world *w, uint64_t at)
{
    if (!at)
        return 0;
    assert_true(at - 1 < w->n_log);
    const struct ledger_entry *e = &w->log[at - 1];
    assert_int_equal(e->result.len, 8);
    uint64_t mark;
    memcpy(&mark, e->result.at, 8);
    return mark;
}

/* ---- turns ---- */

static struct op op_any(struct world *w, int *key, int *step, uint64_t *result)
{
    static const char *const names[STEPS] = {"one", "two", "three"};
    *key = (int)dice_below(&w->dice, KEYS);
    *step = (int)dice_below(&w->dice, STEPS);
    *result = ++w->serial;
    struct op op = {.kind = (enum op_kind)dice_below(&w->dice, OP_SWEEP),
                    .name = "key",
                    .expiry_ms = 1 + (int64_t)dice_below(&w->dice, 6000),
                    .retention_ms = (int64_t)1 << dice_below(&w->dice, 14),
                    .fingerprint = 1 + dice_below(&w->dice, 2),
                    .forget = dice_below(&w->dice, 4) == 0,
                    .step = bytes_str(names[*step])};
    id_of(*key, op.id);
    bool known = w->last_token[*key] && dice_below(&w->dice, 3) > 0;
    op.token = known && (op.kind != OP_CLAIM || dice_below(&w->dice, 8) == 0)
                   ? w->last_token[*key]
                   : (1 + dice_below(&w->dice, CLIENTS)) << 32 | ++w->serial;
    if (op.kind == OP_FORGET && dice_below(&w->dice, 3))
        op.kind = OP_CLAIM;
    if (op.kind == OP_FINISH || op.kind == OP_STEP_PUT)
        op.result = bytes_of(result, sizeof *result);
    return op;
}

static void outcome_compare(struct world *w, const struct op *op, const struct op *wanted,
                            uint64_t mark, uint64_t wanted_mark)
{
    if (op->outcome != wanted->outcome || mark != wanted_mark || op->left_ms != wanted->left_ms ||
        op->state != wanted->state)
        print_error("SEED=%llu kind %d: outcome %d mark %llu left %lld state %d, wanted %d %llu "
                    "%lld %d\n",
                    (unsigned long long)w->seed, (int)op->kind, (int)op->outcome,
                    (unsigned long long)mark, (long long)op->left_ms, op->state,
                    (int)wanted->outcome, (unsigned long long)wanted_mark,
                    (long long)wanted->left_ms, wanted->state);
    assert_int_equal(op->outcome, wanted->outcome);
    assert_int_equal(mark, wanted_mark);
    assert_int_equal(op->left_ms, wanted->left_ms);
    assert_int_equal(op->state, wanted->state);
}

/* What is over counts as gone. */
static void model_tidy(struct world *w, int key)
{
    struct model_key *k = &w->model.key[key];
    if (model_over(w, k))
        *k = (struct model_key){.highest = k->highest};
}

static void turn(struct world *w)
{
    enum { MOST = 12 };
    struct op ops[MOST], wanted[MOST];
    uint64_t marks[MOST], results[MOST];
    struct ledger_where wheres[MOST];
    int64_t positions[MOST];
    struct ledger_entry entries[MOST];
    int keys[MOST];
    size_t n = 1 + dice_below(&w->dice, MOST), n_entries = 0;
    bool refused = dice_below(&w->dice, 5) == 0;
    ledger_begin(w->ledger, w->now_ms);
    w->before = w->model;
    for (size_t i = 0; i < n; i++) {
        int step;
        ops[i] = op_any(w, &keys[i], &step, &results[i]);
        model_tidy(w, keys[i]);
        wanted[i] = ops[i];
        bool told = ledger_run(w->ledger, BYTES("g"), (uint32_t)n_entries, &ops[i], &wheres[i],
                               &entries[n_entries]);
        model_run(w, keys[i], &wanted[i], step, &marks[i]);
        if (told) {
            positions[n_entries] = (int64_t)(w->n_log + n_entries);
            n_entries++;
        }
        if (ops[i].kind != OP_CLAIM || ops[i].outcome != OUT_OK)
            continue;
        struct model_key *k = &w->model.key[keys[i]];
        assert_true(ops[i].fence >= wanted[i].fence); /* it may know of a forgotten one */
        bool again = w->last_token[keys[i]] == ops[i].token && ops[i].fence == k->highest;
        assert_true(again || ops[i].fence > k->highest);
        k->s.fence = k->highest = ops[i].fence;
        if (!refused)
            w->last_token[keys[i]] = ops[i].token;
    }
    if (refused) {
        ledger_undo(w->ledger);
        w->model = w->before;
        return;
    }
    for (size_t i = 0; i < n_entries; i++)
        log_add(w, &entries[i]);
    ledger_keep(w->ledger, positions);
    for (size_t i = 0; i < n; i++) {
        uint64_t at = wheres[i].at;
        if (at & LEDGER_PENDING)
            at = (uint64_t)positions[at & ~LEDGER_PENDING] + 1;
        outcome_compare(w, &ops[i], &wanted[i], log_mark(w, at), marks[i]);
    }
}

static void presence(struct world *w)
{
    int c = (int)dice_below(&w->dice, CLIENTS);
    struct model *m = &w->model;
    if (m->open[c] && dice_below(&w->dice, 2)) {
        ledger_absent(w->ledger, (uint32_t)c + 1, w->now_ms);
        if (--m->open[c] == 0)
            m->ended_ms[c] = w->now_ms;
    } else if (m->open[c] < 3) {
        assert_int_equal(
            ledger_present(w->ledger, (uint32_t)c + 1, BYTES("client\n\xff"), w->now_ms), OK);
        m->open[c]++;
    }
}

/* ---- starts ---- */

static void save(struct world *w)
{
    struct ledger_part part;
    struct ledger_cursor cursor = {0};
    uint64_t rows = 0, steps = 0;
    bool more = true;
    ledger_part_init(&part);
    w->saved.len = 0;
    w->from_log = w->n_log;
    w->saved_floor = ledger_floor(w->ledger);
    while (more) {
        more = ledger_copy(w->ledger, &cursor, 1 + (uint32_t)dice_below(&w->dice, 5), &part);
        rows += part.n_rows;
        steps += part.n_steps;
        assert_int_equal(ledger_part_write(&part, &w->saved), OK);
        if (dice_below(&w->dice, 3) == 0) /* others write meanwhile */
            turn(w);
    }
    snapshot_end_write(&w->saved, rows, steps);
    ledger_part_clear(&part);
}

static void snapshot_load(struct world *w)
{
    struct snapshot_counts counts = {0};
    for (size_t at = 0; at < w->saved.len;) {
        struct snapshot_block block;
        struct bytes rest = bytes_from(buf_bytes(&w->saved), at);
        assert_int_equal(snapshot_block_read(rest, &block), OK);
        struct bytes content = bytes_of(rest.at + SNAPSHOT_BLOCK_HEAD, block.size);
        assert_int_equal(ledger_load_block(w->ledger, &block, content, &counts), OK);
        at += SNAPSHOT_BLOCK_HEAD + block.size;
    }
    assert_true(counts.ended);
    ledger_load_floor(w->ledger, w->saved_floor);
}

static void ledger_make(struct world *w)
{
    struct ledger_options options = {1000000, GRACE, w->seed};
    assert_int_equal(ledger_open(&options, &w->ledger), OK);
    ledger_begins(w->ledger, w->now_ms);
}

static void start_again(struct world *w)
{
    bool saved = w->saved.len > 0 && dice_below(&w->dice, 3) > 0;
    ledger_close(w->ledger);
    ledger_make(w);
    if (saved)
        snapshot_load(w);
    for (size_t i = saved ? w->from_log : 0; i < w->n_log; i++)
        assert_int_equal(ledger_load(w->ledger, &w->log[i], (int64_t)i), OK);
    struct model *m = &w->model;
    m->since_ms = w->now_ms;
    memset(m->open, 0, sizeof m->open);
    for (int c = 0; c < CLIENTS; c++)
        m->ended_ms[c] = 0;
}

static void life(uint64_t seed)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->log = calloc(ENTRIES, sizeof *w->log);
    assert_non_null(w->log);
    w->seed = seed;
    w->dice = dice_seeded(seed);
    w->now_ms = START;
    w->saved = buf_upto(1 << 24);
    arena_init(&w->texts, 16 << 20);
    ledger_make(w);
    w->model.since_ms = START;
    for (int i = 0; i < TURNS; i++) {
        turn(w);
        w->now_ms += (int64_t)dice_below(&w->dice, 400);
        if (dice_below(&w->dice, 3) == 0)
            presence(w);
        if (dice_below(&w->dice, 20) == 0)
            w->now_ms += 4000;
        if (dice_below(&w->dice, 10) == 0)
            ledger_sweep(w->ledger, w->now_ms, (uint32_t)dice_below(&w->dice, 50));
        if (dice_below(&w->dice, 40) == 0)
            save(w);
        if (dice_below(&w->dice, 40) == 0)
            start_again(w);
    }
    arena_clear(&w->texts);
    free(w->log);
    buf_clear(&w->saved);
    ledger_close(w->ledger);
    free(w);
}

static void is_what_a_plain_model_is(void **state)
{
    (void)state;
    const char *one = getenv("SEED");
    if (one) {
        life(strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        life(seed);
}

/* ---- single facts ---- */

static struct op op_of(enum op_kind kind, int key, uint64_t token)
{
    struct op op = {
        .kind = kind, .name = "", .token = token, .expiry_ms = 1000, .retention_ms = 60000};
    id_of(key, op.id);
    return op;
}

static struct op run(struct ledger *l, struct op op)
{
    struct ledger_where where;
    struct ledger_entry entry;
    (void)ledger_run(l, BYTES("g"), 0, &op, &where, &entry);
    return op;
}

static void a_full_one_refuses_new_keys_until_some_are_over(void **state)
{
    (void)state;
    struct ledger *l;
    struct ledger_options options = {10, GRACE, 1};
    struct ledger_numbers n;
    int64_t nowhere[1] = {0};
    assert_int_equal(ledger_open(&options, &l), OK);
    ledger_begin(l, START);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(run(l, op_of(OP_CLAIM, i, 5)).outcome, OUT_OK);
        assert_int_equal(run(l, op_of(OP_FINISH, i, 5)).outcome, OUT_OK);
    }
    struct op full = run(l, op_of(OP_CLAIM, 11, 5));
    assert_int_equal(full.outcome, OUT_FAILED);
    assert_non_null(strstr(full.why.text, "onceMaxKeys"));
    assert_int_equal(run(l, op_of(OP_CLAIM, 3, 6)).outcome, OUT_DONE);
    ledger_keep(l, nowhere);
    ledger_begin(l, START + 60000);
    assert_int_equal(run(l, op_of(OP_CLAIM, 11, 5)).outcome, OUT_OK);
    ledger_keep(l, nowhere);
    ledger_numbers(l, &n);
    assert_int_equal(n.keys, 1);
    assert_int_equal(n.full, 1);
    assert_int_equal(n.swept, 10);
    ledger_close(l);
}

static void a_damaged_snapshot_is_told_at_every_byte(void **state)
{
    (void)state;
    struct ledger *l;
    struct ledger_options options = {1000, GRACE, 1};
    assert_int_equal(ledger_open(&options, &l), OK);
    int64_t positions[1] = {77};
    ledger_begin(l, START);
    for (int i = 0; i < 5; i++)
        assert_int_equal(run(l, op_of(OP_CLAIM, i, 5)).outcome, OUT_OK);
    struct op step = op_of(OP_STEP_PUT, 2, 5);
    step.step = BYTES("s");
    assert_int_equal(run(l, step).outcome, OUT_OK);
    ledger_keep(l, positions);
    struct ledger_part part;
    struct ledger_cursor cursor = {0};
    struct buf out = buf_upto(1 << 20);
    ledger_part_init(&part);
    while (ledger_copy(l, &cursor, 1000, &part))
        ;
    assert_int_equal(ledger_part_write(&part, &out), OK);
    snapshot_end_write(&out, 5, 1);
    uint8_t head[SNAPSHOT_HEAD];
    struct snapshot_head h = {7, 1000, 5, START, 9}, back;
    snapshot_head_write(head, &h);
    for (size_t i = 0; i < sizeof head; i++) {
        head[i] ^= 0x10;
        assert_int_not_equal(snapshot_head_read(bytes_of(head, sizeof head), &back), OK);
        head[i] ^= 0x10;
        assert_int_not_equal(snapshot_head_read(bytes_of(head, i), &back), OK);
    }
    assert_int_equal(snapshot_head_read(bytes_of(head, sizeof head), &back), OK);
    assert_memory_equal(&h, &back, sizeof h);
    for (size_t flip = 0; flip < out.len; flip++) {
        struct ledger *other;
        struct snapshot_counts counts = {0};
        enum err err = OK;
        assert_int_equal(ledger_open(&options, &other), OK);
        out.at[flip] ^= 0x40;
        for (size_t at = 0; !err && at + SNAPSHOT_BLOCK_HEAD <= out.len;) {
            struct snapshot_block block;
            struct bytes rest = bytes_from(buf_bytes(&out), at);
            err = snapshot_block_read(rest, &block);
            if (!err && block.size > rest.len - SNAPSHOT_BLOCK_HEAD)
                err = ERR_DAMAGED;
            if (!err)
                err = ledger_load_block(
                    other, &block, bytes_of(rest.at + SNAPSHOT_BLOCK_HEAD, block.size), &counts);
            at += err ? 0 : SNAPSHOT_BLOCK_HEAD + block.size;
        }
        assert_true(err || !counts.ended);
        out.at[flip] ^= 0x40;
        ledger_close(other);
    }
    ledger_part_clear(&part);
    buf_clear(&out);
    ledger_close(l);
}

static void entries_that_cannot_be_count_for_nothing(void **state)
{
    (void)state;
    static const uint8_t name[ONCE_STEP_MAX + 1] = "step";
    struct ledger *l;
    struct ledger_options options = {1000, GRACE, 1};
    assert_int_equal(ledger_open(&options, &l), OK);
    struct ledger_entry good = {.event = EVENT_CLAIMED,
                                .state = ONCE_CONSUMING,
                                .id = {7},
                                .token = 1,
                                .fence = START * 1000,
                                .until_ms = INT64_MAX,
                                .at_ms = START};
    assert_int_equal(ledger_load(l, &good, 0), OK);
    static const int64_t wrong[] = {-1, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ledger_entry late = good, high = good, told = good;
        late.at_ms = told.at_ms = high.fence = wrong[i];
        told.event = EVENT_LOST;
        assert_int_equal(ledger_load(l, &late, 100), ERR_MALFORMED);
        assert_int_equal(ledger_load(l, &told, 100), ERR_MALFORMED);
        assert_int_equal(ledger_load(l, &high, 100), ERR_MALFORMED);
    }
    struct ledger_entry step = good;
    step.event = EVENT_STEP;
    assert_int_equal(ledger_load(l, &step, 100), ERR_MALFORMED);
    step.step = bytes_of(name, sizeof name);
    assert_int_equal(ledger_load(l, &step, 100), ERR_MALFORMED);
    uint8_t each[4];
    for (uint32_t i = 0; i < LEDGER_STEPS_MAX + 1; i++) {
        store_u32(each, i);
        step.step = bytes_of(each, sizeof each);
        assert_int_equal(ledger_load(l, &step, 100), i < LEDGER_STEPS_MAX ? OK : ERR_MALFORMED);
    }
    struct ledger_numbers now;
    ledger_numbers(l, &now);
    assert_int_equal(now.keys, 1);
    assert_int_equal(now.steps, LEDGER_STEPS_MAX);
    ledger_close(l);
}

/* What is in it now, behind what `out` has. */
static bool copy_some(const struct ledger *l, struct ledger_cursor *cursor, uint32_t rows,
                      struct snapshot_counts *counts, struct buf *out)
{
    struct ledger_part part;
    ledger_part_init(&part);
    bool more = ledger_copy(l, cursor, rows, &part);
    counts->rows += part.n_rows;
    counts->steps += part.n_steps;
    assert_int_equal(ledger_part_write(&part, out), OK);
    ledger_part_clear(&part);
    return more;
}

static struct ledger *load(struct buf *saved, const struct snapshot_counts *counts)
{
    struct world w = {.saved = *saved, .now_ms = START, .seed = 1};
    snapshot_end_write(&w.saved, counts->rows, counts->steps);
    ledger_make(&w);
    snapshot_load(&w);
    buf_clear(&w.saved);
    return w.ledger;
}

static enum op_outcome step_of(struct ledger *l, int key, const char *step)
{
    struct op op = op_of(OP_STEP_GET, key, 5);
    op.step = bytes_str(step);
    return run(l, op).outcome;
}

static struct ledger_entry change(struct ledger *l, struct op op)
{
    struct ledger_where where;
    struct ledger_entry entry;
    assert_true(ledger_run(l, BYTES("g"), 0, &op, &where, &entry));
    assert_int_equal(op.outcome, OUT_OK);
    return entry;
}

/* A claim with a step ends for good and nobody says so; the next one begins without. The snapshot
 * is begun before the step and has the second claim: it is read, then the log from its beginning.
 */
static void a_step_of_an_earlier_life_does_not_come_back(void **state)
{
    (void)state;
    struct world w = {.now_ms = START, .seed = 1};
    int64_t positions[1] = {77};
    struct op early = op_of(OP_STEP_PUT, 1, 5), late = op_of(OP_STEP_PUT, 1, 6);
    early.step = BYTES("early");
    late.step = BYTES("late");
    struct ledger_entry log[3];
    ledger_make(&w);
    ledger_begin(w.ledger, START);
    (void)change(w.ledger, op_of(OP_CLAIM, 1, 5));
    log[0] = change(w.ledger, early);
    ledger_keep(w.ledger, positions);
    ledger_begin(w.ledger, START + 600000);
    log[1] = change(w.ledger, op_of(OP_CLAIM, 1, 6));
    assert_int_equal(step_of(w.ledger, 1, "early"), OUT_ABSENT);
    ledger_keep(w.ledger, positions);
    struct snapshot_counts counts = {0};
    struct ledger_cursor cursor = {0};
    struct buf saved = buf_upto(1 << 20);
    while (copy_some(w.ledger, &cursor, 1000, &counts, &saved))
        ;
    ledger_begin(w.ledger, START + 600000);
    log[2] = change(w.ledger, late);
    ledger_keep(w.ledger, positions);
    struct ledger *again = load(&saved, &counts);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(ledger_load(again, &log[i], 77), OK);
    ledger_begin(again, START + 600000);
    assert_int_equal(step_of(again, 1, "early"), OUT_ABSENT);
    assert_int_equal(step_of(again, 1, "late"), OUT_OK);
    ledger_close(again);
    ledger_close(w.ledger);
}

/* A key is copied, swept, and comes again behind where the copying is, since another one has taken
 * its place. */
static void of_a_row_that_was_copied_twice_the_last_copy_counts(void **state)
{
    (void)state;
    struct world w = {.now_ms = START, .seed = 1};
    int64_t positions[1] = {77};
    struct op first = op_of(OP_STEP_PUT, 1, 5), second = op_of(OP_STEP_PUT, 1, 6);
    first.step = BYTES("first");
    second.step = BYTES("second");
    int other = 2;
    while (rows_shard(op_of(OP_CLAIM, other, 5).id) != rows_shard(first.id))
        other++;
    struct snapshot_counts counts = {0};
    struct ledger_cursor cursor = {0};
    struct buf saved = buf_upto(1 << 20);
    ledger_make(&w);
    ledger_begin(w.ledger, START);
    (void)change(w.ledger, op_of(OP_CLAIM, 1, 5));
    (void)change(w.ledger, first);
    ledger_keep(w.ledger, positions);
    assert_true(copy_some(w.ledger, &cursor, 1, &counts, &saved));
    ledger_sweep(w.ledger, START + 600000, 1000);
    ledger_begin(w.ledger, START + 600000);
    (void)change(w.ledger, op_of(OP_CLAIM, other, 5));
    (void)change(w.ledger, op_of(OP_CLAIM, 1, 6));
    (void)change(w.ledger, second);
    ledger_keep(w.ledger, positions);
    while (copy_some(w.ledger, &cursor, 1000, &counts, &saved))
        ;
    assert_int_equal(counts.rows, 2); /* both of the same key */
    struct ledger *again = load(&saved, &counts);
    struct ledger_numbers now;
    ledger_numbers(again, &now);
    assert_int_equal(now.keys, 1);
    assert_int_equal(now.steps, 1);
    ledger_begin(again, START + 600000);
    assert_int_equal(step_of(again, 1, "first"), OUT_ABSENT);
    assert_int_equal(step_of(again, 1, "second"), OUT_OK);
    ledger_close(again);
    ledger_close(w.ledger);
}

/* Else each would be looked for behind all others: minutes instead of a moment. */
static void ids_that_were_chosen_to_collide_do_not(void **state)
{
    (void)state;
    struct ledger *l;
    struct ledger_options options = {UINT32_MAX, GRACE, dice_seed_from_os()};
    assert_int_equal(ledger_open(&options, &l), OK);
    struct ledger_entry e = {.event = EVENT_DONE, .state = ONCE_CONSUMED, .until_ms = INT64_MAX};
    for (uint32_t i = 0; i < 200000; i++) {
        store_u32(e.id + 12, i);
        assert_int_equal(ledger_load(l, &e, 0), OK);
    }
    struct ledger_numbers now;
    ledger_numbers(l, &now);
    assert_int_equal(now.keys, 200000);
    ledger_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_what_a_plain_model_is),
        cmocka_unit_test(a_full_one_refuses_new_keys_until_some_are_over),
        cmocka_unit_test(a_damaged_snapshot_is_told_at_every_byte),
        cmocka_unit_test(entries_that_cannot_be_count_for_nothing),
        cmocka_unit_test(a_step_of_an_earlier_life_does_not_come_back),
        cmocka_unit_test(of_a_row_that_was_copied_twice_the_last_copy_counts),
        cmocka_unit_test(ids_that_were_chosen_to_collide_do_not),
    };
    return cmocka_run_group_tests_name("ledger/ledger", tests, NULL, NULL);
}
