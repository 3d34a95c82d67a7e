/* tls_why.c - what went wrong with TLS, in words that tell whom to turn to. */
#include "io/tls_int.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#define ALERT(n) (SSL_AD_REASON_OFFSET + (n))

/* ---- certificates ---- */

static size_t put(char *out, size_t room, size_t len, const char *text, size_t n)
{
    if (len + n >= room)
        return len;
    memcpy(out + len, text, n);
    out[len + n] = 0;
    return len + n;
}

static size_t put_name(char *out, size_t room, size_t len, const GENERAL_NAME *name)
{
    char ip[ADDR_TEXT_MAX] = "";
    const char *text = ip;
    size_t n = 0;
    if (name->type == GEN_DNS) {
        text = (const char *)ASN1_STRING_get0_data(name->d.dNSName);
        n = (size_t)ASN1_STRING_length(name->d.dNSName);
    } else if (name->type == GEN_IPADD) {
        int size = ASN1_STRING_length(name->d.iPAddress);
        struct addr addr = {.ip_len = (uint8_t)size};
        if (size != 4 && size != 16)
            return len;
        memcpy(addr.ip, ASN1_STRING_get0_data(name->d.iPAddress), (size_t)size);
        addr_format_ip(&addr, ip);
        n = strlen(ip);
    }
    if (n == 0)
        return len;
    if (len > 0)
        len = put(out, room, len, ", ", 2);
    return put(out, room, len, text, n);
}

/* The names a certificate has, as many as fit; a stranger's text, so only what can be printed. */
static void names_of(X509 *certificate, char *out, size_t room)
{
    out[0] = 0;
    size_t len = 0;
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++)
        len = put_name(out, room, len, sk_GENERAL_NAME_value(names, i));
    GENERAL_NAMES_free(names);
    if (len == 0)
        (void)X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, out,
                                        (int)room);
    for (char *at = out; *at; at++)
        *at = (unsigned char)*at < ' ' || (unsigned char)*at > '~' || *at == '"' ? '?' : *at;
}

static void date_of(const ASN1_TIME *time, char out[32])
{
    struct tm tm;
    if (ASN1_TIME_to_tm(time, &tm) != 1 || strftime(out, 32, "%Y-%m-%d %H:%M UTC", &tm) == 0)
        (void)snprintf(out, 32, "an unreadable date");
}

void tls_why_certificate(const struct secure *secure, X509_STORE_CTX *store, char *out, size_t room)
{
    X509 *certificate = X509_STORE_CTX_get_current_cert(store);
    int code = X509_STORE_CTX_get_error(store);
    char detail[128] = "";
    switch (code) {
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        (void)snprintf(out, room, "the certificate of %s is not signed by an authority %s",
                       secure->where, secure->tls->authorities);
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        names_of(certificate, detail, sizeof detail);
        (void)snprintf(out, room, "the certificate of %s is not for that name: it is for \"%s\"",
                       secure->where, detail);
        break;
    case X509_V_ERR_CERT_HAS_EXPIRED:
        date_of(X509_get0_notAfter(certificate), detail);
        (void)snprintf(out, room,
                       "the certificate of %s expired on %s: renew it, or look at the clock here",
                       secure->where, detail);
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        date_of(X509_get0_notBefore(certificate), detail);
        (void)snprintf(out, room,
                       "the certificate of %s is good from %s on only: look at the clocks",
                       secure->where, detail);
        break;
    default:
        (void)snprintf(out, room, "the certificate of %s is refused: %s", secure->where,
                       X509_verify_cert_error_string(code));
    }
}

/* ---- handshakes ---- */

/* The other side has said what it does not like. */
static const char *alert_advice(const struct secure *secure, int reason)
{
    switch (reason) {
    case ALERT(SSL3_AD_NO_CERTIFICATE):
    case ALERT(SSL3_AD_HANDSHAKE_FAILURE):
    case ALERT(SSL3_AD_BAD_CERTIFICATE):
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return secure->tls->has_certificate
                   ? "it does not accept our certificate"
                   : "it may demand a certificate from us, and none is set";
    case ALERT(SSL3_AD_UNSUPPORTED_CERTIFICATE):
    case ALERT(SSL3_AD_CERTIFICATE_REVOKED):
    case ALERT(SSL3_AD_CERTIFICATE_EXPIRED):
    case ALERT(SSL3_AD_CERTIFICATE_UNKNOWN):
    case ALERT(TLS1_AD_UNKNOWN_CA):
        return "it does not accept our certificate";
    case ALERT(TLS1_AD_PROTOCOL_VERSION):
        return "it speaks older versions of TLS only; 1.2 is the least here";
    default:
        return NULL;
    }
}

void tls_why_failed(const struct secure *secure, unsigned long code, char *out, size_t room)
{
    int reason = ERR_GET_REASON(code);
    const char *text = ERR_reason_error_string(code);
    const char *advice = alert_advice(secure, reason);
    if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
        reason == SSL_R_UNEXPECTED_MESSAGE || reason == SSL_R_PACKET_LENGTH_TOO_LONG)
        (void)snprintf(out, room, "what %s says is not TLS", secure->where);
    else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        (void)snprintf(out, room, "%s shows no certificate, and one is demanded", secure->where);
    else if (advice)
        (void)snprintf(out, room, "%s refuses TLS with us: %s (%s)", secure->where, advice,
                       text ? text : "no reason");
    else
        (void)snprintf(out, room, "TLS with %s failed: %s", secure->where,
                       text ? text : "no reason is known");
}
