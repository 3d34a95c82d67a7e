/* doctor_int.h - what is wrong with a cluster, and what to do about it.
 *
 * A *check* looks at one thing and has a name that stays. It reports what it finds wrong, one
 * finding each, and ends with a sentence for the case that there was nothing; so every check that
 * was made is seen in the result, and a cluster in order is a short list of what was looked at.
 *
 * Checks go from the ground up: name servers, brokers, then what brokers hold. What does not answer
 * is a finding of its own and is not asked again by those above, which say that they could not
 * look.
 */
#ifndef CLI_DOCTOR_INT_H
#define CLI_DOCTOR_INT_H

#include "cli/operate_int.h"

enum health { HEALTH_OK, HEALTH_WARN, HEALTH_BAD };

struct doctor {
    struct cli *cli;
    enum health worst;

    /* The check that is being made. */
    const char *check;
    size_t n_wrong; /* findings; those beyond a page are only counted */
    enum health hidden;

    /* name servers */
    struct admin_names servers;
    struct admin_cluster *clusters; /* of each, as it says */
    struct admin_names *topics;     /* of each, by name */
    bool *answers;
    size_t n_answering;

    /* brokers */
    struct admin_cluster all; /* that any name server knows */
    struct admin_cluster up;  /* whose master, or a slave, answers */
    struct admin_node *nodes; /* what each address of `all` counts */
    size_t n_nodes;
    struct admin_node *settings; /* of `up`, in its order */
    size_t n_settings;
    int64_t retention_ms; /* the shortest of all brokers; 0: not known */
    int64_t lag_most;     /* --lag */
};

void check_begin(struct doctor *d, const char *check);
/* `advice` says what to do. */
void wrong(struct doctor *d, enum health state, const char *about, const char *advice,
           const char *format, ...) printf_like(5, 6);
/* If nothing was wrong, the sentence says what was looked at. */
void check_end(struct doctor *d, const char *format, ...) printf_like(2, 3);

void doctor_names(struct doctor *d);   /* doctor_names.c */
void doctor_brokers(struct doctor *d); /* doctor_brokers.c */
void doctor_here(struct doctor *d);    /* doctor_here.c */
void doctor_topics(struct doctor *d);  /* doctor_topics.c */
void doctor_groups(struct doctor *d);  /* doctor_groups.c */

bool names_have(const struct admin_names *sorted, const char *name);

#endif
