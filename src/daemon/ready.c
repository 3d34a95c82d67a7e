#include "daemon/ready.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof to.sun_path)
        return;
    size_t len = strlen(path);
    memcpy(to.sun_path, path, len);
    if (path[0] == '@') /* the abstract namespace */
        to.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    (void)close(fd);
}

void ready_tell(const char *names, const char *broker, const char *http, uint64_t took_ns, int fd)
{
    char line[320];
    int len =
        snprintf(line, sizeof line, "ready: %s%s%s%s%s%s%s, in %llu ms\n", names[0] ? "names " : "",
                 names, names[0] && broker[0] ? ", " : "", broker[0] ? "broker " : "", broker,
                 http[0] ? ", http " : "", http, (unsigned long long)(took_ns / 1000000u));
    (void)fputs(line, stdout);
    (void)fflush(stdout);
    if (fd >= 0) {
        ssize_t written = write(fd, line, (size_t)len);
        (void)written; /* whoever asked for it may be gone */
    }
    if (fd > STDERR_FILENO) /* a connection that took the log's place would be sent the log */
        (void)close(fd);
    notify("READY=1");
}

void ready_tell_stopping(void)
{
    notify("STOPPING=1");
}
