/* The CRC that RocketMQ's records carry. */
#include "base/crc32.h"
#include "base/test.h"

#include <libdeflate.h>
#include <sys/mman.h>
#include <unistd.h>

static void is_that_of_zlib(void **state)
{
    (void)state;
    assert_int_equal(crc32_of(bytes_str("123456789")), 0xcbf43926u);
    assert_int_equal(crc32_of(bytes_of("", 0)), 0);
    assert_int_equal(crc32_of((struct bytes){0}), 0);
    assert_int_equal(crc32_positive(bytes_str("123456789")), 0x4bf43926u);
}

/* Whatever the length, at the very end and at the very beginning of what may be read: the library
 * is written in assembler, where no sanitizer looks. */
static void reads_what_it_is_given_and_no_more(void **state)
{
    (void)state;
    enum { MOST = 3000 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (MOST + page - 1) / page * page;
    uint8_t *all = mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    uint8_t *begin = all + page, *end = begin + room;
    assert_int_equal(mprotect(begin, room, PROT_READ | PROT_WRITE), 0);
    for (size_t i = 0; i < room; i++)
        begin[i] = (uint8_t)(i * 131 + i / 251);
    for (size_t len = 1; len <= MOST; len++) {
        assert_int_equal(crc32_of(bytes_of(end - len, len)), libdeflate_crc32(0, end - len, len));
        assert_int_equal(crc32_of(bytes_of(begin, len)), libdeflate_crc32(0, begin, len));
    }
    assert_int_equal(munmap(all, room + 2 * page), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_that_of_zlib),
        cmocka_unit_test(reads_what_it_is_given_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
