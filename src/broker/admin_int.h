/* admin_int.h - what the files about administration share. */
#ifndef BROKER_ADMIN_INT_H
#define BROKER_ADMIN_INT_H

#include "broker/tables_int.h"

#define ATTRIBUTES_ARENA (1u << 20)
#define ATTRIBUTES_MAX   65536u /* bytes of a topic's attributes as text */

bool topic_is_own(const struct broker *b, struct bytes name); /* a broker has it by itself */

/* attributes.c: applies "+key=value,-key" to the attributes of a topic, which are a JSON object as
 * text. `*out` is in the arena. ERR_INVALID with a sentence, ERR_TOO_BIG. */
must_check enum err attributes_change(struct bytes current, struct bytes changes, bool creating,
                                      struct arena *arena, struct bytes *out, struct fault *why);
/* The value of one attribute, if it is a text; empty: there is none. */
struct bytes attribute_get(struct bytes attributes, struct bytes key, struct arena *arena);

/* How messages are recognised that were stored before: UNIQ_KEY, OFF, or a property's name. */
#define DEDUP_ATTRIBUTE "dedup.key"

#endif
