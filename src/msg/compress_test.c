/* compress_test.c - bodies through all three compressions and back, bodies that Java compressed,
 * and input that is not what it should be. */
#include "msg/msg.h"
#include "msg/vector_test.h"

#define LIMIT (4u << 20)

static const enum compression all[] = {COMPRESS_ZLIB, COMPRESS_LZ4, COMPRESS_ZSTD};
#define ALL (sizeof all / sizeof *all)

/* Text that repeats itself by half: some of it can be compressed, some not. */
static uint8_t *body_make(struct dice *dice, size_t len)
{
    uint8_t *body = malloc(len + 1);
    assert_non_null(body);
    for (size_t i = 0; i < len; i++)
        body[i] = i > 64 && i / 512 % 2 ? body[i - 61] : (uint8_t)dice_next(dice);
    return body;
}

static struct buf packed_make(struct compressor *c, enum compression how, int level,
                              struct bytes plain)
{
    struct buf out = buf_upto(plain.len + plain.len / 100 + 1024); /* as msg.h promises */
    assert_int_equal(body_compress(c, how, level, plain, &out), OK);
    return out;
}

static void what_goes_in_comes_out(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 13, 1024, 4096, 65536, 65537, 1 << 20, LIMIT};
    struct dice dice = test_dice();
    struct compressor c = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cleanup(free_at) uint8_t *body = body_make(&dice, sizes[i]);
        struct bytes plain = bytes_of(body, sizes[i]);
        for (size_t k = 0; k < ALL; k++) {
            struct buf packed = packed_make(&c, all[k], 5, plain), back = buf_upto(LIMIT + 4);
            buf_add_str(&back, "head"); /* what stands there before stays */
            assert_int_equal(body_expand(&c, compression_flags(all[k]), buf_bytes(&packed), &back),
                             OK);
            assert_int_equal(back.len, plain.len + 4);
            assert_memory_equal(back.at, "head", 4);
            assert_memory_equal(back.at + 4, plain.at, plain.len);
            buf_clear(&packed);
            buf_clear(&back);
        }
    }
    compressor_clear(&c);
}

static void every_level_works_and_strange_ones_mean_the_nearest(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    cleanup(free_at) uint8_t *body = body_make(&dice, 9000);
    struct bytes plain = bytes_of(body, 9000);
    struct compressor c = {0};
    for (int level = -3; level <= 30; level += level < 10 ? 1 : 5) {
        for (size_t k = 0; k < ALL; k++) {
            struct buf packed = packed_make(&c, all[k], level, plain), back = buf_upto(LIMIT);
            assert_true(packed.len < plain.len);
            assert_int_equal(body_expand(&c, compression_flags(all[k]), buf_bytes(&packed), &back),
                             OK);
            assert_bytes_equal(buf_bytes(&back), plain);
            buf_clear(&packed);
            buf_clear(&back);
        }
    }
    compressor_clear(&c);
}

static void the_flags_are_those_java_sends(void **state)
{
    (void)state;
    assert_int_equal(compression_flags(COMPRESS_ZLIB), 0x301);
    assert_int_equal(compression_flags(COMPRESS_LZ4), 0x101);
    assert_int_equal(compression_flags(COMPRESS_ZSTD), 0x201);
}

/* Clients before 4.9.4, and Go, leave the type out; the other bits of the flag say nothing here. */
static void no_type_means_zlib(void **state)
{
    (void)state;
    struct compressor c = {0};
    struct buf packed = packed_make(&c, COMPRESS_ZLIB, 5, BYTES("hello hello hello"));
    static const int32_t flags[] = {0x1, 0x0, 0x301, 0x1 | SYS_TX_COMMIT | SYS_BORN_V6};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct buf back = buf_upto(100);
        assert_int_equal(body_expand(&c, flags[i], buf_bytes(&packed), &back), OK);
        assert_bytes_equal(buf_bytes(&back), BYTES("hello hello hello"));
        buf_clear(&back);
    }
    buf_clear(&packed);
    compressor_clear(&c);
}

static void a_type_nobody_has_defined_is_refused(void **state)
{
    (void)state;
    struct compressor c = {0};
    struct buf back = buf_upto(100);
    for (int32_t type = 0x400; type <= 0x700; type += 0x100)
        assert_int_equal(body_expand(&c, type | 1, BYTES("x"), &back), ERR_UNSUPPORTED);
    assert_null(back.at);
}

/* `flag TAB size TAB hexadecimal`, one line for each body that Java compressed: see the README. */
static void expands_what_java_compressed(void **state)
{
    (void)state;
    char *text = vector_text("compressed.txt"), *save = NULL;
    struct compressor c = {0};
    size_t n = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        int flag, size, at = 0;
        if (sscanf(line, "%i\t%d\t%n", &flag, &size, &at) != 2)
            continue;
        uint8_t packed[4096];
        size_t len = 0;
        unsigned byte;
        for (const char *hex = line + at; sscanf(hex, "%2x", &byte) == 1; hex += 2) {
            assert_true(len < sizeof packed);
            packed[len++] = (uint8_t)byte;
        }
        struct buf back = buf_upto((size_t)size);
        assert_int_equal(body_expand(&c, flag, bytes_of(packed, len), &back), OK);
        assert_int_equal(back.len, size);
        for (int i = 0; i < size; i++)
            assert_int_equal(back.at[i], 'a' + i % 26 * (i / 100 % 2));
        buf_clear(&back);
        n++;
    }
    assert_true(n >= 12);
    free(text);
    compressor_clear(&c);
}

/* Every prefix of a compressed body is refused, and leaves the buffer as it was. Each sits in its
 * own exact allocation, so the address sanitizer sees a read one byte too far. */
static void refuses_every_prefix(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    cleanup(free_at) uint8_t *body = body_make(&dice, 1500);
    struct compressor c = {0};
    for (size_t k = 0; k < ALL; k++) {
        struct buf packed = packed_make(&c, all[k], 5, bytes_of(body, 1500));
        for (size_t cut = 0; cut < packed.len; cut++) {
            cleanup(free_at) uint8_t *exact = test_copy(packed.at, cut);
            struct buf back = buf_upto(LIMIT);
            buf_add_str(&back, "head");
            assert_int_equal(
                body_expand(&c, compression_flags(all[k]), bytes_of(exact, cut), &back),
                ERR_MALFORMED);
            assert_bytes_equal(buf_bytes(&back), BYTES("head"));
            buf_clear(&back);
        }
        buf_clear(&packed);
    }
    compressor_clear(&c);
}

/* Whatever one changed byte does, it is refused or gives a body below the limit; and what is left
 * behind in the working memory does not harm the next body. */
static void survives_every_one_byte_change(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    cleanup(free_at) uint8_t *body = body_make(&dice, 1500);
    struct bytes plain = bytes_of(body, 1500);
    struct compressor c = {0};
    for (size_t k = 0; k < ALL; k++) {
        struct buf packed = packed_make(&c, all[k], 5, plain);
        for (size_t at = 0; at < packed.len; at++) {
            cleanup(free_at) uint8_t *exact = test_copy(packed.at, packed.len);
            exact[at] ^= (uint8_t)(1 + dice_below(&dice, 255));
            struct buf back = buf_upto(100000);
            enum err err =
                body_expand(&c, compression_flags(all[k]), bytes_of(exact, packed.len), &back);
            assert_true(err == OK || err == ERR_MALFORMED || err == ERR_TOO_BIG);
            back.len = 0;
            assert_int_equal(body_expand(&c, compression_flags(all[k]), buf_bytes(&packed), &back),
                             OK);
            assert_bytes_equal(buf_bytes(&back), plain);
            buf_clear(&back);
        }
        buf_clear(&packed);
    }
    compressor_clear(&c);
}

/* 64 MiB of zeros in some ten or hundred kilobytes: they fit into 64 MiB exactly and into nothing
 * smaller, and no more memory is taken than the limit allows. */
static void bombs_stop_at_the_limit(void **state)
{
    (void)state;
    size_t size = 64u << 20;
    cleanup(free_at) uint8_t *zeros = calloc(1, size);
    assert_non_null(zeros);
    struct compressor c = {0};
    for (size_t k = 0; k < ALL; k++) {
        struct buf bomb = packed_make(&c, all[k], 5, bytes_of(zeros, size));
        assert_true(bomb.len < size / 200);
        const size_t limits[] = {1, 4096, LIMIT, size - 1, size};
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            struct buf back = buf_upto(limits[i]);
            enum err err = body_expand(&c, compression_flags(all[k]), buf_bytes(&bomb), &back);
            assert_int_equal(err, limits[i] < size ? ERR_TOO_BIG : OK);
            assert_int_equal(back.len, limits[i] < size ? 0 : size);
            assert_true(back.cap <= limits[i]);
            buf_clear(&back);
        }
        struct buf full = buf_upto(0);
        assert_int_equal(body_expand(&c, compression_flags(all[k]), buf_bytes(&bomb), &full),
                         ERR_TOO_BIG);
        buf_clear(&bomb);
    }
    compressor_clear(&c);
}

/* A zstd frame that claims 2^60 bytes and a window as large, and has one block of five. */
static void a_size_that_is_merely_claimed_takes_no_memory(void **state)
{
    (void)state;
    static const uint8_t liar[] = {0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0xff, 0,   0,   0,   0,   0,  0,
                                   0,    0,    0x10, 0x29, 0,    0,    'h', 'e', 'l', 'l', 'o'};
    struct compressor c = {0};
    struct buf back = buf_upto(LIMIT);
    enum err err = body_expand(&c, 0x201, bytes_of(liar, sizeof liar), &back);
    assert_true(err == ERR_MALFORMED || err == ERR_TOO_BIG);
    assert_int_equal(back.len, 0);
    buf_clear(&back);
    compressor_clear(&c);
}

/* As Java's readers do: frames of lz4 and zstd in a row are one body, and what stands behind the
 * end of a zlib stream does not count. */
static void frames_in_a_row_are_one_body(void **state)
{
    (void)state;
    struct compressor c = {0};
    for (size_t k = 0; k < ALL; k++) {
        struct buf two = buf_upto(SIZE_MAX), back = buf_upto(100);
        assert_int_equal(body_compress(&c, all[k], 5, BYTES("one "), &two), OK);
        assert_int_equal(body_compress(&c, all[k], 5, BYTES("two"), &two), OK);
        assert_int_equal(body_expand(&c, compression_flags(all[k]), buf_bytes(&two), &back), OK);
        assert_bytes_equal(buf_bytes(&back),
                           all[k] == COMPRESS_ZLIB ? BYTES("one ") : BYTES("one two"));
        buf_clear(&two);
        buf_clear(&back);
    }
    compressor_clear(&c);
}

static void a_compressed_body_beyond_the_ceiling_is_refused(void **state)
{
    (void)state;
    struct compressor c = {0};
    for (size_t k = 0; k < ALL; k++) {
        struct buf out = buf_upto(10);
        buf_add_str(&out, "head");
        assert_int_equal(body_compress(&c, all[k], 5, BYTES("hello"), &out), ERR_TOO_BIG);
        assert_bytes_equal(buf_bytes(&out), BYTES("head"));
        buf_clear(&out);
    }
    compressor_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(every_level_works_and_strange_ones_mean_the_nearest),
        cmocka_unit_test(the_flags_are_those_java_sends),
        cmocka_unit_test(no_type_means_zlib),
        cmocka_unit_test(a_type_nobody_has_defined_is_refused),
        cmocka_unit_test(expands_what_java_compressed),
        cmocka_unit_test(refuses_every_prefix),
        cmocka_unit_test(survives_every_one_byte_change),
        cmocka_unit_test(bombs_stop_at_the_limit),
        cmocka_unit_test(a_size_that_is_merely_claimed_takes_no_memory),
        cmocka_unit_test(frames_in_a_row_are_one_body),
        cmocka_unit_test(a_compressed_body_beyond_the_ceiling_is_refused),
    };
    return cmocka_run_group_tests_name("msg/compress", tests, NULL, NULL);
}
