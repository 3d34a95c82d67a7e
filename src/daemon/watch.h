/* watch.h - what name servers elsewhere know of the topics that somebody here wants divided.
 *
 * A broker that divides a topic's queues among the members of a group (QUERY_ASSIGNMENT) must know
 * the queues of all brokers that have the topic. With the name server in the same house it asks
 * there. Otherwise it keeps a watch: a topic that was asked for is looked up by the registrar, at
 * once and then with every registration, and the last answer stays. Until the first one has come
 * nobody knows, and the broker divides what it has itself.
 *
 * Room: leaf, for the table. Threads: watch_find from any, the others on the registrar's loop.
 */
#ifndef DAEMON_WATCH_H
#define DAEMON_WATCH_H

#include "broker/broker.h"
#include "msg/route.h"

#define WATCH_MAX 10000 /* topics */

struct watch;

must_check enum err watch_open(uint64_t seed, struct watch **out);
void watch_close(struct watch *watch);

/* The queues that may be read, in the arena. ERR_NOT_FOUND: not known. `*ask`: somebody should ask
 * soon. */
must_check enum err watch_find(struct watch *watch, struct bytes topic, struct arena *arena,
                               struct assign_queue **queues, size_t *n, bool *ask);
/* Calls `ask` for each topic that is to be asked for: the new ones, or all that were wanted since
 * the last time; who has not been wanted for a while is forgotten. */
void watch_each(struct watch *watch, bool all,
                void (*ask)(void *user, struct bytes topic, int32_t number), void *user);
/* The answer to a question by its number; NULL: there is no route. */
void watch_learn(struct watch *watch, int32_t number, const struct route *route);

#endif
