/* http.h - the once ledger for languages without a client: HTTP/1.1 and JSON.
 *
 *     PUT    /once/SCOPE/KEY/claim      may I work on this key? 201 yes, 409 somebody is, 200 done
 *     PUT    /once/SCOPE/KEY/renew      I am still at it
 *     PUT    /once/SCOPE/KEY/done       it is done, and this is the result
 *     PUT    /once/SCOPE/KEY/release    it failed: let another try
 *     GET    /once/SCOPE/KEY            what is known of it
 *     DELETE /once/SCOPE/KEY            forget it, whoever has it: for operators
 *     POST   /once/SCOPE                many at once: {"operations":[{"do":"claim","key":"…"},…]}
 *
 * docs/once-http.md is the manual. A key here and a key of libonce (group or scope, key) are the
 * same key. There is no presence: a claim lasts until its end, unless it is renewed.
 *
 * libmicrohttpd speaks HTTP, in one thread of its own, which is the only one that runs verbs. An
 * answer that must wait for the disk is suspended meanwhile; whoever confirms the log wakes it.
 * What a client can make us keep is bounded: connections, their time, headers, bodies, keys.
 */
#ifndef DOOR_HTTP_HTTP_H
#define DOOR_HTTP_HTTP_H

#include "base/addr.h"
#include "base/log.h"
#include "broker/broker.h"

struct http;

struct http_options {
    struct broker *broker;
    struct store *store;
    struct log *log;
    struct addr addr;         /* port 0: any free one */
    unsigned max_connections; /* 0: 256 */
};

/* Listens, and serves from then on. */
must_check enum err http_open(const struct http_options *options, struct http **out,
                              struct fault *why);
const struct addr *http_addr(const struct http *http);
/* Answers what was asked, while the log is still confirmed by others; what comes meanwhile is
 * refused, and then nothing is served. Who takes his answer too slowly does not get it. */
void http_close(struct http *http);

#endif
