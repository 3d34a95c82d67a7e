/* Sells: an order goes into the shop's books, and a message about it to those who ship. Both happen
 * or neither, although they are in two places.
 *
 *     sell NAMES FILE ORDER…
 *
 * The message is stored out of sight first (a half message); then comes our own transaction; then
 * the decision, which makes the message visible or undone. Whoever is killed before the decision is
 * asked for it later, which is why this program stays until Ctrl-C when everything is sold. */
#include "../example.h"
#include "books.h"

struct shop {
    sqlite3 *db, *questions; /* a connection for each of the two threads */
};

/* The decision is a row of the same transaction as the sale. */
static int sell(void *user, const struct omq_message *message, const struct omq_receipt *receipt)
{
    struct shop *shop = user;
    (void)printf("%s half\n", message->keys);
    take_time(); /* killed here, nothing was sold, and the message is never seen */
    bool sold = sql_do(shop->db,
                       "BEGIN IMMEDIATE;"
                       "INSERT INTO decisions VALUES (%Q, 'commit');"
                       "INSERT INTO orders VALUES (%Q);"
                       "UPDATE stock SET pieces = pieces - 1;"
                       "COMMIT",
                       receipt->id, message->keys);
    if (!sold) {
        (void)sqlite3_exec(shop->db, "ROLLBACK", NULL, NULL, NULL);
        return OMQ_ROLLBACK;
    }
    (void)printf("%s in the books\n", message->keys);
    take_time(); /* killed here, it is sold, and the broker does not know: it asks */
    return OMQ_COMMIT;
}

/* What became of this one? If nothing was decided, then this is the decision: a sale that is still
 * under way somewhere finds it there, and is undone. */
static int check(void *user, const struct omq_delivery *half)
{
    struct shop *shop = user;
    char decision[16];
    if (!sql_get(shop->questions, decision, sizeof decision,
                 "INSERT INTO decisions VALUES (%Q, 'rollback') ON CONFLICT DO NOTHING;"
                 "SELECT decision FROM decisions WHERE message = %Q",
                 half->id, half->id))
        return OMQ_UNKNOWN; /* it is asked again */
    (void)printf("%s asked for: %s\n", half->keys, decision);
    return strcmp(decision, "commit") == 0 ? OMQ_COMMIT : OMQ_ROLLBACK;
}

static bool send(struct omq_producer *producer, struct shop *shop, const char *order)
{
    char body[128], known[64];
    int decision, len = snprintf(body, sizeof body, "{\"orderId\":\"%s\"}", order);
    struct omq_message message = {
        .topic = TOPIC, .body = body, .body_size = (size_t)len, .keys = order};
    struct omq_error why;
    if (!sql_get(shop->db, known, sizeof known, "SELECT id FROM orders WHERE id = %Q", order))
        return false;
    if (known[0])
        return true; /* sold in an earlier life */
    if (omq_send_transaction(producer, &message, sell, shop, NULL, &decision, &why)) {
        (void)fprintf(stderr, "%s: %s\n", order, why.text);
        return false;
    }
    (void)printf("%s %s\n", order, decision == OMQ_COMMIT ? "sold" : "not sold");
    return true;
}

int main(int argc, char **argv)
{
    sigset_t end = hold_ctrl_c();
    if (argc < 3) {
        (void)fprintf(stderr, "usage: sell NAMES FILE [ORDER…]\n");
        return 2;
    }
    struct shop shop = {sql_open(argv[2], SHOP_TABLES), sql_open(argv[2], SHOP_TABLES)};
    struct omq_client_options to = {.names = argv[1], .log = log_line};
    struct omq_producer_options options = {.group = "shop", .check = check, .user = &shop};
    struct omq_client *client = NULL;
    struct omq_producer *producer = NULL;
    struct omq_error why;
    bool good = shop.db && shop.questions;
    if (good && (omq_client_open(&to, &client, &why) ||
                 omq_producer_open(client, &options, &producer, &why))) {
        (void)fprintf(stderr, "%s\n", why.text);
        good = false;
    }
    for (int i = 3; good && i < argc; i++)
        good = send(producer, &shop, argv[i]);
    if (good) {
        (void)printf("everything is sold; Ctrl-C ends this\n");
        await_ctrl_c(&end);
    }
    omq_producer_close(producer);
    omq_client_close(client);
    (void)sqlite3_close(shop.db);
    (void)sqlite3_close(shop.questions);
    return !good;
}
