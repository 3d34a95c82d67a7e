/* flight.h - many messages under way at once, and exactly what became of each.
 *
 *     struct flight *flight;
 *     flight_open(cli, &limits, &flight)
 *     while (flight_room(flight)) flight_send(flight, &message, number, NULL)
 *     flight_land(flight, each, user)      what has been answered since, message by message
 *     flight_close(flight)
 *
 * A message is tried again by itself only if no try before can have stored it, so it is never
 * stored twice. That is so when no broker could be reached, and when one is busy: then fewer are
 * under way at once from there on, and it comes again a little later, for half a minute at most.
 * What became of it is one of four:
 *
 *     stored       the broker says so
 *     duplicate    the broker had it already under this id (producer dedup), and says so
 *     not stored   it was refused, or no broker could be reached
 *     unsure       the connection broke, or time was up, before the answer
 *
 * Threads: the main thread; answers are collected from the library's.
 */
#ifndef CLI_FLIGHT_H
#define CLI_FLIGHT_H

#include "cli/cli.h"

enum fate { FATE_STORED, FATE_DUPLICATE, FATE_NOT_STORED, FATE_UNSURE };
const char *fate_text(enum fate fate);

struct landed {
    uint64_t number; /* as they were given to flight_send */
    void *what;
    enum fate fate;
    struct omq_receipt receipt; /* FATE_STORED, FATE_DUPLICATE; else its id alone */
    struct omq_error why;       /* the others */
};

struct flight_limits {
    size_t messages;      /* under way at once */
    const char *group;    /* of the producer */
    int compression;      /* enum omq_compression */
    size_t compress_over; /* 0: the library's default */
    bool trace;
};

struct flight;
/* An enum status; it has been said what is wrong. */
int flight_open(struct cli *cli, const struct flight_limits *limits, struct flight **out);
void flight_close(struct flight *flight);

/* Room for one more. It begins with a few at once, and becomes more as answers come. */
bool flight_room(const struct flight *flight, size_t body_size);
size_t flight_under_way(const struct flight *flight);
/* What cannot even begin lands as well. */
void flight_send(struct flight *flight, const struct omq_message *message, uint64_t number,
                 void *what);
typedef void flight_each(void *user, const struct landed *landed);
void flight_land(struct flight *flight, flight_each *each, void *user);
/* Waits at most `ms` for something to land; `fd` (-1: none) ends it, too, when it can be read. */
void flight_wait(struct flight *flight, int fd, int64_t ms);

#endif
