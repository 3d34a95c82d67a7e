/* brokers.c - who is registered under which name, and for how long.
 *
 * The rules are those of Apache's name server (RouteInfoManager, 5.x), told in README.md.
 */
#include "namesrv/names_int.h"

#include <inttypes.h>
#include <stdlib.h>

#define EXPIRE_AT_ONCE 256 /* of one names_expire_turn */

static enum err check_broker(const struct names_broker *b, struct fault *why);
static enum err check_topics(const struct topic_settings *topics, size_t n, struct fault *why);
static enum err admit(struct names *names, const struct names_broker *b,
                      const struct data_version *version, const struct topic_settings *topics,
                      size_t n_topics, bool *arrived, struct fault *why);
static enum err tell_registered(const struct names *names, const struct names_broker *b,
                                struct arena *arena, struct names_registered *told);
static void drop_member(struct names *names, struct team *team, struct member *member);

/* A rule that says which members go. */
struct sweep {
    bool (*goes)(struct sweep *self, const struct member *member);
    enum loss how;
    uint64_t conn, now_ns;
    struct arena *arena;
    struct bytes *addrs;
    size_t n;
};

static void sweep_members(struct names *names, struct sweep *sweep);
static bool came_by(struct sweep *self, const struct member *member);
static bool was_silent(struct sweep *self, const struct member *member);

/* ---- the house ---- */

enum err names_open(const struct names_options *options, struct names **out, struct fault *why)
{
    cleanup(free_at) struct names *names = calloc(1, sizeof *names);
    if (!names)
        return ERR_NO_MEMORY;
    names->options = *options;
    map_init(&names->teams, options->seed);
    map_init(&names->topics, options->seed);
    lost_init(names);
    kvset_init(&names->settings, options->seed);

    enum err err = options->vfs ? kv_load(names, why) : OK;
    if (err) {
        kvset_clear(&names->settings);
        return err;
    }
    room_init(&names->room, "routes", ROOM_ROUTES);
    *out = take(&names);
    return OK;
}

const char *names_note(const struct names *names)
{
    return names->note.text;
}

void names_tune(struct names *names, const struct names_options *now)
{
    names->options.order_enable = now->order_enable;
    names->options.acting_master = now->acting_master;
}

void names_close(struct names *names)
{
    if (!names)
        return;
    struct team *team;
    for (size_t i = 0; (team = map_next(&names->teams, &i));)
        team_free(team);
    map_clear(&names->teams);
    routes_clear(names);
    lost_clear(names);
    kvset_clear(&names->settings);
    room_clear(&names->room);
    free(names);
}

/* ---- verbs ---- */

enum err names_register(struct names *names, const struct names_broker *broker,
                        const struct data_version *version, const struct topic_settings *topics,
                        size_t n_topics, struct arena *arena, struct names_registered *out,
                        struct fault *why)
{
    enum err err = check_broker(broker, why);
    if (!err)
        err = check_topics(topics, n_topics, why);
    if (err)
        return err;

    struct names_registered told = {0};
    room_enter(&names->room);
    err = admit(names, broker, version, topics, n_topics, &told.arrived, why);
    if (!err)
        err = tell_registered(names, broker, arena, &told);
    room_leave(&names->room);
    if (!err)
        *out = told;
    return err;
}

void names_unregister(struct names *names, const struct names_broker *broker)
{
    room_enter(&names->room);
    struct team *team = team_find(names, broker->name);
    struct member *member = team ? team_member_at(team, broker->addr) : NULL;
    if (member)
        drop_member(names, team, member);
    room_leave(&names->room);
}

void names_heartbeat(struct names *names, const struct names_broker *broker)
{
    room_enter(&names->room);
    struct team *team = team_find(names, broker->name);
    struct member *member = team ? team_member_at(team, broker->addr) : NULL;
    if (member)
        member->seen_ns = clock_ns(names->options.clock);
    room_leave(&names->room);
}

static bool same_version(const struct data_version *a, const struct data_version *b)
{
    return a->state == b->state && a->timestamp == b->timestamp && a->counter == b->counter;
}

enum err names_version(struct names *names, const struct names_broker *broker,
                       const struct data_version *version, bool *changed,
                       struct data_version *known)
{
    room_enter(&names->room);
    struct team *team = team_find(names, broker->name);
    struct member *member = team ? team_member_at(team, broker->addr) : NULL;
    if (member) {
        member->seen_ns = clock_ns(names->options.clock);
        *changed = !member->whole || !same_version(&member->version, version);
        *known = member->version;
    }
    room_leave(&names->room);
    return member ? OK : ERR_NOT_FOUND;
}

size_t names_gone(struct names *names, uint64_t conn)
{
    struct sweep sweep = {.goes = came_by, .how = LOSS_CLOSED, .conn = conn};
    room_enter(&names->room);
    sweep_members(names, &sweep);
    room_leave(&names->room);
    return sweep.n;
}

size_t names_expire_turn(struct names *names, struct arena *arena, struct bytes **addrs)
{
    struct sweep sweep = {.goes = was_silent, .how = LOSS_SILENT, .arena = arena};
    sweep.now_ns = clock_ns(names->options.clock);
    sweep.addrs = arena_alloc(arena, EXPIRE_AT_ONCE * sizeof *sweep.addrs);
    if (!sweep.addrs)
        return 0;
    room_enter(&names->room);
    sweep_members(names, &sweep);
    room_leave(&names->room);
    *addrs = sweep.addrs;
    return sweep.n;
}

/* ---- what a registration may look like ---- */

static enum err check_text(const char *what, struct bytes text, bool needed, struct fault *why)
{
    if (needed && text.len == 0)
        return fault_set(why, ERR_INVALID, "the broker has no %s", what);
    if (text.len > NAMES_TEXT_MAX)
        return fault_set(why, ERR_TOO_BIG, "the broker's %s has %zu bytes, more than %d", what,
                         text.len, NAMES_TEXT_MAX);
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] < 0x20 || text.at[i] == 0x7f)
            return fault_set(why, ERR_INVALID, "the broker's %s has a control character", what);
    return OK;
}

/* host:port, where the host may be a name. The Go client takes the list of addresses apart at its
 * commas and quotes, so an address can have neither. */
static enum err check_addr(const char *what, struct bytes addr, struct fault *why)
{
    size_t colon = addr.len;
    bool fine = true;
    for (size_t i = 0; i < addr.len; i++) {
        uint8_t c = addr.at[i];
        fine = fine && c > ' ' && c < 0x7f && c != ',' && c != '"' && c != '\\';
        if (c == ':')
            colon = i;
    }
    int32_t port = 0;
    fine = fine && colon > 0 && colon < addr.len;
    fine = fine && bytes_to_i32(bytes_from(addr, colon + 1), &port) && port > 0 && port < 65536;
    if (!fine)
        return fault_set(why, ERR_INVALID, "the broker's %s \"%.*s\" is not host:port", what,
                         SHOWN(addr));
    return OK;
}

static enum err check_broker(const struct names_broker *b, struct fault *why)
{
    enum err err = check_text("cluster", b->cluster, true, why);
    if (!err)
        err = check_text("name", b->name, true, why);
    if (!err)
        err = check_text("address", b->addr, true, why);
    if (!err)
        err = check_addr("address", b->addr, why);
    if (!err)
        err = check_text("replication address", b->ha_addr, false, why);
    if (!err && b->ha_addr.len > 0)
        err = check_addr("replication address", b->ha_addr, why);
    if (!err)
        err = check_text("zone", b->zone, false, why);
    if (!err && b->id < 0)
        return fault_set(why, ERR_INVALID, "the broker's id %" PRId64 " is negative", b->id);
    return err;
}

static enum err check_topics(const struct topic_settings *topics, size_t n, struct fault *why)
{
    if (n > NAMES_TOPICS_MAX)
        return fault_set(why, ERR_TOO_BIG, "the broker has %zu topics, more than %d", n,
                         NAMES_TOPICS_MAX);
    for (size_t i = 0; i < n; i++) {
        if (topics[i].name.len == 0)
            return fault_set(why, ERR_INVALID, "a topic of the broker has no name");
        if (topics[i].name.len > NAMES_TOPIC_MAX)
            return fault_set(why, ERR_TOO_BIG, "topic %.*s… has a name of %zu bytes, more than %d",
                             SHOWN(topics[i].name), topics[i].name.len, NAMES_TOPIC_MAX);
    }
    return OK;
}

/* ---- registering ---- */

/* The two registrations that Apache refuses. The address has given up its former id by then. */
static enum err check_refusals(const struct names_broker *b, const struct data_version *version,
                               const struct member *was, const struct member *holder,
                               size_t n_topics, struct fault *why)
{
    if (holder && holder != was && holder->version.state > version->state)
        return fault_set(why, ERR_STALE,
                         "id %" PRId64 " of broker %.*s belongs to %.*s, whose state version "
                         "%" PRId64 " is newer than %" PRId64,
                         b->id, SHOWN(b->name), SHOWN(holder->addr), holder->version.state,
                         version->state);
    if (!holder && n_topics == 1)
        return fault_set(why, ERR_DENIED,
                         "register broker failed: a first registration with a single topic is an "
                         "update for a broker that is not known here (%.*s, id %" PRId64 ")",
                         SHOWN(b->name), b->id);
    return OK;
}

static enum err check_space(const struct names *names, const struct team *team,
                            const struct names_broker *b, bool replaces, struct fault *why)
{
    if (!team && names->teams.n >= NAMES_BROKERS_MAX)
        return fault_set(why, ERR_TOO_BIG, "%d brokers are registered, which is the maximum",
                         NAMES_BROKERS_MAX);
    if (team && !replaces && team->n_members >= NAMES_ADDRS_MAX)
        return fault_set(why, ERR_TOO_BIG, "broker %.*s has %d addresses, which is the maximum",
                         SHOWN(b->name), NAMES_ADDRS_MAX);
    return OK;
}

/* Puts the new member in the place of those it replaces, into a team that is made if need be. */
static enum err seat_member(struct names *names, struct team **team, struct bytes name,
                            struct member *fresh, struct member *was, struct member *holder)
{
    if (!*team) {
        struct team *made = team_new(name);
        if (!made)
            return ERR_NO_MEMORY;
        enum err err = map_put(&names->teams, made->name, made);
        if (err) {
            free(made);
            return err;
        }
        *team = made;
    }
    if (was)
        team_unlink(*team, was);
    if (holder && holder != was)
        team_unlink(*team, holder);
    team_link(*team, fresh);
    return OK;
}

/* Room: routes. */
static enum err admit(struct names *names, const struct names_broker *b,
                      const struct data_version *version, const struct topic_settings *topics,
                      size_t n_topics, bool *arrived, struct fault *why)
{
    room_held(&names->room);
    struct team *team = team_find(names, b->name);
    struct member *was = team ? team_member_at(team, b->addr) : NULL;
    struct member *holder = team ? team_member_with(team, b->id) : NULL;

    enum err err = check_refusals(b, version, was, holder, n_topics, why);
    if (err) {
        if (was && was != holder)
            drop_member(names, team, was);
        return err;
    }
    err = check_space(names, team, b, was || holder, why);
    if (!err)
        err = routes_check(names, team, topics, n_topics, why);
    if (err)
        return err;

    *arrived = !was || was != holder;
    bool changed = *arrived || !was->whole || !same_version(&was->version, version);
    cleanup(free_at) struct member *fresh = team_member_new(names, b, version);
    if (!fresh)
        return ERR_NO_MEMORY;
    err = seat_member(names, &team, b->name, fresh, was, holder);
    if (err)
        return err;
    struct member *member = take(&fresh);

    /* The master speaks for the team; without one, so does the smallest id, but only for reading.
     * Slaves older than 5.0 never do: they say nothing about acting masters. */
    bool speaks = member->id == 0 || (b->acting_told && member == team_first(team));
    if (speaks)
        err =
            routes_take(names, team, topics, n_topics, changed, member->id == 0 ? ~0 : ~PERM_WRITE);
    member->whole = !err;
    return err;
}

/* Room: routes. */
static enum err tell_registered(const struct names *names, const struct names_broker *b,
                                struct arena *arena, struct names_registered *told)
{
    room_held(&names->room);
    const struct member *master = team_first(team_find(names, b->name));
    if (b->id != 0 && master->id == 0) {
        if (!names_keep(arena, master->addr, &told->master_addr) ||
            !names_keep(arena, master->ha_addr, &told->ha_addr))
            return ERR_TOO_BIG;
    }
    enum err err = kv_show(names, ORDER_SPACE, arena, &told->order, &told->n_order);
    if (err && err != ERR_NOT_FOUND)
        return err;
    told->any_order = !err;
    return OK;
}

/* ---- leaving ---- */

/* Room: routes. A team that has lost a member: without any it is forgotten with its topics; without
 * a master nothing can be written to it, if its slaves act for the master. */
static void after_loss(struct names *names, struct team *team, enum loss how)
{
    room_held(&names->room);
    if (team->n_members == 0) {
        routes_forget(names, team, how);
        (void)map_remove(&names->teams, team->name);
        team_free(team);
        return;
    }
    const struct member *first = team_first(team);
    if (first->acting_master && first->id > 0)
        routes_wipe(names, team);
}

static void drop_member(struct names *names, struct team *team, struct member *member)
{
    team_unlink(team, member);
    after_loss(names, team, LOSS_LEFT);
}

/* Room: routes. */
static void sweep_members(struct names *names, struct sweep *sweep)
{
    room_held(&names->room);
    struct list touched;
    list_init(&touched);
    struct team *team;
    for (size_t i = 0; (team = map_next(&names->teams, &i));) {
        size_t before = team->n_members;
        list_each(k, &team->members) {
            struct member *member = list_entry(k, struct member, in_team);
            if (!sweep->goes(sweep, member))
                continue;
            team_unlink(team, member);
            sweep->n++;
        }
        if (team->n_members < before)
            list_add_tail(&touched, &team->touched);
    }
    for (struct link *k; (k = list_pop(&touched));)
        after_loss(names, list_entry(k, struct team, touched), sweep->how);
}

static bool came_by(struct sweep *self, const struct member *member)
{
    return member->conn == self->conn;
}

/* Stops when it cannot tell any more; the next turn goes on. */
static bool was_silent(struct sweep *self, const struct member *member)
{
    if (self->n == EXPIRE_AT_ONCE)
        return false;
    if (self->now_ns < member->seen_ns || self->now_ns - member->seen_ns <= member->timeout_ns)
        return false;
    return names_keep(self->arena, member->addr, &self->addrs[self->n]);
}
