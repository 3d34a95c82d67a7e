/* base64.h - bytes as letters, in the alphabet of text ('+' and '/') or of addresses ('-' and '_').
 *
 * Written with its padding. Read with or without it, as Java does; anything else that is not of the
 * alphabet is refused.
 */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include "base/bytes.h"

enum base64 { BASE64_TEXT, BASE64_URL };

#define BASE64_SIZE(n) (((n) + 2) / 3 * 4)

/* Writes BASE64_SIZE(in.len) letters, without an end; returns how many. */
size_t base64_write(enum base64 alphabet, struct bytes in, char *out);
/* False: that is none. `out` has room for in.len / 4 * 3 + 2. */
bool base64_read(enum base64 alphabet, struct bytes in, uint8_t *out, size_t *n);
int base64_digit(enum base64 alphabet, uint8_t letter); /* -1: not of the alphabet */

#endif
