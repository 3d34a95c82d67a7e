/* Any bytes as a route, and as the handle of a recall: what a client makes of what servers say. */
#include "client/producer_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void queues_look(const struct topic_route *route, const struct topic_queue *queues,
                        const struct omq_queue *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        invariant(queues[i].broker < route->n_brokers);
        invariant(queues[i].id >= 0);
        invariant(names[i].id == queues[i].id);
        invariant(strcmp(names[i].topic, "T") == 0);
        invariant(strlen(names[i].broker) <= route->brokers[queues[i].broker].name.len);
    }
}

static void route_look(const struct topic_route *route)
{
    queues_look(route, route->write, route->write_names, route->n_write);
    queues_look(route, route->read, route->read_names, route->n_read);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes in = bytes_of(data, size);
    uint8_t room[RECALL_MAX];
    struct bytes broker;
    if (recall_read(in, BYTES("T"), room, &broker)) {
        invariant(broker.at >= room);
        invariant(broker.at + broker.len <= room + sizeof room);
    }
    struct topic_route *route, *template;
    if (route_make(BYTES("T"), in, &route))
        return 0;
    route_look(route);
    if (route_make_template(route, BYTES("T"), 2, &template) == OK) {
        route_look(template);
        for (size_t i = 0; i < template->n_write; i++)
            invariant(template->write[i].id < 2);
        counted_drop(&template->counted);
    }
    counted_drop(&route->counted);
    return 0;
}
