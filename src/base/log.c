#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES  1024
#define LIMIT_PERIOD_NS 1000000000u

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static size_t write_prefix(struct log *log, enum log_level level, char *line, size_t size)
{
    int64_t ms = clock_ms(log->clock);
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    (void)gmtime_r(&seconds, &tm);
    size_t used = strftime(line, size, "%Y-%m-%dT%H:%M:%S", &tm);
    int n =
        snprintf(line + used, size - used, ".%03dZ %-5s ", (int)(ms % 1000), level_names[level]);
    return used + (size_t)n;
}

static void write_line(struct log *log, enum log_level level, unsigned left_out, const char *format,
                       va_list args)
{
    char line[LINE_MAX_BYTES];
    size_t room = sizeof line - 40; /* for the tail and the line's end */
    size_t used = write_prefix(log, level, line, room);
    int n = vsnprintf(line + used, room - used, format, args);
    if (n > 0)
        used += (size_t)n < room - used ? (size_t)n : room - used - 1;
    if (left_out) {
        n = snprintf(line + used, 32, " left_out=%u", left_out);
        used += (size_t)n;
    }
    line[used++] = '\n';
    ssize_t written =
        write(log->fd, line, used); /* a log that cannot be written has nobody to tell */
    (void)written;
}

void log_event(struct log *log, enum log_level level, const char *format, ...)
{
    if (!log || level < log->least)
        return;
    va_list args;
    va_start(args, format);
    write_line(log, level, 0, format, args);
    va_end(args);
}

void log_limited(struct log *log, struct log_limit *limit, enum log_level level, const char *format,
                 ...)
{
    if (!log || level < log->least)
        return;
    uint64_t now = clock_ns(log->clock);
    uint64_t next = atomic_load(&limit->next_ns);
    if (now < next ||
        !atomic_compare_exchange_strong(&limit->next_ns, &next, now + LIMIT_PERIOD_NS)) {
        atomic_fetch_add(&limit->left_out, 1);
        return;
    }
    va_list args;
    va_start(args, format);
    write_line(log, level, atomic_exchange(&limit->left_out, 0), format, args);
    va_end(args);
}

const char *log_quote(char out[LOG_QUOTE_MAX], struct bytes text)
{
    size_t at = 0;
    bool plain = text.len > 0;
    for (size_t i = 0; i < text.len; i++)
        plain = plain && text.at[i] > ' ' && text.at[i] != '"' && text.at[i] != 0x7f;
    if (!plain)
        out[at++] = '"';
    for (size_t i = 0; i < text.len; i++) {
        if (at + 9 > LOG_QUOTE_MAX) { /* one escape, the dots, the quote and the end */
            memcpy(out + at, "...", 3);
            at += 3;
            break;
        }
        uint8_t c = text.at[i];
        if (c < ' ' || c == 0x7f || c == '"' || c == '\\')
            at += (size_t)snprintf(out + at, 5, "\\x%02x", c);
        else
            out[at++] = (char)c;
    }
    if (!plain)
        out[at++] = '"';
    out[at] = 0;
    return out;
}

enum err log_level_parse(struct bytes text, enum log_level *out)
{
    for (size_t i = 0; i < sizeof level_names / sizeof level_names[0]; i++) {
        if (bytes_equal(text, bytes_str(level_names[i]))) {
            *out = (enum log_level)i;
            return OK;
        }
    }
    return ERR_INVALID;
}
