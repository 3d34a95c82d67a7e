/* Slow readers and the end of the house: congestion, the limit, draining. */
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

static void receive_much(int fd, uint8_t *into, size_t size)
{
    client_receive(fd, into, size);
    for (size_t i = 0; i < size; i++)
        if (into[i] != (uint8_t)(i * 7))
            assert_int_equal(into[i], (uint8_t)(i * 7));
}

/* Many requests in one small write, each asking for much: input stops in the middle of them, and
 * goes on when the client begins to read, although the client sends nothing more. */
static void a_slow_reader_waits_and_loses_nothing(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    static uint8_t back[300u << 10], requests[100 * 9];
    size_t sent = 0;
    for (int i = 0; i < 100; i++)
        sent += frame_put_much(requests + sent, sizeof back);
    client_send(fd, bytes_of(requests, sent));
    tally_await(&house.congested, 1);
    assert_true(tally_now(&house.frames) < 100);

    for (int i = 0; i < 100; i++)
        receive_much(fd, back, sizeof back);
    tally_await(&house.released, 100);
    assert_int_equal(tally_now(&house.frames), 100);
    assert_int_equal(tally_now(&house.closed), 0);
    house_stop(&house);
    assert_null(house.last->kept);
    assert_int_equal(house.last->out.queued, 0);
}

/* While it waits, it is not read either: the client's own buffers fill up and it has to wait. */
static void who_does_not_read_is_not_read(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    static uint8_t back[1u << 20], request[16u << 10];
    (void)frame_put(request, VERB_ECHO, sizeof request, 1);
    uint8_t much[20];
    for (int i = 0; i < 30; i++)
        client_send(fd, bytes_of(much, frame_put_much(much, sizeof back)));
    tally_await(&house.congested, 1);

    size_t sent = 0; /* until the kernel takes no more for a while */
    struct pollfd writable = {.fd = fd, .events = POLLOUT};
    while (poll(&writable, 1, 300) == 1 && sent < (64u << 20)) {
        ssize_t n = send(fd, request + sent % sizeof request,
                         sizeof request - sent % sizeof request, MSG_DONTWAIT);
        assert_true(n > 0);
        sent += (size_t)n;
    }
    assert_true(sent < (64u << 20));
    assert_true(tally_now(&house.frames) <= 30);
    assert_house_sleeps(&house);
    for (int i = 0; i < 30; i++)
        receive_much(fd, back, sizeof back);
    while (sent % sizeof request != 0) { /* the rest of the last request */
        size_t rest = sizeof request - sent % sizeof request;
        client_send(fd, bytes_of(request + sent % sizeof request, rest));
        sent += rest;
    }
    for (size_t i = 0; i < sent / sizeof request; i++) {
        client_receive(fd, back, sizeof request);
        assert_memory_equal(back, request, sizeof request);
    }
}

/* A server that does not care about congestion runs into the limit. */
static void over_the_limit_it_is_closed_and_every_slice_dropped(void **state)
{
    (void)state;
    house.ignores_congestion = true;
    house.limits.out_high = 100000;
    house.limits.out_max = 20u << 20;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    uint8_t requests[100 * 9];
    size_t sent = 0;
    for (int i = 0; i < 100; i++)
        sent += frame_put_much(requests + sent, 1u << 20);
    client_send(fd, bytes_of(requests, sent));
    tally_await(&house.closed, 1);
    assert_string_equal(house.last_reason, "reads too slowly");
    house_stop(&house);
    assert_int_equal(house.released.n, house.frames.n);
    assert_true(house.frames.n < 100);
}

/* The client dies with much on its way to it. */
static void a_reader_that_dies_in_the_middle_leaves_nothing(void **state)
{
    (void)state;
    house_start(&house);
    int fd = client_open(&house);
    static uint8_t some[100000];
    uint8_t requests[100 * 9];
    size_t sent = 0;
    for (int i = 0; i < 100; i++)
        sent += frame_put_much(requests + sent, 1u << 20);
    client_send(fd, bytes_of(requests, sent));
    client_receive(fd, some, sizeof some);
    tally_await(&house.congested, 1);
    (void)close(fd);
    tally_await(&house.closed, 1);
    house_stop(&house);
    assert_int_equal(house.released.n, house.frames.n);
}

static void one_slow_reader_does_not_hold_up_the_others(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int slow = client_open(&house);
    cleanup(close_at) int quick = client_open(&house);
    uint8_t requests[50 * 9], frame[100], back[100];
    size_t sent = 0;
    for (int i = 0; i < 50; i++)
        sent += frame_put_much(requests + sent, 1u << 20);
    client_send(slow, bytes_of(requests, sent));
    tally_await(&house.congested, 1);
    for (uint32_t i = 0; i < 1000; i++) {
        (void)frame_put(frame, VERB_ECHO, sizeof frame, i);
        client_send(quick, bytes_of(frame, sizeof frame));
        client_receive(quick, back, sizeof back);
        assert_memory_equal(back, frame, sizeof frame);
    }
}

/* ---- draining ---- */

static void drain(void *user)
{
    loop_drain(house.loops[0], house_drained, &house);
}

/* One client has nothing, one has megabytes on their way, one goes on sending, one arrives later.
 */
static void draining_sends_what_is_queued_and_then_closes(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int idle = client_open(&house);
    int sender = client_open(&house);
    cleanup(close_at) int slow = client_open(&house);
    tally_await(&house.opened, 3);
    static uint8_t back[4u << 20];
    uint8_t frame[100], answer[100];
    client_send(slow, bytes_of(frame, frame_put_much(frame, sizeof back)));
    tally_await(&house.congested, 1);

    on_loop(house.loops[0], drain, NULL);
    assert_true(client_at_end(idle));
    client_send(sender, bytes_of(frame, frame_put(frame, VERB_ECHO, sizeof frame, 1)));
    assert_int_equal(recv(sender, answer, sizeof answer, 0), 0); /* nobody reads any more */
    (void)close(sender);

    cleanup(close_at) int late = client_open(&house);
    (void)client_at_end(late);
    assert_int_equal(tally_now(&house.drained), 0);
    receive_much(slow, back, sizeof back);
    assert_true(client_at_end(slow));
    tally_await(&house.drained, 1);
    assert_int_equal(tally_now(&house.closed), 3);
    assert_string_equal(house.last_reason, "draining");
    assert_int_equal(tally_now(&house.released), 1);
}

static void hold_last(void *user)
{
    conn_hold(house.last);
}

static void answer_last_and_let_go(void *user)
{
    invariant(conn_is_open(house.last));
    conn_write(house.last, BYTES("at last"));
    conn_drop(house.last);
}

/* Whoever holds a connection owes it an answer, and it is waited for. */
static void a_held_connection_gets_its_answer_before_the_drain_ends(void **state)
{
    (void)state;
    house_start(&house);
    cleanup(close_at) int fd = client_open(&house);
    tally_await(&house.opened, 1);
    on_loop(house.loops[0], hold_last, NULL);
    on_loop(house.loops[0], hold_last, NULL);
    on_loop(house.loops[0], drain, NULL);

    uint8_t frame[20], back[14];
    client_send(fd, bytes_of(frame, frame_put(frame, VERB_ECHO, sizeof frame, 1))); /* not read */
    on_loop(house.loops[0], answer_last_and_let_go, NULL);
    client_receive(fd, back, 7);
    assert_int_equal(tally_now(&house.closed), 0);
    on_loop(house.loops[0], answer_last_and_let_go, NULL);
    client_receive(fd, back + 7, 7);
    assert_memory_equal(back, "at lastat last", sizeof back);
    assert_true(client_at_end(fd));
    (void)shutdown(fd, SHUT_WR);
    tally_await(&house.drained, 1);
    assert_string_equal(house.last_reason, "draining");
    assert_int_equal(tally_now(&house.frames), 0);
}

/* loop_close in the middle of everything. */
static void closing_leaves_nothing_however_much_is_going_on(void **state)
{
    (void)state;
    house.n = 3;
    house_start(&house);
    int fds[12];
    uint8_t requests[20 * 9], half[100];
    size_t sent = 0;
    for (int i = 0; i < 20; i++)
        sent += frame_put_much(requests + sent, 1u << 20);
    (void)frame_put(half, VERB_ECHO, sizeof half, 1);
    for (int i = 0; i < 12; i++) {
        fds[i] = client_open(&house);
        client_send(fds[i], bytes_of(requests, sent));
        client_send(fds[i], bytes_of(half, 50));
    }
    tally_await(&house.congested, 12);
    unsigned frames;
    house_close(&house);
    frames = house.frames.n;
    house.n = 0;
    assert_int_equal(house.closed.n, 12);
    assert_int_equal(house.released.n, frames);
    for (int i = 0; i < 12; i++)
        (void)close(fds[i]);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, init, finish)
    const struct CMUnitTest tests[] = {
        CASE(a_slow_reader_waits_and_loses_nothing),
        CASE(who_does_not_read_is_not_read),
        CASE(over_the_limit_it_is_closed_and_every_slice_dropped),
        CASE(a_reader_that_dies_in_the_middle_leaves_nothing),
        CASE(one_slow_reader_does_not_hold_up_the_others),
        CASE(draining_sends_what_is_queued_and_then_closes),
        CASE(a_held_connection_gets_its_answer_before_the_drain_ends),
        CASE(closing_leaves_nothing_however_much_is_going_on),
    };
    return cmocka_run_group_tests_name("flow", tests, NULL, NULL);
}
