/* cert_test.h - certificates made on the spot, in a folder of their own. Only for x_test.c files.
 */
#ifndef IO_CERT_TEST_H
#define IO_CERT_TEST_H

#include "io/test_int.h"
#include "io/tls_int.h"

#include <dirent.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#define DAY 86400L

struct identity {
    EVP_PKEY *key;
    X509 *cert;
    char cert_path[256], key_path[256];
};

static char certs_folder[128];

static inline void certs_open(void)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(certs_folder, sizeof certs_folder, "%.90s/oncemq-tls-XXXXXX",
                   tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(certs_folder));
}

static inline void certs_close(void)
{
    DIR *folder = opendir(certs_folder);
    assert_non_null(folder);
    const struct dirent *entry;
    while ((entry = readdir(folder)))
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    (void)closedir(folder);
    (void)rmdir(certs_folder);
}

static inline void cert_extend(X509 *cert, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static inline void cert_save(struct identity *who, const char *name, const char *password)
{
    (void)snprintf(who->cert_path, sizeof who->cert_path, "%s/%s.pem", certs_folder, name);
    (void)snprintf(who->key_path, sizeof who->key_path, "%s/%s.key", certs_folder, name);
    FILE *out = fopen(who->cert_path, "w");
    assert_non_null(out);
    assert_int_equal(PEM_write_X509(out, who->cert), 1);
    assert_int_equal(fclose(out), 0);
    out = fopen(who->key_path, "w");
    assert_non_null(out);
    assert_int_equal(PEM_write_PKCS8PrivateKey(out, who->key, password ? EVP_aes_256_cbc() : NULL,
                                               password, password ? (int)strlen(password) : 0, NULL,
                                               NULL),
                     1);
    assert_int_equal(fclose(out), 0);
}

/* `names` as in "DNS:localhost,IP:127.0.0.1"; NULL: an authority. `issuer` NULL: signs itself.
 * Good from `from` to `to`, in seconds from now. */
static inline void cert_make(struct identity *who, const char *name, const char *names,
                             const struct identity *issuer, long from, long to)
{
    static long serial;
    who->key = EVP_EC_gen("P-256");
    who->cert = X509_new();
    assert_true(who->key && who->cert);
    X509 *cert = who->cert;
    (void)X509_set_version(cert, 2);
    (void)ASN1_INTEGER_set(X509_get_serialNumber(cert), ++serial);
    (void)X509_gmtime_adj(X509_getm_notBefore(cert), from);
    (void)X509_gmtime_adj(X509_getm_notAfter(cert), to);
    (void)X509_set_pubkey(cert, who->key);
    (void)X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                                     (const unsigned char *)name, -1, -1, 0);
    (void)X509_set_issuer_name(cert, X509_get_subject_name(issuer ? issuer->cert : cert));
    if (names)
        cert_extend(cert, NID_subject_alt_name, names);
    else
        cert_extend(cert, NID_basic_constraints, "critical,CA:TRUE");
    assert_true(X509_sign(cert, issuer ? issuer->key : who->key, EVP_sha256()) > 0);
    cert_save(who, name, NULL);
}

static inline void cert_free(struct identity *who)
{
    EVP_PKEY_free(who->key);
    X509_free(who->cert);
    *who = (struct identity){0};
}

static inline struct tls *server_tls(const struct identity *who, const struct identity *ca,
                                     enum tls_ask ask)
{
    struct tls_options options = {
        .cert = who->cert_path, .key = who->key_path, .ca = ca ? ca->cert_path : NULL, .ask = ask};
    struct tls *tls;
    struct fault why = {0};
    enum err err = tls_open_server(&options, &tls, &why);
    if (err)
        print_error("%s\n", why.text);
    assert_int_equal(err, OK);
    return tls;
}

#endif
