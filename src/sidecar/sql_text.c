/* sql_text.c - statements with names in the places of values.
 *
 *     INSERT INTO paid(id, amount) VALUES (:body.orderId, :body.lines[0].amount); UPDATE …
 *
 *     :key :id :topic :tag :keys :attempt :queue :offset :broker :born_ms
 *     :prop.NAME  :prop."odd name"
 *     :body                       all of it
 *     :body.PATH                  names and indexes: a.b[0].c, ["odd name"] or ."odd name"
 *
 * A : that is quoted, commented, part of :: or := or of a number (a slice, 1:2) names nothing. What
 * names something unknown is refused, with its position. */
#include "sidecar/sidecar_int.h"

#include "once/sql_scan.h"

#include <stdlib.h>

#define STATEMENTS_MAX 32

struct reader {
    const char *text, *names_end;
    size_t at;
    int dialect;
    char *name;    /* where the next name is copied to */
    bool has_code; /* the statement is more than blanks and comments */
    struct buf out;
    struct sql_script *script;
    struct fault *why;
};

static enum err wrong(const struct reader *r, size_t at, const char *what)
{
    return fault_set(r->why, ERR_INVALID, "SQL, position %zu: %s: %.30s", at + 1, what,
                     r->text + at);
}

static bool starts_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool in_name(char c)
{
    return starts_name(c) || (c >= '0' && c <= '9');
}

/* ---- the name of a value ---- */

/* A plain name, or one between quotes. */
static enum err name_take(struct reader *r, struct bytes *out)
{
    size_t start = r->at;
    char *to = r->name;
    if (r->text[r->at] == '"') {
        for (r->at++; r->text[r->at] && r->text[r->at] != '"'; r->at++) {
            if (r->text[r->at] == '\\' && r->text[r->at + 1])
                r->at++;
            *r->name++ = r->text[r->at];
        }
        if (!r->text[r->at])
            return wrong(r, start, "a quote that is not closed");
        r->at++;
    } else {
        while (in_name(r->text[r->at]))
            *r->name++ = r->text[r->at++];
    }
    *out = bytes_of(to, (size_t)(r->name - to));
    *r->name++ = 0;
    return out->len ? OK : wrong(r, start, "a name is wanted here");
}

static enum err step_add(struct reader *r, struct sql_place *place, struct sql_step step)
{
    if (place->n_steps == SQL_STEPS_MAX)
        return wrong(r, r->at, "the path is too long");
    place->steps[place->n_steps++] = step;
    return OK;
}

/* After [: an index, or a name between quotes. */
static enum err bracket(struct reader *r, struct sql_place *place)
{
    struct sql_step step = {0};
    size_t start = r->at;
    enum err err = OK;
    if (r->text[r->at] == '"')
        err = name_take(r, &step.name);
    else
        while (r->text[r->at] >= '0' && r->text[r->at] <= '9' && step.index < 100000000)
            step.index = step.index * 10 + (size_t)(r->text[r->at++] - '0');
    if (!err && (r->at == start || r->text[r->at] != ']'))
        err = wrong(r, start, "an index such as [0] or a name such as [\"a b\"] is wanted");
    if (err)
        return err;
    r->at++;
    return step_add(r, place, step);
}

static enum err path(struct reader *r, struct sql_place *place)
{
    enum err err = OK;
    while (!err) {
        char next = r->text[r->at];
        char after = next ? r->text[r->at + 1] : 0;
        if (next == '.' && (starts_name(after) || after == '"')) {
            struct sql_step step = {0};
            r->at++;
            err = name_take(r, &step.name);
            if (!err)
                err = step_add(r, place, step);
        } else if (next == '[' && (after == '"' || (after >= '0' && after <= '9'))) {
            r->at++;
            err = bracket(r, place);
        } else
            break;
    }
    return err;
}

static bool field_of(struct bytes word, enum sql_field *out)
{
    static const char *const words[] = {
        [FIELD_KEY] = "key",      [FIELD_ID] = "id",         [FIELD_TOPIC] = "topic",
        [FIELD_TAG] = "tag",      [FIELD_KEYS] = "keys",     [FIELD_ATTEMPT] = "attempt",
        [FIELD_QUEUE] = "queue",  [FIELD_OFFSET] = "offset", [FIELD_BROKER] = "broker",
        [FIELD_BORN] = "born_ms", [FIELD_PROP] = "prop",     [FIELD_BODY] = "body"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (bytes_equal(word, bytes_str(words[i]))) {
            *out = (enum sql_field)i;
            return true;
        }
    return false;
}

/* At the : of a value. */
static enum err place_take(struct reader *r, struct sql_statement *s)
{
    size_t start = r->at++;
    struct sql_place place = {0};
    struct bytes word;
    enum err err = name_take(r, &word);
    if (err)
        return err;
    if (!field_of(word, &place.field))
        return wrong(r, start,
                     "there are :body :body.PATH :prop.NAME :key :id :topic :tag :keys :attempt "
                     ":queue :offset :broker and :born_ms, but not");
    if (place.field == FIELD_PROP) {
        if (r->text[r->at] != '.')
            return wrong(r, start, "a name is wanted, as in :prop.region");
        r->at++;
        place.n_steps = 1;
        err = name_take(r, &place.steps[0].name);
    } else if (place.field == FIELD_BODY)
        err = path(r, &place);
    if (err)
        return err;
    if (r->text[r->at] &&
        strchr("'\"$", r->text[r->at])) /* with ? before it, it would mean other things */
        return wrong(r, start, "a blank is wanted behind a value");
    if (s->n_values == SQL_VALUES_MAX)
        return wrong(r, start, "more than 32 values in one statement");
    s->values[s->n_values++] = place;
    buf_add_u8(&r->out, '?');
    return OK;
}

/* ---- statements ---- */

/* Whether a : at this place names a value. */
static bool names_value(const struct reader *r)
{
    const char *c = r->text + r->at;
    return c[0] == ':' && starts_name(c[1]) &&
           (r->at == 0 || (c[-1] != ':' && c[-1] != '$' && !in_name(c[-1])));
}

static enum err part(struct reader *r, struct sql_statement *s)
{
    size_t skip = sql_scan((enum sql_dialect)r->dialect, r->text, r->at);
    if (skip == SIZE_MAX)
        return wrong(r, r->at, "a quote or comment that is not closed");
    if (skip) {
        const char *c = r->text + r->at; /* MariaDB runs what stands in a comment with ! */
        r->has_code |= !strchr("-/#", c[0]) || (c[0] == '/' && (c[2] == '!' || c[2] == 'M'));
        buf_add(&r->out, bytes_of(c, skip));
        r->at += skip;
        return OK;
    }
    r->has_code |= !strchr(" \t\r\n", r->text[r->at]);
    if (names_value(r))
        return place_take(r, s);
    if (r->text[r->at] == '?')
        return wrong(r, r->at,
                     "values have names here, such as :key, and an operator ? has a "
                     "function instead, such as jsonb_exists()");
    buf_add_u8(&r->out, (uint8_t)r->text[r->at++]);
    return OK;
}

static enum err statement_add(struct reader *r, struct sql_statement *s)
{
    struct sql_script *script = r->script;
    if (!r->has_code) { /* a database has nothing to run there, and says that this is wrong */
        r->out.len = 0;
        return OK;
    }
    r->has_code = false;
    if (script->n == STATEMENTS_MAX)
        return wrong(r, 0, "more than 32 statements");
    buf_add_u8(&r->out, 0);
    if (r->out.err)
        return r->out.err;
    size_t lead = strspn((char *)r->out.at, " \t\r\n");
    s->text = strdup((char *)r->out.at + lead);
    if (!s->text)
        return ERR_NO_MEMORY;
    script->statements[script->n++] = *s;
    r->out.len = 0;
    return OK;
}

static enum err read_all(struct reader *r)
{
    enum err err = OK;
    while (!err && r->text[r->at]) {
        struct sql_statement s = {0};
        while (!err && r->text[r->at] && r->text[r->at] != ';')
            err = part(r, &s);
        if (!err)
            err = statement_add(r, &s);
        r->at += r->text[r->at] == ';';
    }
    if (!err && r->script->n == 0)
        err = fault_set(r->why, ERR_INVALID, "SQL: there is no statement in it");
    return err;
}

enum err sql_script_read(const char *text, int dialect, struct sql_script *out, struct fault *why)
{
    size_t size = strlen(text);
    struct sql_script script = {.names = malloc(2 * size + 2),
                                .statements = calloc(STATEMENTS_MAX, sizeof *script.statements)};
    struct reader r = {.text = text,
                       .dialect = dialect,
                       .name = script.names,
                       .out = buf_upto(size + 2),
                       .script = &script,
                       .why = why};
    enum err err = script.names && script.statements ? read_all(&r) : ERR_NO_MEMORY;
    buf_clear(&r.out);
    if (err)
        sql_script_clear(&script);
    else
        *out = script;
    return err;
}

void sql_script_clear(struct sql_script *script)
{
    for (size_t i = 0; i < script->n; i++)
        free(script->statements[i].text);
    free(script->statements);
    free(script->names);
    *script = (struct sql_script){0};
}
