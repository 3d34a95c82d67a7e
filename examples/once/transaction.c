/* The mark and the money in one transaction of a database: exactly once, whatever is killed when.
 *
 *     printf 'pay-1 100\npay-1 100\npay-2 50\n' | transaction bank.db
 *
 * Prints the balance, which is 150 however often this is run with these payments. */
#include <once.h>

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static int pay_in(void *user, struct once_run *run)
{
    char sql[100];
    (void)snprintf(sql, sizeof sql, "UPDATE account SET balance = balance + %ld", *(long *)user);
    return sqlite3_exec(once_run_connection(run), sql, NULL, NULL, NULL) == SQLITE_OK ? ONCE_DONE
                                                                                      : ONCE_FAILED;
}

static int print(void *user, int n, char **values, char **names)
{
    (void)user, (void)n, (void)names;
    return printf("%s\n", values[0]) < 0;
}

int main(int argc, char **argv)
{
    const char *file = argc > 1 ? argv[1] : "bank.db";
    char url[256], line[256], key[64];
    long amount;
    sqlite3 *db;
    (void)snprintf(url, sizeof url, "sqlite:%s", file);
    if (sqlite3_open(file, &db) ||
        sqlite3_exec(db,
                     "CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER);"
                     "INSERT INTO account VALUES (1, 0) ON CONFLICT DO NOTHING",
                     NULL, NULL, NULL))
        return 1;
    struct once_options options = {.store = url, .mode = ONCE_TRANSACTION, .group = "bank"};
    struct once *once;
    struct once_error why;
    if (once_open(&options, &once, &why)) {
        (void)fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    while (fgets(line, sizeof line, stdin) && sscanf(line, "%63s %ld", key, &amount) == 2) {
        struct once_message message = {.keys = key, .body = line, .body_size = strlen(line)};
        struct once_answer answer;
        if (once_do(once, &message, pay_in, &amount, &answer) != ONCE_ACK)
            (void)fprintf(stderr, "%s comes again: %s\n", key, answer.why.text);
    }
    once_close(once);
    (void)sqlite3_exec(db, "SELECT balance FROM account", print, NULL, NULL);
    return sqlite3_close(db);
}
