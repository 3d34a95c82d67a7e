/* audit_int.h - the truth about duplicates: the model of `oncemq audit`.
 *
 *     brokers ──┐                       ┌─► pile of messages ──sorted──► who was sent twice
 *               ├─ messages, entries ──►│
 *     folder ───┘   of the ledger       └─► pile of entries  ──sorted──► what became of each key
 *
 * A message is known by two fingerprints, of its topic, keys and body, and of its topic, unique id
 * and body. Sorted by both, all that were sent twice stand together: those of one id are what a
 * producer's retry makes; those of one key and body with several ids are what somebody upstream
 * sent twice. The body belongs to both, because messages of one batch may share their id, and
 * different things may share a key. Messages without keys have the second one only.
 *
 * Not looked at are the topics in which brokers keep copies on purpose (retries, dead letters, what
 * waits for its time), and what `oncemq dlq resend` has sent back.
 *
 * What became of keys is told by the ledger (ledger/entry.h): each claim, each end of one, and each
 * delivery that found its work done already. A key that was delivered again without having failed
 * before was delivered twice. A key whose claim was lost, or taken from an owner whose run never
 * ended, is unsure: the effect may have happened twice, unless the handler guards it by the fence.
 *
 * Memory: two piles (pile.h), and what topics, queues and groups there are.
 */
#ifndef CLI_AUDIT_INT_H
#define CLI_AUDIT_INT_H

#include "base/map.h"
#include "cli/cli.h"
#include "cli/pile.h"
#include "ledger/entry.h"

#define AUDIT_EXAMPLES 10 /* of each topic and group */

struct audit_topic {
    uint32_t number;
    uint64_t messages, twice_by_id, twice_by_key;
    uint32_t examples;
    size_t name_len;
    char name[];
};

struct audit_group {
    uint32_t number;
    uint64_t keys, done, again, suppressed, refused, unsure;
    uint32_t examples;
    size_t name_len;
    char name[];
};

/* A queue; of a folder, a topic: positions tell the rest. */
struct audit_lane {
    struct audit_topic *topic;
    const char *broker; /* in the arena; NULL: a folder's */
    int32_t queue;
};

/* Two copies of one message. They are read again to be shown. */
struct audit_pair {
    const struct audit_lane *lanes[2];
    int64_t places[2]; /* offsets; of a folder, positions */
    bool by_key;
    uint64_t copies;
};

/* A key that is unsure, and by what that was seen. */
struct audit_doubt {
    const struct audit_group *group;
    const char *key, *event; /* in the arena */
    int64_t at_ms;
};

struct audit {
    struct cli *cli;
    struct pile *messages, *entries;
    struct map topics, groups; /* by name */
    struct audit_topic **topic_list;
    struct audit_group **group_list;
    struct audit_lane **lanes;
    size_t n_topics, n_groups, n_lanes;
    size_t room_topics, room_groups, room_lanes;
    uint64_t n_messages, n_entries, resent;
    uint64_t bad_entries; /* records of the ledger that cannot be read */
    int64_t refused;      /* by brokers with producer dedup, since they started; -1: not known */
    bool ledger;          /* there is one */
    struct audit_pair *pairs;
    struct audit_doubt *doubts;
    size_t n_pairs, n_doubts, room_pairs, room_doubts;
};

/* A message as it is stored. */
struct audit_message {
    struct bytes id, keys, body;
    bool resent; /* from the dead letters */
    int64_t place;
};

/* An enum status each; what fails is said. */
int audit_open(struct audit *a, struct cli *cli);
void audit_close(struct audit *a);
/* NULL, said: no memory. */
struct audit_topic *audit_topic(struct audit *a, struct bytes name);
int audit_lane(struct audit *a, struct audit_topic *topic, const char *broker, int32_t queue,
               uint32_t *out);
int audit_see(struct audit *a, uint32_t lane, const struct audit_message *m);
/* A record of the ledger's topic. */
int audit_record(struct audit *a, struct bytes body);
/* Everything was seen: counts. */
int audit_count(struct audit *a);

/* The two sources. */
int audit_live(struct audit *a);
int audit_folder(struct audit *a, const char *folder);
/* Reads one copy of a pair again; `put` gets it, if it is still there. */
typedef void audit_put(struct cli *cli, struct bytes id, struct bytes keys, int64_t stored_ms,
                       int32_t queue, int64_t offset);
int audit_live_show(struct audit *a, const struct audit_lane *lane, int64_t place, audit_put *put);
int audit_folder_show(struct audit *a, const char *folder, int64_t place, audit_put *put);

#endif
