/* Numbers, sizes, durations and times from a command line: what is taken is never negative, and is
 * the same when it is read again. */
#include "base/err.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup(free_at) char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    int64_t first, again;
    if (value_number(text, &first))
        invariant(first >= 0 && value_number(text, &again) && again == first);
    if (value_size(text, &first))
        invariant(first >= 0 && value_size(text, &again) && again == first);
    if (value_duration(text, &first))
        invariant(first >= 0 && value_duration(text, &again) && again == first);
    if (value_time(text, 1763294400000, &first))
        invariant(first >= 0 && value_time(text, 1763294400000, &again) && again == first);
    return 0;
}
