/* batch.c - several messages in the body of one SEND_BATCH_MESSAGE.
 *
 * Each: size (4), magic (4), body crc (4), flag (4), body (4 + n), properties (2 + n). The clients
 * leave magic and crc 0 and the broker looks at neither.
 */
#include "msg/msg.h"

#define FIXED_SIZE 22

enum err batch_next(struct rd *r, struct batch_item *out, bool *more)
{
    if (!r->bad && rd_left(r) == 0) {
        *more = false;
        return OK;
    }

    struct batch_item item;
    uint32_t size = rd_u32(r);
    (void)rd_u32(r); /* magic */
    (void)rd_u32(r); /* body crc */
    item.flag = (int32_t)rd_u32(r);
    item.body = rd_take(r, rd_u32(r));
    item.props = rd_take(r, rd_u16(r));

    if (r->bad || item.props.len > RECORD_PROPS_MAX)
        return ERR_MALFORMED;
    if (size != FIXED_SIZE + item.body.len + item.props.len)
        return ERR_MALFORMED;
    *out = item;
    *more = true;
    return OK;
}

void batch_add(struct wr *w, const struct batch_item *item)
{
    size_t size = FIXED_SIZE + item->body.len + item->props.len;
    if (item->props.len > RECORD_PROPS_MAX || item->body.len > INT32_MAX || size > wr_room(w)) {
        w->full = true;
        return;
    }
    wr_u32(w, (uint32_t)size);
    wr_u32(w, 0);
    wr_u32(w, 0);
    wr_u32(w, (uint32_t)item->flag);
    wr_u32(w, (uint32_t)item->body.len);
    wr_bytes_of(w, item->body);
    wr_u16(w, (uint16_t)item->props.len);
    wr_bytes_of(w, item->props);
}
