/* Sends lines, and keeps what no broker takes in a file, for the next time.   send_kept [name
 * server [topic [file]]] */
#include <oncemq.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static atomic_int stored, kept, failed;

static void sent(void *user, const struct omq_receipt *receipt, const struct omq_error *why)
{
    (void)user;
    if (receipt)
        atomic_fetch_add(&stored, 1);
    else if (why->code == OMQ_KEPT)
        atomic_fetch_add(&kept, 1); /* nothing is to be done: it is sent when a broker is there */
    else
        atomic_fetch_add(&failed, 1);
}

int main(int argc, char **argv)
{
    const char *names = argc > 1 ? argv[1] : "127.0.0.1:9876";
    const char *topic = argc > 2 ? argv[2] : "Greetings";

    struct omq_client *client = NULL;
    struct omq_producer *producer = NULL;
    struct omq_error why;
    struct omq_producer_options options = {
        .group = "keepers",
        .retry_table = argc > 3 ? argv[3] : "greetings.retry",
    };
    if (omq_client_open(&(struct omq_client_options){.names = names}, &client, &why) ||
        omq_producer_open(client, &options, &producer, &why)) {
        (void)fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    char line[1024];
    while (fgets(line, sizeof line, stdin)) {
        struct omq_message m = {.topic = topic, .body = line, .body_size = strcspn(line, "\n")};
        if (omq_send_async(producer, &m, sent, NULL, &why))
            atomic_fetch_add(&failed, 1);
    }
    struct omq_stats stats; /* five seconds for what was kept, now or earlier */
    for (int tenths = 0; tenths < 50; tenths++) {
        omq_client_stats(client, &stats);
        if (stats.kept == 0 && tenths > 0)
            break;
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    omq_producer_close(producer);
    omq_client_close(client);
    (void)printf("%d stored, %d kept, %d failed\n", stored, kept, failed);
    return failed != 0;
}
