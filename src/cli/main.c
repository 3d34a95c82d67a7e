/* main.c - oncemq: reads the command line, runs one command, and says how it went. */
#include "cli/cli_int.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ARENA_MAX ((size_t)1 << 30)

/* What is known before the options are: for failures while they are read. */
static void surroundings(struct cli *cli)
{
    cli->terminal_in = isatty(STDIN_FILENO);
    cli->terminal_out = isatty(STDOUT_FILENO);
    cli->terminal_err = isatty(STDERR_FILENO);
    struct winsize size;
    if (cli->terminal_out && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
        cli->width = size.ws_col;
}

static void colours(struct cli *cli)
{
    const char *when = arg_text(cli, "color", "auto"), *none = getenv("NO_COLOR"),
               *term = getenv("TERM");
    bool fit = !(none && *none) && term && strcmp(term, "dumb") != 0;
    bool always = strcmp(when, "always") == 0, never = strcmp(when, "never") == 0;
    cli->colour_out = always || (!never && fit && cli->terminal_out);
    cli->colour_err = always || (!never && fit && cli->terminal_err);
}

/* A standard file that is closed would be the next that is opened, a connection to a broker say,
 * and what we print would go there. Nobody can write to this one in its place. */
static void stand_in(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", O_RDONLY); /* the least that is free: it */
}

static int run(struct cli *cli, int argc, char **argv)
{
    bool done;
    int status = args_read(cli, argc, argv, &done);
    if (status || done) {
        cli->command = NULL; /* it does not run, so it has no records */
        return status;
    }
    colours(cli);
    cli->quiet = arg_has(cli, "quiet");
    cli->yes = arg_has(cli, "yes");
    status = session_open(cli);
    if (!status)
        status = cli->command->run(cli);
    if (status == STATUS_OK && cli_stopped(cli) && !cli->command->endless)
        status = STATUS_INTERRUPTED;
    return status;
}

int main(int argc, char **argv)
{
    stand_in();
    (void)setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) /* ssh and cron forget it; what we write is UTF-8 */
        (void)setlocale(LC_CTYPE, "C.UTF-8");
    (void)signal(SIGPIPE, SIG_IGN);
    struct cli cli = {.args = calloc(1, sizeof(struct args))};
    arena_init(&cli.arena, ARENA_MAX);
    surroundings(&cli);
    int status = STATUS_FAILED;
    if (cli.args && !out_open(&cli)) {
        status = run(&cli, argc, argv);
        status = out_close(&cli, status);
    }
    session_close(&cli);
    out_free(&cli);
    arena_clear(&cli.arena);
    free(cli.args);
    return status;
}
