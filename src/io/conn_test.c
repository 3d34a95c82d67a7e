/* Connections: input in every size, output in one piece, and every way to end. What has to do with
 * slow readers is in flow_test.c. */
#include "io/test_int.h"

static struct house house;

static int init(void **state)
{
    (void)state;
    house_init(&house, 1);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    house_close(&house);
    return 0;
}

/* ---- input ---- */

static void echo(int fd, const uint8_t *frame, size_t size)
{
    cleanup(free_at) uint8_t *back = malloc(size);
    client_send(fd, bytes_of(frame, size));
    client_receive(fd, back, size);
    assert_memory_equal(back, frame, size);
}

static void whole_frames_are_answered_and_leave_nothing_behind(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    uint8_t frame[1200];
    for (uint32_t i = 0; i < 100; i++)
        echo(fd, frame, frame_put(frame, VERB_ECHO, 5 + i * 11, i));
    house_stop(&house);
    assert_null(house.last->kept); /* an idle connection owns no memory for bytes */
    assert_null(house.last->out.chunk);
}

static void a_frame_may_come_byte_by_byte(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    uint8_t frame[300], back[300];
    size_t size = frame_put(frame, VERB_ECHO, sizeof frame, 1);
    for (size_t i = 0; i < size; i++)
        client_send(fd, bytes_of(frame + i, 1));
    client_receive(fd, back, size);
    assert_memory_equal(back, frame, size);
    house_stop(&house);
    assert_null(house.last->kept);
}

/* Once the length is known, input is not called again before all of it is there. */
static void input_is_spared_what_it_cannot_use(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    static uint8_t frame[1u << 20];
    size_t size = frame_put(frame, VERB_ECHO, sizeof frame, 1);
    client_send(fd, bytes_of(frame, FRAME_HEAD));
    tally_await(&house.inputs, 1);
    client_send(fd, bytes_of(frame + FRAME_HEAD, size - FRAME_HEAD));
    cleanup(free_at) uint8_t *back = malloc(size);
    client_receive(fd, back, size);
    assert_memory_equal(back, frame, size);
    assert_int_equal(tally_now(&house.inputs), 2);
}

struct kept_look {
    size_t len, size;
};

static void look_at_kept(void *user)
{
    struct kept_look *look = user;
    *look = (struct kept_look){house.last->kept_len, house.last->kept_size};
}

/* Waits until the server has taken in `len` bytes of an unfinished frame. */
static struct kept_look await_kept(size_t len)
{
    struct kept_look look = {0};
    uint64_t until = clock_ns(clock_system()) + AWAIT_MS * 1000000ull;
    while (look.len < len && clock_ns(clock_system()) < until)
        on_loop(house.loops[0], look_at_kept, &look);
    assert_int_equal(look.len, len);
    return look;
}

/* A peer announces 16 MiB and sends ever more of it: the memory follows what has come. */
static void memory_grows_with_what_arrives_not_with_what_is_announced(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    size_t size = (16u << 20) - 12345;
    cleanup(free_at) uint8_t *frame = malloc(size);
    cleanup(free_at) uint8_t *back = malloc(size);
    (void)frame_put(frame, VERB_ECHO, size, 3);

    size_t sent = 0;
    for (size_t upto = 6; upto < size; upto = upto * 3 + 1) {
        client_send(fd, bytes_of(frame + sent, upto - sent));
        sent = upto;
        struct kept_look look = await_kept(sent);
        assert_true(look.size <= (sent < 256 ? 512 : 2 * sent));
        assert_true(look.size <= size);
    }
    client_send(fd, bytes_of(frame + sent, size - sent));
    client_receive(fd, back, size);
    assert_memory_equal(back, frame, size);
    house_stop(&house);
    assert_null(house.last->kept);
}

/* Frames of all sizes in one stream, cut anywhere. */
static void pipelined_frames_may_be_cut_anywhere(void **state)
{
    (void)state;
    house.limits.out_high = SIZE_MAX; /* the client reads only at the end */
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    struct dice dice = test_dice();
    size_t total = 0, room = 3u << 20;
    cleanup(free_at) uint8_t *stream = malloc(room);
    cleanup(free_at) uint8_t *back = malloc(room);
    for (uint32_t i = 0; total + (300u << 10) < room; i++) {
        size_t size =
            dice_below(&dice, 20) == 0 ? dice_below(&dice, 290u << 10) : dice_below(&dice, 3000);
        total += frame_put(stream + total, VERB_ECHO, FRAME_HEAD + size, i);
    }
    for (size_t at = 0; at < total;) {
        size_t piece = 1 + dice_below(&dice, dice_below(&dice, 2) ? 100 : 40000);
        piece = piece > total - at ? total - at : piece;
        client_send(fd, bytes_of(stream + at, piece));
        at += piece;
    }
    client_receive(fd, back, total);
    assert_memory_equal(back, stream, total);
}

static size_t input_never_ends(void *user, struct conn *conn, struct bytes in)
{
    return 0;
}

/* A mistake of ours rather than the peer's, but it must not eat the memory. */
static void input_that_never_says_what_it_needs_is_cut_off(void **state)
{
    (void)state;
    static const struct conn_ops ops = {input_never_ends, house_opened, house_closed};
    house_open(&house);
    listener_close(house.listener);
    house.listener = house_listen(&house, &ops, &house.limits);
    house_run(&house);
    cleanup(close_at) int fd = client_open(&house);
    static const uint8_t zeros[4096];
    for (ssize_t n = 1; n > 0;)
        n = send(fd, zeros, sizeof zeros, MSG_NOSIGNAL);
    tally_await(&house.closed, 1);
    assert_string_equal(house.last_reason, "input without an end");
}

/* ---- output ---- */

#define DATA_SEGS_IN                                                                               \
    38 /* tcpi_data_segs_in of linux/tcp.h; glibc's struct tcp_info ends before it */

static unsigned segments_received(int fd)
{
    uint32_t info[64] = {0};
    socklen_t len = sizeof info;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &len), 0);
    assert_true(len > DATA_SEGS_IN * sizeof info[0]);
    return info[DATA_SEGS_IN];
}

/* Copies and slices leave first, and what comes from the hook behind them: one system call makes
 * one segment on loopback. */
static void all_answers_of_one_turn_leave_together(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    uint8_t requests[1000], back[1000];
    size_t sent = 0, wanted = 0;
    for (uint32_t i = 0; i < 10; i++) {
        sent += frame_put(requests + sent, VERB_ECHO, 20, i);
        sent += frame_put_much(requests + sent, 30);
        sent += frame_put(requests + sent, VERB_DEFER, FRAME_HEAD, 0);
        wanted += 20 + 30 + FRAME_HEAD;
    }
    client_send(fd, bytes_of(requests, sent));
    client_receive(fd, back, wanted);
    assert_int_equal(segments_received(fd), 2);
    assert_memory_equal(back, requests, 20);                                   /* in their order, */
    assert_memory_equal(back + wanted - FRAME_HEAD, "\0\0\0\5\5", FRAME_HEAD); /* the hook's last */
    tally_await(&house.released, 10);
}

static void write_and_stop(void *user)
{
    conn_write(house.last, BYTES("goodbye"));
    loop_stop(house.loops[0]);
}

/* The loop is told to stop in the very turn that wrote something. */
static void what_the_last_turn_wrote_still_leaves(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    tally_await(&house.opened, 1);
    on_loop(house.loops[0], write_and_stop, NULL);
    (void)pthread_join(house.threads[0], NULL);
    house.running = false;
    uint8_t back[7];
    client_receive(fd, back, sizeof back);
    assert_memory_equal(back, "goodbye", sizeof back);
}

/* ---- endings ---- */

/* Its end is seen while most of the answer is still queued: the limit that would stop us from
 * reading on is out of the way. */
static void the_peer_may_close_and_gets_what_it_asked_for_before(void **state)
{
    (void)state;
    house.limits.out_high = SIZE_MAX;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    static uint8_t back[32u << 20];
    uint8_t request[20];
    client_send(fd, bytes_of(request, frame_put_much(request, sizeof back)));
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    tally_await(&house.frames, 1);
    client_receive(fd, back, sizeof back);
    assert_true(client_at_end(fd));
    tally_await(&house.closed, 1);
    assert_string_equal(house.last_reason, "closed by the peer");
    tally_await(&house.released, 1);
}

static void hold_last(void *user);

static void answer_late(void *user)
{
    conn_write(house.last, BYTES("late"));
    conn_drop(house.last);
}

static void look_at_end(void *user)
{
    *(bool *)user = house.last->eof;
}

/* The peer has closed its half, and an answer that somebody holds the connection for is still to
 * come. */
static void the_peer_may_close_its_half_and_is_answered_later(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    tally_await(&house.opened, 1);
    on_loop(house.loops[0], hold_last, NULL);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    bool at_end = false;
    uint64_t until = clock_ns(clock_system()) + AWAIT_MS * 1000000ull;
    while (!at_end && clock_ns(clock_system()) < until)
        on_loop(house.loops[0], look_at_end, &at_end);
    assert_true(at_end);
    assert_int_equal(tally_now(&house.closed), 0);
    on_loop(house.loops[0], answer_late, NULL);
    uint8_t back[4];
    client_receive(fd, back, sizeof back);
    assert_memory_equal(back, "late", sizeof back);
    assert_true(client_at_end(fd));
    tally_await(&house.closed, 1);
    assert_string_equal(house.last_reason, "closed by the peer");
}

/* A one-way request, and the peer is gone with a reset: it was sent, so it counts. */
static void what_came_before_a_reset_is_still_read(void **state)
{
    (void)state;
    house_open(&house);
    int fd = client_open(&house);
    uint8_t frame[100];
    client_send(fd, bytes_of(frame, frame_put(frame, VERB_QUIET, sizeof frame, 1)));
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    (void)close(fd);
    house_run(&house);
    tally_await(&house.closed, 1);
    assert_string_equal(house.last_reason, "reset by the peer");
    assert_int_equal(tally_now(&house.frames), 1);
}

static void closing_inside_input_ends_it_once_and_drops_every_slice(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    uint8_t requests[300];
    size_t sent = frame_put_much(requests, 100000);
    sent += frame_put(requests + sent, VERB_CLOSE, 20, 1);
    sent += frame_put(requests + sent, VERB_ECHO, 20, 2);
    client_send(fd, bytes_of(requests, sent));
    (void)client_at_end(fd);
    tally_await(&house.closed, 1);
    assert_string_equal(house.last_reason, "asked to close");
    house_stop(&house);
    assert_int_equal(house.released.n, 3);
    assert_int_equal(house.closed.n, 1);
    assert_int_equal(house.frames.n, 2); /* not the one behind */
}

static void hold_last(void *user)
{
    conn_hold(house.last);
}

static void drop_last(void *user)
{
    conn_drop(house.last);
}

static void look_at_state(void *user)
{
    *(enum conn_state *)user = house.last->state;
}

/* The peer has sent more than we ever read, and reads nothing before we have written everything.
 * Closing then would make the kernel throw away what is still on its way to the peer. */
static void finishing_loses_nothing_that_was_written(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    tally_await(&house.opened, 1);
    on_loop(house.loops[0], hold_last, NULL);
    static uint8_t junk[4u << 20], back[200u << 10];
    uint8_t requests[40];
    size_t sent = frame_put_much(requests, sizeof back);
    sent += frame_put(requests + sent, VERB_FINISH, 20, 1);
    client_send(fd, bytes_of(requests, sent));
    for (ssize_t n = 1; n > 0;)
        n = send(fd, junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL);

    enum conn_state now = CONN_OPEN;
    uint64_t until = clock_ns(clock_system()) + AWAIT_MS * 1000000ull;
    while (now < CONN_LINGERING && clock_ns(clock_system()) < until)
        on_loop(house.loops[0], look_at_state, &now);
    assert_true(now >= CONN_LINGERING);
    client_receive(fd, back, sizeof back);
    client_receive(fd, back, 20);
    assert_true(client_at_end(fd));
    (void)shutdown(fd, SHUT_WR);
    tally_await(&house.closed, 1);
    assert_string_equal(house.last_reason, "asked to finish");
    on_loop(house.loops[0], drop_last, NULL);
}

/* This one never closes its side; it is not waited for for ever. */
static void finishing_waits_for_the_peer_only_so_long(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    uint8_t frame[20], back[20];
    client_send(fd, bytes_of(frame, frame_put(frame, VERB_FINISH, 20, 1)));
    client_receive(fd, back, 20);
    assert_true(client_at_end(fd));
    tally_await(&house.closed, 1);
    assert_string_equal(house.last_reason, "asked to finish");
}

static void a_refused_connection_is_closed_and_not_announced(void **state)
{
    (void)state;
    house.refuses = true;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    (void)client_at_end(fd);
    house_stop(&house);
    assert_int_equal(house.opened.n, 1);
    assert_int_equal(house.closed.n, 0);
}

/* ---- idleness ---- */

static void look_at_tick(void *user)
{
    *(uint64_t *)user = house.loops[0]->tick_ns;
}

/* Time passes, and the loop has noticed and looked for idle connections. */
static void pass(int64_t ms)
{
    clock_manual_advance(&house.clock, ms);
    uint64_t now = clock_ns(&house.clock.clock), tick = 0;
    uint64_t until = clock_ns(clock_system()) + AWAIT_MS * 1000000ull;
    while (tick < now && clock_ns(clock_system()) < until)
        on_loop(house.loops[0], look_at_tick, &tick);
    assert_int_equal(tick, now);
}

static void open_with_own_clock(uint64_t idle_ms)
{
    house.own_clock = true;
    house.limits.idle_ms = idle_ms;
    house_start(&house);
}

/* The clock is ours: it moves 30 ms at a time, and 100 ms are allowed, with one tick in favour of
 * the accused. */
static void an_idle_connection_is_closed_and_an_active_one_is_not(void **state)
{
    (void)state;
    open_with_own_clock(100);
    cleanup(close_at) int idle = client_open(&house);
    cleanup(close_at) int active = client_open(&house);
    tally_await(&house.opened, 2);

    uint8_t frame[20];
    (void)frame_put(frame, VERB_ECHO, sizeof frame, 1);
    for (int i = 0; i < 3; i++) {
        pass(30);
        echo(active, frame, sizeof frame);
    }
    assert_int_equal(tally_now(&house.closed), 0);
    pass(30);
    tally_await(&house.closed, 1);
    assert_string_equal(house.last_reason, "idle");
    (void)client_at_end(idle);
    for (int i = 0; i < 10; i++) {
        pass(30);
        echo(active, frame, sizeof frame);
    }
    assert_int_equal(tally_now(&house.closed), 1);
}

/* The machine slept for an hour, and a request came meanwhile: it is read before anything else. */
static void a_loop_that_stood_still_reads_before_it_judges(void **state)
{
    (void)state;
    open_with_own_clock(100);
    cleanup(close_at) int fd = client_open(&house);
    tally_await(&house.opened, 1);
    house_stop(&house);
    clock_manual_advance(&house.clock, 3600000);
    uint8_t frame[20], back[20];
    client_send(fd, bytes_of(frame, frame_put(frame, VERB_ECHO, sizeof frame, 1)));
    house_run(&house);
    client_receive(fd, back, sizeof back);
    assert_int_equal(tally_now(&house.closed), 0);
}

static void without_a_limit_nobody_is_idle(void **state)
{
    (void)state;
    open_with_own_clock(100);
    cleanup(close_at) int idle = client_open(&house);
    tally_await(&house.opened, 1);
    static struct io_limits forever = IO_LIMITS_DEFAULT;
    forever.idle_ms = 0;
    house_stop(&house);
    struct listener *second = house_listen(&house, &house_ops, &forever);
    house_run(&house);
    cleanup(close_at) int fd = client_socket();
    client_connect(fd, listener_addr(second));
    tally_await(&house.opened, 2);
    for (int i = 0; i < 20; i++)
        pass(40);
    tally_await(&house.closed, 1);
    uint8_t frame[20];
    echo(fd, frame, frame_put(frame, VERB_ECHO, sizeof frame, 1));
    assert_int_equal(tally_now(&house.closed), 1);
}

/* ---- those who hold ---- */

static void use_after_close(void *user)
{
    invariant(!conn_is_open(house.last));
    conn_write(house.last, BYTES("too late"));
    house_answer_much(&house, house.last, 10);
    conn_finish(house.last, "again");
    conn_close(house.last, "again");
    conn_drop(house.last);
}

static void an_answer_may_come_after_the_connection_is_gone(void **state)
{
    (void)state;
    house_start(&house);
    int fd = client_open(&house);
    tally_await(&house.opened, 1);
    on_loop(house.loops[0], hold_last, NULL);
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    (void)close(fd);
    tally_await(&house.closed, 1);
    on_loop(house.loops[0], use_after_close, NULL);
    assert_int_equal(tally_now(&house.released), 1);
}

static void a_holder_may_outlive_the_loop(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    tally_await(&house.opened, 1);
    on_loop(house.loops[0], hold_last, NULL);
    house_stop(&house);
    loop_close(house.loops[0]);
    house.n = 0;
    assert_int_equal(house.closed.n, 1);
    assert_string_equal(house.last_reason, "shutting down");
    assert_null(conn_loop(house.last));
    use_after_close(NULL);
    assert_int_equal(house.released.n, 1);
}

static void who_is_who(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    tally_await(&house.opened, 1);
    house_stop(&house);
    struct addr mine = sock_name(fd);
    const struct addr *server = listener_addr(house.listener);
    assert_int_equal(conn_peer(house.last)->port, mine.port);
    assert_int_equal(conn_local(house.last)->port, server->port);
    assert_memory_equal(conn_local(house.last)->ip, test_loopback()->ip, 4);
    assert_true(conn_id(house.last) > 0);
    assert_ptr_equal(conn_loop(house.last), house.loops[0]);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, init, finish)
    const struct CMUnitTest tests[] = {
        CASE(whole_frames_are_answered_and_leave_nothing_behind),
        CASE(a_frame_may_come_byte_by_byte),
        CASE(input_is_spared_what_it_cannot_use),
        CASE(memory_grows_with_what_arrives_not_with_what_is_announced),
        CASE(pipelined_frames_may_be_cut_anywhere),
        CASE(input_that_never_says_what_it_needs_is_cut_off),
        CASE(all_answers_of_one_turn_leave_together),
        CASE(what_the_last_turn_wrote_still_leaves),
        CASE(the_peer_may_close_and_gets_what_it_asked_for_before),
        CASE(the_peer_may_close_its_half_and_is_answered_later),
        CASE(what_came_before_a_reset_is_still_read),
        CASE(closing_inside_input_ends_it_once_and_drops_every_slice),
        CASE(finishing_loses_nothing_that_was_written),
        CASE(finishing_waits_for_the_peer_only_so_long),
        CASE(a_refused_connection_is_closed_and_not_announced),
        CASE(an_idle_connection_is_closed_and_an_active_one_is_not),
        CASE(a_loop_that_stood_still_reads_before_it_judges),
        CASE(without_a_limit_nobody_is_idle),
        CASE(an_answer_may_come_after_the_connection_is_gone),
        CASE(a_holder_may_outlive_the_loop),
        CASE(who_is_who),
    };
    return cmocka_run_group_tests_name("conn", tests, NULL, NULL);
}
