/* timers.h - the three files of messages that come at a time of their own, as Apache RocketMQ has
 * them.
 *
 *     timerlog/           one unit of 52 bytes for each such message, in the order they came: where
 *                         its record stands in the log, when it is due, and where the unit before
 *                         it is that is due in the same second
 *     timerwheel          a slot of 32 bytes for each second: the last unit of its chain
 *     config/timercheck   how far all this has come
 *
 *     slot of 12:00:07 ──last──> unit ──prev──> unit ──prev──> unit (prev -1)
 *
 * All of it is derived from the queue of the topic in which these messages wait (TIMER_TOPIC, queue
 * 0) and can be made again from there. Of the three, only the check is believed at the start, and
 * the units in front of the place it names; the wheel is made anew from the units. Its file is
 * written for Apache's sake, which reads it back.
 *
 * Times are milliseconds. A unit's time is its write time and its delay; it belongs to the slot of
 * time / 1000. What the time means is the business of whoever delivers.
 *
 * Knows: the formats, and that nothing on a disk can be trusted.  Does not know: messages.
 * Threads: one at a time, but for timerlog_sync, timerwheel_sync and timerlog_shift, which may run
 * beside the rest: they wait for the disk.
 */
#ifndef STORE_TIMERS_H
#define STORE_TIMERS_H

#include "base/vfs.h"

#define TIMER_TOPIC   BYTES("rmq_sys_wheel_timer")
#define TIMER_SECOND  1000                                    /* ms in a slot */
#define TIMER_SLOTS   1209600                                 /* two weeks */
#define TIMER_SPAN_MS (INT64_C(7) * 24 * 3600 * 1000 - 60000) /* no unit is put further ahead */

/* ---- units, timerlog.c ---- */

#define TIMER_UNIT_SIZE 52
enum timer_magic { TIMER_PLAIN = 1, TIMER_ROLL = 2, TIMER_DELETE = 4 };

struct timer_unit {
    int64_t prev; /* place of the unit before it in its slot; -1: none */
    uint32_t magic;
    int64_t write_ms, time_ms;
    int64_t position; /* of the record in the log … */
    uint32_t size;    /* … and its size */
    uint32_t topic_hash;
};

/* Whether files may have this size, and how many units are in one. */
bool timerlog_size_possible(uint64_t size);
uint64_t timerlog_units(uint64_t size);

void timer_unit_save(uint8_t out[TIMER_UNIT_SIZE], const struct timer_unit *unit);
/* False: that is no unit. */
bool timer_unit_load(const uint8_t in[TIMER_UNIT_SIZE], struct timer_unit *out);

struct timerlog;

/* Takes what files there are, of whatever size they are if it is a possible one; else they get
 * `file_size`. ERR_DAMAGED: they do not form a row. */
must_check enum err timerlog_open(struct vfs *vfs, uint64_t file_size, struct timerlog **out,
                                  struct fault *why);
void timerlog_close(struct timerlog *log); /* what was added and not written is lost */
int64_t timerlog_first(struct timerlog *log);
int64_t timerlog_end(const struct timerlog *log); /* where the next unit goes */

/* Goes through all units from the first on, to `limit` or to where they end, whichever comes first.
 * `each` says false: this one and all behind it shall not be. What is behind the end is cut off. */
must_check enum err timerlog_scan(struct timerlog *log, int64_t limit,
                                  bool (*each)(void *user, int64_t at,
                                               const struct timer_unit *unit),
                                  void *user, struct fault *why);
/* Adds one unit and says where it is. It is in the file after timerlog_write. */
must_check enum err timerlog_add(struct timerlog *log, const struct timer_unit *unit, int64_t *at,
                                 struct fault *why);
must_check enum err timerlog_write(struct timerlog *log, struct fault *why);
/* ERR_NOT_FOUND: no unit can be there. ERR_DAMAGED: there is none. */
must_check enum err timerlog_read(struct timerlog *log, int64_t at, struct timer_unit *out,
                                  struct fault *why);
/* Brings what is written up to `end` to the disk. */
must_check enum err timerlog_sync(struct timerlog *log, int64_t end, struct fault *why);
/* Removes files from the front that have only units of records in front of `position`. */
must_check enum err timerlog_shift(struct timerlog *log, int64_t position, struct fault *why);

/* ---- slots, timerwheel.c ---- */

#define TIMER_SLOT_SIZE 32 /* on the disk: second, first, last, count, and a number of ours */
struct timer_slot {
    int64_t second;
    int64_t first, last; /* places of units */
    int32_t count;
};

struct timerwheel;

must_check enum err timerwheel_open(struct vfs *vfs, struct timerwheel **out, struct fault *why);
void timerwheel_close(struct timerwheel *wheel);
/* As it was when it was opened. */
must_check enum err timerwheel_empty(struct timerwheel *wheel, struct fault *why);
/* False: there is nothing in this second; `*out` is then its empty slot. */
bool timerwheel_get(const struct timerwheel *wheel, int64_t second, struct timer_slot *out);
/* False: the place is taken by another second, two weeks or more away. */
must_check bool timerwheel_put(struct timerwheel *wheel, const struct timer_slot *slot);
void timerwheel_clear(struct timerwheel *wheel, int64_t second);
/* Whose place in the wheel it is that this second has as well; -1: nobody's. */
int64_t timerwheel_holder(const struct timerwheel *wheel, int64_t second);
/* The first second from `from` on that has something; -1: none. */
int64_t timerwheel_next(const struct timerwheel *wheel, int64_t from);
/* Writes what has changed to the file; made anew when it is the first time. */
must_check enum err timerwheel_write(struct timerwheel *wheel, struct fault *why);
must_check enum err timerwheel_sync(struct timerwheel *wheel, struct fault *why);

/* ---- how far it has come, timercheck.c ---- */

#define TIMER_CHECK_PATH "config/timercheck"
#define TIMER_CHECK_SIZE 4096

/* Deliveries go by when they are due and then by the unit's place. */
struct timer_key {
    int64_t due_ms, at;
};

struct timer_check {
    int64_t read_ms; /* the slots in front of this time are done */
    int64_t log_end;
    int64_t queue_offset; /* what stands in front of it in the queue has its unit */
    /* Ours, in bytes that Apache leaves alone, and void when it has written the others since. */
    bool ours;
    bool clean;            /* nothing was delivered since */
    struct timer_key done; /* all up to this one are done; finer than read_ms */
    /* The clock went back: the units in front of past_at are done up to this one as well. */
    struct timer_key past;
    int64_t past_at;
    int64_t doubt_position; /* records in front of it may have been delivered before all this */
};

void timercheck_encode(const struct timer_check *check, int64_t now_ms,
                       uint8_t out[TIMER_CHECK_SIZE]);
/* ERR_DAMAGED: the numbers cannot be. */
must_check enum err timercheck_decode(struct bytes in, struct timer_check *out);
/* ERR_NOT_FOUND, ERR_DAMAGED. */
must_check enum err timercheck_read(struct vfs *vfs, struct timer_check *out, struct fault *why);
must_check enum err timercheck_write(struct vfs *vfs, const struct timer_check *check,
                                     int64_t now_ms, struct fault *why);

#endif
