/* Sends many messages without waiting for each.   send_async [name server [topic [how many]]] */
#include <oncemq.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_int stored, failed;

/* On a thread of the library, once for each message. */
static void sent(void *user, const struct omq_receipt *receipt, const struct omq_error *why)
{
    (void)user;
    if (receipt) {
        atomic_fetch_add(&stored, 1);
    } else {
        atomic_fetch_add(&failed, 1);
        (void)fprintf(stderr, "not sent: %s\n", why->text);
    }
}

int main(int argc, char **argv)
{
    const char *names = argc > 1 ? argv[1] : "127.0.0.1:9876";
    const char *topic = argc > 2 ? argv[2] : "Greetings";
    long count = argc > 3 ? strtol(argv[3], NULL, 10) : 1000;

    struct omq_client *client = NULL;
    struct omq_producer *producer = NULL;
    struct omq_error why;
    if (omq_client_open(&(struct omq_client_options){.names = names}, &client, &why) ||
        omq_producer_open(client, &(struct omq_producer_options){.group = "greeters"}, &producer,
                          &why)) {
        (void)fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    for (long i = 0; i < count; i++) {
        char text[32];
        int size = snprintf(text, sizeof text, "hello %ld", i);
        struct omq_message m = {.topic = topic, .body = text, .body_size = (size_t)size};
        /* What is handed in is copied: `text` may change at once. */
        if (omq_send_async(producer, &m, sent, NULL, &why)) {
            atomic_fetch_add(&failed, 1);
            (void)fprintf(stderr, "not sent: %s\n", why.text);
        }
    }
    omq_producer_close(producer); /* waits for the answers that are due */
    omq_client_close(client);
    (void)printf("%d stored, %d failed\n", atomic_load(&stored), atomic_load(&failed));
    return atomic_load(&failed) != 0;
}
