#include "base/crc32.h"

#include <isa-l/crc.h>

uint32_t crc32_of(struct bytes b)
{
    return b.len ? crc32_gzip_refl(0, b.at, b.len) : 0;
}
