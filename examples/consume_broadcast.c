/* Every running copy of this program gets every message. Each keeps how far it came in a file,
 * under the name it has: `instance` must stay the same from run to run and differ between copies.
 *     consume_broadcast [name server [topic [group]]] */
#include <oncemq.h>

#include <signal.h>
#include <stdio.h>

static int handle(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
{
    (void)user;
    (void)done;
    for (size_t i = 0; i < n; i++)
        (void)printf("%s %.*s\n", messages[i]->id, (int)messages[i]->body_size,
                     (const char *)messages[i]->body);
    (void)fflush(stdout);
    return OMQ_DONE;
}

int main(int argc, char **argv)
{
    sigset_t end;
    (void)sigemptyset(&end);
    (void)sigaddset(&end, SIGINT);
    (void)sigaddset(&end, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &end, NULL);

    struct omq_client *client = NULL;
    struct omq_consumer *consumer = NULL;
    struct omq_error why;
    struct omq_subscription all = {.topic = argc > 2 ? argv[2] : "News"};
    struct omq_consumer_options options = {
        .group = argc > 3 ? argv[3] : "listeners",
        .subscriptions = &all,
        .n_subscriptions = 1,
        .handle = handle,
        .start = OMQ_FROM_FIRST,
        .spread = OMQ_BROADCAST,
    };
    struct omq_client_options servers = {.names = argc > 1 ? argv[1] : "127.0.0.1:9876",
                                         .instance = argc > 4 ? argv[4] : "desk-1"};
    int code = omq_client_open(&servers, &client, &why);
    if (!code)
        code = omq_consumer_open(client, &options, &consumer, &why);
    int signal;
    if (code)
        (void)fprintf(stderr, "%s\n", why.text);
    else
        (void)sigwait(&end, &signal);
    omq_consumer_close(consumer);
    omq_client_close(client);
    return code != 0;
}
