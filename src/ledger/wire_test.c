/* wire_test.c - operations and outcomes as bytes and back. */
#include "ledger/wire.h"

#include "base/test.h"
#include "once.h"

#define ROUNDS 300

struct sheet {
    uint8_t *at;
    size_t len;
};

static struct sheet ask_of(struct op *const *ops, size_t n)
{
    size_t size = wire_ask_size(ops, n);
    struct sheet s = {.at = malloc(size)};
    assert_non_null(s.at);
    struct wr w = wr_over(s.at, size);
    wire_ask_write(&w, ops, n);
    assert_false(w.full);
    s.len = wr_len(&w);
    return s;
}

static struct sheet answer_of(struct op *const *ops, size_t n)
{
    size_t size = wire_answer_size(ops, n);
    struct sheet s = {.at = malloc(size)};
    assert_non_null(s.at);
    struct wr w = wr_over(s.at, size);
    wire_answer_write(&w, ops, n);
    assert_false(w.full);
    s.len = wr_len(&w);
    return s;
}

/* ---- random ones ---- */

struct texts {
    char name[ONCE_NAME_MAX + 1], topic[LEDGER_TEXT_MAX + 1], message[LEDGER_TEXT_MAX + 1];
    uint8_t step[ONCE_STEP_MAX], result[LEDGER_RESULT_MAX];
};

static const char *random_text(struct dice *dice, char *at, size_t max)
{
    size_t len = (size_t)dice_below(dice, 4) ? (size_t)dice_below(dice, max + 1) : 0;
    for (size_t i = 0; i < len; i++)
        at[i] = (char)(1 + dice_below(dice, 255));
    at[len] = 0;
    return at;
}

static struct op random_op(struct dice *dice, struct texts *texts)
{
    struct op op = {
        .kind = (enum op_kind)dice_below(dice, OP_SWEEP),
        .token = dice_next(dice),
        .fingerprint = dice_next(dice),
        .expiry_ms = (int64_t)dice_next(dice),
        .retention_ms = (int64_t)dice_next(dice),
        .forget = dice_below(dice, 2),
        .takeover = dice_below(dice, 2),
    };
    for (size_t i = 0; i < sizeof op.id; i++)
        op.id[i] = (uint8_t)dice_next(dice);
    op.name = random_text(dice, texts->name, ONCE_NAME_MAX);
    op.topic = random_text(dice, texts->topic, LEDGER_TEXT_MAX);
    op.message = random_text(dice, texts->message, LEDGER_TEXT_MAX);
    op.step = bytes_of(texts->step, (size_t)dice_below(dice, ONCE_STEP_MAX + 1));
    for (size_t i = 0; i < op.step.len; i++)
        texts->step[i] = (uint8_t)(1 + dice_below(dice, 255));
    op.result = bytes_of(texts->result, (size_t)dice_below(dice, LEDGER_RESULT_MAX + 1));
    for (size_t i = 0; i < op.result.len; i++)
        texts->result[i] = (uint8_t)dice_next(dice);
    return op;
}

static void assert_same_ask(const struct op *got, const struct op *sent)
{
    bool carries = sent->kind == OP_FINISH || sent->kind == OP_STEP_PUT;
    assert_int_equal(got->kind, sent->kind);
    assert_memory_equal(got->id, sent->id, ONCE_ID_SIZE);
    assert_true(got->token == sent->token && got->fingerprint == sent->fingerprint);
    assert_true(got->expiry_ms == sent->expiry_ms && got->retention_ms == sent->retention_ms);
    assert_true(got->forget == sent->forget && got->takeover == sent->takeover);
    assert_string_equal(got->name, sent->name);
    assert_string_equal(got->topic, sent->topic);
    assert_string_equal(got->message, sent->message);
    assert_bytes_equal(got->step, sent->step);
    assert_bytes_equal(got->result, carries ? sent->result : (struct bytes){0});
    assert_int_equal(got->outcome, OUT_NONE);
}

static void operations_come_as_they_were_sent(void **state)
{
    (void)state;
    enum { MOST = 4 };
    struct dice dice = test_dice();
    static struct texts texts[MOST];
    struct op sent[MOST], got[MOST], *ops[MOST];
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = (size_t)dice_below(&dice, MOST + 1), found = 99;
        for (size_t i = 0; i < n; i++) {
            sent[i] = random_op(&dice, &texts[i]);
            ops[i] = &sent[i];
        }
        struct sheet s = ask_of(ops, n);
        cleanup(free_at) uint8_t *exact = test_copy(s.at, s.len);
        free(s.at);
        assert_int_equal(wire_ask_read(bytes_of(exact, s.len), got, MOST, &found), OK);
        assert_int_equal(found, n);
        for (size_t i = 0; i < n; i++)
            assert_same_ask(&got[i], &sent[i]);
    }
}

static struct op random_outcome(struct dice *dice, struct texts *texts)
{
    struct op op = random_op(dice, texts);
    op.outcome = (enum op_outcome)(1 + dice_below(dice, OUT_FAILED));
    op.state = (int)dice_below(dice, ONCE_RELEASED + 1);
    op.fence = (int64_t)dice_next(dice);
    op.left_ms = (int64_t)(dice_next(dice) >> 1);
    (void)fault_set(&op.why, ERR_IO, "no room for %s", "this");
    return op;
}

static void outcomes_come_as_they_were_sent(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    static struct texts texts;
    for (int round = 0; round < ROUNDS; round++) {
        struct op sent = random_outcome(&dice, &texts), *out = &sent;
        struct sheet s = answer_of(&out, 1);
        cleanup(free_at) uint8_t *exact = test_copy(s.at, s.len);
        free(s.at);
        struct op got = {.kind = sent.kind, .fingerprint = 7}, *in = &got;
        assert_int_equal(wire_answer_read(bytes_of(exact, s.len), &in, 1), OK);
        assert_int_equal(got.outcome, sent.outcome);
        assert_int_equal(got.state, sent.state);
        assert_true(got.fence == sent.fence && got.left_ms == sent.left_ms);
        /* Whoever asked knows its own fingerprint; that of what is done is news. */
        assert_true(got.fingerprint == (sent.outcome == OUT_DONE ? sent.fingerprint : 7));
        bool brings = (sent.kind == OP_CLAIM && sent.outcome == OUT_DONE) ||
                      (sent.kind == OP_STEP_GET && sent.outcome == OUT_OK);
        assert_bytes_equal(got.result, brings ? sent.result : (struct bytes){0});
        assert_string_equal(got.why.text, sent.outcome == OUT_FAILED ? "no room for this" : "");
    }
}

/* ---- refusals ---- */

static struct op whole_op(void)
{
    return (struct op){.kind = OP_FINISH,
                       .id = {1, 2, 3},
                       .name = "order:7",
                       .topic = "Orders",
                       .message = "AC11",
                       .token = 5,
                       .step = BYTES("pay"),
                       .result = BYTES("paid\0twice")};
}

/* Each prefix in an allocation of its own, so that a read one byte too far is seen. */
static void refuses_every_prefix_and_one_byte_more(void **state)
{
    (void)state;
    struct op op = whole_op(), got, *ops[] = {&op, &op};
    size_t n = 99;
    struct sheet s = ask_of(ops, 1);
    for (size_t cut = 0; cut < s.len; cut++) {
        cleanup(free_at) uint8_t *exact = test_copy(s.at, cut);
        assert_int_equal(wire_ask_read(bytes_of(exact, cut), &got, 1, &n), ERR_MALFORMED);
    }
    assert_int_equal(wire_ask_read(bytes_of(s.at, s.len), &got, 1, &n), OK);
    cleanup(free_at) uint8_t *more = calloc(1, s.len + 1);
    memcpy(more, s.at, s.len);
    assert_int_equal(wire_ask_read(bytes_of(more, s.len + 1), &got, 1, &n), ERR_MALFORMED);
    free(s.at);

    op.kind = OP_STEP_GET;
    op.outcome = OUT_OK;
    struct op *asked[] = {&got, &got};
    s = answer_of(ops, 1);
    for (size_t cut = 0; cut < s.len; cut++) {
        cleanup(free_at) uint8_t *exact = test_copy(s.at, cut);
        assert_int_equal(wire_answer_read(bytes_of(exact, cut), asked, 1), ERR_MALFORMED);
    }
    assert_int_equal(wire_answer_read(bytes_of(s.at, s.len), asked, 1), OK);
    assert_int_equal(wire_answer_read(bytes_of(s.at, s.len), asked, 2), ERR_MALFORMED);
    assert_int_equal(wire_answer_read(bytes_of(s.at, s.len), asked, 0), ERR_MALFORMED);
    free(s.at);
}

static void refuses_another_version_and_kinds_it_does_not_know(void **state)
{
    (void)state;
    struct op op = whole_op(), got, *ops[] = {&op};
    size_t n;
    struct sheet s = ask_of(ops, 1);
    s.at[4] = OP_SWEEP; /* the kind is the first byte of the first operation */
    assert_int_equal(wire_ask_read(bytes_of(s.at, s.len), &got, 1, &n), ERR_UNSUPPORTED);
    s.at[4] = 255;
    assert_int_equal(wire_ask_read(bytes_of(s.at, s.len), &got, 1, &n), ERR_UNSUPPORTED);
    s.at[4] = OP_CLAIM;
    s.at[0] = 2;
    assert_int_equal(wire_ask_read(bytes_of(s.at, s.len), &got, 1, &n), ERR_UNSUPPORTED);
    free(s.at);
}

/* Outcome, state and what is left are numbers of ours, and others are not believed. */
static void refuses_answers_with_numbers_that_mean_nothing(void **state)
{
    (void)state;
    struct op op = {.kind = OP_LOOK, .outcome = OUT_OK}, *ops[] = {&op};
    struct sheet s = answer_of(ops, 1);
    const struct {
        size_t at;
        uint8_t is;
    } wrong[] = {{0, 2}, {4, OUT_NONE}, {4, OUT_FAILED + 1}, {5, ONCE_RELEASED + 1}, {14, 0x80}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint8_t was = s.at[wrong[i].at];
        s.at[wrong[i].at] = wrong[i].is;
        assert_int_not_equal(wire_answer_read(bytes_of(s.at, s.len), ops, 1), OK);
        s.at[wrong[i].at] = was;
    }
    assert_int_equal(wire_answer_read(bytes_of(s.at, s.len), ops, 1), OK);
    free(s.at);
}

static void refuses_more_operations_than_there_is_room_for(void **state)
{
    (void)state;
    struct op op = whole_op(), got[2], *ops[] = {&op, &op};
    size_t n = 99;
    struct sheet s = ask_of(ops, 2);
    assert_int_equal(wire_ask_read(bytes_of(s.at, s.len), got, 1, &n), ERR_TOO_BIG);
    assert_int_equal(n, 99);
    free(s.at);
}

/* ---- limits ---- */

/* An operation by hand, with texts of these lengths: the writer would cut them. */
static enum err read_with(enum op_kind kind, size_t name, size_t topic, size_t message, size_t step,
                          size_t result)
{
    const size_t texts[] = {name, topic, message, step};
    size_t size = 128 + name + topic + message + step + result + 64, n;
    cleanup(free_at) uint8_t *at = malloc(size);
    cleanup(free_at) uint8_t *letters = malloc(size);
    assert_true(at && letters);
    memset(letters, 'x', size);
    struct wr w = wr_over(at, size);
    static const uint8_t head[] = {1, 0, 0, 1}, fixed[1 + ONCE_ID_SIZE + 4 * 8];
    wr_bytes_of(&w, bytes_of(head, sizeof head));
    wr_u8(&w, (uint8_t)kind);
    wr_bytes_of(&w, bytes_of(fixed, sizeof fixed));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        wr_u16(&w, (uint16_t)texts[i]);
        wr_bytes_of(&w, bytes_of(letters, texts[i]));
        wr_u8(&w, 0);
    }
    wr_u32(&w, (uint32_t)result);
    wr_bytes_of(&w, bytes_of(letters, result));
    assert_false(w.full);
    struct op op;
    return wire_ask_read(wr_bytes(&w), &op, 1, &n);
}

static void texts_and_results_have_limits(void **state)
{
    (void)state;
    assert_int_equal(
        read_with(OP_CLAIM, ONCE_NAME_MAX, LEDGER_TEXT_MAX, LEDGER_TEXT_MAX, ONCE_STEP_MAX, 0), OK);
    assert_int_equal(read_with(OP_CLAIM, ONCE_NAME_MAX + 1, 0, 0, 0, 0), ERR_TOO_BIG);
    assert_int_equal(read_with(OP_CLAIM, 0, LEDGER_TEXT_MAX + 1, 0, 0, 0), ERR_TOO_BIG);
    assert_int_equal(read_with(OP_CLAIM, 0, 0, LEDGER_TEXT_MAX + 1, 0, 0), ERR_TOO_BIG);
    assert_int_equal(read_with(OP_STEP_GET, 0, 0, 0, ONCE_STEP_MAX + 1, 0), ERR_TOO_BIG);
    assert_int_equal(read_with(OP_FINISH, 0, 0, 0, 0, LEDGER_RESULT_MAX), OK);
    assert_int_equal(read_with(OP_FINISH, 0, 0, 0, 0, LEDGER_RESULT_MAX + 1), ERR_TOO_BIG);
    assert_int_equal(read_with(OP_STEP_PUT, 0, 0, 0, 1, ONCE_RESULT_MAX), OK);
    assert_int_equal(read_with(OP_STEP_PUT, 0, 0, 0, 1, ONCE_RESULT_MAX + 1), ERR_TOO_BIG);
}

static void texts_that_are_too_long_are_cut_by_who_sends_them(void **state)
{
    (void)state;
    char name[ONCE_NAME_MAX + 10], long_text[LEDGER_TEXT_MAX + 10];
    memset(name, 'n', sizeof name - 1);
    memset(long_text, 't', sizeof long_text - 1);
    name[sizeof name - 1] = long_text[sizeof long_text - 1] = 0;
    struct op op = {.kind = OP_CLAIM, .name = name, .topic = long_text, .message = NULL}, got;
    struct op *ops[] = {&op};
    size_t n;
    struct sheet s = ask_of(ops, 1);
    assert_int_equal(wire_ask_read(bytes_of(s.at, s.len), &got, 1, &n), OK);
    assert_int_equal(strlen(got.name), ONCE_NAME_MAX);
    assert_int_equal(strlen(got.topic), LEDGER_TEXT_MAX);
    assert_string_equal(got.message, "");
    free(s.at);
}

static void refuses_a_text_with_a_nul_inside_or_none_behind(void **state)
{
    (void)state;
    struct op op = whole_op(), got, *ops[] = {&op};
    size_t n, name_at = 4 + 2 + ONCE_ID_SIZE + 4 * 8 + 2;
    struct sheet s = ask_of(ops, 1);
    assert_memory_equal(s.at + name_at, "order:7", 8);
    s.at[name_at + 1] = 0;
    assert_int_equal(wire_ask_read(bytes_of(s.at, s.len), &got, 1, &n), ERR_MALFORMED);
    s.at[name_at + 1] = 'r';
    s.at[name_at + 7] = 'x';
    assert_int_equal(wire_ask_read(bytes_of(s.at, s.len), &got, 1, &n), ERR_MALFORMED);
    free(s.at);
}

static void says_when_there_is_no_room_to_write(void **state)
{
    (void)state;
    struct op op = whole_op(), *ops[] = {&op};
    struct sheet s = ask_of(ops, 1);
    for (size_t room = 0; room < s.len; room++) {
        cleanup(free_at) uint8_t *exact = malloc(room);
        struct wr w = wr_over(exact, room);
        wire_ask_write(&w, ops, 1);
        assert_true(w.full);
    }
    free(s.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_come_as_they_were_sent),
        cmocka_unit_test(outcomes_come_as_they_were_sent),
        cmocka_unit_test(refuses_every_prefix_and_one_byte_more),
        cmocka_unit_test(refuses_another_version_and_kinds_it_does_not_know),
        cmocka_unit_test(refuses_answers_with_numbers_that_mean_nothing),
        cmocka_unit_test(refuses_more_operations_than_there_is_room_for),
        cmocka_unit_test(texts_and_results_have_limits),
        cmocka_unit_test(texts_that_are_too_long_are_cut_by_who_sends_them),
        cmocka_unit_test(refuses_a_text_with_a_nul_inside_or_none_behind),
        cmocka_unit_test(says_when_there_is_no_room_to_write),
    };
    return cmocka_run_group_tests_name("ledger/wire", tests, NULL, NULL);
}
