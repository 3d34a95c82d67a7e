/* context.c - the commands over the configuration file. */
#include "cli/session_int.h"

#include <string.h>

const struct column context_columns[] = {
    {"context", COLUMN_TEXT, "CONTEXT", "its name"},
    {"current", COLUMN_BOOL, "CURRENT", "used when no other is asked for"},
    {"names", COLUMN_TEXT, "NAMES", "its name servers"},
    {"tls", COLUMN_BOOL, "TLS", "whether it speaks TLS"},
    {"access_key", COLUMN_TEXT, "ACCESS KEY", "who signs its requests"},
    {NULL},
};

static void context_put(struct cli *cli, const struct context *c)
{
    const char *current = cli->session->current, *tls = context_value(c, "tls");
    row_begin(cli);
    put_text(cli, "context", c->name);
    put_bool(cli, "current", current && strcmp(current, c->name) == 0);
    put_text(cli, "names", context_value(c, "names"));
    put_bool(cli, "tls", tls && strcmp(tls, "true") == 0);
    put_text(cli, "access_key", context_value(c, "access-key"));
    row_end(cli);
}

static int context_list(struct cli *cli)
{
    const struct session *s = cli->session;
    for (size_t i = 0; i < s->n_contexts; i++)
        context_put(cli, &s->contexts[i]);
    if (s->n_contexts == 0)
        cli_note(cli,
                 "There are no contexts in %s; oncemq context set NAME names=HOST:PORT makes one.",
                 s->path);
    return STATUS_OK;
}

static int context_missing(struct cli *cli, const char *name)
{
    return cli_fail(cli, STATUS_NOT_FOUND, "oncemq context list shows what there is",
                    "there is no context %s in %s", printable(cli, bytes_str(name)),
                    cli->session->path);
}

static void current_set(struct session *s, const char *name)
{
    s->current = name;
    s->current_changed = true;
}

static int context_use(struct cli *cli)
{
    const char *name = arg_at(cli, 0);
    struct context *c = context_find(cli->session, name);
    if (!c)
        return context_missing(cli, name);
    current_set(cli->session, c->name);
    int status = config_write(cli);
    if (!status)
        context_put(cli, c);
    return status;
}

static bool word_good(const char *text)
{
    return *text && strcspn(text, "[]=#;\r\n") == strlen(text);
}

static int pair_set(struct cli *cli, struct context *c, const char *pair)
{
    const char *equals = strchr(pair, '=');
    char key[64];
    size_t len = equals ? (size_t)(equals - pair) : 0;
    if (len == 0 || len >= sizeof key || strcspn(equals, "\r\n") != strlen(equals))
        return cli_fail(cli, STATUS_USAGE, NULL, "%s: expected KEY=VALUE",
                        printable(cli, bytes_str(pair)));
    memcpy(key, pair, len);
    key[len] = 0;
    if (!setting_known(key))
        return cli_fail(
            cli, STATUS_USAGE,
            "there are names, tls, tls-ca, tls-cert, tls-key, tls-insecure, access-key, "
            "secret-key, security-token, timeout",
            "a context has no key %s", printable(cli, bytes_str(key)));
    size_t i = c->n; /* the last one counts */
    while (i > 0 && strcmp(c->pairs[i - 1].key, key) != 0)
        i--;
    if (i == 0 && c->n == CONTEXT_KEYS_MAX)
        return cli_fail(cli, STATUS_USAGE, NULL, "too many keys in one context");
    struct context_pair *p = &c->pairs[i > 0 ? i - 1 : c->n++];
    if (i == 0)
        p->key = (const char *)arena_copy(&cli->arena, bytes_of(key, len + 1)).at;
    p->value = equals + 1;
    p->changed = true;
    return STATUS_OK;
}

static int context_set(struct cli *cli)
{
    struct session *s = cli->session;
    const char *name = arg_at(cli, 0);
    struct context *c = context_find(s, name);
    if (!word_good(name))
        return cli_fail(cli, STATUS_USAGE, NULL, "a context is called by a word");
    if (!c && s->n_contexts == CONTEXTS_MAX)
        return cli_fail(cli, STATUS_FAILED, NULL, "there are %d contexts already", CONTEXTS_MAX);
    if (!c) {
        c = &s->contexts[s->n_contexts++];
        *c = (struct context){.name = name};
    }
    int status = STATUS_OK;
    for (size_t i = 1; !status && i < arg_count(cli); i++)
        status = pair_set(cli, c, arg_at(cli, i));
    if (!s->current)
        current_set(s, c->name);
    if (!status)
        status = config_write(cli);
    if (!status)
        context_put(cli, c);
    return status;
}

static int context_delete(struct cli *cli)
{
    struct session *s = cli->session;
    struct context *c = context_find(s, arg_at(cli, 0));
    if (!c)
        return context_missing(cli, arg_at(cli, 0));
    if (s->current && strcmp(s->current, c->name) == 0)
        current_set(s, NULL);
    c->gone = true;
    int status = config_write(cli);
    if (!status)
        context_put(cli, c);
    return status;
}

const struct command context_commands[] = {
    {
        .name = "context list",
        .summary = "the named clusters of the configuration file",
        .shape = SHAPE_LIST,
        .columns = context_columns,
        .run = context_list,
    },
    {
        .name = "context use",
        .arguments = "NAME",
        .summary = "make a context the one that counts from now on",
        .shape = SHAPE_ONE,
        .columns = context_columns,
        .run = context_use,
    },
    {
        .name = "context set",
        .arguments = "NAME KEY=VALUE…",
        .summary = "make a context, or change it",
        .text =
            "Keys are names, tls, tls-ca, tls-cert, tls-key, tls-insecure, access-key, "
            "secret-key, security-token and timeout. The first context becomes the one that "
            "counts. The file is ~/.config/oncemq/config; nobody else may read it. Comments and "
            "what is not changed stay as they are.",
        .examples = "oncemq context set local names=127.0.0.1:9876",
        .shape = SHAPE_ONE,
        .columns = context_columns,
        .run = context_set,
    },
    {
        .name = "context delete",
        .arguments = "NAME",
        .summary = "forget a context",
        .shape = SHAPE_ONE,
        .columns = context_columns,
        .run = context_delete,
    },
    {NULL},
};
