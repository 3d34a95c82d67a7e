/* ledger.c - the ledger's table: what an operation finds, what it leaves, and how that is taken
 * back.
 *
 * Rows that are touched in a turn are copied first, so that a turn which the log refuses leaves no
 * trace. Nothing is swept while a turn is open: what is taken back finds its row as it left it.
 */
#include "ledger/ledger_int.h"
#include "ledger/text_int.h"

#include "once.h"
#include "once/decide.h"

#include <stdlib.h>

#define LOOK_AT   2    /* rows, for each that is added */
#define LOOK_FULL 4096 /* rows, in a turn that finds the table nearly full */
#define KEEP_MOST 40   /* 2^n ms */
/* How many operations ahead a row is called for. */
#define EXPECT_FAR  8
#define EXPECT_NEAR 4
#define TIME_MOST   (INT64_MAX / 2000)

/* ---- opening ---- */

enum err ledger_open(const struct ledger_options *options, struct ledger **out)
{
    struct ledger *l = calloc(1, sizeof *l);
    if (!l)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < ROWS_SHARDS; i++)
        rows_init(&l->shard[i], options->seed);
    map_init(&l->steps, options->seed);
    map_init(&l->instances, options->seed + 1);
    list_init(&l->ended);
    ledger_tune(l, options->max_keys, options->grace_ms);
    *out = l;
    return OK;
}

static void steps_free(struct ledger_steps *steps)
{
    while (steps && steps->first) {
        struct ledger_step *step = steps->first;
        steps->first = step->next;
        free(step);
    }
    free(steps);
}

void ledger_close(struct ledger *l)
{
    if (!l)
        return;
    void *each;
    for (size_t i = 0; (each = map_next(&l->steps, &i));)
        steps_free(each);
    for (size_t i = 0; (each = map_next(&l->instances, &i));)
        free(each);
    for (size_t i = 0; i < ROWS_SHARDS; i++)
        rows_clear(&l->shard[i]);
    map_clear(&l->steps);
    map_clear(&l->instances);
    free(l->undo);
    free(l);
}

void ledger_tune(struct ledger *l, uint64_t max_keys, int64_t grace_ms)
{
    l->max_keys = max_keys;
    l->grace_ms = grace_ms;
}

void ledger_numbers(const struct ledger *l, struct ledger_numbers *out)
{
    *out = l->counted;
    out->keys = l->n_rows;
    out->steps = l->n_steps;
    out->bytes = l->steps_bytes;
    for (size_t i = 0; i < ROWS_SHARDS; i++)
        out->bytes += rows_bytes(&l->shard[i]);
    out->instances = l->n_there;
}

/* ---- rows and steps ---- */

static struct rows *shard_of(struct ledger *l, const uint8_t *id)
{
    return &l->shard[rows_shard(id)];
}

struct row *ledger_row_need(struct ledger *l, const uint8_t *id)
{
    struct row *row = rows_find(shard_of(l, id), id);
    if (row)
        return row;
    row = rows_add(shard_of(l, id), id);
    l->n_rows += row != NULL;
    return row;
}

static struct ledger_step *step_find(const struct ledger_steps *steps, struct bytes name)
{
    struct ledger_step *step = steps ? steps->first : NULL;
    while (step && !bytes_equal(bytes_of(step->name, step->name_size), name))
        step = step->next;
    return step;
}

static size_t step_bytes(const struct ledger_step *step)
{
    return sizeof *step + step->name_size;
}

static struct ledger_steps *steps_need(struct ledger *l, struct row *row)
{
    struct ledger_steps *steps = map_get(&l->steps, bytes_of(row->id, ROWS_ID_SIZE));
    if (steps)
        return steps;
    steps = calloc(1, sizeof *steps);
    if (!steps)
        return NULL;
    memcpy(steps->id, row->id, ROWS_ID_SIZE);
    if (map_put(&l->steps, bytes_of(steps->id, ROWS_ID_SIZE), steps)) {
        free(steps);
        return NULL;
    }
    row->stepped = true;
    l->steps_bytes += sizeof *steps;
    return steps;
}

enum err ledger_step_add(struct ledger *l, struct row *row, struct bytes name, uint64_t where,
                         struct ledger_step **out)
{
    struct ledger_step *step = malloc(sizeof *step + name.len);
    struct ledger_steps *steps = step ? steps_need(l, row) : NULL;
    if (!steps) {
        free(step);
        return ERR_NO_MEMORY;
    }
    *step = (struct ledger_step){steps->first, where, name.len};
    if (name.len)
        memcpy(step->name, name.at, name.len);
    steps->first = step;
    steps->n++;
    l->n_steps++;
    l->steps_bytes += step_bytes(step);
    *out = step;
    return OK;
}

/* Takes them out of the table; NULL: there are none. */
static struct ledger_steps *steps_detach(struct ledger *l, struct row *row)
{
    if (!row->stepped)
        return NULL;
    row->stepped = false;
    struct ledger_steps *steps = map_remove(&l->steps, bytes_of(row->id, ROWS_ID_SIZE));
    for (const struct ledger_step *s = steps ? steps->first : NULL; s; s = s->next) {
        l->n_steps--;
        l->steps_bytes -= step_bytes(s);
    }
    l->steps_bytes -= steps ? sizeof *steps : 0;
    return steps;
}

void ledger_steps_drop(struct ledger *l, struct row *row)
{
    steps_free(steps_detach(l, row));
}

static void steps_attach(struct ledger *l, struct ledger_steps *steps)
{
    enum err err = map_put(&l->steps, bytes_of(steps->id, ROWS_ID_SIZE), steps);
    invariant(err == OK); /* it stood there a moment ago, and maps do not shrink */
    for (const struct ledger_step *s = steps->first; s; s = s->next) {
        l->n_steps++;
        l->steps_bytes += step_bytes(s);
    }
    l->steps_bytes += sizeof *steps;
}

static void row_drop(struct ledger *l, struct row *row)
{
    invariant(!row->stepped);
    l->floor = row->fence > l->floor ? row->fence : l->floor;
    rows_drop(shard_of(l, row->id), row);
    l->n_rows--;
}

/* ---- time ---- */

/* A claim whose end has passed is its holder's as long as nobody takes it: it stays for the time
 * that its mark would. */
static bool row_is_over(const struct row *row, int64_t now_ms)
{
    if (row->state == ONCE_ABSENT || row->until_ms > now_ms)
        return false;
    unsigned keep = row->flags >> LEDGER_KEEP_SHIFT;
    int64_t past_ms, keep_ms = INT64_C(1) << (keep < KEEP_MOST ? keep : KEEP_MOST);
    return __builtin_sub_overflow(now_ms, row->until_ms, &past_ms) ||
           row->state != ONCE_CONSUMING || past_ms >= keep_ms;
}

static unsigned keep_of(int64_t retention_ms)
{
    unsigned n = 0;
    while (n < KEEP_MOST && INT64_C(1) << n < retention_ms)
        n++;
    return n;
}

/* True: this one and all before it are seen. */
static bool hand_moves(struct ledger *l)
{
    for (uint32_t i = 0; i <= ROWS_SHARDS; i++) {
        if (l->hand_row < l->shard[l->hand_shard].top)
            return true;
        l->hand_row = 0;
        l->hand_shard = (l->hand_shard + 1) % ROWS_SHARDS;
    }
    return false; /* there are no rows */
}

static void rows_look(struct ledger *l, int64_t now_ms, uint32_t n)
{
    for (; n > 0 && hand_moves(l); n--) {
        struct row *row = rows_at(&l->shard[l->hand_shard], l->hand_row++);
        if (!row_is_over(row, now_ms))
            continue;
        ledger_steps_drop(l, row);
        row_drop(l, row);
        l->counted.swept++;
    }
}

static bool instance_is_gone(const struct ledger *l, const struct instance *i, int64_t now_ms)
{
    int64_t since_ms = i ? i->ended_ms : l->since_ms;
    return !(i && i->open) && now_ms - since_ms >= l->grace_ms;
}

void ledger_sweep(struct ledger *l, int64_t now_ms, uint32_t rows)
{
    invariant(l->n_undo == 0);
    uint64_t all = 0;
    for (size_t i = 0; i < ROWS_SHARDS; i++)
        all += l->shard[i].top;
    rows_look(l, now_ms, rows < all ? rows : (uint32_t)all);
    for (struct link *k; (k = list_first(&l->ended));) {
        struct instance *i = list_entry(k, struct instance, by_time);
        if (!instance_is_gone(l, i, now_ms))
            break;
        list_remove(&i->by_time);
        (void)map_remove(&l->instances, bytes_of(i->key, sizeof i->key));
        l->met = NULL;
        free(i);
    }
}

/* ---- presence ---- */

void ledger_begins(struct ledger *l, int64_t now_ms)
{
    l->since_ms = now_ms;
}

static struct instance *instance_find(struct ledger *l, uint32_t instance)
{
    uint8_t key[4];
    store_u32(key, instance);
    if (l->met && memcmp(l->met->key, key, sizeof key) == 0)
        return l->met;
    struct instance *i = map_get(&l->instances, bytes_of(key, sizeof key));
    if (i)
        l->met = i;
    return i;
}

static void instance_name(struct instance *i, struct bytes name)
{
    i->name_size = name.len < LEDGER_CLIENT_MAX ? name.len : LEDGER_CLIENT_MAX;
    for (size_t k = 0; k < i->name_size; k++)
        i->name[k] = name.at[k] >= ' ' && name.at[k] < 0x7f ? name.at[k] : '?';
}

enum err ledger_present(struct ledger *l, uint32_t instance, struct bytes name, int64_t now_ms)
{
    struct instance *i = instance_find(l, instance);
    if (!i) {
        if (l->instances.n >= LEDGER_INSTANCES_MAX)
            ledger_sweep(l, now_ms, 0);
        if (l->instances.n >= LEDGER_INSTANCES_MAX)
            return ERR_BUSY;
        i = calloc(1, sizeof *i);
        if (!i)
            return ERR_NO_MEMORY;
        store_u32(i->key, instance);
        if (map_put(&l->instances, bytes_of(i->key, sizeof i->key), i)) {
            free(i);
            return ERR_NO_MEMORY;
        }
    }
    instance_name(i, name);
    list_remove(&i->by_time);
    l->n_there += i->open++ == 0;
    return OK;
}

void ledger_absent(struct ledger *l, uint32_t instance, int64_t now_ms)
{
    struct instance *i = instance_find(l, instance);
    invariant(i && i->open > 0);
    if (--i->open > 0)
        return;
    l->n_there--;
    i->ended_ms = now_ms;
    list_add_tail(&l->ended, &i->by_time);
}

static const struct instance *instance_of(struct ledger *l, uint64_t token)
{
    return l->instances.n ? instance_find(l, (uint32_t)(token >> 32)) : NULL;
}

static bool is_there(struct ledger *l, uint64_t token)
{
    const struct instance *i = instance_of(l, token);
    return i && !instance_is_gone(l, i, l->now_ms);
}

/* Only what was watched can be missed. */
static bool owner_is_gone(struct ledger *l, const struct row *row)
{
    return row && row->state == ONCE_CONSUMING && row->flags & LEDGER_WATCHED &&
           instance_is_gone(l, instance_of(l, row->token), l->now_ms);
}

/* ---- a turn ---- */

void ledger_begin(struct ledger *l, int64_t now_ms)
{
    invariant(l->n_undo == 0);
    l->now_ms = now_ms;
    rows_look(l, now_ms, l->owed);
    l->owed = 0;
    if (l->n_rows + l->n_steps >= l->max_keys - l->max_keys / 16)
        rows_look(l, now_ms, LOOK_FULL);
    l->counted_before = l->counted;
}

/* What the row is now; NULL: no memory. It is filled in before anything else can fail. */
static struct undo *undo_add(struct ledger *l, const uint8_t *id, const struct row *row)
{
    if (l->n_undo == l->cap_undo) {
        size_t cap = l->cap_undo ? 2 * l->cap_undo : 256;
        struct undo *more = realloc(l->undo, cap * sizeof *more);
        if (!more)
            return NULL;
        l->undo = more;
        l->cap_undo = cap;
    }
    struct undo *u = &l->undo[l->n_undo++];
    *u = (struct undo){.before.state = ONCE_ABSENT};
    if (row)
        u->before = *row;
    memcpy(u->before.id, id, ROWS_ID_SIZE);
    return u;
}

static void undo_one(struct ledger *l, struct undo *u)
{
    struct row *row = rows_find(shard_of(l, u->before.id), u->before.id);
    if (u->added) {
        struct ledger_steps *steps = row ? steps_detach(l, row) : NULL;
        invariant(steps && steps->first == u->added);
        steps->first = u->added->next;
        steps->n--;
        free(u->added);
        if (u->before.stepped)
            steps_attach(l, steps);
        else
            steps_free(steps);
    }
    if (u->dropped)
        steps_attach(l, u->dropped);
    if (u->before.state == ONCE_ABSENT) {
        if (row) {
            row->stepped = false;
            row_drop(l, row);
        }
        return;
    }
    if (!row) {
        row = rows_add(shard_of(l, u->before.id), u->before.id);
        invariant(row); /* there is the room that it has just left */
        l->n_rows++;
    }
    *row = u->before;
}

void ledger_undo(struct ledger *l)
{
    while (l->n_undo > 0)
        undo_one(l, &l->undo[--l->n_undo]);
    l->counted = l->counted_before;
}

static uint64_t settled(uint64_t where, const int64_t *positions)
{
    return where & LEDGER_PENDING ? (uint64_t)positions[where & ~LEDGER_PENDING] + 1 : where;
}

void ledger_keep(struct ledger *l, const int64_t *positions)
{
    for (size_t i = 0; i < l->n_undo; i++) {
        struct undo *u = &l->undo[i];
        steps_free(u->dropped);
        if (!u->pending)
            continue;
        struct row *row = rows_find(shard_of(l, u->before.id), u->before.id);
        if (!row)
            continue;
        row->where = settled(row->where, positions);
        const struct ledger_steps *steps =
            row->stepped ? map_get(&l->steps, bytes_of(row->id, ROWS_ID_SIZE)) : NULL;
        for (struct ledger_step *s = steps ? steps->first : NULL; s; s = s->next)
            s->where = settled(s->where, positions);
    }
    l->n_undo = 0;
}

/* ---- operations ---- */

static void failed(struct op *op, enum err err, const char *text)
{
    op->outcome = OUT_FAILED;
    (void)fault_set(&op->why, err, "%s", text);
}

/* Whatever a stranger may ask that libonce never does. */
static bool op_is_sound(struct op *op)
{
    bool by_token = op->kind != OP_LOOK && op->kind != OP_FORGET && op->kind != OP_STEP_GET;
    /* A renewal may end a claim now without freeing it: whoever comes next hears of this run. */
    int64_t least_ms = op->kind == OP_CLAIM ? 1 : op->kind == OP_RENEW ? 0 : INT64_MIN;
    bool has_step = op->kind == OP_STEP_GET || op->kind == OP_STEP_PUT;
    if (by_token && op->token == 0)
        failed(op, ERR_INVALID, "a token is never 0");
    else if (op->expiry_ms < least_ms)
        failed(op, ERR_INVALID, "a claim ends later than now: the expiry must be above 0");
    else if (op->retention_ms < 0)
        failed(op, ERR_INVALID, "the retention must not be below 0");
    else if (has_step && op->step.len == 0)
        failed(op, ERR_INVALID, "a step has a name");
    else if (op->kind >= OP_SWEEP)
        failed(op, ERR_UNSUPPORTED, "not an operation of the ledger");
    else
        return true;
    return false;
}

static void entry_of(struct ledger_entry *e, struct ledger *l, struct bytes group,
                     const struct op *op, enum ledger_event event)
{
    const struct instance *who = instance_of(l, op->token);
    *e = (struct ledger_entry){
        .event = (uint8_t)event,
        .token = op->token,
        .at_ms = l->now_ms,
        .group = group,
        .client = who ? bytes_of(who->name, who->name_size) : (struct bytes){0},
        .name = text_cut(bytes_str(op->name), ONCE_NAME_MAX),
        .topic = text_cut(bytes_str(op->topic), LEDGER_TEXT_MAX),
        .message = text_cut(bytes_str(op->message), LEDGER_TEXT_MAX),
        .step = op->kind == OP_STEP_PUT ? op->step : (struct bytes){0},
    };
    memcpy(e->id, op->id, sizeof e->id);
}

/* What the operation found and did not change: a claim that found it done, a token that has it no
 * more. True: that is worth an entry. */
static bool tell(struct ledger *l, const struct op *op, uint64_t mine, enum ledger_event *event)
{
    if (op->kind == OP_CLAIM && op->outcome == OUT_BUSY) {
        l->counted.busy++;
        return false;
    }
    if (op->kind == OP_CLAIM && op->outcome == OUT_DONE) {
        bool other = mine && op->fingerprint && mine != op->fingerprint;
        *(other ? &l->counted.refused : &l->counted.suppressed) += 1;
        *event = other ? EVENT_REFUSED : EVENT_SUPPRESSED;
        return true;
    }
    if (op->outcome != OUT_LOST)
        return false;
    *(op->kind == OP_FINISH ? &l->counted.lost : &l->counted.stale) += 1;
    *event = EVENT_LOST;
    return true;
}

static bool has_room(struct ledger *l, struct op *op)
{
    if (l->n_rows + l->n_steps < l->max_keys)
        return true;
    l->counted.full++;
    op->outcome = OUT_FAILED;
    (void)fault_set(&op->why, ERR_BUSY,
                    "the ledger is full: %llu keys and steps (onceMaxKeys); wait until some are "
                    "over, shorten their retention, or raise it",
                    (unsigned long long)l->max_keys);
    return false;
}

static enum ledger_event event_of(const struct op *op, bool again)
{
    switch (op->kind) {
    case OP_CLAIM:
        return again ? EVENT_RENEWED : EVENT_CLAIMED;
    case OP_RENEW:
        return EVENT_RENEWED;
    case OP_FINISH:
        return EVENT_DONE;
    case OP_RELEASE:
        return op->forget ? EVENT_FORGOTTEN : EVENT_RELEASED;
    default:
        return EVENT_FORGOTTEN;
    }
}

/* The flags of the entry; those of the row are among them. */
static uint16_t flags_of(struct ledger *l, const struct op *op, const struct row *row, bool again,
                         bool gone)
{
    if (op->kind == OP_RENEW)
        return row->flags;
    if (op->kind != OP_CLAIM)
        return 0;
    uint16_t flags = (uint16_t)(keep_of(op->retention_ms) << LEDGER_KEEP_SHIFT);
    flags |= is_there(l, op->token) ? LEDGER_WATCHED : 0;
    if (again)
        return flags;
    l->counted.claims++;
    if (op->state != ONCE_CONSUMING)
        return flags;
    bool early = gone && row->until_ms > l->now_ms;
    *(early ? &l->counted.freed : &l->counted.expired) += 1;
    return flags | LEDGER_OVERTOOK | (early ? LEDGER_OWNER_GONE : 0);
}

/* The row becomes what was decided. False: no memory, nothing happened. */
static bool row_change(struct ledger *l, struct row *row, uint32_t record, const struct op *op,
                       const struct stored *after, uint16_t flags)
{
    struct undo *u = undo_add(l, op->id, row);
    if (u && !row) {
        row = ledger_row_need(l, op->id);
        l->owed += LOOK_AT;
    }
    if (!u || !row) {
        l->n_undo -= u != NULL;
        return false;
    }
    if (after->state == ONCE_ABSENT || after->state == ONCE_CONSUMED)
        u->dropped = steps_detach(l, row); /* nobody will ask for them any more */
    if (after->state == ONCE_ABSENT) {
        row_drop(l, row);
        return true;
    }
    row->state = (uint8_t)after->state;
    row->token = after->token;
    row->fence = after->fence;
    row->until_ms = after->until_ms;
    row->fingerprint = after->fingerprint;
    row->flags = flags & ROW_FLAGS;
    u->pending = op->kind == OP_FINISH && op->result.len > 0;
    row->where = u->pending ? LEDGER_PENDING | record : 0;
    return true;
}

static bool step_run(struct ledger *l, uint32_t record, struct op *op, struct row *row,
                     struct ledger_where *where, enum ledger_event *event)
{
    const struct ledger_steps *steps = map_get(&l->steps, bytes_of(op->id, ROWS_ID_SIZE));
    const struct ledger_step *step = step_find(steps, op->step);
    op->outcome = OUT_ABSENT;
    if (op->kind == OP_STEP_GET) {
        if (step) {
            op->outcome = OUT_OK;
            where->at = step->where;
        }
        return false;
    }
    op->outcome = OUT_LOST;
    if (!row || row->state != ONCE_CONSUMING || row->token != op->token)
        return tell(l, op, 0, event);
    op->outcome = OUT_OK;
    if (step || !has_room(l, op)) /* what is there stays as it is */
        return false;
    if (steps && steps->n == LEDGER_STEPS_MAX) {
        failed(op, ERR_TOO_BIG, "a key has at most 1024 steps");
        return false;
    }
    struct undo *u = undo_add(l, op->id, row);
    if (!u || ledger_step_add(l, row, op->step, LEDGER_PENDING | record, &u->added)) {
        l->n_undo -= u != NULL;
        failed(op, ERR_NO_MEMORY, "out of memory");
        return false;
    }
    u->pending = true;
    *event = EVENT_STEP;
    return true;
}

static void entry_state(struct ledger_entry *e, const struct stored *s, uint16_t flags)
{
    e->state = (uint8_t)s->state;
    e->flags = flags;
    e->fence = s->fence;
    e->until_ms = s->until_ms;
    e->fingerprint = s->fingerprint;
}

static struct stored stored_of(const struct row *row)
{
    if (!row)
        return (struct stored){.state = ONCE_ABSENT};
    return (struct stored){row->state, row->token, row->fence, row->until_ms, row->fingerprint};
}

/* What is over counts as gone, swept or not. NULL: it has none now, or there is no memory. */
static struct row *row_now(struct ledger *l, const uint8_t *id)
{
    struct row *row = rows_find(shard_of(l, id), id);
    struct undo *u = row && row_is_over(row, l->now_ms) ? undo_add(l, id, row) : NULL;
    if (!u)
        return row;
    u->dropped = steps_detach(l, row);
    row_drop(l, row);
    return NULL;
}

void ledger_expect(struct ledger *l, const struct op *ops, size_t n, size_t at)
{
    if (at + EXPECT_FAR < n) {
        const uint8_t *id = ops[at + EXPECT_FAR].id;
        rows_expect(shard_of(l, id), id, true);
    }
    if (at + EXPECT_NEAR < n) {
        const uint8_t *id = ops[at + EXPECT_NEAR].id;
        rows_expect(shard_of(l, id), id, false);
    }
}

bool ledger_run(struct ledger *l, struct bytes group, uint32_t record, struct op *op,
                struct ledger_where *where, struct ledger_entry *entry)
{
    *where = (struct ledger_where){0};
    if (!op_is_sound(op))
        return false;
    struct row *row = row_now(l, op->id);
    struct stored before = stored_of(row), after;
    enum ledger_event event = EVENT_STEP;
    if (op->kind == OP_STEP_GET || op->kind == OP_STEP_PUT) {
        if (!step_run(l, record, op, row, where, &event))
            return false;
        entry_of(entry, l, group, op, event);
        entry_state(entry, &before, row ? row->flags & ROW_FLAGS : 0);
        entry->result = event == EVENT_STEP ? op->result : (struct bytes){0};
        return true;
    }
    uint64_t mine = op->fingerprint;
    bool gone = op->kind == OP_CLAIM && owner_is_gone(l, row);
    op->takeover = true; /* a claim whose owner is gone is free for whoever asks */
    if (!decide(&before, l->now_ms, gone, op, &after)) {
        if (op->outcome == OUT_DONE)
            where->at = row->where;
        if (!tell(l, op, mine, &event))
            return false;
        entry_of(entry, l, group, op, event);
        entry_state(entry, &before, 0);
        if (op->kind == OP_CLAIM)
            entry->fingerprint = mine;
        return true;
    }
    if (!row && !has_room(l, op))
        return false;
    if (op->kind == OP_CLAIM && !row && after.fence <= l->floor)
        after.fence = op->fence = l->floor + 1; /* it was forgotten in this very millisecond */
    bool again =
        op->kind == OP_CLAIM && before.state == ONCE_CONSUMING && before.token == op->token;
    uint16_t flags = flags_of(l, op, row, again, gone);
    if (!row_change(l, row, record, op, &after, flags)) {
        failed(op, ERR_NO_MEMORY, "out of memory");
        return false;
    }
    entry_of(entry, l, group, op, event_of(op, again));
    entry_state(entry, &after, flags);
    if (after.state == ONCE_ABSENT)
        entry->fence = before.fence; /* that of the next one is higher, also after a start */
    if (op->kind == OP_FINISH)
        entry->result = op->result;
    return true;
}

/* ---- at a start ---- */

/* The topic may be another broker's, whom anybody may have sent it: such a number would never grow
 * again, and such a name would be in no snapshot. */
static bool entry_can_be(const struct ledger_entry *e)
{
    bool step = e->event != EVENT_STEP || (e->step.len > 0 && e->step.len <= ONCE_STEP_MAX);
    return step && e->state <= ONCE_RELEASED && e->at_ms >= 0 && e->at_ms <= TIME_MOST &&
           e->fence >= 0 && e->fence <= TIME_MOST * 1000;
}

static enum err step_load(struct ledger *l, struct row *row, const struct ledger_entry *e,
                          int64_t position)
{
    const struct ledger_steps *steps = map_get(&l->steps, bytes_of(e->id, ROWS_ID_SIZE));
    struct ledger_step *step = step_find(steps, e->step);
    if (!row || step || e->fence < row->fence) /* the snapshot is ahead: it has it, or it is over */
        return OK;
    if (steps && steps->n == LEDGER_STEPS_MAX)
        return ERR_MALFORMED;
    return ledger_step_add(l, row, e->step, (uint64_t)position + 1, &step);
}

enum err ledger_load(struct ledger *l, const struct ledger_entry *e, int64_t position)
{
    if (!entry_can_be(e) || position < 0)
        return ERR_MALFORMED;
    if (e->event >= EVENT_SUPPRESSED)
        return OK;
    struct row *row = rows_find(shard_of(l, e->id), e->id);
    if (e->event == EVENT_STEP)
        return step_load(l, row, e, position);
    bool anew = e->event == EVENT_CLAIMED && row && row_is_over(row, e->at_ms);
    if (row && (e->state == ONCE_ABSENT || e->state == ONCE_CONSUMED || anew))
        ledger_steps_drop(l, row);
    if (e->state == ONCE_ABSENT) {
        if (row)
            row_drop(l, row);
        l->floor = e->fence > l->floor ? e->fence : l->floor;
        return OK;
    }
    row = row ? row : ledger_row_need(l, e->id);
    if (!row)
        return ERR_NO_MEMORY;
    row->state = e->state;
    row->token = e->token;
    row->fence = e->fence;
    row->until_ms = e->until_ms;
    row->fingerprint = e->fingerprint;
    row->flags = e->flags & ROW_FLAGS;
    row->where = e->event == EVENT_DONE && e->result.len > 0 ? (uint64_t)position + 1 : 0;
    return OK;
}
