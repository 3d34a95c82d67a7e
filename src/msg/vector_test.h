/* vector_test.h - bytes captured from official clients and brokers, for tests.
 *
 * tests/vectors/NAME.hex holds one frame: comment lines that begin with #, then hexadecimal. A test
 * that names a vector fails when it is not there.
 */
#ifndef MSG_VECTOR_TEST_H
#define MSG_VECTOR_TEST_H

#include "base/test.h"

#include <stdio.h>

/* Vectors and the text of facts.txt are small; what is longer is a mistake. */
#define VECTOR_TEXT_MAX (1 << 20)

static inline char *vector_text(const char *file)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", VECTORS, file);
    FILE *in = fopen(path, "rb");
    if (!in)
        fail_msg("the vector %s is missing", path);
    char *text = calloc(1, VECTOR_TEXT_MAX);
    assert_non_null(text);
    size_t len = fread(text, 1, VECTOR_TEXT_MAX - 1, in);
    (void)fclose(in);
    assert_true(len > 0 && len < VECTOR_TEXT_MAX - 1);
    return text;
}

static inline int vector_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Hexadecimal with blanks, line ends and # comments in it; in an exact allocation. */
static inline struct bytes vector_from_hex(const char *text)
{
    uint8_t *out = malloc(strlen(text) / 2 + 1);
    assert_non_null(out);
    size_t digits = 0;
    for (const char *at = text; *at; at++) {
        if (*at == '#')
            at += strcspn(at, "\n");
        int digit = vector_digit(*at);
        if (digit < 0) {
            assert_true(*at == ' ' || *at == '\n' || *at == '\r');
            continue;
        }
        out[digits / 2] = (uint8_t)(digits % 2 ? out[digits / 2] << 4 | digit : digit);
        digits++;
    }
    assert_true(digits > 0 && digits % 2 == 0);
    uint8_t *exact = test_copy(out, digits / 2);
    free(out);
    return bytes_of(exact, digits / 2);
}

/* The frame in NAME.hex. To be freed with vector_free. */
static inline struct bytes vector_load(const char *name)
{
    char file[256];
    (void)snprintf(file, sizeof file, "%s.hex", name);
    char *text = vector_text(file);
    struct bytes frame = vector_from_hex(text);
    free(text);
    return frame;
}

static inline void vector_free(struct bytes b)
{
    void *at; /* ours to free, though a slice is not to be written through */
    memcpy(&at, &b.at, sizeof at);
    free(at);
}

/* The body of a frame, found without the codec under test. */
static inline struct bytes vector_body(struct bytes frame)
{
    assert_true(frame.len >= 8 && load_u32(frame.at) == frame.len - 4);
    size_t head = load_u32(frame.at + 4) & 0xffffff;
    assert_true(8 + head <= frame.len);
    return bytes_from(frame, 8 + head);
}

#endif
