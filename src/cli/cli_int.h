/* cli_int.h - what the parts of the command line's foundation know of each other. */
#ifndef CLI_CLI_INT_H
#define CLI_CLI_INT_H

#include "cli/cli.h"

/* ---- args.c ---- */

#define GIVEN_MAX 4096

struct given {
    const struct opt *opt;
    const char *text;
    int64_t number;
    double real;
};

struct args {
    struct given given[GIVEN_MAX];
    size_t n_given;
    const char **rest; /* into argv */
    size_t n_rest;
};

/* Finds the command and reads what is behind it; says itself what is wrong. `*done`: there is
 * nothing more to do (--help, --version). argv is permuted. */
int args_read(struct cli *cli, int argc, char **argv, bool *done);
const struct opt *opt_find(const struct command *command, struct bytes name);
const struct opt *opt_letter(const struct command *command, char letter);
/* As if it had been given; what is wrong with it is said. */
int args_add(struct cli *cli, const struct opt *opt, const char *value);
const struct given *arg_given(const struct cli *cli, const char *option);

/* ---- help.c ---- */

void help_all(struct cli *cli);                       /* oncemq --help */
void help_family(struct cli *cli, struct bytes word); /* oncemq topic --help */
void help_command(struct cli *cli, const struct command *command);
extern const struct command help_commands[];
/* Calls `each` for all commands that are not hidden. */
const struct command *command_nth(size_t n);
/* By its words; `second` may be NULL. NULL: there is none. */
bool family_has(const char *first); /* commands of two words begin with it */
int command_unknown(struct cli *cli, const char *first, const char *second);
const struct command *command_named(const char *first, const char *second);
size_t command_arguments(const struct command *command, size_t *max); /* the least; SIZE_MAX */

/* ---- complete.c ---- */

int completion_script(struct cli *cli); /* oncemq completion bash|zsh */
int complete_words(struct cli *cli);    /* oncemq complete */

/* ---- out.c ---- */

int out_open(struct cli *cli);
int out_close(struct cli *cli, int status); /* writes what is left; the status of the run */
void out_free(struct cli *cli);
void out_check_forms(void); /* every column of every command is of a sound form */

/* ---- session.c ---- */

int session_open(struct cli *cli);
void session_close(struct cli *cli);
extern const struct command context_commands[];

#endif
