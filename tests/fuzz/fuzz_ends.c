/* Any bytes as a statement that may end its transaction: whatever stands in front of it or behind
 * it and means nothing does not hide that it does. */
#include "once/once_int.h"

#include <stdlib.h>

#define TEXT_MOST 2000 /* comments within comments are read in several ways each */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool ends(const char *before, const uint8_t *text, size_t size, const char *after)
{
    static const char *const more[] = {"CREATE", "DROP", "SET AUTOCOMMIT", "LOCK TABLES", NULL};
    size_t n = strlen(before), m = strlen(after);
    char *sql = malloc(n + size + m + 1);
    invariant(sql);
    memcpy(sql, before, n);
    memcpy(sql + n, text, size);
    memcpy(sql + n + size, after, m + 1);
    bool plain = ends_transaction(sql, NULL), all = ends_transaction(sql, more);
    invariant(all || !plain);
    free(sql);
    return plain;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n = strnlen((const char *)data, size < TEXT_MOST ? size : TEXT_MOST);
    bool is = ends("", data, n, "");
    invariant(ends(" \t\r\n\f\v;(", data, n, "") == is);
    invariant(!is || ends("", data, n, " AND CHAIN"));
    invariant(!is || ends("/* */", data, n, ""));
    invariant(!is || ends("-- \n", data, n, ""));
    invariant(!is || ends("/*!50000 */", data, n, ""));
    invariant(ends("COMMIT ", data, n, ""));
    invariant(ends("/**/commit;", data, n, ""));
    return 0;
}
