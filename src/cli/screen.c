/* screen.c - a whole terminal, with the sequences that every terminal of today knows.
 *
 * The alternate screen keeps what the shell had on it. What is drawn is compared with what is
 * there, line by line, and only lines that differ are written, all in one write: nothing flickers,
 * and a slow line carries little. Signals become bytes of a pipe, so one poll waits for everything:
 *
 *     SIGWINCH   everything is drawn anew          SIGTSTP   the shell has its terminal back; then
 *     SIGCONT    the same, and raw again           we stop as everybody does
 *     SIGINT, SIGTERM, SIGHUP                      the end, with the terminal as it was
 */
#include "cli/top_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define ENTER "\033[?1049h\033[?25l\033[?7l\033[2J"
#define LEAVE "\033[?7h\033[?25h\033[?1049l"

static int signal_pipe[2] = {-1, -1}; /* signals are the process's */
static const int caught[] = {SIGWINCH, SIGTSTP, SIGCONT, SIGINT, SIGTERM, SIGHUP};
#define N_CAUGHT (sizeof caught / sizeof *caught)

struct screen {
    struct termios before;
    struct sigaction actions[N_CAUGHT];
    int rows, columns;
    char **shown; /* what is in each row; NULL: nothing, or it is not known */
    int n_shown;
    bool colour, fresh; /* fresh: nothing is known of what is there */
    struct buf out;
    uint8_t typed[64];
    size_t n_typed;
};

static void on_signal(int number)
{
    int saved = errno;
    uint8_t byte = (uint8_t)number;
    (void)!write(signal_pipe[1], &byte, 1);
    errno = saved;
}

static void write_all(const void *text, size_t len)
{
    const uint8_t *at = text;
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, at, len);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
            (void)poll(&out, 1, 1000);
        } else if (n < 0 && errno != EINTR)
            return; /* the terminal is gone: reading will tell */
        else if (n > 0) {
            at += n;
            len -= (size_t)n;
        }
    }
}

static void forget_shown(struct screen *s)
{
    for (int i = 0; i < s->n_shown; i++)
        free(s->shown[i]);
    free(s->shown);
    s->shown = NULL;
    s->n_shown = 0;
    s->fresh = true;
}

static void measure(struct screen *s)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    s->rows = size.ws_row < ROWS_MAX ? size.ws_row : ROWS_MAX;
    s->columns = size.ws_col;
    forget_shown(s);
}

/* No line editing and no echo; Ctrl-C and Ctrl-Z stay what they are. */
static void enter(struct screen *s)
{
    struct termios raw = s->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    write_all(ENTER, sizeof ENTER - 1);
    measure(s);
}

static void leave(struct screen *s)
{
    write_all(LEAVE, sizeof LEAVE - 1);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &s->before);
}

struct screen *screen_open(struct cli *cli)
{
    struct screen *s = calloc(1, sizeof *s);
    if (!s || tcgetattr(STDIN_FILENO, &s->before) || pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK)) {
        free(s);
        (void)cli_fail(cli, STATUS_FAILED, "--once and --json need none", "this is no terminal");
        return NULL;
    }
    s->colour = cli->colour_out;
    s->out = buf_upto((size_t)1 << 24);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < N_CAUGHT; i++)
        (void)sigaction(caught[i], &action, &s->actions[i]);
    enter(s);
    return s;
}

void screen_close(struct screen *s)
{
    leave(s);
    for (size_t i = 0; i < N_CAUGHT; i++)
        (void)sigaction(caught[i], &s->actions[i], NULL);
    (void)close(signal_pipe[0]);
    (void)close(signal_pipe[1]);
    signal_pipe[0] = signal_pipe[1] = -1;
    forget_shown(s);
    buf_clear(&s->out);
    free(s);
}

void screen_size(const struct screen *s, int *rows, int *columns)
{
    *rows = s->rows;
    *columns = s->columns;
}

/* ---- drawing ---- */

static const char *style_begin(const struct screen *s, enum style style)
{
    static const char *const sequences[] = {[STYLE_PLAIN] = "",
                                            [STYLE_TITLE] = "\033[1m",
                                            [STYLE_HEAD] = "\033[7m",
                                            [STYLE_BAD] = "\033[31m",
                                            [STYLE_DIM] = "\033[2m"};
    return s->colour ? sequences[style] : "";
}

/* A row's text with its style, as it is kept for the next comparison. */
static char *row_text(const struct screen *s, const struct canvas *lines, size_t i)
{
    char *text = NULL;
    const char *line = i < lines->n ? (const char *)lines->text.at + lines->starts[i] : "";
    const char *begin = i < lines->n ? style_begin(s, lines->style[i]) : "";
    return asprintf(&text, "%s%s%s", begin, line, *begin ? "\033[0m" : "") < 0 ? NULL : text;
}

void screen_show(struct screen *s, const struct canvas *lines)
{
    if (!s->shown) {
        s->shown = calloc((size_t)s->rows, sizeof *s->shown);
        s->n_shown = s->shown ? s->rows : 0;
    }
    s->out.len = 0;
    if (s->fresh)
        buf_add_str(&s->out, "\033[2J");
    for (int i = 0; i < s->n_shown; i++) {
        char *text = row_text(s, lines, (size_t)i);
        if (text && s->shown[i] && strcmp(text, s->shown[i]) == 0) {
            free(text);
            continue;
        }
        if (text && !(s->fresh && !*text))
            buf_printf(&s->out, "\033[%d;1H%s\033[K", i + 1, text);
        free(s->shown[i]);
        s->shown[i] = text;
    }
    s->fresh = false;
    if (!s->out.err)
        write_all(s->out.at, s->out.len);
}

/* ---- keys ---- */

static const struct {
    const char *sequence;
    int key;
} sequences[] = {
    {"[A", KEY_UP},       {"[B", KEY_DOWN},       {"OA", KEY_UP},    {"OB", KEY_DOWN},
    {"[5~", KEY_PAGE_UP}, {"[6~", KEY_PAGE_DOWN}, {"[H", KEY_HOME},  {"[F", KEY_END},
    {"OH", KEY_HOME},     {"OF", KEY_END},        {"[1~", KEY_HOME}, {"[4~", KEY_END},
};

/* How long the sequence behind an escape is, without it. False: there is more to come. */
static bool sequence_len(const uint8_t *at, size_t n, size_t *len)
{
    *len = 0;
    if (n == 0)
        return false;
    if (at[0] == 'O') {
        *len = 2;
        return n >= 2;
    }
    if (at[0] != '[')
        return true; /* Escape by itself, and then a key */
    for (*len = 2; *len <= n; ++*len)
        if (at[*len - 1] >= 0x40 && at[*len - 1] <= 0x7e)
            return true;
    *len = n;
    return n >= 32; /* no key is that long */
}

static void typed_drop(struct screen *s, size_t n)
{
    s->n_typed -= n;
    memmove(s->typed, s->typed + n, s->n_typed);
}

/* The first key of what was typed; KEY_NONE: there is no whole one. */
static int typed_take(struct screen *s)
{
    while (s->n_typed > 0 && s->typed[0] == 033) {
        size_t len;
        if (!sequence_len(s->typed + 1, s->n_typed - 1, &len))
            return KEY_NONE;
        int key = KEY_NONE;
        for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++)
            if (strlen(sequences[i].sequence) == len &&
                memcmp(s->typed + 1, sequences[i].sequence, len) == 0)
                key = sequences[i].key;
        typed_drop(s, len + 1);
        if (key)
            return key;
    }
    if (s->n_typed == 0)
        return KEY_NONE;
    int key = s->typed[0];
    typed_drop(s, 1);
    return key;
}

/* What a signal asks for; KEY_NONE: nothing more. */
static int signal_take(struct screen *s)
{
    uint8_t number;
    if (read(signal_pipe[0], &number, 1) != 1)
        return KEY_NONE;
    if (number == SIGTSTP) {
        leave(s);
        struct sigaction action = {.sa_handler = SIG_DFL}, ours;
        (void)sigemptyset(&action.sa_mask);
        (void)sigaction(SIGTSTP, &action, &ours);
        (void)raise(SIGTSTP); /* and goes on here when somebody continues us */
        (void)sigaction(SIGTSTP, &ours, NULL);
        enter(s);
        return KEY_RESIZED;
    }
    if (number == SIGCONT)
        enter(s);
    if (number == SIGWINCH)
        measure(s);
    return number == SIGWINCH || number == SIGCONT ? KEY_RESIZED : KEY_STOP;
}

int screen_key(struct screen *s, int fd)
{
    for (;;) {
        int key = typed_take(s);
        if (key)
            return key;
        struct pollfd from[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = signal_pipe[0], .events = POLLIN},
                                {.fd = fd, .events = POLLIN}};
        if (poll(from, 3, -1) < 0)
            continue; /* a signal: the pipe has it */
        if (from[1].revents && (key = signal_take(s)))
            return key;
        if (from[0].revents) {
            ssize_t n = read(STDIN_FILENO, s->typed + s->n_typed, sizeof s->typed - s->n_typed);
            if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
                return KEY_STOP;
            s->n_typed += n > 0 ? (size_t)n : 0;
        }
        if (from[2].revents) {
            uint8_t told[64];
            (void)!read(fd, told, sizeof told);
            return KEY_NONE;
        }
    }
}
