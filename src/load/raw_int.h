/* raw_int.h - load without the client library: bare sockets and frames that are made once.
 *
 * The library costs more for each message than a quick broker does, so it would measure itself.
 * Here one thread with one epoll has all connections of a role (sending or pulling). A request is
 * a template, copied and numbered anew; all that is due goes out in one write, and all that has
 * come is taken in one read. Every answer is decoded and checked all the same: a server that
 * refuses is fast.
 *
 *     raw.c        the thread, connections, where brokers are
 *     wire.c       a socket with its buffers
 *     frames.c     templates of requests
 *     raw_send.c   sends: `in_flight` requests under way on each connection
 *     raw_pull.c   pulls: one under way for each queue
 *
 * A connection that breaks is not made anew: what was under way on it has failed, and its part of
 * the load is over. Neither TLS nor signatures.
 */
#ifndef LOAD_RAW_INT_H
#define LOAD_RAW_INT_H

#include "load/load_int.h"
#include "remoting/remoting.h"

/* ---- wire.c ---- */

struct wire {
    int fd;
    bool dead;
    char reason[128];
    uint8_t *in,
        *out; /* arrived and not taken: in_at to in_end; to be written: out_at to out_end */
    size_t in_at, in_end, in_size, out_at, out_end, out_size;
    struct buf spare; /* of decoding */
};

struct wire_answer {
    struct head head;
    struct bytes body;
};

/* `address` is "host:port". Connects, and waits for it at most `timeout_ms`. */
must_check enum err wire_open(struct wire *w, const char *address, size_t in_size, size_t out_size,
                              int timeout_ms, struct fault *why);
void wire_close(struct wire *w);
/* Room for n bytes behind what is to be written, or NULL: not now. */
uint8_t *wire_room(struct wire *w, size_t n);
void wire_put(struct wire *w, size_t n); /* so much of it was filled */
void wire_flush(struct wire *w);         /* writes what the kernel takes */
bool wire_waits(const struct wire *w);   /* something is left to be written */
/* Takes what is there, at most one read's worth. False: nothing. */
bool wire_receive(struct wire *w);
/* The next whole frame of it; good until wire_receive. */
bool wire_next(struct wire *w, struct wire_answer *out);

/* ---- frames.c ---- */

#define OPAQUE_FIRST UINT32_C(1000000000) /* ten digits, so that frames keep their length */

/* A send request for one queue, up to its body. */
struct template
{
    uint8_t *head;
    uint32_t len;
    uint32_t opaque_at, key_at; /* key_at 0: it has none, it is a batch */
    enum head_form form;
};

/* What follows: the same for all queues. */
struct payload {
    uint8_t *body;
    size_t size;
    size_t first_at, stride; /* of each message's body … */
    size_t key_at;           /* … and of its key; 0: that is in the head */
};

must_check enum err payload_make(struct payload *p, const struct run *run);
void payload_clear(struct payload *p);
must_check enum err template_make(struct template *t, const struct run *run,
                                  const struct place *place, const struct payload *payload);
void template_clear(struct template *t);
/* Copies both to `to`, numbered anew; returns how many bytes. `due_ns` is stamped for LOAD_E2E. */
size_t request_put(uint8_t *to, const struct template *t, const struct payload *p,
                   const struct run *run, uint32_t opaque, uint64_t number, uint64_t due_ns);
/* A pull of up to `batch` messages that waits `suspend_ms` for the first; 0: it does not fit. */
size_t pull_put(uint8_t *to, size_t room, const struct run *run, const struct omq_queue *queue,
                int64_t offset, uint32_t opaque, int suspend_ms);

/* ---- raw.c ---- */

struct raw;

struct conn {
    struct lane lane;
    struct wire wire;
    struct raw *raw;
    unsigned index, broker;
    bool out_wanted; /* epoll is to tell when it can be written to */
    void *work;      /* its role's */
};

/* A role. All in the room of the connection's lane. */
struct role {
    must_check enum err (*open)(struct conn *conn);
    void (*answer)(struct conn *conn, const struct wire_answer *answer, uint64_t now_ns);
    /* Asks for what is due; `*due_ns` is when to come again. */
    void (*fill)(struct conn *conn, uint64_t now_ns, uint64_t *due_ns);
    void (*lost)(struct conn *conn, uint64_t now_ns); /* the connection is dead */
    bool (*idle)(struct conn *conn);
    void (*close)(struct conn *conn);
    size_t in_size;
};

struct raw_broker {
    char *name, *address;
    size_t *places; /* indexes of run.places */
    size_t n_places;
};

struct raw {
    struct part part;
    struct run *run;
    const struct role *role;
    struct conn *conns;
    unsigned n;
    struct raw_broker *brokers;
    size_t n_brokers;
    struct template *templates; /* one for each place; sending only */
    struct payload payload;
    size_t request_max; /* the longest request */
    int epoll_fd;
    pthread_t thread;
    bool started;
    atomic_bool ended, closing;
};

must_check enum err raw_open(struct run *run, const struct role *role, struct part **out,
                             struct fault *why);
extern const struct role role_send, role_pull;

#endif
