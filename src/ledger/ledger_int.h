/* ledger_int.h - the inside of the ledger's table, for those who write it down. */
#ifndef LEDGER_LEDGER_INT_H
#define LEDGER_LEDGER_INT_H

#include "base/list.h"
#include "base/map.h"
#include "ledger/ledger.h"
#include "once/rows.h"

#define ROW_FLAGS (LEDGER_WATCHED | 0xff << LEDGER_KEEP_SHIFT) /* of an entry: what a row keeps */

/* Of one id: what its steps gave, and where. */
struct ledger_step {
    struct ledger_step *next;
    uint64_t where; /* as in struct ledger_where */
    size_t name_size;
    uint8_t name[];
};
struct ledger_steps {
    uint8_t id[ROWS_ID_SIZE];
    uint32_t n;
    struct ledger_step *first;
};

/* What a key had before this turn touched it. */
struct undo {
    struct row before; /* ONCE_ABSENT: it had no row */
    struct ledger_steps *dropped;
    struct ledger_step *added; /* stands in the steps of its key */
    bool pending;              /* something of it is in a record that is not written yet */
};

struct instance {
    uint8_t key[4];
    uint32_t open;       /* requests that name it */
    int64_t ended_ms;    /* when the last of them did */
    struct link by_time; /* in ledger.ended, while none is open */
    size_t name_size;
    uint8_t name[LEDGER_CLIENT_MAX]; /* what it calls itself: of printable ASCII */
};

struct ledger {
    struct rows shard[ROWS_SHARDS];
    uint64_t n_rows, n_steps;
    int64_t floor;    /* no key that had a fence and was dropped had a higher one */
    struct map steps; /* id → struct ledger_steps */
    size_t steps_bytes;

    int64_t now_ms, since_ms, grace_ms;
    uint64_t max_keys;
    uint32_t owed; /* rows to look at, for those that were added */
    uint32_t hand_shard, hand_row;

    struct undo *undo;
    size_t n_undo, cap_undo;
    struct ledger_numbers counted, counted_before;

    struct map instances; /* key → struct instance */
    struct instance *met; /* the last one that was asked for, or NULL */
    struct list ended;
    size_t n_there; /* of them, that some request names */
};

/* Adds a row, or a step to one; NULL, ERR_NO_MEMORY: no memory. For loading: no limit. */
struct row *ledger_row_need(struct ledger *l, const uint8_t *id);
must_check enum err ledger_step_add(struct ledger *l, struct row *row, struct bytes name,
                                    uint64_t where, struct ledger_step **out);
void ledger_steps_drop(struct ledger *l, struct row *row);

#endif
