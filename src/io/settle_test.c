/* Settling: what inputs leave for later is done once for all of them, with their bytes still there.
 */
#include "io/test_int.h"

#define GUESTS 3
#define LONG   (100u << 10)

struct noted {
    struct conn *conn;
    struct bytes frame;
};

/* A server that notes its frames, and sends them back when it settles. */
static struct desk {
    struct house house;
    struct noted notes[64];
    size_t n, most;      /* noted now; the most that were settled at once */
    bool seen_unsettled; /* by something that is no input */
} desk;

static size_t desk_input(void *user, struct conn *conn, struct bytes in)
{
    (void)user;
    size_t used = 0;
    while (in.len - used >= FRAME_HEAD) {
        size_t size = load_u32(in.at + used);
        if (in.len - used < size) {
            conn_need(conn, size);
            break;
        }
        invariant(desk.n < sizeof desk.notes / sizeof *desk.notes);
        desk.notes[desk.n++] = (struct noted){conn, bytes_of(in.at + used, size)};
        used += size;
    }
    return used;
}

static void desk_settle(void *user)
{
    (void)user;
    if (desk.n > desk.most)
        desk.most = desk.n;
    for (size_t i = 0; i < desk.n; i++)
        conn_write(desk.notes[i].conn, desk.notes[i].frame);
    desk.n = 0;
}

static void desk_closed(void *user, struct conn *conn, const char *reason)
{
    desk.seen_unsettled |= desk.n > 0;
    house_closed(user, conn, reason);
}

static const struct conn_ops desk_ops = {desk_input, house_opened, desk_closed};

static int desk_open(void **state)
{
    (void)state;
    memset(&desk, 0, sizeof desk);
    house_init(&desk.house, 1);
    assert_int_equal(loop_open(&desk.house.loops[0], clock_system(), &desk.house.log, NULL), OK);
    loop_at_settling(desk.house.loops[0], desk_settle, NULL);
    desk.house.listener = house_listen(&desk.house, &desk_ops, &desk.house.limits);
    return 0;
}

static int desk_close(void **state)
{
    (void)state;
    house_close(&desk.house);
    return 0;
}

/* A frame of that size, with the content of its salt; the caller frees it. */
static uint8_t *frame_of(size_t size, uint32_t salt)
{
    uint8_t *frame = malloc(size);
    assert_non_null(frame);
    (void)frame_put(frame, VERB_ECHO, size, salt);
    return frame;
}

static void assert_comes_back(int fd, const uint8_t *frame, size_t size)
{
    uint8_t *got = malloc(size);
    assert_non_null(got);
    client_receive(fd, got, size);
    assert_memory_equal(got, frame, size);
    free(got);
}

/* The loop begins when all have connected and sent, so one turn reads them all. */
static void connections_that_are_read_in_one_turn_are_settled_once(void **state)
{
    (void)state;
    int fds[GUESTS];
    uint8_t *frames[GUESTS];
    for (uint32_t i = 0; i < GUESTS; i++) {
        fds[i] = client_open(&desk.house);
        frames[i] = frame_of(1000 + i, i);
        client_send(fds[i], bytes_of(frames[i], 1000 + i));
    }
    house_run(&desk.house);
    for (uint32_t i = 0; i < GUESTS; i++) {
        assert_comes_back(fds[i], frames[i], 1000 + i);
        free(frames[i]);
        (void)close(fds[i]);
    }
    house_stop(&desk.house);
    assert_int_equal(desk.most, GUESTS);
}

/* Half of a long frame is kept, and offered from there when the rest is read. */
static void a_frame_that_was_kept_is_there_until_it_is_settled(void **state)
{
    (void)state;
    house_run(&desk.house);
    uint8_t *one = frame_of(LONG, 7), *other = frame_of(LONG, 8);
    int first = client_open(&desk.house), second = client_open(&desk.house);
    client_send(first, bytes_of(one, LONG / 2));
    client_send(second, bytes_of(other, LONG));
    assert_comes_back(second, other, LONG);
    client_send(first, bytes_of(one + LONG / 2, LONG - LONG / 2));
    client_send(second, bytes_of(other, LONG));
    assert_comes_back(first, one, LONG);
    assert_comes_back(second, other, LONG);
    (void)close(first);
    (void)close(second);
    free(one);
    free(other);
}

/* More than the loop's buffer has place for, from all at once, in frames that no read has whole. */
static void bytes_stay_whatever_else_is_read(void **state)
{
    (void)state;
    enum { EACH = 40, SIZE = 9000 };
    int fds[GUESTS];
    uint8_t *frames[GUESTS];
    house_run(&desk.house);
    for (uint32_t i = 0; i < GUESTS; i++) {
        fds[i] = client_open(&desk.house);
        frames[i] = frame_of(SIZE, i);
    }
    for (int round = 0; round < EACH; round++)
        for (uint32_t i = 0; i < GUESTS; i++)
            client_send(fds[i], bytes_of(frames[i], SIZE));
    for (uint32_t i = 0; i < GUESTS; i++) {
        for (int round = 0; round < EACH; round++)
            assert_comes_back(fds[i], frames[i], SIZE);
        (void)close(fds[i]);
        free(frames[i]);
    }
}

static void who_has_sent_its_end_still_gets_its_answer(void **state)
{
    (void)state;
    uint8_t *frame = frame_of(500, 3);
    int fd = client_open(&desk.house);
    client_send(fd, bytes_of(frame, 500));
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    house_run(&desk.house);
    assert_comes_back(fd, frame, 500);
    assert_true(client_at_end(fd));
    tally_await(&desk.house.closed, 1);
    (void)close(fd);
    free(frame);
    house_stop(&desk.house);
    assert_false(desk.seen_unsettled);
}

/* While the loop is held up by a post, a client sends and another post comes: whichever of the two
 * the loop takes first, the post finds nothing unsettled. */
static struct tally held, let_go;

static void hold_up(struct post *post)
{
    (void)post;
    tally_add(&held);
    tally_await(&let_go, 1);
}

static void look_whether_settled(struct post *post)
{
    (void)post;
    desk.seen_unsettled |= desk.n > 0;
    tally_add(&desk.house.drained);
}

static void a_post_finds_it_settled(void **state)
{
    (void)state;
    uint8_t *frame = frame_of(500, 5);
    house_run(&desk.house);
    int fd = client_open(&desk.house);
    client_send(fd, bytes_of(frame, 500));
    assert_comes_back(fd, frame, 500);
    for (unsigned i = 1; i <= 20; i++) {
        tally_init(&held);
        tally_init(&let_go);
        struct post first = {.run = hold_up}, second = {.run = look_whether_settled};
        loop_post(desk.house.loops[0], &first);
        tally_await(&held, 1);
        client_send(fd, bytes_of(frame, 500));
        loop_post(desk.house.loops[0], &second);
        tally_add(&let_go);
        tally_await(&desk.house.drained, i);
        assert_comes_back(fd, frame, 500);
    }
    (void)close(fd);
    free(frame);
    house_stop(&desk.house);
    assert_false(desk.seen_unsettled);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, desk_open, desk_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(connections_that_are_read_in_one_turn_are_settled_once),
        CASE(a_frame_that_was_kept_is_there_until_it_is_settled),
        CASE(bytes_stay_whatever_else_is_read),
        CASE(who_has_sent_its_end_still_gets_its_answer),
        CASE(a_post_finds_it_settled),
    };
    return cmocka_run_group_tests_name("settle", tests, NULL, NULL);
}
