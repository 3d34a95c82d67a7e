/* dlq_notes.c - notes: which letters of a queue are settled out of turn. */
#include "cli/dlq_int.h"

#include "remoting/codes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define READ_MAX 256

static const struct omq_subscription notes_alone = {.expression = NOTE_TAG};

const char *noted_text(enum noted how)
{
    return how == NOTED_DROPPED ? "dropped" : "resent";
}

struct note_text note_text(enum noted how, const struct omq_queue *queue, int64_t offset)
{
    struct note_text out;
    (void)snprintf(out.text, sizeof out.text, "%s:%s:%d:%" PRId64, noted_text(how), queue->topic,
                   queue->id, offset);
    return out;
}

/* It has to name its own topic and queue, and what stands before it: a note that was consumed by
 * somebody, failed and died is a letter of theirs, and settles nothing there. */
enum noted note_of(const struct omq_delivery *d, const char *topic, int64_t *offset)
{
    const char *value = omq_delivery_property(d, NOTE_PROPERTY);
    const char *number = value ? strrchr(value, ':') : NULL;
    if (!number || !bytes_to_i64(bytes_str(number + 1), offset) || *offset < 0 ||
        *offset >= d->offset)
        return NOTED_NOT;
    struct omq_queue queue = {topic, d->queue.broker, d->queue.id};
    for (enum noted how = NOTED_RESENT; how <= NOTED_DROPPED; how++)
        if (strcmp(value, note_text(how, &queue, *offset).text) == 0)
            return how;
    return NOTED_NOT;
}

static bool notes_add(struct notes *notes, int64_t offset, enum noted how)
{
    if (notes->n == notes->room) {
        size_t room = notes->room > 0 ? notes->room * 2 : 64;
        struct noted_at *all = realloc(notes->all, room * sizeof *all);
        if (!all)
            return false;
        notes->all = all;
        notes->room = room;
    }
    notes->all[notes->n++] = (struct noted_at){offset, how};
    return true;
}

static int by_offset(const void *a, const void *b)
{
    const struct noted_at *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (int)x->how - (int)y->how;
}

/* A letter may have two notes: two commands ran at once. */
static void notes_sort(struct notes *notes)
{
    size_t kept = 0;
    if (notes->n > 0)
        qsort(notes->all, notes->n, sizeof *notes->all, by_offset);
    for (size_t i = 0; i < notes->n; i++)
        if (kept == 0 || notes->all[kept - 1].offset != notes->all[i].offset)
            notes->all[kept++] = notes->all[i];
    notes->n = kept;
}

static bool found_add(struct notes *notes, const struct omq_found *found, const char *topic)
{
    for (size_t i = 0; i < found->n; i++) {
        const struct omq_delivery *d = found->messages[i];
        int64_t offset;
        enum noted how = note_of(d, topic, &offset);
        if (how != NOTED_NOT &&
            !(notes_add(notes, offset, how) && notes_add(notes, d->offset, NOTE_ITSELF)))
            return false;
    }
    return true;
}

int notes_read(struct cli *cli, const struct omq_queue *queue, int64_t end, struct notes *notes,
               struct omq_error *why)
{
    int status, code = OMQ_OK;
    struct omq_client *client = cli_client(cli, &status);
    size_t before = notes->n;
    while (!code && notes->next < end && !cli_stopped(cli)) {
        struct omq_read read = {
            .queue = *queue, .offset = notes->next, .filter = &notes_alone, .max = READ_MAX};
        struct omq_found found = {0};
        int64_t next = notes->next;
        code = omq_read(client, &read, &found, &next, why);
        if (code && why->response_code == RES_NO_PERMISSION)
            return OMQ_OK;
        if (!code && !found_add(notes, &found, queue->topic)) {
            *why = (struct omq_error){.code = OMQ_NO_MEMORY, .text = "no memory for notes"};
            code = OMQ_NO_MEMORY;
        }
        omq_found_free(&found);
        if (next <= notes->next) /* the same question would not end */
            break;
        notes->next = next;
    }
    if (notes->n > before)
        notes_sort(notes);
    return code;
}

void notes_clear(struct notes *notes)
{
    free(notes->all);
    *notes = (struct notes){0};
}

/* The first that is not before this offset. */
static size_t notes_from(const struct notes *notes, int64_t offset)
{
    size_t low = 0, high = notes->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (notes->all[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum noted notes_say(const struct notes *notes, int64_t offset)
{
    size_t at = notes_from(notes, offset);
    return at < notes->n && notes->all[at].offset == offset ? notes->all[at].how : NOTED_NOT;
}

int64_t notes_count(const struct notes *notes, int64_t from, int64_t end)
{
    return end > from ? (int64_t)(notes_from(notes, end) - notes_from(notes, from)) : 0;
}
