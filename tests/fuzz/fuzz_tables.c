/* Any bytes as the file of any table: readable or damaged, and if damaged, with a sentence. */
#include "broker/broker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum table_name tables[] = {TABLE_TOPICS, TABLE_GROUPS, TABLE_OFFSETS,
                                             TABLE_DELAYS, TABLE_ORDERS, TABLE_MODES};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        struct fault why = {0};
        enum err err = table_check(tables[i], bytes_of(data, size), &why);
        invariant(err == OK || err == ERR_DAMAGED || err == ERR_NO_MEMORY);
        invariant((err == ERR_DAMAGED) == (why.text[0] != 0));
    }
    return 0;
}
