/* hand.c - one driver of libonce, loaded as the core loads it, and moved by lines on standard
 * input: for tests that do things to the server in between. Each line has one answer.
 *
 *     open URL [plain=1] [takeover=1] [replicas=N] [wait=MS] [table=NAME] [instance=N] [group=NAME]
 *                                  OK, or ERR sentence
 *     connect                      another connection instead of the one it has
 *     run KIND:KEY:TOKEN …         an outcome for each, or ERR sentence; KIND is claim, renew,
 *                                  finish, release, look, forget, put, get
 *     why                          the sentence of the last outcome that is FAILED
 *     flood KEY                    claims and finishes KEY0, KEY1 … until an error: how many were
 *                                  finished, and the sentence
 *     size N                       from now on a step that is put is N bytes long
 *     healthy, accept, close
 *
 * What the driver logs goes to standard error, as "LEVEL line". TOKEN is taken as it is; claims
 * last 60 s and are kept for an hour, unless the word `expiry MS` came before.
 */
#include "base/err.h"
#include "once.h"
#include "once/driver.h"

#include <dlfcn.h>
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define OPS_MAX 64

static const struct once_driver *driver;
static struct store *store;
static struct conn *conn;
static char last_why[480];
static int64_t expiry_ms = 60000;
static char put[ONCE_RESULT_MAX] = "result";
static size_t put_size = 6;

static const char *const kinds[] = {"claim",  "renew", "finish", "release", "look",
                                    "forget", "get",   "put",    "sweep"};
static const char *const outcomes[] = {"NONE", "OK", "BUSY", "DONE", "LOST", "ABSENT", "FAILED"};

static void say_log(void *user, int level, const char *line)
{
    (void)user;
    fprintf(stderr, "%d %s\n", level, line);
}

static void answer(enum err result, const struct fault *why)
{
    static const char *const names[] = {
#define NAME(name, text) #name,
        ERR_LIST(NAME)
#undef NAME
    };
    if (result)
        printf("%s %s\n", names[result], why->text);
    else
        printf("OK\n");
}

static void leave(void)
{
    if (conn)
        driver->disconnect(conn);
    conn = NULL;
}

static void close_all(void)
{
    leave();
    if (store)
        driver->close(store);
    store = NULL;
}

static enum err another_connection(struct fault *why)
{
    leave();
    return driver->connect(store, &conn, why);
}

static const char *option(const char *word, const char *name)
{
    size_t len = strlen(name);
    return strncmp(word, name, len) == 0 && word[len] == '=' ? word + len + 1 : NULL;
}

static void open_store(char *rest)
{
    struct store_settings settings = {
        .table = "once", .wait_ms = 5000, .group = "hand", .instance = 1, .log = say_log};
    char *save = NULL;
    settings.url = strtok_r(rest, " ", &save);
    for (char *word; (word = strtok_r(NULL, " ", &save));) {
        const char *value;
        if ((value = option(word, "plain")))
            settings.plain = *value == '1';
        else if ((value = option(word, "takeover")))
            settings.takeover = *value == '1';
        else if ((value = option(word, "replicas")))
            settings.redis_replicas = (int)strtol(value, NULL, 10);
        else if ((value = option(word, "wait")))
            settings.wait_ms = (int)strtol(value, NULL, 10);
        else if ((value = option(word, "table")))
            settings.table = value;
        else if ((value = option(word, "instance")))
            settings.instance = (uint32_t)strtoul(value, NULL, 10);
        else if ((value = option(word, "group")))
            settings.group = value;
        else
            errx(2, "no such option: %s", word);
    }
    close_all();
    struct fault why = {0};
    enum err result = driver->open(&settings, &store, &why);
    if (result == OK)
        result = another_connection(&why);
    answer(result, &why);
}

static struct op make_op(enum op_kind kind, const char *key, uint64_t token)
{
    struct op op = {.kind = kind,
                    .name = key,
                    .plain = bytes_str(key),
                    .token = token,
                    .fingerprint = 7,
                    .expiry_ms = expiry_ms,
                    .retention_ms = 3600000,
                    .takeover = true,
                    .step = BYTES("step"),
                    .result = bytes_of(put, put_size)};
    size_t len = strlen(key);
    memcpy(op.id, key, len < sizeof op.id ? len : sizeof op.id);
    return op;
}

static struct op parse_op(char *word)
{
    char *save = NULL, *kind = strtok_r(word, ":", &save), *key = strtok_r(NULL, ":", &save),
         *token = strtok_r(NULL, ":", &save);
    if (!token)
        errx(2, "KIND:KEY:TOKEN, not %s", word);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i], kind) == 0)
            return make_op((enum op_kind)i, key, strtoull(token, NULL, 0));
    errx(2, "no such kind: %s", kind);
}

static void run(char *rest)
{
    struct op ops[OPS_MAX];
    struct op *list[OPS_MAX];
    struct fault why = {0};
    size_t n = 0;
    char *save = NULL;
    for (char *word = strtok_r(rest, " ", &save); word && n < OPS_MAX;
         word = strtok_r(NULL, " ", &save)) {
        ops[n] = parse_op(word);
        list[n] = &ops[n];
        n++;
    }
    enum err result = conn ? driver->run(conn, list, n, &why) : ERR_CLOSED;
    if (result) {
        answer(result, &why);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        printf("%s%s", i ? " " : "", outcomes[ops[i].outcome]);
        if (ops[i].outcome == OUT_FAILED)
            (void)snprintf(last_why, sizeof last_why, "%s", ops[i].why.text);
        if (ops[i].kind != OP_STEP_GET || ops[i].outcome != OUT_OK)
            continue;
        if (!bytes_equal(ops[i].result, bytes_of(put, put_size)))
            errx(1, "another result than was put");
        free((void *)ops[i].result.at);
    }
    printf("\n");
}

static void flood(const char *key)
{
    struct fault why = {0};
    for (unsigned n = 0;; n++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s%u", key, n);
        struct op op = make_op(OP_CLAIM, name, n + 1);
        struct op *list[] = {&op};
        enum err result = driver->run(conn, list, 1, &why);
        op.kind = OP_FINISH;
        if (result == OK && op.outcome == OUT_OK)
            result = driver->run(conn, list, 1, &why);
        if (result || op.outcome != OUT_OK) {
            printf("%u %s %s\n", n, outcomes[op.outcome], result ? why.text : op.why.text);
            return;
        }
    }
}

static void obey(char *line)
{
    struct fault why = {0};
    char *rest = strchr(line, ' ');
    if (rest)
        *rest++ = 0;
    if (strcmp(line, "open") == 0)
        open_store(rest);
    else if (strcmp(line, "connect") == 0)
        answer(another_connection(&why), &why);
    else if (strcmp(line, "run") == 0)
        run(rest);
    else if (strcmp(line, "why") == 0)
        printf("%s\n", last_why);
    else if (strcmp(line, "flood") == 0)
        flood(rest);
    else if (strcmp(line, "healthy") == 0)
        printf("%s\n", conn && driver->healthy(conn) ? "yes" : "no");
    else if (strcmp(line, "accept") == 0)
        answer(driver->accept(store, conn, &why), &why);
    else if (strcmp(line, "size") == 0) {
        put_size = strtoul(rest, NULL, 10);
        if (put_size > sizeof put)
            errx(2, "a result has at most %zu bytes", sizeof put);
        printf("OK\n");
    } else if (strcmp(line, "expiry") == 0) {
        expiry_ms = strtoll(rest, NULL, 10);
        printf("OK\n");
    } else if (strcmp(line, "close") == 0) {
        close_all();
        printf("OK\n");
    } else
        errx(2, "not understood: %s", line);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        errx(2, "usage: hand LIBRARY SYMBOL");
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        errx(1, "%s", dlerror());
    driver = dlsym(library, argv[2]);
    if (!driver)
        errx(1, "%s", dlerror());
    setvbuf(stdout, NULL, _IOLBF, 0);
    char *line = NULL;
    size_t size = 0;
    for (ssize_t len; (len = getline(&line, &size, stdin)) > 0;) {
        if (line[len - 1] == '\n')
            line[len - 1] = 0;
        obey(line);
    }
    free(line);
    close_all();
    return 0;
}
