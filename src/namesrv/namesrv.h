/* namesrv.h - the name server: who serves which topic, and who is alive.
 *
 * Brokers tell it about themselves (register, every 30 s) and clients ask it for routes. It keeps
 * no history (but for a hint in the answer when a topic has gone with its broker): what it knows
 * was told within the last two minutes, and a broker whose connection closes is forgotten at once.
 * Several name servers run side by side and know nothing of each other; every broker tells all of
 * them. Only the key/value settings (ordered topics, above all) are kept on disk, in Apache's
 * kvConfig.json.
 *
 *     cluster ── broker name ── address by id (0 the master) ── liveness, data version
 *     topic ── broker name ── queue counts and permission
 *
 * Room: routes (1). Verbs may be called from any thread; answers are copied into the caller's
 * arena. Time: names_expire_turn looks at the clock it was given; somebody calls it every few
 * seconds.
 */
#ifndef NAMESRV_NAMESRV_H
#define NAMESRV_NAMESRV_H

#include "base/arena.h"
#include "base/clock.h"
#include "base/vfs.h"
#include "msg/msg.h"
#include "msg/route.h"

struct names;

struct names_options {
    struct clock *clock;
    struct vfs *vfs; /* where config/kvConfig.json lives; NULL: kept in memory only */
    uint64_t seed;   /* for hashing */
    /* These may change: names_tune. */
    atomic_bool order_enable; /* routes carry the ordered-topic setting (orderMessageEnable) */
    /* Routes show the smallest id as 0 if there is no 0 (supportActingMaster). */
    atomic_bool acting_master;
};

#define NAMES_EXPIRE_MS 120000

/* What may be told to us at most. Over it: ERR_TOO_BIG, and nothing has changed. */
#define NAMES_BROKERS_MAX   1024      /* broker names */
#define NAMES_ADDRS_MAX     64        /* addresses of one broker name */
#define NAMES_TOPICS_MAX    (1 << 18) /* topics */
#define NAMES_SERVES_MAX    (1 << 20) /* topics, once for every broker that serves it */
#define NAMES_TEXT_MAX      255       /* bytes of a cluster, broker, address, zone or namespace */
#define NAMES_TOPIC_MAX     512       /* bytes of a topic or key: %RETRY%group_topic may be long */
#define NAMES_KV_SPACES_MAX 256
#define NAMES_KV_PAIRS_MAX  32768
#define NAMES_KV_VALUE_MAX  (64 << 10)
#define NAMES_KV_BYTES_MAX  (2 << 20) /* of all keys and values together */

must_check enum err names_open(const struct names_options *options, struct names **out,
                               struct fault *why);
void names_close(struct names *names);
/* Takes over what may change while it runs. Any thread. */
void names_tune(struct names *names, const struct names_options *options);
/* What opening had to repair, in words for the operator; empty: nothing. */
const char *names_note(const struct names *names);

/* ---- brokers ---- */

struct names_broker {
    struct bytes cluster, name, addr, ha_addr, zone;
    int64_t id;
    int64_t timeout_ms; /* 0: NAMES_EXPIRE_MS */
    bool acting_told;   /* it said something about acting masters, as brokers do since 5.0 */
    bool acting_master; /* and this is what */
    uint64_t conn;      /* the connection it came by; its closing ends the registration */
};

struct names_registered {
    bool arrived;                      /* this address was not here under this id before */
    struct bytes master_addr, ha_addr; /* for a slave: where its master is; else empty */
    bool any_order;                    /* false: ORDER_TOPIC_CONFIG was never set */
    struct kv *order;                  /* ORDER_TOPIC_CONFIG, by key */
    size_t n_order;
};

/* ERR_INVALID (a name or address that is none), ERR_DENIED (a first table with a single topic),
 * ERR_STALE (another address holds this id with a newer state; Apache answers that with success),
 * ERR_TOO_BIG. `why` is the remark. */
must_check enum err names_register(struct names *names, const struct names_broker *broker,
                                   const struct data_version *version,
                                   const struct topic_settings *topics, size_t n_topics,
                                   struct arena *arena, struct names_registered *out,
                                   struct fault *why);
/* The three below look at name and addr only. */
void names_unregister(struct names *names, const struct names_broker *broker);
void names_heartbeat(struct names *names, const struct names_broker *broker);
/* Has the broker something new to tell? Refreshes its liveness. ERR_NOT_FOUND: it is not here, so
 * all of it is new. */
must_check enum err names_version(struct names *names, const struct names_broker *broker,
                                  const struct data_version *version, bool *changed,
                                  struct data_version *known);

/* A connection has closed: brokers registered by it are gone. Returns how many. */
size_t names_gone(struct names *names, uint64_t conn);
/* Forgets brokers that were silent too long, a bounded number at a time. Returns how many; their
 * addresses for the log. */
size_t names_expire_turn(struct names *names, struct arena *arena, struct bytes **addrs);

/* ---- questions; lists come sorted ---- */

/* ERR_UNKNOWN_TOPIC; `why` tells what is known instead, in the words clients look for. */
must_check enum err names_route(struct names *names, struct bytes topic, struct arena *arena,
                                struct route *out, struct fault *why);
/* Leaves the brokers of one zone, and those that have no master (__ZONE_MODE, __ZONE_NAME). */
void route_keep_zone(struct route *route, struct bytes zone);

must_check enum err names_clusters(struct names *names, struct arena *arena,
                                   struct route_broker **brokers, size_t *n_brokers,
                                   struct cluster_names **clusters, size_t *n_clusters);
/* ERR_NOT_FOUND: no broker has this name. */
must_check enum err names_members(struct names *names, struct bytes broker, struct arena *arena,
                                  struct route_broker *out);

enum names_topics {
    NAMES_ALL,
    NAMES_OF_CLUSTER,
    NAMES_SYSTEM, /* the clusters' and brokers' names, which are topics of theirs */
    NAMES_UNIT,
    NAMES_UNIT_SUB,
    NAMES_UNIT_SUB_ONLY
};
/* `addr` is any broker's address, for NAMES_SYSTEM. */
must_check enum err names_topic_list(struct names *names, enum names_topics which,
                                     struct bytes cluster, struct arena *arena,
                                     struct bytes **topics, size_t *n, struct bytes *addr);

/* ---- changes by an operator ---- */

/* Takes or gives back the write permission of all topics of a broker; how many topics it has. Holds
 * until the broker registers with another data version. */
size_t names_write_perm(struct names *names, struct bytes broker, bool allow);
/* `cluster` empty: everywhere. The topic comes back if a broker still has it. */
void names_delete_topic(struct names *names, struct bytes topic, struct bytes cluster);
/* Adds to what is known of the topic. ERR_NOT_FOUND: a broker in it is not registered. */
must_check enum err names_add_topic(struct names *names, struct bytes topic,
                                    const struct route *route, struct fault *why);

/* Kept on disk before they return; may wait for it. */
must_check enum err names_kv_put(struct names *names, struct bytes space, struct bytes key,
                                 struct bytes value, struct fault *why);
must_check enum err names_kv_delete(struct names *names, struct bytes space, struct bytes key,
                                    struct fault *why); /* OK also if it was not there */
must_check enum err names_kv_get(struct names *names, struct bytes space, struct bytes key,
                                 struct arena *arena, struct bytes *value);
/* By key. ERR_NOT_FOUND if the namespace was never used. */
must_check enum err names_kv_list(struct names *names, struct bytes space, struct arena *arena,
                                  struct kv **out, size_t *n);

#endif
