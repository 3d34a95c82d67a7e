/* register.h - tells the name servers about this broker.
 *
 * One connection to each name server, kept open (a name server forgets a broker whose connection
 * closes), used for a registration when it is made, every `period_ms`, and whenever topics change.
 * Also the name server in the same process is reached this way: one path, one behaviour.
 *
 * A name server that was given by a name is looked up again while it cannot be reached: it may have
 * moved, as containers do.
 *
 * Loop: all of it on the loop it was opened on, except registrar_topics_changed.
 */
#ifndef DAEMON_REGISTER_H
#define DAEMON_REGISTER_H

#include "broker/broker.h"
#include "daemon/addresses.h"
#include "daemon/watch.h"
#include "io/io.h"

struct registrar;

struct registrar_options {
    struct loop *loop;
    struct broker *broker;
    struct log *log;
    struct io_limits *limits;
    struct tls *tls; /* spoken with the name servers; NULL: plain */
    const char *cluster, *name;
    struct addr advertised;
    /* brokerIP1=auto: each name server is told the address by which we have reached it, except the
     * one of this house (the first, if `first_is_ours`), whose door knows better for each client.
     */
    bool by_connection, first_is_ours;
    int64_t broker_id;
    uint64_t period_ms;
    struct watch *watch; /* topics to be asked for; NULL: none */
    const struct name_server *servers;
    size_t n_servers;
    /* The server knows this broker; called again when a lost connection has been replaced. */
    void (*registered)(void *user, size_t server);
    void *user;
};

must_check enum err registrar_open(const struct registrar_options *options, struct registrar **out);
void registrar_topics_changed(struct registrar *registrar); /* any thread */
void registrar_watch_changed(struct registrar *registrar);  /* any thread: there is a new one */
/* Says goodbye to every name server that is connected; the words leave with this turn of the loop.
 */
void registrar_leave(struct registrar *registrar);
void registrar_close(struct registrar *registrar); /* after its loop was closed, which hangs up */

#endif
