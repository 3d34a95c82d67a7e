/* Books each message under its key in a file of SQLite, in one of two ways:
 *
 *     ledger look     looks whether the key is there, and inserts it if it is not. That is what
 * most people write first. It is wrong: two copies that come at the same time both look, both see
 * nothing, both insert ledger unique   inserts, and the table itself refuses a key that it has
 *
 * `oncemq chaos` tells them apart in some seconds: README.md.
 *
 *     ledger look|unique FILE [name server [topic [group]]] */
#include "../example.h"
#include "../example_sqlite.h"

static const char *file;
static bool looks;

static bool book_by_looking(sqlite3 *db, const char *key)
{
    char there[8];
    if (!sql_get(db, there, sizeof there, "SELECT 1 FROM booked WHERE key = %Q", key))
        return false;
    if (there[0])
        return true; /* a duplicate */
    take_time();     /* a call of another service, perhaps */
    return sql_do(db, "INSERT INTO booked (key) VALUES (%Q)", key);
}

static bool book_by_unique_key(sqlite3 *db, const char *key)
{
    take_time();
    return sql_do(db, "INSERT OR IGNORE INTO booked (key) VALUES (%Q)", key);
}

static int book(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done)
{
    (void)user;
    (void)n;
    (void)done;
    sqlite3 *db = sql_open(file, ""); /* a real program takes one from a pool */
    if (!db)
        return OMQ_LATER;
    const char *key = messages[0]->keys;
    bool good = looks ? book_by_looking(db, key) : book_by_unique_key(db, key);
    (void)sqlite3_close(db);
    return good ? OMQ_DONE : OMQ_LATER;
}

int main(int argc, char **argv)
{
    sigset_t end = hold_ctrl_c();
    if (argc < 3) {
        (void)fprintf(stderr, "ledger look|unique FILE [name server [topic [group]]]\n");
        return 2;
    }
    looks = strcmp(argv[1], "look") == 0;
    file = argv[2];
    sqlite3 *db = sql_open(file, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
    if (!db || !sql_do(db, looks ? "CREATE TABLE IF NOT EXISTS booked (key TEXT)"
                                 : "CREATE TABLE IF NOT EXISTS booked (key TEXT PRIMARY KEY)"))
        return 1;
    (void)sqlite3_close(db);

    struct omq_client *client = NULL;
    struct omq_consumer *consumer = NULL;
    struct omq_error why;
    struct omq_subscription all = {.topic = argc > 4 ? argv[4] : "Bookings"};
    struct omq_client_options to = {.names = argc > 3 ? argv[3] : "127.0.0.1:9876"};
    struct omq_consumer_options options = {
        .group = argc > 5 ? argv[5] : "ledger",
        .subscriptions = &all,
        .n_subscriptions = 1,
        .start = OMQ_FROM_FIRST,
        .threads = 8,
        .handle = book,
    };
    int code = omq_client_open(&to, &client, &why);
    if (!code)
        code = omq_consumer_open(client, &options, &consumer, &why);
    if (code)
        (void)fprintf(stderr, "%s\n", why.text);
    else {
        (void)printf("booking\n");
        await_ctrl_c(&end);
    }
    omq_consumer_close(consumer);
    omq_client_close(client);
    return code != 0;
}
