/* faults.c - brokers to leave out for a while. */
#include "client/parts_int.h"

#include <stdlib.h>

static const struct {
    int64_t took_ms, out_ms;
} steps[] = {{15000, 30000}, {5000, 10000}, {3000, 6000}, {1800, 5000}, {550, 2000}};

static int64_t out_for(int64_t took_ms)
{
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (took_ms >= steps[i].took_ms)
            return steps[i].out_ms;
    return 0;
}

static struct fault_entry *entry_of(const struct faults *f, const char *broker)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->entries[i].broker, broker) == 0)
            return &f->entries[i];
    return NULL;
}

static void entry_remove(struct faults *f, struct fault_entry *e)
{
    free(e->broker);
    *e = f->entries[--f->n];
}

/* A slot for one more: one whose fault is over, a new one, or at the limit that of the fault which
 * ends first. */
static enum err slot_make(struct faults *f, int64_t now_ms)
{
    struct fault_entry *first = NULL;
    for (size_t i = 0; i < f->n; i++) {
        struct fault_entry *e = &f->entries[i];
        if (e->reachable && e->until_ms <= now_ms) {
            entry_remove(f, e);
            return OK;
        }
        if (!first || e->until_ms < first->until_ms)
            first = e;
    }
    if (f->n < f->cap)
        return OK;
    if (f->n == FAULTS_MAX) {
        entry_remove(f, first);
        return OK;
    }
    size_t cap = f->cap ? f->cap * 2 : 8;
    struct fault_entry *grown = realloc(f->entries, cap * sizeof *grown);
    if (!grown)
        return ERR_NO_MEMORY;
    f->entries = grown;
    f->cap = cap;
    return OK;
}

void faults_clear(struct faults *f)
{
    while (f->n > 0)
        entry_remove(f, &f->entries[f->n - 1]);
    free(f->entries);
    *f = (struct faults){0};
}

enum err faults_note(struct faults *f, const char *broker, enum sent how, int64_t took_ms,
                     int64_t now_ms)
{
    int64_t out_ms = out_for(how == SENT ? took_ms : FAULTS_FAILURE_MS);
    bool reachable = how != SENT_UNREACHABLE;
    struct fault_entry *e = entry_of(f, broker);
    if (!e && out_ms == 0 && reachable)
        return OK; /* nearly always */
    if (!e) {
        enum err err = slot_make(f, now_ms);
        char *name = err ? NULL : strdup(broker);
        if (!name)
            return ERR_NO_MEMORY;
        e = &f->entries[f->n++];
        *e = (struct fault_entry){.broker = name, .until_ms = INT64_MIN};
    }
    e->reachable = reachable;
    if (out_ms > 0 && now_ms + out_ms > e->until_ms)
        e->until_ms = now_ms + out_ms;
    return OK;
}

bool faults_slow(const struct faults *f, const char *broker, int64_t now_ms)
{
    const struct fault_entry *e = entry_of(f, broker);
    return e && now_ms < e->until_ms;
}

bool faults_unreachable(const struct faults *f, const char *broker)
{
    const struct fault_entry *e = entry_of(f, broker);
    return e && !e->reachable;
}

void faults_reached(struct faults *f, const char *broker)
{
    struct fault_entry *e = entry_of(f, broker);
    if (e)
        e->reachable = true;
}

void faults_forget(struct faults *f, const char *broker)
{
    struct fault_entry *e = entry_of(f, broker);
    if (e)
        entry_remove(f, e);
}
