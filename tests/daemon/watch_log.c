/* watch_log.c - who touches the CommitLog, and where: preloaded into a daemon, it writes a line
 * into the file WATCH_LOG for every call that reads, writes or resizes a file of a folder
 * `commitlog`:
 *
 *     w <file> <offset> <bytes>        r <file> <offset> <bytes>        t <file> <size>
 *
 * What a call was answered is what counts, so a line follows its call. Offset -1: where the file
 * stood. Zeros at the end of a write are not counted: there were zeros before, the file was made of
 * them. Mappings are seen in /proc. */
#undef _FILE_OFFSET_BITS /* else the names below with and without 64 would be one */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

static const char *log_file(int fd, char path[static 512])
{
    char link[40];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, 511);
    path[len > 0 ? len : 0] = '\0';
    const char *folder = strstr(path, "/commitlog/");
    return folder ? folder + strlen("/commitlog/") : NULL;
}

static void tell(char what, int fd, long long at, long long n)
{
    char path[512], line[600];
    const char *file = n >= 0 ? log_file(fd, path) : NULL;
    const char *sink = getenv("WATCH_LOG");
    if (!file || !sink)
        return;
    int len = what == 't' ? snprintf(line, sizeof line, "t %s %lld\n", file, n)
                          : snprintf(line, sizeof line, "%c %s %lld %lld\n", what, file, at, n);
    int out = open(sink, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    ssize_t (*real)(int fd, const void *from, size_t n);
    *(void **)&real = dlsym(RTLD_NEXT, "write");
    if (out < 0 || real(out, line, (size_t)len) != len)
        abort();
    (void)close(out);
}

/* Of the first n bytes of the parts: how many there are without the zeros at their end. */
static long long told(const struct iovec *parts, int count, long long n)
{
    long long at = 0, end = n < 0 ? n : 0;
    for (int i = 0; i < count && at < n; i++) {
        const char *bytes = parts[i].iov_base;
        for (size_t k = 0; k < parts[i].iov_len && at < n; k++, at++)
            end = bytes[k] ? at + 1 : end;
    }
    return end;
}

static long long told_flat(const void *from, long long n)
{
    struct iovec part = {.iov_len = n > 0 ? (size_t)n : 0};
    memcpy(&part.iov_base, &from, sizeof from);
    return told(&part, 1, n);
}

/* A function that has the answer of the real one, and tells. */
#define WATCHED(type, name, what, at, params, bytes, ...)                                          \
    SEEN type name params;                                                                         \
    SEEN type name params                                                                          \
    {                                                                                              \
        type(*real) params;                                                                        \
        *(void **)&real = dlsym(RTLD_NEXT, #name);                                                 \
        type n = real(__VA_ARGS__);                                                                \
        tell(what, fd, at, bytes);                                                                 \
        return n;                                                                                  \
    }

#define TO    int fd, void *to, size_t len
#define FROM  int fd, const void *from, size_t len
#define PARTS int fd, const struct iovec *parts, int count

WATCHED(ssize_t, read, 'r', -1, (TO), n, fd, to, len)
WATCHED(ssize_t, readv, 'r', -1, (PARTS), n, fd, parts, count)
WATCHED(ssize_t, pread, 'r', at, (TO, off_t at), n, fd, to, len, at)
WATCHED(ssize_t, pread64, 'r', at, (TO, off_t at), n, fd, to, len, at)
WATCHED(ssize_t, preadv, 'r', at, (PARTS, off_t at), n, fd, parts, count, at)
WATCHED(ssize_t, preadv64, 'r', at, (PARTS, off_t at), n, fd, parts, count, at)
WATCHED(ssize_t, write, 'w', -1, (FROM), told_flat(from, n), fd, from, len)
WATCHED(ssize_t, writev, 'w', -1, (PARTS), told(parts, count, n), fd, parts, count)
WATCHED(ssize_t, pwrite, 'w', at, (FROM, off_t at), told_flat(from, n), fd, from, len, at)
WATCHED(ssize_t, pwrite64, 'w', at, (FROM, off_t at), told_flat(from, n), fd, from, len, at)
WATCHED(ssize_t, pwritev, 'w', at, (PARTS, off_t at), told(parts, count, n), fd, parts, count, at)
WATCHED(ssize_t, pwritev64, 'w', at, (PARTS, off_t at), told(parts, count, n), fd, parts, count, at)

static int resized(const char *name, int fd, off_t size)
{
    int (*real)(int fd, off_t size);
    *(void **)&real = dlsym(RTLD_NEXT, name);
    int answer = real(fd, size);
    if (answer == 0)
        tell('t', fd, 0, size);
    return answer;
}

SEEN int ftruncate(int fd, off_t size)
{
    return resized("ftruncate", fd, size);
}

SEEN int ftruncate64(int fd, off_t size)
{
    return resized("ftruncate64", fd, size);
}
