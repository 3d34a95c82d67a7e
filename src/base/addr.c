#include "base/addr.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

static void drop_mapping(struct addr *a)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (a->ip_len == 16 && memcmp(a->ip, mapped, sizeof mapped) == 0) {
        memmove(a->ip, a->ip + 12, 4);
        memset(a->ip + 4, 0, 12);
        a->ip_len = 4;
    }
}

struct addr addr_from_sockaddr(const struct sockaddr *sa)
{
    struct addr a = {0};
    if (sa->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, sa, sizeof in);
        memcpy(a.ip, &in.sin_addr, 4);
        a.ip_len = 4;
        a.port = ntohs(in.sin_port);
    } else if (sa->sa_family == AF_INET6) {
        struct sockaddr_in6 in;
        memcpy(&in, sa, sizeof in);
        memcpy(a.ip, &in.sin6_addr, 16);
        a.ip_len = 16;
        a.port = ntohs(in.sin6_port);
        drop_mapping(&a);
    }
    return a;
}

unsigned addr_to_sockaddr(const struct addr *a, struct sockaddr_storage *out)
{
    *out = (struct sockaddr_storage){0};
    if (a->ip_len == 4) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)out;
        v4->sin_family = AF_INET;
        v4->sin_port = htons(a->port);
        memcpy(&v4->sin_addr, a->ip, 4);
        return sizeof *v4;
    }
    invariant(a->ip_len == 16);
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)out;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(a->port);
    memcpy(&v6->sin6_addr, a->ip, 16);
    return sizeof *v6;
}

enum err addr_parse(struct bytes text, struct addr *out)
{
    size_t colon = text.len;
    while (colon > 0 && text.at[colon - 1] != ':')
        colon--;
    if (colon < 2)
        return ERR_MALFORMED;

    int32_t port;
    if (!bytes_to_i32(bytes_from(text, colon), &port) || port < 0 || port > 65535)
        return ERR_MALFORMED;

    struct bytes host = bytes_of(text.at, colon - 1);
    bool bracketed = host.len > 2 && host.at[0] == '[' && host.at[host.len - 1] == ']';
    if (bracketed)
        host = bytes_of(host.at + 1, host.len - 2);
    char name[INET6_ADDRSTRLEN];
    if (host.len == 0 || host.len >= sizeof name)
        return ERR_MALFORMED;
    memcpy(name, host.at, host.len);
    name[host.len] = 0;

    struct addr a = {.port = (uint16_t)port};
    if (!bracketed && inet_pton(AF_INET, name, a.ip) == 1)
        a.ip_len = 4;
    else if (bracketed && inet_pton(AF_INET6, name, a.ip) == 1)
        a.ip_len = 16;
    else
        return ERR_MALFORMED;
    drop_mapping(&a);
    *out = a;
    return OK;
}

void addr_format_ip(const struct addr *a, char out[ADDR_TEXT_MAX])
{
    if (a->ip_len == 0 ||
        !inet_ntop(a->ip_len == 4 ? AF_INET : AF_INET6, a->ip, out, ADDR_TEXT_MAX))
        (void)snprintf(out, ADDR_TEXT_MAX, "-");
}

void addr_format(const struct addr *a, char out[ADDR_TEXT_MAX])
{
    char ip[ADDR_TEXT_MAX];
    addr_format_ip(a, ip);
    (void)snprintf(out, ADDR_TEXT_MAX, a->ip_len == 16 ? "[%.46s]:%u" : "%.46s:%u", ip, a->port);
}
