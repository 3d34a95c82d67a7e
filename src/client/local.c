/* local.c - how far a broadcast consumer has come, which nobody knows but itself.
 *
 * Every member of the group gets every message, so each keeps its own offsets, in a file:
 *
 *     <state_dir>/<client id>/<group>/offsets.json        and the one before it, offsets.json.bak
 *
 * The place and the form are the Java client's. A new file is written beside the old one and takes
 * its name in one step; if a crash leaves it unreadable all the same, the one before it is read.
 *
 * Threads: opened by the application's; everything else on the loop. */
#include "client/consumer_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_BYTES (16u << 20)
#define MEMORY_MAX     (64u << 20)

struct local {
    struct arena arena; /* of what was read */
    struct queue_offset *offsets;
    size_t n, cap; /* cap 0: they are in the arena */
    bool changed, complained;
    char *dir, *path, *fresh, *bak;
};

void local_close(struct local *local)
{
    if (!local)
        return;
    for (size_t i = 0; local->cap && i < local->n; i++) { /* the texts are ours */
        free((void *)local->offsets[i].queue.topic.at);
        free((void *)local->offsets[i].queue.broker.at);
    }
    if (local->cap)
        free(local->offsets);
    arena_clear(&local->arena);
    free(local->dir);
    free(local->path);
    free(local->fresh);
    free(local->bak);
    free(local);
}

/* ---- reading ---- */

/* ERR_NOT_FOUND: there is none. */
static enum err file_read(const char *path, struct buf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? ERR_NOT_FOUND : ERR_IO;
    enum err err = OK;
    for (;;) {
        uint8_t *room = buf_space(out, 65536);
        ssize_t got = room ? read(fd, room, 65536) : 0;
        out->len -= room ? 65536 - (size_t)(got > 0 ? got : 0) : 0;
        if (got < 0)
            err = ERR_IO;
        if (got <= 0)
            break;
    }
    (void)close(fd);
    return err ? err : out->err;
}

static enum err offsets_read(struct local *local, const char *path)
{
    struct buf text = buf_upto(FILE_MAX_BYTES);
    enum err err = file_read(path, &text);
    struct bytes kept = {0};
    if (!err) {
        kept = arena_copy(&local->arena, buf_bytes(&text)); /* the names are slices of it */
        if (text.len > 0 && !kept.at)
            err = ERR_TOO_BIG;
    }
    if (!err)
        err = queue_offsets_read(kept, "offsetTable", &local->arena, &local->offsets, &local->n);
    buf_clear(&text);
    return err;
}

/* From slices of the file to texts of our own, so that queues can be added. */
static enum err offsets_own(struct local *local)
{
    size_t n = local->n;
    const struct queue_offset *read = local->offsets;
    struct queue_offset *own = calloc(n + 1, sizeof *own);
    if (!own)
        return ERR_NO_MEMORY;
    local->offsets = own;
    local->cap = n + 1;
    enum err err = OK;
    for (size_t i = 0; i < n; i++) {
        own[i] = read[i];
        own[i].queue.topic.at = malloc(read[i].queue.topic.len + 1);
        own[i].queue.broker.at = malloc(read[i].queue.broker.len + 1);
        if (!own[i].queue.topic.at || !own[i].queue.broker.at) {
            err = ERR_NO_MEMORY;
            continue;
        }
        memcpy((void *)own[i].queue.topic.at, read[i].queue.topic.at, read[i].queue.topic.len);
        if (read[i].queue.broker.len > 0)
            memcpy((void *)own[i].queue.broker.at, read[i].queue.broker.at,
                   read[i].queue.broker.len);
    }
    arena_clear(&local->arena);
    return err;
}

static enum err paths_make(struct local *local, const struct omq_consumer *consumer)
{
    const char *state = consumer->client->options.state_dir, *home = getenv("HOME");
    if (asprintf(&local->dir, "%s%s/%s/%s",
                 state  ? state
                 : home ? home
                        : ".",
                 state ? "" : "/.rocketmq_offsets", consumer->client->id, consumer->group) < 0)
        local->dir = NULL;
    if (!local->dir || asprintf(&local->path, "%s/offsets.json", local->dir) < 0)
        local->path = NULL;
    if (!local->path || asprintf(&local->bak, "%s.bak", local->path) < 0)
        local->bak = NULL;
    if (!local->bak || asprintf(&local->fresh, "%s.tmp", local->path) < 0)
        local->fresh = NULL;
    return local->fresh ? OK : ERR_NO_MEMORY;
}

enum err local_open(struct omq_consumer *consumer, struct omq_error *why)
{
    if (strchr(consumer->client->id, '/')) {
        (void)omq_fail(why, OMQ_INVALID, "the client id %s is to name a folder: it has a slash",
                       consumer->client->id);
        return ERR_INVALID;
    }
    struct local *local = calloc(1, sizeof *local);
    if (!local)
        return ERR_NO_MEMORY;
    consumer->local = local; /* freed with it */
    arena_init(&local->arena, MEMORY_MAX);
    enum err err = paths_make(local, consumer);
    if (err)
        return err;
    enum err first = offsets_read(local, local->path);
    err = first ? offsets_read(local, local->bak) : OK;
    if (err == ERR_NOT_FOUND && first == ERR_NOT_FOUND)
        err = OK; /* a new one */
    if (err && err != ERR_NO_MEMORY) {
        (void)omq_fail(why, OMQ_INVALID,
                       "the offsets in %s cannot be read, nor those in .bak beside it; mend or "
                       "remove them both to begin anew",
                       local->path);
        return ERR_DAMAGED;
    }
    return err ? err : offsets_own(local);
}

/* ---- asking and noting ---- */

static struct queue_offset *find(const struct local *local, const struct omq_queue *queue)
{
    for (size_t i = 0; i < local->n; i++) {
        struct queue_offset *o = &local->offsets[i];
        if (o->queue.queue_id == queue->id &&
            bytes_equal(o->queue.topic, bytes_str(queue->topic)) &&
            bytes_equal(o->queue.broker, bytes_str(queue->broker)))
            return o;
    }
    return NULL;
}

int64_t local_offset(const struct omq_consumer *consumer, const struct omq_queue *queue)
{
    const struct queue_offset *o = find(consumer->local, queue);
    return o ? o->offset : -1;
}

static struct queue_offset *add(struct local *local, const struct omq_queue *queue)
{
    if (local->n == local->cap) {
        struct queue_offset *grown =
            realloc(local->offsets, 2 * local->cap * sizeof *local->offsets);
        if (!grown)
            return NULL;
        local->offsets = grown;
        local->cap *= 2;
    }
    char *topic = strdup(queue->topic), *broker = strdup(queue->broker);
    if (!topic || !broker) {
        free(topic);
        free(broker);
        return NULL;
    }
    struct queue_offset *o = &local->offsets[local->n++];
    *o = (struct queue_offset){{bytes_str(topic), bytes_str(broker), queue->id}, -1};
    return o;
}

static void note(struct local *local, const struct lane *lane)
{
    int64_t offset = lane_offset(lane);
    if (offset < 0)
        return;
    struct queue_offset *o = find(local, &lane->queue);
    if (!o && !(o = add(local, &lane->queue)))
        return; /* no memory: the next tick tries again */
    local->changed = local->changed || o->offset != offset;
    o->offset = offset;
}

/* ---- writing ---- */

static bool folders_make(char *path)
{
    for (char *at = path + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        bool made = mkdir(path, 0755) == 0 || errno == EEXIST;
        *at = '/';
        if (!made)
            return false;
    }
    return mkdir(path, 0755) == 0 || errno == EEXIST;
}

static bool file_write(const char *path, struct bytes text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return false;
    bool good = true;
    while (good && text.len > 0) {
        ssize_t put = write(fd, text.at, text.len);
        good = put > 0;
        if (good)
            text = bytes_from(text, (size_t)put);
    }
    return close(fd) == 0 && good;
}

void local_save(struct omq_consumer *consumer)
{
    struct local *local = consumer->local;
    if (!local)
        return;
    list_each(k, &consumer->lanes)
        note(local, list_entry(k, struct lane, link));
    if (!local->changed)
        return;
    struct buf text = buf_upto(FILE_MAX_BYTES);
    queue_offsets_write(&text, "offsetTable", local->offsets, local->n);
    bool good = !text.err && folders_make(local->dir) && file_write(local->fresh, buf_bytes(&text));
    if (good) { /* there is a whole file under one of the two names at any time */
        (void)rename(local->path, local->bak);
        good = rename(local->fresh, local->path) == 0;
    }
    buf_clear(&text);
    if (!good && !local->complained)
        client_log(consumer->client, OMQ_ERROR,
                   "%s cannot be written (%s): after a restart messages come again", local->path,
                   strerrorname_np(errno));
    local->complained = !good;
    local->changed = !good;
}
