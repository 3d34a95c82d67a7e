/* pick.c - the queue of a message. */
#include "client/parts_int.h"
#include "msg/msg.h"

void pick_init(struct pick *p, struct dice *dice)
{
    atomic_init(&p->turn, (uint32_t)dice_next(dice));
}

/* One look along the row. */
struct row {
    const struct omq_queue *queues;
    size_t n, start;
    const char *last;
    const struct faults *faults;
    int64_t now_ms;
};

enum wish { WISH_ANY, WISH_QUICK, WISH_REACHABLE };

static bool fits(const struct row *row, const char *broker, enum wish wish)
{
    if (row->last && strcmp(broker, row->last) == 0)
        return false;
    switch (wish) {
    case WISH_QUICK:
        return !faults_slow(row->faults, broker, row->now_ms);
    case WISH_REACHABLE:
        return !faults_unreachable(row->faults, broker);
    default:
        return true;
    }
}

/* How far it is to the first queue that fits; n: there is none. */
static size_t steps_to(const struct row *row, enum wish wish)
{
    for (size_t steps = 0; steps < row->n; steps++)
        if (fits(row, row->queues[(row->start + steps) % row->n].broker, wish))
            return steps;
    return row->n;
}

/* One turn is taken for the look, and what was passed over is passed over for all threads: each of
 * them still sees every queue, whatever the others do meanwhile. */
enum err pick_next(struct pick *p, const struct omq_queue *queues, size_t n, const char *last,
                   const struct faults *faults, int64_t now_ms, size_t *out)
{
    if (n == 0)
        return ERR_NOT_FOUND;
    uint32_t turn = atomic_fetch_add_explicit(&p->turn, 1, memory_order_relaxed);
    const struct row row = {queues, n, turn % n, last, faults, now_ms};
    size_t steps = steps_to(&row, faults ? WISH_QUICK : WISH_ANY);
    if (steps == n && faults)
        steps = steps_to(&row, WISH_REACHABLE);
    if (steps == n)
        steps = 0; /* then the next in the row, whoever it is */
    if (steps > 0)
        atomic_fetch_add_explicit(&p->turn, (uint32_t)steps, memory_order_relaxed);
    *out = (row.start + steps) % n;
    return OK;
}

size_t pick_by_key(struct bytes key, size_t n)
{
    invariant(n > 0 && n <= INT32_MAX);
    int64_t left =
        tags_code(key) % (int64_t)n; /* Java's String.hashCode; % keeps its sign there too */
    return (size_t)(left < 0 ? -left : left);
}
