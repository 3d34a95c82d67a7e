/* presence.c - the broker knows that we are there as long as a request of ours stands.
 *
 * There is no thread: when the request has ended, the client's own callback asks again, at once
 * after an answer and the first time that it fails, then with a pause. A connect asks as well, so
 * that the operations behind it come after it; where it cannot, there is no connection.
 */
#include "ledger_driver/ledger_driver.h"

#include "base/clock.h"
#include "remoting/codes.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#define HOLD_MS        30000 /* the longest that a broker takes */
#define ANSWER_MS      5000  /* beyond that its answer is late */
#define PAUSE_FIRST_MS 100
#define PAUSE_MOST_MS  1000

enum err presence_open(struct store *store)
{
    pthread_condattr_t how;
    bool good = pthread_condattr_init(&how) == 0;
    if (!good)
        return ERR_NO_MEMORY;
    good = pthread_condattr_setclock(&how, CLOCK_MONOTONIC) == 0 &&
           pthread_cond_init(&store->presence.news, &how) == 0;
    (void)pthread_condattr_destroy(&how);
    return good ? OK : ERR_NO_MEMORY;
}

void presence_clear(struct store *store)
{
    (void)pthread_cond_destroy(&store->presence.news);
}

/* Holding the key: until there is news, or that long. */
static void rest(struct store *store, int ms)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (int64_t)ms * 1000000;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    while (!store->presence.stop && !store->presence.asking &&
           pthread_cond_timedwait(&store->presence.news, &store->key, &until) != ETIMEDOUT)
        ;
}

static bool ask(struct store *store);

/* The first failure is a connection that was lost; then the broker is gone. */
static int next_pause(int before_ms)
{
    int twice = before_ms < PAUSE_FIRST_MS ? PAUSE_FIRST_MS : before_ms * 2;
    return twice < PAUSE_MOST_MS ? twice : PAUSE_MOST_MS;
}

static void ended(void *user, const struct omq_answer *answer, const struct omq_error *why)
{
    struct store *store = user;
    struct presence *p = &store->presence;
    invariant(pthread_mutex_lock(&store->key) == 0);
    p->asking = false;
    if (answer)
        p->pause_ms = 0;
    else if (why->code == OMQ_CLOSED)
        p->stop = true;
    else {
        if (p->pause_ms > 0)
            rest(store, p->pause_ms);
        p->pause_ms = next_pause(p->pause_ms);
    }
    while (!ask(store)) { /* on a connection that stands nobody else would */
        p->pause_ms = next_pause(p->pause_ms);
        rest(store, p->pause_ms);
    }
    invariant(pthread_mutex_unlock(&store->key) == 0);
}

/* Holding the key. False: it should have been asked for, and there is no memory. */
static bool ask(struct store *store)
{
    struct presence *p = &store->presence;
    if (p->stop || p->asking || !store->spot.address[0])
        return true;
    char wait[12];
    (void)snprintf(wait, sizeof wait, "%d", HOLD_MS);
    const struct omq_property fields[] = {{"instance", store->instance},
                                          {"name", omq_client_id(store->client)},
                                          {"waitMillis", wait}};
    const struct omq_question q = {.server = store->spot.address,
                                   .request = REQ_ONCE_PRESENT,
                                   .fields = fields,
                                   .n_fields = sizeof fields / sizeof fields[0]};
    int code = omq_call_async(store->client, &q, HOLD_MS + ANSWER_MS, ended, store, NULL);
    p->asking = code == OMQ_OK;
    p->stop = code == OMQ_CLOSED;
    return p->asking || p->stop;
}

enum err presence_ask(struct store *store)
{
    invariant(pthread_mutex_lock(&store->key) == 0);
    bool good = ask(store);
    if (store->presence.asking)
        (void)pthread_cond_broadcast(&store->presence.news); /* nobody else has to */
    invariant(pthread_mutex_unlock(&store->key) == 0);
    return good ? OK : ERR_NO_MEMORY;
}

void presence_stop(struct store *store)
{
    invariant(pthread_mutex_lock(&store->key) == 0);
    store->presence.stop = true;
    (void)pthread_cond_broadcast(&store->presence.news);
    invariant(pthread_mutex_unlock(&store->key) == 0);
}
