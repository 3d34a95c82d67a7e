/* Dials: connected, lost, connected again. The other side is a listener made by hand. */
#include "io/test_int.h"

static struct house house; /* its own listener is not used here */
static struct dial *dial;

static int init(void **state)
{
    (void)state;
    house_init(&house, 1);
    dial = NULL;
    return 0;
}

static int finish(void **state)
{
    (void)state;
    house_close(&house);
    return 0;
}

static int listen_by_hand(struct addr *addr)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    union sock name;
    socklen_t len = sock_from_addr(addr, &name);
    assert_int_equal(bind(fd, &name.any, len), 0);
    assert_int_equal(listen(fd, 10), 0);
    *addr = sock_name(fd);
    return fd;
}

static int accept_by_hand(int listener)
{
    struct pollfd readable = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&readable, 1, AWAIT_MS), 1);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void start_dialling(const struct addr *addr)
{
    house_open(&house);
    assert_int_equal(dial_open(house.loops[0], addr, &house_ops, &house, &house.limits, &dial), OK);
    assert_null(dial_conn(dial));
    house_run(&house);
}

/* We are the client here, and the server of frames answers all the same. */
static void exchange(int fd)
{
    uint8_t frame[50], back[50];
    (void)frame_put(frame, VERB_ECHO, sizeof frame, 7);
    client_send(fd, bytes_of(frame, sizeof frame));
    client_receive(fd, back, sizeof back);
    assert_memory_equal(back, frame, sizeof back);
}

static void look_at_peer(void *user)
{
    const struct conn *conn = dial_conn(dial);
    *(struct addr *)user = conn ? *conn_peer(conn) : (struct addr){0};
}

static void connects_and_connects_again_when_the_peer_dies(void **state)
{
    (void)state;
    struct addr addr = *test_loopback();
    cleanup(close_at) int listener = listen_by_hand(&addr);
    start_dialling(&addr);
    for (unsigned i = 1; i <= 3; i++) {
        int fd = accept_by_hand(listener);
        tally_await(&house.opened, i);
        exchange(fd);
        struct addr peer;
        on_loop(house.loops[0], look_at_peer, &peer);
        assert_int_equal(peer.port, addr.port);
        (void)close(fd);
        tally_await(&house.closed, i);
        assert_string_equal(house.last_reason, "closed by the peer");
    }
    assert_int_equal(atomic_load(&house.limits.conns), 0); /* only the accepted ones count */
}

/* First nobody listens there: the port is taken, but not listened on. */
static void goes_on_trying_until_somebody_listens(void **state)
{
    (void)state;
    struct addr addr = *test_loopback();
    int probe = listen_by_hand(&addr);
    (void)close(probe);
    start_dialling(&addr);
    struct addr peer;
    on_loop(house.loops[0], look_at_peer, &peer);
    assert_int_equal(peer.ip_len, 0);
    cleanup(close_at) int listener = listen_by_hand(&addr);
    cleanup(close_at) int fd = accept_by_hand(listener);
    exchange(fd);
    assert_int_equal(tally_now(&house.opened), 1);
}

static void retarget(void *user)
{
    dial_retarget(dial, user);
}

/* The name behind an address has got another one: the dial goes there when the old one is lost, and
 * not before. */
static void a_peer_that_has_moved_is_found_at_its_new_address(void **state)
{
    (void)state;
    struct addr before = *test_loopback(), now = *test_loopback();
    cleanup(close_at) int first = listen_by_hand(&before);
    cleanup(close_at) int second = listen_by_hand(&now);
    start_dialling(&before);
    cleanup(close_at) int fd = accept_by_hand(first);
    exchange(fd);
    on_loop(house.loops[0], retarget, &now);
    exchange(fd);
    (void)shutdown(fd, SHUT_RDWR);
    cleanup(close_at) int again = accept_by_hand(second);
    exchange(again);
}

static void hang_up(void *user)
{
    dial_close(dial);
}

static void hanging_up_closes_once_and_for_good(void **state)
{
    (void)state;
    struct addr addr = *test_loopback();
    cleanup(close_at) int listener = listen_by_hand(&addr);
    start_dialling(&addr);
    cleanup(close_at) int fd = accept_by_hand(listener);
    tally_await(&house.opened, 1);
    on_loop(house.loops[0], hang_up, NULL);
    tally_await(&house.closed, 1);
    assert_string_equal(house.last_reason, "hung up");
    (void)client_at_end(fd);
    struct pollfd readable = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&readable, 1, 300), 0); /* longer than the first pause can be */
}

static void may_hang_up_before_anybody_answered(void **state)
{
    (void)state;
    struct addr addr = *test_loopback();
    cleanup(close_at) int listener = listen_by_hand(&addr);
    house_open(&house);
    assert_int_equal(dial_open(house.loops[0], &addr, &house_ops, &house, &house.limits, &dial),
                     OK);
    dial_close(dial);
    dial_close(NULL);
    struct addr nowhere = {0};
    assert_int_equal(dial_open(house.loops[0], &nowhere, &house_ops, &house, &house.limits, &dial),
                     ERR_INVALID);
}

/* `opened` does not want it: closed without a `closed`, and tried again. */
static void a_refused_connection_is_tried_again(void **state)
{
    (void)state;
    house.refuses = true;
    struct addr addr = *test_loopback();
    cleanup(close_at) int listener = listen_by_hand(&addr);
    start_dialling(&addr);
    for (int i = 0; i < 2; i++) {
        cleanup(close_at) int fd = accept_by_hand(listener);
        (void)client_at_end(fd);
    }
    tally_await(&house.opened, 2);
    assert_int_equal(tally_now(&house.closed), 0);
}

static void drain(void *user)
{
    loop_drain(house.loops[0], house_drained, &house);
}

static void a_draining_loop_dials_no_more(void **state)
{
    (void)state;
    struct addr addr = *test_loopback();
    cleanup(close_at) int listener = listen_by_hand(&addr);
    start_dialling(&addr);
    cleanup(close_at) int fd = accept_by_hand(listener);
    tally_await(&house.opened, 1);
    on_loop(house.loops[0], drain, NULL);
    assert_true(client_at_end(fd));
    (void)shutdown(fd, SHUT_WR);
    tally_await(&house.drained, 1);
    struct pollfd readable = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&readable, 1, 300), 0);
}

/* The loop is closed while one dial is connected, one is trying and one is resting. */
static void closing_the_loop_closes_dials_in_every_state(void **state)
{
    (void)state;
    struct addr addr = *test_loopback(), silent = {.ip = {127, 0, 0, 1}, .ip_len = 4, .port = 1};
    struct addr unroutable = {.ip = {192, 0, 2, 1}, .ip_len = 4, .port = 9}; /* RFC 5737: nobody */
    cleanup(close_at) int listener = listen_by_hand(&addr);
    struct dial *others[2];
    house_open(&house);
    assert_int_equal(
        dial_open(house.loops[0], &silent, &house_ops, &house, &house.limits, &others[0]), OK);
    assert_int_equal(
        dial_open(house.loops[0], &unroutable, &house_ops, &house, &house.limits, &others[1]), OK);
    assert_int_equal(dial_open(house.loops[0], &addr, &house_ops, &house, &house.limits, &dial),
                     OK);
    house_run(&house);
    cleanup(close_at) int fd = accept_by_hand(listener);
    tally_await(&house.opened, 1);
    house_close(&house);
    house.n = 0;
    assert_int_equal(house.closed.n, 1);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, init, finish)
    const struct CMUnitTest tests[] = {
        CASE(connects_and_connects_again_when_the_peer_dies),
        CASE(goes_on_trying_until_somebody_listens),
        CASE(a_peer_that_has_moved_is_found_at_its_new_address),
        CASE(hanging_up_closes_once_and_for_good),
        CASE(may_hang_up_before_anybody_answered),
        CASE(a_refused_connection_is_tried_again),
        CASE(a_draining_loop_dials_no_more),
        CASE(closing_the_loop_closes_dials_in_every_state),
    };
    return cmocka_run_group_tests_name("dial", tests, NULL, NULL);
}
