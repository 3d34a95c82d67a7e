/* remoting.h - the remoting protocol as a pure codec.
 *
 * A connection carries *frames* in both directions: a length, a header, a body. The header is JSON
 * or a binary form; both decode into `struct head`: a code, a number that pairs answers with
 * requests (opaque), flags, and named text fields. What the fields of each request mean is data
 * (fields.h); bodies that have a structure of their own are in bodies.h; the numbers are in
 * codes.h.
 *
 * Decoding yields slices of the input and allocates nothing; text that had escapes is unescaped
 * into space that the caller provides. Used by the doors, the client, tests and fuzzers alike.
 */
#ifndef REMOTING_REMOTING_H
#define REMOTING_REMOTING_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"

#define FRAME_MAX       (16u * 1024 * 1024) /* with its four length bytes, as in Java */
#define FRAME_PREFIX    8                   /* two length words */
#define HEAD_FIELDS_MAX 64
#define HEAD_VERSION    479 /* what we report: V5_3_3; Java wants at least 232 for SQL filters */

struct field_table;
struct head_memory;

enum head_form { HEAD_JSON = 0, HEAD_BINARY = 1 };
enum { FLAG_RESPONSE = 1, FLAG_ONEWAY = 2 };

struct frame {
    enum head_form form;
    struct bytes head, body;
    size_t size; /* of the whole frame */
};

/* Cuts the frame at the start of `in`. ERR_INCOMPLETE: `*need` is how many bytes the whole frame
 * has (at least what must arrive before asking again). ERR_TOO_BIG: over FRAME_MAX. ERR_MALFORMED.
 */
must_check enum err frame_split(struct bytes in, struct frame *out, size_t *need);

struct field {
    struct bytes name, value;
};

struct head {
    enum head_form form;
    int32_t code, version, opaque, flag;
    uint8_t language;
    struct bytes remark;
    struct head_memory *memory; /* that has the same names in the same order; or NULL */
    size_t n_fields;
    struct field fields[HEAD_FIELDS_MAX]; /* only the first n_fields are written */
};

/* Whoever gives a field of a decoded head another value does it so: what is remembered of heads
 * like this one is what it said before. */
static inline void head_alter(struct head *head, size_t field, struct bytes value)
{
    head->fields[field].value = value;
    head->memory = NULL;
}

/* `spare` takes text that was escaped or goes beyond ASCII; frame->head.len bytes of room are
 * always enough. Outputs are written in place as decoding goes on; on failure only `opaque` and
 * `flag` may be relied on, and only if they were decoded before the fault (they start as 0).
 * ERR_MALFORMED; ERR_TOO_BIG: too many fields, too deep, no spare room. A JSON header must have a
 * code; null members are absent. In a binary header a value of no length is absent; bytes are not
 * checked to be UTF-8. */
must_check enum err head_decode(const struct frame *frame, struct wr *spare, struct head *out);
must_check enum err head_decode_json(struct bytes in, struct wr *spare, struct head *out);
must_check enum err head_decode_binary(struct bytes in, struct head *out);

/* head_decode for who reads many: what is like a header before takes a third of the time. The same
 * result in all cases; head_again.c tells how. Starts as zeros, and belongs to one thread. */
#define HEAD_MEMORIES      8
#define HEAD_MEMORY_TEXT   1024
#define HEAD_MEMORY_FIELDS 24
struct head_place { /* of a field, in the text */
    uint16_t name, name_len, value, value_len;
};
struct head_run {
    uint16_t from, to;   /* text that stays the same … */
    uint8_t first, upto; /* … and has these fields in it; field `upto` follows, or … */
    bool opaque;         /* … the opaque number */
};
struct head_take { /* what fields_read does with a field */
    uint8_t field, rule, type;
    uint16_t offset;
    int64_t number; /* what it says until it is seen to change; a text has none */
};
struct head_memory {
    uint16_t len; /* of the text; 0: nothing is remembered */
    uint16_t opaque_at, opaque_end;
    uint8_t n_fields, opaque_before, language; /* before which field the opaque number stands */
    uint8_t n_runs, n_takes;
    uint32_t varies; /* a bit for each field whose value was seen to change */
    int32_t code, version, flag;
    const struct field_table *table; /* fields_read has used last, without a fault; or NULL … */
    struct head_take takes[HEAD_MEMORY_FIELDS]; /* … and what it did */
    struct head_place places[HEAD_MEMORY_FIELDS];
    struct head_run runs[HEAD_MEMORY_FIELDS + 2];
    uint8_t text[HEAD_MEMORY_TEXT];
};
struct head_memories {
    struct head_memory of[HEAD_MEMORIES];
};
must_check enum err head_decode_again(const struct frame *frame, struct head_memories *memories,
                                      struct wr *spare, struct head *out);

/* Both at once, for readers that take the frames of a stream one by one: `spare` is one buffer for
 * all of them, which grows to the biggest header; the head is good until the next call. What
 * frame_split and head_decode say, and ERR_NO_MEMORY. */
must_check enum err frame_next(struct bytes in, struct buf *spare, struct frame *frame,
                               struct head *head, size_t *need);

/* The value of a field, or {NULL, 0}; the last of equal names wins. */
struct bytes head_field(const struct head *head, struct bytes name);

const char *language_name(uint8_t language);

/* ---- writing a frame ----
 *
 *     struct frame_out f;
 *     frame_begin(&f, &w, HEAD_JSON, &(struct head_start){.opaque = 7, .flag = FLAG_RESPONSE});
 *     frame_put_int(&f, BYTES("queueOffset"), 12);
 *     frame_end_head(&f, body_size);     the caller adds body_size bytes behind it
 *
 * A remark and all fields must come in this order. Failure (buffer full, frame over FRAME_MAX)
 * stays in w->full. Values and remark are escaped; what is not UTF-8 in them becomes U+FFFD in
 * JSON. A code that a binary header cannot carry (16 bits) makes the frame a JSON one. */
struct head_start {
    int32_t code, opaque, flag;
    struct bytes remark;
};

struct frame_out {
    struct wr *w;
    enum head_form form;
    uint8_t *frame;  /* its first byte */
    uint8_t *fields; /* binary: where the length of the fields block goes */
    bool any_field;
};

void frame_begin(struct frame_out *f, struct wr *w, enum head_form form,
                 const struct head_start *head);
void frame_put(struct frame_out *f, struct bytes name, struct bytes value);
void frame_put_int(struct frame_out *f, struct bytes name, int64_t value);
void frame_put_bool(struct frame_out *f, struct bytes name, bool value);
void frame_end_head(struct frame_out *f, size_t body_size);

/* ---- stamping a frame ----
 *
 * For an answer that is given to every message: head_stamp.c tells how. A stamp is made once, with
 * all of its fields; where a value is to be filled in, the field has none (NULL). frame_stamp_write
 * takes those values in that order and writes the whole frame, which has no body. False, and
 * nothing is written: a value needs escapes, or there is little room; then it has to be written as
 * above. */
#define STAMP_PLACES 8
#define STAMP_TEXT   512
#define STAMP_STEP   32 /* bytes that are copied at once */
struct frame_stamp {
    bool usable; /* its text had room */
    uint8_t n_places;
    uint16_t ends[STAMP_PLACES + 1]; /* of its pieces; the opaque number is in the first place */
    uint8_t text[STAMP_TEXT + STAMP_STEP];
};
void frame_stamp_make(struct frame_stamp *stamp, const struct head_start *head,
                      const struct field *fields, size_t n);
struct stamp_value {
    bool is_number;
    int64_t number;
    struct bytes text;
};
static inline struct stamp_value stamp_number(int64_t number)
{
    return (struct stamp_value){.is_number = true, .number = number};
}
static inline struct stamp_value stamp_text(struct bytes text)
{
    return (struct stamp_value){.text = text};
}
must_check bool frame_stamp_write(const struct frame_stamp *stamp, struct wr *w, int32_t opaque,
                                  const struct stamp_value *values);

/* ---- names of the codes, for logs and remarks ---- */
const char *request_name(int32_t code); /* "SEND_MESSAGE_V2", or NULL */
const char *response_name(int32_t code);

#endif
