/* pipe.c - the life of processes that stay, and what they say. pipe_int.h has the model. */
#include "sidecar/pipe_int.h"

#include "base/dice.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHUNK        (256 << 10) /* read at once */
#define PIPE_SIZE    (1 << 20)
#define ARENA_MAX    (64 * CHUNK) /* enough for any chunk: a value has two bytes, a node 56 */
#define BACK_OFF_MS  100
#define BACK_MOST_MS 10000
#define LEAVE_MS     5000 /* how long a process may take to end when its stdin has */
#define LOOK_MS      1000

struct pipe {
    struct program program;
    struct process *processes;
    size_t n;
};

/* ---- starting and ending the process ---- */

static enum err pipes_make(int in[2], int out[2], struct fault *why)
{
    if (pipe2(in, O_CLOEXEC) != 0)
        return fault_os(why, "a pipe");
    if (pipe2(out, O_CLOEXEC) != 0) {
        close_at(&in[0]);
        close_at(&in[1]);
        return fault_os(why, "a pipe");
    }
    (void)fcntl(in[1], F_SETPIPE_SZ, PIPE_SIZE); /* where we may have so much */
    (void)fcntl(out[0], F_SETPIPE_SZ, PIPE_SIZE);
    (void)fcntl(in[1], F_SETFL,
                O_NONBLOCK); /* of our end: who writes may wait no longer than told */
    return OK;
}

static enum err process_start(struct process *p, struct fault *why)
{
    int in[2], out[2];
    enum err err = pipes_make(in, out, why);
    if (err)
        return err;
    err = child_start(&p->child, &p->pipe->program, environ, in[0], out[1], why);
    close_at(&in[0]);
    close_at(&out[1]);
    if (err) {
        close_at(&in[1]);
        close_at(&out[0]);
        return err;
    }
    p->out = out[0];
    p->n_chunk = 0;
    p->answered = false;
    p->leaving_ns = 0;
    room_enter(&p->room);
    p->in = in[1];
    p->alone = false;
    p->alive = true;
    room_tell(&p->room);
    room_leave(&p->room);
    return OK;
}

/* ---- reading ---- */

static void strange(struct process *p, struct bytes line, const char *why)
{
    char shown[81];
    size_t n = line.len < sizeof shown - 1 ? line.len : sizeof shown - 1;
    for (size_t i = 0; i < n; i++)
        shown[i] = line.at[i] >= ' ' && line.at[i] < 127 ? (char)line.at[i] : '?';
    shown[n] = 0;
    if (atomic_fetch_add_explicit(&p->sidecar->strange, 1, memory_order_relaxed) < 20)
        sidecar_log(p->sidecar, SIDECAR_WARN, "a line of the worker is no answer, %s: %s", why,
                    shown);
}

/* Room: the process's. The job that an answer is for; NULL: nobody waits for it. */
static struct job *flying_take(struct process *p, struct bytes id)
{
    struct job *job = map_remove(&p->by_id, id);
    if (job) {
        list_remove(&job->link);
        p->n_flying--;
        p->alone = false;
    }
    return job;
}

static void ended_tell(struct process *p, struct ended *e)
{
    if (e->n > 0)
        desk_end(p->sidecar, e->jobs, e->fates, e->n);
    e->n = 0;
}

static void line_take(struct process *p, struct bytes line, struct ended *e)
{
    struct fault why = {0};
    if (line.len > 0 && line.at[line.len - 1] == '\r')
        line.len--;
    if (line.len == 0)
        return;
    if (line_read(line, &p->arena, &e->answers[e->n_answers], &why))
        strange(p, line, why.text);
    else
        e->lines[e->n_answers++] = line;
}

/* Whose answers they are. Those that nobody waits for stay among the answers, at their front. */
static void answers_match(struct process *p, struct ended *e)
{
    size_t left = 0;
    room_enter(&p->room);
    for (size_t i = 0; i < e->n_answers; i++) {
        const struct answer *a = &e->answers[i];
        struct job *job = flying_take(p, a->id);
        if (!job) {
            e->lines[left++] = e->lines[i];
            continue;
        }
        p->answered = true;
        e->jobs[e->n] = job;
        fate_set(&e->fates[e->n++], a->kind, a->after_ms, "%.*s",
                 (int)(a->why.len < WHY_MAX ? a->why.len : WHY_MAX),
                 a->why.len ? (const char *)a->why.at : "");
    }
    room_tell(&p->room);
    room_leave(&p->room);
    for (size_t i = 0; i < left; i++)
        strange(p, e->lines[i], "nobody waits for this id");
    e->n_answers = 0;
}

/* All whole lines of the chunk. False: one is too long to be an answer. */
static bool lines_take(struct process *p, struct ended *e)
{
    size_t at = 0;
    for (const uint8_t *end = p->chunk; end;) {
        while (e->n_answers < TAKE_MAX &&
               (end = memchr(p->chunk + at, '\n', p->n_chunk - at)) != NULL) {
            struct bytes line = {p->chunk + at, (size_t)(end - (p->chunk + at))};
            line_take(p, line, e);
            at += line.len + 1;
        }
        if (e->n_answers > 0)
            answers_match(p, e);
        ended_tell(p, e);
        arena_reset(&p->arena);
    }
    memmove(p->chunk, p->chunk + at, p->n_chunk - at);
    p->n_chunk -= at;
    return p->n_chunk < ANSWER_MAX;
}

/* In how many ms the oldest is late; at most its whole time, since nothing younger is late before.
 * A process that has nothing, and will get nothing, is late when it does not leave. */
static int due_ms(struct process *p)
{
    const struct sidecar_options *with = &p->sidecar->with;
    uint64_t patience = (uint64_t)with->timeout_ms * NS_PER_MS, now = now_ns();
    uint64_t leave = (uint64_t)(with->stop_ms < LEAVE_MS ? with->stop_ms : LEAVE_MS) * NS_PER_MS;
    room_enter(&p->room);
    const struct link *k = list_first(&p->flying);
    bool leaving = p->fed_up && !k;
    if (leaving && p->leaving_ns == 0)
        p->leaving_ns = now;
    uint64_t until = k         ? list_entry(k, struct job, link)->begun_ns + patience
                     : leaving ? p->leaving_ns + leave
                               : now + patience;
    room_leave(&p->room);
    return until > now ? (int)((until - now + NS_PER_MS - 1) / NS_PER_MS) : 0;
}

enum ending { END_DEAD, END_LATE, END_FLOOD };

/* Whether there is something to read; false with `*ended`: there is not, and the process is gone. A
 * program that it has started may keep its stdout open, so that alone does not tell. */
static bool wait_output(struct process *p, bool *ended)
{
    struct pollfd at[] = {{.fd = p->out, .events = POLLIN}, {.fd = p->child.fd, .events = POLLIN}};
    int due = due_ms(p);
    int ready = poll(at, 2, due < LOOK_MS ? due : LOOK_MS); /* that it is to leave wakes nobody */
    *ended = ready > 0 && !at[0].revents;
    return ready > 0 && at[0].revents;
}

/* Until the process has ended, or must. What it wrote before somebody's time was over counts: so
 * much as a pipe holds is read behind that, but one that writes without end is late like others. */
static enum ending read_all(struct process *p, struct ended *e)
{
    size_t behind = 0;
    for (;;) {
        bool ended;
        if (!process_again_feed(p))
            return END_LATE;
        bool some = wait_output(p, &ended);
        bool late = due_ms(p) == 0;
        if (ended)
            return END_DEAD;
        if (late && (!some || behind > PIPE_SIZE))
            return END_LATE;
        if (!some)
            continue;
        ssize_t n = read(p->out, p->chunk + p->n_chunk, CHUNK - p->n_chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return END_DEAD;
        behind = late ? behind + (size_t)n : 0;
        p->n_chunk += (size_t)n;
        if (!lines_take(p, e))
            return END_FLOOD;
    }
}

/* ---- when it has ended ---- */

/* What it still said in its last moments, as much as a pipe holds. */
static void read_rest(struct process *p, struct ended *e)
{
    struct pollfd at = {.fd = p->out, .events = POLLIN};
    ssize_t n;
    for (size_t read_size = 0; read_size <= PIPE_SIZE; read_size += (size_t)n) {
        if (poll(&at, 1, 0) <= 0)
            return;
        n = read(p->out, p->chunk + p->n_chunk, CHUNK - p->n_chunk);
        if (n <= 0)
            return;
        p->n_chunk += (size_t)n;
        if (!lines_take(p, e))
            return;
    }
}

/* It has ended, or is to end. What it answers until then counts: it was done. The feeder leaves its
 * write with an error. */
static void process_end(struct process *p, enum ending how, struct ended *e, int *status)
{
    if (child_wait(&p->child, how == END_DEAD ? LEAVE_MS : 0, status))
        child_end(&p->child, status);
    if (how != END_FLOOD)
        read_rest(p, e);
    close_at(&p->out);
    room_enter(&p->room);
    p->alive = false;
    process_in_close(p);
    room_leave(&p->room);
}

/* The one that flies longest, or that flies alone, if it is to blame: not when we are stopping. */
static struct job *blamed_take(struct process *p, enum ending how)
{
    struct job *job = NULL;
    room_enter(&p->room);
    bool stopping = p->fed_up || atomic_load(&p->sidecar->ending);
    bool one = how == END_LATE || p->n_flying == 1;
    if (!list_empty(&p->flying) && one && !stopping) {
        job = list_entry(list_first(&p->flying), struct job, link);
        (void)flying_take(p, bytes_str(job->d->id));
    }
    room_leave(&p->room);
    return job;
}

/* The process is gone. Who is to blame fails, the others come again; all of them later, when we are
 * stopping. */
static void blame(struct process *p, struct job *failed, const char *words)
{
    room_enter(&p->room);
    while (!list_empty(&p->flying)) {
        struct job *job = list_entry(list_first(&p->flying), struct job, link);
        (void)flying_take(p, bytes_str(job->d->id));
        list_add_tail(&p->again, &job->link);
    }
    room_tell(&p->room);
    room_leave(&p->room);
    if (failed) {
        struct fate fate;
        fate_set(&fate, SIDECAR_FAILED, 0, "%s", words);
        desk_end(p->sidecar, &failed, &fate, 1);
    }
}

/* Nothing more is to come. When we are stopping, a process that is gone is not started again; the
 * feeder, which waits for it, hears of that. */
static bool is_over(struct process *p)
{
    bool stopping = sidecar_wait(p->sidecar, 0);
    room_enter(&p->room);
    if (stopping && !p->alive && !p->fed_up) {
        p->fed_up = true;
        room_tell(&p->room);
    }
    bool over = p->fed_up;
    room_leave(&p->room);
    return over;
}

/* Waits before the next start. True: there is none. */
static bool back_off(struct process *p)
{
    unsigned doublings = p->fails < 7 ? p->fails : 7;
    uint64_t ms = (uint64_t)BACK_OFF_MS << doublings;
    uint64_t until = now_ns() + (ms < BACK_MOST_MS ? ms : BACK_MOST_MS) * NS_PER_MS;
    p->fails++;
    bool over = is_over(p);
    for (uint64_t now; !over && (now = now_ns()) < until; over = is_over(p)) {
        uint64_t left = until - now, look = LOOK_MS * NS_PER_MS;
        room_enter(&p->room);
        if (!p->fed_up)
            room_wait_ns(&p->room, left < look ? left : look);
        room_leave(&p->room);
    }
    return over;
}

static void life_end(struct process *p, enum ending how, struct ended *e)
{
    char text[64], words[WHY_MAX];
    int status = 0;
    bool leaving = is_over(p);
    /* Who is late is known before the others may still be answered, who died with it after that. */
    struct job *failed = how == END_LATE ? blamed_take(p, how) : NULL;
    process_end(p, how, e, &status);
    if (how != END_LATE)
        failed = blamed_take(p, how);
    status_text(status, text, sizeof text);
    if (how == END_LATE)
        (void)snprintf(words, sizeof words, "no answer within %d ms", p->sidecar->with.timeout_ms);
    else
        (void)snprintf(words, sizeof words, "the worker %s while it had this message: %s",
                       how == END_FLOOD ? "wrote a line without an end" : "died", text);
    blame(p, failed, words);
    if (leaving)
        return;
    atomic_fetch_add_explicit(&p->sidecar->restarts, 1, memory_order_relaxed);
    sidecar_log(p->sidecar, SIDECAR_WARN, "the worker has ended (%s): %s; it is started again",
                how == END_LATE    ? words
                : how == END_FLOOD ? "a line of more than 64 KiB is no answer"
                                   : "by itself",
                text);
}

static void *reader_run(void *arg)
{
    struct process *p = arg;
    struct ended *e = &p->ended;
    struct fault why = {0};
    enum err err = process_start(p, &why);
    bool running = err == OK;
    room_enter(&p->room); /* who opens wants to know */
    p->start_err = err;
    p->start_why = why;
    p->started = true;
    p->fed_up = !running;
    room_tell(&p->room);
    room_leave(&p->room);
    for (;;) {
        if (running) {
            enum ending how = read_all(p, e);
            if (p->answered)
                p->fails = 0;
            life_end(p, how, e);
        }
        if (is_over(p) || back_off(p))
            break;
        running = process_start(p, &why) == OK;
        if (!running)
            sidecar_log(p->sidecar, SIDECAR_ERROR, "the worker cannot be started: %s", why.text);
    }
    process_again_drop(p);
    return NULL;
}

/* ---- life ---- */

static enum err pipe_open(struct sidecar *s, struct fault *why)
{
    struct pipe *pipe = calloc(1, sizeof *pipe);
    if (!pipe)
        return ERR_NO_MEMORY;
    s->state = pipe;
    enum err err = program_open(&pipe->program, s->with.command, why);
    if (err)
        return err;
    pipe->processes = calloc((size_t)s->with.parallel, sizeof *pipe->processes);
    for (int i = 0; pipe->processes && i < s->with.parallel; i++) {
        struct process *p = &pipe->processes[i];
        *p = (struct process){.sidecar = s, .pipe = pipe, .in = -1, .out = -1};
        room_init(&p->room, "sidecar process", ROOM_LEAF);
        child_init(&p->child);
        list_init(&p->flying);
        list_init(&p->again);
        map_init(&p->by_id, dice_seed_from_os());
        arena_init(&p->arena, ARENA_MAX);
        p->line = buf_upto(LINES_MAX);
        p->chunk = malloc(CHUNK);
        pipe->n++;
        err = p->chunk ? err : ERR_NO_MEMORY;
    }
    return pipe->processes ? err : ERR_NO_MEMORY;
}

/* The reader starts it, since it dies with the thread that does. */
static enum err wait_started(struct process *p, struct fault *why)
{
    room_enter(&p->room);
    while (!p->started)
        room_wait(&p->room, -1);
    enum err err = p->start_err ? ERR_INVALID : OK; /* whatever it was, the command is wrong */
    if (err && why)
        *why = p->start_why;
    room_leave(&p->room);
    return err;
}

static enum err pipe_start(struct sidecar *s, struct fault *why)
{
    struct pipe *pipe = s->state;
    enum err err = OK;
    for (size_t i = 0; !err && i < pipe->n; i++) {
        struct process *p = &pipe->processes[i];
        err = thread_begin(&p->reader, reader_run, p);
        p->reading_thread = !err;
        if (!err)
            err = wait_started(p, why);
        if (!err)
            err = thread_begin(&p->feeder, feeder_run, p);
        p->feeding_thread = !err;
    }
    return err;
}

static void process_close(struct process *p)
{
    if (p->feeding_thread)
        (void)pthread_join(p->feeder, NULL);
    else if (p->reading_thread) {
        room_enter(&p->room);
        p->fed_up = true;
        process_in_close(p);
        room_tell(&p->room);
        room_leave(&p->room);
    }
    if (p->reading_thread)
        (void)pthread_join(p->reader, NULL);
    map_clear(&p->by_id);
    arena_clear(&p->arena);
    buf_clear(&p->line);
    child_clear(&p->child);
    room_clear(&p->room);
    free(p->chunk);
}

static void pipe_close(struct sidecar *s)
{
    struct pipe *pipe = s->state;
    for (size_t i = 0; i < pipe->n; i++)
        process_close(&pipe->processes[i]);
    program_clear(&pipe->program);
    free(pipe->processes);
    free(pipe);
}

static void pipe_kill(struct sidecar *s, int signal)
{
    struct pipe *pipe = s->state;
    for (size_t i = 0; i < pipe->n; i++) {
        struct process *p = &pipe->processes[i];
        room_enter(&p->room);
        p->fed_up = true;
        room_tell(&p->room);
        room_leave(&p->room);
        child_kill(&p->child, signal);
    }
}

const struct worker worker_pipe = {
    .open = pipe_open,
    .close = pipe_close,
    .kill = pipe_kill,
    .start = pipe_start,
};
