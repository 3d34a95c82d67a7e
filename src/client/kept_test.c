/* kept_test.c - the file of a retry table: what was kept is found again, whatever cut it short. */
#include "client/producer_int.h"

#include "base/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX (1u << 20)

static char path[] = "/tmp/oncemq-kept-XXXXXX";

static struct kept_record sample(const char *body)
{
    return (struct kept_record){.sys_flag = 1,
                                .flag = 7,
                                .topic = BYTES("T"),
                                .props = BYTES("a\1b\2"),
                                .body = bytes_str(body)};
}

static struct kept *open_well(void)
{
    struct kept *kept;
    struct omq_error why = {0};
    assert_int_equal(kept_open(path, MAX, &kept, &why), OK);
    return kept;
}

static void keep(struct kept *kept, const char *body)
{
    struct kept_record r = sample(body);
    assert_true(kept_add(kept, &r));
}

/* The bodies that wait, one after the other, as one text. */
static void assert_waiting(struct kept *kept, const char *wanted)
{
    char got[256] = "";
    struct buf room = buf_upto(MAX);
    struct kept_record r;
    uint64_t at = 0;
    while (kept_next(kept, &at, &room, &r) == OK) {
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%.*s ", BYTES_ARG(r.body));
        assert_int_equal(r.flag, 7);
        assert_int_equal(r.sys_flag, 1);
        assert_bytes_equal(r.topic, BYTES("T"));
        assert_bytes_equal(r.props, BYTES("a\1b\2"));
        at += r.size;
    }
    buf_clear(&room);
    assert_string_equal(got, wanted);
}

/* Marks the n-th that waits. */
static void mark(struct kept *kept, int n)
{
    struct buf room = buf_upto(MAX);
    struct kept_record r;
    uint64_t at = 0;
    for (int i = 0; i <= n; i++) {
        assert_int_equal(kept_next(kept, &at, &room, &r), OK);
        if (i < n)
            at += r.size;
    }
    kept_sent(kept, at);
    buf_clear(&room);
}

static off_t file_size(void)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    (void)unlink(path);
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
    return 0;
}

static void what_is_kept_is_there_when_it_is_opened_again(void **state)
{
    (void)state;
    struct kept *kept = open_well();
    assert_int_equal(kept_waiting(kept), 0);
    keep(kept, "one");
    keep(kept, "");
    keep(kept, "three");
    mark(kept, 0);
    kept_close(kept);
    kept = open_well();
    assert_int_equal(kept_waiting(kept), 2);
    assert_waiting(kept, " three ");
    mark(kept, 1); /* out of turn */
    assert_waiting(kept, " ");
    keep(kept, "four");
    assert_waiting(kept, " four ");
    mark(kept, 0);
    mark(kept, 0);
    assert_int_equal(kept_waiting(kept), 0);
    assert_int_equal(file_size(), 8); /* nothing is left of what was sent */
    keep(kept, "five");
    assert_waiting(kept, "five ");
    kept_close(kept);
}

/* A crash while the second is written: the first is there, and the file can be written on. */
static void a_torn_end_is_cut_off(void **state)
{
    (void)state;
    struct kept *kept = open_well();
    keep(kept, "one");
    off_t first = file_size();
    keep(kept, "two");
    off_t whole = file_size();
    kept_close(kept);
    for (off_t cut = whole - 1; cut >= first;
         cut--) { /* each round puts a whole one in its place */
        assert_int_equal(truncate(path, cut), 0);
        kept = open_well();
        assert_waiting(kept, "one ");
        keep(kept, "new");
        assert_waiting(kept, "one new ");
        mark(kept, 1);
        assert_int_equal(file_size(), whole);
        kept_close(kept);
    }
    assert_int_equal(truncate(path, 3), 0);
    kept = open_well();
    assert_int_equal(kept_waiting(kept), 0);
    kept_close(kept);
}

static void it_has_a_limit_and_one_owner(void **state)
{
    (void)state;
    struct kept *kept = open_well(), *other;
    struct omq_error why = {0};
    assert_int_equal(kept_open(path, MAX, &other, &why), ERR_BUSY);
    assert_non_null(strstr(why.text, "another"));
    char *big = calloc(1, MAX + 1);
    assert_non_null(big);
    memset(big, 'x', MAX);
    struct kept_record r = sample(big);
    assert_false(kept_add(kept, &r));
    keep(kept, "small");
    assert_waiting(kept, "small ");
    free(big);
    kept_close(kept);
}

static void another_file_is_left_alone(void **state)
{
    (void)state;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs("somebody's diary", f);
    assert_int_equal(fclose(f), 0);
    struct kept *kept;
    struct omq_error why = {0};
    assert_int_equal(kept_open(path, MAX, &kept, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, path));
    assert_int_equal(file_size(), 16);
    assert_int_equal(kept_open("/nowhere/at/all", MAX, &kept, &why), ERR_IO);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_file, remove_file)
    const struct CMUnitTest tests[] = {
        CASE(what_is_kept_is_there_when_it_is_opened_again),
        CASE(a_torn_end_is_cut_off),
        CASE(it_has_a_limit_and_one_owner),
        CASE(another_file_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
