/* Any bytes: refused, or accepted within the arena's ceiling and then written and read back as the
 * same tree. */
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    arena_init(&arena, 8 << 20);
    struct buf out = buf_upto(8 << 20);

    const struct json *doc, *again;
    size_t at = 0;
    enum err err = json_parse(bytes_of(data, size), &arena, &doc, &at);
    if (err) {
        invariant(err == ERR_MALFORMED || err == ERR_TOO_BIG);
        invariant(at <= size);
    } else {
        json_put(&(struct json_out){.buf = &out}, doc);
        if (out.err == OK && size <= 65536) { /* so that the second tree fits as the first did */
            invariant(json_parse(buf_bytes(&out), &arena, &again, NULL) == OK);
            invariant(json_same(doc, again));
        }
    }
    buf_clear(&out);
    arena_clear(&arena);
    return 0;
}
