/* query.c - messages by key (QUERY_MESSAGE) and by the place that is in their id
 * (VIEW_MESSAGE_BY_ID). */
#include "door/remoting/door_int.h"

#define UNIQUE_KEY_HITS 32 /* Apache's defaultQueryMaxNum, for a query by unique key */

void query_by_key(struct door *door, struct request *rq)
{
    struct query_fields f = {0};
    if (!request_fields(rq, &query_message_table, &f))
        return;
    struct store_query query = {
        .topic = f.topic,
        .key = f.key,
        .max = f.unique    ? UNIQUE_KEY_HITS
               : f.max > 0 ? (uint32_t)f.max
                           : 0,
        .begin_ms = f.begin_ms,
        .end_ms = f.end_ms,
    };
    struct queried got;
    struct fault why = {0};
    enum err err = broker_query(door->broker, &query, &got, &why);
    if (err) {
        answer_fault(rq, err, &why);
        return;
    }
    struct return_address to = return_address_of(rq);
    struct reply r;
    bool wanted = reply_begin(&r, &to, RES_SUCCESS, (struct bytes){0}, 0);
    if (wanted) {
        frame_put_int(&r.frame, BYTES("indexLastUpdateTimestamp"), got.index_ms);
        frame_put_int(&r.frame, BYTES("indexLastUpdatePhyoffset"), got.index_position);
        reply_end(&r, got.size);
    }
    for (size_t i = 0; i < got.n; i++) {
        if (wanted)
            conn_write_slice(r.conn, got.slices[i].bytes, got.slices[i].owner);
        else
            counted_drop(got.slices[i].owner);
    }
}

void query_by_id(struct door *door, struct request *rq)
{
    struct query_fields f = {0};
    if (!request_fields(rq, &view_message_table, &f))
        return;
    struct slice slice;
    struct fault why = {0};
    enum err err = broker_view(door->broker, f.offset, &slice, &why);
    if (err) {
        answer(rq, RES_SYSTEM_ERROR, fault_remark(err, &why));
        return;
    }
    struct return_address to = return_address_of(rq);
    struct reply r;
    if (!reply_begin(&r, &to, RES_SUCCESS, (struct bytes){0}, 0)) {
        counted_drop(slice.owner);
        return;
    }
    reply_end(&r, slice.bytes.len);
    conn_write_slice(r.conn, slice.bytes, slice.owner);
}
