/* trace_events.c - what clients told of a message, if they were set to tell (message trace). */
#include "cli/find.h"
#include "cli/trace_int.h"
#include "cli/trace_read.h"

#include <stdlib.h>

#define EVENTS_MAX 256 /* of trace messages; each has many records */

const struct column trace_event_columns[] = {
    {"time_ms", COLUMN_TIME, "TIME", "when it was told"},
    {"event", COLUMN_TEXT, "EVENT",
     "sent, begun (given to a handler), done, failed, committed, rolled back, undecided, recalled"},
    {"group", COLUMN_TEXT, "GROUP", "whose client it was"},
    {"client", COLUMN_TEXT, "CLIENT", "the address of that client"},
    {"attempt", COLUMN_NUMBER, "ATTEMPT", "begun: 1 for the first delivery"},
    {"cost_ms", COLUMN_DURATION, "TOOK", "how long it took"},
    {"result", COLUMN_TEXT, "RESULT", "done, failed: what the handler did, as Java names it"},
    {NULL},
};

struct told {
    struct trace_event event;
    const char *client;
};

static int by_time(const void *a, const void *b)
{
    const struct told *x = a, *y = b;
    return (x->event.time_ms > y->event.time_ms) - (x->event.time_ms < y->event.time_ms);
}

static const char *event_text(const struct trace_event *e)
{
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

static void event_put(struct cli *cli, const struct told *t)
{
    static const char *const results[] = {"SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL",
                                          "FAILED"};
    const struct trace_event *e = &t->event;
    row_begin(cli);
    if (e->time_ms > 0)
        put_number(cli, "time_ms", e->time_ms);
    put_text(cli, "event", event_text(e));
    if (e->group.len > 0)
        put_bytes(cli, "group", e->group);
    put_text(cli, "client", t->client);
    if (e->retries >= 0)
        put_number(cli, "attempt", e->retries < INT64_MAX ? e->retries + 1 : e->retries);
    if (e->cost_ms >= 0)
        put_number(cli, "cost_ms", e->cost_ms);
    if (e->result >= 0 && e->result < 5)
        put_text(cli, "result", results[e->result]);
    row_end(cli);
}

int story_events_put(struct story *story, const char *trace_topic)
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
    list_open(cli, "events");
    for (size_t i = 0; i < n; i++)
        event_put(cli, &told[i]);
    list_close(cli);
    omq_found_free(&found);
    return STATUS_OK;
}
