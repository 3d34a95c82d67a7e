/* id.c - the two kinds of message id, both in upper-case hex.
 *
 *     offset id   ip (4 or 16), port (4), position (8): where the record is; clients dial it
 *     unique id   ip (4 or 16), pid (2), process number (4), ms of the month (4), counter (2)
 */
#include "msg/msg.h"

#include <time.h>

#define DIGITS_V4 32
#define DIGITS_V6 56
#define BYTES_MAX (DIGITS_V6 / 2)

#define CALENDAR_END_MS 253402300799999 /* the last of the year 9999 */

/* Four bytes as eight digits: each half byte gets a byte of its own, all of them at once. */
static void hex_four(uint32_t number, char *out)
{
    uint64_t x = number;
    x = (x & 0xffff0000u) << 16 | (x & 0x0000ffffu);
    x = (x & 0x0000ff000000ff00u) << 8 | (x & 0x000000ff000000ffu);
    x = (x & 0x00f000f000f000f0u) << 4 | (x & 0x000f000f000f000fu);
    uint64_t letters = (x + 0x0606060606060606u) >> 4 & 0x0101010101010101u;
    store_u64((uint8_t *)out, x + 0x3030303030303030u + letters * ('A' - '9' - 1));
}

typedef uint8_t halves __attribute__((vector_size(16)));
#define HALVES(c) ((halves){c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c})

static inline void digits_of(halves h, char *out)
{
    h = h + '0' + ((halves)(h > HALVES(9)) & HALVES('A' - '9' - 1));
    memcpy(out, &h, sizeof h);
}

/* Eight bytes. */
static inline void hex_eight(const uint8_t *from, char *out)
{
    halves all = {0};
    memcpy(&all, from, 8);
    halves high = all >> 4, low = all & HALVES(15);
    digits_of(
        __builtin_shufflevector(high, low, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
        out);
}

static size_t hex_write(struct bytes from, char *out)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t i = 0;
    for (; from.len - i >= 8; i += 8)
        hex_eight(from.at + i, out + 2 * i);
    for (; from.len - i >= 4; i += 4)
        hex_four(load_u32(from.at + i), out + 2 * i);
    for (; i < from.len; i++) {
        out[2 * i] = digits[from.at[i] >> 4];
        out[2 * i + 1] = digits[from.at[i] & 15];
    }
    out[2 * from.len] = 0;
    return 2 * from.len;
}

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20; /* the Go client writes lower case in places */
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void id_host_init(struct id_host *h, const struct addr *host)
{
    uint8_t raw[BYTES_MAX];
    struct wr w = wr_over(raw, sizeof raw);
    wr_bytes_of(&w, bytes_of(host->ip, host->ip_len == 16 ? 16 : 4));
    wr_u32(&w, host->port);
    h->len = (uint8_t)hex_write(wr_bytes(&w), h->digits);
}

uint8_t *id_put(uint8_t *at, const struct id_host *host, int64_t position)
{
    uint8_t raw[8];
    store_u64(raw, (uint64_t)position);
    memcpy(at, host->digits, 16); /* an IPv4 host has no more */
    if (host->len > 16)
        memcpy(at, host->digits, host->len);
    hex_eight(raw, (char *)at + host->len);
    return at + host->len + 16;
}

size_t id_format(const struct addr *host, int64_t position, char out[ID_TEXT_MAX])
{
    struct id_host h;
    id_host_init(&h, host);
    uint8_t *end = id_put((uint8_t *)out, &h, position);
    *end = 0;
    return (size_t)(end - (uint8_t *)out);
}

enum err id_parse(struct bytes text, struct addr *host, int64_t *position)
{
    if (text.len != DIGITS_V4 && text.len != DIGITS_V6)
        return ERR_MALFORMED;

    uint8_t raw[BYTES_MAX];
    for (size_t i = 0; i < text.len / 2; i++) {
        int high = hex_value(text.at[2 * i]), low = hex_value(text.at[2 * i + 1]);
        if (high < 0 || low < 0)
            return ERR_MALFORMED;
        raw[i] = (uint8_t)(high << 4 | low);
    }

    struct rd r = rd_over(bytes_of(raw, text.len / 2));
    struct addr a = {.ip_len = text.len == DIGITS_V6 ? 16 : 4};
    memcpy(a.ip, rd_take(&r, a.ip_len).at, a.ip_len);
    uint32_t port = rd_u32(&r);
    int64_t where = (int64_t)rd_u64(&r);
    if (port > UINT16_MAX || where < 0)
        return ERR_MALFORMED;
    a.port = (uint16_t)port;
    *host = a;
    *position = where;
    return OK;
}

void id_maker_init(struct id_maker *m, const struct addr *host, uint16_t pid, uint32_t process)
{
    *m = (struct id_maker){0};
    struct wr w = wr_over(m->fixed, sizeof m->fixed);
    wr_bytes_of(&w, bytes_of(host->ip, host->ip_len == 16 ? 16 : 4));
    wr_u16(&w, pid);
    wr_u32(&w, process);
    m->fixed_len = (uint8_t)wr_len(&w);
}

/* The month of UTC, where Java takes that of its time zone: nobody reads the time back, and so the
 * result depends on the arguments alone. */
static void month_set(struct id_maker *m, int64_t now_ms)
{
    time_t now = (time_t)(now_ms / 1000);
    struct tm at;
    m->month_start_ms = m->month_end_ms = 0;
    if (now_ms < 0 || now_ms > CALENDAR_END_MS || !gmtime_r(&now, &at))
        return; /* a clock that is out of its mind: the ids differ all the same */
    struct tm first = {.tm_mday = 1, .tm_mon = at.tm_mon, .tm_year = at.tm_year};
    struct tm next = {.tm_mday = 1, .tm_mon = at.tm_mon + 1, .tm_year = at.tm_year};
    m->month_start_ms = (int64_t)timegm(&first) * 1000;
    m->month_end_ms = (int64_t)timegm(&next) * 1000;
}

size_t id_make(struct id_maker *m, int64_t now_ms, char out[ID_TEXT_MAX])
{
    if (now_ms < m->month_start_ms || now_ms >= m->month_end_ms)
        month_set(m, now_ms);

    uint8_t raw[BYTES_MAX];
    struct wr w = wr_over(raw, sizeof raw);
    wr_bytes_of(&w, bytes_of(m->fixed, m->fixed_len));
    wr_u32(&w, (uint32_t)(now_ms - m->month_start_ms));
    wr_u16(&w, m->counter++);
    return hex_write(wr_bytes(&w), out);
}
