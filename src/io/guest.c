/* Guests: threads that do the loop's work themselves for as long as they wait for it. */
#include "io/io_int.h"

#include <poll.h>

/* Who finds somebody inside does not wait at the door, and neither do the next so many: where many
 * threads want the same, the loop's own thread serves them with fewer system calls. */
#define CROWD 64

void loop_take_guests(struct loop *loop)
{
    loop_here(loop);
    loop->hospitable = true;
}

bool loop_is_mine(const struct loop *loop)
{
    return loop_inside == loop;
}

/* ---- the door ---- */

static void come_in(struct loop *loop)
{
    room_enter(&loop->key);
    loop_inside = loop;
}

/* Who is rung comes in next, as a rule, so the door is open before. The loop may be gone by then,
 * but those who wait are still there. */
static void go_out(struct loop *loop)
{
    struct list rings;
    list_init(&rings);
    list_append_all(&rings, &loop->rings);
    loop_inside = NULL;
    room_leave(&loop->key);
    struct link *k;
    while ((k = list_pop(&rings)))
        bell_ring(&list_entry(k, struct ring, link)->bell);
}

void loop_ring(struct ring *ring)
{
    if (loop_inside && loop_inside->hospitable)
        list_add_tail(&loop_inside->rings, &ring->link);
    else
        bell_ring(&ring->bell);
}

bool ring_is_due(const struct ring *ring)
{
    return link_in_list(&ring->link) || bell_rung(&ring->bell);
}

/* ---- the loop's own thread ---- */

/* When there is something to do, should nothing happen; as libuv counts. */
static uint64_t due_ms(const struct loop *loop)
{
    int wait = uv_backend_timeout(&loop->uv);
    return wait < 0 ? UINT64_MAX : uv_now(&loop->uv) + (uint64_t)wait;
}

/* The same as uv_run, but nobody is inside while it waits. */
void loop_run_with_guests(struct loop *loop)
{
    struct pollfd events = {.fd = uv_backend_fd(&loop->uv), .events = POLLIN};
    for (;;) {
        come_in(loop);
        (void)uv_run(&loop->uv, UV_RUN_NOWAIT);
        loop_end_turn(loop); /* what the events have made us write */
        if (loop->over)      /* it, or a guest, has heard so */
            break;
        int wait = uv_backend_timeout(&loop->uv);
        loop->waits_until_ms = due_ms(loop);
        go_out(loop);
        (void)poll(&events, 1, wait);
    }
    while (loop->guests > 0) /* they come back, and nobody else comes in */
        room_wait(&loop->key, -1);
    loop_end_turn(loop);
    go_out(loop);
}

/* ---- guests ---- */

static bool guest_came_in(struct loop *loop)
{
    if (!loop->hospitable || loop_inside)
        return false;
    if (atomic_load_explicit(&loop->crowd, memory_order_relaxed) > 0) {
        atomic_fetch_sub_explicit(&loop->crowd, 1, memory_order_relaxed);
        return false;
    }
    if (!room_try(&loop->key)) {
        atomic_store_explicit(&loop->crowd, CROWD, memory_order_relaxed);
        return false;
    }
    if (loop->over) {
        room_leave(&loop->key);
        return false;
    }
    loop_inside = loop;
    loop->guests++;
    uv_update_time(&loop->uv); /* it knows the time of its last turn, and dials count from that */
    return true;
}

bool loop_visit(struct loop *loop, struct post *post)
{
    bool inside = guest_came_in(loop);
    loop_post(loop, post); /* behind those that others have posted before */
    if (inside)
        loop_run_posts(loop);
    return inside;
}

/* The end of a guest's turn. It has the kernel watch what is to be watched now; for the rest, the
 * loop's own thread is woken if it would look too late. */
static void settle(struct loop *loop)
{
    loop_end_turn(loop);
    if (uv_backend_timeout(&loop->uv) == 0) {
        (void)uv_run(&loop->uv, UV_RUN_NOWAIT);
        loop_end_turn(loop);
    }
    if (loop->over || due_ms(loop) < loop->waits_until_ms)
        (void)uv_async_send(&loop->bell);
}

void loop_leave(struct loop *loop)
{
    here(loop);
    settle(loop);
    if (--loop->guests == 0 && loop->over)
        room_tell(&loop->key);
    go_out(loop);
}

bool conn_await(struct conn *conn, uint64_t timeout_ns)
{
    struct loop *loop = conn->loop;
    struct conn *lent;
    if (!conn_lend(conn, &lent))
        return false;
    struct pollfd input = {.fd = conn->fd, .events = POLLIN};
    struct timespec wait = {(time_t)(timeout_ns / 1000000000), (long)(timeout_ns % 1000000000)};
    struct patience patience = conn->patience;
    settle(
        loop); /* what was written leaves when nobody but this thread would be woken by an answer */
    go_out(loop);
    /* Should it be closed meanwhile, this is another's file, or nobody's: then it ends too early or
     * too late, and nothing is read. */
    bool some = patience_look(&patience, input.fd) || ppoll(&input, 1, &wait, NULL) > 0;
    come_in(loop);
    uv_update_time(&loop->uv);
    if (!lent)
        return false;
    lent->patience = patience;
    conn_take_back(lent, some);
    return some;
}
