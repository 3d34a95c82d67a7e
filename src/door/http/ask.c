/* ask.c - operations and their outcomes as JSON. Pure. */
#include "door/http/http_int.h"

#include "base/base64.h"
#include "base/json.h"
#include "base/utf8.h"
#include "msg/msg.h"
#include "once.h"
#include "once/key.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define EXPIRY_MS     30000
#define EXPIRY_MAX_MS (INT64_C(365) * 24 * 3600 * 1000)
#define DAYS_MAX_MS   (INT64_C(3650) * 24 * 3600 * 1000)

/* ---- asking ---- */

/* Empty if there is none. What is more than a text is not dropped in silence. */
static enum err member_read(const struct json *doc, const char *name, struct bytes *out,
                            struct fault *why)
{
    const struct json *node = json_member(doc, name);
    *out = json_text(node, (struct bytes){0});
    if (node && (node->type == JSON_ARRAY || node->type == JSON_OBJECT))
        return fault_set(why, ERR_INVALID, "%s: a text", name);
    return OK;
}

static enum err token_read(const struct json *doc, uint64_t *out, struct fault *why)
{
    struct bytes text = json_text(json_member(doc, "token"), (struct bytes){0});
    uint64_t token = 0;
    for (size_t i = 0; i < text.len && i < 17; i++) {
        int c = text.at[i] | 0x20;
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return fault_set(why, ERR_INVALID, "token: the 16 hexadecimal digits that a claim got");
        token = token << 4 | (unsigned)digit;
    }
    if (text.len != 16 || token == 0)
        return fault_set(why, ERR_INVALID, "token: the 16 hexadecimal digits that a claim got");
    *out = token;
    return OK;
}

static enum err time_read(const struct json *doc, const char *name, int64_t fallback, int64_t least,
                          int64_t most, int64_t *out, struct fault *why)
{
    const struct json *node = json_member(doc, name);
    *out = node ? json_int(node, -1) : fallback;
    if (*out >= least && *out <= most)
        return OK;
    return fault_set(why, ERR_INVALID, "%s: a number of milliseconds from %" PRId64 " to %" PRId64,
                     name, least, most);
}

static enum err result_read(const struct json *doc, struct arena *arena, struct bytes *out,
                            struct fault *why)
{
    struct bytes coded;
    enum err err = member_read(doc, "result64", &coded, why);
    if (!err)
        err = member_read(doc, "result", out, why);
    if (err)
        return err;
    if (coded.len > 0) {
        uint8_t *plain = arena_alloc(arena, coded.len);
        size_t n;
        if (!plain)
            return ERR_NO_MEMORY;
        if (!base64_read(BASE64_TEXT, coded, plain, &n))
            return fault_set(why, ERR_INVALID, "result64: not base64");
        *out = bytes_of(plain, n);
    }
    if (out->len > LEDGER_RESULT_MAX)
        return fault_set(why, ERR_TOO_BIG, "result: at most %d bytes", LEDGER_RESULT_MAX);
    return OK;
}

static enum err text_read(const struct json *doc, const char *name, struct arena *arena,
                          const char **out, struct fault *why)
{
    struct bytes text;
    enum err err = member_read(doc, name, &text, why);
    if (err)
        return err;
    if (text.len > LEDGER_TEXT_MAX)
        return fault_set(why, ERR_TOO_BIG, "%s: at most %d bytes", name, LEDGER_TEXT_MAX);
    char *copy = arena_alloc(arena, text.len + 1); /* all zero */
    if (!copy)
        return ERR_NO_MEMORY;
    if (text.len > 0)
        memcpy(copy, text.at, text.len);
    *out = copy;
    return OK;
}

/* The same for the same text, and for a message's body the same as libonce's. */
static enum err fingerprint_read(const struct json *doc, uint64_t *out, struct fault *why)
{
    struct bytes text;
    enum err err = member_read(doc, "fingerprint", &text, why);
    *out = text.len > 0 ? key_fingerprint(text.at, text.len) : 0;
    return err;
}

/* A word that means nothing was meant for something. */
static enum err members_check(const struct json *doc, struct fault *why)
{
    static const char *const known[] = {"do",           "key",     "token",      "expiry_ms",
                                        "retention_ms", "result",  "result64",   "forget",
                                        "topic",        "message", "fingerprint"};
    json_each(node, doc) {
        struct bytes name = json_text(node->key, (struct bytes){0});
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known && !found; i++)
            found = bytes_equal(name, bytes_str(known[i]));
        if (!found)
            return fault_set(why, ERR_INVALID, "there is nothing called %.*s here",
                             (int)(name.len < 64 ? name.len : 64), (const char *)name.at);
    }
    return OK;
}

static enum err op_make(int kind, struct bytes scope, struct bytes key, const struct json *doc,
                        uint64_t (*token)(void *), void *user, struct arena *arena, struct op *op,
                        struct fault *why)
{
    char *name = arena_alloc(arena, ONCE_NAME_MAX + 1);
    if (!name)
        return ERR_NO_MEMORY;
    if (key.len == 0 || key.len > KEY_MOST)
        return fault_set(why, ERR_INVALID, "key: 1 to %d bytes", KEY_MOST);
    key_name(key, name, ONCE_NAME_MAX + 1);
    *op = (struct op){.kind = (enum op_kind)kind,
                      .name = name,
                      .forget = json_bool(json_member(doc, "forget"), false)};
    key_id(scope, key, op->id);
    enum err err = members_check(doc, why);
    if (!err)
        err = time_read(doc, "expiry_ms", EXPIRY_MS, 1, EXPIRY_MAX_MS, &op->expiry_ms, why);
    if (!err)
        err = fingerprint_read(doc, &op->fingerprint, why);
    if (!err)
        err = text_read(doc, "topic", arena, &op->topic, why);
    if (!err)
        err = text_read(doc, "message", arena, &op->message, why);
    if (!err)
        err = time_read(doc, "retention_ms", 0, 0, DAYS_MAX_MS, &op->retention_ms, why);
    if (!err && kind == OP_FINISH)
        err = result_read(doc, arena, &op->result, why);
    bool owned = kind == OP_RENEW || kind == OP_FINISH || kind == OP_RELEASE;
    if (!err && (owned || (kind == OP_CLAIM && json_member(doc, "token"))))
        err = token_read(doc, &op->token, why);
    else if (!err && kind == OP_CLAIM)
        op->token = token(user);
    return err;
}

static int kind_of(struct bytes word)
{
    static const struct {
        const char *word;
        int kind;
    } kinds[] = {{"claim", OP_CLAIM},     {"renew", OP_RENEW}, {"done", OP_FINISH},
                 {"release", OP_RELEASE}, {"look", OP_LOOK},   {"forget", OP_FORGET}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (bytes_equal(word, bytes_str(kinds[i].word)))
            return kinds[i].kind;
    return -1;
}

static enum err many_read(const struct path *path, const struct json *doc,
                          uint64_t (*token)(void *), void *user, struct arena *arena,
                          struct asked *out, struct fault *why)
{
    const struct json *list = json_member(doc, "operations");
    if (!list || list->type != JSON_ARRAY || list->n == 0 || list->n > LEDGER_OPS_MAX)
        return fault_set(why, ERR_INVALID, "operations: a list of 1 to %d", LEDGER_OPS_MAX);
    out->many = true;
    out->ops = arena_alloc(arena, list->n * sizeof *out->ops);
    if (!out->ops)
        return ERR_NO_MEMORY;
    json_each(node, list) {
        int kind = kind_of(json_text(json_member(node, "do"), (struct bytes){0}));
        struct bytes key = json_text(json_member(node, "key"), (struct bytes){0});
        if (kind < 0)
            return fault_set(why, ERR_INVALID,
                             "operation %zu: do: claim, renew, done, release, look or forget",
                             out->n + 1);
        enum err err =
            op_make(kind, path->scope, key, node, token, user, arena, &out->ops[out->n], why);
        if (err)
            return fault_add(why, err, "operation %zu", out->n + 1);
        for (size_t i = 0; i < out->n; i++)
            if (memcmp(out->ops[i].id, out->ops[out->n].id, ONCE_ID_SIZE) == 0)
                return fault_set(why, ERR_INVALID, "operation %zu has the key of operation %zu",
                                 out->n + 1, i + 1);
        out->n++;
    }
    return OK;
}

static int method_kind(const char *method, const struct path *path)
{
    if (strcmp(method, "PUT") == 0)
        return path->verb;
    if (path->verb >= 0)
        return -1;
    return strcmp(method, "GET") == 0 ? OP_LOOK : strcmp(method, "DELETE") == 0 ? OP_FORGET : -1;
}

enum err asked_read(const char *method, const struct path *path, struct bytes body,
                    uint64_t (*token)(void *user), void *user, struct arena *arena,
                    struct asked *out, struct fault *why)
{
    const struct json *doc = NULL;
    *out = (struct asked){.group = path->scope, .n = 0};
    if (body.len > 0 && (json_parse(body, arena, &doc, NULL) || doc->type != JSON_OBJECT))
        return fault_set(why, ERR_MALFORMED, "the body is no JSON object");
    if (!path->has_key && strcmp(method, "POST") == 0)
        return many_read(path, doc, token, user, arena, out, why);
    int kind = path->has_key ? method_kind(method, path) : -1;
    if (kind < 0)
        return fault_set(why, ERR_UNSUPPORTED,
                         "PUT /once/SCOPE/KEY/claim, renew, done or release; GET or DELETE "
                         "/once/SCOPE/KEY; POST /once/SCOPE");
    out->ops = arena_alloc(arena, sizeof *out->ops);
    if (!out->ops)
        return ERR_NO_MEMORY;
    out->n = 1;
    return op_make(kind, path->scope, path->key, doc, token, user, arena, out->ops, why);
}

/* ---- answering ---- */

static const char *outcome_word(const struct op *op)
{
    static const char *const done[] = {
        [OP_CLAIM] = "claimed",    [OP_RENEW] = "renewed", [OP_FINISH] = "done",
        [OP_RELEASE] = "released", [OP_LOOK] = "found",    [OP_FORGET] = "forgotten",
        [OP_STEP_GET] = "",        [OP_STEP_PUT] = "",     [OP_SWEEP] = ""};
    switch (op->outcome) {
    case OUT_OK:
        return done[op->kind];
    case OUT_BUSY:
        return "busy";
    case OUT_DONE:
        return "done";
    case OUT_LOST:
        return "lost";
    case OUT_ABSENT:
        return "absent";
    default:
        return "failed";
    }
}

static unsigned status_of(const struct op *op, int64_t *retry_s)
{
    switch (op->outcome) {
    case OUT_OK:
        return op->kind == OP_CLAIM ? 201 : 200;
    case OUT_DONE:
        return 200;
    case OUT_BUSY:
        *retry_s = op->left_ms < 1000 ? 1 : op->left_ms > 30000 ? 30 : op->left_ms / 1000;
        return 409;
    case OUT_LOST:
        return 412;
    case OUT_ABSENT:
        return 404;
    default:
        return 503;
    }
}

static void result_write(struct json_out *w, struct bytes result)
{
    if (utf8_valid(result)) {
        json_text_member(w, "result", result);
        return;
    }
    char coded[BASE64_SIZE(LEDGER_RESULT_MAX) + 1];
    size_t n = base64_write(BASE64_TEXT, result, coded);
    json_text_member(w, "result64", bytes_of(coded, n));
}

static void outcome_write(struct json_out *w, const struct op *op)
{
    static const char *const states[] = {"absent", "claimed", "done", "released"};
    bool brings = op->outcome == OUT_DONE && op->kind == OP_CLAIM;
    json_open(w);
    json_text_member(w, "outcome", bytes_str(outcome_word(op)));
    if (op->kind == OP_CLAIM && op->outcome == OUT_OK) {
        char token[17];
        (void)snprintf(token, sizeof token, "%016" PRIx64, op->token);
        json_text_member(w, "token", bytes_of(token, 16));
        json_bool_member(w, "overtook", op->state == ONCE_CONSUMING);
    }
    if (op->outcome == OUT_OK && (op->kind == OP_CLAIM || op->kind == OP_LOOK))
        json_int_member(w, "fence", op->fence);
    if (op->outcome == OUT_OK && op->kind == OP_LOOK && op->state <= ONCE_RELEASED)
        json_text_member(w, "state", bytes_str(states[op->state]));
    if (op->outcome == OUT_BUSY || brings || (op->kind == OP_LOOK && op->outcome == OUT_OK))
        json_int_member(w, "left_ms", op->left_ms);
    if (brings && op->result.len > 0 && op->result.len <= LEDGER_RESULT_MAX)
        result_write(w, op->result);
    if (op->outcome == OUT_FAILED)
        json_text_member(w, "why", bytes_str(op->why.text));
    json_close(w);
}

unsigned asked_write(const struct asked *asked, struct buf *out, int64_t *retry_s)
{
    struct json_out w = {.buf = out};
    *retry_s = 0;
    if (!asked->many) {
        outcome_write(&w, asked->ops);
        return status_of(asked->ops, retry_s);
    }
    json_open(&w);
    json_key(&w, "outcomes");
    json_open_array(&w);
    for (size_t i = 0; i < asked->n; i++)
        outcome_write(&w, &asked->ops[i]);
    json_close_array(&w);
    json_close(&w);
    return 200;
}

void refusal_write(struct buf *out, const char *sentence)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_text_member(&w, "error", bytes_str(sentence));
    json_close(&w);
}
