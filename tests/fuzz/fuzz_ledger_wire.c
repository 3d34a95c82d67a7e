/* Any bytes as operations on the ledger, or as their outcomes. Operations that are accepted have
 * texts that end where they should, and are read again as they are written. */
#include "ledger/wire.h"

#include <stdlib.h>

#define MOST 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void text(const char *t, const uint8_t *data, size_t size, size_t max)
{
    const uint8_t *at = (const uint8_t *)t;
    invariant(at >= data && at < data + size);
    invariant(memchr(at, 0, (size_t)(data + size - at)) != NULL && strlen(t) <= max);
}

/* A result goes with two kinds only: we write no other. */
static bool is_ours(const struct op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ops[i].kind != OP_FINISH && ops[i].kind != OP_STEP_PUT && ops[i].result.len > 0)
            return false;
    return true;
}

static void asked(const uint8_t *data, size_t size)
{
    struct op ops[MOST], *list[MOST];
    size_t n;
    if (wire_ask_read(bytes_of(data, size), ops, MOST, &n) != OK)
        return;
    invariant(n <= MOST);
    for (size_t i = 0; i < n; i++) {
        list[i] = &ops[i];
        text(ops[i].name, data, size, ONCE_NAME_MAX);
        text(ops[i].topic, data, size, LEDGER_TEXT_MAX);
        text(ops[i].message, data, size, LEDGER_TEXT_MAX);
        invariant(ops[i].step.len <= ONCE_STEP_MAX && ops[i].result.len <= ONCE_RESULT_MAX);
    }
    size_t room = wire_ask_size(list, n);
    uint8_t *again = malloc(room);
    invariant(again != NULL);
    struct wr w = wr_over(again, room);
    wire_ask_write(&w, list, n);
    invariant(!w.full && (!is_ours(ops, n) || wr_len(&w) == size));
    struct op second[MOST];
    size_t n_second;
    invariant(wire_ask_read(wr_bytes(&w), second, MOST, &n_second) == OK && n_second == n);
    free(again);
}

static void answered(const uint8_t *data, size_t size)
{
    struct op ops[MOST] = {0}, *list[MOST] = {0};
    size_t n = size > 3 ? data[3] % (MOST + 1) : 0;
    for (size_t i = 0; i < n; i++) {
        ops[i].kind = (enum op_kind)(i % OP_SWEEP);
        list[i] = &ops[i];
    }
    if (wire_answer_read(bytes_of(data, size), list, n) != OK)
        return;
    for (size_t i = 0; i < n; i++) {
        invariant(ops[i].outcome > OUT_NONE && ops[i].outcome <= OUT_FAILED);
        invariant(ops[i].left_ms >= 0 && ops[i].result.len <= size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    asked(data, size);
    answered(data, size);
    return 0;
}
