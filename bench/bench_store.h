/* bench_store.h - what the parts of the store's bench share: a store in a folder of its own with
 * the threads that the daemon gives it, messages of 1 KiB, and verdicts.
 *
 * Each part runs in a process of its own, so that none finds the memory of another; the folder of
 * all goes when the last has ended, however it ended.
 */
#ifndef BENCH_STORE_H
#define BENCH_STORE_H

#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>

#define BODY_SIZE         1024u
#define BATCH             32u
#define QUEUES            8 /* what a topic gets that is created by sending to it */
#define KEY_DIGITS        32u
#define KEY_NUMBER_DIGITS 8u
#define PATH_ROOM         512

void must(bool fine, const char *what);
void must_ok(enum err err, const struct fault *why, const char *what);
uint64_t now_ns(void);
double median(double *values, size_t n); /* sorts them */
/* Prints it with PASS or MISS and remembers a miss. */
void judge(bool pass, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool all_passed(void);

/* Ends when the work is done, or with the process that started it. True: it returned true. */
bool in_process(bool (*work)(void *arg), void *arg);
/* Below $TMPDIR, or where we are: the build folder. Removes everything afterwards. */
bool in_folder(bool (*work)(const char *folder));
void path_in(char out[PATH_ROOM], const char *folder, const char *name);
void remove_all(const char *path);
void disk_settle(const char *folder); /* what was written is on disk: it disturbs nobody any more */

struct rig {
    struct vfs *disk;
    struct vfs_calls without_sync;
    struct store_options options;
    struct store *store;
    struct store_report report;
    pthread_t flusher, keeper;
    atomic_bool stopping;
};

/* The options are the daemon's defaults and may be changed before opening. */
void rig_init(struct rig *rig, const char *folder);
void rig_no_sync(struct rig *rig); /* for building only: nothing waits for the disk */
void rig_open(struct rig *rig);
void rig_start(struct rig *rig); /* flusher and keeper */
void rig_stop(struct rig *rig);
void rig_close(struct rig *rig);
void rig_clear(struct rig *rig); /* the folder stays */

/* Messages on their way in, all different, over and over with new keys. */
struct batch {
    struct rig *rig;
    uint32_t key; /* number of the next one */
    struct draft drafts[BATCH];
    struct stored stored[BATCH];
    uint64_t end;
    uint8_t bodies[BATCH][BODY_SIZE];
    uint8_t props[BATCH][64];
    struct arrival news[ARRIVALS_MAX];
};

/* `who` makes the keys of one batch differ from those of another. */
void batch_init(struct batch *b, struct rig *rig, const char *topic, int queues, uint32_t who);
/* What a door does for n messages: their CRCs, one append, dispatch. */
void batch_send(struct batch *b, size_t n);
void batch_append(struct batch *b, size_t n); /* the same without dispatch */
void batch_dispatch(struct batch *b);
/* Appends until the log has so many bytes. */
void batch_fill(struct batch *b, uint64_t bytes);
/* The last digits of a key: few, because the bare loop writes them, too. */
void key_number(uint8_t key[KEY_DIGITS], uint32_t number);

/* The parts. */
bool bench_append(void *folder);
bool bench_sync(void *folder);
bool bench_read(void *folder);
bool bench_open(void *folder);
bool bench_crash(void *folder);
bool bench_queues(void *folder);

#endif
