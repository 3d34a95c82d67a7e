#include "store/test_house.h"

/* What is appended is read back, byte for byte, at the offsets and positions that were told. */
static void reads_back_what_was_appended(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    assert_true(h.report.clean);
    struct stored out[32];
    uint64_t end = 0, before = 0;
    for (uint64_t n = 0; n < 640; n += 32) {
        assert_int_equal(house_send(&h, n, 32, out, &end), OK);
        assert_true(end > before);
        before = end;
        assert_int_equal(store_confirmed(h.store), end);
        for (size_t i = 0; i < 32; i++) {
            struct slice slice;
            struct record r;
            assert_int_equal(store_read_at(h.store, out[i].position, &slice), OK);
            assert_int_equal(slice.bytes.len, out[i].size);
            assert_int_equal(record_decode(slice.bytes, &r), OK);
            assert_int_equal(message_check(&r), n + i);
            assert_int_equal(r.queue_offset, out[i].queue_offset);
            assert_int_equal(r.store_ms, out[i].store_ms);
            counted_drop(slice.owner);
        }
    }
    house_dispatch(&h);
    uint8_t seen[640] = {0};
    assert_int_equal(house_read_all(&h, seen, 640), 640);
    for (size_t i = 0; i < 640; i++)
        assert_int_equal(seen[i], 1);
    house_must_close(&h);
    house_clear(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_what_was_appended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
