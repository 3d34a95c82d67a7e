/* kept.c - the file of a local retry table: messages that could not be sent yet.
 *
 *     "oncemqR1"
 *     size (4)  crc (4)  sent (1)  sysFlag (4)  flag (4)  topic (2 + n)  properties (2 + n)  body
 *     …
 *
 * A record is appended and never changes but for `sent`, which becomes 1 when a broker has the
 * message; when all are sent the file is cut to its first eight bytes. `size` is that of the whole
 * record, `crc` is over what stands behind `sent`. A crash in the middle of an append leaves a torn
 * record at the end, which is cut off when the file is opened; its message was not said to be kept.
 *
 * Nothing is synced: the file outlives the program, not a machine that loses its power. */
#include "base/crc32.h"
#include "client/producer_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC      BYTES("oncemqR1")
#define HEAD_SIZE  9u /* size, crc, sent */
#define LEAST      (HEAD_SIZE + 12u)
#define SENT_AT    8u
#define RECORD_MAX (16u << 20)

struct kept {
    struct room room; /* leaf: callbacks add, the loop reads and marks */
    int fd;
    uint64_t end, max;
    uint64_t first; /* no record before it waits */
    size_t waiting;
};

/* ---- records ---- */

enum err kept_read(struct bytes in, struct kept_record *out)
{
    struct rd r = rd_over(in);
    struct kept_record k = {.size = rd_u32(&r)};
    uint32_t crc = rd_u32(&r);
    uint8_t sent = rd_u8(&r);
    if (r.bad || k.size < LEAST || k.size > RECORD_MAX || k.size > in.len || sent > 1)
        return ERR_MALFORMED;
    r = rd_over(bytes_of(in.at + HEAD_SIZE, k.size - HEAD_SIZE));
    if (crc32_of(bytes_of(r.at, rd_left(&r))) != crc)
        return ERR_MALFORMED;
    k.sent = sent;
    k.sys_flag = (int32_t)rd_u32(&r);
    k.flag = (int32_t)rd_u32(&r);
    k.topic = rd_take(&r, rd_u16(&r));
    k.props = rd_take(&r, rd_u16(&r));
    k.body = rd_take(&r, rd_left(&r));
    if (r.bad || topic_name_check(k.topic, NULL))
        return ERR_MALFORMED;
    *out = k;
    return OK;
}

static enum err kept_write(const struct kept_record *k, struct buf *out)
{
    size_t size = LEAST + k->topic.len + k->props.len + k->body.len;
    uint8_t *space = size <= RECORD_MAX ? buf_space(out, size) : NULL;
    if (!space)
        return ERR_TOO_BIG;
    struct wr w = wr_over(space, size);
    wr_u32(&w, (uint32_t)size);
    wr_u32(&w, 0);
    wr_u8(&w, 0);
    wr_u32(&w, (uint32_t)k->sys_flag);
    wr_u32(&w, (uint32_t)k->flag);
    wr_u16(&w, (uint16_t)k->topic.len);
    wr_bytes_of(&w, k->topic);
    wr_u16(&w, (uint16_t)k->props.len);
    wr_bytes_of(&w, k->props);
    wr_bytes_of(&w, k->body);
    invariant(!w.full && wr_len(&w) == size);
    struct wr crc = wr_over(space + 4, 4);
    wr_u32(&crc, crc32_of(bytes_of(space + HEAD_SIZE, size - HEAD_SIZE)));
    return OK;
}

/* ---- the file ---- */

static bool bytes_get(int fd, uint8_t *to, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t got = pread(fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        to += got;
        n -= (size_t)got;
        at += (uint64_t)got;
    }
    return true;
}

static bool bytes_put(int fd, struct bytes from, uint64_t at)
{
    while (from.len > 0) {
        ssize_t put = pwrite(fd, from.at, from.len, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        from = bytes_from(from, (size_t)put);
        at += (uint64_t)put;
    }
    return true;
}

/* The record there, in `out`. ERR_NOT_FOUND: none begins there; ERR_MALFORMED, ERR_TOO_BIG, ERR_IO.
 */
static enum err record_at(const struct kept *kept, uint64_t at, uint64_t end, struct buf *out,
                          struct kept_record *record)
{
    uint8_t head[HEAD_SIZE];
    if (at >= end)
        return ERR_NOT_FOUND;
    if (end - at < LEAST)
        return ERR_MALFORMED;
    if (!bytes_get(kept->fd, head, sizeof head, at))
        return ERR_IO;
    struct rd r = rd_over(bytes_of(head, sizeof head));
    uint32_t size = rd_u32(&r);
    if (size < LEAST || size > RECORD_MAX || size > end - at)
        return ERR_MALFORMED;
    out->len = 0;
    uint8_t *space = buf_space(out, size);
    if (!space)
        return out->err;
    if (!bytes_get(kept->fd, space, size, at))
        return ERR_IO;
    return kept_read(buf_bytes(out), record);
}

/* Finds the end: behind the last whole record. */
static enum err records_look(struct kept *kept, uint64_t size)
{
    struct buf room = buf_upto(RECORD_MAX);
    struct kept_record record;
    enum err err;
    kept->first = kept->end = MAGIC.len;
    while ((err = record_at(kept, kept->end, size, &room, &record)) == OK) {
        if (kept->waiting == 0 && record.sent)
            kept->first += record.size;
        kept->waiting += !record.sent;
        kept->end += record.size;
    }
    buf_clear(&room);
    if (err != ERR_NOT_FOUND && err != ERR_MALFORMED)
        return err;
    if (kept->waiting == 0)
        kept->first = kept->end = MAGIC.len;
    return ftruncate(kept->fd, (off_t)kept->end) == 0 ? OK : ERR_IO;
}

static enum err file_begin(struct kept *kept, const char *path, struct omq_error *why)
{
    struct stat st;
    uint8_t magic[8];
    if (flock(kept->fd, LOCK_EX | LOCK_NB) != 0) {
        (void)omq_fail(why, OMQ_INVALID, "the retry table %s is another producer's", path);
        return ERR_BUSY;
    }
    if (fstat(kept->fd, &st) != 0)
        return ERR_IO;
    if (st.st_size < (off_t)MAGIC.len) { /* new, or torn at its very beginning */
        kept->first = kept->end = MAGIC.len;
        return ftruncate(kept->fd, 0) == 0 && bytes_put(kept->fd, MAGIC, 0) ? OK : ERR_IO;
    }
    if (!bytes_get(kept->fd, magic, sizeof magic, 0))
        return ERR_IO;
    if (!bytes_equal(bytes_of(magic, sizeof magic), MAGIC)) {
        (void)omq_fail(why, OMQ_INVALID, "%s is something else than a retry table", path);
        return ERR_INVALID;
    }
    return records_look(kept, (uint64_t)st.st_size);
}

enum err kept_open(const char *path, uint64_t max, struct kept **out, struct omq_error *why)
{
    struct kept *kept = calloc(1, sizeof *kept);
    if (!kept)
        return ERR_NO_MEMORY;
    kept->max = max;
    room_init(&kept->room, "kept", ROOM_LEAF);
    kept->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    enum err err = kept->fd < 0 ? ERR_IO : file_begin(kept, path, why);
    if (err == ERR_IO)
        (void)omq_fail(why, OMQ_INVALID, "the retry table %s cannot be opened: %s", path,
                       strerrordesc_np(errno));
    if (err)
        kept_close(kept);
    else
        *out = kept;
    return err;
}

void kept_close(struct kept *kept)
{
    if (!kept)
        return;
    if (kept->fd >= 0)
        (void)close(kept->fd);
    room_clear(&kept->room);
    free(kept);
}

/* ---- adding, going through, marking ---- */

bool kept_add(struct kept *kept, const struct kept_record *record)
{
    struct buf text = buf_upto(RECORD_MAX);
    bool good = kept_write(record, &text) == OK;
    room_enter(&kept->room);
    good = good && kept->end + text.len <= kept->max;
    if (good && !bytes_put(kept->fd, buf_bytes(&text), kept->end)) {
        (void)ftruncate(kept->fd, (off_t)kept->end);
        good = false;
    }
    if (good) {
        kept->end += text.len;
        kept->waiting++;
    }
    room_leave(&kept->room);
    buf_clear(&text);
    return good;
}

size_t kept_waiting(struct kept *kept)
{
    room_enter(&kept->room);
    size_t waiting = kept->waiting;
    room_leave(&kept->room);
    return waiting;
}

enum err kept_next(struct kept *kept, uint64_t *at, struct buf *room, struct kept_record *out)
{
    room_enter(&kept->room);
    uint64_t here = *at < kept->first ? kept->first : *at;
    enum err err;
    while ((err = record_at(kept, here, kept->end, room, out)) == OK && out->sent) {
        kept->first += here == kept->first ? out->size : 0;
        here += out->size;
    }
    room_leave(&kept->room);
    if (!err)
        *at = here;
    return err;
}

void kept_sent(struct kept *kept, uint64_t at)
{
    static const uint8_t sent = 1;
    room_enter(&kept->room);
    kept->waiting--;
    if (kept->waiting == 0 && ftruncate(kept->fd, (off_t)MAGIC.len) == 0)
        kept->first = kept->end = MAGIC.len;
    else
        (void)bytes_put(kept->fd, bytes_of(&sent, 1), at + SENT_AT);
    room_leave(&kept->room);
}
