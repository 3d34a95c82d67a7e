/* Any bytes as message trace. Reading ends, and what it gives are slices of the input. */
#include "base/err.h"
#include "cli/trace_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void within(struct bytes slice, struct bytes whole)
{
    if (slice.len == 0)
        return;
    invariant(slice.at >= whole.at);
    invariant(slice.at + slice.len <= whole.at + whole.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes whole = bytes_of(data, size), rest = whole;
    struct trace_event event;
    size_t left = size + 1;
    while (trace_event_next(&rest, &event)) {
        invariant(rest.len < left); /* each turn eats something */
        left = rest.len;
        within(event.group, whole);
        within(event.topic, whole);
        within(event.id, whole);
        within(event.state, whole);
    }
    return 0;
}
