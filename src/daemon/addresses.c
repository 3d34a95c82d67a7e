#include "daemon/addresses.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static enum err address_of_text(struct bytes text, struct name_server *out, struct fault *why)
{
    out->host[0] = 0;
    if (addr_parse(text, &out->addr) == OK && out->addr.port != 0)
        return OK;
    size_t colon = text.len;
    while (colon > 0 && text.at[colon - 1] != ':')
        colon--;
    int32_t port;
    if (colon < 2 || colon > sizeof out->host || !bytes_to_i32(bytes_from(text, colon), &port) ||
        port < 1 || port > 65535)
        return fault_set(why, ERR_INVALID, "\"%.*s\" is not host:port", BYTES_ARG(text));
    memcpy(out->host, text.at, colon - 1);
    out->host[colon - 1] = 0;
    return address_of_host(out->host, (uint16_t)port, &out->addr, why);
}

static bool same(const struct addr *a, const struct addr *b)
{
    return a->ip_len == b->ip_len && a->port == b->port && memcmp(a->ip, b->ip, a->ip_len) == 0;
}

enum err addresses_of_list(const char *text, struct name_server *list, size_t *n, struct fault *why)
{
    for (const char *at = text; *at;) {
        at += strspn(at, "; ");
        size_t len = strcspn(at, "; ");
        if (len == 0)
            break;
        struct name_server server;
        enum err err = address_of_text(bytes_of(at, len), &server, why);
        if (err)
            return err;
        at += len;
        bool known = false;
        for (size_t i = 0; i < *n; i++)
            known = known || same(&list[i].addr, &server.addr);
        if (known)
            continue;
        if (*n == ADDRESSES_MAX)
            return fault_set(why, ERR_TOO_BIG, "more than %d name servers", ADDRESSES_MAX);
        list[(*n)++] = server;
    }
    return OK;
}

static bool is_wildcard(const struct addr *a)
{
    for (size_t i = 0; i < a->ip_len; i++) {
        if (a->ip[i])
            return false;
    }
    return true;
}

static bool first_interface(struct addr *out)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return false;
    bool found = false;
    for (struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        bool usable = i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
                      !(i->ifa_flags & IFF_LOOPBACK);
        if (usable) {
            *out = addr_from_sockaddr(i->ifa_addr);
            found = true;
        }
    }
    freeifaddrs(all);
    return found;
}

enum err address_to_advertise(const char *ip, const struct addr *bound, struct addr *out,
                              struct fault *why)
{
    if (ip[0]) {
        struct addr told;
        enum err err = address_of_host(ip, bound->port, &told, why);
        if (!err && is_wildcard(&told))
            err = fault_set(why, ERR_INVALID, "clients cannot connect to a wildcard");
        if (!err)
            *out = told;
        return err;
    }
    *out = *bound;
    if (is_wildcard(bound) && !first_interface(out))
        *out = address_to_reach(bound);
    out->port = bound->port;
    return OK;
}

struct addr address_to_reach(const struct addr *bound)
{
    struct addr reach = *bound;
    if (!is_wildcard(bound))
        return reach;
    if (bound->ip_len == 4) {
        reach.ip[0] = 127;
        reach.ip[3] = 1;
    } else {
        reach.ip[15] = 1;
    }
    return reach;
}
