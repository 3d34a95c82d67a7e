/* URLs of a Redis, from an environment variable or a file of settings: whatever is taken has a
 * place to go to, and what is refused has a sentence. */
#include "once/redis_int.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup(free_at) char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    struct redis_url url;
    struct fault why = {0};
    if (redis_url_parse(text, &url, &why) != OK) {
        invariant(why.text[0] != 0);
        return 0;
    }
    invariant((url.host[0] != 0) != (url.path[0] != 0));
    invariant(url.path[0] == 0 || url.path[0] == '/');
    invariant(url.host[0] == 0 || (url.port >= 1 && url.port <= 65535));
    invariant(url.db >= 0 && url.where[0] != 0);
    invariant(url.login || (url.user[0] == 0 && url.password[0] == 0));
    return 0;
}
