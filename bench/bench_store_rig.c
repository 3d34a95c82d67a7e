/* bench_store_rig.c - folder, store, messages and verdicts of the store's bench. */
#include "bench_store.h"

#include "base/crc32.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KEEP_TURN_MS 100 /* as in the daemon */

static bool missed;

void must(bool fine, const char *what)
{
    if (fine)
        return;
    perror(what);
    _exit(2);
}

void must_ok(enum err err, const struct fault *why, const char *what)
{
    if (!err)
        return;
    (void)fprintf(stderr, "%s: %s %s\n", what, err_text(err), why ? why->text : "");
    _exit(2);
}

uint64_t now_ns(void)
{
    return clock_ns(clock_system());
}

static int by_size(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_size);
    return values[n / 2];
}

void judge(bool pass, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("store: ");
    (void)vprintf(format, args);
    printf(" %s\n", pass ? "PASS" : "MISS");
    va_end(args);
    missed = missed || !pass;
}

bool all_passed(void)
{
    return !missed;
}

/* ---- processes and folders ---- */

static pid_t process_start(bool (*work)(void *arg), void *arg)
{
    (void)fflush(stdout);
    pid_t parent = getpid(), pid = fork();
    must(pid >= 0, "fork");
    if (pid > 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(2);
    bool good = work(arg);
    (void)fflush(stdout);
    _exit(good ? 0 : 1);
}

static bool process_end(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        must(errno == EINTR, "waitpid");
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool in_process(bool (*work)(void *arg), void *arg)
{
    return process_end(process_start(work, arg));
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *where)
{
    (void)remove(path);
    return 0;
}

void remove_all(const char *path)
{
    (void)nftw(path, remove_one, 64, FTW_DEPTH | FTW_PHYS);
}

static volatile sig_atomic_t worker; /* its process, for the signals below */

static void stop_worker(int signal)
{
    if (worker)
        (void)kill((pid_t)worker, SIGKILL);
}

struct folder_work {
    bool (*work)(const char *folder);
    const char *folder;
};

static bool run_in_folder(void *arg)
{
    const struct folder_work *w = arg;
    return w->work(w->folder);
}

bool in_folder(bool (*work)(const char *folder))
{
    const char *tmp = getenv("TMPDIR");
    char folder[PATH_ROOM];
    (void)snprintf(folder, sizeof folder, "%s/bench-store-XXXXXX", tmp ? tmp : ".");
    must(mkdtemp(folder) != NULL, "making a folder");

    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* so that we see the end of everybody below us */
    struct folder_work w = {work, folder};
    worker = process_start(run_in_folder, &w);
    const struct sigaction stop = {.sa_handler = stop_worker};
    (void)sigaction(SIGINT, &stop, NULL);
    (void)sigaction(SIGTERM, &stop, NULL);
    bool good = process_end((pid_t)worker);
    worker = 0;
    while (wait(NULL) >= 0 || errno == EINTR)
        ;
    remove_all(folder);
    return good;
}

void path_in(char out[PATH_ROOM], const char *folder, const char *name)
{
    int len = snprintf(out, PATH_ROOM, "%s/%s", folder, name);
    must(len > 0 && len < PATH_ROOM, "the path is too long");
}

void disk_settle(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(fd >= 0 && syncfs(fd) == 0, "syncfs");
    (void)close(fd);
}

/* ---- the store ---- */

void rig_init(struct rig *rig, const char *folder)
{
    struct fault why = {0};
    memset(rig, 0, sizeof *rig);
    must_ok(vfs_posix_open(folder, &rig->disk, &why), &why, "folder");
    rig->options = (struct store_options){
        .vfs = rig->disk,
        .clock = clock_system(),
        .log_file_size = 1u << 30,
        .queue_file_size = 6000000,
        .flush_interval_ms = 500,
        .flush_least_pages = 4,
        .flush_thorough_interval_ms = 10000,
        .queue_flush_interval_ms = 1000,
        .max_record_size = (4u << 20) + (64u << 10),
        .retention = {.reserved_ms = 72 * 3600 * 1000,
                      .delete_hours = 1u << 4,
                      .disk_max_used = 75,
                      .disk_forced = 85,
                      .disk_warning = 90},
        .index_slots = 5000000,
        .index_entries = 20000000,
    };
}

static enum err no_sync(struct vfs_file *f, struct fault *why)
{
    return OK;
}

static enum err no_sync_dir(struct vfs *v, const char *path, struct fault *why)
{
    return OK;
}

void rig_no_sync(struct rig *rig)
{
    rig->without_sync = *rig->disk->calls;
    rig->without_sync.sync = no_sync;
    rig->without_sync.sync_dir = no_sync_dir;
    rig->disk->calls = &rig->without_sync;
}

void rig_open(struct rig *rig)
{
    struct fault why = {0};
    must_ok(store_open(&rig->options, &rig->store, &rig->report, &why), &why, "opening");
}

static void *flusher_run(void *arg)
{
    struct rig *rig = arg;
    struct arrival news[ARRIVALS_MAX];
    while (!atomic_load(&rig->stopping)) {
        int pause_ms = store_flush_turn(rig->store);
        while (store_dispatch_turn(rig->store, news) > 0)
            ;
        if (!atomic_load(&rig->stopping))
            store_flush_wait(rig->store, pause_ms);
    }
    (void)store_flush_turn(rig->store);
    return NULL;
}

static void *keeper_run(void *arg)
{
    struct rig *rig = arg;
    while (!atomic_load(&rig->stopping)) {
        store_keep_turn(rig->store);
        (void)usleep(KEEP_TURN_MS * 1000);
    }
    return NULL;
}

void rig_start(struct rig *rig)
{
    atomic_store(&rig->stopping, false);
    must(pthread_create(&rig->flusher, NULL, flusher_run, rig) == 0, "thread");
    must(pthread_create(&rig->keeper, NULL, keeper_run, rig) == 0, "thread");
}

void rig_stop(struct rig *rig)
{
    atomic_store(&rig->stopping, true);
    store_flush_wake(rig->store);
    (void)pthread_join(rig->flusher, NULL);
    (void)pthread_join(rig->keeper, NULL);
}

void rig_close(struct rig *rig)
{
    struct fault why = {0};
    must_ok(store_close(take(&rig->store), &why), &why, "closing");
}

void rig_clear(struct rig *rig)
{
    rig->disk->calls->dispose(rig->disk);
}

/* ---- messages ---- */

void key_number(uint8_t key[KEY_DIGITS], uint32_t number)
{
    static const char digits[] = "0123456789ABCDEF";
    for (unsigned i = 1; i <= KEY_NUMBER_DIGITS; i++, number >>= 4)
        key[KEY_DIGITS - i] = (uint8_t)digits[number & 15];
}

#define PROPS_HEAD "UNIQ_KEY\1"
#define PROPS_TAIL "\2WAIT\1true\2TAGS\1TagA\2"

void batch_init(struct batch *b, struct rig *rig, const char *topic, int queues, uint32_t who)
{
    memset(b, 0, sizeof *b);
    b->rig = rig;
    b->key = who << 28;
    for (size_t i = 0; i < BATCH; i++) {
        for (size_t k = 0; k < BODY_SIZE; k++)
            b->bodies[i][k] = (uint8_t)((i + 1) * (k + 7) * 2654435761u >> 24);
        struct wr w = wr_over(b->props[i], sizeof b->props[i]);
        wr_bytes_of(&w, BYTES(PROPS_HEAD));
        wr_bytes_of(&w, BYTES("0A000001123443210000000000000000"));
        wr_bytes_of(&w, BYTES(PROPS_TAIL));
        must(!w.full, "properties");
        struct draft *d = &b->drafts[i];
        *d = (struct draft){
            .topic = bytes_str(topic),
            .queue_id = (int32_t)(i % (size_t)queues),
            .body = bytes_of(b->bodies[i], BODY_SIZE),
            .props = wr_bytes(&w),
            .born_ms = 1700000000000,
            .born_host = {.ip = {10, 0, 0, 1}, .ip_len = 4, .port = 1234},
            .store_host = {.ip = {10, 0, 0, 2}, .ip_len = 4, .port = 10911},
        };
        d->queue = store_queue(rig->store, d->topic, d->queue_id);
        must(d->queue != NULL, "queue");
    }
}

void batch_append(struct batch *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        key_number(b->props[i] + sizeof PROPS_HEAD - 1, b->key++);
        b->drafts[i].body_crc = crc32_positive(b->drafts[i].body);
    }
    must_ok(store_append(b->rig->store, b->drafts, n, b->stored, &b->end), NULL, "append");
}

void batch_dispatch(struct batch *b)
{
    while (store_dispatch_turn(b->rig->store, b->news) > 0)
        ;
}

void batch_send(struct batch *b, size_t n)
{
    batch_append(b, n);
    batch_dispatch(b);
}

void batch_fill(struct batch *b, uint64_t bytes)
{
    while (b->end < bytes)
        batch_send(b, BATCH);
}
