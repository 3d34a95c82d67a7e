/* Listeners: where, how many, and what happens when there are too many. */
#include "io/test_int.h"

#include <fcntl.h>
#include <sys/resource.h>

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

static void an_address_in_use_is_an_error_with_a_sentence(void **state)
{
    (void)state;
    house_open(&house);
    struct listener *second;
    struct fault why = {0};
    const struct addr *taken = listener_addr(house.listener);
    assert_int_equal(listener_open(house.loops, 1, taken, &house.limits, &second, &why),
                     ERR_IN_USE);
    char text[ADDR_TEXT_MAX];
    addr_format(taken, text);
    assert_non_null(strstr(why.text, text));
    assert_int_equal(why.os, EADDRINUSE);

    struct addr nowhere = {0};
    enum err err = listener_open(house.loops, 1, &nowhere, &house.limits, &second, &why);
    assert_int_equal(err, ERR_INVALID);
}

/* Until it is started nobody is there, so nobody waits for a house that is not ready. */
static void an_opened_listener_has_its_port_but_does_not_answer(void **state)
{
    (void)state;
    house_open(&house);
    struct listener *second;
    enum err err = listener_open(house.loops, 1, test_loopback(), &house.limits, &second, NULL);
    assert_int_equal(err, OK);
    assert_int_not_equal(listener_addr(second)->port, 0);
    cleanup(close_at) int fd = client_socket();
    union sock name;
    socklen_t len = sock_from_addr(listener_addr(second), &name);
    assert_int_equal(connect(fd, &name.any, len), -1);
    assert_int_equal(errno, ECONNREFUSED);

    assert_int_equal(listener_start(second, &house_ops, &house, NULL), OK);
    house_run(&house);
    client_connect(fd, listener_addr(second));
    tally_await(&house.opened, 1);
}

static void listens_on_ipv6_too(void **state)
{
    (void)state;
    house_open(&house);
    struct addr addr = {.ip = {[15] = 1}, .ip_len = 16};
    struct listener *second;
    if (listener_open(house.loops, 1, &addr, &house.limits, &second, NULL) != OK)
        skip(); /* a machine without IPv6 */
    assert_int_equal(listener_start(second, &house_ops, &house, NULL), OK);
    house_run(&house);
    cleanup(close_at) int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    client_connect(fd, listener_addr(second));
    tally_await(&house.opened, 1);
    house_stop(&house);
    assert_int_equal(conn_peer(house.last)->ip_len, 16);
    assert_memory_equal(conn_peer(house.last)->ip, addr.ip, 16);
}

/* ---- dealing out ---- */

static _Atomic unsigned opened_on[LOOPS_MAX];

static void *count_opened(void *context, struct conn *conn)
{
    loop_here(conn_loop(conn));
    for (size_t i = 0; i < house.n; i++)
        if (conn_loop(conn) == house.loops[i])
            atomic_fetch_add(&opened_on[i], 1);
    tally_add(&house.opened);
    return &house;
}

static void count_closed(void *user, struct conn *conn, const char *reason)
{
    tally_add(&house.closed);
}

static void connections_are_dealt_out_in_turn(void **state)
{
    (void)state;
    static const struct conn_ops ops = {house_input, count_opened, count_closed};
    house.n = 3;
    house_open(&house);
    listener_close(house.listener);
    house.listener = house_listen(&house, &ops, &house.limits);
    house_run(&house);
    int fds[12];
    for (int i = 0; i < 12; i++)
        fds[i] = client_open(&house);
    tally_await(&house.opened, 12);
    for (int i = 0; i < 3; i++)
        assert_int_equal(atomic_load(&opened_on[i]), 4);
    assert_int_equal(atomic_load(&house.limits.conns), 12);
    for (int i = 0; i < 12; i++)
        (void)close(fds[i]);
    tally_await(&house.closed, 12);
    assert_int_equal(atomic_load(&house.limits.conns), 0);
}

/* The loops were stopped with connections in their mailboxes. */
static void connections_on_their_way_are_not_lost_when_the_house_closes(void **state)
{
    (void)state;
    house.n = 3;
    house_open(&house);
    int fds[9];
    for (int i = 0; i < 9; i++)
        fds[i] = client_open(&house);
    loop_stop(house.loops[0]); /* only the first ever runs, for one turn */
    loop_run(house.loops[0]);
    loop_stop(house.loops[0]);
    loop_run(house.loops[0]);
    assert_true(atomic_load(&house.limits.conns) > house.opened.n);
    house_close(&house);
    house.n = 0;
    assert_int_equal(house.opened.n, house.closed.n);
    for (int i = 0; i < 9; i++)
        (void)close(fds[i]);
}

/* ---- too many ---- */

static size_t lines_in(int fd, const char *what)
{
    static char text[65536];
    ssize_t len = pread(fd, text, sizeof text - 1, 0);
    assert_true(len >= 0);
    text[len] = 0;
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

static int open_log(void)
{
    char path[] = "/tmp/oncemq_listener_testXXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    assert_true(fd >= 0);
    (void)unlink(path);
    house.log.fd = fd;
    house.log.least = LOG_WARN;
    return fd;
}

static void who_is_one_too_many_is_closed_at_once(void **state)
{
    (void)state;
    cleanup(close_at) int log = open_log();
    house.limits.max_conns = 3;
    house_start(&house);
    int fds[3];
    for (int i = 0; i < 3; i++)
        fds[i] = client_open(&house);
    for (int i = 0; i < 20; i++) {
        cleanup(close_at) int extra = client_open(&house);
        (void)client_at_end(extra);
    }
    assert_int_equal(tally_now(&house.opened), 3);
    assert_in_range(lines_in(log, "too many connections"), 1, 10); /* far fewer than twenty */

    (void)close(fds[0]); /* a place is free again */
    tally_await(&house.closed, 1);
    fds[0] = client_open(&house);
    tally_await(&house.opened, 4);
    for (int i = 0; i < 3; i++)
        (void)close(fds[i]);
}

/* No descriptor is left: the connection waits, the loop does not spin, and later it is taken. */
static void without_descriptors_accepting_rests_and_goes_on(void **state)
{
    (void)state;
    cleanup(close_at) int log = open_log();
    house_start(&house);
    cleanup(close_at) int fd = client_socket();
    int lowest_free = dup(fd);
    (void)close(lowest_free);

    struct rlimit usual, tight;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    tight = usual;
    tight.rlim_cur = (rlim_t)lowest_free;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    client_connect(fd, listener_addr(house.listener));
    uint64_t until = clock_ns(clock_system()) + AWAIT_MS * 1000000ull;
    while (lines_in(log, "accepting paused") == 0 && clock_ns(clock_system()) < until)
        (void)poll(NULL, 0, 1);
    assert_house_sleeps(&house);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    assert_int_equal(lines_in(log, "accepting paused"), 1);

    tally_await(&house.opened, 1);
    uint8_t frame[20], back[20];
    client_send(fd, bytes_of(frame, frame_put(frame, VERB_ECHO, sizeof frame, 1)));
    client_receive(fd, back, sizeof back);
}

/* ---- closing ---- */

static void close_listener(void *user)
{
    listener_close(house.listener);
}

static void a_closed_listener_refuses_and_its_connections_stay(void **state)
{
    (void)state;
    house_start(&house);
    struct addr addr = *listener_addr(house.listener);
    cleanup(close_at) int fd = client_open(&house);
    tally_await(&house.opened, 1);
    on_loop(house.loops[0], close_listener, NULL);

    cleanup(close_at) int late = client_socket();
    union sock name;
    socklen_t len = sock_from_addr(&addr, &name);
    assert_int_equal(connect(late, &name.any, len), -1);
    assert_int_equal(errno, ECONNREFUSED);
    uint8_t frame[20], back[20];
    client_send(fd, bytes_of(frame, frame_put(frame, VERB_ECHO, sizeof frame, 1)));
    client_receive(fd, back, sizeof back);
}

static void a_listener_may_be_closed_when_the_loops_have_stopped(void **state)
{
    (void)state;
    house_start(&house);
    house_stop(&house);
    listener_close(house.listener);
    listener_close(NULL);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, init, finish)
    const struct CMUnitTest tests[] = {
        CASE(an_address_in_use_is_an_error_with_a_sentence),
        CASE(an_opened_listener_has_its_port_but_does_not_answer),
        CASE(listens_on_ipv6_too),
        CASE(connections_are_dealt_out_in_turn),
        CASE(connections_on_their_way_are_not_lost_when_the_house_closes),
        CASE(who_is_one_too_many_is_closed_at_once),
        CASE(without_descriptors_accepting_rests_and_goes_on),
        CASE(a_closed_listener_refuses_and_its_connections_stay),
        CASE(a_listener_may_be_closed_when_the_loops_have_stopped),
    };
    return cmocka_run_group_tests_name("listener", tests, NULL, NULL);
}
