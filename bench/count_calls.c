/* count_calls.c - how often a program asks libc and the kernel for something: preloaded into a
 * daemon, it counts calls into a file that others can read meanwhile.
 *
 *     CALLS_FILE=counts LD_PRELOAD=count_calls.so oncemqd …
 *
 * The file is an array of `struct counter`; calls.py reads it before and after a load. Counting is
 * one atomic addition, so the program goes on nearly as fast as it was, and reads bring it as many
 * messages as they did: a tracer would change just that.
 *
 * Two things are told that are no calls: locks that were not free at once ("lock waits"), and
 * writes to a connection that had one before since its thread last waited for events ("writes
 * again"), which is what a turn of a loop is.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define SHOWN  __attribute__((visibility("default")))
#define FD_MAX 65536

struct counter {
    char name[24];
    _Atomic uint64_t n;
};

enum what {
    MALLOC,
    LOCK,
    LOCK_WAIT,
    TRYLOCK,
    RECV,
    SEND,
    SEND_AGAIN,
    READ,
    WRITE,
    PWRITEV,
    PREAD,
    EPOLL,
    EPOLL_CTL,
    SYNC,
    MAP,
    WHATS
};

static struct counter unseen[WHATS]; /* before there is a file, and without one */
static struct counter *counters = unseen;
static _Thread_local uint64_t turn = 1; /* of this thread's loop */
static uint64_t last_turn[FD_MAX];      /* in which each connection was last written to */

static void count(enum what what)
{
    atomic_fetch_add_explicit(&counters[what].n, 1, memory_order_relaxed);
}

#define REAL(name)                                                                                 \
    static __typeof__(&name) real;                                                                 \
    if (!real)                                                                                     \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void counters_open(void)
{
    static const char *const names[WHATS] = {
        "allocations",         "locks",      "lock waits",
        "tries of locks",      "receives",   "sends",
        "sends again",         "reads",      "writes",
        "log and file writes", "file reads", "waits for events",
        "epoll_ctl",           "syncs",      "maps"};
    const char *path = getenv("CALLS_FILE");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0 || ftruncate(fd, sizeof unseen) != 0)
        return;
    void *at = mmap(NULL, sizeof unseen, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (at == MAP_FAILED)
        return;
    counters = at;
    for (int i = 0; i < WHATS; i++)
        memcpy(counters[i].name, names[i], strlen(names[i]));
}

/* ---- memory: libc's own names, because dlsym allocates ---- */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t n);

SHOWN void *malloc(size_t n)
{
    count(MALLOC);
    return __libc_malloc(n);
}

SHOWN void *calloc(size_t n, size_t size)
{
    count(MALLOC);
    return __libc_calloc(n, size);
}

SHOWN void *realloc(void *old, size_t n)
{
    count(MALLOC);
    return __libc_realloc(old, n);
}

/* ---- locks ---- */

SHOWN int pthread_mutex_trylock(pthread_mutex_t *key)
{
    REAL(pthread_mutex_trylock);
    count(TRYLOCK);
    return real(key);
}

SHOWN int pthread_mutex_lock(pthread_mutex_t *key)
{
    REAL(pthread_mutex_lock);
    static __typeof__(&pthread_mutex_trylock) attempt;
    if (!attempt)
        *(void **)&attempt = dlsym(RTLD_NEXT, "pthread_mutex_trylock");
    count(LOCK);
    if (attempt(key) == 0)
        return 0;
    count(LOCK_WAIT);
    return real(key);
}

/* ---- the kernel ---- */

static void count_send(int fd)
{
    count(SEND);
    if (fd < 0 || fd >= FD_MAX)
        return;
    if (last_turn[fd] == turn)
        count(SEND_AGAIN);
    last_turn[fd] = turn;
}

SHOWN ssize_t recv(int fd, void *at, size_t n, int flags)
{
    REAL(recv);
    count(RECV);
    return real(fd, at, n, flags);
}

SHOWN ssize_t send(int fd, const void *at, size_t n, int flags)
{
    REAL(send);
    count_send(fd);
    return real(fd, at, n, flags);
}

SHOWN ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    REAL(sendmsg);
    count_send(fd);
    return real(fd, msg, flags);
}

SHOWN ssize_t read(int fd, void *at, size_t n)
{
    REAL(read);
    count(READ);
    return real(fd, at, n);
}

SHOWN ssize_t write(int fd, const void *at, size_t n)
{
    REAL(write);
    count(WRITE);
    return real(fd, at, n);
}

SHOWN ssize_t pwritev64(int fd, const struct iovec *parts, int n, off64_t at)
{
    REAL(pwritev64);
    count(PWRITEV);
    return real(fd, parts, n, at);
}

SHOWN ssize_t pread64(int fd, void *at, size_t n, off64_t from)
{
    REAL(pread64);
    count(PREAD);
    return real(fd, at, n, from);
}

SHOWN int epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms)
{
    REAL(epoll_wait);
    count(EPOLL);
    turn++;
    return real(fd, events, max, timeout_ms);
}

SHOWN int epoll_pwait(int fd, struct epoll_event *events, int max, int timeout_ms,
                      const sigset_t *mask)
{
    REAL(epoll_pwait);
    count(EPOLL);
    turn++;
    return real(fd, events, max, timeout_ms, mask);
}

SHOWN int epoll_ctl(int epoll_fd, int op, int fd, struct epoll_event *event)
{
    REAL(epoll_ctl);
    count(EPOLL_CTL);
    return real(epoll_fd, op, fd, event);
}

SHOWN int fdatasync(int fd)
{
    REAL(fdatasync);
    count(SYNC);
    return real(fd);
}

SHOWN int sync_file_range(int fd, off64_t at, off64_t n, unsigned flags)
{
    REAL(sync_file_range);
    count(SYNC);
    return real(fd, at, n, flags);
}

SHOWN void *mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t from)
{
    REAL(mmap64);
    count(MAP);
    return real(at, n, prot, flags, fd, from);
}

SHOWN int munmap(void *at, size_t n)
{
    REAL(munmap);
    count(MAP);
    return real(at, n);
}

SHOWN int madvise(void *at, size_t n, int advice)
{
    REAL(madvise);
    count(MAP);
    return real(at, n, advice);
}
