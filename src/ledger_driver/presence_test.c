/* Presence without a broker and without a client: the calls of liboncemq that it makes are here,
 * and fail as planned. The test is the client's thread that calls back. */
#include "ledger_driver/ledger_driver.h"

#include "base/test.h"
#include "remoting/codes.h"

#include <stdio.h>
#include <stdlib.h>

static struct {
    int asked, fails; /* how often; how many of the next ones fail */
    int code;         /* with which code */
    omq_called *done; /* of the one that is under way, or NULL */
    void *user;
} calls;

static const struct omq_answer *some_answer; /* nobody looks into it */

const char *omq_client_id(const struct omq_client *client)
{
    (void)client;
    return "test";
}

int omq_call_async(struct omq_client *client, const struct omq_question *question, int timeout_ms,
                   omq_called *done, void *user, struct omq_error *why)
{
    (void)client;
    (void)timeout_ms;
    (void)why;
    assert_int_equal(question->request, REQ_ONCE_PRESENT);
    assert_null(calls.done); /* one at a time */
    calls.asked++;
    if (calls.fails > 0) {
        calls.fails--;
        return calls.code;
    }
    calls.done = done;
    calls.user = user;
    return OMQ_OK;
}

/* What is under way ends, as the client's thread tells it. */
static void end(const struct omq_answer *answer, const struct omq_error *why)
{
    omq_called *done = calls.done;
    assert_non_null(done);
    calls.done = NULL;
    done(calls.user, answer, why);
}

static int store_make(void **state)
{
    struct store *store = calloc(1, sizeof *store);
    assert_non_null(store);
    assert_int_equal(presence_open(store), OK);
    assert_int_equal(pthread_mutex_init(&store->key, NULL), 0);
    snprintf(store->spot.address, sizeof store->spot.address, "127.0.0.1:1");
    snprintf(store->instance, sizeof store->instance, "7");
    memset(&calls, 0, sizeof calls);
    some_answer = (const struct omq_answer *)store;
    *state = store;
    return 0;
}

static int store_free(void **state)
{
    struct store *store = *state;
    presence_clear(store);
    (void)pthread_mutex_destroy(&store->key);
    free(store);
    return 0;
}

static void it_is_asked_again_after_an_answer_and_after_a_failure(void **state)
{
    struct store *store = *state;
    struct omq_error lost = {.code = OMQ_TIMEOUT};
    assert_int_equal(presence_ask(store), OK);
    assert_int_equal(presence_ask(store), OK); /* that is under way */
    assert_int_equal(calls.asked, 1);
    end(some_answer, NULL);
    end(NULL, &lost);
    assert_int_equal(calls.asked, 3);
    assert_non_null(calls.done);
}

/* The answer came, and there is no memory to ask again. The connection stands, so no connect will;
 * who is not asked for would be gone for the broker after a while. */
static void without_memory_it_is_asked_again_after_a_moment(void **state)
{
    struct store *store = *state;
    assert_int_equal(presence_ask(store), OK);
    calls.fails = 2;
    calls.code = OMQ_NO_MEMORY;
    end(some_answer, NULL);
    assert_int_equal(calls.asked, 4);
    assert_non_null(calls.done);
    end(some_answer, NULL);
    assert_int_equal(calls.asked, 5);
}

static void a_connect_that_cannot_ask_fails(void **state)
{
    struct store *store = *state;
    calls.fails = 1;
    calls.code = OMQ_NO_MEMORY;
    assert_int_equal(presence_ask(store), ERR_NO_MEMORY);
    assert_int_equal(presence_ask(store), OK);
    assert_int_equal(calls.asked, 2);
}

static void a_client_that_is_being_closed_is_not_asked_again(void **state)
{
    struct store *store = *state;
    assert_int_equal(presence_ask(store), OK);
    calls.fails = 1;
    calls.code = OMQ_CLOSED;
    end(some_answer, NULL);
    assert_int_equal(calls.asked, 2);
    assert_int_equal(presence_ask(store), OK);
    assert_int_equal(calls.asked, 2);
}

#define presence_test(f) cmocka_unit_test_setup_teardown(f, store_make, store_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        presence_test(it_is_asked_again_after_an_answer_and_after_a_failure),
        presence_test(without_memory_it_is_asked_again_after_a_moment),
        presence_test(a_connect_that_cannot_ask_fails),
        presence_test(a_client_that_is_being_closed_is_not_asked_again),
    };
    return cmocka_run_group_tests_name("ledger_driver/presence", tests, NULL, NULL);
}
