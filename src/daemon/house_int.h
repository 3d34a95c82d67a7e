/* house_int.h - what the two halves of the house share: house.c builds it, run.c lives in it. */
#ifndef DAEMON_HOUSE_INT_H
#define DAEMON_HOUSE_INT_H

#include "base/room.h"
#include "daemon/addresses.h"
#include "daemon/config.h"
#include "daemon/house.h"
#include "daemon/register.h"
#include "door/http/http.h"
#include "door/remoting/door.h"

#include <pthread.h>

#define LOOPS_MAX 64

/* One io thread. */
struct floor {
    struct house *house;
    struct loop *loop;
    pthread_t thread;
    struct post drain, drained;
};

struct house {
    struct house_options options;
    struct config config; /* options.settings points into it: for opening, before threads run */
    _Atomic int64_t save_offsets_ms, disk_max_used; /* what threads of the house need of it */
    struct log log;
    struct log_limit warnings; /* of the broker */
    /* Messages live by `clock`: store times, retention, delays, the patience of waiting pulls, when
     * to flush and save. Peers live by `real`, because they are not in our hands: whether a
     * connection, a client or a broker gives signs of life, the log's lines. They differ with
     * --clock virtual only. */
    struct clock *clock, *real;
    struct clock_virtual virtual_clock;
    struct post jumped; /* the clock was put forward: the main loop's turns run at once */
    atomic_bool jumped_posted;
    struct post saving; /* without a keeper the main loop saves what an operator has changed */
    atomic_bool saving_posted;
    struct io_limits limits;

    struct loop *main_loop;
    struct floor floors[LOOPS_MAX];
    struct loop *loops[LOOPS_MAX];
    size_t n_loops;

    struct vfs *vfs, *names_vfs;
    struct vfs_file *names_lock;
    struct names *names;
    int64_t delays_ms[DELAY_LEVELS_MAX]; /* the delay ladder; the store keeps a pointer to it */
    struct store *store;
    struct broker *broker;
    struct door *door;
    struct http *http;                                 /* NULL: none */
    struct listener *names_listener, *broker_listener; /* of loops[0], once the threads run */
    struct addr names_addr, broker_addr;               /* where they listen */
    struct name_server name_servers[ADDRESSES_MAX];    /* the one of this house first */
    size_t n_name_servers;
    struct tls *tls_spoken; /* with name servers; NULL: none */
    struct registrar *registrar;
    struct watch *watch; /* of topics elsewhere; NULL while the name server is here */
    struct broker_out out;
    char broker_name[256];
    struct addr advertised; /* also part of message ids and store hosts, which never change */
    bool advertise_auto;    /* clients are told the address by which they have reached us instead */

    struct timer *hold_timer, *expiry_timer, *ready_timer, *stop_timer;
    bool ready, stopping;
    size_t draining;

    struct room stairs; /* where flush, keeper and services hear that it is time to stop */
    bool closing;
    bool save_now;     /* topics have changed: the keeper does not wait for its hour */
    struct list saves; /* struct saved_wait: who is told when it has saved */
    struct room bell;  /* where services sleep */
    bool rung;         /* they are to look again */
    pthread_t flush_thread, keeper_thread, services_thread;
    bool flush_runs, keeper_runs, services_run;
    size_t floors_run;
};

/* tls.c: after the ports were bound; and what SIGHUP means, on the main loop. */
must_check enum err house_open_tls(struct house *h, struct fault *why);
must_check enum err house_watch_tls(struct house *h);

/* run.c: door_options.await_saved. Any thread. */
void house_await_saved(void *house, struct saved_wait *wait);

/* run.c: wakes the services thread. Any thread, no key held. */
void house_ring(struct house *h);
/* run.c: door_options.advance_clock, of a house with a virtual clock. Any thread. */
enum err house_advance_clock(void *house, int64_t ms, int64_t *now_ms);

#endif
