/* batch.c - several messages in the body of one SEND_BATCH_MESSAGE.
 *
 * Each: size (4), magic (4), body crc (4), flag (4), body (4 + n), properties (2 + n). The clients
 * leave magic and crc 0 and the broker looks at neither.
 */
#include "msg/msg.h"

#define AT_FLAG    12
#define AT_BODY    16
#define FIXED_SIZE 22

enum err batch_next(struct rd *r, struct batch_item *out, bool *more)
{
    if (!r->bad && rd_left(r) == 0) {
        *more = false;
        return OK;
    }

    /* The sizes first: they are looked at together, for batches have many small messages. */
    const uint8_t *at = r->at;
    size_t left = rd_left(r), body = 0, props = 0;
    if (left >= FIXED_SIZE)
        body = load_u32(at + AT_BODY);
    bool whole = !r->bad && left >= FIXED_SIZE && body <= left - FIXED_SIZE;
    if (whole)
        props = load_u16(at + AT_BODY + 4 + body);
    size_t size = FIXED_SIZE + body + props;
    if (!whole || size > left || load_u32(at) != size || props > RECORD_PROPS_MAX) {
        r->bad = true;
        return ERR_MALFORMED;
    }
    *out = (struct batch_item){.flag = (int32_t)load_u32(at + AT_FLAG),
                               .body = bytes_of(at + AT_BODY + 4, body),
                               .props = bytes_of(at + FIXED_SIZE + body, props)};
    r->at += size;
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
