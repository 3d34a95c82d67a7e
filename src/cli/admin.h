/* admin.h - what administration asks of name servers and brokers, as functions.
 *
 * Each asks one question (or the same one of each broker) and gives the answer as structs that live
 * in the command's arena. What fails is said by the function itself, through cli_fail_omq; its
 * result is an enum status, as a command's. Protocol numbers, field names and the forms of bodies
 * are known here and nowhere above.
 */
#ifndef CLI_ADMIN_H
#define CLI_ADMIN_H

#include "base/json.h"
#include "cli/cli.h"

/* ---- asking ---- */

/* Fields are a list of names and values ended by NULL: ASK("topic", name, "queueId", "0"). */
#define ASK(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

/* Asks and has the answer's body as JSON (`*out` NULL: it is empty). `server` NULL: the name
 * servers. The enum omq_code of liboncemq; nothing is said. */
int admin_ask(struct cli *cli, const char *server, int request, const char *const *fields,
              struct bytes body, const struct json **out, struct omq_error *why);

/* ---- the cluster ---- */

struct admin_broker {
    const char *name, *cluster;
    const char *master; /* "host:port"; NULL: it has none just now */
    struct admin_address {
        int64_t id; /* 0: the master */
        const char *address;
    } * addresses;
    size_t n_addresses;
};
struct admin_cluster {
    struct admin_broker *brokers; /* by cluster and name */
    size_t n;
};
int admin_cluster(struct cli *cli, struct admin_cluster *out);

/* All topics that the name servers know, by name. */
struct admin_names {
    const char **names;
    size_t n;
};
int admin_topics(struct cli *cli, struct admin_names *out);

/* A text of a JSON node with a NUL at its end; "" if there is none. */
const char *admin_text(struct cli *cli, const struct json *node);

#endif
