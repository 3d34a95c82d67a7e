/* run_test.c - messages through the whole core, on the memory store. */
#include "once/once_int.h"

#include "base/test.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define THREADS 64

/* The clock is the test's, and the keeper's rounds are called by it. */
struct stage {
    struct clock_manual clock;
    struct once *once;
};

static const struct once_options plain_options = {
    .store = "memory:", .group = "g", .key = "{body.id}"};

static void stage_open(struct stage *s, const struct once_options *o)
{
    clock_manual_init(&s->clock, 1700000000000);
    struct once_parts parts = {.clock = &s->clock.clock, .no_keeper = true};
    struct once_error why;
    assert_int_equal(once_open_with(o, &parts, &s->once, &why), ONCE_OK);
}

static struct once_message message(const char *body)
{
    return (struct once_message){.topic = "T", .id = "m1", .body = body, .body_size = strlen(body)};
}

static int done(void *user, struct once_run *run)
{
    (void)run;
    if (user)
        ++*(int *)user;
    return ONCE_DONE;
}

static int fails(void *user, struct once_run *run)
{
    (void)run;
    ++*(int *)user;
    return ONCE_FAILED;
}

static struct once_stats stats_of(struct once *once)
{
    struct once_stats s;
    once_stats(once, &s);
    return s;
}

static void assert_answer(const struct once_answer *a, int verdict, int cause)
{
    if (a->verdict != verdict || a->cause != cause)
        print_error("verdict %d, cause %d (%s): %s\n", a->verdict, a->cause,
                    once_cause_text(a->cause), a->why.text);
    assert_int_equal(a->verdict, verdict);
    assert_int_equal(a->cause, cause);
}

static void runs_once_and_then_never_again(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, &plain_options);
    struct once_message m = message("{\"id\":7}");
    struct once_answer a;
    int effects = 0;
    assert_int_equal(once_do(s.once, &m, done, &effects, &a), ONCE_ACK);
    assert_answer(&a, ONCE_ACK, ONCE_FIRST);
    for (int i = 0; i < 3; i++) {
        clock_manual_advance(&s.clock, 3600 * 1000);
        assert_int_equal(once_do(s.once, &m, done, &effects, &a), ONCE_ACK);
        assert_answer(&a, ONCE_ACK, ONCE_DUPLICATE);
    }
    assert_int_equal(effects, 1);
    struct once_stats n = stats_of(s.once);
    assert_int_equal(n.first_runs, 1);
    assert_int_equal(n.duplicates, 3);
    assert_int_equal(n.running, 0);
    once_close(s.once);
}

static void a_failure_is_tried_again(void **state)
{
    (void)state;
    for (int mode = ONCE_LEASE; mode <= ONCE_TABLE; mode++) {
        struct stage s;
        struct once_options o = plain_options;
        o.mode = mode;
        stage_open(&s, &o);
        struct once_message m = message("{\"id\":7}");
        struct once_answer a;
        int effects = 0, tries = 0;
        assert_int_equal(once_do(s.once, &m, fails, &tries, &a), ONCE_RETRY);
        assert_answer(&a, ONCE_RETRY, ONCE_FAILED_RUN);
        struct once_look look;
        assert_int_equal(once_look(s.once, "7", 1, &look, NULL), ONCE_OK);
        assert_int_equal(look.state, mode == ONCE_TABLE ? ONCE_ABSENT : ONCE_RELEASED);
        assert_int_equal(once_do(s.once, &m, done, &effects, &a), ONCE_ACK);
        assert_int_equal(effects, 1);
        assert_int_equal(stats_of(s.once).released, 1);
        once_close(s.once);
    }
}

/* Anything that is not ONCE_DONE. */
static int aborts(void *user, struct once_run *run)
{
    (void)user;
    (void)run;
    return -17;
}

static void anything_but_success_is_a_failure(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, &plain_options);
    struct once_message m = message("{\"id\":7}");
    int effects = 0;
    assert_int_equal(once_do(s.once, &m, aborts, NULL, NULL), ONCE_RETRY);
    assert_int_equal(once_do(s.once, &m, done, &effects, NULL), ONCE_ACK);
    assert_int_equal(effects, 1);
    once_close(s.once);
}

static void a_key_that_runs_is_later_without_asking_the_store(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, &plain_options);
    struct once_message m = message("{\"id\":7}");
    struct once_answer a;
    struct once_run *run, *second;
    assert_int_equal(once_begin(s.once, &m, &run, &a), ONCE_RUN);
    uint64_t calls = stats_of(s.once).store_calls;
    assert_int_equal(once_begin(s.once, &m, &second, &a), ONCE_LATER);
    assert_null(second);
    assert_answer(&a, ONCE_LATER, ONCE_RUNNING);
    assert_true(a.wait_ms > 0);
    assert_int_equal(stats_of(s.once).store_calls, calls);
    assert_int_equal(stats_of(s.once).running, 1);
    assert_int_equal(once_end(run, ONCE_DONE, &a), ONCE_ACK);
    assert_int_equal(once_begin(s.once, &m, &second, &a), ONCE_ACK);
    once_close(s.once);
}

static void fences_grow(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, &plain_options);
    struct once_message m = message("{\"id\":7}");
    int64_t last = 0;
    for (int i = 0; i < 5; i++) {
        struct once_run *run;
        assert_int_equal(once_begin(s.once, &m, &run, NULL), ONCE_RUN);
        assert_true(once_run_fence(run) > last);
        last = once_run_fence(run);
        assert_int_equal(once_end(run, ONCE_FAILED, NULL), ONCE_RETRY);
    }
    once_close(s.once);
}

/* Two instances on one store: what two processes are to a server. */
static struct store *shared_store;
static int shared_users;

static enum err shared_open(const struct store_settings *settings, struct store **out,
                            struct fault *why)
{
    enum err err = shared_users++ ? OK : once_driver_memory.open(settings, &shared_store, why);
    *out = shared_store;
    return err;
}

static void shared_close(struct store *store)
{
    if (--shared_users == 0)
        once_driver_memory.close(store);
}

static struct once *second_open(struct stage *s, struct once_driver *driver,
                                const struct once_options *o)
{
    struct once_parts parts = {.driver = driver, .clock = &s->clock.clock, .no_keeper = true};
    struct once *once;
    assert_int_equal(once_open_with(o, &parts, &once, NULL), ONCE_OK);
    return once;
}

static struct once_driver shared_driver(void)
{
    struct once_driver d = once_driver_memory;
    d.open = shared_open;
    d.close = shared_close;
    return d;
}

static void a_claim_is_kept_while_its_handler_runs(void **state)
{
    (void)state;
    struct stage s;
    clock_manual_init(&s.clock, 1700000000000);
    struct once_driver shared = shared_driver();
    struct once *a = second_open(&s, &shared, &plain_options);
    struct once *b = second_open(&s, &shared, &plain_options);
    struct once_message m = message("{\"id\":7}");
    struct once_run *run;
    struct once_answer answer;
    assert_int_equal(once_begin(a, &m, &run, NULL), ONCE_RUN);
    for (int i = 0; i < 100; i++) { /* ten times as long as its expiry */
        clock_manual_advance(&s.clock, 3000);
        keeper_turn(a);
        assert_false(once_run_lost(run));
        assert_int_equal(once_do(b, &m, done, NULL, &answer), ONCE_LATER);
        assert_answer(&answer, ONCE_LATER, ONCE_RUNNING);
        assert_true(answer.wait_ms > 0 && answer.wait_ms <= 30000);
    }
    assert_int_equal(once_end(run, ONCE_DONE, &answer), ONCE_ACK);
    assert_int_equal(once_do(b, &m, done, NULL, &answer), ONCE_ACK);
    assert_answer(&answer, ONCE_ACK, ONCE_DUPLICATE);
    once_close(a);
    once_close(b);
}

/* The process stands still for three expiries, another takes over, the first comes back. `first` is
 * what its handler says then. */
static void overtaken(int first, int second)
{
    struct stage s;
    clock_manual_init(&s.clock, 1700000000000);
    struct once_driver shared = shared_driver();
    struct once *a = second_open(&s, &shared, &plain_options);
    struct once *b = second_open(&s, &shared, &plain_options);
    struct once_message m = message("{\"id\":7}");
    struct once_run *run_a, *run_b;
    struct once_answer answer;
    int effects = 0;
    assert_int_equal(once_begin(a, &m, &run_a, NULL), ONCE_RUN);
    clock_manual_advance(&s.clock, 90000);
    assert_int_equal(once_begin(b, &m, &run_b, NULL), ONCE_RUN);
    assert_true(once_run_fence(run_b) > once_run_fence(run_a));
    assert_true(once_run_lost(run_a));
    keeper_turn(a);
    assert_true(once_run_lost(run_a));
    assert_int_equal(once_end(run_a, first, &answer), ONCE_LATER);
    assert_answer(&answer, ONCE_LATER, ONCE_LOST_CLAIM);
    /* The second one's claim is untouched. */
    assert_false(once_run_lost(run_b));
    assert_int_equal(once_do(a, &m, done, &effects, &answer), ONCE_LATER);
    assert_answer(&answer, ONCE_LATER, ONCE_RUNNING);
    assert_int_equal(once_end(run_b, second, &answer), second == ONCE_DONE ? ONCE_ACK : ONCE_RETRY);
    if (second == ONCE_FAILED) { /* that the first one never ended is news for all that follow */
        assert_int_equal(once_begin(b, &m, &run_b, NULL), ONCE_RUN);
        assert_true(once_run_overtook(run_b));
        assert_int_equal(once_end(run_b, ONCE_FAILED, NULL), ONCE_RETRY);
    }
    assert_int_equal(once_do(a, &m, done, &effects, &answer), ONCE_ACK);
    assert_int_equal(effects, second == ONCE_DONE ? 0 : 1);
    assert_int_equal(stats_of(a).lost, 1);
    once_close(a);
    once_close(b);
}

static void whoever_was_overtaken_changes_nothing(void **state)
{
    (void)state;
    overtaken(ONCE_DONE, ONCE_DONE);
    overtaken(ONCE_DONE, ONCE_FAILED);
    overtaken(ONCE_FAILED, ONCE_DONE);
    overtaken(ONCE_FAILED, ONCE_FAILED);
}

static void a_late_finish_that_nobody_overtook_counts(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, &plain_options);
    struct once_message m = message("{\"id\":7}");
    struct once_run *run;
    assert_int_equal(once_begin(s.once, &m, &run, NULL), ONCE_RUN);
    clock_manual_advance(&s.clock, 90000);
    assert_true(once_run_lost(run));
    assert_int_equal(once_end(run, ONCE_DONE, NULL), ONCE_ACK);
    assert_int_equal(once_do(s.once, &m, done, NULL, NULL), ONCE_ACK);
    assert_int_equal(stats_of(s.once).duplicates, 1);
    once_close(s.once);
}

static void two_groups_have_two_effects_unless_they_share_a_scope(void **state)
{
    (void)state;
    struct stage s;
    clock_manual_init(&s.clock, 1700000000000);
    struct once_driver shared = shared_driver();
    struct once_options one = plain_options, other = plain_options, renamed = plain_options;
    other.group = "h";
    renamed.group = "new name";
    renamed.scope = "g";
    struct once *a = second_open(&s, &shared, &one);
    struct once *b = second_open(&s, &shared, &other);
    struct once *c = second_open(&s, &shared, &renamed);
    struct once_message m = message("{\"id\":7}");
    int effects = 0;
    assert_int_equal(once_do(a, &m, done, &effects, NULL), ONCE_ACK);
    assert_int_equal(once_do(b, &m, done, &effects, NULL), ONCE_ACK);
    assert_int_equal(effects, 2);
    assert_int_equal(once_do(c, &m, done, &effects, NULL), ONCE_ACK);
    assert_int_equal(effects, 2);
    once_close(a);
    once_close(b);
    once_close(c);
}

static void messages_without_a_key_are_flagged_not_suppressed(void **state)
{
    (void)state;
    static const struct {
        int policy, verdict;
    } cases[] = {{ONCE_BY_RETRY, ONCE_RETRY}, {ONCE_BY_DEAD_LETTER, ONCE_BURY}};
    static const char *const bodies[] = {"{}", "{\"id\":null}", "{\"id\":\"\"}", "no json", ""};
    for (size_t c = 0; c < 2; c++) {
        struct stage s;
        struct once_options o = plain_options;
        o.no_key = cases[c].policy;
        stage_open(&s, &o);
        struct once_answer a;
        for (int i = 0; i < 100; i++) {
            struct once_message m = message(bodies[i % 5]);
            assert_int_equal(once_do(s.once, &m, done, NULL, &a), cases[c].verdict);
            assert_answer(&a, cases[c].verdict, ONCE_NO_KEY);
            assert_true(strlen(a.why.text) > 10);
        }
        assert_int_equal(stats_of(s.once).no_key, 100);
        assert_int_equal(stats_of(s.once).duplicates, 0);
        once_close(s.once);
    }
}

static void a_message_without_a_key_can_go_by_its_id(void **state)
{
    (void)state;
    struct stage s;
    struct once_options o = plain_options;
    o.no_key = ONCE_BY_MESSAGE_ID;
    o.prefix = "p:";
    stage_open(&s, &o);
    struct once_message m = message("{}");
    struct once_run *run;
    int effects = 0;
    assert_int_equal(once_begin(s.once, &m, &run, NULL), ONCE_RUN);
    assert_string_equal(once_run_key(run), "p:m1");
    assert_int_equal(once_run_key_size(run), 4);
    assert_int_equal(once_end(run, ONCE_DONE, NULL), ONCE_ACK);
    assert_int_equal(once_do(s.once, &m, done, &effects, NULL), ONCE_ACK);
    assert_int_equal(effects, 0);
    m.id = "m2";
    assert_int_equal(once_do(s.once, &m, done, &effects, NULL), ONCE_ACK);
    assert_int_equal(effects, 1);
    m.id = NULL;
    assert_int_equal(once_do(s.once, &m, done, &effects, NULL), ONCE_RETRY);
    once_close(s.once);
}

static void another_body_under_the_same_key_is_flagged(void **state)
{
    (void)state;
    static const int policies[] = {ONCE_BY_RETRY, ONCE_BY_SUPPRESSION, ONCE_BY_DEAD_LETTER};
    for (size_t i = 0; i < 3; i++) {
        struct stage s;
        struct once_options o = plain_options;
        o.other_body = policies[i];
        stage_open(&s, &o);
        struct once_message m = message("{\"id\":7,\"sum\":1}"),
                            n = message("{\"id\":7,\"sum\":2}");
        struct once_answer a;
        assert_int_equal(once_do(s.once, &m, done, NULL, NULL), ONCE_ACK);
        int verdict = policies[i] == ONCE_BY_DEAD_LETTER ? ONCE_BURY : ONCE_ACK;
        assert_int_equal(once_do(s.once, &n, done, NULL, &a), verdict);
        assert_answer(&a, verdict, ONCE_OTHER_BODY);
        assert_int_equal(stats_of(s.once).other_bodies, 1);
        once_close(s.once);
    }
}

static void of_a_batch_each_message_has_its_own_outcome(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, &plain_options);
    enum { N = 600 }; /* more than a store is asked at once */
    static char bodies[N][32];
    static struct once_message m[N];
    static struct once_run *runs[N];
    static struct once_answer answers[N];
    static int results[N];
    for (int i = 0; i < N; i++) {
        int id = i == 5 ? 3 : i; /* one comes twice in the same batch */
        (void)snprintf(bodies[i], sizeof bodies[i], "{\"id\":%d}", id);
        m[i] = message(bodies[i]);
        results[i] = i == 17 ? ONCE_FAILED : ONCE_DONE;
    }
    once_begin_all(s.once, m, N, runs, answers);
    for (int i = 0; i < N; i++)
        assert_int_equal(answers[i].verdict, i == 5 ? ONCE_LATER : ONCE_RUN);
    assert_null(runs[5]);
    assert_int_equal(stats_of(s.once).running, N - 1);
    once_end_all(runs, results, N, answers);
    for (int i = 0; i < N; i++)
        assert_int_equal(answers[i].verdict, i == 5 ? ONCE_LATER : i == 17 ? ONCE_RETRY : ONCE_ACK);
    once_begin_all(s.once, m, N, runs, answers);
    for (int i = 0; i < N; i++)
        assert_int_equal(answers[i].verdict, i == 17 ? ONCE_RUN : ONCE_ACK);
    once_end_all(runs, results, N, answers);
    assert_int_equal(stats_of(s.once).running, 0);
    once_close(s.once);
}

/* A store of the test's own: of its second claim it does not hear, or not say, that it is done. */
struct deaf {
    int claims, told; /* told: that the second is done */
    bool silent, hears, marked;
    uint64_t second; /* its token */
};

static int deaf_begin(void *self, const struct once_claim *claim, struct once_found *out)
{
    struct deaf *d = self;
    if (++d->claims == 2)
        d->second = claim->token;
    *out = (struct once_found){.state = ONCE_ABSENT, .fence = d->claims};
    return ONCE_OK;
}

static int deaf_renew(void *self, const struct once_claim *claim)
{
    const struct deaf *d = self;
    return d->marked && claim->token == d->second ? ONCE_LOST : ONCE_OK;
}

static int deaf_done(void *self, const struct once_claim *claim)
{
    struct deaf *d = self;
    if (claim->token != d->second)
        return ONCE_OK;
    d->told++;
    d->marked = d->marked || d->hears;
    return d->silent ? ONCE_STORE : ONCE_OK;
}

static int deaf_failed(void *self, const struct once_claim *claim)
{
    (void)self;
    (void)claim;
    return ONCE_OK;
}

static const struct once_checker deaf_checker = {
    .begin = deaf_begin, .renew = deaf_renew, .done = deaf_done, .failed = deaf_failed};
static const int all_done[3] = {ONCE_DONE, ONCE_DONE, ONCE_DONE};

/* Three runs are ended together, and the second has no answer: it is still the caller's. */
static void deaf_open(struct stage *s, struct deaf *d, struct once_run **runs)
{
    static const char *const bodies[3] = {"{\"id\":1}", "{\"id\":2}", "{\"id\":3}"};
    struct once_message m[3];
    struct once_answer answers[3];
    struct once_options o = {
        .checker = &deaf_checker, .checker_self = d, .group = "g", .key = "{body.id}"};
    stage_open(s, &o);
    for (int i = 0; i < 3; i++)
        m[i] = message(bodies[i]);
    once_begin_all(s->once, m, 3, runs, answers);
    d->silent = true;
    once_end_all(runs, all_done, 3, answers);
    assert_answer(&answers[0], ONCE_ACK, ONCE_FIRST);
    assert_answer(&answers[1], ONCE_RUN, ONCE_UNSURE);
    assert_answer(&answers[2], ONCE_ACK, ONCE_FIRST);
    assert_true(answers[1].wait_ms > 0);
    assert_true(answers[1].why.text[0]);
    assert_int_equal(d->told, 1);
    assert_int_equal(stats_of(s->once).running, 1);
}

static void what_the_store_does_not_answer_holds_up_no_other_end(void **state)
{
    (void)state;
    struct stage s;
    struct deaf d = {0};
    struct once_run *runs[3];
    struct once_answer a;
    deaf_open(&s, &d, runs);
    once_end_all(&runs[1], all_done, 1, &a);
    assert_answer(&a, ONCE_RUN, ONCE_UNSURE);
    assert_int_equal(d.told, 2);
    d.silent = false;
    assert_int_equal(once_end(runs[1], ONCE_DONE, &a), ONCE_ACK);
    assert_answer(&a, ONCE_ACK, ONCE_FIRST);
    assert_int_equal(stats_of(s.once).running, 0);
    once_close(s.once);
}

/* Though the claim is renewed meanwhile: what the store refuses for so long it will not take. */
static void an_end_without_an_answer_is_given_up_with_its_claim(void **state)
{
    (void)state;
    struct stage s;
    struct deaf d = {0};
    struct once_run *runs[3];
    struct once_answer a;
    deaf_open(&s, &d, runs);
    for (int i = 0; i < 2; i++) { /* of 30 s */
        clock_manual_advance(&s.clock, 14000);
        keeper_turn(s.once);
        once_end_all(&runs[1], all_done, 1, &a);
        assert_answer(&a, ONCE_RUN, ONCE_UNSURE);
    }
    clock_manual_advance(&s.clock, 14000);
    once_end_all(&runs[1], all_done, 1, &a);
    assert_answer(&a, ONCE_LATER, ONCE_UNSURE);
    assert_int_equal(stats_of(s.once).running, 0);
    assert_int_equal(stats_of(s.once).unsure, 1);
    once_close(s.once);
}

/* Whoever renews the claim then is told that it is gone, because it is finished. */
static void an_end_that_was_heard_without_an_answer_is_no_loss(void **state)
{
    (void)state;
    struct stage s;
    struct deaf d = {.hears = true};
    struct once_run *runs[3];
    struct once_answer a;
    deaf_open(&s, &d, runs);
    clock_manual_advance(&s.clock, 14000);
    keeper_turn(s.once);
    assert_true(once_run_lost(runs[1]));
    d.silent = false;
    once_end_all(&runs[1], all_done, 1, &a);
    assert_answer(&a, ONCE_ACK, ONCE_FIRST);
    assert_int_equal(stats_of(s.once).running, 0);
    once_close(s.once);
}

struct crowd {
    struct once *once;
    _Atomic int effects, inside, acks, laters;
};

static int crowded(void *user, struct once_run *run)
{
    struct crowd *c = user;
    (void)run;
    assert_int_equal(atomic_fetch_add(&c->inside, 1), 0);
    (void)atomic_fetch_add(&c->effects, 1);
    (void)usleep(1000);
    (void)atomic_fetch_sub(&c->inside, 1);
    return ONCE_DONE;
}

static void *crowd_member(void *arg)
{
    struct crowd *c = arg;
    struct once_message m = message("{\"id\":\"all the same\"}");
    struct once_answer a;
    while (once_do(c->once, &m, crowded, c, &a) == ONCE_LATER) {
        assert_int_equal(a.cause, ONCE_RUNNING);
        (void)atomic_fetch_add(&c->laters, 1);
        (void)usleep(500);
    }
    assert_int_equal(a.verdict, ONCE_ACK);
    (void)atomic_fetch_add(&c->acks, 1);
    return NULL;
}

static void sixty_four_threads_and_one_key_make_one_effect(void **state)
{
    (void)state;
    struct crowd c = {0};
    assert_int_equal(once_open(&plain_options, &c.once, NULL), ONCE_OK);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_member, &c), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&c.effects), 1);
    assert_int_equal(atomic_load(&c.acks), THREADS);
    struct once_stats n = stats_of(c.once);
    assert_int_equal(n.first_runs, 1);
    assert_int_equal(n.duplicates, THREADS - 1);
    assert_int_equal(n.busy, (uint64_t)atomic_load(&c.laters));
    once_close(c.once);
}

static _Atomic int seen;
static pthread_t seer;

static void see(int signal)
{
    (void)signal;
    seer = pthread_self();
    atomic_store(&seen, 1);
}

/* A signal to the process, while the application's threads do not take it: the keeper does not
 * either. */
static void signals_are_the_applications(void **state)
{
    (void)state;
    struct once *once;
    sigset_t one, before;
    assert_int_equal(once_open(&plain_options, &once, NULL), ONCE_OK);
    (void)signal(SIGUSR1, see);
    (void)sigemptyset(&one);
    (void)sigaddset(&one, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &one, &before), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    (void)usleep(50000);
    assert_int_equal(atomic_load(&seen), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(atomic_load(&seen), 1);
    assert_true(pthread_equal(seer, pthread_self()));
    once_close(once);
}

struct heart {
    int64_t expiry_ms;
    bool lost;
};

static int beat(void *user, struct once_run *run)
{
    struct heart *heart = user;
    for (int i = 0; i < 30; i++) {
        (void)usleep((useconds_t)heart->expiry_ms * 1000 / 15);
        heart->lost |= once_run_lost(run);
    }
    return ONCE_DONE;
}

static bool renews(int64_t expiry_ms)
{
    struct once_options o = plain_options;
    o.expiry_ms = expiry_ms;
    struct once *once;
    assert_int_equal(once_open(&o, &once, NULL), ONCE_OK);
    struct once_message m = message("{\"id\":7}");
    struct once_answer a;
    struct heart heart = {.expiry_ms = expiry_ms};
    assert_int_equal(once_do(once, &m, beat, &heart, &a), ONCE_ACK);
    assert_answer(&a, ONCE_ACK, ONCE_FIRST);
    once_close(once);
    return !heart.lost;
}

/* In real time: the keeper's thread does what the tests above did by hand. A claim that is lost
 * because the machine stands still is tried again as a longer one. */
static void the_keeper_renews(void **state)
{
    (void)state;
    assert_true(renews(300) || renews(1000) || renews(3000));
}

static void the_table_is_not_renewed(void **state)
{
    (void)state;
    struct stage s;
    struct once_options o = plain_options;
    o.mode = ONCE_TABLE;
    stage_open(&s, &o);
    struct once_message m = message("{\"id\":7}");
    struct once_run *run;
    assert_int_equal(once_begin(s.once, &m, &run, NULL), ONCE_RUN);
    clock_manual_advance(&s.clock, 3599 * 1000);
    keeper_turn(s.once);
    assert_false(once_run_lost(run));
    clock_manual_advance(&s.clock, 2000);
    assert_true(once_run_lost(run));
    assert_int_equal(once_end(run, ONCE_FAILED, NULL), ONCE_RETRY);
    once_close(s.once);
}

static void what_is_forgotten_is_swept_and_runs_again(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, &plain_options);
    struct once_message m = message("{\"id\":7}");
    int effects = 0;
    assert_int_equal(once_do(s.once, &m, done, &effects, NULL), ONCE_ACK);
    clock_manual_advance(&s.clock, INT64_C(72) * 3600 * 1000 - 1);
    keeper_turn(s.once);
    assert_int_equal(stats_of(s.once).swept, 0);
    assert_int_equal(once_do(s.once, &m, done, &effects, NULL), ONCE_ACK);
    assert_int_equal(effects, 1);
    clock_manual_advance(&s.clock, 61000);
    keeper_turn(s.once);
    assert_int_equal(stats_of(s.once).swept, 1);
    assert_int_equal(once_do(s.once, &m, done, &effects, NULL), ONCE_ACK);
    assert_int_equal(effects, 2);
    once_close(s.once);
}

static void operators_look_and_forget(void **state)
{
    (void)state;
    struct stage s;
    struct once_options o = plain_options;
    o.prefix = "p:";
    stage_open(&s, &o);
    struct once_message m = message("{\"id\":7}");
    struct once_look look;
    struct once_run *run;
    assert_int_equal(once_look(s.once, "7", 1, &look, NULL), ONCE_OK);
    assert_int_equal(look.state, ONCE_ABSENT);
    assert_int_equal(once_begin(s.once, &m, &run, NULL), ONCE_RUN);
    assert_int_equal(once_look(s.once, "7", 1, &look, NULL), ONCE_OK);
    assert_int_equal(look.state, ONCE_CONSUMING);
    assert_int_equal(look.left_ms, 30000);
    assert_int_equal(look.fence, once_run_fence(run));
    assert_int_equal(once_end(run, ONCE_DONE, NULL), ONCE_ACK);
    assert_int_equal(once_look(s.once, "7", 1, &look, NULL), ONCE_OK);
    assert_int_equal(look.state, ONCE_CONSUMED);
    assert_int_equal(once_forget(s.once, "7", 1, NULL), ONCE_OK);
    assert_int_equal(once_look(s.once, "7", 1, &look, NULL), ONCE_OK);
    assert_int_equal(look.state, ONCE_ABSENT);
    once_close(s.once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_of_row("ID-1", runs_once_and_then_never_again),
        test_of_row("ID-23", a_failure_is_tried_again),
        test_of_row("H-26", anything_but_success_is_a_failure),
        test_of_row("H-7", a_key_that_runs_is_later_without_asking_the_store),
        cmocka_unit_test(fences_grow),
        test_of_row("H-1", a_claim_is_kept_while_its_handler_runs),
        test_of_row("H-2 H-3", whoever_was_overtaken_changes_nothing),
        cmocka_unit_test(a_late_finish_that_nobody_overtook_counts),
        test_of_row("H-14 H-34", two_groups_have_two_effects_unless_they_share_a_scope),
        test_of_row("H-15", messages_without_a_key_are_flagged_not_suppressed),
        cmocka_unit_test(a_message_without_a_key_can_go_by_its_id),
        test_of_row("H-25", another_body_under_the_same_key_is_flagged),
        test_of_row("H-23", of_a_batch_each_message_has_its_own_outcome),
        cmocka_unit_test(what_the_store_does_not_answer_holds_up_no_other_end),
        cmocka_unit_test(an_end_without_an_answer_is_given_up_with_its_claim),
        cmocka_unit_test(an_end_that_was_heard_without_an_answer_is_no_loss),
        test_of_row("ID-20", sixty_four_threads_and_one_key_make_one_effect),
        cmocka_unit_test(the_keeper_renews),
        cmocka_unit_test(signals_are_the_applications),
        cmocka_unit_test(the_table_is_not_renewed),
        test_of_row("H-33", what_is_forgotten_is_swept_and_runs_again),
        cmocka_unit_test(operators_look_and_forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
