/* io_int.h - what the files of this folder share. Nobody else includes it.
 *
 * libuv tells when a socket is ready, when time has passed and when somebody rang; the system calls
 * on sockets are our own, so that a partial write is a number and not a request object.
 */
#ifndef IO_IO_INT_H
#define IO_IO_INT_H

#include "base/dice.h"
#include "base/room.h"
#include "io/io.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <uv.h>

#define LOOP_IN_SIZE  (256u << 10) /* read at once; also the most that is kept without conn_need */
#define BREATH_IN_MAX (64u << 10)  /* so much read, and output leaves: the peers get to work */
#define TURN_IN_MAX   (256u << 10) /* so much read, and the turn ends, although there is more */
#define FRONT_MAX     (16u << 10)  /* so much that was kept is copied in front of the next read */
#define LINGER_MS     500          /* a peer that has all our bytes gets this long to say goodbye */
#define IDLE_TICKS    32           /* idle connections are looked for so often in each idle_ms */
#define IDLE_TICK_MIN 5            /* ms */

/* ---- out.c: the output of one connection, and the memory it is made of ---- */

#define CHUNK_SIZE      (16u << 10) /* with its head */
#define POOL_CHUNKS_MAX 256u        /* kept for the next turn: 4 MiB in each loop */
#define POOL_PIECES_MAX 4096u
#define OUT_IOVECS      128

struct chunk {          /* bytes copied for output */
    struct chunk *next; /* in the pool */
    size_t size, used;  /* of data */
    unsigned pieces;    /* how many point here */
    uint8_t data[];
};

struct piece { /* a run of bytes that waits to leave */
    struct piece *next;
    const uint8_t *at;
    size_t len;
    struct chunk *chunk;   /* where it was copied to, or NULL */
    struct counted *owner; /* whose slice it is, or NULL */
};

/* What a loop keeps so that in the steady state nothing is allocated. */
struct pool {
    struct chunk *chunks;
    struct piece *pieces;
    unsigned n_chunks, n_pieces;
};

struct out {
    struct piece *first, *last;
    struct chunk *chunk; /* being filled */
    size_t queued;       /* bytes in all pieces */
};

void pool_clear(struct pool *pool);

uint8_t *out_space_fresh(struct out *out, struct pool *pool, size_t n);
void out_used_fresh(struct out *out, struct pool *pool, size_t n);

/* Room for `n` bytes; out_used must follow at once. NULL: no memory. */
static inline uint8_t *out_space(struct out *out, struct pool *pool, size_t n)
{
    struct chunk *chunk = out->chunk;
    if (chunk && n <= chunk->size - chunk->used && pool->pieces)
        return chunk->data + chunk->used;
    return out_space_fresh(out, pool, n);
}

static inline void out_used(struct out *out, struct pool *pool, size_t n)
{
    struct chunk *chunk = out->chunk;
    invariant(chunk && n <= chunk->size - chunk->used);
    struct piece *last = out->last;
    if (last && last->chunk == chunk && last->at + last->len == chunk->data + chunk->used) {
        last->len += n; /* most replies just follow the one before */
        chunk->used += n;
        out->queued += n;
    } else {
        out_used_fresh(out, pool, n);
    }
}

/* Takes over one count of `owner`, also when there is no memory. */
must_check enum err out_slice(struct out *out, struct pool *pool, struct bytes slice,
                              struct counted *owner);
int out_gather(const struct out *out, struct iovec *parts, int max, size_t *total);
void out_sent(struct out *out, struct pool *pool, size_t n); /* the first n bytes have left */
void out_clear(struct out *out, struct pool *pool);

/* ---- patience.c: looking for input for a moment before sleeping for it ---- */

struct patience {       /* zeroed: it looks */
    int balance_ns;     /* what looking has earned lately */
    unsigned rest;      /* so many times it does not look */
    unsigned rest_last; /* how many they were the last time; 0: looking has paid since */
};
bool patience_look(struct patience *patience, int fd); /* true: there is something to read */

/* ---- loop.c ---- */

struct loop {
    uv_loop_t uv;
    uv_async_t bell;       /* rung by loop_post and loop_stop */
    uv_prepare_t turn_end; /* the last thing before the loop waits: the hook, then the output */
    uv_check_t read_end;   /* the first thing when all that was ready has been read */
    uv_idle_t again;       /* keeps the loop awake while a connection is to be resumed */
    uv_timer_t idle_tick, linger_tick;
    uint64_t idle_tick_ms;

    atomic_bool owned; /* a thread is inside loop_run */
    atomic_bool stop;
    struct clock *clock;
    struct log *log;

    struct room key;         /* of everything here, if it takes guests; guest.c */
    bool hospitable;         /* it takes some */
    bool over;               /* it has heard that it is to stop; it never runs again */
    unsigned guests;         /* inside, or about to come back */
    _Atomic int crowd;       /* so many that come now find too many others */
    struct list rings;       /* to be rung by whoever goes out next */
    uint64_t waits_until_ms; /* when its own thread looks again, should nothing happen */

    struct room mailbox; /* guards posts */
    struct list posts;
    _Atomic bool mail; /* there are some; set inside, so that who finds none need not enter */

    void (*hook)(void *user);
    void *hook_user;
    void (*settle)(void *user);
    void *settle_user;
    void (*drained)(void *user);
    void *drained_user;
    bool draining, closing;

    struct list conns;     /* by_loop: every connection until its `closed` */
    struct list held;      /* by_loop: closed, but somebody still holds the struct */
    struct list dirty;     /* by_dirty: to be looked at when the turn ends */
    struct list resumed;   /* by_resumed: no longer congested and has kept input */
    struct list lingering; /* by_linger: in order of linger_until_ms */
    struct list timers, signals, listeners, dials;

    uint64_t tick_ns; /* the time at the last idle tick: a coarse clock that costs a load */
    size_t turn_in;   /* bytes read in this turn */
    bool looks;       /* before it waits */
    bool heard;       /* something was read since it was last about to wait */
    struct patience patience;
    size_t breath_in; /* and since output last left */
    bool unsettled;   /* an input was given bytes since `settle` was called … */
    size_t in_used;   /* … and these are theirs, from the beginning of `in` on */
    uint8_t *in;
    struct pool pool;
};

extern _Thread_local struct loop *loop_inside; /* the loop that this thread runs */

/* loop_here for paths where a call would be felt. */
static inline void here(const struct loop *loop)
{
    invariant(loop_inside == loop || !atomic_load_explicit(&loop->owned, memory_order_relaxed));
}

void loop_run_posts(struct loop *loop); /* those that are there now */
void loop_end_turn(struct loop *loop);  /* posts and the hook, then everything written leaves */
void loop_settle(struct loop *loop);    /* what inputs have left for later is done */
void loop_breathe(struct loop *loop);   /* the same, and everything written leaves */
struct space {
    uint8_t *at;
    size_t size;
};
struct space loop_space(struct loop *loop); /* for input; at least half of its buffer */
void loop_wake(struct loop *loop);          /* another turn at once */
void loop_expect_idle(struct loop *loop, uint64_t idle_ms);
void loop_expect_linger(struct loop *loop);

/* ---- guest.c ---- */

void loop_run_with_guests(struct loop *loop);

/* ---- secure.c: TLS on one connection ---- */

struct tls *tls_hold(struct tls *tls); /* tls.c: one more who uses it. Any thread. */

#define SHAKE_MAX_MS 10000u /* so long may a peer that has called us take for its handshake */

enum secure_state { SECURE_UNKNOWN, SECURE_SHAKING, SECURE_ON, SECURE_OVER };

struct secure {
    struct tls *tls;
    struct ssl_st *ssl; /* NULL while UNKNOWN */
    enum secure_state state;
    bool calling;   /* it was us who dialled */
    bool enforcing; /* whoever speaks plainly is refused */
    bool was_on;
    bool more; /* to be read again without an event: what is there is in OpenSSL already */
    bool bye;  /* our end has been said */
    bool eof;  /* the socket is at its end */
    int os;    /* errno of the socket, or 0 */
    int ended; /* how reading ended, SSL_ERROR_…, or 0 */
    unsigned long ended_code;
    struct out wire; /* enciphered, on its way to the socket */
    uint64_t until_ns;
    char host[HOST_TEXT_MAX];
    char where[HOST_TEXT_MAX + 8]; /* for sentences */
    char why[400];                 /* the connection's reason, once it has failed */
};

/* Makes it a connection with TLS: `calling` whom, or to be told from its first byte. Any thread. */
must_check enum err secure_open(struct conn *conn, struct tls *tls, const char *host, bool calling);
void secure_free(struct conn *conn);
void secure_call(struct conn *conn); /* begins the handshake of one that was dialled */
/* True: its first byte has come and it is plain; then it has nothing to do with this file. */
bool secure_is_plain(struct conn *conn);
/* As recv, but 0 is also that it was closed or is being closed. */
size_t secure_receive(struct conn *conn, uint8_t *into, size_t room);
/* Enciphers what is queued, as far as it should. False: the connection was closed. */
bool secure_seal(struct conn *conn);
bool secure_overdue(const struct conn *conn, uint64_t now_ns); /* its handshake takes too long */

/* ---- conn.c ---- */

enum conn_state {
    CONN_OPEN,
    CONN_FINISHING, /* sends what is queued, reads nothing */
    CONN_LINGERING, /* has sent everything and its end; throws away what comes until the peer's */
    CONN_CLOSED     /* `closed` is about to be called or was */
};

struct conn {
    uv_poll_t poll;
    struct loop *loop; /* NULL: the loop is gone and only a holder is left */
    int fd;
    int events; /* what poll is set to */
    enum conn_state state;
    unsigned holders;
    bool congested;     /* input waits until the output has drained */
    bool blocked;       /* the kernel took no more; waiting for it to be writable */
    bool left_over;     /* input stopped because of congestion: call it again without new bytes */
    bool eof;           /* the peer has sent its end */
    bool retired;       /* reads no more; whoever holds it may still answer */
    bool heard;         /* at least one byte has come */
    bool announced;     /* `opened` gave a user, who is owed one `closed` */
    bool counted;       /* in limits->conns */
    struct conn **lent; /* where the guest that reads it keeps it, or NULL: the loop reads */
    struct patience patience; /* of its guests */

    uint8_t *kept; /* input that is not finished */
    size_t kept_len, kept_size;
    size_t need; /* input is not called with fewer bytes than this */
    struct out out;
    struct secure *secure; /* NULL: plain */
    uint64_t active_ns;    /* loop->tick_ns when the last byte went either way */
    uint64_t linger_until_ms;

    const struct conn_ops *ops;
    void *context, *user;
    struct io_limits *limits;
    struct dial *dial; /* to be told when this is over, or NULL */
    const char *reason;

    struct link by_loop, by_dirty, by_resumed, by_linger;
    struct post arrival; /* on its way from the listener to its loop */
    struct addr peer, local;
    uint64_t id;
};

/* A connection over `fd`, not yet on any loop; any thread. NULL: no memory, and fd is not taken. */
struct conn *conn_create(int fd, const struct conn_ops *ops, void *context,
                         struct io_limits *limits);
/* Brings it to life on its loop; takes it over in any case. */
void conn_adopt(struct loop *loop, struct conn *conn);
void conn_resume(struct conn *conn); /* taken from loop->resumed */
void conn_flush(struct conn *conn);  /* taken from loop->dirty */
/* Reads no more, because the loop drains or the peer has sent its end; ends when it is empty and
 * nobody holds it. */
void conn_retire(struct conn *conn);
void conn_announce(struct conn *conn); /* tells its user that it is there */
/* From now on `*to` alone reads it, which is NULL when it was closed. False: not now. */
must_check bool conn_lend(struct conn *conn, struct conn **to);
void conn_take_back(struct conn *conn, bool readable);
void conn_mark_dirty(struct conn *conn);   /* to be looked at when the turn ends */
void conn_end_of_input(struct conn *conn); /* the peer has sent its end */

/* ---- dial.c, listener.c ---- */

void dial_lost(struct dial *dial, bool heard);            /* its connection is over */
void dial_connected(struct dial *dial);                   /* its connection is of use */
void dial_refused(struct dial *dial, const char *reason); /* it never came to be of use */
void dial_close_link(struct link *link); /* for loop_close: a link of loop->dials */
void listener_close_link(struct link *link);

/* ---- socket.c ---- */

union sock {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
};

socklen_t sock_from_addr(const struct addr *addr, union sock *out);
struct addr sock_name(int fd); /* our own end */
void sock_no_delay(int fd);

#endif
