/* session_int.h - contexts as config.c reads them. */
#ifndef CLI_SESSION_INT_H
#define CLI_SESSION_INT_H

#include "base/buf.h"
#include "cli/cli_int.h"

#define CONTEXTS_MAX     64
#define CONTEXT_KEYS_MAX 16

struct context {
    const char *name;
    struct context_pair {
        const char *key, *value;
        int line; /* of the file; 0: it is new */
        bool changed;
    } pairs[CONTEXT_KEYS_MAX];
    size_t n;
    int line;  /* of its name */
    bool gone; /* it is to be deleted */
};

struct session {
    char path[4096]; /* of the configuration file */
    bool path_given;
    char *raw;  /* the text of the file; NULL: there is none */
    char *text; /* a copy; names and values are slices of it */
    struct context contexts[CONTEXTS_MAX];
    size_t n_contexts;
    const char *current; /* what the file says; NULL: nothing */
    int current_line;
    bool current_changed;
    struct context *context; /* what counts; NULL: none */
    struct omq_client *client;
};

bool setting_known(const char *key);
struct context *context_find(struct session *session, const char *name);
const char *context_value(const struct context *context, const char *key);
/* The file; an enum status each. Writing it changes no more than was changed here. */
int config_read(struct cli *cli);
int config_write(struct cli *cli);
extern const struct column context_columns[];

#endif
