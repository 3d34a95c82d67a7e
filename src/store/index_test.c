/* The index: its bytes, what a query finds, files that come and go. Errors and damage:
 * index_damage_test.c; crashes: index_power_test.c. */
#include "store/index_rig_test.h"

#include "base/buf.h"

#include <pthread.h>
#include <time.h>

#define FIRST_NAME "index/20231114221320000" /* RIG_START_MS in UTC */

static void add_text(struct rig *r, uint64_t position, int64_t store_ms, const char *props)
{
    struct record record = {.position = (int64_t)position,
                            .size = 100,
                            .store_ms = store_ms,
                            .topic = BYTES("T"),
                            .props = bytes_str(props)};
    rig_must(r, index_add(r->index, &record, &r->h.why));
}

static struct index_result ask(struct rig *r, const char *key, uint32_t max, int64_t begin_ms,
                               int64_t end_ms)
{
    struct index_query q = {BYTES("T"), bytes_str(key), max, begin_ms, end_ms};
    struct index_result out;
    assert_int_equal(index_query(r->index, &q, &out), OK);
    return out;
}

static void open_empty(struct rig *r, uint32_t slots, uint32_t entries)
{
    rig_init(r, 1, slots, entries);
    rig_must(r, index_open(&r->options, true, UINT64_MAX, &r->index, &r->report, &r->h.why));
}

static void open_again(struct rig *r, bool clean)
{
    rig_must(r, index_open(&r->options, clean, UINT64_MAX, &r->index, &r->report, &r->h.why));
}

/* ---- bytes ---- */

/* The first was seen on the disk of a real broker. The texts of the last two differ and hash alike.
 */
static void hashes_as_java_does(void **state)
{
    (void)state;
    assert_int_equal(index_hash(BYTES("TD"), BYTES("UK-tran")), 785550097);
    assert_int_equal(index_hash(BYTES(""), BYTES("")), '#');
    struct key_topic last = {0};
    uint8_t name[200];
    memset(name, 'n', sizeof name);
    for (size_t i = 0; i < 600; i++) { /* the same topic, another one, too long a one, none */
        struct bytes topic = bytes_of(name + i % 2, i % 5 ? 100 + i % 3 : i % 200);
        assert_int_equal(index_hash_near(&last, topic, BYTES("UK-tran")),
                         index_hash(topic, BYTES("UK-tran")));
    }
    assert_int_equal(index_hash(BYTES("T"), BYTES("Aa")), index_hash(BYTES("T"), BYTES("BB")));

    struct dice dice = test_dice();
    static const char *const parts[] = {
        "a",        "Zz9",           "#", "\xc3\xa9", "\xe6\xa0\x87", "\xf0\x9f\x98\x80", "\xff",
        "\xe6\xa0", "order-created", "%"};
    for (int round = 0; round < 2000; round++) {
        struct buf both = buf_upto(4096);
        size_t topic_len = 0, n = (size_t)dice_below(&dice, 12);
        for (size_t i = 0; i < n; i++) {
            if (i == n / 2) {
                topic_len = both.len;
                buf_add_str(&both, "#");
            }
            buf_add_str(&both, parts[dice_below(&dice, sizeof parts / sizeof *parts)]);
        }
        if (n == 0)
            buf_add_str(&both, "#");
        int32_t java = (int32_t)tags_code(buf_bytes(&both));
        uint32_t wanted = java == INT32_MIN ? 0 : (uint32_t)(java < 0 ? -java : java);
        struct bytes whole = buf_bytes(&both);
        assert_int_equal(
            index_hash(bytes_of(whole.at, topic_len), bytes_from(whole, topic_len + 1)), wanted);
        buf_clear(&both);
    }
}

/* Two records with three keys, byte by byte. T#a is 84*31*31 + 35*31 + 97 = 81906, slot 1 of 5;
 * T#c is 81908, slot 3; T#f is 81911, slot 1 again. */
static void writes_apaches_bytes(void **state)
{
    (void)state;
    struct rig r;
    open_empty(&r, 5, 6);
    add_text(&r, 0x1000, RIG_START_MS, "UNIQ_KEY\1a\2KEYS\1c\2");
    add_text(&r, 0x2000, RIG_START_MS + 5999, "KEYS\1f\2");
    rig_must(&r, index_turn_end(r.index, &r.h.why));
    rig_must_close(&r);

    static const uint8_t wanted[40 + 5 * 4 + 6 * 20] = {
        0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x00, /* begin time */
        0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x7f, 0x6f, /* end time */
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, /* begin position */
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x20, 0x00, /* end position */
        0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x04, /* slots in use, count */
        0,    0,    0,    0,    0,    0,    0,    3,    0,    0, 0,    0, 0,    0,    0,
        2,    0,    0,    0,    0, /* slots */
        0,    0,    0,    0,    0,    0,    0,    0,    0,    0, 0,    0, 0,    0,    0,
        0,    0,    0,    0,    0, /* entry 0 */
        0,    1,    0x3f, 0xf2, 0,    0,    0,    0,    0,    0, 0x10, 0, 0,    0,    0,
        0,    0,    0,    0,    0,    0,    1,    0x3f, 0xf4, 0, 0,    0, 0,    0,    0,
        0x10, 0,    0,    0,    0,    0,    0,    0,    0,    0, 0,    1, 0x3f, 0xf7, 0,
        0,    0,    0,    0,    0,    0x20, 0,    0,    0,    0, 5,    0, 0,    0,    1,
    };
    cleanup(free_at) uint8_t *got = NULL;
    size_t len;
    rig_must(&r, vfs_read_all(r.h.disk, FIRST_NAME, 4096, &got, &len, &r.h.why));
    assert_int_equal(len, sizeof wanted);
    assert_memory_equal(got, wanted, len);
    rig_clear(&r);
}

static void refuses_headers_that_cannot_be(void **state)
{
    (void)state;
    struct index_shape shape = {5, 6};
    struct index_header good = {RIG_START_MS, RIG_START_MS + 1, 10, 20, 3, 4}, got;
    uint8_t bytes[INDEX_HEADER_SIZE];
    index_header_encode(&good, bytes);
    assert_int_equal(index_header_decode(bytes_of(bytes, sizeof bytes), &shape, &got), OK);
    assert_memory_equal(&got, &good, sizeof good);
    for (size_t cut = 0; cut < sizeof bytes; cut++) {
        cleanup(free_at) uint8_t *exact = test_copy(bytes, cut);
        assert_int_equal(index_header_decode(bytes_of(exact, cut), &shape, &got), ERR_MALFORMED);
    }

    struct index_header bad[] = {good, good, good, good, good, good};
    bad[0].count = 7;
    bad[1].slot_count = 6;
    bad[2].begin_position = 21;
    bad[3].end_position = UINT64_MAX;
    bad[4].begin_ms = -1;
    bad[5].end_ms = INT64_MAX;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        index_header_encode(&bad[i], bytes);
        assert_int_equal(index_header_decode(bytes_of(bytes, sizeof bytes), &shape, &got),
                         ERR_DAMAGED);
    }
    good.count = 0; /* Apache's before the first entry */
    index_header_encode(&good, bytes);
    assert_int_equal(index_header_decode(bytes_of(bytes, sizeof bytes), &shape, &got), OK);
    assert_int_equal(got.count, 1);
}

/* ---- queries ---- */

static void finds_each_key_of_a_record(void **state)
{
    (void)state;
    struct rig r;
    open_empty(&r, 100, 100);
    add_text(&r, 0, 1000, "UNIQ_KEY\1u0\2KEYS\1 one  two \2");
    add_text(&r, 100, 1000, "KEYS\1old\2KEYS\1two three\2"); /* the last KEYS counts */
    struct record rolled_back = {.position = 200,
                                 .size = 100,
                                 .sys_flag = SYS_TX_ROLLBACK,
                                 .topic = BYTES("T"),
                                 .props = BYTES("KEYS\1two\2")};
    rig_must(&r, index_add(r.index, &rolled_back, &r.h.why));
    struct record prepared = rolled_back;
    prepared.position = 300;
    prepared.sys_flag = SYS_TX_PREPARED;
    rig_must(&r, index_add(r.index, &prepared, &r.h.why));
    assert_int_equal(ask(&r, "two", 64, 0, INT64_MAX).n, 0); /* the turn has not ended */
    rig_must(&r, index_turn_end(r.index, &r.h.why));
    assert_int_equal(index_next_position(r.index), 400);

    struct index_result two = ask(&r, "two", 64, 0, INT64_MAX);
    assert_int_equal(two.n, 3);
    assert_int_equal(two.positions[0], 0);
    assert_int_equal(two.positions[1], 100);
    assert_int_equal(two.positions[2], 300);
    assert_int_equal(two.end_position, 300);
    assert_int_equal(ask(&r, "one", 64, 0, INT64_MAX).n, 1);
    assert_int_equal(ask(&r, "u0", 64, 0, INT64_MAX).n, 1);
    assert_int_equal(ask(&r, "three", 64, 0, INT64_MAX).n, 1);
    assert_int_equal(ask(&r, "old", 64, 0, INT64_MAX).n, 0);
    assert_int_equal(ask(&r, "", 64, 0, INT64_MAX).n, 0);
    rig_clear(&r);
}

/* Times in a file are whole seconds since its first entry, and a query compares those. */
static void keeps_to_the_time_asked_for(void **state)
{
    (void)state;
    struct rig r;
    open_empty(&r, 10, 100);
    int64_t t = RIG_START_MS;
    for (int i = 0; i < 10; i++)
        add_text(&r, (uint64_t)i * 100, t + (int64_t)i * 1500, "KEYS\1k\2");
    rig_must(&r, index_turn_end(r.index, &r.h.why));
    /* entry times: 0 1 3 4 6 7 9 10 12 13 s */
    assert_int_equal(ask(&r, "k", 64, t, t + 13500).n, 10);
    assert_int_equal(ask(&r, "k", 64, t - 5, t + 20000).n, 10); /* around the file */
    assert_int_equal(ask(&r, "k", 64, t + 3000, t + 7000).n, 4);
    assert_int_equal(ask(&r, "k", 64, t + 3001, t + 6999).n, 2);
    assert_int_equal(ask(&r, "k", 64, t + 5000, t + 4000).n, 0);
    assert_int_equal(ask(&r, "k", 64, t + 13501, INT64_MAX).n, 0); /* behind it */
    assert_int_equal(ask(&r, "k", 64, 0, t - 1).n, 0);
    struct index_result newest = ask(&r, "k", 3, 0, INT64_MAX);
    assert_int_equal(newest.n, 3);
    assert_int_equal(newest.positions[0], 700);
    assert_int_equal(newest.end_ms, t + 13500);
    assert_int_equal(newest.end_position, 900);
    assert_int_equal(ask(&r, "k", 0, 0, INT64_MAX).n, 0);
    rig_clear(&r);
}

static void stops_at_sixty_four_over_several_files(void **state)
{
    (void)state;
    struct rig r;
    open_empty(&r, 3, 20);
    for (uint64_t i = 0; i < 200; i++)
        add_text(&r, i * 100, RIG_START_MS + (int64_t)i * 1000, i % 2 ? "KEYS\1Aa\2" : "KEYS\1x\2");
    rig_must(&r, index_turn_end(r.index, &r.h.why));
    struct index_result got = ask(&r, "BB", 1000, 0, INT64_MAX); /* another key, the same hash */
    assert_int_equal(got.n, 64);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(got.positions[i], (72 + 2 * i + 1) * 100);
    rig_clear(&r);
}

/* Random records and questions, with flushes, clean stops and files removed in between; the plain
 * array of index_rig_test.h says what must be found. */
static void finds_what_a_plain_array_has(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    for (int round = 0; round < 12; round++) {
        struct rig r;
        rig_init(&r, 1, 1 + (uint32_t)dice_below(&dice, 2000),
                 2 + (uint32_t)dice_below(&dice, 900));
        rig_must_open(&r, true);
        for (int step = 0; step < 60; step++) {
            size_t before = r.n;
            for (uint64_t i = dice_below(&dice, 40); i > 0; i--) {
                clock_manual_advance(&r.h.clock, (int64_t)dice_below(&dice, 3000));
                (void)rig_append(&r, &dice);
            }
            if (r.n > before)
                rig_must(&r,
                         rig_redo(&r, r.log[before].position, 1 + (size_t)dice_below(&dice, 9)));
            struct index_flushed flushed;
            if (dice_below(&dice, 4) == 0) {
                rig_must(&r, index_flush(r.index, &flushed, &r.h.why));
                assert_int_equal(flushed.position, index_next_position(r.index));
            }
            if (dice_below(&dice, 6) == 0) {
                rig_must_close(&r);
                rig_must_open(&r, true);
                assert_int_equal(r.report.removed + r.report.dropped, 0);
            }
            if (step % 10 == 9)
                rig_check(&r, &dice, true);
        }
        rig_clear(&r);
    }
}

/* ---- again, and errors ---- */

static void passes_over_what_is_in_already(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    struct rig r;
    rig_init(&r, 1, 50, 30);
    rig_must_open(&r, true);
    for (int i = 0; i < 100; i++)
        (void)rig_append(&r, &dice);
    rig_must(&r, rig_redo(&r, 0, 7));
    rig_must(&r, rig_redo(&r, 0, 5));
    rig_check(&r, &dice, false);
    rig_must_close(&r);
    rig_must_open(&r, true);
    rig_must(&r, rig_redo(&r, 0, 5));
    rig_check(&r, &dice, false);
    rig_clear(&r);
}

/* A log without keys costs no second reading: the header knows how far we looked. */
static void remembers_records_without_keys(void **state)
{
    (void)state;
    for (int clean = 0; clean < 2; clean++) {
        struct rig r;
        open_empty(&r, 10, 10);
        add_text(&r, 0, 1000, "");
        add_text(&r, 5000, 1000, "TAGS\1a\2");
        rig_must(&r, index_turn_end(r.index, &r.h.why));
        struct index_flushed flushed;
        rig_must(&r, index_flush(r.index, &flushed, &r.h.why));
        assert_int_equal(flushed.position, 5100);
        if (clean)
            rig_must_close(&r);
        else
            index_abandon(take(&r.index));
        open_again(&r, clean);
        assert_int_equal(r.report.redo, 5000);
        rig_clear(&r);
    }
}

/* A sync that failed once is never taken for one that worked. */
static void says_so_when_a_sync_failed(void **state)
{
    (void)state;
    struct rig r;
    open_empty(&r, 10, 10);
    add_text(&r, 0, 1000, "KEYS\1a\2");
    rig_must(&r, index_turn_end(r.index, &r.h.why));
    struct index_flushed flushed;
    vfs_fault_plan(r.h.fault, 1, 1, ERR_IO);
    assert_int_equal(index_flush(r.index, &flushed, &r.h.why), ERR_IO);
    assert_int_equal(index_flush(r.index, &flushed, &r.h.why), ERR_IO);
    assert_int_equal(ask(&r, "a", 64, 0, INT64_MAX).n, 1);
    assert_int_equal(index_close(take(&r.index), &r.h.why), ERR_IO);
    rig_clear(&r);
}

/* ---- files ---- */

static void removes_the_oldest_files_only(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    struct rig r;
    rig_init(&r, 1, 50, 11);
    rig_must_open(&r, true);
    for (uint64_t i = 0; i < 35; i++) {
        struct rig_record *rec = rig_append(&r, &dice);
        rec->has_unique = true;
        rec->n_words = 0;
    }
    rig_must(&r, rig_redo(&r, 0, 100));
    struct index_flushed flushed;
    rig_must(&r, index_flush(r.index, &flushed, &r.h.why));
    assert_int_equal(flushed.sealed_ms, RIG_START_MS);
    assert_true(house_has(&r.h, FIRST_NAME));
    rig_must(&r, index_remove_before(r.index, r.log[9].position, &r.h.why));
    assert_int_equal(r.index->n, 4);
    rig_must(&r, index_remove_before(r.index, r.log[9].position + 1, &r.h.why));
    assert_int_equal(r.index->n, 3);
    assert_false(house_has(&r.h, FIRST_NAME));
    rig_must(&r, index_remove_before(r.index, UINT64_MAX, &r.h.why));
    assert_int_equal(r.index->n, 1);

    struct index_query q = {BYTES("Topic"), BYTES("U34"), 64, 0, INT64_MAX};
    struct index_result got;
    rig_must(&r, index_query(r.index, &q, &got));
    assert_int_equal(got.n, 1);
    q.key = BYTES("U20");
    rig_must(&r, index_query(r.index, &q, &got));
    assert_int_equal(got.n, 0);
    rig_must_close(&r);
    rig_must(&r, rig_open(&r, true));
    assert_int_equal(r.report.redo, r.log[34].position);
    rig_clear(&r);
}

/* ---- threads ---- */

struct asking {
    struct rig *r;
    _Atomic bool stop;
    _Atomic uint64_t in;   /* unique keys below are in the index, */
    _Atomic uint64_t gone; /* and those below have left the log again: */
    _Atomic uint64_t gone_position;
    uint64_t asked;
};

/* What has been in once is found in every query from then on. */
static void *ask_thread(void *user)
{
    struct asking *a = user;
    struct dice dice = dice_seeded(77);
    uint64_t asked = 0;
    while (!atomic_load(&a->stop)) {
        uint64_t in = atomic_load(&a->in);
        if (in == 0)
            continue;
        char key[32];
        uint64_t number = dice_below(&dice, in);
        struct index_query q = {BYTES("Topic"), rig_text(key, 'U', number), 64, 0, INT64_MAX};
        struct index_result got;
        invariant(index_query(a->r->index, &q, &got) == OK);
        invariant(got.n >= 1 || number < atomic_load(&a->gone));
        q.key = BYTES("K0"); /* a chain that grows all the time */
        invariant(index_query(a->r->index, &q, &got) == OK);
        for (size_t i = 1; i < got.n; i++)
            invariant(got.positions[i - 1] <= got.positions[i]);
        asked++;
    }
    a->asked = asked;
    return NULL;
}

static void *flush_thread(void *user)
{
    struct asking *a = user;
    uint64_t before = 0;
    while (!atomic_load(&a->stop)) {
        struct index_flushed flushed;
        invariant(index_flush(a->r->index, &flushed, NULL) == OK);
        invariant(flushed.position >= before);
        before = flushed.position;
        uint64_t gone = atomic_load(&a->gone_position);
        invariant(index_remove_before(a->r->index, gone, NULL) == OK);
        struct timespec t = {0, 1000000};
        (void)nanosleep(&t, NULL);
    }
    return NULL;
}

static void answers_while_it_grows(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, 1, 300, 700);
    rig_must_open(&r, true);
    struct asking a[2] = {{.r = &r}, {.r = &r}};
    pthread_t askers[2], flusher;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&askers[i], NULL, ask_thread, &a[i]), 0);
    assert_int_equal(pthread_create(&flusher, NULL, flush_thread, &a[0]), 0);
    struct dice dice = dice_seeded(5);
    for (size_t turn = 0; turn < 600; turn++) {
        for (int i = 0; i < 20; i++) {
            struct rig_record *rec = rig_append(&r, &dice);
            rec->has_unique = true;
            rec->n_words = 1;
            rec->words[0] = (uint32_t)i % 3;
            rig_must(&r, rig_offer(&r, rec));
        }
        rig_must(&r, index_turn_end(r.index, &r.h.why));
        for (int i = 0; i < 2; i++) {
            atomic_store(&a[i].in, r.n);
            atomic_store(&a[i].gone, r.n / 2); /* for both, before it is */
        }
        atomic_store(&a[0].gone_position, r.log[r.n / 2].position);
    }
    for (int i = 0; i < 2; i++)
        atomic_store(&a[i].stop, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(askers[i], NULL), 0);
    assert_int_equal(pthread_join(flusher, NULL), 0);
    assert_true(a[0].asked > 0);
    assert_true(a[1].asked > 0);
    rig_must_close(&r);
    rig_clear(&r);
}

int main(void)
{
    (void)setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_as_java_does),
        cmocka_unit_test(writes_apaches_bytes),
        cmocka_unit_test(refuses_headers_that_cannot_be),
        cmocka_unit_test(finds_each_key_of_a_record),
        cmocka_unit_test(keeps_to_the_time_asked_for),
        cmocka_unit_test(stops_at_sixty_four_over_several_files),
        cmocka_unit_test(finds_what_a_plain_array_has),
        cmocka_unit_test(passes_over_what_is_in_already),
        cmocka_unit_test(remembers_records_without_keys),
        cmocka_unit_test(says_so_when_a_sync_failed),
        cmocka_unit_test(removes_the_oldest_files_only),
        cmocka_unit_test(answers_while_it_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
