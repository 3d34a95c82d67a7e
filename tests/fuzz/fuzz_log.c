/* Any bytes as the files of the log.
 *
 * They are looked at as recovery and dispatch do, and as somebody who only looks, then a store
 * opens a folder with nothing but them. Whatever it takes for the log, it leaves a folder in which
 * a check finds no damage, and a second start finds the same. */
#include "memory_store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every sight stays inside the file and takes the walk on. */
static void law_walk(const uint8_t *data, size_t size, uint64_t base)
{
    for (uint64_t at = base; at < base + size;) {
        struct record r;
        enum log_sight sight = log_look(data, base, size, at, &r);
        if (sight == SIGHT_BLANK)
            return;
        if (sight != SIGHT_RECORD) {
            at += 4;
            continue;
        }
        invariant(r.position == (int64_t)at);
        invariant(r.size + (uint64_t)RECORD_BLANK_SIZE <= base + size - at);
        invariant(r.body.at >= data);
        invariant(r.props.at + r.props.len <= data + size);
        (void)log_record_whole(data, &r);
        (void)record_has_unit(&r);
        struct marks marks = props_marks(r.props);
        (void)unit_tags(&(struct store_options){0}, &r, &marks);
        at += r.size;
    }
}

static void put_log(struct memory_vfs *m, const uint8_t *data, size_t size)
{
    for (size_t base = 0; base < size; base += LOG_SIZE) {
        char path[PATH_SIZE];
        fileset_path(path, LOG_FOLDER, base);
        memory_put(m, path, bytes_of(data + base, size - base), LOG_SIZE);
    }
    memory_put(m, "abort", BYTES("1"), 1);
}

static uint64_t read_every_queue(struct store *store)
{
    uint64_t count = 0;
    for (struct queue *queue = queue_newest(store); queue; queue = queue->older)
        count += read_all(store, queue);
    return count;
}

static bool on_record(void *user, const struct record *r)
{
    int64_t *next = user;
    invariant(r->position >= *next);
    *next = r->position + r->size;
    return true;
}

static void on_gap(void *user, const struct check_finding *finding)
{
    (void)user;
    invariant(finding->at >= 0 && finding->at < LOG_SIZE);
}

/* Whoever looks gets to the end, and sees each record once. */
static void law_looks(struct memory_vfs *m)
{
    struct look_summary sum;
    int64_t next = 0;
    const struct look_calls calls = {on_record, on_gap, &next};
    const struct look_request all = {.queue_id = -1},
                              one = {.topic = BYTES("T"), .queue_id = 0, .from = 1};
    invariant(store_look(&m->vfs, &all, &calls, &sum, NULL) == OK);
    next = 0;
    invariant(store_look(&m->vfs, &one, &calls, &sum, NULL) == OK);
}

static void law_recovers(const uint8_t *data, size_t size)
{
    struct memory_vfs m;
    struct memory_store s;
    memory_init(&m);
    put_log(&m, data, size);
    if (size > 0)
        law_looks(&m);
    (void)check_damages(&m, false, NULL);
    enum err err = memory_store_open(&s, &m);
    invariant(err == OK || err == ERR_DISK_FULL); /* a queue offset may need a file far out */
    if (!err) {
        bool noted = s.report.note[0] != 0;
        uint64_t end = s.report.log_end, count = read_every_queue(s.store);
        invariant(store_close(s.store, NULL) == OK);
        invariant(noted || check_damages(&m, true, NULL) == 0);

        invariant(memory_store_open(&s, &m) == OK);
        invariant(s.report.clean);
        invariant(s.report.log_end == end);
        invariant(read_every_queue(s.store) == count);
        store_abandon(s.store);
    }
    memory_clear(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    law_walk(data, size, 0);
    law_walk(data, size, 1ull << 40);
    if (size <= (size_t)8 * LOG_SIZE)
        law_recovers(data, size);
    return 0;
}
