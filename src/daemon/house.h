/* house.h - the wiring: base things, then the store, services and doors, and the threads that call
 * them.
 *
 * Nothing here is global, so two houses fit in one process. The thread that calls house_run becomes
 * the house's main thread: it reads the signals and runs the services' timers; everything else runs
 * in threads that the house starts and joins.
 *
 *     main     signals; expiry of brokers, clients and waiting pulls; registration
 *     io       one loop each: decode, verb, encode
 *     flush    store_flush_turn; with synchronous flush then the dispatcher for what that has
 *              confirmed, and else with less right to a core than the others
 *     keeper   store_keep_turn, store_clean_turn, saving of tables
 *     services the turns of services that move messages, and the dispatcher for what was left
 */
#ifndef DAEMON_HOUSE_H
#define DAEMON_HOUSE_H

#include "base/err.h"
#include "daemon/settings.h"

struct house;

struct house_options {
    const struct settings *settings; /* as configured; the house has a copy, which may change */
    const bool *given; /* which of them the command line gave, by index; may be NULL */
    bool names, broker;
    bool virtual_clock;   /* the clock of messages can be put forward, and begins … */
    int64_t ahead_ms;     /* … so far ahead of the system's */
    bool chaos;           /* faults may be asked for */
    int ready_fd;         /* told about readiness as well; -1: none */
    uint64_t started_ns;  /* when the process began, for the ready line */
    uint64_t descriptors; /* how many files and connections the process may have open */
};

must_check enum err house_open(const struct house_options *options, struct house **out,
                               struct fault *why);

/* Serves until SIGTERM or SIGINT, then stops: no new connection, what was accepted is finished,
 * everything is flushed. A second signal ends the process at once. */
must_check enum err house_run(struct house *house, struct fault *why);
must_check enum err house_close(struct house *house, struct fault *why);

#endif
