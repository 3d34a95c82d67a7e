/* ends.c - does a statement end the transaction that it is in?
 *
 * Its first words tell, and what stands in front of them does not count. But databases do not agree
 * on that: comments may be in one another in PostgreSQL only, where also a carriage return ends a
 * line; and what MariaDB has in comments with an exclamation mark it does, or does not, as its
 * version is. So every reading is tried, and one is enough to refuse the statement.
 *
 * Pure: no I/O, no clock, no logging.
 */
#include "once/once_int.h"

#include <ctype.h>
#include <strings.h>

#define BLANKS        " \t\r\n\f\v"
#define COMMENTS_MOST 8 /* with more of them in front a statement is refused unread */

static bool starts(const char *sql, const char *with)
{
    return strncmp(sql, with, strlen(with)) == 0;
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || (unsigned char)c >= 0x80;
}

/* Behind a block comment. */
static const char *block_end(const char *sql, bool nested)
{
    unsigned depth = 1;
    for (sql += 2; *sql && depth > 0;) {
        bool opens = nested && starts(sql, "/*"), shuts = starts(sql, "*/");
        depth += opens;
        depth -= shuts;
        sql += opens || shuts ? 2 : 1;
    }
    return sql;
}

/* Behind the mark of a comment that MariaDB may do; NULL: it is none. */
static const char *mark_end(const char *sql)
{
    if (!starts(sql, "/*!") && !starts(sql, "/*M!"))
        return NULL;
    sql = strchr(sql, '!') + 1;
    return sql + strspn(sql, "0123456789");
}

static bool is_line_comment(const char *sql)
{
    return starts(sql, "--") || *sql == '#';
}

/* Whether these, with one blank between them, may be the first words. */
static bool may_begin(const char *sql, const char *words, unsigned comments)
{
    for (;;) {
        sql += strspn(sql, BLANKS "(;");
        if (starts(sql, "*/")) { /* of one whose mark was passed over */
            sql += 2;
            continue;
        }
        bool block = starts(sql, "/*");
        if (!block && !is_line_comment(sql))
            break;
        if (++comments > COMMENTS_MOST)
            return true;
        const char *mark = mark_end(sql), *line = sql + strcspn(sql, "\r\n");
        if (block) {
            if ((mark && may_begin(mark, words, comments)) ||
                may_begin(block_end(sql, true), words, comments))
                return true;
            sql = block_end(sql, false);
        } else {
            if (*line == '\r' && may_begin(line, words, comments))
                return true;
            sql += strcspn(sql, "\n");
        }
    }
    size_t n = strcspn(words, " ");
    if (strncasecmp(sql, words, n) != 0 || in_word(sql[n]))
        return false;
    return words[n] == 0 || may_begin(sql + n, words + n + 1, comments);
}

/* A table of this connection alone, which commits nothing: whatever the version. */
static bool is_temporary(const char *sql)
{
    static const char *const verbs[] = {"CREATE", "DROP"};
    static const char word[] = "TEMPORARY";
    for (;;) {
        sql += strspn(sql, BLANKS);
        if (is_line_comment(sql))
            sql += strcspn(sql, "\n");
        else if (starts(sql, "/*") && !mark_end(sql))
            sql = block_end(sql, false);
        else
            break;
    }
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        size_t n = strlen(verbs[i]);
        const char *next = sql + n;
        if (strncasecmp(sql, verbs[i], n) != 0)
            continue;
        next += strspn(next, BLANKS);
        return next > sql + n && strncasecmp(next, word, sizeof word - 1) == 0 &&
               !in_word(next[sizeof word - 1]);
    }
    return false;
}

bool ends_transaction(const char *sql, const char *const *more)
{
    static const char *const words[] = {"COMMIT", "ROLLBACK", "BEGIN", "START",
                                        "END",    "ABORT",    "XA",    NULL};
    for (size_t i = 0; words[i]; i++)
        if (may_begin(sql, words[i], 0))
            return true;
    for (size_t i = 0; more && more[i] && !is_temporary(sql); i++)
        if (may_begin(sql, more[i], 0))
            return true;
    return false;
}
