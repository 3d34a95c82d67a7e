/* Any bytes as a JSON header. What is accepted is written and read back as the same, and the
 * general JSON reader accepts it too and finds the same in it. With a memory of what came before,
 * the result is the same as without. */
#include "base/json.h"
#include "head_laws.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* base/json.c takes everything we take, up to its own bounds. */
static void law_oracle(const struct head *head, struct bytes in)
{
    struct arena arena;
    const struct json *doc;
    arena_init(&arena, 8 << 20);
    enum err err = json_parse(in, &arena, &doc, NULL);
    invariant(err == OK || err == ERR_TOO_BIG);
    if (err == OK) {
        const struct json *fields = json_member(doc, "extFields");
        invariant(json_int(json_member(doc, "code"), head->code) == head->code);
        for (size_t i = 0; i < head->n_fields; i++) {
            struct bytes name = head->fields[i].name, found = {0};
            json_each(member, fields) {
                if (bytes_equal(member->key->text, name) && member->type != JSON_NULL)
                    found = member->text;
            }
            invariant(bytes_equal(found, head_field(head, name)));
        }
    }
    arena_clear(&arena);
}

/* The memories stay from input to input, so each is held against others like it. The second decode
 * is of what was just remembered. */
static void law_again(const struct head *head, enum err err, struct bytes in)
{
    static struct head_memories memories;
    static struct head again;
    const struct frame frame = {.form = HEAD_JSON, .head = in};
    uint8_t *room = malloc(in.len ? in.len : 1);
    invariant(room);
    for (int i = 0; i < 2; i++) {
        struct wr spare = wr_over(room, in.len);
        invariant(head_decode_again(&frame, &memories, &spare, &again) == err);
        if (err)
            continue;
        invariant(again.code == head->code && again.version == head->version);
        invariant(again.opaque == head->opaque && again.flag == head->flag);
        invariant(again.language == head->language && again.n_fields == head->n_fields);
        invariant(bytes_equal(again.remark, head->remark));
        for (size_t k = 0; k < head->n_fields; k++) {
            invariant(bytes_equal(again.fields[k].name, head->fields[k].name));
            invariant(bytes_equal(again.fields[k].value, head->fields[k].value));
        }
    }
    free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct head head;
    uint8_t *room = malloc(size ? size : 1);
    invariant(room);
    struct wr spare = wr_over(room, size);
    enum err err = head_decode_json(bytes_of(data, size), &spare, &head);
    invariant(!spare.full);
    law_again(&head, err, bytes_of(data, size));
    if (err) {
        invariant(err == ERR_MALFORMED || err == ERR_TOO_BIG);
    } else {
        law_round_trip(&head, size);
        law_fields(&head);
        law_oracle(&head, bytes_of(data, size));
    }
    free(room);
    return 0;
}
