/* chaos_int.h - `oncemq chaos`: faults for a while, then what came of them.
 *
 *     begin     where the topic ends now; a plan of faults (ONCE_CHAOS) to all brokers
 *     drive     messages of our own, if any; jumps of the clock; for as long as --duration
 *     quiet     later copies are waited for, the plan ends: what follows is an ordinary broker
 *     settle    the group consumes what is there, and the effects are looked at, until they are
 *               right, or surely wrong, or --patience is over
 *
 * What was *sent* is read from the topic itself: the different keys of what was stored there since
 * the beginning, whoever has sent it. So a send that was never answered counts exactly if it was
 * stored. A message's key is its KEYS, and without any its unique id. An *effect* is what the
 * consumer's database says: each key that was sent must be there once.
 *
 *     chaos.c          the command: options, the four steps, the result
 *     chaos_words.c    shares, rates and ranges as people write them; pure
 *     chaos_drive.c    talking to brokers, sending
 *     chaos_effects.c  what was sent; what has happened
 */
#ifndef CLI_CHAOS_INT_H
#define CLI_CHAOS_INT_H

#include "cli/admin.h"
#include "cli/scan.h"

/* ---- chaos_words.c; false: it is none ---- */

bool chaos_share(const char *text, int64_t *millionths);              /* 10%, 0.5%, 0.1 */
bool chaos_rate(const char *text, int64_t *a_minute);                 /* 6/min, 1/s, 6 */
bool chaos_range(const char *text, int64_t *min_ms, int64_t *max_ms); /* 0..50ms, 50ms */

/* ---- the run ---- */

enum chaos_count {
    COUNT_TWICE,
    COUNT_LATER,
    COUNT_ACKS,
    COUNT_RESPONSES,
    COUNT_DELAYED,
    COUNT_KILLS,
    COUNT_REBALANCES,
    COUNT_LEFT_OUT,
    COUNT_WAITING,
    CHAOS_COUNTS
};

struct chaos_wishes {
    const char *topic, *group; /* NULL: any */
    int64_t seed, twice, later, later_ms, drop_acks, drop_responses;
    int64_t delay_min_ms, delay_max_ms, kills, rebalances; /* the last two a minute */
    int64_t jump_ms, jumps;
    int64_t run_ms, patience_ms, send;
    const char *prefix; /* of the keys of what is sent */
    const char *verify, *store, *program;
};

/* What has happened, compared with what was sent. */
struct chaos_effects {
    bool known;    /* somebody was asked */
    bool not_yet;  /* a program says so */
    bool numbered; /* by their number alone: nobody knows which */
    bool right;    /* in the program's opinion */
    int64_t once, twice, never, others;
};

struct chaos_key {
    const char *text;
    int64_t effects;
};

struct chaos_run {
    struct cli *cli;
    struct chaos_wishes wishes;
    struct admin_cluster brokers;
    const char **plans; /* their numbers, as each broker told them */
    int64_t counts[CHAOS_COUNTS];
    int64_t advanced_ms;
    struct scan scan;       /* of the topic, from where it ended in the beginning */
    struct chaos_key *keys; /* that were sent, by text */
    size_t n_keys;
    int64_t records; /* messages that have them */
    bool consumed;
    struct chaos_effects effects;
};

/* ---- chaos_drive.c; each an enum status, and what fails was said ---- */

int chaos_begin(struct chaos_run *run);
int chaos_read(struct chaos_run *run); /* counts */
int chaos_clear(struct chaos_run *run);
int chaos_drive(struct chaos_run *run);

/* ---- chaos_effects.c ---- */

int chaos_sent_begin(struct chaos_run *run);
int chaos_sent_end(struct chaos_run *run);
int chaos_look(struct chaos_run *run); /* at the effects, if somebody can be asked */

#endif
