/* trace_read.c - reading message trace. */
#include "cli/trace_read.h"

#define FIELD_END  1
#define RECORD_END 2
#define FIELDS_MAX 24

struct fields {
    struct bytes at[FIELDS_MAX];
    size_t n;
};

static void split(struct bytes record, struct fields *out)
{
    out->n = 0;
    while (out->n < FIELDS_MAX) {
        const uint8_t *end = record.len > 0 ? memchr(record.at, FIELD_END, record.len) : NULL;
        size_t len = end ? (size_t)(end - record.at) : record.len;
        out->at[out->n++] = bytes_of(record.at, len);
        if (!end)
            return;
        record = bytes_from(record, len + 1);
    }
}

static struct bytes text(const struct fields *f, size_t i)
{
    if (i >= f->n || bytes_equal(f->at[i], BYTES("null")))
        return BYTES("");
    return f->at[i];
}

static int64_t number(const struct fields *f, size_t i, int64_t fallback)
{
    int64_t n;
    return bytes_to_i64(text(f, i), &n) ? n : fallback;
}

static bool truth(const struct fields *f, size_t i)
{
    return bytes_equal(text(f, i), BYTES("true"));
}

/* Time, region, group, topic, id: the beginning of most. */
static void origin_read(const struct fields *f, struct trace_event *out)
{
    out->time_ms = number(f, 1, 0);
    out->group = text(f, 3);
    out->topic = text(f, 4);
    out->id = text(f, 5);
}

static void sent_read(const struct fields *f, struct trace_event *out)
{
    out->kind = EVENT_SENT;
    origin_read(f, out);
    out->cost_ms = number(f, 10, -1);
    out->success = truth(f, f->n == 13 ? 12 : 13); /* before 4.7 it had no offset id */
}

static void begun_read(const struct fields *f, struct trace_event *out)
{
    out->kind = EVENT_BEGUN;
    out->time_ms = number(f, 1, 0);
    out->group = text(f, 3);
    out->id = text(f, 5);
    out->retries = number(f, 6, -1);
    out->success = true;
}

static void finished_read(const struct fields *f, struct trace_event *out)
{
    out->kind = EVENT_FINISHED;
    out->id = text(f, 2);
    out->cost_ms = number(f, 3, -1);
    out->success = truth(f, 4);
    out->result = number(f, 6, -1);
    out->time_ms = number(f, 7, 0);
    out->group = text(f, 8);
}

static bool event_read(const struct fields *f, struct trace_event *out)
{
    struct bytes kind = f->at[0];
    *out = (struct trace_event){.cost_ms = -1, .retries = -1, .result = -1};
    if (bytes_equal(kind, BYTES("Pub")) && f->n >= 13) {
        sent_read(f, out);
    } else if (bytes_equal(kind, BYTES("SubBefore")) && f->n >= 7) {
        begun_read(f, out);
    } else if (bytes_equal(kind, BYTES("SubAfter")) && f->n >= 5) {
        finished_read(f, out);
    } else if (bytes_equal(kind, BYTES("EndTransaction")) && f->n >= 12) {
        out->kind = EVENT_DECIDED;
        origin_read(f, out);
        out->state = text(f, 11);
        out->success = true;
    } else if (bytes_equal(kind, BYTES("Recall")) && f->n >= 7) {
        out->kind = EVENT_RECALLED;
        origin_read(f, out);
        out->success = truth(f, 6);
    } else
        return false;
    return true;
}

bool trace_event_next(struct bytes *rest, struct trace_event *out)
{
    while (rest->len > 0) {
        const uint8_t *end = memchr(rest->at, RECORD_END, rest->len);
        size_t len = end ? (size_t)(end - rest->at) : rest->len;
        struct fields fields;
        split(bytes_of(rest->at, len), &fields);
        *rest = bytes_from(*rest, end ? len + 1 : len);
        if (event_read(&fields, out))
            return true;
    }
    return false;
}
