/* Asks, and answers itself: a request and its reply.   request [name server [topic]] */
#include <oncemq.h>

#include <stdio.h>
#include <string.h>

static struct omq_producer *producer;

/* Replies to every request. */
static int handle(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
{
    (void)user;
    (void)done;
    struct omq_error why;
    for (size_t i = 0; i < n; i++) {
        (void)printf("asked: %.*s\n", (int)messages[i]->body_size, (const char *)messages[i]->body);
        if (omq_reply(producer, messages[i], "42", 2, &why))
            (void)fprintf(stderr, "no reply: %s\n", why.text); /* nobody waits any more */
    }
    return OMQ_DONE;
}

int main(int argc, char **argv)
{
    const char *names = argc > 1 ? argv[1] : "127.0.0.1:9876";
    const char *topic = argc > 2 ? argv[2] : "Questions";
    struct omq_subscription subscription = {.topic = topic};
    struct omq_consumer_options options = {.group = "answerers",
                                           .subscriptions = &subscription,
                                           .n_subscriptions = 1,
                                           .start = OMQ_FROM_FIRST,
                                           .handle = handle};
    struct omq_message message = {.topic = topic, .body = "6 * 7?", .body_size = 6};
    struct omq_client *client = NULL;
    struct omq_consumer *consumer = NULL;
    struct omq_delivery *reply;
    struct omq_error why;
    int code = omq_client_open(&(struct omq_client_options){.names = names}, &client, &why);
    if (!code)
        code = omq_producer_open(client, &(struct omq_producer_options){.group = "askers"},
                                 &producer, &why);
    if (!code)
        code = omq_consumer_open(client, &options, &consumer, &why);
    if (!code)
        code = omq_request(producer, &message, 30000, &reply, &why);
    if (code) {
        (void)fprintf(stderr, "%s\n", why.text);
    } else {
        (void)printf("reply: %.*s\n", (int)reply->body_size, (const char *)reply->body);
        omq_delivery_free(reply);
    }
    omq_consumer_close(consumer);
    omq_producer_close(producer);
    omq_client_close(client);
    return code != 0;
}
