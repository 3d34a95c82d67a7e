/* test_int.h - what the tests of this folder share: loops in threads, a server that speaks in
 * frames, and clients made of plain blocking sockets. Only for x_test.c files.
 *
 * Nothing here sleeps: a test awaits what it wants to happen, and gives up after AWAIT_MS.
 */
#ifndef IO_TEST_INT_H
#define IO_TEST_INT_H

#include "base/test.h"
#include "io/io_int.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define AWAIT_MS  20000
#define LOOPS_MAX 3

/* ---- events ---- */

struct tally { /* a number that threads raise and a test awaits */
    struct room room;
    unsigned n;
};

static inline void tally_init(struct tally *t)
{
    room_init(&t->room, "tally", ROOM_LEAF);
    t->n = 0;
}

static inline void tally_add(struct tally *t)
{
    room_enter(&t->room);
    t->n++;
    room_tell(&t->room);
    room_leave(&t->room);
}

static inline unsigned tally_now(struct tally *t)
{
    room_enter(&t->room);
    unsigned n = t->n;
    room_leave(&t->room);
    return n;
}

static inline void tally_await(struct tally *t, unsigned least)
{
    uint64_t until = clock_ns(clock_system()) + AWAIT_MS * 1000000ull;
    room_enter(&t->room);
    while (t->n < least && clock_ns(clock_system()) < until)
        room_wait(&t->room, 100);
    unsigned n = t->n;
    room_leave(&t->room);
    assert_true(n >= least);
}

/* ---- a house: loops in threads, one listener, and a server of frames ---- */

/* The server's frames: four bytes of length (of the whole), one of verb, the rest. */
enum verb {
    VERB_ECHO,   /* comes back as it is */
    VERB_MUCH,   /* four more bytes: so many bytes come back, as a slice of counted memory */
    VERB_QUIET,  /* no answer */
    VERB_FINISH, /* comes back; then conn_finish */
    VERB_CLOSE,  /* conn_close */
    VERB_DEFER   /* comes back from the hook at the end of the turn */
};

#define FRAME_HEAD 5u

struct house {
    struct loop *loops[LOOPS_MAX];
    pthread_t threads[LOOPS_MAX];
    size_t n;
    bool running;
    struct clock_manual clock;
    bool own_clock;
    struct log log;
    struct listener *listener;
    struct io_limits limits;

    struct tally opened, closed, frames, inputs, congested, released, drained;
    bool ignores_congestion, refuses;
    atomic_uint turns;         /* of the first loop */
    struct conn *_Atomic last; /* the latest opened; touched on its loop only */
    char last_reason[400];     /* of the latest closed: read after awaiting `closed` */
    struct conn *deferred[64];
    size_t n_deferred;
};

struct counted_block {
    struct counted counted;
    struct house *house;
    uint8_t data[];
};

static inline void block_release(struct counted *counted)
{
    struct counted_block *block = (struct counted_block *)(void *)counted;
    struct house *house = block->house;
    free(block);
    tally_add(&house->released);
}

static inline void house_answer_much(struct house *house, struct conn *conn, size_t size)
{
    struct counted_block *block = malloc(sizeof *block + size);
    invariant(block);
    counted_init(&block->counted, block_release);
    block->house = house;
    for (size_t i = 0; i < size; i++)
        block->data[i] = (uint8_t)(i * 7);
    conn_write_slice(conn, bytes_of(block->data, size), &block->counted);
}

static inline void house_frame(struct house *house, struct conn *conn, struct bytes frame)
{
    switch ((enum verb)frame.at[4]) {
    case VERB_ECHO:
        conn_write(conn, frame);
        break;
    case VERB_MUCH:
        house_answer_much(house, conn, load_u32(frame.at + FRAME_HEAD));
        break;
    case VERB_QUIET:
        break;
    case VERB_FINISH:
        conn_write(conn, frame);
        conn_finish(conn, "asked to finish");
        break;
    case VERB_CLOSE:
        conn_write(conn, frame);
        house_answer_much(house, conn, 1000);
        conn_close(conn, "asked to close");
        conn_close(conn, "a second time");
        house_answer_much(house, conn, 1000); /* after it: nothing but a drop */
        conn_write(conn, frame);
        break;
    case VERB_DEFER:
        house->deferred[house->n_deferred++] = conn;
        break;
    }
    if (conn_congested(conn))
        tally_add(&house->congested);
    tally_add(&house->frames);
}

static inline size_t house_input(void *user, struct conn *conn, struct bytes in)
{
    struct house *house = user;
    size_t used = 0;
    while (in.len - used >= FRAME_HEAD && conn_is_open(conn)) {
        if (conn_congested(conn) && !house->ignores_congestion)
            break;
        size_t size = load_u32(in.at + used);
        if (size < FRAME_HEAD) {
            conn_close(conn, "malformed");
            break;
        }
        if (in.len - used < size) {
            conn_need(conn, size);
            break;
        }
        house_frame(house, conn, bytes_of(in.at + used, size));
        used += size;
    }
    tally_add(&house->inputs);
    return used;
}

static inline void house_turn_end(void *user)
{
    struct house *house = user;
    atomic_fetch_add(&house->turns, 1);
    for (size_t i = 0; i < house->n_deferred; i++)
        conn_write(house->deferred[i], BYTES("\0\0\0\5\5"));
    house->n_deferred = 0;
}

static inline void *house_opened(void *context, struct conn *conn)
{
    struct house *house = context;
    house->last = conn;
    tally_add(&house->opened);
    return house->refuses ? NULL : house;
}

static inline void house_closed(void *user, struct conn *conn, const char *reason)
{
    struct house *house = user;
    room_enter(&house->closed.room);
    (void)snprintf(house->last_reason, sizeof house->last_reason, "%s", reason);
    house->closed.n++;
    room_tell(&house->closed.room);
    room_leave(&house->closed.room);
}

static const struct conn_ops house_ops = {house_input, house_opened, house_closed};

static inline void house_drained(void *user)
{
    struct house *house = user;
    tally_add(&house->drained);
}

static inline const struct addr *test_loopback(void)
{
    static const struct addr addr = {.ip = {127, 0, 0, 1}, .ip_len = 4};
    return &addr;
}

static inline void house_init(struct house *house, size_t n_loops)
{
    *house = (struct house){.n = n_loops, .limits = IO_LIMITS_DEFAULT, .log = {.fd = -1}};
    struct tally *tallies[] = {&house->opened,    &house->closed,   &house->frames, &house->inputs,
                               &house->congested, &house->released, &house->drained};
    for (size_t i = 0; i < sizeof tallies / sizeof tallies[0]; i++)
        tally_init(tallies[i]);
    clock_manual_init(&house->clock, 1000000);
    house->log.clock = clock_system();
    house->log.least = LOG_ERROR + 1; /* silence; a test that wants lines lowers it */
}

static inline struct listener *house_listen(struct house *house, const struct conn_ops *ops,
                                            struct io_limits *limits)
{
    struct listener *listener;
    enum err err = listener_open(house->loops, house->n, test_loopback(), limits, &listener, NULL);
    assert_int_equal(err, OK);
    assert_int_equal(listener_start(listener, ops, house, NULL), OK);
    return listener;
}

/* After house_init and whatever the test sets in between. */
static inline void house_open(struct house *house)
{
    for (size_t i = 0; i < house->n; i++) {
        struct clock *clock = house->own_clock ? &house->clock.clock : clock_system();
        assert_int_equal(loop_open(&house->loops[i], clock, &house->log, NULL), OK);
    }
    loop_at_turn_end(house->loops[0], house_turn_end, house);
    house->listener = house_listen(house, &house_ops, &house->limits);
}

static inline void *house_thread(void *loop)
{
    loop_run(loop);
    return NULL;
}

static inline void house_run(struct house *house)
{
    for (size_t i = 0; i < house->n; i++)
        assert_int_equal(pthread_create(&house->threads[i], NULL, house_thread, house->loops[i]),
                         0);
    house->running = true;
}

static inline void house_start(struct house *house)
{
    house_open(house);
    house_run(house);
}

static inline void house_stop(struct house *house)
{
    if (!house->running)
        return;
    for (size_t i = 0; i < house->n; i++) {
        loop_stop(house->loops[i]);
        (void)pthread_join(house->threads[i], NULL);
    }
    house->running = false;
}

static inline void house_close(struct house *house)
{
    house_stop(house);
    for (size_t i = 0; i < house->n; i++)
        loop_close(house->loops[i]);
    assert_int_equal(atomic_load(&house->limits.conns), 0);
}

/* Nothing can be done just now, and the loop knows: it sleeps instead of asking again and again. */
static inline void assert_house_sleeps(struct house *house)
{
    unsigned before = atomic_load(&house->turns);
    (void)poll(NULL, 0, 50);
    assert_in_range(atomic_load(&house->turns) - before, 0, 20);
}

/* Runs `fn` on a loop and waits for it. */
struct visit {
    struct post post;
    void (*fn)(void *user);
    void *user;
    struct tally done;
};

static inline void visit_run(struct post *post)
{
    struct visit *visit = list_entry(post, struct visit, post);
    visit->fn(visit->user);
    tally_add(&visit->done);
}

static inline void on_loop(struct loop *loop, void (*fn)(void *user), void *user)
{
    struct visit visit = {.post = {.run = visit_run}, .fn = fn, .user = user};
    tally_init(&visit.done);
    loop_post(loop, &visit.post);
    tally_await(&visit.done, 1);
}

/* ---- clients ---- */

static inline int client_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    struct timeval patience = {.tv_sec = AWAIT_MS / 1000};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience), 0);
    sock_no_delay(fd);
    return fd;
}

static inline void client_connect(int fd, const struct addr *addr)
{
    union sock name;
    socklen_t len = sock_from_addr(addr, &name);
    assert_int_equal(connect(fd, &name.any, len), 0);
}

static inline int client_open(struct house *house)
{
    int fd = client_socket();
    client_connect(fd, listener_addr(house->listener));
    return fd;
}

static inline void client_send(int fd, struct bytes all)
{
    while (all.len > 0) {
        ssize_t n = send(fd, all.at, all.len, MSG_NOSIGNAL);
        assert_true(n > 0);
        all = bytes_from(all, (size_t)n);
    }
}

static inline void client_receive(int fd, uint8_t *into, size_t len)
{
    while (len > 0) {
        ssize_t n = recv(fd, into, len, 0);
        assert_true(n > 0);
        into += n;
        len -= (size_t)n;
    }
}

/* True: the peer has sent its end. False: a reset. Anything else fails. */
static inline bool client_at_end(int fd)
{
    uint8_t byte;
    ssize_t n = recv(fd, &byte, 1, 0);
    assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
    return n == 0;
}

/* A frame whose content can be told from any other's. Returns its size. */
static inline size_t frame_put(uint8_t *at, enum verb verb, size_t size, uint32_t salt)
{
    store_u32(at, (uint32_t)size);
    at[4] = (uint8_t)verb;
    for (size_t i = FRAME_HEAD; i < size; i++)
        at[i] = (uint8_t)(salt + i * 31);
    return size;
}

static inline size_t frame_put_much(uint8_t *at, uint32_t size)
{
    (void)frame_put(at, VERB_MUCH, FRAME_HEAD + 4, 0);
    store_u32(at + FRAME_HEAD, size);
    return FRAME_HEAD + 4;
}

#endif
