/* sql92_code.c - writes a program while its expression is read, then packs it. */
#include "broker/sql92_int.h"

#include <stdlib.h>

enum err code_init(struct code *c, size_t tokens, size_t text_len)
{
    *c = (struct code){
        .ops = calloc(2 * tokens + 1, sizeof *c->ops),
        .constants = calloc(tokens + 1, sizeof *c->constants),
        .kept = malloc(text_len + 1),
        .tokens = (uint32_t)tokens,
    };
    if (c->ops && c->constants && c->kept)
        return OK;
    code_clear(c);
    return ERR_NO_MEMORY;
}

void code_clear(struct code *c)
{
    free(c->ops);
    free(c->constants);
    free(c->kept);
}

/* How much longer the stack is afterwards. */
static int stack_growth(enum op_code code)
{
    switch (code) {
    case OP_PROPERTY:
    case OP_CONSTANT:
        return 1;
    case OP_EQUAL:
    case OP_GREATER:
    case OP_GREATER_EQUAL:
    case OP_LESS:
    case OP_LESS_EQUAL:
    case OP_AND:
    case OP_OR:
        return -1;
    case OP_HIGH:
    case OP_NOT_HIGH:
        return -2;
    default:
        return 0;
    }
}

uint32_t op_add(struct code *c, enum op_code code, uint32_t at, uint32_t count)
{
    invariant(c->n_ops < 2 * c->tokens);
    c->stack += stack_growth(code);
    c->ops[c->n_ops] = (struct op){(uint16_t)code, (uint16_t)count, at};
    return c->n_ops++;
}

void jump_here(struct code *c, uint32_t jump)
{
    c->ops[jump].at = c->n_ops;
}

uint32_t constant_add(struct code *c, struct value value)
{
    invariant(c->n_constants < c->tokens);
    c->constants[c->n_constants] = value;
    return c->n_constants++;
}

struct bytes text_keep(struct code *c, struct bytes text, bool quoted)
{
    uint8_t *start = c->kept + c->kept_len, *to = start;
    for (size_t i = quoted; i + quoted < text.len; i++) {
        *to++ = text.at[i];
        if (quoted && text.at[i] == '\'')
            i++;
    }
    c->kept_len += (size_t)(to - start);
    return bytes_of(start, (size_t)(to - start));
}

bool name_add(struct code *c, struct bytes name, uint32_t *out)
{
    for (uint32_t i = 0; i < c->n_names; i++) {
        if (bytes_equal(c->names[i], name)) {
            *out = i;
            return true;
        }
    }
    if (c->n_names == SQL92_NAMES_MAX)
        return false;
    c->names[c->n_names] = text_keep(c, name, false);
    *out = c->n_names++;
    return true;
}

/* ---- packing ---- */

static struct bytes moved(struct bytes text, const uint8_t *from, const uint8_t *to)
{
    return bytes_of(to + (text.at - from), text.len);
}

enum err code_pack(const struct code *c, struct sql92 **out)
{
    size_t constants = c->n_constants * sizeof(struct value);
    size_t names = c->n_names * sizeof(struct bytes);
    size_t ops = c->n_ops * sizeof(struct op);
    size_t size = sizeof(struct sql92) + constants + names + ops + c->kept_len;
    struct sql92 *sql = calloc(1, size);
    if (!sql)
        return ERR_NO_MEMORY;
    struct value *to_constants = (struct value *)(sql + 1);
    struct bytes *to_names = (struct bytes *)(to_constants + c->n_constants);
    struct op *to_ops = (struct op *)(to_names + c->n_names);
    uint8_t *to_kept = (uint8_t *)(to_ops + c->n_ops);
    memcpy(to_kept, c->kept, c->kept_len);
    memcpy(to_ops, c->ops, ops);
    for (uint32_t i = 0; i < c->n_constants; i++) {
        to_constants[i] = c->constants[i];
        if (to_constants[i].kind == VALUE_TEXT)
            to_constants[i].text = moved(c->constants[i].text, c->kept, to_kept);
    }
    for (uint32_t i = 0; i < c->n_names; i++) {
        to_names[i] = moved(c->names[i], c->kept, to_kept);
        sql->lengths |= UINT64_C(1) << (to_names[i].len < 63 ? to_names[i].len : 63);
    }
    sql->size = size;
    sql->n_ops = c->n_ops;
    sql->n_names = c->n_names;
    sql->ops = to_ops;
    sql->constants = to_constants;
    sql->names = to_names;
    *out = sql;
    return OK;
}
