/* manual.c - documents, made of the table of commands.
 *
 *     oncemq help man         the man page, in roff
 *     oncemq help markdown    docs/cli.md: every command, and the form of its --json
 *
 * Completion is in complete.c.
 */
#include "cli/cli_int.h"

#include <string.h>

/* ---- man pages ---- */

/* roff takes a backslash and a dash for itself, and a point or an apostrophe at a line's start. */
static void roff(struct cli *cli, const char *text)
{
    for (bool start = true; *text; start = *text == '\n', text++) {
        if (start && (*text == '.' || *text == '\''))
            cli_print(cli, "\\&");
        if (*text == '\\')
            cli_print(cli, "\\e");
        else if (*text == '-')
            cli_print(cli, "\\-");
        else if (text[0] == '\n' && text[1] == '\n')
            cli_print(cli, "\n.PP");
        else
            cli_print(cli, "%c", *text);
    }
}

static void roff_options(struct cli *cli, const struct opt *o)
{
    for (; o && o->name; o++) {
        cli_print(cli, ".TP\n");
        if (o->letter)
            cli_print(cli, "\\fB\\-%c\\fR, ", o->letter);
        cli_print(cli, "\\fB\\-\\-");
        roff(cli, o->name);
        cli_print(cli, "\\fR");
        if (o->value)
            cli_print(cli, " \\fI%s\\fR", o->value);
        cli_print(cli, "\n");
        roff(cli, o->help);
        if (o->choices)
            cli_print(cli, ": %s", o->choices);
        cli_print(cli, "\n");
    }
}

static void roff_command(struct cli *cli, const struct command *c)
{
    cli_print(cli, ".SS ");
    roff(cli, c->name);
    if (c->arguments)
        cli_print(cli, " \\fI%s\\fR", c->arguments);
    cli_print(cli, "\n");
    roff(cli, c->summary);
    cli_print(cli, ".\n");
    if (c->text) {
        cli_print(cli, ".PP\n");
        roff(cli, c->text);
        cli_print(cli, "\n");
    }
    roff_options(cli, c->options);
    if (c->examples) {
        cli_print(cli, ".PP\n.nf\n");
        roff(cli, c->examples);
        cli_print(cli, "\n.fi\n");
    }
}

static const struct {
    int status;
    const char *meaning;
} statuses[] = {
    {STATUS_OK, "done"},
    {STATUS_FAILED, "a server said no, or something here went wrong"},
    {STATUS_USAGE, "the command line makes no sense; nothing was done"},
    {STATUS_NOT_FOUND, "there is no such topic, group, message or file"},
    {STATUS_UNREACHABLE, "no server answered"},
    {STATUS_PARTLY, "some of it is done; what, is said"},
    {STATUS_DECLINED, "the question was answered with no, or --yes is missing"},
    {STATUS_INTERRUPTED, "interrupted (Ctrl-C, SIGTERM); what was done is said"},
    {STATUS_PIPE, "whoever read the output is gone"},
};
#define N_STATUSES (sizeof statuses / sizeof *statuses)

static int man(struct cli *cli)
{
    const struct command *c;
    cli_print(cli,
              ".TH ONCEMQ 1 \"\" \"OnceMQ %s\" \"User commands\"\n.SH NAME\noncemq \\- send, "
              "consume, look after and try out OnceMQ and Apache RocketMQ\n.SH SYNOPSIS\n"
              ".B oncemq\n.I COMMAND\n[\\fIarguments\\fR] [\\fIoptions\\fR]\n.SH COMMANDS\n",
              OMQ_VERSION);
    for (size_t i = 0; (c = command_nth(i)); i++)
        roff_command(cli, c);
    cli_print(cli, ".SH OPTIONS OF ALL COMMANDS\n");
    roff_options(cli, global_options);
    cli_print(cli, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < N_STATUSES; i++) {
        cli_print(cli, ".TP\n%d\n", statuses[i].status);
        roff(cli, statuses[i].meaning);
        cli_print(cli, "\n");
    }
    return STATUS_OK;
}

/* ---- docs/cli.md ---- */

static const char *kind_text(enum column_kind kind)
{
    static const char *const texts[] = {
        [COLUMN_TEXT] = "string",
        [COLUMN_NUMBER] = "number",
        [COLUMN_REAL] = "number",
        [COLUMN_BOOL] = "boolean",
        [COLUMN_SIZE] = "bytes",
        [COLUMN_DURATION] = "milliseconds",
        [COLUMN_TIME] = "ms since 1970",
        [COLUMN_STATE] = "\"ok\", \"warn\" or \"bad\"",
        [COLUMN_MAP] = "object of strings",
        [COLUMN_LIST] = "array of objects",
    };
    return texts[kind];
}

static void markdown_columns(struct cli *cli, const struct column *columns, const char *prefix)
{
    for (; columns && columns->name; columns++) {
        cli_print(cli, "| `%s%s` | %s | %s |\n", prefix, columns->name, kind_text(columns->kind),
                  columns->help ? columns->help : "");
        if (columns->of) {
            char inner[128];
            (void)snprintf(inner, sizeof inner, "%s%s[].", prefix, columns->name);
            markdown_columns(cli, columns->of, inner);
        }
    }
}

static void markdown_options(struct cli *cli, const struct opt *o)
{
    cli_print(cli, "\n| Option | |\n|---|---|\n");
    for (; o->name; o++) {
        cli_print(cli, "| `--%s%s%s`", o->name, o->value ? " " : "", o->value ? o->value : "");
        if (o->letter)
            cli_print(cli, ", `-%c`", o->letter);
        cli_print(cli, " | %s", o->help);
        for (const char *at = o->choices; at && *at; at++)
            cli_print(cli, at == o->choices ? ": %c" : *at == '|' ? ", " : "%c", *at);
        cli_print(cli, "%s |\n", o->many ? "; may be repeated" : "");
    }
}

static void markdown_command(struct cli *cli, const struct command *c)
{
    static const char *const forms[] = {[SHAPE_LIST] = "an array of objects",
                                        [SHAPE_ONE] = "an object",
                                        [SHAPE_LINES] = "an object a line"};
    cli_print(cli, "\n### oncemq %s%s%s\n\n%s.\n", c->name, c->arguments ? " " : "",
              c->arguments ? c->arguments : "", c->summary);
    if (c->text)
        cli_print(cli, "\n%s\n", c->text);
    if (c->options && c->options->name)
        markdown_options(cli, c->options);
    if (c->examples)
        cli_print(cli, "\n```\n%s\n```\n", c->examples);
    if (c->columns) {
        cli_print(cli, "\n`--json`: %s.\n\n| Field | | |\n|---|---|---|\n", forms[c->shape]);
        markdown_columns(cli, c->columns, "");
    }
}

static int markdown(struct cli *cli)
{
    cli_print(
        cli, "# The command line\n\nMade from the table of commands by `make docs`.\n\n"
             "Records go to stdout, everything else to stderr. With `--json` a command prints what "
             "stands under its name here; a field that is not known is `null`, fields may be added "
             "and none is renamed or dropped within a major version. A failure is then one object "
             "on stderr: `{\"error\":WORD,\"message\":TEXT,\"hint\":TEXT or null}`.\n\n"
             "| Exit status | |\n|---|---|\n");
    for (size_t i = 0; i < N_STATUSES; i++)
        cli_print(cli, "| %d | %s |\n", statuses[i].status, statuses[i].meaning);
    cli_print(cli, "\n## Options of all commands\n");
    markdown_options(cli, global_options);
    for (const struct family *f = families; f->title; f++) {
        if (f == families || strcmp(f->title, f[-1].title) != 0)
            cli_print(cli, "\n## %s\n", f->title);
        for (const struct command *c = f->commands; c->name; c++)
            if (!c->hidden)
                markdown_command(cli, c);
    }
    return STATUS_OK;
}

/* ---- help ---- */

const struct command *command_named(const char *first, const char *second)
{
    const struct command *c;
    char both[128];
    (void)snprintf(both, sizeof both, "%.60s %.60s", first, second ? second : "");
    for (size_t i = 0; (c = command_nth(i)); i++)
        if (strcmp(c->name, first) == 0 || strcmp(c->name, both) == 0)
            return c;
    return NULL;
}

static int help(struct cli *cli)
{
    const char *first = arg_at(cli, 0);
    if (!first) {
        help_all(cli);
        return STATUS_OK;
    }
    if (strcmp(first, "man") == 0)
        return man(cli);
    if (strcmp(first, "markdown") == 0)
        return markdown(cli);
    const struct command *c = command_named(first, arg_at(cli, 1));
    if (!c && !family_has(first))
        return command_unknown(cli, first, arg_at(cli, 1));
    if (c)
        help_command(cli, c);
    else
        help_family(cli, bytes_str(first));
    return STATUS_OK;
}

const struct command help_commands[] = {
    {
        .name = "help",
        .arguments = "[COMMAND] [VERB]",
        .summary = "this overview, or more about one command",
        .text = "oncemq help man writes the man page, oncemq help markdown the reference of all "
                "commands with the forms of --json.",
        .run = help,
    },
    {
        .name = "completion",
        .arguments = "SHELL",
        .summary = "what makes bash or zsh complete commands and options",
        .examples = "source <(oncemq completion bash)",
        .run = completion_script,
    },
    {.name = "complete",
     .arguments = "[WORD…]",
     .summary = "asked by completions",
     .run = complete_words,
     .hidden = true},
    {NULL},
};
