/* Guests: threads that come into a loop, do their own work there and wait for their own answers. */
#include "io/test_int.h"

#define ROUNDS 200
#define REPLY  20 /* bytes */
#define LONG   (AWAIT_MS * 1000000ull)
#define SHORT  500000000ull

static struct house house;
static struct loop *loop;
static pthread_t reader;     /* who was given the latest input; the loop's */
static struct tally replies; /* frames that came */

static size_t note_input(void *user, struct conn *conn, struct bytes in)
{
    (void)user;
    (void)conn;
    reader = pthread_self();
    size_t used = 0;
    for (; in.len - used >= REPLY; used += REPLY)
        tally_add(&replies);
    return used;
}

static int init(void **state)
{
    (void)state;
    static const struct conn_ops ops = {note_input, house_opened, house_closed};
    house_init(&house, 1);
    tally_init(&replies);
    house_open(&house);
    loop = house.loops[0];
    listener_close(house.listener);
    house.listener = house_listen(&house, &ops, &house.limits);
    loop_take_guests(loop);
    house_run(&house);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    house_close(&house);
    return 0;
}

static void nothing(void *user)
{
    (void)user;
}

/* Comes in. The loop's own thread may be inside at first, and then a few more are sent away. */
static void come_in(void)
{
    uint64_t until = clock_ns(clock_system()) + LONG;
    for (;;) {
        struct visit visit = {.post = {.run = visit_run}, .fn = nothing};
        tally_init(&visit.done);
        if (loop_visit(loop, &visit.post))
            break;
        tally_await(&visit.done, 1);
        assert_true(clock_ns(clock_system()) < until);
    }
    assert_true(loop_is_mine(loop));
}

static int connect_one(void)
{
    unsigned before = tally_now(&house.opened);
    int fd = client_open(&house);
    tally_await(&house.opened, before + 1);
    return fd;
}

static void reply(int fd)
{
    uint8_t frame[REPLY];
    client_send(fd, bytes_of(frame, frame_put(frame, VERB_QUIET, sizeof frame, 1)));
}

/* ---- coming in ---- */

static void a_guest_is_the_loop(void **state)
{
    (void)state;
    cleanup(close_at) int fd = connect_one();
    uint8_t back[5];
    assert_false(loop_is_mine(loop));
    come_in();
    conn_write(house.last, BYTES("hello"));
    loop_leave(loop);
    assert_false(loop_is_mine(loop));
    client_receive(fd, back, sizeof back);
    assert_memory_equal(back, "hello", sizeof back);
}

static struct tally ran;
static unsigned next;
static bool in_order;

struct numbered {
    struct post post;
    unsigned number;
};

static void on_numbered(struct post *post)
{
    in_order = in_order && list_entry(post, struct numbered, post)->number == next;
    next++;
    tally_add(&ran);
}

/* Some are posted and some brought along, all by one thread; whoever runs them, they run in its
 * order. */
static void what_a_thread_posted_before_runs_before(void **state)
{
    (void)state;
    static struct numbered all[30 * ROUNDS];
    tally_init(&ran);
    next = 0;
    in_order = true;
    size_t n = sizeof all / sizeof all[0], visits = 0;
    for (size_t i = 0; i < n; i++) {
        all[i] = (struct numbered){{.run = on_numbered}, (unsigned)i};
        if (i % 3 < 2) {
            loop_post(loop, &all[i].post);
        } else if (loop_visit(loop, &all[i].post)) {
            visits++;
            loop_leave(loop);
        }
    }
    tally_await(&ran, (unsigned)n);
    assert_true(in_order);
    printf("# %zu of %zu were a guest's\n", visits, n / 3);
}

static void fired(void *user)
{
    tally_add(user);
}

/* The loop's own thread sleeps for ever, as far as it knows. */
static void what_a_guest_sets_rings_in_time(void **state)
{
    (void)state;
    struct tally rang;
    struct timer *timer;
    tally_init(&rang);
    for (unsigned i = 1; i <= 5; i++) {
        come_in();
        assert_int_equal(timer_open(loop, fired, &rang, &timer), OK);
        timer_start(timer, 1, 0);
        loop_leave(loop);
        tally_await(&rang, i);
        come_in();
        timer_close(timer);
        loop_leave(loop);
    }
}

static void who_is_inside_another_loop_is_no_guest(void **state)
{
    (void)state;
    struct loop *other;
    assert_int_equal(loop_open(&other, clock_system(), NULL, NULL), OK);
    loop_take_guests(other);
    come_in();
    struct visit visit = {.post = {.run = visit_run}, .fn = nothing};
    tally_init(&visit.done);
    assert_false(loop_visit(other, &visit.post));
    loop_leave(loop);
    assert_int_equal(tally_now(&visit.done), 0);
    loop_close(other); /* runs what is left */
    assert_int_equal(tally_now(&visit.done), 1);
}

/* ---- waiting inside ---- */

struct peer {
    pthread_t thread;
    int fd;
    unsigned rounds;
};

/* Answers each byte with a frame. */
static void *peer_run(void *arg)
{
    struct peer *peer = arg;
    for (unsigned i = 0; i < peer->rounds; i++) {
        uint8_t byte;
        client_receive(peer->fd, &byte, 1);
        reply(peer->fd);
    }
    return NULL;
}

static void a_guest_reads_its_own_answer(void **state)
{
    (void)state;
    struct peer peer = {.fd = connect_one(), .rounds = ROUNDS};
    assert_int_equal(pthread_create(&peer.thread, NULL, peer_run, &peer), 0);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        come_in();
        conn_write(house.last, BYTES("?"));
        assert_true(conn_await(house.last, LONG));
        assert_true(loop_is_mine(loop));
        assert_int_equal(tally_now(&replies), i);
        assert_true(pthread_equal(reader, pthread_self()));
        loop_leave(loop);
    }
    (void)pthread_join(peer.thread, NULL);
    (void)close(peer.fd);
}

/* Also what comes in one piece with the guest's answer, or while nobody waits. */
static void what_comes_after_a_guest_is_read_by_the_loop(void **state)
{
    (void)state;
    cleanup(close_at) int fd = connect_one();
    for (unsigned i = 0; i < 20; i++) {
        reply(fd);
        reply(fd);
        tally_await(&replies, 4 * i + 2);
        come_in();
        assert_false(conn_await(house.last, 1000)); /* nothing more has come */
        loop_leave(loop);
        reply(fd);
        reply(fd);
        tally_await(&replies, 4 * i + 4);
    }
}

struct waiting {
    pthread_t thread;
    struct conn *conn;
    uint64_t timeout_ns;
    struct tally inside;
    bool came;
    atomic_bool left;
};

static void *wait_there(void *arg)
{
    struct waiting *w = arg;
    come_in();
    tally_add(&w->inside);
    w->came = conn_await(w->conn, w->timeout_ns);
    assert_true(loop_is_mine(loop));
    atomic_store(&w->left, true);
    loop_leave(loop);
    return NULL;
}

static void look_at_lent(void *user)
{
    *(bool *)user = ((struct conn *)house.last)->lent != NULL;
}

/* Returns when the other thread is outside, waiting, or has waited long enough. */
static void wait_begin(struct waiting *w, uint64_t timeout_ns)
{
    *w = (struct waiting){.conn = house.last, .timeout_ns = timeout_ns};
    tally_init(&w->inside);
    assert_int_equal(pthread_create(&w->thread, NULL, wait_there, w), 0);
    tally_await(&w->inside, 1);
    bool lent = false;
    while (!lent && !atomic_load(&w->left))
        on_loop(loop, look_at_lent, &lent);
}

static void one_guest_waits_for_a_connection_at_a_time(void **state)
{
    (void)state;
    cleanup(close_at) int fd = connect_one();
    struct waiting w;
    wait_begin(&w, LONG);
    come_in();
    assert_false(conn_await(house.last, LONG));
    loop_leave(loop);
    reply(fd);
    (void)pthread_join(w.thread, NULL);
    assert_true(w.came);
    assert_int_equal(tally_now(&replies), 1);
}

static void close_it(void *user)
{
    conn_close(user, "closed by the loop");
}

static void a_connection_may_close_while_a_guest_waits(void **state)
{
    (void)state;
    cleanup(close_at) int fd = connect_one();
    struct waiting w;
    wait_begin(&w, SHORT);
    on_loop(loop, close_it, house.last);
    tally_await(&house.closed, 1);
    (void)pthread_join(w.thread, NULL);
    assert_false(w.came);
    assert_string_equal(house.last_reason, "closed by the loop");
    assert_int_equal(tally_now(&house.closed), 1);
}

static void a_guest_hears_the_peer_hang_up(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        int fd = connect_one();
        struct waiting w;
        wait_begin(&w, LONG);
        struct linger at_once = {.l_onoff = 1, .l_linger = 0};
        if (i == 1)
            assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
        (void)close(fd);
        (void)pthread_join(w.thread, NULL);
        tally_await(&house.closed, i + 1);
        assert_string_equal(house.last_reason, i ? "reset by the peer" : "closed by the peer");
    }
}

/* The kernel takes only some of it. What is left is sent while the guest waits, and read as well.
 */
static void the_loop_sends_what_a_guest_could_not(void **state)
{
    (void)state;
    static uint8_t back[32u << 20];
    house.limits.out_high = SIZE_MAX;
    cleanup(close_at) int fd = connect_one();
    come_in();
    house_answer_much(&house, house.last, sizeof back);
    assert_false(conn_await(house.last, 1000));
    loop_leave(loop);
    struct waiting w;
    wait_begin(&w, LONG);
    client_receive(fd, back, sizeof back);
    tally_await(&house.released, 1);
    assert_int_equal(back[sizeof back - 1], (uint8_t)((sizeof back - 1) * 7));
    reply(fd);
    (void)pthread_join(w.thread, NULL);
    assert_true(w.came);
}

/* ---- bells ---- */

static void ring_it(void *user)
{
    loop_ring(user);
    assert_true(ring_is_due(user));
}

static void a_ring_is_heard_when_who_rang_is_out(void **state)
{
    (void)state;
    struct ring rings[3] = {0};
    loop_ring(&rings[0]); /* outside */
    assert_true(bell_wait(&rings[0].bell, 0));
    on_loop(loop, ring_it, &rings[1]);
    assert_true(bell_wait(&rings[1].bell, UINT64_MAX));
    come_in();
    loop_ring(&rings[2]);
    assert_true(ring_is_due(&rings[2]));
    assert_false(bell_rung(&rings[2].bell));
    loop_leave(loop);
    assert_true(bell_wait(&rings[2].bell, 0));
}

/* ---- the end ---- */

static void a_loop_that_stops_waits_for_its_guests(void **state)
{
    (void)state;
    cleanup(close_at) int fd = connect_one();
    struct waiting w;
    wait_begin(&w, SHORT);
    house_stop(&house);
    assert_true(atomic_load(&w.left));
    (void)pthread_join(w.thread, NULL);
    struct visit visit = {.post = {.run = visit_run}, .fn = nothing};
    tally_init(&visit.done);
    assert_false(loop_visit(loop, &visit.post)); /* nobody comes in any more */
    loop_close(loop);
    house.n = 0;
    assert_int_equal(tally_now(&visit.done), 1);
}

/* ---- all at once ---- */

#define THREADS 3

struct talker {
    pthread_t thread;
    struct peer peer;
    struct conn *conn;
    unsigned guest;
};

struct line {
    struct post post;
    struct conn *conn;
};

static void on_line(struct post *post)
{
    conn_write(list_entry(post, struct line, post)->conn, BYTES("?"));
}

/* Asks, as a guest or by post, and goes on whether or not it was its own answer that came. */
static void *talk(void *arg)
{
    struct talker *t = arg;
    for (unsigned i = 0; i < t->peer.rounds; i++) {
        struct line line = {{.run = on_line}, t->conn};
        if (loop_visit(loop, &line.post)) {
            t->guest += conn_await(t->conn, LONG);
            loop_leave(loop);
        } else {
            on_loop(loop, nothing, NULL); /* it has run by then */
        }
    }
    return NULL;
}

static void many_guests_get_all_their_answers(void **state)
{
    (void)state;
    struct talker all[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        all[i] = (struct talker){.peer = {.fd = connect_one(), .rounds = 10 * ROUNDS}};
        all[i].conn = house.last;
        assert_int_equal(pthread_create(&all[i].peer.thread, NULL, peer_run, &all[i].peer), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&all[i].thread, NULL, talk, &all[i]), 0);
    tally_await(&replies, THREADS * 10 * ROUNDS);
    for (size_t i = 0; i < THREADS; i++) {
        (void)pthread_join(all[i].thread, NULL);
        (void)pthread_join(all[i].peer.thread, NULL);
        (void)close(all[i].peer.fd);
        printf("# %u answers were read by guest %zu\n", all[i].guest, i);
    }
    assert_int_equal(tally_now(&replies), THREADS * 10 * ROUNDS);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, init, finish)
    const struct CMUnitTest tests[] = {
        CASE(a_guest_is_the_loop),
        CASE(what_a_thread_posted_before_runs_before),
        CASE(what_a_guest_sets_rings_in_time),
        CASE(who_is_inside_another_loop_is_no_guest),
        CASE(a_guest_reads_its_own_answer),
        CASE(what_comes_after_a_guest_is_read_by_the_loop),
        CASE(one_guest_waits_for_a_connection_at_a_time),
        CASE(a_connection_may_close_while_a_guest_waits),
        CASE(a_guest_hears_the_peer_hang_up),
        CASE(the_loop_sends_what_a_guest_could_not),
        CASE(a_ring_is_heard_when_who_rang_is_out),
        CASE(a_loop_that_stops_waits_for_its_guests),
        CASE(many_guests_get_all_their_answers),
    };
    return cmocka_run_group_tests_name("guest", tests, NULL, NULL);
}
