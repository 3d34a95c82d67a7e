/* names_int.h - the tables behind namesrv.h.
 *
 * A *team* is everything registered under one broker name: its *members*, one per id. What is said
 * of the team as a whole (cluster, zone, acting master) is what its member with the smallest id
 * said. A *place* is a topic on a team: how many queues, what permission.
 *
 * All functions here are called inside the routes room, except those of kvset, which are pure.
 */
#ifndef NAMESRV_NAMES_INT_H
#define NAMESRV_NAMES_INT_H

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "base/room.h"
#include "namesrv/namesrv.h"

struct member {
    struct link in_team;
    int64_t id;
    struct bytes cluster, addr, ha_addr, zone; /* kept behind the struct */
    bool acting_master;
    bool whole; /* all its topics were taken in; if memory ran out, its next word is news again */
    struct data_version version;
    uint64_t seen_ns;
    uint64_t timeout_ns;
    uint64_t conn;
};

struct team {
    struct bytes name;   /* kept behind the struct */
    struct list members; /* by rising id; a team in the map has at least one */
    size_t n_members;
    struct link touched; /* in the list of a sweep */
};

struct place {
    const struct team *team;
    int32_t read_queues, write_queues, perm, sys_flag;
};

struct topic {
    struct bytes name;    /* kept behind the struct */
    struct place *places; /* by name of the team; a topic in the map has at least one */
    size_t n, cap;
    struct link empty; /* in the list of those that lost their last place */
};

/* The settings, in memory: namespace -> key -> value. */
struct kvset {
    struct map spaces; /* of struct kv_space */
    size_t n_pairs, n_bytes;
};

struct kv_change {
    struct bytes space, key, value;
    bool drop; /* takes the key away; value means nothing */
};

struct names {
    struct names_options options;
    struct room room;
    struct map teams, topics;
    size_t n_places;
    struct map lost; /* topic → struct lost, of lost.c */
    struct list lost_by_age;
    struct kvset settings;
    struct fault note; /* what opening had to repair */
    bool saving;       /* somebody writes the file; settings do not change until then */
};

/* ---- teams.c ---- */

struct team *team_new(struct bytes name);
void team_free(struct team *team);
struct member *team_member_new(const struct names *names, const struct names_broker *b,
                               const struct data_version *version);
void team_link(struct team *team, struct member *fresh);
void team_unlink(struct team *team, struct member *member); /* and frees it */

struct team *team_find(const struct names *names, struct bytes name);
struct member *team_first(const struct team *team);
struct member *team_member_at(const struct team *team, struct bytes addr);
struct member *team_member_with(const struct team *team, int64_t id);
bool team_in_cluster(const struct team *team, struct bytes cluster);

/* A copy of the team for an answer. */
must_check enum err team_show(const struct team *team, struct arena *arena,
                              struct route_broker *out);
/* All teams, by name; in the arena. */
must_check enum err teams_sorted(const struct names *names, struct arena *arena,
                                 const struct team ***out);

/* A copy in the arena; false if it is full. */
bool names_keep(struct arena *arena, struct bytes text, struct bytes *out);
int names_compare(const void *a, const void *b); /* of struct bytes, for qsort */

/* Copies a text to where the memory behind a struct goes on. */
static inline struct bytes put_behind(uint8_t **at, struct bytes text)
{
    struct bytes copy = {*at, text.len};
    if (text.len)
        memcpy(*at, text.at, text.len);
    *at += text.len;
    return copy;
}

/* A stranger's text in a sentence. */
#define SHOWN(b) (int)((b).len < 100 ? (b).len : 100), (const char *)(b).at

/* ---- routes.c ---- */

/* Is there space for these topics of a team (which may be NULL: one that is yet to come)? */
must_check enum err routes_check(const struct names *names, const struct team *team,
                                 const struct topic_settings *topics, size_t n, struct fault *why);
/* Takes in a team's topics. With `changed` what is known is replaced, else only what is missing is
 * added. `perm_mask` is what may remain of the permissions. */
must_check enum err routes_take(struct names *names, const struct team *team,
                                const struct topic_settings *topics, size_t n, bool changed,
                                int32_t perm_mask);
void routes_wipe(struct names *names, const struct team *team);
enum loss { LOSS_LEFT, LOSS_CLOSED, LOSS_SILENT }; /* how a team has lost its last member */
void routes_forget(struct names *names, const struct team *team, enum loss how);
void routes_clear(struct names *names);

/* ---- lost.c ---- */

void lost_init(struct names *names);
void lost_clear(struct names *names);
/* The topic has lost its last place, with this team. */
void lost_add(struct names *names, struct bytes topic, const struct team *team, enum loss how);
void lost_forget(struct names *names, struct bytes topic); /* it has a place again */
/* A sentence about it; false: nothing is remembered. */
bool lost_tell(const struct names *names, struct bytes topic, char *out, size_t size);

/* ---- kv.c ---- */

#define KV_PATH     "config/kvConfig.json"
#define KV_FILE_MAX (16u << 20)

#define ORDER_SPACE BYTES("ORDER_TOPIC_CONFIG")

void kvset_init(struct kvset *set, uint64_t seed);
void kvset_clear(struct kvset *set);
/* Apache's {"configTable":{"namespace":{"key":"value"}}}. ERR_DAMAGED, ERR_TOO_BIG, ERR_NO_MEMORY;
 * then the set holds whatever was read until there. */
must_check enum err kvset_read(struct bytes text, struct kvset *set, struct fault *why);
/* The set as it will be after the change (which may be NULL). Errors stay in out->err. */
void kvset_write(struct buf *out, const struct kvset *set, const struct kv_change *change);
/* ERR_INVALID, ERR_TOO_BIG: the change may not be made. */
must_check enum err kvset_check(const struct kvset *set, const struct kv_change *change,
                                struct fault *why);
must_check enum err kvset_apply(struct kvset *set, const struct kv_change *change);
const struct bytes *kvset_get(const struct kvset *set, struct bytes space, struct bytes key);

must_check enum err kv_load(struct names *names, struct fault *why);
/* The pairs of a namespace, by key, copied. ERR_NOT_FOUND. Room: routes. */
must_check enum err kv_show(const struct names *names, struct bytes space, struct arena *arena,
                            struct kv **out, size_t *n);

#endif
