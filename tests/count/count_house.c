/* count_house.c - store, broker, door and loop of a daemon in one thread: count.h tells why. */
#include "count.h"

#include "door/remoting/door.h"
#include "io/io_int.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOW_MS INT64_C(1700000000000)

struct house {
    char folder[512];
    struct clock_manual clock;
    struct log log;
    struct io_limits limits;
    struct vfs *disk;
    struct vfs_calls without_sync; /* how long a disk takes is nobody's business here */
    struct store *store;
    struct broker *broker;
    struct loop *loop;
    struct door *door;
};

static const struct addr own_address = {.ip = {127, 0, 0, 1}, .ip_len = 4, .port = 10911};

static enum err no_sync(struct vfs_file *f, struct fault *why)
{
    return OK;
}

static enum err no_sync_dir(struct vfs *v, const char *path, struct fault *why)
{
    return OK;
}

static void disk_open(struct house *h)
{
    struct fault why = {0};
    if (vfs_posix_open(h->folder, &h->disk, &why))
        wrong("%s: %s", h->folder, why.text);
    h->without_sync = *h->disk->calls;
    h->without_sync.sync = no_sync;
    h->without_sync.sync_dir = no_sync_dir;
    h->disk->calls = &h->without_sync;
}

static void must_ok(enum err err, const struct fault *why, const char *what)
{
    if (err)
        wrong("%s: %s %s", what, err_text(err), why ? why->text : "");
}

/* As the daemon's defaults. Files are smaller: nothing is ever written to most of theirs. */
static void store_make(struct house *h, bool sync)
{
    const struct store_options options = {
        .vfs = h->disk,
        .clock = &h->clock.clock,
        .log_file_size = 256u << 20,
        .queue_file_size = 6000000,
        .sync_flush = sync,
        .flush_interval_ms = 500,
        .flush_least_pages = 4,
        .flush_thorough_interval_ms = 10000,
        .queue_flush_interval_ms = 1000,
        .max_record_size = (4u << 20) + (64u << 10),
        .retention = {.reserved_ms = INT64_C(72) * 3600 * 1000,
                      .delete_hours = 1u << 4,
                      .disk_max_used = 75,
                      .disk_forced = 85,
                      .disk_warning = 90},
        .index_slots = 50000,
        .index_entries = 200000,
    };
    struct store_report report;
    struct fault why = {0};
    must_ok(store_open(&options, &h->store, &report, &why), &why, "opening the store");
}

static void broker_make(struct house *h)
{
    const struct broker_options options = {
        .store = h->store,
        .vfs = h->disk,
        .clock = &h->clock.clock,
        .seed = 1,
        .cluster = "count",
        .name = "broker-a",
        .region = "DefaultRegion",
        .host = own_address,
        .perm = PERM_READ | PERM_WRITE,
        .default_queues = QUEUES,
        .recent_bytes = UINT64_C(1) << 30,
        .auto_topics = true,
        .auto_groups = true,
        .long_polling = true,
        .trace_on = true,
        .max_message_size = 4u << 20,
        .max_holds = 1000,
        .max_topics = 1000,
        .max_groups = 1000,
        .max_clients = 1000,
        .max_halves = 1000,
        .client_expire_ms = 120000,
        .dedup_key = "",
    };
    struct fault why = {0};
    must_ok(broker_open(&options, &h->broker, &why), &why, "opening the broker");
}

static void door_make(struct house *h)
{
    struct fault why = {0};
    must_ok(loop_open(&h->loop, &h->clock.clock, &h->log, &why), &why, "opening the loop");
    const struct door_options options = {
        .broker = h->broker,
        .store = h->store,
        .loops = &h->loop,
        .n_loops = 1,
        .clock = &h->clock.clock,
        .log = &h->log,
        .host = own_address,
        .broker_name = "broker-a",
        .region = "DefaultRegion",
        .trace_on = true,
        .fast_failure = true,
        .max_sends_waiting = 10000,
        .max_send_wait_ms = 1000,
        .max_message_size = 4u << 20,
        .version = "count",
    };
    must_ok(door_open(&options, &h->door), NULL, "opening the door");
}

struct house *house_open(bool sync)
{
    struct house *h = calloc(1, sizeof *h);
    must(h, "memory");
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(h->folder, sizeof h->folder, "%s/count-XXXXXX", tmp ? tmp : ".");
    must(mkdtemp(h->folder), "making a folder");
    clock_manual_init(&h->clock, NOW_MS);
    h->log = (struct log){.fd = STDERR_FILENO, .least = LOG_WARN, .clock = &h->clock.clock};
    h->limits = (struct io_limits)IO_LIMITS_DEFAULT;
    h->limits.idle_ms = 0; /* its timer would be the system's */
    disk_open(h);
    store_make(h, sync);
    broker_make(h);
    door_make(h);
    return h;
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *where)
{
    (void)remove(path);
    return 0;
}

void house_close(struct house *h)
{
    struct fault why = {0};
    door_stop(h->door);
    loop_close(h->loop);
    door_close(h->door);
    must_ok(broker_close(h->broker, &why), &why, "closing the broker");
    must_ok(store_close(h->store, &why), &why, "closing the store");
    h->disk->calls->dispose(h->disk);
    (void)nftw(h->folder, remove_one, 64, FTW_DEPTH | FTW_PHYS);
    free(h);
}

void house_connect(struct house *h, struct wire *client)
{
    int ends[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "sockets");
    *client = (struct wire){.fd = ends[0], .in = malloc(LOOP_IN_SIZE), .size = LOOP_IN_SIZE};
    struct conn *conn =
        conn_create(ends[1], &door_ops, door_context(h->door, SIDE_BROKER), &h->limits);
    must(client->in && conn, "memory");
    conn->peer = conn->local = own_address;
    atomic_fetch_add(&h->limits.conns, 1);
    conn->counted = true;
    conn_adopt(h->loop, conn);
}

/* The bell is rung first, so that the loop finds it together with the requests, and stops. */
void house_turn(struct house *h)
{
    loop_stop(h->loop);
    loop_run(h->loop);
}

/* What the flush thread does, then what it has posted. */
void house_flush(struct house *h)
{
    (void)store_flush_turn(h->store);
    broker_dispatch_turn(h->broker);
    house_turn(h);
}
