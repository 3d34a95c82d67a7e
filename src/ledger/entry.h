/* entry.h - what happened in the ledger, as it stands in the log. Pure.
 *
 * A record of the topic LEDGER_TOPIC holds the entries of one turn:
 *
 *     1, 0, u16 n, then n times:
 *     u8 event, u8 state, u16 flags, id[32], u64 token, i64 fence, i64 until, i64 at,
 *     u64 fingerprint, text group, text client, text name, text topic, text message, text step,
 *     blob result
 *
 * Texts and blobs as in wire.h. An entry whose event changes something says what the key has
 * afterwards; the others only tell (EVENT_SUPPRESSED and those behind it).
 */
#ifndef LEDGER_ENTRY_H
#define LEDGER_ENTRY_H

#include "base/bytes.h"
#include "base/err.h"

#define LEDGER_TOPIC       "rmq_sys_ONCE_LEDGER"
#define LEDGER_ENTRIES_MAX 1024 /* in one record */

enum ledger_event {
    EVENT_CLAIMED = 1,
    EVENT_RENEWED,
    EVENT_DONE,
    EVENT_RELEASED,
    EVENT_FORGOTTEN,
    EVENT_STEP,       /* put; the result is its value */
    EVENT_SUPPRESSED, /* a claim that found it done: a duplicate without effect */
    EVENT_REFUSED,    /* the same, but of another body */
    EVENT_LOST,       /* who wanted to renew, finish or release it had lost it: whether its effect
                         happened twice is unsure */
    EVENT_LAST = EVENT_LOST,
};

enum ledger_flag {
    LEDGER_WATCHED = 1,   /* its instance was there when it was claimed */
    LEDGER_OVERTOOK = 2,  /* claimed from another whose run never ended */
    LEDGER_OWNER_GONE = 4 /* … because its instance was gone, before the end of its claim */
};
/* The upper byte of a claim's flags: for 2^n ms it may outlive its end, unless somebody takes it.
 */
#define LEDGER_KEEP_SHIFT 8

struct ledger_entry {
    uint8_t event; /* enum ledger_event */
    uint8_t state; /* enum once_state, afterwards */
    uint16_t flags;
    uint8_t id[32];
    uint64_t token;
    int64_t fence, until_ms, at_ms;
    uint64_t fingerprint;
    /* Each may be empty. The client is what its instance called itself (ONCE_PRESENT). */
    struct bytes group, client, name, topic, message, step, result;
};

const char *ledger_event_text(uint8_t event); /* "claimed" … ; NULL: there is no such event */

#define ENTRIES_HEAD 4 /* bytes, of a record */
size_t entry_size(const struct ledger_entry *e);
/* A record is begun, entries are added, and it is ended with how many they were. */
void entries_begin(struct wr *w);
void entry_write(struct wr *w, const struct ledger_entry *e);
void entries_end(struct wr *w, size_t n);

/* Calls `each` for every entry of a record, as long as it says yes; slices point into the body. All
 * of it is checked first: ERR_MALFORMED, ERR_TOO_BIG, ERR_UNSUPPORTED (another version), and
 * nothing was called. */
typedef bool entry_fn(void *user, const struct ledger_entry *e);
must_check enum err entries_read(struct bytes body, entry_fn *each, void *user);

#endif
