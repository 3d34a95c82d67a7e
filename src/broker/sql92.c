/* sql92.c - asks a compiled expression of a message's properties. */
#include "broker/sql92_int.h"

#include "msg/msg.h"

#include <stdlib.h>
#include <strings.h>

static bool step(const struct sql92 *sql, const struct bytes *found, uint32_t *next,
                 struct value **stack);

void sql92_free(struct sql92 *sql)
{
    free(sql);
}

size_t sql92_size(const struct sql92 *sql)
{
    return sql->size;
}

/* One walk over the properties finds all that the expression names; of several the last counts. */
static void names_find(const struct sql92 *sql, struct bytes props, struct bytes *found)
{
    memset(found, 0, sql->n_names * sizeof *found);
    struct props_walk walk = props_walk(props);
    struct prop pair;
    while (props_next(&walk, &pair)) {
        if (!(sql->lengths >> (pair.name.len < 63 ? pair.name.len : 63) & 1))
            continue;
        for (uint32_t i = 0; i < sql->n_names; i++)
            if (bytes_equal(sql->names[i], pair.name))
                found[i] = pair.value;
    }
}

enum sql92_result sql92_eval(const struct sql92 *sql, struct bytes props)
{
    struct bytes found[SQL92_NAMES_MAX];
    struct value floor[STACK_MAX + 1], *top = floor; /* the first is never used */
    names_find(sql, props, found);
    for (uint32_t next = 0; next < sql->n_ops;)
        if (!step(sql, found, &next, &top))
            return SQL92_FAILED;
    invariant(top == floor + 1);
    if (top->kind == VALUE_NULL)
        return SQL92_NULL;
    return top->truth ? SQL92_TRUE : SQL92_FALSE;
}

/* ---- comparing ---- */

static const struct value null = {.kind = VALUE_NULL};

static struct value truth(bool is)
{
    return (struct value){.kind = VALUE_TRUTH, .truth = is};
}

/* Reads text as the kind of number that it is compared with. */
static bool text_as(struct value *v, enum value_kind kind)
{
    struct bytes text = v->text;
    v->kind = kind;
    if (kind == VALUE_DOUBLE)
        return java_double(text, &v->real);
    return kind == VALUE_INT ? java_int(text, &v->whole) : java_long(text, &v->whole);
}

static double as_double(const struct value *v)
{
    return v->kind == VALUE_DOUBLE ? v->real : (double)v->whole;
}

/* Two numbers, or a number and text. */
static bool numbers_compare(struct value a, struct value b, int *out)
{
    if (a.kind == VALUE_TEXT && !text_as(&a, b.kind))
        return false;
    if (b.kind == VALUE_TEXT && !text_as(&b, a.kind))
        return false;
    if (a.kind == VALUE_DOUBLE || b.kind == VALUE_DOUBLE)
        *out = java_compare(as_double(&a), as_double(&b));
    else
        *out = (a.whole > b.whole) - (a.whole < b.whole);
    return true;
}

static bool is_true(struct bytes text)
{
    return text.len == 4 && strncasecmp((const char *)text.at, "true", 4) == 0;
}

/* False: it cannot be said. Null is equal to null, but of a null on the left nothing is known. */
static bool equal(const struct value *a, const struct value *b, struct value *out)
{
    int order;
    if (a->kind == VALUE_NULL || b->kind == VALUE_NULL) {
        *out = a->kind == b->kind ? truth(true) : a->kind == VALUE_NULL ? null : truth(false);
    } else if (a->kind == VALUE_TEXT && b->kind == VALUE_TEXT) {
        *out = truth(bytes_equal(a->text, b->text));
    } else if (a->kind == VALUE_TRUTH) {
        if (b->kind == VALUE_TEXT) /* Apache's filter trips over its own cast */
            return false;
        *out = truth(b->kind == VALUE_TRUTH && a->truth == b->truth);
    } else if (b->kind == VALUE_TRUTH) {
        *out = truth(a->kind == VALUE_TEXT && is_true(a->text) == b->truth);
    } else {
        if (!numbers_compare(*a, *b, &order))
            return false;
        *out = truth(order == 0);
    }
    return true;
}

static bool ordered(enum op_code code, struct value a, struct value b, struct value *out)
{
    int order;
    if (a.kind == VALUE_NULL || b.kind == VALUE_NULL) {
        *out = null;
        return true;
    }
    if (a.kind == VALUE_TEXT && b.kind == VALUE_TEXT && !text_as(&a, VALUE_DOUBLE))
        return false;
    if (!numbers_compare(a, b, &order))
        return false;
    *out = truth(code == OP_GREATER         ? order > 0
                 : code == OP_GREATER_EQUAL ? order >= 0
                 : code == OP_LESS          ? order < 0
                                            : order <= 0);
    return true;
}

/* ---- texts ---- */

static struct value is_in(const struct value *constants, const struct op *op,
                          const struct value *wanted)
{
    if (wanted->kind != VALUE_TEXT)
        return null;
    bool found = false;
    for (uint32_t i = 0; i < op->count && !found; i++)
        found = bytes_equal(constants[op->at + i].text, wanted->text);
    return truth(found == (op->code == OP_IN));
}

static struct value has_part(enum op_code code, const struct value *v, struct bytes part)
{
    if (v->kind != VALUE_TEXT)
        return truth(false); /* for the negated forms too */
    struct bytes text = v->text;
    switch (code) {
    case OP_CONTAINS:
    case OP_NOT_CONTAINS:
        return truth(!memmem(text.at, text.len, part.at, part.len) == (code == OP_NOT_CONTAINS));
    case OP_STARTS:
    case OP_NOT_STARTS:
        return truth(bytes_start(text, part) == (code == OP_STARTS));
    default:
        if (text.len >= part.len)
            text = bytes_from(text, text.len - part.len);
        return truth(bytes_equal(text, part) == (code == OP_ENDS));
    }
}

/* ---- truths ---- */

static bool is_truth(const struct value *v, bool which)
{
    return v->kind == VALUE_TRUTH && v->truth == which;
}

/* AND is decided by a false, OR by a true; otherwise a null makes the result unknown. */
static struct value both(const struct value *a, const struct value *b, bool decides)
{
    if (is_truth(a, decides) || is_truth(b, decides))
        return truth(decides);
    return a->kind == VALUE_NULL || b->kind == VALUE_NULL ? null : truth(!decides);
}

static struct value negated(const struct value *v)
{
    switch (v->kind) {
    case VALUE_INT:
    case VALUE_LONG: /* never the smallest one: literals are not negative */
        return (struct value){.kind = v->kind, .whole = -v->whole};
    case VALUE_DOUBLE:
        return (struct value){.kind = VALUE_DOUBLE, .real = -v->real};
    default:
        return null;
    }
}

/* ---- one operation ---- */

/* False: the expression fails. `*stack` is the value on top. */
static bool step(const struct sql92 *sql, const struct bytes *found, uint32_t *next,
                 struct value **stack)
{
    const struct op *op = &sql->ops[(*next)++];
    struct value *top = *stack;
    switch ((enum op_code)op->code) {
    case OP_PROPERTY:
        *++*stack =
            found[op->at].at ? (struct value){.kind = VALUE_TEXT, .text = found[op->at]} : null;
        return true;
    case OP_CONSTANT:
        *++*stack = sql->constants[op->at];
        return true;
    case OP_CAST: /* no property is a truth */
        *top = top->kind == VALUE_NULL ? null : truth(false);
        return true;
    case OP_NOT:
        *top = top->kind == VALUE_NULL ? null : truth(!top->truth);
        return true;
    case OP_NEGATE:
        *top = negated(top);
        return true;
    case OP_IS_NULL:
        *top = truth(top->kind == VALUE_NULL);
        return true;
    case OP_EQUAL:
        --*stack;
        return equal(top - 1, top, top - 1);
    case OP_GREATER:
    case OP_GREATER_EQUAL:
    case OP_LESS:
    case OP_LESS_EQUAL:
        --*stack;
        return ordered(op->code, top[-1], top[0], top - 1);
    case OP_IN:
    case OP_NOT_IN:
        *top = is_in(sql->constants, op, top);
        return true;
    case OP_CONTAINS:
    case OP_NOT_CONTAINS:
    case OP_STARTS:
    case OP_NOT_STARTS:
    case OP_ENDS:
    case OP_NOT_ENDS:
        *top = has_part(op->code, top, sql->constants[op->at].text);
        return true;
    case OP_NULL_JUMP:
        *next = top->kind == VALUE_NULL ? op->at : *next;
        return true;
    case OP_AND_JUMP:
    case OP_OR_JUMP:
        *next = is_truth(top, op->code == OP_OR_JUMP) ? op->at : *next;
        return true;
    case OP_AND:
    case OP_OR:
        --*stack;
        top[-1] = both(top - 1, top, op->code == OP_OR);
        return true;
    case OP_LOW:
    case OP_NOT_LOW:
        if (!ordered(op->code == OP_LOW ? OP_GREATER_EQUAL : OP_LESS, top[-1], top[0], top))
            return false;
        if (is_truth(top, op->code == OP_NOT_LOW)) {
            top[-1] = *top;
            --*stack;
            *next = op->at;
        }
        return true;
    case OP_HIGH:
    case OP_NOT_HIGH:
        if (!ordered(op->code == OP_HIGH ? OP_LESS_EQUAL : OP_GREATER, top[-2], top[0], top))
            return false;
        top[-2] = both(top - 1, top, op->code == OP_NOT_HIGH);
        *stack -= 2;
        return true;
    }
    return false;
}
