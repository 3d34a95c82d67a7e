/* conf_file.c - reading a Java properties file as java.util.Properties.load reads it.
 *
 * Natural lines end with LF, CR or CRLF. One whose last backslash is not itself escaped goes on in
 * the next, without the blanks that one begins with. Of such a logical line the key ends at the
 * first bare `=`, `:` or blank; a backslash takes the meaning from what follows, or gives it one
 * (\t \n \f \r \u20ac). We differ in three points: the text is UTF-8 and not Latin-1 (a byte order
 * mark is skipped), bare blanks at the end of a value are dropped, and a zero byte is refused.
 */
#include "base/conf.h"
#include "base/utf8.h"

#include <stdio.h>

#define KEY_MAX 256

struct source {
    const char *file;
    const uint8_t *at, *end;
    int line; /* the one `at` is in, from 1 */
};

/* One character of a logical line. */
struct letter {
    uint8_t utf8[4];
    size_t len;
    bool bare; /* not escaped: `=` and blanks have their meaning */
};

/* A key or a value. Of one that does not fit, the beginning. */
struct word {
    char *text;
    size_t size, len;
    size_t kept; /* the length without bare blanks at the end */
    bool cut;
};

struct entry {
    int line;
    char key[KEY_MAX], value[CONF_TEXT_MAX];
    bool value_cut;
};

static bool next_entry(struct source *s, struct entry *out, enum err *err, struct fault *why);
static enum err read_entry(struct source *s, struct entry *e, struct fault *why);
static enum err next_letter(struct source *s, struct letter *out, struct fault *why);

static void where_text(const struct source *s, int line, char out[static 256])
{
    (void)snprintf(out, 256, "%.230s:%d", s->file, line);
}

static enum err apply(const struct conf_table *table, void *settings, const struct source *s,
                      const struct entry *e, const struct conf_unknown *unknown, struct fault *why)
{
    char where[256];
    where_text(s, e->line, where);
    if (e->key[0] == '\0' && e->value[0] == '\0')
        return OK; /* a lone sign or backslash */
    if (e->key[0] == '\0')
        return fault_set(why, ERR_INVALID, "%s: there is no key before the value", where);
    if (conf_find(table, e->key)) {
        if (e->value_cut)
            return fault_set(why, ERR_INVALID, "%s: the value of %s is longer than %d bytes", where,
                             e->key, CONF_TEXT_MAX - 1);
        return conf_set(table, settings, where, e->key, e->value, why);
    }
    if (unknown)
        unknown->tell(unknown->user, where, e->key, conf_nearest(table, e->key));
    return OK;
}

static struct source source_over(const char *file, struct bytes text)
{
    if (bytes_start(text, BYTES("\xef\xbb\xbf")))
        text = bytes_from(text, 3);
    struct rd r = rd_over(text);
    return (struct source){.file = file, .at = r.at, .end = r.end, .line = 1};
}

enum err conf_each(const char *file, struct bytes text,
                   void (*each)(void *user, const char *key, const char *value), void *user,
                   struct fault *why)
{
    struct source s = source_over(file, text);
    struct entry e;
    enum err err = OK;
    while (next_entry(&s, &e, &err, why))
        if (e.key[0] != '\0')
            each(user, e.key, e.value);
    return err;
}

enum err conf_parse(const struct conf_table *table, void *settings, const char *file,
                    struct bytes text, const struct conf_unknown *unknown, struct fault *why)
{
    struct source s = source_over(file, text);
    struct entry e;
    enum err err = OK;
    while (next_entry(&s, &e, &err, why)) {
        err = apply(table, settings, &s, &e, unknown, why);
        if (err)
            return err;
    }
    return err;
}

/* ---- lines ---- */

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\f';
}

static bool at_line_end(const struct source *s)
{
    return s->at == s->end || *s->at == '\n' || *s->at == '\r';
}

static void skip_blanks(struct source *s)
{
    while (s->at < s->end && is_blank(*s->at))
        s->at++;
}

/* Stands at a line end; behind it afterwards. */
static void skip_line_end(struct source *s)
{
    if (s->at == s->end)
        return;
    s->at += s->end - s->at >= 2 && s->at[0] == '\r' && s->at[1] == '\n' ? 2 : 1;
    s->line++;
}

/* The next line that is neither empty nor a comment; false at the end of the file or on an error.
 */
static bool next_entry(struct source *s, struct entry *out, enum err *err, struct fault *why)
{
    while (s->at < s->end) {
        skip_blanks(s);
        if (s->at < s->end && (*s->at == '#' || *s->at == '!')) {
            while (!at_line_end(s))
                s->at++;
        }
        if (!at_line_end(s)) {
            *err = read_entry(s, out, why);
            return *err == OK;
        }
        skip_line_end(s);
    }
    return false;
}

/* ---- one line ---- */

static void add_letter(struct word *w, const struct letter *c)
{
    if (w->cut || c->len > w->size - 1 - w->len) {
        w->cut = true;
        return;
    }
    memcpy(w->text + w->len, c->utf8, c->len);
    w->len += c->len;
    if (!c->bare || !is_blank(c->utf8[0]))
        w->kept = w->len;
}

static enum err read_entry(struct source *s, struct entry *e, struct fault *why)
{
    struct word key = {.text = e->key, .size = sizeof e->key};
    struct word value = {.text = e->value, .size = sizeof e->value};
    enum { KEY, GAP, START, VALUE } place = KEY; /* GAP: blanks before the sign. START: behind it */

    e->line = s->line;
    for (;;) {
        struct letter c;
        enum err err = next_letter(s, &c, why);
        if (err)
            return err;
        if (c.len == 0)
            break;
        bool blank = c.bare && is_blank(c.utf8[0]);
        bool sign = c.bare && (c.utf8[0] == '=' || c.utf8[0] == ':');
        if (place == KEY && !blank && !sign)
            add_letter(&key, &c);
        else if (place == KEY || (place == GAP && (blank || sign)))
            place = sign ? START : GAP;
        else if (place == VALUE || !blank) {
            add_letter(&value, &c);
            place = VALUE;
        }
    }
    e->key[key.kept] = '\0';
    e->value[value.kept] = '\0';
    e->value_cut = value.cut;
    return OK;
}

static enum err refuse(const struct source *s, const char *what, struct fault *why)
{
    char where[256];
    where_text(s, s->line, where);
    return fault_set(why, ERR_INVALID, "%s: %s", where, what);
}

/* What stands behind a backslash; `at` is there. */
static enum err take_escaped(struct source *s, struct letter *out, struct fault *why)
{
    static const char letters[] = "tnrf", meanings[] = "\t\n\r\f";
    out->bare = false;
    if (*s->at == 'u') {
        if (utf8_hex4(s->at + 1, s->end) < 0)
            return refuse(s, "\\u must be followed by four hexadecimal digits", why);
        s->at--; /* to the backslash */
        out->len = utf8_put(out->utf8, utf8_take_escape(&s->at, s->end));
        return OK;
    }
    const char *known = *s->at ? strchr(letters, *s->at) : NULL;
    out->utf8[0] = known ? (uint8_t)meanings[known - letters] : *s->at;
    out->len = 1;
    s->at++;
    return OK;
}

/* A length of zero: the logical line is over, and `at` is at the start of the next. */
static enum err next_letter(struct source *s, struct letter *out, struct fault *why)
{
    *out = (struct letter){.bare = true};
    while (!at_line_end(s)) {
        bool escaped = *s->at == '\\';
        out->utf8[0] = *s->at++;
        out->len = 1;
        if (escaped && at_line_end(s)) { /* goes on in the next line */
            skip_line_end(s);
            skip_blanks(s);
            out->len = 0;
            continue;
        }
        enum err err = escaped ? take_escaped(s, out, why) : OK;
        if (!err && out->utf8[0] == 0)
            err = refuse(s, "a zero byte is not text", why);
        return err;
    }
    skip_line_end(s);
    return OK;
}
