/* message.h - messages for people and programs: as records, and in a form of the user's own.
 *
 * A form is a text with fields in braces: '{id} {tag} {body}\n'. Fields of strangers are escaped,
 * so that a message stays on its line and harms no terminal; {raw} is the body as it is.
 */
#ifndef CLI_MESSAGE_H
#define CLI_MESSAGE_H

#include "cli/cli.h"

/* The columns of a message; a command may have others beside them. */
#define MESSAGE_COLUMNS                                                                            \
    {"stored_ms", COLUMN_TIME, "STORED", "when it was stored"},                                    \
        {"id", COLUMN_TEXT, "ID", "its unique id: the same in all copies"},                        \
        {"offset_id", COLUMN_TEXT, NULL, "the id of the place where this copy stands"},            \
        {"topic", COLUMN_TEXT, NULL, "the topic it was sent to"},                                  \
        {"broker", COLUMN_TEXT, NULL, "where this copy stands"},                                   \
        {"queue", COLUMN_NUMBER, "QUEUE", "the number of the queue there"},                        \
        {"offset", COLUMN_NUMBER, "OFFSET", "its place in the queue"},                             \
        {"tag", COLUMN_TEXT, "TAG", "its tag"}, {"keys", COLUMN_TEXT, "KEYS", "its keys"},         \
        {"body", COLUMN_TEXT, "BODY", "its body, if that is UTF-8"},                               \
        {"body64", COLUMN_TEXT, NULL, "its body in base64, if it is not UTF-8"},                   \
        {"body_size", COLUMN_SIZE, NULL, "the size of its body"},                                  \
        {"attempt", COLUMN_NUMBER, NULL, "1 for the first delivery"},                              \
        {"born_ms", COLUMN_TIME, NULL, "when it was sent"},                                        \
        {"born_host", COLUMN_TEXT, NULL, "from where"},                                            \
    {                                                                                              \
        "properties", COLUMN_MAP, NULL, "all its properties, also the protocol's own"              \
    }

/* Fills in MESSAGE_COLUMNS of the record that is open. `body_max`: people see so many bytes of the
 * body; programs see all. */
void message_put(struct cli *cli, const struct omq_delivery *d, size_t body_max);

struct form;
/* NULL: it is not valid, which has been said. Lives in the command's arena. */
const struct form *form_read(struct cli *cli, const char *text);
void form_write(struct cli *cli, const struct form *form, const struct omq_delivery *d);
#define FORM_FIELDS                                                                                \
    "id, topic, broker, queue, offset, offset_id, tag, keys, body, raw, body64, size, stored, "    \
    "born, host, attempt, prop.NAME"

#endif
