/* dedup_table.c - hash → positions of the log, for as many keys as there are and no longer than
 * they are wanted. dedup_int.h tells how. */
#include "broker/dedup_int.h"

#include "base/reserve.h"

#include <stdlib.h>

#define CHUNK           1024u /* slots or heads */
#define LIST_LEAST      8     /* chunks */
#define POSITION_BITS   48
#define POSITION_MASK   ((UINT64_C(1) << POSITION_BITS) - 1)
#define POSITION_VOID   POSITION_MASK
#define BUCKETS_LEAST   CHUNK
#define BUCKETS_WANTED  2 /* a slot, at least; and at most … */
#define BUCKETS_MOST(n) (2 * (n) + (n) / 4)
#define AHEAD           24 /* buckets, in which slots are fetched before they are split */
static_assert(BUCKETS_LEAST == 1u << DEDUP_HASH_BIT, "slots know the bits that splits go by");

static struct dedup_slot *slot_at(const struct dedup_table *t, uint64_t number)
{
    return &t->slots[(number / CHUNK) & (t->slots_cap - 1)][number % CHUNK];
}

static uint32_t *head_at(const struct dedup_table *t, uint32_t bucket)
{
    return &t->heads[bucket];
}

static bool alive(const struct dedup_table *t, uint64_t number)
{
    return number >= t->first && number < t->next;
}

/* A head has the low bits of a number, whether that slot has an older one behind it, and a tag. Of
 * a slot alone the tag is the upper bits of its hash; of several it is a set, in which each has set
 * one of its bits. So nearly always the head tells without a look at the slots that nothing is to
 * be found. Heads of slots that are gone are renewed (heads_sweep) before their number could seem
 * to be another's. */
#define HEAD_NUMBER ((1u << 25) - 1)
#define HEAD_OLDER  (1u << 25)
#define HEAD_TAG    26
#define TAG_BITS    (32 - HEAD_TAG)
#define SWEEP_SPAN  (1u << 24) /* slots, in which every head is looked at */

static uint32_t tag_alone(uint32_t kept)
{
    return kept >> HEAD_TAG << HEAD_TAG;
}

/* A bit of the set. */
static uint32_t tag_among(uint32_t kept)
{
    return UINT32_C(1) << (HEAD_TAG + ((kept >> HEAD_TAG) * TAG_BITS >> TAG_BITS));
}

static uint64_t slot_before(const struct dedup_table *t, uint64_t number)
{
    uint32_t back = slot_at(t, number)->back;
    return back > 0 && back <= number - t->first ? number - back : 0;
}

static uint64_t head_number(const struct dedup_table *t, uint32_t head)
{
    uint64_t number = t->next - (((uint32_t)t->next - head) & HEAD_NUMBER);
    return alive(t, number) ? number : 0;
}

static uint32_t head_none(const struct dedup_table *t)
{
    return (uint32_t)(t->first - 1) & HEAD_NUMBER;
}

static uint32_t head_of(const struct dedup_table *t, uint64_t number)
{
    if (!number)
        return head_none(t);
    const struct dedup_slot *slot = slot_at(t, number);
    uint32_t head = (uint32_t)number & HEAD_NUMBER;
    if (!slot_before(t, number))
        return head | tag_alone(slot->hash);
    for (uint64_t at = number; at; at = slot_before(t, at))
        head |= tag_among(slot_at(t, at)->hash);
    return head | HEAD_OLDER;
}

/* The head when a slot is added to a bucket that has others. */
static uint32_t head_over(uint32_t head, uint64_t number, uint32_t kept)
{
    uint32_t others = head & HEAD_OLDER ? tag_alone(head) : tag_among(head);
    return ((uint32_t)number & HEAD_NUMBER) | HEAD_OLDER | others | tag_among(kept);
}

/* Whether a chain that begins with this head may have this hash. */
static bool head_may_have(uint32_t head, uint32_t kept)
{
    return head & HEAD_OLDER ? head & tag_among(kept) : tag_alone(head) == tag_alone(kept);
}

/* The highest power of two that is not above n > 0. */
static uint32_t power_below(uint32_t n)
{
    return UINT32_C(1) << (31 - __builtin_clz(n));
}

static uint32_t bucket_among(uint32_t buckets, uint64_t hash)
{
    uint32_t low = power_below(buckets);
    uint32_t bucket = (uint32_t)hash & (2 * low - 1);
    return bucket < buckets ? bucket : bucket & (low - 1);
}

static uint32_t bucket_of(const struct dedup_table *t, uint64_t hash)
{
    return bucket_among(t->buckets, hash);
}

static uint32_t kept_of(uint64_t hash)
{
    return (uint32_t)(hash >> DEDUP_HASH_BIT);
}

/* ---- memory ---- */

void dedup_table_init(struct dedup_table *t, uint64_t max_keys)
{
    uint64_t most = BUCKETS_MOST(max_keys);
    *t = (struct dedup_table){.buckets_most = (uint32_t)(most > CHUNK ? most : CHUNK)};
}

static size_t heads_size(const struct dedup_table *t)
{
    return ((size_t)t->buckets_most + AHEAD + CHUNK) * sizeof *t->heads;
}

/* Whole units below the last bucket. */
size_t dedup_table_full(const struct dedup_table *t)
{
    return t->buckets * sizeof *t->heads / RESERVE_UNIT * RESERVE_UNIT;
}

void dedup_table_close(struct dedup_table *t)
{
    dedup_table_clear(t);
    reserve_close(t->heads, heads_size(t));
    t->heads = NULL;
}

void dedup_table_clear(struct dedup_table *t)
{
    while (t->chunk_first < t->chunk_next)
        free(t->slots[t->chunk_first++ & (t->slots_cap - 1)]);
    free(t->slots);
    if (t->buckets)
        reserve_trim(t->heads, 0, heads_size(t));
    *t = (struct dedup_table){
        .first = t->next,
        .next = t->next,
        .newest = t->newest,
        .heads = t->heads,
        .buckets_most = t->buckets_most,
    };
}

static enum err ring_resize(struct dedup_table *t, size_t cap)
{
    struct dedup_slot **other = malloc(cap * sizeof(struct dedup_slot *));
    if (!other)
        return ERR_NO_MEMORY;
    for (uint64_t c = t->chunk_first; c < t->chunk_next; c++)
        other[c & (cap - 1)] = t->slots[c & (t->slots_cap - 1)];
    free(t->slots);
    t->bytes = t->bytes - t->slots_cap * sizeof *other + cap * sizeof *other;
    t->slots = other;
    t->slots_cap = cap;
    return OK;
}

/* When the ring is four times as long as it needs to be. If there is no memory for a shorter one it
 * stays. */
static void ring_shorten(struct dedup_table *t)
{
    enum err ignored = OK;
    if (t->slots_cap > LIST_LEAST && t->chunk_next - t->chunk_first <= t->slots_cap / 4)
        ignored = ring_resize(t, t->slots_cap / 2);
    (void)ignored;
}

static enum err slots_reserve(struct dedup_table *t, size_t more)
{
    if (t->chunk_first == t->chunk_next)
        t->chunk_first = t->chunk_next = t->next / CHUNK;
    while (t->chunk_next * CHUNK < t->next + more) {
        if (t->chunk_next - t->chunk_first == t->slots_cap) {
            enum err err = ring_resize(t, t->slots_cap ? 2 * t->slots_cap : LIST_LEAST);
            if (err)
                return err;
        }
        struct dedup_slot *chunk = malloc(CHUNK * sizeof *chunk);
        if (!chunk)
            return ERR_NO_MEMORY;
        t->slots[t->chunk_next++ & (t->slots_cap - 1)] = chunk;
        t->bytes += CHUNK * sizeof *chunk;
    }
    return OK;
}

/* Puts the slots of bucket `from` that belong to `into` there, in the order they had. */
static void chain_split(struct dedup_table *t, uint32_t from, uint32_t into)
{
    uint32_t bit = power_below(into) >> DEDUP_HASH_BIT;
    uint64_t top[2] = {0}, last[2] = {0};
    uint64_t next = head_number(t, *head_at(t, from));
    for (uint64_t number; (number = next);) {
        next = slot_before(t, number);
        struct dedup_slot *slot = slot_at(t, number);
        int side = (slot->hash & bit) != 0;
        if (last[side])
            slot_at(t, last[side])->back = (uint32_t)(last[side] - number);
        else
            top[side] = number;
        slot->back = 0;
        last[side] = number;
    }
    *head_at(t, from) = head_of(t, top[0]);
    *head_at(t, into) = head_of(t, top[1]);
}

/* One bucket more. */
static void bucket_split(struct dedup_table *t)
{
    uint32_t made = t->buckets++;
    if (made % CHUNK == 0)
        t->bytes += CHUNK * sizeof *t->heads;
    if (made < BUCKETS_LEAST) {
        *head_at(t, made) = head_none(t);
        return;
    }
    uint32_t from = made - power_below(made);
    uint64_t soon = head_number(t, *head_at(t, from + AHEAD));
    if (soon)
        __builtin_prefetch(slot_at(t, soon), 1);
    chain_split(t, from, made);
}

/* Twice as fast as it must be, since there may be more buckets before it has been round. */
static void heads_sweep(struct dedup_table *t, size_t more)
{
    t->owed += 2 * (uint64_t)more * t->buckets;
    for (; t->owed >= SWEEP_SPAN; t->owed -= SWEEP_SPAN) {
        if (t->hand >= t->buckets)
            t->hand = 0;
        uint32_t *head = head_at(t, t->hand++);
        if (!head_number(t, *head))
            *head = head_none(t);
    }
}

enum err dedup_table_reserve(struct dedup_table *t, size_t more)
{
    if (t->first == 0)
        t->first = t->next = 1; /* no slot has the number 0 */
    if (!t->heads)
        t->heads = reserve_open(heads_size(t));
    if (!t->heads)
        return ERR_NO_MEMORY;
    enum err err = slots_reserve(t, more);
    if (err)
        return err;
    uint64_t wanted = BUCKETS_WANTED * (dedup_table_count(t) + more);
    wanted = wanted > BUCKETS_LEAST ? wanted : BUCKETS_LEAST;
    while (t->buckets < wanted && t->buckets < t->buckets_most)
        bucket_split(t);
    heads_sweep(t, more);
    return OK;
}

/* Chains the slots of both in the order of their numbers. */
static uint32_t chains_merge(struct dedup_table *t, uint64_t a, uint64_t b)
{
    uint64_t top = a > b ? a : b, last = 0;
    while (a || b) {
        uint64_t *newer = a > b ? &a : &b;
        if (last)
            slot_at(t, last)->back = (uint32_t)(last - *newer);
        last = *newer;
        *newer = slot_before(t, last);
    }
    if (last)
        slot_at(t, last)->back = 0;
    return head_of(t, top);
}

static void bucket_merge(struct dedup_table *t)
{
    uint32_t gone = --t->buckets;
    uint32_t *into = head_at(t, gone - power_below(gone));
    *into = chains_merge(t, head_number(t, *into), head_number(t, *head_at(t, gone)));
    if (gone % CHUNK == 0) {
        reserve_trim(t->heads, gone * sizeof *t->heads, heads_size(t));
        t->bytes -= CHUNK * sizeof *t->heads;
    }
}

void dedup_table_tend(struct dedup_table *t, size_t steps)
{
    uint64_t n = dedup_table_count(t);
    if (n == 0) {
        dedup_table_clear(t);
        return;
    }
    uint64_t most = BUCKETS_MOST(n) > BUCKETS_LEAST ? BUCKETS_MOST(n) : BUCKETS_LEAST;
    while (steps-- > 0 && t->buckets > most)
        bucket_merge(t);
    ring_shorten(t);
}

/* ---- slots ---- */

static void slot_put(struct dedup_slot *slot, uint64_t value)
{
    slot->low = (uint32_t)value;
    slot->high = (uint16_t)(value >> 32);
}

uint64_t dedup_table_value(const struct dedup_table *t, uint64_t number)
{
    invariant(alive(t, number));
    const struct dedup_slot *slot = slot_at(t, number);
    return (uint64_t)slot->high << 32 | slot->low;
}

uint64_t dedup_table_position(const struct dedup_table *t, uint64_t number)
{
    return t->newest - ((t->newest - dedup_table_value(t, number)) & POSITION_MASK);
}

void dedup_table_set(struct dedup_table *t, uint64_t number, uint64_t position)
{
    invariant(alive(t, number));
    slot_put(slot_at(t, number), position);
    t->newest = position > t->newest ? position : t->newest;
}

void dedup_table_void(struct dedup_table *t, uint64_t number)
{
    invariant(alive(t, number));
    slot_put(slot_at(t, number), POSITION_VOID);
}

/* `before` is the newest of the bucket until now. */
static uint64_t slot_add(struct dedup_table *t, uint32_t *head, uint64_t before, uint32_t kept,
                         uint64_t value)
{
    invariant(t->next < t->chunk_next * CHUNK); /* dedup_table_reserve made room */
    uint64_t number = t->next++;
    struct dedup_slot *slot = slot_at(t, number);
    *slot = (struct dedup_slot){
        .hash = kept,
        .back = before ? (uint32_t)(number - before) : 0,
    };
    slot_put(slot, value);
    *head = before ? head_over(*head, number, kept)
                   : ((uint32_t)number & HEAD_NUMBER) | tag_alone(kept);
    return number;
}

uint64_t dedup_table_add(struct dedup_table *t, uint64_t hash, uint64_t value)
{
    uint32_t *head = head_at(t, bucket_of(t, hash));
    return slot_add(t, head, head_number(t, *head), kept_of(hash), value);
}

uint64_t dedup_table_add_new(struct dedup_table *t, uint64_t hash, uint64_t value)
{
    uint32_t *head = head_at(t, bucket_of(t, hash)), kept = kept_of(hash);
    uint64_t before = head_number(t, *head);
    bool may_have = before && head_may_have(*head, kept);
    return may_have ? 0 : slot_add(t, head, before, kept, value);
}

void dedup_table_take_back(struct dedup_table *t, uint64_t hash)
{
    invariant(t->next > t->first);
    uint64_t number = t->next - 1, before = slot_before(t, number);
    *head_at(t, bucket_of(t, hash)) = head_of(t, before);
    t->next--;
}

void dedup_table_forget(struct dedup_table *t, uint64_t before)
{
    invariant(before <= t->next);
    if (before <= t->first)
        return;
    t->first = before;
    while (t->chunk_first < t->chunk_next && t->chunk_first < t->first / CHUNK) {
        free(t->slots[t->chunk_first++ & (t->slots_cap - 1)]);
        t->bytes -= CHUNK * sizeof **t->slots;
    }
}

uint64_t dedup_table_find(const struct dedup_table *t, uint64_t hash, uint64_t before)
{
    if (t->first == t->next)
        return 0;
    uint32_t kept = kept_of(hash);
    uint64_t number;
    if (before) {
        number = slot_before(t, before);
    } else {
        uint32_t head = *head_at(t, bucket_of(t, hash));
        number = head_may_have(head, kept) ? head_number(t, head) : 0;
    }
    for (; number; number = slot_before(t, number)) {
        const struct dedup_slot *slot = slot_at(t, number);
        bool is_void = slot->low == UINT32_MAX && slot->high == UINT16_MAX;
        if (slot->hash == kept && !is_void)
            break;
    }
    return number;
}

void dedup_hint_show(struct dedup_hint *hint, const struct dedup_table *t)
{
    if (atomic_load_explicit(&hint->heads, memory_order_relaxed) != t->heads)
        atomic_store_explicit(&hint->heads, t->heads, memory_order_relaxed);
    if (atomic_load_explicit(&hint->buckets, memory_order_relaxed) != t->buckets)
        atomic_store_explicit(&hint->buckets, t->buckets, memory_order_relaxed);
}

void dedup_hint_fetch(const struct dedup_hint *hint, uint64_t hash)
{
    const uint32_t *heads = atomic_load_explicit(&hint->heads, memory_order_relaxed);
    uint32_t buckets = atomic_load_explicit(&hint->buckets, memory_order_relaxed);
    if (heads && buckets)
        __builtin_prefetch(heads + bucket_among(buckets, hash), 1);
}
