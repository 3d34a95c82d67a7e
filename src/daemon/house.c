#include "daemon/house.h"
#include "base/dice.h"
#include "base/room.h"
#include "daemon/addresses.h"
#include "daemon/ready.h"
#include "daemon/register.h"
#include "door/remoting/door.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOPS_MAX         64
#define STOP_DEADLINE_MS  3000 /* for clients that do not take their last answers */
#define READY_DEADLINE_MS 1000 /* for our own name server to know our own broker */
#define HOLD_TURN_MS      100
#define EXPIRY_TURN_MS    5000
#define KEEP_TURN_MS      100

struct house;

/* One io thread. */
struct floor {
    struct house *house;
    struct loop *loop;
    pthread_t thread;
    struct post drain, drained;
};

struct house {
    struct house_options options;
    struct log log;
    struct clock *clock;
    struct io_limits limits;

    struct loop *main_loop;
    struct floor floors[LOOPS_MAX];
    struct loop *loops[LOOPS_MAX];
    size_t n_loops;

    struct vfs *vfs, *names_vfs;
    struct vfs_file *names_lock;
    struct names *names;
    struct store *store;
    struct broker *broker;
    struct door *door;
    struct listener *names_listener, *broker_listener;
    struct registrar *registrar;
    struct broker_out out;
    char broker_name[256];
    struct addr advertised;

    struct timer *hold_timer, *expiry_timer, *ready_timer, *stop_timer;
    bool ready, stopping;
    size_t draining;

    struct room stairs; /* where flush and keeper threads hear that it is time to stop */
    bool closing;
    bool save_now; /* topics have changed: the keeper does not wait for its hour */
    pthread_t flush_thread, keeper_thread;
};

/* ---- opening: from the ground up ---- */

static enum err open_loops(struct house *h, struct fault *why)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = (size_t)h->options.settings->io_threads;
    if (n == 0)
        n = cores < 1 ? 1 : cores > 8 ? 8 : (size_t)cores;
    enum err err = loop_open(&h->main_loop, h->clock, &h->log, why);
    for (size_t i = 0; !err && i < n; i++) {
        struct floor *f = &h->floors[i];
        f->house = h;
        err = loop_open(&f->loop, h->clock, &h->log, why);
        if (!err)
            h->loops[h->n_loops++] = f->loop;
    }
    return err;
}

/* Tables that came from their .bak copy are no failure, but the operator should know. */
static void tell_repair(struct house *h, const char *note)
{
    if (note[0])
        log_event(&h->log, LOG_WARN, "tables repaired note=%s", LOG_QUOTE(bytes_str(note)));
}

static enum err open_names(struct house *h, struct fault *why)
{
    char path[CONF_TEXT_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/namesrv", h->options.settings->data);
    enum err err = vfs_posix_open(path, &h->names_vfs, why);
    if (!err)
        err = h->names_vfs->calls->open(h->names_vfs, "lock", VFS_CREATE, &h->names_lock, why);
    if (!err)
        err = h->names_lock ? h->names_vfs->calls->lock(h->names_lock, why) : OK;
    if (err)
        return fault_add(why, err, "data folder %s of the name server", path);
    struct names_options options = {
        .clock = h->clock,
        .vfs = h->names_vfs,
        .seed = dice_seed_from_os(),
        .order_enable = h->options.settings->order_enable,
        .acting_master = h->options.settings->acting_master,
    };
    err = names_open(&options, &h->names, why);
    if (!err)
        tell_repair(h, names_note(h->names));
    return err;
}

static enum err open_store(struct house *h, struct fault *why)
{
    const struct settings *s = h->options.settings;
    struct store_options options = {
        .vfs = h->vfs,
        .clock = h->clock,
        .log_file_size = (uint64_t)s->log_file_size,
        .queue_file_size = (uint64_t)s->queue_file_size,
        .sync_flush = s->flush_type == FLUSH_SYNC,
        .flush_interval_ms = (uint64_t)s->flush_interval_ms,
        .flush_least_pages = (uint32_t)s->flush_least_pages,
        .flush_thorough_interval_ms = (uint64_t)s->flush_thorough_interval_ms,
        .queue_flush_interval_ms = (uint64_t)s->queue_flush_interval_ms,
        .max_record_size = (uint32_t)s->max_message_size + 65536,
    };
    struct store_report report;
    enum err err = store_open(&options, &h->store, &report, why);
    if (err)
        return fault_add(why, err, "data folder %s", s->data);
    log_event(
        &h->log, report.note[0] ? LOG_WARN : LOG_INFO,
        "store open folder=%s clean=%s first=%llu end=%llu examined=%llu cut=%llu queues=%zu%s%s",
        s->data, report.clean ? "yes" : "no", (unsigned long long)report.log_first,
        (unsigned long long)report.log_end, (unsigned long long)report.examined_bytes,
        (unsigned long long)report.cut_bytes, report.queues, report.note[0] ? " note=" : "",
        report.note[0] ? LOG_QUOTE(bytes_str(report.note)) : "");
    return OK;
}

static void topics_changed(void *user)
{
    struct house *h = user;
    room_enter(&h->stairs);
    h->save_now = true;
    room_tell(&h->stairs);
    room_leave(&h->stairs);
    if (h->registrar)
        registrar_topics_changed(h->registrar);
}

static enum err open_broker(struct house *h, struct fault *why)
{
    const struct settings *s = h->options.settings;
    if (s->broker_role == ROLE_SLAVE)
        return fault_set(why, ERR_UNSUPPORTED,
                         "brokerRole=SLAVE: replication is not offered yet; use ASYNC_MASTER");
    enum err err = open_store(h, why);
    if (err)
        return err;
    h->out = (struct broker_out){door_group_changed, topics_changed, h};
    struct broker_options options = {
        .store = h->store,
        .vfs = h->vfs,
        .clock = h->clock,
        .seed = dice_seed_from_os(),
        .out = &h->out,
        .cluster = s->cluster,
        .name = h->broker_name,
        .region = s->region,
        .host = h->advertised,
        .perm = (int32_t)s->broker_perm,
        .default_queues = (int32_t)s->default_queues,
        .auto_topics = s->auto_topics,
        .auto_groups = s->auto_groups,
        .trace_on = s->trace_on,
        .long_polling = s->long_polling,
        .max_message_size = (uint32_t)s->max_message_size,
        .short_polling_ms = (uint64_t)s->short_polling_ms,
        .client_expire_ms = 120000,
        .max_holds = (uint32_t)s->max_holds,
        .max_topics = (uint32_t)s->max_topics,
        .max_groups = (uint32_t)s->max_groups,
        .max_clients = (uint32_t)s->max_clients,
    };
    err = broker_open(&options, &h->broker, why);
    if (!err)
        tell_repair(h, broker_note(h->broker));
    return err;
}

static enum err bind_port(struct house *h, int64_t port, const char *key, struct listener **out,
                          struct fault *why)
{
    struct addr addr;
    enum err err = address_of_host(h->options.settings->bind_address, (uint16_t)port, &addr, why);
    if (err)
        return fault_add(why, err, "bindAddress=%s", h->options.settings->bind_address);
    err = listener_open(h->loops, h->n_loops, &addr, &h->limits, out, why);
    if (err)
        return fault_add(why, err,
                         "%s=%lld (another daemon may be running; %s=0 takes any free port)", key,
                         (long long)port, key);
    return OK;
}

/* Ports are taken first and listened on last: a client gets a refusal, not silence, while a long
 * recovery runs. */
static enum err bind_ports(struct house *h, struct fault *why)
{
    const struct settings *s = h->options.settings;
    enum err err = OK;
    if (h->options.names)
        err = bind_port(h, s->names_port, "namesrvListenPort", &h->names_listener, why);
    if (!err && h->options.broker)
        err = bind_port(h, s->listen_port, "listenPort", &h->broker_listener, why);
    if (!err && h->options.broker) {
        err = address_to_advertise(s->broker_ip1, listener_addr(h->broker_listener), &h->advertised,
                                   why);
        if (err)
            return fault_add(why, err, "brokerIP1=%s", s->broker_ip1);
    }
    return err;
}

static enum err open_door(struct house *h, struct fault *why)
{
    struct door_options options = {
        .names = h->names,
        .broker = h->broker,
        .store = h->store,
        .loops = h->loops,
        .n_loops = h->n_loops,
        .clock = h->clock,
        .log = &h->log,
        .host = h->advertised,
        .region = h->options.settings->region,
        .trace_on = h->options.settings->trace_on,
    };
    enum err err = door_open(&options, &h->door);
    return err ? fault_set(why, err, "opening the door: %s", err_text(err)) : OK;
}

static void house_init(struct house *h, const struct house_options *options)
{
    const struct settings *s = options->settings;
    h->options = *options;
    h->clock = clock_system();
    h->log =
        (struct log){.fd = STDERR_FILENO, .least = (enum log_level)s->log_level, .clock = h->clock};
    h->limits.idle_ms = (uint64_t)s->idle_seconds * 1000;
    h->limits.max_conns = (unsigned)s->max_connections;
    h->limits.out_high = (size_t)s->out_high_bytes;
    h->limits.out_max = (size_t)s->out_max_bytes;
    room_init(&h->stairs, "stairs", ROOM_LEAF);
    if (s->broker_name[0])
        (void)snprintf(h->broker_name, sizeof h->broker_name, "%.200s", s->broker_name);
    else if (gethostname(h->broker_name, sizeof h->broker_name - 1) != 0 || !h->broker_name[0])
        (void)snprintf(h->broker_name, sizeof h->broker_name, "broker-a");
}

enum err house_open(const struct house_options *options, struct house **out, struct fault *why)
{
    struct house *h = calloc(1, sizeof *h);
    if (!h)
        return fault_set(why, ERR_NO_MEMORY, "no memory for the house");
    house_init(h, options);
    enum err err = open_loops(h, why);
    if (!err)
        err = bind_ports(h, why);
    if (!err)
        err = vfs_posix_open(options->settings->data, &h->vfs, why);
    if (!err && options->names)
        err = open_names(h, why);
    if (!err && options->broker)
        err = open_broker(h, why);
    if (!err)
        err = open_door(h, why);
    if (err) {
        enum err ignored = house_close(h, NULL); /* the first trouble is the one to tell */
        (void)ignored;
        return err;
    }
    *out = h;
    return OK;
}

/* ---- running ---- */

static void *io_thread(void *arg)
{
    struct floor *f = arg;
    loop_run(f->loop);
    return NULL;
}

static bool closing(struct house *h)
{
    room_enter(&h->stairs);
    bool closing = h->closing;
    room_leave(&h->stairs);
    return closing;
}

static void *flush_thread(void *arg)
{
    struct house *h = arg;
    while (!closing(h)) {
        int pause_ms = store_flush_turn(h->store);
        broker_dispatch_turn(h->broker); /* what the flush has confirmed */
        store_flush_wait(h->store, pause_ms);
    }
    return NULL;
}

static void save_tables(struct house *h, struct log_limit *trouble)
{
    struct fault why = {0};
    if (broker_save_turn(h->broker, &why))
        log_limited(&h->log, trouble, LOG_ERROR,
                    "tables not saved reason=%s action=\"trying again\"",
                    LOG_QUOTE(bytes_str(why.text)));
}

/* Sleeps a little, or until there is something to save or the house closes. True: save at once. */
static bool keeper_pause(struct house *h)
{
    room_enter(&h->stairs);
    if (!h->closing && !h->save_now)
        room_wait(&h->stairs, KEEP_TURN_MS);
    bool save_now = h->save_now;
    h->save_now = false;
    room_leave(&h->stairs);
    return save_now;
}

static void *keeper_thread(void *arg)
{
    struct house *h = arg;
    const uint64_t every_ns = (uint64_t)h->options.settings->save_offsets_ms * 1000000u;
    uint64_t next_save = clock_ns(h->clock) + every_ns;
    struct log_limit trouble = {0};
    while (!closing(h)) {
        store_keep_turn(h->store);
        if (keeper_pause(h) || clock_ns(h->clock) >= next_save) {
            save_tables(h, &trouble);
            next_save = clock_ns(h->clock) + every_ns;
        }
    }
    return NULL;
}

static void say_ready(struct house *h)
{
    if (h->ready)
        return;
    h->ready = true;
    timer_stop(h->ready_timer);
    char names[ADDR_TEXT_MAX] = "", broker[ADDR_TEXT_MAX] = "";
    if (h->names_listener)
        addr_format(listener_addr(h->names_listener), names);
    if (h->broker_listener)
        addr_format(listener_addr(h->broker_listener), broker);
    ready_tell(names, broker, clock_ns(h->clock) - h->options.started_ns, h->options.ready_fd);
}

static void ready_late(void *user)
{
    say_ready(user);
}

static void registered(void *user, size_t server)
{
    struct house *h = user;
    if (server == 0 && h->names_listener) /* the one in this process comes first in the list */
        say_ready(h);
}

static void hold_turn(void *user)
{
    struct house *h = user;
    if (h->broker)
        broker_hold_turn(h->broker);
}

static void expiry_turn(void *user)
{
    struct house *h = user;
    if (h->broker)
        broker_client_turn(h->broker);
    if (!h->names)
        return;
    struct arena arena;
    arena_init(&arena, 1u << 20);
    struct bytes *addrs;
    size_t n = names_expire_turn(h->names, &arena, &addrs);
    for (size_t i = 0; i < n; i++)
        log_event(&h->log, LOG_WARN, "broker expired addr=%s reason=\"no sign of life\"",
                  LOG_QUOTE(addrs[i]));
    arena_clear(&arena);
}

static void stop_now(void *user)
{
    loop_stop(((struct house *)user)->main_loop);
}

static void floor_drained(struct post *post)
{
    struct house *h = list_entry(post, struct floor, drained)->house;
    if (--h->draining == 0)
        loop_stop(h->main_loop);
}

static void drained(void *user)
{
    struct floor *f = user;
    f->drained.run = floor_drained;
    loop_post(f->house->main_loop, &f->drained);
}

static void drain_floor(struct post *post)
{
    struct floor *f = list_entry(post, struct floor, drain);
    struct house *h = f->house;
    if (f == &h->floors[0]) { /* listeners live on the first loop */
        if (h->names_listener)
            listener_close(h->names_listener);
        if (h->broker_listener)
            listener_close(h->broker_listener);
        h->names_listener = h->broker_listener = NULL;
    }
    loop_drain(f->loop, drained, f);
}

/* Main loop. Stops accepting, lets what was accepted finish; a second signal ends the process at
 * once. */
static void signalled(void *user, int signum)
{
    struct house *h = user;
    if (h->stopping) {
        log_event(&h->log, LOG_WARN, "second signal, ending at once signal=%d", signum);
        _exit(128 + signum);
    }
    h->stopping = true;
    log_event(&h->log, LOG_INFO, "stopping signal=%d", signum);
    ready_tell_stopping();
    if (h->registrar)
        registrar_leave(h->registrar);
    timer_start(h->stop_timer, STOP_DEADLINE_MS, 0);
    h->draining = h->n_loops;
    for (size_t i = 0; i < h->n_loops; i++) {
        h->floors[i].drain.run = drain_floor;
        loop_post(h->loops[i], &h->floors[i].drain);
    }
}

static enum err open_timers(struct house *h)
{
    enum err err = timer_open(h->main_loop, hold_turn, h, &h->hold_timer);
    if (!err)
        err = timer_open(h->main_loop, expiry_turn, h, &h->expiry_timer);
    if (!err)
        err = timer_open(h->main_loop, ready_late, h, &h->ready_timer);
    if (!err)
        err = timer_open(h->main_loop, stop_now, h, &h->stop_timer);
    if (!err)
        err = loop_on_signal(h->main_loop, SIGTERM, signalled, h);
    if (!err)
        err = loop_on_signal(h->main_loop, SIGINT, signalled, h);
    if (err)
        return err;
    if (h->broker)
        timer_start(h->hold_timer, HOLD_TURN_MS, HOLD_TURN_MS);
    timer_start(h->expiry_timer, EXPIRY_TURN_MS, EXPIRY_TURN_MS);
    return OK;
}

static enum err open_registrar(struct house *h, struct fault *why)
{
    const struct settings *s = h->options.settings;
    struct addr servers[ADDRESSES_MAX];
    size_t n = 0;
    if (h->names_listener)
        servers[n++] = address_to_reach(listener_addr(h->names_listener));
    enum err err = addresses_of_list(s->names_addr, servers, &n, why);
    if (err)
        return fault_add(why, err, "namesrvAddr=%s", s->names_addr);
    if (n == 0)
        log_event(&h->log, LOG_WARN,
                  "no name server known advice=\"set namesrvAddr, or add names to --roles\"");
    struct registrar_options options = {
        .loop = h->main_loop,
        .broker = h->broker,
        .log = &h->log,
        .limits = &h->limits,
        .cluster = s->cluster,
        .name = h->broker_name,
        .advertised = h->advertised,
        .broker_id = s->broker_id,
        .period_ms = (uint64_t)s->register_period_ms,
        .servers = servers,
        .n_servers = n,
        .registered = registered,
        .user = h,
    };
    err = registrar_open(&options, &h->registrar);
    return err ? fault_set(why, err, "registering: %s", err_text(err)) : OK;
}

static void start_thread(pthread_t *thread, void *(*fn)(void *), void *arg)
{
    invariant(pthread_create(thread, NULL, fn, arg) == 0);
}

static enum err start_listening(struct house *h, struct fault *why)
{
    enum err err = OK;
    if (h->names_listener)
        err = listener_start(h->names_listener, &door_ops, door_context(h->door, SIDE_NAMES), why);
    if (!err && h->broker_listener)
        err =
            listener_start(h->broker_listener, &door_ops, door_context(h->door, SIDE_BROKER), why);
    return err;
}

static void stop_threads(struct house *h)
{
    for (size_t i = 0; i < h->n_loops; i++)
        loop_stop(h->loops[i]);
    for (size_t i = 0; i < h->n_loops; i++)
        (void)pthread_join(h->floors[i].thread, NULL);
    room_enter(&h->stairs);
    h->closing = true;
    room_tell(&h->stairs);
    room_leave(&h->stairs);
    if (h->broker) {
        store_flush_wake(h->store);
        (void)pthread_join(h->flush_thread, NULL);
        (void)pthread_join(h->keeper_thread, NULL);
    }
}

enum err house_run(struct house *h, struct fault *why)
{
    enum err err = open_timers(h);
    if (err)
        return fault_set(why, err, "starting timers: %s", err_text(err));
    err = start_listening(h, why);
    if (!err && h->broker)
        err = open_registrar(h, why);
    if (err)
        return err;

    for (size_t i = 0; i < h->n_loops; i++)
        start_thread(&h->floors[i].thread, io_thread, &h->floors[i]);
    if (h->broker) {
        start_thread(&h->flush_thread, flush_thread, h);
        start_thread(&h->keeper_thread, keeper_thread, h);
    }
    timer_start(h->ready_timer, h->broker && h->names ? READY_DEADLINE_MS : 0, 0);
    loop_run(h->main_loop);
    stop_threads(h);
    return OK;
}

/* ---- closing: from the top down; everything may be half-made ---- */

static void close_network(struct house *h)
{
    for (size_t i = 0; i < h->n_loops; i++)
        loop_close(h->loops[i]); /* with listeners and connections */
    if (h->main_loop)
        loop_close(h->main_loop); /* with timers and dials */
    registrar_close(h->registrar);
    door_close(h->door);
}

enum err house_close(struct house *h, struct fault *why)
{
    close_network(h);
    enum err err = OK;
    if (h->broker)
        err = broker_close(h->broker, why);
    if (h->store) {
        enum err store_err = store_close(h->store, err ? NULL : why);
        err = err ? err : store_err;
    }
    if (h->names)
        names_close(h->names);
    if (h->names_lock)
        h->names_vfs->calls->close(h->names_lock);
    if (h->names_vfs)
        h->names_vfs->calls->dispose(h->names_vfs);
    if (h->vfs)
        h->vfs->calls->dispose(h->vfs);
    room_clear(&h->stairs);
    free(h);
    return err;
}
