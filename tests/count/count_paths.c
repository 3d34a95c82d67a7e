/* count_paths.c - rounds of sends and pulls; every answer is looked at. */
#include "count.h"

#include "msg/msg.h"

#include <stdlib.h>

#define IN_A_PULL  32
#define ID_TEXT    33  /* of a message id, with a comma */
#define BATCH_BODY 128 /* bytes of a message in a batch */
#define BACKLOG    256 /* messages in each queue, for reading */
#define WARM       64  /* rounds of pulls; the store maps the files of queues that are often read */

struct rounds {
    struct house *house;
    struct load load;
    struct wire wires[CONNS_MAX];
    unsigned conns;
};

static void rounds_open(struct rounds *r, struct house *house, unsigned conns)
{
    *r = (struct rounds){.house = house, .load = {.size = 1024, .form = HEAD_JSON}, .conns = conns};
    for (unsigned i = 0; i < conns; i++)
        house_connect(house, &r->wires[i]);
}

static void rounds_close(struct rounds *r)
{
    for (unsigned i = 0; i < r->conns; i++)
        wire_close(&r->wires[i]);
    house_turn(r->house); /* the loop sees them go */
}

/* The next answer, which must be there. */
static void expect(struct wire *w, struct answer *a, const char *what)
{
    while (!wire_next(w, a))
        if (!wire_receive(w))
            wrong("%s: not answered in the same turn", what);
    if (a->head.code != RES_SUCCESS)
        wrong("%s: %d %.*s", what, a->head.code, BYTES_ARG(a->head.remark));
}

/* ---- sends ---- */

/* So many requests on each connection, of so many messages. */
static void expect_sends(struct rounds *r, unsigned flight, unsigned messages)
{
    for (unsigned conn = 0; conn < r->conns; conn++)
        for (unsigned i = 0; i < flight; i++) {
            struct answer a;
            expect(&r->wires[conn], &a, "a send");
            size_t ids = head_field(&a.head, BYTES("msgId")).len;
            if (answer_opaque(&a) != i || ids != messages * ID_TEXT - 1)
                wrong("a send's answer is another's, or has no id");
        }
}

void count_sends(struct house *house, const struct sends *how, unsigned messages)
{
    struct rounds r;
    struct stamp stamp;
    unsigned flight = how->batch ? 1 : how->flight, in_one = how->flight / flight;
    rounds_open(&r, house, how->conns);
    if (how->batch)
        r.load.size = BATCH_BODY;
    stamp_make(&stamp, &r.load,
               &(struct mould){.topic = COUNT_TOPIC, .batch = how->batch ? in_one : 0});
    uint8_t *out = malloc(stamp.len * flight);
    must(out, "memory");
    unsigned sent = 0;
    while (sent < messages) {
        for (unsigned conn = 0; conn < how->conns; conn++) {
            for (unsigned i = 0; i < flight; i++, sent += in_one)
                stamp_put(&stamp, out + i * stamp.len, i, sent / in_one % QUEUES, sent);
            wire_write(&r.wires[conn], bytes_of(out, stamp.len * flight));
        }
        house_turn(house);
        if (how->sync)
            house_flush(house);
        expect_sends(&r, flight, in_one);
    }
    free(out);
    stamp_clear(&stamp);
    rounds_close(&r);
}

/* ---- pulls ---- */

static void subscribe(struct rounds *r)
{
    uint8_t frame[4096];
    for (unsigned i = 0; i < r->conns; i++) {
        char client[] = "127.0.0.1@a";
        struct answer a;
        client[sizeof client - 2] = (char)('a' + i);
        size_t len =
            heartbeat_frame(frame, sizeof frame, &r->load, client, COUNT_GROUP, COUNT_TOPIC);
        wire_write(&r->wires[i], bytes_of(frame, len));
        house_turn(r->house);
        do /* the others of the group are told of it as well */
            expect(&r->wires[i], &a, "a heartbeat");
        while (!(a.head.flag & FLAG_RESPONSE));
    }
    for (unsigned i = 0; i < r->conns; i++)
        while (wire_receive(&r->wires[i])) {
            struct answer notice;
            while (wire_next(&r->wires[i], &notice))
                ;
        }
}

static void check_batch(struct bytes body, int64_t offset, int n)
{
    for (int i = 0; i < n; i++) {
        struct record record;
        if (record_decode(body, &record) || record.queue_offset != offset + i)
            wrong("a pull's answer has not the messages that were asked for");
        body = bytes_from(body, record.size);
    }
    if (body.len > 0)
        wrong("a pull's answer has more messages than were asked for");
}

static void write_pulls(struct rounds *r, int64_t offset)
{
    uint8_t frame[2048];
    for (int queue = 0; queue < QUEUES; queue++) {
        size_t len =
            pull_frame(frame, sizeof frame, &r->load, COUNT_GROUP, COUNT_TOPIC, queue, offset);
        wire_write(&r->wires[queue], bytes_of(frame, len));
    }
}

static void expect_pulls(struct rounds *r, int64_t offset, int n)
{
    for (int queue = 0; queue < QUEUES; queue++) {
        struct answer a;
        expect(&r->wires[queue], &a, "a pull");
        check_batch(a.body, offset, n);
    }
}

void count_pulls(struct house *house, unsigned messages)
{
    count_sends(house, &(struct sends){.conns = 8, .flight = 32}, QUEUES * BACKLOG);
    struct rounds r;
    rounds_open(&r, house, QUEUES);
    subscribe(&r);
    int64_t offset = 0;
    messages += WARM * QUEUES * IN_A_PULL;
    for (unsigned got = 0; got < messages; got += QUEUES * IN_A_PULL) {
        write_pulls(&r, offset);
        house_turn(house);
        expect_pulls(&r, offset, IN_A_PULL);
        offset = (offset + IN_A_PULL) % BACKLOG;
    }
    rounds_close(&r);
}

/* ---- messages to those who wait for them ---- */

void count_waits(struct house *house, unsigned messages)
{
    struct rounds consumers, producer;
    struct stamp stamp;
    count_sends(house, &(struct sends){.conns = 1, .flight = QUEUES}, QUEUES); /* the topic */
    rounds_open(&consumers, house, QUEUES);
    rounds_open(&producer, house, 1);
    subscribe(&consumers);
    stamp_make(&stamp, &producer.load, &(struct mould){.topic = COUNT_TOPIC});
    uint8_t *out = malloc(stamp.len * QUEUES);
    must(out, "memory");
    for (unsigned sent = 0; sent < messages; sent += QUEUES) {
        int64_t offset = 1 + sent / QUEUES;
        write_pulls(&consumers, offset);
        house_turn(house); /* there is nothing yet */
        for (unsigned i = 0; i < QUEUES; i++)
            stamp_put(&stamp, out + i * stamp.len, i, i, sent + i);
        wire_write(&producer.wires[0], bytes_of(out, stamp.len * QUEUES));
        house_turn(house);
        expect_sends(&producer, QUEUES, 1);
        expect_pulls(&consumers, offset, 1);
    }
    free(out);
    stamp_clear(&stamp);
    rounds_close(&producer);
    rounds_close(&consumers);
}
