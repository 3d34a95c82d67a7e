/* ready.h - how the world learns that the daemon serves: a line on standard output, a file
 * descriptor, and systemd's notify protocol (a datagram to the socket that NOTIFY_SOCKET names). */
#ifndef DAEMON_READY_H
#define DAEMON_READY_H

#include <stdint.h>

/* Empty texts for roles that do not run; `fd` is closed afterwards, unless it is one of the
 * standard ones; -1: none. */
void ready_tell(const char *names, const char *broker, const char *http, uint64_t took_ns, int fd);
void ready_tell_stopping(void);

#endif
