/* The index as part of the store: whatever happens to it, what is in the log is found by its key.
 */
#include "store/test_house.h"

#include <stdio.h>

#define SENT 700 /* fills more than two index files of the test house */

static struct house house;

static int setup(void **state)
{
    (void)state;
    house_init(&house, 1);
    house_must_open(&house);
    for (uint64_t n = 0; n < SENT; n += 50)
        house_must_send(&house, n, 50);
    house_dispatch(&house);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    house_clear(&house);
    return 0;
}

/* house_read_all asks for the key of every message. */
static void all_found(void)
{
    assert_int_equal(house_read_all(&house, NULL, SENT), SENT);
}

static size_t find(const char *topic, const char *key, int64_t begin_ms, int64_t end_ms)
{
    struct store_query query = {bytes_str(topic), bytes_str(key), STORE_QUERY_MAX, begin_ms,
                                end_ms};
    struct store_found found;
    assert_int_equal(store_query(house.store, &query, &found), OK);
    return found.n;
}

static void every_message_is_found_by_its_key(void **state)
{
    (void)state;
    all_found();
    char topic[16] = "";
    (void)message_topic(5, topic);
    assert_int_equal(find(topic, "5", 0, INT64_MAX), 1);
    assert_int_equal(find("other", "5", 0, INT64_MAX), 0);
    assert_int_equal(find(topic, "no such key", 0, INT64_MAX), 0);
}

static void a_query_keeps_to_its_time_range(void **state)
{
    (void)state;
    char topic[16] = "";
    (void)message_topic(5, topic);
    int64_t now_ms = clock_ms(&house.clock.clock);
    assert_int_equal(find(topic, "5", now_ms + 3600000, INT64_MAX), 0);
    assert_int_equal(find(topic, "5", 0, now_ms - 3600000), 0);
    assert_int_equal(find(topic, "5", now_ms - 3600000, now_ms + 3600000), 1);
}

#define SHARING 24 /* messages with one key, among others, over several index files */

static struct stored send_sharing(uint64_t n)
{
    struct message_room room;
    struct draft d = house_message(&house, n, &room);
    d.topic = BYTES("Shared");
    d.queue = store_queue(house.store, d.topic, d.queue_id);
    d.props = BYTES("KEYS\1one shared two\2");
    d.marks = n % 2 ? house_marks(&d) : (struct draft_marks){0};
    struct stored out;
    uint64_t end;
    assert_int_equal(store_append(house.store, &d, 1, &out, &end), OK);
    assert_int_equal(out.err, OK);
    house_must_send(&house, n + 1, 59);
    house_dispatch(&house);
    return out;
}

static void check_range(const struct stored *sent, size_t from, size_t to)
{
    struct store_query query = {BYTES("Shared"), BYTES("shared"), STORE_QUERY_MAX,
                                sent[from].store_ms, sent[to].store_ms};
    struct store_found found;
    assert_int_equal(store_query(house.store, &query, &found), OK);
    assert_int_equal(found.n, to - from + 1);
    for (size_t i = from; i <= to; i++)
        assert_int_equal(found.positions[i - from], sent[i].position);
}

/* Every range that begins and ends with a message, both included. An index counts in seconds since
 * its first entry (that is the format), so the messages are whole seconds apart. */
static void a_query_finds_exactly_its_range(void **state)
{
    (void)state;
    struct stored sent[SHARING];
    for (size_t i = 0; i < SHARING; i++) {
        clock_manual_advance(&house.clock, 7000);
        sent[i] = send_sharing(SENT + i * 60);
    }
    for (int start = 0; start < 3; start++) {
        for (size_t from = 0; from < SHARING; from++)
            for (size_t to = from; to < SHARING; to++)
                check_range(sent, from, to);
        if (start == 0)
            house_must_close(&house);
        else
            house_crash(&house);
        house_must_open(&house);
    }
}

static void keys_survive_a_clean_stop(void **state)
{
    (void)state;
    house_must_close(&house);
    house_must_open(&house);
    assert_true(house.report.clean);
    all_found();
}

static void keys_survive_a_crash(void **state)
{
    (void)state;
    house_crash(&house);
    house_must_open(&house);
    assert_false(house.report.clean);
    all_found();
}

static int remove_index_files(struct house *h)
{
    char command[600], folder[512];
    house_path(h, "index", folder);
    (void)snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

/* Derived things may be deleted: they come from the log again. */
static void a_lost_index_is_built_again(void **state)
{
    (void)state;
    house_must_close(&house);
    assert_int_equal(remove_index_files(&house), 0);
    house_must_open(&house);
    all_found();
    house_crash(&house);
    assert_int_equal(remove_index_files(&house), 0);
    house_must_open(&house);
    all_found();
}

static void a_store_without_an_index_says_so(void **state)
{
    (void)state;
    house_must_close(&house);
    house.options.index_slots = 0;
    house_must_open(&house);
    struct store_query query = {.topic = BYTES("T"), .key = BYTES("k"), .max = 1};
    struct store_found found;
    assert_int_equal(store_query(house.store, &query, &found), ERR_UNSUPPORTED);
    all_found();
}

int main(void)
{
#define KEYS(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    struct CMUnitTest tests[] = {
        test_of_row("ST-6", a_query_finds_exactly_its_range),
        KEYS(every_message_is_found_by_its_key),
        KEYS(a_query_keeps_to_its_time_range),
        KEYS(keys_survive_a_clean_stop),
        KEYS(keys_survive_a_crash),
        KEYS(a_lost_index_is_built_again),
        KEYS(a_store_without_an_index_says_so),
    };
    tests[0].setup_func = setup;
    tests[0].teardown_func = teardown;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
