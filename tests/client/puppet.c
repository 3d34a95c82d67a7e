#include "puppet.h"

#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THINGS_MAX  256
#define RUNNING_MAX 1024
#define ARENA_MAX   (256u << 20)
#define LINE_MAX    (64u << 20)

/* ---- output ---- */

static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

void puppet_say(const struct buf *line)
{
    if (line->err)
        abort();
    (void)pthread_mutex_lock(&output);
    (void)fwrite(line->at, 1, line->len, stdout);
    (void)fputc('\n', stdout);
    (void)fflush(stdout);
    (void)pthread_mutex_unlock(&output);
}

/* ---- things ---- */

static pthread_mutex_t things_key = PTHREAD_MUTEX_INITIALIZER;
static struct thing {
    char name[64];
    void *thing;
    void (*close)(void *thing);
} things[THINGS_MAX];
static size_t n_things;

void thing_add(const char *name, void *thing, void (*close)(void *thing))
{
    (void)pthread_mutex_lock(&things_key);
    if (n_things == THINGS_MAX)
        abort();
    struct thing *t = &things[n_things++];
    (void)snprintf(t->name, sizeof t->name, "%s", name ? name : "");
    t->thing = thing;
    t->close = close;
    (void)pthread_mutex_unlock(&things_key);
}

static struct thing *thing_at(const char *name)
{
    for (size_t i = n_things; name && i > 0; i--)
        if (things[i - 1].thing && strcmp(things[i - 1].name, name) == 0)
            return &things[i - 1];
    return NULL;
}

void *thing_find(const char *name)
{
    (void)pthread_mutex_lock(&things_key);
    const struct thing *t = thing_at(name);
    void *found = t ? t->thing : NULL;
    (void)pthread_mutex_unlock(&things_key);
    return found;
}

void *thing_take(const char *name)
{
    (void)pthread_mutex_lock(&things_key);
    struct thing *t = thing_at(name);
    void *found = t ? t->thing : NULL;
    if (t)
        t->thing = NULL;
    (void)pthread_mutex_unlock(&things_key);
    return found;
}

void thing_close(const char *name)
{
    (void)pthread_mutex_lock(&things_key);
    struct thing *t = thing_at(name);
    struct thing gone = t ? *t : (struct thing){.thing = NULL};
    if (t)
        t->thing = NULL;
    (void)pthread_mutex_unlock(&things_key);
    if (gone.thing && gone.close)
        gone.close(gone.thing);
}

/* ---- arguments ---- */

const char *arg_text(const struct json *args, const char *name, struct arena *arena)
{
    const struct json *node = json_member(args, name);
    if (!node || node->type == JSON_NULL)
        return NULL;
    struct bytes text = json_text(node, BYTES(""));
    char *copy = arena_alloc(arena, text.len + 1);
    if (!copy)
        abort();
    if (text.len > 0)
        memcpy(copy, text.at, text.len);
    return copy;
}

int64_t arg_int(const struct json *args, const char *name)
{
    return json_int(json_member(args, name), 0);
}

bool arg_bool(const struct json *args, const char *name)
{
    return json_bool(json_member(args, name), false);
}

/* ---- what handlers know: it outlives their consumers ---- */

static void *volatile scripts[THINGS_MAX]; /* never read, but there for who looks for leaks */
static size_t n_scripts;

void scripts_keep(void *script)
{
    (void)pthread_mutex_lock(&things_key);
    if (n_scripts == THINGS_MAX)
        abort();
    scripts[n_scripts++] = script;
    (void)pthread_mutex_unlock(&things_key);
}

/* ---- clients ---- */

static void say_log(void *user, int level, const char *line)
{
    (void)user;
    (void)fprintf(stderr, "%d %s\n", level, line);
}

static void close_client(void *client)
{
    omq_client_close(client);
}

static int client_open(struct command *c, const char *name, struct omq_client **out)
{
    const struct json *a = c->args;
    struct omq_client_options o = {
        .names = arg_text(a, "names", c->arena),
        .names_url = arg_text(a, "names_url", c->arena),
        .instance = arg_text(a, "instance", c->arena),
        .unit = arg_text(a, "unit", c->arena),
        .ip = arg_text(a, "ip", c->arena),
        .access_key = arg_text(a, "access_key", c->arena),
        .secret_key = arg_text(a, "secret_key", c->arena),
        .security_token = arg_text(a, "security_token", c->arena),
        .tls = arg_bool(a, "tls"),
        .tls_ca = arg_text(a, "tls_ca", c->arena),
        .tls_cert = arg_text(a, "tls_cert", c->arena),
        .tls_key = arg_text(a, "tls_key", c->arena),
        .tls_insecure = arg_bool(a, "tls_insecure"),
        .timeout_ms = (int)arg_int(a, "client_timeout_ms"),
        .route_every_ms = (int)arg_int(a, "route_every_ms"),
        .heartbeat_every_ms = (int)arg_int(a, "heartbeat_every_ms"),
        .state_dir = arg_text(a, "state_dir", c->arena),
        .log = say_log,
    };
    struct omq_client *client;
    int code = omq_client_open(&o, &client, &c->why);
    if (code)
        return code;
    thing_add(name, client, close_client);
    *out = client;
    return OMQ_OK;
}

int client_of(struct command *c, struct omq_client **out)
{
    const char *shared = arg_text(c->args, "client", c->arena);
    if (shared && (*out = thing_find(shared)))
        return OMQ_OK;
    char name[64];
    (void)snprintf(name, sizeof name, "client of %s", arg_text(c->args, "name", c->arena));
    return client_open(c, name, out);
}

static int play_client(struct command *c)
{
    struct omq_client *client;
    int code = client_open(c, arg_text(c->args, "name", c->arena), &client);
    if (!code) {
        struct json_out w = {.buf = &c->result};
        json_put_text(&w, bytes_str(omq_client_id(client)));
    }
    return code;
}

static int play_stop(struct command *c)
{
    const char *name = arg_text(c->args, "name", c->arena);
    char client[64];
    (void)snprintf(client, sizeof client, "client of %s", name);
    thing_close(name);
    thing_close(client);
    return OMQ_OK;
}

static int play_stats(struct command *c)
{
    char own[64];
    const char *name = arg_text(c->args, "name", c->arena);
    (void)snprintf(own, sizeof own, "client of %s", name);
    struct omq_client *client = thing_find(own);
    if (!client && !(client = thing_find(name)))
        return OMQ_INVALID;
    struct omq_stats s;
    omq_client_stats(client, &s);
    struct json_out w = {.buf = &c->result};
    json_open(&w);
    json_int_member(&w, "sent", (int64_t)s.sent);
    json_int_member(&w, "retries", (int64_t)s.send_retries);
    json_int_member(&w, "failures", (int64_t)s.send_failures);
    json_int_member(&w, "connections", (int64_t)s.connections);
    json_int_member(&w, "reconnects", (int64_t)s.reconnects);
    json_int_member(&w, "received", (int64_t)s.received);
    json_int_member(&w, "handled", (int64_t)s.handled);
    json_int_member(&w, "sent_back", (int64_t)s.sent_back);
    json_int_member(&w, "dead", (int64_t)s.dead);
    json_int_member(&w, "waiting", (int64_t)s.waiting);
    json_int_member(&w, "kept", (int64_t)s.kept);
    json_close(&w);
    return OMQ_OK;
}

static const struct part own_parts[] = {
    {"client", play_client}, {"stop", play_stop}, {"stats", play_stats}, {NULL, NULL}};

/* ---- commands ---- */

static pthread_mutex_t running_key = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t running_news = PTHREAD_COND_INITIALIZER;
static size_t running; /* commands that are being carried out */
static pthread_t through[2 * RUNNING_MAX];
static size_t n_through;

static play *part_find(struct bytes name)
{
    const struct part *lists[] = {own_parts, produce_parts, ask_parts, consume_parts};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (const struct part *p = lists[i]; p->name; p++)
            if (bytes_equal(name, bytes_str(p->name)))
                return p->play;
    return NULL;
}

static void answer(const struct json *args, int code, const struct command *c)
{
    struct buf line = buf_upto(LINE_MAX);
    struct json_out w = {.buf = &line};
    json_open(&w);
    json_int_member(&w, "id", json_int(json_member(args, "id"), 0));
    if (code) {
        json_text_member(&w, "error", bytes_str(c->why.text[0] ? c->why.text : "no sentence"));
        json_int_member(&w, "code", code);
        json_int_member(&w, "response", c->why.response_code);
    } else {
        json_key(&w, "result");
        buf_add(&line, c->result.len ? buf_bytes(&c->result) : BYTES("null"));
    }
    buf_add_u8(&line, '}');
    puppet_say(&line);
    buf_clear(&line);
}

static void *perform(void *text)
{
    struct arena arena;
    arena_init(&arena, ARENA_MAX);
    const struct json *args;
    if (json_parse(bytes_str(text), &arena, &args, NULL)) {
        (void)fprintf(stderr, "not a command: %s\n", (char *)text);
        abort();
    }
    struct command c = {.args = args, .arena = &arena, .result = buf_upto(LINE_MAX)};
    play *part = part_find(json_text(json_member(args, "do"), BYTES("")));
    int code = part ? part(&c) : OMQ_INVALID;
    answer(args, code, &c);
    buf_clear(&c.result);
    arena_clear(&arena);
    free(text);
    (void)pthread_mutex_lock(&running_key);
    running--;
    through[n_through++] = pthread_self();
    (void)pthread_cond_signal(&running_news);
    (void)pthread_mutex_unlock(&running_key);
    return NULL;
}

/* Waits for those that are through, or for all: what a thread leaves to its end (OpenSSL does) must
 * not look like a leak. */
static void reap(bool all)
{
    (void)pthread_mutex_lock(&running_key);
    while (n_through > 0 || (all && running > 0)) {
        if (n_through == 0) {
            (void)pthread_cond_wait(&running_news, &running_key);
            continue;
        }
        pthread_t thread = through[--n_through];
        (void)pthread_mutex_unlock(&running_key);
        (void)pthread_join(thread, NULL);
        (void)pthread_mutex_lock(&running_key);
    }
    (void)pthread_mutex_unlock(&running_key);
}

int main(void)
{
    size_t size = 0;
    char *line = NULL;
    /* What OpenSSL makes at its first use is the main thread's: a hand that is left behind may not
     * have ended when the process does, and what is in its name would be taken for lost. */
    (void)SHA256((const uint8_t *)"", 0, (uint8_t[SHA256_DIGEST_LENGTH]){0});
    while (getline(&line, &size, stdin) > 0) {
        reap(false);
        char *text = strdup(line);
        pthread_t thread;
        (void)pthread_mutex_lock(&running_key);
        if (++running > RUNNING_MAX)
            abort();
        (void)pthread_mutex_unlock(&running_key);
        if (!text || pthread_create(&thread, NULL, perform, text) != 0)
            abort();
    }
    free(line);
    reap(true);
    for (size_t i = n_things; i > 0; i--)
        thing_close(things[i - 1].name);
    return 0;
}
