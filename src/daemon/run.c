/* run.c - living in the house: threads, timers, signals, and stopping. */
#include "broker/ledger.h"
#include "daemon/house_int.h"
#include "daemon/ready.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define STOP_DEADLINE_MS  3000 /* for clients that do not take their last answers */
#define READY_DEADLINE_MS 1000 /* for our own name server to know our own broker */
#define HOLD_TURN_MS      100
#define EXPIRY_TURN_MS    5000
#define KEEP_TURN_MS      100
#define SERVICES_TURN_MS  50   /* a clock that is moved by hand wakes nobody */
#define STORE_WELL_MS     5000 /* so long it takes messages before the operator is told */
#define FLUSH_NICE        10

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

/* With asynchronous flush nobody waits for this thread, but what it does for the kernel at once,
 * for all that came in half a second, takes a core for long enough to leave an io thread without
 * one in the middle of an append, and then the others wait for that. So it takes what they leave.
 * It dispatches nothing then: a reader would wait for the dispatcher. */
static void *flush_thread(void *arg)
{
    struct house *h = arg;
    bool confirms = h->options.settings->flush_type == FLUSH_SYNC;
    if (!confirms)
        (void)!nice(FLUSH_NICE); /* of this thread alone, on Linux */
    while (!closing(h)) {
        int pause_ms = store_flush_turn(h->store);
        if (confirms)
            broker_dispatch_turn(h->broker);
        if (!closing(h)) /* the turn may have taken the call to stop for its own */
            store_flush_wait(h->store, pause_ms);
    }
    /* A client that did not wait for its answer has left a wait behind. Nobody appends any more, so
     * this completes the last of them, while the loops to which they are posted still exist. */
    (void)store_flush_turn(h->store);
    return NULL;
}

/* What an operator has changed: the tables, and the settings. */
static enum err save_all(struct house *h, struct fault *why)
{
    enum err err = h->broker ? broker_save_turn(h->broker, why) : OK;
    enum err config_err = config_save(&h->config, err ? NULL : why);
    return err ? err : config_err;
}

/* Whoever waits now has changed something before, so what is saved from here on has it. */
static void save_tables(struct house *h, struct log_limit *trouble)
{
    struct list waits;
    list_init(&waits);
    room_enter(&h->stairs);
    list_append_all(&waits, &h->saves);
    room_leave(&h->stairs);
    struct fault why = {0};
    enum err err = save_all(h, &why);
    for (struct link *k; (k = list_pop(&waits));) {
        struct saved_wait *wait = list_entry(k, struct saved_wait, link);
        wait->done(wait, err, &why);
    }
    if (err)
        log_limited(&h->log, trouble, LOG_ERROR,
                    "tables not saved reason=%s action=\"trying again\"",
                    LOG_QUOTE(bytes_str(why.text)));
}

/* Main loop. A name server alone has no keeper, and only its settings to save. */
static void save_settings(struct post *post)
{
    struct house *h = list_entry(post, struct house, saving);
    atomic_store(&h->saving_posted, false);
    save_tables(h, &h->warnings);
}

void house_await_saved(void *user, struct saved_wait *wait)
{
    struct house *h = user;
    room_enter(&h->stairs);
    list_add_tail(&h->saves, &wait->link);
    h->save_now = true;
    room_tell(&h->stairs);
    room_leave(&h->stairs);
    if (!h->broker && !atomic_exchange(&h->saving_posted, true))
        loop_post(h->main_loop, &h->saving);
}

/* What the keeper has told the operator, so that it is told once. */
struct keeper {
    struct log_limit trouble, cleaning, put_off, ledger;
    uint64_t ill_ns; /* when the store was last found ill; 0: it is well */
    enum err ahead;
    bool pressed;
    unsigned disk_used; /* percent, when it was last looked at */
};

/* One line when the store stops taking messages, and one when it takes them again. It gives itself
 * another chance every second, so that is believed only after a while. */
static void tell_store_state(struct house *h, struct keeper *k)
{
    struct fault why = {0};
    enum err state = store_state(h->store, &why);
    uint64_t now = clock_ns(h->real);
    if (state && !k->ill_ns)
        log_event(&h->log, LOG_ERROR,
                  "store takes no messages reason=%s action=\"reading goes on\"",
                  LOG_QUOTE(bytes_str(why.text[0] ? why.text : err_text(state))));
    if (state) {
        k->ill_ns = now;
    } else if (k->ill_ns && now - k->ill_ns > STORE_WELL_MS * 1000000ull) {
        log_event(&h->log, LOG_INFO, "store takes messages again disk_used=%u%%", k->disk_used);
        k->ill_ns = 0;
    }
}

/* The disk fills up, or there is room again. */
static void tell_space(struct house *h, struct keeper *k, const struct store_cleaned *got)
{
    if (got->used_percent)
        k->disk_used = got->used_percent;
    if (got->pressed && !k->pressed)
        log_event(
            &h->log, LOG_WARN,
            "disk is filling up disk_used=%u%% limit=%lld%% action=\"nothing is old enough to "
            "delete\" advice=\"make room, or lower fileReservedTime\"",
            got->used_percent, (long long)h->disk_max_used);
    else if (got->looked && !got->pressed && k->pressed)
        log_event(&h->log, LOG_INFO, "disk has room again disk_used=%u%%", k->disk_used);
    if (got->looked)
        k->pressed = got->pressed;
}

static void clean_store(struct house *h, struct keeper *k)
{
    struct store_cleaned got;
    store_clean_turn(h->store, &got);
    tell_space(h, k, &got);
    if (got.log_files || got.queue_files)
        log_event(&h->log, got.log_files ? LOG_INFO : LOG_DEBUG,
                  "old files deleted log_files=%u queue_files=%u first=%llu disk_used=%u%%",
                  got.log_files, got.queue_files, (unsigned long long)got.log_first, k->disk_used);
    struct fault why = {0};
    enum err put_off = store_put_off(h->store, &why);
    if (put_off)
        log_limited(&h->log, &k->put_off, LOG_WARN,
                    "writing was put off reason=%s action=\"trying again\"",
                    LOG_QUOTE(bytes_str(why.text[0] ? why.text : err_text(put_off))));
    if (got.err)
        log_limited(&h->log, &k->cleaning, LOG_ERROR,
                    "cleaning failed reason=%s action=\"trying again\"",
                    LOG_QUOTE(bytes_str(got.why.text[0] ? got.why.text : err_text(got.err))));
    if (got.ahead && !k->ahead)
        log_event(
            &h->log, LOG_WARN,
            "no next log file reason=%s action=\"appends go on in the present one, trying again\"",
            LOG_QUOTE(bytes_str(got.ahead_why.text[0] ? got.ahead_why.text : err_text(got.ahead))));
    else if (!got.ahead && k->ahead)
        log_event(&h->log, LOG_INFO, "next log file made");
    k->ahead = got.ahead;
}

static void save_ledger(struct house *h, struct keeper *k)
{
    struct fault why = {0};
    enum err err = broker_ledger_save_turn(h->broker, &why);
    if (err)
        log_limited(&h->log, &k->ledger, LOG_ERROR,
                    "snapshot of the once ledger put off reason=%s action=\"trying again\"",
                    LOG_QUOTE(bytes_str(why.text[0] ? why.text : err_text(err))));
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
    uint64_t saved_ns = clock_ns(h->clock);
    struct keeper k = {0};
    while (!closing(h)) {
        store_keep_turn(h->store);
        save_ledger(h, &k);
        clean_store(h, &k);
        tell_store_state(h, &k);
        broker_dedup_turn(h->broker);
        broker_ledger_turn(h->broker);
        uint64_t every_ns = (uint64_t)h->save_offsets_ms * 1000000u;
        if (keeper_pause(h) || clock_ns(h->clock) - saved_ns >= every_ns) {
            save_tables(h, &k.trouble);
            saved_ns = clock_ns(h->clock);
        }
    }
    save_tables(h, &k.trouble); /* whoever still waits for that is told */
    return NULL;
}

/* What the services thread does in turn. */
struct service {
    const char *what; /* it moves */
    void (*turn)(struct broker *broker, struct service_turn *out);
};
static const struct service services[] = {
    {"delayed messages", broker_delay_turn},
    {"checks of transactions", broker_txn_turn},
    {"popped messages", broker_pop_turn},
    {"timed messages", broker_timer_turn},
};
#define SERVICES (sizeof services / sizeof services[0])

/* One line when something that should be done cannot be, and one when it can again. */
static void tell_service(struct house *h, const char *what, const struct service_turn *turn,
                         enum err *trouble)
{
    if (turn->err && !*trouble)
        log_event(&h->log, LOG_ERROR, "%s put off reason=%s action=\"trying again\"", what,
                  LOG_QUOTE(bytes_str(turn->why.text[0] ? turn->why.text : err_text(turn->err))));
    if (!turn->err && *trouble)
        log_event(&h->log, LOG_INFO, "%s are delivered again", what);
    *trouble = turn->err;
    if (turn->skipped)
        log_event(&h->log, LOG_ERROR,
                  "%s skipped count=%llu reason=\"their records cannot be read or do not say where "
                  "they belong\"",
                  what, (unsigned long long)turn->skipped);
    if (turn->known)
        log_event(&h->log, LOG_INFO,
                  "%s not delivered again count=%llu reason=\"they had been before the last stop\"",
                  what, (unsigned long long)turn->known);
}

static void *services_thread(void *arg)
{
    struct house *h = arg;
    enum err trouble[SERVICES] = {OK};
    while (!closing(h)) {
        int pause_ms = SERVICES_TURN_MS;
        broker_dispatch_turn(h->broker); /* what could not be when it was stored */
        for (size_t i = 0; i < SERVICES; i++) {
            struct service_turn turn;
            services[i].turn(h->broker, &turn);
            tell_service(h, services[i].what, &turn, &trouble[i]);
            pause_ms = turn.next_ms < pause_ms ? turn.next_ms : pause_ms;
        }
        room_enter(&h->bell);
        if (pause_ms > 0 && !h->rung)
            room_wait(&h->bell, pause_ms);
        h->rung = false;
        room_leave(&h->bell);
    }
    return NULL;
}

void house_ring(struct house *h)
{
    room_enter(&h->bell);
    h->rung = true;
    room_tell(&h->bell);
    room_leave(&h->bell);
}

static void say_ready(struct house *h)
{
    if (h->ready || h->stopping)
        return;
    h->ready = true;
    timer_stop(h->ready_timer);
    char names[ADDR_TEXT_MAX] = "", broker[ADDR_TEXT_MAX] = "", http[ADDR_TEXT_MAX] = "";
    if (h->names)
        addr_format(&h->names_addr, names);
    if (h->broker)
        addr_format(&h->broker_addr, broker);
    if (h->http)
        addr_format(http_addr(h->http), http);
    ready_tell(names, broker, http, clock_ns(h->real) - h->options.started_ns, h->options.ready_fd);
}

static void ready_late(void *user)
{
    say_ready(user);
}

static void registered(void *user, size_t server)
{
    struct house *h = user;
    if (server == 0 && h->names) /* the one in this process comes first in the list */
        say_ready(h);
}

static void hold_turn(void *user)
{
    struct house *h = user;
    if (h->broker)
        broker_hold_turn(h->broker);
}

/* Main loop. */
static void clock_jumped(struct post *post)
{
    struct house *h = list_entry(post, struct house, jumped);
    atomic_store(&h->jumped_posted, false);
    hold_turn(h);
}

/* Whoever sleeps until some time is woken to look at the clock again. What was due in between is
 * due now; nothing is done twice for it. */
enum err house_advance_clock(void *user, int64_t ms, int64_t *now_ms)
{
    struct house *h = user;
    enum err err = ms == 0 ? OK : clock_virtual_advance(&h->virtual_clock, ms);
    if (err)
        return err;
    *now_ms = clock_ms(h->clock);
    if (ms == 0)
        return OK;
    log_event(&h->log, LOG_INFO, "clock put forward by_ms=%lld now_ms=%lld", (long long)ms,
              (long long)*now_ms);
    store_flush_wake(h->store);
    room_enter(&h->stairs);
    room_tell(&h->stairs);
    room_leave(&h->stairs);
    house_ring(h);
    if (!atomic_exchange(&h->jumped_posted, true))
        loop_post(h->main_loop, &h->jumped);
    return OK;
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
    timer_stop(h->ready_timer); /* too late for that */
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
    if (!err)
        err = house_watch_tls(h);
    if (err)
        return err;
    if (h->broker)
        timer_start(h->hold_timer, HOLD_TURN_MS, HOLD_TURN_MS);
    timer_start(h->expiry_timer, EXPIRY_TURN_MS, EXPIRY_TURN_MS);
    return OK;
}

/* The connection to our own name server must not be taken for an idle one: that would unregister
 * us. */
static uint64_t register_period_ms(const struct settings *s)
{
    uint64_t period = (uint64_t)s->register_period_ms, idle = (uint64_t)s->idle_seconds * 1000;
    return period < idle / 2 ? period : idle / 2;
}

static enum err open_registrar(struct house *h, struct fault *why)
{
    const struct settings *s = h->options.settings;
    enum err err = h->names ? OK : watch_open(dice_seed_from_os(), &h->watch);
    if (err)
        return err;
    struct registrar_options options = {
        .watch = h->watch,
        .loop = h->main_loop,
        .broker = h->broker,
        .log = &h->log,
        .limits = &h->limits,
        .tls = h->tls_spoken,
        .cluster = s->cluster,
        .name = h->broker_name,
        .advertised = h->advertised,
        .by_connection = h->advertise_auto,
        .first_is_ours = h->names != NULL,
        .broker_id = s->broker_id,
        .period_ms = register_period_ms(s),
        .servers = h->name_servers,
        .n_servers = h->n_name_servers,
        .registered = registered,
        .user = h,
    };
    err = registrar_open(&options, &h->registrar);
    return err ? fault_set(why, err, "registering: %s", err_text(err)) : OK;
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

/* With a name, for whoever looks at the threads of the process. */
static enum err start_thread(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg,
                             struct fault *why)
{
    errno = pthread_create(thread, NULL, fn, arg);
    if (errno)
        return fault_os(why, "starting a thread");
    (void)pthread_setname_np(*thread, name);
    return OK;
}

/* What takes in messages comes last, and is stopped first. */
static enum err start_threads(struct house *h, struct fault *why)
{
    enum err err = OK;
    if (h->broker) {
        err = start_thread(&h->flush_thread, "flush", flush_thread, h, why);
        h->flush_runs = !err;
    }
    if (!err && h->broker) {
        err = start_thread(&h->keeper_thread, "keeper", keeper_thread, h, why);
        h->keeper_runs = !err;
    }
    if (!err && h->broker) {
        err = start_thread(&h->services_thread, "services", services_thread, h, why);
        h->services_run = !err;
    }
    for (size_t i = 0; !err && i < h->n_loops; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "io-%zu", i);
        err = start_thread(&h->floors[i].thread, name, io_thread, &h->floors[i], why);
        h->floors_run += !err;
    }
    return err;
}

static enum err open_http(struct house *h, struct fault *why)
{
    const struct settings *s = h->options.settings;
    if (!h->broker || s->http_port < 0)
        return OK;
    struct http_options options = {.broker = h->broker, .store = h->store, .log = &h->log};
    enum err err = address_of_host(s->bind_address, (uint16_t)s->http_port, &options.addr, why);
    if (!err)
        err = http_open(&options, &h->http, why);
    return err ? fault_add(why, err, "httpPort=%lld", (long long)s->http_port) : OK;
}

static void stop_threads(struct house *h)
{
    http_close(h->http); /* its answers wait for the flusher */
    h->http = NULL;
    for (size_t i = 0; i < h->floors_run; i++)
        loop_stop(h->loops[i]);
    for (size_t i = 0; i < h->floors_run; i++)
        (void)pthread_join(h->floors[i].thread, NULL);
    room_enter(&h->stairs);
    h->closing = true;
    room_tell(&h->stairs);
    room_leave(&h->stairs);
    house_ring(h);
    if (h->services_run) /* it appends, so the flusher goes after it */
        (void)pthread_join(h->services_thread, NULL);
    if (h->flush_runs) {
        store_flush_wake(h->store);
        (void)pthread_join(h->flush_thread, NULL);
    }
    if (h->keeper_runs)
        (void)pthread_join(h->keeper_thread, NULL);
    else
        save_tables(h, &h->warnings); /* as a keeper does in the end */
}

enum err house_run(struct house *h, struct fault *why)
{
    h->jumped.run = clock_jumped;
    h->saving.run = save_settings;
    enum err err = open_timers(h);
    if (err)
        return fault_set(why, err, "starting timers: %s", err_text(err));
    err = start_listening(h, why);
    if (!err && h->broker)
        err = open_registrar(h, why);
    if (!err)
        err = start_threads(h, why);
    if (!err)
        err = open_http(h, why);
    if (!err) {
        timer_start(h->ready_timer, h->broker && h->names ? READY_DEADLINE_MS : 0, 0);
        loop_run(h->main_loop);
    }
    stop_threads(h);
    return err;
}
