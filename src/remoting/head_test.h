/* head_test.h - what the tests of headers share: decoding with exact room, comparing, writing back.
 */
#ifndef REMOTING_HEAD_TEST_H
#define REMOTING_HEAD_TEST_H

#include "msg/vector_test.h"
#include "remoting/remoting.h"

/* A header decoded from exact copies: one byte too far in the input or in the spare space is seen
 * by the address sanitizer. */
struct decoded {
    struct head head;
    enum err err;
    uint8_t *in, *spare;
};

static inline struct decoded *decode_exact(enum head_form form, struct bytes in)
{
    struct decoded *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->in = test_copy(in.at, in.len);
    d->spare = malloc(in.len);
    assert_non_null(d->spare);
    struct wr spare = wr_over(d->spare, in.len);
    struct frame frame = {.form = form, .head = bytes_of(d->in, in.len)};
    d->err = head_decode(&frame, &spare, &d->head);
    assert_false(spare.full);
    return d;
}

static inline void decoded_free(struct decoded *d)
{
    free(d->in);
    free(d->spare);
    free(d);
}

static inline enum err decode_err(enum head_form form, struct bytes in)
{
    struct decoded *d = decode_exact(form, in);
    enum err err = d->err;
    decoded_free(d);
    return err;
}

/* All that a frame can carry; version and language are the writer's own. */
static inline void assert_heads_equal(const struct head *a, const struct head *b)
{
    assert_int_equal(a->code, b->code);
    assert_int_equal(a->opaque, b->opaque);
    assert_int_equal(a->flag, b->flag);
    assert_bytes_equal(a->remark, b->remark);
    assert_int_equal(a->n_fields, b->n_fields);
    for (size_t i = 0; i < a->n_fields; i++) {
        assert_bytes_equal(a->fields[i].name, b->fields[i].name);
        assert_bytes_equal(a->fields[i].value, b->fields[i].value);
    }
}

/* Writes the header as a frame without body into `w`. */
static inline void head_write_back(const struct head *h, enum head_form form, struct wr *w)
{
    struct frame_out f;
    frame_begin(&f, w, form,
                &(struct head_start){
                    .code = h->code, .opaque = h->opaque, .flag = h->flag, .remark = h->remark});
    for (size_t i = 0; i < h->n_fields; i++)
        frame_put(&f, h->fields[i].name, h->fields[i].value);
    frame_end_head(&f, 0);
}

/* Law: what was accepted can be written in either form and is then read as the same. */
static inline void assert_round_trip(const struct head *h)
{
    static uint8_t room[1 << 16];
    for (int form = HEAD_JSON; form <= HEAD_BINARY; form++) {
        struct wr w = wr_over(room, sizeof room);
        struct frame frame;
        size_t need;
        head_write_back(h, form == HEAD_JSON ? HEAD_JSON : HEAD_BINARY, &w);
        assert_false(w.full);
        assert_int_equal(frame_split(wr_bytes(&w), &frame, &need), OK);
        assert_int_equal(frame.size, wr_len(&w));
        struct decoded *again = decode_exact(frame.form, frame.head);
        assert_int_equal(again->err, OK);
        assert_heads_equal(h, &again->head);
        decoded_free(again);
    }
}

/* The frame of a vector, cut by the codec. */
static inline struct frame vector_frame(struct bytes whole)
{
    struct frame frame;
    size_t need;
    assert_int_equal(frame_split(whole, &frame, &need), OK);
    assert_int_equal(frame.size, whole.len);
    return frame;
}

#endif
