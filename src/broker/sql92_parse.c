/* sql92_parse.c - from tokens to a program, in one pass.
 *
 * A Pratt parser: an operator binds as closely as its level says, and a right side is read as far
 * as what binds closer goes. The operations of an operand are written before those of its operator,
 * so the program needs no tree; of an operand only its kind is kept, because the grammar refuses
 * some kinds in some places:
 *
 *     < > BETWEEN   numbers, properties, and what a sign stands before
 *     = <>          anything but NULL; of two constants not a truth with something else
 *     IN            a property
 *     AND OR NOT    truths and properties
 *
 * Jumps keep what need not be asked from being asked, since asking may fail. That is also why a
 * range asks its value once, where Apache asks it twice: the outcome is the same.
 */
#include "broker/sql92_int.h"

enum level { LEVEL_NONE, LEVEL_OR, LEVEL_AND, LEVEL_EQUAL, LEVEL_COMPARE };

enum node_kind {
    NODE_CONSTANT, /* the truths and NULL too */
    NODE_PROPERTY,
    NODE_TRUTH,
    NODE_OTHER, /* something with a sign before it: a number or null */
};

/* An operand that has been read. */
struct node {
    enum node_kind kind;
    uint32_t start;    /* its first operation */
    uint32_t constant; /* its index */
    struct token token;
};

struct compiler {
    struct bytes text, rest;
    struct token token; /* the next one, not taken yet */
    struct code code;
    int depth;
    struct fault *why;
};

static enum err expression_read(struct compiler *c, enum level least, struct node *out);

/* ---- what went wrong ---- */

/* Lines and columns count from 1, columns in characters. */
static enum err refuse(const struct compiler *c, enum err err, struct bytes at, const char *what)
{
    size_t line = 1, column = 1;
    for (const uint8_t *p = c->text.at; p < at.at; p++) {
        if (*p == '\n') {
            line++;
            column = 1;
        } else if ((*p & 0xc0) != 0x80) {
            column++;
        }
    }
    if (at.len == 0)
        return fault_set(c->why, err, "line %zu, column %zu: %s; the expression ends there", line,
                         column, what);
    return fault_set(c->why, err, "line %zu, column %zu: %s at \"%.*s\"", line, column, what,
                     (int)(at.len < 24 ? at.len : 24), (const char *)at.at);
}

static enum err refuse_token(const struct compiler *c, const char *what)
{
    return refuse(c, ERR_MALFORMED, c->token.text,
                  c->token.kind == TOKEN_BAD ? "this is no part of an expression" : what);
}

static enum err refuse_node(const struct compiler *c, const struct node *node, const char *what)
{
    return refuse(c, ERR_MALFORMED, node->token.text, what);
}

/* ---- tokens ---- */

static void token_take(struct compiler *c)
{
    c->token = token_next(&c->rest);
}

static enum err token_expect(struct compiler *c, enum token_kind kind, const char *what)
{
    if (c->token.kind != kind)
        return refuse_token(c, what);
    token_take(c);
    return OK;
}

/* ---- operands ---- */

static enum err constant_read(const struct compiler *c, struct value *out)
{
    struct bytes text = c->token.text;
    if (c->token.kind == TOKEN_REAL) {
        out->kind = VALUE_DOUBLE;
        if (!java_double(text, &out->real) || out->real > 1.7976931348623157e308 || out->real == 0)
            return refuse(c, ERR_MALFORMED, text, "this number is too large, too small or 0");
        return OK;
    }
    if (text.at[text.len - 1] == 'l' || text.at[text.len - 1] == 'L')
        text.len--;
    if (!java_long(text, &out->whole))
        return refuse(c, ERR_MALFORMED, text, "this number is too large");
    out->kind = out->whole <= INT32_MAX ? VALUE_INT : VALUE_LONG;
    return OK;
}

static enum err primary_read(struct compiler *c, struct node *out)
{
    struct value value = {.kind = VALUE_NULL};
    enum err err = OK;
    switch (c->token.kind) {
    case TOKEN_NAME: {
        uint32_t name;
        if (!name_add(&c->code, c->token.text, &name))
            return refuse(c, ERR_TOO_BIG, c->token.text, "too many different properties");
        (void)op_add(&c->code, OP_PROPERTY, name, 0);
        out->kind = NODE_PROPERTY;
        token_take(c);
        return OK;
    }
    case TOKEN_TEXT:
        value =
            (struct value){.kind = VALUE_TEXT, .text = text_keep(&c->code, c->token.text, true)};
        break;
    case TOKEN_WHOLE:
    case TOKEN_REAL:
        err = constant_read(c, &value);
        break;
    case TOKEN_TRUE:
    case TOKEN_FALSE:
        value = (struct value){.kind = VALUE_TRUTH, .truth = c->token.kind == TOKEN_TRUE};
        break;
    case TOKEN_NULL:
        break;
    default:
        return refuse_token(c, "a value is missing");
    }
    if (err)
        return err;
    out->kind = NODE_CONSTANT;
    out->constant = constant_add(&c->code, value);
    (void)op_add(&c->code, OP_CONSTANT, out->constant, 0);
    token_take(c);
    return OK;
}

/* Whatever is to be a truth: a property becomes one. */
static enum err truth_need(struct compiler *c, struct node *node)
{
    if (node->kind == NODE_PROPERTY)
        (void)op_add(&c->code, OP_CAST, 0, 0);
    else if (node->kind != NODE_TRUTH &&
             (node->kind != NODE_CONSTANT || c->code.constants[node->constant].kind > VALUE_TRUTH))
        return refuse_node(c, node, "this is neither true nor false");
    node->kind = NODE_TRUTH;
    return OK;
}

static enum err operand_read(struct compiler *c, struct node *out);

/* A bracket or a sign, and what it stands before. */
static enum err prefixed_read(struct compiler *c, struct node *out)
{
    enum token_kind prefix = c->token.kind;
    token_take(c);
    if (prefix == TOKEN_OPEN) {
        enum err err = expression_read(c, LEVEL_OR, out);
        return err ? err : token_expect(c, TOKEN_CLOSE, "a closing bracket is missing");
    }
    enum err err = operand_read(c, out);
    if (err || prefix == TOKEN_PLUS)
        return err;
    if (prefix == TOKEN_MINUS) {
        (void)op_add(&c->code, OP_NEGATE, 0, 0);
        out->kind = NODE_OTHER;
        return OK;
    }
    err = truth_need(c, out);
    if (!err)
        (void)op_add(&c->code, OP_NOT, 0, 0);
    return err;
}

static enum err operand_read(struct compiler *c, struct node *out)
{
    struct node node = {.start = c->code.n_ops, .token = c->token};
    enum err err;
    if (c->token.kind == TOKEN_OPEN || c->token.kind == TOKEN_PLUS ||
        c->token.kind == TOKEN_MINUS || c->token.kind == TOKEN_NOT) {
        if (c->depth == SQL92_DEPTH_MAX)
            return refuse(c, ERR_TOO_BIG, c->token.text, "too many brackets inside each other");
        c->depth++;
        err = prefixed_read(c, &node);
        c->depth--;
    } else {
        if (c->code.stack == STACK_MAX)
            return refuse(c, ERR_TOO_BIG, c->token.text,
                          "too many values wait for their right side");
        err = primary_read(c, &node);
    }
    if (!err)
        *out = node;
    return err;
}

/* ---- operators ---- */

static enum level level_of(enum token_kind kind)
{
    switch (kind) {
    case TOKEN_OR:
        return LEVEL_OR;
    case TOKEN_AND:
        return LEVEL_AND;
    case TOKEN_EQUAL:
    case TOKEN_UNEQUAL:
    case TOKEN_IS:
        return LEVEL_EQUAL;
    case TOKEN_GREATER:
    case TOKEN_GREATER_EQUAL:
    case TOKEN_LESS:
    case TOKEN_LESS_EQUAL:
    case TOKEN_NOT: /* before BETWEEN, IN, CONTAINS … */
    case TOKEN_BETWEEN:
    case TOKEN_IN:
    case TOKEN_CONTAINS:
    case TOKEN_STARTSWITH:
    case TOKEN_ENDSWITH:
        return LEVEL_COMPARE;
    default:
        return LEVEL_NONE;
    }
}

static enum err logic_read(struct compiler *c, struct node *left)
{
    bool both = c->token.kind == TOKEN_AND;
    token_take(c);
    enum err err = truth_need(c, left);
    if (err)
        return err;
    uint32_t jump = op_add(&c->code, both ? OP_AND_JUMP : OP_OR_JUMP, 0, 0);
    struct node right;
    err = expression_read(c, both ? LEVEL_EQUAL : LEVEL_AND, &right);
    if (!err)
        err = truth_need(c, &right);
    if (err)
        return err;
    (void)op_add(&c->code, both ? OP_AND : OP_OR, 0, 0);
    jump_here(&c->code, jump);
    return OK;
}

static enum err is_null_read(struct compiler *c)
{
    token_take(c);
    bool negated = c->token.kind == TOKEN_NOT;
    if (negated)
        token_take(c);
    enum err err = token_expect(c, TOKEN_NULL, "NULL or NOT NULL is missing");
    if (err)
        return err;
    (void)op_add(&c->code, OP_IS_NULL, 0, 0);
    if (negated)
        (void)op_add(&c->code, OP_NOT, 0, 0);
    return OK;
}

static bool is_constant(const struct compiler *c, const struct node *node, enum value_kind kind)
{
    return node->kind == NODE_CONSTANT && c->code.constants[node->constant].kind == kind;
}

static enum err equal_read(struct compiler *c, struct node *left)
{
    bool negated = c->token.kind == TOKEN_UNEQUAL;
    token_take(c);
    struct node right;
    enum err err = expression_read(c, LEVEL_COMPARE, &right);
    if (err)
        return err;
    if (is_constant(c, left, VALUE_NULL))
        return refuse_node(c, left, "NULL is never equal to anything; write IS NULL");
    if (is_constant(c, &right, VALUE_NULL))
        return refuse_node(c, &right, "NULL is never equal to anything; write IS NULL");
    if (is_constant(c, left, VALUE_TRUTH) && right.kind == NODE_CONSTANT &&
        !is_constant(c, &right, VALUE_TRUTH))
        return refuse_node(c, &right, "this cannot be compared with TRUE or FALSE");
    (void)op_add(&c->code, OP_EQUAL, 0, 0);
    if (negated)
        (void)op_add(&c->code, OP_NOT, 0, 0);
    left->kind = NODE_TRUTH;
    return OK;
}

/* Only what is a number, or may turn out to be one, has an order. */
static enum err ordered_need(const struct compiler *c, const struct node *node)
{
    if (node->kind == NODE_TRUTH || is_constant(c, node, VALUE_NULL) ||
        is_constant(c, node, VALUE_TRUTH) || is_constant(c, node, VALUE_TEXT))
        return refuse_node(c, node, "only numbers and properties can be compared with < or >");
    return OK;
}

static enum err order_read(struct compiler *c, struct node *left)
{
    enum op_code code = OP_GREATER + (c->token.kind - TOKEN_GREATER);
    token_take(c);
    enum err err = ordered_need(c, left);
    if (err)
        return err;
    uint32_t jump = op_add(&c->code, OP_NULL_JUMP, 0, 0);
    struct node right;
    err = operand_read(c, &right);
    if (!err)
        err = ordered_need(c, &right);
    if (err)
        return err;
    (void)op_add(&c->code, code, 0, 0);
    jump_here(&c->code, jump);
    return OK;
}

/* BETWEEN 5 AND 1 is refused; NOT BETWEEN 5 AND 1 is not. */
static bool range_is_empty(const struct compiler *c, const struct node *low,
                           const struct node *high)
{
    if (low->kind != NODE_CONSTANT || high->kind != NODE_CONSTANT)
        return false;
    const struct value *a = &c->code.constants[low->constant],
                       *b = &c->code.constants[high->constant];
    if (a->kind != VALUE_DOUBLE && b->kind != VALUE_DOUBLE)
        return b->whole < a->whole;
    return (b->kind == VALUE_DOUBLE ? b->real : (double)b->whole) <
           (a->kind == VALUE_DOUBLE ? a->real : (double)a->whole);
}

static enum err range_read(struct compiler *c, const struct node *left, bool negated)
{
    token_take(c);
    enum err err = ordered_need(c, left);
    if (err)
        return err;
    uint32_t from_null = op_add(&c->code, OP_NULL_JUMP, 0, 0);
    struct node low, high;
    err = operand_read(c, &low);
    if (!err)
        err = ordered_need(c, &low);
    if (!err)
        err = token_expect(c, TOKEN_AND, "AND and an upper bound are missing");
    if (err)
        return err;
    uint32_t from_low = op_add(&c->code, OP_LOW + negated, 0, 0);
    err = operand_read(c, &high);
    if (!err)
        err = ordered_need(c, &high);
    if (err)
        return err;
    if (!negated && range_is_empty(c, &low, &high))
        return refuse_node(c, &low, "the lower bound is above the upper one");
    (void)op_add(&c->code, OP_HIGH + negated, 0, 0);
    jump_here(&c->code, from_null);
    jump_here(&c->code, from_low);
    return OK;
}

/* Takes a text and keeps it as a constant. */
static enum err text_read(struct compiler *c, uint32_t *out)
{
    if (c->token.kind != TOKEN_TEXT)
        return refuse_token(c, "a text in single quotes is missing");
    struct bytes text = text_keep(&c->code, c->token.text, true);
    *out = constant_add(&c->code, (struct value){.kind = VALUE_TEXT, .text = text});
    token_take(c);
    return OK;
}

static enum err in_read(struct compiler *c, const struct node *left, bool negated)
{
    token_take(c);
    if (left->kind != NODE_PROPERTY)
        return refuse_node(c, left, "only a property can be looked for with IN");
    enum err err = token_expect(c, TOKEN_OPEN, "an opening bracket is missing");
    uint32_t first = c->code.n_constants, text;
    if (!err)
        err = text_read(c, &text);
    while (!err && c->token.kind == TOKEN_COMMA) {
        token_take(c);
        err = text_read(c, &text);
    }
    if (!err)
        err = token_expect(c, TOKEN_CLOSE, "a comma or a closing bracket is missing");
    if (!err)
        (void)op_add(&c->code, OP_IN + negated, first, c->code.n_constants - first);
    return err;
}

static enum err part_read(struct compiler *c, const struct node *left, bool negated)
{
    enum op_code code = c->token.kind == TOKEN_CONTAINS     ? OP_CONTAINS
                        : c->token.kind == TOKEN_STARTSWITH ? OP_STARTS
                                                            : OP_ENDS;
    token_take(c);
    uint32_t text = 0;
    enum err err = text_read(c, &text);
    if (err)
        return err;
    if (c->code.constants[text].text.len > 0) {
        (void)op_add(&c->code, code + negated, text, 0);
        return OK;
    }
    /* Nothing contains nothing, and nothing does not: false, and the left side is not asked. */
    c->code.n_ops = left->start;
    c->code.stack--;
    c->code.constants[text] = (struct value){.kind = VALUE_TRUTH, .truth = false};
    (void)op_add(&c->code, OP_CONSTANT, text, 0);
    return OK;
}

static enum err compare_read(struct compiler *c, struct node *left)
{
    bool negated = c->token.kind == TOKEN_NOT;
    if (negated)
        token_take(c);
    enum err err;
    switch (c->token.kind) {
    case TOKEN_BETWEEN:
        err = range_read(c, left, negated);
        break;
    case TOKEN_IN:
        err = in_read(c, left, negated);
        break;
    case TOKEN_CONTAINS:
    case TOKEN_STARTSWITH:
    case TOKEN_ENDSWITH:
        err = part_read(c, left, negated);
        break;
    default:
        err = negated ? refuse_token(c, "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH is missing")
                      : order_read(c, left);
    }
    left->kind = NODE_TRUTH;
    return err;
}

static enum err operator_read(struct compiler *c, enum level level, struct node *left)
{
    if (level <= LEVEL_AND)
        return logic_read(c, left);
    if (level == LEVEL_COMPARE)
        return compare_read(c, left);
    if (c->token.kind != TOKEN_IS)
        return equal_read(c, left);
    enum err err = is_null_read(c);
    left->kind = NODE_TRUTH;
    return err;
}

/* As far as operators of this level or a closer one go. None binds closer than the one before it:
 * what is behind "a IS NULL" cannot be "> 5", so that ends it. */
static enum err expression_read(struct compiler *c, enum level least, struct node *out)
{
    enum err err = operand_read(c, out);
    for (enum level most = LEVEL_COMPARE; !err;) {
        enum level level = level_of(c->token.kind);
        if (level < least || level > most)
            break;
        err = operator_read(c, level, out);
        most = level;
    }
    return err;
}

/* ---- the whole ---- */

static size_t tokens_count(struct bytes rest)
{
    size_t n = 0;
    for (enum token_kind kind; (kind = token_next(&rest).kind) != TOKEN_END && kind != TOKEN_BAD;)
        n++;
    return n;
}

enum err sql92_compile(struct bytes text, struct sql92 **out, struct fault *why)
{
    if (text.len > SQL92_TEXT_MAX)
        return fault_set(why, ERR_TOO_BIG, "the expression has %zu bytes; %d are the most",
                         text.len, SQL92_TEXT_MAX);
    if (text.len == 0)
        text = BYTES("");
    struct compiler c = {.text = text, .rest = text, .why = why};
    enum err err = code_init(&c.code, tokens_count(text), text.len);
    if (err)
        return err;
    token_take(&c);
    struct node node;
    err = expression_read(&c, LEVEL_OR, &node);
    if (!err)
        err = truth_need(&c, &node);
    if (!err && c.token.kind == TOKEN_BAD)
        err = refuse_token(&c, "");
    if (!err)
        err = code_pack(&c.code, out);
    code_clear(&c.code);
    return err;
}
