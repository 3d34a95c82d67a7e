/* Follows orders step by step: one message of a queue at a time. What fails comes again before all
 * others of its queue, here after 100 ms.
 *     consume_ordered [name server [topic [group]]] */
#include <oncemq.h>

#include <signal.h>
#include <stdio.h>

static int handle(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
{
    (void)user;
    (void)n; /* 1: `batch` is not set */
    (void)done;
    const struct omq_delivery *m = messages[0];
    if (m->attempt == 1 && m->offset % 2 == 0)
        return OMQ_LATER; /* something was not ready yet */
    (void)printf("%s %.*s\n", m->keys, (int)m->body_size, (const char *)m->body);
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
    struct omq_subscription all = {.topic = argc > 2 ? argv[2] : "Orders"};
    struct omq_consumer_options options = {
        .group = argc > 3 ? argv[3] : "followers",
        .subscriptions = &all,
        .n_subscriptions = 1,
        .handle = handle,
        .start = OMQ_FROM_FIRST,
        .ordered = true,
        .suspend_ms = 100,
    };
    struct omq_client_options servers = {.names = argc > 1 ? argv[1] : "127.0.0.1:9876"};
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
