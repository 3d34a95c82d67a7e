/* Any line of a worker: refused, or an answer whose texts are where they may be. */
#include "base/arena.h"
#include "sidecar/sidecar_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct answer answer;
    struct fault why = {0};
    arena_init(&arena, 1 << 20);
    enum err err = line_read(bytes_of(data, size), &arena, &answer, &why);
    if (err) {
        invariant(why.text[0] != 0);
    } else {
        invariant(answer.kind >= SIDECAR_DONE && answer.kind <= SIDECAR_FAILED);
        invariant(answer.id.len <= size && answer.why.len <= size);
    }
    arena_clear(&arena);
    return 0;
}
