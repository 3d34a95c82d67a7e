/* serial.h - the messages of one `send`, by number, and which of them are still to be sent.
 *
 * A send of many numbers its messages from 1. The unique id of each follows from its number: the
 * first message's id is a number of its own (the last twelve digits), and each further one adds to
 * it. So a run that was broken off is described by its first id and the numbers that are left, and
 * a later run that sends those gives each message the id it had:
 *
 *     0A00000700014F1C0EAA08F3B1120000/501-520?,733,1024-
 *
 * A question mark: the broker may have these already, since its answer never came. A range without
 * an end goes on to the last message.
 */
#ifndef CLI_SERIAL_H
#define CLI_SERIAL_H

#include "base/buf.h"

#define SERIAL_ID_MAX 64
#define SERIAL_END    UINT64_MAX /* of a range that goes on */

struct range {
    uint64_t first, last;
    bool unsure;
};

struct ranges {
    struct range *at;
    size_t n, cap;
};

struct serial {
    char id[SERIAL_ID_MAX]; /* of message 1 */
    struct ranges wanted;   /* rising */
    size_t at;              /* the range of `wanted` whose numbers are being given out … */
    uint64_t next;          /* … and the next of them; 0: its first */
    struct ranges back;     /* given out, and not done */
};

/* Messages 1 to `count` (SERIAL_END: all there are), from that id on. */
must_check enum err serial_init(struct serial *s, const char *id, uint64_t count);
/* The same from "ID/RANGES". ERR_MALFORMED: it is none. */
must_check enum err serial_parse(struct serial *s, const char *text);
void serial_clear(struct serial *s);

/* The number of the next message to be sent, 0: there is none. */
uint64_t serial_next(struct serial *s, bool *unsure);
/* The same, without taking it. */
uint64_t serial_peek(const struct serial *s);
/* Message `number` was given out, but nothing came of it, or nobody knows what. */
must_check enum err serial_back(struct serial *s, uint64_t number, bool unsure);
/* The id of a message. False: `id` does not end in twelve digits, so only message 1 has one. */
bool serial_id(const struct serial *s, uint64_t number, char out[SERIAL_ID_MAX]);
/* What is left up to `end`, the last message (SERIAL_END: not known), as serial_parse reads it.
 * False: nothing is. */
bool serial_text(struct serial *s, uint64_t end, struct buf *out);

#endif
