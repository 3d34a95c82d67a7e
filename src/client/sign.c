/* sign.c - the signature of a request: who we are, and that we know the secret.
 *
 * Signed are the values of all fields, in the byte order of their names, and then the body:
 * HMAC-SHA1 with the secret key, in base64. The fields are read back from the header that the
 * request would have without a signature, so that what is signed is what the server will see. */
#include "client/client_int.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>

static int by_name(const void *a, const void *b)
{
    return bytes_compare(((const struct field *)a)->name, ((const struct field *)b)->name);
}

static enum err signature(const char *secret, struct field *fields, size_t n, struct bytes body,
                          char out[SIGNATURE_MAX])
{
    qsort(fields, n, sizeof *fields, by_name);
    struct buf data = buf_upto(FRAME_MAX);
    for (size_t i = 0; i < n; i++)
        buf_add(&data, fields[i].value);
    buf_add(&data, body);
    uint8_t code[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    bool good = !data.err && HMAC(EVP_sha1(), secret, (int)strlen(secret),
                                  data.at ? data.at : (const uint8_t *)"", data.len, code, &len);
    enum err err = data.err ? data.err : good ? OK : ERR_INVALID;
    buf_clear(&data);
    if (!err)
        (void)EVP_EncodeBlock((unsigned char *)out, code, (int)len);
    return err;
}

void sign_put(struct frame_out *frame, const struct omq_client_options *o)
{
    frame_put(frame, BYTES("AccessKey"), bytes_str(o->access_key));
    if (o->security_token)
        frame_put(frame, BYTES("SecurityToken"), bytes_str(o->security_token));
}

enum err sign_frame(const struct omq_client_options *o, struct bytes unsigned_frame,
                    struct bytes body, char out[SIGNATURE_MAX])
{
    struct rd r = rd_over(unsigned_frame);
    (void)rd_u32(&r); /* it counts the body, which is elsewhere */
    struct frame frame = {.form = HEAD_JSON};
    frame.head = rd_take(&r, rd_u32(&r) & 0xffffff);
    cleanup(free_at) uint8_t *spare = malloc(frame.head.len + 1);
    if (!spare)
        return ERR_NO_MEMORY;
    struct wr w = wr_over(spare, frame.head.len);
    struct head head;
    enum err err = r.bad ? ERR_MALFORMED : head_decode(&frame, &w, &head);
    return err ? err : signature(o->secret_key, head.fields, head.n_fields, body, out);
}
