/* An order goes through four services. What one of them has done is recorded, and is not asked of
 * it again, wherever the process was killed.
 *
 *     flow [name server [services]]
 *
 * A message is {"orderId":"order-1"}. The four services live in the file `services`, which has a
 * line for everything they did: which service, under which idempotency key, for which order. What
 * is recorded is with the broker: nothing else has to run. */
#include "../example.h"

#include <fcntl.h>
#include <once.h>

struct step {
    const char *services, *service, *order;
    char answer[32];
};

/* What the service would do on its own machine: it knows the keys it has seen. A process may die
 * after the service has acted and before that is recorded, so the same step is asked for again,
 * always with the same key. This is the one thing that a service has to do for us. */
static bool knows(const struct step *step, const char *key)
{
    char line[512], mark[300];
    bool found = false;
    FILE *file = fopen(step->services, "re");
    (void)snprintf(mark, sizeof mark, "%s %s ", step->service, key);
    while (file && !found && fgets(line, sizeof line, file))
        found = strncmp(line, mark, strlen(mark)) == 0;
    if (file)
        (void)fclose(file);
    return found;
}

static int call(void *user, const char *key, struct once_bytes *result)
{
    struct step *step = user;
    if (knows(step, key)) {
        (void)printf("%s %s was asked again, and knew the key\n", step->order, step->service);
    } else {
        char line[512];
        int len = snprintf(line, sizeof line, "%s %s %s\n", step->service, key, step->order);
        int fd = open(step->services, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        bool good = fd >= 0 && write(fd, line, (size_t)len) == len;
        if (!good)
            perror(step->services);
        if (fd >= 0)
            (void)close(fd);
        if (!good)
            return ONCE_FAILED;
        (void)printf("%s %s\n", step->order, step->service);
    }
    take_time(); /* killed here, the service has acted and we do not know it */
    (void)snprintf(step->answer, sizeof step->answer, "receipt-%.8s", key);
    *result = (struct once_bytes){step->answer, strlen(step->answer)};
    return ONCE_DONE;
}

static int handle(void *services, const struct omq_delivery *const *messages, size_t n,
                  size_t *done)
{
    static const char *const names[] = {"reserve-stock", "charge-card", "book-courier",
                                        "send-mail"};
    (void)n, (void)done; /* one at a time: `batch` is not set */
    struct once_run *run = messages[0]->run;
    const char *order = once_run_key(run);
    struct once_bytes receipt = {0}; /* what the last one gave, now or in an earlier life */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct step step = {.services = services, .service = names[i], .order = order};
        struct once_error why;
        if (once_step(run, names[i], call, &step, &receipt, &why)) {
            (void)fprintf(stderr, "%s: %s\n", order, why.text);
            return OMQ_LATER; /* finished steps stay finished */
        }
    }
    (void)printf("%s complete, %.*s\n", order, (int)receipt.size, (const char *)receipt.at);
    return OMQ_DONE;
}

int main(int argc, char **argv)
{
    static char services[] = "services";
    sigset_t end = hold_ctrl_c();
    struct omq_client_options to = {.names = argc > 1 ? argv[1] : "127.0.0.1:9876",
                                    .log = log_line};
    struct omq_subscription orders = {.topic = "NewOrders"};
    struct once_options once = {
        .mode = ONCE_LEASE, /* the mode that has steps */
        .key = "{body.orderId}",
    };
    struct omq_consumer_options options = {
        .group = "order-flow",
        .subscriptions = &orders,
        .n_subscriptions = 1,
        .handle = handle,
        .user = argc > 2 ? argv[2] : services,
        .start = OMQ_FROM_FIRST,
        .threads = 4,
        .once = &once,
    };
    struct omq_client *client = NULL;
    struct omq_consumer *consumer = NULL;
    struct omq_error why;
    if (omq_client_open(&to, &client, &why) || omq_consumer_open(client, &options, &consumer, &why))
        (void)fprintf(stderr, "%s\n", why.text);
    else
        await_ctrl_c(&end);
    omq_consumer_close(consumer);
    omq_client_close(client);
    return consumer == NULL;
}
