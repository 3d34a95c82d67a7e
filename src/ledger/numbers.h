/* numbers.h - what the ledger has counted. */
#ifndef LEDGER_NUMBERS_H
#define LEDGER_NUMBERS_H

#include <stdint.h>

/* Since it was opened, but for the first four. */
struct ledger_numbers {
    uint64_t keys, steps, bytes; /* there are now; in memory */
    uint64_t instances;          /* that are there now */
    uint64_t claims;             /* that were made */
    uint64_t busy;               /* claims that found another's */
    uint64_t suppressed;         /* claims that found it done: duplicates without effect */
    uint64_t refused;            /* … of another body */
    uint64_t lost;               /* what was done came after another had taken it: unsure */
    uint64_t stale;              /* renewals, releases and steps by a token that had it no more */
    uint64_t freed;              /* taken because their owner was gone … */
    uint64_t expired;            /* … or because their end had passed */
    uint64_t swept;              /* rows whose time was over */
    uint64_t full;               /* claims that were refused for want of room */
};

#endif
