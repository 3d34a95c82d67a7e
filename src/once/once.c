/* once.c - opening and closing, and what operators ask. */
#include "once/once_int.h"

#include <stdlib.h>

static void no_log(void *user, int level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
}

static struct store_settings settings_of(const struct once *once)
{
    const struct once_options *o = &once->with;
    return (struct store_settings){
        .url = o->store ? o->store : "",
        .table = o->table,
        .create = o->create,
        .plain = o->plain,
        .takeover = o->takeover,
        .wait_ms = o->wait_ms,
        .redis_replicas = o->redis_replicas,
        .transactions = o->mode == ONCE_TRANSACTION || o->mode == ONCE_OFFSET,
        .log = o->log ? o->log : no_log,
        .log_user = o->user,
        .clock = once->clock,
        .own = o,
        .group = o->group,
        .instance = once->instance,
        .client = o->client,
    };
}

static enum err reach_store(struct once *once, struct fault *why)
{
    struct store_settings s = settings_of(once);
    enum err err = once->driver->open(&s, &once->store, why);
    if (err != OK) {
        once->store = NULL;
        return err;
    }
    const struct crew_settings crew = {
        .driver = once->driver,
        .store = once->store,
        .lanes = once->driver->lanes,
        .wait_ms = once->with.wait_ms,
        .log = s.log,
        .log_user = s.log_user,
    };
    err = crew_open(&crew, &once->crew, why);
    if (err != OK || !s.transactions)
        return err;
    return pool_open(once->driver, once->store, once->with.connections, &once->pool);
}

static int reach(struct once *once, struct once_error *why)
{
    struct fault fault = {0};
    enum err err = reach_store(once, &fault);
    if (err == OK)
        return ONCE_OK;
    int code = err == ERR_INVALID || err == ERR_UNSUPPORTED || err == ERR_NO_MEMORY
                   ? once_code_of(err)
                   : ONCE_STORE;
    return once_fail(why, code, "%s", fault.text[0] ? fault.text : err_text(err));
}

static int compile(struct once *once, struct once_error *why)
{
    struct fault fault = {0};
    if (once->with.mode == ONCE_OFFSET)
        return ONCE_OK; /* a message is known by its place */
    enum err err = key_compile(once->with.key, &once->key, &fault);
    return err == OK ? ONCE_OK : once_fail(why, once_code_of(err), "key: %s", fault.text);
}

static void warn(const struct once *once)
{
    const struct once_options *o = &once->with;
    if (o->mode != ONCE_OFFSET && o->retention_ms < o->ladder_ms)
        once_log(
            once, ONCE_WARN,
            "done is remembered for %lld ms, but the queue may bring a message again over %lld "
            "ms: late deliveries will run twice",
            (long long)o->retention_ms, (long long)o->ladder_ms);
}

static void once_init(struct once *once, const struct once_parts *parts)
{
    struct dice dice = dice_seeded(dice_seed_from_os());
    once->instance = (uint32_t)dice_below(&dice, UINT32_MAX) + 1; /* tokens are never 0 */
    once->clock = parts->clock ? parts->clock : clock_sleepless();
    running_init(&once->running);
    map_init(&once->places, dice_next(&dice));
    invariant(pthread_mutex_init(&once->places_key, NULL) == 0);
    invariant(pthread_mutex_init(&once->texts_key, NULL) == 0);
}

static int find_driver(struct once *once, const struct once_parts *parts, struct once_error *why)
{
    int bad = ONCE_OK;
    if (parts->driver)
        once->driver = parts->driver;
    else if (once->with.checker)
        once->driver = &once_driver_checker;
    else
        bad = driver_find(once->with.store, &once->driver, why);
    if (bad)
        return bad;
    const struct once_checker *checker = once->with.checker;
    once->names = once->driver != &once_driver_memory;
    once->with.takeover = once->with.takeover || once->driver->watches;
    once->renews =
        once->with.mode == ONCE_LEASE && !once->with.plain && !(checker && !checker->renew);
    return options_suit(&once->with, once->driver, why);
}

int once_open_with(const struct once_options *options, const struct once_parts *parts,
                   struct once **out, struct once_error *why)
{
    if (!options || !out)
        return once_fail(why, ONCE_INVALID, "options and out are required");
    struct once *once = aligned_alloc(64, sizeof *once);
    if (!once)
        return once_fail(why, ONCE_NO_MEMORY, "out of memory");
    memset(once, 0, sizeof *once);
    int bad = options_take(options, &once->with, why);
    if (bad) {
        free(once);
        return bad;
    }
    once_init(once, parts);
    bad = find_driver(once, parts, why);
    bad = bad ? bad : compile(once, why);
    bad = bad ? bad : reach(once, why);
    if (!bad && once->pool)
        bad = outbox_init(once, why);
    struct fault fault = {0};
    if (!bad && !parts->no_keeper && keeper_start(once, &fault) != OK)
        bad = once_fail(why, ONCE_NO_MEMORY, "%s", fault.text);
    if (bad) {
        once_free(once);
        return bad;
    }
    warn(once);
    if (why)
        *why = (struct once_error){0};
    *out = once;
    return ONCE_OK;
}

int once_open(const struct once_options *options, struct once **out, struct once_error *why)
{
    return once_open_with(options, &(struct once_parts){0}, out, why);
}

void once_free(struct once *once)
{
    pool_close(once->pool);
    crew_close(once->crew);
    if (once->store)
        once->driver->close(once->store);
    key_free(once->key);
    places_clear(once);
    (void)pthread_mutex_destroy(&once->places_key);
    texts_clear(once);
    (void)pthread_mutex_destroy(&once->texts_key);
    running_clear(&once->running);
    options_clear(&once->with);
    free(once);
}

void once_close(struct once *once)
{
    if (!once)
        return;
    atomic_store(&once->closing, true);
    keeper_stop(once);
    size_t left = running_shut(&once->running);
    if (left == 0)
        once_free(once); /* else the last run does, when it ends */
}

/* ---- looking ---- */

/* An operation on a key of the application's, prefix and all. */
static int op_of(struct once *once, const void *key, size_t size, struct buf *whole, char *name,
                 struct op *op, struct once_error *why)
{
    if (!once || (!key && size > 0))
        return once_fail(why, ONCE_INVALID, "once and key are required");
    if (once->with.mode == ONCE_OFFSET)
        return once_fail(why, ONCE_MISUSE, "in ONCE_OFFSET there are places, no keys");
    *whole = buf_upto(size + strlen(once->with.prefix) + 1);
    buf_add_str(whole, once->with.prefix);
    buf_add(whole, bytes_of(key, size));
    buf_add_u8(whole, 0);
    if (whole->err != OK)
        return once_fail(why, ONCE_NO_MEMORY, "out of memory");
    struct bytes text = {whole->at, whole->len - 1};
    op->plain = text;
    op->name = name;
    op->expiry_ms = once->with.expiry_ms;
    op->retention_ms = once->with.retention_ms;
    key_id(bytes_str(once->with.scope), text, op->id);
    key_name(text, name, ONCE_NAME_MAX + 1);
    return ONCE_OK;
}

static int key_ask(struct once *once, const void *key, size_t size, struct op *op,
                   struct once_error *why)
{
    cleanup(buf_clear) struct buf whole = {0};
    char name[ONCE_NAME_MAX + 1];
    int bad = op_of(once, key, size, &whole, name, op, why);
    if (bad)
        return bad;
    struct fault fault = {0};
    struct op *ops[] = {op};
    enum err err = store_ask(once, ops, 1, once->with.wait_ms, NULL, &fault);
    if (err != OK)
        return once_fail_store(why, err, &fault);
    if (op->outcome == OUT_FAILED)
        return once_fail(why, ONCE_STORE, "%s", op->why.text);
    return ONCE_OK;
}

int once_look(struct once *once, const void *key, size_t key_size, struct once_look *out,
              struct once_error *why)
{
    struct op op = {.kind = OP_LOOK};
    if (!out)
        return once_fail(why, ONCE_INVALID, "out is required");
    int bad = key_ask(once, key, key_size, &op, why);
    if (!bad)
        *out = (struct once_look){op.outcome == OUT_ABSENT ? ONCE_ABSENT : op.state, op.fence,
                                  op.left_ms};
    return bad;
}

int once_forget(struct once *once, const void *key, size_t key_size, struct once_error *why)
{
    struct op op = {.kind = OP_FORGET};
    return key_ask(once, key, key_size, &op, why);
}

int once_accept_wiped(struct once *once, struct once_error *why)
{
    if (!once)
        return once_fail(why, ONCE_INVALID, "once is required");
    struct fault fault = {0};
    enum err err = crew_accept(once->crew, &fault);
    if (err == OK)
        return ONCE_OK;
    return once_fail(why, ONCE_STORE, "%s", fault.text[0] ? fault.text : err_text(err));
}
