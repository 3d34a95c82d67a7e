/* poprevive.c - what becomes of messages that were handed out and not acknowledged in time.
 *
 * A turn takes marks whose time is up, reads their messages, and stores a copy of each in the
 * group's retry topic for this topic, one try older: %RETRY%group_topic (or, by enableRetryTopicV2,
 * %RETRY%group+topic; what is in either stays in it), where the next pop finds
 * it. When the tries are used up (retryMaxTimes) the copy goes to %DLQ%group instead; Apache leaves
 * that to its clients, of which some forget the message then. The acknowledgement of what was
 * replaced is written behind the copies, with the same write. If a crash lets only the copies
 * through, the mark is there again after the start, and copies that the index knows are not made
 * again.
 *
 * Nobody else touches a mark while it is `reviving`; one whose acknowledgement is being written
 * just now is left for the next turn.
 */
#include "broker/pop_int.h"
#include "broker/produce_int.h"

#include <stdlib.h>

#define MARKS             64
#define MESSAGES          256
#define BATCH_BYTES       (4u << 20)
#define ROUNDS            32
#define LOOK_MS           100
#define AGAIN_MS          20 /* when somebody is at a mark just now */
#define PAUSE_MS          1000
#define STUCK_MS          60000
#define PROPS_MORE        (256 + 2 * NAME_MAX_ANY)
#define FOREIGN_MS        2000 /* acknowledgements of others are meant for up to a second later */
#define FOREIGN_LAST      5000 /* … and when none has come for so long there are no more */
#define PROP_ORIGIN_GROUP BYTES("ORIGIN_GROUP")
#define PROP_1ST_POP      BYTES("1ST_POP_TIME")

enum fate { FATE_COPY, FATE_DEAD, FATE_KNOWN, FATE_GONE, FATE_STUCK };

/* One message of a mark. */
struct revival {
    struct mark *mark;
    uint32_t bit;
    struct slice slice;
    struct record record;
    enum fate fate;
    struct buf props;
    uint8_t topic[NAME_MAX_ANY];
    size_t topic_len;
};

struct pop_turn {
    struct mark *marks[MARKS];
    size_t n_marks;
    struct revival each[MESSAGES];
    size_t n;
    struct draft drafts[MESSAGES + MARKS];
    struct stored stored[MESSAGES + MARKS];
    struct mark_desk *desk;
    uint64_t retry_ns; /* after trouble */
    enum err trouble;
};

void pop_turn_free(struct pop_turn *turn)
{
    if (!turn)
        return;
    for (size_t i = 0; i < MESSAGES; i++)
        buf_clear(&turn->each[i].props);
    mark_desk_close(turn->desk);
    free(turn);
}

static struct pop_turn *turn_make(void)
{
    struct pop_turn *turn = calloc(1, sizeof *turn);
    if (!turn)
        return NULL;
    for (size_t i = 0; i < MESSAGES; i++)
        turn->each[i].props = buf_upto(RECORD_PROPS_MAX);
    if (mark_desk_open(&turn->desk)) {
        free(turn);
        return NULL;
    }
    return turn;
}

/* ---- which marks; room: core ---- */

/* When it may be revived; now or before: at once. */
static int64_t mark_ripens(struct broker *b, const struct mark *mark, int64_t now_ms)
{
    if (!mark->written || mark->writing)
        return now_ms + AGAIN_MS;
    if (!mark->foreign)
        return now_ms;
    const struct revive_queue *r = &b->pop->revive[mark->revive_id];
    uint64_t silent_ms = (clock_ns(b->clock) - r->foreign_ns) / 1000000;
    int64_t due_ms = mark->key.pop_ms + mark->invisible_ms;
    bool seen = r->foreign_ms - due_ms > FOREIGN_MS;
    return (seen || silent_ms >= FOREIGN_LAST) && now_ms - due_ms >= FOREIGN_MS ? now_ms
                                                                                : now_ms + LOOK_MS;
}

static void marks_take(struct broker *b, struct pop_turn *turn, struct service_turn *out)
{
    room_held(&b->room);
    struct pop_room *p = b->pop;
    int64_t now_ms = clock_ms(b->clock);
    size_t messages = 0;
    turn->n_marks = 0;
    while (p->n_heap > 0 && turn->n_marks < MARKS && messages + POP_MAX <= MESSAGES) {
        struct mark *mark = p->heap[0];
        if (mark->revive_ms > now_ms) {
            int64_t left = mark->revive_ms - now_ms;
            out->next_ms = left < out->next_ms ? (int)left : out->next_ms;
            return;
        }
        int64_t ripe_ms = mark_ripens(b, mark, now_ms);
        mark_retime(b, mark, ripe_ms > now_ms ? ripe_ms : INT64_MAX);
        if (ripe_ms > now_ms)
            continue;
        mark->reviving = true;
        messages += mark->n;
        turn->marks[turn->n_marks++] = mark;
    }
}

/* ---- their messages; no key held ---- */

static void message_read(struct broker *b, struct revival *r, int64_t offset)
{
    struct read_result read = {.status = READ_EMPTY};
    if (!r->mark->queue->queue)
        r->mark->queue->queue =
            store_queue_find(b->store, r->mark->queue->topic, r->mark->queue->queue_id);
    if (r->mark->queue->queue)
        store_read(b->store, r->mark->queue->queue,
                   &(struct read_request){.offset = offset, .max_count = 1}, &read);
    r->fate = FATE_GONE;
    if (read.status == READ_NONE_MATCHED && read.next == offset)
        r->fate = FATE_STUCK; /* it is there, and cannot be read just now */
    if (read.status != READ_FOUND)
        return;
    r->slice = read.slices[0];
    for (size_t i = 1; i < read.n_slices; i++)
        counted_drop(read.slices[i].owner);
    if (record_decode(r->slice.bytes, &r->record) || r->record.queue_offset != offset)
        return;
    r->fate = r->record.body.len > b->set.max_message_size ? FATE_STUCK : FATE_COPY;
}

static void messages_read(struct broker *b, struct pop_turn *turn)
{
    turn->n = 0;
    for (size_t m = 0; m < turn->n_marks; m++) {
        struct mark *mark = turn->marks[m];
        for (uint32_t i = 0; i < mark->n; i++) {
            if (mark->acked & 1u << i)
                continue;
            struct revival *r = &turn->each[turn->n++];
            r->mark = mark;
            r->bit = 1u << i;
            r->slice = (struct slice){0};
            message_read(b, r, mark->key.start + mark->diffs[i]);
        }
    }
}

/* ---- where they go; room: core ---- */

/* The topic that the group subscribes to. */
static struct bytes plain_topic(const struct pop_queue *q)
{
    size_t prefix = RETRY_PREFIX.len + q->group.len + 1;
    return bytes_start(q->topic, RETRY_PREFIX) && q->topic.len > prefix
               ? bytes_from(q->topic, prefix)
               : q->topic;
}

static enum err retry_topic(struct broker *b, struct revival *r, struct after *after,
                            struct fault *why)
{
    struct bytes name = pop_retry_name(r->topic, r->mark->queue->topic, r->mark->queue->group,
                                       b->set.pop_retry_v2 ? POP_RETRY_V2 : POP_RETRY_V1);
    struct topic *topic = topic_find(b, name);
    r->topic_len = name.len;
    if (name.at != r->topic)
        memcpy(r->topic, name.at, name.len);
    struct topic_settings set = {.name = bytes_of(r->topic, name.len),
                                 .read_queues = 1,
                                 .write_queues = 1,
                                 .perm = PERM_READ | PERM_WRITE};
    if (topic || name.len == 0)
        return topic ? OK : ERR_TOO_BIG;
    return topic_create(b, &set, after, &topic, why);
}

static enum err dead_topic(struct broker *b, struct revival *r, struct after *after,
                           struct fault *why)
{
    struct topic *topic;
    enum err err = topic_for_dead(b, r->mark->queue->group, after, &topic, why);
    if (err)
        return err;
    r->topic_len = topic->set.name.len;
    memcpy(r->topic, topic->set.name.at, r->topic_len);
    return OK;
}

static void message_place(struct broker *b, struct revival *r, struct after *after,
                          struct service_turn *out)
{
    room_held(&b->room);
    const struct pop_queue *q = r->mark->queue;
    const struct group *group = group_find(b, q->group);
    if (!group || (!topic_find(b, plain_topic(q)) && !topic_find(b, q->topic)))
        r->fate = FATE_GONE; /* nobody will ever ask for it */
    if (r->fate != FATE_COPY)
        return;
    if (r->record.reconsume_times >= group->set.retry_max)
        r->fate = FATE_DEAD;
    enum err err = r->fate == FATE_DEAD ? dead_topic(b, r, after, &out->why)
                                        : retry_topic(b, r, after, &out->why);
    if (err) {
        r->fate = FATE_STUCK;
        out->err = err;
    }
}

/* ---- the copies; no key held ---- */

static void props_make(struct revival *r)
{
    const struct record *record = &r->record;
    struct bytes value;
    r->props.len = 0;
    r->props.err = OK;
    size_t room = record->props.len + PROPS_MORE + plain_topic(r->mark->queue).len;
    uint8_t *space = buf_space(&r->props, room < RECORD_PROPS_MAX ? room : RECORD_PROPS_MAX);
    if (!space)
        return;
    struct wr w = wr_over(space, room < RECORD_PROPS_MAX ? room : RECORD_PROPS_MAX);
    wr_bytes_of(&w, record->props);
    if (record->reconsume_times == 0 || !props_get(record->props, PROP_1ST_POP, &value))
        props_add_int(&w, PROP_1ST_POP, r->mark->key.pop_ms);
    if (!props_get(record->props, PROP_ORIGIN_GROUP, &value))
        props_add(&w, PROP_ORIGIN_GROUP, r->mark->queue->group);
    if (r->fate == FATE_DEAD) {
        props_add(&w, PROP_RETRY_TOPIC, plain_topic(r->mark->queue));
        props_add(&w, PROP_DLQ_TOPIC, plain_topic(r->mark->queue));
        if (props_get(record->props, PROP_UNIQ_KEY, &value))
            props_add(&w, PROP_DLQ_ID, value);
    }
    r->props.len = wr_len(&w);
    if (w.full)
        r->props.err = ERR_TOO_BIG; /* as many as there may be already: they stay as they are */
}

static void copy_make(struct broker *b, struct revival *r, struct draft *out)
{
    copy_draft(b, &r->record, bytes_of(r->topic, r->topic_len), 0, out);
    props_make(r);
    if (!r->props.err)
        out->props = buf_bytes(&r->props);
    int32_t tries = r->record.reconsume_times;
    out->reconsume_times = tries < INT32_MAX ? tries + 1 : tries;
    out->born_host = out->store_host = b->set.host;
    if (!out->queue)
        r->fate = FATE_STUCK;
    else if (r->mark->restored && copy_known(b, &r->record, out))
        r->fate = FATE_KNOWN;
}

/* Copies first, then what they replace. */
static enum err copies_write(struct broker *b, struct pop_turn *turn, uint64_t *end)
{
    size_t n = 0;
    enum err err = OK;
    turn->desk->n = 0;
    for (size_t i = 0; i < turn->n; i++) {
        struct revival *r = &turn->each[i];
        if (r->fate != FATE_COPY && r->fate != FATE_DEAD)
            continue;
        copy_make(b, r, &turn->drafts[n]);
        n += r->fate == FATE_COPY || r->fate == FATE_DEAD;
    }
    for (size_t m = 0; !err && m < turn->n_marks; m++) {
        uint32_t bits = 0;
        for (size_t i = 0; i < turn->n; i++)
            if (turn->each[i].mark == turn->marks[m] && turn->each[i].fate != FATE_STUCK)
                bits |= turn->each[i].bit;
        if (bits)
            err = desk_add_acks(b, turn->desk, turn->marks[m], bits);
    }
    if (err || n + turn->desk->n == 0)
        return err;
    memcpy(turn->drafts + n, turn->desk->drafts, turn->desk->n * sizeof *turn->drafts);
    err = store_append(b->store, turn->drafts, n + turn->desk->n, turn->stored, end);
    if (!err)
        memcpy(turn->desk->stored, turn->stored + n, turn->desk->n * sizeof *turn->stored);
    return err;
}

/* ---- the end of it; room: core ---- */

static void message_done(struct broker *b, struct revival *r, struct service_turn *out)
{
    switch (r->fate) {
    case FATE_DEAD:
        b->pop->dead++;
        out->done++;
        break;
    case FATE_COPY:
        b->pop->revived++;
        out->done++;
        break;
    case FATE_KNOWN:
        out->known++;
        break;
    case FATE_GONE:
        out->skipped++;
        break;
    case FATE_STUCK:
        return;
    }
    r->mark->moved |= r->bit;      /* whoever acknowledges it now is late */
    mark_done(b, r->mark, r->bit); /* it stays while it is `reviving` */
}

static void marks_done(struct broker *b, struct pop_turn *turn, enum err err,
                       struct service_turn *out)
{
    room_held(&b->room);
    int64_t now_ms = clock_ms(b->clock);
    for (size_t i = 0; !err && i < turn->n; i++)
        message_done(b, &turn->each[i], out);
    for (size_t m = 0; m < turn->n_marks; m++) {
        struct mark *mark = turn->marks[m];
        mark->reviving = false;
        mark_retime(b, mark, now_ms + (err ? PAUSE_MS : STUCK_MS));
        mark_done(b, mark, 0);
    }
}

static void pause_for(struct broker *b, struct pop_turn *turn, enum err err,
                      struct service_turn *out)
{
    struct fault state = {0};
    (void)store_state(b->store, &state);
    turn->trouble = out->err = err;
    turn->retry_ns = clock_ns(b->clock) + PAUSE_MS * UINT64_C(1000000);
    (void)fault_set(&out->why, err, "popped messages: %s",
                    state.text[0] ? state.text : err_text(err));
}

/* True: there may be more. */
static bool batch_revive(struct broker *b, struct pop_turn *turn, struct service_turn *out)
{
    room_enter(&b->room);
    marks_take(b, turn, out);
    room_leave(&b->room);
    if (turn->n_marks == 0)
        return false;
    messages_read(b, turn);

    struct after after;
    after_init(&after);
    room_enter(&b->room);
    for (size_t i = 0; i < turn->n; i++)
        message_place(b, &turn->each[i], &after, out);
    room_leave(&b->room);
    after_run(b, &after);

    uint64_t end = 0;
    enum err err = copies_write(b, turn, &end);
    room_enter(&b->room);
    if (!err)
        desk_wrote(b, turn->desk, end);
    marks_done(b, turn, err, out);
    room_leave(&b->room);
    for (size_t i = 0; i < turn->n; i++)
        counted_drop(turn->each[i].slice.owner);
    if (err)
        pause_for(b, turn, err, out);
    return !err;
}

void broker_pop_turn(struct broker *b, struct service_turn *out)
{
    *out = (struct service_turn){.next_ms = LOOK_MS};
    pop_follow(b, out);
    room_enter(&b->room);
    bool idle = b->pop->n_heap == 0;
    room_leave(&b->room);
    if (idle)
        return;
    struct pop_turn *turn = b->pop->turn;
    if (!turn)
        turn = b->pop->turn = turn_make();
    if (!turn) {
        out->err = ERR_NO_MEMORY;
        return;
    }
    if (turn->trouble && clock_ns(b->clock) < turn->retry_ns) {
        out->err = turn->trouble;
        return;
    }
    turn->trouble = OK;
    bool more = true;
    for (int round = 0; more && round < ROUNDS; round++)
        more = batch_revive(b, turn, out);
    if (more)
        out->next_ms = 0;
    if (out->done > 0)
        broker_dispatch_turn(b);
}
