#include "once/sql_scan.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static bool in_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || (unsigned char)c >= 0x80;
}

static size_t line_end(const char *text, size_t from)
{
    return from + strcspn(text + from, "\n");
}

/* From the opening quote at `at` to behind the closing one. A doubled quote closes one text and
 * opens the next, which comes to the same. */
static size_t quote_end(const char *text, size_t at, char close, bool escapes)
{
    for (size_t i = at + 1; text[i]; i++) {
        if (escapes && text[i] == '\\' && text[i + 1])
            i++;
        else if (text[i] == close)
            return i + 1;
    }
    return SIZE_MAX;
}

static size_t block_end(const char *text, size_t at, bool nested)
{
    size_t depth = 1;
    for (size_t i = at + 2; text[i]; i++) {
        if (text[i] == '*' && text[i + 1] == '/') {
            i++;
            if (--depth == 0)
                return i + 1;
        } else if (nested && text[i] == '/' && text[i + 1] == '*') {
            i++;
            depth++;
        }
    }
    return SIZE_MAX;
}

/* $tag$: its length; 0: it is none. */
static size_t dollar_tag(const char *text, size_t at)
{
    size_t i = at + 1;
    if (at > 0 && in_name(text[at - 1]))
        return 0;
    if (text[i] >= '0' && text[i] <= '9')
        return 0;
    while (text[i] != '$' && in_name(text[i]))
        i++;
    return text[i] == '$' ? i + 1 - at : 0;
}

static size_t dollar_end(const char *text, size_t at, size_t tag)
{
    for (const char *c = strchr(text + at + tag, '$'); c; c = strchr(c + 1, '$'))
        if (strncmp(c, text + at, tag) == 0)
            return (size_t)(c - text) + tag;
    return SIZE_MAX;
}

static size_t comment_end(enum sql_dialect dialect, const char *text, size_t at)
{
    if (text[at] == '-' && text[at + 1] == '-' &&
        (dialect != SQL_MARIADB || text[at + 2] == 0 || (unsigned char)text[at + 2] <= ' '))
        return line_end(text, at);
    if (text[at] == '#' && dialect == SQL_MARIADB)
        return line_end(text, at);
    if (text[at] == '/' && text[at + 1] == '*')
        return block_end(text, at, dialect == SQL_POSTGRESQL);
    return at;
}

size_t sql_scan(enum sql_dialect dialect, const char *text, size_t at)
{
    size_t end = comment_end(dialect, text, at);
    bool mysql = dialect == SQL_MARIADB;
    if (text[at] == '\'' || text[at] == '"') {
        bool escape = dialect == SQL_POSTGRESQL && text[at] == '\'' && at > 0 &&
                      (text[at - 1] == 'E' || text[at - 1] == 'e') &&
                      (at < 2 || !in_name(text[at - 2]));
        end = quote_end(text, at, text[at], mysql || escape);
    } else if (text[at] == '`' && dialect != SQL_POSTGRESQL) {
        end = quote_end(text, at, '`', false);
    } else if (text[at] == '[' && dialect == SQL_SQLITE) {
        end = quote_end(text, at, ']', false);
    } else if (text[at] == '$' && dialect == SQL_POSTGRESQL) {
        size_t tag = dollar_tag(text, at);
        end = tag ? dollar_end(text, at, tag) : at;
    }
    return end == SIZE_MAX ? SIZE_MAX : end - at;
}
