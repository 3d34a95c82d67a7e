/* bench_broker.h - the load generator for brokers: raw remoting frames, whoever answers them.
 *
 *     bench_broker send|txn|poll|pop|idle|grow HOST:PORT PID [name=number ...]
 *
 * One thread, one epoll, so that it takes as little as it can from the machine that it shares with
 * the server. Requests are made once and only numbered anew; every answer is decoded and checked,
 * because a server that refuses is fast. The server's processor time and memory are read from
 * /proc/PID. The result is one line of JSON; broker.py runs servers and loads in turn and compares.
 *
 *     send   conns × flight sends of `size` bytes under way at any time
 *     txn    the same with transactions: a half message and its commit
 *     poll   `rate` messages a second over all queues to a consumer that waits in long polls
 *     pop    conns consumers that pop `count` stored messages and acknowledge each
 *     idle   conns consumers that register by heartbeat and then only heartbeat
 *     grow   turns of sends and pulls over so many topics, queues, groups and connections
 *
 * Whatever is not as it must be ends the program with a sentence and status 2.
 */
#ifndef BENCH_BROKER_H
#define BENCH_BROKER_H

#include "remoting/codes.h"
#include "remoting/remoting.h"

#include <sys/types.h>

#define QUEUES    8 /* what a topic gets that is created by sending to it */
#define TEXT_ROOM 128
#define NS_OF_MS  UINT64_C(1000000)

/* The numbers of the command line. */
struct load {
    const char *host;
    uint16_t port;
    pid_t pid;
    enum head_form form;
    unsigned conns, flight, size, rate, rounds, count;
    unsigned topics, queues, groups, idle, batch; /* load_grow */
    unsigned warm_ms, run_ms;
    unsigned asked; /* load_send: in turns, one for each line on standard input */
    unsigned binary;
};

int load_send(const struct load *load);
int load_txn(const struct load *load);
int load_poll(const struct load *load);
int load_pop(const struct load *load);
int load_idle(const struct load *load);
int load_grow(const struct load *load);

/* ---- bench_broker_wire.c: connections ---- */

void must(bool fine, const char *what); /* says it with errno */
void wrong(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
uint64_t now_ns(void);

/* A connection. Writing blocks: what is under way always fits into the kernel's buffers. */
struct wire {
    int fd;
    uint8_t *in; /* arrived and not looked at yet: from `at` to `end` */
    size_t at, end, size;
};

struct answer {
    struct head head;
    struct bytes body;
};

void wire_open(struct wire *w, const struct load *load, size_t in_size);
void wire_close(struct wire *w);
void wire_write(struct wire *w, struct bytes bytes);
/* Takes what is there, at most one read's worth. False: nothing. */
bool wire_receive(struct wire *w);
/* The next whole frame of it; valid until the next one. */
bool wire_next(struct wire *w, struct answer *out);
/* Waits for the answer to the only request under way. True: success; false: busy, try again. */
bool wire_expect(struct wire *w, const char *what);

int epoll_over(struct wire *wires, unsigned n); /* data.u32 is the index */

/* ---- bench_broker_frames.c: requests ---- */

/* A request with places to be numbered anew. */
struct stamp {
    uint8_t *frame;
    size_t len;
    size_t opaque, queue, key, body; /* where in the frame; queue 0: it has its own */
    size_t due;                      /* 0: it is not timed */
    size_t items, stride;            /* keys in it, and from one to the next */
    enum head_form form;
};

/* Always ten digits, so that frames keep their length. */
#define FIRST_OPAQUE UINT32_C(1000000000)
#define PRODUCERS    "bench_producer" /* their group */

/* What a send is for. */
struct mould {
    const char *topic;
    bool one_queue; /* always `queue`, of load.queues; else the stamp says which, of QUEUES */
    unsigned queue;
    bool half;
    bool timed;     /* stamp_due says when */
    unsigned batch; /* so many messages in one SEND_BATCH_MESSAGE; 0: a plain send */
};

/* A SEND_MESSAGE_V2 as the Java client writes it, properties and all. */
void stamp_make(struct stamp *s, const struct load *load, const struct mould *mould);
/* Copies the frame to `to` with these numbers in it; of a batch, `key` is the first one's. */
void stamp_put(const struct stamp *s, uint8_t *to, uint32_t opaque, uint32_t queue, uint64_t key);
void stamp_due(const struct stamp *s, uint8_t *frame, int64_t due_ms); /* into the copy */
void stamp_clear(struct stamp *s);

/* Each fills `out` with one frame of the consumer of `topic` and returns its length. */
size_t heartbeat_frame(void *out, size_t size, const struct load *load, const char *client,
                       const char *group, const char *topic);
size_t pull_frame(void *out, size_t size, const struct load *load, const char *group,
                  const char *topic, int queue, int64_t offset);

/* A pull that does not wait, and says itself what it subscribes to. */
struct pull_of {
    const char *group, *topic;
    unsigned queue, count;
    int64_t offset;
    uint32_t opaque; /* as of a stamp */
};
size_t pull_frame_of(void *out, size_t size, const struct load *load, const struct pull_of *pull);

uint32_t answer_opaque(const struct answer *a); /* the number it was stamped with */
int64_t answer_number(const struct answer *a, struct bytes field); /* it must be there */
void topic_name(char out[TEXT_ROOM], const char *prefix);          /* never used before */

/* ---- bench_broker_count.c: what is measured ---- */

/* Nanoseconds of many messages. */
struct sample {
    uint64_t *ns;
    size_t n, cap;
};
void sample_add(struct sample *s, uint64_t ns);
double sample_us(struct sample *s, double share); /* sorts */

uint64_t cpu_ns_of(pid_t pid); /* all threads, also those that have ended */
double resident_mb_of(pid_t pid);
double cpu_ns_own(void);

#endif
