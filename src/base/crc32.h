/* crc32.h - CRC-32 with the zlib polynomial, from libdeflate (105 ns a KiB against zlib's 481). */
#ifndef BASE_CRC32_H
#define BASE_CRC32_H

#include "base/bytes.h"

uint32_t crc32_of(struct bytes b);

/* RocketMQ keeps the sign bit clear: body CRC of a record, bodyCrc32 of a registration. */
static inline uint32_t crc32_positive(struct bytes b)
{
    return crc32_of(b) & 0x7fffffffu;
}

#endif
