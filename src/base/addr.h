/* addr.h - an IP address and a port, as records and peers carry them.
 *
 * An IPv4 address mapped into IPv6 counts as IPv4, as on every RocketMQ wire and disk.
 */
#ifndef BASE_ADDR_H
#define BASE_ADDR_H

#include "base/bytes.h"
#include "base/err.h"

struct sockaddr;
struct sockaddr_storage;

struct addr {
    uint8_t ip[16]; /* the first ip_len bytes count */
    uint8_t ip_len; /* 4 or 16; 0: none */
    uint16_t port;
};

#define ADDR_TEXT_MAX 56 /* "[…39…]:65535" and its end */

struct addr addr_from_sockaddr(const struct sockaddr *sa);
/* The kernel's form of an address that is one, and how many bytes of it count. */
unsigned addr_to_sockaddr(const struct addr *a, struct sockaddr_storage *out);
must_check enum err addr_parse(struct bytes text, struct addr *out); /* "1.2.3.4:5", "[::1]:5" */
void addr_format(const struct addr *a, char out[ADDR_TEXT_MAX]);     /* the same back */
void addr_format_ip(const struct addr *a, char out[ADDR_TEXT_MAX]);  /* without the port */

#endif
