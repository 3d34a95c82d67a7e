/* puppet_consume.c - what a test makes a consumer or a reader do. */
#include "puppet.h"

#include "once.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* ---- what a handler does ---- */

struct script {
    char name[64], hang_at[64], ledger[256];
    int64_t fail_below, work_ms, done;
    bool quiet, pause_self;
    struct omq_consumer *consumer; /* under hang_key; NULL: it is being opened */
};

static pthread_mutex_t hang_key = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t hang_news = PTHREAD_COND_INITIALIZER;
static unsigned releases, hanging, leaving; /* leaving: of those that hang, who may go */

/* Who reads that a handler runs may release it at once: so it counts as hanging before it tells. */
static unsigned hang_ready(void)
{
    (void)pthread_mutex_lock(&hang_key);
    unsigned before = releases;
    hanging++;
    (void)pthread_mutex_unlock(&hang_key);
    return before;
}

static void hang(unsigned before)
{
    (void)pthread_mutex_lock(&hang_key);
    while (releases == before)
        (void)pthread_cond_wait(&hang_news, &hang_key);
    hanging--;
    leaving--;
    (void)pthread_cond_broadcast(&hang_news);
    (void)pthread_mutex_unlock(&hang_key);
}

/* Handlers may run before who opens their consumer has it. */
static struct omq_consumer *consumer_await(const struct script *s)
{
    (void)pthread_mutex_lock(&hang_key);
    while (!s->consumer)
        (void)pthread_cond_wait(&hang_news, &hang_key);
    struct omq_consumer *consumer = s->consumer;
    (void)pthread_mutex_unlock(&hang_key);
    return consumer;
}

static void consumer_is(struct script *s, struct omq_consumer *consumer)
{
    (void)pthread_mutex_lock(&hang_key);
    s->consumer = consumer;
    (void)pthread_cond_broadcast(&hang_news);
    (void)pthread_mutex_unlock(&hang_key);
}

static int64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void tell(const struct script *s, const struct omq_delivery *d)
{
    struct buf line = buf_upto(1 << 20);
    struct json_out w = {.buf = &line};
    json_open(&w);
    json_text_member(&w, "event", BYTES("message"));
    json_text_member(&w, "name", bytes_str(s->name));
    json_int_member(&w, "at", now_ms());
    if (d->run)
        json_bool_member(&w, "lost", once_run_lost(d->run));
    delivery_members(&w, d);
    json_close(&w);
    puppet_say(&line);
    buf_clear(&line);
}

/* The effect of a message: one line in a file that all consumers share. */
static void enter(const struct script *s, const struct omq_delivery *d)
{
    char line[512];
    int n = snprintf(line, sizeof line, "%s\t%s\t%s\t%d\t%lld\n", s->name, d->keys, d->id,
                     d->attempt - 1, (long long)now_ms());
    int fd = open(s->ledger, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        abort();
    (void)close(fd);
}

static bool starts(const struct omq_delivery *d, const char *with)
{
    size_t n = strlen(with);
    return n > 0 && d->body_size >= n && memcmp(d->body, with, n) == 0;
}

static int perform(const struct script *s, const struct omq_delivery *d)
{
    if (s->work_ms > 0)
        (void)usleep((useconds_t)s->work_ms * 1000);
    bool fails = d->attempt - 1 < s->fail_below;
    bool hangs = !fails && starts(d, s->hang_at);
    unsigned before = hangs ? hang_ready() : 0;
    if (s->ledger[0])
        enter(s, d);
    else if (!s->quiet)
        tell(s, d);
    if (hangs)
        hang(before);
    return fails ? OMQ_LATER : OMQ_DONE;
}

static int handle(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
{
    const struct script *s = user;
    if (s->pause_self)
        omq_consumer_pause(consumer_await(s)); /* a callback may */
    for (size_t i = 0; i < n; i++) {
        int result = perform(s, messages[i]);
        if (result != OMQ_DONE) {
            *done = i;
            return result;
        }
        if (s->done > 0 && (int64_t)i + 1 == s->done && messages[i]->attempt == 1) {
            *done = (size_t)s->done;
            return OMQ_LATER;
        }
    }
    return OMQ_DONE;
}

/* ---- a store of the test's own ---- */

/* Everybody gets a claim. It may lose those that are to be renewed, but for the keys that handlers
 * hang at; and not hear what is done of one key. */
static struct {
    pthread_mutex_t key;
    uint8_t hang[2][32]; /* ids */
    char deaf_to[64];
    bool loses;
    unsigned n_hang, refused; /* refused: renewals */
} notary = {.key = PTHREAD_MUTEX_INITIALIZER};

static int notary_begin(void *self, const struct once_claim *claim, struct once_found *out)
{
    (void)self;
    (void)pthread_mutex_lock(&notary.key);
    if (strncmp(claim->name, "hang", 4) == 0)
        memcpy(notary.hang[notary.n_hang++ % 2], claim->id, sizeof claim->id);
    (void)pthread_mutex_unlock(&notary.key);
    *out = (struct once_found){.state = ONCE_ABSENT, .fence = 1};
    return ONCE_OK;
}

static int notary_renew(void *self, const struct once_claim *claim)
{
    (void)self;
    (void)pthread_mutex_lock(&notary.key);
    bool lost = notary.loses;
    for (unsigned i = 0; i < 2; i++) /* a renewal has no name */
        lost = lost && memcmp(notary.hang[i], claim->id, sizeof claim->id) != 0;
    notary.refused += lost;
    (void)pthread_mutex_unlock(&notary.key);
    return lost ? ONCE_LOST : ONCE_OK;
}

static int notary_done(void *self, const struct once_claim *claim)
{
    (void)self;
    (void)pthread_mutex_lock(&notary.key);
    bool deaf = notary.deaf_to[0] && strcmp(claim->name, notary.deaf_to) == 0;
    (void)pthread_mutex_unlock(&notary.key);
    return deaf ? ONCE_STORE : ONCE_OK;
}

static int notary_failed(void *self, const struct once_claim *claim)
{
    (void)self;
    (void)claim;
    return ONCE_OK;
}

static const struct once_checker notary_checker = {
    .begin = notary_begin, .renew = notary_renew, .done = notary_done, .failed = notary_failed};

static void text_into(char *to, size_t size, struct command *c, const char *name)
{
    const char *text = arg_text(c->args, name, c->arena);
    (void)snprintf(to, size, "%s", text ? text : "");
}

/* Sets what it does from now on, and says how many renewals it has refused. */
static int play_notary(struct command *c)
{
    struct json_out w = {.buf = &c->result};
    (void)pthread_mutex_lock(&notary.key);
    notary.loses = arg_bool(c->args, "loses");
    text_into(notary.deaf_to, sizeof notary.deaf_to, c, "deaf_to");
    json_put_int(&w, (int64_t)notary.refused);
    (void)pthread_mutex_unlock(&notary.key);
    return OMQ_OK;
}

/* ---- consumers ---- */

static int start_of(struct command *c, int64_t *start_ms)
{
    struct bytes from = json_text(json_member(c->args, "from"), BYTES("last"));
    const char *stamp = arg_text(c->args, "timestamp", c->arena);
    *start_ms = arg_int(c->args, "start_ms");
    if (bytes_equal(from, BYTES("first")))
        return OMQ_FROM_FIRST;
    if (!bytes_equal(from, BYTES("timestamp")))
        return OMQ_FROM_LAST;
    struct tm t = {0};
    if (stamp && strptime(stamp, "%Y%m%d%H%M%S", &t))
        *start_ms = (int64_t)timegm(&t) * 1000;
    return OMQ_FROM_TIME;
}

static struct omq_subscription subscription_of(struct command *c)
{
    return (struct omq_subscription){
        .topic = arg_text(c->args, "topic", c->arena),
        .expression = arg_text(c->args, "expression", c->arena),
        .sql = bytes_equal(json_text(json_member(c->args, "kind"), BYTES("")), BYTES("SQL92")),
    };
}

static struct omq_queue queue_of(struct command *c, const struct json *j);

/* "name": queues, as objects with topic, broker and id. */
static struct omq_queue *queues_of(struct command *c, const char *name, size_t *n)
{
    const struct json *list = json_member(c->args, name);
    struct omq_queue *queues = arena_alloc(c->arena, (list ? list->n : 0) * sizeof *queues + 1);
    *n = 0;
    json_each(j, list)
        queues[(*n)++] = queue_of(c, j);
    return queues;
}

/* The room of a broker room@name, and of a client address@room-name. */
static const char *room_of(void *user, const char *broker, const char *client_id)
{
    static _Thread_local char room[64];
    (void)user;
    const char *at = broker ? broker : strchr(client_id, '@');
    at = at && !broker ? at + 1 : at;
    (void)snprintf(room, sizeof room, "%.*s", at ? (int)strcspn(at, broker ? "@" : "-") : 0, at);
    return room;
}

static void close_consumer(void *consumer)
{
    omq_consumer_close(consumer);
}

/* "once": a store, or "notary". */
static struct once_options once_of(struct command *c)
{
    const char *store = arg_text(c->args, "once", c->arena);
    bool ours = store && strcmp(store, "notary") == 0;
    return (struct once_options){
        .store = ours ? NULL : store,
        .checker = ours ? &notary_checker : NULL,
        .mode = arg_bool(c->args, "table") ? ONCE_TABLE : ONCE_LEASE,
        .expiry_ms = arg_int(c->args, "expiry_ms"),
        .no_key = ONCE_BY_MESSAGE_ID,
    };
}

static int play_consumer(struct command *c)
{
    const struct json *a = c->args;
    struct omq_client *client;
    int code = client_of(c, &client);
    if (code)
        return code;
    struct script *s = calloc(1, sizeof *s); /* as long as the program: a handler may outlive all */
    if (!s)
        abort();
    text_into(s->name, sizeof s->name, c, "name");
    text_into(s->hang_at, sizeof s->hang_at, c, "hang_at");
    text_into(s->ledger, sizeof s->ledger, c, "ledger");
    s->fail_below = arg_int(a, "fail_below");
    s->work_ms = arg_int(a, "work_ms");
    s->done = arg_int(a, "done");
    s->quiet = arg_bool(a, "quiet");
    s->pause_self = arg_bool(a, "pause_self");
    struct omq_subscription sub = subscription_of(c);
    const struct json *max = json_member(a, "max_reconsume");
    struct omq_consumer_options o = {
        .group = arg_text(a, "group", c->arena),
        .subscriptions = &sub,
        .n_subscriptions = 1,
        .handle = arg_bool(a, "take") ? NULL : handle,
        .user = s,
        .ordered = arg_bool(a, "orderly"),
        .spread = arg_bool(a, "broadcast") ? OMQ_BROADCAST : OMQ_CLUSTER,
        .acknowledge = arg_bool(a, "before") ? OMQ_BEFORE : OMQ_AFTER,
        .threads = (int)arg_int(a, "threads"),
        .batch = (int)arg_int(a, "batch"),
        .max_attempts = max ? (int)json_int(max, 0) : 0,
        .timeout_ms = (int)arg_int(a, "consume_timeout_ms"),
        .suspend_ms = (int)arg_int(a, "suspend_ms"),
        .lock_ms = (int)arg_int(a, "lock_ms"),
        .pull_batch = (int)arg_int(a, "pull_batch"),
        .max_messages = (int)arg_int(a, "max_messages"),
        .max_mib = (int)arg_int(a, "max_mib"),
        .max_span = (int)arg_int(a, "max_span"),
        .pop = arg_bool(a, "pop"),
        .invisible_ms = (int)arg_int(a, "invisible_ms"),
        .close_ms = (int)arg_int(a, "close_ms"),
        .trace = arg_bool(a, "trace"),
        .trace_topic = arg_text(a, "trace_topic", c->arena),
        .share = (int)arg_int(a, "share"),
        .rooms = arg_text(a, "rooms", c->arena),
        .room_of = room_of,
        .nearby_share = (int)arg_int(a, "nearby_share"),
        .hash_nodes = (int)arg_int(a, "hash_nodes"),
    };
    const struct once_options once = once_of(c);
    o.once = once.store || once.checker ? &once : NULL;
    o.config_queues = queues_of(c, "config_queues", &o.n_config_queues);
    o.start = start_of(c, &o.start_ms);
    struct omq_consumer *consumer;
    code = omq_consumer_open(client, &o, &consumer, &c->why);
    if (code) {
        free(s);
        return code;
    }
    consumer_is(s, consumer);
    thing_add(s->name, consumer, close_consumer);
    scripts_keep(s);
    return OMQ_OK;
}

static struct omq_consumer *consumer_of(struct command *c)
{
    return thing_find(arg_text(c->args, "name", c->arena));
}

/* How many claims it has. */
static int play_claims(struct command *c)
{
    struct json_out w = {.buf = &c->result};
    struct once_stats s;
    once_stats(omq_consumer_once(consumer_of(c)), &s);
    json_put_int(&w, (int64_t)s.running);
    return OMQ_OK;
}

static int play_pause(struct command *c)
{
    omq_consumer_pause(consumer_of(c));
    return OMQ_OK;
}

static int play_resume(struct command *c)
{
    omq_consumer_resume(consumer_of(c));
    return OMQ_OK;
}

static int play_subscribe(struct command *c)
{
    struct omq_subscription sub = subscription_of(c);
    return omq_consumer_subscribe(consumer_of(c), &sub, &c->why);
}

static int play_unsubscribe(struct command *c)
{
    return omq_consumer_unsubscribe(consumer_of(c), arg_text(c->args, "topic", c->arena), &c->why);
}

/* How many hang. */
static int play_hanging(struct command *c)
{
    struct json_out w = {.buf = &c->result};
    (void)pthread_mutex_lock(&hang_key);
    json_put_int(&w, hanging);
    (void)pthread_mutex_unlock(&hang_key);
    return OMQ_OK;
}

/* Lets those that hang go on; waits until they have. */
static int play_release(struct command *c)
{
    (void)c;
    (void)pthread_mutex_lock(&hang_key);
    releases++;
    leaving = hanging; /* whoever comes meanwhile stays */
    (void)pthread_cond_broadcast(&hang_news);
    while (leaving > 0)
        (void)pthread_cond_wait(&hang_news, &hang_key);
    (void)pthread_mutex_unlock(&hang_key);
    return OMQ_OK;
}

/* Opens and closes consumers, or readers, `count` times; tells how many bytes are in use more. */
static int play_churn(struct command *c)
{
    struct omq_client *client;
    int code = client_of(c, &client);
    struct omq_subscription sub = subscription_of(c);
    const struct omq_consumer_options o = {
        .group = arg_text(c->args, "group", c->arena), .subscriptions = &sub, .n_subscriptions = 1};
    const struct omq_reader_options r = {.group = o.group};
    size_t before = mallinfo2().uordblks;
    for (int64_t i = arg_int(c->args, "count"); !code && i > 0; i--) {
        struct omq_consumer *consumer;
        struct omq_reader *reader;
        if (i % 2 && !(code = omq_consumer_open(client, &o, &consumer, &c->why)))
            omq_consumer_close(consumer);
        else if (i % 2 == 0 && !(code = omq_reader_open(client, &r, &reader, &c->why)))
            omq_reader_close(reader);
    }
    struct json_out w = {.buf = &c->result};
    if (!code)
        json_put_int(&w, (int64_t)mallinfo2().uordblks - (int64_t)before);
    return code;
}

/* A close returns when everything is booked, so there is nothing to wait for. */
static int play_settle(struct command *c)
{
    (void)c;
    return OMQ_OK;
}

/* ---- batches that are taken ---- */

static void batch_write(struct command *c, const struct omq_batch *batch)
{
    struct json_out w = {.buf = &c->result};
    size_t n;
    const struct omq_delivery *const *messages = omq_batch_messages(batch, &n);
    json_open_array(&w);
    for (size_t i = 0; i < n; i++)
        delivery_write(&w, messages[i]);
    json_close_array(&w);
}

static void batch_finish(struct command *c, struct omq_batch *batch)
{
    struct omq_ending ending = {.batch = batch,
                                .result = (int)arg_int(c->args, "result"),
                                .done = (size_t)arg_int(c->args, "done"),
                                .after_ms = arg_int(c->args, "after_ms")};
    omq_batch_finish_all(&ending, 1);
}

/* "keep": a name under which the batch waits for "finish". */
static int batch_taken(struct command *c, struct omq_batch *batch)
{
    batch_write(c, batch);
    const char *keep = arg_text(c->args, "keep", c->arena);
    if (keep)
        thing_add(keep, batch, NULL);
    else
        batch_finish(c, batch);
    return OMQ_OK;
}

static int play_take(struct command *c)
{
    struct omq_batch *batch;
    int code = omq_consumer_take(consumer_of(c), (int)arg_int(c->args, "wait_ms"), &batch, &c->why);
    return code ? code : batch_taken(c, batch);
}

static int play_finish(struct command *c)
{
    batch_finish(c, thing_take(arg_text(c->args, "name", c->arena)));
    return OMQ_OK;
}

/* All that is there, at most "max", answered and finished together as done. */
static int play_take_all(struct command *c)
{
    struct omq_batch *batches[64];
    struct omq_ending endings[64] = {{0}};
    size_t n, max = (size_t)arg_int(c->args, "max");
    int code = omq_consumer_take_all(consumer_of(c), (int)arg_int(c->args, "wait_ms"), batches,
                                     max < 64 ? max : 64, &n, &c->why);
    struct json_out w = {.buf = &c->result};
    if (code)
        return code;
    json_open_array(&w);
    for (size_t i = 0; i < n; i++) {
        delivery_write(&w, omq_batch_messages(batches[i], NULL)[0]);
        endings[i].batch = batches[i];
    }
    json_close_array(&w);
    omq_batch_finish_all(endings, n);
    return OMQ_OK;
}

/* ---- readers ---- */

static void close_reader(void *reader)
{
    omq_reader_close(reader);
}

static int play_reader(struct command *c)
{
    struct omq_client *client;
    int code = client_of(c, &client);
    if (code)
        return code;
    struct omq_reader_options o = {
        .group = arg_text(c->args, "group", c->arena),
        .commit_every_ms = (int)arg_int(c->args, "commit_every_ms"),
        .pull_batch = (int)arg_int(c->args, "pull_batch"),
        .max_messages = (int)arg_int(c->args, "max_messages"),
        .expression = arg_text(c->args, "expression", c->arena),
        .sql = arg_bool(c->args, "sql"),
    };
    o.start = start_of(c, &o.start_ms);
    struct omq_reader *reader;
    code = omq_reader_open(client, &o, &reader, &c->why);
    if (!code)
        thing_add(arg_text(c->args, "name", c->arena), reader, close_reader);
    return code;
}

static struct omq_reader *reader_of(struct command *c)
{
    return thing_find(arg_text(c->args, "name", c->arena));
}

static struct omq_queue queue_of(struct command *c, const struct json *j)
{
    return (struct omq_queue){
        .topic = arg_text(j, "topic", c->arena),
        .broker = arg_text(j, "broker", c->arena),
        .id = (int32_t)arg_int(j, "id"),
    };
}

static int play_reader_subscribe(struct command *c)
{
    struct omq_subscription sub = subscription_of(c);
    return omq_reader_subscribe(reader_of(c), &sub, &c->why);
}

static int play_assign(struct command *c)
{
    size_t n;
    struct omq_queue *queues = queues_of(c, "queues", &n);
    return omq_reader_assign(reader_of(c), queues, n, &c->why);
}

static int play_read(struct command *c)
{
    struct omq_batch *batch;
    int code = omq_reader_take(reader_of(c), (int)arg_int(c->args, "wait_ms"), &batch, &c->why);
    return code ? code : batch_taken(c, batch);
}

static int play_seek(struct command *c)
{
    struct omq_queue queue = queue_of(c, json_member(c->args, "queue"));
    return omq_reader_seek(reader_of(c), &queue, arg_int(c->args, "offset"), &c->why);
}

static int play_commit(struct command *c)
{
    return arg_bool(c->args, "async") ? omq_reader_commit_async(reader_of(c), &c->why)
                                      : omq_reader_commit(reader_of(c), &c->why);
}

static int play_committed(struct command *c)
{
    struct omq_queue queue = queue_of(c, json_member(c->args, "queue"));
    int64_t offset;
    int code = omq_reader_committed(reader_of(c), &queue, &offset, &c->why);
    struct json_out w = {.buf = &c->result};
    if (!code)
        json_put_int(&w, offset);
    return code;
}

const struct part consume_parts[] = {
    {"consumer", play_consumer},
    {"notary", play_notary},
    {"claims", play_claims},
    {"pause", play_pause},
    {"resume", play_resume},
    {"subscribe", play_subscribe},
    {"unsubscribe", play_unsubscribe},
    {"hanging", play_hanging},
    {"release", play_release},
    {"settle", play_settle},
    {"churn", play_churn},
    {"take", play_take},
    {"take_all", play_take_all},
    {"finish", play_finish},
    {"reader", play_reader},
    {"reader_subscribe", play_reader_subscribe},
    {"assign", play_assign},
    {"read", play_read},
    {"seek", play_seek},
    {"commit", play_commit},
    {"committed", play_committed},
    {NULL, NULL},
};
