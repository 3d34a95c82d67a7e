/* Any bytes as a compressed body, the first of them as its type: expanded within the limit, or
 * refused and the buffer left alone. What was expanded goes in and comes out again. */
#include "msg/msg.h"

#define LIMIT (256 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    int32_t flag = (data[0] & 7) << 8 | SYS_COMPRESSED;
    struct compressor c = {0};
    struct buf plain = buf_upto(LIMIT), again = buf_upto(SIZE_MAX), back = buf_upto(LIMIT);
    enum err err = body_expand(&c, flag, bytes_of(data + 1, size - 1), &plain);
    invariant(plain.cap <= LIMIT);
    if (err) {
        invariant(err == ERR_MALFORMED || err == ERR_TOO_BIG || err == ERR_UNSUPPORTED);
        invariant(plain.len == 0);
    } else {
        enum compression how = data[0] % 3;
        invariant(body_compress(&c, how, data[0] >> 4, buf_bytes(&plain), &again) == OK);
        invariant(body_expand(&c, compression_flags(how), buf_bytes(&again), &back) == OK);
        invariant(bytes_equal(buf_bytes(&back), buf_bytes(&plain)));
    }
    buf_clear(&plain);
    buf_clear(&again);
    buf_clear(&back);
    compressor_clear(&c);
    return 0;
}
