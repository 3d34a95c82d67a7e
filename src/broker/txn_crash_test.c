/* Transactions through crashes and power losses: whatever happens when, a committed message is seen
 * once, one that was rolled back never, and what is open is asked for.
 *
 * A life is a row of random steps: halves, ends by first and later copies, said once or twice,
 * questions, flushes, saves. It ends by a stop, by a crash or by a power loss, and the next one
 * opens what is left. The oracle knows what each transaction was told, and how much of that was on
 * the disk. */
#include "broker/crash_test.h"
#include "broker/txn_test.h"

#define SEEDS 12
#define LIVES 6
#define MOST  160

enum said { SAID_NOTHING, SAID_COMMIT, SAID_ROLLBACK };

/* One transaction as its producer knows it. */
struct deal {
    bool sent;             /* its half was accepted */
    uint64_t half_end;     /* where it ends in the log */
    struct txn_end first;  /* how it is named by whoever sent it */
    struct txn_end latest; /* … and by whoever was asked last */
    enum said will;        /* what its producer decides; it never says anything else */
    bool said;             /* it was told so, and the broker took it */
    uint64_t said_end;     /* where that ends in the log */
    bool half_safe, said_safe;
};

struct world {
    struct rig *rig;
    struct vfs_fault *fault;
    struct dice dice;
    struct session producer;
    struct deal deals[MOST];
    int n;
    uint64_t seed;
};

static void world_join(struct world *w)
{
    txn_joins(w->rig, &w->producer, "p@1", "PG");
}

static void step_send(struct world *w)
{
    if (w->n == MOST)
        return;
    char key[16];
    snprintf(key, sizeof key, "K%d", w->n);
    struct produce r = txn_half_more(w->rig, key, "");
    struct deal *d = &w->deals[w->n++];
    *d = (struct deal){.will = (enum said)dice_below(&w->dice, 3), .sent = r.err == OK};
    if (!d->sent)
        return;
    const struct stored *stored = &desk_stored(w->rig->desk)[r.first];
    d->first = d->latest = txn_end_of(w->rig, &r);
    d->half_end = (uint64_t)stored->position + stored->size;
}

static void deal_say(struct world *w, struct deal *d, const struct txn_end *as)
{
    if (!d->sent || d->will == SAID_NOTHING)
        return;
    struct txn_end end = *as;
    char key[16];
    snprintf(key, sizeof key, "K%d", (int)(d - w->deals));
    end.msg_id = bytes_str(key);
    end.commits = d->will == SAID_COMMIT;
    uint64_t upto = 0;
    broker_txn_end(w->rig->broker, w->rig->desk, &end, 1, &upto);
    if (dice_below(&w->dice, 2))
        broker_dispatch_turn(w->rig->broker);
    if (end.err || d->said)
        return;
    d->said = true;
    d->said_end = upto;
}

static void step_say(struct world *w)
{
    if (w->n == 0)
        return;
    struct deal *d = &w->deals[dice_below(&w->dice, (uint64_t)w->n)];
    deal_say(w, d, dice_below(&w->dice, 2) ? &d->first : &d->latest);
}

/* A round; half of the questions are answered. */
static void step_ask(struct world *w, bool all)
{
    size_t before = txn_n_asked = 0;
    struct service_turn turn;
    broker_dispatch_turn(w->rig->broker);
    clock_manual_advance(&w->rig->clock, 30000);
    do
        broker_txn_turn(w->rig->broker, &turn);
    while (turn.next_ms == 0);
    for (size_t i = before; i < txn_n_asked; i++) {
        int number;
        assert_int_equal(sscanf(txn_asked[i].key, "K%d", &number), 1);
        struct deal *d = &w->deals[number];
        d->latest.position = txn_asked[i].position;
        d->latest.offset = txn_asked[i].offset;
        d->latest.checked = true;
        if (all || dice_below(&w->dice, 2))
            deal_say(w, d, &d->latest);
    }
}

static void step_any(struct world *w)
{
    struct service_turn turn;
    switch (dice_below(&w->dice, 9)) {
    case 0:
    case 1:
    case 2:
        step_send(w);
        break;
    case 3:
    case 4:
        step_say(w);
        break;
    case 5:
        step_ask(w, false);
        break;
    case 6:
        clock_manual_advance(&w->rig->clock, (int64_t)dice_below(&w->dice, 12000));
        (void)store_flush_turn(w->rig->store);
        store_keep_turn(w->rig->store);
        break;
    case 7:
        broker_txn_turn(w->rig->broker, &turn);
        break;
    case 8:
        (void)(broker_save_turn(w->rig->broker, NULL) == OK);
        break;
    }
}

/* What a stop, a crash or a power loss takes along. */
static void world_ends(struct world *w)
{
    struct rig *rig = w->rig;
    unsigned how = (unsigned)dice_below(&w->dice, 3);
    uint64_t flushed = store_flushed(rig->store);
    for (int i = 0; i < w->n; i++) {
        struct deal *d = &w->deals[i];
        bool lost = how == 2 && d->half_end > flushed && !d->half_safe;
        d->half_safe |= d->sent && !lost;
        if (lost && !d->half_safe)
            d->sent = false; /* it may be there or not; its producer does not end it any more */
        lost = how == 2 && d->said_end > flushed && !d->said_safe;
        d->said_safe |= d->said && !lost;
        d->said = d->said_safe;
    }
    if (how == 0) {
        rig_stop(rig);
    } else {
        fault_crash(rig, w->fault);
        if (how == 2)
            vfs_fault_power_loss(w->fault);
    }
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    world_join(w);
}

static int times_seen(struct world *w, int number)
{
    char key[16];
    int n = 0;
    snprintf(key, sizeof key, "K%d", number);
    for (int64_t i = 0; i < later_count(w->rig, "T", 1); i++) {
        struct slice got;
        struct record record = later_record(w->rig, "T", 1, i, &got);
        n += bytes_equal(record.body, bytes_str(key));
        counted_drop(got.owner);
    }
    return n;
}

/* Everybody who has something to say has been asked and has said it. */
static void world_judge(struct world *w)
{
    struct rig *rig = w->rig;
    for (int i = 0; i < 3; i++)
        step_ask(w, true);
    broker_dispatch_turn(rig->broker);
    size_t open = 0;
    for (int i = 0; i < w->n; i++) {
        const struct deal *d = &w->deals[i];
        int seen = times_seen(w, i);
        bool must = d->half_safe && d->will == SAID_COMMIT;
        open += d->half_safe && d->will == SAID_NOTHING;
        if (seen > 1 || (must && seen != 1) || (d->will != SAID_COMMIT && seen > 0))
            fail_msg("seed %llu: message %d is there %d times", (unsigned long long)w->seed, i,
                     seen);
    }
    /* A half that was not safe may be there as well; nobody has anything to say of it. */
    assert_true(txn_counts(rig).txn_open >= open);
}

static void committed_is_once_rolled_back_is_never_open_is_asked_for(void **state)
{
    struct rig *rig = *state;
    rig->options.txn_check_max = 1000;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        static struct world w;
        w = (struct world){.rig = rig, .dice = dice_seeded(seed), .seed = seed};
        w.fault = fault_under(rig, seed);
        world_join(&w);
        for (int life = 0; life < LIVES; life++) {
            int steps = 5 + (int)dice_below(&w.dice, 60);
            for (int i = 0; i < steps; i++)
                step_any(&w);
            world_ends(&w);
        }
        for (int i = 0; i < w.n; i++) { /* what comes now is not lost any more */
            w.deals[i].half_safe |= w.deals[i].sent;
        }
        world_judge(&w);
        broker_session_gone(rig->broker, &w.producer.counted);
        fault_over(rig, w.fault);
        rig_anew(rig);
    }
}

/* The log ends anywhere inside what an end or a question has stored: at a sector of the disk, which
 * a message before it shifts to anywhere. */
static void a_torn_tail_makes_nothing_twice(void **state)
{
    struct rig *rig = *state;
    static char filler[512];
    memset(filler, 'f', sizeof filler - 1);
    for (int cut = 1; cut < 512; cut += 20) {
        struct vfs_fault *fault = fault_under(rig, 1);
        struct session p;
        txn_joins(rig, &p, "p@1", "PG");
        rig_send(rig, "F", "", filler + cut);
        struct txn_end one = txn_half(rig, "K1"), two = txn_half(rig, "K2");
        assert_int_equal(store_flush_all(rig->store, NULL), OK);
        uint64_t whole = store_flushed(rig->store);
        bool asks = cut / 20 % 2;
        if (asks) {
            assert_int_equal(txn_pass(rig, 30000), 2);
        } else {
            assert_int_equal(txn_say(rig, &one, true), OK);
            assert_int_equal(txn_say(rig, &two, true), OK);
        }
        fault_crash(rig, fault);
        char path[64];
        snprintf(path, sizeof path, "%s/commitlog/%020d", rig->folder, 0);
        FILE *log = fopen(path, "r+");
        assert_non_null(log);
        long sector = (long)(whole / 512 + 1 + (uint64_t)cut % 3) * 512;
        assert_int_equal(fseek(log, sector, SEEK_SET), 0);
        static const char zeros[4096];
        assert_int_equal(fwrite(zeros, 1, sizeof zeros, log), sizeof zeros);
        assert_int_equal(fclose(log), 0);

        struct fault why = {0};
        assert_int_equal(rig_start(rig, &why), OK);
        txn_joins(rig, &p, "p@1", "PG");
        for (int i = 0; i < 3; i++) {
            size_t before = txn_n_asked;
            txn_pass(rig, 30000);
            for (size_t k = before; k < txn_n_asked; k++) {
                struct txn_end end = {.group = BYTES("PG"),
                                      .position = txn_asked[k].position,
                                      .offset = txn_asked[k].offset,
                                      .checked = true};
                assert_int_equal(txn_say(rig, &end, true), OK);
            }
        }
        one.checked = two.checked = true;
        assert_int_equal(txn_say(rig, &one, true), OK);
        assert_int_equal(txn_say(rig, &two, true), OK);
        if (later_count(rig, "T", 1) != 2)
            fail_msg("cut at %d: %d messages", cut, (int)later_count(rig, "T", 1));
        assert_int_equal(txn_counts(rig).txn_open, 0);
        broker_session_gone(rig->broker, &p.counted);
        fault_over(rig, fault);
        rig_anew(rig);
        txn_n_asked = 0;
    }
}

/* ---- threads ---- */

#define THREADS      3
#define PER_THREAD   400
#define ENDS_AT_ONCE 8

struct dealer {
    struct rig *rig;
    pthread_t thread;
    int number;
    atomic_bool *failed;
};

static bool hear_nothing(struct counted *session, const struct txn_check *check)
{
    return true;
}

/* Each row of halves is ended by the places that their sends were answered with, until each is
 * taken; meanwhile all of them are asked for again and again. */
static void *deal_many(void *arg)
{
    struct dealer *me = arg;
    struct broker *b = me->rig->broker;
    struct desk *desk;
    if (desk_open(b, &desk)) {
        atomic_store(me->failed, true);
        return NULL;
    }
    for (int i = 0; i < PER_THREAD; i += ENDS_AT_ONCE) {
        struct produce halves[ENDS_AT_ONCE];
        struct txn_end ends[ENDS_AT_ONCE];
        char keys[ENDS_AT_ONCE][16], props[ENDS_AT_ONCE][64];
        uint64_t upto;
        for (int k = 0; k < ENDS_AT_ONCE; k++) {
            snprintf(keys[k], sizeof keys[k], "K%d-%d", me->number, i + k);
            snprintf(props[k], sizeof props[k], "TRAN_MSG\1true\2PGROUP\1PG\2UNIQ_KEY\1%s\2",
                     keys[k]);
            halves[k] = rig_message("T", keys[k]);
            halves[k].props = bytes_str(props[k]);
            halves[k].queue_id = 1;
        }
        broker_produce(b, desk, halves, ENDS_AT_ONCE, &upto);
        broker_dispatch_turn(b);
        for (int k = 0; k < ENDS_AT_ONCE; k++)
            ends[k] = (struct txn_end){.group = BYTES("PG"),
                                       .position = desk_stored(desk)[halves[k].first].position,
                                       .offset = halves[k].queue_offset,
                                       .commits = (i + k) % 3 != 0};
        for (int left = ENDS_AT_ONCE; left > 0;) {
            broker_txn_end(b, desk, ends, (size_t)left, &upto);
            int kept = 0;
            for (int k = 0; k < left; k++) {
                if (ends[k].err == ERR_BUSY)
                    ends[kept++] = ends[k];
                else if (ends[k].err)
                    atomic_store(me->failed, true);
            }
            left = kept;
        }
        broker_dispatch_turn(b);
    }
    desk_close(desk);
    return NULL;
}

/* Run it in a build with -Db_sanitize=thread, too. */
static void threads_that_send_end_and_ask_end_each_once(void **state)
{
    struct rig *rig = *state;
    struct session p;
    rig->out.txn_check = hear_nothing;
    rig->options.txn_interval_ms = 0;
    rig->options.txn_timeout_ms = -1; /* due at once */
    rig->options.txn_check_max = INT32_MAX;
    rig->options.max_halves = THREADS * ENDS_AT_ONCE;
    rig_again(rig);
    txn_joins(rig, &p, "p@1", "PG");
    rig_topic_put(rig, "T", 4, PERM_READ | PERM_WRITE);
    atomic_bool failed = false;
    struct dealer dealers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        dealers[i] = (struct dealer){.rig = rig, .number = i, .failed = &failed};
        assert_int_equal(pthread_create(&dealers[i].thread, NULL, deal_many, &dealers[i]), 0);
    }
    for (struct broker_numbers n = {0};
         n.txn_committed + n.txn_rolled_back < THREADS * PER_THREAD;) {
        struct service_turn turn;
        broker_txn_turn(rig->broker, &turn);
        assert_int_equal(turn.err, OK);
        (void)store_flush_turn(rig->store);
        n = txn_counts(rig);
        if (atomic_load(&failed))
            break;
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(dealers[i].thread, NULL), 0);
    assert_false(failed);
    struct broker_numbers n = txn_counts(rig);
    assert_int_equal(n.txn_open, 0);
    assert_int_equal(later_count(rig, "T", 1), n.txn_committed);
    assert_int_equal(n.txn_committed, THREADS * (PER_THREAD - (PER_THREAD + 2) / 3));
    broker_session_gone(rig->broker, &p.counted);
    rig_again(rig);
    assert_int_equal(txn_counts(rig).txn_open, 0);
    assert_int_equal(later_count(rig, "T", 1), n.txn_committed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        txn_case(committed_is_once_rolled_back_is_never_open_is_asked_for),
        txn_case(a_torn_tail_makes_nothing_twice),
        txn_case(threads_that_send_end_and_ask_end_each_once),
    };
    return cmocka_run_group_tests_name("broker/txn_crash", tests, NULL, NULL);
}
