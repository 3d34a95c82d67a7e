#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void buf_clear(struct buf *b)
{
    free(b->at);
    *b = buf_upto(b->max);
}

static enum err grow(struct buf *b, size_t n)
{
    if (n > b->max - b->len)
        return ERR_TOO_BIG;
    size_t cap = b->cap ? b->cap * 2 : 256;
    if (cap < b->len + n)
        cap = b->len + n;
    if (cap > b->max)
        cap = b->max;
    uint8_t *at = realloc(b->at, cap);
    if (!at)
        return ERR_NO_MEMORY;
    b->at = at;
    b->cap = cap;
    return OK;
}

uint8_t *buf_space(struct buf *b, size_t n)
{
    if (b->err == OK && n > b->cap - b->len)
        b->err = grow(b, n);
    if (b->err != OK)
        return NULL;
    uint8_t *p = b->at + b->len;
    b->len += n;
    return p;
}

void buf_add(struct buf *b, struct bytes more)
{
    if (more.len == 0)
        return;
    uint8_t *p = buf_space(b, more.len);
    if (p)
        memcpy(p, more.at, more.len);
}

void buf_add_str(struct buf *b, const char *text)
{
    buf_add(b, bytes_str(text));
}

void buf_add_u8(struct buf *b, uint8_t v)
{
    buf_add(b, bytes_of(&v, 1));
}

void buf_add_u32(struct buf *b, uint32_t v)
{
    uint8_t *p = buf_space(b, 4);
    if (p)
        store_u32(p, v);
}

void buf_add_u64(struct buf *b, uint64_t v)
{
    uint8_t *p = buf_space(b, 8);
    if (p)
        store_u64(p, v);
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n >= 0) {
        uint8_t *p = buf_space(b, (size_t)n + 1); /* vsnprintf insists on its end */
        if (p) {
            (void)vsnprintf((char *)p, (size_t)n + 1, format, again);
            b->len--;
        }
    }
    va_end(again);
}
