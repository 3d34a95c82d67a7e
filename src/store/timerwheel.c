/* timerwheel.c - a slot for each second of two weeks.
 *
 * The slots are kept in memory in the form they have in the file. Memory that was never touched
 * costs nothing, so a wheel is as big as the seconds that have something; a count for each page of
 * slots lets a search pass over the empty ones.
 */
#include "store/store_int.h"
#include "store/timers.h"

#include <assert.h>
#include <stdlib.h>

#define WHEEL_PATH "timerwheel"
#define PAGE_SLOTS 128
#define PAGE_SIZE  (PAGE_SLOTS * TIMER_SLOT_SIZE)
#define PAGES      (TIMER_SLOTS / PAGE_SLOTS)
#define WHEEL_SIZE ((uint64_t)TIMER_SLOTS * TIMER_SLOT_SIZE)

static_assert(TIMER_SLOTS % PAGE_SLOTS == 0, "pages are full");

struct timerwheel {
    struct vfs *vfs;
    struct vfs_file *_Atomic file; /* NULL until the first write; then it stays */
    uint8_t *slots;
    uint8_t used[PAGES]; /* slots of a page that have something: at most 128 */
    size_t n_used;       /* of all */
    bool dirty[PAGES];
    bool any_dirty;
};

enum err timerwheel_open(struct vfs *vfs, struct timerwheel **out, struct fault *why)
{
    struct timerwheel *wheel = calloc(1, sizeof *wheel);
    uint8_t *slots = calloc(TIMER_SLOTS, TIMER_SLOT_SIZE);
    if (!wheel || !slots) {
        free(wheel);
        free(slots);
        return fault_set(why, ERR_NO_MEMORY, "no memory for the wheel of timers");
    }
    wheel->vfs = vfs;
    wheel->slots = slots;
    wheel->any_dirty = true; /* a file that is there says what is no longer so */
    *out = wheel;
    return OK;
}

void timerwheel_close(struct timerwheel *wheel)
{
    if (!wheel)
        return;
    if (wheel->file)
        wheel->vfs->calls->close(wheel->file);
    free(wheel->slots);
    free(wheel);
}

enum err timerwheel_empty(struct timerwheel *wheel, struct fault *why)
{
    uint8_t *slots = calloc(TIMER_SLOTS, TIMER_SLOT_SIZE);
    if (!slots)
        return fault_set(why, ERR_NO_MEMORY, "no memory for the wheel of timers");
    free(wheel->slots);
    wheel->slots = slots;
    for (size_t page = 0; page < PAGES; page++)
        wheel->dirty[page] |= wheel->used[page] > 0;
    memset(wheel->used, 0, sizeof wheel->used);
    wheel->n_used = 0;
    wheel->any_dirty = true;
    return OK;
}

static size_t index_of(int64_t second)
{
    invariant(second >= 0);
    return (size_t)(second % TIMER_SLOTS);
}

static bool slot_used(const uint8_t *slot)
{
    return load_u32(slot + 28) != 0; /* Apache does not look at its magic: ours says "taken" */
}

static void slot_touched(struct timerwheel *wheel, size_t index)
{
    wheel->dirty[index / PAGE_SLOTS] = true;
    wheel->any_dirty = true;
}

bool timerwheel_get(const struct timerwheel *wheel, int64_t second, struct timer_slot *out)
{
    const uint8_t *slot = wheel->slots + index_of(second) * TIMER_SLOT_SIZE;
    *out = (struct timer_slot){.second = second, .first = -1, .last = -1};
    if (!slot_used(slot) || (int64_t)load_u64(slot) != second)
        return false;
    out->first = (int64_t)load_u64(slot + 8);
    out->last = (int64_t)load_u64(slot + 16);
    out->count = (int32_t)load_u32(slot + 24);
    return true;
}

int64_t timerwheel_holder(const struct timerwheel *wheel, int64_t second)
{
    const uint8_t *slot = wheel->slots + index_of(second) * TIMER_SLOT_SIZE;
    return slot_used(slot) ? (int64_t)load_u64(slot) : -1;
}

bool timerwheel_put(struct timerwheel *wheel, const struct timer_slot *put)
{
    size_t index = index_of(put->second);
    uint8_t *slot = wheel->slots + index * TIMER_SLOT_SIZE;
    bool used = slot_used(slot);
    if (used && (int64_t)load_u64(slot) != put->second)
        return false;
    wheel->used[index / PAGE_SLOTS] += !used;
    wheel->n_used += !used;
    store_u64(slot, (uint64_t)put->second);
    store_u64(slot + 8, (uint64_t)put->first);
    store_u64(slot + 16, (uint64_t)put->last);
    store_u32(slot + 24, (uint32_t)put->count);
    store_u32(slot + 28, 1);
    slot_touched(wheel, index);
    return true;
}

void timerwheel_clear(struct timerwheel *wheel, int64_t second)
{
    size_t index = index_of(second);
    uint8_t *slot = wheel->slots + index * TIMER_SLOT_SIZE;
    if (!slot_used(slot) || (int64_t)load_u64(slot) != second)
        return;
    memset(slot, 0, TIMER_SLOT_SIZE);
    wheel->used[index / PAGE_SLOTS]--;
    wheel->n_used--;
    slot_touched(wheel, index);
}

/* Everything is two weeks away or more: that takes a look at all of it. */
static int64_t next_of_all(const struct timerwheel *wheel, int64_t from)
{
    int64_t least = -1;
    for (size_t index = 0; index < TIMER_SLOTS; index++) {
        const uint8_t *slot = wheel->slots + index * TIMER_SLOT_SIZE;
        if (!wheel->used[index / PAGE_SLOTS]) {
            index += PAGE_SLOTS - 1;
            continue;
        }
        int64_t second = (int64_t)load_u64(slot);
        if (slot_used(slot) && second >= from && (least < 0 || second < least))
            least = second;
    }
    return least;
}

int64_t timerwheel_next(const struct timerwheel *wheel, int64_t from)
{
    if (wheel->n_used == 0)
        return -1;
    for (int64_t second = from; second < from + TIMER_SLOTS;) {
        size_t index = index_of(second);
        if (!wheel->used[index / PAGE_SLOTS]) {
            second += PAGE_SLOTS - (int64_t)(index % PAGE_SLOTS);
            continue;
        }
        const uint8_t *slot = wheel->slots + index * TIMER_SLOT_SIZE;
        if (slot_used(slot) && (int64_t)load_u64(slot) == second)
            return second;
        second++;
    }
    return next_of_all(wheel, from);
}

/* ---- the file ---- */

static enum err wheel_make(struct timerwheel *wheel, struct fault *why)
{
    const struct vfs_calls *calls = wheel->vfs->calls;
    struct vfs_file *file;
    enum err err = calls->open(wheel->vfs, WHEEL_PATH, VFS_FRESH, &file, why);
    if (err)
        return err;
    err = calls->resize(file, WHEEL_SIZE, why);
    if (err) {
        calls->close(file);
        return err;
    }
    wheel->file = file;
    return OK;
}

enum err timerwheel_write(struct timerwheel *wheel, struct fault *why)
{
    if (!wheel->any_dirty)
        return OK;
    enum err err = wheel->file ? OK : wheel_make(wheel, why);
    for (size_t page = 0; !err && page < PAGES; page++) {
        if (!wheel->dirty[page])
            continue;
        struct iovec part = {wheel->slots + page * PAGE_SIZE, PAGE_SIZE};
        err = wheel->vfs->calls->write(wheel->file, page * PAGE_SIZE, &part, 1, why);
        wheel->dirty[page] = err != OK;
    }
    wheel->any_dirty = err != OK;
    return err;
}

enum err timerwheel_sync(struct timerwheel *wheel, struct fault *why)
{
    return wheel->file ? wheel->vfs->calls->sync(wheel->file, why) : OK;
}
