/* entry_test.c - what happened in the ledger, as bytes and back. */
#include "ledger/entry.h"

#include "base/test.h"

#define ROUNDS 300
#define MOST   5

struct row {
    struct ledger_entry entries[MOST];
    size_t n, stop_at; /* stops after so many; 0: never */
};

static bool keep(void *user, const struct ledger_entry *e)
{
    struct row *row = user;
    assert_true(row->n < MOST);
    row->entries[row->n++] = *e;
    return row->n != row->stop_at;
}

static size_t write_all(const struct ledger_entry *entries, size_t n, uint8_t **out)
{
    size_t size = 4;
    for (size_t i = 0; i < n; i++)
        size += entry_size(&entries[i]);
    *out = malloc(size);
    struct wr w = wr_over(*out, size);
    entries_begin(&w);
    for (size_t i = 0; i < n; i++)
        entry_write(&w, &entries[i]);
    entries_end(&w, n);
    assert_false(w.full);
    assert_int_equal(wr_len(&w), size); /* entry_size is exact */
    return size;
}

static struct bytes random_text(struct dice *dice, uint8_t *at, size_t max)
{
    struct bytes text = bytes_of(at, (size_t)dice_below(dice, max + 1));
    for (size_t i = 0; i < text.len; i++)
        at[i] = (uint8_t)(1 + dice_below(dice, 255));
    return text;
}

struct texts {
    uint8_t group[255], name[200], topic[255], message[255], step[64], result[5000];
};

static struct ledger_entry random_entry(struct dice *dice, struct texts *texts)
{
    struct ledger_entry e = {
        .event = (uint8_t)(1 + dice_below(dice, EVENT_LAST)),
        .state = (uint8_t)dice_below(dice, 4),
        .flags = (uint16_t)dice_next(dice),
        .token = dice_next(dice),
        .fence = (int64_t)dice_next(dice),
        .until_ms = (int64_t)dice_next(dice),
        .at_ms = (int64_t)dice_next(dice),
        .fingerprint = dice_next(dice),
        .group = random_text(dice, texts->group, sizeof texts->group),
        .name = random_text(dice, texts->name, sizeof texts->name),
        .topic = random_text(dice, texts->topic, sizeof texts->topic),
        .message = random_text(dice, texts->message, sizeof texts->message),
        .step = random_text(dice, texts->step, sizeof texts->step),
        .result = random_text(dice, texts->result, sizeof texts->result),
    };
    for (size_t i = 0; i < sizeof e.id; i++)
        e.id[i] = (uint8_t)dice_next(dice);
    return e;
}

static void assert_same(const struct ledger_entry *a, const struct ledger_entry *b)
{
    assert_int_equal(a->event, b->event);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->flags, b->flags);
    assert_memory_equal(a->id, b->id, sizeof a->id);
    assert_true(a->token == b->token && a->fence == b->fence && a->until_ms == b->until_ms);
    assert_true(a->at_ms == b->at_ms && a->fingerprint == b->fingerprint);
    assert_bytes_equal(a->group, b->group);
    assert_bytes_equal(a->name, b->name);
    assert_bytes_equal(a->topic, b->topic);
    assert_bytes_equal(a->message, b->message);
    assert_bytes_equal(a->step, b->step);
    assert_bytes_equal(a->result, b->result);
}

static void entries_are_read_as_they_were_written(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    static struct texts texts[MOST];
    for (int round = 0; round < ROUNDS; round++) {
        struct ledger_entry sent[MOST];
        size_t n = (size_t)dice_below(&dice, MOST + 1);
        for (size_t i = 0; i < n; i++)
            sent[i] = random_entry(&dice, &texts[i]);
        cleanup(free_at) uint8_t *at = NULL;
        size_t size = write_all(sent, n, &at);
        struct row row = {0};
        assert_int_equal(entries_read(bytes_of(at, size), keep, &row), OK);
        assert_int_equal(row.n, n);
        for (size_t i = 0; i < n; i++)
            assert_same(&row.entries[i], &sent[i]);
        if (n < 2)
            continue;
        row = (struct row){.stop_at = 1};
        assert_int_equal(entries_read(bytes_of(at, size), keep, &row), OK);
        assert_int_equal(row.n, 1);
    }
}

static const struct ledger_entry two[] = {
    {.event = EVENT_CLAIMED, .group = {(const uint8_t *)"g", 1}},
    {.event = EVENT_LOST, .name = {(const uint8_t *)"key", 3}},
};

/* None of a record that cannot be read is told, also not those before what is wrong. */
static void tells_nothing_of_a_record_that_is_cut_or_longer(void **state)
{
    (void)state;
    cleanup(free_at) uint8_t *at = NULL;
    size_t size = write_all(two, 2, &at);
    struct row row = {0};
    for (size_t cut = 0; cut < size; cut++) {
        cleanup(free_at) uint8_t *exact = test_copy(at, cut);
        assert_int_equal(entries_read(bytes_of(exact, cut), keep, &row), ERR_MALFORMED);
    }
    cleanup(free_at) uint8_t *more = calloc(1, size + 1);
    memcpy(more, at, size);
    assert_int_equal(entries_read(bytes_of(more, size + 1), keep, &row), ERR_MALFORMED);
    assert_int_equal(row.n, 0);
}

static void refuses_versions_numbers_and_events_it_does_not_know(void **state)
{
    (void)state;
    cleanup(free_at) uint8_t *at = NULL;
    size_t size = write_all(two, 2, &at), first = 4;
    struct row row = {0};
    at[0] = 2;
    assert_int_equal(entries_read(bytes_of(at, size), keep, &row), ERR_UNSUPPORTED);
    at[0] = 1;
    at[first] = EVENT_LAST + 1;
    assert_int_equal(entries_read(bytes_of(at, size), keep, &row), ERR_MALFORMED);
    at[first] = 0;
    assert_int_equal(entries_read(bytes_of(at, size), keep, &row), ERR_MALFORMED);
    at[first] = EVENT_DONE;
    store_u16(at + 2, LEDGER_ENTRIES_MAX + 1);
    assert_int_equal(entries_read(bytes_of(at, size), keep, &row), ERR_TOO_BIG);
    assert_int_equal(row.n, 0);
}

static void every_event_has_a_word(void **state)
{
    (void)state;
    for (int event = 1; event <= EVENT_LAST; event++)
        assert_non_null(ledger_event_text((uint8_t)event));
    assert_string_equal(ledger_event_text(EVENT_SUPPRESSED), "suppressed");
    assert_null(ledger_event_text(0));
    assert_null(ledger_event_text(EVENT_LAST + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_read_as_they_were_written),
        cmocka_unit_test(tells_nothing_of_a_record_that_is_cut_or_longer),
        cmocka_unit_test(refuses_versions_numbers_and_events_it_does_not_know),
        cmocka_unit_test(every_event_has_a_word),
    };
    return cmocka_run_group_tests_name("ledger/entry", tests, NULL, NULL);
}
