/* options.c - what once_open is given: checked, copied, completed. */
#include "once/once_int.h"

#include <stdlib.h>

#define YEARS_MS         (INT64_C(10) * 366 * 24 * 3600 * 1000)
#define LEASE_EXPIRY_MS  30000
#define TABLE_EXPIRY_MS  3600000
#define RETENTION_MS     (INT64_C(72) * 3600 * 1000)
#define LADDER_MS        17140000
#define CONNECTIONS      50
#define CONNECTIONS_MOST 1000
#define WAIT_MS          3000
#define WAIT_MOST_MS     600000
#define SWEEP_ROWS       1000
#define SWEEP_ROWS_MOST  1000000
#define TABLE_NAME_MAX   48

static int check_time(const char *name, int64_t ms, struct once_error *why)
{
    if (ms >= 0 && ms <= YEARS_MS)
        return ONCE_OK;
    return once_fail(why, ONCE_INVALID, "%s is %lld; it is 0 (the default) to ten years, in ms",
                     name, (long long)ms);
}

static int check_number(const char *name, int n, int most, struct once_error *why)
{
    if (n >= 0 && n <= most)
        return ONCE_OK;
    return once_fail(why, ONCE_INVALID, "%s is %d; it is 0 (the default) to %d", name, n, most);
}

static bool is_table_name(const char *name)
{
    size_t n = 0;
    for (; name[n] && n <= TABLE_NAME_MAX; n++) {
        char c = name[n];
        bool fits =
            (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
        if (!fits)
            return false;
    }
    return n > 0 && n <= TABLE_NAME_MAX;
}

static int check_numbers(const struct once_options *o, struct once_error *why)
{
    int bad = check_time("expiry_ms", o->expiry_ms, why);
    bad = bad ? bad : check_time("retention_ms", o->retention_ms, why);
    bad = bad ? bad : check_time("ladder_ms", o->ladder_ms, why);
    bad = bad ? bad : check_number("connections", o->connections, CONNECTIONS_MOST, why);
    bad = bad ? bad : check_number("wait_ms", o->wait_ms, WAIT_MOST_MS, why);
    bad = bad ? bad : check_number("redis_replicas", o->redis_replicas, 100, why);
    bad = bad ? bad : check_number("sweep_rows", o->sweep_rows, SWEEP_ROWS_MOST, why);
    return bad;
}

static int check_policies(const struct once_options *o, struct once_error *why)
{
    if (o->mode < ONCE_LEASE || o->mode > ONCE_OFFSET)
        return once_fail(why, ONCE_INVALID, "mode %d is none of enum once_mode", o->mode);
    if (o->no_key < ONCE_BY_RETRY || o->no_key > ONCE_BY_MESSAGE_ID)
        return once_fail(why, ONCE_INVALID,
                         "no_key is ONCE_BY_RETRY, ONCE_BY_DEAD_LETTER or ONCE_BY_MESSAGE_ID: a "
                         "message without a key is no duplicate of anything");
    if (o->other_body < ONCE_BY_RETRY || o->other_body > ONCE_BY_SUPPRESSION ||
        o->other_body == ONCE_BY_MESSAGE_ID)
        return once_fail(why, ONCE_INVALID,
                         "other_body is ONCE_BY_SUPPRESSION or ONCE_BY_DEAD_LETTER");
    return ONCE_OK;
}

static int check_checker(const struct once_options *o, struct once_error *why)
{
    const struct once_checker *c = o->checker;
    if (!c)
        return ONCE_OK;
    if (o->store)
        return once_fail(why, ONCE_INVALID, "a checker stands instead of a store: not both");
    if (!c->begin || !c->done || !c->failed)
        return once_fail(why, ONCE_INVALID, "a checker needs begin, done and failed");
    return ONCE_OK;
}

static int check(const struct once_options *o, struct once_error *why)
{
    if (!o->group || !o->group[0])
        return once_fail(why, ONCE_INVALID, "group is required: the consumer group");
    if (o->scope && !o->scope[0])
        return once_fail(why, ONCE_INVALID, "scope is empty; leave it NULL for the group's name");
    if (o->table && !is_table_name(o->table))
        return once_fail(why, ONCE_INVALID,
                         "table is 1 to %d of letters A-Z a-z, digits and _: it becomes part of "
                         "names in the store",
                         TABLE_NAME_MAX);
    int bad = check_policies(o, why);
    bad = bad ? bad : check_numbers(o, why);
    bad = bad ? bad : check_checker(o, why);
    return bad;
}

/* A text of our own. */
static bool own(const char **text, const char *fallback)
{
    const char *from = *text ? *text : fallback;
    *text = from ? strdup(from) : NULL;
    return !from || *text;
}

static void complete_times(struct once_options *o)
{
    bool lock = o->plain && o->mode == ONCE_LEASE; /* the well-known lock has one time for both */
    if (o->expiry_ms == 0)
        o->expiry_ms = o->mode == ONCE_TABLE || lock ? TABLE_EXPIRY_MS : LEASE_EXPIRY_MS;
    if (o->retention_ms == 0 && lock) {
        o->retention_ms = o->expiry_ms;
        o->retention_short = true;
    }
    if (o->retention_ms == 0)
        o->retention_ms = RETENTION_MS;
    if (o->ladder_ms == 0)
        o->ladder_ms = LADDER_MS;
}

static void complete_numbers(struct once_options *o)
{
    if (o->connections == 0)
        o->connections = CONNECTIONS;
    if (o->wait_ms == 0)
        o->wait_ms = WAIT_MS;
    if (o->sweep_rows == 0)
        o->sweep_rows = SWEEP_ROWS;
}

/* H-9. A place in a queue is not forgotten with time. */
static int check_retention(const struct once_options *o, struct once_error *why)
{
    if (o->mode == ONCE_OFFSET || o->retention_short || o->retention_ms >= o->ladder_ms)
        return ONCE_OK;
    return once_fail(why, ONCE_INVALID,
                     "retention_ms %lld is shorter than the %lld ms over which the queue brings a "
                     "message again (ladder_ms): its last deliveries would run twice. Keep it "
                     "longer, or set retention_short",
                     (long long)o->retention_ms, (long long)o->ladder_ms);
}

int options_take(const struct once_options *from, struct once_options *to, struct once_error *why)
{
    int bad = check(from, why);
    if (bad)
        return bad;
    struct once_options o = *from;
    complete_times(&o);
    complete_numbers(&o);
    bad = check_retention(&o, why);
    if (bad)
        return bad;
    bool whole = own(&o.store, o.checker ? NULL : "sqlite:once.db");
    whole = own(&o.scope, o.group) && whole;
    whole = own(&o.group, NULL) && whole;
    whole = own(&o.prefix, "") && whole;
    whole = own(&o.key, "{key}") && whole;
    whole = own(&o.table, "once") && whole;
    if (!whole) {
        options_clear(&o);
        return once_fail(why, ONCE_NO_MEMORY, "out of memory");
    }
    *to = o;
    return ONCE_OK;
}

void options_clear(struct once_options *o)
{
    free((char *)o->store);
    free((char *)o->scope);
    free((char *)o->group);
    free((char *)o->prefix);
    free((char *)o->key);
    free((char *)o->table);
}

static int check_plain(const struct once_options *o, const struct once_driver *driver,
                       struct once_error *why)
{
    bool redis = strcmp(driver->name, "redis") == 0;
    if (!o->plain || (redis && o->mode == ONCE_LEASE) || (driver->sql && o->mode == ONCE_TABLE))
        return ONCE_OK;
    return once_fail(why, ONCE_UNSUPPORTED,
                     "plain is for ONCE_LEASE on redis and for ONCE_TABLE on a database, not for "
                     "this mode on %s",
                     driver->name);
}

int options_suit(const struct once_options *o, const struct once_driver *driver,
                 struct once_error *why)
{
    bool transactions = o->mode == ONCE_TRANSACTION || o->mode == ONCE_OFFSET;
    if (transactions && !driver->sql)
        return once_fail(why, ONCE_UNSUPPORTED,
                         "%s has no transactions: ONCE_TRANSACTION and ONCE_OFFSET need sqlite:, "
                         "postgresql:// or mysql://",
                         driver->name);
    if (transactions && o->open_when_down)
        return once_fail(why, ONCE_UNSUPPORTED,
                         "open_when_down is for ONCE_LEASE and ONCE_TABLE: without the database "
                         "there is no transaction to run in");
    return check_plain(o, driver, why);
}
