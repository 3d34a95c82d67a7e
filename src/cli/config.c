/* config.c - the configuration file.
 *
 * A context is a section of it, a named set of what one would otherwise say as options:
 *
 *     context = production
 *     [production]
 *     names = ns1:9876;ns2:9876
 *     tls = true
 *     tls-ca = /etc/oncemq/ca.pem
 *
 * The file belongs to whoever edits it. What is read from it knows the line it came from; writing
 * goes through the old lines again, hands on those that nothing was done to as they are (comments
 * among them), and puts what is new where it belongs. The commands over it are in context.c.
 */
#include "cli/session_int.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_SIZE (1u << 20)

static const char *const settings[] = {"names",          "tls",          "tls-ca",     "tls-cert",
                                       "tls-key",        "tls-insecure", "access-key", "secret-key",
                                       "security-token", "timeout",      NULL};

bool setting_known(const char *key)
{
    for (size_t i = 0; settings[i]; i++)
        if (strcmp(settings[i], key) == 0)
            return true;
    return false;
}

/* ---- reading ---- */

static int file_path(struct cli *cli, struct session *s)
{
    const char *given = arg_text(cli, "config", getenv("ONCEMQ_CONFIG"));
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n;
    if (given && *given)
        n = snprintf(s->path, sizeof s->path, "%s", given);
    else if (xdg && *xdg)
        n = snprintf(s->path, sizeof s->path, "%s/oncemq/config", xdg);
    else if (home && *home)
        n = snprintf(s->path, sizeof s->path, "%s/.config/oncemq/config", home);
    else
        return STATUS_OK; /* there is none */
    s->path_given = given && *given;
    return n > 0 && (size_t)n < sizeof s->path
               ? STATUS_OK
               : cli_fail(cli, STATUS_USAGE, NULL,
                          "the path of the configuration file is too long");
}

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r", text[n - 1]))
        text[--n] = 0;
    return text;
}

static int line_bad(struct cli *cli, const struct session *s, int line, const char *what)
{
    return cli_fail(cli, STATUS_USAGE,
                    "a context is [name], then key = value lines: see oncemq help contexts",
                    "%s:%d: %s", s->path, line, what);
}

static int line_take(struct cli *cli, struct session *s, char *line, int number)
{
    line = trim(line);
    if (!*line || *line == '#' || *line == ';')
        return STATUS_OK;
    size_t len = strlen(line);
    if (*line == '[') {
        if (len < 3 || line[len - 1] != ']' || s->n_contexts == CONTEXTS_MAX)
            return line_bad(cli, s, number, "this is no [name] of a context");
        line[len - 1] = 0;
        s->contexts[s->n_contexts++] = (struct context){.name = line + 1, .line = number};
        return STATUS_OK;
    }
    char *equals = strchr(line, '=');
    if (!equals)
        return line_bad(cli, s, number, "there is no = in this line");
    *equals = 0;
    char *key = trim(line), *value = trim(equals + 1);
    if (s->n_contexts == 0) {
        if (strcmp(key, "context") != 0)
            return line_bad(cli, s, number, "before the first [name] there is only context = NAME");
        s->current = value;
        s->current_line = number;
        return STATUS_OK;
    }
    struct context *c = &s->contexts[s->n_contexts - 1];
    if (!setting_known(key))
        return line_bad(cli, s, number, "there is no such key in a context");
    if (c->n == CONTEXT_KEYS_MAX)
        return line_bad(cli, s, number, "too many keys");
    c->pairs[c->n++] = (struct context_pair){key, value, number};
    return STATUS_OK;
}

static int file_read(struct cli *cli, struct session *s)
{
    cleanup(close_at) int fd = open(s->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && !s->path_given)
        return STATUS_OK;
    if (fd < 0)
        return errno == ENOENT && cli->command && cli->command->columns == context_columns
                   ? STATUS_OK /* `context set` makes it */
                   : cli_fail(cli, STATUS_USAGE, NULL, "opening %s: %s", s->path, strerror(errno));
    struct buf text = buf_upto(FILE_MAX_SIZE);
    ssize_t n = 0;
    uint8_t part[4096];
    while (!text.err && ((n = read(fd, part, sizeof part)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0)
            buf_add(&text, bytes_of(part, (size_t)n));
    buf_add_u8(&text, 0);
    if (n < 0 || text.err || memchr(text.at, 0, text.len) != text.at + text.len - 1) {
        buf_clear(&text);
        return cli_fail(cli, STATUS_USAGE, NULL, "%s cannot be read, is over 1 MiB, or no text",
                        s->path);
    }
    s->text = (char *)text.at;
    s->raw = strdup(s->text);
    if (!s->raw)
        return cli_fail(cli, STATUS_FAILED, NULL, "no memory");
    int number = 0, status = STATUS_OK;
    for (char *line = s->text, *next; line && !status; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        status = line_take(cli, s, line, ++number);
    }
    return status;
}

int config_read(struct cli *cli)
{
    int status = file_path(cli, cli->session);
    return status || !cli->session->path[0] ? status : file_read(cli, cli->session);
}

/* ---- writing ---- */

/* A walk through the old lines. */
struct walk {
    struct session *s;
    struct buf out;
    const struct context *in; /* the section; NULL: before the first */
    int last;                 /* the line of its last pair, or its own */
    bool blank;               /* nothing was written so far, or an empty line */
};

static void line_put(struct walk *w, const char *line, size_t len)
{
    buf_add(&w->out, bytes_of(line, len));
    buf_add_u8(&w->out, '\n');
    w->blank = strspn(line, " \t\r") >= len;
}

static void pair_put(struct walk *w, const char *key, const char *value)
{
    buf_printf(&w->out, "%s = %s\n", key, value);
    w->blank = false;
}

static void section_enter(struct walk *w, int line)
{
    for (size_t i = 0; i < w->s->n_contexts; i++)
        if (w->s->contexts[i].line == line) {
            w->in = &w->s->contexts[i];
            w->last = line;
        }
    for (size_t i = 0; w->in && i < w->in->n; i++)
        if (w->in->pairs[i].line > w->last)
            w->last = w->in->pairs[i].line;
}

static const struct context_pair *pair_changed(const struct context *c, int line)
{
    for (size_t i = 0; c && i < c->n; i++)
        if (c->pairs[i].line == line && c->pairs[i].changed)
            return &c->pairs[i];
    return NULL;
}

static void pairs_add(struct walk *w, const struct context *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->pairs[i].line == 0)
            pair_put(w, c->pairs[i].key, c->pairs[i].value);
}

/* What became of an old line. */
static void line_take_over(struct walk *w, const char *line, size_t len, int number)
{
    const struct session *s = w->s;
    section_enter(w, number);
    /* With a section goes an empty line: one between those around it is enough. */
    bool gone =
        w->in && w->in->gone &&
        (number <= w->last || (number == w->last + 1 && w->blank && strspn(line, " \t\r") >= len));
    const struct context_pair *changed = pair_changed(w->in, number);
    if (number == s->current_line && s->current_changed) {
        if (s->current)
            pair_put(w, "context", s->current);
    } else if (changed && !gone)
        pair_put(w, changed->key, changed->value);
    else if (!gone)
        line_put(w, line, len);
    if (w->in && !gone && number == w->last)
        pairs_add(w, w->in);
}

static void file_write(struct walk *w)
{
    const struct session *s = w->s;
    if (s->current && s->current_line == 0)
        pair_put(w, "context", s->current);
    int number = 0;
    for (const char *line = s->raw ? s->raw : ""; *line;) {
        size_t len = strcspn(line, "\n");
        line_take_over(w, line, len, ++number);
        line += len + (line[len] == '\n');
    }
    for (size_t i = 0; i < s->n_contexts; i++)
        if (s->contexts[i].line == 0 && !s->contexts[i].gone) {
            buf_printf(&w->out, "%s[%s]\n", w->blank ? "" : "\n", s->contexts[i].name);
            w->blank = false;
            pairs_add(w, &s->contexts[i]);
        }
}

static void folders_make(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(path, 0700);
        *slash = '/';
    }
}

/* Written beside the old one and put in its place, so that no half of it is ever seen. */
static int file_replace(struct cli *cli, const char *path, struct bytes text)
{
    char fresh[PATH_MAX + 8];
    (void)snprintf(fresh, sizeof fresh, "%s.new", path);
    cleanup(close_at) int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, text.at, text.len) == (ssize_t)text.len && fsync(fd) == 0 &&
        rename(fresh, path) == 0)
        return STATUS_OK;
    int os = errno;
    if (fd >= 0)
        (void)unlink(fresh);
    return cli_fail(cli, STATUS_FAILED, NULL, "writing %s: %s", path, strerror(os));
}

int config_write(struct cli *cli)
{
    struct session *s = cli->session;
    if (!s->path[0])
        return cli_fail(cli, STATUS_USAGE, "--config FILE names one",
                        "there is no place for a configuration file: HOME is not set");
    folders_make(s->path);
    char real[PATH_MAX]; /* a symbolic link stays one */
    struct stat link;
    if (!realpath(s->path, real)) {
        if (lstat(s->path, &link) == 0)
            return cli_fail(cli, STATUS_FAILED, "make the file that it points to, or remove it",
                            "%s is a symbolic link to what is not there", s->path);
        (void)snprintf(real, sizeof real, "%s", s->path);
    }
    struct walk walk = {.s = s, .out = buf_upto(FILE_MAX_SIZE), .blank = true};
    file_write(&walk);
    int status = walk.out.err
                     ? cli_fail(cli, STATUS_FAILED, NULL, "%s would be over 1 MiB", s->path)
                     : file_replace(cli, real, bytes_of(walk.out.at, walk.out.len));
    buf_clear(&walk.out);
    return status;
}
