/* Orders and payments in a database, each with its effect once: the mark that a message is done is
 * a row in the same transaction as what it does.
 *
 *     shop NAMES STORE        consumes until Ctrl-C
 *     shop report STORE       says what is in the database
 *
 * Two kinds of message:
 *
 *     topic Orders        {"id":"order-1","amount":30}
 *     topic Payments      {"id":"payment-1","order":"order-1","amount":30}
 *
 * None of the statements below could be repeated without harm; none ever is. */
#include "../example.h"
#include "sql.h"

#include <once.h>

static int new_order(struct once_run *run, const char *order, const char *amount)
{
    void *db = once_run_connection(run);
    if (!sql_do(db, "INSERT INTO orders VALUES ($1, 'unpaid', CAST($2 AS INTEGER))", order, amount))
        return OMQ_LATER;
    (void)printf("%s half done\n", order);
    take_time(); /* killed here, there is neither the order nor the debt */
    return sql_do(db, "UPDATE books SET owed = owed + CAST($1 AS INTEGER)", amount, NULL)
               ? OMQ_DONE
               : OMQ_LATER;
}

/* An order is paid once, whatever the payments are called; and not before it is there. */
static int payment(struct once_run *run, const char *order, const char *amount)
{
    struct once_state_guard guard = {
        .table = "orders",
        .key_column = "id",
        .key = order,
        .state_column = "status",
        .from = "unpaid",
        .to = "paid",
    };
    struct once_error why;
    int found;
    if (once_guard_state(run, &guard, &found, &why)) {
        (void)fprintf(stderr, "%s\n", why.text);
        return OMQ_LATER;
    }
    if (found == ONCE_NOT_YET)
        return OMQ_LATER; /* the order is still on its way: after a pause this comes again */
    (void)printf("%s half paid\n", order);
    take_time();
    const char *book = found == ONCE_APPLIED
                           ? "UPDATE books SET paid = paid + CAST($1 AS INTEGER)"
                           : "UPDATE books SET to_give_back = to_give_back + CAST($1 AS INTEGER)";
    return sql_do(once_run_connection(run), book, amount, NULL) ? OMQ_DONE : OMQ_LATER;
}

static int handle(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
{
    (void)user, (void)n, (void)done; /* in a transaction there is one message at a time */
    const struct omq_delivery *m = messages[0];
    bool is_order = strcmp(m->queue.topic, "Orders") == 0;
    char order[64], amount[32];
    if (!field(m, is_order ? "id" : "order", order, sizeof order) ||
        !field(m, "amount", amount, sizeof amount))
        return OMQ_LATER; /* after its retries it is a dead letter, for people to look at */
    return is_order ? new_order(m->run, order, amount) : payment(m->run, order, amount);
}

static int consume(const char *names, const char *store, const sigset_t *end)
{
    struct omq_client_options to = {.names = names, .log = log_line};
    struct omq_subscription topics[] = {{.topic = "Orders"}, {.topic = "Payments"}};
    struct once_options once = {
        .store = store,
        .mode = ONCE_TRANSACTION,
        .key = "{topic}:{body.id}",
        .create = true, /* its own tables */
    };
    struct omq_consumer_options options = {
        .group = "shop",
        .subscriptions = topics,
        .n_subscriptions = 2,
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
    return consumer == NULL;
}

int main(int argc, char **argv)
{
    sigset_t end = hold_ctrl_c();
    if (argc != 3) {
        (void)fprintf(stderr, "usage: shop NAMES STORE | shop report STORE\n");
        return 2;
    }
    void *db = sql_open(argv[2]);
    bool good =
        db &&
        sql_do(db, "CREATE TABLE IF NOT EXISTS orders (id TEXT, status TEXT, amount INTEGER)", NULL,
               NULL) &&
        sql_do(db,
               "CREATE TABLE IF NOT EXISTS books (id INTEGER PRIMARY KEY, owed INTEGER DEFAULT 0,"
               " paid INTEGER DEFAULT 0, to_give_back INTEGER DEFAULT 0)",
               NULL, NULL) &&
        sql_do(db, "INSERT INTO books (id) VALUES (1) ON CONFLICT DO NOTHING", NULL, NULL);
    if (good && strcmp(argv[1], "report") == 0)
        good = sql_print(db, "SELECT (SELECT count(*) FROM orders),"
                             " (SELECT count(*) FROM orders WHERE status = 'paid'),"
                             " owed, paid, to_give_back FROM books");
    else if (good)
        good = consume(argv[1], argv[2], &end) == 0;
    sql_close(db);
    return !good;
}
