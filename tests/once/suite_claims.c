/* Whether a handler runs: the promises that all modes make. */
#include "suite.h"

#include <stdio.h>
#include <string.h>

#define KEYS 300 /* ID-1 says 1,000; the sum over all stores and modes is well above that */

static void thrice_delivered_once_done(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct once_stats stats;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < KEYS; i++) {
            char key[64], row[64];
            (void)snprintf(key, sizeof key, "k%u", i);
            (void)snprintf(row, sizeof row, "thrice-%s", rig->mode_name);
            struct work work = {.rig = rig, .key = row};
            struct once_answer answer = deliver(once, key, &work);
            assert_int_equal(answer.verdict, ONCE_ACK);
            assert_int_equal(answer.cause, round ? ONCE_DUPLICATE : ONCE_FIRST);
            assert_int_equal(work.runs, round == 0);
        }
    }
    once_stats(once, &stats);
    assert_int_equal(stats.first_runs, KEYS);
    assert_int_equal(stats.duplicates, 2 * KEYS);
    assert_int_equal(stats.running, 0);
    once_close(once);
    if (rig->mode == ONCE_TRANSACTION)
        assert_int_equal(business_number(rig->url,
                                         "SELECT COUNT(*) FROM effects WHERE k = 'thrice-%s'",
                                         rig->mode_name),
                         KEYS);
}

struct race {
    struct once *once[2];
    const char *key;
    struct work *work;
    _Atomic unsigned next;
};

static void *race_thread(void *user)
{
    struct race *race = user;
    unsigned me = atomic_fetch_add(&race->next, 1);
    (void)deliver_until_done(race->once[me % 2], race->key, race->work);
    return NULL;
}

/* Two processes' worth of workers: two struct once know nothing of each other but by the store. The
 * memory store is one process's, so there it is one. */
static void sixty_four_copies_at_once_have_one_effect(void **state)
{
    const struct rig *rig = *state;
    char group[80];
    (void)snprintf(group, sizeof group, "%s", scope_new(rig));
    struct work work = {.rig = rig, .key = group, .sleep_ms = 20};
    struct race race = {.key = "one", .work = &work};
    bool memory = strcmp(rig->url, "memory:") == 0;
    race.once[0] = rig_open(rig, (struct once_options){.group = group});
    race.once[1] = memory ? race.once[0] : rig_open(rig, (struct once_options){.group = group});
    threads_run(64, race_thread, &race);
    assert_int_equal(effects_of(rig, &work), 1);
    once_close(race.once[0]);
    if (!memory)
        once_close(race.once[1]);
}

static void a_copy_that_comes_while_the_first_runs_is_told_later(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct once_message m = message_of("k");
    struct once_run *run = NULL, *other = NULL;
    struct once_answer answer;
    assert_int_equal(once_begin(once, &m, &run, &answer), ONCE_RUN);
    assert_non_null(run);
    assert_int_equal(once_begin(once, &m, &other, &answer), ONCE_LATER);
    assert_null(other);
    assert_int_equal(answer.cause, ONCE_RUNNING);
    assert_true(answer.wait_ms > 0);
    assert_int_equal(once_end(run, ONCE_DONE, &answer), ONCE_ACK);
    assert_int_equal(once_begin(once, &m, &other, &answer), ONCE_ACK);
    assert_int_equal(answer.cause, ONCE_DUPLICATE);
    once_close(once);
}

static void what_failed_runs_again(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct work work = {.rig = rig, .key = scope_new(rig), .result = ONCE_FAILED};
    for (unsigned i = 1; i <= 3; i++) {
        struct once_answer answer = deliver(once, "k", &work);
        assert_int_equal(answer.verdict, ONCE_RETRY);
        assert_int_equal(answer.cause, ONCE_FAILED_RUN);
        assert_int_equal(work.runs, i);
    }
    work.result = 4711; /* anything but ONCE_DONE (H-26) */
    assert_int_equal(deliver(once, "k", &work).verdict, ONCE_RETRY);
    atomic_store(&work.runs, 0);
    work.result = ONCE_DONE;
    assert_int_equal(deliver(once, "k", &work).verdict, ONCE_ACK);
    assert_int_equal(effects_of(rig, &work), 1);
    once_close(once);
}

static void two_groups_have_an_effect_each_but_one_in_a_shared_scope(void **state)
{
    const struct rig *rig = *state;
    char a[80], b[80], scope[80];
    (void)snprintf(a, sizeof a, "%s", scope_new(rig));
    (void)snprintf(b, sizeof b, "%s", scope_new(rig));
    (void)snprintf(scope, sizeof scope, "%s", scope_new(rig));
    struct work work = {.rig = rig, .key = a};
    struct once *one = rig_open(rig, (struct once_options){.group = a});
    struct once *two = rig_open(rig, (struct once_options){.group = b});
    assert_int_equal(deliver(one, "k", &work).cause, ONCE_FIRST);
    if (strcmp(rig->url, "memory:") != 0)
        assert_int_equal(deliver(two, "k", &work).cause, ONCE_FIRST);
    once_close(one);
    once_close(two);
    if (strcmp(rig->url, "memory:") == 0)
        return; /* each has a memory of its own */
    one = rig_open(rig, (struct once_options){.group = a, .scope = scope});
    two = rig_open(rig, (struct once_options){.group = b, .scope = scope});
    assert_int_equal(deliver(one, "k", &work).cause, ONCE_FIRST);
    assert_int_equal(deliver(two, "k", &work).cause, ONCE_DUPLICATE);
    once_close(one);
    once_close(two);
}

static void keys_that_look_alike_are_different_keys(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){.key = "{body.k}"});
    char a[512], b[512];
    (void)snprintf(a, sizeof a, "{\"k\":\"%0300d\"}", 0);
    (void)snprintf(b, sizeof b, "{\"k\":\"%0299d1\"}", 0);
    const char *const bodies[] = {"{\"k\":\"Order-a\"}",
                                  "{\"k\":\"order-A\"}",
                                  "{\"k\":\"Order-a \"}",
                                  "{\"k\":\"Order-a\\u0000\"}",
                                  "{\"k\":\"'; DROP TABLE x\"}",
                                  a,
                                  b,
                                  "{\"k\":\"\xc3\xa4\"}",
                                  "{\"k\":\"a\xcc\x88\"}"};
    for (size_t i = 0; i < 2 * sizeof bodies / sizeof bodies[0]; i++) {
        size_t n = sizeof bodies / sizeof bodies[0];
        struct work work = {.rig = rig, .key = "alike"};
        struct once_message m = {.body = bodies[i % n], .body_size = strlen(bodies[i % n])};
        struct once_answer answer;
        assert_int_equal(once_do(once, &m, work_handler, &work, &answer), ONCE_ACK);
        assert_int_equal(answer.cause, i < n ? ONCE_FIRST : ONCE_DUPLICATE);
    }
    once_close(once);
}

static void a_key_of_64_KiB_is_a_key(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct work work = {.rig = rig, .key = "long"};
    static char key[(64 << 10) + 1];
    memset(key, 'k', sizeof key - 1);
    assert_int_equal(deliver(once, key, &work).cause, ONCE_FIRST);
    assert_int_equal(deliver(once, key, &work).cause, ONCE_DUPLICATE);
    key[sizeof key - 2] = 'l';
    assert_int_equal(deliver(once, key, &work).cause, ONCE_FIRST);
    once_close(once);
}

static void the_same_key_with_another_body_is_noticed(void **state)
{
    const struct rig *rig = *state;
    struct once_stats stats;
    char group[80];
    (void)snprintf(group, sizeof group, "%s", scope_new(rig));
    struct once *once = rig_open(rig, (struct once_options){.group = group});
    struct work work = {.rig = rig, .key = "body"};
    struct once_message m = message_of("k");
    struct once_answer answer;
    assert_int_equal(once_do(once, &m, work_handler, &work, &answer), ONCE_ACK);
    m.body = "c";
    assert_int_equal(once_do(once, &m, work_handler, &work, &answer), ONCE_ACK);
    assert_int_equal(answer.cause, ONCE_OTHER_BODY);
    assert_int_equal(work.runs, 1);
    once_stats(once, &stats);
    assert_int_equal(stats.other_bodies, 1);
    once_close(once);
    if (strcmp(rig->url, "memory:") == 0)
        return;
    once = rig_open(rig, (struct once_options){.group = group, .other_body = ONCE_BY_DEAD_LETTER});
    assert_int_equal(once_do(once, &m, work_handler, &work, &answer), ONCE_BURY);
    assert_int_equal(answer.cause, ONCE_OTHER_BODY);
    once_close(once);
}

static void a_message_without_a_key_is_never_taken_for_a_duplicate(void **state)
{
    const struct rig *rig = *state;
    struct once_stats stats;
    const int policies[] = {ONCE_BY_RETRY, ONCE_BY_DEAD_LETTER, ONCE_BY_MESSAGE_ID};
    const int verdicts[] = {ONCE_RETRY, ONCE_BURY, ONCE_ACK};
    for (size_t p = 0; p < 3; p++) {
        struct once *once =
            rig_open(rig, (struct once_options){.key = "coupon:{body.id}", .no_key = policies[p]});
        struct work work = {.rig = rig, .key = "nokey"};
        for (unsigned i = 0; i < 100; i++) {
            char id[16];
            (void)snprintf(id, sizeof id, "ID%u", i);
            struct once_message m = {.id = id, .body = "{\"id\":null}", .body_size = 11};
            struct once_answer answer;
            assert_int_equal(once_do(once, &m, work_handler, &work, &answer), verdicts[p]);
            assert_int_equal(answer.cause, p == 2 ? ONCE_FIRST : ONCE_NO_KEY);
            assert_true(p == 2 || strstr(answer.why.text, "{body.id}") != NULL);
        }
        once_stats(once, &stats);
        assert_int_equal(stats.no_key, 100);
        assert_int_equal(stats.duplicates, 0);
        assert_int_equal(work.runs, p == 2 ? 100 : 0);
        once_close(once);
    }
}

/* False: it was lost, as when the machine stands still for that long. */
static bool keeps_its_claim(const struct rig *rig, int expiry_ms)
{
    char group[80];
    (void)snprintf(group, sizeof group, "%s", scope_new(rig));
    struct once_options quick = {.group = group, .expiry_ms = expiry_ms};
    struct once *once = rig_open(rig, quick);
    bool memory = strcmp(rig->url, "memory:") == 0;
    struct once *other = memory ? once : rig_open(rig, quick);
    struct once_message m = message_of("k");
    struct once_run *run, *second = NULL;
    struct once_answer answer;
    bool kept = true;
    assert_int_equal(once_begin(once, &m, &run, &answer), ONCE_RUN);
    for (unsigned i = 0; i < 30 && kept; i++) { /* five times its length */
        sleep_ms((unsigned)expiry_ms / 6);
        int verdict = once_begin(other, &m, &second, &answer);
        kept = verdict == ONCE_LATER && !once_run_lost(run);
    }
    if (second)
        (void)once_end(second, ONCE_FAILED, &answer);
    int verdict = once_end(run, ONCE_DONE, &answer);
    assert_true(!kept || verdict == ONCE_ACK);
    assert_true(!kept || once_begin(other, &m, &second, &answer) == ONCE_ACK);
    once_close(once);
    if (!memory)
        once_close(other);
    return kept;
}

static void a_long_handler_keeps_its_claim(void **state)
{
    const struct rig *rig = *state;
    assert_true(keeps_its_claim(rig, 600) || keeps_its_claim(rig, 2000) ||
                keeps_its_claim(rig, 6000));
}

static void each_claim_has_a_higher_fence(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct work work = {.rig = rig, .key = "fence", .result = ONCE_FAILED};
    int64_t last = 0;
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(deliver(once, "k", &work).verdict, ONCE_RETRY);
        assert_true(work.fence > last);
        last = work.fence;
    }
    once_close(once);
}

static void operators_can_look_and_forget(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){.prefix = "p:", .key = "{key}"});
    struct work work = {.rig = rig, .key = "look"};
    struct once_look look;
    struct once_error why;
    assert_int_equal(once_look(once, "k", 1, &look, &why), ONCE_OK);
    assert_int_equal(look.state, ONCE_ABSENT);
    assert_int_equal(deliver(once, "k", &work).cause, ONCE_FIRST);
    assert_int_equal(once_look(once, "k", 1, &look, &why), ONCE_OK);
    assert_int_equal(look.state, ONCE_CONSUMED);
    assert_in_range(look.left_ms, INT64_C(71) * 3600 * 1000, INT64_C(72) * 3600 * 1000);
    assert_int_equal(once_forget(once, "k", 1, &why), ONCE_OK);
    assert_int_equal(deliver(once, "k", &work).cause, ONCE_FIRST);
    once_close(once);
}

/* ---- steps ---- */

struct chain {
    unsigned calls[3];
    char keys[3][256];
    size_t fails; /* the step that fails; 3: none */
};

static const char *const step_names[] = {"check-stock", "lock-stock", "ship"};

struct step {
    struct chain *chain;
    size_t number;
};

static int step_fn(void *user, const char *idempotency_key, struct once_bytes *result)
{
    struct step *step = user;
    struct chain *chain = step->chain;
    chain->calls[step->number]++;
    if (chain->keys[step->number][0])
        assert_string_equal(chain->keys[step->number], idempotency_key);
    (void)snprintf(chain->keys[step->number], sizeof chain->keys[0], "%s", idempotency_key);
    *result = (struct once_bytes){step_names[step->number], strlen(step_names[step->number])};
    return step->number == chain->fails ? ONCE_FAILED : ONCE_DONE;
}

static int chain_handler(void *user, struct once_run *run)
{
    struct chain *chain = user;
    for (size_t i = 0; i < 3; i++) {
        struct step step = {chain, i};
        struct once_bytes result;
        if (once_step(run, step_names[i], step_fn, &step, &result, NULL))
            return ONCE_FAILED;
        assert_int_equal(result.size, strlen(step_names[i]));
        assert_memory_equal(result.at, step_names[i], result.size);
    }
    return ONCE_DONE;
}

static void finished_steps_are_not_called_again(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct once_message m = message_of("k");
    struct once_answer answer;
    struct chain chain = {.fails = 2};
    assert_int_equal(once_do(once, &m, chain_handler, &chain, &answer), ONCE_RETRY);
    assert_int_equal(once_do(once, &m, chain_handler, &chain, &answer), ONCE_RETRY);
    chain.fails = 3;
    assert_int_equal(once_do(once, &m, chain_handler, &chain, &answer), ONCE_ACK);
    assert_int_equal(chain.calls[0], 1);
    assert_int_equal(chain.calls[1], 1);
    assert_int_equal(chain.calls[2], 3);
    assert_string_not_equal(chain.keys[0], chain.keys[1]);
    struct once_message another = message_of("l");
    struct chain second = {.fails = 3};
    assert_int_equal(once_do(once, &another, chain_handler, &second, &answer), ONCE_ACK);
    assert_string_not_equal(chain.keys[0], second.keys[0]);
    once_close(once);
}

const struct suite_case claim_cases[] = {
    {"ID-1 ID-2 ID-14 what is delivered three times has one effect", thrice_delivered_once_done,
     ALL},
    {"ID-12 64 copies at once have one effect", sixty_four_copies_at_once_have_one_effect, ALL},
    {"ID-12 H-7 a copy that comes while the first runs is told later, not acknowledged",
     a_copy_that_comes_while_the_first_runs_is_told_later, ALL},
    {"ID-27 H-26 what failed has no effect and runs again", what_failed_runs_again, ALL},
    {"H-14 H-34 two groups have an effect each; one, if they share a scope",
     two_groups_have_an_effect_each_but_one_in_a_shared_scope, ALL},
    {"H-16 H-17 keys that look alike are different keys", keys_that_look_alike_are_different_keys,
     ALL},
    {"H-16 a key of 64 KiB is a key", a_key_of_64_KiB_is_a_key, ALL},
    {"H-25 the same key with another body is noticed", the_same_key_with_another_body_is_noticed,
     ALL},
    {"H-15 a message without a key is never taken for a duplicate",
     a_message_without_a_key_is_never_taken_for_a_duplicate, ALL},
    {"H-1 a handler five times as long as its claim keeps it", a_long_handler_keeps_its_claim,
     LEASE},
    {"each claim has a higher fence than the one before", each_claim_has_a_higher_fence, LEASE},
    {"operators can look at a key and forget it", operators_can_look_and_forget, ALL},
    {"ID-10 H-31 finished steps are not called again, and give what they gave",
     finished_steps_are_not_called_again, LEASE},
    {0},
};
