/* lines.h - the lines of a file or a pipe, one after the other, in bounded memory. */
#ifndef CLI_LINES_H
#define CLI_LINES_H

#include "base/buf.h"

#define LINE_MAX_SIZE ((size_t)8 << 20)

struct lines {
    int fd;
    struct buf text; /* read and not given out, from `at` on */
    size_t at;
    bool ended;
    int error; /* errno of a read that failed */
};

enum lines_state {
    LINES_READY, /* `*line` is valid until the next call */
    LINES_WAIT,  /* fd has nothing just now: wait until it can be read */
    LINES_END,
    LINES_TOO_LONG, /* a line over LINE_MAX_SIZE: nothing behind it is read */
    LINES_FAILED,   /* `error` */
};

void lines_init(struct lines *lines, int fd);
void lines_clear(struct lines *lines);
/* The next line that is not empty, without its end. Reads at most once: a pipe that has nothing
 * more blocks only if nobody waited for it. */
enum lines_state lines_next(struct lines *lines, struct bytes *line);
/* All there is, up to LINE_MAX_SIZE: LINES_END, LINES_TOO_LONG, LINES_FAILED. Blocks. */
enum lines_state lines_all(struct lines *lines, struct bytes *all);

#endif
