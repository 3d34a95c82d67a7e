/* bodies_int.h - what the readers and writers of bodies share. */
#ifndef REMOTING_BODIES_INT_H
#define REMOTING_BODIES_INT_H

#include "base/json.h"
#include "remoting/bodies.h"

/* A document that is an object; ERR_MALFORMED for any other. */
must_check enum err object_parse(struct bytes body, struct arena *arena, const struct json **out);

/* Zeroed room for as many as the array `node` has; nothing if it is absent or null, ERR_MALFORMED
 * if it is something else. The array's elements are there already, so a stranger's number asks for
 * nothing here. */
must_check enum err array_alloc(const struct json *node, struct arena *arena, size_t each,
                                void **out, size_t *n);

/* An array of texts. */
must_check enum err texts_read(const struct json *node, struct arena *arena, struct bytes **out,
                               size_t *n);
void texts_write(struct json_out *w, const struct bytes *texts, size_t n);

#endif
