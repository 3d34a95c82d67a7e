/* offset.c - where a group stands in a queue, and where a queue begins and ends. */
#include "door/remoting/door_int.h"

static void answer_number(const struct request *rq, struct bytes name, int64_t value)
{
    struct return_address to = return_address_of(rq);
    struct reply r;
    if (!reply_begin(&r, &to, RES_SUCCESS, (struct bytes){0}, 0))
        return;
    frame_put_int(&r.frame, name, value);
    reply_end(&r, 0);
}

void offset_query(struct door *door, struct request *rq)
{
    struct offset_fields f = {.set_zero_if_not_found = true};
    if (!request_fields(rq, &query_offset_table, &f))
        return;
    int64_t offset;
    struct fault why = {0};
    enum err err = broker_offset_query(door->broker, f.group, f.topic, f.queue_id,
                                       f.set_zero_if_not_found, &offset, &why);
    if (err)
        answer_fault(rq, err, &why);
    else
        answer_number(rq, BYTES("offset"), offset);
}

void offset_update(struct door *door, struct request *rq)
{
    struct offset_fields f = {0};
    if (!request_fields(rq, &update_offset_table, &f))
        return;
    struct fault why = {0};
    struct commit commit = {&rq->session->counted, f.group, f.topic, f.queue_id, f.commit_offset};
    enum err err = broker_offset_commit(door->broker, &commit, &why);
    if (err)
        answer_fault(rq, err, &why);
    else
        answer(rq, RES_SUCCESS, NULL);
}

/* Which of the two messages around a time; anything else is the later one. Witness:
 * BoundaryType.getType. */
static bool is_upper(struct bytes boundary)
{
    return bytes_equal(boundary, BYTES("UPPER")) || bytes_equal(boundary, BYTES("upper"));
}

static void bound(struct door *door, struct request *rq, const struct field_table *table,
                  enum queue_bound which, struct bytes name)
{
    struct offset_fields f = {0};
    if (!request_fields(rq, table, &f))
        return;
    if (which == BOUND_TIME && is_upper(f.boundary))
        which = BOUND_TIME_LAST;
    int64_t value;
    struct fault why = {0};
    enum err err =
        broker_bound(door->broker, f.topic, f.queue_id, which, f.timestamp, &value, &why);
    if (err)
        answer_fault(rq, err, &why);
    else
        answer_number(rq, name, value);
}

void offset_max(struct door *door, struct request *rq)
{
    bound(door, rq, &queue_table, BOUND_MAX, BYTES("offset"));
}

void offset_min(struct door *door, struct request *rq)
{
    bound(door, rq, &queue_table, BOUND_MIN, BYTES("offset"));
}

void offset_search(struct door *door, struct request *rq)
{
    bound(door, rq, &search_offset_table, BOUND_TIME, BYTES("offset"));
}

void offset_earliest(struct door *door, struct request *rq)
{
    bound(door, rq, &queue_table, BOUND_EARLIEST_TIME, BYTES("timestamp"));
}
