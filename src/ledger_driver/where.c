/* where.c - which broker: what a URL says, and what the name servers know. */
#include "ledger_driver/ledger_driver.h"

#include "base/json.h"

#include <stdio.h>

#define CLUSTER_MAX (16 << 20) /* of memory for an answer that is read */

static enum err invalid(struct fault *why, const char *what)
{
    return fault_set(why, ERR_INVALID,
                     "the store's URL: %s; it reads broker:, broker:NAME or "
                     "broker://host:port[;host:port]/[NAME]",
                     what);
}

/* Printable, and none of the signs that a URL has for other things. */
static bool is_word(struct bytes text)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.at[i];
        if (c <= ' ' || c >= 0x7f || strchr("/?#@", c))
            return false;
    }
    return true;
}

static bool text_take(struct bytes text, char *out, size_t size)
{
    if (text.len >= size || !is_word(text))
        return false;
    if (text.len > 0)
        memcpy(out, text.at, text.len);
    out[text.len] = 0;
    return true;
}

enum err where_parse(const char *url, struct where *out, struct fault *why)
{
    static const char scheme[] = "broker:";
    struct where w = {0};
    if (strncmp(url, scheme, sizeof scheme - 1) != 0)
        return invalid(why, "it does not begin with broker:");
    struct bytes rest = bytes_from(bytes_str(url), sizeof scheme - 1);
    if (bytes_start(rest, BYTES("//"))) {
        rest = bytes_from(rest, 2);
        const uint8_t *slash = rest.len > 0 ? memchr(rest.at, '/', rest.len) : NULL;
        size_t len = slash ? (size_t)(slash - rest.at) : rest.len;
        if (len == 0)
            return invalid(why, "behind // there is no name server");
        if (!text_take(bytes_of(rest.at, len), w.names, sizeof w.names))
            return invalid(why, "the name servers are not well written, or too many");
        rest = bytes_from(rest, len + (slash ? 1 : 0));
    }
    if (!text_take(rest, w.name, sizeof w.name))
        return invalid(why, "the broker's name is not well written, or too long");
    *out = w;
    return OK;
}

/* ---- the cluster ---- */

static struct bytes master_of(const struct json *broker)
{
    json_each(address, json_member(broker, "brokerAddrs")) {
        if (json_int(address->key, -1) == 0)
            return json_text(address, (struct bytes){0});
    }
    return (struct bytes){0};
}

struct search {
    struct bytes name, address; /* of the last one that fits */
    size_t n;
    char all[160]; /* names, for people */
};

static void search_add(struct search *s, struct bytes name, struct bytes address)
{
    size_t used = strlen(s->all);
    if (s->n > 0 && used + name.len + 8 > sizeof s->all)
        (void)snprintf(s->all + used, sizeof s->all - used, "%s",
                       used && s->all[used - 1] != '.' ? " ..." : "");
    else
        (void)snprintf(s->all + used, sizeof s->all - used, "%s%.*s", used ? ", " : "",
                       BYTES_ARG(name));
    s->name = name;
    s->address = address;
    s->n++;
}

static enum err search_end(const struct search *s, const char *name, struct spot *out,
                           struct fault *why)
{
    if (s->n == 0 && name[0])
        return fault_set(why, ERR_IO, "the name servers know no master of broker %s", name);
    if (s->n == 0)
        return fault_set(why, ERR_IO, "the name servers know no broker");
    if (s->n > 1)
        return fault_set(why, ERR_INVALID,
                         "the cluster has %zu brokers (%s), and a key must always be asked at the "
                         "same one: name it in the store's URL, broker:NAME, the same for all "
                         "members of the group",
                         s->n, s->all);
    if (s->name.len >= sizeof out->name || s->address.len >= sizeof out->address)
        return fault_set(why, ERR_MALFORMED, "the address of the broker is too long");
    *out = (struct spot){0};
    memcpy(out->name, s->name.at, s->name.len);
    memcpy(out->address, s->address.at, s->address.len);
    return OK;
}

enum err where_find(struct bytes cluster, const char *name, struct spot *out, struct fault *why)
{
    struct arena arena;
    const struct json *root;
    arena_init(&arena, CLUSTER_MAX);
    enum err err = json_parse(cluster, &arena, &root, NULL);
    if (err) {
        arena_clear(&arena);
        return fault_set(why, ERR_MALFORMED,
                         "the list of brokers of the name servers cannot be read");
    }
    struct search search = {0};
    json_each(broker, json_member(root, "brokerAddrTable")) {
        struct bytes its_name = json_text(broker->key, (struct bytes){0});
        struct bytes address = master_of(broker);
        if (its_name.len > 0 && address.len > 0 &&
            (!name[0] || bytes_equal(its_name, bytes_str(name))))
            search_add(&search, its_name, address);
    }
    err = search_end(&search, name, out, why);
    arena_clear(&arena);
    return err;
}
