/* sql92.h - RocketMQ's SQL92 expressions over the properties of a message.
 *
 * An expression is compiled once into a short program for a stack machine and then asked of many
 * messages. What it means is what Apache RocketMQ 5.5 makes of it, corner by corner
 * (tests/vectors/sql92.txt holds its answers):
 *
 *     Each value is null, a truth, an int, a long, a double or text. Properties are text, or null
 *     where the message has none. AND, OR and NOT know three truths.
 *
 *     Text that meets a number is read as that kind of number, the way Java reads it: beside an int
 *     "7.5" and "3000000000" are no numbers. Text that cannot be read fails the whole expression,
 *     unless AND or OR had its answer before. Text is ordered by < and > only if both sides are
 *     doubles.
 *
 *     NOT binds closer than a comparison: NOT a = 5 is (NOT a) = 5.
 *
 *     An expression ends where nothing can go on: "a = 5 whatever" is a = 5. The word behind it
 *     must still be one.
 *
 * A message matches when the result is SQL92_TRUE.
 *
 * Bounds: SQL92_TEXT_MAX bytes, SQL92_NAMES_MAX properties, SQL92_DEPTH_MAX brackets or signs
 * inside each other. Evaluation takes no memory and, for properties of n bytes, a time that grows
 * with n and the length of the expression.
 *
 * Known difference: digits other than 0 to 9 are none, where Java takes those of every script.
 *
 * Threads: a compiled expression never changes; any number may ask it.
 */
#ifndef BROKER_SQL92_H
#define BROKER_SQL92_H

#include "base/bytes.h"
#include "base/err.h"

#define SQL92_TEXT_MAX  16384
#define SQL92_NAMES_MAX 64
#define SQL92_DEPTH_MAX 128

struct sql92;

enum sql92_result {
    SQL92_FALSE,
    SQL92_TRUE,
    SQL92_NULL,
    SQL92_FAILED, /* a value was not of the kind that it was compared with */
};

/* ERR_MALFORMED, with line and column; ERR_TOO_BIG; ERR_NO_MEMORY. */
must_check enum err sql92_compile(struct bytes text, struct sql92 **out, struct fault *why);
void sql92_free(struct sql92 *sql);
size_t sql92_size(const struct sql92 *sql); /* bytes of memory it takes */

/* `props` is the text of a record's properties. */
enum sql92_result sql92_eval(const struct sql92 *sql, struct bytes props);

#endif
