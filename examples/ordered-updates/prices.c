/* Keeps a table of prices in step with the updates that come for them: in order, none twice, none
 * left out.
 *
 *     prices NAMES FILE           consumes until Ctrl-C
 *     prices report FILE          product, version, price, and how many updates made it
 *
 * A message is {"product":"tea","version":3,"price":210}. All updates of a product stand in one
 * queue, in order, because they were sent with the product as their sharding key. How far each
 * queue is done is written in the transaction of the update itself (ONCE_OFFSET). An update that
 * was sent twice stands in the queue twice; the version tells. */
#include "../example.h"
#include "../example_sqlite.h"

#include <once.h>
#include <stdlib.h>

#define TABLES                                                                                     \
    "CREATE TABLE IF NOT EXISTS prices (product TEXT PRIMARY KEY, version INTEGER, price "         \
    "INTEGER);"                                                                                    \
    "CREATE TABLE IF NOT EXISTS history (product TEXT, version INTEGER, price INTEGER)"

static int handle(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
{
    (void)user, (void)n, (void)done; /* in a transaction there is one message at a time */
    struct once_run *run = messages[0]->run;
    sqlite3 *db = once_run_connection(run);
    struct once_error why;
    char product[64], version[24], price[24];
    int found;
    if (!field(messages[0], "product", product, sizeof product) ||
        !field(messages[0], "version", version, sizeof version) ||
        !field(messages[0], "price", price, sizeof price)) {
        (void)fprintf(stderr, "not an update: %s\n", messages[0]->id);
        return OMQ_DONE; /* in order, everything behind it would wait for ever */
    }
    struct once_version_guard guard = {
        .table = "prices",
        .key_column = "product",
        .key = product,
        .version_column = "version",
        .expected = strtoll(version, NULL, 10) - 1,
    };
    if (!sql_do(db, "INSERT INTO prices VALUES (%Q, 0, 0) ON CONFLICT DO NOTHING", product))
        return OMQ_LATER;
    if (once_guard_version(run, &guard, &found, &why)) {
        (void)fprintf(stderr, "%s: %s\n", product, why.text);
        return OMQ_LATER;
    }
    (void)printf("%s version %s: %s\n", product, version,
                 found == ONCE_APPLIED   ? "half way"
                 : found == ONCE_ALREADY ? "was here before"
                                         : "too early");
    if (found != ONCE_APPLIED)
        return found == ONCE_ALREADY ? OMQ_DONE : OMQ_LATER;
    take_time(); /* killed here, it is as if the message had never come */
    return sql_do(db,
                  "UPDATE prices SET price = %Q WHERE product = %Q;"
                  "INSERT INTO history VALUES (%Q, %Q, %Q)",
                  price, product, product, version, price)
               ? OMQ_DONE
               : OMQ_LATER;
}

static bool consume(const char *names, const char *file, const sigset_t *end)
{
    char store[512];
    (void)snprintf(store, sizeof store, "sqlite:%s", file);
    /* The broker lends a queue to one client at a time, for a minute. A client that comes back
     * under its own name need not wait for that: give each machine one, such as its host name. */
    struct omq_client_options to = {.names = names, .instance = "prices-1", .log = log_line};
    struct omq_subscription updates = {.topic = "PriceUpdates"};
    struct once_options once = {.store = store, .mode = ONCE_OFFSET};
    struct omq_consumer_options options = {
        .group = "prices",
        .subscriptions = &updates,
        .n_subscriptions = 1,
        .handle = handle,
        .ordered = true,
        .suspend_ms = 100, /* what fails is tried again after that, before all others */
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
    char text[4096];
    bool good = sql_get(db, text, sizeof text,
                        "SELECT group_concat(line, char(10)) FROM (SELECT product || ' ' || version"
                        " || ' ' || price || ' ' || (SELECT group_concat(version) FROM history"
                        " WHERE product = prices.product ORDER BY rowid) AS line"
                        " FROM prices ORDER BY product)");
    return good && puts(text) >= 0;
}

int main(int argc, char **argv)
{
    sigset_t end = hold_ctrl_c();
    if (argc != 3) {
        (void)fprintf(stderr, "usage: prices NAMES FILE | prices report FILE\n");
        return 2;
    }
    sqlite3 *db = sql_open(argv[2], TABLES);
    bool good =
        db && (strcmp(argv[1], "report") == 0 ? report(db) : consume(argv[1], argv[2], &end));
    (void)sqlite3_close(db);
    return !good;
}
