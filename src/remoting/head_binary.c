/* head_binary.c - the header in ROCKETMQ form.
 *
 *     code (2)  language (1)  version (2)  opaque (4)  flag (4)  remark (4 + n)  fields (4 + n)
 *     each field: name (2 + n), value (4 + n)
 *
 * Lengths are signed in Java. An empty value is no value: Java reads it as null.
 */
#include "remoting/remoting.h"

enum err head_decode_binary(struct bytes in, struct head *out)
{
    struct rd r = rd_over(in);
    out->form = HEAD_BINARY;
    out->n_fields = 0;
    out->memory = NULL;
    out->code = (int16_t)rd_u16(&r);
    out->language = rd_u8(&r);
    out->version = (int16_t)rd_u16(&r);
    out->opaque = (int32_t)rd_u32(&r);
    out->flag = (int32_t)rd_u32(&r);
    out->remark = rd_take(&r, rd_u32(&r));
    struct rd fields = rd_over(rd_take(&r, rd_u32(&r)));
    if (r.bad || rd_left(&r) > 0) /* neither too short nor too long */
        return ERR_MALFORMED;

    while (rd_left(&fields) > 0) { /* each turn eats six bytes or more, or ends it */
        struct bytes name = rd_take(&fields, rd_u16(&fields));
        struct bytes value = rd_take(&fields, rd_u32(&fields));
        if (fields.bad || name.len == 0 || name.len > INT16_MAX)
            return ERR_MALFORMED;
        if (value.len == 0)
            continue;
        if (out->n_fields == HEAD_FIELDS_MAX)
            return ERR_TOO_BIG;
        out->fields[out->n_fields++] = (struct field){name, value};
    }
    return OK;
}
