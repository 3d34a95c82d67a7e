/* teams.c - the tables of broker names and their members, and what is shown of them. */
#include "namesrv/names_int.h"

#include <stdlib.h>

#define NS_PER_MS      1000000u
#define TIMEOUT_MS_MAX (24 * 3600 * 1000) /* a stranger's timeout may not keep it here for ever */

/* ---- members and teams ---- */

struct member *team_member_new(const struct names *names, const struct names_broker *b,
                               const struct data_version *version)
{
    size_t text = b->cluster.len + b->addr.len + b->ha_addr.len + b->zone.len;
    struct member *m = calloc(1, sizeof *m + text);
    if (!m)
        return NULL;
    uint8_t *behind = (uint8_t *)(m + 1);
    m->cluster = put_behind(&behind, b->cluster);
    m->addr = put_behind(&behind, b->addr);
    m->ha_addr = put_behind(&behind, b->ha_addr);
    m->zone = put_behind(&behind, b->zone);

    int64_t timeout_ms = b->timeout_ms > 0 ? b->timeout_ms : NAMES_EXPIRE_MS;
    if (timeout_ms > TIMEOUT_MS_MAX)
        timeout_ms = TIMEOUT_MS_MAX;
    m->id = b->id;
    m->acting_master = b->acting_told && b->acting_master;
    m->version = *version;
    m->seen_ns = clock_ns(names->options.clock);
    m->timeout_ns = (uint64_t)timeout_ms * NS_PER_MS;
    m->conn = b->conn;
    return m;
}

struct team *team_new(struct bytes name)
{
    struct team *team = calloc(1, sizeof *team + name.len);
    if (!team)
        return NULL;
    uint8_t *behind = (uint8_t *)(team + 1);
    team->name = put_behind(&behind, name);
    list_init(&team->members);
    return team;
}

void team_free(struct team *team)
{
    list_each(k, &team->members)
        free(list_entry(k, struct member, in_team));
    free(team);
}

struct member *team_member_at(const struct team *team, struct bytes addr)
{
    list_each(k, &team->members) {
        struct member *member = list_entry(k, struct member, in_team);
        if (bytes_equal(member->addr, addr))
            return member;
    }
    return NULL;
}

struct member *team_member_with(const struct team *team, int64_t id)
{
    list_each(k, &team->members) {
        struct member *member = list_entry(k, struct member, in_team);
        if (member->id == id)
            return member;
    }
    return NULL;
}

void team_unlink(struct team *team, struct member *member)
{
    list_remove(&member->in_team);
    team->n_members--;
    free(member);
}

void team_link(struct team *team, struct member *fresh)
{
    struct link *before = team->members.head.next;
    while (before != &team->members.head &&
           list_entry(before, struct member, in_team)->id < fresh->id)
        before = before->next;
    fresh->in_team = (struct link){before->prev, before};
    before->prev->next = &fresh->in_team;
    before->prev = &fresh->in_team;
    team->n_members++;
}

struct team *team_find(const struct names *names, struct bytes name)
{
    return map_get(&names->teams, name);
}

struct member *team_first(const struct team *team)
{
    invariant(team->n_members > 0);
    return list_entry(list_first(&team->members), struct member, in_team);
}

bool team_in_cluster(const struct team *team, struct bytes cluster)
{
    list_each(k, &team->members)
        if (bytes_equal(list_entry(k, struct member, in_team)->cluster, cluster))
            return true;
    return false;
}

enum err team_show(const struct team *team, struct arena *arena, struct route_broker *out)
{
    const struct member *first = team_first(team);
    struct route_broker shown = {.acting_master = first->acting_master};
    shown.addrs = arena_alloc(arena, team->n_members * sizeof *shown.addrs);
    bool kept = shown.addrs && names_keep(arena, team->name, &shown.name) &&
                names_keep(arena, first->cluster, &shown.cluster) &&
                names_keep(arena, first->zone, &shown.zone);
    if (!kept)
        return ERR_TOO_BIG;
    list_each(k, &team->members) {
        const struct member *member = list_entry(k, struct member, in_team);
        struct route_addr *addr = &shown.addrs[shown.n_addrs++];
        addr->id = member->id;
        if (!names_keep(arena, member->addr, &addr->addr))
            return ERR_TOO_BIG;
    }
    *out = shown;
    return OK;
}

static int compare_teams(const void *a, const void *b)
{
    const struct team *const *x = a, *const *y = b;
    return bytes_compare((*x)->name, (*y)->name);
}

enum err teams_sorted(const struct names *names, struct arena *arena, const struct team ***out)
{
    const struct team **teams = arena_alloc(arena, names->teams.n * sizeof *teams);
    if (!teams)
        return ERR_TOO_BIG;
    size_t n = 0;
    const struct team *team;
    for (size_t i = 0; (team = map_next(&names->teams, &i));)
        teams[n++] = team;
    if (n > 0)
        qsort(teams, n, sizeof *teams, compare_teams);
    *out = teams;
    return OK;
}

bool names_keep(struct arena *arena, struct bytes text, struct bytes *out)
{
    struct bytes copy = arena_copy(arena, text);
    if (!copy.at)
        return false;
    *out = copy;
    return true;
}

int names_compare(const void *a, const void *b)
{
    const struct bytes *x = a, *y = b;
    return bytes_compare(*x, *y);
}

/* ---- questions ---- */

struct cluster_entry {
    struct bytes cluster, team;
};

static int compare_entries(const void *a, const void *b)
{
    const struct cluster_entry *x = a, *y = b;
    int order = bytes_compare(x->cluster, y->cluster);
    return order ? order : bytes_compare(x->team, y->team);
}

/* Makes the lists of clusters from one entry for each member. */
static enum err group_clusters(struct cluster_entry *entries, size_t n, struct arena *arena,
                               struct cluster_names **out, size_t *n_out)
{
    if (n > 0)
        qsort(entries, n, sizeof *entries, compare_entries);
    struct cluster_names *clusters = arena_alloc(arena, n * sizeof *clusters);
    struct bytes *names = arena_alloc(arena, n * sizeof *names);
    if (!clusters || !names)
        return ERR_TOO_BIG;

    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && compare_entries(&entries[i - 1], &entries[i]) == 0)
            continue;
        if (i == 0 || !bytes_equal(entries[i - 1].cluster, entries[i].cluster))
            clusters[used++] = (struct cluster_names){entries[i].cluster, names + i, 0};
        struct cluster_names *last = &clusters[used - 1];
        last->brokers[last->n_brokers++] = entries[i].team;
    }
    *out = clusters;
    *n_out = used;
    return OK;
}

/* Copies all teams, and an entry for each member's cluster. */
static enum err show_all(const struct names *names, struct arena *arena,
                         struct route_broker *brokers, struct cluster_entry *entries)
{
    const struct team **teams;
    enum err err = teams_sorted(names, arena, &teams);
    for (size_t i = 0; !err && i < names->teams.n; i++) {
        err = team_show(teams[i], arena, &brokers[i]);
        list_each(k, &teams[i]->members) {
            struct member *member = list_entry(k, struct member, in_team);
            if (!err && !names_keep(arena, member->cluster, &entries->cluster))
                err = ERR_TOO_BIG;
            entries->team = brokers[i].name;
            entries++;
        }
    }
    return err;
}

enum err names_clusters(struct names *names, struct arena *arena, struct route_broker **brokers,
                        size_t *n_brokers, struct cluster_names **clusters, size_t *n_clusters)
{
    room_enter(&names->room);
    size_t n = names->teams.n, n_members = 0;
    const struct team *team;
    for (size_t i = 0; (team = map_next(&names->teams, &i));)
        n_members += team->n_members;

    struct route_broker *shown = arena_alloc(arena, n * sizeof *shown);
    struct cluster_entry *entries = arena_alloc(arena, n_members * sizeof *entries);
    enum err err = shown && entries ? show_all(names, arena, shown, entries) : ERR_TOO_BIG;
    room_leave(&names->room);

    if (!err)
        err = group_clusters(entries, n_members, arena, clusters, n_clusters);
    if (err)
        return err;
    *brokers = shown;
    *n_brokers = n;
    return OK;
}

enum err names_members(struct names *names, struct bytes broker, struct arena *arena,
                       struct route_broker *out)
{
    room_enter(&names->room);
    struct team *team = team_find(names, broker);
    enum err err = team ? team_show(team, arena, out) : ERR_NOT_FOUND;
    room_leave(&names->room);
    return err;
}
