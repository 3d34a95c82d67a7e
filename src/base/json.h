/* json.h - RocketMQ's JSON, which is not JSON.
 *
 * fastjson, which Apache RocketMQ uses for bodies and configuration files, writes integer keys
 * without quotes ({0:"a"}) and whole objects as keys ({{"topic":"T"}:5}); no packaged library reads
 * that. So there is one tolerant reader and one compact writer here. The reader accepts all proper
 * JSON (jansson is the oracle in the tests) and also: unquoted integer keys, objects as keys,
 * single-quoted strings. It refuses everything else - bare control characters and ill-formed UTF-8
 * too -, is bounded in depth and in size, and never allocates outside the arena it was given. Of
 * equal keys all are kept and the last one is found. Half of a surrogate pair (\ud83d alone)
 * becomes U+FFFD, because a Java String may hold one and UTF-8 may not.
 *
 * A document is a tree of nodes. Accessors are forgiving in the way fastjson is: a number may be
 * written as a string and the other way round, a missing member is the default. Asking a NULL node
 * is allowed and gives the default, so lookups can be chained.
 *
 * Pure: no I/O, no clock, no logging.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"

#define JSON_DEPTH_MAX 32

enum json_type {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

struct json {
    enum json_type type;
    struct bytes text;        /* STRING: unescaped UTF-8. NUMBER, TRUE, FALSE, NULL: as written */
    const struct json *key;   /* when a member of an object: STRING, NUMBER or OBJECT */
    const struct json *child; /* ARRAY, OBJECT: first element or value of the first member */
    const struct json *next;  /* next sibling */
    size_t n;                 /* ARRAY, OBJECT: how many */
};

/* ERR_MALFORMED, ERR_TOO_BIG (depth, arena). The nodes live in the arena; unescaped strings that
 * needed no change are slices of `in`. Of a refused document, `*at` (may be NULL) is where. */
must_check enum err json_parse(struct bytes in, struct arena *arena, const struct json **out,
                               size_t *at);

/* The last member of that name, or NULL. */
const struct json *json_member(const struct json *object, const char *name);
/* Of STRING, NUMBER, TRUE, FALSE. */
struct bytes json_text(const struct json *node, struct bytes fallback);
/* Of NUMBER, and of STRING with a number in it. A fraction is dropped; out of range: fallback. */
int64_t json_int(const struct json *node, int64_t fallback);
/* Of TRUE and FALSE, and of "true", "FALSE", 0, 1. */
bool json_bool(const struct json *node, bool fallback);

/* The same tree: members in the same order, numbers written the same way. */
bool json_same(const struct json *a, const struct json *b);

#define json_each(node, parent)                                                                    \
    for (const struct json *node = (parent) ? (parent)->child : NULL; node; node = node->next)

/* ---- writing: compact, no blanks (the official Go client splits some of it as text) ----
 *
 * struct json_out w = {.buf = &body};
 * json_open(&w);                       {
 * json_key(&w, "topicList");           "topicList":
 * json_open_array(&w);                 [
 * json_put_text(&w, BYTES("a"));       "a"
 * json_close_array(&w);                ]
 * json_close(&w);                      }
 *
 * Commas are the writer's business. Errors stay in buf->err. Control characters are written as
 * \u00XX. */
struct json_out {
    struct buf *buf;
    bool comma; /* the next item needs one before it */
};

void json_open(struct json_out *w);
void json_close(struct json_out *w);
void json_open_array(struct json_out *w);
void json_close_array(struct json_out *w);
void json_key(struct json_out *w, const char *name);
void json_key_text(struct json_out *w, struct bytes name);
void json_key_int(struct json_out *w, int64_t key);    /* {0: */
void json_key_quoted(struct json_out *w, int64_t key); /* {"0": */
void json_key_object(struct json_out *w); /* after json_close of an object: it was a key */
void json_put_text(struct json_out *w, struct bytes text); /* invalid UTF-8 becomes U+FFFD */
void json_put_int(struct json_out *w, int64_t v);
void json_put_bool(struct json_out *w, bool v);
void json_put_null(struct json_out *w);
void json_put_real(struct json_out *w, double v);           /* what is no number becomes null */
void json_put(struct json_out *w, const struct json *node); /* a tree; keys as they were read */

/* key and value at once */
void json_text_member(struct json_out *w, const char *name, struct bytes text);
void json_int_member(struct json_out *w, const char *name, int64_t v);
void json_bool_member(struct json_out *w, const char *name, bool v);

#endif
