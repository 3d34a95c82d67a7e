/* txn_test.h - what the tests of transactions share: halves, ends, and producers that are asked.
 *
 * Only for the x_test.c files of this folder.
 */
#ifndef BROKER_TXN_TEST_H
#define BROKER_TXN_TEST_H

#include "broker/later_test.h"
#include "broker/txn_int.h"

#define HALF "RMQ_SYS_TRANS_HALF_TOPIC"
#define OP   "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#define GONE "TRANS_CHECK_MAX_TIME_TOPIC"

/* The questions that producers were asked, the latest last. */
struct asked {
    struct counted *session;
    int64_t position, offset;
    char key[64], topic[64], body[64];
    int32_t queue_id;
    int checks;
};
#define ASKED_MAX 4096
static struct asked txn_asked[ASKED_MAX];
static size_t txn_n_asked;
static bool txn_deaf; /* no producer can be told */

static inline bool txn_hear(struct counted *session, const struct txn_check *check)
{
    assert_true(atomic_load(&session->holders) > 0);
    if (txn_deaf)
        return false;
    assert_true(txn_n_asked < ASKED_MAX);
    const struct record *m = check->message;
    struct asked *a = &txn_asked[txn_n_asked++];
    *a = (struct asked){session, m->position, m->queue_offset, .queue_id = m->queue_id};
    snprintf(a->key, sizeof a->key, "%.*s", BYTES_ARG(check->unique_key));
    snprintf(a->topic, sizeof a->topic, "%.*s", BYTES_ARG(m->topic));
    snprintf(a->body, sizeof a->body, "%.*s", BYTES_ARG(m->body));
    struct bytes checks = BYTES("0");
    (void)props_get(m->props, PROP_CHECK_TIMES, &checks);
    int32_t number = -1;
    (void)bytes_to_i32(checks, &number);
    a->checks = number;
    return true;
}

static inline int txn_rig(void **state)
{
    int result = rig_open(state);
    struct rig *rig = *state;
    rig->out.txn_check = txn_hear;
    txn_n_asked = 0;
    txn_deaf = false;
    return result;
}
#define txn_case(name)     cmocka_unit_test_setup_teardown(name, txn_rig, rig_close)
#define txn_row(row, name) ((struct CMUnitTest){row " " #name, name, txn_rig, rig_close, NULL})

static inline void txn_joins(struct rig *rig, struct session *s, const char *id, const char *group)
{
    session_init(s);
    struct client client = {.session = &s->counted, .id = bytes_str(id), .language = 0};
    assert_int_equal(broker_producer_seen(rig->broker, &client, bytes_str(group), NULL), OK);
}

/* A half message of group PG for queue 1 of T; `more` are further properties. */
static inline struct produce txn_half_more(struct rig *rig, const char *key, const char *more)
{
    char props[256];
    snprintf(props, sizeof props, "TRAN_MSG\1true\2PGROUP\1PG\2UNIQ_KEY\1%s\2%s", key, more);
    struct produce r = rig_message("T", key);
    r.props = bytes_str(props);
    r.queue_id = 1;
    r.sys_flag = SYS_TX_PREPARED;
    uint64_t end;
    broker_produce(rig->broker, rig->desk, &r, 1, &end);
    broker_dispatch_turn(rig->broker);
    return r;
}

static inline struct txn_end txn_end_of(const struct rig *rig, const struct produce *r)
{
    return (struct txn_end){
        .group = BYTES("PG"),
        .position = desk_stored(rig->desk)[r->first].position,
        .offset = r->queue_offset,
    };
}

static inline struct txn_end txn_half(struct rig *rig, const char *key)
{
    struct produce r = txn_half_more(rig, key, "");
    assert_int_equal(r.err, OK);
    return txn_end_of(rig, &r);
}

static inline enum err txn_say(struct rig *rig, struct txn_end *end, bool commits)
{
    uint64_t position;
    end->commits = commits;
    broker_txn_end(rig->broker, rig->desk, end, 1, &position);
    broker_dispatch_turn(rig->broker);
    return end->err;
}

/* What the last question is answered with. */
static inline struct txn_end txn_answer(void)
{
    assert_true(txn_n_asked > 0);
    const struct asked *a = &txn_asked[txn_n_asked - 1];
    return (struct txn_end){
        .group = BYTES("PG"), .position = a->position, .offset = a->offset, .checked = true};
}

/* Time passes, and whoever is due is asked. How many were. */
static inline size_t txn_pass(struct rig *rig, int64_t ms)
{
    size_t before = txn_n_asked;
    struct service_turn turn;
    clock_manual_advance(&rig->clock, ms);
    do {
        broker_txn_turn(rig->broker, &turn);
        assert_int_equal(turn.err, OK);
    } while (turn.next_ms == 0);
    return txn_n_asked - before;
}

static inline struct broker_numbers txn_counts(struct rig *rig)
{
    struct broker_numbers n;
    broker_numbers(rig->broker, &n);
    return n;
}

#endif
