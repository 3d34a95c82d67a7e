/* bench_store - the store against what the machine can do at all, in one run.
 *
 * Append: messages of 1 KiB with a unique key, by one thread, in batches of 32, with everything the
 * daemon does: CRC, append, dispatch into 8 queues and the index, flusher and keeper beside it. The
 * bare loop copies records of the same size into a mapped file whose blocks are allocated, and
 * computes the same CRC. Both write to pages that are new, since a log never writes elsewhere;
 * what the bare loop does with pages that are there already is shown as well. Two threads that
 * append to one store are compared with one in short rounds of their own.
 *
 * Flush: 8 groups of 32 in flight, each appended again as soon as it is confirmed. The bare loop
 * writes 256 records at the end of a file and calls fdatasync. What counts is a store that has been
 * at it for a while: its log files were filled with zeros while the ones before them were written,
 * and the zeros for the next are written in the same rounds. That the first file after a start was
 * not is shown as well.
 *
 * Read: batches of 32 from one queue. The bare loop walks the same log in a mapping of its own from
 * size to size and adds up the first eight bytes of each record: one cache line of each, which is
 * also what a read has to touch, because it compares the unit with its record.
 *
 * The rest is in bench_store_big.c. Rounds alternate, each round of ours is compared with the bare
 * one beside it, and medians count.
 */
#include "bench_store.h"

#include "base/crc32.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- append ---- */

#define APPEND_ROUNDS   11
#define APPEND_MESSAGES 65536u /* a round; 77 MiB */
#define APPEND_PERCENT  60
#define TWO_ROUNDS      31
#define TWO_MESSAGES    32768u
#define TWO_PERCENT     100
#define RECORD_MAX      1280u

struct bare_file {
    int fd;
    uint8_t *map;
    size_t size;
};

static void bare_make(struct bare_file *f, const char *folder, size_t size)
{
    char path[PATH_ROOM];
    path_in(path, folder, "bare");
    f->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(f->fd >= 0 && unlink(path) == 0, "bare file");
    must(posix_fallocate(f->fd, 0, (off_t)size) == 0, "bare file");
    f->size = size;
    f->map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
    must(f->map != MAP_FAILED, "mapping the bare file");
}

static void bare_drop(struct bare_file *f)
{
    (void)munmap(f->map, f->size);
    (void)close(f->fd);
}

/* Messages a second: of time, and of the one thread's processor time. */
struct pace {
    double wall, cpu;
};

static uint64_t cpu_ns(void)
{
    struct timespec t;
    must(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0, "clock_gettime");
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* `b` has sent before, so it knows how long a record is. */
static struct pace bare_append(struct bare_file *f, const struct batch *b)
{
    static uint8_t records[BATCH][RECORD_MAX];
    size_t size = b->stored[0].size;
    must(size <= RECORD_MAX, "size of a record");
    for (size_t i = 0; i < BATCH; i++)
        memcpy(records[i] + size - BODY_SIZE, b->bodies[i], BODY_SIZE);

    uint32_t sum = 0;
    uint8_t *at = f->map;
    uint64_t start = now_ns(), cpu = cpu_ns();
    for (uint64_t n = 0; n < APPEND_MESSAGES; n++) {
        uint8_t *record = records[n % BATCH];
        key_number(record, (uint32_t)n);
        sum += crc32_of(bytes_of(record + size - BODY_SIZE, BODY_SIZE));
        memcpy(at, record, size);
        at += size;
    }
    cpu = cpu_ns() - cpu;
    uint64_t spent = now_ns() - start;
    must(sum != 0, "sum");
    return (struct pace){APPEND_MESSAGES * 1e9 / (double)spent,
                         APPEND_MESSAGES * 1e9 / (double)cpu};
}

struct appender {
    struct batch batch;
    pthread_t thread;
    size_t messages, at_once;
    uint64_t cpu;
    pthread_barrier_t *gate;
};

static void *appender_run(void *arg)
{
    struct appender *a = arg;
    (void)pthread_barrier_wait(a->gate);
    a->cpu = cpu_ns();
    for (size_t done = 0; done < a->messages; done += a->at_once)
        batch_send(&a->batch, a->at_once);
    a->cpu = cpu_ns() - a->cpu;
    return NULL;
}

/* By so many threads. */
static struct pace ours_append(struct appender *a, unsigned threads, size_t messages,
                               size_t at_once)
{
    pthread_barrier_t gate;
    must(pthread_barrier_init(&gate, NULL, threads + 1) == 0, "barrier");
    for (unsigned i = 0; i < threads; i++) {
        a[i].messages = messages / threads;
        a[i].at_once = at_once;
        a[i].gate = &gate;
        must(pthread_create(&a[i].thread, NULL, appender_run, &a[i]) == 0, "thread");
    }
    (void)pthread_barrier_wait(&gate);
    uint64_t start = now_ns();
    uint64_t cpu = 0;
    for (unsigned i = 0; i < threads; i++) {
        (void)pthread_join(a[i].thread, NULL);
        cpu += a[i].cpu;
    }
    uint64_t spent = now_ns() - start;
    (void)pthread_barrier_destroy(&gate);
    double billions = (double)messages * 1e9;
    return (struct pace){billions / (double)spent, billions / (double)cpu};
}

enum append_way { WAY_FRESH, WAY_WARM, WAY_BATCH, WAY_SINGLE, WAYS };

static void append_round(const char *folder, struct appender *two, struct pace pace[WAYS])
{
    struct bare_file file;
    bare_make(&file, folder, (size_t)APPEND_MESSAGES * RECORD_MAX);
    disk_settle(folder);
    pace[WAY_FRESH] = bare_append(&file, &two[0].batch);
    pace[WAY_WARM] = bare_append(&file, &two[0].batch);
    bare_drop(&file);
    disk_settle(folder);
    pace[WAY_BATCH] = ours_append(two, 1, APPEND_MESSAGES, BATCH);
    disk_settle(folder);
    pace[WAY_SINGLE] = ours_append(two, 1, APPEND_MESSAGES / 4, 1);
}

/* Medians of what each round of ours reached of the bare one, in percent. */
static struct pace percent_of(struct pace paces[][WAYS], enum append_way ours, enum append_way bare)
{
    double wall[APPEND_ROUNDS], cpu[APPEND_ROUNDS];
    for (int i = 0; i < APPEND_ROUNDS; i++) {
        wall[i] = 100 * paces[i][ours].wall / paces[i][bare].wall;
        cpu[i] = 100 * paces[i][ours].cpu / paces[i][bare].cpu;
    }
    return (struct pace){median(wall, APPEND_ROUNDS), median(cpu, APPEND_ROUNDS)};
}

static void append_tell(struct pace paces[][WAYS])
{
    static const char *const names[WAYS] = {"bare copy and CRC, new pages",
                                            "bare copy and CRC, warm pages", "batches of 32",
                                            "one by one"};
    for (int way = 0; way < WAYS; way++) {
        double wall[APPEND_ROUNDS], cpu[APPEND_ROUNDS];
        for (int i = 0; i < APPEND_ROUNDS; i++) {
            wall[i] = 1e9 / paces[i][way].wall;
            cpu[i] = 1e9 / paces[i][way].cpu;
        }
        double middle = median(wall, APPEND_ROUNDS);
        printf("store: append %-30s %5.0f ns a message (%.0f to %.0f), %.0f ns of CPU\n",
               names[way], middle, wall[0], wall[APPEND_ROUNDS - 1], median(cpu, APPEND_ROUNDS));
    }
    struct pace one = percent_of(paces, WAY_BATCH, WAY_FRESH);
    struct pace warm = percent_of(paces, WAY_BATCH, WAY_WARM);
    printf("store: append of 32: by throughput %.0f %%, by CPU %.0f %%; on warm pages %.0f %%\n",
           one.wall, one.cpu, warm.wall);
    double worse = one.wall < one.cpu ? one.wall : one.cpu;
    judge(worse >= APPEND_PERCENT, "append of 32: %.0f %% of the bare loop (target %d %%)", worse,
          APPEND_PERCENT);
}

/* One thread and two in turn, each first in every other round. */
static void two_measure(const char *folder, struct appender *two)
{
    double percent[TWO_ROUNDS], cpu[TWO_ROUNDS];
    for (unsigned round = 0; round < TWO_ROUNDS; round++) {
        struct pace pace[2];
        for (unsigned i = 0; i < 2; i++) {
            unsigned second = (round + i) % 2;
            disk_settle(folder);
            pace[second] = ours_append(two, 1 + second, TWO_MESSAGES, BATCH);
        }
        percent[round] = 100 * pace[1].wall / pace[0].wall;
        cpu[round] = 100 * pace[0].cpu / pace[1].cpu;
    }
    double result = median(percent, TWO_ROUNDS);
    printf("store: append by two threads: %.0f to %.0f %% of one (quartiles of %d), %.0f %% of the "
           "CPU a message\n",
           percent[TWO_ROUNDS / 4], percent[TWO_ROUNDS * 3 / 4], TWO_ROUNDS,
           median(cpu, TWO_ROUNDS));
    judge(result >= TWO_PERCENT, "append by two threads: %.0f %% of one (target %d %%)", result,
          TWO_PERCENT);
}

bool bench_append(void *folder)
{
    static struct appender two[2];
    static struct rig rig;
    static struct pace paces[APPEND_ROUNDS][WAYS];
    char inside[PATH_ROOM];
    path_in(inside, folder, "append");
    rig_init(&rig, inside);
    rig_open(&rig);
    rig_start(&rig);
    batch_init(&two[0].batch, &rig, "Bench", QUEUES, 1);
    batch_init(&two[1].batch, &rig, "Bench", QUEUES, 2);
    batch_fill(&two[0].batch, 128u << 20); /* the index's table is touched by then */
    for (int round = 0; round < APPEND_ROUNDS; round++)
        append_round(folder, two, paces[round]);
    append_tell(paces);
    two_measure(folder, two);
    rig_stop(&rig);
    rig_close(&rig);
    rig_clear(&rig);
    remove_all(inside);
    return all_passed();
}

/* ---- synchronous flush ---- */

#define SYNC_ROUNDS  25
#define SYNC_MS      200
#define SYNC_PERCENT 80
#define GROUPS       8u

struct group {
    struct batch batch;
    struct store_wait wait;
    struct link ready; /* in crowd.ready */
    struct crowd *crowd;
};

struct crowd {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct list ready;
    size_t n_ready;
    uint64_t confirmed;
    struct group groups[GROUPS];
};

static void group_done(struct store_wait *wait, enum err err)
{
    struct group *group = list_entry(wait, struct group, wait);
    struct crowd *crowd = group->crowd;
    must_ok(err, NULL, "confirming");
    (void)pthread_mutex_lock(&crowd->lock);
    list_add_tail(&crowd->ready, &group->ready);
    crowd->n_ready++;
    crowd->confirmed += BATCH;
    (void)pthread_cond_signal(&crowd->more);
    (void)pthread_mutex_unlock(&crowd->lock);
}

static void group_send(struct group *group)
{
    batch_append(&group->batch, BATCH);
    group->wait.position = group->batch.end;
    group->wait.done = group_done;
    if (store_await(group->batch.rig->store, &group->wait))
        group_done(&group->wait, OK);
    batch_dispatch(&group->batch); /* of what was confirmed before */
}

/* Waits until `least` groups are ready and takes them all. */
static void crowd_take(struct crowd *crowd, size_t least, struct list *out)
{
    list_init(out);
    (void)pthread_mutex_lock(&crowd->lock);
    while (crowd->n_ready < least)
        (void)pthread_cond_wait(&crowd->more, &crowd->lock);
    list_append_all(out, &crowd->ready);
    crowd->n_ready = 0;
    (void)pthread_mutex_unlock(&crowd->lock);
}

/* Confirmed messages a second. All groups are in `ready` before and after. */
static double ours_sync(struct crowd *crowd)
{
    struct list ready;
    uint64_t start = now_ns(), end = start;
    crowd->confirmed = 0;
    while (end - start < SYNC_MS * 1000000ull) {
        crowd_take(crowd, 1, &ready);
        for (struct link *k; (k = list_pop(&ready)) != NULL;)
            group_send(list_entry(k, struct group, ready));
        end = now_ns();
    }
    (void)pthread_mutex_lock(&crowd->lock);
    uint64_t confirmed = crowd->confirmed;
    end = now_ns();
    (void)pthread_mutex_unlock(&crowd->lock);

    crowd_take(crowd, GROUPS, &ready);
    list_append_all(&crowd->ready, &ready);
    crowd->n_ready = GROUPS;
    return (double)confirmed * 1e9 / (double)(end - start);
}

/* What fdatasync allows: messages a second when each call covers all that can be in flight. */
static double bare_sync(const char *folder, size_t record_size)
{
    static uint8_t bytes[GROUPS * BATCH * RECORD_MAX];
    size_t size = GROUPS * BATCH * record_size;
    char path[PATH_ROOM];
    path_in(path, folder, "bare");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    must(fd >= 0 && unlink(path) == 0, "bare file");
    memset(bytes, 'x', size);
    must(write(fd, bytes, size) == (ssize_t)size && fsync(fd) == 0, "bare file");

    uint64_t start = now_ns(), end = start, n = 0;
    for (; end - start < SYNC_MS * 1000000ull; n++) {
        must(write(fd, bytes, size) == (ssize_t)size && fdatasync(fd) == 0, "bare file");
        end = now_ns();
    }
    (void)close(fd);
    return (double)(n * GROUPS * BATCH) * 1e9 / (double)(end - start);
}

struct sync_rounds {
    double ours[SYNC_ROUNDS], bare[SYNC_ROUNDS], percent[SYNC_ROUNDS];
    int n;
};

/* Rounds until there are enough of them, or the log has reached `end`. */
static void sync_measure(const char *folder, struct crowd *crowd, uint64_t end,
                         struct sync_rounds *out)
{
    const struct batch *batch = &crowd->groups[0].batch;
    for (out->n = 0; out->n < SYNC_ROUNDS && batch->end < end; out->n++) {
        double *ours = &out->ours[out->n], *bare = &out->bare[out->n];
        disk_settle(folder);
        *bare = bare_sync(folder, batch->stored[0].size);
        disk_settle(folder);
        *ours = ours_sync(crowd);
        out->percent[out->n] = 100 * *ours / *bare;
    }
}

static void sync_tell(struct sync_rounds *first, struct sync_rounds *later)
{
    double result = median(later->percent, (size_t)later->n);
    double allowed = median(later->bare, (size_t)later->n);
    printf("store: flush: %.0f fdatasync/s of %u messages allow %.0f messages/s, %.0f reached\n",
           allowed / (GROUPS * BATCH), GROUPS * BATCH, allowed,
           median(later->ours, (size_t)later->n));
    printf("store: flush: %.0f %% in the first file; later %.0f to %.0f %% (quartiles of %d)\n",
           median(first->percent, (size_t)first->n), later->percent[later->n / 4],
           later->percent[later->n * 3 / 4], later->n);
    judge(result >= SYNC_PERCENT, "synchronous flush: %.0f %% of the bare loop (target %d %%)",
          result, SYNC_PERCENT);
}

bool bench_sync(void *folder)
{
    static struct rig rig;
    static struct crowd crowd = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
    static struct sync_rounds first, later;
    char inside[PATH_ROOM];
    path_in(inside, folder, "sync");
    rig_init(&rig, inside);
    rig.options.sync_flush = true;
    rig_open(&rig);
    rig_start(&rig);
    list_init(&crowd.ready);
    for (size_t i = 0; i < GROUPS; i++) {
        struct group *group = &crowd.groups[i];
        group->crowd = &crowd;
        batch_init(&group->batch, &rig, "Bench", QUEUES, (uint32_t)i + 1);
        list_add_tail(&crowd.ready, &group->ready);
        crowd.n_ready++;
    }
    (void)ours_sync(&crowd); /* makes the files, and tells the size of a record */

    uint64_t file = rig.options.log_file_size;
    sync_measure(folder, &crowd, file, &first);
    while (crowd.groups[0].batch.end < file) /* a slow disk */
        (void)ours_sync(&crowd);
    sync_measure(folder, &crowd, UINT64_MAX, &later);
    rig_stop(&rig);
    rig_close(&rig);
    rig_clear(&rig);
    remove_all(inside);

    sync_tell(&first, &later);
    return all_passed();
}

/* ---- read ---- */

#define READ_ROUNDS  15
#define READ_BYTES   (300u << 20) /* more than any cache holds */
#define READ_PERCENT 50

/* Messages a second. */
static double bare_walk(const uint8_t *log, uint64_t end)
{
    uint64_t n = 0, sum = 0, start = now_ns();
    for (uint64_t at = 0; at < end; n++) {
        sum += load_u64(log + at);
        at += load_u32(log + at);
    }
    uint64_t spent = now_ns() - start;
    must(sum != 0, "sum");
    return (double)n * 1e9 / (double)spent;
}

static double ours_read(struct store *store, struct queue *queue)
{
    static struct read_result got;
    struct read_request request = {.max_count = BATCH, .max_bytes = 256u << 10};
    uint64_t n = 0, start = now_ns();
    for (;; request.offset = got.next) {
        store_read(store, queue, &request, &got);
        if (got.status != READ_FOUND)
            break;
        n += got.count;
        for (size_t i = 0; i < got.n_slices; i++)
            counted_drop(got.slices[i].owner);
    }
    uint64_t spent = now_ns() - start;
    must(got.status == READ_AT_END && n == (uint64_t)got.max, "reading");
    return (double)n * 1e9 / (double)spent;
}

bool bench_read(void *folder)
{
    static struct rig rig;
    static struct batch batch;
    char inside[PATH_ROOM], path[PATH_ROOM];
    path_in(inside, folder, "read");
    rig_init(&rig, inside);
    rig_open(&rig);
    batch_init(&batch, &rig, "Bench", 1, 1);
    batch_fill(&batch, READ_BYTES);

    path_in(path, inside, "commitlog/00000000000000000000");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd >= 0, "log");
    const uint8_t *log = mmap(NULL, batch.end, PROT_READ, MAP_SHARED, fd, 0);
    must(log != MAP_FAILED, "mapping the log");
    (void)bare_walk(log, batch.end); /* both mappings have their pages after that */
    (void)ours_read(rig.store, batch.drafts[0].queue);

    double ours[READ_ROUNDS], bare[READ_ROUNDS], percent[READ_ROUNDS];
    for (int round = 0; round < READ_ROUNDS; round++) {
        bare[round] = bare_walk(log, batch.end);
        ours[round] = ours_read(rig.store, batch.drafts[0].queue);
        percent[round] = 100 * ours[round] / bare[round];
    }
    (void)close(fd);
    rig_close(&rig);
    rig_clear(&rig);
    remove_all(inside);

    double result = median(percent, READ_ROUNDS);
    printf("store: read: walk of the log %.1f ns a message, batches of %u through the queue %.1f\n",
           1e9 / median(bare, READ_ROUNDS), BATCH, 1e9 / median(ours, READ_ROUNDS));
    judge(result >= READ_PERCENT, "read: %.0f %% of the bare walk (target %d %%)", result,
          READ_PERCENT);
    return all_passed();
}

/* ---- all ---- */

/* BENCH_PART=read runs one part alone. */
static bool run_all(const char *folder)
{
    static const struct {
        const char *name;
        bool (*run)(void *folder);
    } parts[] = {
        {"append", bench_append}, {"sync", bench_sync},   {"read", bench_read},
        {"open", bench_open},     {"crash", bench_crash}, {"queues", bench_queues},
    };
    const char *only = getenv("BENCH_PART");
    char here[PATH_ROOM];
    memcpy(here, folder, strlen(folder) + 1);
    bool good = true;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (only && strcmp(only, parts[i].name) != 0)
            continue;
        uint64_t start = now_ns();
        good = in_process(parts[i].run, here) && good;
        printf("store: %s took %.1f s\n", parts[i].name, (double)(now_ns() - start) / 1e9);
    }
    return good;
}

int main(void)
{
    return in_folder(run_all) ? 0 : 1;
}
