/* raw.c - the thread behind raw loads: all connections of a role in one epoll. */
#include "load/raw_int.h"

#include "base/arena.h"
#include "remoting/bodies.h"
#include "remoting/codes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#define EVENTS      256
#define SCAN_NS     (2 * NS_OF_MS) /* all connections are looked after at least this often */
#define OUT_LEAST   (256u << 10)
#define ROUTE_MAX   (16u << 20)
#define TIMER_SLACK 1

/* ---- one connection ---- */

static void conn_watch(struct conn *conn)
{
    bool wanted = wire_waits(&conn->wire);
    if (wanted == conn->out_wanted || conn->wire.dead)
        return;
    struct epoll_event want = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0u), .data.ptr = conn};
    if (epoll_ctl(conn->raw->epoll_fd, EPOLL_CTL_MOD, conn->wire.fd, &want) == 0)
        conn->out_wanted = wanted;
}

/* Takes what has come, asks for what is due, writes it. `*due_ns`: when to come again. */
static void conn_turn(struct conn *conn, bool readable, uint64_t *due_ns)
{
    struct raw *raw = conn->raw;
    struct wire_answer answer;
    *due_ns = UINT64_MAX;
    if (conn->wire.dead)
        return;
    room_enter(&conn->lane.tally.room);
    if (readable && wire_receive(&conn->wire)) {
        uint64_t now = run_ns(raw->run);
        while (wire_next(&conn->wire, &answer))
            raw->role->answer(conn, &answer, now);
    }
    raw->role->fill(conn, run_ns(raw->run), due_ns);
    wire_flush(&conn->wire);
    conn_watch(conn);
    if (conn->wire.dead) {
        raw->role->lost(conn, run_ns(raw->run));
        (void)epoll_ctl(raw->epoll_fd, EPOLL_CTL_DEL, conn->wire.fd, NULL);
    }
    room_leave(&conn->lane.tally.room);
}

/* ---- the thread ---- */

static bool all_idle(struct raw *raw)
{
    bool idle = true;
    for (unsigned i = 0; idle && i < raw->n; i++) {
        struct conn *conn = &raw->conns[i];
        room_enter(&conn->lane.tally.room);
        idle = raw->role->idle(conn);
        room_leave(&conn->lane.tally.room);
    }
    return idle;
}

static void *raw_main(void *user)
{
    struct raw *raw = user;
    struct epoll_event events[EVENTS];
    uint64_t scan_ns = 0;
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK);
    while (!atomic_load_explicit(&raw->closing, memory_order_relaxed)) {
        uint64_t now = run_ns(raw->run), due_ns;
        if (now >= scan_ns) {
            scan_ns = now + SCAN_NS;
            for (unsigned i = 0; i < raw->n; i++) {
                conn_turn(&raw->conns[i], false, &due_ns);
                scan_ns = due_ns < scan_ns ? due_ns : scan_ns;
            }
            if (all_idle(raw))
                break;
            now = run_ns(raw->run);
        }
        uint64_t wait = scan_ns > now ? scan_ns - now : 0;
        const struct timespec most = {(time_t)(wait / 1000000000u), (long)(wait % 1000000000u)};
        int n = epoll_pwait2(raw->epoll_fd, events, EVENTS, &most, NULL);
        for (int i = 0; i < n; i++) {
            conn_turn(events[i].data.ptr, events[i].events & ~(unsigned)EPOLLOUT, &due_ns);
            scan_ns = due_ns < scan_ns ? due_ns : scan_ns;
        }
    }
    atomic_store(&raw->ended, true);
    return NULL;
}

/* ---- the part ---- */

static void raw_begin(struct part *part)
{
    struct raw *raw = (struct raw *)part;
    raw->started = pthread_create(&raw->thread, NULL, raw_main, raw) == 0;
    if (raw->started)
        return;
    struct lane *lane = &raw->conns[0].lane;
    room_enter(&lane->tally.room);
    lane_failed(lane, UINT64_MAX, raw->run->begin_ns, "a thread cannot be started");
    room_leave(&lane->tally.room);
    atomic_store(&raw->ended, true);
}

static bool raw_idle(struct part *part)
{
    return atomic_load(&((struct raw *)part)->ended);
}

static struct lane *raw_lane(struct part *part, size_t i)
{
    struct raw *raw = (struct raw *)part;
    return i < raw->n ? &raw->conns[i].lane : NULL;
}

static void raw_close(struct part *part)
{
    struct raw *raw = (struct raw *)part;
    atomic_store(&raw->closing, true);
    if (raw->started)
        (void)pthread_join(raw->thread, NULL);
    for (unsigned i = 0; i < raw->n; i++) {
        raw->role->close(&raw->conns[i]);
        wire_close(&raw->conns[i].wire);
        lane_clear(&raw->conns[i].lane);
    }
    for (size_t i = 0; i < raw->n_brokers; i++) {
        free(raw->brokers[i].name);
        free(raw->brokers[i].address);
        free(raw->brokers[i].places);
    }
    for (size_t i = 0; raw->templates && i < raw->run->n_places; i++)
        template_clear(&raw->templates[i]);
    payload_clear(&raw->payload);
    if (raw->epoll_fd >= 0)
        (void)close(raw->epoll_fd);
    free(raw->templates);
    free(raw->brokers);
    free(raw->conns);
    free(raw);
}

/* ---- where brokers are ---- */

static char *text_copy(struct bytes text)
{
    char *copy = malloc(text.len + 1);
    if (copy) {
        memcpy(copy, text.at, text.len);
        copy[text.len] = 0;
    }
    return copy;
}

static struct raw_broker *broker_find(struct raw *raw, struct bytes name)
{
    for (size_t i = 0; i < raw->n_brokers; i++)
        if (bytes_equal(bytes_str(raw->brokers[i].name), name))
            return &raw->brokers[i];
    return NULL;
}

/* Adds the masters of a route that are not known yet. */
static enum err brokers_take(struct raw *raw, const struct route *route)
{
    for (size_t i = 0; i < route->n_brokers; i++) {
        const struct route_broker *b = &route->brokers[i];
        if (b->n_addrs == 0 || b->addrs[0].id != 0 || broker_find(raw, b->name))
            continue;
        struct raw_broker *bigger =
            realloc(raw->brokers, (raw->n_brokers + 1) * sizeof *raw->brokers);
        if (!bigger)
            return ERR_NO_MEMORY;
        raw->brokers = bigger;
        struct raw_broker *broker = &bigger[raw->n_brokers++];
        *broker = (struct raw_broker){text_copy(b->name), text_copy(b->addrs[0].addr),
                                      calloc(raw->run->n_places, sizeof(size_t)), 0};
        if (!broker->name || !broker->address || !broker->places)
            return ERR_NO_MEMORY;
    }
    return OK;
}

static enum err brokers_ask(struct raw *raw, const char *topic, struct fault *why)
{
    const struct omq_property field = {"topic", topic};
    struct omq_answer *answer;
    struct omq_error error;
    struct arena arena;
    struct route route;
    if (omq_call(raw->run->client, NULL, REQ_GET_ROUTEINFO_BY_TOPIC, &field, 1, NULL, 0, 0, &answer,
                 &error))
        return fault_omq(why, &error);
    arena_init(&arena, ROUTE_MAX);
    enum err err = route_read(bytes_of(answer->body, answer->body_size), &arena, &route);
    if (err)
        (void)fault_set(why, err, "the route of topic %s cannot be read", topic);
    if (!err)
        err = brokers_take(raw, &route);
    arena_clear(&arena);
    omq_answer_free(answer);
    return err;
}

/* Each queue to its broker; who has none is left out. */
static enum err brokers_open(struct raw *raw, struct fault *why)
{
    struct run *run = raw->run;
    enum err err = OK;
    for (size_t i = 0; !err && i < run->n_places; i++) {
        const struct omq_queue *queue = &run->places[i].queue;
        struct raw_broker *broker = broker_find(raw, bytes_str(queue->broker));
        if (!broker) {
            err = brokers_ask(raw, queue->topic, why);
            broker = err ? NULL : broker_find(raw, bytes_str(queue->broker));
        }
        if (broker)
            broker->places[broker->n_places++] = i;
        else if (!err)
            err = fault_set(why, ERR_NOT_FOUND, "broker %s has no master", queue->broker);
    }
    size_t kept = 0;
    for (size_t i = 0; i < raw->n_brokers; i++) {
        struct raw_broker b = raw->brokers[i];
        if (b.n_places > 0 || err) {
            raw->brokers[kept++] = b;
            continue;
        }
        free(b.name);
        free(b.address);
        free(b.places);
    }
    raw->n_brokers = kept;
    return err;
}

/* ---- opening ---- */

static enum err requests_make(struct raw *raw)
{
    struct run *run = raw->run;
    raw->templates = calloc(run->n_places + 1, sizeof *raw->templates);
    enum err err = raw->templates ? payload_make(&raw->payload, run) : ERR_NO_MEMORY;
    for (size_t i = 0; !err && i < run->n_places; i++) {
        err = template_make(&raw->templates[i], run, &run->places[i], &raw->payload);
        size_t size = raw->templates[i].len + raw->payload.size;
        raw->request_max = size > raw->request_max ? size : raw->request_max;
    }
    return err;
}

static enum err conn_open(struct raw *raw, unsigned index, struct fault *why)
{
    struct conn *conn = &raw->conns[index];
    const struct load_options *o = &raw->run->options;
    size_t out = raw->request_max * 4 > OUT_LEAST ? raw->request_max * 4 : OUT_LEAST;
    int timeout_ms = o->client->timeout_ms > 0 ? o->client->timeout_ms : 3000;
    *conn = (struct conn){.raw = raw, .index = index, .wire.fd = -1};
    conn->broker = index % (unsigned)raw->n_brokers;
    enum err err = lane_init(&conn->lane, raw->run, index, o->connections);
    if (!err)
        err = wire_open(&conn->wire, raw->brokers[conn->broker].address, raw->role->in_size, out,
                        timeout_ms, why);
    if (!err)
        err = raw->role->open(conn);
    struct epoll_event want = {.events = EPOLLIN, .data.ptr = conn};
    if (!err && epoll_ctl(raw->epoll_fd, EPOLL_CTL_ADD, conn->wire.fd, &want) < 0)
        err = fault_os(why, "watching a connection");
    return err;
}

enum err raw_open(struct run *run, const struct role *role, struct part **out, struct fault *why)
{
    struct raw *raw = calloc(1, sizeof *raw);
    if (!raw)
        return ERR_NO_MEMORY;
    raw->part = (struct part){raw_begin, raw_idle, raw_close, raw_lane};
    raw->run = run;
    raw->role = role;
    raw->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    raw->conns = calloc(run->options.connections, sizeof *raw->conns);
    enum err err = OK;
    if (raw->epoll_fd < 0)
        err = fault_os(why, "making an epoll");
    if (!err && !raw->conns)
        err = ERR_NO_MEMORY;
    if (!err)
        err = brokers_open(raw, why);
    if (!err && role == &role_send)
        err = requests_make(raw);
    while (!err && raw->n < run->options.connections)
        err = conn_open(raw, raw->n++, why);
    if (err)
        raw_close(&raw->part);
    else
        *out = &raw->part;
    return err;
}
