/* Transactions: what is stored, who is asked, what an end does, and each refusal. */
#include "broker/txn_test.h"
#include "broker/disk_test.h"

#define MINUTE  60000
#define BODY_AT 88 /* in a record with addresses of IPv4 */

static void commit_is_one_delivery_and_rollback_none(void **state)
{
    struct rig *rig = *state;
    struct txn_end one = txn_half(rig, "K1"), two = txn_half(rig, "K2");
    assert_int_equal(later_count(rig, "T", 1), 0);
    assert_int_equal(txn_counts(rig).txn_open, 2);
    assert_int_equal(txn_say(rig, &one, true), OK);
    assert_int_equal(later_count(rig, "T", 1), 1);
    assert_int_equal(txn_say(rig, &two, false), OK);
    assert_int_equal(later_count(rig, "T", 1), 1);
    struct broker_numbers n = txn_counts(rig);
    assert_int_equal(n.txn_open, 0);
    assert_int_equal(n.txn_committed, 1);
    assert_int_equal(n.txn_rolled_back, 1);
    assert_int_equal(later_count(rig, OP, 0), 2);
}

/* Fifteen questions, one in each round, then it is moved aside and the operator hears of it. */
static void unknown_is_asked_for_15_times_and_then_given_up(void **state)
{
    struct rig *rig = *state;
    struct session p;
    txn_joins(rig, &p, "p@1", "PG");
    txn_half(rig, "K1");
    for (int i = 1; i <= 15; i++) {
        assert_int_equal(txn_pass(rig, 30000), 1);
        assert_int_equal(txn_asked[i - 1].checks, i);
        assert_string_equal(txn_asked[i - 1].key, "K1");
        assert_string_equal(txn_asked[i - 1].topic, "T");
        assert_int_equal(txn_asked[i - 1].queue_id, 1);
        assert_int_equal(txn_asked[i - 1].offset, i); /* it is stored anew each time */
    }
    assert_int_equal(rig->warned, 0);
    assert_int_equal(txn_pass(rig, 30000), 0);
    assert_int_equal(rig->warned, 1);
    assert_non_null(strstr(rig->warning, "given up"));
    assert_non_null(strstr(rig->warning, "K1"));
    struct broker_numbers n = txn_counts(rig);
    assert_int_equal(n.txn_open, 0);
    assert_int_equal(n.txn_checks, 15);
    assert_int_equal(n.txn_given_up, 1);
    assert_int_equal(later_count(rig, GONE, 0), 1);
    assert_int_equal(later_count(rig, "T", 1), 0);
    struct topic_settings set;
    assert_true(rig_topic(rig, GONE, &set));
    assert_int_equal(set.perm, PERM_READ | PERM_WRITE);
    assert_int_equal(set.read_queues, 1);
    struct slice got;
    char text[1024];
    struct record r = later_record(rig, GONE, 0, 0, &got);
    assert_bytes_equal(r.body, BYTES("K1"));
    assert_string_equal(later_props(r.props, text),
                        "CLUSTER=DefaultCluster MSG_REGION=DefaultRegion PGROUP=PG REAL_QID=1 "
                        "REAL_TOPIC=T TRACE_ON=true TRANSACTION_CHECK_TIMES=15 TRAN_MSG=true "
                        "UNIQ_KEY=K1 __transactionId__=K1");
    counted_drop(got.owner);
    broker_session_gone(rig->broker, &p.counted);
}

/* The one that sent the half is gone; another of its group is asked and commits. */
static void another_member_of_the_group_is_asked(void **state)
{
    struct rig *rig = *state;
    struct session first, second, stranger;
    txn_joins(rig, &first, "p@1", "PG");
    txn_joins(rig, &second, "p@2", "PG");
    txn_joins(rig, &stranger, "p@3", "other");
    txn_half(rig, "K1");
    broker_session_gone(rig->broker, &first.counted);
    assert_int_equal(txn_pass(rig, 30000), 1);
    assert_ptr_equal(txn_asked[0].session, &second.counted);
    struct txn_end end = txn_answer();
    assert_int_equal(txn_say(rig, &end, true), OK);
    assert_int_equal(later_count(rig, "T", 1), 1);
    assert_int_equal(txn_pass(rig, MINUTE), 0);
    broker_session_gone(rig->broker, &second.counted);
    broker_session_gone(rig->broker, &stranger.counted);
}

/* Field by field what Apache RocketMQ 5.5.0 was seen to store. */
static void records_are_as_apache_stores_them(void **state)
{
    struct rig *rig = *state;
    struct session p;
    char text[1024];
    txn_joins(rig, &p, "p@1", "PG");
    struct produce r = rig_message("T", "hello");
    r.props = BYTES("KEYS\1k1\2TAGS\1A\2own\1v\2WAIT\1true\2UNIQ_KEY\1K9\2TRAN_MSG\1true\2PGROUP\1"
                    "PG\2REAL_TOPIC\1Lie\2__transactionId__\1Lie\2TRANSACTION_CHECK_TIMES\1"
                    "14\2");
    r.queue_id = 1;
    r.flag = 5;
    r.sys_flag = SYS_TX_PREPARED | SYS_COMPRESSED;
    r.reconsume_times = 2;
    assert_int_equal(rig_produce(rig, &r), OK);
    assert_int_equal(r.stored_queue_id, 1);
    assert_int_equal(r.queue_offset, 0);
    assert_string_equal(r.uniq_key, "K9");
    broker_dispatch_turn(rig->broker);
    struct txn_end end = txn_end_of(rig, &r);

    struct slice got;
    struct record half = later_record(rig, HALF, 0, 0, &got);
    assert_string_equal(later_props(half.props, text),
                        "CLUSTER=DefaultCluster KEYS=k1 MSG_REGION=DefaultRegion PGROUP=PG "
                        "REAL_QID=1 REAL_TOPIC=T TAGS=A TRACE_ON=true TRAN_MSG=true UNIQ_KEY=K9 "
                        "WAIT=true __transactionId__=K9 own=v");
    assert_int_equal(half.sys_flag, SYS_COMPRESSED);
    assert_int_equal(half.prepared_position, 0);
    assert_int_equal(half.reconsume_times, 2);
    counted_drop(got.owner);

    assert_int_equal(txn_pass(rig, 30000), 1);
    struct record again = later_record(rig, HALF, 0, 1, &got);
    assert_bytes_equal(later_prop(again.props, "TRANSACTION_CHECK_TIMES"), BYTES("1"));
    assert_int_equal(again.born_ms, START_MS);
    assert_int_equal(again.flag, 5);
    counted_drop(got.owner);
    struct record op = later_record(rig, OP, 0, 0, &got);
    assert_bytes_equal(op.body, BYTES("0,"));
    assert_string_equal(later_props(op.props, text), "TAGS=d WAIT=true");
    assert_int_equal(op.sys_flag, 0);
    counted_drop(got.owner);

    assert_int_equal(txn_say(rig, &end, true), OK); /* by the first copy's place */
    struct record message = later_record(rig, "T", 1, 0, &got);
    assert_string_equal(later_props(message.props, text),
                        "CLUSTER=DefaultCluster KEYS=k1 MSG_REGION=DefaultRegion PGROUP=PG TAGS=A "
                        "TRACE_ON=true TRANSACTION_CHECK_TIMES=1 TRAN_MSG=true UNIQ_KEY=K9 "
                        "WAIT=true __transactionId__=K9 own=v");
    assert_bytes_equal(message.body, BYTES("hello"));
    assert_int_equal(message.sys_flag, SYS_TX_COMMIT | SYS_COMPRESSED);
    assert_int_equal(message.flag, 5);
    assert_int_equal(message.reconsume_times, 2);
    assert_int_equal(message.born_ms, START_MS);
    assert_int_equal(message.prepared_position, txn_asked[0].position);
    counted_drop(got.owner);
    op = later_record(rig, OP, 0, 1, &got);
    assert_bytes_equal(op.body, BYTES("1,"));
    counted_drop(got.owner);
    broker_session_gone(rig->broker, &p.counted);
}

/* A producer tries again, is asked although it has answered, or changes its mind. */
static void an_end_said_twice_happens_once(void **state)
{
    struct rig *rig = *state;
    struct session p;
    txn_joins(rig, &p, "p@1", "PG");
    struct txn_end one = txn_half(rig, "K1"), two = txn_half(rig, "K2"),
                   three = txn_half(rig, "K3");
    assert_int_equal(txn_say(rig, &one, true), OK);
    assert_int_equal(txn_say(rig, &one, true), OK);
    assert_int_equal(txn_say(rig, &one, false), ERR_INVALID);
    assert_non_null(strstr(one.why.text, "committed before"));
    assert_int_equal(txn_say(rig, &two, false), OK);
    assert_int_equal(txn_say(rig, &two, false), OK);
    assert_int_equal(txn_say(rig, &two, true), ERR_INVALID);
    assert_int_equal(later_count(rig, "T", 1), 1);

    assert_int_equal(txn_pass(rig, 30000), 1);
    struct txn_end asked = txn_answer();
    assert_int_equal(txn_say(rig, &three, true), OK); /* the late first answer … */
    assert_int_equal(txn_say(rig, &asked, true), OK); /* … and the one to the question */
    assert_int_equal(later_count(rig, "T", 1), 2);
    assert_int_equal(txn_pass(rig, MINUTE), 0);
    assert_int_equal(txn_counts(rig).txn_committed, 2);
    broker_session_gone(rig->broker, &p.counted);
}

/* Many ends of one turn, two of them the same, are one append with one op record. */
static void ends_of_one_turn_are_one_op_record(void **state)
{
    struct rig *rig = *state;
    enum { N = 150 };
    static struct txn_end ends[N + 1];
    for (int i = 0; i < N; i++) {
        char key[16];
        snprintf(key, sizeof key, "K%d", i);
        ends[i] = txn_half(rig, key);
        ends[i].commits = i % 2 == 0;
    }
    ends[N] = ends[N - 1];
    uint64_t position;
    broker_txn_end(rig->broker, rig->desk, ends, N + 1, &position);
    broker_dispatch_turn(rig->broker);
    assert_true(position > 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(ends[i].err, OK);
    assert_int_equal(ends[N].err, ERR_BUSY);
    assert_int_equal(later_count(rig, "T", 1), N / 2);
    assert_int_equal(later_count(rig, OP, 0), 3); /* of 64, 64 and 22 */
    assert_int_equal(txn_counts(rig).txn_open, 0);
}

static void each_bad_half_is_refused(void **state)
{
    struct rig *rig = *state;
    static const struct {
        const char *props;
        int32_t sys_flag;
        bool batch;
        enum err err;
        const char *says;
    } cases[] = {
        {"TRAN_MSG\1true\2UNIQ_KEY\1K\2", 4, false, ERR_MALFORMED, "PGROUP"},
        {"TRAN_MSG\1true\2PGROUP\1PG\2DELAY\1"
         "3\2",
         4, false, ERR_MALFORMED, "delayed"},
        {"TRAN_MSG\1true\2PGROUP\1PG\2TIMER_DELAY_SEC\1"
         "3\2",
         4, false, ERR_MALFORMED, "delayed"},
        {"TRAN_MSG\1true\2PGROUP\1PG\2", 4, true, ERR_MALFORMED, "batch"},
        {"UNIQ_KEY\1K\2", 4, false, ERR_MALFORMED, "TRAN_MSG"},
        {"UNIQ_KEY\1K\2", 8, false, ERR_MALFORMED, "TRAN_MSG"},
        {"UNIQ_KEY\1K\2", 12, false, ERR_MALFORMED, "TRAN_MSG"},
        {"TRAN_MSG\1true\2PGROUP\1PG\2UNIQ_KEY\1"
         "0123456789012345678901234567890123456789012345678901234567890123456789\2",
         4, false, ERR_MALFORMED, "UNIQ_KEY"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t body[256];
        struct produce r = rig_message("T", "x");
        r.props = bytes_str(cases[i].props);
        r.sys_flag = cases[i].sys_flag;
        if (cases[i].batch) {
            struct wr w = wr_over(body, sizeof body);
            batch_add(&w, &(struct batch_item){0, BYTES("x"), r.props});
            r.body = wr_bytes(&w);
            r.batch = true;
            r.sys_flag = 0;
            r.props = BYTES("WAIT\1true\2");
        }
        assert_int_equal(rig_produce(rig, &r), cases[i].err);
        assert_non_null(strstr(r.why.text, cases[i].says));
    }
    rig_topic_put(rig, "readonly", 2, PERM_READ);
    struct produce r = rig_message("readonly", "x");
    r.props = BYTES("TRAN_MSG\1true\2PGROUP\1PG\2");
    assert_int_equal(rig_produce(rig, &r), ERR_DENIED);
    rig->options.auto_topics = false;
    rig->options.txn_reject = true;
    rig_again(rig);
    r = rig_message("BenchmarkTest", "x");
    r.props = BYTES("TRAN_MSG\1true\2PGROUP\1PG\2");
    assert_int_equal(rig_produce(rig, &r), ERR_DENIED);
    assert_non_null(strstr(r.why.text, "transaction message is forbidden"));
    rig->options.txn_reject = false;
    rig_again(rig);
    r = rig_message("nowhere", "x");
    r.props = BYTES("TRAN_MSG\1true\2PGROUP\1PG\2");
    assert_int_equal(rig_produce(rig, &r), ERR_UNKNOWN_TOPIC);
    assert_int_equal(txn_counts(rig).txn_open, 0);
    assert_int_equal(rig->broker->txn->expected, 0);
    assert_int_equal(later_count(rig, HALF, 0), 0);
}

/* A half is what says TRAN_MSG, whatever its flags; a message that an old client gives back is
 * none, whatever it says. */
static void the_property_makes_a_half(void **state)
{
    struct rig *rig = *state;
    struct produce r = rig_message("T", "x");
    r.props = BYTES("TRAN_MSG\1TRUE\2PGROUP\1PG\2");
    assert_int_equal(rig_produce(rig, &r), OK);
    r = rig_message("%RETRY%g", "x");
    r.props = BYTES("TRAN_MSG\1true\2PGROUP\1PG\2DELAY\1"
                    "3\2");
    r.sys_flag = SYS_TX_PREPARED;
    r.reconsume_times = 1;
    assert_int_equal(rig_produce(rig, &r), OK);
    r = rig_message("T", "x");
    r.props = BYTES("TRAN_MSG\1false\2PGROUP\1PG\2");
    assert_int_equal(rig_produce(rig, &r), OK);
    broker_dispatch_turn(rig->broker);
    assert_int_equal(txn_counts(rig).txn_open, 1);
    assert_int_equal(later_count(rig, "T", 0), 1);
    assert_int_equal(later_count(rig, "SCHEDULE_TOPIC_XXXX", 2), 1);
    clock_manual_advance(&rig->clock, 10000);
    assert_int_equal(later_turn(rig), 1);
    assert_int_equal(later_count(rig, "%RETRY%g", 0), 1);
}

static void each_bad_end_is_refused(void **state)
{
    struct rig *rig = *state;
    struct txn_end good = txn_half(rig, "K1"), other = txn_half(rig, "K2");
    rig_send(rig, "T", "", "plain");
    int64_t plain = desk_stored(rig->desk)[0].position;
    struct {
        struct txn_end end;
        enum err err;
    } cases[] = {
        {good, ERR_INVALID}, {good, ERR_INVALID},   {good, ERR_INVALID},   {good, ERR_NOT_FOUND},
        {good, ERR_INVALID}, {good, ERR_NOT_FOUND}, {good, ERR_NOT_FOUND}, {good, ERR_NOT_FOUND},
        {good, ERR_INVALID}, {good, ERR_INVALID},
    };
    cases[0].end.group = BYTES("other");
    cases[1].end.group = (struct bytes){0};
    cases[2].end.offset = 99;
    cases[3].end.position = plain; /* no half */
    cases[4].end.position = other.position;
    cases[5].end.position = -1;
    cases[6].end.position = INT64_MAX;
    cases[7].end.position = good.position + 1; /* inside a record */
    cases[8].end.msg_id = BYTES("K2");
    cases[9].end.msg_id = BYTES("K1x"), cases[9].end.transaction_id = BYTES("K2");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int commits = 0; commits < 2; commits++)
            assert_int_equal(txn_say(rig, &cases[i].end, commits), cases[i].err);
    assert_int_equal(later_count(rig, "T", 1), 0);
    assert_int_equal(txn_counts(rig).txn_open, 2);
    good.msg_id = BYTES("K1");
    assert_int_equal(txn_say(rig, &good, true), OK);
    other.transaction_id = BYTES("K2");
    assert_int_equal(txn_say(rig, &other, true), OK);
}

/* A record inside a body looks like a half to whoever is told to look there. */
static void a_half_inside_a_body_is_none(void **state)
{
    struct rig *rig = *state;
    uint8_t fake[512];
    struct record r = {
        .body_crc = 0,
        .queue_offset = 0,
        .topic = HALF_TOPIC,
        .props = BYTES("REAL_TOPIC\1T\2REAL_QID\1"
                       "1\2PGROUP\1PG\2UNIQ_KEY\1K\2TRAN_MSG\1true\2"),
        .born_host = rig->options.host,
        .store_host = rig->options.host,
    };
    rig_send(rig, "T", "", "makes it");
    r.position = desk_stored(rig->desk)[0].position + desk_stored(rig->desk)[0].size + BODY_AT;
    struct wr w = wr_over(fake, sizeof fake);
    assert_int_equal(record_encode(&r, &w), OK);
    struct produce p = rig_message("T", "");
    p.body = wr_bytes(&w);
    assert_int_equal(rig_produce(rig, &p), OK);
    broker_dispatch_turn(rig->broker);
    struct slice got;
    struct record seen;
    assert_int_equal(store_read_at(rig->store, r.position, &got), OK);
    assert_int_equal(record_decode(got.bytes, &seen), OK);
    assert_int_equal(seen.position, r.position); /* it does look like one */
    counted_drop(got.owner);
    struct txn_end end = {.group = BYTES("PG"), .position = r.position};
    assert_int_equal(txn_say(rig, &end, true), ERR_INVALID);
    struct fault why = {0};
    uint64_t upto;
    assert_int_equal(broker_txn_resume(rig->broker, rig->desk, r.position, &upto, &why),
                     ERR_NOT_FOUND);
    assert_int_equal(later_count(rig, "T", 1), 0);
}

static void a_young_one_is_not_asked_for(void **state)
{
    struct rig *rig = *state;
    struct session p;
    txn_joins(rig, &p, "p@1", "PG");
    assert_int_equal(txn_pass(rig, 24000), 0);
    txn_half(rig, "old");
    assert_int_equal(txn_pass(rig, 1000), 0);
    txn_half(rig, "young");
    assert_int_equal(txn_pass(rig, 5001), 1); /* 30 s have passed, and 6 for the first */
    assert_string_equal(txn_asked[0].key, "old");
    assert_int_equal(txn_pass(rig, 29000), 0);
    assert_int_equal(txn_pass(rig, 1000), 2);
    broker_session_gone(rig->broker, &p.counted);
}

/* CHECK_IMMUNITY_TIME_IN_SECONDS: neither asked for before, nor given up meanwhile; after it only
 * the answer to a question counts. Nonsense in it counts as nothing. */
static void a_producer_may_want_more_time(void **state)
{
    struct rig *rig = *state;
    struct session p;
    txn_joins(rig, &p, "p@1", "PG");
    struct produce r = txn_half_more(rig, "slow",
                                     "CHECK_IMMUNITY_TIME_IN_SECONDS\1"
                                     "3600\2");
    struct txn_end slow = txn_end_of(rig, &r);
    r = txn_half_more(rig, "soon",
                      "CHECK_IMMUNITY_TIME_IN_SECONDS\1"
                      "3600\2");
    struct txn_end soon = txn_end_of(rig, &r);
    r = txn_half_more(rig, "odd", "CHECK_IMMUNITY_TIME_IN_SECONDS\1-7\2");
    struct txn_end odd = txn_end_of(rig, &r);
    assert_int_equal(txn_pass(rig, 30000), 1);
    assert_string_equal(txn_asked[0].key, "odd");
    assert_int_equal(txn_say(rig, &odd, false), OK);
    for (int minute = 1; minute < 59; minute++)
        assert_int_equal(txn_pass(rig, MINUTE), 0);
    assert_int_equal(txn_say(rig, &soon, true), OK);
    assert_int_equal(txn_pass(rig, 2 * MINUTE), 1);
    assert_string_equal(txn_asked[1].key, "slow");
    assert_int_equal(txn_asked[1].checks, 1);
    assert_int_equal(txn_say(rig, &slow, true), ERR_STALE);
    struct txn_end answer = txn_answer();
    assert_int_equal(txn_say(rig, &answer, true), OK);
    assert_int_equal(later_count(rig, "T", 1), 2);
    broker_session_gone(rig->broker, &p.counted);
}

/* Producers are down for an hour: nobody is asked, nothing is counted, nothing is lost. */
static void nobody_to_ask_is_no_question(void **state)
{
    struct rig *rig = *state;
    txn_half(rig, "K1");
    for (int minute = 0; minute < 60; minute++)
        assert_int_equal(txn_pass(rig, MINUTE), 0);
    assert_in_range(later_count(rig, HALF, 0), 4, 7); /* moved on now and then */
    rig_again(rig);
    struct session p;
    txn_joins(rig, &p, "p@1", "PG");
    assert_int_equal(txn_pass(rig, MINUTE), 1);
    assert_int_equal(txn_asked[0].checks, 1);
    struct txn_end answer = txn_answer();
    assert_int_equal(txn_say(rig, &answer, true), OK);
    assert_int_equal(later_count(rig, "T", 1), 1);
    broker_session_gone(rig->broker, &p.counted);
}

/* They are there, but so far behind that they cannot be told. */
static void a_question_that_nobody_hears_is_none(void **state)
{
    struct rig *rig = *state;
    struct session p;
    txn_joins(rig, &p, "p@1", "PG");
    txn_half(rig, "K1");
    txn_deaf = true;
    for (int i = 0; i < 40; i++)
        txn_pass(rig, 30000);
    assert_int_equal(rig->warned, 0);
    assert_int_equal(txn_counts(rig).txn_checks, 0);
    txn_deaf = false;
    assert_int_equal(txn_pass(rig, 30000), 1);
    assert_int_equal(txn_asked[0].checks, 1);
    struct txn_end answer = txn_answer();
    assert_int_equal(txn_say(rig, &answer, true), OK);
    assert_int_equal(later_count(rig, "T", 1), 1);
    broker_session_gone(rig->broker, &p.counted);
}

/* Older than messages are kept: given up, however often it was asked for. */
static void what_is_too_old_is_given_up(void **state)
{
    struct rig *rig = *state;
    txn_half(rig, "K1");
    assert_int_equal(txn_pass(rig, rig->options.reserved_ms), 0);
    assert_int_equal(rig->warned, 0);
    assert_int_equal(txn_pass(rig, MINUTE), 0);
    assert_int_equal(rig->warned, 1);
    assert_int_equal(later_count(rig, GONE, 0), 1);
}

static void an_operator_takes_it_up_again(void **state)
{
    struct rig *rig = *state;
    struct session p;
    rig->options.txn_check_max = 1;
    rig_again(rig);
    txn_joins(rig, &p, "p@1", "PG");
    struct txn_end first = txn_half(rig, "K1");
    assert_int_equal(txn_pass(rig, 30000), 1);
    assert_int_equal(txn_pass(rig, 30000), 0);
    assert_int_equal(txn_counts(rig).txn_given_up, 1);
    assert_int_equal(txn_say(rig, &first, true), ERR_INVALID);
    assert_non_null(strstr(first.why.text, "given up"));

    struct slice got;
    int64_t position = later_record(rig, GONE, 0, 0, &got).position;
    counted_drop(got.owner);
    uint64_t end;
    struct fault why = {0};
    assert_int_equal(broker_txn_resume(rig->broker, rig->desk, first.position, &end, &why),
                     ERR_INVALID);
    assert_int_equal(broker_txn_resume(rig->broker, rig->desk, position, &end, &why), OK);
    broker_dispatch_turn(rig->broker);
    assert_int_equal(broker_txn_resume(rig->broker, rig->desk, position, &end, &why), OK);
    broker_dispatch_turn(rig->broker);
    assert_int_equal(txn_counts(rig).txn_open, 1); /* twice, but one */
    rig_stop(rig);
    assert_int_equal(rig_start(rig, &why), OK);
    assert_int_equal(txn_counts(rig).txn_open, 1);
    txn_joins(rig, &p, "p@1", "PG");
    assert_int_equal(txn_pass(rig, 30000), 1);
    assert_int_equal(txn_asked[1].checks, 1);
    assert_int_equal(txn_say(rig, &first, true), OK); /* it has been the same one all the time */
    assert_int_equal(later_count(rig, "T", 1), 1);
    assert_int_equal(broker_txn_resume(rig->broker, rig->desk, position, &end, &why), ERR_INVALID);
    assert_int_equal(broker_txn_resume(rig->broker, rig->desk, -1, &end, &why), ERR_NOT_FOUND);
    assert_int_equal(broker_txn_resume(rig->broker, rig->desk, INT64_MAX, &end, &why),
                     ERR_NOT_FOUND);
    broker_session_gone(rig->broker, &p.counted);
}

static void there_is_a_limit(void **state)
{
    struct rig *rig = *state;
    rig->options.max_halves = 3;
    rig_again(rig);
    struct txn_end one = txn_half(rig, "K1");
    txn_half(rig, "K2");
    txn_half(rig, "K3");
    struct produce r = txn_half_more(rig, "K4", "");
    assert_int_equal(r.err, ERR_BUSY);
    assert_non_null(strstr(r.why.text, "maxOpenTransactions"));
    rig_send(rig, "T", "", "plain");
    assert_int_equal(txn_say(rig, &one, false), OK);
    txn_half(rig, "K4");
    rig->options.max_halves = 1; /* what is there stays */
    rig_again(rig);
    assert_int_equal(txn_counts(rig).txn_open, 3);
}

/* The log takes nothing: halves and ends are refused, a question is put off; then all goes on. */
static void a_disk_that_fails_changes_nothing(void **state)
{
    struct rig *rig = *state;
    rig_stop(rig);
    rig->store_vfs = disk_over(rig->vfs);
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    struct session p;
    txn_joins(rig, &p, "p@1", "PG");
    struct txn_end one = txn_half(rig, "K1"), two = txn_half(rig, "K2");
    clock_manual_advance(&rig->clock, 30000);
    disk.left = 0;
    assert_int_not_equal(txn_say(rig, &one, true), OK);
    assert_int_not_equal(txn_half_more(rig, "K3", "").err, OK);
    struct service_turn turn;
    broker_txn_turn(rig->broker, &turn);
    assert_int_not_equal(turn.err, OK);
    assert_int_equal(txn_n_asked, 0);
    assert_int_equal(txn_counts(rig).txn_open, 2);
    disk.left = -1;
    clock_manual_advance(&rig->clock, 2000); /* the store gives itself another chance */
    while (store_state(rig->store, NULL)) {
        clock_manual_advance(&rig->clock, 1000);
        (void)store_flush_turn(rig->store);
        broker_dispatch_turn(rig->broker);
        store_keep_turn(rig->store);
        struct store_cleaned cleaned;
        store_clean_turn(rig->store, &cleaned);
    }
    assert_int_equal(txn_pass(rig, 2000), 2);
    assert_int_equal(txn_say(rig, &one, true), OK);
    assert_int_equal(txn_say(rig, &two, false), OK);
    assert_int_equal(later_count(rig, "T", 1), 1);
    rig_stop(rig);
    rig->store_vfs = NULL;
    assert_int_equal(rig_start(rig, &why), OK);
    broker_session_gone(rig->broker, &p.counted);
}

/* A producer whose clock is wrong: after a start its transaction is as old as it has been here. */
static void a_wrong_birth_does_not_give_it_up(void **state)
{
    struct rig *rig = *state;
    static const int64_t births[] = {1, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        struct session p;
        txn_joins(rig, &p, "p@1", "PG");
        struct produce r = rig_message("T", "x");
        r.props = BYTES("TRAN_MSG\1true\2PGROUP\1PG\2UNIQ_KEY\1K\2");
        r.sys_flag = SYS_TX_PREPARED;
        r.born_ms = births[i];
        assert_int_equal(rig_produce(rig, &r), OK);
        broker_dispatch_turn(rig->broker);
        assert_int_equal(txn_pass(rig, 30000), 1);
        broker_session_gone(rig->broker, &p.counted);
        rig_again(rig);
        txn_joins(rig, &p, "p@1", "PG");
        assert_int_equal(txn_pass(rig, 30000), 1);
        assert_int_equal(txn_counts(rig).txn_given_up, 0);
        struct txn_end end = txn_answer();
        assert_int_equal(txn_say(rig, &end, true), OK);
        broker_session_gone(rig->broker, &p.counted);
    }
}

/* A half whose file cannot be mapped just now, for want of memory or handles, is open all the same:
 * it is asked for when it can be, and a start does not go on without it. */
static void what_cannot_be_read_just_now_stays_open(void **state)
{
    struct rig *rig = *state;
    rig_stop(rig);
    rig->store_vfs = disk_over(rig->vfs);
    rig->open_files = 1;
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    struct session p;
    txn_joins(rig, &p, "p@1", "PG");
    struct txn_end one = txn_half(rig, "K1");
    rig_fill(rig, 6);
    disk.blind = true;
    assert_int_equal(txn_pass(rig, 30000), 0);
    assert_int_equal(txn_counts(rig).txn_open, 1);
    disk.blind = false;
    assert_int_equal(txn_pass(rig, 30000), 1);
    rig_fill(rig, 3);
    broker_session_gone(rig->broker, &p.counted);
    rig_stop(rig);
    rig->store_open = &disk.blind;
    enum err err = rig_start(rig, &why);
    rig->store_open = NULL;
    disk.blind = false;
    assert_int_equal(err, ERR_IO);
    assert_int_equal(rig_start(rig, &why), OK);
    assert_int_equal(txn_say(rig, &one, true), OK);
    assert_int_equal(later_count(rig, "T", 1), 1);
    rig_stop(rig);
    rig->store_vfs = NULL;
    assert_int_equal(rig_start(rig, &why), OK);
}

/* After a clean stop the two queues are read from where it matters, and only there. */
static void a_restart_knows_what_is_open(void **state)
{
    struct rig *rig = *state;
    struct txn_end ends[40];
    for (int i = 0; i < 40; i++) {
        char key[16];
        snprintf(key, sizeof key, "K%d", i);
        ends[i] = txn_half(rig, key);
        if (i != 7 && i != 33)
            assert_int_equal(txn_say(rig, &ends[i], i % 2), OK);
        txn_pass(rig, 10);
    }
    rig_again(rig);
    assert_int_equal(txn_counts(rig).txn_open, 2);
    assert_int_equal(rig_offset(rig, "CID_RMQ_SYS_TRANS", HALF, 0), 7);
    assert_int_equal(rig_offset(rig, "CID_RMQ_SYS_TRANS", OP, 0), 7);
    assert_int_equal(txn_say(rig, &ends[7], true), OK);
    rig_again(rig);
    assert_int_equal(txn_counts(rig).txn_open, 1);
    assert_int_equal(rig_offset(rig, "CID_RMQ_SYS_TRANS", HALF, 0), 33);
    assert_int_equal(txn_say(rig, &ends[33], true), OK);
    assert_int_equal(txn_say(rig, &ends[7], true), OK); /* said again */
    rig_again(rig);
    assert_int_equal(txn_counts(rig).txn_open, 0);
    assert_int_equal(rig_offset(rig, "CID_RMQ_SYS_TRANS", HALF, 0), 40);
    assert_int_equal(later_count(rig, "T", 1), 20);
}

/* Op records of Apache 4.9 and 5.x, and what is none. */
static void op_records_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int n;
        int64_t all[4];
    } cases[] = {
        {"", 0, {0}},
        {"12", 1, {12}},
        {"12,", 1, {12}},
        {"0,0,1,1,", 4, {0, 0, 1, 1}},
        {",,7,,", 1, {7}},
        {"-1,x,99999999999999999999,3 ,8", 1, {8}},
        {"9223372036854775807", 1, {INT64_MAX}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes rest = bytes_str(cases[i].text);
        int n = 0;
        for (int64_t offset; ops_next(&rest, &offset); n++)
            assert_int_equal(offset, cases[i].all[n]);
        assert_int_equal(n, cases[i].n);
    }
}

/* Many entries, added and ended in any order, are found and sorted. */
static void the_table_holds_many(void **state)
{
    struct rig *rig = *state;
    struct txn *t = rig->broker->txn;
    struct dice dice = dice_seeded(11);
    enum { N = 5000 };
    static struct half *halves[N];
    room_enter(&rig->broker->room);
    for (int i = 0; i < N; i++) {
        assert_int_equal(half_make(t, &halves[i]), OK);
        halves[i]->root = halves[i]->position = i * 371;
        halves[i]->offset = i ^ 3;
        half_add(t, halves[i]);
    }
    for (int k = 0; k < N / 2; k++) {
        int i = (int)dice_below(&dice, N);
        if (halves[i])
            half_end(t, halves[i]);
        halves[i] = NULL;
    }
    int64_t last = -1;
    list_each(k, &t->by_offset) {
        assert_true(half_of(k) > last);
        last = half_of(k);
    }
    size_t left = 0;
    for (int i = 0; i < N; i++) {
        assert_ptr_equal(half_find(t, i * 371), halves[i]);
        left += halves[i] != NULL;
    }
    assert_int_equal(t->n, left);
    room_leave(&rig->broker->room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        txn_row("TX-1", commit_is_one_delivery_and_rollback_none),
        txn_row("TX-1", unknown_is_asked_for_15_times_and_then_given_up),
        txn_row("RM-3", another_member_of_the_group_is_asked),
        txn_case(records_are_as_apache_stores_them),
        txn_case(an_end_said_twice_happens_once),
        txn_case(ends_of_one_turn_are_one_op_record),
        txn_case(each_bad_half_is_refused),
        txn_case(the_property_makes_a_half),
        txn_case(each_bad_end_is_refused),
        txn_case(a_half_inside_a_body_is_none),
        txn_case(a_young_one_is_not_asked_for),
        txn_case(a_producer_may_want_more_time),
        txn_case(nobody_to_ask_is_no_question),
        txn_case(a_question_that_nobody_hears_is_none),
        txn_case(what_is_too_old_is_given_up),
        txn_case(an_operator_takes_it_up_again),
        txn_case(there_is_a_limit),
        txn_case(a_disk_that_fails_changes_nothing),
        txn_case(a_wrong_birth_does_not_give_it_up),
        txn_case(what_cannot_be_read_just_now_stays_open),
        txn_case(a_restart_knows_what_is_open),
        txn_case(op_records_are_read),
        txn_case(the_table_holds_many),
    };
    return cmocka_run_group_tests_name("broker/txn", tests, NULL, NULL);
}
