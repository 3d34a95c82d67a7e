/* store.c - the driver: opening, connecting, and operations as requests. */
#include "ledger_driver/ledger_driver.h"

#include "base/buf.h"
#include "once.h"
#include "remoting/codes.h"

#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_NAMES   "127.0.0.1:9876"
#define DEFAULT_WAIT_MS 3000
#define ASK_MAX         (4 << 20) /* of a request: more goes in several, and so does the answer */

struct conn {
    struct store *store;
    struct spot spot;
    struct buf ask; /* kept from one request to the next */
};

/* ---- what a broker says ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static enum err no_ledger(const struct spot *spot, struct fault *why)
{
    return fault_set(why, ERR_UNSUPPORTED,
                     "broker %s at %s keeps no ledger: it is not OnceMQ, or of an older release, "
                     "or has onceLedgerEnable=false. Set that to true, or name another store "
                     "(sqlite:FILE, redis://host …)",
                     spot->name, spot->address);
}

/* `why` of a request that came to nothing. */
static enum err refused(const struct omq_error *error, const struct spot *spot, struct fault *why)
{
    switch (error->response_code) {
    case RES_REQUEST_CODE_NOT_SUPPORTED:
        return no_ledger(spot, why);
    case RES_NO_PERMISSION: /* to us, or to everybody? */
        if (strstr(error->text, "onceLedgerEnable"))
            return no_ledger(spot, why);
        break;
    case RES_ILLEGAL_OPERATION:
        if (ends_with(error->text, " birth"))
            return fault_set(why, ERR_STALE, "the ledger of broker %s was emptied", spot->name);
        break;
    case RES_INVALID_PARAMETER:
        return fault_set(why, ERR_INVALID, "%s", error->text);
    default:
        break;
    }
    enum err err = error->code == OMQ_NO_MEMORY ? ERR_NO_MEMORY
                   : error->code == OMQ_DENIED  ? ERR_DENIED
                   : error->code == OMQ_BUSY    ? ERR_BUSY
                                                : ERR_IO;
    return fault_set(why, err, "%s", error->text);
}

/* ---- asking ---- */

static void enter(struct store *store)
{
    invariant(pthread_mutex_lock(&store->key) == 0);
}

static void leave(struct store *store)
{
    invariant(pthread_mutex_unlock(&store->key) == 0);
}

/* `birth` "": whatever ledger is there. */
static enum err ledger_call(struct store *store, const struct spot *spot, const char *birth,
                            struct bytes body, struct omq_answer **out, struct fault *why)
{
    const struct omq_property fields[] = {{"group", store->group}, {"birth", birth}};
    struct omq_error error;
    int code = omq_call(store->client, spot->address, REQ_ONCE_LEDGER, fields, birth[0] ? 2 : 1,
                        body.at, body.len, store->wait_ms, out, &error);
    return code ? refused(&error, spot, why) : OK;
}

static enum err malformed(const struct spot *spot, struct fault *why)
{
    return fault_set(why, ERR_IO, "what broker %s at %s answers cannot be read", spot->name,
                     spot->address);
}

/* What was found belongs to the answer, which goes. */
static bool keep_result(struct op *op)
{
    bool wanted = op->kind == OP_STEP_GET && op->outcome == OUT_OK;
    bool own = op->kind == OP_FINISH || op->kind == OP_STEP_PUT;
    if (!wanted && !own)
        op->result = (struct bytes){0};
    if (!wanted)
        return true;
    uint8_t *copy = malloc(op->result.len ? op->result.len : 1);
    if (copy && op->result.len)
        memcpy(copy, op->result.at, op->result.len);
    op->result = bytes_of(copy, op->result.len);
    return copy;
}

static void answer_keep(struct op *const *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (keep_result(ops[i]))
            continue;
        ops[i]->result = (struct bytes){0};
        ops[i]->outcome = OUT_FAILED;
        (void)fault_set(&ops[i]->why, ERR_NO_MEMORY, "%s", err_text(ERR_NO_MEMORY));
    }
}

static void answer_void(struct op *const *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ops[i]->outcome = OUT_NONE;
        if (ops[i]->kind != OP_FINISH && ops[i]->kind != OP_STEP_PUT)
            ops[i]->result = (struct bytes){0};
    }
}

static enum err ask(struct conn *conn, struct op *const *ops, size_t n, struct fault *why)
{
    size_t size = wire_ask_size(ops, n);
    conn->ask.len = 0;
    uint8_t *space = buf_space(&conn->ask, size);
    if (!space)
        return fault_set(why, ERR_NO_MEMORY, "%s", err_text(ERR_NO_MEMORY));
    struct wr w = wr_over(space, size);
    wire_ask_write(&w, ops, n);
    invariant(!w.full);
    char birth[BIRTH_MAX];
    enter(conn->store);
    memcpy(birth, conn->store->birth, sizeof birth);
    leave(conn->store);
    struct omq_answer *answer;
    enum err err = ledger_call(conn->store, &conn->spot, birth, wr_bytes(&w), &answer, why);
    if (err)
        return err;
    if (wire_answer_read(bytes_of(answer->body, answer->body_size), ops, n) == OK)
        answer_keep(ops, n);
    else {
        answer_void(ops, n);
        err = malformed(&conn->spot, why);
    }
    omq_answer_free(answer);
    return err;
}

/* A bound for what an operation and its answer may carry beside what each has. */
static size_t weight(const struct op *op)
{
    return 1024 + (op->kind == OP_STEP_GET ? ONCE_RESULT_MAX : op->result.len);
}

static enum err broker_run(struct conn *conn, struct op *const *ops, size_t n, struct fault *why)
{
    struct op *some[ONCE_OPS_MAX];
    size_t n_some = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        if (ops[i]->kind == OP_SWEEP) { /* the broker forgets by itself */
            ops[i]->rows = 0;
            ops[i]->outcome = OUT_OK;
            continue;
        }
        if (n_some > 0 && size + weight(ops[i]) > ASK_MAX) {
            enum err err = ask(conn, some, n_some, why);
            if (err)
                return err;
            n_some = size = 0;
        }
        some[n_some++] = ops[i];
        size += weight(ops[i]);
    }
    return n_some > 0 ? ask(conn, some, n_some, why) : OK;
}

/* ---- connecting ---- */

/* The broker's address as the name servers know it now; else the one that it had. */
static enum err find(struct store *store, struct spot *out, struct fault *why)
{
    enter(store);
    struct spot known = store->spot;
    leave(store);
    struct omq_answer *answer;
    struct omq_error error;
    enum err err;
    if (omq_call(store->client, NULL, REQ_GET_BROKER_CLUSTER_INFO, NULL, 0, NULL, 0, store->wait_ms,
                 &answer, &error))
        err = fault_set(why, error.code == OMQ_NO_MEMORY ? ERR_NO_MEMORY : ERR_IO,
                        "looking for the broker: %s", error.text);
    else {
        const char *name = known.name[0] ? known.name : store->where.name;
        err = where_find(bytes_of(answer->body, answer->body_size), name, out, why);
        omq_answer_free(answer);
    }
    if (err && known.address[0]) {
        *out = known;
        return OK;
    }
    return err;
}

/* Asks nothing but the number of the ledger, which is the store's if that had none yet, or shall
 * have this one. */
static enum err hello(struct conn *conn, bool shall, struct fault *why)
{
    struct store *store = conn->store;
    uint8_t nothing[8];
    struct wr w = wr_over(nothing, sizeof nothing);
    wire_ask_write(&w, NULL, 0);
    struct omq_answer *answer;
    enum err err = ledger_call(store, &conn->spot, "", wr_bytes(&w), &answer, why);
    if (err)
        return err;
    const char *told = omq_answer_field(answer, "birth");
    if (told && told[0] && strlen(told) < sizeof store->birth) {
        enter(store);
        if (shall || !store->birth[0])
            (void)snprintf(store->birth, sizeof store->birth, "%s", told);
        leave(store);
    } else
        err = malformed(&conn->spot, why);
    omq_answer_free(answer);
    return err;
}

static void broker_disconnect(struct conn *conn)
{
    buf_clear(&conn->ask);
    free(conn);
}

/* A ledger that is not the one that was is found by the operations, not here: who accepts it needs
 * a connection. */
static enum err broker_connect(struct store *store, struct conn **out, struct fault *why)
{
    struct conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return fault_set(why, ERR_NO_MEMORY, "%s", err_text(ERR_NO_MEMORY));
    conn->store = store;
    conn->ask = buf_upto(2 * ASK_MAX);
    enum err err = find(store, &conn->spot, why);
    if (!err) {
        enter(store);
        store->spot = conn->spot;
        leave(store);
        err = presence_ask(store); /* ahead of all operations */
        err = err ? fault_set(why, err, "%s", err_text(err)) : hello(conn, false, why);
    }
    if (err) {
        broker_disconnect(conn);
        return err;
    }
    *out = conn;
    return OK;
}

static enum err broker_accept(struct store *store, struct conn *conn, struct fault *why)
{
    (void)store;
    return hello(conn, true, why);
}

/* ---- life ---- */

static const char *text_or(const char *text, const char *other)
{
    return text && text[0] ? text : other;
}

static void client_says(void *user, int level, const char *line)
{
    const struct store *store = user;
    char text[600];
    (void)snprintf(text, sizeof text, "broker: %s", line);
    /* That a connection is lost is told by whoever needed it. */
    store->log(store->log_user, level > ONCE_INFO ? ONCE_INFO : ONCE_DEBUG, text);
}

static enum err client_open(struct store *store, const struct omq_client_options *given,
                            struct fault *why)
{
    struct omq_client_options o = given ? *given : (struct omq_client_options){0};
    if (!given) {
        o.access_key = text_or(secure_getenv("ONCEMQ_ACCESS_KEY"), NULL);
        o.secret_key = text_or(secure_getenv("ONCEMQ_SECRET_KEY"), NULL);
        o.security_token = text_or(secure_getenv("ONCEMQ_SECURITY_TOKEN"), NULL);
    }
    if (store->where.names[0])
        o.names = store->where.names;
    else if (!o.names && !o.names_url)
        o.names = text_or(secure_getenv("ONCEMQ_NAMES"), DEFAULT_NAMES);
    o.instance = o.state_dir = NULL;
    o.timeout_ms = store->wait_ms;
    o.log = client_says;
    o.user = store;
    struct omq_error error;
    int code = omq_client_open(&o, &store->client, &error);
    if (!code)
        return OK;
    return fault_set(why,
                     code == OMQ_NO_MEMORY ? ERR_NO_MEMORY
                     : code == OMQ_INVALID ? ERR_INVALID
                                           : ERR_IO,
                     "%s", error.text);
}

static enum err check(const struct store_settings *settings, struct fault *why)
{
    if (settings->transactions || settings->plain)
        return fault_set(why, ERR_UNSUPPORTED,
                         "the ledger of a broker has neither transactions nor a plain form");
    if (strlen(settings->group) > GROUP_MAX)
        return fault_set(why, ERR_INVALID, "`group` has at most %d characters", GROUP_MAX);
    return OK;
}

static void broker_close(struct store *store)
{
    presence_stop(store);
    omq_client_close(store->client);
    presence_clear(store);
    (void)pthread_mutex_destroy(&store->key);
    free(store);
}

static enum err broker_open(const struct store_settings *settings, struct store **out,
                            struct fault *why)
{
    enum err err = check(settings, why);
    if (err)
        return err;
    struct store *store = calloc(1, sizeof *store);
    if (!store || presence_open(store)) {
        free(store);
        return fault_set(why, ERR_NO_MEMORY, "%s", err_text(ERR_NO_MEMORY));
    }
    invariant(pthread_mutex_init(&store->key, NULL) == 0);
    (void)snprintf(store->group, sizeof store->group, "%s", settings->group);
    (void)snprintf(store->instance, sizeof store->instance, "%u", settings->instance);
    store->wait_ms = settings->wait_ms > 0 ? settings->wait_ms : DEFAULT_WAIT_MS;
    store->log = settings->log;
    store->log_user = settings->log_user;
    err = where_parse(settings->url, &store->where, why);
    if (!err)
        err = client_open(store, settings->client, why);
    struct conn *conn = NULL;
    if (!err)
        err = broker_connect(store, &conn, why);
    if (err) {
        broker_close(store);
        return err;
    }
    broker_disconnect(conn);
    *out = store;
    return OK;
}

ONCE_DRIVER_EXPORT(broker);
const struct once_driver once_driver_broker = {
    .name = "broker",
    .watches = true,
    .any_order = true,
    .lanes = 2, /* while one is on its way another is made */
    .open = broker_open,
    .close = broker_close,
    .connect = broker_connect,
    .disconnect = broker_disconnect,
    .run = broker_run,
    .accept = broker_accept,
    .for_update = "",
};
