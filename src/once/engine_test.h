/* engine_test.h - what must be true of every engine that talks to a server; pg_test.c and
 * mariadb_test.c add their dialect and what is special about them.
 *
 * tests/once/engines.py starts the server, says where it is (STORE_URL), and stops, kills and
 * starts it when told through CONTROL_FD: one word is a command, and the answer is a line when it
 * is done.
 */
#ifndef ONCE_ENGINE_TEST_H
#define ONCE_ENGINE_TEST_H

#include "base/test.h"
#include "once.h"
#include "once/sql.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* What the file that includes this has to say about its engine. */
struct dialect {
    const struct sql_engine *engine;
    const char *heading;   /* of its section in docs/once-sql.md */
    const char *things;    /* CREATE TABLE things (id, number, words of 10, bytes) */
    const char *sleep;     /* a statement that takes ten seconds */
    const char *forbidden; /* one that this user may not run */
    const char *odd_names; /* a SELECT with a question mark in quotes, and one value */
};
extern const struct dialect dialect;

#define WAIT_MS      1000
#define WAIT_LONG_MS 20000 /* for who shall not give up before the other is done */

static inline void log_nothing(void *user, int level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
}

static inline struct store_settings settings_for(const char *url)
{
    return (struct store_settings){
        .url = url, .table = "once", .wait_ms = WAIT_MS, .transactions = true, .log = log_nothing};
}

static inline const char *store_url(void)
{
    const char *url = getenv("STORE_URL");
    assert_non_null(url);
    return url;
}

static inline struct sql_conn *fresh_waiting(int wait_ms)
{
    struct store_settings settings = settings_for(store_url());
    settings.wait_ms = wait_ms;
    struct sql_conn *conn = NULL;
    struct fault why = {0};
    enum err err = dialect.engine->connect(&settings, &conn, &why);
    if (err)
        fail_msg("%s: %s", err_text(err), why.text);
    return conn;
}

static inline struct sql_conn *fresh(void)
{
    return fresh_waiting(WAIT_MS);
}

static inline void bye(struct sql_conn *conn)
{
    dialect.engine->disconnect(conn);
}

static inline void control(const char *command)
{
    const char *text = getenv("CONTROL_FD");
    int32_t fd = -1;
    assert_true(text && bytes_to_i32(bytes_str(text), &fd));
    char answer[64];
    assert_true(write(fd, command, strlen(command)) > 0);
    ssize_t n = read(fd, answer, sizeof answer - 1);
    assert_true(n > 1);
    answer[n] = 0;
    assert_string_equal(answer, "ok\n");
}

/* ---- values, calls ---- */

static inline struct sql_value num(int64_t n)
{
    return (struct sql_value){.type = SQL_INT, .number = n};
}

static inline struct sql_value words(const char *text)
{
    return (struct sql_value){.type = SQL_TEXT, .bytes = bytes_str(text)};
}

static inline struct sql_value blob(const void *at, size_t size)
{
    return (struct sql_value){.type = SQL_BLOB, .bytes = bytes_of(at, size)};
}

static inline struct sql_value null(void)
{
    return (struct sql_value){.type = SQL_NULL};
}

#define VALUES(...)                                                                                \
    .params = {__VA_ARGS__},                                                                       \
    .n_params = sizeof((struct sql_value[]){__VA_ARGS__}) / sizeof(struct sql_value)

static inline enum err run1(struct sql_conn *conn, struct sql_call *call, struct fault *why)
{
    size_t failed = 99;
    return dialect.engine->run(conn, call, 1, &failed, why);
}

static inline void good(enum err err, const struct fault *why)
{
    if (err)
        fail_msg("%s: %s", err_text(err), why->text);
}

/* Runs it, and gives the number of rows that were changed. */
static inline uint64_t done(struct sql_conn *conn, struct sql_call call)
{
    struct fault why = {0};
    good(run1(conn, &call, &why), &why);
    return call.changed;
}

/* Rows that came, with copies of their bytes. */
struct seen {
    size_t rows, columns;
    struct sql_value last[SQL_COLUMNS_MAX];
    uint8_t *copies[SQL_COLUMNS_MAX];
    size_t stop_after; /* 0: never */
};

static inline bool see(void *user, const struct sql_value *columns, size_t n)
{
    struct seen *seen = (struct seen *)user;
    seen->rows++;
    seen->columns = n;
    for (size_t i = 0; i < n; i++) {
        free(seen->copies[i]);
        seen->last[i] = columns[i];
        struct bytes b = columns[i].bytes;
        seen->copies[i] = b.len ? test_copy(b.at, b.len) : NULL;
        seen->last[i].bytes.at = seen->copies[i];
    }
    return seen->rows != seen->stop_after;
}

static inline void seen_clear(struct seen *seen)
{
    for (size_t i = 0; i < SQL_COLUMNS_MAX; i++)
        free(seen->copies[i]);
    *seen = (struct seen){0};
}

static inline int64_t number_of(struct sql_conn *conn, const char *text)
{
    struct seen seen = {0};
    (void)done(conn, (struct sql_call){.text = text, .once = true, .row = see, .user = &seen});
    assert_int_equal(seen.rows, 1);
    assert_int_equal(seen.last[0].type, SQL_INT);
    int64_t number = seen.last[0].number;
    seen_clear(&seen);
    return number;
}

static inline void begin(struct sql_conn *conn)
{
    struct fault why = {0};
    good(dialect.engine->begin(conn, true, &why), &why);
}

static inline void commit(struct sql_conn *conn)
{
    struct fault why = {0};
    good(dialect.engine->commit(conn, &why), &why);
}

static inline void fresh_things(struct sql_conn *conn)
{
    (void)done(conn, (struct sql_call){.text = "DROP TABLE IF EXISTS things"});
    (void)done(conn, (struct sql_call){.text = dialect.things});
}

extern const char insert_id[], insert_thing[], set_number[]; /* statements: their addresses count */

static inline int64_t things(struct sql_conn *conn)
{
    return number_of(conn, "SELECT count(*) FROM things");
}

/* A call in a thread of its own, to wait for a lock in. */
struct elsewhere {
    pthread_t thread;
    struct sql_conn *conn;
    struct sql_call call;
    enum err err;
    struct fault why;
};

static inline void *elsewhere_run(void *at)
{
    struct elsewhere *e = (struct elsewhere *)at;
    e->err = run1(e->conn, &e->call, &e->why);
    return NULL;
}

static inline void elsewhere_start(struct elsewhere *e)
{
    assert_int_equal(pthread_create(&e->thread, NULL, elsewhere_run, e), 0);
}

static inline enum err elsewhere_end(struct elsewhere *e)
{
    assert_int_equal(pthread_join(e->thread, NULL), 0);
    return e->err;
}

static inline int64_t now_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* engine_test.c: statements. engine_tables_test.c: dialect. engine_trouble_test.c: locks, errors,
 * servers that go. They say how many. */
#define ENGINE_CASES_MAX 32
size_t statement_cases(struct CMUnitTest out[ENGINE_CASES_MAX]);
size_t table_cases(struct CMUnitTest out[ENGINE_CASES_MAX]);
size_t trouble_cases(struct CMUnitTest out[ENGINE_CASES_MAX]);

/* Runs all of them, and those of the engine alone, as one group. */
int run_engine_tests(const char *name, const struct CMUnitTest *own, size_t n);

#endif
