/* timercheck.c - the small file that says how far the timers have come.
 *
 * Apache's part are seven numbers at the start of 4096 bytes. It knows only whole seconds, and its
 * place in the units may be behind its place in the queue. Ours says more, further back; a CRC over
 * both parts tells whether Apache has changed the first since.
 */
#include "base/crc32.h"
#include "store/store_int.h"
#include "store/timers.h"

#define APACHE_SIZE 56
#define OURS_AT     256 /* in the same sector, so that a power loss leaves both or none */
#define OURS_MAGIC  0x4f4d5454u
#define OURS_SIZE   56

static uint32_t seal_of(const uint8_t *text)
{
    uint8_t both[APACHE_SIZE + OURS_SIZE];
    memcpy(both, text, APACHE_SIZE);
    memcpy(both + APACHE_SIZE, text + OURS_AT, OURS_SIZE);
    return crc32_of(bytes_of(both, sizeof both));
}

void timercheck_encode(const struct timer_check *check, int64_t now_ms,
                       uint8_t out[TIMER_CHECK_SIZE])
{
    memset(out, 0, TIMER_CHECK_SIZE);
    struct wr w = wr_over(out, APACHE_SIZE);
    wr_u64(&w, (uint64_t)check->read_ms);
    wr_u64(&w, (uint64_t)check->log_end);
    wr_u64(&w, (uint64_t)check->queue_offset);
    wr_u64(&w, (uint64_t)check->queue_offset); /* the master's: that is us */
    wr_u64(&w, 0);                             /* version: state, time, counter */
    wr_u64(&w, (uint64_t)now_ms);
    wr_u64(&w, 0);
    struct wr o = wr_over(out + OURS_AT, OURS_SIZE + 4);
    wr_u32(&o, OURS_MAGIC);
    wr_u32(&o, check->clean);
    wr_u64(&o, (uint64_t)check->done.due_ms);
    wr_u64(&o, (uint64_t)check->done.at);
    wr_u64(&o, (uint64_t)check->past.due_ms);
    wr_u64(&o, (uint64_t)check->past.at);
    wr_u64(&o, (uint64_t)check->past_at);
    wr_u64(&o, (uint64_t)check->doubt_position);
    wr_u32(&o, seal_of(out));
    invariant(!w.full && !o.full);
}

enum err timercheck_decode(struct bytes in, struct timer_check *out)
{
    if (in.len < APACHE_SIZE)
        return ERR_DAMAGED;
    struct timer_check c = {0};
    struct rd r = rd_over(in);
    c.read_ms = (int64_t)rd_u64(&r);
    c.log_end = (int64_t)rd_u64(&r);
    c.queue_offset = (int64_t)rd_u64(&r);
    int64_t master = (int64_t)rd_u64(&r);
    if (c.read_ms < 0 || c.log_end < 0 || c.queue_offset < 0 || master < 0)
        return ERR_DAMAGED;
    if (master < c.queue_offset)
        c.queue_offset = master;
    if (in.len >= OURS_AT + OURS_SIZE + 4) {
        struct rd o = rd_over(bytes_of(in.at + OURS_AT, OURS_SIZE + 4));
        c.ours = rd_u32(&o) == OURS_MAGIC;
        c.clean = rd_u32(&o) == 1;
        c.done.due_ms = (int64_t)rd_u64(&o);
        c.done.at = (int64_t)rd_u64(&o);
        c.past.due_ms = (int64_t)rd_u64(&o);
        c.past.at = (int64_t)rd_u64(&o);
        c.past_at = (int64_t)rd_u64(&o);
        c.doubt_position = (int64_t)rd_u64(&o);
        c.ours = c.ours && rd_u32(&o) == seal_of(in.at) && c.done.due_ms > 0 &&
                 c.past.due_ms >= 0 && c.past_at >= 0 && c.doubt_position >= 0;
    }
    if (!c.ours) {
        c.clean = false;
        c.done = c.past = (struct timer_key){0};
        c.past_at = c.doubt_position = 0;
    }
    *out = c;
    return OK;
}

enum err timercheck_read(struct vfs *vfs, struct timer_check *out, struct fault *why)
{
    cleanup(free_at) uint8_t *text = NULL;
    size_t len = 0;
    enum err err = vfs_read_all(vfs, TIMER_CHECK_PATH, 1u << 20, &text, &len, why);
    if (err == ERR_TOO_BIG)
        return fault_set(why, ERR_DAMAGED, "%s is far too long", TIMER_CHECK_PATH);
    if (err)
        return err;
    return timercheck_decode(bytes_of(text, len), out)
               ? fault_set(why, ERR_DAMAGED, "%s has numbers that cannot be", TIMER_CHECK_PATH)
               : OK;
}

enum err timercheck_write(struct vfs *vfs, const struct timer_check *check, int64_t now_ms,
                          struct fault *why)
{
    uint8_t text[TIMER_CHECK_SIZE];
    timercheck_encode(check, now_ms, text);
    return vfs_replace(vfs, TIMER_CHECK_PATH, bytes_of(text, sizeof text), why);
}
