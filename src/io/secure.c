/* secure.c - TLS on one connection, behind the same face as a plain one.
 *
 * OpenSSL sees no socket. It reads through wire_read, which is a recv, and writes through
 * wire_write, which appends to a second output queue, `wire`; conn.c sends that one where it would
 * send `out`. So what users write still waits in `out` as it is, in pieces and slices, is counted
 * there for back-pressure, and is enciphered when the turn ends, a record's worth at a time and
 * never more than WIRE_HIGH ahead of the socket.
 *
 *     UNKNOWN   accepted; the first byte decides whether it is TLS or plain
 *     SHAKING   in the handshake, which has SHAKE_MAX_MS
 *     ON        bytes go both ways
 *     OVER      failed: an alert may have to leave, then the connection ends
 *
 * Who dials is told of a connection when it is ON, so that a handshake that fails is an attempt
 * that failed. Whoever accepts has it at once, because until the first byte it may be plain.
 */
#include "io/tls_int.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>

#define TLS_FIRST_BYTE 0x16        /* of a handshake; a frame would begin with its length */
#define RECORD_MAX     16128u      /* of plain bytes: with what TLS adds it fits into a chunk */
#define WIRE_HIGH      (64u << 10) /* no more is enciphered until it has left */
#define WIRE_MAX       (1u << 20)  /* what OpenSSL may want to say on its own */

/* ---- what OpenSSL reads and writes ---- */

static int wire_write(BIO *bio, const char *data, int len)
{
    struct conn *conn = BIO_get_data(bio);
    struct out *wire = &conn->secure->wire;
    BIO_clear_retry_flags(bio);
    if (len <= 0 || wire->queued > WIRE_MAX)
        return -1;
    uint8_t *at = out_space(wire, &conn->loop->pool, (size_t)len);
    if (!at)
        return -1;
    memcpy(at, data, (size_t)len);
    out_used(wire, &conn->loop->pool, (size_t)len);
    return len;
}

static int wire_read(BIO *bio, char *into, int room)
{
    struct conn *conn = BIO_get_data(bio);
    struct secure *s = conn->secure;
    BIO_clear_retry_flags(bio);
    ssize_t n = recv(conn->fd, into, (size_t)room, 0);
    if (n > 0) {
        conn->active_ns = conn->loop->tick_ns;
        conn->loop->turn_in += (size_t)n;
        conn->loop->breath_in += (size_t)n;
    } else if (n == 0) {
        s->eof = true;
    } else if (errno == EAGAIN || errno == EINTR) {
        BIO_set_retry_read(bio);
    } else {
        s->os = errno;
    }
    return (int)n;
}

static long wire_control(BIO *bio, int what, long number, void *pointer)
{
    (void)number, (void)pointer;
    const struct conn *conn = BIO_get_data(bio);
    if (what == BIO_CTRL_EOF)
        return conn->secure->eof;
    return what == BIO_CTRL_FLUSH; /* the end of the turn sees to it */
}

BIO_METHOD *secure_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "wire");
    if (!method)
        return NULL;
    (void)BIO_meth_set_write(method, wire_write);
    (void)BIO_meth_set_read(method, wire_read);
    (void)BIO_meth_set_ctrl(method, wire_control);
    return method;
}

int secure_verify(int good, X509_STORE_CTX *store)
{
    const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct conn *conn = SSL_get_app_data(ssl);
    if (!good && !conn->secure->why[0])
        tls_why_certificate(conn->secure, store, conn->secure->why, sizeof conn->secure->why);
    return good;
}

/* ---- life ---- */

enum err secure_open(struct conn *conn, struct tls *tls, const char *host, bool calling)
{
    struct secure *s = calloc(1, sizeof *s);
    if (!s)
        return ERR_NO_MEMORY;
    s->tls = tls_hold(tls);
    s->calling = calling;
    addr_format(&conn->peer, s->where);
    if (host && host[0]) {
        (void)snprintf(s->host, sizeof s->host, "%s", host);
        (void)snprintf(s->where, sizeof s->where, "%s:%u", s->host, conn->peer.port);
    } else {
        addr_format_ip(&conn->peer, s->host);
    }
    conn->secure = s;
    return OK;
}

void secure_free(struct conn *conn)
{
    struct secure *s = take(&conn->secure);
    if (!s)
        return;
    invariant(!s->wire.first);
    SSL_free(s->ssl);
    tls_close(s->tls);
    free(s);
}

/* Whom we expect to reach. Addresses have no place in the server name indication. */
static bool expect_host(SSL *ssl, const char *host)
{
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1)
        return true;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

static bool start_shaking(struct conn *conn)
{
    struct secure *s = conn->secure;
    s->ssl = SSL_new(s->tls->context);
    BIO *bio = s->ssl ? BIO_new(s->tls->method) : NULL;
    if (!bio)
        return false;
    BIO_set_data(bio, conn);
    BIO_set_init(bio, 1);
    SSL_set_bio(s->ssl, bio, bio);
    (void)SSL_set_app_data(s->ssl, conn);
    if (s->calling)
        SSL_set_connect_state(s->ssl);
    else
        SSL_set_accept_state(s->ssl);
    s->state = SECURE_SHAKING;
    return !s->calling || expect_host(s->ssl, s->host);
}

/* The peer is owed the alert that OpenSSL has written for it. */
static void fail(struct conn *conn)
{
    struct secure *s = conn->secure;
    s->state = SECURE_OVER;
    s->more = false;
    ERR_clear_error();
    if (!s->calling)
        log_limited(conn->loop->log, &s->tls->failed, LOG_WARN,
                    "TLS failed conn=%llu peer=%s reason=%s", (unsigned long long)conn->id,
                    s->where, LOG_QUOTE(bytes_str(s->why)));
    out_clear(&conn->out, &conn->loop->pool);
    if (conn->state == CONN_OPEN && s->wire.first && !s->eof && !s->os)
        conn_finish(conn, s->why);
    else
        conn_close(conn, s->why);
}

/* ---- the handshake ---- */

static void shake_failed(struct conn *conn)
{
    struct secure *s = conn->secure;
    if (s->why[0])
        ; /* the certificate was no good, and that has been said */
    else if (s->os || s->eof)
        (void)snprintf(s->why, sizeof s->why, "%s hung up in the TLS handshake%s", s->where,
                       s->calling ? "; perhaps it does not offer TLS" : "");
    else
        tls_why_failed(s, ERR_peek_error(), s->why, sizeof s->why);
    fail(conn);
}

/* True: it is over and went well. */
static bool shake(struct conn *conn)
{
    struct secure *s = conn->secure;
    ERR_clear_error();
    int done = SSL_do_handshake(s->ssl);
    conn_mark_dirty(conn);
    if (done == 1) {
        s->state = SECURE_ON;
        s->was_on = true;
        if (s->calling)
            conn_announce(conn);
        return conn->state == CONN_OPEN;
    }
    if (SSL_get_error(s->ssl, done) != SSL_ERROR_WANT_READ)
        shake_failed(conn);
    return false;
}

void secure_call(struct conn *conn)
{
    if (start_shaking(conn))
        (void)shake(conn);
    else
        conn_close(conn, "out of memory");
}

/* A peer that has begun and does not go on. Ticks look after it also where nobody is ever idle. */
static void accept_shaking(struct conn *conn)
{
    struct loop *loop = conn->loop;
    if (!start_shaking(conn)) {
        conn_close(conn, "out of memory");
        return;
    }
    loop_expect_idle(loop, SHAKE_MAX_MS);
    conn->secure->until_ns = clock_ns(loop->clock) + SHAKE_MAX_MS * 1000000ull;
}

bool secure_overdue(const struct conn *conn, uint64_t now_ns)
{
    const struct secure *s = conn->secure;
    return s && !s->calling && s->state == SECURE_SHAKING && now_ns > s->until_ns;
}

/* ---- what it comes to be ---- */

bool secure_is_plain(struct conn *conn)
{
    struct secure *s = conn->secure;
    if (s->calling || s->state != SECURE_UNKNOWN)
        return false;
    uint8_t first;
    ssize_t n = recv(conn->fd, &first, 1, MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n == 1 && first == TLS_FIRST_BYTE) {
        accept_shaking(conn);
        return false;
    }
    if (n == 1 && s->enforcing) {
        struct space unread = loop_space(conn->loop);
        (void)recv(conn->fd, unread.at, unread.size, 0); /* else the kernel sends a reset */
        (void)snprintf(s->why, sizeof s->why, "%s speaks plainly where TLS is demanded", s->where);
        fail(conn);
        return false;
    }
    secure_free(conn);
    if (conn->out.first)
        conn_mark_dirty(conn); /* what was written before anybody knew how to send it */
    return true;
}

/* ---- bytes ---- */

/* Nothing more comes from the peer, for the reason that was noted when it was found. */
static void reading_ended(struct conn *conn)
{
    struct secure *s = conn->secure;
    if (s->os) {
        conn_close(conn, s->os == ECONNRESET ? "reset by the peer" : "read error");
    } else if (s->eof || s->ended == SSL_ERROR_ZERO_RETURN) {
        conn_end_of_input(conn);
    } else {
        tls_why_failed(s, s->ended_code, s->why, sizeof s->why);
        fail(conn);
    }
}

size_t secure_receive(struct conn *conn, uint8_t *into, size_t room)
{
    struct secure *s = conn->secure;
    s->more = false;
    if (s->state == SECURE_SHAKING && !shake(conn))
        return 0;
    if (s->state != SECURE_ON || conn->state != CONN_OPEN)
        return 0;
    size_t got = 0, n = 0, before = conn->loop->turn_in;
    ERR_clear_error();
    /* A record may be one byte long: what has come counts, not only what is in it. */
    while (!s->ended && got < room && conn->loop->turn_in - before < LOOP_IN_SIZE) {
        if (SSL_read_ex(s->ssl, into + got, room - got, &n) == 1) {
            got += n;
            continue;
        }
        s->ended = SSL_get_error(s->ssl, 0);
        s->ended_code = ERR_peek_error();
    }
    if (s->ended == SSL_ERROR_WANT_READ) {
        s->ended = 0;
    } else if (s->ended && got == 0) {
        reading_ended(conn);
    } else {
        s->more = true; /* OpenSSL may hold bytes that the socket does not know of, or the end */
    }
    if (s->wire.first) /* an answer of OpenSSL's own */
        conn_mark_dirty(conn);
    conn->heard |= got > 0;
    return got;
}

/* What the next record is made of: small pieces are gathered, and the loop's own room for input is
 * free when output leaves. */
static struct bytes next_record(struct conn *conn)
{
    const struct piece *piece = conn->out.first;
    if (!piece->next || piece->len >= RECORD_MAX)
        return bytes_of(piece->at, piece->len < RECORD_MAX ? piece->len : RECORD_MAX);
    uint8_t *record = conn->loop->in;
    size_t len = 0;
    for (; piece && len < RECORD_MAX; piece = piece->next) {
        size_t n = piece->len < RECORD_MAX - len ? piece->len : RECORD_MAX - len;
        memcpy(record + len, piece->at, n);
        len += n;
    }
    return bytes_of(record, len);
}

bool secure_seal(struct conn *conn)
{
    struct secure *s = conn->secure;
    if (s->state != SECURE_ON)
        return true;
    ERR_clear_error();
    while (conn->out.first && s->wire.queued < WIRE_HIGH) {
        struct bytes record = next_record(conn);
        size_t taken = 0;
        if (SSL_write_ex(s->ssl, record.at, record.len, &taken) != 1) {
            tls_why_failed(s, ERR_peek_error(), s->why, sizeof s->why);
            fail(conn);
            return conn->state != CONN_CLOSED;
        }
        out_sent(&conn->out, &conn->loop->pool, taken);
    }
    if (conn->state == CONN_FINISHING && !conn->out.first && !s->bye) {
        s->bye = true;
        (void)SSL_shutdown(s->ssl); /* tells the peer that nothing is missing */
    }
    return true;
}
