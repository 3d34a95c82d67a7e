/* redis_ops.c - what the core asks, as commands, and what Redis says, as outcomes. */
#include "once/redis_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS_MAX 3 /* of a batch whose scripts are flushed again and again */

/* Larger ones would not stay whole numbers in Lua. 140,000 years. */
#define SPAN_MAX (INT64_C(1) << 52)

static int64_t span(int64_t ms, int64_t min)
{
    return ms < min ? min : ms > SPAN_MAX ? SPAN_MAX : ms;
}

/* ---- commands ---- */

static void key_arg(struct conn *conn, const struct op *op)
{
    static const char digits[] = "0123456789abcdef";
    char key[sizeof conn->store->table + 2 * ONCE_ID_SIZE + 4];
    if (conn->store->plain) {
        wire_arg(conn, op->plain);
        return;
    }
    size_t len = (size_t)snprintf(key, sizeof key, "%s:{", conn->store->table);
    for (size_t i = 0; i < ONCE_ID_SIZE; i++) {
        key[len++] = digits[op->id[i] >> 4];
        key[len++] = digits[op->id[i] & 15];
    }
    key[len++] = '}';
    wire_arg(conn, bytes_of(key, len));
}

static void script(struct conn *conn, enum redis_script which, size_t n_args, const struct op *op)
{
    wire_command(conn, n_args + 3, "EVALSHA");
    wire_arg(conn, bytes_of(conn->sha[which], sizeof conn->sha[which] - 1));
    wire_arg_str(conn, "1");
    key_arg(conn, op);
}

static void home_arg(struct conn *conn)
{
    if (conn->home && conn->instance)
        wire_arg_u64(conn, conn->home);
    else
        wire_arg_str(conn, "");
}

static void ask_claim(struct conn *conn, const struct op *op, const struct rival *rival)
{
    script(conn, SCRIPT_CLAIM, 7, op);
    wire_arg_u64(conn, op->token);
    wire_arg_u64(conn, op->fingerprint);
    wire_arg_i64(conn, span(op->expiry_ms, 0));
    wire_arg_i64(conn, span(op->retention_ms, 0));
    wire_arg_str(conn, op->name ? op->name : "");
    home_arg(conn);
    if (rival->steal)
        wire_arg_u64(conn, rival->steal);
    else
        wire_arg_str(conn, "");
}

static void step_arg(struct conn *conn, const struct op *op)
{
    char field[5 + ONCE_STEP_MAX] = "step:";
    size_t len = op->step.len < ONCE_STEP_MAX ? op->step.len : ONCE_STEP_MAX;
    if (len)
        memcpy(field + 5, op->step.at, len);
    wire_arg(conn, bytes_of(field, 5 + len));
}

static void ask_leased(struct conn *conn, const struct op *op, const struct rival *rival)
{
    switch (op->kind) {
    case OP_CLAIM:
        ask_claim(conn, op, rival);
        return;
    case OP_RENEW:
        script(conn, SCRIPT_RENEW, 3, op);
        wire_arg_u64(conn, op->token);
        wire_arg_i64(conn, span(op->expiry_ms, 0));
        home_arg(conn);
        return;
    case OP_FINISH:
        script(conn, SCRIPT_FINISH, 2, op);
        wire_arg_u64(conn, op->token);
        wire_arg_i64(conn, span(op->retention_ms, 0));
        return;
    case OP_RELEASE:
        script(conn, SCRIPT_RELEASE, 3, op);
        wire_arg_u64(conn, op->token);
        wire_arg_i64(conn, span(op->retention_ms, 0));
        wire_arg_str(conn, op->forget ? "1" : "0");
        return;
    case OP_LOOK:
        script(conn, SCRIPT_LOOK, 0, op);
        return;
    case OP_FORGET:
        wire_command(conn, 1, "DEL");
        key_arg(conn, op);
        return;
    case OP_STEP_GET:
        wire_command(conn, 2, "HGET");
        key_arg(conn, op);
        step_arg(conn, op);
        return;
    case OP_STEP_PUT:
        script(conn, SCRIPT_PUT, 3, op);
        wire_arg_u64(conn, op->token);
        step_arg(conn, op);
        wire_arg(conn, op->result);
        return;
    case OP_SWEEP: /* asks nothing: at_once() */
        return;
    }
}

static void ask_plain(struct conn *conn, const struct op *op)
{
    switch (op->kind) {
    case OP_CLAIM:
        script(conn, SCRIPT_PLAIN_CLAIM, 1, op);
        wire_arg_i64(conn, span(op->expiry_ms, 1));
        return;
    case OP_FINISH:
        wire_command(conn, 4, "SET");
        key_arg(conn, op);
        wire_arg_str(conn, "1");
        wire_arg_str(conn, "PX");
        wire_arg_i64(conn, span(op->retention_ms, 1));
        return;
    case OP_RELEASE:
    case OP_FORGET:
        wire_command(conn, 1, "DEL");
        key_arg(conn, op);
        return;
    case OP_LOOK:
        script(conn, SCRIPT_PLAIN_LOOK, 0, op);
        return;
    case OP_RENEW:
    case OP_STEP_GET:
    case OP_STEP_PUT:
    case OP_SWEEP: /* ask nothing: at_once() */
        return;
    }
}

/* What needs no question. Redis forgets by itself; the plain recipe knows no renewal. */
static bool at_once(const struct store *store, struct op *op)
{
    if (op->kind == OP_SWEEP) {
        op->rows = 0;
        op->outcome = OUT_OK;
        return true;
    }
    if (store->plain && op->kind == OP_RENEW) {
        op->outcome = OUT_OK;
        return true;
    }
    if (store->plain && (op->kind == OP_STEP_GET || op->kind == OP_STEP_PUT)) {
        (void)fault_set(&op->why, ERR_UNSUPPORTED, "the plain form on Redis has no steps");
        op->outcome = OUT_FAILED;
        return true;
    }
    return false;
}

/* ---- answers ---- */

/* Elements of an array; what is not there, or no number, makes the whole answer not understood. */
static int64_t number_at(const redisReply *reply, size_t i, bool *bad)
{
    if (reply->type != REDIS_REPLY_ARRAY || i >= reply->elements ||
        reply->element[i]->type != REDIS_REPLY_INTEGER) {
        *bad = true;
        return 0;
    }
    return reply->element[i]->integer;
}

static uint64_t text_number_at(const redisReply *reply, size_t i, bool *bad)
{
    if (reply->type != REDIS_REPLY_ARRAY || i >= reply->elements ||
        reply->element[i]->type != REDIS_REPLY_STRING || reply->element[i]->len > 20) {
        *bad = true;
        return 0;
    }
    char *end;
    uint64_t n = strtoull(reply->element[i]->str, &end, 10);
    *bad |= *end != 0;
    return n;
}

/* [1 fence left before], [2 - left holder home], [3 - left fingerprint] */
static enum op_outcome hear_claim(const redisReply *reply, struct op *op, struct rival *rival,
                                  bool *bad)
{
    int64_t outcome = number_at(reply, 0, bad), fence = number_at(reply, 1, bad);
    op->left_ms = number_at(reply, 2, bad);
    if (outcome == OUT_OK) {
        op->fence = fence;
        op->state = (int)number_at(reply, 3, bad);
    } else if (outcome == OUT_DONE)
        op->fingerprint = text_number_at(reply, 3, bad);
    else if (outcome == OUT_BUSY) {
        rival->holder = text_number_at(reply, 3, bad);
        rival->home = text_number_at(reply, 4, bad); /* no text: 0, it cannot be taken from */
    } else
        *bad = true;
    return (enum op_outcome)outcome;
}

static enum op_outcome hear_look(const redisReply *reply, struct op *op, bool *bad)
{
    int64_t outcome = number_at(reply, 0, bad);
    op->state = ONCE_ABSENT;
    if (outcome == OUT_OK) {
        op->state = (int)number_at(reply, 1, bad);
        op->fence = number_at(reply, 2, bad);
        op->left_ms = number_at(reply, 3, bad);
        *bad |= op->state < ONCE_CONSUMING || op->state > ONCE_RELEASED;
    } else
        *bad |= outcome != OUT_ABSENT;
    return (enum op_outcome)outcome;
}

static enum op_outcome hear_step(const redisReply *reply, struct op *op, bool *bad)
{
    if (reply->type == REDIS_REPLY_NIL)
        return OUT_ABSENT;
    if (reply->type != REDIS_REPLY_STRING) {
        *bad = true;
        return OUT_NONE;
    }
    uint8_t *copy = malloc(reply->len ? reply->len : 1);
    if (!copy) {
        (void)fault_set(&op->why, ERR_NO_MEMORY, "%s", err_text(ERR_NO_MEMORY));
        return OUT_FAILED;
    }
    memcpy(copy, reply->str, reply->len);
    op->result = bytes_of(copy, reply->len);
    return OUT_OK;
}

static enum op_outcome hear_leased(const redisReply *reply, struct op *op, struct rival *rival,
                                   bool *bad)
{
    switch (op->kind) {
    case OP_CLAIM:
        return hear_claim(reply, op, rival, bad);
    case OP_LOOK:
        return hear_look(reply, op, bad);
    case OP_STEP_GET:
        return hear_step(reply, op, bad);
    case OP_FORGET:
        *bad = reply->type != REDIS_REPLY_INTEGER;
        return OUT_OK;
    case OP_RENEW:
    case OP_FINISH:
    case OP_RELEASE:
    case OP_STEP_PUT:
        *bad = reply->type != REDIS_REPLY_INTEGER ||
               (reply->integer != OUT_OK && reply->integer != OUT_LOST);
        return (enum op_outcome)reply->integer;
    case OP_SWEEP:
        break;
    }
    *bad = true;
    return OUT_NONE;
}

/* A key without an expiry, which none of us has set: it is as if it had just been. */
static int64_t plain_left(const redisReply *reply, size_t i, int64_t whole, bool *bad)
{
    int64_t left = number_at(reply, i, bad);
    return left < 0 ? whole : left;
}

static enum op_outcome hear_plain(const redisReply *reply, struct op *op, bool *bad)
{
    if (op->kind == OP_CLAIM) {
        int64_t outcome = number_at(reply, 0, bad);
        op->fence = 0;
        op->state = ONCE_ABSENT;
        op->left_ms = outcome == OUT_OK ? 0 : plain_left(reply, 1, op->expiry_ms, bad);
        *bad |= outcome < OUT_OK || outcome > OUT_DONE;
        return (enum op_outcome)outcome;
    }
    if (op->kind == OP_LOOK) {
        int64_t outcome = number_at(reply, 0, bad);
        op->fence = op->left_ms = 0;
        op->state = ONCE_ABSENT;
        if (outcome == OUT_OK) {
            op->state = (int)number_at(reply, 1, bad);
            op->left_ms = plain_left(reply, 2, 0, bad);
        }
        return outcome == OUT_OK ? OUT_OK : OUT_ABSENT;
    }
    *bad = reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_INTEGER;
    return OUT_OK;
}

/* Sets the outcome; OUT_NONE: the script has to be loaded again. ERR_IO: no use to go on here. */
static enum err hear(struct conn *conn, const redisReply *reply, struct op *op, struct rival *rival,
                     struct fault *why)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        switch (wire_said(conn, reply, &op->why)) {
        case SAID_NO_SCRIPT:
            return OK;
        case SAID_AWAY:
            if (why)
                *why = op->why;
            return ERR_IO;
        case SAID_DENIED:
        case SAID_UNABLE:
        case SAID_REFUSED:
            op->outcome = OUT_FAILED;
            return OK;
        }
    }
    bool bad = false;
    enum op_outcome outcome =
        conn->store->plain ? hear_plain(reply, op, &bad) : hear_leased(reply, op, rival, &bad);
    if (bad) {
        (void)fault_set(&op->why, ERR_DAMAGED,
                        "what Redis at %s has under the key of %s is not ours: look at it, or "
                        "forget it",
                        conn->store->url.where, op->name ? op->name : "this operation");
        outcome = OUT_FAILED;
    }
    op->outcome = outcome;
    return OK;
}

/* ---- rounds ---- */

static void forget_outcome(struct op *op)
{
    if (op->kind == OP_STEP_GET && op->outcome == OUT_OK) {
        free((void *)op->result.at);
        op->result = (struct bytes){0};
    }
    op->outcome = OUT_NONE;
}

/* Announces the process to whom the claims of this batch belong, before the first of them is made.
 * A connection that may not is not judged by its name, and judges nobody. */
static enum err announce(struct conn *conn, struct op *const *ops, size_t n, struct fault *why)
{
    uint32_t instance = 0;
    for (size_t i = 0; i < n && !instance; i++)
        instance = (uint32_t)(ops[i]->token >> 32);
    if (!conn->home || !instance || instance == conn->instance)
        return OK;
    char name[16];
    (void)snprintf(name, sizeof name, "once-%08" PRIx32, instance);
    wire_command(conn, 2, "CLIENT");
    wire_arg_str(conn, "SETNAME");
    wire_arg_str(conn, name);
    cleanup(reply_free) redisReply *reply = NULL;
    enum err err = wire_ask(conn, &reply, why);
    if (err)
        return err;
    conn->instance = instance;
    if (reply->type == REDIS_REPLY_ERROR)
        conn->home = 0;
    return OK;
}

/* Claims of a batch that does not count are let go, as far as this still works. */
static void take_back(struct conn *conn, struct op *const *ops, const bool *asked, size_t n)
{
    size_t claims = 0;
    for (size_t i = 0; i < n; i++)
        if (asked[i] && ops[i]->kind == OP_CLAIM && ops[i]->outcome == OUT_OK) {
            struct op release = *ops[i];
            release.kind = OP_RELEASE;
            release.forget = false;
            if (conn->store->plain)
                ask_plain(conn, &release);
            else
                ask_leased(conn, &release, NULL);
            claims++;
        }
    enum err err = wire_send(conn, NULL);
    for (; claims > 0 && err == OK; claims--) {
        cleanup(reply_free) redisReply *reply = NULL;
        err = wire_answer(conn, &reply, NULL);
    }
}

static enum err hear_birth(struct conn *conn, bool *other, struct fault *why)
{
    cleanup(reply_free) redisReply *reply = NULL;
    enum err err = wire_answer(conn, &reply, why);
    if (err)
        return err;
    if (reply->type == REDIS_REPLY_ERROR) {
        (void)wire_said(conn, reply, why);
        return ERR_IO;
    }
    char *end = NULL;
    uint64_t birth = reply->type == REDIS_REPLY_STRING ? strtoull(reply->str, &end, 10) : 0;
    *other = !end || *end != 0 || birth != atomic_load(&conn->store->birth);
    return OK;
}

static bool writes(const struct op *op)
{
    return op->kind != OP_LOOK && op->kind != OP_STEP_GET;
}

/* Too few replicas: what was written is there, but must not be relied upon. */
static enum err hear_replicas(struct conn *conn, struct op *const *ops, const bool *asked, size_t n,
                              struct fault *why)
{
    cleanup(reply_free) redisReply *reply = NULL;
    enum err err = wire_answer(conn, &reply, why);
    if (err)
        return err;
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer >= conn->store->replicas)
        return OK;
    struct fault shortage = {0};
    if (reply->type == REDIS_REPLY_ERROR)
        (void)wire_said(conn, reply, &shortage);
    else
        (void)fault_set(&shortage, ERR_IO,
                        "Redis at %s has it, but %lld of %d replicas confirmed it within %d ms: "
                        "it counts as not done",
                        conn->store->url.where, reply->integer, conn->store->replicas,
                        conn->store->wait_ms);
    take_back(conn, ops, asked, n);
    for (size_t i = 0; i < n; i++)
        if (asked[i] && writes(ops[i]) && ops[i]->outcome == OUT_OK) {
            ops[i]->outcome = OUT_FAILED;
            ops[i]->why = shortage;
        }
    return OK;
}

/* A master that was made one is empty for a moment while it copies its new master, and then says
 * nothing about what was done. */
static bool is_replica(struct conn *conn)
{
    cleanup(reply_free) redisReply *reply = NULL;
    wire_command(conn, 0, "ROLE");
    return wire_ask(conn, &reply, NULL) == OK && reply->type == REDIS_REPLY_ARRAY &&
           reply->elements > 0 && reply->element[0]->type == REDIS_REPLY_STRING &&
           strcmp(reply->element[0]->str, "slave") == 0;
}

/* Everything of one round trip is in `asked`; the answers come in the same order. */
static enum err hear_all(struct conn *conn, struct op *const *ops, const bool *asked, size_t n,
                         struct fault *why)
{
    bool emptied = false, replicas = conn->store->replicas > 0;
    for (size_t i = 0; i < n; i++) {
        if (!asked[i])
            continue;
        cleanup(reply_free) redisReply *reply = NULL;
        enum err err = wire_answer(conn, &reply, why);
        if (err == OK)
            err = hear(conn, reply, ops[i], &conn->rivals[i], why);
        if (err)
            return err;
    }
    enum err err = hear_birth(conn, &emptied, why);
    if (err == OK && replicas)
        err = hear_replicas(conn, ops, asked, n, why);
    if (err || !emptied)
        return err;
    if (is_replica(conn))
        return fault_set(why, ERR_IO,
                         "Redis at %s has become a replica, which takes no writes: name the master",
                         conn->store->url.where);
    take_back(conn, ops, asked, n);
    return fault_set(why, ERR_STALE,
                     "Redis at %s was emptied (%s:birth is gone or another): what was done before "
                     "is forgotten there, and would be done again",
                     conn->store->url.where, conn->store->table);
}

/* Asks everything that has no outcome yet. */
static enum err round_trip(struct conn *conn, struct op *const *ops, size_t n, struct fault *why)
{
    bool asked[ONCE_OPS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        asked[i] = ops[i]->outcome == OUT_NONE && !at_once(conn->store, ops[i]);
        if (!asked[i])
            continue;
        if (conn->store->plain)
            ask_plain(conn, ops[i]);
        else
            ask_leased(conn, ops[i], &conn->rivals[i]);
        count++;
    }
    if (count > 0) {
        wire_command(conn, 1, "GET");
        buf_printf(&conn->out, "$%zu\r\n%s:birth\r\n", strlen(conn->store->table) + 6,
                   conn->store->table);
        if (conn->store->replicas > 0) {
            wire_command(conn, 2, "WAIT");
            wire_arg_i64(conn, conn->store->replicas);
            wire_arg_i64(conn, conn->store->wait_ms);
        }
    }
    enum err err = wire_send(conn, why);
    if (err || count == 0)
        return err;
    return hear_all(conn, ops, asked, n, why);
}

static bool all_have_outcomes(struct op *const *ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ops[i]->outcome == OUT_NONE)
            return false;
    return true;
}

static enum err rounds(struct conn *conn, struct op *const *ops, size_t n, struct fault *why)
{
    for (int i = 0; i < ROUNDS_MAX; i++) {
        enum err err = round_trip(conn, ops, n, why);
        if (err || all_have_outcomes(ops, n))
            return err;
        err = wire_load_scripts(conn, why);
        if (err)
            return ERR_IO;
    }
    return fault_set(why, ERR_IO, "Redis at %s forgets scripts as soon as they are loaded",
                     conn->store->url.where);
}

/* ---- takeover ---- */

static bool may_take(const struct conn *conn, const struct op *op, const struct rival *rival)
{
    return op->kind == OP_CLAIM && op->takeover && op->outcome == OUT_BUSY && conn->home &&
           rival->home == conn->home;
}

static bool listed(const char *clients, uint64_t token)
{
    char name[24];
    (void)snprintf(name, sizeof name, " name=once-%08" PRIx32 " ", (uint32_t)(token >> 32));
    return strstr(clients, name) != NULL;
}

static enum err take_over(struct conn *conn, struct op *const *ops, size_t n, struct fault *why)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= may_take(conn, ops[i], &conn->rivals[i]);
    if (!any)
        return OK;
    wire_command(conn, 1, "CLIENT");
    wire_arg_str(conn, "LIST");
    cleanup(reply_free) redisReply *clients = NULL;
    enum err err = wire_ask(conn, &clients, why);
    if (err || clients->type != REDIS_REPLY_STRING)
        return err; /* who may not ask waits for the expiry */
    bool gone = false;
    for (size_t i = 0; i < n; i++) {
        struct rival *rival = &conn->rivals[i];
        if (!may_take(conn, ops[i], rival) || listed(clients->str, rival->holder))
            continue;
        rival->steal = rival->holder;
        ops[i]->outcome = OUT_NONE;
        gone = true;
    }
    return gone ? rounds(conn, ops, n, why) : OK;
}

enum err redis_run(struct conn *conn, struct op *const *ops, size_t n, struct fault *why)
{
    invariant(n <= ONCE_OPS_MAX);
    for (size_t i = 0; i < n; i++) {
        ops[i]->outcome = OUT_NONE;
        conn->rivals[i] = (struct rival){0};
    }
    enum err err = conn->store->takeover ? announce(conn, ops, n, why) : OK;
    if (err == OK)
        err = rounds(conn, ops, n, why);
    if (err == OK && conn->store->takeover)
        err = take_over(conn, ops, n, why);
    if (err == ERR_IO)
        wire_spoil(conn);
    for (size_t i = 0; i < n && err; i++)
        forget_outcome(ops[i]);
    return err;
}
