/* house.c - building the house from the ground up, and taking it down again. */
#include "base/dice.h"
#include "daemon/house_int.h"
#include "daemon/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- opening: from the ground up ---- */

static enum err open_loops(struct house *h, struct fault *why)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = (size_t)h->options.settings->io_threads;
    if (n == 0)
        n = cores < 1 ? 1 : cores > 8 ? 8 : (size_t)cores;
    enum err err = loop_open(&h->main_loop, h->real, &h->log, why);
    for (size_t i = 0; !err && i < n; i++) {
        struct floor *f = &h->floors[i];
        f->house = h;
        err = loop_open(&f->loop, h->real, &h->log, why);
        if (!err) {
            loop_look_first(f->loop);
            h->loops[h->n_loops++] = f->loop;
        }
    }
    return err;
}

/* Tables that came from their .bak copy are no failure, but the operator should know. */
static void tell_repair(struct house *h, const char *note)
{
    if (note[0])
        log_event(&h->log, LOG_WARN, "tables repaired note=%s", LOG_QUOTE(bytes_str(note)));
}

static struct names_options names_options_of(struct house *h, const struct settings *s)
{
    return (struct names_options){
        .clock = h->real,
        .vfs = h->names_vfs,
        .seed = dice_seed_from_os(),
        .order_enable = s->order_enable,
        .acting_master = s->acting_master,
    };
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
    struct names_options options = names_options_of(h, h->options.settings);
    err = names_open(&options, &h->names, why);
    if (!err)
        tell_repair(h, names_note(h->names));
    return err;
}

static struct store_options store_options_of(struct house *h, const struct settings *s)
{
    return (struct store_options){
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
        .open_files = files_allowed(h->options.descriptors, h->limits.max_conns),
        .index_slots = s->index_enable ? (uint32_t)s->index_slots : 0,
        .index_entries = (uint32_t)s->index_entries,
        .retention =
            {
                .reserved_ms = s->reserved_hours * 3600 * 1000,
                .delete_hours = settings_delete_hours(s),
                .disk_max_used = (unsigned)s->disk_max_used,
                .disk_forced = (unsigned)s->disk_forced,
                .disk_warning = (unsigned)s->disk_warning,
            },
    };
}

static enum err open_store(struct house *h, struct fault *why)
{
    const struct settings *s = h->options.settings;
    struct store_options options = store_options_of(h, s);
    options.delays_ms = h->delays_ms;
    options.n_delays = settings_delays(s, h->delays_ms);
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

static void tables_changed(void *user)
{
    struct house *h = user;
    room_enter(&h->stairs);
    h->save_now = true;
    room_tell(&h->stairs);
    room_leave(&h->stairs);
}

static void services_wake(void *user)
{
    house_ring(user);
}

static void topics_changed(void *user)
{
    struct house *h = user;
    tables_changed(h);
    if (h->registrar)
        registrar_topics_changed(h->registrar);
}

static void warn(void *user, const char *text)
{
    struct house *h = user;
    log_limited(&h->log, &h->warnings, LOG_WARN, "%s", text);
}

static uint64_t memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

static struct broker_options broker_options_of(struct house *h, const struct settings *s)
{
    return (struct broker_options){
        .store = h->store,
        .vfs = h->vfs,
        .clock = h->clock,
        .peer_clock = h->real,
        .seed = dice_seed_from_os(),
        .out = &h->out,
        .cluster = s->cluster,
        .name = h->broker_name,
        .region = s->region,
        .host = h->advertised,
        .perm = (int32_t)s->broker_perm,
        .default_queues = (int32_t)s->default_queues,
        .dlq_perm = (int32_t)s->dlq_perm,
        .recent_bytes = memory_bytes() / 100 * (uint64_t)s->recent_ratio,
        .auto_topics = s->auto_topics,
        .auto_groups = s->auto_groups,
        .trace_on = s->trace_on,
        .trace_topic = s->trace_topic,
        .trace_topic_name = s->trace_topic_name,
        .client_side_reset = !s->server_side_reset,
        .long_polling = s->long_polling,
        .sql92 = s->sql92,
        .max_message_size = (uint32_t)s->max_message_size,
        .short_polling_ms = (uint64_t)s->short_polling_ms,
        .client_expire_ms = (uint64_t)s->client_expire_ms,
        .lock_life_ms = (uint64_t)s->lock_life_ms,
        .max_holds = (uint32_t)s->max_holds,
        .max_topics = (uint32_t)s->max_topics,
        .max_groups = (uint32_t)s->max_groups,
        .max_clients = (uint32_t)s->max_clients,
        .txn_reject = s->txn_reject,
        .txn_timeout_ms = s->txn_timeout_ms,
        .txn_interval_ms = s->txn_interval_ms,
        .txn_check_max = (int32_t)s->txn_check_max,
        .reserved_ms = s->reserved_hours * 3600 * 1000,
        .max_halves = (uint32_t)s->max_halves,
        .dedup_key = s->dedup_key,
        .dedup_window_ms = (uint64_t)s->dedup_window_seconds * 1000,
        .dedup_max_keys = (uint64_t)s->dedup_max_keys,
        .ledger = s->ledger,
        .ledger_max_keys = (uint64_t)s->ledger_max_keys,
        .ledger_grace_ms = s->ledger_grace_ms,
        .max_pop_marks = (uint32_t)s->max_pop_marks,
        .max_pop_waiting = (uint32_t)s->max_pop_waiting,
        .pop_retry_chance = (unsigned)s->pop_retry_chance,
        .pop_retry_v2 = s->pop_retry_v2,
        .pop_retry_v1_too = s->pop_retry_v1_too,
        .max_invisible_ms = s->max_invisible_sec * 1000,
        .default_pops = s->request_mode == 1,
        .default_share = (int32_t)s->pop_share,
        .server_balance = s->server_balance,
        .timers = s->timers,
        .recalls = s->recalls,
        .timer_max_s = s->timer_max_s,
        .timer_window_s = s->timer_window_s,
    };
}

static enum err open_broker(struct house *h, struct fault *why)
{
    const struct settings *s = h->options.settings;
    if (h->options.descriptors < DESCRIPTORS_LEAST)
        return fault_set(why, ERR_INVALID,
                         "a broker needs %d descriptors, and the limit of open files is %llu "
                         "(ulimit -n, LimitNOFILE)",
                         DESCRIPTORS_LEAST, (unsigned long long)h->options.descriptors);
    if (s->broker_role == ROLE_SLAVE)
        return fault_set(why, ERR_UNSUPPORTED,
                         "brokerRole=SLAVE: replication is not offered yet; use ASYNC_MASTER");
    enum err err = open_store(h, why);
    if (err)
        return err;
    h->out = (struct broker_out){
        .group_changed = door_group_changed,
        .topics_changed = topics_changed,
        .tables_changed = tables_changed,
        .offsets_reset = door_offsets_reset,
        .txn_check = door_txn_check,
        .warn = warn,
        .session_expired = door_session_expired,
        .services_wake = services_wake,
        .user = h,
    };
    struct broker_options options = broker_options_of(h, s);
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
        return fault_add(why, err, "bindAddress=%s",
                         LOG_QUOTE(bytes_str(h->options.settings->bind_address)));
    err = listener_open(h->loops, h->n_loops, &addr, &h->limits, out, why);
    if (err)
        return fault_add(
            why, err, "%s=%lld%s", key, (long long)port,
            err == ERR_IN_USE ? " (another daemon may be running; 0 takes any free one)" : "");
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
    if (!err && h->options.names)
        h->names_addr = *listener_addr(h->names_listener);
    if (!err && h->options.broker)
        err = bind_port(h, s->listen_port, "listenPort", &h->broker_listener, why);
    if (err || !h->options.broker)
        return err;
    h->broker_addr = *listener_addr(h->broker_listener);
    h->advertise_auto = strcmp(s->broker_ip1, "auto") == 0;
    err = address_to_advertise(h->advertise_auto ? "" : s->broker_ip1, &h->broker_addr,
                               &h->advertised, why);
    return err ? fault_add(why, err, "brokerIP1=%s", LOG_QUOTE(bytes_str(s->broker_ip1))) : OK;
}

/* Whom to register with. Asked for before the store is opened: a name that is wrong should not be
 * told after a long recovery. */
static enum err find_name_servers(struct house *h, struct fault *why)
{
    const char *list = h->options.settings->names_addr;
    if (h->options.names)
        h->name_servers[h->n_name_servers++].addr = address_to_reach(&h->names_addr);
    enum err err = addresses_of_list(list, h->name_servers, &h->n_name_servers, why);
    if (err)
        return fault_add(why, err, "namesrvAddr=%s", LOG_QUOTE(bytes_str(list)));
    if (h->n_name_servers == 0)
        log_event(&h->log, LOG_WARN,
                  "no name server known advice=\"set namesrvAddr, or add names to --roles\"");
    return OK;
}

static void print_config(void *user, struct buf *out, struct data_version *version)
{
    struct house *h = user;
    config_print(&h->config, h->broker_name, out, version);
}

static void apply_settings(struct house *h);

static enum err change_config(void *user, struct bytes text, struct fault *why)
{
    struct house *h = user;
    enum err err = config_change(&h->config, text, why);
    if (!err)
        apply_settings(h);
    return err;
}

/* Any thread. */
static enum err queues_elsewhere(void *user, struct bytes topic, struct arena *arena,
                                 struct assign_queue **queues, size_t *n)
{
    struct house *h = user;
    bool ask = false;
    enum err err = h->watch ? watch_find(h->watch, topic, arena, queues, n, &ask) : ERR_NOT_FOUND;
    if (ask && h->registrar)
        registrar_watch_changed(h->registrar);
    return err;
}

static struct door_options door_options_of(struct house *h, const struct settings *s)
{
    return (struct door_options){
        .names = h->names,
        .broker = h->broker,
        .store = h->store,
        .loops = h->loops,
        .n_loops = h->n_loops,
        .clock = h->real,
        .log = &h->log,
        .queues_elsewhere = queues_elsewhere,
        .advance_clock = h->options.virtual_clock ? house_advance_clock : NULL,
        .user = h,
        .chaos = h->options.chaos,
        .host = h->advertised,
        .broker_name = h->broker_name,
        .own_address = h->advertise_auto,
        .region = s->region,
        .trace_on = s->trace_on,
        .fast_failure = s->fast_failure,
        .max_sends_waiting = (size_t)s->max_sends_waiting,
        .max_send_wait_ms = (uint64_t)s->max_send_wait_ms,
        .store_replies = s->store_replies,
        .max_message_size = (uint32_t)s->max_message_size,
        .version = ONCEMQ_VERSION,
        .print_config = print_config,
        .change_config = change_config,
        .await_saved = house_await_saved,
    };
}

static void apply_own(struct house *h, const struct settings *s)
{
    h->log.least = (enum log_level)s->log_level;
    h->save_offsets_ms = s->save_offsets_ms;
    h->disk_max_used = s->disk_max_used;
}

/* Settings have changed: everybody takes over what may. Whoever changes them at the same time does
 * this too; the last look at them is after the last change. */
static void apply_settings(struct house *h)
{
    struct settings s, again;
    uint64_t seen;
    do {
        seen = config_get(&h->config, &s);
        apply_own(h, &s);
        struct store_options store = store_options_of(h, &s);
        struct broker_options broker = broker_options_of(h, &s);
        struct door_options door = door_options_of(h, &s);
        struct names_options names = names_options_of(h, &s);
        if (h->broker) {
            store_tune(h->store, &store);
            broker_tune(h->broker, &broker);
        }
        if (h->names)
            names_tune(h->names, &names);
        door_tune(h->door, &door);
    } while (config_get(&h->config, &again) != seen);
}

static enum err open_door(struct house *h, struct fault *why)
{
    struct door_options options = door_options_of(h, h->options.settings);
    enum err err = door_open(&options, &h->door);
    return err ? fault_set(why, err, "opening the door: %s", err_text(err)) : OK;
}

/* Descriptors that connections have taken would be missing when a log file is to be made. */
static void limit_connections(struct house *h)
{
    unsigned wanted = (unsigned)h->options.settings->max_connections;
    h->limits.max_conns = connections_allowed(h->options.descriptors, wanted);
    if (h->limits.max_conns < wanted)
        log_event(&h->log, LOG_WARN,
                  "fewer connections than maxConnections max=%u allowed=%u descriptors=%llu "
                  "advice=\"raise the limit of open files (ulimit -n, LimitNOFILE)\"",
                  wanted, h->limits.max_conns, (unsigned long long)h->options.descriptors);
}

static void house_init(struct house *h, const struct house_options *options)
{
    const struct settings *s = options->settings;
    h->options = *options;
    h->clock = h->real = clock_system();
    config_init(&h->config, s, h->real);
    h->options.settings = &h->config.now;
    clock_virtual_init(&h->virtual_clock, options->ahead_ms);
    if (options->virtual_clock)
        h->clock = &h->virtual_clock.clock;
    h->log =
        (struct log){.fd = STDERR_FILENO, .least = (enum log_level)s->log_level, .clock = h->real};
    h->limits.idle_ms = (uint64_t)s->idle_seconds * 1000;
    h->limits.out_high = (size_t)s->out_high_bytes;
    h->limits.out_max = (size_t)s->out_max_bytes;
    limit_connections(h);
    room_init(&h->stairs, "stairs", ROOM_LEAF);
    list_init(&h->saves);
    room_init(&h->bell, "bell", ROOM_LEAF);
    if (s->broker_name[0])
        (void)snprintf(h->broker_name, sizeof h->broker_name, "%.255s", s->broker_name);
    else if (gethostname(h->broker_name, sizeof h->broker_name - 1) != 0 || !h->broker_name[0])
        (void)snprintf(h->broker_name, sizeof h->broker_name, "broker-a");
}

/* A name server that shares its data folder with somebody else's broker has changes of its own. */
static enum err load_changes(struct house *h, struct fault *why)
{
    const char *path = h->options.broker ? "config/changed.conf" : "namesrv/changed.conf";
    enum err err = h->vfs->calls->mkdir(h->vfs, h->options.broker ? "config" : "namesrv", why);
    if (!err)
        err = config_load(&h->config, h->vfs, path, h->options.given, &h->log, why);
    if (err)
        return fault_add(why, err, "data folder %s", h->options.settings->data);
    apply_own(h, h->options.settings);
    return OK;
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
        err = house_open_tls(h, why);
    if (!err && options->broker)
        err = find_name_servers(h, why);
    if (!err)
        err = vfs_posix_open(options->settings->data, &h->vfs, why);
    if (!err)
        err = load_changes(h, why);
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

/* ---- closing: from the top down; everything may be half-made ---- */

static void close_network(struct house *h)
{
    door_stop(h->door);
    for (size_t i = 0; i < h->n_loops; i++)
        loop_close(h->loops[i]); /* with listeners and connections */
    if (h->main_loop)
        loop_close(h->main_loop); /* with timers and dials */
    registrar_close(h->registrar);
    tls_close(h->tls_spoken);
    watch_close(h->watch);
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
    config_clear(&h->config);
    room_clear(&h->bell);
    free(h);
    return err;
}
