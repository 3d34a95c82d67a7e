/* moving_name.c - a name that leads wherever a test wants: preloaded into a daemon, it answers for
 * the host "moving.test" with the address in the file that MOVING_NAME names, and leaves all others
 * alone. */
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) int getaddrinfo(const char *host, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **out)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    char address[64] = "";
    if (host && strcmp(host, "moving.test") == 0) {
        const char *path = getenv("MOVING_NAME");
        FILE *file = path ? fopen(path, "re") : NULL;
        if (file) {
            (void)fscanf(file, "%63s", address);
            (void)fclose(file);
        }
        host = address;
    }
    return real(host, service, hints, out);
}
