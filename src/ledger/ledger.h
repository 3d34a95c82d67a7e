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
 * (ONCE_PRESENT). While it stands, the instance is there; when it ends, by its connection or by
 * its time, and none has come for `grace_ms`, the instance is gone, and its claims are free for
 * whoever asks. A claim of an instance that was not there when it was made is never taken before
 * its end: HTTP has no presence. After a start everybody has the grace to come back.
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
#include "ledger/wire.h"

#endif
