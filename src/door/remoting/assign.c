/* assign.c - QUERY_ASSIGNMENT and how groups read topics: PULL or POP.
 *
 * Queues are divided over all brokers that have the topic. Which those are is known by the name
 * server of this house, or from one elsewhere; until its first answer has come, the division is
 * over the queues of this broker. */
#include "door/remoting/door_int.h"

#define QUEUES_MAX 65536

/* The queues of a route that may be read. */
static enum err route_queues(struct door *door, struct bytes topic, struct arena *arena,
                             struct assign *a)
{
    struct route route = {0};
    if (!door->names && door->options.queues_elsewhere)
        return door->options.queues_elsewhere(door->options.user, topic, arena, &a->queues,
                                              &a->n_queues);
    if (!door->names || names_route(door->names, topic, arena, &route, NULL))
        return ERR_NOT_FOUND;
    size_t n = 0;
    for (size_t i = 0; i < route.n_queues; i++) {
        const struct route_queues *q = &route.queues[i];
        n += q->perm & PERM_READ && q->read_queues > 0 ? (size_t)q->read_queues : 0;
    }
    a->queues = n <= QUEUES_MAX ? arena_alloc(arena, (n + 1) * sizeof *a->queues) : NULL;
    if (!a->queues)
        return ERR_TOO_BIG;
    for (size_t i = 0; i < route.n_queues; i++) {
        const struct route_queues *q = &route.queues[i];
        for (int32_t id = 0; q->perm & PERM_READ && id < q->read_queues; id++)
            a->queues[a->n_queues++] = (struct assign_queue){q->broker_name, id};
    }
    return a->n_queues ? OK : ERR_NOT_FOUND;
}

static enum err own_queues(struct door *door, struct bytes topic, struct arena *arena,
                           struct assign *a)
{
    struct topic_settings set;
    enum err err = broker_topic_get(door->broker, topic, arena, &set, NULL);
    if (err || !(set.perm & PERM_READ) || set.read_queues > QUEUES_MAX)
        return ERR_NOT_FOUND;
    a->queues = arena_alloc(arena, ((size_t)set.read_queues + 1) * sizeof *a->queues);
    if (!a->queues)
        return ERR_TOO_BIG;
    for (int32_t id = 0; id < set.read_queues; id++)
        a->queues[a->n_queues++] = (struct assign_queue){bytes_str(door->options.broker_name), id};
    return OK;
}

static void answer_assigned(struct request *rq, const struct assign *a, bool known)
{
    struct queue_name *queues = known ? arena_alloc(rq->arena, (a->n + 1) * sizeof *queues) : NULL;
    for (size_t i = 0; queues && i < a->n; i++)
        queues[i] = (struct queue_name){a->topic, a->assigned[i].broker, a->assigned[i].queue_id};
    struct buf body = buf_upto(BODY_MAX);
    assignment_write(&body, queues, a->n, a->mode.pops);
    answer_buf(rq, &body);
}

void assignment_query(struct door *door, struct request *rq)
{
    struct assignment_query q;
    if (assignment_query_read(rq->body, rq->arena, &q)) {
        answer(rq, RES_SYSTEM_ERROR,
               "the body should name topic, consumerGroup, clientId, strategyName and "
               "messageModel, and cannot be read");
        return;
    }
    struct assign a = {.topic = q.topic,
                       .group = q.group,
                       .client_id = q.client_id,
                       .broadcasting = q.broadcasting};
    bool known = assign_strategy_find(q.strategy, &a.strategy) || q.broadcasting;
    if (known && route_queues(door, q.topic, rq->arena, &a))
        known = own_queues(door, q.topic, rq->arena, &a) == OK;
    if (known)
        known = broker_assign(door->broker, &a, rq->arena) == OK;
    answer_assigned(rq, &a, known);
}

void mode_set(struct door *door, struct request *rq)
{
    struct mode_body m;
    if (mode_body_read(rq->body, rq->arena, &m)) {
        answer(rq, RES_SYSTEM_ERROR,
               "the body should name topic, consumerGroup and mode (PULL or POP), and cannot be "
               "read");
        return;
    }
    struct request_mode mode = {m.topic, m.group, m.pops, m.share};
    struct fault why = {0};
    enum err err = broker_mode_set(door->broker, &mode, &why);
    if (err)
        answer_fault(rq, err, &why);
    else
        answer_saved(rq, NULL);
}

void modes_all(struct door *door, struct request *rq)
{
    struct buf body = buf_upto(BODY_MAX);
    enum err err = broker_table_write(door->broker, TABLE_MODES, &body);
    if (err) {
        buf_clear(&body);
        answer_fault(rq, err, NULL);
        return;
    }
    answer_buf(rq, &body);
}
