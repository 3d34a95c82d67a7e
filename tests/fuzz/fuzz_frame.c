/* Any bytes as the input of a connection: frame after frame is cut off and its header decoded,
 * until the bytes are refused or run out. */
#include "remoting/remoting.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const struct frame *frame)
{
    static struct head head;
    uint8_t *room = malloc(frame->head.len ? frame->head.len : 1);
    invariant(room);
    struct wr spare = wr_over(room, frame->head.len);
    enum err err = head_decode(frame, &spare, &head);
    invariant(err == OK || err == ERR_MALFORMED || err == ERR_TOO_BIG);
    invariant(head.form == frame->form);
    invariant(head.n_fields <= HEAD_FIELDS_MAX);
    free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = bytes_of(data, size);
    for (;;) {
        struct frame frame;
        size_t need = 0;
        enum err err = frame_split(rest, &frame, &need);
        if (err == ERR_INCOMPLETE) {
            invariant(need > rest.len);
            invariant(need >= FRAME_PREFIX);
            invariant(need <= FRAME_MAX);
            return 0;
        }
        if (err) {
            invariant(err == ERR_MALFORMED || err == ERR_TOO_BIG);
            return 0;
        }
        invariant(frame.size <= rest.len);
        invariant(frame.size == FRAME_PREFIX + frame.head.len + frame.body.len);
        decode(&frame);
        rest = bytes_from(rest, frame.size);
    }
}
