/* The table of dedup alone, held against a simple model: an array of what was added. */
#include "broker/dedup_int.h"

#include "base/test.h"

#define KEYS_MAX     60000
#define BYTES_MOST   24    /* a key, in all */
#define FEW_BYTES    40000 /* what a table with few keys may have beyond that: two chunks */
#define WRAP_SHY     3000  /* numbers before 32 bits are used up */
#define POSITION_SHY (UINT64_C(5) << 48) /* positions do not fit into 48 bits */

struct model {
    struct dedup_table table;
    struct dice dice;
    uint64_t hashes[KEYS_MAX], positions[KEYS_MAX];
    bool voided[KEYS_MAX];
    size_t first, next; /* those alive */
    uint64_t number;    /* of the first one ever */
    uint64_t position;
};

static struct model *model_open(struct dice dice, uint64_t number)
{
    struct model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->dice = dice;
    m->number = number;
    m->position = POSITION_SHY - 100000;
    dedup_table_init(&m->table, KEYS_MAX);
    m->table.first = m->table.next = number;
    return m;
}

static void model_close(struct model *m)
{
    dedup_table_clear(&m->table);
    assert_int_equal(m->table.bytes, 0);
    dedup_table_close(&m->table);
    free(m);
}

/* Few hashes, so that many meet; or any. */
static uint64_t any_hash(struct model *m)
{
    uint64_t few = dice_below(&m->dice, 500), half = dice_below(&m->dice, 2);
    return dice_below(&m->dice, 4) ? dice_next(&m->dice) : half << 60 | few << 20 | few;
}

static void add(struct model *m, size_t n)
{
    n = n < KEYS_MAX - m->next ? n : KEYS_MAX - m->next;
    assert_int_equal(dedup_table_reserve(&m->table, n), OK);
    bool fails = dice_below(&m->dice, 4) == 0;
    for (size_t i = 0; i < n; i++) {
        m->hashes[m->next + i] = any_hash(m);
        assert_int_equal(dedup_table_add(&m->table, m->hashes[m->next + i], i),
                         m->number + m->next + i);
        assert_int_equal(dedup_table_value(&m->table, m->number + m->next + i), i);
    }
    for (size_t i = n; fails && i-- > 0;)
        dedup_table_take_back(&m->table, m->hashes[m->next + i]);
    for (size_t i = 0; !fails && i < n; i++) {
        uint64_t number = m->number + m->next;
        m->position += 1 + dice_below(&m->dice, 1000);
        m->positions[m->next] = m->position;
        m->voided[m->next] = dice_below(&m->dice, 50) == 0;
        if (m->voided[m->next++])
            dedup_table_void(&m->table, number);
        else
            dedup_table_set(&m->table, number, m->position);
    }
}

/* Every key that is alive is found, the newest of its hash first, and at its position. */
static void look(struct model *m, uint64_t hash)
{
    uint64_t at = 0;
    for (size_t i = m->next; i-- > m->first;) {
        if (m->hashes[i] != hash || m->voided[i])
            continue;
        do { /* others of the bucket that have the same mark */
            at = dedup_table_find(&m->table, hash, at);
            assert_true(at >= m->number + i);
        } while (at > m->number + i);
        assert_int_equal(at, m->number + i);
        assert_int_equal(dedup_table_position(&m->table, at), m->positions[i]);
    }
    while ((at = dedup_table_find(&m->table, hash, at)) != 0)
        assert_true(((m->hashes[at - m->number] ^ hash) & UINT64_C(0x3FFFFFFFC00)) == 0 &&
                    m->hashes[at - m->number] != hash);
}

static void forget(struct model *m)
{
    size_t n = m->next - m->first;
    m->first += (size_t)dice_below(&m->dice, dice_below(&m->dice, 8) ? n / 4 + 1 : n + 1);
    dedup_table_forget(&m->table, m->number + m->first);
    dedup_table_tend(&m->table, (size_t)dice_below(&m->dice, 2000));
}

static void play(struct model *m)
{
    while (m->next < KEYS_MAX) {
        size_t most = dice_below(&m->dice, 5) ? 300 : 5000;
        add(m, 1 + (size_t)dice_below(&m->dice, most));
        if (dice_below(&m->dice, 5) == 0)
            forget(m);
        assert_int_equal(dedup_table_count(&m->table), m->next - m->first);
        look(m, any_hash(m));
        if (m->next > m->first)
            look(m, m->hashes[m->first + dice_below(&m->dice, m->next - m->first)]);
    }
}

static void every_key_is_found_until_it_is_forgotten(void **state)
{
    (void)state;
    struct model *m = model_open(test_dice(), 1);
    play(m);
    model_close(m);
}

static void numbers_may_outgrow_their_bits(void **state)
{
    (void)state;
    const int bits[] = {25, 32};
    for (int i = 0; i < 2; i++) {
        struct model *m = model_open(test_dice(), (UINT64_C(1) << bits[i]) - WRAP_SHY);
        play(m);
        model_close(m);
    }
}

static void fits(const struct dedup_table *t)
{
    uint64_t n = dedup_table_count(t);
    assert_true(t->bytes <= BYTES_MOST * n || t->bytes <= 23 * n + FEW_BYTES);
}

/* However many keys there are, and also when they become fewer. */
static void a_key_takes_24_bytes_at_most(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    struct dedup_table t;
    dedup_table_init(&t, 1000000);
    double most = 0;
    for (size_t n = 1; n <= 1000000; n++) {
        assert_int_equal(dedup_table_reserve(&t, 1), OK);
        (void)dedup_table_add(&t, dice_next(&dice), n);
        fits(&t);
        if (n >= 100000 && (double)t.bytes / (double)n > most)
            most = (double)t.bytes / (double)n;
    }
    print_message("# %zu bytes for 1000000 keys, at most %.2f a key\n", t.bytes, most);
    while (dedup_table_count(&t) > 0) {
        uint64_t n = dedup_table_count(&t), fewer = n < 1000 ? n : 1000;
        dedup_table_forget(&t, t.first + fewer);
        dedup_table_tend(&t, 4096);
        fits(&t);
    }
    assert_int_equal(t.bytes, 0);
    dedup_table_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_found_until_it_is_forgotten),
        cmocka_unit_test(numbers_may_outgrow_their_bits),
        cmocka_unit_test(a_key_takes_24_bytes_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
