/* Loops: the turn, the mailbox, timers and signals, the ticks, and the end of it all. */
#include "io/io_int.h"

#include <stdlib.h>

struct timer {
    uv_timer_t uv;
    struct link link; /* in loop->timers */
    void (*fired)(void *user);
    void *user;
};

struct signal_watch {
    uv_signal_t uv;
    struct link link; /* in loop->signals */
    void (*fired)(void *user, int signum);
    void *user;
};

_Thread_local struct loop *loop_inside;

static void on_bell(uv_async_t *bell);
static void on_turn_end(uv_prepare_t *prepare);
static void on_read_end(uv_check_t *check);
static void on_again(uv_idle_t *again);

static enum err loop_fault(struct fault *why, int uv_err, const char *what)
{
    return fault_set(why, uv_err == UV_ENOMEM ? ERR_NO_MEMORY : ERR_IO, "%s: %s", what,
                     uv_strerror(uv_err));
}

enum err loop_open(struct loop **out, struct clock *clock, struct log *log, struct fault *why)
{
    cleanup(free_at) struct loop *loop = calloc(1, sizeof *loop);
    cleanup(free_at) uint8_t *in = aligned_alloc(4096, LOOP_IN_SIZE);
    if (!loop || !in)
        return fault_set(why, ERR_NO_MEMORY, "making an event loop");

    int failed = uv_loop_init(&loop->uv);
    if (failed)
        return loop_fault(why, failed, "making an event loop");
    failed = uv_async_init(&loop->uv, &loop->bell, on_bell);
    if (failed) {
        (void)uv_loop_close(&loop->uv);
        return loop_fault(why, failed, "making an event loop's bell");
    }
    (void)uv_prepare_init(&loop->uv, &loop->turn_end); /* these five cannot fail */
    (void)uv_check_init(&loop->uv, &loop->read_end);
    (void)uv_idle_init(&loop->uv, &loop->again);
    (void)uv_timer_init(&loop->uv, &loop->idle_tick);
    (void)uv_timer_init(&loop->uv, &loop->linger_tick);
    (void)uv_prepare_start(&loop->turn_end, on_turn_end);
    (void)uv_check_start(&loop->read_end, on_read_end);

    struct list *lists[] = {&loop->posts,     &loop->conns,  &loop->held,    &loop->dirty,
                            &loop->resumed,   &loop->timers, &loop->signals, &loop->lingering,
                            &loop->listeners, &loop->dials,  &loop->rings};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        list_init(lists[i]);
    room_init(&loop->key, "loop", ROOM_LOOP);
    room_init(&loop->mailbox, "mailbox", ROOM_LEAF);
    loop->clock = clock;
    loop->log = log;
    loop->tick_ns = clock_ns(clock);
    loop->in = take(&in);
    *out = take(&loop);
    return OK;
}

void loop_run(struct loop *loop)
{
    loop_here(loop);
    atomic_store(&loop->owned, true);
    if (loop->hospitable) {
        loop_run_with_guests(loop);
    } else {
        loop_inside = loop;
        (void)uv_run(&loop->uv, UV_RUN_DEFAULT);
        loop_end_turn(loop); /* what the last turn wrote must not wait for one that never comes */
        loop_inside = NULL;
    }
    atomic_store(&loop->owned, false);
}

void loop_look_first(struct loop *loop)
{
    loop_here(loop);
    loop->looks = true;
}

void loop_stop(struct loop *loop)
{
    atomic_store(&loop->stop, true);
    (void)uv_async_send(&loop->bell);
}

void loop_here(const struct loop *loop)
{
    here(loop);
}

void loop_post(struct loop *loop, struct post *post)
{
    room_enter(&loop->mailbox);
    bool first = list_empty(&loop->posts);
    list_add_tail(&loop->posts, &post->link);
    atomic_store_explicit(&loop->mail, true, memory_order_release);
    room_leave(&loop->mailbox);
    if (first && loop_inside != loop) /* its own thread looks here before it waits */
        (void)uv_async_send(&loop->bell);
}

void loop_at_turn_end(struct loop *loop, void (*fn)(void *user), void *user)
{
    loop_here(loop);
    loop->hook = fn;
    loop->hook_user = user;
}

void loop_at_settling(struct loop *loop, void (*fn)(void *user), void *user)
{
    loop_here(loop);
    loop->settle = fn;
    loop->settle_user = user;
}

void loop_drain(struct loop *loop, void (*done)(void *user), void *user)
{
    loop_here(loop);
    loop_settle(loop); /* whose answers are still to come is answered */
    loop->draining = true;
    loop->drained = done;
    loop->drained_user = user;
    list_each(k, &loop->conns)
        conn_retire(list_entry(k, struct conn, by_loop));
    loop_wake(loop); /* `done` comes from the loop, also when there is nothing to wait for */
}

/* ---- timers and signals ---- */

static void on_timer(uv_timer_t *uv)
{
    struct timer *timer = uv->data;
    timer->fired(timer->user);
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

enum err timer_open(struct loop *loop, void (*fired)(void *user), void *user, struct timer **out)
{
    loop_here(loop);
    struct timer *timer = calloc(1, sizeof *timer);
    if (!timer)
        return ERR_NO_MEMORY;
    (void)uv_timer_init(&loop->uv, &timer->uv);
    timer->uv.data = timer;
    timer->fired = fired;
    timer->user = user;
    list_add_tail(&loop->timers, &timer->link);
    *out = timer;
    return OK;
}

void timer_start(struct timer *timer, uint64_t after_ms, uint64_t every_ms)
{
    /* libuv counts from when it last looked at the clock, which may be long ago. */
    uv_update_time(timer->uv.loop);
    (void)uv_timer_start(&timer->uv, on_timer, after_ms, every_ms);
}

void timer_stop(struct timer *timer)
{
    (void)uv_timer_stop(&timer->uv);
}

void timer_close(struct timer *timer)
{
    if (!timer)
        return;
    list_remove(&timer->link);
    uv_close((uv_handle_t *)&timer->uv, on_timer_closed);
}

static void on_signal(uv_signal_t *uv, int signum)
{
    struct signal_watch *watch = uv->data;
    watch->fired(watch->user, signum);
}

static void on_signal_closed(uv_handle_t *handle)
{
    free(handle->data);
}

enum err loop_on_signal(struct loop *loop, int signum, void (*fired)(void *user, int signum),
                        void *user)
{
    loop_here(loop);
    struct signal_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return ERR_NO_MEMORY;
    if (uv_signal_init(&loop->uv, &watch->uv) != 0) {
        free(watch);
        return ERR_IO;
    }
    watch->uv.data = watch;
    watch->fired = fired;
    watch->user = user;
    if (uv_signal_start(&watch->uv, on_signal, signum) != 0) {
        uv_close((uv_handle_t *)&watch->uv, on_signal_closed);
        return ERR_IO;
    }
    list_add_tail(&loop->signals, &watch->link);
    return OK;
}

/* ---- closing ---- */

/* After the connections, because a `closed` may still close the timer or dial that belongs to it.
 */
static void close_the_rest(struct loop *loop)
{
    struct link *k;
    while ((k = list_first(&loop->listeners)))
        listener_close_link(k);
    while ((k = list_first(&loop->dials)))
        dial_close_link(k);
    while ((k = list_first(&loop->timers)))
        timer_close(list_entry(k, struct timer, link));
    while ((k = list_pop(&loop->signals)))
        uv_close((uv_handle_t *)&list_entry(k, struct signal_watch, link)->uv, on_signal_closed);
}

/* Whoever still holds a connection may drop it after the loop is gone. */
static void orphan_held(struct loop *loop)
{
    struct link *k;
    while ((k = list_pop(&loop->held)))
        list_entry(k, struct conn, by_loop)->loop = NULL;
}

void loop_close(struct loop *loop)
{
    if (!loop)
        return;
    invariant(!atomic_load(&loop->owned));
    loop->closing = true;
    loop->hook = NULL;
    loop->drained = NULL;
    do { /* a `closed` may post, and a post may do anything */
        loop_run_posts(loop);
        list_each(k, &loop->conns)
            conn_close(list_entry(k, struct conn, by_loop), "shutting down");
        (void)uv_run(&loop->uv, UV_RUN_NOWAIT);
    } while (!list_empty(&loop->conns) || !list_empty(&loop->posts));

    close_the_rest(loop);
    uv_close((uv_handle_t *)&loop->bell, NULL);
    uv_close((uv_handle_t *)&loop->turn_end, NULL);
    uv_close((uv_handle_t *)&loop->read_end, NULL);
    uv_close((uv_handle_t *)&loop->again, NULL);
    uv_close((uv_handle_t *)&loop->idle_tick, NULL);
    uv_close((uv_handle_t *)&loop->linger_tick, NULL);
    (void)uv_run(&loop->uv, UV_RUN_DEFAULT);
    invariant(uv_loop_close(&loop->uv) == 0);

    orphan_held(loop);
    pool_clear(&loop->pool);
    room_clear(&loop->mailbox);
    room_clear(&loop->key);
    free(loop->in);
    free(loop);
}

/* ---- the turn ---- */

/* Who posts just after this look rings. */
static bool posts_wait(struct loop *loop)
{
    return atomic_load_explicit(&loop->mail, memory_order_acquire);
}

void loop_run_posts(struct loop *loop)
{
    struct list posts;
    if (!posts_wait(loop))
        return;
    list_init(&posts);
    room_enter(&loop->mailbox);
    list_append_all(&posts, &loop->posts);
    atomic_store_explicit(&loop->mail, false, memory_order_relaxed);
    room_leave(&loop->mailbox);

    struct link *k;
    while ((k = list_pop(&posts))) {
        struct post *post = list_entry(k, struct post, link);
        post->run(post);
    }
}

static void on_bell(uv_async_t *bell)
{
    struct loop *loop = list_entry(bell, struct loop, bell);
    loop_settle(loop);
    loop_run_posts(loop);
    if (atomic_exchange(&loop->stop, false)) {
        loop->over = true;
        uv_stop(&loop->uv);
    }
}

void loop_settle(struct loop *loop)
{
    if (!loop->unsettled)
        return;
    loop->unsettled = false;
    loop->in_used = 0;
    if (loop->settle)
        loop->settle(loop->settle_user);
}

static void on_read_end(uv_check_t *check)
{
    loop_settle(list_entry(check, struct loop, read_end));
}

struct space loop_space(struct loop *loop)
{
    if (loop->in_used > LOOP_IN_SIZE / 2)
        loop_settle(loop);
    return (struct space){loop->in + loop->in_used, LOOP_IN_SIZE - loop->in_used};
}

void loop_breathe(struct loop *loop)
{
    loop_settle(loop);
    loop->breath_in = 0;
    struct link *k;
    while ((k = list_pop(&loop->dirty)))
        conn_flush(list_entry(k, struct conn, by_dirty));
}

void loop_end_turn(struct loop *loop)
{
    loop->heard |= loop->turn_in > 0;
    loop->turn_in = 0;
    loop_settle(loop);
    loop_run_posts(loop);
    loop_breathe(loop); /* who waits for an answer does not wait for the hook as well */
    if (loop->hook) {
        loop->hook(loop->hook_user);
        loop_run_posts(loop);
        loop_breathe(loop);
    }
    /* What posts or a connection that closed have posted here themselves is for the next turn.
     * Nobody rang for it, and nobody rings while the mailbox is not empty. */
    if (posts_wait(loop))
        (void)uv_async_send(&loop->bell);
}

/* The last thing before the loop waits. Who was just answered may have more to say at once. */
static void on_turn_end(uv_prepare_t *prepare)
{
    struct loop *loop = list_entry(prepare, struct loop, turn_end);
    loop_end_turn(loop);
    bool heard = loop->heard;
    loop->heard = false;
    if (heard && loop->looks && uv_backend_timeout(&loop->uv) != 0)
        (void)patience_look(&loop->patience, uv_backend_fd(&loop->uv));
}

void loop_wake(struct loop *loop)
{
    if (!loop->closing)
        (void)uv_idle_start(&loop->again, on_again);
}

/* Runs just before the turn ends, so what is written here leaves with it. Each connection gets one
 * go in a turn: one that reads as fast as we write must not keep the others waiting. */
static void on_again(uv_idle_t *again)
{
    struct loop *loop = list_entry(again, struct loop, again);
    (void)uv_idle_stop(again);

    struct list resumed;
    list_init(&resumed);
    list_append_all(&resumed, &loop->resumed);
    struct link *k;
    while ((k = list_pop(&resumed)))
        conn_resume(list_entry(k, struct conn, by_resumed));

    if (loop->draining && loop->drained && list_empty(&loop->conns)) {
        void (*done)(void *user) = loop->drained;
        loop->drained = NULL;
        done(loop->drained_user);
    }
}

/* ---- ticks ---- */

/* A loop that stood still for long finds its sockets full of unread bytes: a tick that comes late
 * closes nobody, the next one does. */
static void on_idle_tick(uv_timer_t *uv)
{
    struct loop *loop = list_entry(uv, struct loop, idle_tick);
    uint64_t now = clock_ns(loop->clock);
    uint64_t since = now - loop->tick_ns;
    loop->tick_ns = now;
    if (list_empty(&loop->conns)) {
        (void)uv_timer_stop(uv);
        return;
    }
    list_each(k, &loop->conns) {
        struct conn *conn = list_entry(k, struct conn, by_loop);
        if (secure_overdue(conn, now) && since < SHAKE_MAX_MS * 1000000ull / 2) {
            conn_close(conn, "the TLS handshake took too long");
            continue;
        }
        uint64_t idle_ns = conn->limits->idle_ms * 1000000u;
        if (idle_ns == 0 || since > idle_ns / 2)
            continue;
        /* Activity is stamped with the tick before it, so up to one tick is not idleness. */
        if (now - conn->active_ns > idle_ns + loop->idle_tick_ms * 1000000u)
            conn_close(conn, "idle");
    }
}

void loop_expect_idle(struct loop *loop, uint64_t idle_ms)
{
    loop->tick_ns = clock_ns(loop->clock);
    if (idle_ms == 0)
        return;
    uint64_t every = idle_ms / IDLE_TICKS < IDLE_TICK_MIN ? IDLE_TICK_MIN : idle_ms / IDLE_TICKS;
    if (uv_is_active((uv_handle_t *)&loop->idle_tick) && loop->idle_tick_ms <= every)
        return;
    loop->idle_tick_ms = every;
    (void)uv_timer_start(&loop->idle_tick, on_idle_tick, every, every);
}

static void on_linger_tick(uv_timer_t *uv)
{
    struct loop *loop = list_entry(uv, struct loop, linger_tick);
    uint64_t now = uv_now(&loop->uv);
    struct link *k;
    while ((k = list_first(&loop->lingering))) {
        struct conn *conn = list_entry(k, struct conn, by_linger);
        if (conn->linger_until_ms > now)
            break;
        conn_close(conn, "lingered");
    }
    loop_expect_linger(loop);
}

void loop_expect_linger(struct loop *loop)
{
    struct link *k = list_first(&loop->lingering);
    if (!k || uv_is_active((uv_handle_t *)&loop->linger_tick))
        return;
    uint64_t now = uv_now(&loop->uv);
    uint64_t until = list_entry(k, struct conn, by_linger)->linger_until_ms;
    (void)uv_timer_start(&loop->linger_tick, on_linger_tick, until > now ? until - now : 0, 0);
}
