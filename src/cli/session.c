/* session.c - which cluster, and the client that talks to it.
 *
 * What counts, the first first: an option, the environment, the context, the default.
 */
#include "cli/session_int.h"

#include <stdlib.h>

#define TIMEOUT_MAX_MS 3600000

struct context *context_find(struct session *s, const char *name)
{
    for (size_t i = 0; i < s->n_contexts; i++)
        if (!s->contexts[i].gone && strcmp(s->contexts[i].name, name) == 0)
            return &s->contexts[i];
    return NULL;
}

const char *context_value(const struct context *c, const char *key)
{
    for (size_t i = c ? c->n : 0; i-- > 0;)
        if (strcmp(c->pairs[i].key, key) == 0)
            return c->pairs[i].value;
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
    int status = config_read(cli);
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
    free(s->raw);
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
