/* Any bytes as the list of brokers of a name server, and as the URL of a store. What is found has a
 * name and an address that end. */
#include "ledger_driver/ledger_driver.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct spot spot;
    struct fault why = {0};
    if (where_find(bytes_of(data, size), "", &spot, &why) == OK)
        invariant(spot.name[0] && spot.address[0] && strlen(spot.address) < sizeof spot.address);
    else
        invariant(why.text[0]);
    char *url = malloc(size + 1);
    invariant(url != NULL);
    if (size > 0)
        memcpy(url, data, size);
    url[size] = 0;
    struct where where;
    if (where_parse(url, &where, &why) == OK)
        invariant(strncmp(url, "broker:", 7) == 0 && strlen(where.name) <= WHERE_NAME_MAX);
    free(url);
    return 0;
}
