/* Many messages in one call. */
#include "suite.h"

#include <stdio.h>

#define BATCH 32

static void names_fill(char names[BATCH][16], struct once_message *messages)
{
    for (size_t i = 0; i < BATCH; i++) {
        (void)snprintf(names[i], sizeof names[i], "k%zu", i);
        messages[i] = message_of(names[i]);
    }
}

static void one_of_a_batch_fails_and_the_others_are_done(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    char names[BATCH][16];
    struct once_message messages[BATCH];
    struct once_run *runs[BATCH];
    struct once_answer answers[BATCH];
    int results[BATCH] = {0};
    names_fill(names, messages);
    once_begin_all(once, messages, BATCH, runs, answers);
    for (size_t i = 0; i < BATCH; i++)
        assert_int_equal(answers[i].verdict, ONCE_RUN);
    results[17] = ONCE_FAILED;
    once_end_all(runs, results, BATCH, answers);
    for (size_t i = 0; i < BATCH; i++)
        assert_int_equal(answers[i].verdict, i == 17 ? ONCE_RETRY : ONCE_ACK);

    once_begin_all(once, messages, BATCH, runs, answers);
    for (size_t i = 0; i < BATCH; i++) {
        assert_int_equal(answers[i].verdict, i == 17 ? ONCE_RUN : ONCE_ACK);
        assert_true((runs[i] != NULL) == (i == 17));
    }
    once_end_all(runs + 17, results, 1, answers);
    assert_int_equal(answers[0].verdict, ONCE_ACK);
    once_close(once);
}

static void of_equal_keys_in_a_batch_the_first_runs(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct once_message messages[] = {message_of("a"), message_of("b"), message_of("a"),
                                      message_of("a")};
    struct once_run *runs[4];
    struct once_answer answers[4];
    const int done[] = {ONCE_DONE, ONCE_DONE};
    once_begin_all(once, messages, 4, runs, answers);
    assert_int_equal(answers[0].verdict, ONCE_RUN);
    assert_int_equal(answers[1].verdict, ONCE_RUN);
    assert_int_equal(answers[2].verdict, ONCE_LATER);
    assert_int_equal(answers[3].verdict, ONCE_LATER);
    once_end_all(runs, done, 2, answers);
    once_begin_all(once, messages, 4, runs, answers);
    assert_int_equal(answers[0].verdict, ONCE_ACK);
    assert_int_equal(answers[1].verdict, ONCE_ACK);
    assert_int_not_equal(answers[2].verdict, ONCE_RUN);
    assert_int_not_equal(answers[3].verdict, ONCE_RUN);
    once_close(once);
}

const struct suite_case batch_cases[] = {
    {"H-23 one of a batch fails, and the others are done",
     one_of_a_batch_fails_and_the_others_are_done, CLAIMS},
    {"of equal keys in a batch the first runs", of_equal_keys_in_a_batch_the_first_runs, CLAIMS},
    {0},
};
