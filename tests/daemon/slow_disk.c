/* slow_disk.c - a disk that takes its time: preloaded into a daemon, it makes every fdatasync last
 * SLOW_DISK_MS longer, so that a test can act while a flush is under way. */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int fdatasync(int fd)
{
    int (*real)(int fd);
    *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    const char *text = getenv("SLOW_DISK_MS");
    long ms = text ? strtol(text, NULL, 10) : 0;
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
    return real(fd);
}
