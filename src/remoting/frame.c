/* frame.c - cutting frames out of a stream of bytes, and the names of numbers.
 *
 *     4   L: how many bytes follow          4   form of the header (1), its length H (3)
 *     H   header                            L - 4 - H   body
 */
#include "remoting/codes.h"
#include "remoting/remoting_int.h"

#define LENGTH_SIZE 4

enum err frame_split(struct bytes in, struct frame *out, size_t *need)
{
    if (in.len < LENGTH_SIZE) {
        *need = FRAME_PREFIX;
        return ERR_INCOMPLETE;
    }
    uint32_t length = load_u32(in.at);
    if (length > FRAME_MAX - LENGTH_SIZE)
        return ERR_TOO_BIG;
    if (length < LENGTH_SIZE)
        return ERR_MALFORMED;

    /* What is wrong is told as soon as it can be seen, not when the rest has arrived. */
    size_t size = LENGTH_SIZE + length;
    if (in.len < FRAME_PREFIX) {
        *need = size;
        return ERR_INCOMPLETE;
    }
    uint8_t form = in.at[LENGTH_SIZE];
    uint32_t head_size = load_u32(in.at + LENGTH_SIZE) & 0xffffff;
    if ((form != HEAD_JSON && form != HEAD_BINARY) || head_size > length - LENGTH_SIZE)
        return ERR_MALFORMED;
    if (in.len < size) {
        *need = size;
        return ERR_INCOMPLETE;
    }

    *out = (struct frame){
        .form = form == HEAD_JSON ? HEAD_JSON : HEAD_BINARY,
        .head = bytes_of(in.at + FRAME_PREFIX, head_size),
        .body = bytes_of(in.at + FRAME_PREFIX + head_size, size - FRAME_PREFIX - head_size),
        .size = size,
    };
    return OK;
}

enum err frame_next(struct bytes in, struct buf *spare, struct frame *frame, struct head *head,
                    size_t *need)
{
    enum err err = frame_split(in, frame, need);
    if (err)
        return err;
    spare->len = 0;
    uint8_t *room = buf_space(spare, frame->head.len + 1);
    if (!room)
        return spare->err;
    struct wr w = wr_over(room, frame->head.len);
    return head_decode(frame, &w, head);
}

enum err head_decode(const struct frame *frame, struct wr *spare, struct head *out)
{
    return frame->form == HEAD_JSON ? head_decode_json(frame->head, spare, out)
                                    : head_decode_binary(frame->head, out);
}

struct bytes head_field(const struct head *head, struct bytes name)
{
    for (size_t i = head->n_fields; i-- > 0;)
        if (bytes_equal(head->fields[i].name, name))
            return head->fields[i].value;
    return (struct bytes){0};
}

static const char *const languages[] = {
    "JAVA",  "CPP",  "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY",
    "OTHER", "HTTP", "GO",     "PHP",    "OMS",    "RUST",   "NODE_JS",
};
#define LANGUAGES (sizeof languages / sizeof *languages)

const char *language_name(uint8_t language)
{
    return languages[language < LANGUAGES ? language : LANGUAGE_OTHER];
}

uint8_t language_number(struct bytes name)
{
    for (size_t i = 0; i < LANGUAGES; i++)
        if (bytes_equal(name, bytes_str(languages[i])))
            return (uint8_t)i;
    return LANGUAGE_OTHER;
}

const char *request_name(int32_t code)
{
    switch (code) {
#define CODE_NAME(name, number)                                                                    \
    case number:                                                                                   \
        return #name;
        REQUEST_CODES(CODE_NAME)
    default:
        return NULL;
    }
}

const char *response_name(int32_t code)
{
    switch (code) {
        RESPONSE_CODES(CODE_NAME)
#undef CODE_NAME
    default:
        return NULL;
    }
}
