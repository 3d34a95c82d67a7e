/* transaction.c - messages that become visible when their sender has decided so.
 *
 *     sender                              broker
 *     half message            ──────►     stored out of sight
 *     local transaction
 *     commit or rollback      ──────►     visible, or gone
 *
 *     … nothing heard for a while:
 *     `check` of any member   ◄──────     what became of it?
 *     commit or rollback      ──────►
 *
 * A decision that gets lost is asked for again, so losing one is worth a line in the log and no
 * more. */
#include "client/producer_int.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECKS_MAX 2000 /* waiting for `check`; the broker asks again about what is beyond */

/* ---- saying what was decided ---- */

/* What END_TRANSACTION says. The texts stay as long as it does. */
struct verdict {
    struct omq_producer *producer;
    int decision; /* enum omq_decision */
    bool from_check;
    const char *topic, *id, *transaction;
    int64_t half_offset, position;
};

static void put_verdict(const struct verdict *v, struct frame_out *f)
{
    static const int32_t flags[] = {
        [OMQ_UNKNOWN] = 0, [OMQ_COMMIT] = SYS_TX_COMMIT, [OMQ_ROLLBACK] = SYS_TX_ROLLBACK};
    frame_put(f, BYTES("topic"), bytes_str(v->topic));
    frame_put(f, BYTES("producerGroup"), bytes_str(v->producer->group));
    frame_put_int(f, BYTES("tranStateTableOffset"), v->half_offset);
    frame_put_int(f, BYTES("commitLogOffset"), v->position);
    frame_put_int(f, BYTES("commitOrRollback"), flags[v->decision]);
    frame_put_bool(f, BYTES("fromTransactionCheck"), v->from_check);
    frame_put(f, BYTES("msgId"), bytes_str(v->id));
    frame_put(f, BYTES("transactionId"), bytes_str(v->transaction));
}

static size_t verdict_room(const struct verdict *v)
{
    return strlen(v->topic) + strlen(v->producer->group) + strlen(v->id) + strlen(v->transaction);
}

static void verdict_trace(const struct verdict *v, struct bytes broker)
{
    static const enum trace_state states[] = {[OMQ_UNKNOWN] = TRACE_UNDECIDED,
                                              [OMQ_COMMIT] = TRACE_COMMITTED,
                                              [OMQ_ROLLBACK] = TRACE_ROLLED_BACK};
    tracer_note_end(v->producer, &(struct trace_record){
                                     .kind = TRACE_END_TRANSACTION,
                                     .time_ms = clock_ms(v->producer->client->clock),
                                     .group = bytes_str(v->producer->group),
                                     .topic = bytes_str(v->topic),
                                     .id = bytes_str(v->id),
                                     .store_host = broker,
                                     .type = TRACE_HALF,
                                     .transaction = bytes_str(v->transaction),
                                     .state = states[v->decision],
                                     .from_check = v->from_check,
                                 });
}

/* ---- from omq_send_transaction ---- */

/* It asks for an answer, unlike the Java client, so that a close, or the end of the program, does
 * not overtake the decision. Nobody answers "unknown": it is not sent at all. */
struct ending {
    struct call call;
    struct post post;
    struct waiter waiter;
    struct verdict verdict;
    const char *broker; /* by name */
    uint64_t timeout_ms;
};

static void put_ending(const struct call *call, struct frame_out *f)
{
    put_verdict(&list_entry(call, struct ending, call)->verdict, f);
}

static void ending_answered(struct call *call, const struct answer *answer)
{
    struct ending *e = list_entry(call, struct ending, call);
    struct omq_client *client = e->verdict.producer->client;
    if (answer->err)
        client_log(client, OMQ_WARN,
                   "the decision on message %s may be lost (%s): the broker asks "
                   "for it later",
                   e->verdict.id, answer->reason);
    else if (answer->head->code != RES_SUCCESS)
        client_log(client, OMQ_WARN, "broker %s does not take the decision on message %s: %.*s",
                   e->broker, e->verdict.id, BYTES_ARG(answer->head->remark));
    waiter_tell(&e->waiter);
}

static void ending_begin(struct post *post)
{
    struct ending *e = list_entry(post, struct ending, post);
    struct omq_client *client = e->verdict.producer->client;
    struct topic_route *route = route_cached(client, bytes_str(e->verdict.topic));
    struct bytes address = {0};
    for (size_t i = 0; route && i < route->n_brokers; i++)
        if (bytes_equal(route->brokers[i].name, bytes_str(e->broker)))
            address = route->brokers[i].master;
    if (!address.len && !route) { /* it was made by this message: it is where the template is */
        route = route_cached(client, TEMPLATE_TOPIC);
        for (size_t i = 0; route && i < route->n_brokers; i++)
            if (bytes_equal(route->brokers[i].name, bytes_str(e->broker)))
                address = route->brokers[i].master;
    }
    if (address.len > 0) {
        verdict_trace(&e->verdict, address);
        e->call = (struct call){.code = REQ_END_TRANSACTION,
                                .put = put_ending,
                                .room = verdict_room(&e->verdict),
                                .done = ending_answered};
        call_start(client, address, &e->call, e->timeout_ms);
    } else {
        client_log(client, OMQ_WARN,
                   "broker %s has no master just now: it asks later what became "
                   "of message %s",
                   e->broker, e->verdict.id);
        waiter_tell(&e->waiter);
    }
    if (route)
        counted_drop(&route->counted);
}

static void decide(struct omq_producer *producer, const struct omq_message *message,
                   const struct omq_receipt *receipt, int decision)
{
    struct addr host;
    struct ending e = {
        .post.run = ending_begin,
        .verdict = {.producer = producer,
                    .decision = decision,
                    .topic = message->topic,
                    .id = receipt->id,
                    .transaction = receipt->transaction,
                    .half_offset = receipt->queue_offset},
        .broker = receipt->broker,
        .timeout_ms = (uint64_t)producer->options.timeout_ms,
    };
    if (id_parse(bytes_str(receipt->offset_id), &host, &e.verdict.position)) {
        client_log(producer->client, OMQ_ERROR, "broker %s does not say where message %s is",
                   receipt->broker, receipt->id);
        return;
    }
    waiter_init(&e.waiter);
    client_wait(producer->client, &e.post, &e.waiter, &e.call);
}

int omq_send_transaction(struct omq_producer *producer, const struct omq_message *message,
                         omq_local *local, void *user, struct omq_receipt *receipt, int *decision,
                         struct omq_error *why)
{
    int code = producer_check(producer, true, why);
    if (!code && !local)
        code = omq_fail(why, OMQ_INVALID, "a transaction needs a function that decides");
    if (!code && !producer->options.check)
        code = omq_fail(why, OMQ_INVALID,
                        "transactions need `check` in the producer's options: a broker that hears "
                        "of no decision asks it");
    struct draft draft;
    if (!code)
        code = draft_begin(&draft, producer, message, why);
    if (!code && (message->delay_level || message->delay_ms || message->deliver_ms))
        code = omq_fail(why, OMQ_INVALID, "a message of a transaction cannot have a delay");
    if (code)
        return code;
    draft_add(&draft, "TRAN_MSG", "true");
    draft_add(&draft, "PGROUP", producer->group);
    draft.sys_flag = SYS_TX_PREPARED;
    struct job *job = NULL;
    code = job_make(producer, &draft, &job, why);
    if (code)
        return code;
    job->introduced = true;
    code = job_run(job, (uint64_t)producer->options.timeout_ms, why);
    if (!code) {
        struct omq_receipt got = job->receipt;
        /* Half a message that is not safe is not worth a transaction. */
        int decided = got.stored == OMQ_STORED ? local(user, message, &got) : OMQ_ROLLBACK;
        if (decided != OMQ_COMMIT && decided != OMQ_ROLLBACK)
            decided = OMQ_UNKNOWN;
        if (decided != OMQ_UNKNOWN)
            decide(producer, message, &got, decided);
        if (receipt)
            *receipt = got;
        if (decision)
            *decision = decided;
    }
    job_free(job);
    return code;
}

/* ---- asked by a broker ---- */

struct check {
    struct task task;
    struct post post;
    struct call call;
    struct verdict verdict;
    struct omq_delivery *half;
    char transaction[64];
    char address[HOST_TEXT_MAX + 8];
};

static void check_free(struct check *check)
{
    atomic_fetch_sub(&check->verdict.producer->checks, 1);
    omq_delivery_free(check->half);
    free(check);
}

static void put_check(const struct call *call, struct frame_out *f)
{
    put_verdict(&list_entry(call, struct check, call)->verdict, f);
}

static void check_answer(struct post *post)
{
    struct check *check = list_entry(post, struct check, post);
    struct omq_client *client = check->verdict.producer->client;
    check->call = (struct call){
        .code = REQ_END_TRANSACTION, .put = put_check, .room = verdict_room(&check->verdict)};
    verdict_trace(&check->verdict, bytes_str(check->address));
    if (!say(client, bytes_str(check->address), &check->call))
        client_log(client, OMQ_WARN,
                   "the broker that asked about message %s is gone: it asks again",
                   check->verdict.id);
    check_free(check);
}

static void check_run(struct task *task)
{
    struct check *check = list_entry(task, struct check, task);
    const struct omq_producer_options *o = &check->verdict.producer->options;
    int decision = o->check(o->user, check->half);
    if (decision == OMQ_COMMIT || decision == OMQ_ROLLBACK)
        check->verdict.decision = decision;
    check->post.run = check_answer;
    loop_post(check->verdict.producer->client->loop, &check->post);
}

static struct omq_producer *producer_of(struct omq_client *client, struct bytes group)
{
    list_each(k, &client->producers) {
        struct omq_producer *producer = list_entry(k, struct omq_producer, link);
        if (producer->checker && bytes_equal(bytes_str(producer->group), group))
            return producer;
    }
    return NULL;
}

static struct check *check_make(const struct asked *asked, struct omq_producer *producer,
                                const struct record *record)
{
    struct bytes address = asked_address(asked);
    struct check *check = calloc(1, sizeof *check);
    if (!check || address.len >= sizeof check->address ||
        delivery_make(record, head_field(asked->head, BYTES("bname")), &check->half)) {
        free(check);
        return NULL;
    }
    memcpy(check->address, address.at, address.len);
    struct bytes transaction = head_field(asked->head, BYTES("transactionId"));
    if (transaction.len > 0 && transaction.len < sizeof check->transaction)
        memcpy(check->transaction, transaction.at, transaction.len);
    check->verdict = (struct verdict){
        .producer = producer,
        .decision = OMQ_UNKNOWN,
        .from_check = true,
        .topic = check->half->queue.topic,
        .id = check->half->id,
        .transaction = check->transaction,
    };
    return check;
}

void serve_check(const struct asked *asked)
{
    struct record record;
    struct bytes group;
    if (record_decode(asked->body, &record) || !props_get(record.props, BYTES("PGROUP"), &group))
        return;
    struct omq_producer *producer = producer_of(asked->client, group);
    if (!producer || atomic_load(&producer->checks) >= CHECKS_MAX)
        return; /* it is asked again, or somebody else is */
    struct check *check = check_make(asked, producer, &record);
    if (!check)
        return;
    atomic_fetch_add(&producer->checks, 1);
    if (!bytes_to_i64(head_field(asked->head, BYTES("tranStateTableOffset")),
                      &check->verdict.half_offset) ||
        !bytes_to_i64(head_field(asked->head, BYTES("commitLogOffset")),
                      &check->verdict.position)) {
        check_free(check);
        return;
    }
    check->task.run = check_run;
    hands_give(producer->checker, &check->task);
}
