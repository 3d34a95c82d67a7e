/* runtime.c - the broker as a whole, for an operator: its numbers, its settings, its files. */
#include "door/remoting/door_int.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define PAIRS_MAX 128
#define TEXT_MAX  64
#define NAME_LONG 32

struct table {
    size_t n;
    struct kv pairs[PAIRS_MAX];
    char texts[PAIRS_MAX][TEXT_MAX];
    char names[PAIRS_MAX][NAME_LONG]; /* of keys that are put together */
};

static void add(struct table *t, const char *key, const char *format, ...) printf_like(3, 4);

static void add(struct table *t, const char *key, const char *format, ...)
{
    invariant(t->n < PAIRS_MAX);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(t->texts[t->n], TEXT_MAX, format, args);
    va_end(args);
    t->pairs[t->n] = (struct kv){bytes_str(key), bytes_str(t->texts[t->n])};
    t->n++;
}

/* Per second over the last 10 s, 60 s and 600 s. */
static void add_rates(struct table *t, const char *key, const double rates[3])
{
    add(t, key, "%.2f %.2f %.2f", rates[0], rates[1], rates[2]);
}

/* What mqadmin asks after and has no meaning here: there are no such pools and queues. */
static void add_absent(struct table *t)
{
    static const char *const zeros[] = {
        "sendThreadPoolQueueSize",
        "pullThreadPoolQueueSize",
        "ackThreadPoolQueueSize",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "ackThreadPoolQueueHeadWaitTimeMills",
        "pageCacheLockTimeMills",
        "timerReadBehind",
    };
    for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++)
        add(t, zeros[i], "0");
    add(t, "timerEnqueueTps", "0.0");
    add(t, "timerDequeueTps", "0.0");
}

/* The keys are those of Apache's StoreStatsService where it has them. */
static void add_counts(struct table *t, const struct broker_numbers *now)
{
    add_rates(t, "putTps", now->put_rates);
    add_rates(t, "getTransferredTps", now->got_rates);
    add_rates(t, "getTransferedTps", now->got_rates); /* as it was spelled once */
    add(t, "putMessageTimesTotal", "%" PRIu64, now->put);
    add(t, "putMessageSizeTotal", "%" PRIu64, now->put_size);
    add(t, "putMessageAverageSize", "%.1f",
        now->put ? (double)now->put_size / (double)now->put : 0.0);
    add(t, "getMessageTransferredMsgCount", "%" PRIu64, now->got);
    add(t, "getMessageSizeTotal", "%" PRIu64, now->got_size);
    add(t, "msgPutTotalTodayNow", "%" PRIu64, now->put);
    add(t, "msgGetTotalTodayNow", "%" PRIu64, now->got);
    add(t, "msgPutTotalTodayMorning", "%" PRIu64, now->put_mornings[0]);
    add(t, "msgPutTotalYesterdayMorning", "%" PRIu64, now->put_mornings[1]);
    add(t, "msgGetTotalTodayMorning", "%" PRIu64, now->got_mornings[0]);
    add(t, "msgGetTotalYesterdayMorning", "%" PRIu64, now->got_mornings[1]);
}

/* In ms, as Apache has them: the end of the bucket, so not more than twice what it was. */
static void add_latency(struct table *t, const char *name, const struct latency *latency)
{
    static const struct {
        const char *suffix;
        double part;
    } parts[] = {{"50", 0.5}, {"99", 0.99}, {"999", 0.999}, {"Max", 1}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        add(t, "", "%.3f", (double)latency_quantile_us(latency, parts[i].part) / 1000);
        (void)snprintf(t->names[t->n - 1], NAME_LONG, "%s%s", name, parts[i].suffix);
        t->pairs[t->n - 1].key = bytes_str(t->names[t->n - 1]);
    }
}

/* What services hold, and what they have done since the start. */
static void add_services(struct table *t, const struct broker_numbers *now)
{
    add(t, "halfMessages", "%zu", now->txn_open);
    add(t, "transactionsCommitted", "%" PRIu64, now->txn_committed);
    add(t, "transactionsRolledBack", "%" PRIu64, now->txn_rolled_back);
    add(t, "transactionChecks", "%" PRIu64, now->txn_checks);
    add(t, "transactionsGivenUp", "%" PRIu64, now->txn_given_up);
    add(t, "timersPending", "%" PRIu64, now->timers_pending);
    add(t, "timersDelivered", "%" PRIu64, now->timers_delivered);
    add(t, "timersRecalled", "%" PRIu64, now->timers_recalled);
    add(t, "timersLost", "%" PRIu64, now->timers_lost);
    add(t, "popInFlight", "%" PRIu64, now->pop_in_flight);
    add(t, "popTotal", "%" PRIu64, now->popped);
    add(t, "popAcked", "%" PRIu64, now->pop_acked);
    add(t, "popRevived", "%" PRIu64, now->pop_revived);
    add(t, "popDead", "%" PRIu64, now->pop_dead);
    add(t, "popLate", "%" PRIu64, now->pop_late);
    add(t, "duplicatesRefused", "%" PRIu64, now->duplicates);
    add(t, "dedupKeys", "%" PRIu64, now->keys);
    add(t, "dedupBytes", "%" PRIu64, now->keys_bytes);
    add(t, "dedupDisplaced", "%" PRIu64, now->keys_displaced);
}

static void add_ledger(struct table *t, const struct ledger_numbers *now)
{
    add(t, "onceKeys", "%" PRIu64, now->keys);
    add(t, "onceSteps", "%" PRIu64, now->steps);
    add(t, "onceBytes", "%" PRIu64, now->bytes);
    add(t, "onceInstances", "%" PRIu64, now->instances);
    add(t, "onceClaims", "%" PRIu64, now->claims);
    add(t, "onceBusy", "%" PRIu64, now->busy);
    add(t, "onceSuppressed", "%" PRIu64, now->suppressed);
    add(t, "onceRefused", "%" PRIu64, now->refused);
    add(t, "onceLost", "%" PRIu64, now->lost);
    add(t, "onceStaleTokens", "%" PRIu64, now->stale);
    add(t, "onceFreed", "%" PRIu64, now->freed);
    add(t, "onceExpired", "%" PRIu64, now->expired);
    add(t, "onceSwept", "%" PRIu64, now->swept);
    add(t, "onceFull", "%" PRIu64, now->full);
}

void runtime_info(struct door *door, struct request *rq)
{
    struct broker_numbers now;
    broker_numbers(door->broker, &now);
    struct table *t = arena_alloc(rq->arena, sizeof *t);
    if (!t) {
        answer_fault(rq, ERR_NO_MEMORY, NULL);
        return;
    }
    add(t, "brokerVersionDesc", "OnceMQ_%s", door->options.version);
    add(t, "brokerVersion", "%d", HEAD_VERSION);
    add(t, "brokerActive", "true");
    add(t, "bootTimestamp", "%" PRId64, now.boot_ms);
    add(t, "currentTimestamp", "%" PRId64, now.now_ms);
    add(t, "runtime", "%" PRId64 " seconds", now.up_ms / 1000);
    add_counts(t, &now);
    add_latency(t, "putLatency", &now.sends);
    add_latency(t, "getLatency", &now.pulls);
    add(t, "commitLogMinOffset", "%" PRIu64, now.log_first);
    add(t, "commitLogMaxOffset", "%" PRIu64, now.log_end);
    add(t, "earliestMessageTimeStamp", "%" PRId64, now.earliest_ms);
    add(t, "commitLogDiskRatio", "%.4f", now.disk_used);
    add(t, "consumeQueueDiskRatio", "%.4f", now.disk_used);
    add(t, "topics", "%zu", now.topics);
    add(t, "groups", "%zu", now.groups);
    add(t, "clients", "%zu", now.clients);
    add(t, "waitingPulls", "%zu", now.holds);
    add(t, "differingSubscriptions", "%" PRIu64, now.differing);
    add_services(t, &now);
    add_ledger(t, &now.ledger);
    add(t, "timerCongestNum", "%" PRIu64, now.timers_pending);
    add(t, "timerOffsetBehind", "%" PRId64, now.timers_behind);
    add_absent(t);
    struct buf body = buf_upto(BODY_MAX);
    kv_table_write(&body, t->pairs, t->n);
    answer_buf(rq, &body);
}

void runtime_config(struct door *door, struct request *rq)
{
    struct buf body = buf_upto(BODY_MAX), version = buf_upto(1024);
    struct data_version number = {0};
    if (door->options.print_config)
        door->options.print_config(door->options.user, &body, &number);
    data_version_body_write(&version, &number);
    struct return_address to = return_address_of(rq);
    struct reply r;
    if (body.err || version.err) {
        answer_fault(rq, ERR_NO_MEMORY, NULL);
    } else if (reply_begin(&r, &to, RES_SUCCESS, (struct bytes){0}, version.len)) {
        frame_put(&r.frame, BYTES("version"), buf_bytes(&version));
        reply_end_body(&r, buf_bytes(&body));
    }
    buf_clear(&body);
    buf_clear(&version);
}

/* UPDATE_BROKER_CONFIG and UPDATE_NAMESRV_CONFIG: a process has one table of settings for both. */
void runtime_config_change(struct door *door, struct request *rq)
{
    struct fault why = {0};
    const struct door_options *o = &door->options;
    enum err err = o->change_config ? o->change_config(o->user, rq->body, &why) : ERR_UNSUPPORTED;
    if (err) {
        answer_fault(rq, err, &why);
        return;
    }
    log_event(door->log, LOG_INFO, "settings changed text=%s", LOG_QUOTE(rq->body));
    answer_saved(rq, NULL);
}

void runtime_delete_expired(struct door *door, struct request *rq)
{
    store_clean_request(door->options.store);
    log_event(door->log, LOG_INFO, "deleting old log files at once reason=\"asked for\"");
    answer(rq, RES_SUCCESS, NULL);
}

/* Queue files go with the log files that they point into, in the same turn: nothing is left over.
 */
void runtime_clean_queues(struct door *door, struct request *rq)
{
    store_clean_request(door->options.store);
    answer(rq, RES_SUCCESS, NULL);
}

/* Topics are deleted one by one, by name; what is left of them goes with the log files that it
 * points into, and then the names are let go of. */
void runtime_clean_topics(struct door *door, struct request *rq)
{
    store_clean_request(door->options.store);
    broker_tombs_tidy(door->broker);
    answer(rq, RES_SUCCESS, NULL);
}
