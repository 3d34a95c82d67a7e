/* hands.c - threads with a lane each, for calls that wait. */
#include "load/load_int.h"

#include <stdlib.h>

#define STACK_SIZE (256u << 10)

static void *hand_main(void *user)
{
    struct hand *hand = user;
    hand->hands->work(hand);
    atomic_store(&hand->ended, true);
    return NULL;
}

/* A thread that cannot be started is a lane without work: the run goes on with the others. */
static void hands_begin(struct part *part)
{
    struct hands *hands = (struct hands *)part;
    pthread_attr_t attr;
    bool small = pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, STACK_SIZE) == 0;
    for (unsigned i = 0; i < hands->n; i++) {
        struct hand *hand = &hands->all[i];
        hand->started = pthread_create(&hand->thread, small ? &attr : NULL, hand_main, hand) == 0;
        if (hand->started)
            continue;
        atomic_store(&hand->ended, true);
        room_enter(&hand->lane.tally.room);
        lane_failed(&hand->lane, UINT64_MAX, hands->run->begin_ns, "a thread cannot be started");
        room_leave(&hand->lane.tally.room);
    }
    (void)pthread_attr_destroy(&attr);
}

static bool hands_idle(struct part *part)
{
    struct hands *hands = (struct hands *)part;
    for (unsigned i = 0; i < hands->n; i++)
        if (!atomic_load(&hands->all[i].ended))
            return false;
    return true;
}

static void hands_close(struct part *part)
{
    struct hands *hands = (struct hands *)part;
    hands_clear(hands);
    hands->gone(hands);
}

static struct lane *hands_lane(struct part *part, size_t i)
{
    struct hands *hands = (struct hands *)part;
    return i < hands->n ? &hands->all[i].lane : NULL;
}

enum err hands_init(struct hands *hands, struct run *run, unsigned n, unsigned of)
{
    hands->part = (struct part){hands_begin, hands_idle, hands_close, hands_lane};
    hands->run = run;
    hands->all = calloc(n, sizeof *hands->all);
    if (!hands->all)
        return ERR_NO_MEMORY;
    hands->n = n;
    for (unsigned i = 0; i < n; i++) {
        hands->all[i].hands = hands;
        hands->all[i].number = i;
        if (lane_init(&hands->all[i].lane, run, i, of))
            return ERR_NO_MEMORY;
    }
    return OK;
}

void hands_clear(struct hands *hands)
{
    for (unsigned i = 0; i < hands->n; i++) {
        if (hands->all[i].started)
            (void)pthread_join(hands->all[i].thread, NULL);
        lane_clear(&hands->all[i].lane);
    }
    free(hands->all);
    hands->all = NULL;
    hands->n = 0;
}
