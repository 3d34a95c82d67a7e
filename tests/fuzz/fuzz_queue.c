/* Any bytes as the units of a queue, beside a log that is sound.
 *
 * The first byte says which of the queue's files they are (bit 0), whether the folder was closed
 * cleanly (bit 1), and whether the file has its full size (bit 2). After a crash the queues are
 * held against the log, so every message is there, whatever the units said. After a clean stop they
 * are trusted: what is read may be wrong, but reading ends, and a check finds what it was. */
#include "memory_store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct memory_vfs sound;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (sound.n == 0)
        memory_store_fill(&sound);
    if (size == 0)
        return 0;
    struct memory_vfs m;
    memory_copy(&sound, &m);
    char path[PATH_SIZE];
    fileset_path(path, QUEUE_FOLDER "/T/0", data[0] & 1 ? QUEUE_SIZE : 0);
    struct bytes units = bytes_of(data + 1, size - 1);
    size_t wanted = data[0] & 4 && units.len < QUEUE_SIZE ? units.len : QUEUE_SIZE;
    memory_put(&m, path, units, wanted);
    bool crashed = !(data[0] & 2);
    if (crashed) {
        memory_put(&m, "abort", BYTES("1"), 1);
        invariant(memory_remove(&m.vfs, "checkpoint", NULL) == OK);
    }
    uint64_t records, damages = check_damages(&m, false, &records);
    invariant(records == MESSAGES);

    struct memory_store s;
    enum err err = memory_store_open(&s, &m);
    invariant(err == OK);
    struct queue *queue = store_queue_find(s.store, BYTES("T"), 0);
    invariant(queue);
    (void)read_all(s.store, queue);
    (void)queue_search_time(s.store, queue, 1700000005000);
    (void)queue_store_time(s.store, queue, 7);
    if (crashed || damages == 0) {
        law_all_there(&s);
        invariant(store_close(s.store, NULL) == OK);
        invariant(check_damages(&m, true, NULL) == 0);
    } else {
        store_abandon(s.store);
    }
    memory_clear(&m);
    return 0;
}
