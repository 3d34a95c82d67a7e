/* Any bytes as the file `checkpoint`, beside a log and queues that are sound.
 *
 * What is read can be written and is then read as the same. Whatever it claims, every message is
 * there, after a clean stop and after a crash. */
#include "memory_store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct memory_vfs sound;

static void law_round_trip(struct memory_vfs *m)
{
    struct checkpoint c, again;
    invariant(checkpoint_read(&m->vfs, &c, NULL) == OK);
    (void)checkpoint_start_ms(&c);
    (void)checkpoint_has(&c, 1700000000000);
    invariant(checkpoint_write(&m->vfs, &c, NULL) == OK);
    invariant(checkpoint_read(&m->vfs, &again, NULL) == OK);
    invariant(again.log_ms == c.log_ms && again.queues_ms == c.queues_ms);
    invariant(again.index_ms == c.index_ms && again.master_flushed == c.master_flushed);
    invariant(again.confirmed == c.confirmed && again.sealed == c.sealed);
    if (c.sealed) {
        invariant(again.sealed_first == c.sealed_first && again.sealed_end == c.sealed_end);
        invariant(again.sealed_units == c.sealed_units);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (sound.n == 0)
        memory_store_fill(&sound);
    for (int crashed = 0; crashed < 2; crashed++) {
        struct memory_vfs m;
        struct memory_store s;
        memory_copy(&sound, &m);
        memory_put(&m, "checkpoint", bytes_of(data, size), size);
        if (crashed)
            memory_put(&m, "abort", BYTES("1"), 1);
        (void)check_damages(&m, false, NULL);
        enum err err = memory_store_open(&s, &m);
        if (err) { /* a seal, which is under a checksum, is believed when it says that the log went
                      on */
            struct checkpoint c;
            invariant(err == ERR_DAMAGED && !crashed);
            invariant(checkpoint_read(&m.vfs, &c, NULL) == OK && c.sealed);
            memory_clear(&m);
            continue;
        }
        law_all_there(&s);
        invariant(store_close(s.store, NULL) == OK);
        uint64_t written;
        invariant(vfs_file_size(&m.vfs, "checkpoint", &written, NULL) == OK);
        invariant(written == CHECKPOINT_SIZE); /* whatever there was, it can be read again */
        invariant(check_damages(&m, true, NULL) == 0);
        memory_put(&m, "checkpoint", bytes_of(data, size), size);
        law_round_trip(&m);
        memory_clear(&m);
    }
    return 0;
}
