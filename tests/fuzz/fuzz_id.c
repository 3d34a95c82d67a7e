/* Any bytes as an offset id: what is accepted is written back to the same digits, in upper case.
 * Any bytes as a tag and as a name, too: they are short functions over bytes as well. */
#include "msg/msg.h"

#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct addr host, again;
    int64_t position, same;
    char text[ID_TEXT_MAX];
    enum err err = id_parse(bytes_of(data, size), &host, &position);
    if (err) {
        invariant(err == ERR_MALFORMED);
    } else {
        invariant(position >= 0);
        invariant(id_format(&host, position, text) == size);
        invariant(strncasecmp(text, (const char *)data, size) == 0);
        invariant(id_parse(bytes_str(text), &again, &same) == OK);
        invariant(same == position);
    }
    (void)tags_code(bytes_of(data, size));
    err = topic_name_check(bytes_of(data, size), NULL);
    invariant(err == OK || err == ERR_INVALID || err == ERR_TOO_BIG);
    return 0;
}
