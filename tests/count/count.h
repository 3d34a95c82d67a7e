/* count.h - the hot paths in one thread, for tools that count.
 *
 *     count_broker send|send1|sync|batch|pull|wait MESSAGES
 *     count_once once MESSAGES
 *
 * A daemon under load is never twice the same: how many messages one read brings is up to the
 * scheduler. Here everything that decides that is in one thread. Clients and the broker's loop take
 * turns: all requests of a round are written, the loop makes one turn, all answers are read and
 * checked. The loop, the door, the broker and the store are the daemon's own; sockets are pairs
 * within this process, which have everything at once; the clock stands still; chance has a fixed
 * seed. So two runs do the same, and the difference of a short and a long run is what messages
 * cost, without start-up.
 *
 *     send    8 connections, 32 sends of 1 KiB each in a round, JSON headers as of the Java client
 *     send1   64 connections, one send each
 *     sync    as send, with SYNC_FLUSH: answers wait for the disk and leave in the next turn. What
 *             the flush thread does in between is not counted
 *     batch   8 connections, one SEND_BATCH_MESSAGE of 32 messages of 128 bytes each
 *     pull    8 consumers, one pull of 32 messages each; what was read is read again
 *     wait    8 consumers whose pulls wait, one message for each: stored, waking, read, answered;
 *             then the next pull, which waits again
 *     once    libonce on its memory store: a key of a JSON body, a claim, a handler that does
 *             nothing, a mark; every key is new
 *
 * What happens inside of loop_run and of once_do is the path, and is counted; everything else is
 * the client. Of what the loop does only the bell by which it is stopped is not the daemon's: one
 * read in a turn.
 */
#ifndef TESTS_COUNT_H
#define TESTS_COUNT_H

#include "../../bench/bench_broker.h"

#define COUNT_TOPIC "Count"
#define COUNT_GROUP "count_consumer"
#define CONNS_MAX   64

/* ---- count_house.c: a broker with its loop, without threads ---- */

struct house;

/* In a folder of its own below $TMPDIR, or here; house_close removes it. */
struct house *house_open(bool sync);
void house_close(struct house *house);
/* A connection to it; what is written waits until the next turn. */
void house_connect(struct house *house, struct wire *client);
/* One turn of the loop: all that has been written is read, done and answered. */
void house_turn(struct house *house);
/* What was stored is brought to the disk, and who waited for that is answered, in another turn. */
void house_flush(struct house *house);

/* ---- count_paths.c: rounds ---- */

struct sends {
    unsigned conns, flight; /* of a batch: its messages, which are one request */
    bool sync;              /* so was the house opened */
    bool batch;
};
void count_sends(struct house *house, const struct sends *how, unsigned messages);
void count_pulls(struct house *house, unsigned messages);
void count_waits(struct house *house, unsigned messages);

#endif
