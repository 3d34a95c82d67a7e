/* http_int.h - one exchange, between HTTP (http.c), its path and JSON (path.c, ask.c) and the
 * ledger. */
#ifndef DOOR_HTTP_HTTP_INT_H
#define DOOR_HTTP_HTTP_INT_H

#include "base/arena.h"
#include "base/buf.h"
#include "broker/ledger.h"

#define KEY_MOST  4096
#define BODY_MOST (1u << 20)

/* What a path asks for. */
struct path {
    struct bytes scope, key; /* decoded, in the arena */
    bool has_key;
    int verb; /* enum op_kind of PUT; -1: none */
};
/* ERR_NOT_FOUND: no path of ours. ERR_MALFORMED: an escape, or a NUL. ERR_TOO_BIG: the key. */
must_check enum err path_read(const char *url, struct arena *arena, struct path *out);

/* The operations of a request, from its path, method and JSON. */
struct asked {
    struct bytes group;
    struct op *ops; /* in the arena */
    size_t n;
    bool many;
};
/* ERR_UNSUPPORTED: the method is none of this path. Else ERR_MALFORMED, ERR_INVALID, ERR_TOO_BIG,
 * with a sentence. `token` is for claims that bring none. */
must_check enum err asked_read(const char *method, const struct path *path, struct bytes body,
                               uint64_t (*token)(void *user), void *user, struct arena *arena,
                               struct asked *out, struct fault *why);
/* The answer, and its status. `retry_s` (0: none) is for Retry-After. */
unsigned asked_write(const struct asked *asked, struct buf *out, int64_t *retry_s);
void refusal_write(struct buf *out, const char *sentence);

#endif
