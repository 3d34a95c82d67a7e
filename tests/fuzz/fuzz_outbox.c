/* Any bytes as a row of the outbox. What is accepted is a message whose texts end where they
 * should, and that is written as the same bytes again. */
#include "once/once_int.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A text is within the input, and so is its NUL. */
static void text(const char *t, const uint8_t *data, size_t size)
{
    if (!t)
        return;
    const uint8_t *at = (const uint8_t *)t;
    invariant(at >= data && at < data + size);
    invariant(memchr(at, 0, (size_t)(data + size - at)) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outbox_message *m = malloc(sizeof *m);
    invariant(m != NULL);
    if (outbox_decode(bytes_of(data, size), m) == OK) {
        text(m->message.topic, data, size);
        text(m->message.tag, data, size);
        text(m->message.keys, data, size);
        text(m->message.id, data, size);
        for (size_t i = 0; i < m->message.n_properties; i++) {
            text(m->message.properties[i].name, data, size);
            text(m->message.properties[i].value, data, size);
        }
        struct buf again = buf_upto(OUTBOX_MESSAGE_MAX);
        outbox_encode(&m->message, &again);
        invariant(again.err == OK && bytes_equal(buf_bytes(&again), bytes_of(data, size)));
        buf_clear(&again);
    }
    free(m);
    return 0;
}
