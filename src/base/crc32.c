#include "base/crc32.h"

#include <libdeflate.h>

uint32_t crc32_of(struct bytes b)
{
    return b.len ? libdeflate_crc32(0, b.at, b.len) : 0;
}
