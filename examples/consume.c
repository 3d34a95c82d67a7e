/* Prints what arrives until Ctrl-C.   consume [name server [topic [group]]] */
#include <oncemq.h>

#include <signal.h>
#include <stdio.h>

static int print(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
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
    (void)sigprocmask(SIG_BLOCK, &end, NULL); /* before there are threads: they block it as well */

    struct omq_client *client = NULL;
    struct omq_consumer *consumer = NULL;
    struct omq_error why;
    struct omq_subscription all = {.topic = argc > 2 ? argv[2] : "Greetings"};
    struct omq_consumer_options options = {
        .group = argc > 3 ? argv[3] : "readers",
        .subscriptions = &all,
        .n_subscriptions = 1,
        .handle = print,
        .start = OMQ_FROM_FIRST,
    };
    int code = omq_client_open(
        &(struct omq_client_options){.names = argc > 1 ? argv[1] : "127.0.0.1:9876"}, &client,
        &why);
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
