/* URLs of a MariaDB, from an environment variable or a file of settings: whatever is taken has a
 * database to go to, and what is refused has a sentence. */
#include "once/mariadb_int.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup(free_at) char *text = malloc(size + 1);
    cleanup(free_at) struct mariadb_url *url = malloc(sizeof *url);
    if (!text || !url)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    struct fault why = {0};
    if (mariadb_url_read(text, url, &why) != OK) {
        invariant(why.text[0] != 0);
        return 0;
    }
    invariant(url->user && url->password && url->database && url->database[0] != 0);
    invariant(url->host || url->socket);
    invariant(url->port <= 65535);
    return 0;
}
