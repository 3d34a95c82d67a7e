/* late.c - answers that wait until the log is confirmed.
 *
 * What an answer promises must be safe when the client reads it: with SYNC_FLUSH, on the disk. The
 * loop does not wait for that: the answer is put aside and comes back to its home loop as a post.
 * Those put aside count among the sends that wait for the disk, of which there may not be too many.
 * Sends themselves have their own way (send.c), since a whole read of them waits as one. */
#include "door/remoting/door_int.h"

#include <stdlib.h>

void *late_make_to(const struct return_address *to, size_t size)
{
    struct late *late = calloc(1, size);
    if (!late)
        return NULL;
    late->door = to->session->door;
    late->to = *to;
    return late;
}

void *late_make(const struct request *rq, size_t size)
{
    struct return_address to = return_address_of(rq);
    return late_make_to(&to, size);
}

/* Home loop. */
static void late_over(struct post *post)
{
    struct late *late = list_entry(post, struct late, post);
    atomic_fetch_sub_explicit(&late->door->sends_waiting, 1, memory_order_relaxed);
    if (late->err)
        log_limited(late->door->log, &late->door->not_stored, LOG_ERROR,
                    "what was stored for a request is not confirmed reason=\"%s\"",
                    err_text(late->err));
    late->give(late);
    conn_drop(late->conn);
    counted_drop(&late->to.session->counted);
    free(late);
}

static void late_done(struct store_wait *wait, enum err err)
{
    struct late *late = list_entry(wait, struct late, wait);
    late->err = err;
    loop_post(late->to.session->home, &late->post);
}

void late_give(struct late *late, uint64_t position, void (*give)(const struct late *late))
{
    if (store_confirmed(late->door->options.store) >= position) {
        give(late);
        free(late);
        return;
    }
    late->wait = (struct store_wait){.position = position, .done = late_done};
    late->post = (struct post){.run = late_over};
    late->give = give;
    late->conn = late->to.session->conn;
    counted_hold(&late->to.session->counted);
    conn_hold(late->conn);
    atomic_fetch_add_explicit(&late->door->sends_waiting, 1, memory_order_relaxed);
    if (store_await(late->door->options.store, &late->wait))
        late_over(&late->post);
}
