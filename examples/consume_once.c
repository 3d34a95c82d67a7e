/* Each coupon is handed out once, however often its message comes, until Ctrl-C.
 *
 *     consume_once [name server [topic [group [store]]]]
 *
 * The body is JSON with a taskId. Start several, kill them with -9 in the middle: no line twice. */
#include <once.h>
#include <oncemq.h>

#include <signal.h>
#include <stdio.h>

static int hand_out(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
{
    (void)user;
    for (; *done < n; ++*done) {
        const struct once_run *run = messages[*done]->run;
        if (once_run_lost(run))
            return OMQ_LATER; /* somebody else has it by now */
        (void)printf("%s\n", once_run_key(run));
        (void)fflush(stdout);
    }
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
    struct omq_subscription coupons = {.topic = argc > 2 ? argv[2] : "Coupons"};
    struct once_options once = {
        .store = argc > 4 ? argv[4] : "sqlite:once.db",
        .key = "coupon:{body.taskId}",
    };
    struct omq_consumer_options options = {
        .group = argc > 3 ? argv[3] : "coupons",
        .subscriptions = &coupons,
        .n_subscriptions = 1,
        .handle = hand_out,
        .start = OMQ_FROM_FIRST,
        .once = &once,
    };
    struct omq_client_options to = {.names = argc > 1 ? argv[1] : "127.0.0.1:9876"};
    int signal;
    if (omq_client_open(&to, &client, &why) || omq_consumer_open(client, &options, &consumer, &why))
        (void)fprintf(stderr, "%s\n", why.text);
    else
        (void)sigwait(&end, &signal);
    omq_consumer_close(consumer);
    omq_client_close(client);
    return consumer == NULL;
}
