/* sql92_lex.c - cuts an expression into tokens: the longest that fits, as in Apache's grammar.
 *
 * Two of its corners: a line comment needs the end of its line, without one "--" is two signs; a
 * whole number does not begin with 0 unless it is 0, so "05" is two numbers.
 */
#include "broker/sql92_int.h"

#include <strings.h>

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_start(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
}

static uint8_t byte_at(struct bytes b, size_t i)
{
    return i < b.len ? b.at[i] : 0;
}

static size_t digits_end(struct bytes b, size_t i)
{
    while (is_digit(byte_at(b, i)))
        i++;
    return i;
}

/* How long the comment at the start of `b` is; 0: there is none, or it does not end. */
static size_t comment_length(struct bytes b)
{
    uint8_t first = byte_at(b, 0), second = byte_at(b, 1);
    if (first == '-' && second == '-') {
        for (size_t i = 2; i < b.len; i++)
            if (b.at[i] == '\n' || b.at[i] == '\r')
                return i + 1;
    } else if (first == '/' && second == '*') {
        for (size_t i = 3; i < b.len; i++)
            if (b.at[i - 1] == '*' && b.at[i] == '/')
                return i + 1;
    }
    return 0;
}

static struct bytes blanks_skip(struct bytes b)
{
    for (;;) { /* each turn eats a byte or more, or ends it */
        size_t n = b.len > 0 && is_blank(b.at[0]) ? 1 : comment_length(b);
        if (n == 0)
            return b;
        b = bytes_from(b, n);
    }
}

/* Where an exponent that begins at `i` ends; `i` itself: there is none. */
static size_t exponent_end(struct bytes b, size_t i)
{
    if (byte_at(b, i) != 'e' && byte_at(b, i) != 'E')
        return i;
    size_t digits = i + 1;
    if (byte_at(b, digits) == '+' || byte_at(b, digits) == '-')
        digits++;
    size_t end = digits_end(b, digits);
    return end > digits ? end : i;
}

static struct token number_at(struct bytes b)
{
    size_t whole = digits_end(b, 0), end = whole;
    if (byte_at(b, whole) == '.')
        end = digits_end(b, whole + 1);
    end = exponent_end(b, end);
    if (end > whole)
        return (struct token){TOKEN_REAL, bytes_of(b.at, end)};
    if (b.at[0] == '0')
        whole = 1;
    else if (byte_at(b, whole) == 'l' || byte_at(b, whole) == 'L')
        whole++;
    return (struct token){TOKEN_WHOLE, bytes_of(b.at, whole)};
}

/* A doubled quote stands for one, unless no quote comes after it: then it was the end. */
static struct token text_at(struct bytes b)
{
    size_t end = 0;
    for (size_t i = 1; i < b.len; i++) {
        if (b.at[i] != '\'')
            continue;
        end = i + 1;
        if (byte_at(b, end) != '\'')
            break;
        i++;
    }
    return end ? (struct token){TOKEN_TEXT, bytes_of(b.at, end)} : (struct token){TOKEN_BAD, b};
}

static struct token word_at(struct bytes b)
{
    static const struct {
        const char *word;
        enum token_kind kind;
    } words[] = {
        {"NOT", TOKEN_NOT},
        {"AND", TOKEN_AND},
        {"OR", TOKEN_OR},
        {"BETWEEN", TOKEN_BETWEEN},
        {"IN", TOKEN_IN},
        {"TRUE", TOKEN_TRUE},
        {"FALSE", TOKEN_FALSE},
        {"NULL", TOKEN_NULL},
        {"IS", TOKEN_IS},
        {"CONTAINS", TOKEN_CONTAINS},
        {"STARTSWITH", TOKEN_STARTSWITH},
        {"ENDSWITH", TOKEN_ENDSWITH},
    };
    size_t n = 1;
    while (is_name_start(byte_at(b, n)) || is_digit(byte_at(b, n)))
        n++;
    struct token token = {TOKEN_NAME, bytes_of(b.at, n)};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i].word) == n && strncasecmp(words[i].word, (const char *)b.at, n) == 0)
            token.kind = words[i].kind;
    return token;
}

static struct token sign_at(struct bytes b)
{
    static const struct {
        struct bytes sign;
        enum token_kind kind;
    } signs[] = {
        /* the longer ones first */
        {{(const uint8_t *)"<>", 2}, TOKEN_UNEQUAL},
        {{(const uint8_t *)">=", 2}, TOKEN_GREATER_EQUAL},
        {{(const uint8_t *)"<=", 2}, TOKEN_LESS_EQUAL},
        {{(const uint8_t *)"=", 1}, TOKEN_EQUAL},
        {{(const uint8_t *)">", 1}, TOKEN_GREATER},
        {{(const uint8_t *)"<", 1}, TOKEN_LESS},
        {{(const uint8_t *)"(", 1}, TOKEN_OPEN},
        {{(const uint8_t *)")", 1}, TOKEN_CLOSE},
        {{(const uint8_t *)",", 1}, TOKEN_COMMA},
        {{(const uint8_t *)"+", 1}, TOKEN_PLUS},
        {{(const uint8_t *)"-", 1}, TOKEN_MINUS},
    };
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (bytes_start(b, signs[i].sign))
            return (struct token){signs[i].kind, bytes_of(b.at, signs[i].sign.len)};
    return (struct token){TOKEN_BAD, b};
}

struct token token_next(struct bytes *rest)
{
    struct bytes b = blanks_skip(*rest);
    struct token token = {TOKEN_END, b};
    if (b.len > 0) {
        if (is_name_start(b.at[0]))
            token = word_at(b);
        else if (is_digit(b.at[0]) || (b.at[0] == '.' && is_digit(byte_at(b, 1))))
            token = number_at(b);
        else
            token = b.at[0] == '\'' ? text_at(b) : sign_at(b);
    }
    *rest = token.kind == TOKEN_BAD || token.kind == TOKEN_END ? b : bytes_from(b, token.text.len);
    return token;
}
