/* ledger_driver.h - `broker:`, libonce on the ledger of a broker.
 *
 * The rules are the broker's (ledger/ledger.h), so this driver is a messenger:
 *
 *     crew ── ops ──► store.c ── wire.h ──► omq_call ──► ONCE_LEDGER        presence.c
 *                                                │                        ONCE_PRESENT, held open
 *                                                └──── one connection ────────────┘
 *
 * It has a client of liboncemq of its own, never the application's: that one may be closed while a
 * handler that was left behind has yet to end, and its loop has messages to carry.
 *
 * Where. A key must always be asked at the same place, so a store is one broker: the one that is
 * named, or the only master that the name servers know (where.c). With several and none named it is
 * refused. Its address is asked for anew with every connection, so a broker may move.
 *
 * Birth. Every ledger has a number from its birth, and each request names the one that was told
 * when the store was opened. A broker that was given an empty folder has another, refuses, and
 * that is ERR_STALE.
 *
 * Presence. One request that names our instance, the upper half of our tokens, is held by the
 * broker as long as it likes and asked again when it was answered: while it stands, or has stood a
 * moment ago, we are there. It travels on the connection of the operations, ahead of them, so a
 * claim is known to be ours from the first one on.
 *
 * Rooms: store.key, a leaf: address, birth, whether presence is asked for. Only a call that does
 * not wait is made inside.
 */
#ifndef LEDGER_DRIVER_LEDGER_DRIVER_H
#define LEDGER_DRIVER_LEDGER_DRIVER_H

#include "ledger/wire.h"
#include "once/driver.h"
#include "oncemq.h"

#include <pthread.h>

#define WHERE_NAMES_MAX   1024 /* name servers, as text */
#define WHERE_NAME_MAX    255  /* of a broker */
#define WHERE_ADDRESS_MAX 280
#define GROUP_MAX         255
#define BIRTH_MAX         24

/* ---- where.c: pure ---- */

/* What a URL says. */
struct where {
    char names[WHERE_NAMES_MAX];   /* "": the default */
    char name[WHERE_NAME_MAX + 1]; /* "": the only one */
};
/* ERR_INVALID */
must_check enum err where_parse(const char *url, struct where *out, struct fault *why);

struct spot {
    char name[WHERE_NAME_MAX + 1], address[WHERE_ADDRESS_MAX];
};
/* In the answer to GET_BROKER_CLUSTER_INFO, the master of that name, or, if `name` is "", the only
 * one. ERR_IO: it is not there now; ERR_INVALID: there are several; ERR_MALFORMED. */
must_check enum err where_find(struct bytes cluster, const char *name, struct spot *out,
                               struct fault *why);

/* ---- store.c ---- */

struct store {
    struct omq_client *client;
    struct where where;
    char group[GROUP_MAX + 1];
    char instance[12]; /* as text, as it travels */
    int wait_ms;
    void (*log)(void *user, int level, const char *line);
    void *log_user;

    pthread_mutex_t key;
    struct spot spot;      /* as of the last connect */
    char birth[BIRTH_MAX]; /* "": not known yet */
    struct presence {
        pthread_cond_t news;
        bool asking, stop;
        int pause_ms; /* before it is asked for again; 0: at once */
    } presence;
};

/* ---- presence.c ---- */

must_check enum err presence_open(struct store *store);
/* Asks, unless that is under way. It may come to nothing; then it is asked again. ERR_NO_MEMORY: it
 * was not even asked. */
must_check enum err presence_ask(struct store *store);
void presence_stop(struct store *store); /* nothing is asked afterwards; before the client closes */
void presence_clear(struct store *store); /* once the client is closed */

#endif
