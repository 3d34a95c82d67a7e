/* redis_tls.c - Redis over TLS: rediss://host?ca=FILE&cert=FILE&key=FILE.
 *
 * hiredis has TLS since 1.0, and Debian 12 has 0.14, so it is done here: hiredis connects, we shake
 * hands on its socket, what is written goes through here, and what is read is fed to its reader.
 *
 * The server is always asked who it is: its certificate must be signed by one of `ca`, or of those
 * that the system trusts, and carry the name or the address that the URL has.
 */
#include "once/redis_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

/* ---- the socket, without the SIGPIPE that OpenSSL's own writing raises ---- */

static int socket_write(BIO *bio, const char *at, size_t size, size_t *written)
{
    const redisContext *link = BIO_get_data(bio);
    ssize_t n;
    do
        n = send(link->fd, at, size, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    *written = n > 0 ? (size_t)n : 0;
    return n > 0;
}

static int socket_read(BIO *bio, char *at, size_t size, size_t *read)
{
    const redisContext *link = BIO_get_data(bio);
    ssize_t n;
    do
        n = recv(link->fd, at, size, 0);
    while (n < 0 && errno == EINTR);
    *read = n > 0 ? (size_t)n : 0;
    return n > 0;
}

static long socket_control(BIO *bio, int what, long number, void *at)
{
    return what == BIO_CTRL_FLUSH; /* nothing is kept back; nothing else is known */
}

static BIO_METHOD *socket_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "redis");
    if (method && BIO_meth_set_write_ex(method, socket_write) &&
        BIO_meth_set_read_ex(method, socket_read) && BIO_meth_set_ctrl(method, socket_control))
        return method;
    BIO_meth_free(method);
    return NULL;
}

/* ---- what all connections of a store share ---- */

/* The last of OpenSSL's reasons, in words; its list is empty afterwards. */
static const char *reason(void)
{
    unsigned long code = ERR_peek_last_error();
    ERR_clear_error();
    const char *words = code ? ERR_reason_error_string(code) : NULL;
    return words ? words : "no reason is given";
}

static enum err bad_file(struct fault *why, const char *option)
{
    return fault_set(why, ERR_INVALID,
                     "the store's URL: the file of %s= cannot be used: %s; it must be PEM, and "
                     "readable",
                     option, reason());
}

static enum err load_files(SSL_CTX *ctx, const struct redis_url *url, struct fault *why)
{
    ERR_clear_error();
    if (url->ca[0] ? !SSL_CTX_load_verify_locations(ctx, url->ca, NULL)
                   : !SSL_CTX_set_default_verify_paths(ctx))
        return bad_file(why, "ca");
    if (!url->cert[0])
        return OK;
    if (!SSL_CTX_use_certificate_chain_file(ctx, url->cert))
        return bad_file(why, "cert");
    if (!SSL_CTX_use_PrivateKey_file(ctx, url->key[0] ? url->key : url->cert, SSL_FILETYPE_PEM) ||
        !SSL_CTX_check_private_key(ctx))
        return bad_file(why, "key");
    return OK;
}

enum err redis_tls_open(struct store *store, struct fault *why)
{
    struct redis_tls *tls = &store->tls;
    tls->method = socket_method();
    tls->ctx = SSL_CTX_new(TLS_client_method());
    if (!tls->method || !tls->ctx || !SSL_CTX_set_min_proto_version(tls->ctx, TLS1_2_VERSION))
        return ERR_NO_MEMORY;
    SSL_CTX_set_verify(tls->ctx, SSL_VERIFY_PEER, NULL);
    return load_files(tls->ctx, &store->url, why);
}

void redis_tls_close(struct store *store)
{
    SSL_CTX_free(store->tls.ctx);
    BIO_meth_free(store->tls.method);
}

/* ---- a connection ---- */

/* The server's name, or its address, as its certificate must have it. */
static bool expect(SSL *ssl, const char *host)
{
    struct in6_addr address;
    if (inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host);
    return SSL_set1_host(ssl, host) && SSL_set_tlsext_host_name(ssl, host);
}

static enum err refused(const struct conn *conn, int error, struct fault *why)
{
    const char *where = conn->store->url.where;
    long verdict = SSL_get_verify_result(conn->ssl);
    if (verdict != X509_V_OK)
        return fault_set(why, ERR_DENIED,
                         "Redis at %s has a certificate that is not accepted: %s; ?ca=FILE names "
                         "who signs it",
                         where, X509_verify_cert_error_string(verdict));
    if (ERR_peek_error())
        return fault_set(why, ERR_IO, "Redis at %s: no TLS: %s", where, reason());
    if (error == EAGAIN)
        return fault_set(why, ERR_IO, "Redis at %s did not answer in time: is it TLS there?",
                         where);
    return fault_set(why, ERR_IO, "Redis at %s hung up on TLS: is it TLS there?", where);
}

enum err redis_tls_shake(struct conn *conn, struct fault *why)
{
    const struct store *store = conn->store;
    conn->ssl = SSL_new(store->tls.ctx);
    BIO *bio = conn->ssl ? BIO_new(store->tls.method) : NULL;
    if (!bio)
        return ERR_NO_MEMORY;
    BIO_set_data(bio, conn->link);
    BIO_set_init(bio, 1);
    SSL_set_bio(conn->ssl, bio, bio); /* it is the connection's from here */
    if (!expect(conn->ssl, store->url.host))
        return ERR_NO_MEMORY;
    ERR_clear_error();
    errno = 0;
    return SSL_connect(conn->ssl) == 1 ? OK : refused(conn, errno, why);
}

void redis_tls_hang_up(struct conn *conn)
{
    SSL_free(conn->ssl); /* no farewell: nobody waits for one */
}

/* What recv and send say: -1 with errno, 0 at the end. */
static ssize_t result_of(int done, size_t n)
{
    if (done)
        return (ssize_t)n;
    int error = ERR_peek_error() ? EPROTO : errno;
    ERR_clear_error();
    errno = error;
    return error ? -1 : 0;
}

ssize_t redis_tls_send(struct conn *conn, const void *at, size_t size)
{
    size_t n = 0;
    ERR_clear_error();
    errno = 0;
    int done = SSL_write_ex(conn->ssl, at, size, &n);
    return result_of(done, n);
}

ssize_t redis_tls_recv(struct conn *conn, void *at, size_t size)
{
    size_t n = 0;
    ERR_clear_error();
    errno = 0;
    int done = SSL_read_ex(conn->ssl, at, size, &n);
    return result_of(done, n);
}
