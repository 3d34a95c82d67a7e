/* chaos_force.c - what goes by time: connections are killed, queues move, the plan ends.
 *
 * A timer of the first loop. Queues move because a member comes and goes that reads nothing: a
 * *phantom*, a session without a connection. Its name stands before or behind all others, in turn,
 * so it is now the first queues that move, now the last. */
#include "door/remoting/chaos_int.h"

#include <stdio.h>
#include <stdlib.h>

#define TICK_MS        50
#define PHANTOM_MAX_MS 1000

enum { FORCED_KILLS, FORCED_REBALANCES };

static void connection_killed(struct chaos *chaos, const struct chaos_plan *plan, uint64_t nth)
{
    struct session *victim = NULL;
    room_enter(&chaos->room);
    if (chaos->n_sessions > 0) {
        victim = chaos->sessions[chaos_number(plan, CHAOS_KILLS, nth, chaos->n_sessions)];
        counted_hold(&victim->counted);
    }
    room_leave(&chaos->room);
    if (!victim)
        return;
    chaos_counted(chaos, CHAOS_KILLS);
    session_end(&victim->counted, "chaos: killed on purpose");
    counted_drop(&victim->counted);
}

static void phantom_leaves(struct chaos *chaos)
{
    if (!chaos->joined)
        return;
    chaos->joined = false;
    broker_session_gone(chaos->door->broker, &chaos->phantom->counted);
}

static void phantom_joins(struct chaos *chaos, const struct chaos_plan *plan, uint64_t nth,
                          uint64_t now_ns)
{
    char id[64];
    int n = snprintf(id, sizeof id, "%s@%llu", nth % 2 == 0 ? "!chaos" : "~chaos",
                     (unsigned long long)nth);
    struct client client = {.session = &chaos->phantom->counted,
                            .id = bytes_of(id, (size_t)n),
                            .addr = chaos->door->options.host};
    phantom_leaves(chaos);
    if (broker_consumer_joins(chaos->door->broker, &client, bytes_str(plan->group)))
        return; /* nobody is there whose queues could move */
    uint64_t stay_ms = 30000 / plan->rebalances;
    stay_ms = stay_ms < PHANTOM_MAX_MS ? stay_ms : PHANTOM_MAX_MS;
    chaos->leave_ns = now_ns + stay_ms * 1000000;
    chaos->joined = true;
    chaos_counted(chaos, CHAOS_REBALANCES);
}

/* Loop: the first. */
static void fired(void *user)
{
    struct chaos *chaos = user;
    struct chaos_plan plan;
    uint64_t number, now_ns = clock_ns(chaos->door->options.clock);
    bool on = chaos_now(chaos, &plan, &number);
    if (chaos->joined && (!on || now_ns >= chaos->leave_ns))
        phantom_leaves(chaos);
    if (!on)
        return;
    if (number != chaos->forced_plan) {
        chaos->forced_plan = number;
        chaos->forced[FORCED_KILLS] = chaos->forced[FORCED_REBALANCES] = 0;
    }
    room_enter(&chaos->room);
    uint64_t ms = (now_ns - chaos->began_ns) / 1000000;
    room_leave(&chaos->room);
    if (ms >= plan.life_ms) {
        if (chaos_end(chaos, number))
            log_event(chaos->door->log, LOG_WARN, "chaos: the plan's life is over, no more faults");
        phantom_leaves(chaos);
        return;
    }
    uint64_t *kills = &chaos->forced[FORCED_KILLS], *rebalances = &chaos->forced[FORCED_REBALANCES];
    while (*kills < chaos_due(plan.kills, ms))
        connection_killed(chaos, &plan, (*kills)++);
    if (plan.group[0] && *rebalances < chaos_due(plan.rebalances, ms))
        phantom_joins(chaos, &plan, (*rebalances)++, now_ns);
}

enum err chaos_force_open(struct chaos *chaos)
{
    struct seat *first = chaos->door->seats[0];
    chaos->phantom = session_without(chaos->door, first);
    if (!chaos->phantom)
        return ERR_NO_MEMORY;
    enum err err = timer_open(first->loop, fired, chaos, &chaos->timer);
    if (err)
        chaos_force_close(chaos);
    else
        timer_start(chaos->timer, TICK_MS, TICK_MS);
    return err;
}

void chaos_force_close(struct chaos *chaos)
{
    if (chaos->phantom)
        counted_drop(&chaos->phantom->counted);
    chaos->phantom = NULL;
}
