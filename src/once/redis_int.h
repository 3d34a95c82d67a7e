/* redis_int.h - the store on Redis: one key for each id, one script for each change.
 *
 *     redis.c          opening: first connection, birth, probe, warnings; the table of functions
 *     redis_ops.c      operations: each one's command, its answer, and the rounds of a batch
 *     redis_wire.c     a connection: commands out, answers in, what the server's errors mean
 *     redis_script.c   the rules of decide.c in Lua
 *     redis_url.c      where to connect, and as whom
 *     redis_tls.c      the same over TLS
 *
 * What is under a key, TABLE:{hex of the id}. The braces make it one slot of a cluster; a script
 * touches this key and no other. It is a hash:
 *
 *     s  state, enum once_state        u  until, in ms of the server's clock
 *     t  token of the claim            p  fingerprint of the body
 *     f  fence                         n  the key as people read it
 *     r  retention: how long the row of a claim outlives its expiry, so that fence and steps do
 *     h  home: the server's run in which the holder announced itself; see below
 *     step:NAME                        results of steps, until the message is done
 *
 * Every write sets the time at which Redis forgets the key by itself: there is nothing to sweep.
 * Tokens and fingerprints have 64 bits, the numbers of Lua 53: they are kept and compared as text.
 * Times and fences stay below 2^53.
 *
 * A batch is one write and one read: a command for each operation, then GET TABLE:birth, then WAIT
 * if replicas are asked for. The birth is a random number, set by whoever finds none at open. It is
 * read behind the operations: whatever emptied the store before one of them ran is seen (H-13).
 * What had been claimed in such a batch is released again, and nobody runs.
 *
 * A server that was asked for replicas and has too few of them has done the writes all the same.
 * They are reported as failed, and claims among them are released.
 *
 * Takeover. A process that may be taken from announces itself: its connections have the name
 * once-INSTANCE, and its claims the run id of the server that has seen this name. A holder is gone
 * if this very run of the server has no connection of that name any more. After a restart or a
 * fail-over everybody's connections are gone, which says nothing: claims from before it are left to
 * their expiry.
 *
 * Plain form. The key is op.plain as it is, a string "0" or "1" with an expiry, as other programs
 * of this recipe have it: no token, no fence, no renewal, no steps.
 */
#ifndef ONCE_REDIS_INT_H
#define ONCE_REDIS_INT_H

#include "base/buf.h"
#include "once.h"
#include "once/driver.h"

#include <hiredis/hiredis.h>
#include <stdatomic.h>

/* ---- redis_url.c ---- */

struct redis_url {
    char host[256]; /* empty: `path` */
    char path[108]; /* of a socket */
    int port;
    int db;
    bool login; /* there is a password, which may be empty */
    char user[256];
    char password[1024];
    bool tls;
    char ca[256], cert[256], key[256]; /* files, or empty */
    char where[288];                   /* for sentences: host and port, never the rest */
};

/* ERR_INVALID, ERR_UNSUPPORTED; the sentence quotes nothing of the URL but its scheme. */
must_check enum err redis_url_parse(const char *text, struct redis_url *out, struct fault *why);

/* ---- redis_script.c ---- */

enum redis_script {
    SCRIPT_CLAIM,       /* token fingerprint expiry retention name home steal →
                           [1 fence left state-before], [2 - left holder home] or
                           [3 - left fingerprint] */
    SCRIPT_RENEW,       /* token expiry home → outcome */
    SCRIPT_FINISH,      /* token retention → outcome */
    SCRIPT_RELEASE,     /* token retention forget → outcome */
    SCRIPT_LOOK,        /* → [1 state fence left] or [5] */
    SCRIPT_PUT,         /* token field result → outcome */
    SCRIPT_PLAIN_CLAIM, /* expiry → [1], [2 left] or [3 left]; left -1: it never expires */
    SCRIPT_PLAIN_LOOK,  /* → [1 state left] or [5] */
    SCRIPT_COUNT
};

extern const char *const redis_scripts[SCRIPT_COUNT];

/* ---- store and connection ---- */

struct store {
    struct redis_url url;
    char table[49];
    bool plain, takeover;
    int wait_ms, replicas;
    void (*log)(void *user, int level, const char *line);
    void *log_user;
    _Atomic uint64_t birth;
    struct redis_tls {
        struct ssl_ctx_st *ctx; /* NULL: none */
        struct bio_method_st *method;
    } tls;
};

struct conn {
    struct store *store;
    redisContext *link;
    struct ssl_st *ssl; /* NULL: none */
    struct buf out;     /* commands that are not sent yet */
    char sha[SCRIPT_COUNT][41];
    uint64_t home;     /* of this run of the server; 0: not known, so nobody is taken from */
    uint32_t instance; /* that this connection announces; 0: none yet */

    /* Of a batch: who has what a claim did not get, and from whom it shall be taken. */
    struct rival {
        uint64_t holder, home, steal;
    } rivals[ONCE_OPS_MAX];
};

/* ---- redis_wire.c ---- */

/* What an error answer asks of us. */
enum redis_said {
    SAID_NO_SCRIPT, /* load them again */
    SAID_AWAY,      /* not this server, or not now: another connection may find better */
    SAID_DENIED,
    SAID_UNABLE,  /* this command, for now */
    SAID_REFUSED, /* this command */
};

must_check enum err wire_open(struct store *store, struct conn **out, struct fault *why);
void wire_close(struct conn *conn);
/* Answers may be on their way that nobody will read: every later call says ERR_IO. */
void wire_spoil(struct conn *conn);
must_check enum err wire_load_scripts(struct conn *conn, struct fault *why);

/* Commands gather in `out` until they are sent: the number of arguments, then each of them. */
void wire_command(struct conn *conn, size_t n_args, const char *name);
void wire_arg(struct conn *conn, struct bytes arg);
void wire_arg_str(struct conn *conn, const char *arg);
void wire_arg_i64(struct conn *conn, int64_t arg); /* not negative */
void wire_arg_u64(struct conn *conn, uint64_t arg);

/* ERR_IO: the connection is of no use any more. */
must_check enum err wire_send(struct conn *conn, struct fault *why);
/* The next answer, also one that is an error. Freed by reply_free. */
must_check enum err wire_answer(struct conn *conn, redisReply **out, struct fault *why);
/* Both, for a single command. */
must_check enum err wire_ask(struct conn *conn, redisReply **out, struct fault *why);
/* The value of a setting of the server, which lives as long as `reply`; NULL: it does not tell. */
must_check enum err wire_setting(struct conn *conn, const char *name, redisReply **reply,
                                 const char **out, struct fault *why);
void reply_free(redisReply **reply);

/* `reply` is an error: its kind, and a sentence with the server's words and what to do. */
enum redis_said wire_said(const struct conn *conn, const redisReply *reply, struct fault *why);
/* The same as an enum err, for what is asked outside of operations. */
enum err wire_refused(const struct conn *conn, const redisReply *reply, struct fault *why);

/* ---- redis_tls.c ---- */

/* ERR_INVALID: a file of the URL cannot be used. redis_tls_close also after an error. */
must_check enum err redis_tls_open(struct store *store, struct fault *why);
void redis_tls_close(struct store *store);
/* On a link that is there. ERR_DENIED: the server's certificate will not do. */
must_check enum err redis_tls_shake(struct conn *conn, struct fault *why);
void redis_tls_hang_up(struct conn *conn);
/* As send and recv. */
ssize_t redis_tls_send(struct conn *conn, const void *at, size_t size);
ssize_t redis_tls_recv(struct conn *conn, void *at, size_t size);

/* ---- redis_ops.c ---- */

enum err redis_run(struct conn *conn, struct op *const *ops, size_t n, struct fault *why);

/* ---- redis.c ---- */

extern ONCE_API const struct once_driver once_driver_redis;

#endif
