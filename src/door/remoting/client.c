/* client.c - who is there: heartbeats, farewells, the members of a group. */
#include "door/remoting/door_int.h"

#include <stdio.h>

static enum err consumer_seen(struct door *door, struct request *rq, const struct client *client,
                              const struct heart_consumer *c, bool without_sub, struct fault *why)
{
    struct subscription *subs = arena_alloc(rq->arena, c->n_subs * sizeof *subs);
    if (!subs)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < c->n_subs; i++) {
        const struct heart_subscription *s = &c->subs[i];
        subs[i] = (struct subscription){s->topic, s->expression, s->expression_type, s->version};
    }
    struct membership m = {
        .group = c->group,
        .broadcasting = c->model == MODEL_BROADCASTING,
        .pops = c->type == CONSUME_POP,
        .actively = c->type == CONSUME_ACTIVELY,
        .from_where = c->from_where,
        .without_subs = without_sub,
        .subs = subs,
        .n_subs = c->n_subs,
    };
    return broker_consumer_seen(door->broker, client, &m, why);
}

void client_heartbeat(struct door *door, struct request *rq)
{
    struct heartbeat beat;
    enum err err = heartbeat_read(rq->body, rq->arena, &beat);
    if (err) {
        answer(rq, RES_SYSTEM_ERROR,
               err == ERR_TOO_BIG ? "the heartbeat is too big"
                                  : "the heartbeat's body cannot be read");
        return;
    }
    struct client client = {
        .session = &rq->session->counted,
        .id = beat.client_id,
        .language = rq->head->language,
        .version = rq->head->version,
        .addr = *conn_peer(rq->session->conn),
    };
    struct fault why = {0};
    for (size_t i = 0; !err && i < beat.n_consumers; i++)
        err = consumer_seen(door, rq, &client, &beat.consumers[i], beat.without_sub, &why);
    for (size_t i = 0; !err && i < beat.n_producers; i++)
        err = broker_producer_seen(door->broker, &client, beat.producers[i], &why);
    if (err) {
        answer_fault(rq, err, &why);
        return;
    }

    struct return_address to = return_address_of(rq);
    struct reply r;
    if (!reply_begin(&r, &to, RES_SUCCESS, (struct bytes){0}, 0))
        return;
    frame_put_bool(&r.frame, BYTES("IS_SUPPORT_HEART_BEAT_V2"), true);
    frame_put_bool(&r.frame, BYTES("IS_SUB_CHANGE"), true);
    reply_end(&r, 0);
}

/* What the Java consumer asks at its start, of every expression that is not of tags: a mistake is
 * better known there than by messages that do not come. */
void client_check(struct door *door, struct request *rq)
{
    struct client_check check;
    enum err err = client_check_read(rq->body, rq->arena, &check);
    if (err) {
        answer(rq, RES_SYSTEM_ERROR, "the body of the question cannot be read");
        return;
    }
    struct fault why = {0};
    if (check.has_sub && !bytes_equal(check.sub.expression_type, BYTES("TAG")))
        err = broker_filter_check(door->broker, check.sub.expression, check.sub.expression_type,
                                  &why);
    if (err == ERR_MALFORMED)
        answer(rq, RES_SUBSCRIPTION_PARSE_FAILED, fault_remark(err, &why));
    else if (err)
        answer_fault(rq, err, &why);
    else
        answer(rq, RES_SUCCESS, NULL);
}

void client_unregister(struct door *door, struct request *rq)
{
    struct client_fields f = {0};
    if (!request_fields(rq, &unregister_client_table, &f))
        return;
    broker_client_leaves(door->broker, &rq->session->counted, f.client_id, f.producer_group,
                         f.consumer_group);
    answer(rq, RES_SUCCESS, NULL);
}

void client_list(struct door *door, struct request *rq)
{
    struct client_fields f = {0};
    if (!request_fields(rq, &consumer_list_table, &f))
        return;
    struct bytes *ids;
    size_t n;
    enum err err = broker_consumer_ids(door->broker, f.consumer_group, rq->arena, &ids, &n);
    if (err == ERR_NOT_FOUND) { /* Apache's code and words; clients take it for "not yet" */
        char remark[256];
        (void)snprintf(remark, sizeof remark, "no consumer for this group, %.*s",
                       BYTES_ARG(f.consumer_group));
        answer(rq, RES_SYSTEM_ERROR, remark);
        return;
    }
    if (err) {
        answer_fault(rq, err, NULL);
        return;
    }
    struct buf body = buf_upto(BODY_MAX);
    consumer_list_write(&body, ids, n);
    answer_buf(rq, &body);
}
