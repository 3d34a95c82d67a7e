/* Any bytes as a web server's answer, as a list of name servers and as the address of such a page.
 */
#include "client/client_int.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void names(const char *text)
{
    struct names names = {.n = 0};
    struct omq_error why;
    bool good = names_parse(&names, text, &why) == OK;
    invariant(names.n <= NAMES_MAX);
    for (size_t i = 0; i < names.n; i++) {
        invariant(strlen(names.addresses[i]) > 0);
        invariant(!good || strchr(names.addresses[i], ':'));
        invariant(!strpbrk(names.addresses[i], "; "));
    }
    names_clear(&names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = 0;
    size_t before = strlen(text);
    (void)page_url_good(text);
    names(text);
    if (page_cut(text)) {
        invariant(strlen(text) + 4 <= before);
        invariant(!strpbrk(text, "\r\n\t,"));
        names(text);
    }
    free(text);
    return 0;
}
