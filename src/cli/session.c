/* session.c - which cluster: contexts, and the client that talks to it.
 *
 * A context is a section of the configuration file, a named set of what one would otherwise say as
 * options:
 *
 *     context = production
 *     [production]
 *     names = ns1:9876;ns2:9876
 *     tls = true
 *     tls-ca = /etc/oncemq/ca.pem
 *
 * What counts, the first first: an option, the environment, the context, the default. The file is
 * read and written here; the commands over it are in context.c.
 */
#include "cli/session_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_SIZE  (1u << 20)
#define TIMEOUT_MAX_MS 3600000

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

/* ---- the file ---- */

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
        s->contexts[s->n_contexts++] = (struct context){.name = line + 1};
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
        return STATUS_OK;
    }
    struct context *c = &s->contexts[s->n_contexts - 1];
    if (!setting_known(key))
        return line_bad(cli, s, number, "there is no such key in a context");
    if (c->n == CONTEXT_KEYS_MAX)
        return line_bad(cli, s, number, "too many keys");
    c->keys[c->n] = key;
    c->values[c->n++] = value;
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
    if (n < 0 || text.err) {
        buf_clear(&text);
        return cli_fail(cli, STATUS_USAGE, NULL, "%s cannot be read, or is over 1 MiB", s->path);
    }
    buf_add_u8(&text, 0);
    s->text = (char *)text.at;
    int number = 0, status = STATUS_OK;
    for (char *line = s->text, *next; line && !status; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        status = line_take(cli, s, line, ++number);
    }
    return status;
}

/* Written beside the old one and put in its place, so that no half of it is ever seen. */
int session_save(struct cli *cli)
{
    struct session *s = cli->session;
    if (!s->path[0])
        return cli_fail(cli, STATUS_USAGE, "--config FILE names one",
                        "there is no place for a configuration file: HOME is not set");
    struct buf text = buf_upto(FILE_MAX_SIZE);
    if (s->current)
        buf_printf(&text, "context = %s\n", s->current);
    for (size_t i = 0; i < s->n_contexts; i++) {
        buf_printf(&text, "\n[%s]\n", s->contexts[i].name);
        for (size_t k = 0; k < s->contexts[i].n; k++)
            buf_printf(&text, "%s = %s\n", s->contexts[i].keys[k], s->contexts[i].values[k]);
    }
    char fresh[sizeof s->path + 8];
    (void)snprintf(fresh, sizeof fresh, "%s.new", s->path);
    for (char *slash = strchr(s->path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(s->path, 0700);
        *slash = '/';
    }
    cleanup(close_at) int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = fd >= 0 && !text.err && write(fd, text.at, text.len) == (ssize_t)text.len &&
                fsync(fd) == 0 && rename(fresh, s->path) == 0;
    int os = errno;
    buf_clear(&text);
    if (good)
        return STATUS_OK;
    if (fd >= 0)
        (void)unlink(fresh);
    return cli_fail(cli, STATUS_FAILED, NULL, "writing %s: %s", s->path, strerror(os));
}

struct context *context_find(struct session *s, const char *name)
{
    for (size_t i = 0; i < s->n_contexts; i++)
        if (strcmp(s->contexts[i].name, name) == 0)
            return &s->contexts[i];
    return NULL;
}

const char *context_value(const struct context *c, const char *key)
{
    for (size_t i = c ? c->n : 0; i-- > 0;)
        if (strcmp(c->keys[i], key) == 0)
            return c->values[i];
    return NULL;
}

/* ---- the session ---- */

/* An option, the environment (NULL: it has none), the context. */
static const char *setting(const struct cli *cli, const char *key, const char *variable)
{
    const struct given *g = opt_find(NULL, bytes_str(key)) ? arg_given(cli, key) : NULL;
    if (g)
        return g->opt->kind == OPT_SWITCH ? "true" : g->text;
    const char *value = variable ? getenv(variable) : NULL;
    return value && *value ? value : context_value(cli->session->context, key);
}

int session_open(struct cli *cli)
{
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return cli_fail(cli, STATUS_FAILED, NULL, "no memory");
    cli->session = s;
    int status = file_path(cli, s);
    if (!status)
        status = file_read(cli, s);
    if (status)
        return status;
    const char *name = arg_text(cli, "context", getenv("ONCEMQ_CONTEXT"));
    bool asked = name && *name;
    if (!asked)
        name = s->current;
    s->context = name ? context_find(s, name) : NULL;
    const char *timeout = setting(cli, "timeout", NULL);
    int64_t ms;
    if (timeout && (!value_duration(timeout, &ms) || ms < 1 || ms > TIMEOUT_MAX_MS))
        return cli_fail(cli, STATUS_USAGE, NULL, "the timeout is from 1ms to 1h: %s is not",
                        printable(cli, bytes_str(timeout)));
    if (asked && !s->context)
        return cli_fail(cli, STATUS_USAGE, "oncemq context list shows what there is",
                        "there is no context %s in %s", printable(cli, bytes_str(name)), s->path);
    return STATUS_OK;
}

void session_close(struct cli *cli)
{
    struct session *s = cli->session;
    if (!s)
        return;
    omq_client_close(s->client);
    free(s->text);
    free(s);
    cli->session = NULL;
}

const char *cli_names(struct cli *cli)
{
    const char *names = setting(cli, "names", "ONCEMQ_NAMES");
    return names && *names ? names : "127.0.0.1:9876";
}

int cli_timeout_ms(const struct cli *cli)
{
    int64_t ms = 3000;
    const char *text = setting(cli, "timeout", NULL);
    if (text)
        (void)value_duration(text, &ms); /* session_open has looked at it */
    return (int)ms;
}

static bool is_true(const char *text)
{
    return text &&
           (strcmp(text, "true") == 0 || strcmp(text, "yes") == 0 || strcmp(text, "1") == 0);
}

struct omq_client_options cli_client_options(struct cli *cli)
{
    return (struct omq_client_options){
        .names = cli_names(cli),
        .timeout_ms = cli_timeout_ms(cli),
        .tls = is_true(setting(cli, "tls", NULL)),
        .tls_ca = setting(cli, "tls-ca", NULL),
        .tls_cert = setting(cli, "tls-cert", NULL),
        .tls_key = setting(cli, "tls-key", NULL),
        .tls_insecure = is_true(setting(cli, "tls-insecure", NULL)),
        .access_key = setting(cli, "access-key", "ONCEMQ_ACCESS_KEY"),
        .secret_key = setting(cli, "secret-key", "ONCEMQ_SECRET_KEY"),
        .security_token = setting(cli, "security-token", "ONCEMQ_SECURITY_TOKEN"),
    };
}

struct omq_client *cli_client(struct cli *cli, int *status)
{
    struct session *s = cli->session;
    *status = STATUS_OK;
    if (s->client)
        return s->client;
    struct omq_client_options options = cli_client_options(cli);
    struct omq_error why;
    if (omq_client_open(&options, &s->client, &why)) {
        *status = cli_fail_omq(cli, &why, NULL);
        return NULL;
    }
    return s->client;
}
