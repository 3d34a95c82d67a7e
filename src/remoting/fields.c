/* fields.c - reading fields through their tables. The tables themselves are in field_tables.c. */
#include "remoting/fields.h"

#define QUOTE_MAX 64 /* of a value that makes no sense, in the answer */

static inline enum err value_read(const struct field_rule *rule, struct bytes value, void *out,
                                  struct fault *why);
static enum err all_there(const struct field_table *table, uint64_t seen, struct fault *why);

/* The names of a send are single letters. */
static inline bool same_name(struct bytes ours, struct bytes theirs)
{
    return ours.len == theirs.len && ours.at[0] == theirs.at[0] &&
           (ours.len == 1 || memcmp(ours.at, theirs.at, ours.len) == 0);
}

/* The rule for a name, looked for from `next` on; table->n: none. */
static size_t rule_find(const struct field_table *table, struct bytes name, size_t next)
{
    for (size_t tried = 0; tried < table->n; tried++) {
        if (same_name(table->rules[next].name, name))
            return next;
        next = next + 1 < table->n ? next + 1 : 0;
    }
    return table->n;
}

static inline enum err field_take(const struct field_rule *rule, const struct field *field,
                                  void *out, struct fault *why)
{
    if (rule->type != FIELD_TEXT)
        return value_read(rule, field->value, out, why);
    memcpy((char *)out + rule->offset, &field->value, sizeof field->value);
    return OK;
}

/* ---- the same names as the last time ---- */

static inline void number_put(void *place, enum field_type type, int64_t number)
{
    bool yes = number != 0;
    int32_t small = (int32_t)number;
    if (type == FIELD_INT)
        memcpy(place, &small, sizeof small);
    else if (type == FIELD_LONG)
        memcpy(place, &number, sizeof number);
    else
        memcpy(place, &yes, sizeof yes);
}

static int64_t number_get(const void *place, enum field_type type)
{
    bool yes = false;
    int32_t small = 0;
    int64_t wide = 0;
    if (type == FIELD_BOOL)
        memcpy(&yes, place, sizeof yes);
    else if (type == FIELD_INT)
        memcpy(&small, place, sizeof small);
    else if (type == FIELD_LONG)
        memcpy(&wide, place, sizeof wide);
    return wide + small + yes;
}

/* Field `i` has been taken into `out`. */
static void take_note(struct head_memory *m, size_t i, const struct field_rule *rule,
                      const struct field_table *table, const void *out)
{
    invariant(rule->offset <= UINT16_MAX);
    m->takes[m->n_takes++] = (struct head_take){
        .field = (uint8_t)i,
        .rule = (uint8_t)(rule - table->rules),
        .type = (uint8_t)rule->type,
        .offset = (uint16_t)rule->offset,
        .number = number_get((const char *)out + rule->offset, rule->type),
    };
}

/* All that is needed is there, and where it goes is noted. */
static enum err fields_read_noted(const struct head_memory *m, const struct head *head, void *out,
                                  struct fault *why)
{
    uint32_t varies = m->varies;
    for (const struct head_take *t = m->takes, *end = t + m->n_takes; t < end; t++) {
        const struct bytes *value = &head->fields[t->field].value;
        void *place = (char *)out + t->offset;
        if (t->type == FIELD_TEXT) {
            memcpy(place, value, sizeof *value);
        } else if (!(varies >> t->field & 1)) {
            number_put(place, t->type, t->number);
        } else {
            enum err err = value_read(&m->table->rules[t->rule], *value, out, why);
            if (err)
                return err;
        }
    }
    return OK;
}

/* The search for a rule goes on where the last one was found: most clients send fields in the order
 * of our tables, and then each is found at once. */
enum err fields_read(const struct field_table *table, const struct head *head, void *out,
                     struct fault *why)
{
    struct head_memory *memory = head->memory;
    invariant(table->n <= 64);
    if (memory && memory->table == table)
        return fields_read_noted(memory, head, out, why);
    if (memory) {
        memory->table = NULL;
        memory->n_takes = 0;
    }
    uint64_t seen = 0;
    size_t next = 0;
    for (size_t i = 0; i < head->n_fields; i++) {
        const struct field *field = &head->fields[i];
        size_t found = rule_find(table, field->name, next < table->n ? next : 0);
        if (found == table->n)
            continue; /* not one of ours; 5.x clients add several to every request */
        enum err err = field_take(&table->rules[found], field, out, why);
        if (err)
            return err;
        if (memory)
            take_note(memory, i, &table->rules[found], table, out);
        seen |= (uint64_t)1 << found;
        next = found + 1;
    }
    enum err err = all_there(table, seen, why);
    if (memory && !err)
        memory->table = table;
    return err;
}

static enum err unreadable(const struct field_rule *rule, struct bytes value, struct fault *why)
{
    struct bytes shown = bytes_of(value.at, value.len < QUOTE_MAX ? value.len : QUOTE_MAX);
    return fault_set(why, ERR_MALFORMED, "the field %.*s should be a number of %d bits, not '%.*s'",
                     BYTES_ARG(rule->name), rule->type == FIELD_INT ? 32 : 64, BYTES_ARG(shown));
}

static inline enum err value_read(const struct field_rule *rule, struct bytes value, void *out,
                                  struct fault *why)
{
    char *place = (char *)out + rule->offset;
    bool yes;
    int32_t small;
    int64_t wide;
    switch (rule->type) {
    case FIELD_TEXT:
        break;
    case FIELD_BOOL:
        yes = bytes_true(value);
        memcpy(place, &yes, sizeof yes);
        return OK;
    case FIELD_INT:
        if (value.len == 1 && (uint8_t)(value.at[0] - '0') <= 9)
            small = value.at[0] - '0';
        else if (!bytes_to_i32(value, &small))
            return unreadable(rule, value, why);
        memcpy(place, &small, sizeof small);
        return OK;
    case FIELD_LONG:
        if (!bytes_to_i64(value, &wide))
            return unreadable(rule, value, why);
        memcpy(place, &wide, sizeof wide);
        return OK;
    }
    return ERR_INVALID;
}

static enum err all_there(const struct field_table *table, uint64_t seen, struct fault *why)
{
    for (size_t i = 0; i < table->n; i++) {
        if (table->rules[i].required && !(seen >> i & 1))
            return fault_set(why, ERR_MALFORMED, "the field %.*s is missing",
                             BYTES_ARG(table->rules[i].name));
    }
    return OK;
}
