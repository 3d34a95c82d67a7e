/* admin.h - what administration asks of name servers and brokers, as functions.
 *
 * Each asks one question of many brokers, topics or groups, all at once, and gives the answers as
 * structs that live in the command's arena. Protocol numbers, field names and the forms of bodies
 * are known here and nowhere above. What servers say is believed in form only after it was read:
 * numbers that make no sense are 0, names are whatever they are.
 *
 * What fails is said by the function itself; its result is an enum status, as a command's:
 *
 *     STATUS_OK        all who were asked have answered
 *     STATUS_PARTLY    some have not, which was said; the answers of the others are there
 *     else             nobody has; there is nothing
 *
 * A broker that did not answer one question is not asked the next, nor said again, as long as the
 * same struct admin_cluster is used.
 *
 * admin_none() tells the last from the first two, and admin_join() keeps the worst of two results:
 *
 *     int status = admin_cluster(cli, &cluster);
 *     if (!admin_none(status))
 *         status = admin_join(status, admin_groups(cli, &cluster, &groups, &n));
 *     if (admin_none(status))
 *         return status;
 *
 * A command that asks again and again (--watch) takes an arena of its own for each round:
 * admin_round_begin and admin_round_end.
 */
#ifndef CLI_ADMIN_H
#define CLI_ADMIN_H

#include "base/json.h"
#include "cli/cli.h"
#include "msg/msg.h"

/* ---- asking: admin.c ---- */

bool admin_none(int status);
int admin_join(int a, int b);

/* Fields are a list of names and values ended by NULL: ASK("topic", name, "queueId", "0"). */
#define ASK(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

/* Asks and has the answer's body as JSON (`*out` NULL: it is empty). `server` NULL: the name
 * servers. The enum omq_code of liboncemq; nothing is said. */
int admin_ask(struct cli *cli, const char *server, int request, const char *const *fields,
              struct bytes body, const struct json **out, struct omq_error *why);

/* One of many questions. */
struct admin_ask {
    const char *server; /* "host:port"; NULL: the name servers */
    const char *broker; /* its name, for what is said when it fails; may be NULL */
    int request;
    const char *const *fields; /* admin_fields; NULL: none */
    struct bytes body;
    int absent; /* a response code that is an answer as well: there is none */
    bool raw;   /* the answer's body is no JSON */

    /* Filled in. */
    int code; /* enum omq_code */
    struct omq_error why;
    const struct json *json; /* NULL: an empty body, or absent */
    struct bytes text;       /* the body, with a NUL behind it that is not counted */
    const struct omq_property *answer_fields;
    size_t n_answer_fields;
};
/* A copy of the list, not of its texts, that outlives the statement. */
const char *const *admin_fields(struct cli *cli, const char *const *fields);
/* All at once. STATUS_OK: each has its code; nothing of them is said. */
int admin_ask_all(struct cli *cli, struct admin_ask *asks, size_t n);
/* Says what failed, once for each server. The status as above. */
int admin_verdict(struct cli *cli, const struct admin_ask *asks, size_t n);
const char *admin_answer_field(const struct admin_ask *ask, const char *name); /* NULL: none */

/* Zeroed memory in the arena; the program ends if there is none. */
void *admin_alloc(struct cli *cli, size_t n, size_t size);
char *admin_format(struct cli *cli, const char *format, ...) printf_like(2, 3);
/* A text of a JSON node with a NUL at its end; "" if there is none. */
const char *admin_text(struct cli *cli, const struct json *node);
int64_t admin_number(const struct json *node); /* 0 if it is no number from 0 on */
int64_t admin_time(const struct json *node);   /* ms since 1970; -1 if it is no time */
int64_t admin_sum(int64_t a, int64_t b);       /* at most INT64_MAX, whatever servers say */
double admin_real(const struct json *node);    /* 0 if it is none */

struct admin_round {
    struct arena kept;
};
void admin_round_begin(struct cli *cli, struct admin_round *round);
void admin_round_end(struct cli *cli, struct admin_round *round); /* what it had is gone */

/* ---- the cluster: admin.c ---- */

struct admin_broker {
    const char *name, *cluster;
    const char *master; /* "host:port"; NULL: it has none just now */
    struct admin_address {
        int64_t id; /* 0: the master */
        const char *address;
    } * addresses; /* by rising id */
    size_t n_addresses;
    bool lost; /* it did not answer; it is asked no more, and what it knows is missing */
};
struct admin_cluster {
    struct admin_broker *brokers; /* by cluster and name */
    size_t n;
};
int admin_cluster(struct cli *cli, struct admin_cluster *out);
/* What one name server says (NULL: any of them); nothing is said. An enum omq_code. */
int admin_cluster_of(struct cli *cli, const char *name_server, struct admin_cluster *out,
                     struct omq_error *why);
/* Those that the options --broker (a name or an address) and --cluster name, if the command has
 * them and they are given; otherwise all. STATUS_NOT_FOUND, said: there is none of that name. */
int admin_chosen(struct cli *cli, struct admin_cluster *out);
/* For commands that change things: all answered or nothing is done. STATUS_PARTLY becomes
 * STATUS_UNREACHABLE, said. */
int admin_whole(struct cli *cli, int status);
/* STATUS_UNREACHABLE, said: a broker has no master, so nothing can be changed there. */
int admin_masters(struct cli *cli, const struct admin_cluster *on);
const struct admin_broker *admin_broker_find(const struct admin_cluster *in, const char *name);
/* Who is asked about a broker: its master, or the first slave there is; NULL: nobody, or lost. */
const char *admin_reader(const struct admin_broker *broker);
/* The name servers that were given, one by one. */
struct admin_names {
    const char **names;
    size_t n;
};
struct admin_names admin_name_servers(struct cli *cli);
/* Each of them asked for the cluster that it knows. STATUS_OK: each has its code; nothing is said.
 */
struct admin_name_server {
    const char *address;
    int code; /* enum omq_code */
    struct omq_error why;
    struct admin_cluster knows;
};
int admin_name_servers_ask(struct cli *cli, struct admin_name_server **out, size_t *n);

/* All topics that the name servers know, by name. */
int admin_topics(struct cli *cli, struct admin_names *out);

/* Who serves a topic. STATUS_NOT_FOUND, said: there is no such topic. */
struct admin_route {
    struct admin_cluster on;
    struct admin_route_queues {
        const char *broker;
        int32_t read_queues, write_queues, perm, sys_flag;
    } * queues;
    size_t n_queues;
};
int admin_route(struct cli *cli, const char *topic, struct admin_route *out);
/* The same with nothing said: an enum omq_code. */
int admin_route_try(struct cli *cli, const char *topic, struct admin_route *out,
                    struct omq_error *why);

/* ---- topics: admin_topics.c ---- */

/* Retries, dead letters, what brokers keep for themselves; with `on`, which may be NULL, also the
 * topics that are called like a cluster or a broker. */
bool admin_topic_is_system(const struct admin_cluster *on, const char *topic);

struct admin_topic { /* on one broker */
    const char *topic, *broker;
    int32_t read_queues, write_queues, perm, sys_flag;
    bool order, multi_tag;
    bool whole; /* these numbers were told; else what is missing is 0, and must not be written back
                 */
    const struct json *attributes; /* an object, or NULL */
};
/* All of all these brokers, by topic and broker. */
int admin_topic_configs(struct cli *cli, const struct admin_cluster *on, struct admin_topic **out,
                        size_t *n);
/* One topic, of the brokers that have it (perhaps none), by broker. */
int admin_topic_config(struct cli *cli, const struct admin_cluster *on, const char *topic,
                       struct admin_topic **out, size_t *n);
/* "" if it has none. */
const char *admin_attribute(struct cli *cli, const struct admin_topic *topic, const char *name);

struct admin_topic_stats {
    const char *topic;
    struct admin_queue_stats {
        const char *broker;
        int32_t queue;
        int64_t min, max; /* 0 <= min <= max */
        int64_t last_ms;  /* of the newest message; 0: there is none */
    } * queues;           /* by broker and number */
    size_t n;
    int64_t messages; /* of all queues */
    int64_t last_ms;
    double put_tps; /* of all brokers */
};
/* Of each topic, in the order of `topics`; one that no broker has is without queues. */
int admin_topic_stats(struct cli *cli, const struct admin_cluster *on, const char *const *topics,
                      size_t n, struct admin_topic_stats **out);
/* The groups that have offsets in each topic, or read it now; by name. */
int admin_topic_groups(struct cli *cli, const struct admin_cluster *on, const char *const *topics,
                       size_t n, struct admin_names **out);

/* ---- groups: admin_groups.c ---- */

/* Groups that brokers make for themselves. */
bool admin_group_is_system(const char *group);

struct admin_group { /* on one broker */
    const char *group, *broker;
    struct group_settings set;
    const struct json *json; /* all of it */
};
/* All of all these brokers, by group and broker. */
int admin_groups(struct cli *cli, const struct admin_cluster *on, struct admin_group **out,
                 size_t *n);
/* One group, of the brokers that have it (perhaps none), by broker. */
int admin_group_config(struct cli *cli, const struct admin_cluster *on, const char *group,
                       struct admin_group **out, size_t *n);

struct admin_consume_stats {
    const char *group;
    struct admin_progress {
        const char *topic, *broker;
        int32_t queue;
        int64_t offset, pull_offset, end; /* committed; given to consumers; of the queue */
        int64_t lag;                      /* not negative */
        int64_t last_ms; /* when the last message it has consumed was stored; 0: not known */
    } * queues;          /* by topic, broker and number */
    size_t n;
    int64_t lag;
    double tps; /* of all brokers */
};
/* Of each group, in the order of `groups`. `topic` NULL: all that it has offsets in. */
int admin_consume_stats(struct cli *cli, const struct admin_cluster *on, const char *const *groups,
                        size_t n, const char *topic, struct admin_consume_stats **out);

struct admin_client {
    const char *group, *id, *address, *language;
    int32_t version;    /* of the protocol; see admin_version */
    int64_t seen_ms;    /* producers only; 0: not known */
    const char *broker; /* one it is connected to */
};
struct admin_consumers {
    const char *group;
    struct admin_client *clients; /* by id; nobody: the group is offline */
    size_t n;
    struct admin_subscription {
        const char *topic, *expression, *type; /* "TAG", "SQL92" */
    } * subscriptions;                         /* by topic */
    size_t n_subscriptions;
    const char *consume_type, *model, *from; /* as Apache names them; "" while offline */
};
int admin_consumers(struct cli *cli, const struct admin_cluster *on, const char *const *groups,
                    size_t n, struct admin_consumers **out);
/* All producers, by group and id. */
int admin_producers(struct cli *cli, const struct admin_cluster *on, struct admin_client **out,
                    size_t *n);
/* "5.5.0"; a number as it is when it is none of Apache RocketMQ's. */
const char *admin_version(struct cli *cli, int32_t version);

/* The topics that each group reads now or has offsets in, by name. */
int admin_group_topics(struct cli *cli, const struct admin_cluster *on, const char *const *groups,
                       size_t n, struct admin_names **out);

/* ---- brokers: admin_brokers.c ---- */

struct admin_pair {
    const char *name, *value;
};
struct admin_node { /* a master or a slave */
    const struct admin_broker *broker;
    int64_t id;
    const char *address;
    struct admin_pair *pairs; /* by name */
    size_t n;                 /* 0: it has not answered, and `why` says why */
    struct omq_error why;
};
/* What it counts (GET_BROKER_RUNTIME_INFO), of each address. That a slave does not answer is said
 * as of any other; `quiet`: nothing is said, `why` has it. */
int admin_runtime(struct cli *cli, const struct admin_cluster *on, bool slaves, bool quiet,
                  struct admin_node **out, size_t *n);
/* Its settings. */
int admin_settings(struct cli *cli, const struct admin_cluster *on, bool slaves,
                   struct admin_node **out, size_t *n);
const char *admin_value(const struct admin_node *node, const char *name, const char *fallback);
/* The first number in it: of "12.5 11.0 3.2" the rate of the last ten seconds. */
double admin_value_real(const struct admin_node *node, const char *name, double fallback);
int64_t admin_value_number(const struct admin_node *node, const char *name, int64_t fallback);

/* What brokers count by name and key (VIEW_BROKER_STATS_DATA), summed over them. */
struct admin_stat {
    const char *name, *key; /* "GROUP_GET_NUMS", "topic@group" */
    bool known;             /* some broker has counted it */
    double minute_tps, hour_tps, day_tps;
    int64_t minute_sum, hour_sum, day_sum;
};
int admin_stats(struct cli *cli, const struct admin_cluster *on, struct admin_stat *stats,
                size_t n);

/* ---- words: admin_words.c ---- */

/* A name as a broker would refuse it: STATUS_USAGE, said. */
int admin_topic_check(struct cli *cli, const char *topic);
int admin_group_check(struct cli *cli, const char *group);
/* STATUS_NOT_FOUND, said with the nearest name there is. */
int admin_topic_missing(struct cli *cli, const char *topic);
int admin_group_missing(struct cli *cli, const struct admin_cluster *on, const char *group);
const char *admin_perm_text(int32_t perm); /* "rw", "r", "w", "-" */
/* What became of a topic or group that was to be as wished: "unchanged", "created" … */
const char *admin_change_text(bool differs, bool done, bool existed);
bool admin_perm_value(const char *text, int32_t *perm);
/* "a, b, c and 12 more", printable. */
const char *admin_list_text(struct cli *cli, const char *const *names, size_t n, size_t max);

#endif
