/* chaos_line.c - what comes later: requests that are held up, and copies of messages.
 *
 * Each seat has a line, by time, and a timer for its first. A request goes on as if it had come
 * just now; those of one connection in the order in which they came. If its connection is gone, so
 * is it, as in a network. A copy needs nobody: it is stored whoever is still there. */
#include "door/remoting/chaos_int.h"

#include <stdlib.h>

struct late_thing {
    struct link link;
    uint64_t due_ns;
    size_t bytes;
    struct session *session; /* of a request, counted; NULL: it is a copy */
    struct bytes frame;
    struct produce produce;
    uint8_t text[];
};

struct chaos_line {
    struct seat *seat;
    struct list things; /* by time */
    struct timer *timer;
};

static void thing_free(struct chaos *chaos, struct late_thing *thing)
{
    if (thing->session)
        counted_drop(&thing->session->counted);
    atomic_fetch_sub(&chaos->line_bytes, thing->bytes);
    atomic_fetch_sub(&chaos->waiting, 1);
    free(thing);
}

/* The whole frame is read anew. */
static void request_goes_on(struct late_thing *thing)
{
    struct session *session = thing->session;
    session->chaos_waiting--;
    if (session->conn && conn_is_open(session->conn))
        session_again(session, thing->frame);
}

static void copy_stored(struct chaos *chaos, struct seat *seat, struct late_thing *thing)
{
    uint64_t end = 0;
    struct produce *p = &thing->produce;
    broker_produce(chaos->door->broker, sends_desk(seat->sends), p, 1, &end);
    if (p->err || p->known > 0)
        atomic_fetch_add(&chaos->left_out, 1);
    if (p->err)
        log_event(chaos->door->log, LOG_WARN, "chaos: no second copy topic=%s reason=%s",
                  LOG_QUOTE(p->topic), LOG_QUOTE(bytes_str(fault_remark(p->err, &p->why))));
    seat->undispatched |= end > 0;
}

static void timer_set(struct chaos_line *line)
{
    struct link *k = list_first(&line->things);
    if (!k)
        return;
    uint64_t due_ns = list_entry(k, struct late_thing, link)->due_ns;
    uint64_t now_ns = clock_ns(line->seat->door->options.clock);
    timer_start(line->timer, due_ns > now_ns ? (due_ns - now_ns + 999999) / 1000000 : 0, 0);
}

/* Loop: the seat's. Only what was there: a request may put another one into the line. */
static void fired(void *user)
{
    struct chaos_line *line = user;
    struct chaos *chaos = line->seat->door->chaos;
    uint64_t now_ns = clock_ns(line->seat->door->options.clock);
    struct list due;
    list_init(&due);
    for (struct link *k; (k = list_first(&line->things));) {
        if (list_entry(k, struct late_thing, link)->due_ns > now_ns)
            break;
        list_remove(k);
        list_add_tail(&due, k);
    }
    for (struct link *k; (k = list_pop(&due));) {
        struct late_thing *thing = list_entry(k, struct late_thing, link);
        if (thing->session)
            request_goes_on(thing);
        else
            copy_stored(chaos, line->seat, thing);
        thing_free(chaos, thing);
    }
    seat_dispatch(line->seat);
    timer_set(line);
}

static struct chaos_line *line_of(struct seat *seat)
{
    if (seat->chaos)
        return seat->chaos;
    struct chaos_line *line = calloc(1, sizeof *line);
    if (!line)
        return NULL;
    line->seat = seat;
    list_init(&line->things);
    if (timer_open(seat->loop, fired, line, &line->timer)) {
        free(line);
        return NULL;
    }
    return seat->chaos = line;
}

/* NULL: no room. */
static struct late_thing *thing_make(struct chaos *chaos, struct seat *seat, size_t text)
{
    struct late_thing *thing = NULL;
    size_t bytes = sizeof *thing + text;
    if (atomic_fetch_add(&chaos->line_bytes, bytes) + bytes <= CHAOS_LINE_MAX && line_of(seat))
        thing = calloc(1, bytes);
    if (!thing) {
        atomic_fetch_sub(&chaos->line_bytes, bytes);
        atomic_fetch_add(&chaos->left_out, 1);
        return NULL;
    }
    thing->bytes = bytes;
    atomic_fetch_add(&chaos->waiting, 1);
    return thing;
}

static void line_add(struct chaos_line *line, struct late_thing *thing)
{
    struct list later;
    list_init(&later);
    struct link *k = list_first(&line->things);
    bool is_first = !k || list_entry(k, struct late_thing, link)->due_ns > thing->due_ns;
    list_each(each, &line->things)
        if (list_entry(each, struct late_thing, link)->due_ns > thing->due_ns) {
            list_remove(each);
            list_add_tail(&later, each);
        }
    list_add_tail(&line->things, &thing->link);
    list_append_all(&line->things, &later);
    if (is_first)
        timer_set(line);
}

bool chaos_wait(struct chaos *chaos, struct session *session, const struct frame *frame,
                uint64_t delay_ms)
{
    struct seat *seat = session->seat;
    struct late_thing *thing = thing_make(chaos, seat, frame->size);
    if (!thing)
        return false;
    uint8_t *room = thing->text;
    /* Before the header are its length and that of the frame. */
    thing->frame = keep_text(&room, bytes_of(frame->head.at - 8, frame->size));
    thing->due_ns = clock_ns(chaos->door->options.clock) + delay_ms * 1000000;
    if (thing->due_ns < session->chaos_due_ns)
        thing->due_ns = session->chaos_due_ns;
    session->chaos_due_ns = thing->due_ns;
    session->chaos_waiting++;
    thing->session = session;
    counted_hold(&session->counted);
    line_add(seat->chaos, thing);
    return true;
}

bool chaos_copy(struct chaos *chaos, struct seat *seat, const struct produce *p, uint64_t delay_ms)
{
    struct late_thing *thing =
        thing_make(chaos, seat,
                   p->group.len + p->topic.len + p->default_topic.len + p->body.len + p->props.len);
    if (!thing)
        return false;
    uint8_t *room = thing->text;
    thing->produce = *p;
    thing->produce.group = keep_text(&room, p->group);
    thing->produce.topic = keep_text(&room, p->topic);
    thing->produce.default_topic = keep_text(&room, p->default_topic);
    thing->produce.body = keep_text(&room, p->body);
    thing->produce.props = keep_text(&room, p->props);
    thing->due_ns = clock_ns(chaos->door->options.clock) + delay_ms * 1000000;
    line_add(seat->chaos, thing);
    return true;
}

void chaos_seat_close(struct seat *seat)
{
    struct chaos_line *line = seat->chaos;
    if (!line)
        return;
    for (struct link *k; (k = list_pop(&line->things));)
        thing_free(seat->door->chaos, list_entry(k, struct late_thing, link));
    free(line);
}
