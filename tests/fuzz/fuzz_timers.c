/* Any bytes as the files of timed messages: the first 512 as timercheck, the rest as the log of
 * units.
 *
 * What is read of a check can be written and is read as the same. Of the units, whatever they say,
 * the scan ends inside the file; what it took can be read again one by one, chains lead to the
 * front and end, and a unit that is added afterwards is the last one. */
#include "memory_vfs.h"
#include "store/timers.h"

#include <inttypes.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK_PART 512
#define FILE_SIZE  2000 /* 38 units and a blank of 24 bytes */
#define UNITS_MOST 4096

struct found {
    size_t n;
    int64_t at[UNITS_MOST];
};

static void law_check(struct bytes in)
{
    struct timer_check c, again;
    uint8_t text[TIMER_CHECK_SIZE];
    if (timercheck_decode(in, &c))
        return;
    if (!c.ours)
        c.done.due_ms = 1;
    c.ours = true;
    timercheck_encode(&c, 7, text);
    invariant(timercheck_decode(bytes_of(text, sizeof text), &again) == OK);
    invariant(again.ours && again.clean == c.clean && again.read_ms == c.read_ms);
    invariant(again.log_end == c.log_end && again.queue_offset == c.queue_offset);
    invariant(again.done.due_ms == c.done.due_ms && again.done.at == c.done.at);
    invariant(again.past.due_ms == c.past.due_ms && again.past.at == c.past.at);
    invariant(again.past_at == c.past_at && again.doubt_position == c.doubt_position);
}

static bool note(void *user, int64_t at, const struct timer_unit *unit)
{
    struct found *found = user;
    invariant(unit->time_ms >= 0 && unit->position >= 0 && unit->prev < at);
    if (found->n == UNITS_MOST)
        return false;
    found->at[found->n++] = at;
    return true;
}

static void law_chain(struct timerlog *log, int64_t at)
{
    struct timer_unit unit;
    for (int64_t last = INT64_MAX; at >= 0; at = unit.prev) {
        invariant(at < last);
        last = at;
        if (timerlog_read(log, at, &unit, NULL))
            return;
    }
}

static void law_log(struct memory_vfs *m)
{
    static struct found found;
    struct timerlog *log;
    found.n = 0;
    if (timerlog_open(&m->vfs, FILE_SIZE, &log, NULL))
        return;
    invariant(timerlog_scan(log, INT64_MAX, note, &found, NULL) == OK);
    for (size_t i = 0; i < found.n; i++) {
        struct timer_unit unit;
        invariant(timerlog_read(log, found.at[i], &unit, NULL) == OK);
        law_chain(log, found.at[i]);
    }
    struct timer_unit mine = {.prev = -1, .magic = TIMER_PLAIN, .position = 5, .size = 6}, got;
    int64_t at;
    invariant(timerlog_add(log, &mine, &at, NULL) == OK);
    invariant(timerlog_write(log, NULL) == OK);
    invariant(timerlog_read(log, at, &got, NULL) == OK && got.position == 5);
    invariant(timerlog_end(log) == at + TIMER_UNIT_SIZE);
    invariant(timerlog_sync(log, timerlog_end(log), NULL) == OK);
    invariant(timerlog_shift(log, INT64_MAX, NULL) == OK);
    timerlog_close(log);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t part = size < CHECK_PART ? size : CHECK_PART;
    law_check(bytes_of(data, part));
    struct memory_vfs m;
    memory_init(&m);
    size_t left = size - part;
    for (uint64_t i = 0; i < 3 && (i == 0 || left > 0); i++) {
        char path[64];
        size_t n = left < FILE_SIZE ? left : FILE_SIZE;
        snprintf(path, sizeof path, "timerlog/%020" PRIu64, i * FILE_SIZE);
        memory_put(&m, path, bytes_of(data + part, n), FILE_SIZE);
        part += n;
        left -= n;
    }
    law_log(&m);
    memory_clear(&m);
    return 0;
}
