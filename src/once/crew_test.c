/* crew_test.c - callers that ask at the same time, and a store that fails at any point. */
#include "once/fake_test.h"

#include <stdio.h>
#include <unistd.h>

#define THREADS 32
#define ROUNDS  50

static void no_log(void *user, int level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
}

struct rig {
    struct fake fake;
    struct store *store;
    struct crew *crew;
};

static void rig_open(struct rig *rig, int lanes, int wait_ms)
{
    *rig = (struct rig){0};
    struct store_settings s = {.url = "", .table = "once", .log = no_log, .log_user = &rig->fake};
    assert_int_equal(fake_open(&s, &rig->store, NULL), OK);
    struct crew_settings c = {.driver = &fake_driver,
                              .store = rig->store,
                              .lanes = lanes,
                              .wait_ms = wait_ms,
                              .log = no_log};
    assert_int_equal(crew_open(&c, &rig->crew, NULL), OK);
}

static void rig_close(struct rig *rig)
{
    crew_close(rig->crew);
    fake_close(rig->store);
}

static struct op op_of(enum op_kind kind, uint32_t number, uint64_t token)
{
    struct op op = {.kind = kind, .name = "", .token = token, .expiry_ms = 30000};
    op.retention_ms = 100000;
    op.fingerprint = 1;
    store_u32(op.id, number * 2654435761u); /* spread, as hashes are */
    store_u32(op.id + 4, number);
    return op;
}

static enum err ask(struct rig *rig, struct op *op, int wait_ms, struct fault *why)
{
    struct op *ops[] = {op};
    return crew_run(rig->crew, ops, 1, wait_ms, why);
}

static void one_caller_asks_by_itself(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1, 1000);
    struct op claim = op_of(OP_CLAIM, 1, 7), finish = op_of(OP_FINISH, 1, 7);
    assert_int_equal(ask(&rig, &claim, 1000, NULL), OK);
    assert_int_equal(claim.outcome, OUT_OK);
    assert_int_equal(ask(&rig, &finish, 1000, NULL), OK);
    assert_int_equal(finish.outcome, OUT_OK);
    assert_int_equal(rig.fake.connects, 1);
    assert_int_equal(rig.fake.runs, 2);
    rig_close(&rig);
}

/* More than a batch holds, and one id several times: each is answered, in the order they stood. */
static void many_of_one_caller_are_cut_into_batches(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1, 1000);
    enum { N = 3 * ONCE_OPS_MAX };
    static struct op ops[N];
    static struct op *row[N];
    for (uint32_t i = 0; i < N; i++) {
        ops[i] = op_of(OP_CLAIM, i % 700, 1000 + i);
        row[i] = &ops[i];
    }
    assert_int_equal(crew_run(rig.crew, row, N, 1000, NULL), OK);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(ops[i].outcome, i < 700 ? OUT_OK : OUT_BUSY);
    assert_int_equal(rig.fake.biggest, ONCE_OPS_MAX);
    rig_close(&rig);
}

struct worker {
    struct rig *rig;
    uint32_t number;
    int lost; /* answers that did not come */
};

/* Claims keys of its own and one that all want, and finishes them. */
static void *work(void *arg)
{
    struct worker *w = arg;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t token = (uint64_t)(w->number + 1) << 32 | i;
        struct op own = op_of(OP_CLAIM, 1000 + w->number * ROUNDS + i, token);
        struct op all = op_of(OP_CLAIM, i, token);
        struct op *row[] = {&own, &all};
        struct fault why;
        if (crew_run(w->rig->crew, row, 2, 5000, &why) != OK) {
            w->lost++;
            continue;
        }
        assert_int_equal(own.outcome, OUT_OK);
        assert_true(all.outcome == OUT_OK || all.outcome == OUT_BUSY || all.outcome == OUT_DONE);
        own.kind = OP_FINISH;
        all.kind = OP_FINISH;
        bool mine = all.outcome == OUT_OK;
        if (crew_run(w->rig->crew, row, mine ? 2 : 1, 5000, &why) != OK)
            w->lost++;
        else {
            assert_int_equal(own.outcome, OUT_OK);
            assert_true(!mine || all.outcome == OUT_OK);
        }
    }
    return NULL;
}

static int work_all(struct rig *rig)
{
    static struct worker workers[THREADS];
    pthread_t threads[THREADS];
    int lost = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){rig, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        lost += workers[i].lost;
    }
    return lost;
}

static void those_who_wait_at_the_same_time_go_together(void **state)
{
    (void)state;
    for (int lanes = 1; lanes <= 3; lanes++) {
        struct rig rig;
        rig_open(&rig, lanes, 1000);
        rig.fake.delay_us = 200;
        assert_int_equal(work_all(&rig), 0);
        assert_true(rig.fake.biggest > 4);
        assert_true(rig.fake.connects <= lanes);
        assert_true(rig.fake.runs * 3 < rig.fake.ops);
        rig_close(&rig);
    }
}

/* Fails run n with each kind of error, for n = 1, 2, 3 …; half done, done without an answer, or
 * not at all: nobody sees more than a pause. */
static void an_error_at_any_point_is_repeated(void **state)
{
    (void)state;
    static const enum err errors[] = {ERR_IO, ERR_BUSY};
    for (int kind = 0; kind < 6; kind++) {
        for (int at = 1; at <= 5; at++) {
            struct rig rig;
            rig_open(&rig, 1 + at % 2, 1000);
            rig.fake.run_fails = errors[kind / 3];
            rig.fake.run_fails_at = at * 3 - 2;
            rig.fake.half = kind % 3 == 1;
            rig.fake.mute = kind % 3 == 2;
            assert_int_equal(work_all(&rig), 0);
            assert_true(kind >= 3 || rig.fake.connects > 1); /* the broken one was thrown away */
            rig_close(&rig);
        }
    }
}

/* It was done, and its answer is lost; who asked again would forget what another has done since. */
static void a_forget_without_an_answer_is_not_asked_again(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1, 1000);
    struct op claim = op_of(OP_CLAIM, 1, 7), finish = op_of(OP_FINISH, 1, 7);
    struct op forget = op_of(OP_FORGET, 1, 0), look = op_of(OP_LOOK, 1, 0);
    assert_int_equal(ask(&rig, &claim, 1000, NULL), OK);
    assert_int_equal(ask(&rig, &finish, 1000, NULL), OK);
    rig.fake.run_fails = ERR_IO;
    rig.fake.run_fails_at = 3;
    rig.fake.mute = true;
    assert_int_equal(ask(&rig, &forget, 1000, NULL), ERR_IO);
    assert_int_equal(rig.fake.runs, 3);
    assert_int_equal(ask(&rig, &look, 1000, NULL), OK);
    assert_int_equal(look.state, ONCE_ABSENT);
    rig_close(&rig);
}

static void a_store_that_stays_away_is_told_after_the_wait(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1, 200);
    struct op op = op_of(OP_CLAIM, 1, 7);
    struct fault why = {0};
    rig.fake.run_fails = ERR_IO;
    rig.fake.connect_fails = ERR_DENIED; /* whatever it says: it was fine before */
    uint64_t before = wait_now_ns();
    assert_int_equal(ask(&rig, &op, 200, &why), ERR_IO);
    assert_true(wait_now_ns() - before >= 190 * NS_PER_MS);
    assert_int_equal(op.outcome, OUT_NONE);
    assert_string_equal(why.text, "nobody at home");
    for (int i = 0; i < 5; i++) /* known to be away: each waits for one knock, then says so */
        assert_int_equal(ask(&rig, &op, 200, &why), ERR_IO);
    rig.fake.run_fails = OK;
    rig.fake.connect_fails = OK;
    assert_int_equal(ask(&rig, &op, 1000, &why), OK); /* and the first one after that gets in */
    assert_int_equal(op.outcome, OUT_OK);
    assert_int_equal(rig.fake.live, 1);
    rig_close(&rig);
}

static void *ask_while_down(void *arg)
{
    struct worker *w = arg;
    struct op op = op_of(OP_CLAIM, w->number, 7);
    struct fault why;
    w->lost = ask(w->rig, &op, 300, &why) == ERR_IO;
    return NULL;
}

static void everybody_is_answered_while_it_is_away(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1, 300);
    rig.fake.run_fails = ERR_IO;
    rig.fake.connect_fails = ERR_IO;
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){&rig, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_while_down, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].lost, 1);
    }
    assert_true(rig.fake.connects < 20); /* one knocks for all */
    rig_close(&rig);
}

/* One operation that the store cannot bear: the others of its batch get their answers. */
static void poison_harms_itself_only(void **state)
{
    (void)state;
    static const enum err errors[] = {ERR_IO, ERR_BUSY, ERR_INVALID};
    for (size_t e = 0; e < 3; e++) {
        struct rig rig;
        rig_open(&rig, 1, 2000);
        enum { N = 20 };
        struct op ops[N], *row[N];
        for (uint32_t i = 0; i < N; i++) {
            ops[i] = op_of(OP_CLAIM, i, 7 + i);
            row[i] = &ops[i];
        }
        memcpy(rig.fake.poison, ops[11].id, ONCE_ID_SIZE);
        rig.fake.alone_fails = errors[e];
        struct fault why = {0};
        assert_int_equal(crew_run(rig.crew, row, N, 600, &why), errors[e]);
        assert_string_equal(why.text, "the test says so");
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(ops[i].outcome, i == 11 ? OUT_NONE : OUT_OK);
        rig_close(&rig);
    }
}

static void an_emptied_store_is_refused_until_it_is_accepted(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1, 1000);
    struct op op = op_of(OP_CLAIM, 1, 7);
    rig.fake.run_fails = ERR_STALE;
    assert_int_equal(ask(&rig, &op, 1000, NULL), ERR_STALE);
    rig.fake.run_fails = OK;
    int runs = rig.fake.runs;
    assert_int_equal(ask(&rig, &op, 1000, NULL), ERR_STALE);
    assert_int_equal(rig.fake.runs, runs); /* nothing is asked any more */
    assert_int_equal(crew_accept(rig.crew, NULL), OK);
    assert_int_equal(rig.fake.accepted, 1);
    assert_int_equal(ask(&rig, &op, 1000, NULL), OK);
    assert_int_equal(op.outcome, OUT_OK);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_caller_asks_by_itself),
        cmocka_unit_test(many_of_one_caller_are_cut_into_batches),
        cmocka_unit_test(those_who_wait_at_the_same_time_go_together),
        cmocka_unit_test(an_error_at_any_point_is_repeated),
        cmocka_unit_test(a_forget_without_an_answer_is_not_asked_again),
        cmocka_unit_test(a_store_that_stays_away_is_told_after_the_wait),
        cmocka_unit_test(everybody_is_answered_while_it_is_away),
        cmocka_unit_test(poison_harms_itself_only),
        test_of_row("H-13", an_emptied_store_is_refused_until_it_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
