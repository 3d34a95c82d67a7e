/* Tells the story of some orders: what has the same sharding key stands in one queue, in the order
 * in which it was sent.   send_ordered [name server [topic]] */
#include <oncemq.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static const char *const steps[] = {"created", "paid", "shipped"};
    static const char *const orders[] = {"order-1", "order-2", "order-3"};
    const char *names = argc > 1 ? argv[1] : "127.0.0.1:9876";
    const char *topic = argc > 2 ? argv[2] : "Orders";

    struct omq_client *client = NULL;
    struct omq_producer *producer = NULL;
    struct omq_error why;
    int code = omq_client_open(&(struct omq_client_options){.names = names}, &client, &why);
    if (!code)
        code = omq_producer_open(client, &(struct omq_producer_options){.group = "shop"}, &producer,
                                 &why);
    for (size_t step = 0; step < 3; step++) {
        for (size_t order = 0; !code && order < 3; order++) {
            struct omq_message m = {
                .topic = topic,
                .body = steps[step],
                .body_size = strlen(steps[step]),
                .keys = orders[order],
                .sharding_key = orders[order],
            };
            struct omq_receipt receipt;
            code = omq_send(producer, &m, &receipt, &why);
            if (!code)
                (void)printf("%s %s %d\n", orders[order], steps[step], receipt.queue_id);
        }
    }
    if (code)
        (void)fprintf(stderr, "%s\n", why.text);
    omq_producer_close(producer);
    omq_client_close(client);
    return code != 0;
}
