/* key.h - from a message to the key under which its effect happens once.
 *
 * An expression (its form is in once.h) is compiled once into a row of parts: literal text, and
 * fields of the message. Making a key walks the row. A body is read as JSON only if a part asks for
 * it, and only once.
 *
 * A part that is missing, null or empty makes no key: `{body.orderId}` of a body without it would
 * make all such messages one (H-15). Objects and arrays are no text either. Numbers are taken as
 * they are written: 1 and 1.0 are two keys.
 *
 * Pure: no I/O, no clock, no logging.
 */
#ifndef ONCE_KEY_H
#define ONCE_KEY_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "once.h"

#define KEY_MAX (64 << 10) /* of a key; and of an expression */

struct key;

/* ERR_INVALID with the position of the mistake, ERR_NO_MEMORY. */
must_check enum err key_compile(const char *expression, struct key **out, struct fault *why);
void key_free(struct key *key);

/* Appends the key to `out`. ERR_NOT_FOUND: a part is missing, null or empty; ERR_MALFORMED: the
 * body is not JSON; ERR_TOO_BIG: a key of more than KEY_MAX, or JSON that is nested too deep; each
 * with the sentence. What was appended until then is taken back. */
must_check enum err key_make(const struct key *key, const struct once_message *message,
                             struct buf *out, struct fault *why);

/* Scope and key as 32 bytes: no two pairs are written the same way. */
void key_id(struct bytes scope, struct bytes key, uint8_t id[32]);
/* The key as people read it, printable ASCII: anything else is shown as \xNN; what does not fit is
 * cut. `size` is at least 2. */
void key_name(struct bytes key, char *out, size_t size);
/* Of a body; never 0. */
uint64_t key_fingerprint(const void *body, size_t size);

#endif
