/* worker.c - a process with libonce in it, led line by line, so that it can be stopped or killed
 * between any two steps.
 *
 *     worker URL MODE GROUP FILE [option=value …]
 *
 * Each command is answered by one line. The effect of a run is a row in its transaction where there
 * is one, else a line in FILE, written at once.
 *
 *     begin KEY [BODY]          RUN first 0 FENCE, ACK duplicate 0, LATER running 1234 words
 *     at QUEUE OFFSET FLOOR KEY the same for a place in queue QUEUE (mode offset)
 *     take QUEUE FIRST          start OFFSET
 *     effect NAME               ok
 *     step NAME RESULT          called RESULT, recorded RESULT
 *     outbox KEY                ok
 *     end done|failed           as begin
 *     lost                      0, 1
 *     drain                     sent KEY KEY …
 *     look KEY                  STATE LEFT_MS
 *     stats                     name=number …
 *     accept                    ok
 *     count NAME                how often that effect happened
 *     rows PREFIX               TOTAL DISTINCT, of the effects that begin so
 *     sql STATEMENT             ok; on a connection of its own
 *
 * or "error CODE words".
 */
#include "business.h"
#include "once.h"

#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS 12

static const char *url, *file;
static struct once_options options = {.create = true};
static struct once *once;
static struct once_run *run;
static struct once_error why;

static const char *const verdicts[] = {"RUN", "ACK", "LATER", "RETRY", "BURY"};

static void tell(const struct once_answer *answer)
{
    printf("%s %s %" PRId64, verdicts[answer->verdict], once_cause_text(answer->cause),
           answer->wait_ms);
    if (answer->verdict == ONCE_RUN)
        printf(" %" PRId64 "\n", once_run_fence(run));
    else
        printf(" %s\n", answer->why.text);
}

static void tell_result(int code, const char *good)
{
    if (code)
        printf("error %s %s\n", once_code_text(code), why.text);
    else
        printf("%s\n", good);
}

static void begin(char *const *w, bool place)
{
    struct once_answer answer = {0};
    struct once_message m = {.topic = "T", .broker = "b"};
    if (place) {
        m.queue = (int)strtol(w[1], NULL, 10);
        m.offset = strtoll(w[2], NULL, 10);
        m.floor = strtoll(w[3], NULL, 10);
    }
    m.keys = w[place ? 4 : 1];
    m.body = !place && w[2] ? w[2] : "b";
    m.body_size = strlen(m.body);
    (void)once_begin(once, &m, &run, &answer);
    tell(&answer);
}

static void end(const char *how)
{
    struct once_answer answer = {0};
    (void)once_end(run, strcmp(how, "done") == 0 ? ONCE_DONE : ONCE_FAILED, &answer);
    run = NULL;
    tell(&answer);
}

static void effect(const char *name)
{
    void *db = once_run_connection(run);
    bool good;
    if (db) {
        good = business_run(business_of(url), db, "INSERT INTO effects VALUES ('%s')", name);
    } else {
        char line[256];
        int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        int n = snprintf(line, sizeof line, "%s\n", name);
        good = fd >= 0 && write(fd, line, (size_t)n) == n;
        (void)close(fd);
    }
    puts(good ? "ok" : "error effect");
}

static void take(char *const *w)
{
    int64_t start = 0;
    int code = once_queue_take(once, "T", "b", (int)strtol(w[1], NULL, 10), strtoll(w[2], NULL, 10),
                               &start, &why);
    char text[40];
    (void)snprintf(text, sizeof text, "start %" PRId64, start);
    tell_result(code, text);
}

static int call_step(void *user, const char *key, struct once_bytes *result)
{
    const char **given = user;
    (void)key;
    *result = (struct once_bytes){given[0], strlen(given[0])};
    given[1] = "called";
    return ONCE_DONE;
}

static void step(char *const *w)
{
    const char *given[] = {w[2], "recorded"};
    struct once_bytes result = {0};
    char text[300];
    int code = once_step(run, w[1], call_step, given, &result, &why);
    if (!code)
        (void)snprintf(text, sizeof text, "%s %.*s", given[1], (int)result.size,
                       (const char *)result.at);
    tell_result(code, text);
}

static void outbox(const char *key)
{
    struct once_message next = {.topic = "Next", .keys = key, .body = "n", .body_size = 1};
    tell_result(once_outbox_add(run, &next, &why), "ok");
}

static int send(void *user, const struct once_message *m)
{
    (void)user;
    printf(" %s", m->keys);
    return 0;
}

static void drain(void)
{
    printf("sent");
    int code = once_outbox_send(once, 1000, send, NULL, NULL, &why);
    printf(code ? " error %s\n" : "\n", why.text);
}

static void look(const char *key)
{
    static const char *const states[] = {"absent", "consuming", "consumed", "released"};
    struct once_look found = {0};
    char text[80];
    int code = once_look(once, key, strlen(key), &found, &why);
    (void)snprintf(text, sizeof text, "%s %" PRId64, states[found.state], found.left_ms);
    tell_result(code, text);
}

static long lines_of(const char *name)
{
    char line[256];
    long n = 0;
    FILE *in = fopen(file, "r");
    while (in && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = 0;
        n += strcmp(line, name) == 0;
    }
    if (in)
        (void)fclose(in);
    return n;
}

static void count(const char *name)
{
    bool rows = options.mode >= ONCE_TRANSACTION;
    printf("%ld\n", rows ? business_number(url, "SELECT COUNT(*) FROM effects WHERE k = '%s'", name)
                         : lines_of(name));
}

static void rows(const char *prefix)
{
    printf(
        "%ld %ld\n",
        business_number(url, "SELECT COUNT(*) FROM effects WHERE k LIKE '%s%%'", prefix),
        business_number(url, "SELECT COUNT(DISTINCT k) FROM effects WHERE k LIKE '%s%%'", prefix));
}

static void sql(char *const *w)
{
    char text[1000] = "";
    for (size_t i = 1; w[i]; i++) {
        size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n, "%s ", w[i]);
    }
    business_do(url, "%s", text);
    puts("ok");
}

static void stats(void)
{
    struct once_stats s;
    once_stats(once, &s);
    printf("first_runs=%" PRIu64 " duplicates=%" PRIu64 " busy=%" PRIu64 " lost=%" PRIu64
           " released=%" PRIu64 " unsure=%" PRIu64 " store_errors=%" PRIu64
           " ran_without_store=%" PRIu64 " swept=%" PRIu64 " running=%" PRIu64 "\n",
           s.first_runs, s.duplicates, s.busy, s.lost, s.released, s.unsure, s.store_errors,
           s.ran_without_store, s.swept, s.running);
}

static void obey(char **w)
{
    if (strcmp(w[0], "begin") == 0)
        begin(w, false);
    else if (strcmp(w[0], "at") == 0)
        begin(w, true);
    else if (strcmp(w[0], "take") == 0)
        take(w);
    else if (strcmp(w[0], "effect") == 0)
        effect(w[1]);
    else if (strcmp(w[0], "step") == 0)
        step(w);
    else if (strcmp(w[0], "outbox") == 0)
        outbox(w[1]);
    else if (strcmp(w[0], "end") == 0)
        end(w[1]);
    else if (strcmp(w[0], "lost") == 0)
        printf("%d\n", once_run_lost(run));
    else if (strcmp(w[0], "drain") == 0)
        drain();
    else if (strcmp(w[0], "look") == 0)
        look(w[1]);
    else if (strcmp(w[0], "stats") == 0)
        stats();
    else if (strcmp(w[0], "count") == 0)
        count(w[1]);
    else if (strcmp(w[0], "rows") == 0)
        rows(w[1]);
    else if (strcmp(w[0], "sql") == 0)
        sql(w);
    else if (strcmp(w[0], "accept") == 0)
        tell_result(once_accept_wiped(once, &why), "ok");
    else
        puts("error command");
    (void)fflush(stdout);
}

static void set(char *pair)
{
    char *value = strchr(pair, '=');
    if (!value)
        errx(2, "%s: option=value is wanted", pair);
    *value++ = 0;
    long long number = strtoll(value, NULL, 10);
    if (strcmp(pair, "expiry") == 0)
        options.expiry_ms = number;
    else if (strcmp(pair, "retention") == 0)
        options.retention_ms = number;
    else if (strcmp(pair, "short") == 0)
        options.retention_short = number;
    else if (strcmp(pair, "open") == 0)
        options.open_when_down = number;
    else if (strcmp(pair, "plain") == 0)
        options.plain = number;
    else if (strcmp(pair, "takeover") == 0)
        options.takeover = number;
    else if (strcmp(pair, "create") == 0)
        options.create = number;
    else if (strcmp(pair, "wait") == 0)
        options.wait_ms = (int)number;
    else if (strcmp(pair, "replicas") == 0)
        options.redis_replicas = (int)number;
    else if (strcmp(pair, "key") == 0)
        options.key = value;
    else if (strcmp(pair, "prefix") == 0)
        options.prefix = value;
    else if (strcmp(pair, "scope") == 0)
        options.scope = value;
    else if (strcmp(pair, "table") == 0)
        options.table = value;
    else
        errx(2, "%s: no such option", pair);
}

static void show(void *user, int level, const char *line)
{
    (void)user;
    (void)fprintf(stderr, "%d %s\n", level, line);
}

static int mode_of(const char *name)
{
    static const char *const names[] = {"lease", "table", "transaction", "offset"};
    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    errx(2, "%s: no such mode", name);
}

int main(int argc, char **argv)
{
    char line[8192];
    if (argc < 5)
        return 2;
    url = options.store = argv[1];
    options.mode = mode_of(argv[2]);
    options.group = argv[3];
    options.log = show;
    file = argv[4];
    for (int i = 5; i < argc; i++)
        set(argv[i]);
    if (options.mode >= ONCE_TRANSACTION)
        business_open(url);
    if (once_open(&options, &once, &why)) {
        printf("error %s %s\n", once_code_text(why.code), why.text);
        return 1;
    }
    puts("ready");
    (void)fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        char *words[WORDS + 1] = {0}, *rest = line;
        for (size_t n = 0; n < WORDS && (words[n] = strtok_r(rest, " \n", &rest)); n++)
            ;
        if (words[0])
            obey(words);
    }
    if (run) {
        struct once_answer answer;
        (void)once_end(run, ONCE_FAILED, &answer);
    }
    once_close(once);
    return 0;
}
