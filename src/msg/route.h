/* route.h - who serves a topic: the answer of a name server, as plain data.
 *
 * The name server builds it, the remoting codec writes and reads it, the client follows it.
 */
#ifndef MSG_ROUTE_H
#define MSG_ROUTE_H

#include "base/bytes.h"

struct route_addr {
    int64_t id; /* 0: master */
    struct bytes addr;
};

struct route_broker {
    struct bytes name, cluster, zone;
    bool acting_master;
    struct route_addr *addrs; /* by rising id */
    size_t n_addrs;
};

struct route_queues {
    struct bytes broker_name;
    int32_t read_queues, write_queues, perm, sys_flag;
};

struct route {
    struct route_broker *brokers;
    size_t n_brokers;
    struct route_queues *queues;
    size_t n_queues;
    struct bytes order_conf; /* "broker-a:4;broker-b:4", or none */
};

struct cluster_names {
    struct bytes cluster;
    struct bytes *brokers;
    size_t n_brokers;
};

struct kv {
    struct bytes key, value;
};

#endif
