/* What the kernel wants to know about sockets: names and options. */
#include "io/io_int.h"

#include <netinet/tcp.h>

socklen_t sock_from_addr(const struct addr *addr, union sock *out)
{
    *out = (union sock){0};
    return addr_to_sockaddr(addr, &out->room);
}

struct addr sock_name(int fd)
{
    union sock name = {0};
    socklen_t len = sizeof name;
    if (getsockname(fd, &name.any, &len) != 0)
        return (struct addr){0};
    return addr_from_sockaddr(&name.any);
}

/* We gather the output of a turn ourselves; the kernel waiting for more would only add delay. */
void sock_no_delay(int fd)
{
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}
