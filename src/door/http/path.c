/* path.c - /once/SCOPE/KEY/VERB. Slashes divide before escapes are read, so a scope or a key may
 * have one as %2F; a key may have them plainly as well. */
#include "door/http/http_int.h"

#include <string.h>

static int hex_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum err decode(struct bytes in, struct arena *arena, struct bytes *out)
{
    uint8_t *text = arena_alloc(arena, in.len + 1);
    size_t n = 0;
    if (!text)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < in.len; i++) {
        int c = in.at[i];
        if (c == '%') {
            if (in.len - i < 3)
                return ERR_MALFORMED;
            int high = hex_of((char)in.at[i + 1]), low = hex_of((char)in.at[i + 2]);
            if (high < 0 || low < 0)
                return ERR_MALFORMED;
            c = high << 4 | low;
            i += 2;
        }
        if (c == 0)
            return ERR_MALFORMED;
        text[n++] = (uint8_t)c;
    }
    *out = bytes_of(text, n);
    return OK;
}

static const struct {
    struct bytes word;
    int verb;
} verbs[] = {
    {{(const uint8_t *)"claim", 5}, OP_CLAIM},
    {{(const uint8_t *)"renew", 5}, OP_RENEW},
    {{(const uint8_t *)"done", 4}, OP_FINISH},
    {{(const uint8_t *)"release", 7}, OP_RELEASE},
};

/* The verb at the end, which is taken off; -1: there is none. */
static int verb_take(struct bytes *key)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        struct bytes word = verbs[i].word;
        if (key->len > word.len + 1 && key->at[key->len - word.len - 1] == '/' &&
            memcmp(key->at + key->len - word.len, word.at, word.len) == 0) {
            key->len -= word.len + 1;
            return verbs[i].verb;
        }
    }
    return -1;
}

enum err path_read(const char *url, struct arena *arena, struct path *out)
{
    struct bytes rest = bytes_str(url), prefix = BYTES("/once/");
    if (!bytes_start(rest, prefix) || rest.len == prefix.len)
        return ERR_NOT_FOUND;
    rest = bytes_from(rest, prefix.len);
    const uint8_t *slash = memchr(rest.at, '/', rest.len);
    struct bytes scope = bytes_of(rest.at, slash ? (size_t)(slash - rest.at) : rest.len);
    struct bytes key = slash ? bytes_from(rest, scope.len + 1) : (struct bytes){0};
    *out = (struct path){.has_key = key.len > 0, .verb = verb_take(&key)};
    enum err err = decode(scope, arena, &out->scope);
    if (!err)
        err = decode(key, arena, &out->key);
    if (!err && out->key.len > KEY_MOST)
        err = ERR_TOO_BIG;
    return !err && out->scope.len == 0 ? ERR_NOT_FOUND : err;
}
