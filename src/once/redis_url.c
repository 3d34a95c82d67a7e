/* redis_url.c - redis://[user:password@]host[:port][/db], redis+unix://[…@]/path[?db=N], and
 * rediss://…[?ca=FILE&cert=FILE&key=FILE] as the first, over TLS. Whatever is not understood is
 * refused, and no sentence repeats what might be a password. */
#include "once/redis_int.h"

#include <stdio.h>

#define DEFAULT_PORT 6379
#define URL_MAX      4096

static enum err invalid(struct fault *why, const char *what)
{
    return fault_set(why, ERR_INVALID,
                     "the store's URL: %s; it reads redis://[user:password@]host[:port][/db], with "
                     "%%XX for odd characters",
                     what);
}

static int hex(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* With %XX resolved, and a NUL behind it. */
static bool decode(struct bytes in, char *out, size_t size)
{
    size_t len = 0;
    for (size_t i = 0; i < in.len; i++) {
        int c = in.at[i];
        if (c == '%') {
            if (in.len - i < 3 || hex(in.at[i + 1]) < 0 || hex(in.at[i + 2]) < 0)
                return false;
            c = hex(in.at[i + 1]) * 16 + hex(in.at[i + 2]);
            i += 2;
        } else if (c <= ' ' || c == 0x7f) {
            return false;
        }
        if (c == 0 || len + 1 >= size)
            return false;
        out[len++] = (char)c;
    }
    out[len] = 0;
    return true;
}

/* Where `c` is first or last; false: nowhere. */
static bool find(struct bytes in, char c, bool last, size_t *out)
{
    bool found = false;
    for (size_t i = 0; i < in.len && (last || !found); i++)
        if (in.at[i] == (uint8_t)c) {
            *out = i;
            found = true;
        }
    return found;
}

static struct bytes first(struct bytes b, size_t n)
{
    return (struct bytes){b.at, n};
}

static bool number(struct bytes text, int min, int max, int *out)
{
    int32_t n;
    if (text.len == 0 || text.at[0] == '-' || !bytes_to_i32(text, &n) || n < min || n > max)
        return false;
    *out = n;
    return true;
}

static enum err parse_login(struct bytes text, struct redis_url *u, struct fault *why)
{
    size_t colon;
    if (!find(text, ':', false, &colon))
        return invalid(why, "what stands before @ has no colon; a password alone is :password@");
    u->login = true;
    if (!decode(first(text, colon), u->user, sizeof u->user))
        return invalid(why, "the user's name is not well written, or too long");
    if (!decode(bytes_from(text, colon + 1), u->password, sizeof u->password))
        return invalid(why, "the password is not well written (%25 is a percent sign), or too "
                            "long");
    return OK;
}

/* host, host:port, [v6], [v6]:port. */
static enum err parse_host(struct bytes text, struct redis_url *u, struct fault *why)
{
    struct bytes host = text, port = {0};
    size_t at;
    bool bracket = text.len > 0 && text.at[0] == '[';
    if (bracket) {
        if (!find(text, ']', false, &at))
            return invalid(why, "a [ without its ]");
        host = (struct bytes){text.at + 1, at - 1};
        port = bytes_from(text, at + 1);
        if (port.len > 0 && port.at[0] != ':')
            return invalid(why, "behind ] only :port may come");
    } else if (find(text, ':', false, &at)) {
        host = first(text, at);
        port = bytes_from(text, at);
        size_t again;
        if (find(bytes_from(port, 1), ':', false, &again))
            return invalid(why, "an IPv6 address stands in brackets");
    }
    if (host.len == 0 || !decode(host, u->host, sizeof u->host))
        return invalid(why, "the host is missing, not well written, or too long");
    u->port = DEFAULT_PORT;
    if (port.len > 0 && !number(bytes_from(port, 1), 1, 65535, &u->port))
        return invalid(why, "the port is a number from 1 to 65535");
    snprintf(u->where, sizeof u->where, bracket ? "[%s]:%d" : "%s:%d", u->host, u->port);
    return OK;
}

/* One of name=FILE. */
static bool parse_file(struct bytes text, struct redis_url *u)
{
    const struct {
        struct bytes name;
        char *to;
    } files[] = {{BYTES("ca="), u->ca}, {BYTES("cert="), u->cert}, {BYTES("key="), u->key}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct bytes value = bytes_from(text, files[i].name.len);
        if (bytes_start(text, files[i].name))
            return value.len > 0 && files[i].to[0] == 0 && decode(value, files[i].to, sizeof u->ca);
    }
    return false;
}

static enum err parse_files(struct bytes text, struct redis_url *u, struct fault *why)
{
    for (bool more = true; more;) {
        size_t at = text.len;
        more = find(text, '&', false, &at);
        if (!parse_file(first(text, at), u))
            return invalid(why, "of options rediss:// knows ca=FILE, cert=FILE and key=FILE, once "
                                "each, of 255 bytes at most");
        text = bytes_from(text, more ? at + 1 : at);
    }
    return u->key[0] && !u->cert[0] ? invalid(why, "key= without cert=") : OK;
}

static enum err parse_tcp(struct bytes rest, struct redis_url *u, struct fault *why)
{
    size_t at;
    if (u->tls && find(rest, '?', false, &at)) {
        enum err err = parse_files(bytes_from(rest, at + 1), u, why);
        if (err)
            return err;
        rest = first(rest, at);
    }
    if (find(rest, '?', false, &at) || find(rest, '#', false, &at))
        return invalid(why, "it has no ?options and no #fragment");
    struct bytes db = {0};
    if (find(rest, '/', false, &at)) {
        db = bytes_from(rest, at + 1);
        rest = first(rest, at);
    }
    if (db.len > 0 && !number(db, 0, INT32_MAX, &u->db))
        return invalid(why, "the database behind / is a number");
    return parse_host(rest, u, why);
}

static enum err parse_unix(struct bytes rest, struct redis_url *u, struct fault *why)
{
    size_t at;
    if (find(rest, '?', false, &at)) {
        struct bytes option = bytes_from(rest, at + 1);
        rest = first(rest, at);
        if (!bytes_start(option, BYTES("db=")) ||
            !number(bytes_from(option, 3), 0, INT32_MAX, &u->db))
            return invalid(why, "of options only ?db=NUMBER is known");
    }
    if (rest.len < 2 || rest.at[0] != '/' || !decode(rest, u->path, sizeof u->path))
        return invalid(why, "redis+unix:// wants the socket's whole path, 107 bytes at most");
    snprintf(u->where, sizeof u->where, "%s", u->path);
    return OK;
}

enum err redis_url_parse(const char *text, struct redis_url *out, struct fault *why)
{
    struct redis_url u = {0};
    struct bytes rest = bytes_of(text, strnlen(text, URL_MAX + 1));
    if (rest.len > URL_MAX)
        return invalid(why, "it is longer than 4096 bytes");
    u.tls = bytes_start(rest, BYTES("rediss://"));
    bool local = bytes_start(rest, BYTES("redis+unix://"));
    if (!local && !u.tls && !bytes_start(rest, BYTES("redis://")))
        return invalid(why, "it does not begin with redis://");
    rest = bytes_from(rest, local ? 13 : u.tls ? 9 : 8);

    /* A password may have anything in it that was not written as %XX, also / ? and @. */
    size_t at;
    if (find(rest, '@', true, &at)) {
        enum err err = parse_login(first(rest, at), &u, why);
        if (err)
            return err;
        rest = bytes_from(rest, at + 1);
    }
    enum err err = local ? parse_unix(rest, &u, why) : parse_tcp(rest, &u, why);
    if (err)
        return err;
    *out = u;
    return OK;
}
