/* sql_text.c - the statements of the SQL stores, the same for all engines but for names, the clock
 * and the form of locking. */
#include "once/sql_int.h"

#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME_PART_MAX 63 /* PostgreSQL would cut a longer one, and take it for another */
#define NAME_MAX_SIZE 256
#define TEXT_MAX      (16 << 10)

#define ROW "id, state, token, fence, until_ms, keep_ms, fingerprint"

static const char *const texts[T_INSERT_MANY] = {
    [T_CLOCK] = "SELECT {now}, number FROM {birth} WHERE one = 1",
    [T_BIRTH] = "INSERT INTO {birth} (one, number) VALUES (1, ?)",
    [T_INSERT] = NULL, /* the engine's */
    [T_READ_ONE] = "SELECT " ROW " FROM {claims} WHERE id = ?",
    [T_READ_LOCKED] = "SELECT " ROW " FROM {claims} WHERE id = ?{lock}",
    [T_READ_MANY] = "SELECT " ROW " FROM {claims} WHERE id IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [T_UPDATE] = "UPDATE {claims} SET state = ?, token = ?, fence = ?, until_ms = ?, keep_ms = ?, "
                 "fingerprint = ? WHERE id = ? AND state = ? AND token = ? AND fence = ? AND "
                 "until_ms = ?",
    [T_DELETE] = "DELETE FROM {claims} WHERE id = ? AND state = ? AND token = ? AND fence = ? AND "
                 "until_ms = ?",
    [T_STEP_GET] = "SELECT result FROM {steps} WHERE id = ? AND step = ?",
    [T_STEP_HAS] = "SELECT id FROM {steps} WHERE id = ? AND step = ?",
    [T_STEP_PUT] = "INSERT INTO {steps} (id, step, result) VALUES (?, ?, ?)",
    [T_STEPS_DELETE] = "DELETE FROM {steps} WHERE id = ?",
    [T_SWEEP_FIND] = "SELECT id FROM {claims} WHERE keep_ms <= ? ORDER BY keep_ms LIMIT ?",
    [T_SWEEP_DELETE] = "DELETE FROM {claims} WHERE id = ? AND keep_ms <= ?",
    [T_PLACE_READ] = "SELECT epoch, next, done FROM {places} WHERE id = ?",
    [T_PLACE_LOCKED] = "SELECT epoch, next, done FROM {places} WHERE id = ?{lock}",
    [T_PLACE_INSERT] = "INSERT INTO {places} (id, name, epoch, next, done) VALUES (?, ?, ?, ?, ?)",
    [T_PLACE_UPDATE] = "UPDATE {places} SET next = ?, done = ? WHERE id = ? AND epoch = ?",
    [T_PLACE_TAKE] = "UPDATE {places} SET epoch = ? WHERE id = ? AND epoch = ?",
    [T_CHECK_CLAIMS] = "SELECT name, " ROW " FROM {claims} WHERE id = ?",
    [T_CHECK_STEPS] = "SELECT id, step, result FROM {steps} WHERE id = ?",
    [T_CHECK_PLACES] = "SELECT id, name, epoch, next, done FROM {places} WHERE id = ?",
    [T_CHECK_OUTBOX] = "SELECT number, id, message FROM {outbox} WHERE number = 0",
    [T_CHECK_BIRTH] = "SELECT one, number FROM {birth} WHERE one = 0",
    [T_PLAIN_CHECK] = "SELECT id, k, update_at FROM {plain} WHERE k = ?",
    [T_PLAIN_FIND] = "SELECT k FROM {plain} WHERE k = ?",
    [T_PLAIN_INSERT] = "INSERT INTO {plain} (k) VALUES (?)",
    [T_PLAIN_DELETE] = "DELETE FROM {plain} WHERE k = ?",
};

/* One part of a dotted name, or NULL where there is no room. */
static char *quote_part(char quote, const char *from, size_t size, char *out, const char *end)
{
    if (end - out < 3 || size == 0 || size > NAME_PART_MAX)
        return NULL;
    *out++ = quote;
    for (size_t i = 0; i < size; i++) {
        if (end - out < 4)
            return NULL;
        if (from[i] == quote)
            *out++ = quote;
        *out++ = from[i];
    }
    *out++ = quote;
    return out;
}

enum err sql_quote(char quote, const char *name, char *out, size_t size)
{
    const char *end = out + size;
    char *at = out;
    for (;;) {
        size_t part = strcspn(name, ".");
        at = quote_part(quote, name, part, at, end);
        if (!at || at == end)
            return ERR_INVALID;
        name += part;
        if (*name == '\0')
            break;
        *at++ = *name++;
    }
    *at = '\0';
    return OK;
}

/* What stands for a word in braces; false: nothing does. */
static bool add_word(struct buf *b, const struct sql_engine *engine, const char *table,
                     struct bytes word)
{
    static const struct {
        const char *word, *suffix;
    } names[] = {
        {"claims", "_claims"}, {"steps", "_steps"}, {"places", "_places"},
        {"outbox", "_outbox"}, {"birth", "_birth"}, {"keep", "_claims_keep"},
        {"plain", ""},
    };
    if (bytes_equal(word, BYTES("now"))) {
        buf_add_str(b, engine->now_ms);
        return true;
    }
    if (bytes_equal(word, BYTES("lock"))) {
        buf_add_str(b, engine->for_update);
        return true;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (bytes_equal(word, bytes_str(names[i].word))) {
            char plain[NAME_MAX_SIZE], quoted[NAME_MAX_SIZE];
            (void)snprintf(plain, sizeof plain, "%s%s", table, names[i].suffix);
            if (sql_quote(engine->quote, plain, quoted, sizeof quoted))
                return false;
            buf_add_str(b, quoted);
            return true;
        }
    }
    return false;
}

char *sql_text(const struct sql_engine *engine, const char *table, const char *text)
{
    struct buf b = buf_upto(TEXT_MAX);
    while (*text) {
        size_t literal = strcspn(text, "{");
        buf_add(&b, bytes_of(text, literal));
        text += literal;
        const char *close = *text ? strchr(text, '}') : NULL;
        if (!close)
            break;
        invariant(add_word(&b, engine, table, bytes_of(text + 1, (size_t)(close - text - 1))));
        text = close + 1;
    }
    buf_add_str(&b, text);
    buf_add_u8(&b, '\0');
    if (b.err)
        buf_clear(&b);
    return (char *)b.at;
}

enum err sql_texts_make(struct store *store)
{
    const struct sql_engine *engine = store->engine;
    const char *const own[T_COUNT] = {
        [T_INSERT] = engine->insert_claim,
        [T_CHECK_CLAIMS] = engine->check_claims,
        [T_SWEEP_FIND] = engine->sweep_find,
        [T_MARK] = engine->insert_mark,
        [T_INSERT_MANY] = engine->insert_many,
        [T_UPDATE_MANY] = engine->update_many,
        [T_COMMIT] = engine->commit_text,
        [T_TICK] = engine->tick,
        [T_STRAIGHT_CLAIM] = engine->straight_claim,
        [T_STRAIGHT_FINISH] = engine->straight_finish,
        [T_STRAIGHT_FINISH_MANY] = engine->straight_finish_many,
        [T_STRAIGHT_COMMIT] = engine->straight_commit,
    };
    for (int i = 0; i < T_COUNT; i++) {
        const char *text = own[i] ? own[i] : i < T_INSERT_MANY ? texts[i] : NULL;
        if (!text)
            continue;
        store->texts[i] = sql_text(engine, store->settings.table, text);
        if (!store->texts[i])
            return ERR_NO_MEMORY;
    }
    return OK;
}
