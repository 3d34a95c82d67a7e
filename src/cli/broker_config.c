/* broker_config.c - settings of running brokers. */
#include "cli/broker_int.h"

#include "base/buf.h"
#include "remoting/codes.h"

#include <string.h>

const struct column broker_config_columns[] = {
    {"broker", COLUMN_TEXT, "BROKER", "its name"},
    {"address", COLUMN_TEXT, "ADDRESS", "host:port"},
    {"name", COLUMN_TEXT, "NAME", "the setting"},
    {"value", COLUMN_TEXT, "VALUE", "what counts now"},
    {"was", COLUMN_TEXT, "WAS", "what counted before a change", .optional = true},
    {"result", COLUMN_TEXT, "RESULT", "of a change: changed, unchanged or failed",
     .optional = true},
    {NULL},
};

const struct opt broker_config_options[] = {
    {"slaves", OPT_SWITCH, NULL, "show those of slaves, too"},
    {"cluster", OPT_TEXT, "NAME", "only of this cluster"},
    {"broker", OPT_TEXT, "NAME", "only of this broker: its name or host:port", .many = true},
    {NULL},
};

struct wish {
    const char *name, *value; /* value NULL: only to be shown */
};

/* ---- what was asked for ---- */

static int wishes_read(struct cli *cli, struct wish **out, size_t *changes)
{
    size_t n = arg_count(cli);
    *out = admin_alloc(cli, n, sizeof **out);
    *changes = 0;
    for (size_t i = 0; i < n; i++) {
        const char *text = arg_at(cli, i), *equals = strchr(text, '=');
        (*out)[i] = (struct wish){text, NULL};
        if (equals) {
            (*out)[i] =
                (struct wish){admin_format(cli, "%.*s", (int)(equals - text), text), equals + 1};
            (*changes)++;
        }
        if (!*(*out)[i].name || strpbrk(text, "\n\r"))
            return cli_fail(cli, STATUS_USAGE, NULL,
                            "a setting is NAME or NAME=VALUE, in one line");
    }
    if (*changes > 0 && *changes < n)
        return cli_fail(cli, STATUS_USAGE, NULL,
                        "some have a value and some do not: change, or show?");
    if (*changes > 0 && arg_has(cli, "slaves"))
        return cli_fail(cli, STATUS_USAGE, NULL, "--slaves is for showing");
    return STATUS_OK;
}

/* A name that a broker does not have is a mistake. */
static int name_check(struct cli *cli, const struct admin_node *node, const char *name)
{
    if (node->n == 0 || admin_value(node, name, NULL))
        return STATUS_OK;
    const char **names = admin_alloc(cli, node->n, sizeof *names);
    for (size_t i = 0; i < node->n; i++)
        names[i] = node->pairs[i].name;
    const char *near = nearest_word(name, names, node->n);
    return cli_fail(cli, STATUS_NOT_FOUND,
                    near ? admin_format(cli, "did you mean %s?", printable(cli, bytes_str(near)))
                         : "oncemq broker config shows what there is",
                    "broker %s has no setting %s", printable(cli, bytes_str(node->broker->name)),
                    printable(cli, bytes_str(name)));
}

static int names_check(struct cli *cli, const struct admin_node *nodes, size_t n,
                       const struct wish *wishes)
{
    int status = STATUS_OK;
    for (size_t i = 0; !status && i < n; i++)
        for (size_t k = 0; !status && k < arg_count(cli); k++)
            status = name_check(cli, &nodes[i], wishes[k].name);
    return status;
}

static void row_put(struct cli *cli, const struct admin_node *node, const char *name,
                    const char *value, const char *was, const char *result)
{
    row_begin(cli);
    put_text(cli, "broker", node->broker->name);
    put_text(cli, "address", node->address);
    put_text(cli, "name", name);
    put_text(cli, "value", value);
    put_text(cli, "was", was);
    put_text(cli, "result", result);
    row_end(cli);
}

/* ---- changing ---- */

/* As Java's properties are written: a backslash before what would mean something else. */
static struct bytes properties_write(struct cli *cli, const struct wish *wishes, size_t n)
{
    size_t size = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        size += 2 * (strlen(wishes[i].name) + strlen(wishes[i].value)) + 2;
    char *text = admin_alloc(cli, size, 1);
    for (size_t i = 0; i < n; i++) {
        for (const char *c = wishes[i].name; *c; c++) {
            if (strchr("\\:= #!", *c))
                text[at++] = '\\';
            text[at++] = *c;
        }
        text[at++] = '=';
        for (const char *c = wishes[i].value; *c; c++) {
            if (*c == '\\' || (*c == ' ' && (c == wishes[i].value || !c[1])))
                text[at++] = '\\';
            text[at++] = *c;
        }
        text[at++] = '\n';
    }
    return bytes_of(text, at);
}

static int change_confirm(struct cli *cli, const struct admin_node *nodes, size_t n,
                          const struct wish *wishes)
{
    const char **brokers = admin_alloc(cli, n, sizeof *brokers);
    for (size_t i = 0; i < n; i++)
        brokers[i] = nodes[i].broker->name;
    const char *changes = "";
    for (size_t k = 0; k < arg_count(cli); k++)
        changes = admin_format(
            cli, "%s%s%s=%s (now %s)", changes, k > 0 ? ", " : "",
            printable(cli, bytes_str(wishes[k].name)), printable(cli, bytes_str(wishes[k].value)),
            printable(cli, bytes_str(admin_value(&nodes[0], wishes[k].name, "not known"))));
    return cli_confirm(cli, "change %s on %s?", changes, admin_list_text(cli, brokers, n, 5));
}

/* What the broker has now counts, whatever it said. True: it is as wished. */
static bool change_show(struct cli *cli, const struct admin_ask *ask, const struct admin_node *was,
                        const struct admin_node *now, const struct wish *wish)
{
    const char *before = admin_value(was, wish->name, NULL),
               *after = admin_value(now, wish->name, NULL);
    bool same = before && after && strcmp(before, after) == 0;
    bool right = after && strcmp(after, wish->value) == 0;
    bool done = !ask->code && (right || (after && !same)); /* 4k may be read back as 4096 */
    row_put(cli, was, wish->name, after, before, !done ? "failed" : same ? "unchanged" : "changed");
    if (!done && !ask->code)
        (void)cli_fail(cli, STATUS_FAILED, NULL, "broker %s said yes to %s=%s, and still has %s",
                       printable(cli, bytes_str(was->broker->name)),
                       printable(cli, bytes_str(wish->name)),
                       printable(cli, bytes_str(wish->value)),
                       printable(cli, bytes_str(after ? after : "none")));
    return done;
}

static int settings_change(struct cli *cli, const struct admin_cluster *on,
                           const struct admin_node *nodes, size_t n, const struct wish *wishes)
{
    struct admin_ask *asks = admin_alloc(cli, n, sizeof *asks);
    struct bytes body = properties_write(cli, wishes, arg_count(cli));
    for (size_t i = 0; i < n; i++)
        asks[i] = (struct admin_ask){.server = nodes[i].address,
                                     .broker = nodes[i].broker->name,
                                     .request = REQ_UPDATE_BROKER_CONFIG,
                                     .body = body,
                                     .raw = true};
    int status = admin_ask_all(cli, asks, n);
    if (status)
        return status;
    struct admin_node *after;
    size_t n_after, done = 0;
    status = admin_verdict(cli, asks, n);
    status = admin_join(status, admin_settings(cli, on, false, &after, &n_after));
    for (size_t i = 0; i < n && i < n_after; i++)
        for (size_t k = 0; k < arg_count(cli); k++)
            done += change_show(cli, &asks[i], &nodes[i], &after[i], &wishes[k]);
    if (done < n * arg_count(cli) && !admin_none(status))
        status = done > 0 ? STATUS_PARTLY : STATUS_FAILED;
    return status;
}

static void settings_show(struct cli *cli, const struct admin_node *nodes, size_t n,
                          const struct wish *wishes)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < arg_count(cli) && nodes[i].n > 0; k++)
            row_put(cli, &nodes[i], wishes[k].name, admin_value(&nodes[i], wishes[k].name, NULL),
                    NULL, NULL);
        for (size_t k = 0; arg_count(cli) == 0 && k < nodes[i].n; k++)
            row_put(cli, &nodes[i], nodes[i].pairs[k].name, nodes[i].pairs[k].value, NULL, NULL);
    }
}

int broker_config(struct cli *cli)
{
    struct wish *wishes;
    struct admin_cluster on;
    struct admin_node *nodes;
    size_t changes, n;
    int status = wishes_read(cli, &wishes, &changes);
    if (!status)
        status = admin_chosen(cli, &on);
    if (!status && changes > 0)
        status = admin_masters(cli, &on);
    if (!status)
        status = admin_settings(cli, &on, arg_has(cli, "slaves"), &nodes, &n);
    if (changes > 0)
        status = admin_whole(cli, status);
    if (!admin_none(status))
        status = admin_join(status, names_check(cli, nodes, n, wishes));
    if (!admin_none(status) && changes > 0)
        status = admin_join(status, change_confirm(cli, nodes, n, wishes));
    if (admin_none(status))
        return status;
    if (changes > 0)
        return settings_change(cli, &on, nodes, n, wishes);
    settings_show(cli, nodes, n, wishes);
    return status;
}
