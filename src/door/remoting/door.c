/* door.c - the door itself: seats for the loops, contexts for the listeners. */
#include "door/remoting/door_int.h"

#include <stdlib.h>

static void seat_close(struct seat *seat)
{
    if (!seat)
        return;
    sends_close(seat->sends);
    ends_close(seat->ends);
    desk_close(seat->replies);
    mark_desk_close(seat->marks);
    acks_close(seat->acks);
    chaos_seat_close(seat);
    ledger_asks_close(seat->ledger);
    arena_clear(&seat->arena);
    spares_clear(&seat->spares);
    free(seat);
}

void seat_dispatch(struct seat *seat)
{
    if (!seat->undispatched)
        return;
    seat->undispatched = false;
    broker_dispatch_turn(seat->door->broker);
}

void seat_catch_up(struct seat *seat)
{
    seat->undispatched = false;
    if (seat->door->broker)
        broker_catch_up(seat->door->broker);
}

/* Loop: the seat's, at the end of a turn. */
static void seat_turn_end(void *user)
{
    seat_dispatch(user);
}

/* Loop: the seat's, when what was read goes away. */
static void seat_read_end(void *user)
{
    seat_settle(user);
}

static enum err seat_open(struct door *door, struct loop *loop, struct seat **out)
{
    struct seat *seat = calloc(1, sizeof *seat);
    if (!seat)
        return ERR_NO_MEMORY;
    seat->loop = loop;
    seat->door = door;
    arena_init(&seat->arena, REQUEST_MEMORY_MAX);
    spares_init(&seat->spares, SPARES_KEPT_MAX);
    asks_seat_init(seat);
    enum err err = door->broker ? sends_open(door, &seat->sends) : OK;
    if (err) {
        seat_close(seat);
        return err;
    }
    if (door->broker)
        loop_at_turn_end(loop, seat_turn_end, seat);
    loop_at_settling(loop, seat_read_end, seat);
    *out = seat;
    return OK;
}

enum err door_open(const struct door_options *options, struct door **out)
{
    struct door *door = calloc(1, sizeof *door);
    if (!door)
        return ERR_NO_MEMORY;
    door->options = *options;
    door->names = options->names;
    door->broker = options->broker;
    door->log = options->log;
    for (int side = 0; side < DOOR_SIDES; side++)
        door->contexts[side] = (struct door_context){door, (enum door_side)side};

    enum err err = OK;
    door->seats = calloc(options->n_loops, sizeof(struct seat *));
    if (!door->seats)
        err = ERR_NO_MEMORY;
    for (size_t i = 0; !err && i < options->n_loops; i++) {
        err = seat_open(door, options->loops[i], &door->seats[i]);
        door->n_seats += !err;
    }
    if (!err && options->chaos && door->broker)
        err = chaos_open(door, &door->chaos);
    if (err) {
        door_close(door);
        return err;
    }
    *out = door;
    return OK;
}

void door_tune(struct door *door, const struct door_options *now)
{
    struct door_options *o = &door->options;
    o->fast_failure = now->fast_failure;
    o->max_sends_waiting = now->max_sends_waiting;
    o->max_send_wait_ms = now->max_send_wait_ms;
    o->store_replies = now->store_replies;
    o->max_message_size = now->max_message_size;
}

void door_stop(struct door *door)
{
    if (door)
        atomic_store(&door->closing, true);
}

void door_close(struct door *door)
{
    if (!door)
        return;
    for (size_t i = 0; i < door->n_seats; i++)
        seat_close(door->seats[i]);
    chaos_close(door->chaos);
    free(door->seats);
    free(door);
}

void *door_context(struct door *door, enum door_side side)
{
    return &door->contexts[side];
}
