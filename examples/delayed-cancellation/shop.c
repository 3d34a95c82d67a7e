/* Places orders and takes payments. An order that is not paid after half an hour is cancelled: with
 * it goes a message that arrives then, which is taken back when the order is paid.
 *
 *     shop NAMES FILE place ORDER…
 *     shop NAMES FILE pay ORDER…
 *     shop - FILE report
 *
 * It may be killed anywhere and told the same again. */
#include "../example.h"
#include "books.h"

#define HALF_AN_HOUR_MS 1800000

/* The message first: an order is never there without one. Killed in between, there is a message
 * about an order that nobody has, which is no harm. */
static bool place(struct omq_producer *producer, sqlite3 *db, const char *order)
{
    char body[128];
    int len = snprintf(body, sizeof body, "{\"orderId\":\"%s\"}", order);
    struct omq_message cancel = {
        .topic = TOPIC,
        .body = body,
        .body_size = (size_t)len,
        .keys = order,
        .delay_ms = HALF_AN_HOUR_MS,
    };
    struct omq_receipt receipt;
    struct omq_error why;
    if (omq_send(producer, &cancel, &receipt, &why)) {
        (void)fprintf(stderr, "%s is not placed: %s\n", order, why.text);
        return false;
    }
    (void)printf("%s has its message\n", order);
    take_time();
    bool good =
        sql_do(db,
               "BEGIN IMMEDIATE;"
               "UPDATE stock SET pieces = pieces - 1 WHERE %Q NOT IN (SELECT id FROM orders);"
               "INSERT INTO orders VALUES (%Q, 'unpaid', %Q) ON CONFLICT DO NOTHING;"
               "COMMIT",
               order, order, receipt.recall);
    if (good)
        (void)printf("%s placed\n", order);
    return good;
}

/* The books first: what they say is what counts. Killed in between, or too late to take the message
 * back, it comes and finds an order that is paid. */
static bool pay(struct omq_producer *producer, sqlite3 *db, const char *order)
{
    char status[16], recall[512];
    struct omq_error why;
    if (!sql_get(db, status, sizeof status,
                 "UPDATE orders SET status = 'paid' WHERE id = %Q AND status = 'unpaid';"
                 "SELECT status FROM orders WHERE id = %Q",
                 order, order) ||
        !sql_get(db, recall, sizeof recall, "SELECT recall FROM orders WHERE id = %Q", order))
        return false;
    (void)printf("%s %s\n", order, status);
    take_time();
    if (strcmp(status, "paid") != 0)
        return false;
    int code = omq_recall(producer, TOPIC, recall, &why);
    (void)printf("%s %s\n", order, code ? why.text : "will not be cancelled");
    return code == OMQ_OK || code == OMQ_NOT_FOUND;
}

static bool report(sqlite3 *db)
{
    char line[100];
    bool good = sql_get(db, line, sizeof line,
                        "SELECT count(*) FILTER (WHERE status = 'unpaid') || ' ' ||"
                        " count(*) FILTER (WHERE status = 'paid') || ' ' ||"
                        " count(*) FILTER (WHERE status = 'cancelled') || ' ' ||"
                        " (SELECT pieces FROM stock) FROM orders");
    return good && puts(line) >= 0;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        (void)fprintf(stderr, "usage: shop NAMES FILE place|pay|report [ORDER…]\n");
        return 2;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    sqlite3 *db = sql_open(argv[2], TABLES);
    bool placing = strcmp(argv[3], "place") == 0, good = db != NULL;
    struct omq_client *client = NULL;
    struct omq_producer *producer = NULL;
    struct omq_error why;
    if (good && strcmp(argv[3], "report") == 0) {
        good = report(db);
    } else if (good) {
        good = !omq_client_open(&(struct omq_client_options){.names = argv[1], .log = log_line},
                                &client, &why) &&
               !omq_producer_open(client, &(struct omq_producer_options){.group = "shop"},
                                  &producer, &why);
        if (!good)
            (void)fprintf(stderr, "%s\n", why.text);
        for (int i = 4; good && i < argc; i++)
            good = placing ? place(producer, db, argv[i]) : pay(producer, db, argv[i]);
    }
    omq_producer_close(producer);
    omq_client_close(client);
    (void)sqlite3_close(db);
    return !good;
}
