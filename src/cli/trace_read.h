/* trace_read.h - message trace as clients write it: records divided by the byte 2, their fields by
 * the byte 1. Java's TraceDataEncoder is the witness. Its forms have grown over the years: what an
 * older client left out is empty here. Pure. */
#ifndef CLI_TRACE_READ_H
#define CLI_TRACE_READ_H

#include "base/bytes.h"

enum trace_event_kind {
    EVENT_SENT,     /* Pub */
    EVENT_BEGUN,    /* SubBefore: given to a handler */
    EVENT_FINISHED, /* SubAfter */
    EVENT_DECIDED,  /* EndTransaction */
    EVENT_RECALLED, /* Recall */
};

struct trace_event {
    enum trace_event_kind kind;
    int64_t time_ms; /* 0: not told */
    struct bytes group, topic, id;
    int64_t cost_ms; /* -1: not told */
    int64_t retries; /* EVENT_BEGUN: how often it had come before; -1: not told */
    bool success;
    int64_t result;     /* EVENT_FINISHED: ConsumeReturnType by number; -1: not told */
    struct bytes state; /* EVENT_DECIDED: COMMIT_MESSAGE … */
};

/* The next record of a body that can be read; `*rest` begins as the whole body. */
bool trace_event_next(struct bytes *rest, struct trace_event *out);

#endif
