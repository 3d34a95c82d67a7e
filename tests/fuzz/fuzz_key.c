/* Any bytes as a key expression, up to the first zero byte, and as the body that it looks into. */
#include "once/key.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = memchr(data, 0, size);
    if (!zero)
        return 0;
    struct fault why = {0};
    struct key *key;
    if (key_compile((const char *)data, &key, &why)) {
        invariant(why.text[0]);
        return 0;
    }
    size_t body_size = size - (size_t)(zero + 1 - data);
    uint8_t *body = malloc(body_size + 1);
    invariant(body);
    memcpy(body, zero + 1, body_size);
    const struct once_property property = {"p", "v"};
    struct once_message m = {.topic = "T", .tag = "t", .keys = "k", .id = "i"};
    m.body = body;
    m.body_size = body_size;
    m.properties = &property;
    m.n_properties = 1;
    struct buf out = buf_upto(2 * KEY_MAX);
    enum err err = key_make(key, &m, &out, &why);
    invariant(err ? out.len == 0 && why.text[0] : out.len > 0 && out.len <= KEY_MAX);
    buf_clear(&out);
    key_free(key);
    free(body);
    return 0;
}
