/* tls.c - certificates, keys and whom to trust, read once and shared by connections. */
#include "io/tls_int.h"

#include <openssl/err.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void tls_release(struct counted *counted)
{
    struct tls *tls = (struct tls *)(void *)counted;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->method);
    free(tls);
}

struct tls *tls_hold(struct tls *tls)
{
    counted_hold(&tls->counted);
    return tls;
}

void tls_close(struct tls *tls)
{
    if (tls)
        counted_drop(&tls->counted);
}

/* What OpenSSL has to say about a file. The cause is its first word; the rest says where. */
static enum err file_fault(struct fault *why, const char *what, const char *path)
{
    unsigned long code = ERR_peek_error();
    const char *text = ERR_reason_error_string(code);
    enum err err = fault_set(why, ERR_INVALID, "%s %s: %s", what, path,
                             ERR_SYSTEM_ERROR(code) ? strerror(ERR_GET_REASON(code))
                             : text                 ? text
                                                    : "it cannot be read");
    ERR_clear_error();
    return err;
}

/* A key with a password would have OpenSSL ask for it on the terminal. */
static int no_password(char *out, int size, int writing, void *user)
{
    (void)out, (void)size, (void)writing, (void)user;
    return 0;
}

/* A certificate for localhost that nobody has signed but itself, for a year. */
static X509 *made_up_certificate(EVP_PKEY *key)
{
    X509 *cert = X509_new();
    if (!cert)
        return NULL;
    X509_NAME *name = X509_get_subject_name(cert);
    bool good = X509_set_version(cert, 2) == 1 &&
                ASN1_INTEGER_set_int64(X509_get_serialNumber(cert), (int64_t)time(NULL)) == 1 &&
                X509_gmtime_adj(X509_getm_notBefore(cert), -86400) &&
                X509_gmtime_adj(X509_getm_notAfter(cert), 365L * 86400) &&
                X509_set_pubkey(cert, key) == 1 &&
                X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                           (const unsigned char *)"localhost", -1, -1, 0) == 1 &&
                X509_set_issuer_name(cert, name) == 1 && X509_sign(cert, key, EVP_sha256()) > 0;
    if (good)
        return cert;
    X509_free(cert);
    return NULL;
}

static enum err make_identity(struct tls *tls, struct fault *why)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = key ? made_up_certificate(key) : NULL;
    bool good = cert && SSL_CTX_use_certificate(tls->context, cert) == 1 &&
                SSL_CTX_use_PrivateKey(tls->context, key) == 1;
    X509_free(cert);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return good ? OK : fault_set(why, ERR_NO_MEMORY, "a certificate could not be made up");
}

static enum err load_identity(struct tls *tls, const struct tls_options *o, struct fault *why)
{
    if (!o->cert != !o->key)
        return fault_set(why, ERR_INVALID, "a certificate and its key go together: %s is missing",
                         o->cert ? "the key" : "the certificate");
    if (!o->cert)
        return OK;
    SSL_CTX_set_default_passwd_cb(tls->context, no_password);
    if (SSL_CTX_use_certificate_chain_file(tls->context, o->cert) != 1)
        return file_fault(why, "the certificate", o->cert);
    if (SSL_CTX_use_PrivateKey_file(tls->context, o->key, SSL_FILETYPE_PEM) != 1)
        return file_fault(why, "the key (PEM, without a password)", o->key);
    tls->has_certificate = true;
    return OK;
}

static enum err load_authorities(struct tls *tls, const struct tls_options *o, struct fault *why)
{
    if (o->trust_all)
        return OK;
    if (!o->ca) {
        (void)snprintf(tls->authorities, sizeof tls->authorities,
                       "that this system trusts; name the file of its own one");
        return SSL_CTX_set_default_verify_paths(tls->context) == 1
                   ? OK
                   : fault_set(why, ERR_INVALID, "the system's authorities cannot be read");
    }
    (void)snprintf(tls->authorities, sizeof tls->authorities, "in %s", o->ca);
    return SSL_CTX_load_verify_file(tls->context, o->ca) == 1
               ? OK
               : file_fault(why, "the authorities", o->ca);
}

static int trust_all(X509_STORE_CTX *store, void *user)
{
    (void)store, (void)user;
    return 1;
}

static void set_verification(struct tls *tls, const struct tls_options *o, bool server)
{
    int mode = SSL_VERIFY_PEER;
    if (server && o->ask == TLS_ASK_NOT)
        mode = SSL_VERIFY_NONE;
    else if (server && o->ask == TLS_DEMAND)
        mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    SSL_CTX_set_verify(tls->context, mode, secure_verify);
    if (o->trust_all)
        SSL_CTX_set_cert_verify_callback(tls->context, trust_all, NULL);
}

/* Sessions are not resumed: connections here live for hours, and a cache is memory and a secret. */
static void set_manners(SSL_CTX *context)
{
    (void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    (void)SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                           SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
    (void)SSL_CTX_set_num_tickets(context, 0);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS); /* an idle one owns none */
    SSL_CTX_set_read_ahead(context, 1); /* a system call for many records, not two for each */
}

static enum err tls_make(const struct tls_options *o, bool server, struct tls **out,
                         struct fault *why)
{
    struct tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return fault_set(why, ERR_NO_MEMORY, "preparing TLS: no memory");
    ERR_clear_error();
    counted_init(&tls->counted, tls_release);
    tls->context = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    tls->method = secure_method();
    if (!tls->context || !tls->method) {
        tls_close(tls);
        return fault_set(why, ERR_NO_MEMORY, "preparing TLS: no memory");
    }
    set_manners(tls->context);
    enum err err = o->made_up ? make_identity(tls, why) : load_identity(tls, o, why);
    if (!err && !(server && o->ask == TLS_ASK_NOT))
        err = load_authorities(tls, o, why);
    if (err) {
        tls_close(tls);
        return err;
    }
    set_verification(tls, o, server);
    *out = tls;
    return OK;
}

enum err tls_open_client(const struct tls_options *options, struct tls **out, struct fault *why)
{
    return tls_make(options, false, out, why);
}

enum err tls_open_server(const struct tls_options *options, struct tls **out, struct fault *why)
{
    if (!options->cert && !options->made_up)
        return fault_set(why, ERR_INVALID, "a server needs a certificate and its key for TLS");
    return tls_make(options, true, out, why);
}
