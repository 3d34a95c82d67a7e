/* help.c - what is said about commands, for people: --help. What is made of the same table for
 * documents and shells is in manual.c. */
#include "cli/cli_int.h"

#include <string.h>

const struct command *command_nth(size_t n)
{
    for (const struct family *f = families; f->title; f++)
        for (const struct command *c = f->commands; c->name; c++)
            if (!c->hidden && n-- == 0)
                return c;
    return NULL;
}

/* Words of `text`, broken before `width`, each line behind `indent` blanks. */
static void paragraph(struct cli *cli, const char *text, int indent, int width)
{
    int column = 0;
    while (*text) {
        size_t len = strcspn(text, " \n");
        if (column > 0 && column + 1 + (int)len > width - indent) {
            cli_print(cli, "\n");
            column = 0;
        }
        cli_print(cli, "%*s%.*s", column == 0 ? indent : 1, "", (int)len, text);
        column += (column > 0) + (int)len;
        text += len;
        if (text[0] == '\n' && text[1] == '\n') {
            cli_print(cli, "\n\n");
            column = 0;
        }
        text += strspn(text, " \n");
    }
    cli_print(cli, "\n");
}

#define WIDTH  96
#define INDENT 26

static void option_line(struct cli *cli, const struct opt *o)
{
    char left[80], letter[8] = "    ";
    if (o->letter)
        (void)snprintf(letter, sizeof letter, "-%c, ", o->letter);
    int n = snprintf(left, sizeof left, "  %s--%s%s%s", letter, o->name, o->value ? " " : "",
                     o->value ? o->value : "");
    cli_print(cli, "%s", left);
    char help[400];
    (void)snprintf(help, sizeof help, "%s%s%s%s", o->help, o->choices ? ": " : "",
                   o->choices ? o->choices : "", o->many ? "; may be repeated" : "");
    if (n < INDENT - 1)
        cli_print(cli, "%*s", INDENT - n, "");
    else
        cli_print(cli, "\n%*s", INDENT, "");
    /* The first line stands behind the option already. */
    size_t room = WIDTH - INDENT, len = strlen(help), cut = len;
    if (len > room) {
        cut = room;
        while (cut > 0 && help[cut] != ' ')
            cut--;
    }
    cli_print(cli, "%.*s\n", (int)cut, help);
    if (cut < len)
        paragraph(cli, help + cut + 1, INDENT, WIDTH);
}

static void option_lines(struct cli *cli, const struct opt *options)
{
    for (; options && options->name; options++)
        option_line(cli, options);
}

static void title(struct cli *cli, const char *text)
{
    cli_print(cli, "\n%s%s%s\n", cli->colour_out ? "\033[1m" : "", text,
              cli->colour_out ? "\033[0m" : "");
}

static void summary_line(struct cli *cli, const struct command *c)
{
    char left[120];
    (void)snprintf(left, sizeof left, "%s%s%s", c->name, c->arguments ? " " : "",
                   c->arguments ? c->arguments : "");
    int wide = 0; /* of the text, in columns: … is one */
    for (const char *p = left; *p; p++)
        wide += ((unsigned char)*p & 0xc0) != 0x80;
    cli_print(cli, "  %s%*s%s\n", left, wide < 32 ? 32 - wide : 2, "", c->summary);
}

void help_all(struct cli *cli)
{
    cli_print(cli,
              "oncemq %s - send, consume, look after and try out OnceMQ and Apache RocketMQ\n"
              "\nusage: oncemq COMMAND [arguments] [options]\n",
              OMQ_VERSION);
    for (const struct family *f = families; f->title; f++) {
        bool any =
            f > families && strcmp(f->title, f[-1].title) == 0; /* several files, one title */
        for (const struct command *c = f->commands; c->name; c++) {
            if (c->hidden)
                continue;
            if (!any)
                title(cli, f->title);
            any = true;
            summary_line(cli, c);
        }
    }
    title(cli, "Options of all commands");
    option_lines(cli, global_options);
    cli_print(cli, "\noncemq COMMAND --help tells more about one.\n");
}

void help_family(struct cli *cli, struct bytes word)
{
    cli_print(cli, "usage: oncemq %.*s VERB [arguments] [options]\n\n", BYTES_ARG(word));
    const struct command *c;
    for (size_t i = 0; (c = command_nth(i)); i++)
        if (bytes_start(bytes_str(c->name), word) && c->name[word.len] == ' ')
            summary_line(cli, c);
    cli_print(cli, "\noncemq %.*s VERB --help tells more about one.\n", BYTES_ARG(word));
}

void help_command(struct cli *cli, const struct command *c)
{
    cli_print(cli, "oncemq %s - %s\n\nusage: oncemq %s%s%s%s\n", c->name, c->summary, c->name,
              c->arguments ? " " : "", c->arguments ? c->arguments : "",
              c->options && c->options->name ? " [options]" : "");
    if (c->text) {
        cli_print(cli, "\n");
        paragraph(cli, c->text, 0, WIDTH);
    }
    if (c->options && c->options->name) {
        title(cli, "Options");
        option_lines(cli, c->options);
    }
    if (c->examples) {
        title(cli, "Examples");
        for (const char *at = c->examples; *at;) {
            size_t len = strcspn(at, "\n");
            cli_print(cli, "  %.*s\n", (int)len, at);
            at += len + (at[len] == '\n');
        }
    }
    cli_print(cli, "\noncemq --help shows the options of all commands.\n");
}
