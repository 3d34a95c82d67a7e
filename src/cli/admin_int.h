/* admin_int.h - what the files of admin share. */
#ifndef CLI_ADMIN_INT_H
#define CLI_ADMIN_INT_H

#include "cli/admin.h"
#include "remoting/codes.h"

/* Asks every broker the question `like` about every name: `field` is the field that names it (NULL:
 * none, and n is 1). The answer of broker b about name i is (*asks)[i * *per + b]. A broker that
 * does not answer about the first name is not asked about the others. What fails was said. */
int admin_each(struct cli *cli, const struct admin_cluster *on, struct admin_ask like,
               const char *field, const char *const *names, size_t n, struct admin_ask **asks,
               size_t *per);

/* How many entries the tables of that name have in n answers. */
size_t admin_count(const struct admin_ask *asks, size_t n, const char *table);
/* The list of that name in all brokers' answers about each name, joined and sorted. */
int admin_lists(struct cli *cli, const struct admin_cluster *on, struct admin_ask like,
                const char *field, const char *list, const char *const *names, size_t n,
                struct admin_names **out);

/* {"topic":…,"brokerName":…,"queueId":…}, the key of many tables. */
struct admin_queue {
    const char *topic, *broker;
    int32_t queue;
};
struct admin_queue admin_queue_key(struct cli *cli, const struct json *key);

int32_t admin_small(const struct json *node); /* 0 if it is no int from 0 on */

int admin_by_name(const void *a, const void *b); /* of const char * */
/* Sorts, and leaves each name once. */
void admin_names_tidy(struct admin_names *names);

#endif
