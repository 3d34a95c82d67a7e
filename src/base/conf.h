/* conf.h - key=value settings with a typed table.
 *
 * The file form is Apache RocketMQ's (a Java properties file): `key=value`, `key: value`, `#` or
 * `!` comments, blanks around both sides ignored, `\` before an end of line or a character as in
 * Java. One table of options says everything about a key: its type, its default, what is valid, one
 * line of explanation, and where the value lives in the settings struct. --print-config and
 * docs/configuration.md are made from the same table.
 *
 * A key that the table does not have is reported, not refused: an existing broker.conf must work as
 * it is. A value that makes no sense is refused with file, line, key and what would be valid.
 */
#ifndef BASE_CONF_H
#define BASE_CONF_H

#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

#define CONF_TEXT_MAX 1024

enum conf_type {
    CONF_INT,   /* int64_t, min … max */
    CONF_BOOL,  /* bool: true/false */
    CONF_TEXT,  /* char[CONF_TEXT_MAX] */
    CONF_CHOICE /* int: index into choices */
};

struct conf_option {
    const char *key;
    enum conf_type type;
    size_t offset;              /* of the value in the settings struct */
    const char *initial;        /* the default, as text */
    int64_t min, max;           /* CONF_INT */
    const char *const *choices; /* CONF_CHOICE: NULL-ended, matched without case */
    /* A further check of the text, may be NULL. Its sentence says what would be valid. */
    enum err (*check)(const char *value, struct fault *why);
    const char *help; /* one line */
    bool live;        /* it can change while the program runs */
};

struct conf_table {
    const struct conf_option *options;
    size_t n;
};

/* Told of every key that is not in the table. The key is a stranger's text: quote it in a log. */
struct conf_unknown {
    void (*tell)(void *user, const char *where, const char *key, const char *nearest /* or NULL */);
    void *user;
};

must_check enum err conf_defaults(const struct conf_table *table, void *settings,
                                  struct fault *why);

/* `where` is for the error: "broker.conf:12" or "--set". ERR_NOT_FOUND: no such key. ERR_INVALID
 * (or what `check` says): "broker.conf:12: listenPort=x is not valid: it must be a whole number
 * from …". */
must_check enum err conf_set(const struct conf_table *table, void *settings, const char *where,
                             const char *key, const char *value, struct fault *why);

/* The text of a whole file; `file` and the line are for the error. A key given twice: the last one
 * counts. After an error the settings are half set. */
must_check enum err conf_parse(const struct conf_table *table, void *settings, const char *file,
                               struct bytes text, const struct conf_unknown *unknown,
                               struct fault *why);

/* Every key and value of such a text, in order and whatever the keys are. Of a value longer than
 * CONF_TEXT_MAX - 1 bytes `each` gets the beginning; a value without a key is left out. */
must_check enum err conf_each(const char *file, struct bytes text,
                              void (*each)(void *user, const char *key, const char *value),
                              void *user, struct fault *why);

const struct conf_option *conf_find(const struct conf_table *table, const char *key);

/* The key of the table that was probably meant, or NULL. */
const char *conf_nearest(const struct conf_table *table, const char *key);

/* Whether two structs have the same value for it. */
bool conf_same(const struct conf_option *option, const void *a, const void *b);

void conf_copy(const struct conf_option *option, void *to, const void *from);

/* The value as it would be written in a file, with escapes. */
void conf_format(const struct conf_option *option, const void *settings, struct buf *out);

/* Every key with its value, its default and its line of explanation, as a file that can be read
 * back. */
void conf_print(const struct conf_table *table, const void *settings, struct buf *out);

/* The same as a Markdown table of key, default, valid values, whether it is live, meaning. */
void conf_markdown(const struct conf_table *table, struct buf *out);

#endif
