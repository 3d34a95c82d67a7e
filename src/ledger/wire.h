/* wire.h - operations on the ledger and their answers, as bytes: the bodies of ONCE_LEDGER. Pure.
 *
 * A request has up to LEDGER_OPS_MAX operations, each for itself; the answer has their outcomes in
 * the same order. Integers are big-endian. A text has two bytes of length, its bytes and a NUL that
 * is not counted, so that it can be used where it stands; a blob has four bytes of length.
 *
 *     request   1, 0, u16 n, then n times:
 *               u8 kind, u8 flags, id[32], u64 token, u64 fingerprint, i64 expiry, i64 retention,
 *               text name, text topic, text message, text step, blob result
 *     answer    1, 0, u16 n, then n times:
 *               u8 outcome, u8 state, i64 fence, i64 left, u64 fingerprint, blob result, text why
 *
 * kind, state and outcome are the numbers of enum op_kind, once_state and op_outcome, which are
 * therefore forever. OP_SWEEP does not travel: the broker sweeps by itself. A result goes with
 * OP_FINISH (LEDGER_RESULT_MAX) and OP_STEP_PUT, and comes with a claim that is OUT_DONE and with
 * OP_STEP_GET.
 */
#ifndef LEDGER_WIRE_H
#define LEDGER_WIRE_H

#include "once/op.h"

#define LEDGER_OPS_MAX    ONCE_OPS_MAX
#define LEDGER_TEXT_MAX   255  /* topic, id of a message */
#define LEDGER_RESULT_MAX 4096 /* of what is done */
#define LEDGER_WHY_MAX    255

/* A bound for the bytes of such a request or answer. */
size_t wire_ask_size(struct op *const *ops, size_t n);
size_t wire_answer_size(struct op *const *ops, size_t n);
/* `full` is set when `w` is smaller than that. Texts that are longer than allowed are cut; a result
 * that is too long must not be handed in. */
void wire_ask_write(struct wr *w, struct op *const *ops, size_t n);
void wire_answer_write(struct wr *w, struct op *const *ops, size_t n);

/* Up to `max` operations into `ops`; texts and results are slices of `body`. ERR_MALFORMED;
 * ERR_TOO_BIG: more of something than allowed; ERR_UNSUPPORTED: another version, or a kind that is
 * not known. */
must_check enum err wire_ask_read(struct bytes body, struct op *ops, size_t max, size_t *n);
/* Outcomes into the very operations that were asked. A result is a slice of `body`; for OUT_FAILED
 * `why` has the sentence. ERR_MALFORMED also when there are not `n`. */
must_check enum err wire_answer_read(struct bytes body, struct op *const *ops, size_t n);

#endif
