/* Bytes as letters. */
#include "base/base64.h"
#include "base/test.h"

static void assert_both_ways(enum base64 alphabet, const char *plain, const char *letters)
{
    char out[64];
    uint8_t back[64];
    size_t n = base64_write(alphabet, bytes_str(plain), out);
    assert_int_equal(n, BASE64_SIZE(strlen(plain)));
    assert_int_equal(n, strlen(letters));
    assert_memory_equal(out, letters, n);
    for (size_t len = n; len + 3 > n && len > 0; len--) { /* and with less padding */
        if (len < n && letters[len] != '=')
            break;
        size_t got;
        assert_true(base64_read(alphabet, bytes_of(letters, len), back, &got));
        assert_int_equal(got, strlen(plain));
        assert_memory_equal(back, plain, got);
    }
}

/* The vectors of RFC 4648, and one with the two letters that differ. */
static void writes_and_reads(void **state)
{
    (void)state;
    static const char *const vectors[][2] = {{"", ""},
                                             {"f", "Zg=="},
                                             {"fo", "Zm8="},
                                             {"foo", "Zm9v"},
                                             {"foob", "Zm9vYg=="},
                                             {"fooba", "Zm9vYmE="},
                                             {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        assert_both_ways(BASE64_TEXT, vectors[i][0], vectors[i][1]);
        assert_both_ways(BASE64_URL, vectors[i][0], vectors[i][1]);
    }
    assert_both_ways(BASE64_TEXT, "\xfb\xef\xff", "++//");
    assert_both_ways(BASE64_URL, "\xfb\xef\xff", "--__");
}

static void refuses_what_is_none(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "A", "AAAAA", "=", "A===", "A=A=", "AA A", "AA\n=", "--__", "\x80***"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t out[16];
        size_t n;
        assert_false(base64_read(BASE64_TEXT, bytes_str(bad[i]), out, &n));
    }
    uint8_t out[8];
    size_t n;
    assert_false(base64_read(BASE64_URL, BYTES("++//"), out, &n));
    assert_false(base64_read(BASE64_TEXT, BYTES("AA\0A"), out, &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_and_reads),
        cmocka_unit_test(refuses_what_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
