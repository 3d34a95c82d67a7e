/* send.c - the way of a job, on the loop; and the ways in. */
#include "client/producer_int.h"

#include <stdio.h>
#include <stdlib.h>

/* How long a retry waits for news of the route, which the failure before it may have made old. */
#define RETRY_ROUTE_MS 500

static void job_begin(struct post *post);
static void job_try(struct job *job);
static void job_end(struct job *job, int code);
static void job_call_back(struct task *task);

/* ---- the ways in ---- */

int producer_check(const struct omq_producer *producer, bool waits, struct omq_error *why)
{
    if (!producer)
        return omq_fail(why, OMQ_INVALID, "there is no producer");
    if (!atomic_load_explicit(&producer->open, memory_order_acquire))
        return omq_fail(why, OMQ_CLOSED, "the producer is closed");
    if (waits && loop_is_mine(producer->client->loop))
        return omq_fail(why, OMQ_MISUSE,
                        "a call that waits cannot be made from `choose` or `log`: they run on the "
                        "thread that would do its work");
    return OMQ_OK;
}

/* Most jobs do not fail: the sentence has a place of its own. */
static struct omq_error *job_why(struct job *job)
{
    if (!job->why)
        job->why = calloc(1, sizeof *job->why);
    return job->why;
}

static void job_tell_why(const struct job *job, struct omq_error *why)
{
    if (!why)
        return;
    if (job->why)
        *why = *job->why;
    else
        (void)omq_fail(why, job->code, "%s", omq_code_text(job->code));
}

static void job_limits(struct job *job, uint64_t timeout_ms)
{
    struct omq_producer *producer = job->producer;
    job->post.run = job_begin;
    job->until_ns = clock_ns(producer->client->clock) + timeout_ms * 1000000;
    job->tries_left = job->how == JOB_ONEWAY ? 1 : 1 + producer->options.retries;
}

int job_run(struct job *job, uint64_t timeout_ms, struct omq_error *why)
{
    struct waiter waiter;
    waiter_init(&waiter);
    job->how = JOB_WAITED;
    job->waiter = &waiter;
    job_limits(job, timeout_ms);
    client_wait(job->producer->client, &job->post, &waiter, &job->call);
    if (job->code)
        job_tell_why(job, why);
    return job->code;
}

/* Those that nobody waits for are counted, and have a limit. */
static int job_post(struct omq_producer *producer, struct job *job, struct omq_error *why)
{
    if (atomic_fetch_add(&producer->in_flight, 1) >= producer->options.max_in_flight) {
        atomic_fetch_sub(&producer->in_flight, 1);
        job_free(job);
        return omq_fail(why, OMQ_BUSY, "%d messages are on their way already (max_in_flight)",
                        producer->options.max_in_flight);
    }
    job_limits(job, (uint64_t)producer->options.timeout_ms);
    loop_post(producer->client->loop, &job->post);
    return OMQ_OK;
}

static int job_of(struct omq_producer *producer, const struct omq_message *message,
                  struct job **out, struct omq_error *why)
{
    struct draft draft;
    int code = draft_begin(&draft, producer, message, why);
    return code ? code : job_make(producer, &draft, out, why);
}

int omq_send(struct omq_producer *producer, const struct omq_message *message,
             struct omq_receipt *receipt, struct omq_error *why)
{
    struct job *job = NULL;
    int code = producer_check(producer, true, why);
    if (!code)
        code = job_of(producer, message, &job, why);
    if (!code)
        code = job_run(job, (uint64_t)producer->options.timeout_ms, why);
    if (!code && receipt)
        *receipt = job->receipt;
    job_free(job);
    return code;
}

int omq_send_async(struct omq_producer *producer, const struct omq_message *message, omq_sent *done,
                   void *user, struct omq_error *why)
{
    int code = producer_check(producer, false, why);
    if (code)
        return code;
    if (!done)
        return omq_fail(why, OMQ_INVALID, "there is no function to call");
    struct hands *hands;
    if (client_callbacks(producer->client, &hands))
        return omq_fail(why, OMQ_NO_MEMORY, "no thread for callbacks");
    struct job *job;
    code = job_of(producer, message, &job, why);
    if (code)
        return code;
    job->how = JOB_CALLED;
    job->done = done;
    job->user = user;
    job->task.run = job_call_back;
    return job_post(producer, job, why);
}

int omq_send_oneway(struct omq_producer *producer, const struct omq_message *message,
                    struct omq_error *why)
{
    struct job *job;
    int code = producer_check(producer, false, why);
    if (!code)
        code = job_of(producer, message, &job, why);
    if (code)
        return code;
    job->how = JOB_ONEWAY;
    return job_post(producer, job, why);
}

/* ---- the route ---- */

static uint64_t left_ms(const struct job *job)
{
    uint64_t now = clock_ns(job->producer->client->clock);
    return job->until_ns > now ? (job->until_ns - now) / 1000000 : 0;
}

static bool ended_by_close(struct job *job)
{
    if (!job->producer->closing && !job->producer->client->closing)
        return false;
    job_end(job, omq_fail(job_why(job), OMQ_CLOSED, "the producer is closed"));
    return true;
}

static void route_failed(struct job *job, const struct answer *answer)
{
    const struct omq_client *client = job->producer->client;
    const char *names = client->options.names ? client->options.names : client->options.names_url;
    job_end(job, omq_fail(job_why(job), omq_code_of(answer->err),
                          "no name server of %s tells where topic %.*s is: %s", names,
                          BYTES_ARG(job->topic), answer->reason));
}

static void template_ready(struct route_want *want, struct topic_route *route,
                           const struct answer *answer)
{
    struct job *job = list_entry(want, struct job, want);
    enum err err =
        route ? route_make_template(route, job->topic, job->producer->options.queues, &job->route)
              : OK;
    if (route)
        counted_drop(&route->counted);
    if (ended_by_close(job))
        return;
    if (!err && job->route && job->route->n_write > 0) {
        job->template = true;
        job_try(job);
        return;
    }
    if (!route && answer && answer->err) {
        route_failed(job, answer);
        return;
    }
    job_end(job, omq_fail(job_why(job), OMQ_NO_TOPIC,
                          "no broker has topic %.*s to write to, and it is not made by sending "
                          "(ask an operator to create it, or switch autoCreateTopicEnable on)",
                          BYTES_ARG(job->topic)));
}

static void route_ready(struct route_want *want, struct topic_route *route,
                        const struct answer *answer)
{
    struct job *job = list_entry(want, struct job, want);
    if (route && route->n_write > 0) {
        job->route = route;
        if (!ended_by_close(job))
            job_try(job);
        return;
    }
    if (route)
        counted_drop(&route->counted);
    if (ended_by_close(job))
        return;
    if (answer && answer->err && !route) {
        route_failed(job, answer);
        return;
    }
    job->want.ready = template_ready;
    route_get(job->producer->client, TEMPLATE_TOPIC, false, &job->want, left_ms(job));
}

/* What was known stays good if there is no better news. */
static void retry_ready(struct route_want *want, struct topic_route *route,
                        const struct answer *answer)
{
    struct job *job = list_entry(want, struct job, want);
    (void)answer;
    if (route && route->n_write > 0) {
        counted_drop(&job->route->counted);
        job->route = route;
    } else if (route) {
        counted_drop(&route->counted);
    }
    if (!ended_by_close(job))
        job_try(job);
}

void job_begin_here(struct job *job, uint64_t timeout_ms)
{
    struct omq_producer *producer = job->producer;
    job_limits(job, timeout_ms);
    list_add_tail(&producer->jobs, &job->link);
    job->want.ready = route_ready;
    route_get(producer->client, job->topic, false, &job->want, left_ms(job));
}

static void job_begin(struct post *post)
{
    struct job *job = list_entry(post, struct job, post);
    struct omq_producer *producer = job->producer;
    list_add_tail(&producer->jobs, &job->link);
    if (ended_by_close(job))
        return;
    struct topic_route *route = route_cached(producer->client, job->topic);
    if (route) { /* nearly always */
        route_ready(&job->want, route, NULL);
        return;
    }
    job->want.ready = route_ready;
    route_get(producer->client, job->topic, false, &job->want, left_ms(job));
}

/* ---- the queue ---- */

static const struct topic_queue *queue_named(const struct job *job, struct bytes broker, int32_t id)
{
    const struct topic_route *route = job->route;
    for (size_t i = 0; i < route->n_write; i++) {
        const struct topic_queue *queue = &route->write[i];
        if (queue->id == id && bytes_equal(route->brokers[queue->broker].name, broker))
            return queue;
    }
    return NULL;
}

/* A number beyond the queues is taken round, as a hash would be. */
static size_t chosen(struct job *job)
{
    const struct omq_producer_options *o = &job->producer->options;
    const struct topic_route *route = job->route;
    if (!o->choose)
        return pick_by_key(job->shard_key, route->n_write);
    return o->choose(o->user, job->copy, route->write_names, route->n_write) % route->n_write;
}

static const struct topic_queue *queue_choose(struct job *job)
{
    struct omq_producer *producer = job->producer;
    const struct topic_route *route = job->route;
    if (job->pinned_id >= 0)
        return queue_named(job, job->pinned_broker, job->pinned_id);
    if (job->same) {
        const struct topic_queue *queue =
            queue_named(job, bytes_str(job->receipt.broker), job->receipt.queue_id);
        if (queue)
            return queue;
    }
    if (job->sharded)
        return &route->write[chosen(job)];
    size_t index;
    enum err err = pick_next(&producer->pick, route->write_names, route->n_write,
                             job->tried ? job->receipt.broker : NULL,
                             producer->options.avoid_slow ? &producer->faults : NULL,
                             (int64_t)(clock_ns(producer->client->clock) / 1000000), &index);
    return err ? NULL : &route->write[index];
}

/* ---- a try ---- */

static void put_send(const struct call *call, struct frame_out *f)
{
    const struct job *job = list_entry(call, struct job, call);
    frame_put(f, BYTES("a"), job->group);
    frame_put(f, BYTES("b"), job->topic);
    frame_put(f, BYTES("c"), TEMPLATE_TOPIC);
    frame_put_int(f, BYTES("d"), job->producer->options.queues);
    frame_put_int(f, BYTES("e"), job->queue->id);
    frame_put_int(f, BYTES("f"), job->sys_flag);
    frame_put_int(f, BYTES("g"), job->born_ms);
    frame_put_int(f, BYTES("h"), job->flag);
    frame_put(f, BYTES("i"), job->props);
    frame_put_int(f, BYTES("j"), 0);
    frame_put_bool(f, BYTES("k"), false);
    frame_put_bool(f, BYTES("m"), job->batch);
    frame_put(f, BYTES("n"), job->route->brokers[job->queue->broker].name);
}

static void job_answered(struct call *call, const struct answer *answer);

static void job_try(struct job *job)
{
    struct omq_client *client = job->producer->client;
    job->tries_left--;
    job->queue = queue_choose(job);
    if (!job->queue || !job->route->brokers[job->queue->broker].master.len) {
        job_end(job, omq_fail(job_why(job), OMQ_NETWORK,
                              "topic %.*s has no such queue, or its broker has no master just now",
                              BYTES_ARG(job->topic)));
        return;
    }
    const struct topic_broker *broker = &job->route->brokers[job->queue->broker];
    text_copy(job->receipt.broker, sizeof job->receipt.broker, broker->name);
    job->receipt.queue_id = job->queue->id;
    job->tried = true;
    job->born_ms = clock_ms(client->clock);
    job->begun_ns = clock_ns(client->clock);
    uint64_t left = job->until_ns > job->begun_ns ? job->until_ns - job->begun_ns : 0;
    job->call = (struct call){
        .code = job->request,
        .put = put_send,
        .room = job->group.len + job->topic.len + job->props.len + broker->name.len,
        .body = job->body,
        .oneway = job->how == JOB_ONEWAY,
        .done = job_answered,
    };
    uint64_t ms = left / 1000000 + 1;
    if (job->tries_left > 0) { /* a connection that does not come leaves time for the others */
        job->call.connect_ms = ms / ((uint64_t)job->tries_left + 1) + 1;
        uint64_t most = (uint64_t)job->producer->options.try_timeout_ms;
        ms = most > 0 && most < ms ? most : ms;
    }
    /* All of them: a reply may come from any. */
    for (size_t i = 0; job->introduced && i < job->route->n_brokers; i++)
        if (job->route->brokers[i].master.len > 0)
            heart_ensure(client, job->route->brokers[i].master);
    if (job->how == JOB_ONEWAY && say(client, broker->master, &job->call)) {
        job_end(job, OMQ_OK);
        return;
    }
    job->calling = true;
    call_start(client, broker->master, &job->call, ms);
}

/* ---- the answer ---- */

/* Another broker may well take it. */
static bool worth_another(int32_t code)
{
    switch (code) {
    case RES_SYSTEM_ERROR:
    case RES_SYSTEM_BUSY:
    case RES_SERVICE_NOT_AVAILABLE:
    case RES_NO_PERMISSION:
    case RES_TOPIC_NOT_EXIST:
    case RES_NO_BUYER_ID:
    case RES_NOT_IN_CURRENT_UNIT:
    case RES_GO_AWAY:
        return true;
    default:
        return false;
    }
}

static bool is_stored(int32_t code)
{
    return code == RES_SUCCESS || code == RES_FLUSH_DISK_TIMEOUT ||
           code == RES_SLAVE_NOT_AVAILABLE || code == RES_FLUSH_SLAVE_TIMEOUT;
}

static void field_copy(const struct head *head, struct bytes name, char *out, size_t size)
{
    text_copy(out, size, head_field(head, name));
}

static bool receipt_read(struct job *job, const struct head *head)
{
    struct omq_receipt *r = &job->receipt;
    struct bytes ids = head_field(head, BYTES("msgId"));
    r->stored = head->code == RES_SUCCESS              ? OMQ_STORED
                : head->code == RES_FLUSH_DISK_TIMEOUT ? OMQ_STORED_NO_FLUSH
                                                       : OMQ_STORED_NO_COPY;
    if (job->batch && ids.len > 0)
        job->offset_ids = bytes_text(ids);
    else
        field_copy(head, BYTES("msgId"), r->offset_id, sizeof r->offset_id);
    field_copy(head, BYTES("recallHandle"), r->recall, sizeof r->recall);
    field_copy(head, BYTES("transactionId"), r->transaction, sizeof r->transaction);
    field_copy(head, BYTES("MSG_REGION"), job->region, sizeof job->region);
    job->untraced = bytes_equal(head_field(head, BYTES("TRACE_ON")), BYTES("false"));
    r->duplicate = head_field(head, BYTES("DUPLICATES")).len > 0;
    return bytes_to_i32(head_field(head, BYTES("queueId")), &r->queue_id) &&
           bytes_to_i64(head_field(head, BYTES("queueOffset")), &r->queue_offset);
}

/* Fills job->why with what this try came to. What an earlier try may have done is not forgotten. */
static int try_failed(struct job *job, const struct answer *answer)
{
    char what[512];
    job->maybe_stored |= answer->err && answer->maybe_done;
    if (!answer->err) {
        (void)snprintf(what, sizeof what, "broker %s refuses the message", job->receipt.broker);
        return omq_refused(job_why(job), answer->head, what);
    }
    int code = answer->err != ERR_CLOSED ? omq_code_of(answer->err)
               : job->maybe_stored       ? OMQ_LOST
                                         : OMQ_NETWORK;
    if (job->producer->client->closing)
        code = OMQ_CLOSED;
    struct bytes address = job->route->brokers[job->queue->broker].master;
    return omq_fail(job_why(job), code, "broker %s at %.*s: %s%s", job->receipt.broker,
                    address.len < 100 ? (int)address.len : 100, (const char *)address.at,
                    answer->reason,
                    answer->maybe_done  ? " (it may have stored the message all the same)"
                    : job->maybe_stored ? " (an earlier try may have been stored all the same)"
                                        : "");
}

static void fault_note(struct job *job, const struct answer *answer)
{
    struct omq_producer *producer = job->producer;
    if (!producer->options.avoid_slow)
        return;
    uint64_t now = clock_ns(producer->client->clock);
    enum sent how = answer->err                     ? SENT_UNREACHABLE
                    : is_stored(answer->head->code) ? SENT
                                                    : SENT_FAILED;
    if (faults_note(&producer->faults, job->receipt.broker, how,
                    (int64_t)((now - job->begun_ns) / 1000000), (int64_t)(now / 1000000)))
        return; /* no memory: it is forgotten */
}

/* A message that has a place stays there, and a second copy of it behind later ones would break its
 * order: it is tried again if the first try surely did nothing, or if the broker knows copies. */
static bool may_try_again(const struct job *job, const struct answer *answer)
{
    const struct omq_producer *producer = job->producer;
    if (job->tries_left <= 0 || left_ms(job) == 0 || producer->closing || producer->client->closing)
        return false;
    bool placed = job->pinned_id >= 0 || job->sharded;
    if (!answer->err)
        return !placed && worth_another(answer->head->code);
    if (answer->err == ERR_NO_MEMORY)
        return false;
    bool once = placed || producer->options.retry_undone;
    return !once || !answer->maybe_done || producer->options.retry_same_broker_first;
}

static void job_try_again(struct job *job, const struct answer *answer)
{
    struct omq_producer *producer = job->producer;
    atomic_fetch_add_explicit(&producer->client->stats.retries, 1, memory_order_relaxed);
    bool lost = answer->err != OK;
    /* Once: a broker that is gone for good must not take all tries. */
    job->same = job->sharded || (lost && answer->maybe_done && !job->same &&
                                 producer->options.retry_same_broker_first);
    if (!lost && answer->head->code != RES_TOPIC_NOT_EXIST) {
        job_try(job);
        return;
    }
    uint64_t ms = left_ms(job);
    job->want.ready = retry_ready;
    route_get(producer->client, job->topic, true, &job->want,
              ms < RETRY_ROUTE_MS ? ms : RETRY_ROUTE_MS);
}

/* Stored, but not as safely as it could be. True: it is tried again elsewhere. */
static bool wants_better(struct job *job, const struct answer *answer)
{
    const struct omq_producer *producer = job->producer;
    if (job->receipt.stored == OMQ_STORED || !producer->options.retry_not_stored ||
        job->pinned_id >= 0 || job->sharded || job->tries_left <= 0 || left_ms(job) == 0)
        return false;
    if (!job->kept && !(job->kept = malloc(sizeof *job->kept)))
        return false;
    *job->kept = job->receipt;
    free(take(&job->offset_ids));
    job_try_again(job, answer);
    return true;
}

static void job_answered(struct call *call, const struct answer *answer)
{
    struct job *job = list_entry(call, struct job, call);
    job->calling = false;
    if (job->how == JOB_ONEWAY) {
        job_end(job, answer->err ? try_failed(job, answer) : OMQ_OK);
        return;
    }
    fault_note(job, answer);
    if (!answer->err && is_stored(answer->head->code)) {
        if (!receipt_read(job, answer->head))
            job_end(job, omq_fail(job_why(job), OMQ_PROTOCOL,
                                  "broker %s stored the message, and its answer does not say where",
                                  job->receipt.broker));
        else if (!wants_better(job, answer))
            job_end(job, OMQ_OK);
        return;
    }
    int code = try_failed(job, answer);
    if (may_try_again(job, answer)) {
        job_try_again(job, answer);
    } else if (job->kept) {
        job->receipt = *job->kept;
        job_end(job, OMQ_OK);
    } else {
        job_end(job, code);
    }
}

/* ---- the end ---- */

static void job_call_back(struct task *task)
{
    struct job *job = list_entry(task, struct job, task);
    atomic_fetch_sub(&job->producer->in_flight, 1); /* the callback may send the next one */
    struct omq_error why;
    if (job->code)
        job_tell_why(job, &why);
    if (job->code && !job->late && resend_keep(job)) {
        char first[sizeof why.text];
        memcpy(first, why.text, sizeof first);
        (void)omq_fail(&why, OMQ_KEPT, "in the retry table, to be sent again: %.400s", first);
    }
    job->done(job->user, job->code ? NULL : &job->receipt, job->code ? &why : NULL);
    job_free(job);
}

static void job_end(struct job *job, int code)
{
    struct omq_producer *producer = job->producer;
    struct omq_client *client = producer->client;
    enum job_how how = job->how;
    job->code = code;
    job->late = producer->parted;
    list_remove(&job->link);
    tracer_note(job);
    if (job->route)
        counted_drop(&take(&job->route)->counted);
    if (how != JOB_OURS && (how != JOB_KEPT || !code))
        atomic_fetch_add_explicit(code ? &client->stats.failures : &client->stats.sent, 1,
                                  memory_order_relaxed);
    switch (how) {
    case JOB_WAITED:
        waiter_tell(job->waiter); /* it frees the job */
        break;
    case JOB_CALLED:
        client_call_back(client, &job->task);
        break;
    case JOB_ONEWAY:
        atomic_fetch_sub(&producer->in_flight, 1);
        job_free(job);
        break;
    case JOB_OURS:
        job_free(job);
        break;
    case JOB_KEPT:
        resend_over(job);
        job_free(job);
        break;
    }
    if (list_empty(&producer->jobs) && producer->leaving && !producer->closing)
        tracer_flush(producer); /* which may be one job more */
    if (list_empty(&producer->jobs) && producer->leaving)
        waiter_tell(take(&producer->leaving));
}

void jobs_end(struct omq_producer *producer)
{
    struct omq_client *client = producer->client;
    list_each(k, &producer->jobs) {
        struct job *job = list_entry(k, struct job, link);
        if (!job->calling || job->call.ending)
            continue; /* its route or its post comes, finds the producer closing, and ends it */
        call_cancel(client, &job->call);
        job->calling = false;
        job_end(job,
                omq_fail(job_why(job), OMQ_CLOSED,
                         "the producer was closed before the answer came (the message may have "
                         "been stored all the same)"));
    }
}
