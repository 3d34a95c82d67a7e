/* rig_test.h - a broker over a real store in a fresh folder, with a clock that the test moves.
 *
 * Only for the x_test.c files of this folder.
 */
#ifndef BROKER_RIG_TEST_H
#define BROKER_RIG_TEST_H

#include "base/test.h"
#include "broker/broker_int.h"

#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

#define START_MS INT64_C(1700000000000)

/* A connection as a door would have one. */
struct session {
    struct counted counted;
    int told, expired;
    bool released;
    char group[64]; /* what it was told about last */
};

struct rig {
    char folder[32];
    struct vfs *vfs, *store_vfs; /* the second: only where the store is to see another disk */
    struct clock_manual clock;
    struct store *store;
    struct broker *broker;
    struct desk *desk;
    struct broker_options options;
    struct broker_out out;
    int topics_changed;
    int warned;
    char warning[512];        /* the last one */
    const int64_t *delays_ms; /* the ladder; NULL: Apache's */
    size_t n_delays;
    bool no_index, sync_flush;
    int64_t reserved_ms; /* retention; 0: nothing is deleted in these tests */
    size_t open_files;   /* that the store keeps; 0: as it likes */
    bool *store_open;    /* set at a start when the store is open and the broker is not; or NULL */
};

static inline void session_released(struct counted *c)
{
    list_entry(c, struct session, counted)->released = true;
}

static inline void session_init(struct session *s)
{
    *s = (struct session){0};
    counted_init(&s->counted, session_released);
}

static inline void rig_group_changed(struct counted *c, struct bytes group)
{
    struct session *s = list_entry(c, struct session, counted);
    assert_true(atomic_load(&c->holders) > 0);
    s->told++;
    snprintf(s->group, sizeof s->group, "%.*s", BYTES_ARG(group));
}

static inline void rig_topics_changed(void *user)
{
    ((struct rig *)user)->topics_changed++;
}

static inline void rig_warn(void *user, const char *text)
{
    struct rig *rig = user;
    rig->warned++;
    snprintf(rig->warning, sizeof rig->warning, "%s", text);
}

static inline void rig_session_expired(struct counted *c)
{
    assert_true(atomic_load(&c->holders) > 0);
    list_entry(c, struct session, counted)->expired++;
}

/* Opens store and broker over what is in the folder. The caller may expect a failure. */
static inline enum err rig_start(struct rig *rig, struct fault *why)
{
    struct store_options options = {
        .vfs = rig->store_vfs ? rig->store_vfs : rig->vfs,
        .clock = &rig->clock.clock,
        .log_file_size = 8 << 20,
        .queue_file_size = 20000,
        .sync_flush = rig->sync_flush,
        .flush_interval_ms = 500,
        .flush_least_pages = 4,
        .flush_thorough_interval_ms = 10000,
        .queue_flush_interval_ms = 1000,
        .max_record_size = (4 << 20) + (64 << 10),
        .index_slots = rig->no_index ? 0 : 1000,
        .index_entries = 20000,
        .retention = {.reserved_ms = rig->reserved_ms,
                      .delete_hours = 0xFFFFFF,
                      .disk_max_used = 95,
                      .disk_forced = 85,
                      .disk_warning = 90},
        .delays_ms = rig->delays_ms,
        .n_delays = rig->n_delays,
        .open_files = rig->open_files,
    };
    struct store_report report;
    assert_int_equal(store_open(&options, &rig->store, &report, why), OK);
    rig->options.store = rig->store;
    if (rig->store_open)
        *rig->store_open = true;
    enum err err = broker_open(&rig->options, &rig->broker, why);
    if (err)
        assert_int_equal(store_close(rig->store, NULL), OK);
    else
        assert_int_equal(desk_open(rig->broker, &rig->desk), OK);
    return err;
}

static inline void rig_stop(struct rig *rig)
{
    desk_close(rig->desk);
    assert_int_equal(broker_close(rig->broker, NULL), OK);
    assert_int_equal(store_close(rig->store, NULL), OK);
}

/* Stops and starts with the options as they are now. */
static inline void rig_again(struct rig *rig)
{
    struct fault why = {0};
    rig_stop(rig);
    assert_int_equal(rig_start(rig, &why), OK);
}

static inline int rig_open(void **state)
{
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    snprintf(rig->folder, sizeof rig->folder, "/tmp/broker-test-XXXXXX");
    assert_non_null(mkdtemp(rig->folder));
    struct fault why = {0};
    assert_int_equal(vfs_posix_open(rig->folder, &rig->vfs, &why), OK);
    clock_manual_init(&rig->clock, START_MS);
    rig->out = (struct broker_out){
        .group_changed = rig_group_changed,
        .topics_changed = rig_topics_changed,
        .warn = rig_warn,
        .session_expired = rig_session_expired,
        .user = rig,
    };
    rig->options = (struct broker_options){
        .vfs = rig->vfs,
        .clock = &rig->clock.clock,
        .seed = 7,
        .out = &rig->out,
        .cluster = "DefaultCluster",
        .name = "broker-a",
        .region = "DefaultRegion",
        .host = {{127, 0, 0, 1}, 4, 10911},
        .perm = PERM_READ | PERM_WRITE,
        .default_queues = 8,
        .dlq_perm = PERM_WRITE,
        .auto_topics = true,
        .auto_groups = true,
        .trace_on = true,
        .long_polling = true,
        .sql92 = true,
        .max_message_size = 4 << 20,
        .short_polling_ms = 1000,
        .client_expire_ms = 120000,
        .lock_life_ms = 60000,
        .max_holds = 100,
        .max_topics = 100,
        .max_groups = 100,
        .max_clients = 100,
        .txn_timeout_ms = 6000,
        .txn_interval_ms = 30000,
        .txn_check_max = 15,
        .reserved_ms = INT64_C(72) * 3600 * 1000,
        .max_halves = 1000,
        .dedup_window_ms = 600000,
        .dedup_max_keys = 1000000,
        .server_balance = true,
        .max_pop_marks = 10000,
        .max_pop_waiting = 50,
        .pop_retry_chance = 20,
        .pop_retry_v1_too = true,
        .max_invisible_ms = 3 * 24 * 3600 * 1000,
        .timers = true,
        .recalls = true,
        .timer_max_s = 259200,
        .ledger = true,
        .ledger_max_keys = 100000,
        .ledger_grace_ms = 2000,
    };
    assert_int_equal(rig_start(rig, &why), OK);
    *state = rig;
    return 0;
}

static inline int rig_remove(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    return remove(path);
}

static inline int rig_close(void **state)
{
    struct rig *rig = *state;
    if (rig->broker)
        rig_stop(rig);
    rig->vfs->calls->dispose(rig->vfs);
    (void)nftw(rig->folder, rig_remove, 16, FTW_DEPTH | FTW_PHYS);
    free(rig);
    return 0;
}

#define rig_test(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)
/* As test_of_row. */
#define rig_row(row, name) ((struct CMUnitTest){row " " #name, name, rig_open, rig_close, NULL})

/* ---- short ways to say common things ---- */

static inline struct produce rig_message(const char *topic, const char *body)
{
    return (struct produce){
        .group = BYTES("PG"),
        .topic = bytes_str(topic),
        .default_topic = TEMPLATE_NAME,
        .default_queues = 4,
        .body = bytes_str(body),
        .born_ms = START_MS,
        .born_host = {{127, 0, 0, 1}, 4, 4711},
    };
}

static inline enum err rig_produce(struct rig *rig, struct produce *r)
{
    uint64_t end;
    broker_produce(rig->broker, rig->desk, r, 1, &end);
    return r->err;
}

/* So many messages of 3 MB each to another topic: three of them begin the log's next file. */
static inline void rig_fill(struct rig *rig, int n)
{
    uint8_t *body = calloc(3, 1 << 20);
    assert_non_null(body);
    for (int i = 0; i < n; i++) {
        struct produce r = rig_message("Filler", "");
        r.body = bytes_of(body, 3 << 20);
        assert_int_equal(rig_produce(rig, &r), OK);
    }
    free(body);
    broker_dispatch_turn(rig->broker);
}

/* Stores a message in queue 0 with a tag ("": none) and lets readers know. */
static inline void rig_send(struct rig *rig, const char *topic, const char *tag, const char *body)
{
    char props[64];
    snprintf(props, sizeof props, "TAGS\1%s\2", tag);
    struct produce r = rig_message(topic, body);
    r.props = bytes_str(props);
    assert_int_equal(rig_produce(rig, &r), OK);
    broker_dispatch_turn(rig->broker);
}

static inline struct pull rig_pull(const char *group, const char *topic, int64_t offset)
{
    return (struct pull){
        .group = bytes_str(group),
        .topic = bytes_str(topic),
        .offset = offset,
        .max_count = 32,
        .has_expression = true,
        .expression = BYTES("*"),
    };
}

static inline void rig_drop(struct read_result *read)
{
    if (read->status == READ_FOUND)
        for (size_t i = 0; i < read->n_slices; i++)
            counted_drop(read->slices[i].owner);
}

/* The records of a result, one after the other. */
static inline size_t rig_records(const struct read_result *read, struct record *out, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < read->n_slices; i++) {
        struct bytes rest = read->slices[i].bytes;
        while (rest.len > 0 && n < max) {
            assert_int_equal(record_decode(rest, &out[n]), OK);
            rest = bytes_from(rest, out[n++].size);
        }
    }
    return n;
}

/* A look at the table, as a verb would. */
static inline bool rig_topic(struct rig *rig, const char *name, struct topic_settings *out)
{
    room_enter(&rig->broker->room);
    const struct topic *topic = topic_find(rig->broker, bytes_str(name));
    if (topic && out)
        *out = topic->set;
    room_leave(&rig->broker->room);
    return topic != NULL;
}

static inline void rig_topic_put(struct rig *rig, const char *name, int32_t queues, int32_t perm)
{
    struct topic_settings set = {bytes_str(name), queues, queues, perm};
    struct topic *made;
    room_enter(&rig->broker->room);
    assert_int_equal(topic_put(rig->broker, &set, &made), OK);
    room_leave(&rig->broker->room);
}

static inline bool rig_group(struct rig *rig, const char *name)
{
    room_enter(&rig->broker->room);
    bool there = group_find(rig->broker, bytes_str(name)) != NULL;
    room_leave(&rig->broker->room);
    return there;
}

static inline void rig_group_put(struct rig *rig, const struct group_settings *set)
{
    struct group *made;
    room_enter(&rig->broker->room);
    assert_int_equal(group_put(rig->broker, set, &made), OK);
    room_leave(&rig->broker->room);
}

static inline int64_t rig_offset(struct rig *rig, const char *group, const char *topic,
                                 int32_t queue_id)
{
    int64_t offset = -1;
    if (broker_offset_query(rig->broker, bytes_str(group), bytes_str(topic), queue_id, false,
                            &offset, NULL))
        return -1;
    return offset;
}

#endif
