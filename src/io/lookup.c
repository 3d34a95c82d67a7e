/* Names of machines. */
#include "io/io_int.h"

#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum err address_of_host(const char *host, uint16_t port, struct addr *out, struct fault *why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int failed = getaddrinfo(host, NULL, &hints, &found);
    if (failed)
        return fault_set(why, ERR_INVALID, "\"%.200s\" is not an address of a machine: %s", host,
                         gai_strerror(failed));
    const struct addrinfo *chosen = found;
    while (chosen && chosen->ai_family != AF_INET)
        chosen = chosen->ai_next;
    *out = addr_from_sockaddr(chosen ? chosen->ai_addr : found->ai_addr);
    out->port = port;
    freeaddrinfo(found);
    return OK;
}

/* ---- lookups ---- */

/* Shared by the thread that asks and whoever wants to know; gone with the second of them. The
 * thread is detached and touches nothing else, so a process can stop while a resolver does not
 * answer. */
struct lookup {
    struct counted counted;
    atomic_bool done; /* what follows is the asker's from here on */
    enum err err;
    struct addr found;
    uint16_t port;
    char host[HOST_TEXT_MAX];
};

static void lookup_free(struct counted *counted)
{
    free(counted);
}

static void *lookup_run(void *arg)
{
    struct lookup *lookup = arg;
    lookup->err =
        address_of_host(lookup->host, lookup->port, &lookup->found, NULL) ? ERR_NOT_FOUND : OK;
    atomic_store(&lookup->done, true);
    counted_drop(&lookup->counted);
    return NULL;
}

struct lookup *lookup_start(const char *host, uint16_t port)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return NULL;
    counted_init(&lookup->counted, lookup_free);
    lookup->port = port;
    (void)snprintf(lookup->host, sizeof lookup->host, "%s", host);
    counted_hold(&lookup->counted);
    pthread_t thread;
    if (pthread_create(&thread, NULL, lookup_run, lookup) != 0) {
        free(lookup);
        return NULL;
    }
    (void)pthread_detach(thread);
    return lookup;
}

bool lookup_done(struct lookup *lookup)
{
    return atomic_load(&lookup->done);
}

enum err lookup_result(const struct lookup *lookup, struct addr *out)
{
    if (!lookup->err)
        *out = lookup->found;
    return lookup->err;
}

void lookup_close(struct lookup *lookup)
{
    if (lookup)
        counted_drop(&lookup->counted);
}
