/* send_int.h - one `oncemq send`: what is to be sent, and how far it is. */
#ifndef CLI_SEND_INT_H
#define CLI_SEND_INT_H

#include "cli/cli.h"
#include "cli/flight.h"
#include "cli/lines.h"
#include "cli/pace.h"
#include "cli/serial.h"

struct send {
    struct cli *cli;
    const char *topic;

    /* The message, as it was told; {n} and {time} in it are filled in for each. */
    struct bytes body; /* of all, unless there are lines */
    const char *tag, *key, *order;
    struct omq_property *properties;
    size_t n_properties;
    int64_t delay_ms, deliver_ms;

    bool by_line;       /* a message for each line of the input */
    bool fills;         /* placeholders count */
    struct lines lines; /* the input */
    uint64_t line;      /* the number of the last line that was read */
    struct bytes ready; /* a line that waits for room */
    bool has_ready, input_over;

    struct serial serial;
    uint64_t end; /* the last message; SERIAL_END: not known yet */
    struct pace pace;
    uint64_t begun; /* messages */
    int64_t began_ms;
    bool each;       /* print a record for each */
    bool keep_going; /* also when one is refused */

    struct flight *flight;
    struct progress progress;
    struct arena scratch;  /* of the message that is being made */
    uint64_t counts[4];    /* by enum fate */
    uint64_t weak;         /* stored, but not flushed or not copied */
    uint64_t there;        /* stored before, by a run that did not know */
    struct landed *unsure; /* to be looked for at the end */
    size_t n_unsure;
    bool failed;
    int input_status;     /* what is wrong with the input; it has been said */
    struct omq_error why; /* of the first that failed */
};

/* send_settle.c */

/* Looks for a message that may be stored, by its id. True: it is, and `l` says where. */
bool send_look(struct send *send, struct landed *l);
/* The last word: what is still unsure is looked for; then what was done and what is left is said.
 * The status of the command. */
int send_report(struct send *send);
void send_print(struct send *send, const struct landed *l); /* its record */

/* send_make.c */
int send_read(struct send *send); /* an enum status: from the command line */
/* Message `number` with its id in `id`; valid until the next. False: it cannot be made. */
bool send_make(struct send *send, uint64_t number, struct bytes body, char id[SERIAL_ID_MAX],
               struct omq_message *out, struct omq_error *why);

#endif
