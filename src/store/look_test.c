/* Looking into folders: closed, crashed, open, damaged. */
#include "store/check_rig_test.h"

#define FIRST "commitlog/00000000000000000000"

static struct seen {
    uint64_t numbers[2 * N];
    int64_t offsets[2 * N], positions[2 * N];
    size_t n, stop_at;
} seen;

static bool on_record(void *user, const struct record *r)
{
    (void)user;
    assert_true(seen.n < 2 * N);
    seen.numbers[seen.n] = message_check(r); /* it is whole, and exactly the one that was sent */
    seen.offsets[seen.n] = r->queue_offset;
    seen.positions[seen.n] = r->position;
    return ++seen.n != seen.stop_at;
}

static struct look_summary look(struct house *h, const struct look_request *request)
{
    static const struct look_calls calls = {on_record, on_found, NULL};
    struct look_summary sum = {0};
    struct fault why = {0};
    memset(&found, 0, sizeof found);
    seen.n = 0;
    enum err err = store_look(h->disk, request, &calls, &sum, &why);
    if (err)
        print_error("%s: %s\n", err_text(err), why.text);
    assert_int_equal(err, OK);
    assert_int_equal(sum.records, seen.n);
    assert_int_equal(sum.damages, found.n);
    return sum;
}

static const struct look_request all = {.queue_id = -1};

static void must_see_in_order(uint64_t from, uint64_t to)
{
    assert_int_equal(seen.n, to - from);
    for (size_t i = 0; i < seen.n; i++)
        assert_int_equal(seen.numbers[i], from + i);
}

static void shows_every_message_in_the_order_of_the_log(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    struct look_summary sum = look(&h, &all);
    must_see_in_order(0, N);
    assert_int_equal(sum.damages, 0);
    assert_true(sum.log_files >= 2);
    assert_int_equal(sum.log_first, 0);
    assert_int_equal(sum.log_end, stored[N - 1].position + stored[N - 1].size);

    look(&h, &(struct look_request){.queue_id = -1, .count = 7});
    must_see_in_order(0, 7);
    seen.stop_at = 5;
    look(&h, &all);
    must_see_in_order(0, 5);
    seen.stop_at = 0;
    house_clear(&h);
}

/* A position between two records leads to the next one; that is no damage. */
static void begins_where_it_is_told(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    look(&h, &(struct look_request){.queue_id = -1, .from = stored[400].position});
    must_see_in_order(400, N);
    look(&h, &(struct look_request){.queue_id = -1, .from = stored[400].position + 1});
    must_see_in_order(401, N);
    assert_int_equal(found.n, 0);
    look(&h, &(struct look_request){.queue_id = -1, .from = INT64_MAX});
    assert_int_equal(seen.n, 0);
    house_clear(&h);
}

static size_t count_of(struct bytes topic, int32_t queue_id)
{
    size_t n = 0;
    char name[16];
    for (uint64_t i = 0; i < N; i++)
        n += bytes_equal(message_topic(i, name), topic) &&
             (queue_id < 0 || message_queue(i) == queue_id);
    return n;
}

static void must_see_queue(struct bytes topic, int32_t queue_id, int64_t from)
{
    char name[16];
    assert_int_equal((int64_t)seen.n, (int64_t)count_of(topic, queue_id) - from);
    for (size_t i = 0; i < seen.n; i++) {
        assert_bytes_equal(message_topic(seen.numbers[i], name), topic);
        assert_int_equal(message_queue(seen.numbers[i]), queue_id);
        assert_int_equal(seen.offsets[i], from + (int64_t)i);
    }
}

/* Also when the queue's own files lie, are of another size, or are gone: the log is asked. */
static void shows_one_topic_or_one_queue_from_an_offset(void **state)
{
    (void)state;
    struct house h;
    char name[16];
    house_filled(&h, true);
    struct bytes topic = message_topic(0, name);
    look(&h, &(struct look_request){.topic = topic, .queue_id = -1});
    assert_int_equal(seen.n, count_of(topic, -1));

    struct look_request queue = {.topic = topic, .queue_id = 0, .from = 20};
    look(&h, &queue);
    must_see_queue(topic, 0, 20);
    house_flip(&h, "consumequeue/%T%_0/0/00000000000000000000", 20 * UNIT_SIZE + 5, 1);
    look(&h, &queue);
    must_see_queue(topic, 0, 20);
    house_truncate(&h, "consumequeue/%T%_0/0/00000000000000000000", 20 * UNIT_SIZE + 3);
    look(&h, &queue);
    must_see_queue(topic, 0, 20);
    house_remove(&h, "consumequeue/%T%_0/0/00000000000000000000");
    look(&h, &queue);
    must_see_queue(topic, 0, 20);

    look(&h, &(struct look_request){.topic = BYTES("never/sent"), .queue_id = 0});
    assert_int_equal(seen.n, 0);
    look(&h, &(struct look_request){.topic = topic, .queue_id = 0, .from = INT64_MAX});
    assert_int_equal(seen.n, 0);
    house_clear(&h);
}

/* The owner has it open and locked, its units are in memory, and it goes on appending. */
static void a_store_that_is_open_may_be_looked_at(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    uint64_t end;
    for (uint64_t i = 0; i < 200; i += 25)
        assert_int_equal(house_send(&h, i, 25, stored + i, &end), OK);
    assert_int_equal(look(&h, &all).damages, 0);
    must_see_in_order(0, 200);
    house_must_send(&h, 200, 25);
    look(&h, &all);
    must_see_in_order(0, 225);
    house_dispatch(&h);
    house_must_close(&h);
    house_clear(&h);
}

static void says_where_the_log_is_damaged_and_goes_on(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    char path[64];
    uint64_t into = (uint64_t)stored[300].position % HOUSE_LOG_FILE;
    (void)snprintf(path, sizeof path, "commitlog/%020" PRIu64,
                   (uint64_t)stored[300].position - into);
    house_flip(&h, path, into + 4, 1); /* its magic */
    look(&h, &all);
    assert_int_equal(seen.n, N - 1);
    assert_int_equal(seen.numbers[300], 301);
    assert_int_equal(found.n, 1);
    must_say(CHECK_DAMAGE, path, (int64_t)into, "goes on at");

    house_flip(&h, path, into + 4, 1);
    house_flip(&h, path, into, 0x7f); /* its size is enormous */
    look(&h, &all);
    assert_int_equal(seen.n, N - 1);
    assert_int_equal(found.n, 1);
    house_clear(&h);
}

static void files_that_are_short_or_missing_are_told(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    house_truncate(&h, FIRST, (uint64_t)stored[10].position + 3);
    look(&h, &all);
    assert_int_equal(found.n, 1);
    must_say(CHECK_DAMAGE, FIRST, stored[10].position, "goes on at");
    assert_int_equal(seen.positions[10], HOUSE_LOG_FILE);

    house_remove(&h, "commitlog/00000000000000065536");
    look(&h, &all);
    assert_int_equal(found.n, 1);
    assert_true(seen.positions[10] >= 2 * HOUSE_LOG_FILE);

    house_remove(&h, FIRST); /* the log begins later: that is what age does */
    look(&h, &all);
    assert_int_equal(found.n, 0);
    assert_true(seen.n > 0);
    house_clear(&h);
}

/* A byte of size, magic or CRC of any record: that one is lost, all others are there, and
 * nothing is shown that was not sent (on_record holds each against its number). */
static void a_flipped_byte_costs_its_record_and_no_other(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    struct dice d = test_dice();
    for (int i = 0; i < 100; i++) {
        uint64_t hit = dice_below(&d, N - 1);
        uint64_t at = (uint64_t)stored[hit].position + dice_below(&d, 12);
        uint8_t with = (uint8_t)(1 + dice_below(&d, 127)); /* a CRC has 31 bits */
        char path[64];
        (void)snprintf(path, sizeof path, "commitlog/%020" PRIu64, at - at % HOUSE_LOG_FILE);
        house_flip(&h, path, at % HOUSE_LOG_FILE, with);
        look(&h, &all);
        assert_int_equal(seen.n, N - 1);
        assert_int_equal(seen.numbers[hit], hit + 1);
        assert_int_equal(found.n, 1);
        house_flip(&h, path, at % HOUSE_LOG_FILE, with);
    }
    house_clear(&h);
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    struct house h;
    struct look_summary sum;
    struct fault why = {0};
    static const struct look_calls calls = {on_record, on_found, NULL};
    house_init(&h, 1);
    assert_int_equal(store_look(h.disk, &all, &calls, &sum, &why), ERR_NOT_FOUND);
    assert_non_null(strstr(why.text, "commitlog"));
    struct look_request bad = {.queue_id = 3};
    assert_int_equal(store_look(h.disk, &bad, &calls, &sum, &why), ERR_INVALID);
    bad = (struct look_request){.queue_id = -1, .from = -1};
    assert_int_equal(store_look(h.disk, &bad, &calls, &sum, &why), ERR_INVALID);
    house_clear(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shows_every_message_in_the_order_of_the_log),
        cmocka_unit_test(begins_where_it_is_told),
        cmocka_unit_test(shows_one_topic_or_one_queue_from_an_offset),
        cmocka_unit_test(a_store_that_is_open_may_be_looked_at),
        cmocka_unit_test(says_where_the_log_is_damaged_and_goes_on),
        cmocka_unit_test(files_that_are_short_or_missing_are_told),
        cmocka_unit_test(a_flipped_byte_costs_its_record_and_no_other),
        cmocka_unit_test(refuses_what_makes_no_sense),
    };
    return cmocka_run_group_tests_name("look", tests, NULL, NULL);
}
