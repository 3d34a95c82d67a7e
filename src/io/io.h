/* io.h - sockets and loops; knows bytes, not messages.
 *
 * A *loop* is one libuv loop, run by one thread. A *connection* belongs to one loop for life: only
 * that thread touches it. To reach it from elsewhere, post to its loop. A *listener* accepts on the
 * first loop and deals connections out to all of them in turn. A *dial* is an outgoing connection
 * that is made again whenever it is lost.
 *
 * Input. The loop reads into one buffer of its own and hands it to the connection's `input`, which
 * says how much it used. Where whole frames arrive nothing is copied and an idle connection owns no
 * memory for bytes at all; only an unfinished rest is kept in a buffer of the connection's own,
 * which grows with what has really arrived, never with what a peer has announced.
 *
 * Output. Whatever is written to a connection leaves in one system call when the turn of the loop
 * ends, or earlier, whenever 64 KiB have been read, so that peers get to work while there is more
 * to read. A turn ends before the loop waits, and when it has read 256 KiB. Pieces are either
 * copied into chunks that the loop recycles, or slices of counted memory (the mapped log), which
 * are dropped when the kernel has them.
 *
 * Back-pressure. Over `out_high` queued bytes the connection is congested: `input` is not called
 * and the socket not read until the queue has drained below half of it. Over `out_max` it is
 * closed.
 *
 * Threads: everything here is called on the loop's own thread, or by a guest of the loop, except
 * loop_post, loop_stop and what says otherwise.
 */
#ifndef IO_IO_H
#define IO_IO_H

#include "base/addr.h"
#include "base/bell.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/err.h"
#include "base/list.h"
#include "base/log.h"

struct loop;
struct conn;
struct listener;
struct dial;
struct tls;

/* ---- loops ---- */

must_check enum err loop_open(struct loop **out, struct clock *clock, struct log *log,
                              struct fault *why);
void loop_run(struct loop *loop);  /* until loop_stop; the calling thread owns the loop meanwhile */
void loop_stop(struct loop *loop); /* any thread */
/* Before it waits, it looks for a moment whether there is more to do; for a loop that has a core to
 * run on. Before loop_run. */
void loop_look_first(struct loop *loop);
/* After loop_run returned. Runs posts that are left, then closes what is left on it: connections
 * first, then timers, dials and listeners, which are gone with it. */
void loop_close(struct loop *loop);
void loop_here(const struct loop *loop); /* invariant: called on the loop's thread */

/* Work for a loop from another thread, or from itself for the end of its turn. The caller owns the
 * post until `run` is called with it. */
struct post {
    struct link link;
    void (*run)(struct post *post);
};
void loop_post(struct loop *loop, struct post *post); /* any thread */

/* ---- guests ----
 *
 * Who hands work to a loop and waits for it has two threads woken, the loop's and then its own, and
 * each may have to wake a core. A loop that takes guests is a room instead: whoever is inside *is*
 * the loop, and may do all that its thread may. That thread is inside while it works and outside
 * while it waits for events, when another may come in, do its work itself, and even wait for the
 * answer itself: it borrows the connection for that, which the loop does not read meanwhile. */
void loop_take_guests(struct loop *loop); /* before loop_run */
/* Any thread. True: the post has run, behind all that were posted before, what was written has
 * left, and the calling thread is a guest until loop_leave. False: somebody is inside just now, or
 * the caller is inside another loop: it was posted. */
must_check bool loop_visit(struct loop *loop, struct post *post);
void loop_leave(struct loop *loop);         /* guest */
bool loop_is_mine(const struct loop *loop); /* the calling thread is inside, or runs it */
/* A bell that is rung from inside, heard when whoever is inside has gone out. */
struct ring {
    struct link link;
    struct bell bell;
};
void loop_ring(struct ring *ring);         /* any thread; at once, if it is inside no loop */
bool ring_is_due(const struct ring *ring); /* guest: it was rung, heard or not */
/* Guest. Goes out until there is something to read, or for so long; comes in again and lets `input`
 * have it. False: nothing came, or it is no time to wait: it is closing, or another guest waits
 * there. Nobody tells the guest what happens elsewhere meanwhile. */
must_check bool conn_await(struct conn *conn, uint64_t timeout_ns);

/* Called on the loop at the end of each turn, after posts and when output has left (what is written
 * here leaves as well): the place to finish what the requests of one turn share. One per loop. */
void loop_at_turn_end(struct loop *loop, void (*fn)(void *user), void *user);

/* With this, what `input` is given stays where it is until `fn` has been called, so that it may
 * leave for later what the inputs of several connections can share. It is called before output
 * leaves and before anything but input runs on the loop: posts, timers, `closed`. One per loop. */
void loop_at_settling(struct loop *loop, void (*fn)(void *user), void *user);

struct timer; /* opaque; freed by timer_close */
must_check enum err timer_open(struct loop *loop, void (*fired)(void *user), void *user,
                               struct timer **out);
void timer_start(struct timer *timer, uint64_t after_ms, uint64_t every_ms); /* every_ms 0: once */
void timer_stop(struct timer *timer);
void timer_close(struct timer *timer);

/* Signals are read by one loop only. */
must_check enum err loop_on_signal(struct loop *loop, int signum,
                                   void (*fired)(void *user, int signum), void *user);

/* ---- connections ---- */

struct conn_ops {
    /* Bytes have arrived. Returns how many were used; the rest comes again with what follows. When
     * a whole frame is not there yet, say how long it will be with conn_need(). May write and
     * close. */
    size_t (*input)(void *user, struct conn *conn, struct bytes in);
    /* A new connection: returns its `user`, or NULL to refuse it. For a dial: it is connected. */
    void *(*opened)(void *context, struct conn *conn);
    /* The last call for this user. Never from inside conn_close: until it comes, `user` is used.
     * `reason` lasts as long as the call, here and below. */
    void (*closed)(void *user, struct conn *conn, const char *reason);
    /* For a dial, may be NULL: an attempt to connect has come to nothing. Another one follows. */
    void (*failed)(void *context, const char *reason);
};

/* Shared by all listeners and loops of a house. */
struct io_limits {
    uint64_t idle_ms; /* closed after this long without a byte either way; 0: never */
    unsigned max_conns;
    size_t out_high, out_max;
    atomic_uint conns; /* how many were accepted and are not closed */
};
#define IO_LIMITS_DEFAULT                                                                          \
    {                                                                                              \
        .idle_ms = 120000, .max_conns = 10000, .out_high = 1u << 20, .out_max = 64u << 20          \
    }

void conn_need(struct conn *conn, size_t total);

/* Room for `n` bytes at the end of the output; fill it, then say how much was used. NULL: it is
 * closed or closing, for want of memory perhaps. The two calls come as a pair with nothing in
 * between. */
uint8_t *conn_space(struct conn *conn, size_t n);
void conn_used(struct conn *conn, size_t n);
void conn_write(struct conn *conn, struct bytes copy);
/* Queues a slice without copying; takes over one count of `owner`. */
void conn_write_slice(struct conn *conn, struct bytes slice, struct counted *owner);

bool conn_congested(const struct conn *conn);
bool conn_is_open(const struct conn *conn);

/* Closes now, or once everything queued has left. `reason` is a literal, for `closed`. What is
 * written afterwards is dropped. */
void conn_close(struct conn *conn, const char *reason);
void conn_finish(struct conn *conn, const char *reason);

/* Keeps the struct alive past its closing, for answers that come later. While somebody holds it, a
 * peer that has sent its end still gets them: hold for an answer that is sure to come soon, since a
 * peer that is gone looks the same. Home loop only. */
void conn_hold(struct conn *conn);
void conn_drop(struct conn *conn);

struct loop *conn_loop(const struct conn *conn);
const struct addr *conn_peer(const struct conn *conn);
const struct addr *conn_local(
    const struct conn *conn);              /* the address by which the peer reached us */
uint64_t conn_id(const struct conn *conn); /* unique in the process, for logs */

/* ---- listening and dialling ---- */

/* Takes an address (port 0: any free one; listener_addr tells) without answering there yet. On the
 * thread of loops[0], or before the loops run. */
must_check enum err listener_open(struct loop *const *loops, size_t n_loops,
                                  const struct addr *addr, struct io_limits *limits,
                                  struct listener **out, struct fault *why);
/* Listens, and accepts from the next turn on. */
must_check enum err listener_start(struct listener *listener, const struct conn_ops *ops,
                                   void *context, struct fault *why);
const struct addr *listener_addr(const struct listener *listener);
void listener_close(struct listener *listener); /* loops[0]; no further connection is accepted */

/* Stops reading everywhere on this loop, sends what is queued, closes each connection when it is
 * empty and nobody holds it (a held one is still owed an answer). The loop goes on running; `done`
 * is called when none is left. */
void loop_drain(struct loop *loop, void (*done)(void *user), void *user);

/* Connects, and again with a growing, jittered pause (100 ms … 5 s) after each failure or loss. */
must_check enum err dial_open(struct loop *loop, const struct addr *addr,
                              const struct conn_ops *ops, void *context, struct io_limits *limits,
                              struct dial **out);
/* The peer has moved: attempts from now on go there. A connection that stands stays. */
void dial_retarget(struct dial *dial, const struct addr *addr);
struct conn *dial_conn(struct dial *dial); /* NULL while not connected */
/* Somebody waits: the next attempt begins now instead of after its pause, unless the last one was
 * made a moment ago. */
void dial_hurry(struct dial *dial);
void dial_close(struct dial *dial);

/* ---- TLS ---- */

/* Certificates, keys and whom to trust: read from files once, shared by any number of connections.
 * A connection with TLS has the same face as a plain one; a port that offers it still serves plain
 * peers, told from their first byte, unless it is `enforcing`. */
enum tls_ask { TLS_ASK_NOT, TLS_ASK, TLS_DEMAND };

struct tls_options {
    const char *cert, *key; /* PEM files, the key without a password: who we are. A server's must */
    bool made_up;           /* of a server: a certificate that it signs itself, instead of these */
    const char *ca;         /* PEM file of authorities; NULL: the system's */
    bool trust_all;         /* any certificate of the peer will do */
    enum tls_ask ask;       /* of a server: whether its clients have to show who they are */
};

/* ERR_INVALID: a file is not what it should be, and `why` says which. */
must_check enum err tls_open_client(const struct tls_options *options, struct tls **out,
                                    struct fault *why);
must_check enum err tls_open_server(const struct tls_options *options, struct tls **out,
                                    struct fault *why);
void tls_close(struct tls *tls); /* connections, dials and listeners that use it go on. Any thread.
                                  */

/* From its next connection on. Loop: loops[0], or before the loops run. */
void listener_secure(struct listener *listener, struct tls *tls, bool enforcing);
/* Before its first attempt, that is, right after dial_open. The certificate must be for `host`, or
 * for the address where that is NULL. `opened` comes after the handshake, and `failed` when that
 * has come to nothing. */
must_check enum err dial_secure(struct dial *dial, struct tls *tls, const char *host);

/* ---- names of machines ---- */

#define HOST_TEXT_MAX 256

/* Asks the resolver, which may take seconds. A name that has several addresses gets its first IPv4
 * one: "localhost" is often ::1 as well, where a name server on 127.0.0.1 does not answer, and Java
 * prefers IPv4 too. */
must_check enum err address_of_host(const char *host, uint16_t port, struct addr *out,
                                    struct fault *why);

/* A name that is asked for in the background. Nobody waits for it: whoever started it looks now and
 * then, and may lose interest at any time. */
struct lookup;
struct lookup *lookup_start(const char *host, uint16_t port); /* NULL: no memory, no thread */
bool lookup_done(struct lookup *lookup);
/* ERR_NOT_FOUND: nobody has that name just now. */
must_check enum err lookup_result(const struct lookup *lookup, struct addr *out);
void lookup_close(struct lookup *lookup);

#endif
