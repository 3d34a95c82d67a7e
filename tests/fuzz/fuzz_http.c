/* A method, a path up to the first zero, and behind it any body. What is accepted has operations
 * with ids and bounded texts; what is not has a reason. Whatever the outcomes are, they can be
 * told. */
#include "door/http/http_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t token(void *user)
{
    (void)user;
    return 1;
}

static void outcomes_set(struct asked *asked, uint8_t how)
{
    for (size_t i = 0; i < asked->n; i++) {
        struct op *op = &asked->ops[i];
        op->outcome = (enum op_outcome)(OUT_OK + how % OUT_FAILED);
        op->state = how % 4;
        op->left_ms = how * 1000;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const methods[] = {"PUT", "GET", "DELETE", "POST", "PATCH"};
    if (size < 3)
        return 0;
    const char *method = methods[data[0] % 5];
    uint8_t how = data[1];
    data += 2;
    size -= 2;
    const uint8_t *zero = memchr(data, 0, size);
    if (!zero)
        return 0;
    struct bytes body = bytes_of(zero + 1, size - (size_t)(zero - data) - 1);

    struct arena arena;
    arena_init(&arena, 4u << 20);
    struct path path;
    struct asked asked;
    struct fault why = {0};
    enum err err = path_read((const char *)data, &arena, &path);
    if (!err) {
        invariant(path.scope.len > 0 && path.key.len <= KEY_MOST);
        err = asked_read(method, &path, body, token, NULL, &arena, &asked, &why);
        invariant(!err || err == ERR_NO_MEMORY || why.text[0]);
    }
    if (!err) {
        invariant(asked.n > 0 && asked.n <= LEDGER_OPS_MAX);
        for (size_t i = 0; i < asked.n; i++)
            invariant(asked.ops[i].result.len <= LEDGER_RESULT_MAX && asked.ops[i].expiry_ms > 0);
        outcomes_set(&asked, how);
        struct buf out = buf_upto(1u << 20);
        int64_t retry_s;
        unsigned status = asked_write(&asked, &out, &retry_s);
        invariant(status >= 200 && status < 600 && retry_s >= 0);
        buf_clear(&out);
    }
    arena_clear(&arena);
    return 0;
}
