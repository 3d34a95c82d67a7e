/* pile.c - sorting beyond memory: sorted runs in a file, and a heap that merges them. */
#include "cli/pile.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_LEAST 4096

/* A sorted part of the file. */
struct run {
    uint64_t at, end;    /* bytes of the file that are not in the buffer yet */
    uint8_t *buffer;     /* whole things */
    size_t next, filled; /* bytes of it: the first thing; how far it goes */
};

struct pile {
    size_t size, room; /* of a thing; how many are held in memory */
    uint8_t *things;
    size_t n, taken; /* in memory */
    uint64_t count;
    int file;
    uint64_t written;
    struct run *runs;
    size_t n_runs;
    uint8_t *buffers;
    size_t buffer_size; /* of each run, while they are merged */
    struct run **heap;  /* the run with the least thing on top */
    size_t n_heap;
    bool moved; /* the top's thing was given out */
};

enum err pile_open(size_t size, size_t memory, struct pile **out)
{
    invariant(size > 0 && size <= PILE_SIZE_MAX);
    struct pile *p = calloc(1, sizeof *p);
    if (!p)
        return ERR_NO_MEMORY;
    p->size = size;
    p->room = memory / size > 16 ? memory / size : 16;
    p->file = -1;
    p->things = malloc(p->room * size);
    if (!p->things) {
        pile_close(p);
        return ERR_NO_MEMORY;
    }
    *out = p;
    return OK;
}

void pile_close(struct pile *p)
{
    if (!p)
        return;
    if (p->file >= 0)
        (void)close(p->file);
    free(p->things);
    free(p->runs);
    free(p->buffers);
    free(p->heap);
    free(p);
}

uint64_t pile_count(const struct pile *p)
{
    return p->count;
}

static int by_bytes(const void *a, const void *b, void *size)
{
    return memcmp(a, b, *(size_t *)size);
}

/* ---- putting on ---- */

static enum err file_open(struct pile *p, struct fault *why)
{
    char name[4096];
    const char *folder = getenv("TMPDIR");
    int len = snprintf(name, sizeof name, "%s/oncemq-XXXXXX", folder && *folder ? folder : "/tmp");
    if (len < 0 || (size_t)len >= sizeof name)
        return fault_set(why, ERR_INVALID, "TMPDIR is too long");
    p->file = mkostemp(name, O_CLOEXEC);
    if (p->file < 0)
        return fault_os(why, "cannot make a file for sorting: %s", name);
    (void)unlink(name);
    return OK;
}

static enum err write_whole(struct pile *p, const uint8_t *at, size_t len, struct fault *why)
{
    while (len > 0) {
        ssize_t n = pwrite(p->file, at, len, (off_t)p->written);
        if (n <= 0)
            return fault_os(why, "cannot write what is being sorted (TMPDIR says where)");
        at += n;
        len -= (size_t)n;
        p->written += (size_t)n;
    }
    return OK;
}

static enum err run_write(struct pile *p, struct fault *why)
{
    if (p->file < 0) {
        enum err err = file_open(p, why);
        if (err)
            return err;
    }
    struct run *runs = realloc(p->runs, (p->n_runs + 1) * sizeof *runs);
    if (!runs)
        return fault_set(why, ERR_NO_MEMORY, "no memory to sort");
    p->runs = runs;
    qsort_r(p->things, p->n, p->size, by_bytes, &p->size);
    uint64_t at = p->written;
    enum err err = write_whole(p, p->things, p->n * p->size, why);
    if (err)
        return err;
    runs[p->n_runs++] = (struct run){.at = at, .end = p->written};
    p->n = 0;
    return OK;
}

enum err pile_add(struct pile *p, const void *thing, struct fault *why)
{
    if (p->n == p->room) {
        enum err err = run_write(p, why);
        if (err)
            return err;
    }
    memcpy(p->things + p->n++ * p->size, thing, p->size);
    p->count++;
    return OK;
}

/* ---- taking off ---- */

static enum err run_fill(struct pile *p, struct run *run, struct fault *why)
{
    uint64_t left = run->end - run->at;
    size_t want = left < p->buffer_size ? (size_t)left : p->buffer_size, got = 0;
    while (got < want) {
        ssize_t n = pread(p->file, run->buffer + got, want - got, (off_t)run->at);
        if (n <= 0)
            return fault_os(why, "cannot read back what is being sorted");
        got += (size_t)n;
        run->at += (size_t)n;
    }
    run->next = 0;
    run->filled = want;
    return OK;
}

static bool comes_first(const struct pile *p, const struct run *a, const struct run *b)
{
    return memcmp(a->buffer + a->next, b->buffer + b->next, p->size) < 0;
}

static void heap_sink(struct pile *p, size_t at)
{
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < p->n_heap; child++)
            if (comes_first(p, p->heap[child], p->heap[least]))
                least = child;
        if (least == at)
            return;
        struct run *swap = p->heap[at];
        p->heap[at] = p->heap[least];
        p->heap[least] = swap;
        at = least;
    }
}

static enum err merge_begin(struct pile *p, struct fault *why)
{
    size_t each = p->room * p->size / p->n_runs;
    each = each > BUFFER_LEAST ? each : BUFFER_LEAST;
    p->buffer_size = each / p->size * p->size;
    free(p->things); /* its memory is the buffers' now */
    p->things = NULL;
    p->buffers = malloc(p->n_runs * p->buffer_size);
    p->heap = malloc(p->n_runs * sizeof(struct run *));
    if (!p->buffers || !p->heap)
        return fault_set(why, ERR_NO_MEMORY, "no memory to sort");
    for (size_t i = 0; i < p->n_runs; i++) {
        struct run *run = &p->runs[i];
        run->buffer = p->buffers + i * p->buffer_size;
        enum err err = run_fill(p, run, why);
        if (err)
            return err;
        p->heap[p->n_heap++] = run;
    }
    for (size_t i = p->n_heap; i-- > 0;)
        heap_sink(p, i);
    return OK;
}

enum err pile_sort(struct pile *p, struct fault *why)
{
    if (p->n_runs == 0) {
        qsort_r(p->things, p->n, p->size, by_bytes, &p->size);
        return OK;
    }
    enum err err = p->n > 0 ? run_write(p, why) : OK;
    return err ? err : merge_begin(p, why);
}

/* The thing on top was given out: the run's next one takes its place. */
static enum err top_move(struct pile *p, struct fault *why)
{
    struct run *top = p->heap[0];
    top->next += p->size;
    if (top->next == top->filled && top->at < top->end) {
        enum err err = run_fill(p, top, why);
        if (err)
            return err;
    } else if (top->next == top->filled) {
        p->heap[0] = p->heap[--p->n_heap];
    }
    heap_sink(p, 0);
    return OK;
}

enum err pile_next(struct pile *p, const void **out, struct fault *why)
{
    *out = NULL;
    if (p->n_runs == 0) {
        if (p->taken < p->n)
            *out = p->things + p->taken++ * p->size;
        return OK;
    }
    if (p->moved) {
        enum err err = top_move(p, why);
        if (err)
            return err;
    }
    p->moved = p->n_heap > 0;
    if (p->n_heap > 0)
        *out = p->heap[0]->buffer + p->heap[0]->next;
    return OK;
}
