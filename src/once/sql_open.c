/* sql_open.c - opening an SQL store: its tables, its birth, its connections. */
#include "once/sql_int.h"

#include "once.h"

#include "base/dice.h"

#include <stdlib.h>
#include <time.h>

#define CREATE_TRIES   5
#define ROW_NUMBERS    6    /* of a row of claims, between its name and its birth */
#define KEEPER_TURN_MS 1000 /* how often the keeper is looked after, at most */

static int64_t clock_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t); /* goes on while the machine sleeps */
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- the statements of a connection ---- */

void conn_drop(struct conn *c)
{
    c->n_calls = 0;
}

enum err conn_add(struct conn *c, enum sql_name name, struct slot *slot, struct sql_call **out,
                  struct fault *why)
{
    enum err err = c->n_calls == SQL_CALLS ? conn_flush(c, why) : OK;
    if (err)
        return err;
    struct sql_call *call = &c->calls[c->n_calls++];
    *call = (struct sql_call){.text = c->store->texts[name], .user = slot};
    *out = call;
    return OK;
}

enum err conn_flush(struct conn *c, struct fault *why)
{
    size_t n = c->n_calls, failed = 0;
    c->n_calls = 0;
    c->failed = NULL;
    if (n == 0)
        return OK;
    enum err err = c->store->engine->run(c->sql, c->calls, n, &failed, why);
    if (err && failed < n && !c->calls[failed].row)
        c->failed = c->calls[failed].user;
    if (err == ERR_NOT_FOUND && !c->store->settings.plain)
        return fault_add(why, ERR_STALE, "the tables of the store are gone");
    for (size_t i = 0; !err && i < n; i++) {
        struct slot *slot = c->calls[i].row ? NULL : c->calls[i].user;
        if (!slot)
            continue;
        slot->changed = c->calls[i].changed;
        slot->told = c->calls[i].told;
    }
    return err;
}

static struct sql_value *next_param(struct sql_call *call, enum sql_type type)
{
    invariant(call->n_params < SQL_PARAMS_MAX);
    struct sql_value *value = &call->params[call->n_params++];
    value->type = type;
    return value;
}

void call_int(struct sql_call *call, int64_t number)
{
    next_param(call, SQL_INT)->number = number;
}

void call_birth(const struct conn *c, struct sql_call *call)
{
    if (c->store->engine->births)
        call_int(call, atomic_load(&c->store->birth));
}

void call_bytes(struct sql_call *call, const void *at, size_t size)
{
    next_param(call, SQL_BLOB)->bytes = bytes_of(size ? at : "", size);
}

void call_text(struct sql_call *call, const char *text)
{
    next_param(call, SQL_TEXT)->bytes = bytes_str(text ? text : "");
}

int64_t value_int(const struct sql_value *value)
{
    return value->type == SQL_INT ? value->number : 0;
}

/* ---- clock and birth ---- */

static bool row_clock(void *user, const struct sql_value *columns, size_t n)
{
    struct conn *c = user;
    if (n != 2)
        return false;
    c->now_ms = value_int(&columns[0]);
    c->birth = value_int(&columns[1]);
    c->now_seen_ms = clock_ms();
    return false;
}

enum err conn_ask_clock(struct conn *c, struct fault *why)
{
    struct sql_call *call;
    enum err err = conn_add(c, T_CLOCK, NULL, &call, why);
    if (err)
        return err;
    c->birth = 0;
    call->row = row_clock;
    call->user = c;
    return OK;
}

static bool row_tick(void *user, const struct sql_value *columns, size_t n)
{
    struct conn *c = user;
    if (n != 1 || columns[0].type != SQL_INT)
        return false;
    c->now_ms = columns[0].number;
    c->birth = c->birth_asked;
    c->now_seen_ms = clock_ms();
    return false;
}

enum err conn_tick(struct conn *c, struct fault *why)
{
    struct sql_call *call;
    enum err err = conn_add(c, T_TICK, NULL, &call, why);
    if (err)
        return err;
    c->birth = 0;
    c->birth_asked = atomic_load(&c->store->birth);
    call_int(call, c->birth_asked);
    call->row = row_tick;
    call->user = c;
    return OK;
}

enum err conn_born(struct conn *c, struct fault *why)
{
    if (c->birth != 0 && c->birth == atomic_load(&c->store->birth))
        return OK;
    return fault_set(why, ERR_STALE,
                     "the %s store was emptied since it was opened: what was done before is "
                     "forgotten (tables %s_…)",
                     c->store->engine->name, c->store->settings.table);
}

bool conn_guess_now(const struct conn *c, int64_t *out)
{
    if (c->now_seen_ms == 0)
        return false;
    *out = c->now_ms + (clock_ms() - c->now_seen_ms);
    return true;
}

/* ---- tables ---- */

static bool row_none(void *user, const struct sql_value *columns, size_t n)
{
    return true;
}

/* OK: all tables are there with their columns. */
static enum err check_tables(struct conn *c, struct fault *why)
{
    static const uint8_t no_id[ONCE_ID_SIZE];
    static const struct {
        enum sql_name name;
        bool by_id;
    } checks[] = {{T_CHECK_CLAIMS, true},
                  {T_CHECK_STEPS, true},
                  {T_CHECK_PLACES, true},
                  {T_CHECK_OUTBOX, false},
                  {T_CHECK_BIRTH, false}};
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        struct sql_call *call;
        enum err err = conn_add(c, checks[i].name, NULL, &call, why);
        if (err)
            return err;
        call->row = row_none;
        if (checks[i].by_id)
            call_bytes(call, no_id, sizeof no_id);
    }
    enum err err = conn_flush(c, why);
    if (err == ERR_INVALID)
        return fault_add(why, err, "a table %s_… is there, but is not as docs/once.md has it",
                         c->store->settings.table);
    return err;
}

static enum err create_tables(struct conn *c, struct fault *why)
{
    const struct sql_engine *engine = c->store->engine;
    enum err err = engine->begin(c->sql, true, why);
    for (const char *const *text = engine->create; !err && *text; text++) {
        cleanup(free_at) char *whole = sql_text(engine, c->store->settings.table, *text);
        if (!whole) {
            err = ERR_NO_MEMORY;
            break;
        }
        struct sql_call call = {.text = whole, .once = true};
        size_t failed;
        err = engine->run(c->sql, &call, 1, &failed, why);
    }
    if (!err)
        err = engine->commit(c->sql, why);
    if (err)
        engine->rollback(c->sql);
    return err;
}

/* One try. OK: the row was refused. */
static enum err birth_try(struct conn *c, struct fault *why)
{
    const struct sql_engine *engine = c->store->engine;
    uint8_t id[ONCE_ID_SIZE] = {0}; /* of nobody: others may try at the same time */
    struct fault refusal = {0};
    struct sql_call *call;
    store_u64(id, dice_seed_from_os());
    enum err err = engine->begin(c->sql, true, why);
    if (!err)
        err = conn_add(c, T_INSERT, NULL, &call, why);
    if (err)
        return err;
    call_bytes(call, id, sizeof id);
    call_text(call, "");
    call_int(call, ONCE_CONSUMING); /* as it could be: it shall be refused for its birth alone */
    for (int i = 1; i < ROW_NUMBERS; i++)
        call_int(call, 0);
    call_int(call, 0); /* births are odd */
    err = conn_flush(c, &refusal);
    engine->rollback(c->sql);
    if (err == ERR_INVALID)
        return OK;
    if (err == OK)
        return fault_set(why, ERR_INVALID,
                         "the table %s_claims lets in rows of another birth: it lacks the FOREIGN "
                         "KEY (birth) of docs/once-sql.md",
                         c->store->settings.table);
    if (why)
        *why = refusal;
    return err;
}

/* Where the database holds claims to the store's birth, it does: a row of a birth that never was is
 * refused. Else nobody would notice that the store was emptied. Nothing of it stays. Whatever else
 * the database says, nothing is known: a lock, a server that is read-only, no right to write. */
static enum err check_births(struct conn *c, struct fault *why)
{
    enum err err = ERR_BUSY; /* a deadlock with others who open the store */
    for (int i = 0; i < CREATE_TRIES && err == ERR_BUSY; i++)
        err = birth_try(c, why);
    return err;
}

/* Reads the birth, and writes one where there is none. Two who do that at once agree on the
 * first. */
static enum err read_birth(struct conn *c, struct fault *why)
{
    for (int i = 0; i < CREATE_TRIES; i++) {
        enum err err = conn_ask_clock(c, why);
        if (!err)
            err = conn_flush(c, why);
        if (err || c->birth != 0)
            return err;
        struct sql_call *call;
        err = conn_add(c, T_BIRTH, NULL, &call, why);
        if (err)
            return err;
        call_int(call, (int64_t)(dice_seed_from_os() >> 1) | 1);
        err = conn_flush(c, why);
        if (err && err != ERR_EXISTS)
            return err;
    }
    return fault_set(why, ERR_BUSY, "the store's birth comes and goes: somebody empties it");
}

static enum err prepare_plain(struct conn *c, struct fault *why)
{
    struct sql_call *call;
    enum err err = conn_add(c, T_PLAIN_CHECK, NULL, &call, why);
    if (err)
        return err;
    call->row = row_none;
    call_text(call, "");
    err = conn_flush(c, why);
    if (err == ERR_NOT_FOUND || err == ERR_INVALID)
        return fault_add(why, err,
                         "the plain form needs a table %s with the columns id, k (unique), "
                         "update_at; it is not made here",
                         c->store->settings.table);
    return err;
}

/* Tables as they must be, and the birth known. */
static enum err prepare(struct conn *c, struct fault *why)
{
    if (c->store->settings.plain)
        return prepare_plain(c, why);
    enum err err = ERR_STALE;
    for (int i = 0; i < CREATE_TRIES && err; i++) {
        err = check_tables(c, why);
        if (err == OK)
            break;
        if (err == ERR_STALE && !c->store->settings.create)
            return fault_add(why, ERR_NOT_FOUND,
                             "there are no tables %s_… yet: set `create`, or run the SQL of "
                             "docs/once.md",
                             c->store->settings.table);
        if (err != ERR_STALE)
            return err;
        /* Another who creates them at the same time makes some servers refuse; then they are
         * there. */
        err = create_tables(c, why);
        if (err && err != ERR_EXISTS && err != ERR_BUSY)
            return fault_add(why, err, "creating the tables %s_…", c->store->settings.table);
        err = ERR_STALE;
    }
    if (!err && c->store->engine->births)
        err = check_births(c, why);
    return err ? err : read_birth(c, why);
}

/* ---- the store ---- */

static enum err copy_settings(struct store *store, const struct store_settings *from)
{
    store->settings = *from;
    store->settings.url = strdup(from->url);
    store->settings.table = strdup(from->table);
    return store->settings.url && store->settings.table ? OK : ERR_NO_MEMORY;
}

void sql_close(struct store *store)
{
    if (!store)
        return;
    if (store->keeper)
        store->engine->disconnect(store->keeper);
    for (int i = 0; i < T_COUNT; i++)
        free(store->texts[i]);
    free((char *)store->settings.url);
    free((char *)store->settings.table);
    (void)pthread_mutex_destroy(&store->keeper_key);
    free(store);
}

enum err sql_open(const struct sql_engine *engine, const struct store_settings *settings,
                  struct store **out, struct fault *why)
{
    struct store *store = calloc(1, sizeof *store);
    if (!store)
        return ERR_NO_MEMORY;
    store->engine = engine;
    (void)pthread_mutex_init(&store->keeper_key, NULL);
    struct conn *c = NULL;
    enum err err = copy_settings(store, settings);
    if (!err)
        err = sql_texts_make(store);
    if (!err)
        err = sql_connect(store, &c, why);
    if (!err)
        err = prepare(c, why);
    if (!err)
        atomic_store(&store->birth, c->birth);
    if (c)
        sql_disconnect(c);
    if (err)
        sql_close(store);
    else
        *out = store;
    return err;
}

enum err sql_connect(struct store *store, struct conn **out, struct fault *why)
{
    cleanup(free_at) struct conn *c = calloc(1, sizeof *c);
    if (!c)
        return ERR_NO_MEMORY;
    c->store = store;
    c->generation = atomic_load(&store->generation);
    enum err err = store->engine->connect(&store->settings, &c->sql, why);
    if (err)
        return err;
    *out = take(&c);
    return OK;
}

void sql_disconnect(struct conn *conn)
{
    if (conn->sql)
        conn->store->engine->disconnect(conn->sql);
    free(conn);
}

bool sql_healthy(struct conn *conn)
{
    return conn->sql && conn->store->engine->healthy(conn->sql);
}

static enum err renew(struct conn *c, struct fault *why)
{
    const struct sql_engine *engine = c->store->engine;
    if (c->sql)
        engine->disconnect(c->sql);
    c->sql = NULL;
    c->generation = atomic_load(&c->store->generation);
    return engine->connect(&c->store->settings, &c->sql, why);
}

enum err conn_fresh(struct conn *c, struct fault *why)
{
    conn_drop(c);
    if (c->sql && c->generation == atomic_load(&c->store->generation))
        return OK;
    return renew(c, why);
}

enum err sql_accept(struct store *store, struct conn *conn, struct fault *why)
{
    if (store->settings.plain)
        return OK;
    conn_drop(conn);
    enum err err = renew(conn, why); /* what it is connected to may be what is gone */
    if (!err)
        err = prepare(conn, why);
    if (err)
        return err;
    atomic_store(&store->birth, conn->birth);
    conn->generation = atomic_fetch_add(&store->generation, 1) + 1;
    return OK;
}

enum err sql_ask(const struct sql_engine *engine, const struct store_settings *settings,
                 struct sql_call *call, struct fault *why)
{
    struct sql_conn *conn;
    size_t failed;
    enum err err = engine->connect(settings, &conn, why);
    if (err)
        return err;
    err = engine->run(conn, call, 1, &failed, why);
    engine->disconnect(conn);
    return err;
}

/* ---- takeover ---- */

static enum err keeper_make(struct store *store, uint32_t instance, struct fault *why)
{
    const struct sql_engine *engine = store->engine;
    if (store->keeper)
        engine->disconnect(store->keeper);
    store->keeper = NULL;
    enum err err = engine->connect(&store->settings, &store->keeper, why);
    if (err)
        return err;
    store->keeper_instance = instance;
    err = engine->live(store->keeper, instance, why);
    if (err) {
        engine->disconnect(store->keeper);
        store->keeper = NULL;
    }
    return err;
}

bool store_watches(const struct store *store)
{
    return store->settings.takeover && store->engine->live && store->engine->gone;
}

enum err store_live(struct store *store, uint32_t instance, struct fault *why)
{
    (void)pthread_mutex_lock(&store->keeper_key);
    enum err err = OK;
    int64_t now_ms = clock_ms();
    bool known = store->keeper && store->keeper_instance == instance;
    if (!known || now_ms - store->keeper_seen_ms >= KEEPER_TURN_MS) {
        if (!known || !store->engine->healthy(store->keeper))
            err = keeper_make(store, instance, why);
        store->keeper_seen_ms = now_ms;
    }
    (void)pthread_mutex_unlock(&store->keeper_key);
    return err;
}
