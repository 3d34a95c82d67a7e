/* main.c - oncemqd: reads the command line, builds the house, runs it. */
#include "base/clock.h"
#include "base/log.h"
#include "daemon/check.h"
#include "daemon/house.h"
#include "daemon/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef ONCEMQ_VERSION
#define ONCEMQ_VERSION "unversioned"
#endif

#define CONF_FILE_MAX (1u << 20)
#define EXIT_USAGE    2

static const char usage[] =
    "oncemqd " ONCEMQ_VERSION " - a message queue that speaks Apache RocketMQ's protocol\n"
    "\n"
    "usage: oncemqd [options]\n"
    "\n"
    "  -c, --config FILE     settings, in the form and with the keys of a RocketMQ broker.conf\n"
    "      --roles LIST      names, broker, or both joined by a comma (default: both)\n"
    "      --data DIR        folder of all data (default: ./data)\n"
    "      --bind ADDR       address to listen on (default: 127.0.0.1)\n"
    "      --set KEY=VALUE   one setting; may be repeated, wins over the file\n"
    "      --io-threads N    network threads (default: one for each core, at most 8)\n"
    "      --clock KIND      system (default), or virtual: for tests, it runs like the system's "
    "and can\n"
    "                        be put forward by a request; virtual+MS begins so far ahead\n"
    "      --chaos           for tests: makes faults on purpose when oncemq chaos asks for them\n"
    "      --ready-fd N      also write the ready line to this file descriptor\n"
    "      --check DIR       verify a data folder that is not in use, without changing it, and\n"
    "                        stop: status 0 sound, 1 damaged, 2 it could not be checked\n"
    "      --print-config    show every setting with its value, default and meaning, and stop\n"
    "      --print-config=md the same as the table of docs/configuration.md\n"
    "  -h, --help            this text\n"
    "      --version         the version\n"
    "\n"
    "With no options the name server and the broker run together on 127.0.0.1.\n";

enum option_code {
    OPT_ROLES = 256,
    OPT_DATA,
    OPT_BIND,
    OPT_SET,
    OPT_IO_THREADS,
    OPT_CLOCK,
    OPT_CHAOS,
    OPT_READY_FD,
    OPT_CHECK,
    OPT_PRINT,
    OPT_VERSION
};

static const struct option long_options[] = {
    {"config", required_argument, NULL, 'c'},
    {"roles", required_argument, NULL, OPT_ROLES},
    {"data", required_argument, NULL, OPT_DATA},
    {"bind", required_argument, NULL, OPT_BIND},
    {"set", required_argument, NULL, OPT_SET},
    {"io-threads", required_argument, NULL, OPT_IO_THREADS},
    {"clock", required_argument, NULL, OPT_CLOCK},
    {"chaos", no_argument, NULL, OPT_CHAOS},
    {"ready-fd", required_argument, NULL, OPT_READY_FD},
    {"check", required_argument, NULL, OPT_CHECK},
    {"print-config", optional_argument, NULL, OPT_PRINT},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {0},
};

struct invocation {
    struct settings settings;
    struct house_options house;
    bool print, print_markdown;
    const char *check;        /* the folder to look at; NULL: none */
    bool given[SETTINGS_MAX]; /* keys that the command line has, by index */
};

static void tell_unknown(void *user, const char *where, const char *key, const char *nearest)
{
    (void)user;
    (void)fprintf(stderr, "oncemqd: %s: unknown key %s is ignored%s%s%s\n", where,
                  LOG_QUOTE(bytes_str(key)), nearest ? "; did you mean " : "",
                  nearest ? nearest : "", nearest ? "?" : "");
}

static enum err read_config(struct invocation *v, const char *path, struct fault *why)
{
    cleanup(close_at) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fault_os(why, "opening %s", path);
    struct buf text = buf_upto(CONF_FILE_MAX);
    enum err err = OK;
    while (!text.err) { /* a device may have no end */
        uint8_t part[4096];
        ssize_t n = read(fd, part, sizeof part);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            err = fault_os(why, "reading %s", path);
        if (n <= 0)
            break;
        buf_add(&text, bytes_of(part, (size_t)n));
    }
    if (!err && text.err)
        err = fault_set(why, text.err, "%s is over 1 MiB: not a configuration", path);
    const struct conf_unknown unknown = {tell_unknown, NULL};
    if (!err)
        err = conf_parse(&settings_table, &v->settings, path, buf_bytes(&text), &unknown, why);
    buf_clear(&text);
    return err;
}

static enum err set_key(struct invocation *v, const char *where, const char *key, const char *value,
                        struct fault *why)
{
    enum err err = conf_set(&settings_table, &v->settings, where, key, value, why);
    if (!err)
        v->given[conf_find(&settings_table, key) - settings_table.options] = true;
    return err;
}

static enum err set_pair(struct invocation *v, const char *pair, struct fault *why)
{
    const char *equals = strchr(pair, '=');
    char key[128];
    if (!equals || equals == pair || (size_t)(equals - pair) >= sizeof key)
        return fault_set(why, ERR_INVALID, "--set %s: expected KEY=VALUE", pair);
    memcpy(key, pair, (size_t)(equals - pair));
    key[equals - pair] = 0;
    enum err err = set_key(v, "--set", key, equals + 1, why);
    if (err == ERR_NOT_FOUND)
        return fault_set(why, err, "--set %s: no such key; --print-config shows all of them", key);
    return err;
}

static enum err set_roles(struct invocation *v, const char *list, struct fault *why)
{
    v->house.names = v->house.broker = false;
    for (const char *at = list;;) {
        size_t len = strcspn(at, ",");
        struct bytes role = bytes_of(at, len);
        if (bytes_equal(role, BYTES("names")))
            v->house.names = true;
        else if (bytes_equal(role, BYTES("broker")))
            v->house.broker = true;
        else
            return fault_set(why, ERR_INVALID, "--roles %s: expected names, broker or names,broker",
                             list);
        if (!at[len])
            return OK;
        at += len + 1;
    }
}

static enum err set_ready_fd(struct invocation *v, const char *text, struct fault *why)
{
    int32_t fd;
    if (!bytes_to_i32(bytes_str(text), &fd) || fd < 0 || fcntl(fd, F_GETFD) < 0)
        return fault_set(why, ERR_INVALID, "--ready-fd %s: not an open file descriptor", text);
    v->house.ready_fd = fd;
    return OK;
}

static enum err set_clock(struct invocation *v, const char *kind, struct fault *why)
{
    struct bytes text = bytes_str(kind), plain = BYTES("virtual"), ahead = BYTES("virtual+");
    v->house.virtual_clock = bytes_start(text, plain);
    v->house.ahead_ms = 0;
    if (bytes_equal(text, BYTES("system")) || bytes_equal(text, plain))
        return OK;
    if (bytes_start(text, ahead) && bytes_to_i64(bytes_from(text, ahead.len), &v->house.ahead_ms) &&
        v->house.ahead_ms >= 0 && v->house.ahead_ms <= CLOCK_AHEAD_MAX_MS)
        return OK;
    return fault_set(why, ERR_INVALID, "--clock %s: expected system, virtual or virtual+MS", kind);
}

static enum err set_print(struct invocation *v, const char *form, struct fault *why)
{
    v->print = true;
    v->print_markdown = form && strcmp(form, "md") == 0;
    if (form && !v->print_markdown)
        return fault_set(why, ERR_INVALID, "--print-config=%s: expected md, or nothing", form);
    return OK;
}

static enum err apply(struct invocation *v, int code, const char *value, struct fault *why)
{
    switch (code) {
    case 'c':
        return OK; /* read before all others, so that they win */
    case OPT_ROLES:
        return set_roles(v, value, why);
    case OPT_DATA:
        return set_key(v, "--data", "storePathRootDir", value, why);
    case OPT_BIND:
        return set_key(v, "--bind", "bindAddress", value, why);
    case OPT_SET:
        return set_pair(v, value, why);
    case OPT_IO_THREADS:
        return set_key(v, "--io-threads", "ioThreads", value, why);
    case OPT_CLOCK:
        return set_clock(v, value, why);
    case OPT_CHAOS:
        v->house.chaos = true;
        return OK;
    case OPT_READY_FD:
        return set_ready_fd(v, value, why);
    case OPT_CHECK:
        v->check = value;
        return OK;
    case OPT_PRINT:
        return set_print(v, value, why);
    case OPT_VERSION:
        (void)puts("oncemqd " ONCEMQ_VERSION);
        exit(EXIT_SUCCESS);
    case 'h':
        (void)fputs(usage, stdout);
        exit(EXIT_SUCCESS);
    default:
        exit(EXIT_USAGE); /* getopt has said what is wrong */
    }
}

static enum err read_command_line(struct invocation *v, int argc, char **argv, struct fault *why)
{
    enum err err = conf_defaults(&settings_table, &v->settings, why);
    int code;
    while (!err && (code = getopt_long(argc, argv, "c:h", long_options, NULL)) != -1) {
        if (code == 'c')
            err = read_config(v, optarg, why);
    }
    optind = 1;
    opterr = 0; /* the first round has complained already */
    while (!err && (code = getopt_long(argc, argv, "c:h", long_options, NULL)) != -1)
        err = apply(v, code, optarg, why);
    if (!err && optind < argc)
        err = fault_set(why, ERR_INVALID, "unexpected argument %s; --help shows what there is",
                        argv[optind]);
    return err ? err : settings_check(&v->settings, why);
}

static int print_settings(const struct invocation *v)
{
    struct buf text = buf_upto(1u << 20);
    if (v->print_markdown)
        conf_markdown(&settings_table, &text);
    else
        conf_print(&settings_table, &v->settings, &text);
    size_t written = text.err ? 0 : fwrite(text.at, 1, text.len, stdout);
    bool whole = !text.err && written == text.len;
    buf_clear(&text);
    return whole ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int complain(const struct fault *why, enum err err, int code)
{
    (void)fprintf(stderr, "oncemqd: %s\n", why->text[0] ? why->text : err_text(err));
    return code;
}

static int check(const char *folder)
{
    struct fault why = {0};
    bool sound;
    enum err err = check_folder(folder, &sound, &why);
    if (err)
        return complain(&why, err, EXIT_USAGE);
    return sound ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Whoever started us may have closed standard input, output or error. What is opened next would
 * take their numbers, and be written to by every line of the log. */
static bool standard_files_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (!standard_files_open())
        return EXIT_FAILURE; /* and there is nowhere to say why */
    static struct invocation v = {.house = {.names = true, .broker = true, .ready_fd = -1}};
    v.house.started_ns = clock_ns(clock_system());
    v.house.settings = &v.settings;
    v.house.given = v.given;
    struct fault why = {0};
    enum err err = read_command_line(&v, argc, argv, &why);
    if (err)
        return complain(&why, err, EXIT_USAGE);
    if (v.print)
        return print_settings(&v);
    if (v.check)
        return check(v.check);

    (void)signal(SIGPIPE, SIG_IGN);
    v.house.descriptors = descriptors_raise((uint64_t)v.settings.max_connections);
    struct house *house;
    err = house_open(&v.house, &house, &why);
    if (err)
        return complain(&why, err, EXIT_FAILURE);
    err = house_run(house, &why);
    enum err close_err = house_close(house, err ? NULL : &why);
    if (err || close_err)
        return complain(&why, err ? err : close_err, EXIT_FAILURE);
    return EXIT_SUCCESS;
}
