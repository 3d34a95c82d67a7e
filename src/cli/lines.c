/* lines.c - reading lines. */
#include "cli/lines.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define READ_SIZE 65536

void lines_init(struct lines *lines, int fd)
{
    *lines = (struct lines){.fd = fd, .text = buf_upto(LINE_MAX_SIZE + 2 * READ_SIZE)};
}

void lines_clear(struct lines *lines)
{
    buf_clear(&lines->text);
}

/* A line in what has been read already. At the end of the input its last newline may be missing. */
static bool line_cut(struct lines *l, struct bytes *line)
{
    for (;;) {
        size_t left = l->text.len - l->at;
        if (left == 0)
            return false;
        const uint8_t *start = l->text.at + l->at, *end = memchr(start, '\n', left);
        if (!end && !l->ended)
            return false;
        size_t len = end ? (size_t)(end - start) : left;
        l->at += len + (end != NULL);
        if (len > 0) {
            *line = bytes_of(start, len);
            return true;
        }
    }
}

static void read_more(struct lines *l)
{
    size_t left = l->text.len - l->at;
    if (l->at > 0 && left > 0)
        memmove(l->text.at, l->text.at + l->at, left);
    l->text.len = left;
    l->at = 0;
    uint8_t *space = buf_space(&l->text, READ_SIZE);
    if (!space) {
        l->error = ENOMEM;
        return;
    }
    ssize_t n;
    do
        n = read(l->fd, space, READ_SIZE);
    while (n < 0 && errno == EINTR);
    l->text.len = left + (n > 0 ? (size_t)n : 0);
    l->ended = n == 0;
    l->error = n < 0 ? errno : 0;
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) != 0;
}

enum lines_state lines_next(struct lines *l, struct bytes *line)
{
    for (bool waited = false;; waited = true) {
        if (line_cut(l, line))
            return line->len > LINE_MAX_SIZE ? LINES_TOO_LONG : LINES_READY;
        if (l->ended)
            return LINES_END;
        if (l->error)
            return LINES_FAILED;
        if (l->text.len - l->at > LINE_MAX_SIZE)
            return LINES_TOO_LONG;
        if (waited || !is_readable(l->fd))
            return LINES_WAIT;
        read_more(l);
    }
}

enum lines_state lines_all(struct lines *l, struct bytes *all)
{
    while (!l->ended && !l->error) {
        read_more(l);
        if (l->text.len > LINE_MAX_SIZE)
            return LINES_TOO_LONG;
    }
    *all = buf_bytes(&l->text);
    return l->error ? LINES_FAILED : LINES_END;
}
