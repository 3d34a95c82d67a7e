/* trace_events.c - what clients told of a message, if they were set to tell (message trace). */
#include "cli/find.h"
#include "cli/trace_int.h"
#include "cli/trace_read.h"

#include <stdlib.h>

#define EVENTS_MAX 256 /* of trace messages; each has many records */

static int by_time(const void *a, const void *b)
{
    const struct told *x = a, *y = b;
    return (x->event.time_ms > y->event.time_ms) - (x->event.time_ms < y->event.time_ms);
}

const char *told_text(const struct told *t)
{
    const struct trace_event *e = &t->event;
    switch (e->kind) {
    case EVENT_SENT:
        return e->success ? "sent" : "not sent";
    case EVENT_BEGUN:
        return "begun";
    case EVENT_FINISHED:
        return e->success ? "done" : "failed";
    case EVENT_DECIDED:
        return bytes_equal(e->state, BYTES("COMMIT_MESSAGE"))     ? "committed"
               : bytes_equal(e->state, BYTES("ROLLBACK_MESSAGE")) ? "rolled back"
                                                                  : "undecided";
    case EVENT_RECALLED:
        return e->success ? "recalled" : "not recalled";
    }
    return NULL;
}

int story_events(struct story *story, const char *trace_topic, struct told **out, size_t *n_out)
{
    struct cli *cli = story->cli;
    struct omq_query query = {.topic = trace_topic, .key = story->id, .max = EVENTS_MAX};
    struct omq_found found;
    int status = find_in(cli, &query, &found);
    if (status)
        return status;
    size_t n = 0, cap = 0;
    struct told *told = NULL;
    for (size_t i = 0; i < found.n; i++) {
        const struct omq_delivery *d = found.messages[i];
        struct bytes rest = bytes_of(d->body, d->body_size);
        struct trace_event event;
        while (trace_event_next(&rest, &event)) {
            if (!bytes_equal(event.id, bytes_str(story->id)))
                continue;
            if (n == cap) {
                struct told *more = admin_alloc(cli, cap * 2 + 64, sizeof *more);
                if (n > 0)
                    memcpy(more, told, n * sizeof *more);
                told = more;
                cap = cap * 2 + 64;
            }
            told[n++] = (struct told){event, d->born_host};
        }
    }
    if (n > 0)
        qsort(told, n, sizeof *told, by_time);
    *out = told;
    *n_out = n;
    return story_keep(story, found);
}
