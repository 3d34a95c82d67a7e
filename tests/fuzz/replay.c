/* replay.c - a fuzz target as an ordinary test.
 *
 *     replay_X NAME CORPUS_FOLDER
 *
 * Linked with fuzz_X.c in place of libFuzzer. Feeds every file of the corpus to the target, then
 * mutations of them drawn from a seed: the same seed gives the same row of inputs, which is cut
 * short only by the clock. FUZZ_SEED, FUZZ_RUNS and FUZZ_MS change the seed and the limits.
 *
 * Every input sits in its own exact allocation, so the address sanitizer sees a read one byte too
 * far. When the target dies, the input that did it is written to crash-NAME in the current folder.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INPUT_MAX  65536
#define CORPUS_MAX 4096
#define RUNS       20000
#define LIMIT_MS   2000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Only in sanitizer builds. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

struct input {
    uint8_t *at;
    size_t len;
};

static struct input corpus[CORPUS_MAX];
static size_t n_corpus;
static const char *target;
static char crash_path[128];
static struct input current;    /* what the target is looking at */
static uint8_t work[INPUT_MAX]; /* the mutation being made */
static uint64_t chance;

static void corpus_load(const char *folder);
static void input_run(const uint8_t *at, size_t len);
static size_t input_mutate(void);
static void watch_for_death(void);
static uint64_t setting(const char *name, uint64_t otherwise);
static uint64_t now_ms(void);

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s NAME CORPUS_FOLDER\n", argv[0]);
        return 2;
    }
    target = argv[1];
    snprintf(crash_path, sizeof crash_path, "crash-%s", target);
    uint64_t seed = setting("FUZZ_SEED", 1);
    uint64_t runs = setting("FUZZ_RUNS", RUNS);
    uint64_t limit_ms = setting("FUZZ_MS", LIMIT_MS);
    chance = seed * 0x9e3779b97f4a7c15u + 1;

    printf("1..1\n# seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    watch_for_death();
    corpus_load(argv[2]);

    input_run(work, 0);
    for (size_t i = 0; i < n_corpus; i++)
        input_run(corpus[i].at, corpus[i].len);

    uint64_t done = 0;
    for (uint64_t end_ms = now_ms() + limit_ms; done < runs; done++) {
        if (done % 64 == 0 && now_ms() >= end_ms)
            break;
        input_run(work, input_mutate());
    }

    printf("ok 1 - fuzz %s: corpus of %zu files and %llu mutations\n", target, n_corpus,
           (unsigned long long)done);
    for (size_t i = 0; i < n_corpus; i++)
        free(corpus[i].at);
    return 0;
}

/* ---- running ---- */

static void input_run(const uint8_t *at, size_t len)
{
    uint8_t *exact = malloc(len ? len : 1);
    if (!exact)
        abort();
    if (len)
        memcpy(exact, at, len);
    current = (struct input){exact, len};
    LLVMFuzzerTestOneInput(exact, len);
    current = (struct input){0};
    free(exact);
}

/* Called by the sanitizer or by a signal: plain system calls only. */
static void input_save(void)
{
    static const char saved[] = "The input that does it is in the current folder: crash-";
    if (!current.at)
        return;
    int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd >= 0 && write(fd, current.at, current.len) == (ssize_t)current.len) {
        (void)!write(STDERR_FILENO, saved, sizeof saved - 1);
        (void)!write(STDERR_FILENO, target, strlen(target));
        (void)!write(STDERR_FILENO, "\n", 1);
    }
    current = (struct input){0};
}

static void died(int sig)
{
    input_save();
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

static void watch_for_death(void)
{
    (void)signal(SIGABRT, died); /* a broken invariant */
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(input_save);
    } else {
        (void)signal(SIGSEGV, died);
        (void)signal(SIGBUS, died);
        (void)signal(SIGFPE, died);
    }
}

/* ---- the corpus ---- */

static int is_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool file_read(const char *folder, const char *name, struct input *out)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        return false;
    size_t len = fread(work, 1, sizeof work, file);
    (void)fclose(file);
    out->at = malloc(len ? len : 1);
    if (!out->at)
        return false;
    memcpy(out->at, work, len);
    out->len = len;
    return true;
}

/* Sorted by name, so that a seed means the same everywhere. No folder is an empty corpus. */
static void corpus_load(const char *folder)
{
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, is_file, alphasort);
    for (int i = 0; i < n; i++) {
        if (n_corpus < CORPUS_MAX && file_read(folder, entries[i]->d_name, &corpus[n_corpus]))
            n_corpus++;
        free(entries[i]);
    }
    free(entries);
}

/* ---- mutating ---- */

static size_t pick(size_t below) /* 0 … below - 1; 0 for 0 */
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return below ? (size_t)((chance * 0x2545f4914f6cdd1du >> 16) % below) : 0;
}

static size_t bit_flip(size_t len)
{
    if (len)
        work[pick(len)] ^= (uint8_t)(1u << pick(8));
    return len;
}

static size_t byte_set(size_t len)
{
    static const uint8_t edges[] = {0x00, 0x01, 0x7f, 0x80, 0xff, '"',
                                    '{',  '}',  ',',  ':',  '\\', '0'};
    if (len)
        work[pick(len)] = pick(2) ? edges[pick(sizeof edges)] : (uint8_t)pick(256);
    return len;
}

/* A length that lies: four bytes at once. */
static size_t number_set(size_t len)
{
    static const uint32_t edges[] = {0,          1,          0x7fffffff, 0x80000000,
                                     0xffffffff, 0x01000000, 0x00010000};
    if (len >= 4) {
        uint32_t v = edges[pick(sizeof edges / sizeof *edges)];
        memcpy(work + pick(len - 3), &v, sizeof v);
    }
    return len;
}

static size_t truncate_tail(size_t len)
{
    return pick(len + 1);
}

static size_t insert_bytes(size_t len)
{
    size_t n = 1 + pick(16), at = pick(len + 1);
    if (len + n > INPUT_MAX)
        return len;
    memmove(work + at + n, work + at, len - at);
    for (size_t i = 0; i < n; i++)
        work[at + i] = (uint8_t)pick(256);
    return len + n;
}

static size_t erase_bytes(size_t len)
{
    size_t at = pick(len), n = pick(len - at + 1);
    memmove(work + at, work + at + n, len - at - n);
    return len - n;
}

static size_t repeat_bytes(size_t len)
{
    size_t at = pick(len), n = pick(len - at + 1);
    if (len + n > INPUT_MAX)
        return len;
    memmove(work + at + n, work + at, len - at);
    return len + n;
}

/* The head of this one, the tail of another. */
static size_t splice_tail(size_t len)
{
    if (!n_corpus)
        return len;
    struct input other = corpus[pick(n_corpus)];
    size_t keep = pick(len + 1), from = pick(other.len + 1), n = other.len - from;
    if (n > INPUT_MAX - keep)
        n = INPUT_MAX - keep;
    memcpy(work + keep, other.at + from, n);
    return keep + n;
}

/* One of the corpus, changed one to four times, in `work`; its length. */
static size_t input_mutate(void)
{
    static size_t (*const ways[])(size_t len) = {bit_flip,      byte_set,     number_set,
                                                 truncate_tail, insert_bytes, erase_bytes,
                                                 repeat_bytes,  splice_tail};
    size_t len = 0;
    if (n_corpus) {
        struct input from = corpus[pick(n_corpus)];
        len = from.len;
        memcpy(work, from.at, len);
    } else {
        len = insert_bytes(0);
    }
    for (size_t n = 1 + pick(4); n > 0; n--)
        len = ways[pick(sizeof ways / sizeof *ways)](len);
    return len;
}

/* ---- small things ---- */

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}
