#include "suite.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CASES_MAX 256

/* ---- the tools of the cases ---- */

const char *scope_new(const struct rig *rig)
{
    static _Thread_local char scope[80];
    static _Atomic unsigned number;
    (void)snprintf(scope, sizeof scope, "%s-%ld-%u", rig->mode_name, (long)getpid(),
                   atomic_fetch_add(&number, 1));
    return scope;
}

struct once *rig_open(const struct rig *rig, struct once_options options)
{
    struct once *once = NULL;
    struct once_error why = {0};
    options.store = rig->url;
    options.mode = rig->mode;
    options.create = true;
    if (!options.group)
        options.group = scope_new(rig);
    if (once_open(&options, &once, &why))
        fail_msg("%s: %s", rig->url, why.text);
    return once;
}

struct once_message message_of(const char *key)
{
    return (struct once_message){.topic = "T", .keys = key, .body = "b", .body_size = 1};
}

void sleep_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

int work_handler(void *user, struct once_run *run)
{
    struct work *work = user;
    const struct rig *rig = work->rig;
    atomic_fetch_add(&work->runs, 1);
    work->fence = once_run_fence(run);
    if (work->sleep_ms)
        sleep_ms(work->sleep_ms);
    if (rig->mode == ONCE_TRANSACTION) {
        void *db = once_run_connection(run);
        assert_non_null(db);
        if (!business_run(rig->db, db, "INSERT INTO effects VALUES ('%s')", work->key) ||
            (work->sql && !business_run(rig->db, db, "%s", work->sql)))
            return ONCE_FAILED;
    }
    return work->result;
}

long effects_of(const struct rig *rig, struct work *work)
{
    if (rig->mode != ONCE_TRANSACTION)
        return work->runs;
    return business_number(rig->url, "SELECT COUNT(*) FROM effects WHERE k = '%s'", work->key);
}

struct once_answer deliver(struct once *once, const char *key, struct work *work)
{
    struct once_answer answer = {0};
    struct once_message m = message_of(key);
    int verdict = once_do(once, &m, work_handler, work, &answer);
    assert_int_equal(verdict, answer.verdict);
    return answer;
}

struct once_answer deliver_until_done(struct once *once, const char *key, struct work *work)
{
    for (;;) {
        struct once_answer answer = deliver(once, key, work);
        if (answer.verdict == ONCE_ACK)
            return answer;
        assert_int_not_equal(answer.verdict, ONCE_BURY);
        sleep_ms(answer.wait_ms > 20 ? 20 : (unsigned)answer.wait_ms);
    }
}

void threads_run(unsigned n, void *(*of)(void *), void *user)
{
    pthread_t threads[64];
    assert_in_range(n, 1, 64);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, of, user), 0);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* ---- every case in every mode ---- */

static struct rig rigs[] = {{.mode = ONCE_LEASE, .mode_name = "lease"},
                            {.mode = ONCE_TABLE, .mode_name = "table"},
                            {.mode = ONCE_TRANSACTION, .mode_name = "transaction"}};
static struct CMUnitTest tests[CASES_MAX];
static size_t n_tests;

static void add_cases(const struct suite_case *cases, struct rig *rig)
{
    for (; cases->name; cases++) {
        char *name = NULL;
        if (!(cases->modes & 1u << rig->mode))
            continue;
        assert_true(n_tests < CASES_MAX &&
                    asprintf(&name, "%s: %s", rig->mode_name, cases->name) > 0);
        tests[n_tests++] =
            (struct CMUnitTest){.name = name, .test_func = cases->play, .initial_state = rig};
    }
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    business_open(argv[1]);
    for (size_t i = 0; i < sizeof rigs / sizeof rigs[0]; i++) {
        rigs[i].url = argv[1];
        rigs[i].db = business_of(argv[1]);
        if (rigs[i].mode == ONCE_TRANSACTION && rigs[i].db == DB_NONE)
            continue;
        add_cases(claim_cases, &rigs[i]);
        add_cases(batch_cases, &rigs[i]);
        add_cases(transaction_cases, &rigs[i]);
    }
    int failed = _cmocka_run_group_tests("once/suite", tests, n_tests, NULL, NULL);
    for (size_t i = 0; i < n_tests; i++)
        free((char *)tests[i].name);
    return failed;
}
