/* session_int.h - contexts as session.c reads them. */
#ifndef CLI_SESSION_INT_H
#define CLI_SESSION_INT_H

#include "base/buf.h"
#include "cli/cli_int.h"

#define CONTEXTS_MAX     64
#define CONTEXT_KEYS_MAX 16

struct context {
    const char *name;
    const char *keys[CONTEXT_KEYS_MAX], *values[CONTEXT_KEYS_MAX];
    size_t n;
};

struct session {
    char path[4096]; /* of the configuration file */
    bool path_given;
    char *text; /* of the file; names and values are slices of it */
    struct context contexts[CONTEXTS_MAX];
    size_t n_contexts;
    const char *current;     /* what the file says */
    struct context *context; /* what counts; NULL: none */
    struct omq_client *client;
};

bool setting_known(const char *key);
struct context *context_find(struct session *session, const char *name);
const char *context_value(const struct context *context, const char *key);
int session_save(struct cli *cli); /* the file, from what is here now */
extern const struct column context_columns[];

#endif
