/* A table that can tell by itself: an order is paid once, and not before it was made.
 *
 *     guard shop.db order-7 && guard shop.db order-7
 *
 * The first says "not yet" and makes the order, so that the second may pay it; from the third on it
 * was paid already. Each call is another message, so the key of the message cannot help. */
#include <once.h>

#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

static int pay(void *order, struct once_run *run)
{
    static const char *const beyond[] = {"shipped", NULL};
    static const char *const words[] = {"paid now", "was paid already", "not yet"};
    struct once_state_guard guard = {
        .table = "orders",
        .key_column = "id",
        .key = order,
        .state_column = "status",
        .from = "unpaid",
        .to = "paid",
        .beyond = beyond,
    };
    struct once_error why;
    int found;
    if (once_guard_state(run, &guard, &found, &why)) {
        (void)fprintf(stderr, "%s\n", why.text);
        return ONCE_FAILED;
    }
    (void)printf("%s %s\n", (char *)order, words[found]);
    return found == ONCE_NOT_YET ? ONCE_FAILED : ONCE_DONE;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    char url[256], id[40], sql[200];
    sqlite3 *db;
    (void)snprintf(url, sizeof url, "sqlite:%s", argv[1]);
    (void)snprintf(id, sizeof id, "message-%ld", (long)getpid());
    struct once_options options = {.store = url, .mode = ONCE_TRANSACTION, .group = "pay"};
    struct once_message message = {.keys = id};
    struct once_answer answer;
    struct once *once;
    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO orders VALUES ('%s', 'unpaid') ON CONFLICT DO NOTHING", argv[2]);
    if (sqlite3_open(argv[1], &db) || once_open(&options, &once, NULL) ||
        sqlite3_exec(db, "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, status TEXT)",
                     NULL, NULL, NULL))
        return 1;
    (void)once_do(once, &message, pay, argv[2], &answer);
    once_close(once);
    return sqlite3_exec(db, sql, NULL, NULL, NULL) || sqlite3_close(db);
}
