/* tls_int.h - what tls.c and secure.c share, and the only place that knows OpenSSL's types. */
#ifndef IO_TLS_INT_H
#define IO_TLS_INT_H

#include "io/io_int.h"

#include <openssl/ssl.h>

#define AUTHORITIES_MAX 300

struct tls {
    struct counted counted;
    SSL_CTX *context;
    BIO_METHOD *method; /* how OpenSSL reads and writes: secure.c */
    bool has_certificate;
    char authorities[AUTHORITIES_MAX]; /* whose signatures count, for sentences */
    struct log_limit failed;
};

/* secure.c: for tls_open. NULL: no memory. */
BIO_METHOD *secure_method(void);
/* secure.c: OpenSSL's verify callback; notes in words what is wrong with a certificate. */
int secure_verify(int good, X509_STORE_CTX *store);

/* tls_why.c: what to say when a certificate is not good, or a handshake has failed. */
void tls_why_certificate(const struct secure *secure, X509_STORE_CTX *store, char *out,
                         size_t room);
void tls_why_failed(const struct secure *secure, unsigned long code, char *out, size_t room);

#endif
