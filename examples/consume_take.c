/* Takes messages in its own loop instead of being called: for languages whose functions cannot be
 * called from foreign threads.   consume_take [name server [topic [group [how many]]]] */
#include <oncemq.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct omq_client *client = NULL;
    struct omq_consumer *consumer = NULL;
    struct omq_error why;
    struct omq_subscription all = {.topic = argc > 2 ? argv[2] : "Greetings"};
    struct omq_consumer_options options = {
        .group = argc > 3 ? argv[3] : "takers",
        .subscriptions = &all,
        .n_subscriptions = 1,
        .start = OMQ_FROM_FIRST,
        .batch = 10,
    };
    long wanted = argc > 4 ? strtol(argv[4], NULL, 10) : 10;
    int code = omq_client_open(
        &(struct omq_client_options){.names = argc > 1 ? argv[1] : "127.0.0.1:9876"}, &client,
        &why);
    if (!code)
        code = omq_consumer_open(client, &options, &consumer, &why);
    while (!code && wanted > 0) {
        struct omq_batch *batch;
        code = omq_consumer_take(consumer, 30000, &batch, &why);
        if (code)
            break;
        size_t n;
        const struct omq_delivery *const *messages = omq_batch_messages(batch, &n);
        for (size_t i = 0; i < n; i++, wanted--)
            (void)printf("%s %.*s\n", messages[i]->id, (int)messages[i]->body_size,
                         (const char *)messages[i]->body);
        omq_batch_finish(batch, OMQ_DONE, 0); /* now they are done, and not before */
    }
    if (code)
        (void)fprintf(stderr, "%s\n", why.text);
    omq_consumer_close(consumer);
    omq_client_close(client);
    return code != 0;
}
