/* addresses.h - from what a user writes to addresses: host names, lists, wildcards.
 *
 * May ask the resolver, which may take seconds: for start-up. */
#ifndef DAEMON_ADDRESSES_H
#define DAEMON_ADDRESSES_H

#include "io/io.h"

#define ADDRESSES_MAX 16

struct name_server {
    struct addr addr;
    char host[HOST_TEXT_MAX]; /* the name that led to it, and may lead elsewhere later; empty: none
                               */
};

/* "host:port;host:port", added to `list` of ADDRESSES_MAX; what is already in it is not added
 * twice. */
must_check enum err addresses_of_list(const char *text, struct name_server *list, size_t *n,
                                      struct fault *why);

/* What clients are told: `ip` when given (which is no wildcard), else the bound address, else
 * (bound to a wildcard) this machine's first address that is not loopback. */
must_check enum err address_to_advertise(const char *ip, const struct addr *bound, struct addr *out,
                                         struct fault *why);

/* Where this process itself reaches a listener: loopback when it is bound to a wildcard. */
struct addr address_to_reach(const struct addr *bound);

#endif
