/* pipe_feed.c - what goes into a process that stays: lines, from the feeder or, of messages that
 * come again, from the reader. pipe_int.h has the model. */
#include "sidecar/pipe_int.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define PIECE_SIZE    (1 << 20) /* of lines: then they are written */
#define WRITE_LOOK_MS 100

/* ---- writing ---- */

/* Room: the process's. A line for the job, which then flies. False: one with its id does already,
 * or there is no memory. */
static bool fly(struct process *p, struct job *job, struct buf *lines)
{
    struct bytes id = bytes_str(job->d->id);
    size_t start = lines->len;
    line_write(lines, job->d, bytes_of(once_run_key(job->run), once_run_key_size(job->run)),
               once_run_fence(job->run));
    if (lines->err || map_get(&p->by_id, id) || map_put(&p->by_id, id, job)) {
        lines->len = start;
        lines->err = OK;
        return false;
    }
    job->begun_ns = now_ns();
    list_add_tail(&p->flying, &job->link);
    p->n_flying++;
    return true;
}

static bool is_alive(struct process *p)
{
    room_enter(&p->room);
    bool alive = p->alive;
    room_leave(&p->room);
    return alive;
}

/* False: it has died, or does not read; the reader sees to that. Its end of the pipe may outlive
 * it, with a program that it has started: so whether it is alive is looked at, too. */
static bool write_all(struct process *p, struct bytes b, int timeout_ms)
{
    uint64_t until = timeout_ms < 0 ? UINT64_MAX : now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    while (b.len > 0) {
        ssize_t n = write(p->in, b.at, b.len);
        if (n > 0) {
            b = bytes_from(b, (size_t)n);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0 || errno != EAGAIN || now_ns() >= until || !is_alive(p))
            return false;
        struct pollfd at = {.fd = p->in, .events = POLLOUT};
        (void)poll(&at, 1, WRITE_LOOK_MS);
    }
    return true;
}

static void writing_over(struct process *p)
{
    room_enter(&p->room);
    p->writing = false;
    room_tell(&p->room);
    room_leave(&p->room);
}

void process_in_close(struct process *p)
{
    while (p->writing)
        room_wait(&p->room, -1);
    close_at(&p->in);
}

/* ---- what comes again ---- */

bool process_again_feed(struct process *p)
{
    struct buf *line = &p->line;
    struct job *job = NULL;
    line->len = 0;
    room_enter(&p->room);
    if (!p->fed_up && !p->writing && p->n_flying == 0 && !list_empty(&p->again))
        job = list_entry(list_pop(&p->again), struct job, link);
    if (job)
        p->alone = p->writing = fly(p, job, line);
    room_leave(&p->room);
    if (!job)
        return true;
    if (line->len == 0) { /* it went in before, so this is for want of memory */
        struct fate fate;
        fate_set(&fate, SIDECAR_LATER, -1, "no memory");
        desk_end(p->sidecar, &job, &fate, 1);
        return true;
    }
    bool read = write_all(p, buf_bytes(line), p->sidecar->with.timeout_ms);
    writing_over(p);
    return read;
}

void process_again_drop(struct process *p)
{
    struct list dropped;
    list_init(&dropped);
    room_enter(&p->room);
    list_append_all(&dropped, &p->again);
    room_leave(&p->room);
    for (struct link *k; (k = list_pop(&dropped));) {
        struct job *job = list_entry(k, struct job, link);
        struct fate fate;
        fate_set(&fate, SIDECAR_LATER, 0, "the worker is gone");
        desk_end(p->sidecar, &job, &fate, 1);
    }
}

/* ---- feeding ---- */

/* Room: the process's. How many it may get. */
static size_t window(const struct process *p)
{
    size_t most = (size_t)p->sidecar->with.in_flight;
    bool may = p->alive && list_empty(&p->again) && !p->alone && p->n_flying < most;
    return may ? most - p->n_flying : 0;
}

/* Waits until the process can take some: how many. 0: it is over. */
static size_t wait_window(struct process *p)
{
    size_t room = 0;
    room_enter(&p->room);
    while (!p->fed_up && (room = window(p)) == 0)
        room_wait(&p->room, -1);
    bool over = p->fed_up;
    room_leave(&p->room);
    return over ? 0 : room < TAKE_MAX ? room : TAKE_MAX;
}

/* Those in flight are known before the process can answer. How many of the jobs are through, of
 * which the last one may be refused; the others wait until this piece is written. */
static size_t flying_add(struct process *p, struct job **jobs, size_t n, struct buf *lines,
                         bool *refused)
{
    size_t i = 0;
    room_enter(&p->room);
    while (!p->fed_up && window(p) == 0) /* it has died meanwhile */
        room_wait(&p->room, -1);
    for (*refused = false; i < n && !*refused && lines->len < PIECE_SIZE; i++)
        *refused = p->fed_up || !fly(p, jobs[i], lines);
    p->writing = lines->len > 0;
    room_leave(&p->room);
    return i;
}

static void feed(struct process *p, struct job **jobs, size_t n, struct buf *lines)
{
    for (size_t i = 0; i < n;) {
        bool refused;
        lines->len = 0;
        i += flying_add(p, jobs + i, n - i, lines, &refused);
        if (lines->len > 0) {
            (void)write_all(p, buf_bytes(lines), -1);
            writing_over(p);
        }
        if (refused) {
            struct fate fate;
            fate_set(&fate, SIDECAR_LATER, -1, "another with its id is at work, or no memory");
            desk_end(p->sidecar, &jobs[i - 1], &fate, 1);
        }
    }
}

void *feeder_run(void *arg)
{
    struct process *p = arg;
    struct sidecar *s = p->sidecar;
    struct buf lines = buf_upto(LINES_MAX);
    struct job *jobs[TAKE_MAX];
    size_t n, room;
    while ((room = wait_window(p)) > 0 && (n = desk_next(s, jobs, room)) > 0) {
        n = desk_begin(s, jobs, n);
        if (n > 0)
            feed(p, jobs, n, &lines);
    }
    buf_clear(&lines);
    room_enter(&p->room); /* what it has shall be answered; then it may go */
    while (p->alive && p->n_flying > 0 && !p->fed_up)
        room_wait(&p->room, -1);
    p->fed_up = true;
    process_in_close(p);
    room_tell(&p->room);
    room_leave(&p->room);
    process_again_drop(p);
    return NULL;
}
