/* Cancels orders that were not paid in time, and gives back what was set aside for them.
 *
 *     cancel NAMES FILE
 *
 * The order's own state says whether that is still to be done, and it changes in one transaction
 * with the stock and with the mark of the message. */
#include "../example.h"
#include "books.h"

#include <once.h>

static int handle(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
{
    (void)user, (void)n, (void)done; /* in a transaction there is one message at a time */
    static const char *const beyond[] = {"paid", NULL};
    struct once_run *run = messages[0]->run;
    struct once_error why;
    char order[64];
    int found;
    if (!field(messages[0], "orderId", order, sizeof order))
        return OMQ_LATER; /* after its retries it is a dead letter, for people to look at */
    struct once_state_guard guard = {
        .table = "orders",
        .key_column = "id",
        .key = order,
        .state_column = "status",
        .from = "unpaid",
        .to = "cancelled",
        .beyond = beyond,
    };
    if (once_guard_state(run, &guard, &found, &why)) {
        (void)fprintf(stderr, "%s: %s\n", order, why.text);
        return OMQ_LATER;
    }
    if (found != ONCE_APPLIED) { /* NOT_YET: there is no such order, so its shop was killed */
        (void)printf("%s is %s: nothing to cancel\n", order,
                     found == ONCE_ALREADY ? "paid or cancelled" : "not there");
        return OMQ_DONE;
    }
    (void)printf("%s half cancelled\n", order);
    take_time();
    return sql_do(once_run_connection(run), "UPDATE stock SET pieces = pieces + 1") ? OMQ_DONE
                                                                                    : OMQ_LATER;
}

int main(int argc, char **argv)
{
    sigset_t end = hold_ctrl_c();
    if (argc != 3) {
        (void)fprintf(stderr, "usage: cancel NAMES FILE\n");
        return 2;
    }
    char store[512];
    (void)snprintf(store, sizeof store, "sqlite:%s", argv[2]);
    struct omq_client_options to = {.names = argv[1], .log = log_line};
    struct omq_subscription topic = {.topic = TOPIC};
    struct once_options once = {.store = store, .mode = ONCE_TRANSACTION, .key = "{msgid}"};
    struct omq_consumer_options options = {
        .group = "cancel",
        .subscriptions = &topic,
        .n_subscriptions = 1,
        .handle = handle,
        .start = OMQ_FROM_FIRST,
        .threads = 4,
        .once = &once,
    };
    struct omq_client *client = NULL;
    struct omq_consumer *consumer = NULL;
    struct omq_error why;
    sqlite3 *db = sql_open(argv[2], TABLES);
    (void)sqlite3_close(db);
    if (!db || omq_client_open(&to, &client, &why) ||
        omq_consumer_open(client, &options, &consumer, &why))
        (void)fprintf(stderr, "%s\n", db ? why.text : "");
    else
        await_ctrl_c(&end);
    omq_consumer_close(consumer);
    omq_client_close(client);
    return consumer == NULL;
}
