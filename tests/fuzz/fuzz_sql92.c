/* Any bytes as an expression, up to the first zero, and behind it any properties. What compiles has
 * a result, and the same one again; what does not says why. */
#include "broker/sql92.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    struct bytes text = bytes_of(data, zero ? (size_t)(zero - data) : size);
    struct bytes props = {0};
    if (zero)
        props = bytes_of(zero + 1, size - text.len - 1);

    struct sql92 *sql;
    struct fault why = {0};
    enum err err = sql92_compile(text, &sql, &why);
    if (err) {
        invariant(err == ERR_MALFORMED || err == ERR_TOO_BIG || err == ERR_NO_MEMORY);
        invariant(err == ERR_NO_MEMORY || why.text[0]);
        return 0;
    }
    enum sql92_result result = sql92_eval(sql, props);
    invariant(result <= SQL92_FAILED);
    invariant(sql92_eval(sql, props) == result);
    sql92_free(sql);
    return 0;
}
