/* clock.c - ONCE_ADVANCE_CLOCK, a request of our own: puts the clock of a daemon forward that was
 * started for it, so that a test need not wait for days. */
#include "door/remoting/door_int.h"

void clock_advance(struct door *door, struct request *rq)
{
    struct clock_fields f = {0};
    if (!request_fields(rq, &advance_clock_table, &f))
        return;
    if (!door->options.advance_clock) {
        answer(rq, RES_NO_PERMISSION,
               "this daemon runs by the system's clock; start it with --clock virtual");
        return;
    }
    int64_t now_ms;
    if (door->options.advance_clock(door->options.user, f.ms, &now_ms)) {
        answer(rq, RES_INVALID_PARAMETER,
               "advanceMillis: at least 0, and not more than a hundred years in all");
        return;
    }
    struct return_address to = return_address_of(rq);
    struct reply r;
    if (!reply_begin(&r, &to, RES_SUCCESS, (struct bytes){0}, 0))
        return;
    frame_put_int(&r.frame, BYTES("timestamp"), now_ms);
    reply_end(&r, 0);
}
