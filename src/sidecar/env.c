/* env.c - a message as environment of a program.
 *
 * A stranger chooses the names of properties. Each becomes ONCEMQ_PROP_ and its letters in
 * capitals, with _ for whatever is no letter, digit or _; so none can be PATH or LD_PRELOAD, or
 * anything else that begins otherwise. Of names that become the same the first counts. What we were
 * started with is handed on, but nothing in it that could be taken for the message's. */
#include "sidecar/sidecar_int.h"

#include <inttypes.h>
#include <stdlib.h>

#define ENV_MAX (16 << 20)

static const char PROP[] = "ONCEMQ_PROP_";

static const char *const names[] = {"ONCEMQ_KEY",   "ONCEMQ_ID",      "ONCEMQ_TOPIC",
                                    "ONCEMQ_TAG",   "ONCEMQ_KEYS",    "ONCEMQ_BROKER",
                                    "ONCEMQ_QUEUE", "ONCEMQ_OFFSET",  "ONCEMQ_ATTEMPT",
                                    "ONCEMQ_FENCE", "ONCEMQ_BORN_MS", NULL};

static bool is_ours(const char *row)
{
    size_t n = strcspn(row, "=");
    for (const char *const *name = names; *name; name++)
        if (strlen(*name) == n && strncmp(row, *name, n) == 0)
            return true;
    return strncmp(row, PROP, sizeof PROP - 1) == 0;
}

static enum err rows_fit(struct env *e, size_t n)
{
    if (n <= e->cap)
        return OK;
    char **rows = realloc(e->rows, 2 * n * sizeof *rows);
    if (!rows)
        return ERR_NO_MEMORY;
    e->rows = rows;
    e->cap = 2 * n;
    return OK;
}

enum err env_open(struct env *e, char *const *inherited)
{
    *e = (struct env){.text = buf_upto(ENV_MAX)};
    for (; *inherited; inherited++) {
        if (is_ours(*inherited))
            continue;
        if (rows_fit(e, e->n_base + 1))
            return ERR_NO_MEMORY;
        e->rows[e->n_base++] = *inherited;
    }
    return OK;
}

void env_clear(struct env *e)
{
    free(take(&e->rows));
    buf_clear(&e->text);
}

static void add(struct env *e, const char *name, struct bytes value)
{
    buf_add_str(&e->text, name);
    buf_add_u8(&e->text, '=');
    const uint8_t *zero = value.len ? memchr(value.at, 0, value.len) : NULL;
    buf_add(&e->text, zero ? bytes_of(value.at, (size_t)(zero - value.at)) : value);
    buf_add_u8(&e->text, 0);
    e->n++;
}

static void add_number(struct env *e, const char *name, int64_t number)
{
    buf_printf(&e->text, "%s=%" PRId64, name, number);
    buf_add_u8(&e->text, 0);
    e->n++;
}

static uint8_t clean(char c)
{
    if (c >= 'a' && c <= 'z')
        return (uint8_t)(c - 'a' + 'A');
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? (uint8_t)c : '_';
}

/* Whether a row from `first` on has the name that stands at `name`, up to its =. */
static bool is_there(const struct env *e, size_t first, size_t name)
{
    const char *text = (const char *)e->text.at;
    size_t size = strcspn(text + name, "=") + 1;
    for (size_t at = first; at < name; at += strlen(text + at) + 1)
        if (strncmp(text + at, text + name, size) == 0)
            return true;
    return false;
}

static void add_property(struct env *e, const struct omq_property *p, size_t first)
{
    size_t start = e->text.len;
    buf_add_str(&e->text, PROP);
    for (const char *c = p->name; *c; c++)
        buf_add_u8(&e->text, clean(*c));
    buf_add_u8(&e->text, '=');
    buf_add_u8(&e->text, 0);
    if (e->text.err)
        return;
    if (is_there(e, first, start)) {
        e->text.len = start;
        return;
    }
    e->text.len--;
    buf_add_str(&e->text, p->value);
    buf_add_u8(&e->text, 0);
    e->n++;
}

enum err env_fill(struct env *e, const struct job *job)
{
    const struct omq_delivery *d = job->d;
    e->text.len = 0;
    e->text.err = OK;
    e->n = 0;
    add(e, "ONCEMQ_KEY", bytes_of(once_run_key(job->run), once_run_key_size(job->run)));
    add(e, "ONCEMQ_ID", bytes_str(d->id));
    add(e, "ONCEMQ_TOPIC", bytes_str(d->queue.topic));
    add(e, "ONCEMQ_TAG", bytes_str(d->tag));
    add(e, "ONCEMQ_KEYS", bytes_str(d->keys));
    add(e, "ONCEMQ_BROKER", bytes_str(d->queue.broker));
    add_number(e, "ONCEMQ_QUEUE", d->queue.id);
    add_number(e, "ONCEMQ_OFFSET", d->offset);
    add_number(e, "ONCEMQ_ATTEMPT", d->attempt);
    add_number(e, "ONCEMQ_FENCE", once_run_fence(job->run));
    add_number(e, "ONCEMQ_BORN_MS", d->born_ms);
    size_t first = e->text.len;
    for (size_t i = 0; i < d->n_properties; i++)
        add_property(e, &d->properties[i], first);
    if (e->text.err)
        return e->text.err;
    if (rows_fit(e, e->n_base + e->n + 1))
        return ERR_NO_MEMORY;
    char *at = (char *)e->text.at;
    for (size_t i = 0; i < e->n; i++) {
        e->rows[e->n_base + i] = at;
        at += strlen(at) + 1;
    }
    e->rows[e->n_base + e->n] = NULL;
    return OK;
}
