/* Any bytes as a JSON header. What is accepted is written and read back as the same, and the
 * general JSON reader accepts it too and finds the same in it. */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct head head;
    uint8_t *room = malloc(size ? size : 1);
    invariant(room);
    struct wr spare = wr_over(room, size);
    enum err err = head_decode_json(bytes_of(data, size), &spare, &head);
    invariant(!spare.full);
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
