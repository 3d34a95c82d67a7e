/* Any text as statements, in each dialect: refused with a place, or as many ? that are code as
 * there are values, in statements of which none divides further. */
#include "once/sql_scan.h"
#include "sidecar/sidecar_int.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct sql_statement *s, enum sql_dialect dialect)
{
    size_t n = 0;
    for (size_t at = 0, skip; s->text[at]; at += skip ? skip : 1) {
        skip = sql_scan(dialect, s->text, at);
        invariant(skip != SIZE_MAX);
        n += !skip && s->text[at] == '?';
        invariant(skip || s->text[at] != ';');
    }
    invariant(n == s->n_values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    for (int dialect = SQL_SQLITE; dialect <= SQL_MARIADB; dialect++) {
        struct sql_script script;
        struct fault why = {0};
        if (sql_script_read(text, dialect, &script, &why)) {
            invariant(why.text[0] != 0);
            continue;
        }
        for (size_t i = 0; i < script.n; i++)
            check(&script.statements[i], (enum sql_dialect)dialect);
        sql_script_clear(&script);
    }
    free(text);
    return 0;
}
