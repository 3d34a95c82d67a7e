/* The place in the queue in the same transaction as the work: no table that grows.
 *
 *     seq 1 100 | offset sum.db
 *
 * Each line is the message at that place of one queue. Prints the sum, which is 5050 however often
 * this is run with this input, and wherever it was killed. */
#include <once.h>

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static int add(void *line, struct once_run *run)
{
    char sql[100];
    (void)snprintf(sql, sizeof sql, "UPDATE total SET n = n + %ld", strtol(line, NULL, 10));
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
    const char *file = argc > 1 ? argv[1] : "sum.db";
    char url[256], line[64];
    sqlite3 *db;
    (void)snprintf(url, sizeof url, "sqlite:%s", file);
    if (sqlite3_open(file, &db) ||
        sqlite3_exec(db,
                     "CREATE TABLE IF NOT EXISTS total (id INTEGER PRIMARY KEY, n INTEGER);"
                     "INSERT INTO total VALUES (1, 0) ON CONFLICT DO NOTHING",
                     NULL, NULL, NULL))
        return 1;
    struct once_options options = {.store = url, .mode = ONCE_OFFSET, .group = "sum"};
    struct once *once;
    struct once_error why;
    int64_t start;
    if (once_open(&options, &once, &why) ||
        once_queue_take(once, "Numbers", "input", 0, 0, &start, &why)) {
        (void)fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    for (int64_t offset = 0; fgets(line, sizeof line, stdin); offset++) {
        struct once_message message = {.topic = "Numbers", .broker = "input", .offset = offset};
        struct once_answer answer;
        if (offset >= start) /* a queue would begin there by itself */
            (void)once_do(once, &message, add, line, &answer);
    }
    once_close(once);
    (void)sqlite3_exec(db, "SELECT n FROM total", print, NULL, NULL);
    return sqlite3_close(db);
}
