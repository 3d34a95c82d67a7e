/* batch.c - batches, each in a call that waits for its answer: a thread for each place. */
#include "load/load_int.h"

#include <stdlib.h>

struct batches {
    struct hands hands;
    struct omq_client **clients;
    struct omq_producer **producers;
};

static void batch_send(struct hand *hand, struct omq_message *messages, uint8_t *bodies,
                       uint64_t due_ns)
{
    struct batches *all = (struct batches *)hand->hands;
    struct run *run = hand->hands->run;
    const struct load_options *o = &run->options;
    struct lane *lane = &hand->lane;
    bool e2e = o->kind == LOAD_E2E;
    struct omq_error why;
    size_t n_sent = 0;
    uint64_t number = atomic_fetch_add(&run->numbers, o->batch);
    for (unsigned i = 0; i < o->batch; i++) {
        messages[i].topic = run_topic(run, number / o->batch);
        if (e2e)
            stamp_put(bodies + (size_t)i * o->size, &(struct stamp){run->id, due_ns, number + i});
    }
    uint64_t begin = run_ns(run);
    int code = omq_send_batch(all->producers[hand->number % o->connections], messages, o->batch,
                              NULL, &n_sent, &why);
    uint64_t now = run_ns(run);
    n_sent = code ? n_sent : o->batch;
    room_enter(&lane->tally.room);
    lane_late(lane, due_ns, begin);
    if (code)
        lane_failed(lane, due_ns, now, why.text);
    else
        lane_done(lane, e2e ? LOAD_OTHER : LOAD_TOOK, due_ns, now);
    if (e2e)
        lane_sent(lane, due_ns, n_sent);
    else
        lane_messages(lane, due_ns, now, n_sent);
    atomic_fetch_add(&run->stored, n_sent);
    room_leave(&lane->tally.room);
}

static void batch_work(struct hand *hand)
{
    const struct load_options *o = &hand->hands->run->options;
    struct omq_message *messages = calloc(o->batch, sizeof *messages);
    uint8_t *bodies = malloc((size_t)o->batch * o->size + LOAD_STAMP_SIZE);
    uint64_t due_ns;
    if (!messages || !bodies) {
        room_enter(&hand->lane.tally.room);
        lane_failed(&hand->lane, UINT64_MAX, run_ns(hand->hands->run), "no memory for a batch");
        room_leave(&hand->lane.tally.room);
    } else {
        body_fill(bodies, (size_t)o->batch * o->size);
        for (unsigned i = 0; i < o->batch; i++)
            messages[i] = (struct omq_message){
                .body = bodies + (size_t)i * o->size, .body_size = o->size, .tag = "bench"};
        while (lane_wait(&hand->lane, &due_ns))
            batch_send(hand, messages, bodies, due_ns);
    }
    free(messages);
    free(bodies);
}

static void batches_gone(struct hands *hands)
{
    struct batches *all = (struct batches *)hands;
    for (unsigned i = 0; all->clients && i < hands->run->options.connections; i++)
        omq_client_close(all->clients[i]);
    free(all->clients);
    free(all->producers);
    free(all);
}

enum err batches_open(struct run *run, struct part **out, struct fault *why)
{
    const struct load_options *o = &run->options;
    struct batches *all = calloc(1, sizeof *all);
    if (!all)
        return ERR_NO_MEMORY;
    unsigned n = o->connections * o->in_flight;
    all->hands.work = batch_work;
    all->hands.gone = batches_gone;
    all->clients = calloc(o->connections, sizeof(struct omq_client *));
    all->producers = calloc(o->connections, sizeof(struct omq_producer *));
    enum err err = all->clients && all->producers ? OK : ERR_NO_MEMORY;
    if (!err)
        err = hands_init(&all->hands, run, n, n);
    for (unsigned i = 0; !err && i < o->connections; i++) {
        err = client_make(o, &all->clients[i], why);
        if (!err)
            err = producer_make(run, all->clients[i], &all->producers[i], why);
    }
    if (err) {
        all->hands.run = run;
        hands_clear(&all->hands);
        batches_gone(&all->hands);
        return err;
    }
    *out = &all->hands.part;
    return OK;
}
