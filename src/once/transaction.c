/* transaction.c - the mark, or the place in the queue, is written in the handler's transaction.
 *
 *     begin   a connection; the transaction; the mark (ONCE_TRANSACTION: a row that others see only
 *             after the commit; whoever writes the same one waits for us, briefly)
 *     handler writes through the connection
 *     end     the place (ONCE_OFFSET: as late as can be, so that its row is locked briefly); commit
 *
 * There is no claim and nothing to renew: if this process dies, the database rolls back. What the
 * table of what runs here refuses never reaches the database (H-21).
 */
#include "once/once_int.h"

#include <stdio.h>
#include <stdlib.h>

#define CONFLICT_MS 200
#define BUSY_MS     1000
#define FRESH_TRIES 6 /* idle connections that may all be dead, and a new one */

/* ---- begin ---- */

static void give_back(struct once_run *run, bool usable)
{
    pool_give(run->once->pool, run->conn, usable);
    run->conn = NULL;
}

/* Rolled back: is the connection any good after that? */
static void roll_back(struct once_run *run)
{
    const struct once_driver *driver = run->once->driver;
    driver->rollback(run->conn);
    give_back(run, !driver->healthy || driver->healthy(run->conn));
}

static enum err open_transaction(struct once_run *run, enum op_outcome *outcome, struct fault *why)
{
    const struct once_driver *driver = run->once->driver;
    enum err err;
    if (run->once->with.mode == ONCE_OFFSET) {
        err = driver->place_look(run->conn, &run->place, outcome, why);
        if (err == OK && *outcome == OUT_OK)
            err = driver->begin(run->conn, NULL, why);
        return err;
    }
    run->op.kind = OP_FINISH;
    run->op.outcome = OUT_NONE;
    err = driver->begin(run->conn, &run->op, why);
    *outcome = run->op.outcome;
    return err;
}

static enum err begin_somewhere(struct once_run *run, enum op_outcome *outcome, struct fault *why)
{
    struct once *once = run->once;
    enum err err = ERR_STALE;
    if (crew_stale(once->crew))
        return err;
    for (int tries = 0; tries < FRESH_TRIES; tries++) {
        struct conn *conn;
        err = pool_take(once->pool, once->with.wait_ms, &conn, why);
        if (err != OK)
            return err;
        run->conn = conn;
        err = open_transaction(run, outcome, why);
        if (err == OK)
            return OK;
        const struct once_driver *driver = once->driver;
        give_back(run, err != ERR_IO && (!driver->healthy || driver->healthy(conn)));
        if (err != ERR_IO)
            return err;
    }
    return err;
}

static int no_transaction(struct once_run *run, struct once_answer *answer, enum err err,
                          const struct fault *fault)
{
    struct once *once = run->once;
    store_note(once, err, fault);
    if (err == ERR_STALE)
        crew_set_stale(once->crew);
    (void)answer_down(once, answer, err, fault);
    if (err == ERR_BUSY)
        answer->wait_ms = about_ms(CONFLICT_MS);
    return answer->verdict;
}

int transaction_begin(struct once_run *run, struct once_answer *answer)
{
    struct once *once = run->once;
    uint64_t mine = run->op.fingerprint;
    enum op_outcome outcome = OUT_NONE;
    struct fault fault;
    fault.text[0] = 0;
    uint64_t asked_ns = clock_ns(once->clock);
    enum err err = begin_somewhere(run, &outcome, &fault);
    tally_add(&once->tally, TALLY_STORE_NS, clock_ns(once->clock) - asked_ns);
    tally_add(&once->tally, TALLY_STORE_CALLS, 1);
    if (err != OK)
        return no_transaction(run, answer, err, &fault);
    store_note(once, OK, NULL);
    if (outcome == OUT_OK)
        return answer_set(answer, ONCE_RUN, ONCE_FIRST, 0);
    give_back(run, true); /* its transaction is over */
    if (outcome == OUT_DONE)
        return answer_done(run, answer, mine,
                           once->with.mode == ONCE_OFFSET ? 0 : run->op.fingerprint);
    if (outcome == OUT_LOST)
        return answer_lost(once, answer);
    if (outcome == OUT_BUSY)
        return answer_running(once, answer, run->op.left_ms > 0 ? run->op.left_ms : BUSY_MS);
    return no_transaction(run, answer, ERR_DAMAGED, &run->op.why);
}

/* ---- end ---- */

/* One of our own statements failed, so nothing can be committed. */
static int end_broken(struct once_run *run, struct once_answer *answer)
{
    enum err err = run->broken;
    roll_back(run);
    if (err == ERR_BUSY || err == ERR_IO)
        return no_transaction(run, answer, err, &run->op.why); /* not the handler's fault */
    (void)answer_set(answer, ONCE_RETRY, ONCE_FAILED_RUN, 0);
    (void)once_fail_store(&answer->why, err, &run->op.why);
    return ONCE_RETRY;
}

/* Nobody knows whether it was committed. If the mark is there, it was. */
static int end_unsure(struct once_run *run, struct once_answer *answer, const struct fault *fault)
{
    struct once *once = run->once;
    struct op look = {.kind = OP_LOOK, .name = ""};
    struct op *ops[] = {&look};
    struct fault ignored;
    memcpy(look.id, run->op.id, sizeof look.id);
    store_note(once, ERR_IO, fault);
    if (once->with.mode == ONCE_TRANSACTION &&
        store_ask(once, ops, 1, once->with.wait_ms, NULL, &ignored) == OK &&
        look.outcome == OUT_OK && look.state == ONCE_CONSUMED && look.left_ms > 0) {
        tally_add(&once->tally, TALLY_FIRST, 1);
        return answer_set(answer, ONCE_ACK, ONCE_FIRST, 0);
    }
    tally_add(&once->tally, TALLY_UNSURE, 1);
    (void)answer_set(answer, ONCE_LATER, ONCE_UNSURE, about_ms(BUSY_MS));
    (void)once_fail_store(&answer->why, ERR_IO, fault);
    return ONCE_LATER;
}

/* ONCE_OFFSET: the place. True: the transaction goes on to its commit. */
static bool place_written(struct once_run *run, struct once_answer *answer)
{
    struct once *once = run->once;
    enum op_outcome outcome = OUT_NONE;
    struct fault fault = {0};
    enum err err = once->driver->place_mark(run->conn, &run->place, &outcome, &fault);
    if (err == OK && outcome == OUT_OK)
        return true;
    if (err != OK) {
        run->broken = err;
        run->op.why = fault;
        (void)end_broken(run, answer);
        return false;
    }
    roll_back(run);
    if (outcome == OUT_DONE) /* by another, while we were at it: ours never happened */
        (void)answer_done(run, answer, 0, 0);
    else
        (void)answer_lost(once, answer);
    return false;
}

static int commit(struct once_run *run, struct once_answer *answer)
{
    struct once *once = run->once;
    struct fault fault = {0};
    enum err err = once->driver->commit(run->conn, &fault);
    if (err == OK) {
        give_back(run, true);
        tally_add(&once->tally, TALLY_FIRST, 1);
        return answer_set(answer, ONCE_ACK, ONCE_FIRST, 0);
    }
    if (err == ERR_IO) {
        give_back(run, false);
        return end_unsure(run, answer, &fault);
    }
    run->broken = err;
    run->op.why = fault;
    return end_broken(run, answer);
}

static int end(struct once_run *run, int result, struct once_answer *answer)
{
    if (run->broken != OK)
        return end_broken(run, answer);
    if (result != ONCE_DONE) {
        roll_back(run);
        tally_add(&run->once->tally, TALLY_RELEASED, 1);
        return answer_set(answer, ONCE_RETRY, ONCE_FAILED_RUN, 0);
    }
    if (run->once->with.mode == ONCE_OFFSET && !place_written(run, answer))
        return answer->verdict;
    return commit(run, answer);
}

int transaction_end(struct once_run *run, int result, struct once_answer *answer)
{
    struct once *once = run->once;
    uint64_t asked_ns = clock_ns(once->clock);
    int verdict = end(run, result, answer);
    tally_add(&once->tally, TALLY_STORE_NS, clock_ns(once->clock) - asked_ns);
    tally_add(&once->tally, TALLY_STORE_CALLS, 1);
    return verdict;
}

int transaction_call(struct once_run *run, struct sql_call *call, struct once_error *why)
{
    struct fault fault = {0};
    if (run->broken != OK)
        return once_fail(why, ONCE_MISUSE, "an earlier statement of this transaction failed: %s",
                         run->op.why.text);
    enum err err = run->once->driver->call(run->conn, call, &fault);
    if (err == OK)
        return ONCE_OK;
    run->broken = err;
    run->op.why = fault;
    return once_fail(why, once_code_of(err), "%s", fault.text[0] ? fault.text : err_text(err));
}

/* ---- places ---- */

struct taken { /* a queue that is ours */
    uint8_t id[ONCE_ID_SIZE];
    int64_t epoch;
};

void places_clear(struct once *once)
{
    size_t i = 0;
    for (struct taken *t; (t = map_next(&once->places, &i));)
        free(t);
    map_clear(&once->places);
}

static void places_enter(struct once *once)
{
    invariant(pthread_mutex_lock(&once->places_key) == 0);
}

static void places_leave(struct once *once)
{
    invariant(pthread_mutex_unlock(&once->places_key) == 0);
}

/* Which queue: the same bytes wherever it is named, and no two queues the same. */
static enum err place_id(const struct once *once, const char *topic, const char *broker, int queue,
                         uint8_t id[ONCE_ID_SIZE])
{
    cleanup(buf_clear) struct buf text = buf_upto(KEY_MAX);
    buf_add_str(&text, topic);
    buf_add_u8(&text, 0);
    buf_add_str(&text, broker);
    buf_add_u8(&text, 0);
    buf_add_u32(&text, (uint32_t)queue);
    if (text.err == OK)
        key_id(bytes_str(once->with.scope), buf_bytes(&text), id);
    return text.err;
}

static bool epoch_of(struct once *once, const uint8_t *id, int64_t *epoch)
{
    places_enter(once);
    struct taken *t = map_get(&once->places, bytes_of(id, ONCE_ID_SIZE));
    if (t)
        *epoch = t->epoch;
    places_leave(once);
    return t != NULL;
}

static enum err epoch_keep(struct once *once, const struct place *place)
{
    enum err err = OK;
    places_enter(once);
    struct taken *t = map_get(&once->places, bytes_of(place->id, ONCE_ID_SIZE));
    if (!t) {
        t = calloc(1, sizeof *t);
        err = t ? OK : ERR_NO_MEMORY;
        if (t) {
            memcpy(t->id, place->id, ONCE_ID_SIZE);
            err = map_put(&once->places, bytes_of(t->id, ONCE_ID_SIZE), t);
        }
        if (err != OK)
            free(t);
    }
    if (err == OK)
        t->epoch = place->epoch;
    places_leave(once);
    return err;
}

enum err place_of(struct once_run *run, const struct once_message *message, struct fault *why)
{
    struct once *once = run->once;
    if (!message->topic || !message->broker || message->queue < 0 || message->offset < 0)
        return fault_set(why, ERR_NOT_FOUND,
                         "in ONCE_OFFSET a message has a topic, broker, queue and offset");
    run->key = buf_upto(2 * KEY_MAX);
    buf_printf(&run->key, "%s@%s:%d:%lld", message->topic, message->broker, message->queue,
               (long long)message->offset);
    enum err err = run->key.err;
    if (err == OK)
        err = place_id(once, message->topic, message->broker, message->queue, run->place.id);
    if (err != OK)
        return fault_set(why, err, "topic and broker have names that are too long");
    run->place.offset = message->offset;
    run->place.floor = message->floor;
    if (!epoch_of(once, run->place.id, &run->place.epoch))
        return fault_set(why, ERR_DENIED,
                         "its queue is not ours: once_queue_take was not called for it");
    return OK;
}

static enum err take_place(struct once *once, struct place *place, struct fault *why)
{
    struct conn *conn;
    enum err err = pool_take(once->pool, once->with.wait_ms, &conn, why);
    if (err != OK)
        return err;
    err = once->driver->place_take(conn, place, why);
    pool_give(once->pool, conn, err == OK);
    return err;
}

/* Again within wait_ms, if it can be. */
static enum err take_patiently(struct once *once, struct place *place, struct fault *why)
{
    uint64_t until_ns = wait_now_ns() + (uint64_t)once->with.wait_ms * NS_PER_MS;
    enum err err = take_place(once, place, why);
    while ((err == ERR_BUSY || err == ERR_IO) && wait_now_ns() < until_ns) {
        wait_ns((uint64_t)about_ms(CONFLICT_MS) * NS_PER_MS);
        err = take_place(once, place, why);
    }
    return err;
}

int once_queue_take(struct once *once, const char *topic, const char *broker, int queue,
                    int64_t first, int64_t *start, struct once_error *why)
{
    if (!once || !topic || !broker || queue < 0 || first < 0 || !start)
        return once_fail(why, ONCE_INVALID, "once, topic, broker and start are required");
    if (once->with.mode != ONCE_OFFSET)
        return once_fail(why, ONCE_MISUSE, "only ONCE_OFFSET takes queues");
    char name[ONCE_NAME_MAX + 1], text[2 * ONCE_NAME_MAX];
    (void)snprintf(text, sizeof text, "%s@%s:%d", topic, broker, queue);
    key_name(bytes_str(text), name, sizeof name);
    struct place place = {.name = name, .offset = first};
    struct fault fault = {0};
    enum err err = place_id(once, topic, broker, queue, place.id);
    if (err == OK)
        err = take_patiently(once, &place, &fault);
    store_note(once, err, &fault);
    if (err == OK)
        err = epoch_keep(once, &place);
    if (err != OK)
        return once_fail_store(why, err, &fault);
    *start = place.offset;
    return ONCE_OK;
}
