/* head_laws.h - what must hold for every header that was accepted, in either form. */
#ifndef FUZZ_HEAD_LAWS_H
#define FUZZ_HEAD_LAWS_H

#include "remoting/fields.h"

#include <stdlib.h>

static inline void law_same(const struct head *a, const struct head *b)
{
    invariant(a->code == b->code);
    invariant(a->opaque == b->opaque);
    invariant(a->flag == b->flag);
    invariant(bytes_equal(a->remark, b->remark));
    invariant(a->n_fields == b->n_fields);
    for (size_t i = 0; i < a->n_fields; i++) {
        invariant(bytes_equal(a->fields[i].name, b->fields[i].name));
        invariant(bytes_equal(a->fields[i].value, b->fields[i].value));
    }
}

/* Written again in its form it is read as the same. One byte becomes six at most. */
static inline void law_round_trip(const struct head *head, size_t head_size)
{
    static struct head again;
    size_t size = 6 * head_size + 1024;
    uint8_t *room = malloc(size), *spare_room = malloc(size);
    invariant(room && spare_room);

    struct wr w = wr_over(room, size), spare = wr_over(spare_room, size);
    struct frame_out f;
    struct head_start start = {
        .code = head->code, .opaque = head->opaque, .flag = head->flag, .remark = head->remark};
    frame_begin(&f, &w, head->form, &start);
    for (size_t i = 0; i < head->n_fields; i++)
        frame_put(&f, head->fields[i].name, head->fields[i].value);
    frame_end_head(&f, 0);
    invariant(!w.full);

    struct frame frame;
    size_t need;
    invariant(frame_split(wr_bytes(&w), &frame, &need) == OK);
    invariant(frame.form == head->form);
    invariant(head_decode(&frame, &spare, &again) == OK);
    law_same(head, &again);
    free(room);
    free(spare_room);
}

/* Every table reads it or says why not. */
static inline void law_fields(const struct head *head)
{
    const struct field_table *tables[] = {&send_fields_long,      &send_fields_letters,
                                          &pull_fields_table,     &search_offset_table,
                                          &register_broker_table, &route_table};
    union {
        struct send_fields send;
        struct pull_fields pull;
        struct offset_fields offset;
        struct broker_fields broker;
        struct name_fields name;
    } out;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        struct fault why = {0};
        memset(&out, 0, sizeof out);
        enum err err = fields_read(tables[i], head, &out, &why);
        invariant(err == OK || err == ERR_MALFORMED);
        invariant((err == OK) == (why.text[0] == 0));
    }
}

#endif
