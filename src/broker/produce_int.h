/* produce_int.h - the desk, shared by desk.c (preparing) and produce.c (placing and storing). */
#ifndef BROKER_PRODUCE_INT_H
#define BROKER_PRODUCE_INT_H

#include "broker/broker_int.h"

struct desk {
    struct broker *broker;
    struct id_maker ids;
    int64_t now_ms;
    struct draft *drafts;  /* of this turn, n of them */
    struct stored *stored; /* their answers */
    size_t n, cap;
    uint8_t *text; /* their properties */
    size_t text_cap;
    struct wr w; /* the free rest of it */
};

/* Fills the desk with the messages of all requests that are not refused yet; first and count of a
 * request say which. Refuses what the message itself makes impossible. No key held. */
void desk_prepare(struct desk *desk, struct produce *requests, size_t n);

#endif
