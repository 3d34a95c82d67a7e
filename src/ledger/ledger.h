/* ledger.h - the once ledger: who is working on which key, and what is done.
 *
 * A broker that keeps it gives consumers on many machines what libonce else needs a database for:
 * claims with an owner and an end, marks of what was done, results of steps. It is one more thing
 * that is derived from the log:
 *
 *     request ──ops──► ledger ──entries, one record for all of a turn──► log ──► answer
 *                        ▲                                                │
 *                        └── at a start: snapshot, then what the log has behind it
 *
 * The rules are libonce's own (once/decide.h), so a claim means here what it means in any store.
 * Ops and answers travel in the form of wire.h; what happened stands in the log in the form of
 * entry.h, where `oncemq why` and `oncemq audit` read it. An entry is what the key has afterwards,
 * so reading one twice does no harm, and a snapshot may be taken while others write: whatever
 * changes meanwhile stands behind the position it names.
 *
 * Order. The room `ledger` is held from the decision until the record is in the log, so nobody
 * sees what the log does not have, and the log has entries in the order of the decisions. What the
 * log refuses is taken back. An answer waits until the log is confirmed up to the last entry of
 * the ledger, whoever wrote it: "done" is told only when done is safe.
 *
 * Time. Ends of claims and marks are told in the ledger's time, which is the wall clock's when the
 * broker starts, but never before what the log or the snapshot has seen, and from then on goes
 * with the clock that never jumps. Setting the clock ends no claim.
 *
 * Presence. A client holds one request open that names its instance, the upper half of its tokens
 * (ONCE_PRESENT). While it stands, the instance is there, and after its answer for the same time
 * again if its connection stands; when it ends, by its connection or by that time, and none has
 * come for `grace_ms`, the instance is gone, and its claims are free for whoever asks. A claim of
 * an instance that was not there when it was made is never taken before its end: HTTP has no
 * presence. After a start everybody has the grace to come back.
 *
 * Memory. A row is 64 bytes with half of the id, its slot 11 to 22 more. Results and steps are not
 * in memory but in the log: a row knows where. They are gone when the log's retention has passed,
 * which by default is as long as a mark lives; a mark that lives longer has no result then.
 *
 * Files: ledger.c  the table, presence, numbers: pure, no log      wire.c   ops and answers
 *        once/rows.h  rows by id, never moving                     entry.c  what stands in the log
 *        In the broker: broker/ledger*.c, the room, the log, the snapshot, the turn.
 */
#ifndef LEDGER_LEDGER_H
#define LEDGER_LEDGER_H

#include "ledger/entry.h"
#include "ledger/numbers.h"
#include "ledger/wire.h"

#define LEDGER_INSTANCES_MAX 100000 /* that are there at the same time */
#define LEDGER_STEPS_MAX     1024   /* of one key */
#define LEDGER_CLIENT_MAX    96     /* of a client's name; what does not fit is cut */

struct ledger; /* one key for all of it: the caller's */

struct ledger_options {
    uint64_t max_keys; /* rows and steps; more are refused */
    int64_t grace_ms;  /* an instance is gone when so long nothing was heard of it */
    uint64_t seed;
};

must_check enum err ledger_open(const struct ledger_options *options, struct ledger **out);
void ledger_close(struct ledger *l);
void ledger_tune(struct ledger *l, uint64_t max_keys, int64_t grace_ms);
void ledger_numbers(const struct ledger *l, struct ledger_numbers *out);

/* ---- a turn: begin, run what is asked, write the entries, keep or take back ---- */

/* `now_ms` is the ledger's time, which never goes back. Also sweeps a little. */
void ledger_begin(struct ledger *l, int64_t now_ms);

/* Where a result stands: in a record of the log, or in one that this turn is about to write. */
struct ledger_where {
    uint64_t at; /* 0: nowhere; below LEDGER_PENDING: its position and one; else in record n */
};
#define LEDGER_PENDING (UINT64_C(1) << 63)

/* Operation number `at` of `n` is run next: the memory that those behind it need is called for. */
void ledger_expect(struct ledger *l, const struct op *ops, size_t n, size_t at);
/* Decides one operation and sets its outcome. True: `entry` is to be written as part of record
 * number `record` of this turn; it has slices of the operation. `where`: what the operation brings
 * back and the caller has to fetch from the log, for a claim that is OUT_DONE and for OP_STEP_GET.
 */
bool ledger_run(struct ledger *l, struct bytes group, uint32_t record, struct op *op,
                struct ledger_where *where, struct ledger_entry *entry);
/* The entries are in the log; each record's position. */
void ledger_keep(struct ledger *l, const int64_t *positions);
/* They are not: everything is as it was before ledger_begin. */
void ledger_undo(struct ledger *l);

/* Looks at so many rows, each once at most, on from the last one, and drops those whose time is
 * over. A start does it for all, since the log has those, too, that were dropped before. Forgets
 * instances that are gone. Not inside a turn. */
void ledger_sweep(struct ledger *l, int64_t now_ms, uint32_t rows);

/* ---- presence ---- */

/* From when on everybody counts as having been there: the start. */
void ledger_begins(struct ledger *l, int64_t now_ms);
/* A request that names this instance has come, or ended. `name`: what the client calls itself, for
 * people. ERR_BUSY: there are too many. */
must_check enum err ledger_present(struct ledger *l, uint32_t instance, struct bytes name,
                                   int64_t now_ms);
void ledger_absent(struct ledger *l, uint32_t instance, int64_t now_ms);

/* ---- at a start ---- */

/* An entry of the record at this position. ERR_MALFORMED: one that cannot be; it counts for
 * nothing. */
must_check enum err ledger_load(struct ledger *l, const struct ledger_entry *e, int64_t position);

#endif
