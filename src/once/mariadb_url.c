/* mariadb_url.c - mysql://user:password@host:port/database?option=value&…
 *
 * The URL is copied and decoded where it stands, since decoding only makes it shorter. No sentence
 * repeats a part of it: a part in the wrong place may be one of the password.
 */
#include "once/mariadb_int.h"

#include <ctype.h>
#include <stdlib.h>

#define TIP "special characters of a name or password are written as %%NN, an @ as %%40"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* False: a % without two digits, or a zero byte. */
static bool decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        int high = hex_digit(from[1]);
        int low = high < 0 ? -1 : hex_digit(from[2]);
        if (low < 0 || (high == 0 && low == 0))
            return false;
        *to++ = (char)(high << 4 | low);
        from += 2;
    }
    *to = 0;
    return true;
}

/* Cuts `text` at the first `at`; what is behind it, or NULL. */
static char *cut(char *text, char at)
{
    char *found = strchr(text, at);
    if (!found)
        return NULL;
    *found = 0;
    return found + 1;
}

static bool number(const char *text, int32_t max, unsigned *out)
{
    int32_t n;
    if (!bytes_to_i32(bytes_str(text), &n) || n < 1 || n > max)
        return false;
    *out = (unsigned)n;
    return true;
}

static enum err read_option(struct mariadb_url *u, const char *name, char *value, struct fault *why)
{
    bool good = decode(value) && *value;
    if (strcmp(name, "socket") == 0) {
        u->socket = value;
        good = good && strlen(value) < 108; /* what the kernel takes */
    } else if (strcmp(name, "ca") == 0)
        u->ca = value;
    else if (strcmp(name, "tls") == 0) {
        u->verify = good && strcmp(value, "verify") == 0;
        u->tls = u->verify || (good && strcmp(value, "on") == 0);
        good = u->tls || (good && strcmp(value, "off") == 0);
    } else if (strcmp(name, "connect_timeout") == 0)
        good = good && number(value, 3600, &u->connect_s);
    else if (strcmp(name, "read_timeout") == 0)
        good = good && number(value, 86400, &u->read_s);
    else
        return fault_set(why, ERR_INVALID,
                         "the URL of the store has an option that is not known; there are socket, "
                         "tls, ca, connect_timeout and read_timeout");
    return good ? OK
                : fault_set(why, ERR_INVALID, "the URL of the store: bad value of option %s", name);
}

static enum err read_options(struct mariadb_url *u, char *options, struct fault *why)
{
    while (options && *options) {
        char *next = cut(options, '&');
        char *value = cut(options, '=');
        if (!value)
            return fault_set(why, ERR_INVALID, "the URL of the store: an option without a value");
        enum err err = read_option(u, options, value, why);
        if (err)
            return err;
        options = next;
    }
    return OK;
}

/* host, host:port, [v6] or [v6]:port */
static bool read_host(struct mariadb_url *u, char *host)
{
    char *port;
    if (*host == '[') {
        host++;
        char *rest = cut(host, ']');
        if (!rest || (*rest && *rest != ':'))
            return false;
        port = *rest ? rest + 1 : NULL;
    } else
        port = cut(host, ':');
    u->host = host;
    return decode(host) && (!port || number(port, 65535, &u->port));
}

static char *scheme_skip(char *text)
{
    static const char *const schemes[] = {"mysql://", "mariadb://"};
    for (size_t i = 0; i < 2; i++)
        if (strncmp(text, schemes[i], strlen(schemes[i])) == 0)
            return text + strlen(schemes[i]);
    return NULL;
}

enum err mariadb_url_read(const char *url, struct mariadb_url *u, struct fault *why)
{
    *u = (struct mariadb_url){.user = "", .password = "", .host = ""};
    size_t len = strlen(url);
    if (len >= sizeof u->text)
        return fault_set(why, ERR_INVALID, "the URL of the store is too long");
    memcpy(u->text, url, len + 1);
    char *host = scheme_skip(u->text);
    if (!host)
        return fault_set(why, ERR_INVALID, "the URL of the store does not begin with mysql://");

    char *options = cut(host, '?');
    char *database = cut(host, '/');
    char *at = strrchr(host, '@');
    if (at) {
        char *user = host;
        *at = 0;
        host = at + 1;
        char *password = cut(user, ':');
        u->user = user;
        u->password = password ? password : "";
        if (strchr(user, '@') || strchr(u->password, '@') || !decode(user) ||
            (password && !decode(password)))
            return fault_set(why, ERR_INVALID,
                             "user or password in the URL of the store cannot be read: " TIP);
    }
    if (!read_host(u, host))
        return fault_set(why, ERR_INVALID,
                         "host or port in the URL of the store cannot be read: " TIP);
    if (!database || !*database || strchr(database, '/') || !decode(database))
        return fault_set(why, ERR_INVALID,
                         "the URL of the store names no database: mysql://user@host/DATABASE");
    u->database = database;
    return read_options(u, options, why);
}
