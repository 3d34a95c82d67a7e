/* sql92_int.h - tokens, values and the stack machine's operations, shared by the sql92 files.
 *
 *     sql92_lex.c     text → tokens
 *     sql92_parse.c   tokens → operations
 *     sql92_code.c    operations → program
 *     sql92.c         program and properties → result
 *     sql92_number.c  text → numbers, as Java reads them
 */
#ifndef BROKER_SQL92_INT_H
#define BROKER_SQL92_INT_H

#include "broker/sql92.h"

/* ---- tokens ---- */

enum token_kind {
    TOKEN_END,
    TOKEN_BAD,
    TOKEN_NAME,
    TOKEN_TEXT, /* with its quotes */
    TOKEN_WHOLE,
    TOKEN_REAL,
    TOKEN_EQUAL,
    TOKEN_UNEQUAL,
    TOKEN_GREATER,
    TOKEN_GREATER_EQUAL,
    TOKEN_LESS,
    TOKEN_LESS_EQUAL,
    TOKEN_OPEN,
    TOKEN_CLOSE,
    TOKEN_COMMA,
    TOKEN_PLUS,
    TOKEN_MINUS,
    TOKEN_NOT,
    TOKEN_AND,
    TOKEN_OR,
    TOKEN_BETWEEN,
    TOKEN_IN,
    TOKEN_TRUE,
    TOKEN_FALSE,
    TOKEN_NULL,
    TOKEN_IS,
    TOKEN_CONTAINS,
    TOKEN_STARTSWITH,
    TOKEN_ENDSWITH,
};

struct token {
    enum token_kind kind;
    struct bytes text; /* inside the expression */
};

/* Cuts the next token off `*rest`, with the blanks and comments before it. At the end and at
 * something that is no token it stays there. */
struct token token_next(struct bytes *rest);

/* ---- values ---- */

enum value_kind { VALUE_NULL, VALUE_TRUTH, VALUE_INT, VALUE_LONG, VALUE_DOUBLE, VALUE_TEXT };

struct value {
    enum value_kind kind;
    union {
        bool truth;
        int64_t whole; /* of an int and a long */
        double real;
        struct bytes text;
    };
};

/* As Integer.valueOf, Long.valueOf and Double.valueOf. False: not a number of that kind. */
bool java_int(struct bytes text, int64_t *out);
bool java_long(struct bytes text, int64_t *out);
bool java_double(struct bytes text, double *out);
/* As Double.compare: NaN is equal to itself and above all, -0 is below 0. */
int java_compare(double a, double b);

/* ---- operations ---- */

/* Each takes its operands from the stack, the last on top, and leaves its result there. Those that
 * jump go to the operation `at` and leave what is on top as the result. */
enum op_code {
    OP_PROPERTY, /* at: index of the name */
    OP_CONSTANT, /* at: index of the constant; so for the texts below */
    OP_CAST,     /* a property where a truth is wanted */
    OP_NOT,
    OP_NEGATE,
    OP_IS_NULL,
    OP_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_IN,     /* count texts from `at` on */
    OP_NOT_IN, /* the negated form follows the plain one, here and below */
    OP_CONTAINS,
    OP_NOT_CONTAINS,
    OP_STARTS,
    OP_NOT_STARTS,
    OP_ENDS,
    OP_NOT_ENDS,
    OP_NULL_JUMP, /* null on top is the result */
    OP_AND_JUMP,  /* false is */
    OP_AND,
    OP_OR_JUMP, /* true is */
    OP_OR,
    /* A range: value, low → value, truth of the lower half; jumps when that decides, and then the
     * value is gone. */
    OP_LOW,
    OP_NOT_LOW,
    OP_HIGH, /* value, truth of the lower half, high → result */
    OP_NOT_HIGH,
};

struct op {
    uint16_t code; /* enum op_code */
    uint16_t count;
    uint32_t at;
};

#define STACK_MAX 128 /* values; the parser sees to it */

struct sql92 {
    size_t size;
    uint64_t lengths; /* bit n: a name has n bytes; bit 63: that many or more */
    uint32_t n_ops, n_names;
    const struct op *ops; /* these and what they point to are in this allocation */
    const struct value *constants;
    const struct bytes *names;
};

/* ---- a program that is being written ---- */

/* No token is worth more than two operations or one constant, so their number bounds everything. */
struct code {
    struct op *ops;
    struct value *constants;
    uint32_t n_ops, n_constants, tokens;
    struct bytes names[SQL92_NAMES_MAX]; /* like the texts, in `kept` */
    uint32_t n_names;
    uint8_t *kept;
    size_t kept_len;
    int stack; /* how many values are on it after the last operation */
};

must_check enum err code_init(struct code *code, size_t tokens, size_t text_len);
void code_clear(struct code *code);
uint32_t op_add(struct code *code, enum op_code op, uint32_t at, uint32_t count); /* its index */
void jump_here(struct code *code, uint32_t jump); /* to what comes next */
uint32_t constant_add(struct code *code, struct value value);
/* A copy, without quotes around and doubled quotes inside. */
struct bytes text_keep(struct code *code, struct bytes text, bool quoted);
/* False: too many. The same name has the same index. */
bool name_add(struct code *code, struct bytes name, uint32_t *out);
/* Everything in one allocation of the right size. */
must_check enum err code_pack(const struct code *code, struct sql92 **out);

#endif
