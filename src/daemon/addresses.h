/* addresses.h - from what a user writes to addresses: host names, lists, wildcards.
 *
 * May ask the resolver, which may take seconds: for start-up, and later for a lookup, which has a
 * thread of its own. */
#ifndef DAEMON_ADDRESSES_H
#define DAEMON_ADDRESSES_H

#include "base/addr.h"

#define ADDRESSES_MAX 16
#define HOST_TEXT_MAX 256

struct name_server {
    struct addr addr;
    char host[HOST_TEXT_MAX]; /* the name that led to it, and may lead elsewhere later; empty: none
                               */
};

/* A name that has several addresses gets its first IPv4 one: "localhost" is often ::1 as well,
 * where a name server on 127.0.0.1 does not answer, and Java prefers IPv4 too. */
must_check enum err address_of_host(const char *host, uint16_t port, struct addr *out,
                                    struct fault *why);

/* "host:port;host:port", added to `list` of ADDRESSES_MAX; what is already in it is not added
 * twice. */
must_check enum err addresses_of_list(const char *text, struct name_server *list, size_t *n,
                                      struct fault *why);

/* What clients are told: `ip` when given (which is no wildcard), else the bound address, else
 * (bound to a wildcard) this machine's first address that is not loopback. */
must_check enum err address_to_advertise(const char *ip, const struct addr *bound, struct addr *out,
                                         struct fault *why);

/* A name that is asked for in the background. Nobody waits for it: whoever started it looks now and
 * then, and may lose interest at any time. */
struct lookup;
struct lookup *lookup_start(const char *host, uint16_t port); /* NULL: no memory, no thread */
bool lookup_done(struct lookup *lookup);
/* ERR_NOT_FOUND: nobody has that name just now. */
must_check enum err lookup_result(const struct lookup *lookup, struct addr *out);
void lookup_close(struct lookup *lookup);

/* Where this process itself reaches a listener: loopback when it is bound to a wildcard. */
struct addr address_to_reach(const struct addr *bound);

#endif
