/* redis_wire.c - one connection. hiredis connects and reads answers; writing is done here, because
 * its own writing raises SIGPIPE in a program that did not ask for it, and copies more. */
#include "once/redis_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

/* 256 operations with a step's result each, and a key of 64 KiB each, fit in. */
#define OUT_MAX  (64u << 20)
#define OUT_KEPT (1u << 20) /* memory that a quiet connection may keep */
#define IN_SIZE  (16u << 10)

/* ---- commands out ---- */

/* The decimal digits of `n` at the end of `text`; snprintf would take a tenth of a batch's time. */
static struct bytes decimal(uint64_t n, char text[20])
{
    size_t at = 20;
    do
        text[--at] = (char)('0' + n % 10);
    while (n /= 10);
    return bytes_of(text + at, 20 - at);
}

static void head(struct conn *conn, char kind, size_t n)
{
    char text[20];
    buf_add_u8(&conn->out, (uint8_t)kind);
    buf_add(&conn->out, decimal(n, text));
    buf_add(&conn->out, BYTES("\r\n"));
}

void wire_arg(struct conn *conn, struct bytes arg)
{
    head(conn, '$', arg.len);
    buf_add(&conn->out, arg);
    buf_add(&conn->out, BYTES("\r\n"));
}

void wire_command(struct conn *conn, size_t n_args, const char *name)
{
    head(conn, '*', n_args + 1);
    wire_arg_str(conn, name);
}

void wire_arg_str(struct conn *conn, const char *arg)
{
    wire_arg(conn, bytes_str(arg));
}

void wire_arg_i64(struct conn *conn, int64_t arg)
{
    invariant(arg >= 0); /* spans, counts and numbers of databases */
    wire_arg_u64(conn, (uint64_t)arg);
}

void wire_arg_u64(struct conn *conn, uint64_t arg)
{
    char text[20];
    wire_arg(conn, decimal(arg, text));
}

void wire_spoil(struct conn *conn)
{
    if (conn->link->err == 0)
        conn->link->err = REDIS_ERR_OTHER;
}

/* Half a command may be out, or half an answer in: nothing can be said on this link any more. */
static enum err cut(struct conn *conn, int error, const char *doing, struct fault *why)
{
    const char *where = conn->store->url.where;
    wire_spoil(conn);
    if (error == EAGAIN || error == EWOULDBLOCK || error == ETIMEDOUT)
        return fault_set(why, ERR_IO, "Redis at %s did not answer in time, %s", where, doing);
    if (error == 0)
        return fault_set(why, ERR_IO, "Redis at %s closed the connection, %s", where, doing);
    errno = error;
    (void)fault_os(why, "Redis at %s: the connection broke, %s", where, doing);
    return ERR_IO;
}

enum err wire_send(struct conn *conn, struct fault *why)
{
    struct buf *out = &conn->out;
    enum err err = out->err;
    if (err == OK && conn->link->err)
        err = cut(conn, 0, "earlier", why);
    for (size_t sent = 0; err == OK && sent < out->len;) {
        ssize_t n = conn->ssl ? redis_tls_send(conn, out->at + sent, out->len - sent)
                              : send(conn->link->fd, out->at + sent, out->len - sent, MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
        else if (n == 0 || errno != EINTR)
            err = cut(conn, n == 0 ? 0 : errno, "when it was asked", why);
    }
    if (out->err) /* of memory; the link is as good as before */
        err = fault_set(why, out->err, "asking Redis at %s: %s", conn->store->url.where,
                        err_text(out->err));
    out->err = OK;
    out->len = 0;
    if (out->cap > OUT_KEPT)
        buf_clear(out);
    return err;
}

/* ---- answers in ---- */

void reply_free(redisReply **reply)
{
    if (*reply)
        freeReplyObject(*reply);
}

/* More of what has come. False: errno, or 0 when it is the end. */
static bool read_more(struct conn *conn)
{
    char in[IN_SIZE];
    redisContext *link = conn->link;
    errno = 0;
    if (!conn->ssl) {
        if (redisBufferRead(link) == REDIS_OK)
            return true;
        errno = link->err == REDIS_ERR_EOF ? 0 : errno;
        return false;
    }
    ssize_t n = redis_tls_recv(conn, in, sizeof in);
    return n > 0 && redisReaderFeed(link->reader, in, (size_t)n) == REDIS_OK;
}

enum err wire_answer(struct conn *conn, redisReply **out, struct fault *why)
{
    void *reply = NULL;
    for (;;) {
        if (conn->link->err)
            return cut(conn, 0, "earlier", why);
        if (redisGetReplyFromReader(conn->link, &reply) != REDIS_OK)
            return fault_set(why, ERR_IO, "%s does not speak as Redis does: %s",
                             conn->store->url.where, conn->link->errstr);
        if (reply)
            break;
        if (!read_more(conn))
            return cut(conn, errno, "when its answer was awaited", why);
    }
    *out = reply;
    return OK;
}

enum err wire_ask(struct conn *conn, redisReply **out, struct fault *why)
{
    enum err err = wire_send(conn, why);
    return err ? err : wire_answer(conn, out, why);
}

/* ---- what errors mean ---- */

static const struct meaning {
    const char *word;
    enum redis_said said;
    const char *advice;
} meanings[] = {
    {"NOSCRIPT", SAID_NO_SCRIPT, "its scripts were flushed"},
    {"LOADING", SAID_AWAY, "it is reading its data and will be there soon"},
    {"READONLY", SAID_AWAY, "it is a replica, which takes no writes: name the master"},
    {"MASTERDOWN", SAID_AWAY, "it is a replica without a master: name the master"},
    {"CLUSTERDOWN", SAID_AWAY, "its cluster is down"},
    {"TRYAGAIN", SAID_AWAY, "its cluster is moving keys"},
    {"BUSY", SAID_AWAY, "a script of somebody else runs and does not end"},
    {"NOAUTH", SAID_DENIED, "it wants a password: redis://user:password@host"},
    {"WRONGPASS", SAID_DENIED, "user or password is wrong"},
    {"NOPERM", SAID_DENIED, "this user may not do that: see ACL SETUSER"},
    {"OOM", SAID_UNABLE, "its memory is full: raise maxmemory or remove something"},
    {"MISCONF", SAID_UNABLE, "it cannot write its disk and therefore takes no writes"},
    {"NOREPLICAS", SAID_UNABLE, "it has fewer replicas than min-replicas-to-write"},
    {"MOVED", SAID_REFUSED, "it is one node of a cluster: name a proxy that knows them all"},
    {"ASK", SAID_REFUSED, "it is one node of a cluster: name a proxy that knows them all"},
    {"CROSSSLOT", SAID_REFUSED, "it is one node of a cluster: name a proxy that knows them all"},
    {"WRONGTYPE", SAID_REFUSED, "somebody else uses this key for something else"},
};

/* Redis 7 puts the word first. Before that, an error within a script reads
 * "ERR Error running script (…): @user_script:9: -OOM command not allowed …". */
static bool has_word(const char *text, const char *word)
{
    size_t len = strlen(word);
    if (strncmp(text, word, len) == 0 && text[len] == ' ')
        return true;
    const char *script = strstr(text, "@user_script");
    for (const char *at = script; at && (at = strstr(at, word)); at += len)
        if ((at[-1] == '-' || at[-1] == ' ') && at[len] == ' ')
            return true;
    return false;
}

static const struct meaning *meaning_of(const char *text)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (has_word(text, meanings[i].word))
            return &meanings[i];
    return NULL;
}

enum redis_said wire_said(const struct conn *conn, const redisReply *reply, struct fault *why)
{
    const struct meaning *meaning = meaning_of(reply->str);
    (void)fault_set(why, ERR_IO, "Redis at %s refuses: %s%s%.200s%s", conn->store->url.where,
                    meaning ? meaning->advice : "", meaning ? " (it says: " : "", reply->str,
                    meaning ? ")" : "");
    return meaning ? meaning->said : SAID_REFUSED;
}

enum err wire_refused(const struct conn *conn, const redisReply *reply, struct fault *why)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return fault_set(why, ERR_UNSUPPORTED, "%s does not answer as Redis does",
                         conn->store->url.where);
    switch (wire_said(conn, reply, why)) {
    case SAID_DENIED:
        return ERR_DENIED;
    case SAID_REFUSED:
        return ERR_UNSUPPORTED;
    case SAID_AWAY:
    case SAID_UNABLE:
    case SAID_NO_SCRIPT:
        break;
    }
    return ERR_IO;
}

/* ---- opening ---- */

static struct timeval span(int ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
}

static enum err dial(struct conn *conn, struct fault *why)
{
    const struct store *store = conn->store;
    const struct redis_url *url = &store->url;
    struct timeval wait = span(store->wait_ms);
    conn->link = url->host[0] ? redisConnectWithTimeout(url->host, url->port, wait)
                              : redisConnectUnixWithTimeout(url->path, wait);
    if (!conn->link)
        return ERR_NO_MEMORY;
    if (conn->link->err)
        return fault_set(why, ERR_IO, "cannot reach Redis at %s: %s", url->where,
                         conn->link->errstr);
    (void)fcntl(conn->link->fd, F_SETFD, FD_CLOEXEC);
    if (url->host[0])
        (void)redisEnableKeepAlive(conn->link);
    /* WAIT itself may take as long as wait_ms. */
    if (redisSetTimeout(conn->link, span(store->replicas ? store->wait_ms * 2 : store->wait_ms)))
        return cut(conn, errno, "setting its time-out", why);
    return url->tls ? redis_tls_shake(conn, why) : OK;
}

/* The server's own words are not repeated: some errors quote the arguments. */
static enum err log_in(struct conn *conn, struct fault *why)
{
    const struct redis_url *url = &conn->store->url;
    /* Before Redis 6 there was but one user, "default", and AUTH took the password alone. */
    bool named = url->user[0] && strcmp(url->user, "default") != 0;
    wire_command(conn, named ? 2 : 1, "AUTH");
    if (named)
        wire_arg_str(conn, url->user);
    wire_arg_str(conn, url->password);
    cleanup(reply_free) redisReply *reply = NULL;
    enum err err = wire_ask(conn, &reply, why);
    if (err || reply->type == REDIS_REPLY_STATUS)
        return err;
    const char *text = reply->type == REDIS_REPLY_ERROR ? reply->str : "";
    if (has_word(text, "LOADING"))
        return wire_refused(conn, reply, why);
    const char *reason = "user or password is wrong";
    if (strstr(text, "wrong number of arguments") || strstr(text, "syntax error"))
        reason = "it knows no users (Redis before 6): leave the user out of the URL";
    else if (strstr(text, "without any password") || strstr(text, "no password is set"))
        reason = "no password is set there: leave it out of the URL";
    return fault_set(why, ERR_DENIED, "Redis at %s does not let us in: %s", url->where, reason);
}

static enum err choose_db(struct conn *conn, struct fault *why)
{
    wire_command(conn, 1, "SELECT");
    wire_arg_i64(conn, conn->store->url.db);
    cleanup(reply_free) redisReply *reply = NULL;
    enum err err = wire_ask(conn, &reply, why);
    if (err || reply->type == REDIS_REPLY_STATUS)
        return err;
    err = wire_refused(conn, reply, why);
    return err == ERR_UNSUPPORTED ? fault_add(why, ERR_INVALID, "database %d", conn->store->url.db)
                                  : err;
}

enum err wire_load_scripts(struct conn *conn, struct fault *why)
{
    for (int i = 0; i < SCRIPT_COUNT; i++) {
        wire_command(conn, 2, "SCRIPT");
        wire_arg_str(conn, "LOAD");
        wire_arg_str(conn, redis_scripts[i]);
    }
    enum err err = wire_send(conn, why), first = OK;
    for (int i = 0; i < SCRIPT_COUNT && err == OK; i++) {
        cleanup(reply_free) redisReply *reply = NULL;
        err = wire_answer(conn, &reply, why);
        if (err || first)
            continue; /* all answers are read, the first refusal is told */
        if (reply->type != REDIS_REPLY_STRING || reply->len != sizeof conn->sha[i] - 1)
            first = wire_refused(conn, reply, why);
        else
            memcpy(conn->sha[i], reply->str, sizeof conn->sha[i]);
    }
    return err ? err : first;
}

enum err wire_setting(struct conn *conn, const char *name, redisReply **reply, const char **out,
                      struct fault *why)
{
    wire_command(conn, 2, "CONFIG");
    wire_arg_str(conn, "GET");
    wire_arg_str(conn, name);
    enum err err = wire_ask(conn, reply, why);
    if (err)
        return err;
    bool there = (*reply)->type == REDIS_REPLY_ARRAY && (*reply)->elements == 2 &&
                 (*reply)->element[1]->type == REDIS_REPLY_STRING;
    *out = there ? (*reply)->element[1]->str : NULL;
    return OK;
}

/* Which run of which server this is. A server that does not say cannot be asked who is gone. */
static enum err find_home(struct conn *conn, struct fault *why)
{
    wire_command(conn, 1, "INFO");
    wire_arg_str(conn, "server");
    cleanup(reply_free) redisReply *reply = NULL;
    enum err err = wire_ask(conn, &reply, why);
    const char *at = err == OK && reply->type == REDIS_REPLY_STRING ? reply->str : NULL;
    at = at ? strstr(at, "run_id:") : NULL;
    char start[17] = {0};
    if (at)
        (void)snprintf(start, sizeof start, "%s", at + strlen("run_id:"));
    conn->home = strtoull(start, NULL, 16);
    return err;
}

/* The sign of life is a connection, which says nothing for as long as handlers take. Where the
 * server closes such ones, or does not tell, to be missing means nothing. */
static enum err heed_timeout(struct conn *conn, struct fault *why)
{
    cleanup(reply_free) redisReply *reply = NULL;
    const char *timeout;
    enum err err = wire_setting(conn, "timeout", &reply, &timeout, why);
    if (err == OK && (!timeout || strcmp(timeout, "0") != 0))
        conn->home = 0;
    return err;
}

void wire_close(struct conn *conn)
{
    if (!conn)
        return;
    redis_tls_hang_up(conn);
    if (conn->link)
        redisFree(conn->link);
    buf_clear(&conn->out);
    free(conn);
}

static void close_conn_at(struct conn **conn)
{
    wire_close(*conn);
}

enum err wire_open(struct store *store, struct conn **out, struct fault *why)
{
    cleanup(close_conn_at) struct conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return ERR_NO_MEMORY;
    conn->store = store;
    conn->out = buf_upto(OUT_MAX);
    enum err err = dial(conn, why);
    if (err == OK && store->url.login)
        err = log_in(conn, why);
    if (err == OK && store->url.db != 0)
        err = choose_db(conn, why);
    if (err == OK)
        err = wire_load_scripts(conn, why);
    if (err == OK && store->takeover)
        err = find_home(conn, why);
    if (err == OK && conn->home)
        err = heed_timeout(conn, why);
    if (err)
        return err;
    *out = take(&conn);
    return OK;
}
