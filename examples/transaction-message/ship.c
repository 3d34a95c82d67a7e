/* Ships what was sold, each order once.
 *
 *     ship NAMES FILE          consumes until Ctrl-C
 *     ship report FILE         shipments, and orders among them */
#include "../example.h"
#include "books.h"

#include <once.h>

static int handle(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
{
    (void)user, (void)n, (void)done; /* in a transaction there is one message at a time */
    const char *order = once_run_key(messages[0]->run);
    bool good =
        sql_do(once_run_connection(messages[0]->run), "INSERT INTO shipments VALUES (%Q)", order);
    (void)printf("%s half shipped\n", order);
    take_time();
    return good ? OMQ_DONE : OMQ_LATER;
}

static bool consume(const char *names, const char *file, const sigset_t *end)
{
    char store[512];
    (void)snprintf(store, sizeof store, "sqlite:%s", file);
    struct omq_client_options to = {.names = names, .log = log_line};
    struct omq_subscription sales = {.topic = TOPIC};
    struct once_options once = {.store = store, .mode = ONCE_TRANSACTION, .key = "{body.orderId}"};
    struct omq_consumer_options options = {
        .group = "ship",
        .subscriptions = &sales,
        .n_subscriptions = 1,
        .handle = handle,
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
        await_ctrl_c(end);
    omq_consumer_close(consumer);
    omq_client_close(client);
    return consumer != NULL;
}

static bool report(sqlite3 *db)
{
    char line[64];
    return sql_get(db, line, sizeof line,
                   "SELECT count(*) || ' ' || count(DISTINCT order_id) FROM shipments") &&
           puts(line) >= 0;
}

int main(int argc, char **argv)
{
    sigset_t end = hold_ctrl_c();
    if (argc != 3) {
        (void)fprintf(stderr, "usage: ship NAMES FILE | ship report FILE\n");
        return 2;
    }
    sqlite3 *db = sql_open(argv[2], SHIP_TABLES);
    bool good =
        db && (strcmp(argv[1], "report") == 0 ? report(db) : consume(argv[1], argv[2], &end));
    (void)sqlite3_close(db);
    return !good;
}
