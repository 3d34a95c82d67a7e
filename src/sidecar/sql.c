/* sql.c - statements in the transaction that has the message's mark in it.
 *
 * Values come from the message and are bound, never pasted. What is missing or null is NULL; a
 * whole number is one, another number its text, which keeps all digits; true and false are 1 and 0,
 * but words on PostgreSQL, which has a type for them; an object or array is its JSON. */
#include "sidecar/sidecar_int.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/utf8.h"
#include "once/sql_scan.h"

#include <stdlib.h>

#define TREE_MAX (64 << 20)
#define TEXT_MAX (16 << 20)

struct sql {
    struct sql_script script;
    int dialect;
};

struct sql_hand {
    const struct sql *sql;
    struct arena arena;
    struct buf text; /* JSON of an object or array while it is written */
};

static bool dialect_of(const char *url, int *out)
{
    static const struct {
        const char *scheme;
        int dialect;
    } all[] = {{"sqlite:", SQL_SQLITE},
               {"postgresql:", SQL_POSTGRESQL},
               {"postgres:", SQL_POSTGRESQL},
               {"mysql:", SQL_MARIADB},
               {"mariadb:", SQL_MARIADB}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strncmp(url, all[i].scheme, strlen(all[i].scheme)) == 0) {
            *out = all[i].dialect;
            return true;
        }
    return false;
}

static enum err sql_open(struct sidecar *s, struct fault *why)
{
    const char *url = s->with.once.store ? s->with.once.store : "sqlite:once.db";
    int dialect;
    if (!dialect_of(url, &dialect))
        return fault_set(why, ERR_INVALID,
                         "statements run in the store's database: it is sqlite:, postgresql:// or "
                         "mysql://");
    struct sql *sql = calloc(1, sizeof *sql);
    if (!sql)
        return ERR_NO_MEMORY;
    s->state = sql;
    sql->dialect = dialect;
    return sql_script_read(s->with.sql ? s->with.sql : "", dialect, &sql->script, why);
}

static void sql_close(struct sidecar *s)
{
    struct sql *sql = s->state;
    sql_script_clear(&sql->script);
    free(sql);
}

static void sql_kill(struct sidecar *s, int signal)
{
    (void)s;
    (void)signal; /* the database ends a statement after its wait_ms */
}

static enum err sql_hand_open(struct sidecar *s, size_t number, void **out, struct fault *why)
{
    (void)number;
    (void)why;
    struct sql_hand *hand = calloc(1, sizeof *hand);
    if (!hand)
        return ERR_NO_MEMORY;
    hand->sql = s->state;
    hand->text = buf_upto(TEXT_MAX);
    arena_init(&hand->arena, TREE_MAX);
    *out = hand;
    return OK;
}

static void sql_hand_close(void *own)
{
    struct sql_hand *hand = own;
    arena_clear(&hand->arena);
    buf_clear(&hand->text);
    free(hand);
}

/* ---- values ---- */

static struct once_value number_of(int64_t number)
{
    return (struct once_value){.type = ONCE_INT, .number = number};
}

static struct once_value text_of(struct bytes text)
{
    return (struct once_value){
        .type = ONCE_TEXT, .bytes = text.at ? text.at : (const uint8_t *)"", .size = text.len};
}

/* Bytes that are no text are that. */
static struct once_value bytes_value(struct bytes b)
{
    const uint8_t *at = b.at, *end = b.at + b.len;
    for (size_t n; at < end; at += n) {
        n = *at ? utf8_length(at, end) : 0;
        if (n == 0)
            return (struct once_value){.type = ONCE_BLOB, .bytes = b.at, .size = b.len};
    }
    return text_of(b);
}

static const struct json *step_into(const struct json *node, const struct sql_step *step)
{
    const struct json *found = NULL;
    size_t i = 0;
    if (!node || node->type != (step->name.at ? JSON_OBJECT : JSON_ARRAY))
        return NULL;
    json_each(child, node) {
        if (step->name.at
                ? child->key->type != JSON_OBJECT && bytes_equal(child->key->text, step->name)
                : i++ == step->index)
            found = child; /* the last of equal names counts */
    }
    return found;
}

/* An object or array as JSON; of our own, so that it stays while others are made. What is too big
 * is in `text.err`. */
static struct bytes node_text(struct sql_hand *hand, const struct json *node)
{
    struct buf *text = &hand->text;
    struct json_out w = {.buf = text};
    text->len = 0;
    json_put(&w, node);
    struct bytes kept = {0};
    if (!text->err)
        kept = arena_copy(&hand->arena, buf_bytes(text));
    if (!kept.at && !text->err)
        text->err = ERR_TOO_BIG;
    return kept;
}

static struct once_value value_of_node(struct sql_hand *hand, const struct json *node)
{
    int64_t number;
    bool words = hand->sql->dialect == SQL_POSTGRESQL;
    if (!node)
        return (struct once_value){.type = ONCE_NULL};
    switch (node->type) {
    case JSON_NULL:
        return (struct once_value){.type = ONCE_NULL};
    case JSON_TRUE:
    case JSON_FALSE:
        return words ? text_of(node->text) : number_of(node->type == JSON_TRUE);
    case JSON_NUMBER:
        return bytes_to_i64(node->text, &number) ? number_of(number) : text_of(node->text);
    case JSON_STRING:
        return text_of(node->text);
    default:
        return text_of(node_text(hand, node));
    }
}

static struct once_value value_of(struct sql_hand *hand, const struct job *job,
                                  const struct sql_place *place, const struct json *body)
{
    const struct omq_delivery *d = job->d;
    const char *text = NULL;
    switch (place->field) {
    case FIELD_KEY:
        return bytes_value(bytes_of(once_run_key(job->run), once_run_key_size(job->run)));
    case FIELD_ATTEMPT:
        return number_of(d->attempt);
    case FIELD_QUEUE:
        return number_of(d->queue.id);
    case FIELD_OFFSET:
        return number_of(d->offset);
    case FIELD_BORN:
        return number_of(d->born_ms);
    case FIELD_BODY:
        if (place->n_steps == 0)
            return bytes_value(bytes_of(d->body ? d->body : "", d->body_size));
        for (size_t i = 0; i < place->n_steps; i++)
            body = step_into(body, &place->steps[i]);
        return value_of_node(hand, body);
    case FIELD_ID:
        text = d->id;
        break;
    case FIELD_TOPIC:
        text = d->queue.topic;
        break;
    case FIELD_TAG:
        text = d->tag;
        break;
    case FIELD_KEYS:
        text = d->keys;
        break;
    case FIELD_BROKER:
        text = d->queue.broker;
        break;
    case FIELD_PROP:
        text = omq_delivery_property(d, (const char *)place->steps[0].name.at);
        break;
    }
    return text ? bytes_value(bytes_str(text)) : (struct once_value){.type = ONCE_NULL};
}

/* ---- work ---- */

static bool wants_body(const struct sql_statement *statement)
{
    for (size_t i = 0; i < statement->n_values; i++)
        if (statement->values[i].field == FIELD_BODY && statement->values[i].n_steps > 0)
            return true;
    return false;
}

static enum err body_read(struct sql_hand *hand, const struct job *job, const struct json **body,
                          struct fate *fate)
{
    size_t at = 0;
    bool wanted = false;
    *body = NULL;
    for (size_t i = 0; i < hand->sql->script.n; i++)
        wanted |= wants_body(&hand->sql->script.statements[i]);
    if (!wanted)
        return OK;
    enum err err = json_parse(bytes_of(job->d->body ? job->d->body : "", job->d->body_size),
                              &hand->arena, body, &at);
    if (err)
        fate_set(fate, SIDECAR_FAILED, 0,
                 "values are to come from the body, which is no JSON at byte %zu", at + 1);
    return err;
}

static bool statement_run(struct sql_hand *hand, const struct job *job,
                          const struct sql_statement *statement, const struct json *body,
                          struct fate *fate)
{
    struct once_value values[SQL_VALUES_MAX];
    struct once_error why = {0};
    for (size_t i = 0; i < statement->n_values; i++)
        values[i] = value_of(hand, job, &statement->values[i], body);
    if (hand->text.err) {
        fate_set(fate, SIDECAR_FAILED, 0, "its values are too big");
        return false;
    }
    if (once_execute(job->run, statement->text, values, statement->n_values, NULL, &why)) {
        fate_set(fate, SIDECAR_FAILED, 0, "%s", why.text);
        return false;
    }
    return true;
}

static void sql_work(struct sidecar *s, void *own, struct job *job, struct fate *fate)
{
    (void)s;
    struct sql_hand *hand = own;
    const struct json *body;
    arena_reset(&hand->arena);
    hand->text.err = OK;
    if (body_read(hand, job, &body, fate))
        return;
    for (size_t i = 0; i < hand->sql->script.n; i++)
        if (!statement_run(hand, job, &hand->sql->script.statements[i], body, fate))
            return;
    fate_set(fate, SIDECAR_DONE, 0, "%s", "");
}

const struct worker worker_sql = {
    .open = sql_open,
    .close = sql_close,
    .kill = sql_kill,
    .hand_open = sql_hand_open,
    .hand_close = sql_hand_close,
    .work = sql_work,
};
