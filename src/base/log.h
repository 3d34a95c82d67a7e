/* log.h - one event, one line: `time level what key=value …`.
 *
 * Rooms return; doors and roles log. The level may change at any time. Errors that a stranger can
 * trigger go through log_limited: at most one line a second for each limit, and the next line tells
 * how many were left out. Values with blanks or control characters are the caller's to quote with
 * LOG_QUOTE, which also makes them safe to print.
 *
 * Threads: any. A line is written with one system call.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"

#include <stdatomic.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

struct log {
    int fd;
    _Atomic enum log_level least;
    struct clock *clock;
};

/* Zero-initialised, static or in the object it guards. */
struct log_limit {
    _Atomic uint64_t next_ns;
    atomic_uint left_out;
};

void log_event(struct log *log, enum log_level level, const char *format, ...) printf_like(3, 4);
void log_limited(struct log *log, struct log_limit *limit, enum log_level level, const char *format,
                 ...) printf_like(4, 5);

/* A stranger's text, made printable and cut to fit: log_event(..., "topic=%s", LOG_QUOTE(topic)).
 */
#define LOG_QUOTE_MAX 160
#define LOG_QUOTE(b)  log_quote((char[LOG_QUOTE_MAX]){0}, (b))
const char *log_quote(char out[LOG_QUOTE_MAX], struct bytes text);

must_check enum err log_level_parse(struct bytes text, enum log_level *out);

#endif
