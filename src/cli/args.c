/* args.c - from argv to a command with its options.
 *
 * Options may stand anywhere behind `oncemq`, as --name value, --name=value, -n value or -nvalue;
 * behind `--` there are only arguments. Values are read by the kind of their option, so a command
 * never sees one that makes no sense.
 */
#include "cli/cli_int.h"

#include <stdlib.h>
#include <string.h>

const struct opt global_options[] = {
    {"names", OPT_TEXT, "HOST:PORT",
     "name servers, divided by ; (also ONCEMQ_NAMES; default: the "
     "context's, else 127.0.0.1:9876)",
     .letter = 'n'},
    {"context", OPT_TEXT, "NAME",
     "the context of the configuration file to use (also ONCEMQ_CONTEXT)"},
    {"config", OPT_TEXT, "FILE",
     "the configuration file (also ONCEMQ_CONFIG; default: "
     "~/.config/oncemq/config)"},
    {"json", OPT_SWITCH, NULL, "for programs: the fields of docs/cli.md as JSON"},
    {"quiet", OPT_SWITCH, NULL, "no progress and no notes", .letter = 'q'},
    {"yes", OPT_SWITCH, NULL, "do not ask before something dangerous", .letter = 'y'},
    {"timeout", OPT_DURATION, "TIME", "of one request; 3s"},
    {"color", OPT_CHOICE, "WHEN", "colours: auto is on a terminal", "auto|always|never"},
    {"tls", OPT_SWITCH, NULL, "speak TLS with all servers"},
    {"tls-ca", OPT_TEXT, "FILE", "authorities that sign the servers' certificates, in PEM"},
    {"tls-cert", OPT_TEXT, "FILE", "our certificate, in PEM"},
    {"tls-key", OPT_TEXT, "FILE", "its key, in PEM"},
    {"tls-insecure", OPT_SWITCH, NULL, "do not look at certificates: for tests"},
    {"access-key", OPT_TEXT, "KEY",
     "sign requests (also ONCEMQ_ACCESS_KEY; the secret: "
     "ONCEMQ_SECRET_KEY or the context)"},
    {"help", OPT_SWITCH, NULL, "what a command does and takes", .letter = 'h'},
    {"version", OPT_SWITCH, NULL, "the version"},
    {NULL},
};

/* ---- finding ---- */

static const struct opt *opt_in(const struct opt *options, struct bytes name)
{
    for (; options && options->name; options++)
        if (bytes_equal(bytes_str(options->name), name))
            return options;
    return NULL;
}

const struct opt *opt_find(const struct command *command, struct bytes name)
{
    const struct opt *opt = command ? opt_in(command->options, name) : NULL;
    return opt ? opt : opt_in(global_options, name);
}

static const struct opt *letter_in(const struct opt *options, char letter)
{
    for (; options && options->name; options++)
        if (options->letter == letter)
            return options;
    return NULL;
}

const struct opt *opt_letter(const struct command *command, char letter)
{
    const struct opt *opt = command ? letter_in(command->options, letter) : NULL;
    return opt ? opt : letter_in(global_options, letter);
}

/* ---- reading one option ---- */

static bool choice_has(const char *choices, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = choices; len > 0 && at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, word, len) == 0 && (at[len] == '|' || at[len] == 0))
            return true;
    }
    return false;
}

/* NULL: it makes sense; else what it should be. */
static const char *given_read(struct given *g)
{
    char *end;
    switch (g->opt->kind) {
    case OPT_SWITCH:
    case OPT_TEXT:
        return NULL;
    case OPT_NUMBER:
        return value_number(g->text, &g->number) ? NULL : "a whole number: 100, 10k, 2M";
    case OPT_SIZE:
        return value_size(g->text, &g->number) ? NULL : "a size: 100, 4KiB, 1MiB";
    case OPT_DURATION:
        return value_duration(g->text, &g->number) ? NULL : "a duration: 250ms, 90s, 1h30m, 2d";
    case OPT_TIME:
        return value_time(g->text, now_ms(), &g->number)
                   ? NULL
                   : "a time: now, -1h, 14:30, 2026-11-16, 2026-11-16T14:30:00Z, or ms since 1970";
    case OPT_CHOICE:
        return choice_has(g->opt->choices, g->text) ? NULL : g->opt->choices;
    case OPT_REAL:
        g->real = strtod(g->text, &end);
        return *g->text && !*end && g->real >= 0 ? NULL : "a number: 0.5, 20";
    }
    return NULL;
}

int args_add(struct cli *cli, const struct opt *opt, const char *value)
{
    struct args *args = cli->args;
    struct given g = {.opt = opt, .text = value ? value : ""};
    const char *expected = given_read(&g);
    if (expected)
        return cli_fail(cli, STATUS_USAGE, NULL, "--%s %s is not valid: it must be %s%s", opt->name,
                        printable(cli, bytes_str(value)), opt->kind == OPT_CHOICE ? "one of " : "",
                        expected);
    if (args->n_given == GIVEN_MAX)
        return cli_fail(cli, STATUS_USAGE, NULL, "more than %d options", GIVEN_MAX);
    if (!opt->many)
        for (size_t i = 0; i < args->n_given; i++)
            if (args->given[i].opt == opt) { /* the last one counts */
                args->given[i] = g;
                return STATUS_OK;
            }
    args->given[args->n_given++] = g;
    return STATUS_OK;
}

static const char *option_nearest(const struct command *command, const char *name)
{
    const char *words[128];
    size_t n = 0;
    for (const struct opt *o = command ? command->options : NULL; o && o->name && n < 100; o++)
        words[n++] = o->name;
    for (const struct opt *o = global_options; o->name && n < 128; o++)
        words[n++] = o->name;
    return nearest_word(name, words, n);
}

static int option_unknown(struct cli *cli, const char *given, const char *name)
{
    const char *nearest = option_nearest(cli->command, name);
    char hint[160] = "";
    if (nearest)
        (void)snprintf(hint, sizeof hint, "did you mean --%s?", nearest);
    else
        (void)snprintf(hint, sizeof hint, "oncemq %s%s--help shows what there is",
                       cli->command ? cli->command->name : "", cli->command ? " " : "");
    return cli_fail(cli, STATUS_USAGE, hint, "there is no option %s%s%s",
                    printable(cli, bytes_str(given)), cli->command ? " of oncemq " : "",
                    cli->command ? cli->command->name : "");
}

/* argv[*at] begins with a dash. */
static int option_read(struct cli *cli, int argc, char **argv, int *at)
{
    const char *given = argv[*at], *value = NULL;
    const struct opt *opt;
    if (given[1] == '-') {
        size_t len = strcspn(given + 2, "=");
        value = given[2 + len] == '=' ? given + 3 + len : NULL;
        opt = opt_find(cli->command, bytes_of(given + 2, len));
        if (!opt) {
            char name[64];
            (void)snprintf(name, sizeof name, "%.*s", (int)len, given + 2);
            return option_unknown(cli, given, name);
        }
    } else {
        opt = opt_letter(cli->command, given[1]);
        if (!opt)
            return option_unknown(cli, given, given + 1);
        value = given[2] ? given + 2 : NULL;
    }
    if (opt->kind == OPT_SWITCH) {
        if (value)
            return cli_fail(cli, STATUS_USAGE, NULL, "--%s takes no value", opt->name);
        return args_add(cli, opt, NULL);
    }
    if (!value && *at + 1 < argc)
        value = argv[++*at];
    if (!value)
        return cli_fail(cli, STATUS_USAGE, NULL, "--%s needs a value: --%s %s", opt->name,
                        opt->name, opt->value);
    return args_add(cli, opt, value);
}

/* ---- the command ---- */

/* Whether argv[i], of the words before the first command's option, is the value of a global one.
 * The command's words come first in practice; options before them can only be global. */
static int before_command(struct cli *cli, int argc, char **argv, int *words, int max)
{
    int n = 0;
    for (int i = 1; i < argc && n < max; i++) {
        if (argv[i][0] != '-' || !argv[i][1]) {
            words[n++] = i;
            continue;
        }
        if (strcmp(argv[i], "--") == 0)
            break;
        const char *name = argv[i] + 1 + (argv[i][1] == '-');
        const struct opt *opt = argv[i][1] == '-'
                                    ? opt_in(global_options, bytes_of(name, strcspn(name, "=")))
                                    : letter_in(global_options, *name);
        if (!opt)
            break; /* an option of the command: its words are over */
        bool joined = argv[i][1] == '-' ? strchr(name, '=') != NULL : name[1] != 0;
        if (opt->kind != OPT_SWITCH && !joined)
            i++;
    }
    (void)cli;
    return n;
}

static bool command_is(const struct command *c, const char *first, const char *second, int *used)
{
    const char *blank = strchr(c->name, ' ');
    size_t len = blank ? (size_t)(blank - c->name) : strlen(c->name);
    if (strncmp(c->name, first, len) != 0 || first[len])
        return false;
    *used = blank ? 2 : 1;
    return !blank || (second && strcmp(blank + 1, second) == 0);
}

bool family_has(const char *first)
{
    for (const struct family *f = families; f->title; f++)
        for (const struct command *c = f->commands; c->name; c++)
            if (strncmp(c->name, first, strlen(first)) == 0 && c->name[strlen(first)] == ' ')
                return true;
    return false;
}

static const struct command *command_find(const char *first, const char *second, int *used)
{
    for (const struct family *f = families; f->title; f++)
        for (const struct command *c = f->commands; c->name; c++)
            if (command_is(c, first, second, used))
                return c;
    return NULL;
}

int command_unknown(struct cli *cli, const char *first, const char *second)
{
    char given[200];
    (void)snprintf(given, sizeof given, "%.90s%s%.90s", first, second ? " " : "",
                   second ? second : "");
    const char *words[256], *nearest;
    size_t n = 0;
    const struct command *c;
    for (size_t i = 0; n < 256 && (c = command_nth(i)); i++)
        words[n++] = c->name;
    nearest = nearest_word(given, words, n);
    if (!nearest && second)
        nearest = nearest_word(first, words, n);
    char hint[160];
    if (nearest)
        (void)snprintf(hint, sizeof hint, "did you mean oncemq %s?", nearest);
    else
        (void)snprintf(hint, sizeof hint, "oncemq --help shows what there is");
    return cli_fail(cli, STATUS_USAGE, hint, "there is no command %s",
                    printable(cli, bytes_str(given)));
}

size_t command_arguments(const struct command *command, size_t *max)
{
    size_t least = 0;
    *max = 0;
    const char *at = command->arguments ? command->arguments : "";
    while (*at) {
        size_t len = strcspn(at, " ");
        bool optional = *at == '[', many = false;
        for (size_t i = 0; i + 3 <= len; i++)
            many = many || memcmp(at + i, "…", 3) == 0;
        least += !optional;
        *max = many ? SIZE_MAX : *max == SIZE_MAX ? SIZE_MAX : *max + 1;
        at += len;
        at += strspn(at, " ");
    }
    return least;
}

static int arguments_check(struct cli *cli)
{
    size_t max, least = command_arguments(cli->command, &max), n = cli->args->n_rest;
    if (n >= least && n <= max)
        return STATUS_OK;
    char usage[200];
    (void)snprintf(usage, sizeof usage, "usage: oncemq %s %s", cli->command->name,
                   cli->command->arguments ? cli->command->arguments : "[options]");
    if (n > max)
        return cli_fail(cli, STATUS_USAGE, usage, "oncemq %s takes no argument %s",
                        cli->command->name, printable(cli, bytes_str(arg_at(cli, max))));
    return cli_fail(cli, STATUS_USAGE, usage, "oncemq %s needs %s", cli->command->name,
                    cli->command->arguments);
}

static int command_choose(struct cli *cli, int argc, char **argv, int *words, int *used)
{
    int n = before_command(cli, argc, argv, words, 2);
    const char *first = n > 0 ? argv[words[0]] : NULL, *second = n > 1 ? argv[words[1]] : NULL;
    *used = 0;
    if (!first)
        return STATUS_OK;
    cli->command = command_find(first, second, used);
    if (cli->command)
        return STATUS_OK;
    *used = n > 1 ? 2 : 1;
    bool alone = family_has(first) && (!second || second[0] == 0);
    return alone ? STATUS_OK : command_unknown(cli, first, second);
}

int args_read(struct cli *cli, int argc, char **argv, bool *done)
{
    int words[2], used, status;
    *done = true;
    if ((status = command_choose(cli, argc, argv, words, &used)))
        return status;
    struct args *args = cli->args;
    args->rest = (const char **)argv; /* read from the left, never behind what is still to come */
    bool only_arguments = false;
    for (int i = 1; i < argc; i++) {
        if ((used > 0 && i == words[0]) || (used > 1 && i == words[1]))
            continue;
        if (!only_arguments && strcmp(argv[i], "--") == 0)
            only_arguments = true;
        else if (!only_arguments && argv[i][0] == '-' && argv[i][1]) {
            if ((status = option_read(cli, argc, argv, &i)))
                return status;
        } else
            args->rest[args->n_rest++] = argv[i];
    }
    cli->json = arg_has(cli, "json");
    if (arg_has(cli, "version")) {
        cli_print(cli, "oncemq %s\n", OMQ_VERSION);
    } else if (!cli->command && used > 0) {
        help_family(cli, bytes_str(argv[words[0]]));
        return arg_has(cli, "help") ? STATUS_OK : STATUS_USAGE;
    } else if (!cli->command) {
        help_all(cli);
        return arg_has(cli, "help") ? STATUS_OK : STATUS_USAGE;
    } else if (arg_has(cli, "help")) {
        help_command(cli, cli->command);
    } else {
        *done = false;
        return arguments_check(cli);
    }
    return STATUS_OK;
}

/* ---- asking ---- */

const struct given *arg_given(const struct cli *cli, const char *option)
{
    const struct opt *opt = opt_find(cli->command, bytes_str(option));
    invariant(opt || !cli->command);
    for (size_t i = 0; i < cli->args->n_given; i++)
        if (cli->args->given[i].opt == opt)
            return &cli->args->given[i];
    return NULL;
}

bool arg_has(const struct cli *cli, const char *option)
{
    return arg_given(cli, option) != NULL;
}

const char *arg_text(const struct cli *cli, const char *option, const char *fallback)
{
    const struct given *g = arg_given(cli, option);
    return g ? g->text : fallback;
}

int64_t arg_number(const struct cli *cli, const char *option, int64_t fallback)
{
    const struct given *g = arg_given(cli, option);
    return g ? g->number : fallback;
}

double arg_real(const struct cli *cli, const char *option, double fallback)
{
    const struct given *g = arg_given(cli, option);
    return g ? g->real : fallback;
}

const char *arg_nth(const struct cli *cli, const char *option, size_t n)
{
    const struct opt *opt = opt_find(cli->command, bytes_str(option));
    invariant(opt);
    for (size_t i = 0; i < cli->args->n_given; i++)
        if (cli->args->given[i].opt == opt && n-- == 0)
            return cli->args->given[i].text;
    return NULL;
}

const char *arg_at(const struct cli *cli, size_t n)
{
    return n < cli->args->n_rest ? cli->args->rest[n] : NULL;
}

size_t arg_count(const struct cli *cli)
{
    return cli->args->n_rest;
}
