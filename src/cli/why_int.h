/* why_int.h - why did this message have that effect, or none? The model of `oncemq why`.
 *
 *     id or key ──► messages, each with its story (trace_int.h) ──┐
 *                     │ of the message                            ├─► events by time, and for each
 *                     ▼                                           │   group an answer in words
 *                   entries of the ledger (ledger/entry.h) ───────┘
 *
 * The ledger is read twice: a message is named by the entries of its claims; these have keys, and
 * of a key all entries count, also those of other messages: what suppressed this one may be old.
 */
#ifndef CLI_WHY_INT_H
#define CLI_WHY_INT_H

#include "cli/trace_int.h"
#include "ledger/entry.h"

#define WHY_STORIES_MAX 16   /* messages of one key */
#define WHY_ENTRIES_MAX 4096 /* of the ledger, for all of them */

struct why_entries {
    struct ledger_entry *at; /* in the order of the ledger; texts are in the arena */
    size_t n, room;
    bool cut; /* there are more */
};

struct why {
    struct cli *cli;
    struct admin_cluster cluster;
    struct story stories[WHY_STORIES_MAX];
    size_t n;
    bool more; /* messages than these */
    struct why_entries entries;
    int64_t now_ms; /* as brokers see it, as far as that is known */
};

/* why_ledger.c: the entries of these messages' keys, and of the key of that name, if it is not
 * NULL. No ledger: none. Enum status. */
int why_ledger(struct why *w, const char *name);
/* The unique ids of messages that claimed the key of that name, without those that are there. */
int why_ids(struct why *w, const char *name, struct admin_names *out);

/* why_answer.c: what became of it in a group, in a word and in a sentence. */
struct answer {
    const char *state, *because;
};
/* `s` NULL: only the ledger knows of the group. */
struct answer why_answer(struct why *w, struct story *story, const char *group,
                         const struct group_state *s);
/* When a copy that waits comes out; -1: not known. */
int64_t why_due_ms(struct why *w, const struct copy *copy);
const char *why_time(struct cli *cli, int64_t ms); /* for people, in a sentence */

#endif
