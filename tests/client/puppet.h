/* puppet.h - liboncemq, led by a test.
 *
 * Commands come on standard input, one JSON object a line: {"id": 1, "do": "send", …}. Each is
 * carried out on a thread of its own and answered by a line, {"id": 1, "result": …} or {"id": 1,
 * "error": "…", "code": 4, "response": 0}. What happens by itself is a line with "event". Clients,
 * producers and consumers have names that the test gives them. End of input closes what is left
 * open and ends the program, so that a leak or a race becomes its exit status.
 *
 * The language is that of the Go and Node puppets in tests/interop; tests/harness/puppet.py speaks
 * it. */
#ifndef TESTS_CLIENT_PUPPET_H
#define TESTS_CLIENT_PUPPET_H

#include "base/json.h"
#include "oncemq.h"

struct command {
    const struct json *args;
    struct arena *arena;
    struct buf result; /* JSON; empty: null */
    struct omq_error why;
};

/* Returns an enum omq_code; `why` has the sentence if it is not 0. */
typedef int play(struct command *command);

struct part {
    const char *name;
    play *play;
};
/* Each ends with a NULL. */
extern const struct part produce_parts[], ask_parts[], consume_parts[];

/* Arguments; what is missing is NULL or 0. */
const char *arg_text(const struct json *args, const char *name, struct arena *arena);
int64_t arg_int(const struct json *args, const char *name);
bool arg_bool(const struct json *args, const char *name);

/* One line of output, whole. */
void puppet_say(const struct buf *line);

/* Things by their names. `close` is called for those that are left, the last first. */
void thing_add(const char *name, void *thing, void (*close)(void *thing));
void *thing_find(const char *name); /* NULL: there is none */
void *thing_take(const char *name); /* it is the caller's now */
void thing_close(const char *name);
void scripts_keep(void *script); /* for good: handlers may outlive everything else */

/* A received message, as the test hears of it. */
void delivery_write(struct json_out *w, const struct omq_delivery *d);
void delivery_members(struct json_out *w, const struct omq_delivery *d); /* without the braces */
void receipt_write(struct json_out *w, const struct omq_receipt *r);
struct omq_message *messages_of(struct command *c, size_t *n); /* "messages" */

/* A client of its own for a producer or consumer, with the options that the command has. */
int client_of(struct command *c, struct omq_client **out);

#endif
